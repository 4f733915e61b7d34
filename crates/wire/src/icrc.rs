//! The invariant CRC: the Ethernet CRC-32 over what does not change on the way, and the way back
//! from a CRC to an IPv4 identification that the receiver cannot see. The variant CRC of InfiniBand
//! is in `vcrc`.
//!
//! A *state* is the CRC of everything before the BTH in the usual, finally complemented form; it is
//! made once per packet (or per peer and length) and finished with the transport's bytes.

use core::net::{Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

use crate::flow::ROCE_PORT;

/// The state behind eight bytes of 0xFF, which stand for the LRH that a RoCE frame does not have.
const AFTER_ABSENT_LRH: u32 = 0x2144_DF1C;

/// Bytes covered between the IPv4 identification, flags and fragment offset and the BTH: the rest
/// of the IPv4 header and the UDP header.
pub const BEHIND_IDENT: usize = 12 + 8;

/// Below so many bytes the CRC crate goes byte by byte; eight at a time is three times as fast.
const SHORT: usize = 64;

fn update(state: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < SHORT {
        return update_short(state, bytes);
    }
    let mut hasher = Hasher::new_with_initial(state);
    hasher.update(bytes);
    hasher.finalize()
}

/// Headers: eight bytes a step, one look-up for each, all independent of each other.
fn update_short(state: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let at = |table: usize, byte: u32| STEPS[table][(byte & 0xFF) as usize];
    let mut crc = !state;
    for [a, b, c, d, e, f, g, h] in eights {
        let low = crc ^ u32::from_le_bytes([*a, *b, *c, *d]);
        let high = u32::from_le_bytes([*e, *f, *g, *h]);
        crc = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
        crc ^= at(3, high) ^ at(2, high >> 8) ^ at(1, high >> 16) ^ at(0, high >> 24);
    }
    let (fours, rest) = rest.as_chunks::<4>();
    for four in fours {
        let low = crc ^ u32::from_le_bytes(*four);
        crc = at(3, low) ^ at(2, low >> 8) ^ at(1, low >> 16) ^ at(0, low >> 24);
    }
    for byte in rest {
        crc = crc >> 8 ^ at(0, crc ^ u32::from(*byte));
    }
    !crc
}

/// The state before the BTH of a RoCEv2 packet over IPv4 without options. `udp_len` counts from the
/// UDP header through the ICRC; identification and don't-fragment are as on the wire.
pub fn ipv4_state(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    source_port: u16,
    udp_len: u16,
    ident: u16,
    dont_fragment: bool,
) -> u32 {
    let mut h = [0xFF; 28];
    h[0] = 0x45;
    h[2..4].copy_from_slice(&udp_len.wrapping_add(20).to_be_bytes());
    h[4..6].copy_from_slice(&ident.to_be_bytes());
    h[6] = if dont_fragment { 0x40 } else { 0 };
    h[7] = 0;
    h[9] = 17;
    h[12..16].copy_from_slice(&src.octets());
    h[16..20].copy_from_slice(&dst.octets());
    write_udp(&mut h[20..], source_port, udp_len);
    update(AFTER_ABSENT_LRH, &h)
}

/// The state before the BTH of a RoCEv2 packet over IPv6. `udp_len` counts from the UDP header
/// through the ICRC.
pub fn ipv6_state(src: Ipv6Addr, dst: Ipv6Addr, source_port: u16, udp_len: u16) -> u32 {
    let mut h = [0xFF; 48];
    h[0] = 0x6F;
    h[4..6].copy_from_slice(&udp_len.to_be_bytes());
    h[6] = 17;
    h[8..24].copy_from_slice(&src.octets());
    h[24..40].copy_from_slice(&dst.octets());
    write_udp(&mut h[40..], source_port, udp_len);
    update(AFTER_ABSENT_LRH, &h)
}

/// The state before the BTH behind any IP header (IPv4 with or without options, or IPv6) and the
/// UDP header, both as they stand on the wire.
pub fn udp_state(ip_header: &[u8], udp_header: &[u8]) -> u32 {
    // What nearly all packets have, at once.
    if let (Ok(ip), Some(udp)) = (<&[u8; 20]>::try_from(ip_header), udp_header.first_chunk::<6>()) {
        let mut h = [0xFF; 28];
        h[..20].copy_from_slice(ip);
        h[1] = 0xFF;
        h[8] = 0xFF;
        h[10..12].fill(0xFF);
        h[20..26].copy_from_slice(udp);
        return update_short(AFTER_ABSENT_LRH, &h);
    }
    let (mut ip, mut udp) = ([0; 60], [0xFF; 8]);
    let ip = &mut ip[..ip_header.len().min(60)];
    ip.copy_from_slice(&ip_header[..ip.len()]);
    if ip.first().is_some_and(|first| first >> 4 == 4) {
        mask(ip, &[(1, 0xFF), (8, 0xFF), (10, 0xFF), (11, 0xFF)]);
    } else {
        mask(ip, &IPV6_MASK);
    }
    let ports_and_len = udp_header.len().min(6);
    udp[..ports_and_len].copy_from_slice(&udp_header[..ports_and_len]);
    update(update(AFTER_ABSENT_LRH, ip), &udp)
}

/// The state before the BTH behind a GRH as it stands on the wire: RoCEv1, and InfiniBand packets
/// that have one.
pub fn grh_state(grh: &[u8; 40]) -> u32 {
    let mut masked = *grh;
    mask(&mut masked, &IPV6_MASK);
    update(AFTER_ABSENT_LRH, &masked)
}

/// The state before the BTH of an InfiniBand packet without a GRH; `lrh` as on the wire.
pub fn lrh_state(lrh: &[u8; 8]) -> u32 {
    let mut masked = *lrh;
    masked[0] |= 0xF0;
    update(0, &masked)
}

/// Traffic class, flow label and hop limit.
const IPV6_MASK: [(usize, u8); 5] = [(0, 0x0F), (1, 0xFF), (2, 0xFF), (3, 0xFF), (7, 0xFF)];

fn mask(header: &mut [u8], bits: &[(usize, u8)]) {
    for (at, ones) in bits {
        if let Some(byte) = header.get_mut(*at) {
            *byte |= ones;
        }
    }
}

fn write_udp(out: &mut [u8], source_port: u16, udp_len: u16) {
    out[..2].copy_from_slice(&source_port.to_be_bytes());
    out[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    out[4..6].copy_from_slice(&udp_len.to_be_bytes());
}

/// The ICRC of a packet whose bytes from the BTH through the pad are `transport`; to be stored
/// least significant byte first. The byte of the BTH that holds FECN and BECN is masked here.
pub fn finish(state: u32, transport: &[u8]) -> u32 {
    finish_parts(state, transport, &[])
}

/// As [`finish`], the bytes in several pieces; `headers` starts at the BTH and holds at least its
/// first five bytes.
pub fn finish_parts(state: u32, headers: &[u8], rest: &[&[u8]]) -> u32 {
    let state = match headers.split_first_chunk::<12>() {
        Some((bth, ext)) => {
            let mut masked = *bth;
            masked[4] = 0xFF;
            update(update_short(state, &masked), ext)
        }
        None => {
            let mut masked = [0; 12];
            let masked = &mut masked[..headers.len().min(12)];
            masked.copy_from_slice(headers);
            mask(masked, &[(4, 0xFF)]);
            update_short(state, masked)
        }
    };
    rest.iter().fold(state, |state, part| update(state, part))
}

/// Solves for the IPv4 identification and flags that a UDP socket does not show: what they must
/// have been, given the ICRC computed with identification 0, DF set, fragment offset 0, and the one
/// stored in the packet. `bytes_after_ident_field` counts the bytes that the CRC covers behind the
/// four bytes of identification, flags and fragment offset: [`BEHIND_IDENT`] plus BTH through pad.
///
/// Returns the identification and the flags word (0x4000 with DF, 0 without), or `None` if no such
/// pair explains the difference. A damaged packet is accepted with probability 2^-15.
pub fn solve_ipv4_ident(
    computed_with_ident0_df: u32,
    stored: u32,
    bytes_after_ident_field: usize,
) -> Option<(u16, u16)> {
    // CRC is linear: the two differ by (difference of the field) · x^(32 + 8m) mod P.
    let (low, high) =
        (bytes_after_ident_field % INVERSE_LOW.len(), bytes_after_ident_field / INVERSE_LOW.len());
    let difference = computed_with_ident0_df ^ stored;
    let field = multiply(multiply(difference, INVERSE_LOW[low]), *INVERSE_HIGH.get(high)?);
    let [a, b, c, d] = field.to_le_bytes();
    let flags = 0x4000 ^ u16::from_be_bytes([c, d]);
    (flags & !0x4000 == 0).then_some((u16::from_be_bytes([a, b]), flags))
}

// Polynomials over GF(2) modulo P, reflected: bit 31 is the coefficient of x^0, bit 0 of x^31.

/// The generator P without its x^32, reflected.
const POLY: u32 = 0xEDB8_8320;

/// The inverse of x^(32 + 8i), for i bytes.
static INVERSE_LOW: [u32; 64] = {
    let mut table = [divide_by_x(1 << 31, 32); 64];
    let mut i = 1;
    while i < 64 {
        table[i] = divide_by_x(table[i - 1], 8);
        i += 1;
    }
    table
};

/// The inverse of x^(512i), for blocks of 64 bytes; enough for any IP packet.
static INVERSE_HIGH: [u32; 1025] = {
    let step = divide_by_x(1 << 31, 512);
    let mut table = [1 << 31; 1025];
    let mut i = 1;
    while i < 1025 {
        table[i] = multiply(table[i - 1], step);
        i += 1;
    }
    table
};

/// What a byte brings into the CRC that is followed by so many others, the table's number.
static STEPS: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut r = byte as u32;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                r = if r & 1 != 0 { r >> 1 ^ POLY } else { r >> 1 };
                bit += 1;
            }
            tables[table][byte] = r;
            table += 1;
        }
        byte += 1;
    }
    tables
};

