//! A set of descriptors that is asked at once which of them can be read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;

/// Descriptors told of by one look.
pub(crate) const MOST_READY: usize = 16;

/// An epoll instance (`epoll(7)`), level-triggered.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        sys::epoll_create().map(|fd| Self { fd: sys::high(fd) })
    }

    /// Adds a descriptor under a number.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, number: u16) -> io::Result<()> {
        sys::epoll_add(self.fd.as_fd(), fd, number.into())
    }

    /// The numbers of descriptors that can be read, without waiting, and how many they are.
    pub(crate) fn ready(&self) -> ([u16; MOST_READY], usize) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST_READY];
        // The descriptor is good and nothing is waited for: it cannot fail.
        let count = sys::epoll_ready(self.fd.as_fd(), &mut events).unwrap_or(0);
        (events.map(|event| event.u64 as u16), count)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn what_can_be_read_is_told_until_it_is_read() {
        let epoll = Epoll::new().unwrap();
        let sockets: Vec<UdpSocket> =
            (0..20).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        for (number, socket) in (0..).zip(&sockets) {
            epoll.add(socket.as_fd(), number).unwrap();
        }
        assert_eq!(epoll.ready().1, 0);
        let send = |number: usize| {
            sockets[0].send_to(b"x", sockets[number].local_addr().unwrap()).unwrap();
        };
        send(7);
        for _ in 0..2 {
            let (numbers, count) = epoll.ready();
            assert_eq!((numbers[0], count), (7, 1));
        }
        sockets[7].recv(&mut [0; 8]).unwrap();
        assert_eq!(epoll.ready().1, 0);
        (0..20).for_each(send);
        let mut told = [false; 20];
        for _ in 0..2 {
            let (numbers, count) = epoll.ready();
            for number in &numbers[..count] {
                sockets[usize::from(*number)].recv(&mut [0; 8]).unwrap();
                told[usize::from(*number)] = true;
            }
        }
        assert_eq!(told, [true; 20], "those that found no room are told of at the next look");
    }
}
