//! Where findings go, what is said at the end of the process, and how it ends.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use check::{Call, Checker, Mode, Site};

use super::config::{self, Config};
use super::{existing, site};
use crate::handle::lock;

/// What the program gave to `exit`; −1 before that.
static STATUS: AtomicI32 = AtomicI32::new(-1);

/// Says something about the checker itself.
pub(super) fn complain(sentence: &str) {
    to_stderr(&format!("crocevia check: {sentence}\n"));
}

/// In one piece, and whatever becomes of it: a program may have closed its standard error.
fn to_stderr(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Appends to a file. It is opened each time: a program may close descriptors that it does not know
/// and have the number for another file.
fn to_file(path: &OsStr, text: &str) -> bool {
    let options = OpenOptions::new().append(true).create(true).mode(0o644).to_owned();
    options.open(path).and_then(|mut file| file.write_all(text.as_bytes())).is_ok()
}

fn write(config: &Config, text: &str, json: &str) {
    match &config.file {
        Some(path) if to_file(path, text) => {}
        _ => to_stderr(text),
    }
    if let Some(path) = &config.json
        && !to_file(path, json)
    {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| complain(&format!("{} cannot be written", path.display())));
    }
}

/// Says what has been found since the last time, and ends the process if that is wanted.
pub(super) fn say(checker: &mut Checker) {
    let Some(config) = config::get() else { return };
    for finding in checker.findings() {
        let json = finding.json(std::process::id(), &site::locate) + "\n";
        write(config, &finding.text(&site::locate), &json);
        if config.mode.abort {
            std::process::abort();
        }
    }
}

unsafe extern "C" {
    // Of the C library, not in the libc crate for all systems.
    fn on_exit(
        f: extern "C" fn(i32, *mut core::ffi::c_void),
        argument: *mut core::ffi::c_void,
    ) -> i32;
}

extern "C" fn exiting(status: i32, _: *mut core::ffi::c_void) {
    STATUS.store(status, Ordering::Relaxed);
}

/// The first object of the process is about to be made.
pub(super) fn begin(forked: unsafe extern "C" fn()) {
    static ONCE: Once = Once::new();
    // SAFETY: registers functions of the types wanted, which cannot unwind; the one for a child of
    // a fork only stores to an atomic.
    ONCE.call_once(|| unsafe {
        on_exit(exiting, core::ptr::null_mut());
        libc::pthread_atfork(None, None, Some(forked));
    });
}

/// Runs when all handlers and destructors of the program have: whatever is left then has leaked.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = {
    extern "C" fn end() {
        crate::errno::guarded("exit", at_end);
    }
    end
};

#[cfg_attr(test, allow(dead_code))]
fn at_end() {
    if let Some(status) = finish(STATUS.load(Ordering::Relaxed), true) {
        // SAFETY: the C library's streams are written out, as they would be next; then the process
        // ends as it was about to.
        unsafe {
            libc::fflush(core::ptr::null_mut());
            libc::syscall(libc::SYS_exit_group, status);
        }
    }
}

/// The process ends by `_exit`; the status that it is to end with.
pub(crate) fn leaving(status: i32) -> i32 {
    finish(status, false).unwrap_or(status)
}

/// Says what is left and what was found; another exit status, if findings are to make one. What a
/// program that failed, or that ends without its handlers, has left is only counted.
fn finish(status: i32, clean: bool) -> Option<i32> {
    let (config, session) = (config::get()?, existing()?);
    // Another thread may hold it and never let go.
    let mut checker = session.checker.try_lock().ok()?;
    // A child of a vfork runs in its parent's memory; a child of a fork has nothing of its own.
    if session.pid != std::process::id() || checker.watched().objects == 0 {
        return None;
    }
    let left = if clean && status == 0 {
        let call = Call { name: "exit", site: Site(0) };
        checker.exit(call)
    } else {
        checker.alive()
    };
    say(&mut checker);
    let (text, json) = summary(&checker, left, session.pid, clean && status == 0);
    write(config, &text, &json);
    let found = checker.counts().next().is_some();
    drop(checker);
    drop(lock(&session.quarantine));
    (config.mode.fail && found && status == 0).then_some(Mode::FAILED)
}

fn summary(checker: &Checker, left: usize, pid: u32, listed: bool) -> (String, String) {
    let watched = checker.watched();
    let counts: Vec<_> = checker.counts().collect();
    let list: Vec<_> =
        counts.iter().map(|(rule, count)| format!("{} x{count}", rule.code())).collect();
    let found = match list.len() {
        0 => "no findings".to_owned(),
        _ => format!("found {}", list.join(", ")),
    };
    let left_text = match (left, listed) {
        (0, _) | (_, true) => String::new(),
        _ => format!("; it failed or ended by _exit, and left {left} objects behind"),
    };
    let text = format!(
        "crocevia check: {found}, in {} objects, {} sends, {} receives, {} completions of process \
         {pid}{left_text}\n",
        watched.objects, watched.sends, watched.receives, watched.completions
    );
    let each: Vec<_> =
        counts.iter().map(|(rule, count)| format!("\"{}\":{count}", rule.code())).collect();
    let json = format!(
        "{{\"summary\":{{{}}},\"pid\":{pid},\"objects\":{},\"sends\":{},\"receives\":{},\
         \"completions\":{},\"left\":{left}}}\n",
        each.join(","),
        watched.objects,
        watched.sends,
        watched.receives,
        watched.completions
    );
    (text, json)
}
