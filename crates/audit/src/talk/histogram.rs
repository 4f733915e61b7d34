//! Times by magnitude: 512 bytes for any number of them, each known to a quarter of its octave.

/// Counts of times.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Box<[u32; Self::BUCKETS]>,
    total: u64,
    least: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; Self::BUCKETS]), total: 0, least: u64::MAX, most: 0 }
    }
}

impl Histogram {
    /// 32 octaves from 64 ns to 4.6 minutes, four parts each.
    const BUCKETS: usize = 128;
    const LOWEST: u64 = 64;

    /// Adds a time in nanoseconds.
    pub(super) fn add(&mut self, ns: u64) {
        let bucket = Self::bucket(ns);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.total += 1;
        self.least = self.least.min(ns);
        self.most = self.most.max(ns);
    }

    fn bucket(ns: u64) -> usize {
        let ns = ns.max(Self::LOWEST);
        let octave = ns.ilog2();
        let part = (ns >> (octave - 2)) & 3;
        (((octave - Self::LOWEST.ilog2()) as usize) * 4 + part as usize).min(Self::BUCKETS - 1)
    }

    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.total
    }

    /// The time below which `share` of them lie, interpolated in its bucket; nanoseconds.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        match self.total {
            0 => return 0,
            _ if share <= 0.0 => return self.least,
            _ if share >= 1.0 => return self.most,
            _ => {}
        }
        let wanted = (share * self.total as f64).max(1.0);
        let mut below = 0.0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            let count = f64::from(count);
            if count > 0.0 && below + count >= wanted {
                let (low, high) = Self::bounds(bucket);
                let value = low + (high - low) * (wanted - below) / count;
                return (value as u64).clamp(self.least, self.most);
            }
            below += count;
        }
        self.most
    }

    fn bounds(bucket: usize) -> (f64, f64) {
        let base = (Self::LOWEST as f64) * 2f64.powi((bucket / 4) as i32);
        let part = (bucket % 4) as f64;
        (base * (1.0 + part / 4.0), base * (1.25 + part / 4.0))
    }

    /// Least, median, 99th percentile, most, in microseconds; `None` if there is none.
    pub(super) fn summary_us(&self) -> Option<[f64; 4]> {
        (self.total > 0).then(|| {
            [self.least, self.quantile(0.5), self.quantile(0.99), self.most]
                .map(|ns| ns as f64 / 1000.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_a_quarter_octave() {
        let mut histogram = Histogram::default();
        for ns in 1..=10_000u64 {
            histogram.add(ns * 100);
        }
        for (share, right) in [(0.5, 500_000.0), (0.99, 990_000.0)] {
            let got = histogram.quantile(share) as f64;
            assert!((got / right - 1.0).abs() < 0.13, "{share}: {got}, {right}");
        }
        assert_eq!(histogram.summary_us().map(|s| (s[0], s[3])), Some((0.1, 1000.0)));
    }

    #[test]
    fn extremes_have_a_place() {
        let mut histogram = Histogram::default();
        histogram.add(0);
        histogram.add(u64::MAX);
        assert_eq!((histogram.quantile(0.0), histogram.quantile(1.0)), (0, u64::MAX));
    }
}
