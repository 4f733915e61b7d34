//! What an audit gives in the end: captures, conversations, links, connections, findings. Plain
//! values that a renderer turns into a screen, JSON or a page.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

use crate::finding::Finding;
use crate::record::{At, Time};

/// The result of an audit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The files or interfaces that were read.
    pub captures: Vec<Capture>,
    /// What the records were.
    pub totals: Totals,
    /// Conversations, the busiest first.
    pub conversations: Vec<Conversation>,
    /// Conversations that were seen, listed or not.
    pub conversations_seen: u64,
    /// Links with pauses or DCBX.
    pub links: Vec<LinkReport>,
    /// Connections as the connection manager made them.
    pub connections: Vec<Connection>,
    /// What is wrong, most severe first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// A file or interface that was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Capture {
    /// Its name as given.
    pub name: String,
    /// Format in words: `pcapng, little endian, 1 interface`.
    pub format: String,
    /// Records.
    pub records: u64,
    /// Bytes of them as kept.
    pub bytes: u64,
    /// Time of the first.
    pub first: Option<Time>,
    /// Time of the last.
    pub last: Option<Time>,
    /// Packets that the capture itself says it lost, where it says so.
    pub dropped: Option<u64>,
    /// Why reading ended early, with the offset.
    pub damage: Option<String>,
}

/// What the records were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// RoCE or InfiniBand packets.
    pub packets: u64,
    /// Bytes of them on the wire.
    pub bytes: u64,
    /// ICRCs that are right.
    pub icrc_right: u64,
    /// ICRCs that are wrong.
    pub icrc_wrong: u64,
    /// ICRCs that cannot be told (cut packets).
    pub icrc_untold: u64,
    /// Frames that held several packets, captured before segmentation.
    pub trains: u64,
    /// Packets whose transport headers make no sense.
    pub refused: u64,
    /// Damaged below the transport.
    pub damaged: u64,
    /// Congestion notification packets.
    pub cnp: u64,
    /// Packets marked CE.
    pub ce: u64,
    /// Pauses, 802.3x or PFC.
    pub pauses: u64,
    /// LLDP frames.
    pub lldp: u64,
    /// Frames of other protocols.
    pub other: u64,
    /// Records that cannot be read.
    pub unread: u64,
}

/// An end of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// Address.
    pub address: String,
    /// Queue pair number, where it is known.
    pub qp: Option<u32>,
}

/// A conversation: two queue pairs, or one direction of a pair whose other was not found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Conversation {
    /// A number to name it by, from 1, in the order of first sight.
    pub id: u32,
    /// The end whose packets came first.
    pub a: End,
    /// The other end.
    pub b: End,
    /// Encapsulation: `RoCEv2`, `RoCEv1`, `InfiniBand`.
    pub encapsulation: &'static str,
    /// Service: `RC`, `UC`, `UD`, `XRC`.
    pub service: &'static str,
    /// Path MTU in bytes, where full packets show it.
    pub mtu: Option<u32>,
    /// First packet.
    pub first: At,
    /// Last packet.
    pub last: At,
    /// Whether the capture begins in its middle.
    pub midstream: bool,
    /// From a to b.
    pub forward: Traffic,
    /// From b to a.
    pub backward: Traffic,
}

/// One direction of a conversation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Payload bytes of requests, those sent again left out, and of READ responses.
    pub goodput_bytes: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Sequence NAKs.
    pub sequence_naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// Other NAKs.
    pub other_naks: u64,
    /// Acknowledgements (positive).
    pub acks: u64,
    /// Packets marked CE.
    pub ce: u64,
    /// CNPs.
    pub cnp: u64,
    /// Operations by kind.
    pub operations: Vec<Operations>,
}

/// Operations of one kind in one direction, requester to responder.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Operations {
    /// `SEND`, `WRITE`, `READ`, `ATOMIC`, ...
    pub kind: &'static str,
    /// Begun.
    pub count: u64,
    /// Bytes asked to be moved.
    pub bytes: u64,
    /// Times from the request's first packet to the answer that completes it, microseconds, as
    /// the point of capture saw them: least, median, 99th percentile, most. Only of those that
    /// were completed.
    pub latency_us: Option<[f64; 4]>,
}

/// A link: pauses at a point of capture.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinkReport {
    /// Point of capture, from 1.
    pub link: u16,
    /// Who sent the pauses: MAC address.
    pub port: String,
    /// Its name, where LLDP tells it.
    pub name: Option<String>,
    /// Speed of the link with which quanta are told in time, Gb/s: as given, or assumed.
    pub link_gbps: u32,
    /// Pauses by priority (frames that end one left out); 802.3x ones count for all.
    pub pauses: [u64; 8],
    /// Time paused by priority, microseconds.
    pub paused_us: [f64; 8],
    /// Longest pause by priority, microseconds.
    pub longest_us: [f64; 8],
}

/// A connection that the connection manager made or tried to make.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Connection {
    /// Who asked.
    pub active: String,
    /// Who was asked.
    pub passive: String,
    /// Service identifier in words: `TCP port 7471`.
    pub service: String,
    /// The asking queue pair.
    pub active_qp: Option<u32>,
    /// The answering one.
    pub passive_qp: Option<u32>,
    /// `established`, `accepted` (no RTU seen), `resolved`, `closing`, `closed`, `rejected: nobody
    /// listens on this service`, `no answer`, `answer not captured`, `timed out`.
    pub state: String,
    /// Path MTU of the REQ in bytes.
    pub mtu: Option<u32>,
    /// Private data of the REQ behind the RDMA-CM header, hexadecimal; the zeros that fill it up
    /// are left out, as its length is not on the wire.
    pub private: String,
    /// Its frames.
    pub frames: Vec<At>,
    /// `RC`, `UC`, `XRC`; `UD` for a resolution (SIDR).
    pub transport: &'static str,
    /// Transaction of the request.
    pub transaction: u64,
    /// Who asks, by the RDMA-CM header: address and port.
    pub from: Option<SocketAddr>,
    /// Whom it asks, by the RDMA-CM header.
    pub to: Option<IpAddr>,
    /// First PSN of the asking end's requests; the REP names it.
    pub active_psn: Option<u32>,
    /// First PSN of the answering end's requests; the REQ names it.
    pub passive_psn: Option<u32>,
    /// READs and atomics that the asking end serves at once.
    pub responder_resources: Option<u8>,
    /// READs and atomics that the asking end will have outstanding.
    pub initiator_depth: Option<u8>,
    /// Retries after timeouts and sequence errors.
    pub retry_count: Option<u8>,
    /// Retries after RNR NAKs; 7 is without limit.
    pub rnr_retry: Option<u8>,
    /// ACK timeout: 4.096 µs × 2^code.
    pub ack_timeout: Option<u8>,
    /// Private data of the REP, hexadecimal, without the zeros that fill it up.
    pub passive_private: String,
    /// Messages that were sent again.
    pub repeated: u32,
}
