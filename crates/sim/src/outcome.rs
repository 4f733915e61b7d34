//! What a run has shown.

use engine::WcStatus;
use switch::PortCounters;
use wire::{Instant, Span};

use crate::deadlock::Ring;
use crate::network::NodeId;

/// A flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// Its index in the plan.
    pub flow: u32,
    /// When it was asked for.
    pub begun: Instant,
    /// When the last of it was complete at its asker.
    pub ended: Option<Instant>,
    /// When, and why, it failed.
    pub failed: Option<(Instant, WcStatus)>,
}

impl FlowRecord {
    pub(crate) fn begun(flow: u32, begun: Instant) -> Self {
        Self { flow, begun, ended: None, failed: None }
    }

    /// Time from its beginning to its end.
    pub fn completion_time(&self) -> Option<Span> {
        self.ended.map(|at| at.since(self.begun))
    }
}

/// A pause, or its end, as received.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PauseRecord {
    /// When, in picoseconds.
    pub at: u64,
    /// Who received it, and at which port.
    pub node: NodeId,
    /// The port.
    pub port: u16,
    /// Which priority.
    pub priority: u8,
    /// It stops; else it lets go on.
    pub stops: bool,
}

/// What a run has shown.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// When it ended.
    pub now: Instant,
    /// Flows that were begun, by their index.
    pub flows: Vec<FlowRecord>,
    /// Pauses received, in order of time, node and port.
    pub pauses: Vec<PauseRecord>,
    /// Each host's NIC.
    pub hosts: Vec<engine::Counters>,
    /// Each switch's ports.
    pub switches: Vec<Vec<PortCounters>>,
    /// Mean bytes in the queues of each switch's ports, where they were wanted.
    pub queues: Vec<Vec<u64>>,
    /// Events that were handled.
    pub events: u64,
    /// Data packets that have crossed a cable.
    pub hops: u64,
    /// Flows of the plan that have not ended.
    pub unfinished: u64,
    /// A ring of ports that stop each other.
    pub ring: Option<Ring>,
}
