//! Random choices of a test, all from one number.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A generator with the few draws that tests need.
pub struct Dice(Pcg64Mcg);

impl Dice {
    /// The dice of a seed; each `purpose` has its own.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// An even number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// An even number of a range.
    pub fn range(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True in `percent` of a hundred draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}
