//! IP packets that are no RoCE: what their headers say, for the frames around and between.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::tree::{Lines, traffic_class};
use crate::ethernet::{TYPE_IPV4, TYPE_IPV6};
use crate::ip::{IPV4_LEN, IPV6_LEN};

/// The headers of an IP packet.
pub(super) struct Other {
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    /// Total length (IPv4), or payload length.
    len: u16,
    hop_limit: u8,
    protocol: u8,
    /// Identification, flags and fragment offset; of IPv6 the flow label alone.
    ident: u32,
    fragment: u16,
    /// Ports of UDP and TCP.
    ports: Option<(u16, u16)>,
}

impl Other {
    /// Reads the headers behind an EtherType.
    pub(super) fn parse(ether_type: u16, bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?));
        match ether_type {
            TYPE_IPV4 => {
                let head = bytes.first_chunk::<IPV4_LEN>().filter(|head| head[0] >> 4 == 4)?;
                let [.., a, b, c, d, e, f, g, h] = *head;
                let (protocol, fragment) = (head[9], word(6)?);
                let behind = usize::from(head[0] & 15) * 4;
                let ports = word(behind).zip(word(behind + 2));
                Some(Self {
                    source: Ipv4Addr::new(a, b, c, d).into(),
                    destination: Ipv4Addr::new(e, f, g, h).into(),
                    traffic_class: head[1],
                    len: word(2)?,
                    hop_limit: head[8],
                    protocol,
                    ident: word(4)?.into(),
                    fragment,
                    ports: ports.filter(|_| has_ports(protocol) && fragment & 0x1FFF == 0),
                })
            }
            TYPE_IPV6 => {
                let head = bytes.first_chunk::<IPV6_LEN>().filter(|head| head[0] >> 4 == 6)?;
                let address = |at: usize| {
                    bytes.get(at..)?.first_chunk::<16>().map(|a| Ipv6Addr::from(*a).into())
                };
                let ports = word(IPV6_LEN).zip(word(IPV6_LEN + 2));
                let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
                Some(Self {
                    source: address(8)?,
                    destination: address(24)?,
                    traffic_class: (first >> 20) as u8,
                    len: word(4)?,
                    hop_limit: head[7],
                    protocol: head[6],
                    ident: first & 0xF_FFFF,
                    fragment: 0,
                    ports: ports.filter(|_| has_ports(head[6])),
                })
            }
            _ => None,
        }
    }

    /// The headers in a line.
    pub(super) fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source, self.destination);
        match self.ports {
            Some((from, to)) if source.is_ipv6() => {
                write!(f, "[{source}]:{from} > [{destination}]:{to}")?;
            }
            Some((from, to)) => write!(f, "{source}:{from} > {destination}:{to}")?,
            None => write!(f, "{source} > {destination}")?,
        }
        write!(f, " {} len {}", protocol(self.protocol), self.len)
    }

    /// The headers with their fields.
    pub(super) fn tree(&self, lines: &mut Lines<'_, '_>) -> fmt::Result {
        let (source, destination) = (self.source, self.destination);
        let version = if source.is_ipv4() { 4 } else { 6 };
        lines.header(format_args!("IPv{version}, {source} to {destination}"))?;
        traffic_class("Traffic class", self.traffic_class, lines)?;
        if version == 4 {
            lines.field("Total length", self.len)?;
            lines.field("Identification", format_args!("{:#06x}", self.ident))?;
            lines.field("Don't fragment", self.fragment & 0x4000 != 0)?;
            lines.field("More fragments", self.fragment & 0x2000 != 0)?;
            lines.field("Fragment offset", u32::from(self.fragment & 0x1FFF) * 8)?;
            lines.field("Time to live", self.hop_limit)?;
        } else {
            lines.field("Flow label", format_args!("{:#07x}", self.ident))?;
            lines.field("Payload length", self.len)?;
            lines.field("Hop limit", self.hop_limit)?;
        }
        let (number, name) = (self.protocol, protocol(self.protocol));
        lines.field("Protocol", format_args!("{number} ({name})"))?;
        match self.ports {
            Some((from, to)) => lines.header(format_args!("{name}, port {from} to {to}")),
            None => Ok(()),
        }
    }
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17)
}

fn protocol(number: u8) -> &'static str {
    match number {
        1 => "ICMP",
        2 => "IGMP",
        6 => "TCP",
        17 => "UDP",
        44 => "fragment",
        47 => "GRE",
        58 => "ICMPv6",
        _ => "protocol",
    }
}
