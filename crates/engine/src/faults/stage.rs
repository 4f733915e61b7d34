//! One direction of a wire with faults: where packets wait, what is drawn for each of them, and the
//! one-shot faults that are still to come. What the faults are is in `faults`, their notation in
//! `spec` and `plan`.

use std::collections::VecDeque;

use wire::{Instant, Span};

use super::kind::{FaultKind, FaultSet};
use super::shots::{Shot, ShotKind, Struck, When};
use super::{
    Chance, DEFAULT_QUEUE, FaultCounts, FaultItem, FaultSpec, MAX_HELD, MAX_HELD_BYTES,
    REORDER_HOLD, REORDER_OVERTAKERS,
};

/// A packet that comes out of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered<T> {
    /// The packet.
    pub item: T,
    /// Its number among those that entered, from 1; a duplicate has that of its original.
    pub number: u64,
    /// When it arrived: not after the `now` of the call that handed it out.
    pub at: Instant,
    /// What was done to it.
    pub faults: FaultSet,
}

impl<T> Delivered<T> {
    /// Whether a bit was flipped.
    pub fn is_corrupted(&self) -> bool {
        self.faults.contains(FaultKind::Corrupt)
    }
}

#[derive(Clone, Debug)]
struct Queued<T> {
    delivered: Delivered<T>,
    length: u64,
    /// How many later packets may overtake it.
    overtakers: u32,
}

/// What one-shot faults do to a packet on its way.
#[derive(Clone, Copy, Default)]
struct Forced {
    lost: bool,
    twice: bool,
    overtaken: bool,
    damaged: bool,
}

/// A packet at the entrance.
struct Entering<T> {
    item: T,
    number: u64,
    forced: Forced,
    faults: FaultSet,
}

/// One direction of a wire with faults: packets go in with [`push`](Self::push) and come out, or do
/// not, with [`pop`](Self::pop). Decisions depend only on the seed, the stream and the number of
/// the packet, so that one kind of fault can be switched off without moving the others.
#[derive(Clone, Debug)]
pub struct FaultStage<T> {
    spec: FaultSpec,
    stream: u64,
    counts: FaultCounts,
    /// One-shot faults still to come.
    shots: Vec<Shot>,
    /// Those that have struck and have not been asked for yet.
    struck: Vec<Struck>,
    /// Everything that enters before this is lost.
    dark_until: Option<Instant>,
    /// Bytes inside.
    held_bytes: u64,
    /// When the last byte in the rate-limited queue has left.
    busy_until: Instant,
    /// In order of arrival times.
    queue: VecDeque<Queued<T>>,
    /// Reordered packets whose turn has passed; `at` is when they leave at the latest.
    held: VecDeque<Queued<T>>,
}

impl<T: FaultItem> FaultStage<T> {
    /// A stage that does what `spec` says. Stages of one seed with different `stream` numbers (one
    /// for each direction of each link, say) draw independently.
    pub fn new(spec: FaultSpec, stream: u64) -> Self {
        Self {
            spec,
            stream,
            counts: FaultCounts::default(),
            shots: Vec::new(),
            struck: Vec::new(),
            dark_until: None,
            held_bytes: 0,
            busy_until: Instant::ZERO,
            queue: VecDeque::new(),
            held: VecDeque::new(),
        }
    }

    /// The same stage with one-shot faults to come.
    #[must_use]
    pub fn with_shots(mut self, shots: Vec<Shot>) -> Self {
        self.shots = shots;
        self
    }

    /// What the stage does.
    pub fn spec(&self) -> &FaultSpec {
        &self.spec
    }

    /// Changes what happens to packets from now on; those inside keep their fate.
    pub fn set_spec(&mut self, spec: FaultSpec) {
        self.spec = spec;
    }

