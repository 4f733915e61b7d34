//! How fast the device copies registered memory: nanoseconds a copy, both ways, for packets of
//! several sizes, with `memcpy` beside them in the same run.
//!
//! The copies are the device's own (`Region::read`, `Region::write`): in ascending order, the last
//! byte last, aligned words whole, faults caught. `memcpy` promises none of that.

use std::hint::black_box;
use std::time::Instant;

use bench_programs::{quantile, report};
use clap::Parser;
use crocevia::Region;

#[derive(Parser)]
#[command(about = "Nanoseconds a copy of registered memory, beside memcpy; one JSON line a size")]
struct Args {
    /// Bytes of a copy.
    #[arg(short, long, value_delimiter = ',', default_values_t = [8, 64, 256, 1024, 4096, 65_536])]
    sizes: Vec<usize>,
    /// Bytes from the beginning of a word at which the copies begin in the registered memory.
    #[arg(short, long, default_value_t = 0)]
    offset: usize,
    /// Rounds; the median of them counts.
    #[arg(short, long, default_value_t = 41)]
    rounds: usize,
}

/// Bytes moved in a round, at least.
const ROUND_BYTES: usize = 8 << 20;
/// Copies in a round, at most.
const ROUND_COPIES: usize = 200_000;

/// Picoseconds that one call takes.
fn time(copies: usize, mut copy: impl FnMut(usize)) -> u64 {
    let start = Instant::now();
    for i in 0..copies {
        copy(i);
    }
    (start.elapsed().as_nanos() as u64).saturating_mul(1000) / copies as u64
}

fn main() -> Result<(), crocevia::Error> {
    let args = Args::parse();
    for &size in &args.sizes {
        // A few buffers in turn, all in the cache.
        let span = (size + 64).next_multiple_of(64);
        let turns = ((256 << 10) / span).clamp(1, 16);
        let region = Region::allocate(span * turns + 64)?;
        let mut plain = vec![0_u8; span * turns + 64];
        let mut buffer = vec![0x5a_u8; size];
        let copies = (ROUND_BYTES / size.max(1)).clamp(1, ROUND_COPIES);
        let (mut reads, mut writes, mut plains) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            let at = |i: usize| (i % turns) * span + args.offset;
            writes.push(time(copies, |i| region.write(at(i), black_box(&buffer))));
            plains.push(time(copies, |i| {
                black_box(&mut plain[at(i)..at(i) + size]).copy_from_slice(black_box(&buffer));
            }));
            reads.push(time(copies, |i| region.read(at(i), black_box(&mut buffer))));
        }
        let ns = |samples: &mut Vec<u64>| {
            samples.sort_unstable();
            quantile(samples, 0.5) as f64 / 1e3
        };
        let (read, write, plain) = (ns(&mut reads), ns(&mut writes), ns(&mut plains));
        let figures = [
            ("bytes", size as f64),
            ("read_ns", read),
            ("write_ns", write),
            ("memcpy_ns", plain),
            ("read_gb_per_s", size as f64 / read.max(1e-3)),
            ("write_gb_per_s", size as f64 / write.max(1e-3)),
        ];
        report("memory_copy", &figures);
    }
    Ok(())
}
