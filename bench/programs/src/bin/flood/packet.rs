//! Bytes of RoCEv2 packets, from the BTH through the ICRC, as a hostile sender wants them: any
//! field, right or wrong, and an ICRC that is made by hand. Nothing of crocevia is linked in.

use std::net::IpAddr;

/// Bytes of a base transport header, and of the ICRC.
pub(crate) const BTH: usize = 12;
pub(crate) const ICRC: usize = 4;
/// The port that RoCEv2 packets go to.
pub(crate) const PORT: u16 = 4791;

/// Opcodes by name.
pub(crate) const UD_SEND_ONLY: u8 = 0x64;
pub(crate) const CNP: u8 = 0x81;
/// The acknowledgement of a reliable connection.
pub(crate) const RC_ACK: u8 = 0x11;
/// Questions and answers by which the unreliable services do not overrun each other.
pub(crate) const FLOW: u8 = 0xF1;

/// Whether packets of an opcode carry the Q_Key of the queue pair that they are for.
pub(crate) fn has_q_key(opcode: u8) -> bool {
    opcode >> 5 == 3 || opcode == FLOW
}

/// Whether it is of reliable connections.
pub(crate) fn is_reliable(opcode: u8) -> bool {
    opcode >> 5 == 0
}

/// Bytes of the BTH and of the extension headers of an opcode.
pub(crate) fn header_len(opcode: u8) -> usize {
    let more = match opcode & 0x1F {
        0x06 | 0x0A | 0x0C => 16,
        0x0B => 20,
        0x13 | 0x14 => 28,
        0x0D | 0x0F | 0x10 | 0x11 | 0x03 | 0x05 | 0x09 | 0x16 | 0x17 => 4,
        0x12 => 12,
        _ => 0,
    };
    let service = match opcode >> 5 {
        3 | 7 => 8,
        5 => 4,
        _ => 0,
    };
    BTH + service + more
}

/// Where a packet comes from and goes to, as its ICRC covers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Flow {
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    pub(crate) source_port: u16,
}

/// A sequence of numbers that depends on the seed only (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// A byte that is not 0.
    pub(crate) fn change(&mut self) -> u8 {
        1 + self.below(255) as u8
    }
}

/// The 24 bits behind the byte at `at`.
pub(crate) fn u24(bytes: &[u8], at: usize) -> u32 {
    let get = |i: usize| u32::from(bytes.get(at + i).copied().unwrap_or(0));
    get(0) << 16 | get(1) << 8 | get(2)
}

pub(crate) fn set_u24(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 3) {
        place.copy_from_slice(&value.to_be_bytes()[1..]);
    }
}

/// What the ICRC of a packet of `len` bytes from the BTH on covers before that: 8 bytes of ones,
/// the IP header without what changes on the way, the UDP header without its checksum. `ident` is
/// the identification of an IPv4 header, whose "don't fragment" is set.
fn pseudo_header(flow: Flow, len: usize, ident: u16, out: &mut [u8; 8 + 40 + 8]) -> usize {
    let udp_len = (8 + len) as u16;
    out.fill(0xFF);
    let at = match (flow.source, flow.target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let ip = &mut out[8..28];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
            ip[4..6].copy_from_slice(&ident.to_be_bytes());
            ip[6..8].copy_from_slice(&0x4000_u16.to_be_bytes());
            ip[9] = 17;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&target.octets());
            28
        }
        (source, target) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let ip = &mut out[8..48];
            ip[0] = 0x6F;
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
            ip[6] = 17;
            ip[8..24].copy_from_slice(&octets(source));
            ip[24..40].copy_from_slice(&octets(target));
            48
        }
    };
    let udp = &mut out[at..at + 8];
    udp[..2].copy_from_slice(&flow.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    at + 8
}

/// Writes the ICRC that is right for the packet into its last four bytes.
pub(crate) fn seal(flow: Flow, ident: u16, packet: &mut [u8]) {
    let mut header = [0; 8 + 40 + 8];
    let header_len = pseudo_header(flow, packet.len(), ident, &mut header);
    let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC>() else { return };
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..header_len]);
    if let (Some(head), Some(rest)) = (body.get(..4), body.get(5..)) {
        crc.update(head);
        crc.update(&[0xFF]);
        crc.update(rest);
    } else {
        crc.update(body);
    }
    *icrc = crc.finalize().to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_icrc_is_made() {
        // A SEND of a Linux peer, but for its identification: worked by hand.
        let mut packet = [4, 0, 0xFF, 0xFF, 0, 0, 0, 0x11, 0x80, 0x12, 0x34, 0x56, 0, 0, 0, 0];
        let flow = Flow {
            source: [10, 77, 1, 1].into(),
            target: [10, 77, 1, 2].into(),
            source_port: 0xC121,
        };
        seal(flow, 0xAE54, &mut packet);
        assert_eq!(packet[12..], 0x5EBA_8645_u32.to_le_bytes());
    }

    #[test]
    fn an_icrc_covers_all_but_the_congestion_marks() {
        let mut rng = Rng(1);
        let mut packet: Vec<u8> = (0..40).map(|_| rng.next() as u8).collect();
        let flow = Flow {
            source: [10, 0, 0, 1].into(),
            target: [10, 0, 0, 2].into(),
            source_port: 0xC123,
        };
        seal(flow, 0, &mut packet);
        let first = packet.clone();
        packet[4] ^= 0xFF;
        seal(flow, 0, &mut packet);
        assert_eq!(first[36..], packet[36..], "the byte with FECN and BECN is not covered");
        packet[5] ^= 1;
        seal(flow, 0, &mut packet);
        assert_ne!(first[36..], packet[36..]);
        let mut other = first.clone();
        seal(flow, 1, &mut other);
        assert_ne!(first, other, "the identification is covered");
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Rng(7), Rng(7));
        assert!((0..100).all(|_| a.next() == b.next()));
        assert!((0..1000).all(|_| a.change() != 0 && a.below(3) < 3));
    }
}
