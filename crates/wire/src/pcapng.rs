//! Writes captures in the pcapng format (draft-ietf-opsawg-pcapng), times in nanoseconds. Only what
//! a link or a simulation needs to show its packets; reading captures is not done here. The `put`
//! functions append a block to a buffer of whole blocks, and allocate nothing where there is room
//! for it; `Writer` is for who has a place to write to at once.

use std::io::{self, Write};
use std::net::IpAddr;

use crate::Mac;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;

/// Options of a section header.
mod section {
    pub(super) const HARDWARE: u16 = 2;
    pub(super) const OS: u16 = 3;
    pub(super) const APPLICATION: u16 = 4;
}

/// Options of an interface description.
mod description {
    pub(super) const NAME: u16 = 2;
    pub(super) const DESCRIPTION: u16 = 3;
    pub(super) const IPV4: u16 = 4;
    pub(super) const IPV6: u16 = 5;
    pub(super) const MAC: u16 = 6;
    pub(super) const SPEED: u16 = 8;
    pub(super) const TIME_RESOLUTION: u16 = 9;
}

/// Options of a packet.
mod packet {
    pub(super) const FLAGS: u16 = 2;
    pub(super) const DROPPED: u16 = 4;
}

/// Options of an interface's statistics.
mod statistics {
    pub(super) const START: u16 = 2;
    pub(super) const END: u16 = 3;
    pub(super) const RECEIVED: u16 = 4;
    pub(super) const DROPPED: u16 = 5;
    pub(super) const OS_DROPPED: u16 = 7;
    pub(super) const DELIVERED: u16 = 8;
}

/// What the packets of an interface begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u16)]
pub enum LinkType {
    /// An Ethernet header; no frame check sequence at the end.
    #[default]
    Ethernet = 1,
    /// An IPv4 or IPv6 header.
    RawIp = 101,
    /// An InfiniBand local route header.
    Infiniband = 247,
}

/// An interface that packets are written for: its place among the descriptions of its section.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interface(pub u32);

/// Which way a packet went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Direction {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// Where a capture was made. Empty texts are left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Section<'a> {
    /// The machine.
    pub hardware: &'a str,
    /// The operating system.
    pub os: &'a str,
    /// The program that wrote the capture.
    pub application: &'a str,
    /// Anything else.
    pub comment: &'a str,
}

/// An interface as its packets' reader sees it. Empty texts are left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Description<'a> {
    /// What its packets begin with.
    pub link: LinkType,
    /// Most bytes kept of a packet; 0: all.
    pub snap_len: u32,
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub description: &'a str,
    /// Its addresses; written as those of a host (prefixes of 32 and 128 bits).
    pub addresses: &'a [IpAddr],
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// Its speed in bit/s.
    pub speed: Option<u64>,
}

/// What is noted beside a packet's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Notes<'a> {
    /// Which way it went.
    pub direction: Option<Direction>,
    /// A text to show with the packet; cut to 65535 bytes.
    pub comment: Option<&'a str>,
    /// The bytes that the packet had before it was cut; its length if it was not.
    pub original_len: Option<u32>,
    /// Packets of the interface that were lost to the capture since the one before.
    pub dropped: u64,
}

impl Notes<'_> {
    /// The most bytes that the block of a packet takes besides those captured.
    pub fn overhead(&self) -> usize {
        // Fixed fields, padding, comment, flags, dropped, end.
        36 + 3 + self.comment.map_or(0, |c| 4 + c.len() + 3) + 8 + 12 + 4
    }
}

/// What was counted on an interface. Times are nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Statistics<'a> {
    /// When this was counted.
    pub time: u64,
    /// When the capture began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Packets that passed.
    pub received: u64,
    /// Packets that are missing in the capture, because it could not be written fast enough.
    pub dropped: u64,
    /// Packets that the operating system dropped before they came this far.
    pub os_dropped: u64,
    /// Packets in the capture.
    pub delivered: u64,
    /// Anything else; left out if empty.
    pub comment: &'a str,
}

/// Appends the header of a section: what comes behind it, up to the next, was captured here.
pub fn put_section(out: &mut Vec<u8>, section: &Section<'_>) {
    let start = begin(out, SECTION_HEADER);
    put_u32(out, BYTE_ORDER_MAGIC);
    put_u16(out, 1);
    put_u16(out, 0);
    out.extend_from_slice(&u64::MAX.to_le_bytes()); // A section of unknown length.
    let mut any = put_text(out, OPTION_COMMENT, section.comment);
    any |= put_text(out, section::HARDWARE, section.hardware);
    any |= put_text(out, section::OS, section.os);
    any |= put_text(out, section::APPLICATION, section.application);
    if any {
        put_option(out, OPTION_END, &[]);
    }
    end(out, start);
}

/// Appends the description of an interface. The first one of a section is [`Interface`] 0.
pub fn put_interface(out: &mut Vec<u8>, interface: &Description<'_>) {
    let start = begin(out, INTERFACE_DESCRIPTION);
    put_u16(out, interface.link as u16);
    put_u16(out, 0);
    put_u32(out, interface.snap_len);
    put_text(out, description::NAME, interface.name);
    put_text(out, description::DESCRIPTION, interface.description);
    for address in interface.addresses {
        match address {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                put_option(out, description::IPV4, &[a, b, c, d, 255, 255, 255, 255]);
            }
            IpAddr::V6(v6) => {
                let mut value = [128; 17];
                value[..16].copy_from_slice(&v6.octets());
                put_option(out, description::IPV6, &value);
            }
        }
    }
    if let Some(mac) = interface.mac {
        put_option(out, description::MAC, &mac.0);
    }
    if let Some(speed) = interface.speed {
        put_option(out, description::SPEED, &speed.to_le_bytes());
    }
    put_option(out, description::TIME_RESOLUTION, &[9]);
    put_option(out, OPTION_END, &[]);
    end(out, start);
}

