//! The sending end of a cable: when it is free, and when what is sent arrives.

use wire::{Instant, Rate, Span};

use crate::event::{Event, Queue};
use crate::exchange::Outbox;
use crate::frame::{Boxed, Framing};

/// A port's end of a cable.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) peer: (u32, u16),
    pub(crate) rate: Rate,
    delay: Span,
    gap: u32,
    whole_ns: bool,
    busy_until: Instant,
    /// An event stands in the queue for when it becomes free.
    awaited: bool,
    sequence: u32,
    /// Bytes sent, gaps excluded.
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
}

impl Sender {
    pub(crate) fn new(
        peer: (u32, u16),
        (rate, delay): (Rate, Span),
        framing: Framing,
        whole_ns: bool,
    ) -> Self {
        Self {
            peer,
            rate,
            delay,
            gap: framing.gap(),
            whole_ns,
            busy_until: Instant::ZERO,
            awaited: false,
            sequence: 0,
            bytes: 0,
            frames: 0,
        }
    }

    /// Whether a frame may be sent now; if not, an event tells when.
    pub(crate) fn is_free(&mut self, now: Instant, from: (u32, u16), queue: &mut Queue) -> bool {
        if self.busy_until.is_due(now) {
            return true;
        }
        if !self.awaited {
            self.awaited = true;
            queue.push(Event::free(self.busy_until, from.0, from.1));
        }
        false
    }

    /// The event has come.
    pub(crate) fn freed(&mut self) {
        self.awaited = false;
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, now: Instant, frame: Boxed, out: &mut Outbox<'_>) {
        self.bytes += u64::from(frame.length);
        self.frames += 1;
        let mut span = self.rate.time_for(u64::from(frame.length + self.gap));
        if self.whole_ns {
            span = Span::from_ps(span.as_ps() / 1000 * 1000);
        }
        self.busy_until = now + span;
        self.sequence = self.sequence.wrapping_add(1);
        out.send(Event::arrive(self.busy_until + self.delay, self.peer, self.sequence, frame));
    }
}
