//! A frame as a switch sees it: the headers that it reads and may change, a length, and a body that
//! it carries without looking at it.

use wire::mac_control::MacControl;
use wire::{Gid, Mac};

/// What stands in front of a network packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Whom the frame is for.
    pub destination: Mac,
    /// Who sent it.
    pub source: Mac,
    /// VLAN and priority code point of an 802.1Q tag.
    pub tag: Option<(u16, u8)>,
    /// The network layer, where there is one that a router understands.
    pub net: Option<Net>,
}

/// The network layer: an IPv4 or IPv6 header (IPv4 addresses are mapped). RoCEv1 has none: it does
/// not leave its broadcast domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Net {
    /// Source address.
    pub source: Gid,
    /// Destination address.
    pub destination: Gid,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IP protocol: 17 is UDP, 6 TCP.
    pub protocol: u8,
    /// Ports of TCP or UDP; 0 without.
    pub ports: Ports,
}

/// Source and destination port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ports {
    /// Source port: the entropy of a RoCEv2 flow.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// What a frame carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content<B> {
    /// A pause of 802.3x or PFC: eaten by whoever receives it.
    Control(MacControl),
    /// LLDP with DCBX: bytes from the first TLV on.
    Lldp(Vec<u8>),
    /// What the switch carries.
    Data(B),
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<B> {
    /// Its headers.
    pub header: Header,
    /// Bytes from the destination MAC through the check sequence, padding included; what the medium
    /// adds (preamble, gap) is the cable's.
    pub length: u32,
    /// What it carries.
    pub content: Content<B>,
}

/// Bytes of a pause frame, check sequence included.
pub const CONTROL_LENGTH: u32 = 64;

impl<B> Frame<B> {
    /// A pause frame from `source`.
    pub fn control(source: Mac, control: MacControl) -> Self {
        let header = Header {
            destination: Mac([0x01, 0x80, 0xC2, 0, 0, 0x01]),
            source,
            tag: None,
            net: None,
        };
        Self { header, length: CONTROL_LENGTH, content: Content::Control(control) }
    }

    /// Marks an ECN-capable packet as having met congestion; false, and no change, if it is not
    /// ECN-capable.
    pub fn mark_ce(&mut self) -> bool {
        match &mut self.header.net {
            Some(net) if net.traffic_class & 3 != 0 => {
                net.traffic_class |= 3;
                true
            }
            _ => false,
        }
    }
}
