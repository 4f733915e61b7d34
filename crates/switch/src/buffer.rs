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
                None => (u128::from(free) * u128::from(n) / u128::from(d)) as u64,
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
