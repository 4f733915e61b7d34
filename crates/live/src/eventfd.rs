//! A counter behind a descriptor: what completion channels and event queues sleep on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::sys;

/// An event descriptor (`eventfd(2)`) that hands out one event a read.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// A descriptor without events; blocking, closed on exec.
    pub fn new() -> io::Result<Self> {
        sys::eventfd(libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC).map(|fd| Self { fd })
    }

    /// A descriptor whose read takes all events at once; never blocks.
    pub(crate) fn doorbell() -> io::Result<Self> {
        sys::eventfd(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).map(|fd| Self { fd: sys::high(fd) })
    }

    /// Adds one event and wakes whoever waits.
    pub fn signal(&self) {
        // The only failure possible is a counter at its end, 2^64 − 2, and then it is readable.
        let _ = sys::write_u64(self.fd.as_fd(), 1);
    }

    /// Takes one event; blocks until there is one, or returns `WouldBlock` if the descriptor has
    /// been made non-blocking.
    pub fn read(&self) -> io::Result<()> {
        loop {
            match sys::read_u64(self.fd.as_fd()) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    /// Takes one event if there is one, without blocking whatever the descriptor's flags say.
    pub fn try_read(&self) -> io::Result<bool> {
        sys::try_read_u64(self.fd.as_fd()).map(|value| value.is_some())
    }

    /// Waits until there is an event, which is not taken; false when `timeout` was over first.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let deadline = timeout.map(|t| std::time::Instant::now() + t);
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(std::time::Instant::now()));
            let mut fds = [sys::interest(self.fd.as_fd(), libc::POLLIN)];
            if sys::poll(&mut fds, left)? > 0 {
                return Ok(true);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
    }

    /// The descriptor, for poll, select, epoll and fcntl.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_a_read() {
        let fd = EventFd::new().unwrap();
        assert!(!fd.try_read().unwrap());
        assert!(!fd.wait(Some(Duration::from_millis(1))).unwrap());
        fd.signal();
        fd.signal();
        assert!(fd.wait(None).unwrap());
        fd.read().unwrap();
        assert!(fd.try_read().unwrap());
        assert!(!fd.try_read().unwrap());
    }
}