/// Appends a packet, which is `head` and behind it `body`. `time` counts nanoseconds since 1970, or
/// since whatever origin the reader is to take for it. Together they are shorter than 4 GiB.
pub fn put_packet(
    out: &mut Vec<u8>,
    interface: Interface,
    time: u64,
    (head, body): (&[u8], &[u8]),
    notes: &Notes<'_>,
) {
    let len = (head.len() + body.len()) as u32;
    let start = out.len();
    let original_len = notes.original_len.unwrap_or(len).max(len);
    let words = [
        ENHANCED_PACKET,
        0, // The length, once it is known.
        interface.0,
        (time >> 32) as u32,
        time as u32,
        len,
        original_len,
    ];
    out.extend_from_slice(words.map(u32::to_le_bytes).as_flattened());
    out.extend_from_slice(head);
    out.extend_from_slice(body);
    pad(out);
    let mut any = match notes.comment {
        Some(comment) => put_text(out, OPTION_COMMENT, comment),
        None => false,
    };
    if let Some(direction) = notes.direction {
        put_option(out, packet::FLAGS, &(direction as u32).to_le_bytes());
        any = true;
    }
    if notes.dropped > 0 {
        put_option(out, packet::DROPPED, &notes.dropped.to_le_bytes());
        any = true;
    }
    if any {
        put_option(out, OPTION_END, &[]);
    }
    end(out, start);
}

/// Appends what was counted on an interface.
pub fn put_statistics(out: &mut Vec<u8>, interface: Interface, counted: &Statistics<'_>) {
    let start = begin(out, INTERFACE_STATISTICS);
    put_u32(out, interface.0);
    put_u32(out, (counted.time >> 32) as u32);
    put_u32(out, counted.time as u32);
    put_text(out, OPTION_COMMENT, counted.comment);
    for (code, time) in [(statistics::START, counted.start), (statistics::END, counted.end)] {
        let mut value = [0; 8];
        value[..4].copy_from_slice(&((time >> 32) as u32).to_le_bytes());
        value[4..].copy_from_slice(&(time as u32).to_le_bytes());
        put_option(out, code, &value);
    }
    for (code, count) in [
        (statistics::RECEIVED, counted.received),
        (statistics::DROPPED, counted.dropped),
        (statistics::OS_DROPPED, counted.os_dropped),
        (statistics::DELIVERED, counted.delivered),
    ] {
        put_option(out, code, &count.to_le_bytes());
    }
    put_option(out, OPTION_END, &[]);
    end(out, start);
}

/// A capture being written. Each block goes out in one call of the writer below, so that a capture
/// cut short ends between blocks as a rule; put a `BufWriter` beneath it for speed.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    interfaces: u32,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a capture.
    ///
    /// # Errors
    /// Those of the writer below, here and in all other methods.
    pub fn new(out: W, section: &Section<'_>) -> io::Result<Self> {
        let mut writer = Self { out, interfaces: 0, block: Vec::new() };
        writer.block(|block| put_section(block, section))?;
        Ok(writer)
    }

    /// Adds an interface.
    ///
    /// # Errors
    /// Those of the writer below.
    pub fn interface(&mut self, interface: &Description<'_>) -> io::Result<Interface> {
        self.block(|block| put_interface(block, interface))?;
        let interface = Interface(self.interfaces);
        self.interfaces += 1;
        Ok(interface)
    }

    /// Adds a packet; see [`put_packet`].
    ///
    /// # Errors
    /// Those of the writer below; [`io::ErrorKind::InvalidInput`] for 4 GiB and more.
    pub fn packet(
        &mut self,
        interface: Interface,
        time: u64,
        bytes: &[u8],
        notes: &Notes<'_>,
    ) -> io::Result<()> {
        if bytes.len() >= (u32::MAX - 0x4_0000) as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.block(|block| put_packet(block, interface, time, (bytes, &[]), notes))
    }

    /// Adds what was counted on an interface.
    ///
    /// # Errors
    /// Those of the writer below.
    pub fn statistics(&mut self, interface: Interface, counted: &Statistics<'_>) -> io::Result<()> {
        self.block(|block| put_statistics(block, interface, counted))
    }

    /// Hands on what the writer below holds back.
    ///
    /// # Errors
    /// Those of the writer below.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the capture.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn block(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.block.clear();
        put(&mut self.block);
        self.out.write_all(&self.block)
    }
}

/// Begins a block; its place.
fn begin(out: &mut Vec<u8>, kind: u32) -> usize {
    let start = out.len();
    put_u32(out, kind);
    put_u32(out, 0); // The length, once it is known.
    start
}

fn end(out: &mut Vec<u8>, start: usize) {
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    put_u32(out, len);
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Fills up to a multiple of four bytes; all blocks are such.
fn pad(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 3][..out.len().wrapping_neg() & 3]);
}

fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    put_u16(out, code);
    put_u16(out, value.len() as u16);
    out.extend_from_slice(value);
    pad(out);
}

/// Appends a text, cut to what an option can hold, between characters; whether there is any.
fn put_text(out: &mut Vec<u8>, code: u16, text: &str) -> bool {
    let mut len = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    if len > 0 {
        put_option(out, code, &text.as_bytes()[..len]);
    }
    len > 0
}
