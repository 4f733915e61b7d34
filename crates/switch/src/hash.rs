//! Hashes of flows, and the cheap hasher of this crate's tables. All are the same on every machine.

use std::hash::{BuildHasherDefault, Hasher};

use wire::Gid;

use crate::frame::{Net, Ports};

/// A table that is looked into and never iterated where the order could be seen.
pub(crate) type Table<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<Folding>>;

/// Multiplies and folds whole words.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Folding(u64);

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The two halves of a 128-bit product, folded.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = fold(self.0 ^ n ^ 0xD6E8_FEB8_6659_FD93, ODD);
    }
    fn write_u128(&mut self, n: u128) {
        self.write_u64(n as u64);
        self.write_u64((n >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(ODD);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The hash of a five-tuple under a seed: what ECMP spreads by.
pub fn flow(seed: u64, net: &Net) -> u64 {
    let (s, d) = (u128::from_be_bytes(net.source.0), u128::from_be_bytes(net.destination.0));
    let ports = u64::from(net.ports.source) << 16 | u64::from(net.ports.destination);
    let mut h = fold(seed ^ s as u64 ^ 0xA076_1D64_78BD_642F, ODD | d as u64 | 1);
    h = fold(h ^ (s >> 64) as u64, 0xE703_7ED1_A0B4_28DB ^ (d >> 64) as u64);
    h = fold(h ^ d as u64, 0x8EBC_6AF0_9C88_C6E3);
    fold(h ^ (ports | u64::from(net.protocol) << 32), 0x5899_65CC_7537_4CC3)
}

/// The HPCC simulator's ECMP hash: MurmurHash3 (32 bits; Appleby, public domain) of the twelve
/// bytes source, destination, and source port below destination port, each a little-endian word.
/// Addresses are numbers whose uppermost byte is the first of the dotted form; the seed is the
/// switch's node number. The next hop is the hash modulo their number, in the table's order.
pub fn hpcc(seed: u32, source: u32, destination: u32, ports: Ports) -> u32 {
    let last = u32::from(ports.source) | u32::from(ports.destination) << 16;
    let mut h = seed;
    for word in [source, destination, last] {
        let k = word.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593);
        h = (h ^ k).rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64);
    }
    h ^= 12;
    h = (h ^ (h >> 16)).wrapping_mul(0x85EB_CA6B);
    h = (h ^ (h >> 13)).wrapping_mul(0xC2B2_AE35);
    h ^ (h >> 16)
}

/// The address that the HPCC simulator gives to a node: 11.x.y.1, where x and y are the upper and
/// lower byte of the node's number.
pub const fn hpcc_address(node: u16) -> u32 {
    0x0B00_0001 | (node as u32) << 8
}

/// The last four bytes of an address as a number: of a mapped IPv4 address, that address.
pub(crate) fn low_word(gid: Gid) -> u32 {
    u128::from_be_bytes(gid.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur_as_published() {
        // "hello, world", a value that implementations of MurmurHash3 test themselves with.
        let ports = Ports { source: 0x726F, destination: 0x646C };
        assert_eq!(hpcc(0, 0x6C6C_6568, 0x7720_2C6F, ports), 0x149B_BB7F);
    }

    #[test]
    fn a_flow_of_the_hpcc_simulator() {
        // From node 0 to node 1, first source port, the usual destination port, at switch 320.
        let ports = Ports { source: 10_000, destination: 100 };
        assert_eq!(hpcc(320, hpcc_address(0), hpcc_address(1), ports), 0xEAE3_B97C);
        assert_eq!(hpcc_address(0x0102), 0x0B01_0201);
    }
}
