//! IPv4, IPv6 and UDP headers around a datagram to one port: the network layer of RoCEv2 and the
//! outer one of VXLAN. What is not such a datagram is left alone.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, Check};
use crate::error::{DropReason, EmitError, Layer};

/// Bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;
/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;
/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// IPv6 next-header value of a fragment header.
const NEXT_FRAGMENT: u8 = 44;

/// An IPv4 header without what follows from the rest (lengths, protocol).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4<'a> {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub ident: u16,
    /// Don't-fragment flag.
    pub dont_fragment: bool,
    /// The flag bit that the standard reserves.
    pub reserved_flag: bool,
    /// Time to live.
    pub ttl: u8,
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Whom it is for.
    pub destination: Ipv4Addr,
    /// Options, a multiple of four and at most 40 bytes.
    pub options: &'a [u8],
    /// Header checksum. A receiver drops a wrong one; 0xFFFF for 0 is the same sum.
    pub checksum: Check<u16>,
}

/// An IPv6 header without what follows from the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6 {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Who sent it.
    pub source: Ipv6Addr,
    /// Whom it is for.
    pub destination: Ipv6Addr,
}

/// An IP header of either version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ip<'a> {
    /// Version 4.
    V4(Ipv4<'a>),
    /// Version 6.
    V6(Ipv6),
}

/// A UDP header without length and destination port, which the context knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Udp {
    /// Source port.
    pub source_port: u16,
    /// Checksum; `None` if the field is 0. Not what a RoCE packet is judged by.
    pub checksum: Option<Check<u16>>,
}

/// A UDP datagram in an IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) ip: Ip<'a>,
    pub(crate) udp: Udp,
    /// The IP header, options included, as received.
    pub(crate) ip_bytes: &'a [u8],
    /// From the UDP header to the end that its length gives.
    pub(crate) udp_bytes: &'a [u8],
    /// Behind the end of the IP packet: Ethernet padding.
    pub(crate) trailer: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// What the UDP header carries.
    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.udp_bytes[UDP_LEN..]
    }
}

impl Ip<'_> {
    /// The source address.
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(ip) => ip.source.into(),
            Self::V6(ip) => ip.source.into(),
        }
    }

    /// The destination address.
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(ip) => ip.destination.into(),
            Self::V6(ip) => ip.destination.into(),
        }
    }

    /// Bytes of the header.
    pub fn wire_len(&self) -> usize {
        match self {
            Self::V4(ip) => IPV4_LEN + ip.options.len(),
            Self::V6(_) => IPV6_LEN,
        }
    }
}

/// Reads an IPv4 packet that carries a whole UDP datagram to `port`; `None` if it carries something
/// else.
pub(crate) fn parse_ipv4(bytes: &[u8], port: u16) -> Result<Option<Datagram<'_>>, DropReason> {
    let fixed = bytes.first_chunk::<IPV4_LEN>().ok_or(DropReason::Truncated(Layer::Ipv4))?;
    if fixed[0] >> 4 != 4 {
        return Err(DropReason::Version(Layer::Ipv4));
    }
    let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let header_len = usize::from(fixed[0] & 15) * 4;
    if fixed[9] != PROTOCOL_UDP {
        return Ok(None);
    }
    if header_len < IPV4_LEN {
        return Err(DropReason::Length(Layer::Ipv4));
    }
    let behind = bytes.get(header_len..).ok_or(DropReason::Truncated(Layer::Ipv4))?;
    let (more_fragments, offset) = (word(6) & 0x2000 != 0, word(6) & 0x1FFF);
    if offset != 0 {
        return Err(DropReason::Fragment);
    }
    if !is_for_port(behind, port)? {
        return Ok(None);
    }
    if more_fragments {
        return Err(DropReason::Fragment);
    }
    let total = usize::from(word(2));
    if total < header_len + UDP_LEN {
        return Err(DropReason::Length(Layer::Ipv4));
    }
    let (packet, trailer) =
        bytes.split_at_checked(total).ok_or(DropReason::Truncated(Layer::Ipv4))?;
    let (ip_bytes, udp_bytes) = packet.split_at(header_len);
    if checksum::ones_complement_sum(ip_bytes) != 0xFFFF {
        return Err(DropReason::Ipv4Checksum);
    }
    let ip = Ipv4 {
        tos: fixed[1],
        ident: word(4),
        dont_fragment: word(6) & 0x4000 != 0,
        reserved_flag: word(6) & 0x8000 != 0,
        ttl: fixed[8],
        source: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
        destination: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]),
        options: &ip_bytes[IPV4_LEN..],
        checksum: Check::of(word(10), checksum::ipv4_header(ip_bytes)),
    };
    datagram(Ip::V4(ip), ip_bytes, udp_bytes, trailer).map(Some)
}

/// Reads an IPv6 packet that carries a UDP datagram to `port` directly behind its header; `None` if
/// it carries something else.
pub(crate) fn parse_ipv6(bytes: &[u8], port: u16) -> Result<Option<Datagram<'_>>, DropReason> {
    const SHORT: DropReason = DropReason::Truncated(Layer::Ipv6);
    let (head, behind) = bytes.split_first_chunk::<IPV6_LEN>().ok_or(SHORT)?;
    let (ip, payload_len, next) =
        parse_ipv6_header(head).ok_or(DropReason::Version(Layer::Ipv6))?;
    match next {
        PROTOCOL_UDP => {}
        NEXT_FRAGMENT if behind.first() == Some(&PROTOCOL_UDP) => return Err(DropReason::Fragment),
        _ => return Ok(None),
    }
    if !is_for_port(behind, port)? {
        return Ok(None);
    }
    let (udp_bytes, trailer) = behind.split_at_checked(usize::from(payload_len)).ok_or(SHORT)?;
    datagram(Ip::V6(ip), head, udp_bytes, trailer).map(Some)
}

