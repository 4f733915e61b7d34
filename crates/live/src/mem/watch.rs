//! Whether faults can be caught at present. They cannot where the program has put a handler of its
//! own over ours, or where the calling thread blocks the signal (the kernel then ends the process):
//! then the kernel copies.
//!
//! Both are looked up when a thread drives a NIC and [`EVERY_PS`] have passed since its last look,
//! and at once after each registration and each change that went through the C library's names
//! where these are ours (`libibverbs.so.1` exports them). So only a program that goes past these
//! names (a plugin host that binds early, raw system calls), whose handler does not pass on what it
//! does not know, and that takes memory away within a millisecond of the change sees the fault
//! itself. To ask at each packet would cost more than the packet.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use wire::Instant;

use super::{fault, signals};

/// A millisecond.
const EVERY_PS: u64 = 1_000_000_000;

/// The reasons for care: 1 while our handler is not the first, and [`THREAD`] for each thread that
/// drives a NIC with the signals blocked.
static CARE: AtomicU32 = AtomicU32::new(0);
const DISPLACED: u32 = 1;
const THREAD: u32 = 2;

/// Counts what makes everybody look again.
static CHANGES: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static LOOKED: Cell<Look> = const { Cell::new(Look { changes: 0, at: 0, blocked: false }) };
}

#[derive(Clone, Copy)]
struct Look {
    changes: u32,
    at: u64,
    blocked: bool,
}

/// Whether the kernel is to copy.
pub(super) fn is_careful() -> bool {
    CAN_CATCH && CARE.load(Ordering::Relaxed) != 0 || MUST_ASK
}

/// Faults are caught by their instruction.
const CAN_CATCH: bool = cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));
/// They are not, on this processor.
const MUST_ASK: bool = !CAN_CATCH && !cfg!(miri);

/// Handlers or blocked signals may have changed: all threads look again.
pub fn signals_changed() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

/// Held by a thread while it drives a NIC.
pub(crate) struct Watch {
    blocked: bool,
}

impl Watch {
    /// Begins to drive at this time of the NIC's clock.
    pub(crate) fn begin(now: Instant) -> Self {
        if !CAN_CATCH {
            return Self { blocked: false };
        }
        let (at, changes) = (now.as_ps(), CHANGES.load(Ordering::Relaxed));
        let mut look = LOOKED.get();
        // The clocks of two NICs do not begin together.
        if look.changes != changes || look.at.abs_diff(at) > EVERY_PS {
            look = Look { changes, at, blocked: looked() };
            LOOKED.set(look);
        }
        if look.blocked {
            CARE.fetch_add(THREAD, Ordering::Relaxed);
        }
        Self { blocked: look.blocked }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.blocked {
            CARE.fetch_sub(THREAD, Ordering::Relaxed);
        }
    }
}

/// Notes whether our handler stands first; whether the calling thread blocks the signals.
#[cold]
fn looked() -> bool {
    if fault::is_first() {
        CARE.fetch_and(!DISPLACED, Ordering::Relaxed);
    } else {
        CARE.fetch_or(DISPLACED, Ordering::Relaxed);
    }
    let mask = signals::mask();
    signals::FAULTS.iter().any(|&signal| mask & signals::bit(signal) != 0)
}
