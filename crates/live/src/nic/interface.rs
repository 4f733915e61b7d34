//! Whether the interface beneath a device is up: the system tells of changes (`rtnetlink(7)`), so
//! that nothing is asked while nothing happens.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use engine::LinkState;

use crate::netdev::netdevs;
use crate::sys;

/// News of one interface.
pub(super) struct InterfaceNews {
    news: OwnedFd,
    index: u32,
}

impl InterfaceNews {
    /// Watches the interface with this index.
    pub(super) fn new(index: u32) -> io::Result<Self> {
        let news = sys::high(sys::interface_news()?);
        sys::release_on_fork(news.as_fd());
        Ok(Self { news, index })
    }

    /// Whether there are news after a wait on these descriptors.
    pub(super) fn is_told_by(&self, fds: &[libc::pollfd]) -> bool {
        let own = self.news.as_raw_fd();
        fds.iter().any(|polled| polled.fd == own && polled.revents != 0)
    }

    /// Reads the news, and looks how the interface is if they are of it: down if it is gone.
    pub(super) fn look(&self) -> Option<LinkState> {
        if !sys::take_interface_news(self.news.as_fd(), self.index) {
            return None;
        }
        let devs = netdevs().ok()?;
        let up = devs.iter().any(|dev| dev.index == self.index && dev.up);
        Some(if up { LinkState::Up } else { LinkState::Down })
    }
}

impl AsFd for InterfaceNews {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

impl Drop for InterfaceNews {
    fn drop(&mut self) {
        sys::keep_on_fork(self.news.as_fd());
    }
}
