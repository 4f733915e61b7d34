//! The default link: RoCEv2 over UDP sockets, without privilege. Each address of the device is
//! received on port 4791 (`udp/inlet`), and has up to sixteen sending sockets, whose ports are the
//! flows' entropy. Opening is here, the two directions are in `udp/receive` and `udp/send`.
//!
//! Sending sockets are never connected and have path MTU discovery on PROBE: only then does the
//! kernel number the datagrams of a train 0, 1, 2 …, which the ICRC has to know.

pub(crate) mod faults;
mod groups;
mod inlet;
mod receive;
mod send;
mod set;
mod stray;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use engine::{Direction, Error, ErrorKind, GidEntry};
use libc::c_int;
use socket2::{Domain, Protocol, Socket, Type};
use wire::Gid;
use wire::transport::ROCE_PORT;

use crate::capture;
use crate::counters::LinkCounters;
use crate::info::DeviceInfo;
use crate::options::Options;
use crate::sys::set_int;

use faults::{Leaving, Line};
use inlet::Inlets;
use receive::Receiver;
use send::Sender;

/// What is asked of the kernel as receive and send buffer where the options say nothing.
const BUFFER: usize = 4 << 20;

/// The sockets of a device.
pub(crate) struct UdpLink {
    pub(crate) counters: LinkCounters,
    ports: Vec<Port>,
    inlets: Inlets,
    receiver: Receiver,
    sender: Sender,
    /// Where sent packets go first if there are to be faults.
    leaving: Option<Box<Line<Leaving>>>,
    receive_buffer: u64,
    slots: Vec<u8>,
}

/// One address of the device.
struct Port {
    gid: Gid,
    ip: IpAddr,
    /// Interface index, for link-local addresses.
    scope: u32,
    /// Sending sockets with their ports, made when first wanted.
    flows: [Option<(Socket, u16)>; send::FLOWS],
}

impl UdpLink {
    /// Binds the device's addresses; the link and the GID table as it really is (entries that could
    /// not be bound are empty).
    pub(crate) fn open(
        info: &DeviceInfo,
        options: &Options,
    ) -> engine::Result<(Self, Vec<GidEntry>)> {
        let (mut ports, mut inlets) = (Vec::new(), Inlets::new(options.receive_buffer));
        let scope = info.netdev.index;
        let mut gids = Vec::with_capacity(info.gids.len());
        for (index, entry) in info.gids.iter().enumerate() {
            let empty = GidEntry { gid: Gid::default(), ..*entry };
            if entry.gid.is_zero() {
                gids.push(empty);
                continue;
            }
            match inlets.open(entry.gid, scope) {
                Ok(()) => {
                    ports.push(Port::new(entry.gid, scope));
                    gids.push(*entry);
                }
                Err(e) if index == 0 => return Err(e),
                Err(_) => gids.push(empty),
            }
        }
        if ports.is_empty() {
            return Err(Error::new(
                ErrorKind::NoDevice,
                format!("interface {} has no address to bind", info.netdev.name),
            ));
        }
        let (receive_buffer, slots) = inlets.claim()?;
        let (inbound, outbound) = capture::open(info, options)?.unzip();
        while gids.last().is_some_and(|entry| entry.gid.is_zero()) {
            gids.pop();
        }
        let sent_faults = options.faults.as_ref().filter(|plan| !plan.tx.is_none());
        let link = Self {
            counters: LinkCounters::default(),
            receiver: Receiver::new(options.faults.as_ref(), inbound),
            sender: Sender::new(ports[0].ip, outbound),
            leaving: sent_faults.map(|plan| Line::new(Direction::Tx, &plan.tx)),
            ports,
            inlets,
            receive_buffer,
            slots,
        };
        Ok((link, gids))
    }

    /// The upper bytes of queue pair numbers for which the link receives; queue pairs are to be
    /// spread over them.
    pub(crate) fn slots(&self) -> &[u8] {
        &self.slots
    }

    /// Whether what passes is captured.
    pub(crate) fn is_captured(&self) -> bool {
        self.receiver.is_captured()
    }

    /// Bytes of receive buffer behind each address and slot, as the kernel counts them.
    pub(crate) fn receive_buffer(&self) -> u64 {
        self.receive_buffer
    }

    /// Appends what has to be waited for: packets to come, room to send if that is lacking.
    pub(crate) fn interests(&self, out: &mut Vec<libc::pollfd>) {
        self.inlets.interests(out);
        if let Some(socket) = self.sender.blocked_on(&self.ports) {
            out.push(crate::sys::interest(socket.as_fd(), libc::POLLOUT));
        }
    }
}

fn bind_error(ip: IpAddr, why: &io::Error) -> Error {
    let kind = match why.kind() {
        io::ErrorKind::AddrInUse => ErrorKind::AddressInUse,
        io::ErrorKind::AddrNotAvailable => ErrorKind::NoDevice,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::System,
    };
    let advice = match kind {
        ErrorKind::AddressInUse => {
            ": somebody receives RoCE on it who does not share it. If that is a Soft-RoCE device \
             of the kernel (rdma link), remove it (rdma link delete NAME) or use another address, \
             such as --addr 127.0.0.2 or CROCEVIA_ADDR=127.0.0.2; `ss -ulpn sport = :4791` shows \
             who it is (a crocevia process shares only with enough descriptors, ulimit -n)"
        }
        ErrorKind::NoDevice => ": this machine does not have the address",
        _ => "",
    };
    Error::new(kind, format!("cannot receive on UDP {ip} port {ROCE_PORT}: {why}{advice}"))
}

fn datagram_socket(ip: IpAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address((ip, 0).into()), kind, Some(Protocol::UDP))?;
    let socket = Socket::from(crate::sys::high(socket.into()));
    if ip.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// The socket address of `ip`; link-local ones need the interface.
fn socket_address(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if inlet::needs_scope(ip) => SocketAddrV6::new(v6, port, 0, scope).into(),
        _ => (ip, port).into(),
    }
}

/// Sets a buffer size: by force where that is allowed, else as much as the system gives.
fn set_buffer(socket: &Socket, force: c_int, name: c_int, bytes: usize) -> io::Result<()> {
    let bytes = bytes.min(1 << 30) as c_int;
    set_int(socket.as_fd(), libc::SOL_SOCKET, force, bytes)
        .or_else(|_| set_int(socket.as_fd(), libc::SOL_SOCKET, name, bytes))
}

impl Port {
    fn new(gid: Gid, scope: u32) -> Self {
        Self { gid, ip: gid.to_ip(), scope, flows: [const { None }; send::FLOWS] }
    }
}

#[cfg(test)]
mod tests;
