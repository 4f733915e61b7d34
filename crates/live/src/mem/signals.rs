//! System calls about signals, made directly: the C library's functions of these names may be ours
//! (see `fault`), and all of them are called from signal handlers.

use core::ffi::{c_int, c_void};

/// The kernel's signal sets have 64 bits.
const SET_BYTES: usize = 8;

/// The signals that a fault in memory raises.
pub(super) const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The set that holds one signal.
pub(super) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn change_mask(how: c_int, set: Option<u64>) -> u64 {
    let mut old = 0_u64;
    let set = set.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` is null or points to a set that outlives the call, `old` to one that is
    // written.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, &raw mut old, SET_BYTES) };
    old
}

/// The calling thread's blocked signals.
pub(super) fn mask() -> u64 {
    change_mask(libc::SIG_BLOCK, None)
}

/// Sets the calling thread's blocked signals; what they were.
pub(super) fn set_mask(set: u64) -> u64 {
    change_mask(libc::SIG_SETMASK, Some(set))
}

/// Lets the calling thread take the signals of faults.
pub(super) fn unblock_faults() {
    change_mask(libc::SIG_UNBLOCK, Some(FAULTS.iter().fold(0, |set, &signal| set | bit(signal))));
}

/// The handler of a signal, as the kernel has it; 0 is the default.
pub(super) fn handler(signal: c_int) -> usize {
    // The handler comes first; what follows is at most three words.
    let mut action = [0_usize; 8];
    let none = std::ptr::null::<c_void>();
    // SAFETY: asks only; what is written fits into `action`.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, none, action.as_mut_ptr(), SET_BYTES);
    }
    action[0]
}

/// Gives a signal its default action, which is to end the process.
pub(super) fn set_default(signal: c_int) {
    let action = [0_usize; 8];
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: `action` is the kernel's structure with no handler, flags and mask; it is only read.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), none, SET_BYTES) };
}

/// Sends a signal to the calling thread.
pub(super) fn send_here(signal: c_int) {
    // SAFETY: takes numbers.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
    }
}

/// Sends a signal to the process again, with what was said about it: who sent it, but as if by
/// `sigqueue(3)`, for the kernel lets no thread but the first say otherwise.
///
/// # Safety
/// `info` is what a handler of the signal was given.
pub(super) unsafe fn send_again(signal: c_int, info: *const libc::siginfo_t) {
    // SAFETY: by this function's contract.
    let mut info = unsafe { info.read() };
    if info.si_code >= 0 || info.si_code == libc::SI_TKILL {
        info.si_code = libc::SI_QUEUE;
    }
    // SAFETY: `info` lives through the call, which reads it.
    unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, libc::getpid(), signal, &raw const info) };
}

/// The calling thread's number.
pub(super) fn thread() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}
