//! Records to events: links, tags, tunnels and trains taken off, ICRCs judged. `link` and `network`
//! go down to the base transport header, `transport` from there on.

use wire::{Gid, Mac};

use crate::event::{Event, What};
use crate::record::{At, Direction, Link, Point, Record};

mod cause;
mod fragments;
mod link;
mod network;
mod train;
mod transport;
mod tunnel;

/// Layers that are taken off one frame at most: tunnels in tunnels end here.
const MAX_DEPTH: u8 = 8;

/// Peels records; keeps what it learns of them (sizes of packets in trains).
#[derive(Debug, Default)]
pub struct Peeler {
    sizes: train::Sizes,
    fragments: fragments::Fragments,
    ports: link::Ports,
}

/// Bytes of a frame from some layer on.
#[derive(Clone, Copy, Debug)]
struct View<'a> {
    /// What was captured.
    bytes: &'a [u8],
    /// Bytes behind it that the frame had and the capture has not.
    missing: usize,
}

impl<'a> View<'a> {
    /// What follows `n` bytes; `None` if they are not all there.
    fn behind(self, n: usize) -> Option<Self> {
        Some(Self { bytes: self.bytes.get(n..)?, ..self })
    }

    /// Bytes of the frame, captured or not.
    fn whole(self) -> usize {
        self.bytes.len() + self.missing
    }

    /// The first `n` bytes of the frame; `None` if it is shorter.
    fn first(self, n: usize) -> Option<Self> {
        if n <= self.bytes.len() {
            return Some(Self { bytes: &self.bytes[..n], missing: 0 });
        }
        let missing = n - self.bytes.len();
        (missing <= self.missing).then_some(Self { missing, ..self })
    }

    fn array<const N: usize>(self, at: usize) -> Option<&'a [u8; N]> {
        self.bytes.get(at..)?.first_chunk()
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(|word| u16::from_be_bytes(*word))
    }

    /// What a frame is that ends before a layer is whole: cut by the capture, or nothing of ours.
    fn short(self) -> What {
        if self.missing > 0 { What::Unread } else { What::Other }
    }
}

/// What is known of a frame above the network layer.
#[derive(Clone, Copy, Debug)]
struct Outside {
    at: At,
    point: Point,
    direction: Option<Direction>,
    /// Bytes of the innermost frame.
    len: usize,
    macs: Option<(Mac, Mac)>,
    tag: Option<(u8, u16)>,
    tunnels: u8,
    depth: u8,
    /// Whether a tunnel around it is a fragment, so that not all of it is here.
    fragment: bool,
    /// Bytes of each packet of a train, from the BTH through the ICRC, where the capture says it.
    segment: Option<usize>,
}

impl Outside {
    fn event(&self, what: What) -> Event {
        Event {
            at: self.at,
            part: 0,
            point: self.point,
            direction: self.direction,
            len: u32::try_from(self.len).unwrap_or(u32::MAX),
            macs: self.macs,
            tag: self.tag,
            tunnels: self.tunnels,
            what,
        }
    }
}

impl Peeler {
    /// The events of a record, added to `events`: one, or one for each packet of a train.
    pub fn peel(&mut self, record: &Record<'_>, events: &mut Vec<Event>) {
        let whole = record.bytes.len().max(record.original_len as usize);
        let view = View { bytes: record.bytes, missing: whole - record.bytes.len() };
        let mut outside = Outside {
            at: record.at,
            point: record.point,
            direction: record.direction,
            len: whole,
            macs: None,
            tag: None,
            tunnels: 0,
            depth: 0,
            fragment: false,
            segment: record.segment.map(usize::from),
        };
        let what = match record.link {
            Link::Ethernet => self.ethernet(view, &mut outside, events),
            Link::RawIp => self.ip(view, &mut outside, events),
            Link::Cooked => self.cooked(view, &mut outside, events),
            Link::Cooked2 => self.cooked2(view, &mut outside, events),
            Link::Erf => self.erf(view, &mut outside, events),
            Link::Infiniband => self.infiniband(view, &mut outside, events),
            Link::Other(_) => Some(What::Unread),
        };
        if let Some(what) = what {
            events.push(outside.event(what));
        }
    }
}

/// An IPv4 address as a GID.
fn mapped(address: [u8; 4]) -> Gid {
    let mut gid = [0; 16];
    gid[10] = 0xFF;
    gid[11] = 0xFF;
    gid[12..].copy_from_slice(&address);
    Gid(gid)
}
