//! A seeded source of chance, and what it does to bytes and to frames: flips, splices, lengths,
//! cuts; a frame's lengths, checksum and ICRC mended behind a change.

use wire::{checksum, icrc};

/// Chance with a seed: the same numbers on every run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 33) as usize) % end.max(1)
    }

    /// Once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Numbers at which programs go wrong.
const EDGES: [u32; 14] =
    [0, 1, 2, 3, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFC, 0xFFFF_FFFF];

/// Changes bytes a few times; `other` is what pieces are taken from.
pub(crate) fn bytes(chance: &mut Chance, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=chance.below(6) {
        if bytes.is_empty() {
            bytes.extend_from_slice(&other[..other.len().min(64)]);
            continue;
        }
        let at = place(chance, bytes.len());
        match chance.below(9) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = chance.next() as u8,
            2 | 3 => number(chance, &mut bytes[at..]),
            4 => bytes.truncate(at),
            5 => {
                let end = (at + chance.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let piece = piece(chance, other);
                bytes.splice(at..at, piece.iter().copied());
            }
            7 => {
                let piece = piece(chance, other);
                let end = (at + piece.len()).min(bytes.len());
                bytes.splice(at..end, piece.iter().copied());
            }
            _ => {
                let own = piece(chance, &bytes.clone()).to_vec();
                bytes.splice(at..at, own);
            }
        }
    }
}

/// Headers stand in front: half of the changes are made there.
fn place(chance: &mut Chance, len: usize) -> usize {
    if chance.once_in(2) { chance.below(len.min(96)) } else { chance.below(len) }
}

fn piece<'a>(chance: &mut Chance, of: &'a [u8]) -> &'a [u8] {
    let from = chance.below(of.len());
    let end = (from + 1 + chance.below(200)).min(of.len());
    of.get(from..end).unwrap_or_default()
}

/// Puts an edge, or one near it, at the front, in either byte order and any width.
fn number(chance: &mut Chance, bytes: &mut [u8]) {
    let value = EDGES[chance.below(EDGES.len())].wrapping_add(chance.below(3) as u32);
    let wide = [value.to_be_bytes(), value.to_le_bytes()][chance.below(2)];
    let width = [1, 2, 4][chance.below(3)];
    let from = if wide[0] == 0 { 4 - width } else { 0 };
    for (byte, new) in bytes.iter_mut().zip(&wide[from..from + width]) {
        *byte = *new;
    }
}

/// Where the BTH of a RoCEv2 frame begins: behind Ethernet with any tags, IP, UDP.
pub(crate) fn transport(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    while frame.get(at..at + 2)? == [0x81, 0x00] {
        at += 4;
    }
    let ip = at + 2;
    let udp = match frame.get(at..ip)? {
        [0x08, 0x00] if *frame.get(ip)? == 0x45 => ip + 20,
        [0x86, 0xDD] => ip + 40,
        _ => return None,
    };
    (frame.get(udp + 2..udp + 4)? == [0x12, 0xB7] && frame.len() >= udp + 24).then_some(udp + 8)
}

/// Makes the lengths, the IP checksum and the ICRC of a RoCEv2 frame right for what it holds.
pub(crate) fn mend(frame: &mut [u8]) {
    let Some(bth) = transport(frame) else { return };
    let udp = bth - 8;
    let datagram = ((frame.len() - udp) as u16).to_be_bytes();
    frame[udp + 4..udp + 6].copy_from_slice(&datagram);
    frame[udp + 6..udp + 8].fill(0);
    let ip = if udp >= 34 && frame[udp - 20] == 0x45 && frame[udp - 22..udp - 20] == [8, 0] {
        let ip = udp - 20;
        let total = ((frame.len() - ip) as u16).to_be_bytes();
        frame[ip + 2..ip + 4].copy_from_slice(&total);
        frame[ip + 10..ip + 12].fill(0);
        let sum = checksum::ipv4_header(&frame[ip..udp]);
        frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        ip
    } else {
        frame[udp - 36..udp - 34].copy_from_slice(&datagram);
        udp - 40
    };
    let end = frame.len() - 4;
    let state = icrc::udp_state(&frame[ip..udp], &frame[udp..bth]);
    let right = icrc::finish(state, &frame[bth..end]);
    frame[end..].copy_from_slice(&right.to_le_bytes());
}
