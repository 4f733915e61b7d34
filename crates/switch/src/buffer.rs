//! The memory that all ports share: reserve, shared pool, headroom. Whether a frame has room, and
//! whether an ingress has to stop its neighbour. Frames themselves lie in the queues of `port`.

use crate::config::{Alpha, Buffer, PfcPriority};
use crate::counters::DropCause;

/// A dynamic threshold, in the cheapest form that is exact.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    Shift(u32),
    Times(u32),
    Ratio(u32, u32),
}

impl Share {
    pub(crate) fn new(alpha: Alpha) -> Self {
        match (alpha.numerator, alpha.denominator) {
            (n, 0 | 1) => Self::Times(n),
            (1, d) if d.is_power_of_two() => Self::Shift(d.trailing_zeros()),
            (n, d) => Self::Ratio(n, d),
        }
    }

    pub(crate) fn of(self, free: u64) -> u64 {
        match self {
            Self::Shift(by) => free >> by,
            Self::Times(n) => free.saturating_mul(u64::from(n)),
            Self::Ratio(n, d) => match free.checked_mul(u64::from(n)) {
                Some(product) => product / u64::from(d),
                None => {
                    let product = u128::from(free) * u128::from(n) / u128::from(d);
                    u64::try_from(product).unwrap_or(u64::MAX)
                }
            },
        }
    }
}

/// What came in by one port at one priority and has not left.
#[derive(Clone, Debug)]
pub(crate) struct Ingress {
    /// Bytes in the reserve and, beyond it, in the shared pool.
    pub(crate) used: u64,
    /// Bytes in the headroom.
    pub(crate) headroom: u64,
    /// A lossless priority's limits.
    pub(crate) pfc: Option<PfcPriority>,
    pub(crate) share: Share,
}

impl Ingress {
    /// Of frames that stop nobody.
    pub(crate) fn lossy() -> Self {
        Self { used: 0, headroom: 0, pfc: None, share: Share::Shift(0) }
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.used + self.headroom
    }

    fn reserve(&self, memory: &Memory) -> u64 {
        if self.pfc.is_some() { memory.reserve } else { 0 }
    }
}

/// The shared memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes of the shared pool.
    pub(crate) pool: u64,
    /// How many of them are taken.
    pub(crate) shared: u64,
    reserve: u64,
    egress: Option<Share>,
    cell: u32,
}

impl Memory {
    /// `kept` bytes are headroom and reserve of ports.
    pub(crate) fn new(buffer: &Buffer, kept: u64) -> Self {
        Self {
            pool: buffer.total.saturating_sub(kept),
            shared: 0,
            reserve: buffer.reserve,
            egress: buffer.egress_alpha.map(Share::new),
            cell: buffer.cell.max(1),
        }
    }

    /// What a frame takes; none if no buffer can hold it.
    pub(crate) fn charge(&self, length: u32) -> Option<u32> {
        if self.cell == 1 {
            return Some(length.max(1));
        }
        length.max(1).checked_next_multiple_of(self.cell)
    }

    /// Shared bytes at which an ingress has to stop its neighbour.
    pub(crate) fn threshold(&self, ingress: &Ingress) -> u64 {
        match ingress.pfc.and_then(|pfc| pfc.xoff) {
            Some(bytes) => bytes,
            None => ingress.share.of(self.pool.saturating_sub(self.shared)),
        }
    }

    /// Takes room for a frame: of the reserve, then of the shared pool up to the threshold, then of
    /// the headroom. A lossy priority has only the shared pool, and its egress queue a share of it.
    pub(crate) fn admit(
        &mut self,
        ingress: &mut Ingress,
        queued: u64,
        charge: u64,
    ) -> Result<(), DropCause> {
        let free = self.pool.saturating_sub(self.shared);
        let Some(pfc) = ingress.pfc else {
            let full = self.egress.is_some_and(|share| queued + charge > share.of(free));
            if charge > free || full {
                return Err(DropCause::Buffer);
            }
            ingress.used += charge;
            self.shared += charge;
            return Ok(());
        };
        let after = ingress.used + charge;
        if after > self.reserve {
            let beyond = after - self.reserve;
            let more = beyond.min(charge);
            if beyond > self.threshold(ingress) || more > free {
                if ingress.headroom + charge > pfc.headroom {
                    return Err(DropCause::Headroom);
                }
                ingress.headroom += charge;
                return Ok(());
            }
            self.shared += more;
        }
        ingress.used = after;
        Ok(())
    }

