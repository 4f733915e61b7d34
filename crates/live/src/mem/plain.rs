//! The copies in Rust, for processors that `copy` has no instructions for and for Miri. A fault in
//! them is not caught: where that matters, `watch` lets the kernel copy.

use core::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// As `copy::load`.
///
/// # Safety
/// `host` is readable and `buffer` writable for `len` bytes.
pub(super) unsafe fn load(host: *const u8, buffer: *mut u8, len: usize) -> c_int {
    let head = host.align_offset(8).min(len);
    let words = (len - head) / 8;
    // SAFETY: by this function's contract; behind `head` bytes the source is aligned.
    unsafe {
        load_bytes(host, buffer, head);
        for at in (head..head + words * 8).step_by(8) {
            let word = AtomicU64::from_ptr(host.add(at).cast_mut().cast()).load(Ordering::Relaxed);
            buffer.add(at).cast::<u64>().write_unaligned(word);
        }
        let done = head + words * 8;
        load_bytes(host.add(done), buffer.add(done), len - done);
    }
    0
}

/// As `copy::place`.
///
/// # Safety
/// `host` is writable and `buffer` readable for `len` bytes.
pub(super) unsafe fn place(host: *mut u8, buffer: *const u8, len: usize) -> c_int {
    if len == 0 {
        return 0;
    }
    let head = host.align_offset(8).min(len);
    let (words, tail) = ((len - head) / 8, (len - head) % 8);
    // The last unit: a whole word where the data end at a word's end, else one byte.
    let last_word = words > 0 && tail == 0;
    let body = head + (words - usize::from(last_word)) * 8;
    // SAFETY: by this function's contract; behind `head` bytes the destination is aligned.
    unsafe {
        store_bytes(buffer, host, if words == 0 && tail == 0 { head - 1 } else { head });
        for at in (head..body).step_by(8) {
            store_word(buffer, host, at);
        }
        if last_word {
            fence(Ordering::Release);
            store_word(buffer, host, body);
            return 0;
        }
        store_bytes(buffer.add(body), host.add(body), tail.saturating_sub(1));
        fence(Ordering::Release);
        let last = buffer.add(len - 1).read();
        AtomicU8::from_ptr(host.add(len - 1)).store(last, Ordering::Relaxed);
    }
    0
}

/// As `copy::widen`.
pub(super) fn widen(_wide: bool) {}

/// As `copy::swap`.
///
/// # Safety
/// `host` is an aligned word that may be written, `old` one of the caller's.
pub(super) unsafe fn swap(host: *mut u64, compare: u64, swap: u64, old: *mut u64) -> c_int {
    // SAFETY: by this function's contract; whoever else touches the word does so atomically or
    // accepts what comes.
    unsafe {
        let word = AtomicU64::from_ptr(host);
        let (Ok(was) | Err(was)) =
            word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
        old.write(was);
    }
    0
}

/// As `copy::add`.
///
/// # Safety
/// `host` is an aligned word that may be written, `old` one of the caller's.
pub(super) unsafe fn add(host: *mut u64, add: u64, old: *mut u64) -> c_int {
    // SAFETY: as above.
    unsafe { old.write(AtomicU64::from_ptr(host).fetch_add(add, Ordering::SeqCst)) };
    0
}

/// No fault can be recovered from.
pub(super) fn recovery(_: usize) -> Option<usize> {
    None
}

/// # Safety
/// `src + at` is readable, `dst + at` is writable host memory and a multiple of 8.
unsafe fn store_word(src: *const u8, dst: *mut u8, at: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        let word = src.add(at).cast::<u64>().read_unaligned();
        AtomicU64::from_ptr(dst.add(at).cast()).store(word, Ordering::Relaxed);
    }
}

/// # Safety
/// `src` is readable host memory and `dst` a writable buffer, both of `n` bytes.
unsafe fn load_bytes(src: *const u8, dst: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: by this function's contract.
        unsafe {
            let byte = AtomicU8::from_ptr(src.add(i).cast_mut()).load(Ordering::Relaxed);
            dst.add(i).write(byte);
        }
    }
}

/// # Safety
/// `src` is a readable buffer and `dst` writable host memory, both of `n` bytes.
unsafe fn store_bytes(src: *const u8, dst: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: by this function's contract.
        unsafe {
            AtomicU8::from_ptr(dst.add(i)).store(src.add(i).read(), Ordering::Relaxed);
        }
    }
}
