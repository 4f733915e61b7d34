//! What ends or changes a live audit from outside: signals and keys, as messages of a thread. They
//! are blocked meanwhile, so that the terminal is left in order and the report is given.

use std::fs;
use std::io::{self, PipeReader, Read, stdin};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// The end, and the report.
    End,
    /// The terminal has changed.
    Redraw,
    /// The process is to stop until it is continued.
    Suspend,
}

impl Asked {
    fn by(signal: i32) -> Self {
        match Signal::try_from(signal) {
            Ok(Signal::SIGWINCH) => Self::Redraw,
            Ok(Signal::SIGTSTP) => Self::Suspend,
            _ => Self::End,
        }
    }
}

const SIGNALS: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
];

/// The signals, blocked for this thread and those that it starts; as they were before when dropped.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Blocks them. Those that the process was started to ignore (`nohup`) stay ignored.
    pub(super) fn block() -> io::Result<Self> {
        let ignored = ignored();
        let mut set = SigSet::empty();
        for signal in SIGNALS {
            if ignored & (1 << (signal as u32 - 1)) == 0 {
                set.add(signal);
            }
        }
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let before = SigSet::thread_get_mask()?;
        set.thread_block()?;
        Ok(Self { fd, before })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

/// Signals that this process ignores, one bit for each; 0 where it is not told.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Hands on signals, and with `keys` keys, until `stop` is closed or nobody takes them.
pub(super) fn listen(
    signals: &Signals,
    mut keys: bool,
    stop: &PipeReader,
    mut tell: impl FnMut(Asked) -> bool,
) {
    loop {
        let interest = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let input = stdin();
        let mut fds =
            [interest(stop.as_fd()), interest(signals.fd.as_fd()), interest(input.as_fd())];
        let count = if keys { 3 } else { 2 };
        if !matches!(poll(&mut fds[..count], PollTimeout::NONE), Ok(1..)) {
            continue;
        }
        let ready = fds.map(|fd| fd.revents().is_some_and(|revents| !revents.is_empty()));
        if ready[0] {
            return;
        }
        let mut asked = Vec::new();
        while let Ok(Some(signal)) = signals.fd.read_signal() {
            asked.push(Asked::by(signal.ssi_signo as i32));
        }
        if keys && ready[2] {
            let mut typed = [0; 64];
            let n = input.lock().read(&mut typed).unwrap_or(0);
            keys = n > 0;
            asked.extend(
                typed.iter().take(n).filter(|key| b"qQ\x03\x04".contains(key)).map(|_| Asked::End),
            );
        }
        if !asked.into_iter().all(&mut tell) {
            return;
        }
    }
}

/// Stops the process until it is continued.
pub(super) fn stop_process() {
    let _ = raise(Signal::SIGSTOP);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_told_until_the_end() {
        std::thread::spawn(|| {
            let signals = Signals::block().expect("signals");
            for signal in [Signal::SIGWINCH, Signal::SIGINT] {
                // To this thread alone: the process has others that do not block it.
                raise(signal).expect("sent");
            }
            let (stop, stopper) = io::pipe().expect("a pipe");
            let (mut told, mut stopper) = (Vec::new(), Some(stopper));
            listen(&signals, false, &stop, |asked| {
                told.push(asked);
                if told.len() == 2 {
                    stopper = None;
                }
                true
            });
            assert_eq!(told, [Asked::End, Asked::Redraw]);
            drop(signals);
            let mask = SigSet::thread_get_mask().expect("the mask");
            assert!(!mask.contains(Signal::SIGINT));
        })
        .join()
        .expect("the test");
    }
}
