//! Packets on a cable between engines: as meaning, or as real bytes with an ICRC, so that
//! corruption meets the same check as on a link.

use engine::{FaultItem, Payload};
use wire::{Gid, Packet, Path, icrc, transport};

/// A packet under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Flying {
    /// Header values and payload.
    Meaning(Packet<Vec<u8>>),
    /// Network layer, and the bytes from the BTH through the ICRC.
    Bytes(Path, Vec<u8>),
}

impl Flying {
    /// The packet as bytes.
    pub fn emit(packet: &Packet<Vec<u8>>) -> Self {
        let mut bytes = vec![0; transport::MAX_HEADERS];
        let headers =
            transport::emit_headers(&packet.bth, &packet.ext, packet.payload.len(), &mut bytes)
                .expect("a packet that the device made can be written");
        bytes.truncate(headers);
        bytes.extend_from_slice(&packet.payload);
        bytes.resize(bytes.len() + transport::pad_len(packet.payload.len()), 0);
        let crc = icrc::finish(seed(&packet.path, bytes.len()), &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        Self::Bytes(packet.path, bytes)
    }

    /// The packet's meaning, as a link's receiver finds it; `None` if it is damaged.
    pub fn arrive<R>(&self, take: impl FnOnce(&Packet<Payload<'_>>) -> R) -> Option<R> {
        match self {
            Self::Meaning(p) => Some(take(&Packet {
                path: p.path,
                bth: p.bth,
                ext: p.ext,
                payload: Payload::Bytes(&p.payload),
            })),
            Self::Bytes(path, bytes) => {
                let (body, stored) = bytes.split_last_chunk::<4>()?;
                if icrc::finish(seed(path, body.len()), body) != u32::from_le_bytes(*stored) {
                    return None;
                }
                let parsed = transport::parse(bytes).ok()?;
                let payload = Payload::Bytes(parsed.payload);
                Some(take(&Packet { path: *path, bth: parsed.bth, ext: parsed.ext, payload }))
            }
        }
    }

    /// The network layer.
    pub fn path(&self) -> &Path {
        match self {
            Self::Meaning(p) => &p.path,
            Self::Bytes(path, _) => path,
        }
    }
}

fn seed(path: &Path, body: usize) -> u32 {
    let length = (body + 4 + 8) as u16;
    match (path.source.to_ipv4(), path.destination.to_ipv4()) {
        (Some(from), Some(to)) => icrc::ipv4_state(from, to, path.source_port, length, 0, true),
        _ => icrc::ipv6_state(v6(path.source), v6(path.destination), path.source_port, length),
    }
}

fn v6(gid: Gid) -> std::net::Ipv6Addr {
    gid.0.into()
}

impl FaultItem for Flying {
    fn wire_len(&self) -> u64 {
        // Ethernet, IP and UDP headers, frame check, preamble and gap come on top of the transport.
        let own = match self {
            Self::Meaning(p) => {
                transport::wire_len(p.bth.opcode, p.payload.len()).unwrap_or(16 + p.payload.len())
            }
            Self::Bytes(_, bytes) => bytes.len(),
        };
        own as u64 + 14 + 20 + 8 + 4 + 20
    }

    fn mark_ce(&mut self) -> bool {
        let path = match self {
            Self::Meaning(p) => &mut p.path,
            Self::Bytes(path, _) => path,
        };
        let capable = path.traffic_class & 3 != 0;
        if capable {
            path.traffic_class |= 3;
        }
        capable
    }

    fn corrupt(&mut self, entropy: u64) -> bool {
        match self {
            Self::Meaning(_) => false,
            Self::Bytes(_, bytes) => {
                let bit = (entropy % (8 * bytes.len() as u64)) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
                true
            }
        }
    }
}
