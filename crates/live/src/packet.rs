//! An interface's traffic as it is seen there, for the auditor: a packet socket (`packet(7)`) with
//! a filter, times in nanoseconds, tags put back, trains told by their segments. The filter is in
//! `packet/filter.rs`, frames and what comes with them in `packet/inbox.rs`. What frames mean is
//! not known here.

mod filter;
mod inbox;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{c_int, socklen_t};
use socket2::{Domain, Protocol, Socket, Type};

use crate::netdev::netdevs;
use crate::sys::{self, Plain};
use inbox::Inbox;

/// Bytes that wait to be read at most: with small packets the kernel counts about a KiB for each.
const BUFFER: c_int = 64 << 20;
/// After fewer frames than one call brings, so long nobody is woken: at most a thousand times a
/// second, whatever arrives.
const NAP: Duration = Duration::from_millis(1);
/// Interfaces of IP packets without a header before them (`linux/if_arp.h`).
const ARPHRD_RAWIP: u16 = 519;
/// Where LLDP and pauses go; an adapter lets them through only if asked to.
const GROUPS: [[u8; 6]; 4] = [
    [0x01, 0x80, 0xC2, 0, 0, 0x0E],
    [0x01, 0x80, 0xC2, 0, 0, 0x03],
    [0x01, 0x80, 0xC2, 0, 0, 0x00],
    [0x01, 0x80, 0xC2, 0, 0, 0x01],
];

/// What frames begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameLink {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
}

/// A frame as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// When, nanoseconds since 1970, by the kernel.
    pub time_ns: u64,
    /// Bytes that it had; `bytes` may be fewer.
    pub original_len: u32,
    /// Whether this machine sent it.
    pub outgoing: bool,
    /// Bytes of UDP payload of each datagram that it will be cut into, or was merged from.
    pub segment: Option<u16>,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Why an interface cannot be listened to, or no longer.
#[derive(Debug)]
pub enum PacketError {
    /// The process may not: it has no `CAP_NET_RAW`.
    NotPermitted,
    /// There is no interface of that name; those that there are.
    NoInterface(Vec<String>),
    /// The interface is down, or went down.
    Down,
    /// The interface has vanished.
    Gone,
    /// Its frames are of a kind that is not read: the kernel's number for it (`ARPHRD_`).
    Kind(u16),
    /// The system's error.
    System(io::Error),
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("listening needs CAP_NET_RAW"),
            Self::NoInterface(there) => {
                write!(f, "no such interface: there are {}", there.join(", "))
            }
            Self::Down => f.write_str("the interface is down"),
            Self::Gone => f.write_str("the interface has vanished"),
            Self::Kind(kind) => {
                write!(f, "neither an Ethernet nor an IP interface (ARPHRD number {kind})")
            }
            Self::System(error) => write!(f, "listening failed: {error}"),
        }
    }
}

impl std::error::Error for PacketError {}

impl From<io::Error> for PacketError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            Some(libc::ENETDOWN) => Self::Down,
            _ => Self::System(error),
        }
    }
}

// SAFETY: integers and bytes without gaps.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: two integers.
unsafe impl Plain for [u32; 2] {}

/// What may have arrived since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Busy {
    /// Nothing is there.
    No,
    /// Something may be, or soon.
    Somewhat,
    /// There is more.
    Very,
}

/// Listens to an interface.
pub struct PacketSocket {
    socket: Socket,
    interface: String,
    index: u32,
    link: FrameLink,
    loopback: bool,
    /// Whether frames have an offload header before them.
    offload: bool,
    inbox: Inbox,
    busy: Busy,
    dropped: u64,
}

