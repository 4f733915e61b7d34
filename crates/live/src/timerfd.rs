//! A timer behind a descriptor: what the NIC's thread sleeps on while somebody else drives the
//! NIC, who puts it off. What is done when it has run out is not decided here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::sys;

/// A timer descriptor (`timerfd_create(2)`) of the monotonic clock: readable once it has run out.
#[derive(Debug)]
pub(crate) struct TimerFd {
    fd: OwnedFd,
}

impl TimerFd {
    /// A timer that does not run; closed on exec.
    pub(crate) fn new() -> io::Result<Self> {
        sys::timerfd().map(|fd| Self { fd: sys::high(fd) })
    }

    /// Lets it run out once, so long from now, whatever it was set to; until then it is not
    /// readable.
    pub(crate) fn set(&self, after: Duration) {
        // Zero would stop it. Nothing else can be wrong with a duration.
        let _ = sys::set_timer(self.fd.as_fd(), after.max(Duration::from_nanos(1)));
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_out_once_and_can_be_put_off() {
        let timer = TimerFd::new().unwrap();
        let ready = |ms| {
            let mut fds = [sys::interest(timer.as_fd(), libc::POLLIN)];
            sys::poll(&mut fds, Some(Duration::from_millis(ms))).unwrap() == 1
        };
        assert!(!ready(0), "it was not set");
        timer.set(Duration::ZERO);
        assert!(ready(5000), "it runs out at once");
        timer.set(Duration::from_secs(100));
        assert!(!ready(5), "put off");
        timer.set(Duration::from_millis(1));
        assert!(ready(5000));
    }
}
