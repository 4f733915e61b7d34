//! Service ids of RDMA-CM and the address header that its requests carry in front of their private
//! data.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::fields::{Reader, Writer};

/// What a listener offers and a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

/// The port spaces of RDMA-CM; values are those of `rdma_port_space`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand.
    IpoIb = 0x0002,
    /// Connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Connections with InfiniBand semantics.
    Ib = 0x013F,
}

impl ServiceId {
    /// The id of a port in a port space.
    pub const fn rdma_cm(space: PortSpace, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// The port space and port, if the id is one of RDMA-CM's.
    pub const fn to_rdma_cm(self) -> Option<(PortSpace, u16)> {
        let space = match self.0 >> 16 {
            0x0002 => PortSpace::IpoIb,
            0x0106 => PortSpace::Tcp,
            0x0111 => PortSpace::Udp,
            0x013F => PortSpace::Ib,
            _ => return None,
        };
        Some((space, (self.0 & 0xFFFF) as u16))
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_rdma_cm() {
            Some((space, port)) => write!(f, "{space:?}:{port}"),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The header in front of the private data of a request for an RDMA-CM service: from which IP
/// address and port to which IP address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpCmHeader {
    /// The requester's port.
    pub source_port: u16,
    /// The requester's address.
    pub source: IpAddr,
    /// The address asked for. Of the same family as `source`; if it is not, IPv4 is written as
    /// IPv4-mapped IPv6.
    pub destination: IpAddr,
}

impl IpCmHeader {
    /// Bytes of the header.
    pub const LEN: usize = 36;

    /// Reads the header at the front of private data. `None` if there is none: too short, another
    /// version than 0, or an IP version that does not exist (as with native addressing).
    pub fn parse(private: &[u8]) -> Option<Self> {
        let r = Reader::new(private.get(..Self::LEN)?);
        if r.u8(0) != 0 {
            return None;
        }
        let address = |at: usize| match r.u8(1) >> 4 {
            4 => Some(IpAddr::V4(Ipv4Addr::from(r.array::<4>(at + 12)))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(r.array::<16>(at)))),
            _ => None,
        };
        Some(Self { source_port: r.u16(2), source: address(4)?, destination: address(20)? })
    }

    /// The header as bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut w = Writer::new(&mut bytes);
        w.u16(2, self.source_port);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                w.u8(1, 0x40);
                w.bytes(16, &source.octets());
                w.bytes(32, &destination.octets());
            }
            (source, destination) => {
                w.u8(1, 0x60);
                w.bytes(4, &to_v6(source).octets());
                w.bytes(20, &to_v6(destination).octets());
            }
        }
        bytes
    }
}

fn to_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
