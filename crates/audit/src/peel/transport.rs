//! From the base transport header to the ICRC: headers, verdict, management datagrams.

use wire::mad::Mad;
use wire::packet::{Bth, Extensions};
use wire::transport::{self, BTH_LEN, ICRC_LEN, MAX_HEADERS};
use wire::{DropReason, Layer, Opcode, icrc};

use super::{Outside, Peeler, View, cause};
use crate::event::{Event, Icrc, Packet, Path, What};

/// The queue pair of the connection manager.
const MANAGEMENT: u32 = 1;
/// The most bytes of a packet from the BTH through the ICRC.
pub(super) const LONGEST: usize = MAX_HEADERS + 4096 + ICRC_LEN;

/// The headers before a BTH that the ICRC covers, as captured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carrier<'a> {
    Udp { ip: &'a [u8], udp: &'a [u8; 8] },
    Grh { grh: &'a [u8; 40] },
    Lrh { lrh: &'a [u8; 8] },
}

impl Carrier<'_> {
    /// The ICRC's state before the BTH.
    pub(super) fn state(&self) -> u32 {
        match self {
            Self::Udp { ip, udp } => icrc::udp_state(ip, *udp),
            Self::Grh { grh } => icrc::grh_state(grh),
            Self::Lrh { lrh } => icrc::lrh_state(lrh),
        }
    }
}

/// A packet of a train, with the headers that segmentation gives it.
pub(super) struct Segment<'a> {
    ip: [u8; 60],
    ip_len: usize,
    udp: [u8; 8],
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The packet at a place of the train: its lengths are its own, and the identification counts
    /// up from the first one's, as Linux does it.
    pub(super) fn new(carrier: &Carrier<'_>, bytes: &'a [u8], part: u16) -> Self {
        let (mut header, mut ip_len, mut ports) = ([0; 60], 0, [0; 8]);
        if let Carrier::Udp { ip, udp } = carrier {
            ip_len = ip.len().min(60);
            header[..ip_len].copy_from_slice(&ip[..ip_len]);
            ports = **udp;
        }
        let udp_len = bytes.len() + ports.len();
        ports[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        if header[0] >> 4 == 4 {
            let ident = u16::from_be_bytes([header[4], header[5]]).wrapping_add(part);
            header[2..4].copy_from_slice(&((ip_len + udp_len) as u16).to_be_bytes());
            header[4..6].copy_from_slice(&ident.to_be_bytes());
        } else {
            header[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        }
        Self { ip: header, ip_len, udp: ports, bytes }
    }

    fn carrier(&self) -> Carrier<'_> {
        Carrier::Udp { ip: &self.ip[..self.ip_len], udp: &self.udp }
    }

    fn check(&self) -> Option<(u32, u32)> {
        check(&self.carrier(), self.bytes)
    }

    pub(super) fn is_right(&self) -> bool {
        self.check().is_some_and(|(right, stored)| right == stored)
    }
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
        if outside.fragment {
            return Some(What::Damaged { path: Some(path), reason: DropReason::Fragment });
        }
        if view.missing > 0 {
            return Some(cut(path, view));
        }
        let bytes = view.bytes;
        // What may be one packet, and is right as such, is one.
        let alone = if bytes.len() <= LONGEST { check(carrier, bytes) } else { None };
        if alone.is_none_or(|(right, stored)| right != stored)
            && let Some(size) = self.segment(carrier, bytes, outside.segment)
        {
            split(carrier, path, bytes, size, outside, events);
            return None;
        }
        match alone.or_else(|| check(carrier, bytes)) {
            Some(crcs) => read(path, bytes, verdict(carrier, bytes, crcs), 0, outside, events),
            None => events.push(outside.event(too_short(path))),
        }
        None
    }

    /// The size of the packets in a datagram that is a train.
    fn segment(
        &mut self,
        carrier: &Carrier<'_>,
        bytes: &[u8],
        said: Option<usize>,
    ) -> Option<usize> {
        match (carrier, said) {
            (Carrier::Udp { .. }, None) => self.train(carrier, bytes),
            (Carrier::Udp { .. }, Some(size)) => (1..bytes.len()).contains(&size).then_some(size),
            _ => None,
        }
    }
}

