//! The network layer: IPv4, IPv6, UDP and the global route header of RoCEv1.

use wire::flow::ROCE_PORT;
use wire::infiniband::GRH_NEXT_HEADER;
use wire::packet::Encapsulation;
use wire::{DropReason, Gid, Layer, checksum};

use super::transport::{Carrier, LONGEST};
use super::{MAX_DEPTH, Outside, Peeler, View, mapped};
use crate::event::{Event, Path, What};

const IPV4_IN_IP: u8 = 4;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const IPV6_FRAGMENT: u8 = 44;
const GRE: u8 = 47;
const MPLS_IN_IP: u8 = 137;
const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// What an IP header says of what follows.
struct Ip<'a> {
    path: Path,
    /// As captured, options included.
    header: &'a [u8],
    protocol: u8,
    fault: Option<DropReason>,
    /// Identification of a fragment.
    fragment: u32,
}

impl Peeler {
    /// An IP header without an Ethernet type before it.
    pub(super) fn ip(
        &mut self,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        match view.bytes.first().map(|byte| byte >> 4) {
            Some(4) => self.ipv4(view, outside, events),
            Some(6) => self.ipv6(view, outside, events),
            Some(_) => Some(What::Other),
            None => Some(view.short()),
        }
    }

    pub(super) fn ipv4(
        &mut self,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(h) = view.array::<IPV4_LEN>(0) else { return Some(view.short()) };
        let header_len = usize::from(h[0] & 15) * 4;
        if h[0] >> 4 != 4 || header_len < IPV4_LEN {
            return Some(What::Other);
        }
        let Some(header) = view.bytes.get(..header_len) else { return Some(view.short()) };
        let word = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        let path = Path {
            encapsulation: Encapsulation::RoceV2,
            source: mapped([h[12], h[13], h[14], h[15]]),
            destination: mapped([h[16], h[17], h[18], h[19]]),
            traffic_class: h[1],
            hop_limit: h[8],
            flow_label: 0,
            source_port: 0,
            ident: word(4),
            dont_fragment: h[6] & 0x40 != 0,
            udp_checksum: None,
        };
        let total = usize::from(word(2));
        let mut fault = None;
        if word(6) & 0x3FFF != 0 {
            fault = Some(DropReason::Fragment);
        } else if word(10) != 0 && checksum::ones_complement_sum(header) != 0xFFFF {
            // A checksum of 0 is never right: the frame was captured before the adapter filled it.
            fault = Some(DropReason::Ipv4Checksum);
        }
        let packet = match view.first(total) {
            _ if total < header_len => {
                fault = Some(DropReason::Length(Layer::Ipv4));
                view
            }
            Some(packet) => packet,
            None => {
                fault = Some(DropReason::Truncated(Layer::Ipv4));
                view
            }
        };
        let Some(payload) = packet.behind(header_len) else { return Some(packet.short()) };
        outside.len -= view.whole() - packet.whole();
        let ip = Ip { path, header, protocol: h[9], fault, fragment: u32::from(path.ident) };
        if word(6) & 0x1FFF != 0 {
            return Some(self.later_fragment(&ip));
        }
        self.carried(ip, payload, outside, events)
    }

    pub(super) fn ipv6(
        &mut self,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(h) = view.array::<IPV6_LEN>(0) else { return Some(view.short()) };
        if h[0] >> 4 != 6 {
            return Some(What::Other);
        }
        let payload_len = usize::from(u16::from_be_bytes([h[4], h[5]]));
        let (packet, fault) = match view.first(IPV6_LEN + payload_len) {
            Some(packet) => (packet, None),
            None => (view, Some(DropReason::Truncated(Layer::Ipv6))),
        };
        let Some(payload) = packet.behind(IPV6_LEN) else { return Some(packet.short()) };
        outside.len -= view.whole() - packet.whole();
        let path = grh_path(Encapsulation::RoceV2, h);
        let mut ip = Ip { path, header: h, protocol: h[6], fault, fragment: 0 };
        let mut payload = payload;
        if ip.protocol == IPV6_FRAGMENT {
            let Some([next, _, offset, low, id @ ..]) = payload.array::<8>(0) else {
                return Some(payload.short());
            };
            ip.protocol = *next;
            ip.fault = Some(DropReason::Fragment);
            ip.fragment = u32::from_be_bytes(*id);
            if u16::from_be_bytes([*offset, *low]) >> 3 != 0 {
                return Some(self.later_fragment(&ip));
            }
            let Some(behind) = payload.behind(8) else { return Some(payload.short()) };
            payload = behind;
        }
        self.carried(ip, payload, outside, events)
    }

