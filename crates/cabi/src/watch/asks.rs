//! Events, and calls that block: what is said before a program waits for what will not come.

use std::time::Duration;

use check::{Call, Handle};

use super::{current, key, named, on, with};
use crate::abi::*;

/// How long a call that waits for acknowledgements may wait before it is a finding, if another
/// thread could still acknowledge.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the program has no thread but the calling one. What cannot be found out is no.
fn alone() -> bool {
    // Threads of ours are known by their names, which each gives itself when it first runs.
    for _ in 0..PATIENCE.as_millis() {
        if !crocevia::threads_are_starting() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let of_program = tasks.flatten().filter(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        !name.starts_with("crocevia-")
    });
    of_program.count() == 1
}

/// An object is about to be destroyed, which waits until its events are acknowledged.
#[inline]
pub(crate) fn ending<P>(public: *mut P) {
    if on() {
        await_acknowledgements(current(), key(public));
    }
}

fn await_acknowledgements(call: Call, object: Handle) {
    if with(|checker| checker.would_wait(object)) != Some(true) {
        return;
    }
    if alone() {
        with(|checker| checker.unacknowledged(call, object));
        return;
    }
    let watch = move || {
        block_signals();
        std::thread::sleep(PATIENCE);
        with(|checker| checker.unacknowledged(call, object));
    };
    // Without a thread to be had nothing is said before the end.
    let _ = std::thread::Builder::new().name("crocevia-check".to_owned()).spawn(watch);
}

/// Signals are the program's threads' business.
fn block_signals() {
    // SAFETY: a plain call on the calling thread with a set that is filled first.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, core::ptr::null_mut());
    }
}

/// The program is about to wait for an event of a channel.
#[inline]
pub(crate) fn waits(channel: *mut ibv_comp_channel, fd: i32) {
    if !on() || with(|checker| checker.would_sleep(key(channel))) != Some(true) {
        return;
    }
    // SAFETY: a query about a descriptor.
    let blocks = unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK == 0;
    if blocks && alone() {
        let call = named("ibv_get_cq_event");
        with(|checker| checker.never_wakes(call, key(channel)));
    }
}

/// A completion event has been taken.
#[inline]
pub(crate) fn event_taken(cq: *mut ibv_cq) {
    if on() {
        let call = named("ibv_get_cq_event");
        with(|checker| checker.event_taken(call, key(cq)));
    }
}

/// Completion events have been acknowledged.
#[inline]
pub(crate) fn acknowledged(cq: *mut ibv_cq, count: u32) {
    if on() {
        with(|checker| checker.events_acknowledged(key(cq), u64::from(count)));
    }
}

/// The object that an asynchronous event is about, if it is about one.
fn subject(event: &ibv_async_event) -> Option<Handle> {
    // SAFETY: every member of the union is plain data; which one counts the type says.
    let (cq, qp, srq) = unsafe { (event.element.cq, event.element.qp, event.element.srq) };
    match event.event_type {
        event::CQ_ERR => Some(key(cq)),
        event::SRQ_ERR | event::SRQ_LIMIT_REACHED => Some(key(srq)),
        event::COMM_EST
        | event::SQ_DRAINED
        | event::QP_FATAL
        | event::QP_REQ_ERR
        | event::QP_ACCESS_ERR
        | event::QP_LAST_WQE_REACHED => Some(key(qp)),
        _ => None,
    }
}

/// An asynchronous event has been taken.
#[inline]
pub(crate) fn async_event_taken(event: &ibv_async_event) {
    if let (true, Some(object)) = (on(), subject(event)) {
        let call = named("ibv_get_async_event");
        with(|checker| checker.async_event_taken(call, object));
    }
}

/// An asynchronous event has been acknowledged.
#[inline]
pub(crate) fn async_event_acknowledged(event: &ibv_async_event) {
    if let (true, Some(object)) = (on(), subject(event)) {
        with(|checker| checker.async_event_acknowledged(object));
    }
}
