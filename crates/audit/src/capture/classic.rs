//! The classic capture file, pcap: a header and records, microseconds or nanoseconds, in either
//! byte order. No pcapng here.

use std::fmt;

use super::{Damage, Entry, Framed, MAX_RECORD, link};
use crate::record::{Link, Point, Time};

/// Bytes of the file's header.
pub(super) const HEADER_LEN: usize = 24;
/// Bytes of a record's header.
const RECORD_LEN: usize = 16;

/// What the magic number says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    big: bool,
    nanoseconds: bool,
    /// Bytes of a record's header: 8 more in the form of an old patch of libpcap.
    record_len: usize,
}

impl Kind {
    pub(super) fn of(magic: [u8; 4]) -> Option<Self> {
        let kind =
            |big, nanoseconds, more| Self { big, nanoseconds, record_len: RECORD_LEN + more };
        Some(match magic {
            [0xD4, 0xC3, 0xB2, 0xA1] => kind(false, false, 0),
            [0xA1, 0xB2, 0xC3, 0xD4] => kind(true, false, 0),
            [0x4D, 0x3C, 0xB2, 0xA1] => kind(false, true, 0),
            [0xA1, 0xB2, 0x3C, 0x4D] => kind(true, true, 0),
            [0x34, 0xCD, 0xB2, 0xA1] => kind(false, false, 8),
            [0xA1, 0xB2, 0xCD, 0x34] => kind(true, false, 8),
            _ => return None,
        })
    }
}

/// A classic capture file.
#[derive(Debug)]
pub(super) struct Classic {
    kind: Kind,
    link: Link,
}

impl Classic {
    pub(super) fn new(kind: Kind, header: &[u8]) -> Result<Self, Damage> {
        let Some(h) = header.first_chunk::<HEADER_LEN>() else {
            let found = format!("{} bytes", header.len());
            return Err(Damage::new(header.len() as u64, "file header", found, "24 bytes"));
        };
        let major = u16_at(kind.big, [h[4], h[5]]);
        if major != 2 {
            return Err(Damage::new(4, "major version", major.to_string(), "2"));
        }
        // The upper half says whether frames keep their check sequence, which harms nobody.
        let network = u32_at(kind.big, [h[20], h[21], h[22], h[23]]);
        Ok(Self { kind, link: link(network as u16) })
    }

    pub(super) fn frame(&mut self, bytes: &[u8], offset: u64, out: &mut Vec<Entry>) -> Framed {
        if self.kind.big {
            self.records::<true>(bytes, offset, out)
        } else {
            self.records::<false>(bytes, offset, out)
        }
    }

    fn records<const BIG: bool>(&self, bytes: &[u8], offset: u64, out: &mut Vec<Entry>) -> Framed {
        let unit = if self.kind.nanoseconds { 1 } else { 1000 };
        let mut at = 0;
        let damage = loop {
            let rest = &bytes[at..];
            let Some(head) = rest.first_chunk::<RECORD_LEN>() else { break None };
            let [seconds, fraction, len, original] = words::<BIG>(head);
            if len as usize > MAX_RECORD {
                let found = format!("{len} bytes");
                let expected = "at most 262144 bytes";
                break Some(Damage::new(
                    offset + at as u64 + 8,
                    "captured length",
                    found,
                    expected,
                ));
            }
            let start = at + self.kind.record_len;
            let end = start + len as usize;
            if end > bytes.len() {
                break None;
            }
            out.push(Entry {
                time: Time(u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit),
                start: start as u32,
                len,
                original_len: original,
                link: self.link,
                point: Point(0),
                direction: None,
            });
            at = end;
        };
        Framed { used: at, skip: 0, damage }
    }

    pub(super) fn cut(&self, rest: &[u8], offset: u64) -> Damage {
        let found = format!("the end of the file after {} bytes", rest.len());
        let Some(head) = rest.first_chunk::<RECORD_LEN>() else {
            let expected = format!("{} bytes", self.kind.record_len);
            return Damage::new(offset, "record header", found, &expected);
        };
        let [_, _, len, _] = if self.kind.big { words::<true>(head) } else { words::<false>(head) };
        let expected = format!("{} bytes", self.kind.record_len + len as usize);
        Damage::new(offset, "record", found, &expected)
    }
}

impl fmt::Display for Classic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.kind.big { "big" } else { "little" };
        let unit = if self.kind.nanoseconds { "nanoseconds" } else { "microseconds" };
        write!(f, "pcap, {order} endian, {unit}, {}", self.link)
    }
}

#[inline]
fn words<const BIG: bool>(head: &[u8; RECORD_LEN]) -> [u32; 4] {
    let word = |i: usize| u32_at(BIG, [head[i], head[i + 1], head[i + 2], head[i + 3]]);
    [word(0), word(4), word(8), word(12)]
}

#[inline]
fn u32_at(big: bool, bytes: [u8; 4]) -> u32 {
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

fn u16_at(big: bool, bytes: [u8; 2]) -> u16 {
    if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
}
