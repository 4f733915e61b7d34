//! The mirror of a queue pair and of the queues beside it: requests from the call that posts them
//! to the call that polls their completion.

use std::collections::VecDeque;

use crate::digest::Digest;
use crate::finding::Call;
use crate::modify::State;
use crate::object::{Cq, Qp, Srq};
use crate::work::Operation;

/// A range of process memory that stands in the table of written or of read ranges.
pub(crate) type Range = (u64, u64);

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) wr_id: u64,
    /// `None` for a receive.
    pub(crate) operation: Option<Operation>,
    pub(crate) signaled: bool,
    /// The keys that it names.
    pub(crate) lkeys: Vec<u32>,
    /// Its bytes in the process.
    pub(crate) ranges: Vec<Range>,
    /// Starts of those of them that stand in the table of ranges.
    pub(crate) noted: Vec<u64>,
    pub(crate) digest: Option<Digest>,
    pub(crate) posted: Call,
}

impl InFlight {
    /// Whether the device writes the bytes.
    pub(crate) fn writes(&self) -> bool {
        self.operation.is_none_or(Operation::fetches)
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) facts: Qp,
    pub(crate) state: State,
    /// A completion said that it failed: what is in flight comes back as it is.
    pub(crate) failed: bool,
    pub(crate) sends: VecDeque<InFlight>,
    pub(crate) receives: VecDeque<InFlight>,
}

impl Pair {
    pub(crate) fn new(facts: Qp) -> Self {
        Self {
            facts,
            state: State::Reset,
            failed: false,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
        }
    }

    /// Whether the device works on what is in flight.
    pub(crate) fn works(&self) -> bool {
        !self.failed && !matches!(self.state, State::Err | State::Reset)
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) facts: Cq,
    /// Signaled sends and receives posted and not polled.
    pub(crate) outstanding: u64,
    /// Armings whose event has not been taken.
    pub(crate) armed: u64,
    /// Events taken and not acknowledged, and where the last one was taken.
    pub(crate) events: (u64, Option<Call>),
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) facts: Srq,
    /// In the order of posting; they complete in any order.
    pub(crate) receives: VecDeque<InFlight>,
}
