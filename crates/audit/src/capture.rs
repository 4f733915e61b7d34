//! Capture files as records: pcap and pcapng in both byte orders, in blocks of bounded size. What
//! stands before a damage is read; the damage is told with its place. Packed files are for
//! `packed`.
//!
//! A [`Block`] owns the bytes of whole records, so that it can be read on one thread and peeled on
//! another. It is used again and again.

use std::fmt;
use std::io::{self, Read};

use crate::record::{At, Direction, Link, Point, Record, Time};
use crate::report;

mod classic;
mod ng;
mod packed;

pub use packed::{Input, open};

/// Bytes that a record can have at most, as in other programs that read captures.
const MAX_RECORD: usize = 262_144;
/// Bytes of a pcapng block that is looked into.
const MAX_BLOCK: usize = 512 << 10;
/// Bytes that are asked for at once: many enough that waking the next thread costs nothing beside
/// them, few enough that a few of them stay in the caches.
const READ: usize = 1 << 20;

/// Where a file cannot be read on, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Bytes before the damaged place; of the unpacked bytes, where the file is packed.
    pub offset: u64,
    /// What stands or should stand there.
    pub field: &'static str,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl Damage {
    fn new(offset: u64, field: &'static str, found: impl Into<String>, expected: &str) -> Self {
        Self { offset, field, found: found.into(), expected: expected.to_owned() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, field, found, expected } = self;
        write!(f, "byte {offset}: {field}: found {found}, expected {expected}")
    }
}

impl std::error::Error for Damage {}

/// A record as a place in a block's bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    time: Time,
    start: u32,
    len: u32,
    original_len: u32,
    link: Link,
    point: Point,
    direction: Option<Direction>,
}

/// Whole records of a capture.
#[derive(Debug, Default)]
pub struct Block {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    file: u16,
    first_frame: u64,
}

impl Block {
    /// Its records, in the order of the file. Points are counted within the file.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.entries.iter().zip(self.first_frame..).map(|(entry, frame)| {
            let start = entry.start as usize;
            Record {
                at: At { time: entry.time, file: self.file, frame },
                point: entry.point,
                link: entry.link,
                direction: entry.direction,
                original_len: entry.original_len.max(entry.len),
                segment: None,
                bytes: self.bytes.get(start..start + entry.len as usize).unwrap_or_default(),
            }
        })
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What a framer has made of bytes.
#[derive(Default)]
struct Framed {
    /// Bytes that are done with.
    used: usize,
    /// Bytes behind those given that nobody wants.
    skip: u64,
    /// What is wrong behind them.
    damage: Option<Damage>,
}

#[derive(Debug)]
enum Format {
    Classic(classic::Classic),
    Ng(ng::Ng),
}

impl Format {
    fn frame(&mut self, bytes: &[u8], offset: u64, entries: &mut Vec<Entry>) -> Framed {
        match self {
            Self::Classic(classic) => classic.frame(bytes, offset, entries),
            Self::Ng(ng) => ng.frame(bytes, offset, entries),
        }
    }

    /// The damage of a file that ends with these bytes of an unfinished record.
    fn cut(&self, rest: &[u8], offset: u64) -> Damage {
        match self {
            Self::Classic(classic) => classic.cut(rest, offset),
            Self::Ng(ng) => ng.cut(rest, offset),
        }
    }
}

/// Reads a capture, block by block.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    file: u16,
    format: Format,
    /// Bytes of the file before the carried ones.
    offset: u64,
    /// What was read, but belongs to a record that was not whole.
    carry: Vec<u8>,
    /// Bytes that are asked for at once.
    ahead: usize,
    damage: Option<Damage>,
    ended: bool,
    records: u64,
    bytes: u64,
    first: Option<Time>,
    last: Option<Time>,
    /// What the file is packed in, in words before the format's.
    packing: &'static str,
}

impl<R: Read> Reader<R> {
    /// Begins to read file number `file`.
    ///
    /// # Errors
    /// What is no capture, and what cannot be read at all.
    pub fn open(mut input: R, file: u16) -> Result<Self, Damage> {
        let mut magic = [0; 4];
        let got = read_up_to(&mut input, &mut magic, 0)?;
        let head = magic.get(..got).unwrap_or_default();
        let (format, carry) = if magic == ng::MAGIC {
            (Format::Ng(ng::Ng::default()), magic.to_vec())
        } else {
            let kind = classic::Kind::of(magic).ok_or_else(|| no_capture(head))?;
            let mut header = [0; classic::HEADER_LEN];
            header[..4].copy_from_slice(&magic);
            let got = 4 + read_up_to(&mut input, &mut header[4..], 4)?;
            let header = header.get(..got).unwrap_or_default();
            (Format::Classic(classic::Classic::new(kind, header)?), Vec::new())
        };
        let offset = match &format {
            Format::Classic(_) => classic::HEADER_LEN as u64,
            Format::Ng(_) => 0,
        };
        let mut reader = Self {
            input,
            file,
            format,
            offset,
            carry,
            ahead: READ,
            damage: None,
            ended: false,
            records: 0,
            bytes: 0,
            first: None,
            last: None,
            packing: "",
        };
        if matches!(reader.format, Format::Ng(_)) {
            reader.first_section()?;
        }
        Ok(reader)
    }

    /// Has blocks of about so many bytes filled: fewer where many files are read at once.
    pub fn set_ahead(&mut self, bytes: usize) {
        self.ahead = bytes.clamp(4096, READ);
    }

