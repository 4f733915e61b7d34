//! What hosts of the simulation put into frames, and how long the frames are.

use engine::{Payload, TxPacket};
use switch::{Content, Frame, Header, Net, Ports};
use wire::{Bth, Encapsulation, Extensions, Mac, Packet, Path};

/// What a frame carries between hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// An RDMA packet; addresses, ECN and hop limit are in the frame's header where it has them.
    Roce(Roce),
}

/// An RDMA packet without what the frame's header holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roce {
    /// The network layer as it was sent.
    pub path: Path,
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers.
    pub ext: Extensions,
    /// Payload bytes.
    pub length: u32,
    /// It carries a message's data: what data-packet-hops count.
    pub data: bool,
    /// The payload, in runs that carry bytes.
    pub bytes: Option<Box<[u8]>>,
}

/// How long frames are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// As on the wire: all headers, check sequence, at least 64 bytes; the cable adds preamble and
    /// gap.
    #[default]
    Ethernet,
    /// As in the HPCC simulator: 48 bytes of headers before the payload, nothing between frames.
    Hpcc,
}

/// Bytes of an Ethernet header with EtherType and of the check sequence.
const ETHERNET: u32 = 14 + 4;
/// Preamble, start of frame and gap between frames, in bytes.
pub(crate) const GAP: u32 = 20;
/// The shortest frame.
const SHORTEST: u32 = 64;

impl Framing {
    /// Bytes that a cable adds to a frame.
    pub(crate) fn gap(self) -> u32 {
        match self {
            Self::Ethernet => GAP,
            Self::Hpcc => 0,
        }
    }

    /// Bytes of a frame with an RDMA packet.
    fn length(self, path: &Path, transport: u32, payload: u32) -> u32 {
        match self {
            Self::Ethernet => {
                let network = match path.encapsulation {
                    Encapsulation::RoceV2 if path.destination.is_ipv4() => 20 + 8,
                    Encapsulation::RoceV2 => 40 + 8,
                    Encapsulation::RoceV1 | Encapsulation::Infiniband => 40,
                };
                (ETHERNET + network + transport).max(SHORTEST)
            }
            Self::Hpcc if payload == 0 => 60,
            Self::Hpcc => 48 + payload,
        }
    }
}

/// A frame in its box, which is used again for others.
pub(crate) type Boxed = Box<Frame<Body>>;

/// Boxes of frames that have arrived, for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Boxed>);

impl Pool {
    /// Boxes kept at most.
    const KEPT: usize = 1 << 12;

    pub(crate) fn put(&mut self, frame: Boxed) {
        if self.0.len() < Self::KEPT {
            self.0.push(frame);
        }
    }

    pub(crate) fn wrap(&mut self, frame: Frame<Body>) -> Boxed {
        match self.0.pop() {
            Some(mut place) => {
                *place = frame;
                place
            }
            None => Box::new(frame),
        }
    }
}

/// A frame with a packet of a train.
pub(crate) fn pack(
    framing: Framing,
    (source, destination): (Mac, Mac),
    path: &Path,
    packet: &TxPacket,
    bytes: Option<Box<[u8]>>,
) -> Frame<Body> {
    let net = (path.encapsulation == Encapsulation::RoceV2).then_some(Net {
        source: path.source,
        destination: path.destination,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        protocol: 17,
        ports: Ports { source: path.source_port, destination: wire::ROCE_PORT },
    });
    let payload = if packet.carries_data() { packet.length } else { 0 };
    let length = framing.length(path, packet.wire_len() as u32, payload);
    let tag = net.is_none().then_some((0, path.priority));
    let roce = Roce {
        path: *path,
        bth: packet.bth,
        ext: packet.ext,
        length: packet.length,
        data: packet.carries_data(),
        bytes,
    };
    let header = Header { destination, source, tag, net };
    Frame { header, length, content: Content::Data(Body::Roce(roce)) }
}

impl Roce {
    /// The packet as a NIC takes it, with what the way has changed in `header`.
    pub(crate) fn unpack(&self, header: &Header) -> Packet<Payload<'_>> {
        let mut path = self.path;
        if let Some(net) = &header.net {
            path.traffic_class = net.traffic_class;
            path.hop_limit = net.hop_limit;
        }
        let payload = match &self.bytes {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Length(self.length),
        };
        Packet { path, bth: self.bth, ext: self.ext, payload }
    }
}
