//! Events and their order: by time, then node, then what happens there (arrivals by port and by the
//! sender's count, ports that become free, timers). So the order at a node does not depend on how
//! nodes are spread over threads.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use wire::Instant;

use crate::frame::Boxed;

/// What happens.
#[derive(Debug)]
pub(crate) enum What {
    /// A frame has arrived at a port.
    Arrive(Boxed),
    /// The cable of a port has become free.
    Free,
    /// The node's timer.
    Wake,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) at: Instant,
    /// Node in the upper half, what and port in the lower.
    order: u64,
    /// Counted by the sender of a frame.
    sequence: u32,
    pub(crate) what: What,
}

const FREE: u64 = 1 << 16;
const WAKE: u64 = 2 << 16;

impl Event {
    pub(crate) fn arrive(at: Instant, to: (u32, u16), sequence: u32, frame: Boxed) -> Self {
        let order = u64::from(to.0) << 32 | u64::from(to.1);
        Self { at, order, sequence, what: What::Arrive(frame) }
    }

    pub(crate) fn free(at: Instant, node: u32, port: u16) -> Self {
        let order = u64::from(node) << 32 | FREE | u64::from(port);
        Self { at, order, sequence: 0, what: What::Free }
    }

    pub(crate) fn wake(at: Instant, node: u32) -> Self {
        Self { at, order: u64::from(node) << 32 | WAKE, sequence: 0, what: What::Wake }
    }

    pub(crate) fn node(&self) -> u32 {
        (self.order >> 32) as u32
    }

    pub(crate) fn port(&self) -> u16 {
        self.order as u16
    }

    fn key(&self) -> (u64, u64, u32) {
        (self.at.as_ps(), self.order, self.sequence)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    // The earliest is the greatest, on top of the heap. A simulation is far shorter than the 213
    // days after which instants wrap.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The events to come.
#[derive(Debug, Default)]
pub(crate) struct Queue(BinaryHeap<Event>);

impl Queue {
    pub(crate) fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    /// The next event before `end`.
    pub(crate) fn pop_before(&mut self, end: Instant) -> Option<Event> {
        if self.0.peek()?.at.as_ps() >= end.as_ps() {
            return None;
        }
        self.0.pop()
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|event| event.at)
    }
}
