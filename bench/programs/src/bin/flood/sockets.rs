//! Sockets of the flood: some that send from each address that it uses, and one that hears what is
//! answered to an address of its own.

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg, setsockopt, sockopt};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

use crate::packet::{PORT, Rng};

/// Sending sockets of an address.
const PER_ADDRESS: usize = 4;

/// What the flood sends from.
#[derive(Default)]
pub(crate) struct Senders {
    of: HashMap<IpAddr, Vec<(UdpSocket, u16)>>,
    pub(crate) ports: HashSet<u16>,
    pub(crate) refused: u64,
}

impl Senders {
    fn open(address: IpAddr) -> io::Result<(UdpSocket, u16)> {
        let socket = UdpSocket::bind((address, 0))?;
        if address.is_ipv4() {
            // Then the identification of its packets is their number in the train, and the ICRC
            // can be right.
            set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
        }
        setsockopt(&socket, sockopt::SndBuf, &(4 << 20))?;
        let port = socket.local_addr()?.port();
        Ok((socket, port))
    }

    /// One of the sockets of an address, and its port.
    pub(crate) fn of(&mut self, rng: &mut Rng, address: IpAddr) -> io::Result<(&UdpSocket, u16)> {
        if !self.of.contains_key(&address) {
            let sockets: io::Result<Vec<_>> =
                (0..PER_ADDRESS).map(|_| Self::open(address)).collect();
            let sockets = sockets?;
            self.ports.extend(sockets.iter().map(|(_, port)| port));
            self.of.insert(address, sockets);
        }
        let sockets = &self.of[&address];
        let (socket, port) = &sockets[rng.below(sockets.len())];
        Ok((socket, *port))
    }
}

/// Sends a message, cut into datagrams of `segment` bytes; whether the kernel took it.
pub(crate) fn send(
    socket: &UdpSocket,
    to: IpAddr,
    bytes: &[u8],
    segment: usize,
) -> io::Result<bool> {
    let to = SockaddrStorage::from(SocketAddr::new(to, PORT));
    let size = segment as u16;
    let control = [ControlMessage::UdpGsoSegments(&size)];
    let control = if bytes.len() > segment { &control[..] } else { &[] };
    let data = [IoSlice::new(bytes)];
    match sendmsg(socket.as_raw_fd(), &data, control, MsgFlags::empty(), Some(&to)) {
        Ok(_) => Ok(true),
        // Of something sent before, or there is no room.
        Err(nix::errno::Errno::ECONNREFUSED | nix::errno::Errno::ENOBUFS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Hears what is answered to the addresses that are nobody's.
pub(crate) struct Ears {
    sockets: Vec<UdpSocket>,
    pub(crate) heard: u64,
    /// Of these, answers of flow control, which the rules have answered for anybody.
    pub(crate) told: u64,
    /// The first few of the others.
    pub(crate) examples: Vec<String>,
}

impl Ears {
    pub(crate) fn new(addresses: &[IpAddr]) -> io::Result<Self> {
        let open = |address: &IpAddr| {
            let socket = UdpSocket::bind((*address, PORT))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets = addresses.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self { sockets, heard: 0, told: 0, examples: Vec::new() })
    }

    pub(crate) fn listen(&mut self) {
        let mut bytes = [0; 256];
        for socket in &self.sockets {
            while let Ok((n, from)) = socket.recv_from(&mut bytes) {
                self.heard += 1;
                if bytes[0] == crate::packet::FLOW {
                    self.told += 1;
                } else if self.examples.len() < 8 {
                    self.examples.push(format!("{from}: {:02x?}", &bytes[..n.min(24)]));
                }
            }
        }
    }
}
