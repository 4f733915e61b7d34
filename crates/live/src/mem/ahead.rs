//! Asking the processor for the memory that a stream of packets will reach next, while it is at
//! the packet before: buffers of many queue pairs do not fit its caches, and its own foresight
//! ends at each page. What is copied when is not decided here.

/// Bytes asked for; the processor goes on by itself from there.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AHEAD: usize = 1024;
/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;
/// Packets of fewer bytes are not of a stream.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LEAST: usize = 1024;

/// What lies behind the `len` bytes at `addr` will be read soon, it may be.
#[inline]
pub(super) fn read_on(addr: u64, len: usize) {
    ask::<false>(addr, len);
}

/// The same of bytes that will be written.
#[inline]
pub(super) fn write_on(addr: u64, len: usize) {
    ask::<true>(addr, len);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn ask<const WRITE: bool>(addr: u64, len: usize) {
    use core::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
    if len < LEAST {
        return;
    }
    let next = (addr as *const i8).wrapping_add(len);
    for at in (0..AHEAD).step_by(LINE) {
        let line = next.wrapping_add(at);
        // SAFETY: a hint, which faults at no address and changes nothing.
        unsafe {
            match WRITE {
                true => _mm_prefetch::<_MM_HINT_ET0>(line),
                false => _mm_prefetch::<_MM_HINT_T0>(line),
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn ask<const WRITE: bool>(_addr: u64, _len: usize) {}
