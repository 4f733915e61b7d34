//! Link layers: Ethernet with its tags, the cooked headers of Linux, ERF, InfiniBand. What they
//! carry is for `network`.

use wire::ethernet::{
    TYPE_CUSTOMER_TAG, TYPE_IPV4, TYPE_IPV6, TYPE_LLDP, TYPE_MAC_CONTROL, TYPE_ROCE_V1,
    TYPE_SERVICE_TAG,
};
use wire::frame::Body;
use wire::infiniband::{GRH_LEN, LRH_LEN, VCRC_LEN};
use wire::packet::Encapsulation;
use wire::{DropReason, Gid, Layer, Mac, frame, vcrc};

use hashbrown::HashMap;

use super::transport::Carrier;
use super::{Outside, Peeler, View};
use crate::event::{Event, Path, What};
use crate::record::{Direction, Point};

/// Tag types of the time before 802.1ad.
const TYPE_OLD_SERVICE_TAGS: [u16; 2] = [0x9100, 0x9200];
/// Tags of one frame that are read.
const MAX_TAGS: usize = 4;
/// MPLS, one receiver or many.
const TYPES_MPLS: [u16; 2] = [0x8847, 0x8848];

/// Points within a point that are told apart, and the first number that they get.
const MAX_PORTS: usize = 4096;
const FIRST_PORT: u16 = 4096;

/// Points of capture that frames name themselves: interfaces of the "any" device, ports of a card.
#[derive(Debug, Default)]
pub(super) struct Ports(HashMap<(Point, u32), Point>);

impl Ports {
    fn point(&mut self, of: Point, port: u32) -> Point {
        let next = FIRST_PORT + self.0.len() as u16;
        if let Some(point) = self.0.get(&(of, port)) {
            return *point;
        }
        if self.0.len() == MAX_PORTS {
            return of;
        }
        self.0.insert((of, port), Point(next));
        Point(next)
    }
}

