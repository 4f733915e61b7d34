//! Whole Ethernet frames: bytes to meaning and back, total in both directions. What is not RoCE
//! passes through as opaque bytes. For captures and raw links; a link that has the network layer
//! done by a socket uses `transport` and `icrc` alone.

use crate::checksum::{self, Check};
use crate::content::Content;
use crate::error::{DropReason, EmitError, Layer};
use crate::ethernet::{self, Ethernet, MIN_FRAME};
use crate::flow::ROCE_PORT;
use crate::icrc;
use crate::ids::{Gid, Mac};
use crate::infiniband::{GRH_LEN, Grh, emit_content};
use crate::ip::{self, Ip, Ipv4, Ipv6, UDP_LEN, Udp};
use crate::mac_control::MacControl;
use crate::packet::{Encapsulation, Packet, Path};

/// A frame from the destination address to the end, without the frame check sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame<'a> {
    /// Addresses and tags.
    pub ethernet: Ethernet,
    /// What the frame carries.
    pub body: Body<'a>,
    /// What lies behind the end of the body: Ethernet padding. Empty with an opaque body.
    pub trailer: &'a [u8],
}

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large variant is the one that frames have")]
pub enum Body<'a> {
    /// RoCEv1 or RoCEv2.
    Roce(Roce<'a>),
    /// A pause of the link or of some priorities.
    MacControl(MacControl),
    /// Something else.
    Opaque {
        /// EtherType, or the length of an 802.3 frame.
        ether_type: u16,
        /// All bytes behind it.
        bytes: &'a [u8],
    },
}

/// A RoCE packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Roce<'a> {
    /// The layer that brought it here.
    pub network: Network<'a>,
    /// Transport headers and payload.
    pub content: Content<'a>,
    /// The verdict on the invariant CRC.
    pub icrc: Check<u32>,
}

/// The network layer of RoCE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Network<'a> {
    /// RoCEv2.
    Udp {
        /// IP header.
        ip: Ip<'a>,
        /// UDP header; the destination port is [`ROCE_PORT`].
        udp: Udp,
    },
    /// RoCEv1.
    Grh(Grh),
}

/// Zeros to fill a short frame with.
static PADDING: [u8; MIN_FRAME] = [0; MIN_FRAME];

/// Reads a frame.
///
/// # Errors
/// Why a receiver drops it, for reasons below the BTH. A wrong ICRC or a transport header that is
/// not in order is no error here: the frame holds the verdict, and [`Frame::packet`] tells it.
pub fn parse_frame(frame: &[u8]) -> Result<Frame<'_>, DropReason> {
    let (ethernet, ether_type, bytes) = Ethernet::parse(frame)?;
    let opaque = Frame { ethernet, body: Body::Opaque { ether_type, bytes }, trailer: &[] };
    let datagram = match ether_type {
        ethernet::TYPE_IPV4 => ip::parse_ipv4(bytes, ROCE_PORT)?,
        ethernet::TYPE_IPV6 => ip::parse_ipv6(bytes, ROCE_PORT)?,
        ethernet::TYPE_ROCE_V1 => return parse_v1(ethernet, bytes),
        ethernet::TYPE_MAC_CONTROL if ethernet.tags[0].is_none() => {
            let (control, trailer) = MacControl::parse(bytes)?;
            return Ok(Frame { ethernet, body: Body::MacControl(control), trailer });
        }
        _ => None,
    };
    let Some(datagram) = datagram else { return Ok(opaque) };
    let parsed = Content::parse(datagram.payload())?;
    let state = icrc::udp_state(datagram.ip_bytes, datagram.udp_bytes);
    let roce = Roce {
        network: Network::Udp { ip: datagram.ip, udp: datagram.udp },
        icrc: parsed.icrc(state),
        content: parsed.content,
    };
    Ok(Frame { ethernet, body: Body::Roce(roce), trailer: datagram.trailer })
}

fn parse_v1(ethernet: Ethernet, bytes: &[u8]) -> Result<Frame<'_>, DropReason> {
    let routed = Grh::parse(bytes)?;
    let parsed = Content::parse(routed.payload)?;
    let roce = Roce {
        network: Network::Grh(routed.grh),
        icrc: parsed.icrc(icrc::grh_state(routed.head)),
        content: parsed.content,
    };
    Ok(Frame { ethernet, body: Body::Roce(roce), trailer: routed.trailer })
}