impl fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSocket").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl PacketSocket {
    /// Listens to what an audit needs of `interface`'s traffic; with `promiscuous` also to what is
    /// for other stations. On a loopback interface, where everything sent is received, each frame
    /// is given once.
    ///
    /// # Errors
    /// There is no such interface or it is down, its frames are of an unknown kind, or the process
    /// may not.
    pub fn open(interface: &str, promiscuous: bool) -> Result<Self, PacketError> {
        let kind = Type::RAW.cloexec().nonblocking();
        // Without a protocol, so that nothing is received before the filter stands.
        let socket = Socket::new_raw(Domain::PACKET, kind, Some(Protocol::from(0)))?;
        let devs = netdevs().map_err(|e| io::Error::other(e.to_string()))?;
        let Some(dev) = devs.iter().find(|dev| dev.name == interface) else {
            let there = devs.into_iter().map(|dev| dev.name).collect();
            return Err(PacketError::NoInterface(there));
        };
        let fd = socket.as_fd();
        bind(fd, 0, dev.index)?;
        let link = match kind_of(fd)? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => FrameLink::Ethernet,
            libc::ARPHRD_NONE | ARPHRD_RAWIP => FrameLink::Ip,
            other => return Err(PacketError::Kind(other)),
        };
        let program = match link {
            FrameLink::Ethernet => filter::ethernet(),
            FrameLink::Ip => filter::ip(),
        };
        socket.attach_filter(&program)?;
        let set = |level, name, value| sys::set_int(fd, level, name, value);
        set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        let offload = set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).is_ok();
        if dev.loopback {
            // Linux before 4.20 does not know that: `receive` leaves them out then.
            let _ = set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        }
        // The first needs CAP_NET_ADMIN, the second is limited by net.core.rmem_max.
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)
            .or_else(|_| set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER))?;
        join(fd, dev.index, promiscuous)?;
        bind(fd, libc::ETH_P_ALL as u16, dev.index)?;
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        Ok(Self {
            interface: interface.to_owned(),
            index: dev.index,
            link,
            loopback: dev.loopback,
            offload,
            inbox: Inbox::new(),
            busy: Busy::No,
            dropped: 0,
            socket,
        })
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// What its frames begin with.
    pub fn link(&self) -> FrameLink {
        self.link
    }

    /// Waits for frames and hands each to `take`; false if `stop` could be read first, or its
    /// other end was closed.
    ///
    /// # Errors
    /// The interface went down or vanished; the system's errors.
    pub fn receive(
        &mut self,
        stop: BorrowedFd<'_>,
        take: &mut dyn FnMut(Frame<'_>),
    ) -> Result<bool, PacketError> {
        loop {
            if self.is_over(stop)? {
                return Ok(false);
            }
            let mut got = false;
            let loopback = self.loopback;
            let mut hand_on = |frame: Frame<'_>| {
                if !(loopback && frame.outgoing) {
                    got = true;
                    take(frame);
                }
            };
            let form = (self.offload, self.link == FrameLink::Ethernet);
            let more = self.inbox.receive(self.socket.as_fd(), form, &mut hand_on);
            match more {
                Ok(more) => self.busy = if more { Busy::Very } else { Busy::Somewhat },
                Err(error) => self.excuse(error)?,
            }
            if got {
                return Ok(true);
            }
        }
    }

    /// Hands on what has arrived by now, without waiting.
    ///
    /// # Errors
    /// As for `receive`.
    pub fn rest(&mut self, take: &mut dyn FnMut(Frame<'_>)) -> Result<(), PacketError> {
        let until = sys::realtime_ns();
        let (late, loopback) = (Cell::new(false), self.loopback);
        let mut hand_on = |frame: Frame<'_>| {
            if frame.time_ns > until {
                late.set(true);
            } else if !(loopback && frame.outgoing) {
                take(frame);
            }
        };
        self.busy = Busy::Very;
        while self.busy != Busy::No && !late.get() {
            let form = (self.offload, self.link == FrameLink::Ethernet);
            if let Err(error) = self.inbox.receive(self.socket.as_fd(), form, &mut hand_on) {
                self.excuse(error)?;
            }
        }
        Ok(())
    }

    /// Waits as long as is good; whether it is over.
    fn is_over(&self, stop: BorrowedFd<'_>) -> io::Result<bool> {
        let frames = sys::interest(self.socket.as_fd(), libc::POLLIN);
        let mut both = [sys::interest(stop, libc::POLLIN), frames];
        match self.busy {
            Busy::No => sys::poll(&mut both, None)?,
            Busy::Somewhat => sys::poll(&mut both[..1], Some(NAP))?,
            Busy::Very => sys::poll(&mut both[..1], Some(Duration::ZERO))?,
        };
        Ok(both[0].revents != 0)
    }

    /// What an error of receiving means; nothing if it is none.
    fn excuse(&mut self, error: io::Error) -> Result<(), PacketError> {
        match error.raw_os_error() {
            _ if error.kind() == io::ErrorKind::WouldBlock => self.busy = Busy::No,
            Some(libc::EINTR) => {}
            // Linux before 6.2 has no offload header for trains of UDP, and takes the train away.
            Some(libc::EINVAL) if self.offload => {
                self.dropped += 1;
                self.offload = false;
                let fd = self.socket.as_fd();
                sys::set_int(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 0)?;
            }
            Some(libc::ENETDOWN) => {
                let is_there =
                    |devs: Vec<crate::NetDev>| devs.iter().any(|d| d.index == self.index);
                return Err(match netdevs().map(is_there) {
                    Ok(false) => PacketError::Gone,
                    _ => PacketError::Down,
                });
            }
            _ => return Err(error.into()),
        }
        Ok(())
    }

    /// Frames that were wanted but found no room since the socket was made.
    pub fn dropped(&mut self) -> u64 {
        // Packets and drops; reading sets both to 0.
        let counts =
            sys::get_option(self.socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, [0; 2]);
        self.dropped += counts.map_or(0, |[_, drops]: [u32; 2]| u64::from(drops));
        self.dropped
    }
}

/// An address of the packet family; for a protocol of 0 nothing is received.
fn bind(fd: BorrowedFd<'_>, protocol: u16, index: u32) -> io::Result<()> {
    // SAFETY: plain old data for which all zeros are a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as c_int;
    let len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the pointer and length describe `address`, which outlives the call.
    sys::check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// The kind of the interface that a socket is bound to.
fn kind_of(fd: BorrowedFd<'_>) -> io::Result<u16> {
    // SAFETY: plain old data for which all zeros are a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the pointers describe `address` and `len`, alive and writable during the call.
    sys::check(unsafe {
        libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len)
    })?;
    Ok(address.sll_hatype)
}

/// Has the adapter let through what is not for it, for as long as the socket is open.
fn join(fd: BorrowedFd<'_>, index: u32, promiscuous: bool) -> io::Result<()> {
    let request = |kind: c_int, group: &[u8]| {
        let mut address = [0; 8];
        address[..group.len()].copy_from_slice(group);
        let request = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: kind as u16,
            mr_alen: group.len() as u16,
            mr_address: address,
        };
        sys::set_plain(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
    };
    for group in &GROUPS {
        // Interfaces without Ethernet addresses have no groups.
        let _ = request(libc::PACKET_MR_MULTICAST, group);
    }
    if promiscuous { request(libc::PACKET_MR_PROMISC, &[]) } else { Ok(()) }
}
