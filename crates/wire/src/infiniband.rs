//! Packets of an InfiniBand link: local route header, optional global route header, transport,
//! ICRC and VCRC. The GRH serves RoCEv1 as well.

use crate::checksum::Check;
use crate::content::Content;
use crate::error::{DropReason, EmitError, Layer};
use crate::icrc;
use crate::ids::Gid;
use crate::ip::{self, IPV6_LEN, Ipv6};
use crate::packet::{Encapsulation, Packet, Path};
use crate::transport::ICRC_LEN;
use crate::vcrc;

/// Bytes of a local route header.
pub const LRH_LEN: usize = 8;
/// Bytes of a global route header.
pub const GRH_LEN: usize = IPV6_LEN;
/// Bytes of the variant CRC.
pub const VCRC_LEN: usize = 2;
/// Next-header value of a GRH: a BTH follows.
pub const GRH_NEXT_HEADER: u8 = 0x1B;

const NEXT_BTH: u8 = 2;
const NEXT_GRH: u8 = 3;

/// A GRH and what lies behind it.
pub(crate) struct Routed<'a> {
    pub(crate) grh: Grh,
    /// The header as received.
    pub(crate) head: &'a [u8; GRH_LEN],
    /// From the BTH through the ICRC.
    pub(crate) payload: &'a [u8],
    /// Behind the end of the packet.
    pub(crate) trailer: &'a [u8],
}

/// Global route header without what follows from the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Grh {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub source: Gid,
    /// Destination GID.
    pub destination: Gid,
}

impl Grh {
    /// Reads a header and as many bytes as it says.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Routed<'_>, DropReason> {
        const SHORT: DropReason = DropReason::Truncated(Layer::Grh);
        let (head, rest) = bytes.split_first_chunk::<GRH_LEN>().ok_or(SHORT)?;
        let (fields, len, next) =
            ip::parse_ipv6_header(head).ok_or(DropReason::Version(Layer::Grh))?;
        if next != GRH_NEXT_HEADER {
            return Err(DropReason::NextHeader(Layer::Grh));
        }
        let (payload, trailer) = rest.split_at_checked(usize::from(len)).ok_or(SHORT)?;
        let grh = Self {
            traffic_class: fields.traffic_class,
            flow_label: fields.flow_label,
            hop_limit: fields.hop_limit,
            source: Gid(fields.source.octets()),
            destination: Gid(fields.destination.octets()),
        };
        Ok(Routed { grh, head, payload, trailer })
    }

    /// Writes the header before `payload_len` bytes; `out` has the room.
    pub(crate) fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<(), EmitError> {
        let fields = Ipv6 {
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
            source: self.source.0.into(),
            destination: self.destination.0.into(),
        };
        ip::emit_ipv6_header(&fields, payload_len, GRH_NEXT_HEADER, out).map_err(|error| {
            if error == EmitError::TooLong(Layer::Ipv6) {
                EmitError::TooLong(Layer::Grh)
            } else {
                error
            }
        })
    }

    /// The header of a path.
    pub fn of(path: &Path) -> Self {
        Self {
            traffic_class: path.traffic_class,
            flow_label: path.flow_label,
            hop_limit: path.hop_limit,
            source: path.source,
            destination: path.destination,
        }
    }
}

/// Local route header without next header and length, which follow from the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lrh {
    /// Virtual lane, 4 bits. Changes on the way.
    pub virtual_lane: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Destination local identifier.
    pub destination: u16,
    /// Source local identifier.
    pub source: u16,
    /// The two bits before the next header and the five before the length.
    pub reserved: (u8, u8),
}

/// What an LRH carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large variant is the one that packets have")]
pub enum LinkBody<'a> {
    /// A transport packet.
    Transport {
        /// Global route header, between subnets and for multicast.
        grh: Option<Grh>,
        /// From the BTH on.
        content: Content<'a>,
        /// Invariant CRC.
        icrc: Check<u32>,
    },
    /// A raw packet: 0 a raw header, 1 an IPv6 packet.
    Raw {
        /// The link's next-header code, 0 or 1.
        next: u8,
        /// What lies between LRH and VCRC.
        bytes: &'a [u8],
    },
}