/// Writes a frame to the front of `out`; returns its bytes. What [`parse_frame`] has read comes out
/// byte by byte as it was, whatever `out` held before.
///
/// # Errors
/// A value that its field cannot hold, headers that do not belong to the opcode, or too little
/// room.
pub fn emit_frame(frame: &Frame<'_>, out: &mut [u8]) -> Result<usize, EmitError> {
    let total = frame.wire_len();
    let out = out.get_mut(..total).ok_or(EmitError::NoRoom(total))?;
    let (head, rest) = out.split_at_mut(frame.ethernet.wire_len());
    let (body, trailer) = rest.split_at_mut(rest.len() - frame.trailer.len());
    trailer.copy_from_slice(frame.trailer);
    let ether_type = match &frame.body {
        Body::Roce(roce) => emit_roce(roce, body)?,
        Body::MacControl(control) => {
            control.emit(body);
            ethernet::TYPE_MAC_CONTROL
        }
        Body::Opaque { ether_type, bytes } => {
            body.copy_from_slice(bytes);
            *ether_type
        }
    };
    frame.ethernet.emit(ether_type, head)?;
    Ok(total)
}

/// Writes a packet, which fills `out`; returns its EtherType.
fn emit_roce(roce: &Roce<'_>, out: &mut [u8]) -> Result<u16, EmitError> {
    match &roce.network {
        Network::Udp { ip, udp } => {
            let udp_len = out.len() - ip.wire_len();
            ip::emit_headers(ip, udp.source_port, ROCE_PORT, udp_len, out)?;
            let (ip_bytes, udp_bytes) = out.split_at_mut(ip.wire_len());
            let state = icrc::udp_state(ip_bytes, udp_bytes);
            emit_content(&roce.content, roce.icrc, state, &mut udp_bytes[UDP_LEN..])?;
            ip::emit_udp_checksum(ip, udp, udp_bytes);
            Ok(match ip {
                Ip::V4(_) => ethernet::TYPE_IPV4,
                Ip::V6(_) => ethernet::TYPE_IPV6,
            })
        }
        Network::Grh(grh) => {
            let room = EmitError::TooLong(Layer::Grh);
            let (head, rest) = out.split_first_chunk_mut::<GRH_LEN>().ok_or(room)?;
            grh.emit(rest.len(), head)?;
            emit_content(&roce.content, roce.icrc, icrc::grh_state(head), rest)?;
            Ok(ethernet::TYPE_ROCE_V1)
        }
    }
}

/// The most bytes that stand before the BTH of a RoCEv2 packet without tags and IP options.
pub const MAX_UDP_HEAD: usize = ethernet::HEADER_LEN + ip::IPV6_LEN + UDP_LEN;

/// Writes what stands on the wire before the BTH of a RoCEv2 packet, `transport` being its bytes
/// from there through the ICRC; returns its length. For captures on a link whose network layer a
/// socket provides. The UDP checksum is 0, which says that there is none, over IPv4 as RoCEv2
/// adapters send it; over IPv6, where it must be there (RFC 8200, 8.1), it is the right one.
///
/// # Errors
/// A value that its field cannot hold, tags or IP options.
pub fn emit_udp_head(
    ethernet: &Ethernet,
    ip: &Ip<'_>,
    source_port: u16,
    transport: &[u8],
    out: &mut [u8; MAX_UDP_HEAD],
) -> Result<usize, EmitError> {
    let (start, len) = (ethernet.wire_len(), ethernet.wire_len() + ip.wire_len() + UDP_LEN);
    let head = out.get_mut(..len).ok_or(EmitError::NoRoom(len))?;
    let ether_type = match ip {
        Ip::V4(_) => ethernet::TYPE_IPV4,
        Ip::V6(_) => ethernet::TYPE_IPV6,
    };
    ethernet.emit(ether_type, &mut head[..start])?;
    let udp_len = UDP_LEN + transport.len();
    ip::emit_headers(ip, source_port, ROCE_PORT, udp_len, &mut head[start..])?;
    if let Ip::V6(ip) = ip
        && let Some(udp) = head.last_chunk_mut::<UDP_LEN>()
    {
        let (source, destination) = (ip.source.into(), ip.destination.into());
        let checksum = checksum::udp_in_parts(source, destination, udp, transport);
        udp[6..].copy_from_slice(&checksum.to_be_bytes());
    }
    Ok(len)
}

impl<'a> Frame<'a> {
    /// The frame of a packet, with right checks and padded to the least length. IPv4 gets the
    /// identification 0 and DF; the UDP checksum is left out.
    ///
    /// # Errors
    /// [`EmitError::Path`] for an InfiniBand packet, or one between an IPv4 and an IPv6 address.
    pub fn new(ethernet: Ethernet, packet: &Packet<&'a [u8]>) -> Result<Self, EmitError> {
        let roce = Roce {
            network: Network::of(&packet.path)?,
            content: Content::new(packet.bth, packet.ext, packet.payload),
            icrc: Check::Right,
        };
        Ok(Self { ethernet, body: Body::Roce(roce), trailer: &[] }.padded())
    }

