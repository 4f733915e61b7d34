//! The sending end of a cable: when it is free, and when what is sent arrives.

use engine::{Chance, FaultItem, FaultSpec, FaultStage};
use wire::{Instant, Rate, Span};

use crate::event::{Event, Queue};
use crate::exchange::Outbox;
use crate::frame::{Boxed, Framing};
use crate::network::Cable;
use crate::switching::is_data;

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
    faults: Option<Box<Faults>>,
}

/// What a cable does to frames besides carrying them: the engine's stage, and losses by number.
#[derive(Debug)]
struct Faults {
    stage: FaultStage<Carried>,
    drop_every: Option<u64>,
    /// Data packets so far.
    data: u64,
}

/// A frame in a fault stage.
#[derive(Clone, Debug)]
struct Carried(Boxed);

impl FaultItem for Carried {
    fn wire_len(&self) -> u64 {
        u64::from(self.0.length)
    }

    fn mark_ce(&mut self) -> bool {
        self.0.mark_ce()
    }

    fn corrupt(&mut self, _: u64) -> bool {
        // A receiver drops it for its check sequence.
        false
    }
}

impl Faults {
    /// What arrives of a frame that is sent at `now`.
    fn pass(&mut self, now: Instant, frame: Boxed) -> Option<Boxed> {
        if is_data(&frame) {
            self.data += 1;
            if self.drop_every.is_some_and(|every| self.data.is_multiple_of(every)) {
                return None;
            }
        }
        self.stage.push(now, Carried(frame));
        self.stage.pop(now).map(|delivered| delivered.item.0)
    }
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
            faults: None,
        }
    }

    /// The same with the faults of a cable; `stream` tells its directions apart.
    #[must_use]
    pub(crate) fn with_faults(mut self, cable: &Cable, seed: u64, stream: u64) -> Self {
        if cable.loss_ppb > 0 || cable.drop_every.is_some() {
            let loss = Chance::from_ppb(cable.loss_ppb);
            let stage = FaultStage::new(FaultSpec { loss, seed, ..FaultSpec::NONE }, stream);
            let drop_every = cable.drop_every.filter(|every| *every > 0);
            self.faults = Some(Box::new(Faults { stage, drop_every, data: 0 }));
        }
        self
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
        let frame = match &mut self.faults {
            None => frame,
            Some(faults) => match faults.pass(now, frame) {
                Some(frame) => frame,
                None => return,
            },
        };
        out.send(Event::arrive(self.busy_until + self.delay, self.peer, self.sequence, frame));
    }
}
