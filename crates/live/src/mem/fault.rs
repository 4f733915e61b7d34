//! The handler of SIGSEGV and SIGBUS: a fault in the device's copies becomes their return value,
//! every other one is the program's, with the handler, flags and mask that the program has set. It
//! is installed at the first registration, over what stood there; where the C library's functions
//! are ours, what the program sets later goes behind it ([`sigaction`], [`signal`]).

use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use super::{copy, signals, watch};

/// Words of a signal set.
const SET: usize = size_of::<libc::sigset_t>() / 8;

/// What the program wants to be done about a signal.
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: c_int,
    mask: [u64; SET],
}

impl Action {
    const DEFAULT: Self = Self { handler: libc::SIG_DFL, flags: 0, mask: [0; SET] };

    fn of(action: &libc::sigaction) -> Self {
        // SAFETY: a signal set is an array of words.
        let mask = unsafe { std::mem::transmute_copy::<libc::sigset_t, _>(&action.sa_mask) };
        Self { handler: action.sa_sigaction, flags: action.sa_flags, mask }
    }

    fn to_c(self) -> libc::sigaction {
        libc::sigaction {
            sa_sigaction: self.handler,
            // SAFETY: a signal set is an array of words.
            sa_mask: unsafe { std::mem::transmute_copy::<_, libc::sigset_t>(&self.mask) },
            sa_flags: self.flags,
            sa_restorer: None,
        }
    }

    fn is_none(&self) -> bool {
        self.handler == libc::SIG_DFL || self.handler == libc::SIG_IGN
    }

    /// Our handler with the program's flags and mask, so that the kernel does what they say.
    fn ours(&self) -> libc::sigaction {
        let mut action = Self { handler: ours(), ..*self };
        action.flags &= !libc::SA_RESETHAND;
        if self.is_none() {
            action.flags = libc::SA_ONSTACK | libc::SA_RESTART;
        }
        action.flags |= libc::SA_SIGINFO;
        action.to_c()
    }
}

/// Address of our handler.
fn ours() -> usize {
    on_fault as *const () as usize
}

/// What the program has set for a signal, readable from a handler: who reads during a change reads
/// again (an odd `sequence`).
struct Chain {
    signal: c_int,
    /// The process in which our handler stands over it; another shares the memory (`vfork(2)`), or
    /// has a copy.
    process: AtomicU32,
    sequence: AtomicU32,
    now: Slot,
    /// What stood there before us.
    first: Slot,
}

struct Slot {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: [AtomicU64; SET],
}

impl Slot {
    const fn new() -> Self {
        let (handler, flags) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));
        Self { handler, flags, mask: [const { AtomicU64::new(0) }; SET] }
    }

    fn set(&self, action: &Action) {
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        for (word, value) in self.mask.iter().zip(action.mask) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn get(&self) -> Action {
        let mask = std::array::from_fn(|i| self.mask[i].load(Ordering::Relaxed));
        let handler = self.handler.load(Ordering::Relaxed);
        Action { handler, flags: self.flags.load(Ordering::Relaxed), mask }
    }
}

static CHAINS: [Chain; 2] = [Chain::new(signals::FAULTS[0]), Chain::new(signals::FAULTS[1])];

/// Reads during a change before the reader goes on with what it has: the child of a fork may have
/// been made in the middle of one.
const PATIENCE: u32 = 1 << 20;

/// A change in progress; all signals are blocked, for a handler reads.
struct Change<'a> {
    chain: &'a Chain,
    mask: u64,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.chain.sequence.fetch_add(1, Ordering::Release);
        signals::set_mask(self.mask);
    }
}

impl Chain {
    const fn new(signal: c_int) -> Self {
        Self {
            signal,
            process: AtomicU32::new(0),
            sequence: AtomicU32::new(0),
            now: Slot::new(),
            first: Slot::new(),
        }
    }

