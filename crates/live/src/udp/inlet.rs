//! The receiving sockets. An address has one, or, where the system lets a socket have little
//! receive buffer, several: they share the port, and the kernel gives each datagram to one of them
//! by the number of the queue pair that it is for, so that many senders do not meet in one buffer.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use libc::c_int;
use socket2::Socket;
use wire::Gid;
use wire::transport::ROCE_PORT;

use super::{BUFFER, datagram_socket, set_buffer, socket_address};
use crate::epoll::{Epoll, MOST_READY};
use crate::sys::{attach_reuseport_filter, get_int, interest, set_int};

/// Most receiving sockets of an address.
pub(super) const MOST: u8 = 8;
/// Addresses that get more than one: descriptors are not without end.
const SHARED_ADDRESSES: usize = 4;
/// Up to so many sockets are looked at one by one.
const DIRECT: usize = 4;
const _: () = assert!(DIRECT <= MOST_READY && MOST.is_power_of_two());
/// A socket on which nothing came for so many looks is looked at only now and then.
const QUIET_AFTER: u32 = 256;
/// Every so many looks.
const QUIET_EVERY: u32 = 8;

/// A receiving socket.
pub(super) struct Inlet {
    pub(super) gid: Gid,
    pub(super) socket: Socket,
    /// The kernel's count of drops when last told.
    pub(super) kernel_drops: u32,
    /// Messages to ask for at the next receive.
    pub(super) appetite: usize,
    /// Looks since the last message.
    pub(super) quiet: u32,
}

/// Receiving sockets of all addresses.
pub(super) struct Inlets {
    pub(super) all: Vec<Inlet>,
    /// Where there are many: asks them all at once.
    epoll: Option<Epoll>,
    /// The only one on which something came of late.
    hot: Option<u16>,
    looks: u32,
}

/// Which sockets a look is at.
pub(super) struct Look {
    numbers: [u16; MOST_READY],
    count: u16,
}

impl Look {
    const NONE: Self = Self { numbers: [0; MOST_READY], count: 0 };

    fn at(number: u16) -> Self {
        let mut look = Self::NONE;
        look.add(number);
        look
    }

    fn add(&mut self, number: u16) {
        if let Some(place) = self.numbers.get_mut(usize::from(self.count)) {
            *place = number;
            self.count += 1;
        }
    }

    pub(super) fn numbers(&self) -> &[u16] {
        &self.numbers[..usize::from(self.count)]
    }
}

impl Inlets {
    pub(super) fn new() -> Self {
        Self { all: Vec::new(), epoll: None, hot: None, looks: 0 }
    }

    /// How many sockets each address is to have, so that together they have as much buffer as is
    /// wanted: a power of two.
    pub(super) fn spread(receive_buffer: u64) -> u8 {
        // The kernel counts double what is asked for.
        let wanted = 2 * BUFFER as u64 / receive_buffer.max(1);
        let most = wanted.clamp(1, MOST.into()) as u8;
        1 << most.ilog2()
    }

