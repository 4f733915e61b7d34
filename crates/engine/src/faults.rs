//! The one fault model: a pure, seeded stage that loses, duplicates, reorders, corrupts, delays,
//! rate-limits and ECN-marks packets of any form. Engine tests, live links and simulations put the
//! same stage into their wire. It reads no clock; the notation of a [`FaultSpec`] lives in `spec`.

mod spec;

use std::collections::VecDeque;

use wire::{Instant, Rate, Span};

/// A reordered packet lets at most this many later packets overtake it.
pub const REORDER_OVERTAKERS: u32 = 8;
/// A reordered packet is held for at most this long if too few packets overtake it.
pub const REORDER_HOLD: Span = Span::from_us(200);
/// Bytes that the queue of a rate-limited stage takes where the specification names no bound.
pub const DEFAULT_QUEUE: u64 = 1 << 20;
/// Packets that a stage holds, whatever else is asked; one more is dropped.
pub const MAX_HELD: usize = 1 << 16;

/// The likelihood of a fault, in parts per thousand million, so that what was written in decimal is
/// held exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(Self::ONE);
    const ONE: u32 = 1_000_000_000;

    /// A chance of `ppb` in 10^9; more than that counts as always.
    pub const fn from_ppb(ppb: u32) -> Self {
        Self(if ppb > Self::ONE { Self::ONE } else { ppb })
    }

    /// A chance of `percent` in a hundred; more than that counts as always.
    pub const fn from_percent(percent: u32) -> Self {
        Self::from_ppb(percent.saturating_mul(Self::ONE / 100))
    }

    /// Parts in 10^9.
    pub const fn ppb(self) -> u32 {
        self.0
    }
}

/// ECN marking by queue length, as a RED queue does it: never below `kmin`, always from `kmax` on,
/// in between with a chance that grows in proportion up to `pmax`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EcnSpec {
    /// Bytes in the queue up to which nothing is marked.
    pub kmin: u64,
    /// Bytes in the queue from which on everything is marked.
    pub kmax: u64,
    /// Chance of a mark just below `kmax`.
    pub pmax: Chance,
}

/// What a stage does to packets. Written and read as `loss=1%,dup=0.1%,reorder=2%,seed=42`; see
/// [`FaultSpec::from_str`](core::str::FromStr::from_str) for all fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FaultSpec {
    /// Packets that vanish.
    pub loss: Chance,
    /// Packets that arrive twice.
    pub dup: Chance,
    /// Packets that later ones overtake.
    pub reorder: Chance,
    /// Packets of which a bit flips.
    pub corrupt: Chance,
    /// Time that each packet takes.
    pub delay: Span,
    /// Up to this much more, drawn evenly for each packet; order is kept.
    pub jitter: Span,
    /// Rate of the link, with a queue before it.
    pub rate: Option<Rate>,
    /// Bytes that the queue takes ([`DEFAULT_QUEUE`] if absent); only with `rate`.
    pub queue: Option<u64>,
    /// Congestion marks; only with `rate`.
    pub ecn: Option<EcnSpec>,
    /// What the decisions are drawn from.
    pub seed: u64,
}

impl FaultSpec {
    /// A perfect wire.
    pub const NONE: Self = Self {
        loss: Chance::NEVER,
        dup: Chance::NEVER,
        reorder: Chance::NEVER,
        corrupt: Chance::NEVER,
        delay: Span::ZERO,
        jitter: Span::ZERO,
        rate: None,
        queue: None,
        ecn: None,
        seed: 0,
    };

    /// Whether nothing is done to packets.
    pub fn is_none(&self) -> bool {
        Self { seed: 0, queue: None, ..*self } == Self::NONE
    }
}

/// A packet in whatever form the user of a stage carries it. A duplicate is a clone.
pub trait FaultItem: Clone {
    /// Bytes that the packet takes on the link; what `rate` and `ecn` count.
    fn wire_len(&self) -> u64;

    /// Sets the CE mark if the packet is ECN capable; whether it was.
    fn mark_ce(&mut self) -> bool;

    /// Flips one bit, chosen by `entropy`. False if this form has no bits to flip: the stage then
    /// drops the packet, as a receiver would that checks the ICRC.
    fn corrupt(&mut self, entropy: u64) -> bool;
}

/// What a stage has done so far, in packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FaultCounts {
    /// Given to the stage.
    pub offered: u64,
    /// Handed out by it.
    pub delivered: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Duplicates made.
    pub duplicated: u64,
    /// Held back for others to overtake.
    pub reordered: u64,
    /// Damaged (and handed out, or dropped where the form has no bits).
    pub corrupted: u64,
    /// Dropped because the queue was full.
    pub overflowed: u64,
    /// Given the CE mark.
    pub marked: u64,
}

