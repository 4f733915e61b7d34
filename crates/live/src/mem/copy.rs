//! The instructions that touch registered memory, all in one stretch of code that calls nothing and
//! does not use the stack: a fault in it is known by its address, and continued at [`recovery`] it
//! becomes a return value. Who does that is `fault`; what may be relied upon is said in `mem`.

use core::ffi::c_int;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

unsafe extern "C" {
    /// Copies `len` bytes of host memory to a buffer; aligned words of the host are read whole. 0,
    /// or 1 after a fault.
    #[link_name = "crocevia_live_load"]
    pub(super) fn load(host: *const u8, buffer: *mut u8, len: usize) -> c_int;

    /// Copies `len` bytes to host memory: ascending, aligned words of the host written whole, the
    /// last word or byte by itself when all before it is visible. 0, or 1 after a fault.
    #[link_name = "crocevia_live_place"]
    pub(super) fn place(host: *mut u8, buffer: *const u8, len: usize) -> c_int;

    /// Stores `swap` if the aligned word at `host` is `compare`; what was there goes to `old`. 0,
    /// or 1 after a fault.
    #[link_name = "crocevia_live_swap"]
    pub(super) fn swap(host: *mut u64, compare: u64, swap: u64, old: *mut u64) -> c_int;

    /// Adds to the aligned word at `host`; what was there goes to `old`. 0, or 1 after a fault.
    #[link_name = "crocevia_live_add"]
    pub(super) fn add(host: *mut u64, add: u64, old: *mut u64) -> c_int;

    #[link_name = "crocevia_live_begin"]
    static BEGIN: u8;
    #[link_name = "crocevia_live_end"]
    static END: u8;
}

/// Where to go on after a fault at this instruction: `None` if it is not one of these.
pub(super) fn recovery(at: usize) -> Option<usize> {
    // The returning instructions begin where the others end.
    let (begin, end) = (&raw const BEGIN as usize, &raw const END as usize);
    (begin..end).contains(&at).then_some(end)
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Whether blocks are copied by 32 bytes.
    #[link_name = "crocevia_live_wide"]
    static WIDE: core::sync::atomic::AtomicU8;
}

/// Copies in steps as wide as the processor has them, or no wider than every one has.
#[cfg(target_arch = "x86_64")]
pub(super) fn widen(wide: bool) {
    let wide = wide && std::arch::is_x86_feature_detected!("avx");
    // SAFETY: a byte that the copies beside it read and that is written only here.
    unsafe { &WIDE }.store(wide.into(), core::sync::atomic::Ordering::Relaxed);
}

/// They are everywhere as wide as they get.
#[cfg(target_arch = "aarch64")]
pub(super) fn widen(_wide: bool) {}
