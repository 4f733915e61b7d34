//! What hosts of the simulation put into frames, and how long the frames are.

use engine::{Payload, TxPacket};
use switch::{Content, Frame, Header, Net, Ports};
use wire::{Bth, Encapsulation, Extensions, Gid, Mac, Packet, Path};

/// What a frame carries between hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// An RDMA packet; addresses, ECN and hop limit are in the frame's header where it has them.
    Roce(Roce),
}

/// An RDMA packet without what the frame's header holds. Most packets of a stream have no extension
/// headers and a header of the network layer, so that a frame is small.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roce {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers, if it has any.
    pub ext: Option<Box<Extensions>>,
    /// What of the network layer is not in the frame's header.
    pub way: Way,
    /// Payload bytes.
    pub length: u32,
    /// It carries a message's data: what data-packet-hops count.
    pub data: bool,
    /// The payload, in runs that carry bytes.
    pub bytes: Option<Box<[u8]>>,
}

/// What of a packet's network layer is not in the frame's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// The frame has a header of the network layer.
    Routed {
        /// IPv6 flow label.
        flow_label: u32,
        /// Priority as the sender had it.
        priority: u8,
    },
    /// It has none (RoCEv1): all of it.
    Bridged(Box<Path>),
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
    let way = match net {
        Some(_) => Way::Routed { flow_label: path.flow_label, priority: path.priority },
        None => Way::Bridged(Box::new(*path)),
    };
    let roce = Roce {
        bth: packet.bth,
        ext: (packet.ext != Extensions::default()).then(|| Box::new(packet.ext)),
        way,
        length: packet.length,
        data: packet.carries_data(),
        bytes,
    };
    let header = Header { destination, source, tag, net };
    Frame { header, length, content: Content::Data(Body::Roce(roce)) }
}

impl Roce {
    /// The packet as a NIC takes it, with what the way has changed in `header`.
    pub fn unpack(&self, header: &Header) -> Packet<Payload<'_>> {
        let path = match (&self.way, &header.net) {
            (Way::Bridged(path), _) => **path,
            (Way::Routed { flow_label, priority }, net) => {
                let net = net.unwrap_or(NOWHERE);
                Path {
                    encapsulation: Encapsulation::RoceV2,
                    source: net.source,
                    destination: net.destination,
                    traffic_class: net.traffic_class,
                    hop_limit: net.hop_limit,
                    flow_label: *flow_label,
                    source_port: net.ports.source,
                    priority: *priority,
                }
            }
        };
        let payload = match &self.bytes {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Length(self.length),
        };
        let ext = self.ext.as_deref().copied().unwrap_or_default();
        Packet { path, bth: self.bth, ext, payload }
    }
}

/// The network layer of a routed packet that has lost it: to nobody.
const NOWHERE: Net = Net {
    source: Gid([0; 16]),
    destination: Gid([0; 16]),
    traffic_class: 0,
    hop_limit: 0,
    protocol: 0,
    ports: Ports { source: 0, destination: 0 },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_few_lines_of_cache() {
        let size = size_of::<Frame<Body>>();
        assert!(size <= 192, "{size} bytes");
    }
}