    /// What the stage has done so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Packets inside.
    pub fn len(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    /// The least number of the packets inside.
    pub fn first_number(&self) -> Option<u64> {
        self.queue.iter().chain(&self.held).map(|q| q.delivered.number).min()
    }

    /// Whether no packet is inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that wait for the rate-limited link at `now`; 0 without a rate.
    pub fn queued_bytes(&self, now: Instant) -> u64 {
        let Some(rate) = self.spec.rate else { return 0 };
        let ps = self.busy_until.since(now).as_ps();
        let bytes = u128::from(ps) * u128::from(rate.as_bps()) / (8 * 1_000_000_000_000);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// A packet enters at `now`; what is done to it and its duplicate.
    pub fn push(&mut self, now: Instant, item: T) -> FaultSet {
        let mut draw = Draw::new(self.spec.seed, self.stream, self.counts.offered);
        self.counts.offered += 1;
        let number = self.counts.offered;
        let forced = if self.shots.is_empty() { Forced::default() } else { self.fire(number, now) };
        let (lost, twice) = (draw.hits(self.spec.loss), draw.hits(self.spec.dup));
        let mut faults = FaultSet::NONE;
        let dark = self.dark_until.is_some_and(|until| now.is_before(until));
        if lost || forced.lost || dark {
            self.counts.lost += 1;
            faults.insert(FaultKind::Loss);
            return faults;
        }
        if twice || forced.twice {
            self.counts.duplicated += 1;
            faults.insert(FaultKind::Dup);
            let copy = Entering { item: item.clone(), number, forced: Forced::default(), faults };
            faults.extend(self.admit(now, copy, &mut draw.fork()));
        }
        let original = Entering { item, number, forced, faults: FaultSet::NONE };
        faults.extend(self.admit(now, original, &mut draw));
        faults
    }

    /// The one-shot faults of the wire that are due for the packet of this number.
    fn fire(&mut self, number: u64, now: Instant) -> Forced {
        let mut forced = Forced::default();
        let Self { shots, struck, dark_until, counts, .. } = self;
        shots.retain(|&shot| {
            if !shot.kind.is_of_the_wire() || !shot.is_due(number, now) {
                return true;
            }
            match shot.kind {
                ShotKind::Drop => {
                    forced.lost = true;
                    *dark_until = shot.lasts.map(|span| now + span).or(*dark_until);
                }
                ShotKind::Dup => forced.twice = true,
                ShotKind::Reorder => forced.overtaken = true,
                _ => forced.damaged = true,
            }
            counts.struck += 1;
            struck.push(Struck { shot, number: Some(number), at: now });
            false
        });
        forced
    }

    /// Whether one-shot faults are still to come.
    pub fn has_shots(&self) -> bool {
        !self.shots.is_empty()
    }

    /// Offers the one-shot faults of the device that are due to `strike`, which says whether one
    /// fitted and is done with. With the number of a packet that has arrived, or without, for what
    /// needs only a time.
    pub fn strike(
        &mut self,
        number: Option<u64>,
        now: Instant,
        mut strike: impl FnMut(ShotKind) -> bool,
    ) {
        let Self { shots, struck, counts, .. } = self;
        let mut follow = None;
        shots.retain(|&shot| {
            let due = match number {
                Some(number) => shot.is_due(number, now),
                None => shot.kind.is_of_the_port() && shot.is_due(0, now),
            };
            if shot.kind.is_of_the_wire() || !due || !strike(shot.kind) {
                return true;
            }
            if shot.kind == ShotKind::PortDown
                && let Some(span) = shot.lasts
            {
                let when = When::Time((now + span).since(Instant::ZERO));
                follow = Some(Shot { kind: ShotKind::PortUp, when, lasts: None });
            }
            counts.struck += 1;
            struck.push(Struck { shot, number, at: now });
            false
        });
        shots.extend(follow);
    }

    /// The one-shot faults that have struck since the last call.
    pub fn take_struck(&mut self) -> Vec<Struck> {
        std::mem::take(&mut self.struck)
    }

    /// The fault of the device that has struck at the packet of this number, if that has not been
    /// taken yet.
    pub fn struck_at(&self, number: u64) -> Option<ShotKind> {
        let at = self.struck.iter().filter(|struck| struck.number == Some(number));
        at.map(|struck| struck.shot.kind).find(|kind| !kind.is_of_the_wire())
    }

    /// The one-shot faults that are still to come.
    pub fn shots(&self) -> &[Shot] {
        &self.shots
    }

    /// A packet that was handed out did not pass, for the port was down.
    pub fn cut(&mut self) {
        self.counts.delivered = self.counts.delivered.saturating_sub(1);
        self.counts.cut += 1;
    }

    /// The next packet that has arrived by `now`, in order of arrival.
    pub fn pop(&mut self, now: Instant) -> Option<Delivered<T>> {
        loop {
            let held = self.next_held();
            let head = self.queue.front().map(|q| q.delivered.at);
            if let Some((index, at)) = held
                && at.is_due(now)
                && head.is_none_or(|head| !head.is_before(at))
            {
                let Queued { delivered: mut out, length, .. } = self.held.remove(index)?;
                self.held_bytes -= length;
                // One that was overtaken by enough packets leaves with the last of them.
                out.at = at;
                self.counts.delivered += 1;
                return Some(out);
            }
            if !head?.is_due(now) {
                return None;
            }
            let mut next = self.queue.pop_front()?;
            if next.overtakers > 0 {
                next.delivered.at = next.delivered.at + REORDER_HOLD;
                self.held.push_back(next);
                continue;
            }
            for held in &mut self.held {
                held.overtakers = held.overtakers.saturating_sub(1);
                if held.overtakers == 0 {
                    held.delivered.at = held.delivered.at.earlier(next.delivered.at);
                }
            }
            self.held_bytes -= next.length;
            self.counts.delivered += 1;
            return Some(next.delivered);
        }
    }

    /// When [`pop`](Self::pop) and [`strike`](Self::strike) have to be called next; `None` while
    /// there is nothing to wait for.
    pub fn next_due(&self) -> Option<Instant> {
        let head = self.queue.front().map(|q| q.delivered.at);
        let held = self.next_held().map(|(_, at)| at);
        let of_port = self.shots.iter().filter(|shot| shot.kind.is_of_the_port());
        let port = of_port.filter_map(Shot::at).reduce(Instant::earlier);
        [head, held, port].into_iter().flatten().reduce(Instant::earlier)
    }

    /// When the last packet inside will have left.
    pub fn last_due(&self) -> Option<Instant> {
        let all = self.queue.iter().rev().take(1).chain(&self.held);
        let late = |q: &Queued<T>| {
            if q.overtakers > 0 { q.delivered.at + REORDER_HOLD } else { q.delivered.at }
        };
        all.map(late).reduce(|a, b| if a.is_before(b) { b } else { a })
    }

    /// The held packet that leaves first.
    fn next_held(&self) -> Option<(usize, Instant)> {
        let mut first: Option<(usize, Instant)> = None;
        for (index, held) in self.held.iter().enumerate() {
            if first.is_none_or(|(_, at)| held.delivered.at.is_before(at)) {
                first = Some((index, held.delivered.at));
            }
        }
        first
    }

    /// Lets a packet in, or not; what was done to it.
    fn admit(&mut self, now: Instant, entering: Entering<T>, draw: &mut Draw) -> FaultSet {
        let Entering { mut item, number, forced, mut faults } = entering;
        // Every packet draws the same numbers, whatever becomes of it.
        let (damaged, entropy) = (draw.hits(self.spec.corrupt), draw.next());
        let (overtaken, span) = (draw.hits(self.spec.reorder), draw.below(REORDER_OVERTAKERS));
        let (jitter, mark) = (draw.next(), draw.below(Chance::ONE));
        let length = item.wire_len();
        let room = self.len() < MAX_HELD && self.held_bytes + length <= MAX_HELD_BYTES;
        let Some(sent) = room.then(|| self.serialize(now, &mut item, mark, &mut faults)).flatten()
        else {
            self.counts.overflowed += 1;
            faults.insert(FaultKind::Overflow);
            return faults;
        };
        if damaged || forced.damaged {
            self.counts.corrupted += 1;
            faults.insert(FaultKind::Corrupt);
            if !item.corrupt(entropy) {
                return faults;
            }
        }
        let jitter = (u128::from(jitter) * u128::from(self.spec.jitter.as_ps())) >> 64;
        let mut at = sent + self.spec.delay + Span::from_ps(jitter as u64);
        if let Some(last) = self.queue.back()
            && at.is_before(last.delivered.at)
        {
            at = last.delivered.at;
        }
        let overtaken = overtaken || forced.overtaken;
        let overtakers = if overtaken { 1 + span } else { 0 };
        if overtaken {
            self.counts.reordered += 1;
            faults.insert(FaultKind::Reorder);
        }
        self.held_bytes += length;
        let delivered = Delivered { item, number, at, faults };
        self.queue.push_back(Queued { delivered, length, overtakers });
        faults
    }

    /// Puts a packet into the queue of the rate-limited link; when its last byte has left, or
    /// `None` if the queue was full. Marks it by the length of the queue before it.
    fn serialize(
        &mut self,
        now: Instant,
        item: &mut T,
        mark: u32,
        faults: &mut FaultSet,
    ) -> Option<Instant> {
        let Some(rate) = self.spec.rate else { return Some(now) };
        let (length, backlog) = (item.wire_len(), self.queued_bytes(now));
        if backlog.saturating_add(length) > self.spec.queue.unwrap_or(DEFAULT_QUEUE) {
            return None;
        }
        if let Some(ecn) = self.spec.ecn
            && mark < ecn.chance(backlog).ppb()
            && item.mark_ce()
        {
            self.counts.marked += 1;
            faults.insert(FaultKind::Mark);
        }
        let start = if self.busy_until.is_before(now) { now } else { self.busy_until };
        self.busy_until = start + rate.time_for(length);
        Some(self.busy_until)
    }
}

/// The numbers drawn for one packet (SplitMix64: Steele, Lea, Flood 2014).
struct Draw(u64);

impl Draw {
    fn new(seed: u64, stream: u64, packet: u64) -> Self {
        let mut start = Self(seed ^ 0x5851_F42D_4C95_7F2D);
        let mut stream = Self(start.next() ^ stream);
        Self(stream.next() ^ packet.wrapping_mul(0xD129_0B26_88B5_F6C5))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An even number below `bound`.
    fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }

    fn hits(&mut self, chance: Chance) -> bool {
        self.below(Chance::ONE) < chance.ppb()
    }

    /// Draws for a duplicate, independent of the original's.
    fn fork(&self) -> Self {
        Self(!self.0)
    }
}