/// The fields of an IPv6 header or a GRH, its payload length and next header; `None` if the
/// version is not 6.
pub(crate) fn parse_ipv6_header(head: &[u8; IPV6_LEN]) -> Option<(Ipv6, u16, u8)> {
    let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&head[8..24]);
    destination.copy_from_slice(&head[24..]);
    let ip = Ipv6 {
        traffic_class: (word >> 20) as u8,
        flow_label: word & 0xF_FFFF,
        hop_limit: head[7],
        source: source.into(),
        destination: destination.into(),
    };
    (word >> 28 == 6).then_some((ip, u16::from_be_bytes([head[4], head[5]]), head[6]))
}

fn is_for_port(udp_bytes: &[u8], port: u16) -> Result<bool, DropReason> {
    let ports = udp_bytes.first_chunk::<4>().ok_or(DropReason::Truncated(Layer::Udp))?;
    Ok(ports[2..] == port.to_be_bytes())
}

fn datagram<'a>(
    ip: Ip<'a>,
    ip_bytes: &'a [u8],
    udp_bytes: &'a [u8],
    trailer: &'a [u8],
) -> Result<Datagram<'a>, DropReason> {
    let head = udp_bytes.first_chunk::<UDP_LEN>().ok_or(DropReason::Truncated(Layer::Udp))?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    if usize::from(word(4)) != udp_bytes.len() {
        return Err(DropReason::Length(Layer::Udp));
    }
    let checksum = (word(6) != 0).then(|| {
        Check::of(word(6), checksum::udp_of_written(ip.source(), ip.destination(), udp_bytes))
    });
    let udp = Udp { source_port: word(0), checksum };
    Ok(Datagram { ip, udp, ip_bytes, udp_bytes, trailer })
}

/// Writes the IP header and the UDP header without its checksum in front of a datagram of `udp_len`
/// bytes. `out` has the room.
pub(crate) fn emit_headers(
    ip: &Ip<'_>,
    source_port: u16,
    port: u16,
    udp_len: usize,
    out: &mut [u8],
) -> Result<(), EmitError> {
    let (head, rest) = out.split_at_mut(ip.wire_len());
    match ip {
        Ip::V4(ip) => emit_ipv4(ip, udp_len, head)?,
        Ip::V6(ip) => emit_ipv6_header(ip, udp_len, PROTOCOL_UDP, head)?,
    }
    let udp_len = u16::try_from(udp_len).map_err(|_| EmitError::TooLong(Layer::Udp))?;
    rest[..2].copy_from_slice(&source_port.to_be_bytes());
    rest[2..4].copy_from_slice(&port.to_be_bytes());
    rest[4..6].copy_from_slice(&udp_len.to_be_bytes());
    rest[6..8].fill(0);
    Ok(())
}

fn emit_ipv4(ip: &Ipv4<'_>, udp_len: usize, out: &mut [u8]) -> Result<(), EmitError> {
    if ip.options.len() > 40 || !ip.options.len().is_multiple_of(4) {
        return Err(EmitError::Field("IPv4 options"));
    }
    let total = u16::try_from(out.len() + udp_len).map_err(|_| EmitError::TooLong(Layer::Ipv4))?;
    let flags = u16::from(ip.reserved_flag) << 15 | u16::from(ip.dont_fragment) << 14;
    out[0] = 0x40 | (out.len() / 4) as u8;
    out[1] = ip.tos;
    out[2..4].copy_from_slice(&total.to_be_bytes());
    out[4..6].copy_from_slice(&ip.ident.to_be_bytes());
    out[6..8].copy_from_slice(&flags.to_be_bytes());
    out[8] = ip.ttl;
    out[9] = PROTOCOL_UDP;
    out[10..12].fill(0);
    out[12..16].copy_from_slice(&ip.source.octets());
    out[16..20].copy_from_slice(&ip.destination.octets());
    out[20..].copy_from_slice(ip.options);
    let checksum = ip.checksum.value(checksum::ipv4_header(out));
    out[10..12].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Writes an IPv6 header or a GRH.
pub(crate) fn emit_ipv6_header(
    ip: &Ipv6,
    payload_len: usize,
    next_header: u8,
    out: &mut [u8],
) -> Result<(), EmitError> {
    if ip.flow_label > 0xF_FFFF {
        return Err(EmitError::Field("flow label"));
    }
    let len = u16::try_from(payload_len).map_err(|_| EmitError::TooLong(Layer::Ipv6))?;
    let word = 6 << 28 | u32::from(ip.traffic_class) << 20 | ip.flow_label;
    out[..4].copy_from_slice(&word.to_be_bytes());
    out[4..6].copy_from_slice(&len.to_be_bytes());
    out[6] = next_header;
    out[7] = ip.hop_limit;
    out[8..24].copy_from_slice(&ip.source.octets());
    out[24..40].copy_from_slice(&ip.destination.octets());
    Ok(())
}

/// Writes the UDP checksum into a datagram that is complete but for it.
pub(crate) fn emit_udp_checksum(ip: &Ip<'_>, udp: &Udp, udp_bytes: &mut [u8]) {
    if let Some(check) = udp.checksum {
        let right = || checksum::udp(ip.source(), ip.destination(), udp_bytes);
        let value = match check {
            Check::Right => right(),
            Check::Stored(value) => value,
        };
        udp_bytes[6..8].copy_from_slice(&value.to_be_bytes());
    }
}
