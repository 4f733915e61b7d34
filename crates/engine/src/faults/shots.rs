//! Faults that happen once, at a packet or at a time: to a packet, to a queue pair, to a queue, to
//! the port. When they are due is the stage's matter, what they do to a device is in `strike`.

use std::fmt;

use wire::{Instant, Span};

/// What happens once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ShotKind {
    /// The packet vanishes; with a duration, all that come within it do.
    Drop,
    /// The packet comes twice.
    Dup,
    /// Later packets overtake it.
    Reorder,
    /// A bit of it flips.
    Corrupt,
    /// The packet's own queue pair fails as by a fatal error of the device.
    QpError,
    /// The completion queue that the packet's work completes into overruns.
    CqOverrun,
    /// The received request is answered that no receive request is there.
    Rnr,
    /// The received request is answered as if one before it were missing.
    NakSequence,
    /// The received request is refused as invalid.
    NakInvalid,
    /// The received request is refused for its key, range or right.
    NakAccess,
    /// The received request is refused as if the memory had failed.
    NakOperation,
    /// The port's link goes down; with a duration, up again after it.
    PortDown,
    /// The port's link comes up.
    PortUp,
    /// The device fails: every queue pair does, and no packet passes any more.
    DeviceFatal,
}

impl ShotKind {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Drop,
        Self::Dup,
        Self::Reorder,
        Self::Corrupt,
        Self::QpError,
        Self::CqOverrun,
        Self::Rnr,
        Self::NakSequence,
        Self::NakInvalid,
        Self::NakAccess,
        Self::NakOperation,
        Self::PortDown,
        Self::PortUp,
        Self::DeviceFatal,
    ];

    /// The name in specifications.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Dup => "dup",
            Self::Reorder => "reorder",
            Self::Corrupt => "corrupt",
            Self::QpError => "qp_error",
            Self::CqOverrun => "cq_overrun",
            Self::Rnr => "rnr",
            Self::NakSequence => "nak_sequence",
            Self::NakInvalid => "nak_invalid",
            Self::NakAccess => "nak_access",
            Self::NakOperation => "nak_operation",
            Self::PortDown => "port_down",
            Self::PortUp => "port_up",
            Self::DeviceFatal => "device_fatal",
        }
    }

    /// Whether it strikes the packet on its way, not the device.
    pub const fn is_of_the_wire(self) -> bool {
        matches!(self, Self::Drop | Self::Dup | Self::Reorder | Self::Corrupt)
    }

    /// Whether it is the answer to a received request, which is then not executed.
    pub const fn is_answer(self) -> bool {
        matches!(
            self,
            Self::Rnr | Self::NakSequence | Self::NakInvalid | Self::NakAccess | Self::NakOperation
        )
    }

    /// Whether it strikes port or device as a whole, so that it needs no packet.
    pub const fn is_of_the_port(self) -> bool {
        matches!(self, Self::PortDown | Self::PortUp | Self::DeviceFatal)
    }

    /// Whether it may have a duration.
    pub const fn lasts(self) -> bool {
        matches!(self, Self::Drop | Self::PortDown)
    }
}

impl fmt::Display for ShotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When a one-shot fault is due: it strikes the first packet from then on that it fits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum When {
    /// At the packet of this number in its direction; the first is 1.
    Packet(u64),
    /// At this time after the origin of the device's clock, when it was opened.
    Time(Span),
}

/// A one-shot fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shot {
    /// What happens.
    pub kind: ShotKind,
    /// When.
    pub when: When,
    /// For how long, where the kind has a duration.
    pub lasts: Option<Span>,
}

impl Shot {
    /// Whether it is due for the packet of this number, which is there at `now`.
    pub fn is_due(&self, number: u64, now: Instant) -> bool {
        match self.when {
            When::Packet(from) => number >= from,
            When::Time(_) => self.at().is_some_and(|at| at.is_due(now)),
        }
    }

    /// The time that it waits for.
    pub(super) fn at(&self) -> Option<Instant> {
        match self.when {
            When::Packet(_) => None,
            When::Time(after) => Some(Instant::ZERO + after),
        }
    }
}

/// A one-shot fault that has struck.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Struck {
    /// The fault.
    pub shot: Shot,
    /// The number of the packet, if it was one that brought it about.
    pub number: Option<u64>,
    /// When.
    pub at: Instant,
}
