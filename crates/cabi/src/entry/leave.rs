//! The ends of a process that run no handlers. A program that calls them has had its completions,
//! but its peers may not have had the acknowledgements.

use core::ffi::c_int;

/// Ends the process (`_exit(2)`), after what is owed to peers has left.
#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    let status = crate::errno::guarded("_exit", || crate::watch::leaving(status)).unwrap_or(status);
    crocevia::leave_now();
    loop {
        // SAFETY: ends the process with all its threads; takes a number.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// The same under its name in C.
#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
