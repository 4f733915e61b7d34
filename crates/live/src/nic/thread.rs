//! The NIC's own thread: it sleeps on the link's descriptors and a doorbell, and drives the device
//! whenever no poller does. While somebody polls it sleeps on a timer, which the poller puts off,
//! so that it costs next to nothing and does not fight for the lock; while it drives and packets
//! flow it does not sleep, except for moments between the trains of a stream of bulk data.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use wire::Span;

use super::{STEP_BATCHES, Shared, parting};
use crate::capture;
use crate::clock::ns_until;
use crate::mem::OwnThread;
use crate::sys;

/// Its own bell first, and that of the process's end until it has been heard.
fn bells(shared: &Shared, left: bool, fds: &mut Vec<libc::pollfd>) {
    fds.push(sys::interest(shared.doorbell.as_fd(), libc::POLLIN));
    if let Some(bell) = parting::bell().filter(|_| !left) {
        fds.push(sys::interest(bell, libc::POLLIN));
    }
    if let Some(news) = &shared.interface {
        fds.push(sys::interest(news.as_fd(), libc::POLLIN));
    }
}

/// A nap while somebody else polls: so long after his last sign the thread takes over. To wake up
/// is dear (20 µs on a virtual machine), to put it off is not.
pub(super) const NAP_NS: u64 = 500_000;
/// A poller puts the end of the nap off when it is nearer than this and there is nothing to do ...
pub(super) const EARLY_NS: u64 = 300_000;
/// ... or nearer than this at all.
pub(super) const URGENT_NS: u64 = 150_000;
/// After the last packet the thread looks for more for this long before it sleeps: longer than an
/// owed acknowledgement waits for company.
const LINGER_NS: u64 = 30_000;
/// In a stream of bulk data it sleeps for so long instead, whatever comes: the next train is sure
/// to come, and several at a time cost less. A window of some MiB holds a millisecond of a stream.
const DOZE: Span = Span::from_us(50);
/// Not with less receive buffer than this, as the kernel counts it.
const DOZE_BUFFER: u64 = 1 << 20;
/// One who yields and comes back only after so long shares the processor with somebody who spins on
/// memory. For a while then it sleeps at once instead: a packet that wakes it up gives it the
/// processor, to yield leaves it for a whole time slice.
const CROWDED_NS: u64 = 200_000;
const CROWDED_FOR_NS: u64 = 100_000_000;
/// For so long after the last packet it wakes up now and then, so that calls which set a later
/// timer need not wake it.
const ALERT_NS: u64 = 500_000_000;
/// How often, while alert.
const ALERT_EVERY_NS: u64 = 10_000_000;
/// Enough for the device's deepest call in a debug build.
const STACK: usize = 512 << 10;

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    sys::spawn("crocevia-nic", STACK, move || {
        sys::precise_timers();
        sys::short_slices();
        let _own = OwnThread::begin();
        run(&shared);
    })
}

fn run(shared: &Shared) {
    let mut fds = Vec::new();
    // When it last did something, in nanoseconds of the clock.
    let mut worked: Option<u64> = None;
    let mut left = false;
    let mut crowded_until = 0;
    // What comes meanwhile has to lie somewhere.
    let may_doze = shared.receive_buffer >= DOZE_BUFFER;
    while !shared.stop.load(Ordering::Acquire) {
        if parting::is_wanted() && !left {
            left = true;
            Shared::flush(std::iter::once(shared));
            capture::finish();
            parting::is_done();
        }
        let now_ns = shared.clock.ns();
        if shared.is_polled(now_ns) {
            fds.clear();
            bells(shared, left, &mut fds);
            nap(shared, &mut fds);
            worked = Some(now_ns);
            continue;
        }
        let Some(mut state) = shared.try_lock() else {
            if shared.is_orphaned() {
                return;
            }
            // Somebody is at it, and rings if there is more to do than he does.
            fds.clear();
            bells(shared, left, &mut fds);
            nap(shared, &mut fds);
            worked = Some(now_ns);
            continue;
        };
        let now = shared.clock.now();
        if state.step(now, true, STEP_BATCHES) {
            shared.deliver(state);
            worked = Some(now_ns);
            continue;
        }
        let idle_ns = worked.map_or(u64::MAX, |at| now_ns.saturating_sub(at));
        let dozes = may_doze && idle_ns < LINGER_NS && state.may_doze(now, DOZE);
        if idle_ns < LINGER_NS && !dozes && crowded_until < now_ns {
            drop(state);
            sys::yield_now();
            let back_ns = shared.clock.ns();
            if back_ns - now_ns.min(back_ns) > CROWDED_NS {
                crowded_until = back_ns + CROWDED_FOR_NS;
            }
            continue;
        }
        let mut sleep_ns = state.deadline().map_or(u64::MAX, |d| ns_until(d, now));
        if idle_ns < ALERT_NS {
            sleep_ns = sleep_ns.min(ALERT_EVERY_NS);
        }
        fds.clear();
        bells(shared, left, &mut fds);
        if dozes {
            sleep_ns = DOZE.as_ps() / 1000;
            // It then looks out for more as after the last packet.
            worked = Some(now_ns + sleep_ns);
        } else {
            state.interests(&mut fds);
        }
        // Under the lock: a call that sets an earlier timer sees when the thread wakes.
        shared.wakes.store(now_ns.saturating_add(sleep_ns), Ordering::Release);
        drop(state);
        wait(shared, &mut fds, sleep_ns);
    }
}

/// Sleeps a little, or for as long as a poller wants it to; not on the link: he sees to that.
fn nap(shared: &Shared, fds: &mut Vec<libc::pollfd>) {
    fds.push(sys::interest(shared.relief.as_fd(), libc::POLLIN));
    shared.relief.set(Duration::from_nanos(NAP_NS));
    shared.wakes.store(shared.clock.ns() + NAP_NS, Ordering::Release);
    wait(shared, fds, u64::MAX);
}

fn wait(shared: &Shared, fds: &mut [libc::pollfd], ns: u64) {
    let timeout = (ns != u64::MAX).then(|| Duration::from_nanos(ns));
    let ready = sys::poll(fds, timeout);
    shared.wakes.store(0, Ordering::Release);
    if ready.is_ok() && shared.interface.as_ref().is_some_and(|news| news.is_told_by(fds)) {
        shared.look_at_interface();
    }
    match ready {
        Ok(_) if fds[0].revents != 0 => {
            // Whatever it rang for is seen in the next turn.
            let _ = shared.doorbell.read();
        }
        Ok(_) => {}
        // Nothing that waiting could mend; do not spin on it.
        Err(_) => std::thread::sleep(Duration::from_millis(1)),
    }
}