    /// Binds an address; the bytes of buffer behind it. Fails if anybody else has it, another
    /// process of this user too.
    pub(super) fn open(
        &mut self,
        gid: Gid,
        scope: u32,
        receive_buffer: Option<usize>,
    ) -> io::Result<u64> {
        let inlet = Inlet::open(gid, scope, receive_buffer, false)?;
        let bytes = get_int(inlet.socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        self.all.push(inlet);
        Ok(bytes.max(0) as u64)
    }

    /// Gives each of the first addresses `count` sockets. Where that cannot be had there are fewer,
    /// and the kernel distributes by another rule.
    pub(super) fn share(
        &mut self,
        scope: u32,
        count: u8,
        receive_buffer: Option<usize>,
    ) -> io::Result<()> {
        let addresses = if count > 1 { self.all.len().min(SHARED_ADDRESSES) } else { 0 };
        for first in 0..addresses {
            let gid = self.all[first].gid;
            let mut join = || {
                // The first was bound without it, which only one can.
                let fd = self.all[first].socket.as_fd();
                set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
                for _ in 1..count {
                    self.all.push(Inlet::open(gid, scope, receive_buffer, true)?);
                }
                attach_reuseport_filter(self.all[first].socket.as_fd(), &by_slot(count))
            };
            let _ = join();
        }
        if self.all.len() > DIRECT {
            let epoll = Epoll::new()?;
            for (number, inlet) in (0..).zip(&self.all) {
                epoll.add(inlet.socket.as_fd(), number)?;
            }
            self.epoll = Some(epoll);
        }
        Ok(())
    }

    /// Appends what has to be waited for.
    pub(super) fn interests(&self, out: &mut Vec<libc::pollfd>) {
        match &self.epoll {
            Some(epoll) => out.push(interest(epoll.as_fd(), libc::POLLIN)),
            None => {
                let sockets = self.all.iter().map(|inlet| inlet.socket.as_fd());
                out.extend(sockets.map(|fd| interest(fd, libc::POLLIN)));
            }
        }
    }

    /// The first sockets to look at. With `everywhere` unset, those that have long been quiet are
    /// looked at only now and then. If nothing has come, [`Self::elsewhere`] tells where else.
    pub(super) fn look(&mut self, everywhere: bool) -> Look {
        self.looks = self.looks.wrapping_add(1);
        let now_and_then = self.looks.is_multiple_of(QUIET_EVERY);
        if self.epoll.is_some() {
            return match self.hot {
                Some(hot) if !now_and_then => Look::at(hot),
                _ => self.ready(),
            };
        }
        let only = self.all.len() == 1;
        let mut look = Look::NONE;
        for (number, inlet) in (0..).zip(&self.all) {
            if everywhere || only || now_and_then || inlet.quiet < QUIET_AFTER {
                look.add(number);
            }
        }
        look
    }

    /// What else to look at after `look` has found nothing.
    pub(super) fn elsewhere(&mut self, look: &Look) -> Look {
        match self.hot {
            Some(hot) if self.epoll.is_some() && look.numbers() == [hot] => self.ready(),
            _ => Look::NONE,
        }
    }

    /// Those that have something, and whether it is only one.
    fn ready(&mut self) -> Look {
        let Some(epoll) = &self.epoll else { return Look::NONE };
        let (numbers, count) = epoll.ready();
        match count {
            0 => {}
            1 => self.hot = Some(numbers[0]),
            _ => self.hot = None,
        }
        Look { numbers, count: count as u16 }
    }
}

impl Inlet {
    fn open(gid: Gid, scope: u32, receive_buffer: Option<usize>, joins: bool) -> io::Result<Self> {
        let ip = gid.to_ip();
        let socket = datagram_socket(ip)?;
        let fd = socket.as_fd();
        match ip {
            IpAddr::V4(_) => {
                set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
                set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)?;
            }
            IpAddr::V6(_) => {
                set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
                set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
                // The kernel's Soft-RoCE sends datagrams without UDP checksum.
                set_int(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
            }
        }
        set_int(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        // Kernels before 5.0 do not know it; trains then come in packets.
        let _ = set_int(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        let bytes = receive_buffer.unwrap_or(BUFFER);
        set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)?;
        set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, c_int::from(joins))?;
        socket.bind(&socket_address(ip, ROCE_PORT, scope).into())?;
        Ok(Self { gid, socket, kernel_drops: 0, appetite: 1, quiet: 0 })
    }
}

/// Chooses among `count` sockets (a power of two) by the upper byte of the destination QP number,
/// its slot. Offsets count from the payload of the datagram, the BTH.
fn by_slot(count: u8) -> [libc::sock_filter; 5] {
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xFF_FFFF),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, u32::from(count) - 1),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ]
}
