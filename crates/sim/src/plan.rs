//! What programs do: connections, and the flows on them. Plain values; nothing runs here.

use wire::{Instant, Span};

use crate::network::NodeId;

/// Everything that the programs of all hosts do.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Connections; those of one pair of hosts may be shared by flows, in both directions.
    pub connections: Vec<Connection>,
    /// Flows, in any order.
    pub flows: Vec<Flow>,
}

/// A reliable connection between two hosts, made by both at `opens`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// One end.
    pub a: NodeId,
    /// The other.
    pub b: NodeId,
    /// DSCP of its packets, 0..=63; the priority follows from it.
    pub dscp: u8,
    /// Priority of its packets where no DSCP tells (RoCEv1, or trust in tags).
    pub priority: u8,
    /// Entropy for ECMP, 20 bits: the UDP source port is made of it and the queue pair numbers.
    pub flow_label: u32,
    /// UDP ports of what `a` sends, source and destination, in place of those (the other way round
    /// for `b`).
    pub ports: Option<(u16, u16)>,
    /// TTL of its packets; 0: 64.
    pub hop_limit: u8,
    /// When both ends make their queue pair.
    pub opens: Instant,
    /// ACK timeout code: 4.096 µs × 2^code; 0: none.
    pub timeout: u8,
    /// Retries after timeouts, 0..=7.
    pub retries: u8,
}

/// What is asked of the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// RDMA WRITE.
    Write,
    /// RDMA READ: the bytes come from the peer.
    Read,
    /// SEND.
    Send,
}

/// Bytes to be moved over a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Index of the connection.
    pub connection: u32,
    /// Whether end `b` asks for it; else end `a`.
    pub reverse: bool,
    /// How.
    pub verb: Verb,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of each message, the last one excepted; 0: one message as long as may be.
    pub message: u32,
    /// Messages asked for at a time, at least 1.
    pub depth: u32,
    /// When it starts, if it waits for nothing else.
    pub start: Instant,
    /// It starts when all of these, which end at the host that asks for it, have ended there:
    /// received from another host, or completed by its own.
    pub after: Vec<u32>,
    /// Time between the last of those and its start.
    pub think: Span,
    /// What it belongs to, for reports.
    pub group: u16,
}

impl Flow {
    /// The host that asks, and the other.
    pub fn ends(&self, plan: &Plan) -> Option<(NodeId, NodeId)> {
        let c = plan.connections.get(self.connection as usize)?;
        Some(if self.reverse { (c.b, c.a) } else { (c.a, c.b) })
    }
}