    /// Reads as far as the head of the first section, so that what is no pcapng is refused.
    fn first_section(&mut self) -> Result<(), Damage> {
        let mut head = [0; ng::SECTION_HEAD];
        head[..4].copy_from_slice(&self.carry);
        let got = 4 + read_up_to(&mut self.input, &mut head[4..], 4)?;
        self.carry = head.get(..got).unwrap_or_default().to_vec();
        if let Format::Ng(ng) = &mut self.format {
            ng.check_first(&self.carry)?;
        }
        Ok(())
    }

    /// Puts the next records into `block`; whether there were any.
    ///
    /// # Errors
    /// Damage: nothing behind it can be read. All before it was given by earlier calls.
    pub fn fill(&mut self, block: &mut Block) -> Result<bool, Damage> {
        block.entries.clear();
        block.file = self.file;
        block.first_frame = self.records + 1;
        let mut filled = self.carry.len();
        if block.bytes.len() < filled + self.ahead {
            block.bytes.resize(filled + self.ahead, 0);
        }
        block.bytes[..filled].copy_from_slice(&self.carry);
        let mut used = 0;
        while self.damage.is_none() && !self.ended && block.entries.is_empty() {
            if filled == block.bytes.len() {
                // A record that is longer; there is a bound to that.
                block.bytes.resize(filled + self.ahead, 0);
            }
            let end = block.bytes.len().min(filled + self.ahead);
            let got = match self.input.read(&mut block.bytes[filled..end]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.damage = Some(io_damage(self.offset + filled as u64, &error));
                    break;
                }
                Ok(got) => got,
            };
            if got == 0 {
                self.ended = true;
                let rest = &block.bytes[used..filled];
                if !rest.is_empty() {
                    self.damage = Some(self.format.cut(rest, self.offset + used as u64));
                }
                break;
            }
            filled += got;
            let offset = self.offset + used as u64;
            let before = used;
            let framed = self.format.frame(&block.bytes[used..filled], offset, &mut block.entries);
            used += framed.used;
            for entry in &mut block.entries {
                entry.start += before as u32;
            }
            self.damage = framed.damage;
            if block.entries.is_empty() && used > 0 {
                // Nothing to keep before what is not used yet: begin at the front again.
                block.bytes.copy_within(used..filled, 0);
                self.offset += used as u64;
                filled -= used;
                used = 0;
            }
            if framed.skip > 0 {
                self.skip(framed.skip, self.offset + used as u64);
            }
        }
        self.carry.clear();
        self.carry.extend_from_slice(&block.bytes[used..filled]);
        self.offset += used as u64;
        self.count(&block.entries);
        match self.damage.take() {
            Some(damage) if block.entries.is_empty() => {
                self.ended = true;
                self.carry.clear();
                Err(damage)
            }
            damage => {
                self.damage = damage;
                Ok(!block.entries.is_empty())
            }
        }
    }

    fn count(&mut self, entries: &[Entry]) {
        self.records += entries.len() as u64;
        self.bytes += entries.iter().map(|entry| u64::from(entry.len)).sum::<u64>();
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            self.first.get_or_insert(first.time);
            self.last = Some(last.time);
        }
    }

    /// Reads over bytes that nobody wants.
    fn skip(&mut self, bytes: u64, offset: u64) {
        match io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink()) {
            Err(error) => self.damage = Some(io_damage(offset, &error)),
            Ok(got) if got < bytes => {
                let found = format!("the end of the file after {got} bytes");
                let expected = format!("{bytes} bytes more");
                self.damage = Some(Damage::new(offset, "block", found, &expected));
            }
            Ok(got) => self.offset += got,
        }
    }

    /// What was read so far, as the report has it; name and damage are the caller's to fill in.
    pub fn summary(&self) -> report::Capture {
        let (format, dropped) = match &self.format {
            Format::Classic(classic) => (classic.to_string(), None),
            Format::Ng(ng) => (ng.to_string(), ng.dropped()),
        };
        report::Capture {
            format: format!("{}{format}", self.packing),
            records: self.records,
            bytes: self.bytes,
            first: self.first,
            last: self.last,
            dropped,
            ..report::Capture::default()
        }
    }
}

/// Reads until the buffer is full or the file ends; returns the bytes read.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8], offset: u64) -> Result<usize, Damage> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io_damage(offset + got as u64, &error)),
        }
    }
    Ok(got)
}

fn io_damage(offset: u64, error: &io::Error) -> Damage {
    Damage::new(offset, "reading", error.to_string(), "bytes")
}

fn no_capture(head: &[u8]) -> Damage {
    let found = match (head, packed::foreign(head)) {
        ([], _) => "an empty file".to_owned(),
        (_, Some(name)) => name.to_owned(),
        (head, None) => head.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    };
    Damage::new(0, "magic number", found, "that of a pcap or pcapng file")
}

/// The meaning of a link type number.
fn link(number: u16) -> Link {
    match number {
        1 => Link::Ethernet,
        12 | 14 | 101 | 228 | 229 => Link::RawIp,
        113 => Link::Cooked,
        276 => Link::Cooked2,
        197 => Link::Erf,
        247 => Link::Infiniband,
        other => Link::Other(other),
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet => f.write_str("Ethernet"),
            Self::RawIp => f.write_str("raw IP"),
            Self::Cooked => f.write_str("Linux cooked"),
            Self::Cooked2 => f.write_str("Linux cooked 2"),
            Self::Erf => f.write_str("ERF"),
            Self::Infiniband => f.write_str("InfiniBand"),
            Self::Other(number) => write!(f, "link type {number}"),
        }
    }
}
