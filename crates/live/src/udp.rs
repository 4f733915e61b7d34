//! The default link: RoCEv2 over UDP sockets, without privilege. One receiving socket for each
//! address of the device, on port 4791; up to sixteen sending sockets for each, whose ports are the
//! flows' entropy. Opening is here, the two directions are in `udp/receive` and `udp/send`.
//!
//! Sending sockets are never connected and have path MTU discovery on PROBE: only then does the
//! kernel number the datagrams of a train 0, 1, 2 …, which the ICRC has to know.

mod receive;
mod send;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use engine::{Error, ErrorKind, GidEntry};
use libc::c_int;
use socket2::{Domain, Protocol, Socket, Type};
use wire::Gid;
use wire::transport::ROCE_PORT;

use crate::counters::LinkCounters;
use crate::info::DeviceInfo;
use crate::options::Options;
use crate::sys::{get_int, set_int};

use receive::Receiver;
use send::Sender;

/// What is asked of the kernel as receive and send buffer where the options say nothing.
const BUFFER: usize = 4 << 20;

/// The sockets of a device.
pub(crate) struct UdpLink {
    pub(crate) counters: LinkCounters,
    ports: Vec<Port>,
    receiver: Receiver,
    sender: Sender,
    receive_buffer: u64,
}

/// One address of the device.
struct Port {
    gid: Gid,
    ip: IpAddr,
    /// Interface index, for link-local addresses.
    scope: u32,
    socket: Socket,
    /// Sending sockets with their ports, made when first wanted.
    flows: [Option<(Socket, u16)>; send::FLOWS],
    /// The kernel's count of drops when last told.
    kernel_drops: u32,
    /// Messages to ask for at the next receive.
    appetite: usize,
    /// Looks since the last message.
    quiet: u32,
}

impl UdpLink {
    /// Binds the device's addresses; the link and the GID table as it really is (entries that could
    /// not be bound are empty).
    pub(crate) fn open(
        info: &DeviceInfo,
        options: &Options,
    ) -> engine::Result<(Self, Vec<GidEntry>)> {
        let mut ports = Vec::new();
        let mut gids = Vec::with_capacity(info.gids.len());
        for (index, entry) in info.gids.iter().enumerate() {
            let empty = GidEntry { gid: Gid::default(), ..*entry };
            if entry.gid.is_zero() {
                gids.push(empty);
                continue;
            }
            match Port::open(entry.gid, info.netdev.index, options.receive_buffer) {
                Ok(port) => {
                    ports.push(port);
                    gids.push(*entry);
                }
                Err(e) if index == 0 => return Err(bind_error(entry.gid.to_ip(), &e)),
                Err(_) => gids.push(empty),
            }
        }
        let Some(receive_buffer) = ports.iter().map(Port::receive_buffer).min() else {
            return Err(Error::new(
                ErrorKind::NoDevice,
                format!("interface {} has no address to bind", info.netdev.name),
            ));
        };
        while gids.last().is_some_and(|entry| entry.gid.is_zero()) {
            gids.pop();
        }
        let link = Self {
            counters: LinkCounters::default(),
            receiver: Receiver::new(options.faults),
            sender: Sender::new(ports[0].ip),
            ports,
            receive_buffer,
        };
        Ok((link, gids))
    }

    /// Bytes of receive buffer behind each address, as the kernel counts them.
    pub(crate) fn receive_buffer(&self) -> u64 {
        self.receive_buffer
    }

    /// Appends what has to be waited for: packets to come, room to send if that is lacking.
    pub(crate) fn interests(&self, out: &mut Vec<libc::pollfd>) {
        out.extend(self.ports.iter().map(|p| crate::sys::interest(p.socket.as_fd(), libc::POLLIN)));
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
            ": somebody else receives RoCE on it. If that is another crocevia process, give each \
             its own address, such as --addr 127.0.0.2 or CROCEVIA_ADDR=127.0.0.2; if it is a \
             Soft-RoCE device of the kernel (rdma link), remove it (rdma link delete NAME) or use \
             another address; `ss -ulpn sport = :4791` shows who it is"
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
        IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast() => {
            SocketAddrV6::new(v6, port, 0, scope).into()
        }
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
    fn open(gid: Gid, scope: u32, receive_buffer: Option<usize>) -> io::Result<Self> {
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
        socket.bind(&socket_address(ip, ROCE_PORT, scope).into())?;
        Ok(Self {
            gid,
            ip,
            scope,
            socket,
            flows: [const { None }; send::FLOWS],
            kernel_drops: 0,
            appetite: 1,
            quiet: 0,
        })
    }

    fn receive_buffer(&self) -> u64 {
        get_int(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0).max(0) as u64
    }
}

#[cfg(test)]
mod tests;
