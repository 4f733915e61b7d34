//! Identifications: expected, running, unknown; damage; trust.

use super::*;

const FLOW: Flow = Flow::V4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2), 0xC123);

fn packet(ident: u16, len: usize, df: bool) -> Vec<u8> {
    let Flow::V4(s, d, port) = FLOW else { unreachable!() };
    let mut bytes: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
    let state = ipv4_state(s, d, port, (len + 8) as u16, ident, df);
    let crc = finish(state, &bytes[..len - 4]);
    bytes[len - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn seal_and_check_agree_for_every_place_in_a_train() {
    let (mut states, mut checker) = (States::new(), Checker::new());
    for ident in [0, 1, 63, 127, 128, 5000] {
        let mut bytes = vec![0x5A; 44];
        seal(&mut states, FLOW, ident, &mut bytes);
        let mut expected = vec![0x5A; 44];
        let Flow::V4(s, d, port) = FLOW else { unreachable!() };
        let crc = finish(ipv4_state(s, d, port, 52, ident, true), &expected[..40]);
        expected[40..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(bytes, expected, "identification {ident}");
        assert_eq!(checker.check(FLOW, &bytes, ident, true), Verdict::Right);
    }
    let v6 = Flow::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 9);
    let mut bytes = vec![0x5A; 44];
    seal(&mut states, v6, 7, &mut bytes);
    assert_eq!(checker.check(v6, &bytes, 0, false), Verdict::Right);
    bytes[20] ^= 1;
    assert_eq!(checker.check(v6, &bytes, 0, false), Verdict::Wrong);
}

#[test]
fn unknown_and_running_identifications() {
    let mut checker = Checker::new();
    assert_eq!(checker.check(FLOW, &packet(4711, 300, true), 0, false), Verdict::Solved);
    assert_eq!(checker.check(FLOW, &packet(4712, 44, true), 0, false), Verdict::Right);
    assert_eq!(checker.check(FLOW, &packet(4713, 44, true), 1, false), Verdict::Right);
    assert_eq!(checker.check(FLOW, &packet(4720, 64, true), 0, false), Verdict::Solved);
    assert_eq!(checker.check(FLOW, &packet(4721, 64, false), 0, false), Verdict::Solved);
    assert_eq!(checker.check(FLOW, &packet(0, 64, true), 5, false), Verdict::Right);
    let mut damaged = packet(4722, 64, true);
    damaged[30] ^= 0x10;
    assert_eq!(checker.check(FLOW, &damaged, 0, false), Verdict::Wrong);
    assert_eq!(checker.check(FLOW, &packet(4730, 64, true), 0, true), Verdict::Wrong);
}

#[test]
fn a_peer_with_expected_identifications_is_held_to_them_until_it_is_another_peer() {
    let mut checker = Checker::new();
    for _ in 0..TRUST_AFTER {
        assert_eq!(checker.check(FLOW, &packet(0, 64, true), 0, false), Verdict::Right);
    }
    // Its trains, cut on the way, are still expected.
    assert_eq!(checker.check(FLOW, &packet(1, 64, true), 0, false), Verdict::Right);
    assert_eq!(checker.check(FLOW, &packet(2, 64, true), 0, false), Verdict::Right);
    for n in 0..u16::from(DISTRUST_AFTER) {
        let odd = packet(900 + 7 * n, 64, true);
        assert_eq!(checker.check(FLOW, &odd, 0, false), Verdict::Refused);
    }
    assert_eq!(checker.check(FLOW, &packet(2000, 64, true), 0, false), Verdict::Solved);
}

/// The same peer with damaged packets among its own, on any port.
#[test]
fn damaged_packets_do_not_end_a_peers_trust() {
    let mut checker = Checker::new();
    for _ in 0..TRUST_AFTER {
        assert_eq!(checker.check(FLOW, &packet(0, 64, true), 0, false), Verdict::Right);
    }
    let Flow::V4(source, target, _) = FLOW else { unreachable!() };
    let mut refused = 0;
    for n in 0..200_000_u32 {
        let port = 0x8000 | n as u16;
        let mut bytes = packet(0, 64, true);
        bytes[8..12].copy_from_slice(&n.wrapping_mul(0x9E37_79B1).to_le_bytes());
        bytes[12] ^= 0x55;
        match checker.check(Flow::V4(source, target, port), &bytes, 0, false) {
            Verdict::Wrong => {}
            Verdict::Refused => refused += 1,
            other => panic!("damaged packet {n} is {other:?}"),
        }
    }
    assert!(refused > 0, "none that an identification would explain: the test shows nothing");
    assert_eq!(checker.check(FLOW, &packet(900, 64, true), 0, false), Verdict::Refused);
}

/// Whoever sends from many addresses does not make it forget those that it hears of often.
#[test]
fn many_senders_do_not_displace_a_peer() {
    let mut checker = Checker::new();
    let from = |checker: &mut Checker, source: u32| {
        let source = Ipv4Addr::from(source);
        let flow = Flow::V4(source, Ipv4Addr::LOCALHOST, 0xC000);
        let mut bytes = vec![1; 40];
        seal(&mut States::new(), flow, 0, &mut bytes);
        assert_eq!(checker.check(flow, &bytes, 0, false), Verdict::Right);
    };
    let peer = 0xC000_0201;
    for n in 0..5000 {
        from(&mut checker, 0x0A00_0000 + n);
        if n % 4 == 0 {
            from(&mut checker, peer);
        }
    }
    let source = checker.sources.find(peer).expect("it is known");
    assert_eq!(source.expected, u8::MAX);
}
