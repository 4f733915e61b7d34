//! Packets that the kernel gave to the wrong process. Where it merges datagrams of one sender, it
//! looks at the first only: what follows may be for another slot. Such a packet is sent on to the
//! address itself, behind a header that leads it to its slot and tells where it came from. Only
//! members of a set know what makes such a header good.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::receive::Origin;
use super::set::SLOTS;

/// What a set's members know and nobody else.
pub(super) type Secret = [u8; 16];

/// An opcode that no service defines.
const OPCODE: u8 = 0xFF;
/// Opcode, partition key, destination QP and PSN as in a BTH; the secret; the origin.
const HEADER: usize = 12 + 16 + 26;

/// The slot of a packet's destination queue pair; `None` if it is too short to have one.
pub(super) fn slot(packet: &[u8]) -> Option<u8> {
    packet.get(5).map(|byte| byte % SLOTS)
}

/// A packet with its origin, to be sent on.
pub(super) fn wrap(secret: &Secret, origin: &Origin, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + packet.len());
    out.push(OPCODE);
    out.extend([0, 0xFF, 0xFF]);
    out.extend(packet.get(4..8).unwrap_or(&[0; 4]));
    out.extend([0; 4]);
    out.extend(secret);
    let ip = match origin.from {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    out.extend(ip.octets());
    out.extend(origin.source_port.to_be_bytes());
    out.extend([origin.traffic_class, origin.hop_limit]);
    out.extend(origin.index.to_be_bytes());
    out.extend(origin.flow_label.to_be_bytes());
    debug_assert_eq!(out.len(), HEADER);
    out.extend(packet);
    out
}

/// A packet that has been sent on, with its origin; `None` if it is an ordinary one. `outer` is
/// where it came from now.
pub(super) fn unwrap<'a>(
    secret: &Secret,
    outer: &Origin,
    bytes: &'a [u8],
) -> Option<(Origin, &'a [u8])> {
    if bytes.first() != Some(&OPCODE) || outer.from != outer.to.to_ip() {
        return None;
    }
    let (header, packet) = bytes.split_at_checked(HEADER)?;
    let (known, origin) = header.get(12..)?.split_first_chunk::<16>()?;
    // All of it, whatever differs first.
    let wrong = known.iter().zip(secret).fold(0, |wrong, (a, b)| wrong | (a ^ b));
    let (&ip, rest) = origin.split_first_chunk::<16>()?;
    let (&[port_high, port_low, traffic_class, hop_limit, index_high, index_low], label) =
        rest.split_first_chunk::<6>()?;
    let flow_label = u32::from_be_bytes(label.try_into().ok()?);
    let ip = Ipv6Addr::from(ip);
    let from = match outer.from {
        IpAddr::V4(_) => IpAddr::V4(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        IpAddr::V6(_) => IpAddr::V6(ip),
    };
    let source_port = u16::from_be_bytes([port_high, port_low]);
    let index = u16::from_be_bytes([index_high, index_low]);
    let to = outer.to;
    let origin = Origin { from, source_port, to, traffic_class, hop_limit, flow_label, index };
    (wrong == 0).then_some((origin, packet))
}

#[cfg(test)]
mod tests {
    use wire::Gid;

    use super::*;

    const SECRET: Secret = *b"sixteen secrets!";

    #[test]
    fn what_is_wrapped_comes_out_as_it_was() {
        for (own, from) in [("10.0.0.1", "10.9.8.7"), ("fd00::1", "fe80::7")] {
            let own: IpAddr = own.parse().unwrap();
            let origin = Origin {
                from: from.parse().unwrap(),
                source_port: 0xC123,
                to: Gid::from_ip(own),
                traffic_class: 0x6A,
                hop_limit: 17,
                flow_label: 0x4_5678,
                index: 300,
            };
            let packet: Vec<u8> = (0..60).collect();
            let wrapped = wrap(&SECRET, &origin, &packet);
            assert_eq!(slot(&wrapped), slot(&packet));
            let outer = Origin { from: own, source_port: 0xFFFF, index: 0, ..origin };
            assert_eq!(unwrap(&SECRET, &outer, &wrapped), Some((origin, &packet[..])));
            assert_eq!(unwrap(b"another secret!!", &outer, &wrapped), None);
            assert_eq!(unwrap(&SECRET, &Origin { from: origin.from, ..outer }, &wrapped), None);
            for end in 0..HEADER {
                assert_eq!(unwrap(&SECRET, &outer, &wrapped[..end]), None);
            }
            assert_eq!(unwrap(&SECRET, &outer, &packet), None);
            assert!(unwrap(&SECRET, &outer, &wrap(&SECRET, &origin, &[])).is_some());
        }
        assert_eq!((slot(&[0; 5]), slot(&[0, 0, 0, 0, 0, 65])), (None, Some(1)));
    }
}
