//! Registered memory copied by the kernel, which answers a fault with an error: for the times when
//! a fault of our own could not be caught (`watch`). One or two system calls a copy.
//!
//! Bytes come in order and the last ones by a call of their own. That a word is not torn is up to
//! the kernel's copy, which moves eight bytes at least on the processors that we know.

use core::ffi::c_void;
use std::io;

use engine::MemoryFault;

/// Copies host memory; `None` where the kernel does not let us.
pub(super) fn load(addr: u64, out: &mut [u8]) -> Option<Result<(), MemoryFault>> {
    if out.is_empty() {
        return Some(Ok(()));
    }
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast::<c_void>(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: addr as *mut c_void, iov_len: out.len() };
    // SAFETY: both vectors live through the call; the local one describes `out`, the other is
    // looked at by the kernel, which refuses what is not mapped.
    let n = unsafe {
        let (local, remote) = (&raw const local, &raw const remote);
        libc::process_vm_readv(libc::getpid(), local, 1, remote, 1, 0)
    };
    outcome(n, out.len())
}

/// Copies to host memory, the last word or byte by itself; `None` where the kernel does not let us.
pub(super) fn place(addr: u64, data: &[u8]) -> Option<Result<(), MemoryFault>> {
    let end = addr.wrapping_add(data.len() as u64);
    let unit = if end.is_multiple_of(8) && data.len() >= 8 { 8 } else { 1 };
    let (body, last) = data.split_at(data.len().saturating_sub(unit));
    for (at, part) in [(addr, body), (addr.wrapping_add(body.len() as u64), last)] {
        if part.is_empty() {
            continue;
        }
        let local = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: part.len() };
        // SAFETY: as in `load`; the local part is only read.
        let n = unsafe {
            let (local, remote) = (&raw const local, &raw const remote);
            libc::process_vm_writev(libc::getpid(), local, 1, remote, 1, 0)
        };
        match outcome(n, part.len()) {
            Some(Ok(())) => {}
            other => return other,
        }
    }
    Some(Ok(()))
}

fn outcome(n: isize, wanted: usize) -> Option<Result<(), MemoryFault>> {
    match usize::try_from(n) {
        Ok(n) if n == wanted => Some(Ok(())),
        Ok(_) => Some(Err(MemoryFault)),
        Err(_) => match io::Error::last_os_error().raw_os_error() {
            Some(libc::EFAULT) => Some(Err(MemoryFault)),
            // EPERM, ENOSYS: a filter of system calls.
            _ => None,
        },
    }
}

/// Whether an aligned word can be written now: the kernel adds 0 to its first half, atomically. It
/// may go between this and the access; the kernel has no atomics on 64 bits to offer.
pub(super) fn word_is_writable(addr: u64) -> bool {
    /// `FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)`.
    const ADD_NOTHING: i32 = 1 << 28;
    let own = 0_u32;
    // SAFETY: wakes nobody at `own`, and changes nothing at `addr`; the kernel looks before.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0_usize,
            addr as *mut u32,
            ADD_NOTHING,
        )
    };
    result >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}