    /// Gives room back: of the headroom first, then of the pool, the reserve last.
    pub(crate) fn release(&mut self, ingress: &mut Ingress, charge: u64) {
        let from_headroom = ingress.headroom.min(charge);
        let rest = charge - from_headroom;
        let shared = ingress.used.saturating_sub(ingress.reserve(self));
        self.shared -= shared.min(rest);
        ingress.headroom -= from_headroom;
        ingress.used -= rest;
    }

    /// Changes whether an ingress is lossless. What lies in the headroom stays there.
    pub(crate) fn reclassify(&mut self, ingress: &mut Ingress, pfc: Option<PfcPriority>) {
        self.shared -= ingress.used.saturating_sub(ingress.reserve(self));
        ingress.pfc = pfc;
        self.shared += ingress.used.saturating_sub(ingress.reserve(self));
    }

    /// Whether the neighbour has to be stopped.
    pub(crate) fn must_stop(&self, ingress: &Ingress) -> bool {
        let shared = ingress.used.saturating_sub(self.reserve);
        ingress.pfc.is_some() && (ingress.headroom > 0 || shared >= self.threshold(ingress))
    }

    /// Whether a stopped neighbour may go on.
    pub(crate) fn may_resume(&self, ingress: &Ingress) -> bool {
        let Some(pfc) = ingress.pfc else { return true };
        let shared = ingress.used.saturating_sub(self.reserve);
        ingress.headroom == 0
            && (shared == 0 || shared.saturating_add(pfc.xon_offset) <= self.threshold(ingress))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ingress(lossless: bool, xoff: Option<u64>) -> Ingress {
        let pfc = PfcPriority { headroom: 3_000, xoff, xon_offset: 500, quanta: 1 };
        let share = Share::new(Alpha { numerator: 1, denominator: 2 });
        Ingress { used: 0, headroom: 0, pfc: lossless.then_some(pfc), share }
    }

    #[test]
    fn dynamic_thresholds_are_exact() {
        let of =
            |numerator, denominator, free| Share::new(Alpha { numerator, denominator }).of(free);
        assert_eq!((of(1, 8, 80_007), of(8, 1, 1_000), of(3, 7, 100)), (10_000, 8_000, 42));
        assert_eq!(of(3, 4, u64::MAX), u64::MAX - (1 << 62));
        assert_eq!(of(u32::MAX, 2, u64::MAX / 2), u64::MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// What is taken of the pool is what lies beyond the reserves, at each moment; nobody is
        /// refused while the headroom has room; and in the end all is free.
        #[test]
        fn the_pool_is_what_lies_beyond_the_reserves(
            steps in prop::collection::vec((0..4_usize, any::<bool>(), 1..2_000_u64), 1..200),
        ) {
            let alpha = Alpha { numerator: 1, denominator: 2 };
            let buffer =
                Buffer { total: 40_000, reserve: 1_000, alpha, egress_alpha: None, cell: 0 };
            let mut memory = Memory::new(&buffer, 3 * 4_000);
            let mut all = [
                ingress(true, None),
                ingress(true, Some(5_000)),
                ingress(true, None),
                ingress(false, None),
            ];
            let mut held: [Vec<u64>; 4] = Default::default();
            for (which, comes, bytes) in steps {
                if comes {
                    let before = all[which].clone();
                    match memory.admit(&mut all[which], 0, bytes) {
                        Ok(()) => held[which].push(bytes),
                        Err(DropCause::Headroom) => {
                            prop_assert!(before.headroom + bytes > 3_000);
                            prop_assert_eq!(all[which].bytes(), before.bytes());
                        }
                        Err(cause) => {
                            prop_assert_eq!((cause, which), (DropCause::Buffer, 3));
                            prop_assert!(memory.shared + bytes > memory.pool);
                        }
                    }
                } else if let Some(bytes) = held[which].pop() {
                    memory.release(&mut all[which], bytes);
                }
                let beyond = |i: &Ingress| i.used.saturating_sub(i.reserve(&memory));
                prop_assert_eq!(memory.shared, all.iter().map(beyond).sum::<u64>());
                prop_assert!(memory.shared <= memory.pool);
                for (ingress, held) in all.iter().zip(&held) {
                    prop_assert_eq!(ingress.bytes(), held.iter().sum::<u64>());
                    prop_assert!(ingress.headroom <= 3_000);
                    prop_assert!(ingress.headroom == 0 || memory.must_stop(ingress));
                }
            }
            for (ingress, held) in all.iter_mut().zip(held) {
                held.into_iter().for_each(|bytes| memory.release(ingress, bytes));
                prop_assert!(memory.may_resume(ingress));
            }
            prop_assert_eq!(memory.shared, 0);
        }
    }
}
