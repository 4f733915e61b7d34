//! The UDP source port of RoCEv2: entropy for ECMP that stays the same for the life of a queue
//! pair, reckoned as Linux does it. On reception the source port means nothing.

use crate::ids::Qpn;

/// The UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// The source port of a connected queue pair (RC, UC). `flow_label` is the 20-bit label of the GRH;
/// when it is 0 the two queue pair numbers take its place. Both directions get the same port
/// unless their flow labels differ.
pub const fn connected_source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    let mut label = flow_label & 0xF_FFFF;
    if label == 0 {
        let mut v = local.get() as u64 * remote.get() as u64;
        v ^= v >> 20;
        v ^= v >> 40;
        label = (v & 0xF_FFFF) as u32;
    }
    0xC000 | ((label & 0x3FFF) ^ (label >> 14)) as u16
}

/// The source port of a datagram queue pair (UD and the general services queue pair).
pub const fn datagram_source_port(qpn: Qpn) -> u16 {
    0xC000 + (qpn.get().wrapping_mul(0x61C8_8647) >> 18) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_linux() {
        assert_eq!(connected_source_port(0, Qpn::new(0x11), Qpn::new(0x11)), 49441);
        assert_eq!(connected_source_port(0x12345, Qpn::new(0x11), Qpn::new(0x11)), 58177);
        assert_eq!(datagram_source_port(Qpn::GSI), 55410);
    }

    #[test]
    fn every_port_is_in_the_dynamic_range_and_symmetric() {
        for i in 0..2000u32 {
            let (a, b) =
                (Qpn::new(i.wrapping_mul(0x9E37_79B9)), Qpn::new(i.wrapping_mul(0x85EB_CA6B)));
            let port = connected_source_port(0, a, b);
            assert!(port >= 0xC000);
            assert_eq!(port, connected_source_port(0, b, a));
            assert!(datagram_source_port(a) >= 0xC000);
        }
    }
}
