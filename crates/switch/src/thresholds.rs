//! Calculators: how much headroom a pause needs, and where thresholds of pauses and of marks may
//! lie. Integer arithmetic; bytes, with a kilobyte of 1000. What a switch does with them is not
//! here.

use wire::{Rate, Span};

use crate::frame::CONTROL_LENGTH;

/// Bytes that pass at a rate in a time, rounded up.
pub fn bytes_in(rate: Rate, span: Span) -> u64 {
    let bits = u128::from(rate.as_bps()) * u128::from(span.as_ps());
    u64::try_from(bits.div_ceil(8_000_000_000_000)).unwrap_or(u64::MAX)
}

/// How long light takes for so many metres of cable, at 5 ns each.
pub const fn propagation(metres: u64) -> Span {
    Span::from_ns(metres.saturating_mul(5))
}

/// Quanta that a receiver may take to obey a pause (802.3, 31B.3.7): 60 up to 10 Gb/s, 118 up to
/// 40 Gb/s, 394 at 100 Gb/s; above that the same time as at 100 Gb/s is assumed.
pub const fn reaction_quanta(rate: Rate) -> u64 {
    const G: u64 = 1_000_000_000;
    match rate.as_bps() {
        0..=10_000_000_000 => 60,
        10_000_000_001..=40_000_000_000 => 118,
        40_000_000_001..=100_000_000_000 => 394,
        faster => (394 * (faster / G)).div_ceil(100),
    }
}

/// How long so many quanta of 512 bit times last.
pub const fn quanta_time(rate: Rate, quanta: u64) -> Span {
    rate.time_for(quanta.saturating_mul(64))
}

/// Headroom for a link: what arrives at its rate in a round trip and while the peer reacts, the
/// frame that we are sending when the pause is due, the one that the peer is sending when it comes,
/// and the pause itself.
pub fn headroom(rate: Rate, propagation: Span, reaction: Span, mtu: u64) -> u64 {
    bytes_in(rate, propagation.times(2) + reaction)
        .saturating_add(mtu.saturating_mul(2))
        .saturating_add(u64::from(CONTROL_LENGTH))
}

/// What the mlx5 driver keeps free above XOFF: `(301 + 2.16 × metres) × Gb/s + 2.72 × MTU` bytes,
/// at 40 Gb/s at least.
pub fn mlx5_headroom(rate: Rate, metres: u64, mtu: u64) -> u64 {
    let gbps = (rate.as_bps() / 1_000_000_000).max(40);
    let per_gbps = metres.saturating_mul(216).saturating_add(30_100);
    (per_gbps.saturating_mul(gbps).saturating_add(mtu.saturating_mul(272))) / 100
}

/// XOFF and XON of an mlx5 receive buffer of so many bytes; none if it is too small.
pub fn mlx5_thresholds(size: u64, rate: Rate, metres: u64, mtu: u64) -> Option<(u64, u64)> {
    let xoff = size.checked_sub(mlx5_headroom(rate, metres, mtu))?;
    Some((xoff, xoff.checked_sub(mtu.max(9216))?))
}

/// Headroom as the HPCC simulator sets it: three times what a link holds one way.
pub fn hpcc_headroom(rate: Rate, delay: Span) -> u64 {
    // In its order: bytes in the delay, cut to whole ones, times three.
    let bits = u128::from(rate.as_bps()) * u128::from(delay.as_ps());
    u64::try_from(bits / 8_000_000_000_000 * 3).unwrap_or(u64::MAX)
}

/// A switch with a shared buffer, in the terms of the DCQCN paper's section 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedBuffer {
    /// All of it, in bytes.
    pub buffer: u64,
    /// Ports.
    pub ports: u64,
    /// Priorities of each.
    pub priorities: u64,
    /// Headroom of each port and priority, in bytes.
    pub flight: u64,
    /// The largest frame.
    pub mtu: u64,
}

impl SharedBuffer {
    /// The paper's switch: 32 ports of 40 Gb/s, 12 MB, 22.4 KB of headroom.
    pub const TRIDENT2: Self =
        Self { buffer: 12_000_000, ports: 32, priorities: 8, flight: 22_400, mtu: 1500 };

    fn queues(&self) -> u64 {
        self.ports.saturating_mul(self.priorities).max(1)
    }

    /// What is left to share when all headroom is kept; none if that does not fit.
    pub fn shared(&self) -> Option<u64> {
        self.buffer.checked_sub(self.queues().checked_mul(self.flight)?)
    }