/// The packets of a train.
fn split(
    carrier: &Carrier<'_>,
    path: Path,
    bytes: &[u8],
    size: usize,
    outside: &mut Outside,
    events: &mut Vec<Event>,
) {
    let before = outside.len.saturating_sub(bytes.len());
    for (packet, part) in bytes.chunks(size).zip(0..) {
        let mut segment = Segment::new(carrier, packet, part);
        let mut crcs = segment.check();
        if crcs.is_some_and(|(right, stored)| right != stored) {
            // Some hardware gives all the same identification.
            let same = Segment::new(carrier, packet, 0);
            if same.is_right() {
                crcs = same.check();
                segment = same;
            }
        }
        let mut path = path;
        if segment.ip[0] >> 4 == 4 {
            path.ident = u16::from_be_bytes([segment.ip[4], segment.ip[5]]);
        }
        outside.len = before + packet.len();
        match crcs {
            Some(crcs) => {
                let icrc = verdict(&segment.carrier(), packet, crcs);
                read(path, packet, icrc, part, outside, events);
            }
            None => events.push(Event { part, ..outside.event(too_short(path)) }),
        }
    }
}

/// The right ICRC of a packet and the stored one.
fn check(carrier: &Carrier<'_>, bytes: &[u8]) -> Option<(u32, u32)> {
    let (body, stored) = bytes.split_last_chunk::<ICRC_LEN>()?;
    Some((icrc::finish(carrier.state(), body), u32::from_le_bytes(*stored)))
}

fn verdict(carrier: &Carrier<'_>, bytes: &[u8], (right, stored): (u32, u32)) -> Icrc {
    if right == stored {
        return Icrc::Right;
    }
    let body = &bytes[..bytes.len() - ICRC_LEN];
    Icrc::Wrong(cause::explain(carrier, body, stored, right))
}

fn too_short(path: Path) -> What {
    What::Damaged { path: Some(path), reason: DropReason::Truncated(Layer::Transport) }
}

/// Adds the event of a packet that was captured whole. Made where it is added: a packet is large.
#[inline]
fn read(
    path: Path,
    bytes: &[u8],
    icrc: Icrc,
    part: u16,
    outside: &Outside,
    events: &mut Vec<Event>,
) {
    match transport::parse(bytes) {
        Err(reason) => {
            let what = What::Refused { path, reason, head: head(bytes), icrc };
            events.push(Event { part, ..outside.event(what) });
        }
        Ok(read) => events.push(Event {
            at: outside.at,
            part,
            point: outside.point,
            direction: outside.direction,
            len: outside.len as u32,
            macs: outside.macs,
            tag: outside.tag,
            tunnels: outside.tunnels,
            what: What::Packet(Packet {
                path,
                bth: read.bth,
                ext: read.ext,
                payload_len: read.payload.len() as u32,
                icrc,
                mad: mad(&read.bth, read.payload, icrc),
            }),
        }),
    }
}

#[inline]
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
    let Some((opcode, qp)) = head(view.bytes) else { return What::Unread };
    let refused = |reason| {
        let head = Some((opcode, qp));
        What::Refused { path, reason, head, icrc: Icrc::Cut }
    };
    let Some(headers) = Opcode(opcode).headers() else {
        return refused(DropReason::UnknownOpcode(opcode));
    };
    let len = BTH_LEN + headers.byte_len();
    if view.bytes.len() < len || view.whole() > LONGEST {
        // The headers of a train's other packets are lost.
        return What::Unread;
    }
    let Some((bth, ext)) = headers_of(view.bytes, len) else {
        return refused(DropReason::Version(Layer::Transport));
    };
    let pad = usize::from(view.bytes[1] >> 4 & 3);
    match view.whole().checked_sub(len + ICRC_LEN) {
        None => refused(DropReason::Truncated(Layer::Transport)),
        Some(padded) if !padded.is_multiple_of(4) || pad > padded => refused(DropReason::Pad),
        Some(padded) => {
            let payload_len = (padded - pad) as u32;
            What::Packet(Packet { path, bth, ext, payload_len, icrc: Icrc::Cut, mad: None })
        }
    }
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
