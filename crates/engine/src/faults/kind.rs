//! The names of what a stage does to a packet: small values that a log line, a counter or the
//! comment of a capture can take.

use std::fmt;

/// One of the two directions, as seen from the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// What the device receives.
    Rx,
    /// What it sends.
    Tx,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        })
    }
}

/// A fault that was injected into a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// It vanished.
    Loss,
    /// It was made twice.
    Dup,
    /// It was held back for others to overtake.
    Reorder,
    /// A bit was flipped.
    Corrupt,
    /// It vanished because the queue before it was full.
    Overflow,
    /// It was given the CE mark.
    Mark,
    /// It vanished because the port was down.
    Cut,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Loss,
        Self::Dup,
        Self::Reorder,
        Self::Corrupt,
        Self::Overflow,
        Self::Mark,
        Self::Cut,
    ];

    /// For counts: `12 lost`.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Loss => "lost",
            Self::Dup => "duplicated",
            Self::Reorder => "reordered",
            Self::Corrupt => "corrupted",
            Self::Overflow => "beyond the queue",
            Self::Mark => "marked CE",
            Self::Cut => "while the port was down",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loss => "lost",
            Self::Dup => "duplicated",
            Self::Reorder => "reordered",
            Self::Corrupt => "corrupted",
            Self::Overflow => "lost, queue full",
            Self::Mark => "marked CE",
            Self::Cut => "lost, port down",
        })
    }
}

/// The faults that one packet met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FaultSet(u8);

impl FaultSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// Adds a fault.
    pub fn insert(&mut self, kind: FaultKind) {
        self.0 |= 1 << kind as u8;
    }

    /// Adds those of another set.
    pub fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether a fault is among them.
    pub const fn contains(self, kind: FaultKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The faults, in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl fmt::Display for FaultSet {
    /// `duplicated; corrupted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, kind) in self.iter().enumerate() {
            write!(f, "{}{kind}", if place == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