impl Peeler {
    pub(super) fn ethernet(
        &mut self,
        frame: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]) = frame.array(0) else {
            return Some(frame.short());
        };
        let source = Mac([*s0, *s1, *s2, *s3, *s4, *s5]);
        outside.macs = Some((source, Mac([*d0, *d1, *d2, *d3, *d4, *d5])));
        outside.tag = None;
        let mut kind = u16::from_be_bytes([*t0, *t1]);
        let mut at = 14;
        while is_tag(kind) && at < 14 + 4 * MAX_TAGS {
            let (Some(control), Some(next)) = (frame.u16(at), frame.u16(at + 2)) else {
                return Some(frame.short());
            };
            outside.tag.get_or_insert(((control >> 13) as u8, control & 0xFFF));
            kind = next;
            at += 4;
        }
        let Some(behind) = frame.behind(at) else { return Some(frame.short()) };
        match kind {
            TYPE_MAC_CONTROL => Some(mac_control(frame)),
            TYPE_LLDP => {
                Some(if frame.missing > 0 { What::Unread } else { What::Lldp(behind.bytes.into()) })
            }
            kind => self.network(kind, behind, outside, events),
        }
    }

    /// What an Ethernet type says that follows.
    pub(super) fn network(
        &mut self,
        kind: u16,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        match kind {
            TYPE_IPV4 => self.ipv4(view, outside, events),
            TYPE_IPV6 => self.ipv6(view, outside, events),
            TYPE_ROCE_V1 => self.roce_v1(view, outside, events),
            kind if TYPES_MPLS.contains(&kind) => self.mpls(view, outside, events),
            _ => Some(What::Other),
        }
    }

    /// The first cooked header: packet type, kind and address of the device, Ethernet type.
    pub(super) fn cooked(
        &mut self,
        frame: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let (Some(sort), Some(kind)) = (frame.u16(0), frame.u16(14)) else {
            return Some(frame.short());
        };
        outside.direction = cooked_direction(sort).or(outside.direction);
        self.cooked_payload(kind, frame, 16, outside, events)
    }

    /// The second one: Ethernet type, interface, kind of the device, packet type, address.
    pub(super) fn cooked2(
        &mut self,
        frame: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(h) = frame.array::<20>(0) else { return Some(frame.short()) };
        outside.direction = cooked_direction(u16::from(h[10])).or(outside.direction);
        let interface = u32::from_be_bytes([h[4], h[5], h[6], h[7]]);
        outside.point = self.ports.point(outside.point, interface);
        self.cooked_payload(u16::from_be_bytes([h[0], h[1]]), frame, 20, outside, events)
    }

    fn cooked_payload(
        &mut self,
        mut kind: u16,
        frame: View<'_>,
        mut at: usize,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        outside.len = frame.whole().saturating_sub(at);
        while is_tag(kind) && at < 20 + 4 * MAX_TAGS {
            let (Some(control), Some(next)) = (frame.u16(at), frame.u16(at + 2)) else {
                return Some(frame.short());
            };
            outside.tag.get_or_insert(((control >> 13) as u8, control & 0xFFF));
            kind = next;
            at += 4;
        }
        let Some(behind) = frame.behind(at) else { return Some(frame.short()) };
        match kind {
            TYPE_LLDP if frame.missing == 0 => Some(What::Lldp(behind.bytes.into())),
            kind => self.network(kind, behind, outside, events),
        }
    }

    /// A record of a DAG card: header, extension headers, frame, padding.
    pub(super) fn erf(
        &mut self,
        record: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(h) = record.array::<16>(0) else { return Some(record.short()) };
        let wire_len = usize::from(u16::from_be_bytes([h[14], h[15]]));
        outside.point = self.ports.point(outside.point, u32::from(h[9] & 3));
        let (mut more, mut at) = (h[8] & 0x80 != 0, 16);
        while more {
            let Some(extension) = record.array::<8>(at) else { return Some(record.short()) };
            more = extension[0] & 0x80 != 0;
            at += 8;
        }
        let kind = h[8] & 0x7F;
        let is_ethernet = matches!(kind, 2 | 11 | 16 | 20);
        if is_ethernet {
            // Where the frame begins, and a byte to fill the word.
            at += 2;
        }
        let Some(frame) = record.behind(at) else { return Some(record.short()) };
        let bytes = frame.bytes.get(..wire_len).unwrap_or(frame.bytes);
        let frame = View { bytes, missing: wire_len - bytes.len() };
        outside.len = frame.whole();
        match kind {
            _ if is_ethernet => self.ethernet(frame, outside, events),
            21 => self.infiniband(frame, outside, events),
            22 | 23 => self.ip(frame, outside, events),
            _ => Some(What::Unread),
        }
    }

    /// A packet of an InfiniBand link, with or without its variant CRC.
    pub(super) fn infiniband(
        &mut self,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(lrh) = view.array::<LRH_LEN>(0) else { return Some(view.short()) };
        let word = |at: usize| u16::from_be_bytes([lrh[at], lrh[at + 1]]);
        let lid = |lid: u16| {
            let mut gid = [0; 16];
            gid[14..].copy_from_slice(&lid.to_be_bytes());
            Gid(gid)
        };
        let mut path = Path {
            encapsulation: Encapsulation::Infiniband,
            source: lid(word(6)),
            destination: lid(word(2)),
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            source_port: 0,
            ident: 0,
            dont_fragment: true,
            udp_checksum: None,
        };
        let has_grh = match lrh[1] & 3 {
            2 => false,
            3 => true,
            _ => return Some(What::Other),
        };
        let damaged = |path, reason| Some(What::Damaged { path: Some(path), reason });
        let said = usize::from(word(4) & 0x7FF) * 4;
        let Some(packet) = view.first(said) else {
            return damaged(path, DropReason::Truncated(Layer::Lrh));
        };
        outside.len = said;
        if packet.missing == 0
            && let Some(stored) = view.array::<VCRC_LEN>(said)
            && *stored != [0; VCRC_LEN]
            && ![*stored, [stored[1], stored[0]]]
                .contains(&vcrc::compute(packet.bytes).to_le_bytes())
        {
            // Adapters that hand packets to a capture leave it out, or zero.
            return damaged(path, DropReason::Vcrc);
        }
        if !has_grh {
            let Some(transport) = packet.behind(LRH_LEN) else { return Some(packet.short()) };
            return self.transport(&Carrier::Lrh { lrh }, path, transport, outside, events);
        }
        let Some(grh) = packet.array::<GRH_LEN>(LRH_LEN) else { return Some(packet.short()) };
        path = super::network::grh_path(Encapsulation::Infiniband, grh);
        if usize::from(u16::from_be_bytes([grh[4], grh[5]])) + LRH_LEN + GRH_LEN != said {
            return damaged(path, DropReason::Length(Layer::Grh));
        }
        let Some(transport) = packet.behind(LRH_LEN + GRH_LEN) else {
            return Some(packet.short());
        };
        self.transport(&Carrier::Grh { grh }, path, transport, outside, events)
    }
}

/// The meaning of a cooked header's packet type: to us, to all, to many; sent by us.
fn cooked_direction(sort: u16) -> Option<Direction> {
    match sort {
        0..=2 => Some(Direction::In),
        4 => Some(Direction::Out),
        _ => None,
    }
}

fn is_tag(kind: u16) -> bool {
    kind == TYPE_CUSTOMER_TAG || kind == TYPE_SERVICE_TAG || TYPE_OLD_SERVICE_TAGS.contains(&kind)
}

fn mac_control(frame: View<'_>) -> What {
    match frame::parse_frame(frame.bytes) {
        Ok(frame) => match frame.body {
            Body::MacControl(control) => What::Pause(control),
            _ => What::Other,
        },
        // Other protocols use the type too: flow control of EPON and of manufacturers.
        Err(DropReason::UnknownMacControl(_)) => What::Other,
        Err(_) if frame.missing > 0 => What::Unread,
        Err(reason) => What::Damaged { path: None, reason },
    }
}
