//! What the watchdog knows of one port: how long each lossless queue has stood still, and storms.

use wire::{Instant, Span};

/// Counters of a priority in the columns of SONiC's `pfcwd show stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StormCounters {
    /// Storms detected.
    pub detected: u64,
    /// Storms that have ended.
    pub restored: u64,
    /// Frames sent by the queue in storms.
    pub tx_ok: u64,
    /// Frames received by the priority in storms.
    pub rx_ok: u64,
    /// Frames for the queue dropped in storms.
    pub tx_drop: u64,
    /// Frames received by the priority and dropped in storms.
    pub rx_drop: u64,
}

/// The watch on a priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) counters: StormCounters,
    /// In a storm.
    pub(crate) storm: bool,
    /// Since when the queue is seen to stand still.
    still: Instant,
    /// Frames it had sent when it was looked at last.
    sent: u64,
    /// When the last pause came.
    pub(crate) paused: Instant,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            counters: StormCounters::default(),
            storm: false,
            still: Instant::ZERO,
            sent: 0,
            paused: Instant::ZERO,
        }
    }

    /// The priority has just been stopped, when the queue had sent so many frames.
    pub(crate) fn stopped(&mut self, now: Instant, sent: u64) {
        self.still = now;
        self.sent = sent;
    }

    /// Looks at a queue: whether a storm has begun. `stuck`: it is stopped and holds frames.
    pub(crate) fn begins(&mut self, now: Instant, stuck: bool, sent: u64, detection: Span) -> bool {
        if !stuck || sent != self.sent {
            self.stopped(now, sent);
            return false;
        }
        now.since(self.still) >= detection
    }

    /// Whether a storm is over.
    pub(crate) fn ends(&self, now: Instant, restoration: Span) -> bool {
        now.since(self.paused) >= restoration
    }
}
