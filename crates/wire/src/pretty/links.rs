//! Headers of captures that are no Ethernet header: Linux cooked, ERF, bare IP; and tunnels other
//! than VXLAN: GRE with what mirrors put into it.

use core::fmt::{self, Write};

use super::TUNNELS;
use crate::ethernet::{Ethernet, TYPE_IPV4, TYPE_IPV6};
use crate::ip::IPV4_LEN;

/// EtherTypes behind GRE: a frame, ERSPAN of both kinds.
const TYPE_BRIDGED: u16 = 0x6558;
const TYPE_ERSPAN: u16 = 0x88BE;
const TYPE_ERSPAN_3: u16 = 0x22EB;
/// IP protocol number of GRE.
const PROTOCOL_GRE: u8 = 47;

/// What a header says that comes next.
pub(super) enum Next<'a> {
    /// A frame.
    Ethernet(&'a [u8]),
    /// A packet of an InfiniBand link.
    Infiniband(&'a [u8]),
    /// What an EtherType says.
    Network(u16, &'a [u8]),
    /// Nothing that is read.
    Opaque,
}

/// A header that is too short.
fn short<'a>(name: &str, bytes: &[u8], text: &mut String) -> Result<Next<'a>, fmt::Error> {
    writeln!(text, "Dropped: {name}: truncated ({} bytes)", bytes.len())?;
    Ok(Next::Opaque)
}

/// Bytes that begin with an IP header.
pub(super) fn raw_ip(bytes: &[u8]) -> Next<'_> {
    match bytes.first().map(|byte| byte >> 4) {
        Some(6) => Next::Network(TYPE_IPV6, bytes),
        _ => Next::Network(TYPE_IPV4, bytes),
    }
}

/// The address that a cooked header has, of at most 8 bytes.
fn address(field: &[u8], len: usize) -> String {
    let field = field.get(..len.min(8)).unwrap_or(field);
    let parts: Vec<String> = field.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

fn packet_type(kind: u16) -> &'static str {
    match kind {
        0 => "to us",
        1 => "broadcast",
        2 => "multicast",
        3 => "to somebody else",
        4 => "sent by us",
        _ => "unknown",
    }
}

/// The Linux cooked header, version 1: 16 bytes.
pub(super) fn cooked<'a>(bytes: &'a [u8], text: &mut String) -> Result<Next<'a>, fmt::Error> {
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else {
        return short("Linux cooked", bytes, text);
    };
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (kind, protocol) = (word(0), word(14));
    writeln!(text, "Linux cooked header, version 1")?;
    writeln!(text, "    Packet type: {kind} ({})", packet_type(kind))?;
    writeln!(text, "    ARPHRD type: {}", word(2))?;
    writeln!(text, "    Address: {}", address(&head[6..14], word(4).into()))?;
    writeln!(text, "    Protocol: {protocol:#06x}")?;
    Ok(Next::Network(protocol, rest))
}

/// The Linux cooked header, version 2: 20 bytes.
pub(super) fn cooked2<'a>(bytes: &'a [u8], text: &mut String) -> Result<Next<'a>, fmt::Error> {
    let Some((head, rest)) = bytes.split_first_chunk::<20>() else {
        return short("Linux cooked", bytes, text);
    };
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (protocol, kind) = (word(0), u16::from(head[10]));
    writeln!(text, "Linux cooked header, version 2")?;
    writeln!(text, "    Protocol: {protocol:#06x}")?;
    let interface = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    writeln!(text, "    Interface: {interface}")?;
    writeln!(text, "    ARPHRD type: {}", word(8))?;
    writeln!(text, "    Packet type: {kind} ({})", packet_type(kind))?;
    writeln!(text, "    Address: {}", address(&head[12..20], head[11].into()))?;
    Ok(Next::Network(protocol, rest))
}

