//! Identifiers and numbers that travel in headers, each a type of its own.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty), mask $mask:expr, hex $width:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($int);
        impl $name {
            /// The value, cut to the bits that the field has.
            pub const fn new(value: $int) -> Self {
                Self(value & $mask)
            }
            /// The value as a plain number.
            pub const fn get(self) -> $int {
                self.0
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{:#0", $width, "x}"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

number!(
    /// A queue pair number, 24 bits.
    Qpn(u32), mask 0xFF_FFFF, hex 8);
number!(
    /// A partition key, 16 bits: 15 bits of partition, top bit set for a full member.
    PKey(u16), mask 0xFFFF, hex 6);
number!(
    /// A queue key of unreliable datagrams, 32 bits.
    QKey(u32), mask 0xFFFF_FFFF, hex 10);
number!(
    /// A local key: names a registered region towards the own device.
    LKey(u32), mask 0xFFFF_FFFF, hex 10);
number!(
    /// A remote key: names a registered region or window towards a peer.
    RKey(u32), mask 0xFFFF_FFFF, hex 10);
number!(
    /// The number of a shared receive queue in XRC headers, 24 bits.
    SrqNum(u32), mask 0xFF_FFFF, hex 8);
number!(
    /// A message sequence number, 24 bits, counting completed messages.
    Msn(u32), mask 0xFF_FFFF, hex 8);

impl Qpn {
    /// The general services queue pair, where management datagrams go.
    pub const GSI: Self = Self(1);
    /// The destination of multicast datagrams.
    pub const MULTICAST: Self = Self(0xFF_FFFF);
}

impl PKey {
    /// The default partition, full member.
    pub const DEFAULT: Self = Self(0xFFFF);

    /// Whether packets may pass between holders of the two keys: same non-zero partition and at
    /// least one full member (InfiniBand architecture, partitioning).
    pub const fn matches(self, other: Self) -> bool {
        (self.0 & 0x7FFF) == (other.0 & 0x7FFF)
            && (self.0 & 0x7FFF) != 0
            && ((self.0 | other.0) & 0x8000) != 0
    }
}

impl QKey {
    /// The Q_Key of the general services queue pair.
    pub const GSI: Self = Self(0x8001_0000);
}

impl Msn {
    /// The next number, modulo 2^24.
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }
}

/// A packet sequence number: 24 bits on a circle. It has equality and distance, but no order;
/// a holder of a reference point expands it to an ordered 64-bit sequence with [`Psn::expand`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The number, cut to 24 bits.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xFF_FFFF)
    }

    /// The number as it stands in a header.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `n` packets later, modulo 2^24.
    pub const fn add(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// How far this number is ahead of `other`: −2^23 .. 2^23 − 1.
    pub const fn distance(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// The 64-bit sequence nearest to `reference` whose low 24 bits are this number.
    pub const fn expand(self, reference: u64) -> u64 {
        let near = Self::new((reference & 0xFF_FFFF) as u32);
        reference.wrapping_add(self.distance(near) as i64 as u64)
    }

    /// The header's 24 bits of a 64-bit sequence.
    pub const fn from_seq(seq: u64) -> Self {
        Self::new((seq & 0xFF_FFFF) as u32)
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A global identifier, 16 bytes: an IPv6 address, or an IPv4 address in its mapped form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID that stands for an IP address: IPv4 as `::ffff:a.b.c.d`.
    pub fn from_ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// The IP address that this GID stands for.
    pub fn to_ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }

    /// The IPv4 address of an IPv4-mapped GID.
    pub fn to_ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Whether this GID names an IPv4 address.
    pub fn is_ipv4(self) -> bool {
        self.0[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]
    }

    /// Whether all bytes are zero (an empty slot).
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether the address is a multicast group.
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// The link-local GID of a MAC address: fe80::/64 with the modified EUI-64.
    pub fn link_local(mac: Mac) -> Self {
        let m = mac.0;
        let mut gid = [0; 16];
        gid[0] = 0xFE;
        gid[1] = 0x80;
        gid[8..].copy_from_slice(&[m[0] ^ 2, m[1], m[2], 0xFF, 0xFE, m[3], m[4], m[5]]);
        Self(gid)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Ipv6Addr::from(self.0))
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A path MTU: the payload of a full packet, one of the five InfiniBand sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// Header bytes reserved when an interface MTU is turned into a path MTU: IP or GRH 40, UDP 8,
    /// BTH 12, XRCETH 4, AtomicETH 28, ICRC 4.
    pub const OVERHEAD: u32 = 96;

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The code used by verbs and connection management: 1 (256) to 5 (4096).
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The MTU of a code 1..=5.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The MTU whose payload is exactly `bytes`.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Self::B256),
            512 => Some(Self::B512),
            1024 => Some(Self::B1024),
            2048 => Some(Self::B2048),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The active MTU of a port on an interface of `interface_mtu` bytes: the largest that fits,
    /// as Linux reckons it; `None` below 352.
    pub const fn for_interface(interface_mtu: u32) -> Option<Self> {
        match interface_mtu.saturating_sub(Self::OVERHEAD) {
            4096.. => Some(Self::B4096),
            2048.. => Some(Self::B2048),
            1024.. => Some(Self::B1024),
            512.. => Some(Self::B512),
            256.. => Some(Self::B256),
            _ => None,
        }
    }
}