/// A packet of an InfiniBand link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkPacket<'a> {
    /// Local route header.
    pub lrh: Lrh,
    /// What it carries.
    pub body: LinkBody<'a>,
    /// Variant CRC.
    pub vcrc: Check<u16>,
    /// Bytes behind the packet's end.
    pub trailer: &'a [u8],
}

/// Reads a packet from the LRH through the VCRC.
///
/// # Errors
/// The reason of the first layer that is not in order. A wrong CRC is not an error here: the
/// verdict is in the packet.
pub fn parse(bytes: &[u8]) -> Result<LinkPacket<'_>, DropReason> {
    const SHORT: DropReason = DropReason::Truncated(Layer::Lrh);
    let head = bytes.first_chunk::<LRH_LEN>().ok_or(SHORT)?;
    if head[0] & 0x0F != 0 {
        return Err(DropReason::Version(Layer::Lrh));
    }
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let len = usize::from(word(4) & 0x7FF) * 4;
    if len < LRH_LEN {
        return Err(DropReason::Length(Layer::Lrh));
    }
    let (covered, rest) = bytes.split_at_checked(len).ok_or(SHORT)?;
    let (stored, trailer) = rest.split_first_chunk::<VCRC_LEN>().ok_or(SHORT)?;
    let lrh = Lrh {
        virtual_lane: head[0] >> 4,
        service_level: head[1] >> 4,
        destination: word(2),
        source: word(6),
        reserved: (head[1] >> 2 & 3, head[4] >> 3),
    };
    let body = parse_body(head, head[1] & 3, &covered[LRH_LEN..])?;
    let vcrc = Check::of(u16::from_le_bytes(*stored), vcrc::compute(covered));
    Ok(LinkPacket { lrh, body, vcrc, trailer })
}

fn parse_body<'a>(
    lrh: &[u8; LRH_LEN],
    next: u8,
    bytes: &'a [u8],
) -> Result<LinkBody<'a>, DropReason> {
    let (grh, state, rest) = match next {
        NEXT_BTH => (None, icrc::lrh_state(lrh), bytes),
        NEXT_GRH => {
            let routed = Grh::parse(bytes)?;
            if !routed.trailer.is_empty() {
                return Err(DropReason::Length(Layer::Grh));
            }
            (Some(routed.grh), icrc::grh_state(routed.head), routed.payload)
        }
        _ => return Ok(LinkBody::Raw { next, bytes }),
    };
    let parsed = Content::parse(rest)?;
    Ok(LinkBody::Transport { grh, icrc: parsed.icrc(state), content: parsed.content })
}

impl<'a> LinkPacket<'a> {
    /// A packet with right CRCs; with a GRH if the path has a source GID.
    pub fn new(lrh: Lrh, packet: &Packet<&'a [u8]>) -> Self {
        let grh = (!packet.path.source.is_zero()).then(|| Grh::of(&packet.path));
        let content = Content::new(packet.bth, packet.ext, packet.payload);
        let body = LinkBody::Transport { grh, content, icrc: Check::Right };
        Self { lrh, body, vcrc: Check::Right, trailer: &[] }
    }

    /// The packet as an engine takes it.
    ///
    /// # Errors
    /// Why a receiver drops it: a wrong CRC, or a content that is refused. `None` is a raw packet.
    pub fn packet(&self) -> Result<Option<Packet<&'a [u8]>>, DropReason> {
        if !self.vcrc.is_right() {
            return Err(DropReason::Vcrc);
        }
        let LinkBody::Transport { grh, content, icrc } = self.body else { return Ok(None) };
        if !icrc.is_right() {
            return Err(DropReason::Icrc);
        }
        let grh = grh.unwrap_or_default();
        let path = Path {
            encapsulation: Encapsulation::Infiniband,
            source: grh.source,
            destination: grh.destination,
            traffic_class: grh.traffic_class,
            hop_limit: grh.hop_limit,
            flow_label: grh.flow_label,
            source_port: 0,
            priority: self.lrh.service_level & 7,
        };
        match content {
            Content::Transport { bth, ext, payload, .. } => {
                Ok(Some(Packet { path, bth, ext, payload }))
            }
            Content::Refused { reason, .. } => Err(reason),
        }
    }

    /// Bytes from the LRH through the VCRC and what lies behind.
    pub fn wire_len(&self) -> usize {
        self.covered_len() + VCRC_LEN + self.trailer.len()
    }

    /// Bytes from the LRH through the ICRC, what its length field counts.
    pub(crate) fn covered_len(&self) -> usize {
        LRH_LEN
            + match &self.body {
                LinkBody::Transport { grh, content, .. } => {
                    grh.map_or(0, |_| GRH_LEN) + content.wire_len()
                }
                LinkBody::Raw { bytes, .. } => bytes.len(),
            }
    }
}

