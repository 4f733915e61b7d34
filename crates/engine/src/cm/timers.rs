//! The connection manager's time: instants unrolled onto a line that does not wrap, and one ordered
//! set of deadlines.

use std::collections::BTreeSet;

use wire::{Instant, Span};

/// A point on the line, in picoseconds since the connection manager was made.
pub(super) type Tick = u128;

/// Follows the driver's clock. The largest step between two calls is 106 days.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    last: Instant,
    tick: Tick,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { last: Instant::ZERO, tick: 0 }
    }

    /// Moves on to `now`; a `now` that lies before the last one changes nothing.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.tick == 0 {
            // The first call sets the origin: `now` may be any instant of the circle.
            self.last = now;
            self.tick = 1;
        } else if self.last.is_before(now) {
            self.tick += Tick::from(now.since(self.last).as_ps());
            self.last = now;
        }
    }

    pub(super) fn after(&self, span: Span) -> Tick {
        self.tick + Tick::from(span.as_ps())
    }

    fn instant(&self, tick: Tick) -> Instant {
        let ahead = tick.saturating_sub(self.tick).min(Tick::from(u64::MAX / 4));
        self.last + Span::from_ps(ahead as u64)
    }
}

/// What is due when.
#[derive(Debug)]
pub(super) struct Timers<K> {
    due: BTreeSet<(Tick, K)>,
}

impl<K: Ord + Copy> Timers<K> {
    pub(super) fn new() -> Self {
        Self { due: BTreeSet::new() }
    }

    /// Replaces the deadline `slot` of `key`.
    pub(super) fn set(&mut self, slot: &mut Option<Tick>, key: K, tick: Option<Tick>) {
        if let Some(old) = slot.take() {
            self.due.remove(&(old, key));
        }
        if let Some(new) = tick {
            self.due.insert((new, key));
            *slot = Some(new);
        }
    }

    /// The first deadline.
    pub(super) fn first(&self, clock: &Clock) -> Option<Instant> {
        self.due.first().map(|&(tick, _)| clock.instant(tick))
    }

    /// Takes the first deadline if it has been reached. The holder's slot is to be cleared.
    pub(super) fn pop(&mut self, clock: &Clock) -> Option<K> {
        let &(tick, key) = self.due.first().filter(|(tick, _)| *tick <= clock.tick)?;
        self.due.remove(&(tick, key));
        Some(key)
    }

    #[cfg(debug_assertions)]
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}
