//! Numbers drawn from a seed, by integers only: the same on every machine.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use wire::Span;

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Draw(Pcg64Mcg);

/// Fraction bits of logarithms.
const BITS: u32 = 32;
/// ln 2 of 2^32.
const LN_2: u64 = 2_977_044_472;

impl Draw {
    /// From a seed and a stream, so that what is drawn for one thing does not move another.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..].copy_from_slice(&stream.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        Self(Pcg64Mcg::from_seed(bytes))
    }

    /// An even number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A time that is exponentially distributed around `mean`.
    pub fn exponential(&mut self, mean: Span) -> Span {
        let part = u128::from(mean.as_ps()) * u128::from(minus_ln(self.0.next_u64()));
        Span::from_ps((part >> BITS).min(u128::from(u64::MAX)) as u64)
    }

    /// Puts a list into an even random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// `-ln((u + 1) / 2^64)`, of 2^32: the binary logarithm bit by bit, by squaring.
fn minus_ln(u: u64) -> u64 {
    if u == u64::MAX {
        return 0;
    }
    let u = u + 1;
    let zeros = u.leading_zeros();
    // 1 ≤ x < 2, of 2^63.
    let mut x = u << zeros;
    let mut log = 0_u64;
    for _ in 0..BITS {
        let square = u128::from(x) * u128::from(x);
        log <<= 1;
        if square >> 127 != 0 {
            log |= 1;
            x = (square >> 64) as u64;
        } else {
            x = (square >> 63) as u64;
        }
    }
    // u / 2^64 = x × 2^-(zeros + 1).
    let binary = ((u64::from(zeros) + 1) << BITS) - log;
    ((u128::from(binary) * u128::from(LN_2)) >> BITS) as u64
}

/// How large flows are: points of the distribution, bytes and the part that is not larger, in parts
/// of 10^4, ascending to 10^4; between them it rises evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes(pub &'static [(u64, u32)]);

/// Parts in the whole.
const PARTS: u64 = 10_000;

impl Sizes {
    /// Web search (DCTCP, SIGCOMM 2010; as the HPCC generator has it).
    pub const WEB_SEARCH: Self = Self(&[
        (0, 0),
        (10_000, 1500),
        (20_000, 2000),
        (30_000, 3000),
        (50_000, 4000),
        (80_000, 5300),
        (200_000, 6000),
        (1_000_000, 7000),
        (2_000_000, 8000),
        (5_000_000, 9000),
        (10_000_000, 9700),
        (30_000_000, 10_000),
    ]);
    /// Hadoop at Facebook (Roy et al., SIGCOMM 2015; as the HPCC generator has it).
    pub const HADOOP: Self = Self(&[
        (0, 0),
        (100, 100),
        (200, 200),
        (300, 500),
        (350, 1500),
        (400, 2000),
        (500, 3000),
        (600, 4000),
        (700, 5000),
        (1_000, 6000),
        (2_000, 6700),
        (7_000, 7000),
        (30_000, 7200),
        (50_000, 8200),
        (80_000, 8700),
        (120_000, 9000),
        (300_000, 9500),
        (1_000_000, 9750),
        (2_000_000, 9900),
        (10_000_000, 10_000),
    ]);
    /// Storage at Alibaba, 2019 (as the HPCC generator has it).
    pub const STORAGE: Self = Self(&[
        (0, 0),
        (4_000, 2293),
        (8_000, 6921),
        (16_000, 8061),
        (32_000, 9047),
        (64_000, 9353),
        (128_000, 9677),
        (256_000, 9753),
        (2_000_000, 10_000),
    ]);

    /// A distribution by its name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "web-search" => Some(Self::WEB_SEARCH),
            "hadoop" => Some(Self::HADOOP),
            "storage" => Some(Self::STORAGE),
            _ => None,
        }
    }

    /// A size: at least one byte.
    pub fn draw(self, draw: &mut Draw) -> u64 {
        let fine = 1 << 20;
        let at = draw.below(PARTS * fine);
        let after = self.0.iter().position(|(_, part)| u64::from(*part) * fine > at);
        let Some(index) = after.filter(|i| *i > 0) else { return 1 };
        let ((low, from), (high, to)) = (self.0[index - 1], self.0[index]);
        let (from, to) = (u64::from(from) * fine, u64::from(to) * fine);
        let part = u128::from(high - low) * u128::from(at - from) / u128::from(to - from);
        (low + part as u64).max(1)
    }

    /// The mean, in bytes.
    pub fn mean(self) -> u64 {
        let steps = self.0.windows(2);
        let twice = steps.map(|w| (w[0].0 + w[1].0) * u64::from(w[1].1 - w[0].1)).sum::<u64>();
        twice / (2 * PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_of_known_numbers() {
        let one = 1_u64 << BITS;
        for (u, expected) in [
            (u64::MAX, 0.0),
            (u64::MAX / 2, std::f64::consts::LN_2),
            (0, 64.0 * std::f64::consts::LN_2),
            (u64::MAX / 10, 10_f64.ln()),
        ] {
            let got = minus_ln(u) as f64 / one as f64;
            assert!((got - expected).abs() < 1e-8, "{u}: {got}, not {expected}");
        }
    }

    #[test]
    fn means_of_what_is_drawn() {
        let mut draw = Draw::new(1, 2);
        let all: u64 = (0..100_000).map(|_| draw.exponential(Span::from_us(10)).as_ps()).sum();
        let mean = all / 100_000;
        assert!((9_900_000..10_100_000).contains(&mean), "{mean}");
        for (sizes, published) in
            [(Sizes::WEB_SEARCH, 1_710_000), (Sizes::HADOOP, 120_000), (Sizes::STORAGE, 41_000)]
        {
            let near = published * 9 / 10..published * 11 / 10;
            assert!(near.contains(&sizes.mean()), "{} {published}", sizes.mean());
            let all: u64 = (0..100_000).map(|_| sizes.draw(&mut draw)).sum();
            assert!(near.contains(&(all / 100_000)), "{} {published}", all / 100_000);
        }
    }
}
