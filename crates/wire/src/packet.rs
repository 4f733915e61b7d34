//! A RoCE packet as meaning: what the engine takes and gives. Bytes are made of it and it of bytes
//! only here.

use crate::checksum;
use crate::ids::{Gid, Msn, PKey, Psn, QKey, Qpn, RKey, SrqNum};
use crate::opcode::Opcode;

pub use crate::frame::{emit_frame, parse_frame};

/// How the transport is carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Encapsulation {
    /// UDP/IP, port 4791.
    #[default]
    RoceV2,
    /// Ethernet type 0x8915 with a GRH.
    RoceV1,
    /// An InfiniBand link.
    Infiniband,
}

/// The network layer of a packet: from whom to whom, and how it is to be treated on the way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// How the transport is carried.
    pub encapsulation: Encapsulation,
    /// Source GID (for RoCEv2 the source IP address).
    pub source: Gid,
    /// Destination GID.
    pub destination: Gid,
    /// TOS or traffic class byte: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv6 or GRH flow label, 20 bits; 0 with IPv4.
    pub flow_label: u32,
    /// UDP source port: entropy for ECMP; 0 where there is no UDP.
    pub source_port: u16,
    /// 802.1p priority 0..=7 (PCP, or derived from the DSCP).
    pub priority: u8,
}

/// Base transport header without the pad count, which follows from the payload's length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// Service and operation.
    pub opcode: Opcode,
    /// Solicited event: wake a receiver that waits for solicited completions only.
    pub solicited: bool,
    /// MigReq: 1 is the migrated state, what adapters send.
    pub migration: bool,
    /// Partition key.
    pub pkey: PKey,
    /// Forward congestion notification bit.
    pub fecn: bool,
    /// Backward congestion notification bit.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// The sender asks for an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

/// RDMA extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: RKey,
    /// Length of the whole message in bytes.
    pub length: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicEth {
    /// Virtual address at the responder, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: RKey,
    /// Swap value, or the addend of a fetch-and-add.
    pub swap_add: u64,
    /// Compare value; 0 for a fetch-and-add.
    pub compare: u64,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Deth {
    /// Queue key.
    pub qkey: QKey,
    /// Source queue pair.
    pub source_qp: Qpn,
}

/// Flush extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Feth {
    /// Selectivity level, 2 bits.
    pub selectivity: u8,
    /// Placement type, 4 bits.
    pub placement: u8,
}

/// ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// ACK with credits, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Number of messages completed by the responder.
    pub msn: Msn,
}

/// The syndrome byte of an AETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Positive acknowledgement; the credit code 0..=31 (31: no end-to-end credits).
    Ack(u8),
    /// Receiver not ready; the timer code 0..=31.
    RnrNak(u8),
    /// Negative acknowledgement.
    Nak(NakCode),
    /// A value that the specification reserves.
    Reserved(u8),
}

/// The reason in a NAK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN was missed; the NAK's PSN is the expected one.
    PsnSequenceError = 0,
    /// The request cannot be executed as it stands.
    InvalidRequest = 1,
    /// Key, range or right is missing.
    RemoteAccessError = 2,
    /// The responder could not execute the request.
    RemoteOperationalError = 3,
    /// Reliable datagram only.
    InvalidRdRequest = 4,
}

/// The extension headers behind a BTH. Those that the opcode asks for are present, others absent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Extensions {
    /// On datagrams.
    pub deth: Option<Deth>,
    /// On XRC requests.
    pub xrc_srq: Option<SrqNum>,
    /// On FLUSH.
    pub feth: Option<Feth>,
    /// On the first packet of a WRITE, on READ requests, FLUSH and ATOMIC WRITE.
    pub reth: Option<Reth>,
    /// On compare-and-swap and fetch-and-add.
    pub atomic: Option<AtomicEth>,
    /// On acknowledgements and READ responses (middle ones excepted).
    pub aeth: Option<Aeth>,
    /// Original value, on atomic acknowledgements.
    pub atomic_ack: Option<u64>,
    /// Immediate data, the four bytes as they are on the wire.
    pub imm: Option<[u8; 4]>,
    /// The key that a SEND with invalidate kills.
    pub invalidate: Option<RKey>,
}

