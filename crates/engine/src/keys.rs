//! Numbers that cannot be guessed: keys, queue pair numbers. The public attacks on RoCE lean on
//! predictable ones.

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

/// A source of numbers that cannot be guessed from one another, reproducible from a seed.
#[derive(Debug)]
pub(crate) struct Keys(ChaCha12Rng);

impl Keys {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    pub(crate) fn draw(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Draws until `free` accepts; the caller's tables are far smaller than the number space.
    pub(crate) fn draw_until(&mut self, mut free: impl FnMut(u32) -> bool) -> u32 {
        loop {
            let n = self.draw();
            if free(n) {
                return n;
            }
        }
    }
}