    fn carried(
        &mut self,
        ip: Ip<'_>,
        payload: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        if outside.depth == MAX_DEPTH {
            return Some(What::Other);
        }
        outside.fragment |= ip.fault == Some(DropReason::Fragment) && ip.protocol != UDP;
        match ip.protocol {
            UDP => self.udp(ip, payload, outside, events),
            GRE => self.gre(payload, outside, events),
            IPV4_IN_IP | IPV6_IN_IP => self.nested(payload, outside, events),
            MPLS_IN_IP => self.mpls(payload, outside, events),
            _ => Some(What::Other),
        }
    }

    /// A fragment that is not the first: ours if the first was.
    fn later_fragment(&self, ip: &Ip<'_>) -> What {
        let name = (ip.path.source, ip.path.destination, ip.fragment);
        if ip.protocol == UDP && self.fragments.knows(&name) {
            return What::Damaged { path: Some(ip.path), reason: DropReason::Fragment };
        }
        What::Other
    }

    fn udp(
        &mut self,
        ip: Ip<'_>,
        datagram: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(udp) = datagram.array::<UDP_LEN>(0) else { return Some(datagram.short()) };
        let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        if word(2) != ROCE_PORT {
            let payload = datagram.behind(UDP_LEN)?;
            outside.fragment |= ip.fault == Some(DropReason::Fragment);
            return self.udp_tunnel(word(2), payload, outside, events);
        }
        let mut path = ip.path;
        path.source_port = word(0);
        let said = usize::from(word(4));
        let reason = match ip.fault {
            None if said != datagram.whole() => Some(DropReason::Length(Layer::Udp)),
            fault => fault,
        };
        if let Some(reason) = reason {
            if reason == DropReason::Fragment {
                self.fragments.begin((path.source, path.destination, ip.fragment));
            }
            return Some(What::Damaged { path: Some(path), reason });
        }
        path.udp_checksum = match word(6) {
            0 => Some(true),
            _ if datagram.missing > 0 || said > LONGEST => None,
            stored => udp_checksum(&path, datagram.bytes, stored),
        };
        let carrier = Carrier::Udp { ip: ip.header, udp };
        let transport = datagram.behind(UDP_LEN)?;
        self.transport(&carrier, path, transport, outside, events)
    }

    pub(super) fn roce_v1(
        &mut self,
        view: View<'_>,
        outside: &mut Outside,
        events: &mut Vec<Event>,
    ) -> Option<What> {
        let Some(grh) = view.array::<IPV6_LEN>(0) else { return Some(view.short()) };
        let path = grh_path(Encapsulation::RoceV1, grh);
        let damaged = |reason| Some(What::Damaged { path: Some(path), reason });
        if grh[0] >> 4 != 6 {
            return damaged(DropReason::Version(Layer::Grh));
        }
        if grh[6] != GRH_NEXT_HEADER {
            return damaged(DropReason::NextHeader(Layer::Grh));
        }
        let payload_len = usize::from(u16::from_be_bytes([grh[4], grh[5]]));
        let Some(packet) = view.first(IPV6_LEN + payload_len) else {
            return damaged(DropReason::Truncated(Layer::Grh));
        };
        outside.len -= view.whole() - packet.whole();
        let Some(transport) = packet.behind(IPV6_LEN) else { return Some(packet.short()) };
        self.transport(&Carrier::Grh { grh }, path, transport, outside, events)
    }
}

/// The path of an IPv6 header or a GRH.
pub(super) fn grh_path(encapsulation: Encapsulation, h: &[u8; IPV6_LEN]) -> Path {
    let word = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&h[8..24]);
    destination.copy_from_slice(&h[24..]);
    Path {
        encapsulation,
        source: Gid(source),
        destination: Gid(destination),
        traffic_class: (word >> 20) as u8,
        hop_limit: h[7],
        flow_label: word & 0xF_FFFF,
        source_port: 0,
        ident: 0,
        dont_fragment: true,
        udp_checksum: None,
    }
}

/// Whether a UDP checksum is right; `None` for the sum of the addresses and lengths alone, which
/// the adapter was to complete.
fn udp_checksum(path: &Path, datagram: &[u8], stored: u16) -> Option<bool> {
    if stored == pseudo_sum(path, datagram.len()) {
        return None;
    }
    let (source, destination) = (path.source.to_ip(), path.destination.to_ip());
    Some(stored == checksum::udp_of_written(source, destination, datagram))
}

/// The ones' complement sum of what a UDP checksum covers before the UDP header.
fn pseudo_sum(path: &Path, len: usize) -> u16 {
    let mut covered = [0; 36];
    let start = if path.source.is_ipv4() { 12 } else { 0 };
    let (source, rest) = covered.split_at_mut(16);
    let (destination, rest) = rest.split_at_mut(16);
    source[start..].copy_from_slice(&path.source.0[start..]);
    destination[start..].copy_from_slice(&path.destination.0[start..]);
    rest[1] = UDP;
    rest[2..].copy_from_slice(&(len as u16).to_be_bytes());
    checksum::ones_complement_sum(&covered)
}
