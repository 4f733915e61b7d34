//! Completion queues: a bounded ring with a lock of its own, so that taking ready entries never
//! waits for the device; arming, moderation, overrun.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wire::{Instant, Qpn, Span};

use crate::work::{Completion, WcStatus};

/// Names a completion queue of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);

/// A completion queue. Shared between the device, which appends, and pollers, which take.
#[derive(Debug)]
pub struct Cq {
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Completion>,
    capacity: usize,
    armed: Armed,
    overrun: bool,
    moderation: Moderation,
    /// Entries since the last event, and when the first of them came.
    pending: u32,
    pending_since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Armed {
    No,
    Solicited,
    Any,
}

/// When an armed queue raises its event: after `count` completions or `period`, whichever is first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moderation {
    /// Completions; 0 and 1 both mean at once.
    pub count: u16,
    /// Time after the first completion; zero means that only the count matters.
    pub period: Span,
}

impl Moderation {
    /// An event for the first completion.
    pub const OFF: Self = Self { count: 0, period: Span::ZERO };
}

/// What an append to a queue led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    /// Nothing but the entry.
    Quiet,
    /// An event is to be raised now.
    Event,
    /// An event is to be raised at this time, if none was before.
    EventAt(Instant),
    /// The queue was full: the entry is lost, the queue is in error, `first` says whether since
    /// now.
    Overrun { first: bool },
}

impl Ring {
    fn period_ends(&self) -> Option<Instant> {
        let begun = self.armed == Armed::Any && self.pending > 0;
        begun.then(|| self.pending_since + self.moderation.period)
    }
}

impl Cq {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            ring: Mutex::new(Ring {
                entries: VecDeque::with_capacity(capacity.min(1 << 16)),
                capacity,
                armed: Armed::No,
                overrun: false,
                moderation: Moderation::OFF,
                pending: 0,
                pending_since: Instant::ZERO,
            }),
        })
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // A poisoned lock means that a caller panicked while holding it; every update of the ring
        // is a single step, so its contents are whole.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `out.len()` completions, oldest first; the number taken.
    pub fn poll(&self, out: &mut [Completion]) -> usize {
        let mut ring = self.ring();
        let n = out.len().min(ring.entries.len());
        for (slot, entry) in out.iter_mut().zip(ring.entries.drain(..n)) {
            *slot = entry;
        }
        n
    }

    /// Takes one completion.
    pub fn poll_one(&self) -> Option<Completion> {
        self.ring().entries.pop_front()
    }

    /// Entries ready to be taken.
    pub fn len(&self) -> usize {
        self.ring().entries.len()
    }

    /// Whether nothing is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that fit.
    pub fn capacity(&self) -> usize {
        self.ring().capacity
    }

    /// Whether entries have been lost (`CQ_ERR` was raised).
    pub fn is_overrun(&self) -> bool {
        self.ring().overrun
    }

    /// Arms the queue for one event: for the next completion, or only for the next solicited or
    /// failed one. Arming for any event overrides solicited-only, not the reverse.
    pub fn req_notify(&self, solicited_only: bool) {
        let mut ring = self.ring();
        ring.armed = match (ring.armed, solicited_only) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            _ => Armed::Solicited,
        };
        // What came after an earlier arming, and is still here, is waited for.
        if ring.entries.is_empty() {
            ring.pending = 0;
        }
    }

    /// Whether an event that waited by the old moderation is to be raised now.
    #[must_use]
    pub(crate) fn set_moderation(&self, moderation: Moderation) -> bool {
        let mut ring = self.ring();
        ring.moderation = moderation;
        let waited = ring.pending > 0;
        if waited {
            ring.armed = Armed::No;
            ring.pending = 0;
        }
        waited
    }

    /// Sets a new capacity; false if more entries are in the queue.
    pub(crate) fn resize(&self, capacity: usize) -> bool {
        let mut ring = self.ring();
        if ring.entries.len() > capacity {
            return false;
        }
        ring.capacity = capacity;
        true
    }

    /// Appends an entry.
    pub(crate) fn push(&self, now: Instant, entry: Completion) -> Pushed {
        let mut ring = self.ring();
        if ring.entries.len() >= ring.capacity {
            let first = !std::mem::replace(&mut ring.overrun, true);
            return Pushed::Overrun { first };
        }
        ring.entries.push_back(entry);
        let urgent = entry.solicited || entry.status != WcStatus::Success;
        match ring.armed {
            Armed::No => return Pushed::Quiet,
            Armed::Solicited if !urgent => return Pushed::Quiet,
            Armed::Solicited | Armed::Any => {}
        }
        ring.pending += 1;
        let m = ring.moderation;
        if ring.armed == Armed::Any && m.count > 1 && ring.pending < u32::from(m.count) && !urgent {
            if ring.pending == 1 {
                ring.pending_since = now;
            }
            let begins = ring.pending == 1 && m.period != Span::ZERO;
            return if begins { Pushed::EventAt(now + m.period) } else { Pushed::Quiet };
        }
        ring.armed = Armed::No;
        ring.pending = 0;
        Pushed::Event
    }

    /// When the moderation period that has begun ends.
    pub(crate) fn period_ends(&self) -> Option<Instant> {
        self.ring().period_ends()
    }

    /// The moderation period may have ended: whether an event is to be raised at `now`.
    pub(crate) fn moderation_due(&self, now: Instant) -> bool {
        let mut ring = self.ring();
        let due = ring.period_ends().is_some_and(|at| at.is_due(now));
        if due {
            ring.armed = Armed::No;
            ring.pending = 0;
        }
        due
    }

    /// Overruns without an entry too many; whether for the first time.
    pub(crate) fn overrun(&self) -> bool {
        !std::mem::replace(&mut self.ring().overrun, true)
    }

    /// Takes the entries of a queue pair out (it was reset or destroyed).
    pub(crate) fn purge(&self, qp: Qpn) {
        self.ring().entries.retain(|entry| entry.qp != qp);
    }
}

#[cfg(test)]
mod tests;
