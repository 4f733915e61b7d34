//! The end of a process by `_exit`, which runs nothing of ours and may be called from a signal
//! handler: whoever calls it asks the NICs' own threads to say their last words, and waits a
//! little. All of it is done with atomics, a write to a descriptor that is never closed, and naps
//! (`signal-safety(7)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use wire::Span;

use super::CLOSE;
use crate::capture;
use crate::eventfd::EventFd;
use crate::process::PerProcess;
use crate::sys;

const NAP_NS: u64 = 100_000;

static BELL: PerProcess<OnceLock<EventFd>> = PerProcess::new();
/// The process whose NICs are counted, and its bell. A child that shares its parent's memory
/// (`vfork(2)`) is another process.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static BELL_FD: AtomicI32 = AtomicI32::new(-1);
/// Open NICs.
static NICS: AtomicU32 = AtomicU32::new(0);
/// What leaving may take beyond [`CLOSE`], in nanoseconds: injected faults hold packets back.
static LINGER: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicBool = AtomicBool::new(false);
/// NICs that have said their last words.
static DONE: AtomicU32 = AtomicU32::new(0);

/// How long leaving may take.
pub(super) fn longest() -> Duration {
    CLOSE + Duration::from_nanos(LINGER.load(Ordering::Relaxed))
}

/// A NIC is being opened whose packets are held back for up to `linger`.
pub(super) fn opened(linger: Span) -> io::Result<()> {
    LINGER.fetch_max(linger.as_ns_ceil(), Ordering::Relaxed);
    if BELL.get().get().is_none() {
        let _ = BELL.get().set(EventFd::doorbell()?);
    }
    let process = std::process::id();
    if PROCESS.swap(process, Ordering::SeqCst) != process {
        NICS.store(0, Ordering::SeqCst);
        WANTED.store(false, Ordering::SeqCst);
    }
    if let Some(bell) = bell() {
        BELL_FD.store(bell.as_raw_fd(), Ordering::SeqCst);
    }
    NICS.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// A NIC is about to be closed.
pub(super) fn closed() {
    NICS.fetch_sub(1, Ordering::SeqCst);
}

/// What a NIC's thread has to wait for besides: it can be read when the last words are wanted.
pub(super) fn bell() -> Option<BorrowedFd<'static>> {
    BELL.get().get().map(EventFd::as_fd)
}

/// Whether a NIC's thread is asked to say the last words.
pub(super) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// A NIC's thread has.
pub(super) fn is_done() {
    DONE.fetch_add(1, Ordering::SeqCst);
}

/// Lets the NICs of this process say their last words: for `_exit`. Takes at most 20 ms, longer
/// only where injected faults hold packets back or what has been captured is still to be written.
/// Safe to call from a signal handler, and in a child of a fork, where it does nothing.
pub fn leave_now() {
    let asked = NICS.load(Ordering::SeqCst);
    if asked == 0 || PROCESS.load(Ordering::SeqCst) != std::process::id() {
        return;
    }
    DONE.store(0, Ordering::SeqCst);
    WANTED.store(true, Ordering::SeqCst);
    sys::ring(BELL_FD.load(Ordering::SeqCst));
    let patience = longest() + if capture::is_on() { capture::PATIENCE } else { Duration::ZERO };
    for _ in 0..patience.as_nanos() as u64 / NAP_NS {
        if DONE.load(Ordering::SeqCst) >= asked {
            return;
        }
        sys::nap(NAP_NS);
    }
}