    /// The greatest static threshold of pauses: no ingress queue is ever short of headroom.
    pub fn static_xoff(&self) -> Option<u64> {
        Some(self.shared()? / self.queues())
    }

    /// Where such a pause ends: two frames below.
    pub fn static_xon(&self) -> Option<u64> {
        self.static_xoff()?.checked_sub(2 * self.mtu)
    }

    /// Marks below this length come before pauses at the static threshold even if one egress queue
    /// is filled by all ports evenly.
    pub fn static_ecn_bound(&self) -> Option<u64> {
        Some(self.static_xoff()? / self.ports.max(1))
    }

    /// The threshold of pauses when so many bytes are occupied, under a dynamic threshold with
    /// this beta: `beta × (shared - occupied) / priorities`.
    pub fn dynamic_xoff(&self, beta: u64, occupied: u64) -> Option<u64> {
        let free = self.shared()?.saturating_sub(occupied);
        Some(free.checked_mul(beta)? / self.priorities.max(1))
    }

    /// Marks below this length come before pauses at the dynamic threshold.
    pub fn dynamic_ecn_bound(&self, beta: u64) -> Option<u64> {
        let queues = self.queues().checked_mul(beta.checked_add(1)?)?;
        Some(self.shared()?.checked_mul(beta)? / queues)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dcqcn_papers_switch() {
        let switch = SharedBuffer::TRIDENT2;
        let near = |value: Option<u64>, paper: u64| {
            let value = value.expect("it fits");
            assert!(value.abs_diff(paper) <= 100, "{value} bytes, {paper} in the paper");
        };
        near(switch.static_xoff(), 24_470);
        near(switch.static_ecn_bound(), 850);
        near(switch.dynamic_ecn_bound(8), 21_750);
        assert_eq!(switch.static_xoff(), Some(24_475));
        assert_eq!(switch.static_xon(), Some(21_475));
        assert_eq!(switch.dynamic_ecn_bound(8), Some(21_755));
        assert_eq!(switch.dynamic_xoff(8, 265_600), Some(6_000_000));
        // The static bound is below one frame: not feasible, as the paper finds.
        assert!(switch.static_ecn_bound() < Some(switch.mtu));
        assert_eq!(SharedBuffer { buffer: 5_000_000, ..switch }.static_xoff(), None);
    }

    #[test]
    fn headroom_of_the_mlx5_driver() {
        let of = |gbps, metres| mlx5_headroom(Rate::from_gbps(gbps), metres, 4096);
        assert_eq!((of(100, 100), of(400, 100), of(400, 5)), (62_841, 217_941, 135_861));
        // Slower links count as 40 Gb/s.
        assert_eq!(of(10, 7), of(40, 7));
        let thresholds = mlx5_thresholds(262_144, Rate::from_gbps(100), 100, 4096);
        assert_eq!(thresholds, Some((199_303, 190_087)));
        assert_eq!(mlx5_thresholds(60_000, Rate::from_gbps(100), 100, 4096), None);
    }

    #[test]
    fn headroom_of_a_link() {
        let rate = Rate::from_gbps(100);
        let reaction = quanta_time(rate, reaction_quanta(rate));
        assert_eq!(reaction, Span::from_ps(2_017_280));
        // 100 m: 1 us there and back, 12,500 bytes; 394 quanta are 25,216 bytes.
        let room = headroom(rate, propagation(100), reaction, 1522);
        assert_eq!(room, 12_500 + 25_216 + 2 * 1522 + 64);
        assert_eq!(hpcc_headroom(rate, Span::from_us(1)), 37_500);
        assert_eq!(reaction_quanta(Rate::from_gbps(400)), 1576);
        assert_eq!(headroom(Rate::from_gbps(400), Span::from_ps(u64::MAX), reaction, 0) >> 59, 1);
    }

    #[test]
    fn quanta() {
        let of = |gbps, quanta| quanta_time(Rate::from_gbps(gbps), quanta).as_ps();
        assert_eq!((of(10, 1), of(25, 1), of(40, 1)), (51_200, 20_480, 12_800));
        assert_eq!((of(100, 1), of(400, 1)), (5_120, 1_280));
        assert_eq!(of(100, 0xFFFF) / 100_000_000, 3);
        assert_eq!(of(10, 0xFFFF) / 10_000_000, 335);
    }
}
