//! The verbs checker's place in the library: whether it is on, the one checker of the process, and
//! who is calling. The rules are in the crate `check`; here calls are told to it, before or after
//! they are carried out, and what it finds is handed to `report`. Nothing here changes what a call
//! does or returns, but that a call with a dead handle, which is undefined, fails with EINVAL.

mod asks;
mod calls;
mod config;
mod memory;
mod path;
mod report;
mod site;
mod symbols;

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use check::{Call, Checker, Handle, Kind};

use crate::handle::lock;

pub(crate) use asks::*;
pub(crate) use calls::*;
pub(crate) use path::*;
pub(crate) use report::leaving;

/// The checker of one process.
struct Session {
    pid: u32,
    checker: Mutex<Checker>,
    quarantine: Mutex<Quarantine>,
}

/// The session of this process; none in a child of a fork, which has no objects, and in which a
/// lock that a thread of its parent held stays locked. Never freed.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());

/// Whether calls are checked. Decided once, by the environment.
#[inline]
pub(crate) fn on() -> bool {
    config::get().is_some()
}

fn existing() -> Option<&'static Session> {
    // SAFETY: null, or leaked by `session`.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

extern "C" fn forked() {
    SESSION.store(core::ptr::null_mut(), Ordering::Release);
}

/// The session of this process, if calls are checked.
fn session() -> Option<&'static Session> {
    let config = config::get()?;
    if let Some(session) = existing() {
        return Some(session);
    }
    let fresh = Box::into_raw(Box::new(Session {
        pid: std::process::id(),
        checker: Mutex::new(Checker::new(config.mode.strict)),
        quarantine: Mutex::default(),
    }));
    let none = core::ptr::null_mut();
    match SESSION.compare_exchange(none, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => report::begin(forked),
        // SAFETY: made above, and nobody else has seen it.
        Err(_) => drop(unsafe { Box::from_raw(fresh) }),
    }
    existing()
}

/// Runs `f` on the checker, then says what it found. Leaves `errno` alone.
fn with<R>(f: impl FnOnce(&mut Checker) -> R) -> Option<R> {
    let session = session()?;
    // SAFETY: the location of the calling thread's errno is always valid.
    let errno = unsafe { *libc::__errno_location() };
    let mut checker = lock(&session.checker);
    let result = f(&mut checker);
    report::say(&mut checker);
    drop(checker);
    crate::errno::set_errno(errno);
    Some(result)
}

thread_local! {
    /// The call that this thread is in, and the first object that it was given.
    static CURRENT: Cell<(&'static str, usize)> = const { Cell::new(("", 0)) };
}

/// A call off the data path begins.
#[inline]
pub(crate) fn enter(call: &'static str) {
    if on() {
        CURRENT.set((call, 0));
    }
}

/// The call that this thread is in.
fn current() -> Call {
    named(CURRENT.get().0)
}

/// A call by name, made from wherever this library was entered.
fn named(name: &'static str) -> Call {
    Call { name, site: site::caller() }
}

fn key<P>(public: *mut P) -> Handle {
    Handle(public as u64)
}

/// An object was looked up by its address; `live` says whether there is one.
#[inline]
pub(crate) fn looked_up<P>(public: *mut P, kind: Kind, live: bool) {
    if !on() || public.is_null() {
        return;
    }
    if live {
        let (call, first) = CURRENT.get();
        if first == 0 {
            CURRENT.set((call, public as usize));
        }
    } else {
        dead(current(), public, kind);
    }
}

/// An address names no object; whether it once did.
fn dead<P>(call: Call, public: *mut P, kind: Kind) -> bool {
    with(|checker| checker.dead(call, key(public), kind)).unwrap_or(false)
}

/// A call that looked up an object first has failed.
#[inline]
pub(crate) fn failed(errno: i32) {
    let (call, first) = CURRENT.get();
    let ends = ["ibv_destroy", "ibv_dealloc", "ibv_dereg"].iter().any(|w| call.starts_with(w));
    if errno == libc::EBUSY && ends && first != 0 {
        with(|checker| checker.busy(current(), Handle(first as u64)));
    }
}