    fn of(signal: c_int) -> Option<&'static Self> {
        CHAINS.iter().find(|chain| chain.signal == signal)
    }

    fn is_installed(&self) -> bool {
        self.process.load(Ordering::Acquire) == std::process::id()
    }

    fn change(&self) -> Change<'_> {
        let mask = signals::set_mask(u64::MAX);
        for _ in 0..PATIENCE {
            let at = self.sequence.load(Ordering::Relaxed);
            let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
            if at.is_multiple_of(2)
                && self.sequence.compare_exchange(at, at + 1, order, failed).is_ok()
            {
                break;
            }
            std::hint::spin_loop();
        }
        Change { chain: self, mask }
    }

    fn action(&self) -> Action {
        for _ in 0..PATIENCE {
            let before = self.sequence.load(Ordering::Acquire);
            let action = self.now.get();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return action;
            }
            std::hint::spin_loop();
        }
        self.now.get()
    }

    /// Puts our handler over what stands there.
    fn install(&self) {
        let change = self.change();
        if self.is_installed() {
            return;
        }
        let Some(old) = system::sigaction(self.signal, None) else { return };
        if old.sa_sigaction != ours() {
            self.now.set(&Action::of(&old));
            self.first.set(&Action::of(&old));
        }
        let action = self.now.get().ours();
        if system::sigaction(self.signal, Some(&action)).is_some() {
            self.process.store(std::process::id(), Ordering::Release);
        }
        drop(change);
    }

    /// The program sets another action.
    fn replace(&self, action: &Action) -> Action {
        let change = self.change();
        let old = self.now.get();
        // Who has our handler from the kernel and puts it back means what stood before it.
        let action = if action.handler == ours() { self.first.get() } else { *action };
        self.now.set(&action);
        system::sigaction(self.signal, Some(&action.ours()));
        drop(change);
        old
    }

    /// Does what the program wants.
    ///
    /// # Safety
    /// The arguments are those of our handler.
    unsafe fn run(&self, info: *mut libc::siginfo_t, context: *mut c_void) {
        let action = self.action();
        // SAFETY: by this function's contract.
        let sent = unsafe { is_sent(self.signal, info) };
        match action.handler {
            libc::SIG_IGN if sent => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                signals::set_default(self.signal);
                if sent {
                    // Taken when this handler has returned. A fault happens again by itself.
                    signals::send_here(self.signal);
                }
            }
            handler => {
                if action.flags & libc::SA_RESETHAND != 0 {
                    self.replace(&Action::DEFAULT);
                }
                // SAFETY: the program gave this address as that of a handler. One of the old style
                // takes the first argument only, which these calling conventions allow.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(self.signal, info, context);
            }
        }
    }
}

/// Whether somebody sent the signal: then it has nothing to do with what the thread was doing.
///
/// # Safety
/// `info` is what a handler was given.
unsafe fn is_sent(signal: c_int, info: *const libc::siginfo_t) -> bool {
    /// `BUS_MCEERR_AO`: broken memory somewhere, found by nobody's access.
    const FOUND_BROKEN: c_int = 5;
    // SAFETY: by this function's contract.
    let code = unsafe { (*info).si_code };
    code <= 0 || (signal == libc::SIGBUS && code == FOUND_BROKEN)
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with what `SA_SIGINFO` promises.
    unsafe {
        if is_sent(signal, info) {
            if is_own_thread() {
                // Not ours to take; it waits for a thread of the program's from now on.
                block_behind(context, signal);
                watch::signals_changed();
                signals::send_again(signal, info);
                return;
            }
        } else if recovers(context) {
            return;
        }
        if let Some(chain) = Chain::of(signal) {
            chain.run(info, context);
        }
    }
}

/// The interrupted thread goes on with this signal blocked.
///
/// # Safety
/// `context` is what a handler was given.
unsafe fn block_behind(context: *mut c_void, signal: c_int) {
    // SAFETY: by this function's contract; the set holds a word at least.
    unsafe {
        let set = &raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        *set.cast::<u64>() |= signals::bit(signal);
    }
}

