//! The one fault model: a pure, seeded stage that loses, duplicates, reorders, corrupts, delays,
//! rate-limits and ECN-marks packets of any form, and lets faults happen once, at a packet or a
//! time. Engine tests, live links and simulations put the same stage into their wire. It reads no
//! clock. Here is what is asked for and what is counted; the stage is in `stage`, the notation in
//! `spec` and `plan`.

mod kind;
mod plan;
mod shots;
mod spec;
mod stage;

use wire::{Rate, Span};

pub use kind::{Direction, FaultKind, FaultSet};
pub use plan::{FaultPlan, FaultSide};
pub use shots::{Shot, ShotKind, Struck, When};
pub use stage::{Delivered, FaultStage};

/// A reordered packet lets at most this many later packets overtake it.
pub const REORDER_OVERTAKERS: u32 = 8;
/// A reordered packet is held for at most this long if too few packets overtake it.
pub const REORDER_HOLD: Span = Span::from_us(200);
/// Bytes that the queue of a rate-limited stage takes where the specification names no bound.
pub const DEFAULT_QUEUE: u64 = 1 << 20;
/// Packets that a stage holds, whatever else is asked; one more is dropped.
pub const MAX_HELD: usize = 1 << 16;
/// Bytes that a stage holds at most, likewise.
pub const MAX_HELD_BYTES: u64 = 64 << 20;

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
    /// Bytes that the packet takes on the link; what `rate`, `queue` and `ecn` count. On Ethernet
    /// that is the frame with its check sequence, preamble and gap.
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
    /// Lost because the port was down.
    pub cut: u64,
    /// One-shot faults that have struck.
    pub struck: u64,
}

impl FaultCounts {
    /// Faults injected into packets, of all kinds.
    pub fn total(&self) -> u64 {
        FaultKind::ALL.into_iter().map(|kind| self.of(kind)).sum()
    }

    /// Packets that met a fault.
    pub const fn of(&self, kind: FaultKind) -> u64 {
        match kind {
            FaultKind::Loss => self.lost,
            FaultKind::Dup => self.duplicated,
            FaultKind::Reorder => self.reordered,
            FaultKind::Corrupt => self.corrupted,
            FaultKind::Overflow => self.overflowed,
            FaultKind::Mark => self.marked,
            FaultKind::Cut => self.cut,
        }
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
        self.cut += other.cut;
        self.struck += other.struck;
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

#[cfg(test)]
mod tests;
