//! The Ethernet header with its 802.1Q and 802.1ad tags. What an EtherType carries is in `frame`.

use crate::error::{DropReason, EmitError, Layer};
use crate::ids::{Gid, Mac};

/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86DD;
/// EtherType of RoCEv1: a GRH follows.
pub const TYPE_ROCE_V1: u16 = 0x8915;
/// EtherType of MAC control frames.
pub const TYPE_MAC_CONTROL: u16 = 0x8808;
/// EtherType of LLDP.
pub const TYPE_LLDP: u16 = 0x88CC;
/// EtherType of a customer tag (802.1Q).
pub const TYPE_CUSTOMER_TAG: u16 = 0x8100;
/// EtherType of a service tag (802.1ad), the outer one of two.
pub const TYPE_SERVICE_TAG: u16 = 0x88A8;
/// The shortest frame without its check sequence; what is shorter is padded.
pub const MIN_FRAME: usize = 60;
/// Bytes of a header without tags.
pub const HEADER_LEN: usize = 14;

/// A tag with priority and VLAN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag {
    /// [`TYPE_CUSTOMER_TAG`] or [`TYPE_SERVICE_TAG`].
    pub kind: u16,
    /// Tag control information: priority 3, drop eligible 1, VLAN 12 bits.
    pub control: u16,
}

impl Tag {
    /// An 802.1Q tag. Priority is cut to 3 bits, the VLAN to 12.
    pub const fn new(priority: u8, vlan: u16) -> Self {
        Self { kind: TYPE_CUSTOMER_TAG, control: (priority as u16 & 7) << 13 | (vlan & 0xFFF) }
    }

    /// Priority code point, 0..=7.
    pub const fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }

    /// Whether the frame may be dropped first under congestion.
    pub const fn drop_eligible(self) -> bool {
        self.control & 0x1000 != 0
    }

    /// VLAN number, 0..=4095; 0 is a tag for the priority alone.
    pub const fn vlan(self) -> u16 {
        self.control & 0xFFF
    }
}

/// Addresses and tags in front of a frame. The EtherType follows from the content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ethernet {
    /// Whom the frame is for.
    pub destination: Mac,
    /// Who sent it.
    pub source: Mac,
    /// At most two tags, the outer one first.
    pub tags: [Option<Tag>; 2],
}

impl Ethernet {
    /// A header without tags.
    pub const fn new(source: Mac, destination: Mac) -> Self {
        Self { destination, source, tags: [None; 2] }
    }

    /// This header with one 802.1Q tag.
    pub const fn tagged(self, priority: u8, vlan: u16) -> Self {
        Self { tags: [Some(Tag::new(priority, vlan)), None], ..self }
    }

    /// Bytes on the wire, EtherType included.
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + 4 * self.tags.iter().flatten().count()
    }

    /// Reads the header; returns it with the EtherType of what follows and the bytes that do.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, u16, &[u8]), DropReason> {
        const SHORT: DropReason = DropReason::Truncated(Layer::Ethernet);
        let (addresses, rest) = bytes.split_first_chunk::<12>().ok_or(SHORT)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
        let mut header = Self::new(Mac([s0, s1, s2, s3, s4, s5]), Mac([d0, d1, d2, d3, d4, d5]));
        let (kind, mut rest) = rest.split_first_chunk::<2>().ok_or(SHORT)?;
        let mut kind = u16::from_be_bytes(*kind);
        for slot in &mut header.tags {
            if kind != TYPE_CUSTOMER_TAG && kind != TYPE_SERVICE_TAG {
                break;
            }
            let ([a, b, c, d], behind) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
            *slot = Some(Tag { kind, control: u16::from_be_bytes([*a, *b]) });
            kind = u16::from_be_bytes([*c, *d]);
            rest = behind;
        }
        Ok((header, kind, rest))
    }

    /// Writes the header with the EtherType of what follows. `out` has the room.
    pub(crate) fn emit(&self, ether_type: u16, out: &mut [u8]) -> Result<(), EmitError> {
        if self.tags[0].is_none() && self.tags[1].is_some() {
            return Err(EmitError::Field("inner tag without an outer one"));
        }
        out[..6].copy_from_slice(&self.destination.0);
        out[6..12].copy_from_slice(&self.source.0);
        let mut at = 12;
        for tag in self.tags.iter().flatten() {
            if tag.kind != TYPE_CUSTOMER_TAG && tag.kind != TYPE_SERVICE_TAG {
                return Err(EmitError::Field("tag kind"));
            }
            out[at..at + 2].copy_from_slice(&tag.kind.to_be_bytes());
            out[at + 2..at + 4].copy_from_slice(&tag.control.to_be_bytes());
            at += 4;
        }
        out[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
        Ok(())
    }
}

impl Mac {
    /// Destination of MAC control frames.
    pub const MAC_CONTROL: Self = Self([0x01, 0x80, 0xC2, 0, 0, 0x01]);
    /// Destination of LLDP frames.
    pub const LLDP: Self = Self([0x01, 0x80, 0xC2, 0, 0, 0x0E]);

    /// The Ethernet address of a multicast GID: 01:00:5e and the last 23 bits for IPv4, 33:33 and
    /// the last 32 bits for IPv6. `None` for a GID that is no multicast group.
    pub fn multicast(group: Gid) -> Option<Self> {
        let [.., a, b, c, d] = group.0;
        match (group.is_multicast(), group.is_ipv4()) {
            (false, _) => None,
            (true, true) => Some(Self([0x01, 0x00, 0x5E, b & 0x7F, c, d])),
            (true, false) => Some(Self([0x33, 0x33, a, b, c, d])),
        }
    }
}