/// If the interrupted instruction is one of the copies', goes on where they return a fault.
///
/// # Safety
/// `context` is what a handler was given.
unsafe fn recovers(context: *mut c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by this function's contract.
    let at = unsafe {
        let registers = &raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers.cast::<usize>().add(libc::REG_RIP as usize)
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: by this function's contract.
    let at = unsafe { (&raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc).cast() };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let at: *mut usize = {
        let _ = context;
        return false;
    };
    // SAFETY: the program counter of the interrupted thread, which is ours to change.
    unsafe {
        match copy::recovery(at.read()) {
            Some(next) => {
                at.write(next);
                true
            }
            None => false,
        }
    }
}

/// The NICs' own threads, which take faults but no signal that somebody sends.
static OWN: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

fn is_own_thread() -> bool {
    let thread = signals::thread();
    OWN.iter().any(|own| own.load(Ordering::Relaxed) == thread)
}

/// Held by a thread of the NIC's own, in which all signals are blocked but those of faults.
pub(crate) struct OwnThread(Option<&'static AtomicI32>);

impl OwnThread {
    /// The calling thread is one.
    pub(crate) fn begin() -> Self {
        let thread = signals::thread();
        let free = OWN.iter().find(|own| {
            own.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        if free.is_some() {
            signals::unblock_faults();
        }
        // Without a place the thread goes on with all signals blocked, and the kernel copies.
        Self(free)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(own) = self.0 {
            signals::set_mask(u64::MAX);
            own.store(0, Ordering::Relaxed);
        }
    }
}

/// Puts our handler in place, if that has not been done.
pub(super) fn install() {
    if cfg!(miri) || CHAINS.iter().all(Chain::is_installed) {
        return;
    }
    CHAINS.iter().for_each(Chain::install);
    copy::widen(true);
    watch::signals_changed();
}

/// Whether our handlers stand first.
pub(super) fn is_first() -> bool {
    signals::FAULTS.iter().all(|&signal| signals::handler(signal) == ours())
}

/// `sigaction(2)` for programs that find it under our name: for the signals of faults it reads and
/// writes what the program wants, behind our handler; all else goes to the C library.
///
/// # Safety
/// As for the C library's.
pub unsafe fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(chain) = Chain::of(signal).filter(|chain| chain.is_installed()) else {
        // SAFETY: by this function's contract.
        return unsafe { system::sigaction_raw(signal, new, old) };
    };
    // SAFETY: null, or readable by this function's contract.
    let action = match unsafe { new.as_ref() } {
        Some(new) => chain.replace(&Action::of(new)),
        None => chain.action(),
    };
    if !old.is_null() {
        // SAFETY: writable by this function's contract.
        unsafe { old.write(action.to_c()) };
    }
    0
}

/// The kinds of `signal(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalKind {
    /// The handler stays, calls are restarted.
    Bsd,
    /// The handler serves once, calls are interrupted.
    SystemV,
}

/// `signal(3)` for the signals of faults, behind our handler; `None` for others, and before our
/// handler stands: the C library's is to be called.
pub fn signal(signal: c_int, handler: usize, kind: SignalKind) -> Option<usize> {
    let chain = Chain::of(signal).filter(|chain| chain.is_installed())?;
    if handler == libc::SIG_ERR {
        return None;
    }
    let mut mask = [0; SET];
    let flags = match kind {
        SignalKind::Bsd => {
            mask[0] = signals::bit(signal);
            libc::SA_RESTART
        }
        SignalKind::SystemV => libc::SA_RESETHAND | libc::SA_NODEFER,
    };
    Some(chain.replace(&Action { handler, flags, mask }).handler)
}

/// The C library's own `sigaction`, which may be hidden behind ours.
mod system {
    use core::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicPtr, Ordering};

    type Sigaction =
        unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

    fn find() -> Option<Sigaction> {
        static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        if cfg!(target_feature = "crt-static") {
            return Some(libc::sigaction);
        }
        let mut found = FOUND.load(Ordering::Acquire);
        if found.is_null() {
            // SAFETY: a name that ends with 0; the next in the order of search after this library.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"sigaction".as_ptr()) };
            FOUND.store(found, Ordering::Release);
        }
        // SAFETY: null, or the address of the function of that name and type.
        unsafe { std::mem::transmute::<*mut c_void, Option<Sigaction>>(found) }
    }

    /// # Safety
    /// As for `sigaction(2)`.
    pub(super) unsafe fn sigaction_raw(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        match find() {
            // SAFETY: by this function's contract.
            Some(sigaction) => unsafe { sigaction(signal, new, old) },
            None => {
                // SAFETY: the calling thread's own.
                unsafe { *libc::__errno_location() = libc::ENOSYS };
                -1
            }
        }
    }

    /// Sets an action, if one is given; what there was.
    pub(super) fn sigaction(
        signal: c_int,
        new: Option<&libc::sigaction>,
    ) -> Option<libc::sigaction> {
        let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: `new` is null or readable, `old` writable; the handler is ours.
        let result = unsafe { sigaction_raw(signal, new, old.as_mut_ptr()) };
        // SAFETY: all zero is a value, and the call writes one.
        (result == 0).then(|| unsafe { old.assume_init() })
    }
}
