//! The Internet checksum of IPv4 headers and UDP datagrams, and what a frame remembers of a check
//! value. The CRCs are in `icrc` and `vcrc`.

use core::net::IpAddr;

/// A check value beside what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Check<T> {
    /// The value that the covered bytes have.
    Right,
    /// Another one, as stored.
    Stored(T),
}

impl<T: Copy + PartialEq> Check<T> {
    /// Compares a stored value with the right one.
    pub fn of(stored: T, right: T) -> Self {
        if stored == right { Self::Right } else { Self::Stored(stored) }
    }

    /// The value to write where `right` is the right one.
    pub fn value(self, right: T) -> T {
        match self {
            Self::Right => right,
            Self::Stored(value) => value,
        }
    }

    /// Whether the value is right.
    pub fn is_right(self) -> bool {
        matches!(self, Self::Right)
    }
}

/// The ones' complement sum of 16-bit words; an odd last byte is the upper half of a word. A header
/// with its right checksum in place sums to 0xFFFF.
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    fold(add(0, bytes))
}

/// The checksum of an IPv4 header whose own checksum field counts as zero.
pub fn ipv4_header(header: &[u8]) -> u16 {
    let stored = header.get(10..12).map_or(0, |c| u64::from(c[0]) << 8 | u64::from(c[1]));
    !fold(add(0, header) + u64::from(!fold(stored)))
}

/// The checksum of a UDP datagram (header and payload, the checksum field zero) between two
/// addresses of one family; never 0, which means "none".
pub fn udp(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> u16 {
    match udp_raw(source, destination, datagram) {
        0 => 0xFFFF,
        checksum => checksum,
    }
}

fn udp_raw(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> u16 {
    let mut sum = 17 + datagram.len() as u64;
    for address in [source, destination] {
        sum = match address {
            IpAddr::V4(v4) => add(sum, &v4.octets()),
            IpAddr::V6(v6) => add(sum, &v6.octets()),
        };
    }
    !fold(add(sum, datagram))
}

/// As [`udp`], for a datagram whose header and payload lie in different places.
pub fn udp_in_parts(source: IpAddr, destination: IpAddr, header: &[u8; 8], payload: &[u8]) -> u16 {
    let rest = fold(add(payload.len() as u64, payload));
    match !fold(u64::from(!udp_raw(source, destination, header)) + u64::from(rest)) {
        0 => 0xFFFF,
        checksum => checksum,
    }
}

/// As [`udp`], for a datagram whose checksum field is filled and counts as zero.
pub fn udp_of_written(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> u16 {
    let stored = datagram.get(6..8).map_or(0, |c| u16::from_be_bytes([c[0], c[1]]));
    // Adding the ones' complement of a word takes the word out of a ones' complement sum.
    let sum = u64::from(!udp_raw(source, destination, datagram)) + u64::from(!stored);
    match !fold(sum) {
        0 => 0xFFFF,
        checksum => checksum,
    }
}

fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let words = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair)));
    sum + words.sum::<u64>() + odd.first().map_or(0, |byte| u64::from(*byte) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}
