//! How far apart two processors are: the time in which a cache line goes from one to the other.
//!
//! A hypervisor moves virtual processors about: within one cache a line takes some 40 ns, between
//! two 150 ns and more, and all that hands bytes from one processor to the other then runs at less
//! than half its speed. Figures taken at different distances do not compare.

use bench_programs::report;
use clap::Parser;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Time of a cache line between the first two processors allowed, as JSON")]
struct Args {
    /// There and back so many times; the fastest of several such rounds counts.
    #[arg(short = 'n', long, default_value_t = 4000)]
    iterations: u32,
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

fn stay_on(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Waits until the line holds `value`; gives way now and then, should both share a processor.
fn wait_for(line: &AtomicU32, value: u32) {
    let mut vain = 0_u32;
    while line.load(Ordering::Acquire) != value {
        vain = vain.wrapping_add(1);
        match vain % 4096 {
            0 => thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Nanoseconds one way.
fn round(cpus: (usize, usize), iterations: u32) -> io::Result<f64> {
    let line = AtomicU32::new(0);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            // Answers even where it may not choose its processor: the other waits for it.
            let placed = stay_on(cpus.1);
            for i in 0..iterations {
                wait_for(&line, 2 * i + 1);
                line.store(2 * i + 2, Ordering::Release);
            }
            placed
        });
        let placed = stay_on(cpus.0);
        let start = Instant::now();
        for i in 0..iterations {
            line.store(2 * i + 1, Ordering::Release);
            wait_for(&line, 2 * i + 2);
        }
        let time = start.elapsed();
        other.join().map_err(|_| io::Error::other("the other thread panicked"))??;
        placed?;
        Ok(time.as_nanos() as f64 / f64::from(iterations.max(1)) / 2.0)
    })
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    let mut best = 0.0;
    // One processor alone has no distance.
    if let (Some(a), Some(b)) = (cpus.next(), cpus.next()) {
        best = f64::MAX;
        for _ in 0..args.rounds.max(1) {
            best = round((a, b), args.iterations.min(1 << 30))?.min(best);
        }
    }
    report("core_distance", &[("ns", best)]);
    Ok(())
}