/// An ERF record header: 16 bytes, then extension headers of 8 bytes each.
pub(super) fn erf<'a>(bytes: &'a [u8], text: &mut String) -> Result<Next<'a>, fmt::Error> {
    const INFINIBAND: u8 = 21;
    const ETHERNET: [u8; 4] = [2, 11, 16, 20];
    let Some((head, mut rest)) = bytes.split_first_chunk::<16>() else {
        return short("ERF", bytes, text);
    };
    let kind = head[8] & 0x7F;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    writeln!(text, "ERF record header")?;
    writeln!(text, "    Type: {kind}")?;
    writeln!(text, "    Flags: {:#04x} (interface {})", head[9], head[9] & 3)?;
    writeln!(text, "    Record length: {}", word(10))?;
    writeln!(text, "    Lost, or colour: {}", word(12))?;
    writeln!(text, "    Wire length: {}", word(14))?;
    let mut more = head[8] & 0x80 != 0;
    while more {
        let Some((extension, behind)) = rest.split_first_chunk::<8>() else {
            return short("ERF extension", rest, text);
        };
        writeln!(text, "    Extension: {:#018x}", u64::from_be_bytes(*extension))?;
        more = extension[0] & 0x80 != 0;
        rest = behind;
    }
    Ok(match kind {
        INFINIBAND => Next::Infiniband(rest),
        // An offset and a pad byte stand before the frame.
        kind if ETHERNET.contains(&kind) => Next::Ethernet(rest.get(2..).unwrap_or_default()),
        _ => Next::Opaque,
    })
}

/// A frame or packet in a GRE tunnel, if the frame carries one; its headers are described.
pub(super) fn gre<'a>(frame: &'a [u8], text: &mut String) -> Result<Option<Next<'a>>, fmt::Error> {
    let Ok((_, TYPE_IPV4, packet)) = Ethernet::parse(frame) else { return Ok(None) };
    let Some(ip) = packet.first_chunk::<IPV4_LEN>().filter(|ip| ip[9] == PROTOCOL_GRE) else {
        return Ok(None);
    };
    let Some(bytes) = packet.get(usize::from(ip[0] & 15) * 4..) else { return Ok(None) };
    let Some([a, b, c, d]) = bytes.first_chunk::<4>() else { return Ok(None) };
    let (flags, protocol) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
    writeln!(text, "GRE, carries {protocol:#06x}")?;
    writeln!(text, "    Flags: {flags:#06x}")?;
    let mut at = 4;
    for (bit, name) in [(0x8000, "Checksum"), (0x2000, "Key"), (0x1000, "Sequence")] {
        if flags & bit != 0 {
            let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
                return Ok(Some(short("GRE", bytes, text)?));
            };
            writeln!(text, "    {name}: {:#010x}", u32::from_be_bytes(*word))?;
            at += 4;
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let next = match protocol {
        TYPE_BRIDGED => Next::Ethernet(rest),
        // Without a sequence number an ERSPAN of the first kind has no header.
        TYPE_ERSPAN if flags & 0x1000 == 0 => Next::Ethernet(rest),
        TYPE_ERSPAN => erspan("II", 8, rest, text)?,
        TYPE_ERSPAN_3 => {
            let more = rest.get(11).is_some_and(|byte| byte & 1 != 0);
            erspan("III", if more { 20 } else { 12 }, rest, text)?
        }
        protocol => Next::Network(protocol, rest),
    };
    Ok(Some(next))
}

fn erspan<'a>(
    kind: &str,
    len: usize,
    bytes: &'a [u8],
    text: &mut String,
) -> Result<Next<'a>, fmt::Error> {
    let (Some([a, b, c, d]), Some(frame)) = (bytes.first_chunk::<4>(), bytes.get(len..)) else {
        return short("ERSPAN", bytes, text);
    };
    let (first, second) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
    writeln!(text, "ERSPAN {kind}")?;
    writeln!(text, "    Version: {}", first >> 12)?;
    writeln!(text, "    VLAN: {}", first & 0xFFF)?;
    writeln!(text, "    Class of service: {}", second >> 13)?;
    writeln!(text, "    Session: {}", second & 0x3FF)?;
    Ok(Next::Ethernet(frame))
}

/// How often tunnels are still followed.
#[derive(Clone, Copy)]
pub(super) struct Depth(usize);

impl Depth {
    /// Nothing was followed yet.
    pub(super) const fn new() -> Self {
        Self(TUNNELS)
    }

    /// One tunnel further; `None` if that is too deep.
    pub(super) fn deeper(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}
