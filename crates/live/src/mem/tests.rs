//! Memory that has gone, signals that are blocked or taken: each access gives an error, and nothing
//! else happens to the process.

use core::ffi::c_void;
use std::sync::Mutex;

use engine::{AtomicOp, HostMemory, MemoryFault, Payload};

use super::*;

/// One test at a time changes what the process does about signals.
static SIGNALS: Mutex<()> = Mutex::new(());

const PAGE: usize = 4096;

/// Pages of which the middle one is changed.
fn three_pages(change: impl FnOnce(*mut c_void)) -> Region {
    let region = Region::allocate(3 * PAGE).unwrap();
    change((region.addr() + PAGE as u64) as *mut c_void);
    region
}

fn unmapped() -> Region {
    // SAFETY: a page of a region of the test's own; nothing else is put there while it is used.
    three_pages(|page| unsafe {
        libc::mprotect(page, PAGE, libc::PROT_NONE);
    })
}

fn read_only() -> Region {
    // SAFETY: as above.
    three_pages(|page| unsafe {
        libc::mprotect(page, PAGE, libc::PROT_READ);
    })
}

/// A file of one page, mapped for two.
fn cut_off() -> Region {
    // SAFETY: a new file and a new mapping of it, at a place of the kernel's choice.
    unsafe {
        let fd = libc::memfd_create(c"cut".as_ptr(), 0);
        assert_eq!(libc::ftruncate(fd, PAGE as i64), 0);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let none = std::ptr::null_mut();
        let at = libc::mmap(none, 2 * PAGE, rights, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        libc::close(fd);
        Region::from_raw(at.cast(), 2 * PAGE)
    }
}

/// All accesses that touch `at` fail, whatever comes before in them.
fn all_fail(at: u64, reads_too: bool) {
    let mut memory = ProcessMemory::new();
    for (before, len) in [(0, 1), (0, 8), (0, 4096), (1, 2), (3, 100), (8, 16), (64, 4096)] {
        let data = vec![0x5a; len];
        let wrote = memory.write(at - before, Payload::Bytes(&data));
        assert_eq!(wrote, Err(MemoryFault), "{before} {len}");
        let read = load(at - before, &mut vec![0; len]);
        assert_eq!(read, if reads_too { Err(MemoryFault) } else { Ok(()) }, "{before} {len}");
    }
    for op in [AtomicOp::FetchAdd { add: 1 }, AtomicOp::CompareSwap { compare: 0, swap: 1 }] {
        assert_eq!(memory.atomic(at, op), Err(MemoryFault));
    }
}

/// Those that end before it succeed.
fn those_before_succeed(at: u64) {
    let mut memory = ProcessMemory::new();
    for len in [0, 1, 7, 8, 9, 64, 100, 1000] {
        memory.write(at - len as u64, Payload::Bytes(&vec![7; len])).unwrap();
        let mut back = vec![0; len];
        load(at - len as u64, &mut back).unwrap();
        assert_eq!(back, vec![7; len]);
    }
    assert!(memory.atomic(at - 8, AtomicOp::FetchAdd { add: 0 }).is_ok());
}

#[test]
fn memory_that_has_gone_is_an_error_and_no_more() {
    let _signals = SIGNALS.lock().unwrap();
    for (region, reads_too) in [(unmapped(), true), (read_only(), false)] {
        let at = region.addr() + PAGE as u64;
        all_fail(at, reads_too);
        those_before_succeed(at);
        those_before_succeed(at + 2 * PAGE as u64);
    }
    let region = cut_off();
    all_fail(region.addr() + PAGE as u64, true);
    those_before_succeed(region.addr() + PAGE as u64);
    assert!(region.try_read(PAGE - 1, &mut [0; 2]).is_err());
    assert!(region.try_write(PAGE, &[1]).is_err());
}

#[test]
fn a_thread_that_blocks_the_signals_lets_the_kernel_copy() {
    let _signals = SIGNALS.lock().unwrap();
    let before = signals::set_mask(u64::MAX);
    signals_changed();
    {
        let _watch = Watch::begin(wire::Instant::from_ns(1));
        assert!(watch::is_careful());
        let region = unmapped();
        all_fail(region.addr() + PAGE as u64, true);
        those_before_succeed(region.addr() + PAGE as u64);
        let region = cut_off();
        all_fail(region.addr() + PAGE as u64, true);
        let region = read_only();
        all_fail(region.addr() + PAGE as u64, false);
    }
    signals::set_mask(before);
    let _watch = Watch::begin(wire::Instant::from_ns(2));
    assert!(watch::is_careful(), "within a millisecond it is not asked again");
    drop(_watch);
    let _watch = Watch::begin(wire::Instant::from_ns(2_000_000));
    assert!(!watch::is_careful());
}

#[test]
fn a_handler_put_over_ours_behind_our_back_lets_the_kernel_copy() {
    let _signals = SIGNALS.lock().unwrap();
    let region = unmapped();
    // SAFETY: asks, sets the default, and puts back what was there.
    unsafe {
        let mut ours = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut ours);
        signals::set_default(libc::SIGSEGV);
        signals_changed();
        {
            let _watch = Watch::begin(wire::Instant::from_ns(1));
            assert!(watch::is_careful());
            all_fail(region.addr() + PAGE as u64, true);
        }
        libc::sigaction(libc::SIGSEGV, &raw const ours, std::ptr::null_mut());
        signals_changed();
        let _watch = Watch::begin(wire::Instant::from_ns(2));
        assert!(!watch::is_careful());
    }
}

#[test]
fn all_ways_to_copy_agree() {
    let region = Region::allocate(PAGE).unwrap();
    for offset in 0..9_u64 {
        for len in (0..40).chain([63, 64, 65, 72, 127, 128, 200, 513]) {
            let at = region.addr() + 64 + offset;
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + offset as usize) as u8).collect();
            for way in 0..4 {
                copy::widen(way == 3);
                plain::widen(way == 3);
                region.write(0, &[0xEE; 1024]);
                let mut back = vec![0; len];
                // SAFETY: inside the region; the buffers have `len` bytes.
                unsafe {
                    match way {
                        0 => {
                            kernel::place(at, &data).unwrap().unwrap();
                            kernel::load(at, &mut back).unwrap().unwrap();
                        }
                        1 => {
                            plain::place(at as *mut u8, data.as_ptr(), len);
                            plain::load(at as *const u8, back.as_mut_ptr(), len);
                        }
                        _ => {
                            copy::place(at as *mut u8, data.as_ptr(), len);
                            copy::load(at as *const u8, back.as_mut_ptr(), len);
                        }
                    }
                }
                assert_eq!(back, data, "way {way}, {len} at {offset}");
                let mut all = [0; 1024];
                region.read(0, &mut all);
                let around =
                    all[..64 + offset as usize].iter().chain(&all[64 + offset as usize + len..]);
                assert!(around.copied().all(|b| b == 0xEE), "way {way}, {len} at {offset}");
            }
        }
    }
    let word = region.addr() as *mut u64;
    region.store_u64(0, 5);
    let mut old = [0_u64; 5];
    // SAFETY: an aligned word of the region.
    unsafe {
        plain::add(word, 1, &raw mut old[0]);
        copy::add(word, 2, &raw mut old[1]);
        plain::swap(word, 8, 9, &raw mut old[2]);
        copy::swap(word, 9, 10, &raw mut old[3]);
        copy::swap(word, 9, 11, &raw mut old[4]);
    }
    assert_eq!((old, region.load_u64(0)), ([5, 6, 8, 9, 10], 10));
    assert_eq!(plain::recovery(copy::recovery as *const () as usize), None);
}
