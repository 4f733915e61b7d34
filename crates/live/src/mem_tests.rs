//! Placement: order, words, all sizes and alignments.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::{AtomicOp, HostMemory, Payload};

use super::*;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn every_small_size_and_alignment_both_ways() {
    let region = Region::allocate(4096).unwrap();
    for offset in 0..17 {
        for len in 0..300 {
            region.write(0, &[0xEE; 512]);
            let data = pattern(len, 7);
            region.write(offset, &data);
            let mut all = [0; 512];
            region.read(0, &mut all);
            assert!(all[..offset].iter().all(|b| *b == 0xEE), "before {offset}+{len}");
            assert_eq!(all[offset..offset + len], data[..], "at {offset}+{len}");
            assert!(all[offset + len..].iter().all(|b| *b == 0xEE), "behind {offset}+{len}");
            let mut back = vec![0; len];
            region.read(offset, &mut back);
            assert_eq!(back, data);
        }
    }
}

#[test]
fn who_sees_the_last_byte_sees_all() {
    let region = Region::allocate(8192 + 16).unwrap();
    let go = AtomicU64::new(u64::MAX);
    /// Lets the writer end when the reader has failed.
    struct Over<'a>(&'a AtomicU64);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(u64::MAX - 1, Ordering::Release);
        }
    }
    // Each round writes `round` into every byte; the reader spins on the last one only.
    let sizes: Vec<usize> =
        (1..=8192).step_by(if cfg!(debug_assertions) { 7 } else { 1 }).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (n, &size) in sizes.iter().enumerate() {
                loop {
                    match go.load(Ordering::Acquire) {
                        at if at == n as u64 => break,
                        at if at == u64::MAX - 1 => return,
                        _ => std::thread::yield_now(),
                    }
                }
                let mark = (n % 255) as u8 + 1;
                let mut memory = ProcessMemory::new();
                let data = vec![mark; size];
                memory.write(region.addr() + (n % 9) as u64, Payload::Bytes(&data)).unwrap();
            }
        });
        let _over = Over(&go);
        let mut seen = vec![0; 8192];
        for (n, &size) in sizes.iter().enumerate() {
            let (mark, offset) = ((n % 255) as u8 + 1, n % 9);
            region.write(0, &vec![0; size + offset]);
            go.store(n as u64, Ordering::Release);
            let mut spins = 0_u32;
            while region.load_u8(offset + size - 1) != mark {
                spins += 1;
                if spins.is_multiple_of(64) {
                    std::thread::yield_now();
                }
            }
            region.read(offset, &mut seen[..size]);
            assert!(seen[..size].iter().all(|b| *b == mark), "size {size} at {offset}");
        }
    });
}

#[test]
fn aligned_words_are_never_torn() {
    const WORDS: usize = 200;
    let region = Region::allocate(WORDS * 8 + 64).unwrap();
    let stop = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut memory = ProcessMemory::new();
            let mut round = 0_u8;
            while stop.load(Ordering::Relaxed) == 0 {
                round = round.wrapping_add(1);
                // Ends in the middle of a word, starts in one, or both; whole words in between.
                let (from, len) = (usize::from(round % 8), WORDS * 8 - usize::from(round % 13));
                memory
                    .write(region.addr() + from as u64, Payload::Bytes(&vec![round; len]))
                    .unwrap();
            }
        });
        let mut copy = vec![0; WORDS * 8 + 5];
        for round in 0..20_000 {
            // The first and the last two words are written in parts, by design.
            for word in 1..WORDS - 2 {
                let value = region.load_u64(word * 8).to_ne_bytes();
                assert!(value.iter().all(|b| *b == value[0]), "torn in memory: {value:x?}");
            }
            // A destination of any alignment must not tear the source's words.
            let shift = round % 8;
            region.read(0, &mut copy[shift..WORDS * 8 - 4]);
            for word in 1..WORDS - 3 {
                let value = &copy[shift + word * 8..][..8];
                assert!(value.iter().all(|b| *b == value[0]), "torn when read: {value:x?}");
            }
        }
        stop.store(1, Ordering::Relaxed);
    });
}

#[test]
fn atomics_are_atomic_against_the_host() {
    const ROUNDS: u64 = 100_000;
    let region = Region::allocate(64).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut memory = ProcessMemory::new();
            for _ in 0..ROUNDS {
                memory.atomic(region.addr() + 8, AtomicOp::FetchAdd { add: 1 }).unwrap();
            }
        });
        let mut memory = ProcessMemory::new();
        for _ in 0..ROUNDS {
            memory.atomic(region.addr() + 8, AtomicOp::FetchAdd { add: 1 }).unwrap();
        }
    });
    assert_eq!(region.load_u64(8), 2 * ROUNDS);
    let mut memory = ProcessMemory::new();
    let swap = AtomicOp::CompareSwap { compare: 2 * ROUNDS, swap: 5 };
    assert_eq!(memory.atomic(region.addr() + 8, swap), Ok(2 * ROUNDS));
    assert_eq!(memory.atomic(region.addr() + 8, swap), Ok(5));
    assert_eq!(region.load_u64(8), 5);
    assert!(memory.atomic(region.addr() + 4, swap).is_err());
}
