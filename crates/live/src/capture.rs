//! The capture of what the NICs of a process send and receive: a pcapng file, one for the process.
//! Whoever holds a NIC's lock copies packets into buffers, a thread (`capture/writer`) writes them
//! to the file, whose name `capture/place` finds. Frames are made in `capture/tap`. Nothing here
//! waits for the file: what the writer cannot keep up with is cut to the headers, then left out.

mod buffers;
mod neighbour;
mod place;
mod tap;
mod writer;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{Error, ErrorKind};
use wire::pcapng::{self, Section};

use crate::info::DeviceInfo;
use crate::options::Options;
use crate::process::PerProcess;
use crate::sys;

use buffers::Buffers;
pub use place::prepare;
pub(crate) use tap::{Envelope, Inbound, Outbound, Remark, SentNote};

/// How long the end of a capture waits for a writer that gets on with it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long for one that does not, if it writes to a pipe that perhaps nobody reads. A file takes
/// what it is given: there the writer only lacks the processor.
const STUCK: Duration = Duration::from_millis(200);

/// A capture in progress. When the last NIC lets go of it, what is left is written.
pub(crate) struct Capture {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Of the process that captures: not its children.
    generation: u32,
    /// How long the end waits for a writer that does not get on.
    stuck: Duration,
}

/// What the writer shares with everybody else.
struct Shared {
    buffers: Mutex<Buffers>,
    /// The writer has something to do.
    work: Condvar,
}

/// A capture that this process has begun.
struct Begun {
    /// What the options say.
    asked: PathBuf,
    /// The file that was taken.
    file: PathBuf,
    capture: Weak<Capture>,
}

/// Captures in progress.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Whether there is a capture in progress. Safe in a signal handler.
pub(crate) fn is_on() -> bool {
    OPEN.load(Ordering::Relaxed) > 0
}

static BEGUN: PerProcess<Mutex<Vec<Begun>>> = PerProcess::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The two taps of a device, if its options ask for a capture.
///
/// # Errors
/// `System` if the file cannot be written; the message names it.
pub(crate) fn open(
    info: &DeviceInfo,
    options: &Options,
) -> engine::Result<Option<(Inbound, Outbound)>> {
    let Some(asked) = &options.pcap else { return Ok(None) };
    let mut begun = lock(BEGUN.get());
    let known = begun.iter().position(|b| b.asked == *asked);
    let open = known.and_then(|at| begun[at].capture.upgrade());
    let capture = match open {
        Some(capture) => capture,
        None => {
            let taken = known.map(|at| begun.remove(at).file);
            let refused = |path: &Path, why: &dyn Display| {
                Error::new(ErrorKind::System, place::refusal(path, why))
            };
            let (file, place) =
                place::take(asked, taken.as_deref()).map_err(|e| refused(&e.path, &e.why))?;
            let capture = Arc::new(Capture::begin(place).map_err(|e| refused(&file, &e))?);
            begun.push(Begun { asked: asked.clone(), file, capture: Arc::downgrade(&capture) });
            capture
        }
    };
    Ok(Some(tap::attach(capture, info, options)))
}

/// Writes out what all captures of this process hold, with what has been counted: for the end of
/// the process. Bounded in time, takes no lock for long.
pub(crate) fn finish() {
    let captures: Vec<_> = match BEGUN.get().try_lock() {
        Ok(begun) => begun.iter().filter_map(|b| b.capture.upgrade()).collect(),
        Err(_) => return,
    };
    for capture in captures {
        capture.finish();
    }
}

/// Nanoseconds since 1970.
fn wall_clock() -> u64 {
    sys::realtime_ns()
}

impl Capture {
    fn begin(place: place::Place) -> std::io::Result<Self> {
        let mut preamble = Vec::new();
        let (hardware, os) = sys::machine();
        let (hardware, os) = (hardware.as_str(), os.as_str());
        let application = concat!("crocevia ", env!("CARGO_PKG_VERSION"));
        let comment = program();
        pcapng::put_section(
            &mut preamble,
            &Section { hardware, os, application, comment: &comment },
        );
        let shared =
            Arc::new(Shared { buffers: Mutex::new(Buffers::new(preamble)), work: Condvar::new() });
        let stuck = if place.kind == place::Kind::File { PATIENCE } else { STUCK };
        let thread = Mutex::new(Some(writer::start(&shared, place)?));
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self { shared, thread, generation: sys::fork_generation(), stuck })
    }

    /// Whether this process is a child of the one that captures.
    fn is_inherited(&self) -> bool {
        sys::fork_generation() != self.generation
    }

    /// Changes the buffers, and wakes the writer if there is something for it.
    fn with<R>(&self, f: impl FnOnce(&mut Buffers) -> R) -> R {
        let mut buffers = lock(&self.shared.buffers);
        let result = f(&mut buffers);
        let ring = buffers.take_ring();
        drop(buffers);
        if ring {
            self.shared.work.notify_one();
        }
        result
    }

    /// Waits until all that has been captured is written, if the writer gets on with it.
    fn finish(&self) {
        if self.is_inherited() {
            return;
        }
        let start = Instant::now();
        let (mut moved, mut left) = (start, usize::MAX);
        loop {
            let now = Instant::now();
            let buffers = match self.shared.buffers.try_lock() {
                Ok(buffers) => Some(buffers),
                Err(TryLockError::Poisoned(buffers)) => Some(buffers.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut buffers) = buffers {
                buffers.report(wall_clock());
                buffers.hurry = true;
                let rest = buffers.unwritten();
                if rest == 0 {
                    return;
                }
                if rest < left {
                    (moved, left) = (now, rest);
                }
                self.shared.work.notify_one();
            }
            if now - moved > self.stuck || now - start > PATIENCE {
                return;
            }
            sys::nap(200_000);
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.is_inherited() {
            // The thread does not exist in this process and cannot be joined.
            std::mem::forget(thread);
            return;
        }
        self.finish();
        let done = self.with(|buffers| {
            buffers.stop = true;
            buffers.unwritten() == 0
        });
        self.shared.work.notify_one();
        // A writer that waits for somebody to read ends with the process.
        if let Some(thread) = thread.filter(|_| done) {
            let _ = thread.join();
        }
    }
}

/// What this process runs, for the reader of the capture.
fn program() -> String {
    let arguments: Vec<_> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    format!("process {}: {}", std::process::id(), arguments.join(" "))
}
