//! Quantities with a unit: points in time, spans, rates. Integer arithmetic only, so that the same
//! inputs give the same outputs on every machine.

use core::fmt;

/// Picoseconds in one microsecond.
pub const PS_PER_US: u64 = 1_000_000;
/// Picoseconds in one second.
pub const PS_PER_SEC: u64 = 1_000_000_000_000;

/// A point in time, in picoseconds since an arbitrary origin (device open, or the start of a
/// simulation). 64 bits hold 213 days and then wrap, so two instants are compared with
/// [`Instant::is_before`], never by order; the distance compared must be below 106 days.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// The instant `ps` picoseconds after the origin.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// The instant `ns` nanoseconds after the origin (wraps after 213 days).
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.wrapping_mul(1000))
    }

    /// Picoseconds since the origin.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Whether this instant lies strictly before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i64) < 0
    }

    /// Whether a deadline of `self` has been reached at `now`.
    pub const fn is_due(self, now: Self) -> bool {
        !now.is_before(self)
    }

    /// The earlier of the two.
    pub const fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        if self.is_before(earlier) { Span(0) } else { Span(self.0.wrapping_sub(earlier.0)) }
    }
}

impl core::ops::Add<Span> for Instant {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.wrapping_add(span.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+{:?}", Span(self.0))
    }
}

/// A length of time, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }
    /// `ns` nanoseconds; saturates.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1000))
    }
    /// `us` microseconds; saturates.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(PS_PER_US))
    }
    /// `ms` milliseconds; saturates.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1000 * PS_PER_US))
    }
    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }
    /// Whole nanoseconds, rounded up, so that a sleeper never wakes before the deadline.
    pub const fn as_ns_ceil(self) -> u64 {
        self.0.div_ceil(1000)
    }
    /// This span `n` times over; saturates.
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl core::ops::Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ps if ps % PS_PER_US == 0 => write!(f, "{}us", ps / PS_PER_US),
            ps => write!(f, "{}ps", ps),
        }
    }
}

/// A data rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rate(u64);

impl Rate {
    /// `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }
    /// `gbps` gigabits per second.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps.saturating_mul(1_000_000_000))
    }
    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }
    /// The time that `bytes` bytes take at this rate, rounded up to a picosecond.
    pub const fn time_for(self, bytes: u64) -> Span {
        if self.0 == 0 {
            return Span(u64::MAX);
        }
        let ps = (bytes as u128 * 8 * PS_PER_SEC as u128).div_ceil(self.0 as u128);
        Span(if ps > u64::MAX as u128 { u64::MAX } else { ps as u64 })
    }
}
