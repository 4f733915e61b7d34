//! Whose turn it is to transmit, and who wants to be woken when.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use wire::Instant;

/// A wake-up; the two upper bits of `owner` tell whose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wake {
    at: Instant,
    owner: u32,
}

impl Ord for Wake {
    // Earliest on top of the max-heap. Instants lie on a circle; all deadlines of a device are
    // within a few hours of one another, where this is a total order.
    fn cmp(&self, other: &Self) -> Ordering {
        let ahead = other.at.as_ps().wrapping_sub(self.at.as_ps()) as i64;
        ahead.cmp(&0).then_with(|| other.owner.cmp(&self.owner))
    }
}

impl PartialOrd for Wake {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Who is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Qp(u32),
    Cq(u32),
    /// A queue pair that has gone, by its number.
    Departed(u32),
}

const CQ_BASE: u32 = 1 << 31;
const DEPARTED_BASE: u32 = 1 << 30;

/// Rotation of queue pairs with something to say, and the wake-ups.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    ready: VecDeque<u32>,
    wakes: BinaryHeap<Wake>,
}

impl Scheduler {
    /// Puts a queue pair at the end of the rotation. The caller keeps it from being in twice.
    pub(crate) fn push(&mut self, qp: u32) {
        self.ready.push_back(qp);
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    pub(crate) fn ready(&self) -> impl Iterator<Item = u32> + '_ {
        self.ready.iter().copied()
    }

    /// Takes a queue pair out of the rotation.
    pub(crate) fn remove(&mut self, qp: u32) {
        self.ready.retain(|other| *other != qp);
    }

    /// Forgets the wake-ups that nobody waits for any more.
    pub(crate) fn prune(&mut self, awaited: impl Fn(Owner, Instant) -> bool) {
        self.wakes.retain(|wake| awaited(owner(wake), wake.at));
    }

    /// Wake-ups in the heap, stale ones included.
    pub(crate) fn wakes_len(&self) -> usize {
        self.wakes.len()
    }

    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn wake_at(&mut self, owner: Owner, at: Instant) {
        let owner = match owner {
            Owner::Qp(n) => n,
            Owner::Cq(n) => n | CQ_BASE,
            Owner::Departed(n) => n | DEPARTED_BASE,
        };
        self.wakes.push(Wake { at, owner });
    }

    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.wakes.peek().map(|w| w.at)
    }

    /// The next wake-up that is due, with its time.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Owner, Instant)> {
        if !self.wakes.peek()?.at.is_due(now) {
            return None;
        }
        let wake = self.wakes.pop()?;
        Some((owner(&wake), wake.at))
    }
}

fn owner(wake: &Wake) -> Owner {
    match wake.owner & (CQ_BASE | DEPARTED_BASE) {
        0 => Owner::Qp(wake.owner),
        DEPARTED_BASE => Owner::Departed(wake.owner & !DEPARTED_BASE),
        _ => Owner::Cq(wake.owner & !CQ_BASE),
    }
}