    /// A MAC control frame from a port.
    pub fn mac_control(source: Mac, control: MacControl) -> Self {
        let ethernet = Ethernet::new(source, Mac::MAC_CONTROL);
        Self { ethernet, body: Body::MacControl(control), trailer: &[] }.padded()
    }

    /// This frame, its trailer what brings it to the least length of a frame.
    pub fn padded(self) -> Self {
        let bare = Self { trailer: &[], ..self };
        Self { trailer: &PADDING[bare.wire_len().min(MIN_FRAME)..], ..self }
    }

    /// Bytes of the frame.
    pub fn wire_len(&self) -> usize {
        let body = match &self.body {
            Body::Roce(roce) => roce.wire_len(),
            Body::MacControl(control) => control.wire_len(),
            Body::Opaque { bytes, .. } => bytes.len(),
        };
        self.ethernet.wire_len() + body + self.trailer.len()
    }

    /// The packet in the frame as an engine takes it; `None` if the frame holds none.
    ///
    /// # Errors
    /// Why a receiver drops it: [`DropReason::Icrc`] or what is wrong with its transport headers.
    pub fn packet(&self) -> Result<Option<Packet<&'a [u8]>>, DropReason> {
        let Body::Roce(roce) = &self.body else { return Ok(None) };
        if !roce.icrc.is_right() {
            return Err(DropReason::Icrc);
        }
        match roce.content {
            Content::Transport { bth, ext, payload, .. } => {
                Ok(Some(Packet { path: roce.network.path(&self.ethernet), bth, ext, payload }))
            }
            Content::Refused { reason, .. } => Err(reason),
        }
    }
}

impl Roce<'_> {
    /// Bytes from the IP header or GRH through the ICRC.
    pub fn wire_len(&self) -> usize {
        self.content.wire_len()
            + match &self.network {
                Network::Udp { ip, .. } => ip.wire_len() + UDP_LEN,
                Network::Grh(_) => GRH_LEN,
            }
    }
}

impl Network<'_> {
    /// The headers of a path, as a sender makes them.
    fn of(path: &Path) -> Result<Self, EmitError> {
        match path.encapsulation {
            Encapsulation::RoceV1 => return Ok(Self::Grh(Grh::of(path))),
            Encapsulation::Infiniband => return Err(EmitError::Path("InfiniBand has no frame")),
            Encapsulation::RoceV2 => {}
        }
        let ip = match (path.source.to_ipv4(), path.destination.to_ipv4()) {
            (Some(source), Some(destination)) => Ip::V4(Ipv4 {
                tos: path.traffic_class,
                ident: 0,
                dont_fragment: true,
                reserved_flag: false,
                ttl: path.hop_limit,
                source,
                destination,
                options: &[],
                checksum: Check::Right,
            }),
            (None, None) => Ip::V6(Ipv6 {
                traffic_class: path.traffic_class,
                flow_label: path.flow_label,
                hop_limit: path.hop_limit,
                source: path.source.0.into(),
                destination: path.destination.0.into(),
            }),
            _ => return Err(EmitError::Path("one end is IPv4, the other IPv6")),
        };
        Ok(Self::Udp { ip, udp: Udp { source_port: path.source_port, checksum: None } })
    }

    /// The path that these headers say. The priority is that of the outer tag; without one, the
    /// upper three bits of the DSCP.
    pub fn path(&self, ethernet: &Ethernet) -> Path {
        let (traffic_class, hop_limit, flow_label) = match self {
            Self::Udp { ip: Ip::V4(ip), .. } => (ip.tos, ip.ttl, 0),
            Self::Udp { ip: Ip::V6(ip), .. } => (ip.traffic_class, ip.hop_limit, ip.flow_label),
            Self::Grh(grh) => (grh.traffic_class, grh.hop_limit, grh.flow_label),
        };
        let (encapsulation, source, destination, source_port) = match self {
            Self::Udp { ip, udp } => {
                let (source, destination) =
                    (Gid::from_ip(ip.source()), Gid::from_ip(ip.destination()));
                (Encapsulation::RoceV2, source, destination, udp.source_port)
            }
            Self::Grh(grh) => (Encapsulation::RoceV1, grh.source, grh.destination, 0),
        };
        let priority = ethernet.tags[0].map_or(traffic_class >> 5, |tag| tag.priority());
        Path {
            encapsulation,
            source,
            destination,
            traffic_class,
            hop_limit,
            flow_label,
            source_port,
            priority,
        }
    }
}