impl FaultCounts {
    /// Faults injected, of all kinds.
    pub fn total(&self) -> u64 {
        self.lost
            + self.duplicated
            + self.reordered
            + self.corrupted
            + self.overflowed
            + self.marked
    }
}

impl std::ops::AddAssign for FaultCounts {
    fn add_assign(&mut self, other: Self) {
        self.offered += other.offered;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.corrupted += other.corrupted;
        self.overflowed += other.overflowed;
        self.marked += other.marked;
    }
}

/// A packet that comes out of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered<T> {
    /// The packet.
    pub item: T,
    /// When it arrived: not after the `now` of the call that handed it out.
    pub at: Instant,
    /// Whether a bit was flipped.
    pub corrupted: bool,
}

#[derive(Clone, Debug)]
struct Queued<T> {
    delivered: Delivered<T>,
    /// How many later packets may overtake it.
    overtakers: u32,
}

/// One direction of a wire with faults: packets go in with [`push`](Self::push) and come out, or do
/// not, with [`pop`](Self::pop). Decisions depend only on the seed, the stream and the number of
/// the packet, so that one kind of fault can be switched off without moving the others.
#[derive(Clone, Debug)]
pub struct FaultStage<T> {
    spec: FaultSpec,
    stream: u64,
    counts: FaultCounts,
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
            busy_until: Instant::ZERO,
            queue: VecDeque::new(),
            held: VecDeque::new(),
        }
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

    /// A packet enters at `now`.
    pub fn push(&mut self, now: Instant, item: T) {
        let mut draw = Draw::new(self.spec.seed, self.stream, self.counts.offered);
        self.counts.offered += 1;
        let (lost, twice) = (draw.hits(self.spec.loss), draw.hits(self.spec.dup));
        if lost {
            self.counts.lost += 1;
            return;
        }
        if twice {
            self.counts.duplicated += 1;
            self.admit(now, item.clone(), &mut draw.fork());
        }
        self.admit(now, item, &mut draw);
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
                let mut out = self.held.remove(index)?.delivered;
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
            self.counts.delivered += 1;
            return Some(next.delivered);
        }
    }

    /// When [`pop`](Self::pop) has to be called next; `None` while the stage is empty.
    pub fn next_due(&self) -> Option<Instant> {
        let head = self.queue.front().map(|q| q.delivered.at);
        match (head, self.next_held()) {
            (Some(a), Some((_, b))) => Some(a.earlier(b)),
            (a, b) => a.or(b.map(|(_, at)| at)),
        }
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

    fn admit(&mut self, now: Instant, mut item: T, draw: &mut Draw) {
        // Every packet draws the same numbers, whatever becomes of it.
        let (damaged, entropy) = (draw.hits(self.spec.corrupt), draw.next());
        let (overtaken, span) = (draw.hits(self.spec.reorder), draw.below(REORDER_OVERTAKERS));
        let (jitter, mark) = (draw.next(), draw.below(Chance::ONE));
        if self.len() >= MAX_HELD {
            self.counts.overflowed += 1;
            return;
        }
        let Some(sent) = self.serialize(now, &mut item, mark) else {
            self.counts.overflowed += 1;
            return;
        };
        let mut corrupted = false;
        if damaged {
            self.counts.corrupted += 1;
            corrupted = item.corrupt(entropy);
            if !corrupted {
                return;
            }
        }
        let jitter = (u128::from(jitter) * u128::from(self.spec.jitter.as_ps())) >> 64;
        let mut at = sent + self.spec.delay + Span::from_ps(jitter as u64);
        if let Some(last) = self.queue.back()
            && at.is_before(last.delivered.at)
        {
            at = last.delivered.at;
        }
        let overtakers = if overtaken { 1 + span } else { 0 };
        self.counts.reordered += u64::from(overtaken);
        self.queue.push_back(Queued { delivered: Delivered { item, at, corrupted }, overtakers });
    }

    /// Puts a packet into the queue of the rate-limited link; when its last byte has left, or
    /// `None` if the queue was full. Marks it by the length of the queue before it.
    fn serialize(&mut self, now: Instant, item: &mut T, mark: u32) -> Option<Instant> {
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
        }
        let start = if self.busy_until.is_before(now) { now } else { self.busy_until };
        self.busy_until = start + rate.time_for(length);
        Some(self.busy_until)
    }
}

impl EcnSpec {
    /// Chance of a mark with `backlog` bytes in the queue.
    fn chance(&self, backlog: u64) -> Chance {
        if backlog <= self.kmin {
            return Chance::NEVER;
        }
        if backlog >= self.kmax {
            return Chance::ALWAYS;
        }
        let part = u128::from(backlog - self.kmin) * u128::from(self.pmax.ppb());
        Chance::from_ppb((part / u128::from(self.kmax - self.kmin)) as u32)
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

#[cfg(test)]
mod tests;