/// Writes a packet to the front of `out`; returns its bytes.
///
/// # Errors
/// A value that its field cannot hold, or too little room.
pub fn emit(packet: &LinkPacket<'_>, out: &mut [u8]) -> Result<usize, EmitError> {
    let (total, covered_len) = (packet.wire_len(), packet.covered_len());
    let out = out.get_mut(..total).ok_or(EmitError::NoRoom(total))?;
    let (covered, rest) = out.split_at_mut(covered_len);
    let (head, body) = covered.split_first_chunk_mut().ok_or(EmitError::NoRoom(total))?;
    emit_lrh(packet, covered_len, head)?;
    match &packet.body {
        LinkBody::Raw { bytes, .. } => body.copy_from_slice(bytes),
        LinkBody::Transport { grh, content, icrc } => {
            let (state, rest) = match grh {
                None => (icrc::lrh_state(head), body),
                Some(grh) => {
                    let (head, rest) =
                        body.split_first_chunk_mut().ok_or(EmitError::NoRoom(total))?;
                    grh.emit(rest.len(), head)?;
                    (icrc::grh_state(head), rest)
                }
            };
            emit_content(content, *icrc, state, rest)?;
        }
    }
    let vcrc = packet.vcrc.value(vcrc::compute(covered));
    rest[..VCRC_LEN].copy_from_slice(&vcrc.to_le_bytes());
    rest[VCRC_LEN..].copy_from_slice(packet.trailer);
    Ok(total)
}

/// Writes a content and its ICRC, which fill `out`.
pub(crate) fn emit_content(
    content: &Content<'_>,
    icrc: Check<u32>,
    state: u32,
    out: &mut [u8],
) -> Result<(), EmitError> {
    let (covered, stored) =
        out.split_at_mut_checked(out.len().wrapping_sub(ICRC_LEN)).ok_or(EmitError::NoRoom(0))?;
    content.emit(covered)?;
    stored.copy_from_slice(&icrc.value(icrc::finish(state, covered)).to_le_bytes());
    Ok(())
}

fn emit_lrh(
    packet: &LinkPacket<'_>,
    covered_len: usize,
    out: &mut [u8; LRH_LEN],
) -> Result<(), EmitError> {
    let lrh = &packet.lrh;
    let (reserved_next, reserved_len) = lrh.reserved;
    if lrh.virtual_lane > 15 || lrh.service_level > 15 || reserved_next > 3 || reserved_len > 31 {
        return Err(EmitError::Field("LRH"));
    }
    let next = match &packet.body {
        LinkBody::Transport { grh: None, .. } => NEXT_BTH,
        LinkBody::Transport { grh: Some(_), .. } => NEXT_GRH,
        LinkBody::Raw { next, .. } if *next > 1 => return Err(EmitError::Field("raw next header")),
        LinkBody::Raw { next, .. } => *next,
    };
    if !covered_len.is_multiple_of(4) {
        return Err(EmitError::Field("length that is no multiple of 4"));
    }
    let words = u16::try_from(covered_len / 4).ok().filter(|words| *words < 0x800);
    let words = words.ok_or(EmitError::TooLong(Layer::Lrh))?;
    out[0] = lrh.virtual_lane << 4;
    out[1] = lrh.service_level << 4 | reserved_next << 2 | next;
    out[2..4].copy_from_slice(&lrh.destination.to_be_bytes());
    out[4..6].copy_from_slice(&(u16::from(reserved_len) << 11 | words).to_be_bytes());
    out[6..].copy_from_slice(&lrh.source.to_be_bytes());
    Ok(())
}
