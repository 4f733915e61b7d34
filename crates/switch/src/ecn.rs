//! Whether a packet is marked: RED on the length of its queue (DCQCN paper, section 3.1), in
//! integers.

use crate::config::EcnProfile;
use crate::hash::draw;

/// Fraction bits of an average.
const FRACTION: u32 = 16;
/// Chances are parts of this.
const ONE: u64 = 1_000_000_000;

/// Marking of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Red {
    pub(crate) profile: EcnProfile,
    /// The average length, with `FRACTION` bits after the point.
    average: u64,
}

impl Red {
    pub(crate) fn new(profile: EcnProfile) -> Self {
        Self { profile, average: 0 }
    }

    /// Whether a packet that finds this length is marked.
    pub(crate) fn marks(&mut self, length: u64, seed: &mut u64) -> bool {
        let shift = u32::from(self.profile.average_shift.min(31));
        let counted = if shift == 0 {
            length
        } else {
            let sample = length << FRACTION;
            self.average = if sample >= self.average {
                self.average + ((sample - self.average) >> shift)
            } else {
                self.average - ((self.average - sample) >> shift)
            };
            self.average >> FRACTION
        };
        let chance = chance(&self.profile, counted);
        chance >= ONE || (chance > 0 && ((draw(seed) >> 32) * ONE) >> 32 < chance)
    }
}

/// The chance of a mark at a queue length, in parts of 10^9.
pub fn chance(profile: &EcnProfile, length: u64) -> u64 {
    if length <= profile.kmin && length <= profile.kmax {
        return 0;
    }
    if length > profile.kmax {
        return ONE;
    }
    let (above, width) = (length - profile.kmin, profile.kmax - profile.kmin);
    let pmax = u64::from(profile.pmax_ppb);
    match above.checked_mul(pmax) {
        Some(product) => product / width,
        None => (u128::from(above) * u128::from(pmax) / u128::from(width)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EcnAt;

    const PAPER: EcnProfile = EcnProfile {
        kmin: 5_000,
        kmax: 200_000,
        pmax_ppb: 10_000_000,
        at: EcnAt::Enqueue,
        average_shift: 0,
    };

    #[test]
    fn chances_of_the_paper() {
        assert_eq!(chance(&PAPER, 5_000), 0);
        assert_eq!(chance(&PAPER, 102_500), 5_000_000);
        assert_eq!(chance(&PAPER, 200_000), 10_000_000);
        assert_eq!(chance(&PAPER, 200_001), ONE);
        let step = EcnProfile { kmin: 40_000, kmax: 40_000, ..PAPER };
        assert_eq!((chance(&step, 40_000), chance(&step, 40_001)), (0, ONE));
        let odd = EcnProfile { kmin: 9, kmax: 3, ..PAPER };
        assert_eq!((chance(&odd, 3), chance(&odd, 4)), (0, ONE));
    }

    #[test]
    fn the_fraction_marked_is_the_chance() {
        let mut red = Red::new(EcnProfile { pmax_ppb: 200_000_000, ..PAPER });
        let mut seed = 7;
        let marked = (0..1_000_000).filter(|_| red.marks(102_500, &mut seed)).count();
        // Mean 100,000, standard deviation 300.
        assert!(marked.abs_diff(100_000) < 1_200, "{marked} marks");
    }

    #[test]
    fn an_average_follows_slowly() {
        let mut red = Red::new(EcnProfile { kmin: 100, kmax: 100, average_shift: 3, ..PAPER });
        let mut seed = 1;
        // 1000 (1 - (7/8)^n): 125, so the first sample is beyond 100 already.
        assert!(red.marks(1000, &mut seed));
        let mut slow = Red::new(EcnProfile { kmin: 500, kmax: 500, average_shift: 3, ..PAPER });
        let first = (1..).find(|_| slow.marks(1000, &mut seed));
        // (7/8)^n < 1/2 from n = 6 on.
        assert_eq!(first, Some(6));
    }
}
