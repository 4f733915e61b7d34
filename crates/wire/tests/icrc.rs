//! Known answers of the invariant CRC and the solving of an unseen IPv4 identification.

use proptest::prelude::*;
use wire::icrc::{self, BEHIND_IDENT};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex"))
        .collect()
}

/// Source, destination, source port, identification, don't-fragment, bytes from the BTH through the
/// pad, CRC: packets of a Linux peer, worked by hand elsewhere.
const IPV4: &[(&str, &str, u16, u16, &str, u32)] = &[
    ("10.77.1.1", "10.77.1.2", 0xC121, 0xAE54, "0400ffff0000001180123456", 0x5EBA_8645),
    ("10.77.1.1", "10.77.1.2", 0xC121, 0xAE57, "0430ffff00000011801234571f000000", 0x58B4_1E43),
    ("10.77.1.2", "10.77.1.1", 0xC121, 0xCC77, "1100ffff00000011001234571f000002", 0x90E9_1BF7),
    (
        "10.77.1.1",
        "10.77.1.2",
        0xE710,
        0x58CB,
        "0420ffff00000064801234560007\
         0e151c232a31383f0000",
        0x8150_85B8,
    ),
    (
        "10.77.2.1",
        "10.77.2.2",
        0xF8B8,
        0x810B,
        "0420ffff00000078801234560007\
         0e151c232a31383f0000",
        0x8ED3_46B5,
    ),
];

#[test]
fn known_answers_over_ipv4() {
    for (source, destination, port, ident, transport, crc) in IPV4 {
        let transport = bytes(transport);
        let (source, destination) = (source.parse().expect("v4"), destination.parse().expect("v4"));
        let udp_len = (8 + transport.len() + 4) as u16;
        let state = icrc::ipv4_state(source, destination, *port, udp_len, *ident, true);
        assert_eq!(icrc::finish(state, &transport), *crc);
        for cut in 5..transport.len() {
            let (front, back) = transport.split_at(cut);
            assert_eq!(icrc::finish_parts(state, front, &[back]), *crc);
        }
        let blind = icrc::ipv4_state(source, destination, *port, udp_len, 0, true);
        let blind = icrc::finish(blind, &transport);
        let solved = icrc::solve_ipv4_ident(blind, *crc, BEHIND_IDENT + transport.len());
        assert_eq!(solved, Some((*ident, 0x4000)));
    }
}

#[test]
fn known_answer_over_ipv6() {
    let transport = bytes("0410ffff0000005e801234571f262d00");
    let (source, destination) =
        ("fd77:1::1".parse().expect("v6"), "fd77:1::2".parse().expect("v6"));
    let state = icrc::ipv6_state(source, destination, 0xE284, 28);
    assert_eq!(icrc::finish(state, &transport), 0x3CAC_B41B);
}

#[test]
fn congestion_bits_are_masked_and_nothing_else_of_the_bth() {
    let mut transport = bytes("0400ffff0000001180123456");
    let state = icrc::ipv4_state([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 0xC000, 24, 0, true);
    let crc = icrc::finish(state, &transport);
    for at in 0..transport.len() {
        transport[at] ^= 0x40;
        assert_eq!(icrc::finish(state, &transport) == crc, at == 4, "byte {at}");
        transport[at] ^= 0x40;
    }
}

/// A generator good enough for test data.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let x = self.0 ^ self.0 >> 33;
        x.wrapping_mul(0xFF51_AFD7_ED55_8CCD) ^ x >> 29
    }
}

/// The computed (blind) CRC and the right one of a random packet, with what was hidden.
fn hidden(noise: &mut Noise) -> (u32, u32, usize, u16, bool) {
    let len = 12 + (noise.next() % 1025) as usize * 4;
    let transport: Vec<u8> = (0..len).map(|_| (noise.next() >> 24) as u8).collect();
    let (a, b) = ((noise.next() as u32).into(), (noise.next() as u32).into());
    let (port, ident, df) =
        (noise.next() as u16, (noise.next() >> 20) as u16, noise.next() >> 40 & 1 == 1);
    let udp_len = (len + 12) as u16;
    let right = icrc::finish(icrc::ipv4_state(a, b, port, udp_len, ident, df), &transport);
    let blind = icrc::finish(icrc::ipv4_state(a, b, port, udp_len, 0, true), &transport);
    (blind, right, BEHIND_IDENT + len, ident, df)
}

#[test]
fn twenty_thousand_hidden_identifications_are_found() {
    let mut noise = Noise(1);
    for _ in 0..20_000 {
        let (blind, right, behind, ident, df) = hidden(&mut noise);
        let flags = if df { 0x4000 } else { 0 };
        assert_eq!(icrc::solve_ipv4_ident(blind, right, behind), Some((ident, flags)));
    }
}

#[test]
fn random_damage_is_accepted_about_once_in_two_to_the_fifteen() {
    let mut noise = Noise(2);
    let (mut any, mut with_df) = (0, 0);
    for i in 0..4_000_000 {
        let behind = BEHIND_IDENT + 12 + i % 1025 * 4;
        let pair = noise.next();
        if let Some((_, flags)) = icrc::solve_ipv4_ident(pair as u32, (pair >> 32) as u32, behind) {
            any += 1;
            with_df += u32::from(flags == 0x4000);
        }
    }
    // 122 and 61 are expected; the bounds are five standard deviations away.
    assert!((67..=177).contains(&any), "{any} of 4 000 000");
    assert!((22..=100).contains(&with_df), "{with_df} of 4 000 000");
}

proptest! {
    #[test]
    fn solving_never_panics(computed: u32, stored: u32, behind: usize) {
        let _ = icrc::solve_ipv4_ident(computed, stored, behind);
    }

    #[test]
    fn parts_are_as_the_whole(
        bytes in proptest::collection::vec(any::<u8>(), 5..200),
        cut: prop::sample::Index,
        state: u32,
    ) {
        let cut = 5 + cut.index(bytes.len() - 4);
        let (front, back) = bytes.split_at(cut);
        let parts = icrc::finish_parts(state, front, &[back, &[]]);
        prop_assert_eq!(icrc::finish(state, &bytes), parts);
    }
}
