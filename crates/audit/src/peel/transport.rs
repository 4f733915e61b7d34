//! From the base transport header to the ICRC: headers, verdict, management datagrams.

use wire::mad::Mad;
use wire::packet::{Bth, Extensions};
use wire::transport::{self, BTH_LEN, ICRC_LEN, MAX_HEADERS};
use wire::{DropReason, Layer, Opcode, icrc};

use super::{Outside, Peeler, View, cause, network};
use crate::event::{Event, Icrc, Packet, Path, What};

/// The queue pair of the connection manager.
const MANAGEMENT: u32 = 1;

/// The headers before a BTH that the ICRC covers, as captured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carrier<'a> {
    Udp { ip: &'a [u8], udp: &'a [u8; 8] },
    Grh { grh: &'a [u8; 40] },
}

impl Peeler {
    pub(super) fn transport(
        &mut self,
        carrier: &Carrier<'_>,
        path: Path,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        if view.missing > 0 {
            return Some(cut(path, view));
        }
        let what = whole(path, view.bytes, network::state(carrier), carrier);
        events.push(outside.event(what));
        None
    }
}

/// A packet that was captured whole.
fn whole(path: Path, bytes: &[u8], state: u32, carrier: &Carrier<'_>) -> What {
    let Some((body, stored)) = bytes.split_last_chunk::<ICRC_LEN>() else {
        return What::Damaged { path: Some(path), reason: DropReason::Truncated(Layer::Transport) };
    };
    let (right, stored) = (icrc::finish(state, body), u32::from_le_bytes(*stored));
    let icrc = if right == stored {
        Icrc::Right
    } else {
        Icrc::Wrong(cause::explain(carrier, body, stored, right))
    };
    match transport::parse(bytes) {
        Err(reason) => What::Refused { path, reason, head: head(bytes), icrc },
        Ok(read) => What::Packet(Packet {
            path,
            bth: read.bth,
            ext: read.ext,
            payload_len: read.payload.len() as u32,
            icrc,
            mad: mad(&read.bth, read.payload, icrc),
        }),
    }
}

fn mad(bth: &Bth, payload: &[u8], icrc: Icrc) -> Option<Box<Mad>> {
    if bth.dest_qp.get() != MANAGEMENT || icrc != Icrc::Right {
        return None;
    }
    Mad::parse(payload).ok().map(Box::new)
}

/// Opcode and destination queue pair.
fn head(bytes: &[u8]) -> Option<(u8, u32)> {
    let bth = bytes.first_chunk::<BTH_LEN>()?;
    Some((bth[0], u32::from_be_bytes([0, bth[5], bth[6], bth[7]])))
}

/// A packet of which the capture has only the beginning.
fn cut(path: Path, view: View<'_>) -> What {
    let headers = view.array::<BTH_LEN>(0).and_then(|bth| Opcode(bth[0]).headers());
    let Some(headers) = headers else {
        return match head(view.bytes) {
            None => What::Unread,
            Some((opcode, qp)) => What::Refused {
                path,
                reason: DropReason::UnknownOpcode(opcode),
                head: Some((opcode, qp)),
                icrc: Icrc::Cut,
            },
        };
    };
    let len = BTH_LEN + headers.byte_len();
    match headers_of(view.bytes, len) {
        None if view.bytes.len() < len => What::Unread,
        None => refused(path, view, DropReason::Version(Layer::Transport)),
        Some((bth, ext)) => {
            let pad = usize::from(view.bytes[1] >> 4 & 3);
            match view.whole().checked_sub(len + ICRC_LEN) {
                None => refused(path, view, DropReason::Truncated(Layer::Transport)),
                Some(padded) if padded % 4 != 0 || pad > padded => {
                    refused(path, view, DropReason::Pad)
                }
                Some(padded) => What::Packet(Packet {
                    path,
                    bth,
                    ext,
                    payload_len: (padded - pad) as u32,
                    icrc: Icrc::Cut,
                    mad: None,
                }),
            }
        }
    }
}

fn refused(path: Path, view: View<'_>, reason: DropReason) -> What {
    What::Refused { path, reason, head: head(view.bytes), icrc: Icrc::Cut }
}

/// The headers in the first `len` bytes.
fn headers_of(bytes: &[u8], len: usize) -> Option<(Bth, Extensions)> {
    // As a packet without payload: the pad count taken out, an ICRC put behind.
    let mut alone = [0; MAX_HEADERS + ICRC_LEN];
    let alone = alone.get_mut(..len + ICRC_LEN)?;
    alone[..len].copy_from_slice(bytes.get(..len)?);
    alone[1] &= !0x30;
    transport::parse(alone).ok().map(|read| (read.bth, read.ext))
}