/// A packet as the engine sees it: header values and a payload of whatever kind the driver
/// carries: bytes on a live link, a length in a large simulation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet<P> {
    /// Network layer.
    pub path: Path,
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers.
    pub ext: Extensions,
    /// Payload without pad and ICRC.
    pub payload: P,
}

/// Bytes of the area before a received datagram.
pub const GRH_LEN: usize = 40;

/// What stands before a datagram in a UD receive buffer: an IPv6 or GRH header of `path`, or 20
/// zeros and an IPv4 header. `udp_or_grh_payload_len` counts what follows that header: from the UDP
/// header (RoCEv2) or the BTH through the ICRC. The IPv4 identification is written as 0 with DF.
pub fn grh_area(path: &Path, udp_or_grh_payload_len: u16) -> [u8; GRH_LEN] {
    let mut area = [0; GRH_LEN];
    let addresses = (path.source.to_ipv4(), path.destination.to_ipv4());
    if let (Encapsulation::RoceV2, (Some(source), Some(destination))) =
        (path.encapsulation, addresses)
    {
        let total = udp_or_grh_payload_len.saturating_add(20);
        area[20..24].copy_from_slice(&[0x45, path.traffic_class, (total >> 8) as u8, total as u8]);
        area[26] = 0x40;
        area[28] = path.hop_limit;
        area[29] = 17;
        area[32..36].copy_from_slice(&source.octets());
        area[36..].copy_from_slice(&destination.octets());
        let checksum = checksum::ipv4_header(&area[20..]);
        area[30..32].copy_from_slice(&checksum.to_be_bytes());
        return area;
    }
    let word = 6 << 28 | u32::from(path.traffic_class) << 20 | (path.flow_label & 0xF_FFFF);
    area[..4].copy_from_slice(&word.to_be_bytes());
    area[4..6].copy_from_slice(&udp_or_grh_payload_len.to_be_bytes());
    area[6] = match path.encapsulation {
        Encapsulation::RoceV2 => 17,
        Encapsulation::RoceV1 | Encapsulation::Infiniband => 0x1B,
    };
    area[7] = path.hop_limit;
    area[8..24].copy_from_slice(&path.source.0);
    area[24..].copy_from_slice(&path.destination.0);
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(source: &str, destination: &str) -> Path {
        let gid = |text: &str| Gid::from_ip(text.parse().expect("an address"));
        Path {
            encapsulation: Encapsulation::RoceV2,
            source: gid(source),
            destination: gid(destination),
            traffic_class: 0x69,
            hop_limit: 64,
            flow_label: 0x12345,
            source_port: 0,
            priority: 0,
        }
    }

    #[test]
    fn grh_area_of_ipv4_holds_the_header_in_its_second_half() {
        let area = grh_area(&path("10.77.1.1", "10.77.1.2"), 36);
        assert_eq!(area[..20], [0; 20]);
        let header = [0x45, 0x69, 0, 56, 0, 0, 0x40, 0, 64, 17];
        assert_eq!(area[20..30], header);
        assert_eq!(area[32..], [10, 77, 1, 1, 10, 77, 1, 2]);
        assert_eq!(checksum::ones_complement_sum(&area[20..]), 0xFFFF);
    }

    #[test]
    fn grh_area_of_ipv6_and_grh() {
        let mut path = path("fd77:1::1", "fd77:1::2");
        let area = grh_area(&path, 36);
        assert_eq!(area[..8], [0x66, 0x91, 0x23, 0x45, 0, 36, 17, 64]);
        assert_eq!(area[8..24], path.source.0);
        assert_eq!(area[24..], path.destination.0);
        path.encapsulation = Encapsulation::RoceV1;
        assert_eq!(grh_area(&path, 36)[6], 0x1B);
        path.source = Gid::from_ip("10.0.0.1".parse().expect("an address"));
        path.destination = path.source;
        assert_eq!(grh_area(&path, 36)[8..24], path.source.0);
    }
}