/// `a` · x^-n mod P. P has the constant term 1, so dividing is a shift towards x^0 once P has made
/// the x^0 coefficient zero.
const fn divide_by_x(mut a: u32, n: usize) -> u32 {
    let mut i = 0;
    while i < n {
        a = if a & 1 << 31 != 0 { (a ^ POLY) << 1 | 1 } else { a << 1 };
        i += 1;
    }
    a
}

/// `a` · `b` mod P.
const fn multiply(a: u32, b: u32) -> u32 {
    let product = carryless(a, b) << 1;
    let [c, d, e, f] = (product as u32).to_le_bytes();
    let low = STEPS[3][c as usize] ^ STEPS[2][d as usize] ^ STEPS[1][e as usize];
    (product >> 32) as u32 ^ low ^ STEPS[0][f as usize]
}

/// The product without carries. Integer multiplication does it on numbers that have only every
/// fourth bit: at most eight ones meet in a column, which the three bits above it can hold.
const fn carryless(a: u32, b: u32) -> u64 {
    const HOLES: u64 = 0x1111_1111_1111_1111;
    let (a, b) = (a as u64, b as u64);
    let mut product = 0;
    let mut i = 0;
    while i < 4 {
        let ai = a & HOLES << i;
        let mut j = 0;
        while j < 4 {
            let bj = b & HOLES << j;
            product ^= ai.wrapping_mul(bj) & HOLES.rotate_left(i + j);
            j += 1;
        }
        i += 1;
    }
    product
}
