//! The C library's names by which programs set what is done about signals. For those of faults in
//! memory the NIC's handler stands first, which takes the faults of its own copies; what a program
//! sets and reads back is what comes behind it. All other signals are the C library's alone.

use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, Ordering};

use crocevia::SignalKind;

/// `sigaction(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller keeps the contract of the function of this name.
    unsafe { crocevia::sigaction(signal, new, old) }
}

/// Finds what is hidden at load time: these functions are called from signal handlers, in which
/// nothing can be looked up.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn find() {
        // SAFETY: neither sets nor reads.
        unsafe { crocevia::sigaction(libc::SIGSEGV, core::ptr::null(), core::ptr::null_mut()) };
        for hidden in &[&SIGNAL, &BSD_SIGNAL, &SSIGNAL, &SYSV, &OLD_SYSV, &THREAD_MASK, &MASK] {
            hidden.find();
        }
    }
    find
};

static SIGNAL: Hidden = Hidden::new(c"signal");
static BSD_SIGNAL: Hidden = Hidden::new(c"bsd_signal");
static SSIGNAL: Hidden = Hidden::new(c"ssignal");
static SYSV: Hidden = Hidden::new(c"sysv_signal");
static OLD_SYSV: Hidden = Hidden::new(c"__sysv_signal");
static THREAD_MASK: Hidden = Hidden::new(c"pthread_sigmask");
static MASK: Hidden = Hidden::new(c"sigprocmask");

/// A function that the C library has under a name which is ours too.
struct Hidden {
    name: *const c_char,
    found: AtomicPtr<c_void>,
}

// SAFETY: the name is a constant.
unsafe impl Sync for Hidden {}

impl Hidden {
    const fn new(name: &'static core::ffi::CStr) -> Self {
        Self { name: name.as_ptr(), found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn find(&self) -> *mut c_void {
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: a name that ends with 0; the next in the order of search after this library.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name) };
            self.found.store(found, Ordering::Release);
        }
        found
    }
}

type Signal = unsafe extern "C" fn(c_int, usize) -> usize;
type Mask = unsafe extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;

fn set(hidden: &Hidden, signal: c_int, handler: usize, kind: SignalKind) -> usize {
    if let Some(old) = crocevia::signal(signal, handler, kind) {
        return old;
    }
    let system = hidden.find();
    if system.is_null() {
        return libc::SIG_ERR;
    }
    // SAFETY: the C library's function of that name and type.
    unsafe { transmute::<*mut c_void, Signal>(system)(signal, handler) }
}

/// `signal(3)`, with the meaning that it has by default.
#[unsafe(no_mangle)]
extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    set(&SIGNAL, signal, handler, SignalKind::Bsd)
}

/// The same.
#[unsafe(no_mangle)]
extern "C" fn bsd_signal(signal: c_int, handler: usize) -> usize {
    set(&BSD_SIGNAL, signal, handler, SignalKind::Bsd)
}

/// The same.
#[unsafe(no_mangle)]
extern "C" fn ssignal(signal: c_int, handler: usize) -> usize {
    set(&SSIGNAL, signal, handler, SignalKind::Bsd)
}

/// `sysv_signal(3)`.
#[unsafe(no_mangle)]
extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    set(&SYSV, signal, handler, SignalKind::SystemV)
}

/// What `signal` means in programs that ask for X/Open's.
#[unsafe(no_mangle)]
extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    set(&OLD_SYSV, signal, handler, SignalKind::SystemV)
}

/// A thread changes what it blocks: the NIC asks again whether faults can be caught.
unsafe fn mask(
    hidden: &Hidden,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    let system = hidden.find();
    if system.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the C library's function of that name and type, called with our caller's arguments.
    let result = unsafe { transmute::<*mut c_void, Mask>(system)(how, set, old) };
    if !set.is_null() {
        crocevia::signals_changed();
    }
    result
}

/// `pthread_sigmask(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe { mask(&THREAD_MASK, how, set, old) }
}

/// `sigprocmask(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: as the caller's.
    unsafe { mask(&MASK, how, set, old) }
}
