//! Writes captures in the pcapng format (draft-ietf-opsawg-pcapng), times in nanoseconds. Only what
//! a link or a simulation needs to show its packets; reading captures is not done here.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_TIME_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// What the packets of an interface begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum LinkType {
    /// An Ethernet header; no frame check sequence at the end.
    Ethernet = 1,
    /// An IPv4 or IPv6 header.
    RawIp = 101,
    /// An InfiniBand local route header.
    Infiniband = 247,
}

/// An interface that packets are written for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interface(u32);

/// Which way a packet went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Direction {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
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
    /// Begins a capture that says which program wrote it.
    ///
    /// # Errors
    /// Those of the writer below.
    pub fn new(out: W, application: &str) -> io::Result<Self> {
        let mut writer = Self { out, interfaces: 0, block: Vec::new() };
        writer.begin(SECTION_HEADER);
        writer.u32(BYTE_ORDER_MAGIC);
        writer.u16(1);
        writer.u16(0);
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes()); // A section of unknown length.
        writer.option(SECTION_APPLICATION, application.as_bytes());
        writer.option(OPTION_END, &[]);
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface.
    ///
    /// # Errors
    /// Those of the writer below.
    pub fn interface(&mut self, link: LinkType, name: &str) -> io::Result<Interface> {
        self.begin(INTERFACE_DESCRIPTION);
        self.u16(link as u16);
        self.u16(0);
        self.u32(0); // No limit on a packet's bytes.
        self.option(INTERFACE_NAME, name.as_bytes());
        self.option(INTERFACE_TIME_RESOLUTION, &[9]);
        self.option(OPTION_END, &[]);
        self.end()?;
        let interface = Interface(self.interfaces);
        self.interfaces += 1;
        Ok(interface)
    }

    /// Adds a packet. `time` counts nanoseconds since 1970, or since whatever origin the reader is
    /// to take for it.
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
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len < u32::MAX - 0x4_0000);
        let len = len.ok_or(io::ErrorKind::InvalidInput)?;
        self.begin(ENHANCED_PACKET);
        self.u32(interface.0);
        self.u32((time >> 32) as u32);
        self.u32(time as u32);
        self.u32(len);
        self.u32(notes.original_len.unwrap_or(len).max(len));
        self.padded(bytes);
        if let Some(comment) = notes.comment {
            self.option(OPTION_COMMENT, comment.as_bytes());
        }
        if let Some(direction) = notes.direction {
            self.option(PACKET_FLAGS, &(direction as u32).to_le_bytes());
        }
        if notes.comment.is_some() || notes.direction.is_some() {
            self.option(OPTION_END, &[]);
        }
        self.end()
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

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0); // The length, once it is known.
    }

    fn end(&mut self) -> io::Result<()> {
        let len = (self.block.len() + 4) as u32;
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.u32(len);
        self.out.write_all(&self.block)
    }

    fn u16(&mut self, value: u16) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let mut len = value.len().min(usize::from(u16::MAX));
        // Text is cut between characters.
        while len < value.len() && len > 0 && value[len] & 0xC0 == 0x80 {
            len -= 1;
        }
        self.u16(code);
        self.u16(len as u16);
        self.padded(&value[..len]);
    }
}
