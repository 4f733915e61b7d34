//! The device's clock: the system's monotonic one, counted from the moment the device was opened.

use wire::{Instant, Span};

use crate::sys;

/// A clock that started at its making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin_ns: u64,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self { origin_ns: sys::monotonic_ns() }
    }

    /// Nanoseconds since the start; none yet where the processors' clocks differ by a little.
    pub(crate) fn ns(&self) -> u64 {
        sys::monotonic_ns().saturating_sub(self.origin_ns)
    }

    /// The present instant of the device's time.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(self.ns())
    }
}

/// Nanoseconds from `now` to `deadline`, rounded up; zero if it has passed.
pub(crate) fn ns_until(deadline: Instant, now: Instant) -> u64 {
    Span::as_ns_ceil(deadline.since(now))
}
