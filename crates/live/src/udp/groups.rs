//! Multicast groups of a link: where datagrams to a group go, and the sockets that have joined one.
//! Every process has a socket of its own for each of its groups, bound to the group's address: the
//! kernel gives a copy to each, whosever they are. Which queue pairs are members the device knows.
//!
//! A group is joined and left by calls of the application only; what comes for it is received as
//! from any other inlet.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use engine::{Error, ErrorKind};
use libc::c_int;
use socket2::Socket;
use wire::{Gid, Path};

use super::inlet::{Inlet, Sharing, open_socket};
use super::{BUFFER, UdpLink};
use crate::sys::{set_int, set_plain};

/// First byte of the IPv4 groups that stand for other ones (administrative scope, RFC 2365).
const STAND_IN: u8 = 239;
/// Routers that a datagram to a group may pass: as many as any other may.
const HOPS: c_int = engine::limits::DEFAULT_HOP_LIMIT as c_int;

/// The IP group that carries a multicast GID from an own address. A GID that names one of the
/// address's family is it: an IPv6 group, an IPv4-mapped address, or `ffxy::ffff:a.b.c.d`, as
/// connection managers write IPv4 groups. Of the other family a group stands in that every member
/// finds alike: `ff0e::ffff:a.b.c.d`, or one under 239.0.0.0/8 chosen by all bits of the GID.
pub(super) fn address(own: IpAddr, group: Gid) -> IpAddr {
    let bytes = group.0;
    let embedded = bytes[2..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];
    let v4 = Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]);
    match (own, group.to_ip()) {
        (IpAddr::V4(_), IpAddr::V6(_)) if embedded && v4.is_multicast() => v4.into(),
        (IpAddr::V4(_), IpAddr::V6(_)) => {
            // FNV-1a, folded to 24 bits.
            let hash = bytes.iter().fold(0x811C_9DC5_u32, |hash, byte| {
                (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
            });
            let [high, a, b, c] = hash.to_be_bytes();
            Ipv4Addr::new(STAND_IN, a, b, c ^ high).into()
        }
        (IpAddr::V6(_), IpAddr::V4(v4)) => {
            let mut bytes = v4.to_ipv6_mapped().octets();
            (bytes[0], bytes[1]) = (0xFF, 0x0E);
            Ipv6Addr::from(bytes).into()
        }
        (_, own_family) => own_family,
    }
}

/// Where the packets of a path go.
pub(super) fn destination(path: &Path) -> IpAddr {
    match path.destination.to_ip() {
        group if group.is_multicast() => address(path.source.to_ip(), path.destination),
        one => one,
    }
}

/// Lets a sending socket send to groups: out of its own interface, beyond the next router, and back
/// to members on this machine.
pub(super) fn prepare_sender(socket: &Socket, ip: IpAddr, scope: u32) -> io::Result<()> {
    let fd = socket.as_fd();
    match ip {
        IpAddr::V4(_) => {
            set_plain(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, v4_interface(None, scope))?;
            set_int(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, HOPS)?;
            set_int(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, 1)
        }
        IpAddr::V6(_) => {
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, scope as c_int)?;
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, HOPS)?;
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 1)
        }
    }
}

fn v4_interface(group: Option<Ipv4Addr>, scope: u32) -> libc::ip_mreqn {
    let group = u32::from_ne_bytes(group.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: group },
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: scope as c_int,
    }
}

/// A socket that receives what comes for a group on an interface.
fn open(group: IpAddr, scope: u32, receive_buffer: usize) -> io::Result<Socket> {
    let socket = open_socket(group, scope, receive_buffer, Sharing::Copies)?;
    let fd = socket.as_fd();
    match group {
        IpAddr::V4(v4) => {
            // Only what comes in by the interface joined on.
            set_int(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
            let join = v4_interface(Some(v4), scope);
            set_plain(fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, join)?;
        }
        IpAddr::V6(v6) => {
            // Kernels before 4.20 do not know it.
            let _ = set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0);
            let join = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr { s6_addr: v6.octets() },
                ipv6mr_interface: scope,
            };
            set_plain(fd, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, join)?;
        }
    }
    Ok(socket)
}

const _: () = assert!(size_of::<libc::ip_mreqn>() == 12 && size_of::<libc::ipv6_mreq>() == 20);

impl UdpLink {
    /// The groups, as GIDs of their IP addresses, that carry a multicast GID on this link: one for
    /// each address family that the device has.
    pub(crate) fn groups_of(&self, group: Gid) -> Vec<Gid> {
        let mut found: Vec<Gid> =
            self.ports.iter().map(|port| Gid::from_ip(address(port.ip, group))).collect();
        found.sort();
        found.dedup();
        found
    }

    /// Receives from now on what comes for a group.
    ///
    /// # Errors
    /// `Full` if the process may have no more descriptors, `AddressInUse` if somebody receives RoCE
    /// for it who does not share it, `System` as the system says.
    pub(crate) fn join(&mut self, group: Gid) -> engine::Result<()> {
        if self.inlets.all.iter().any(|inlet| inlet.gid == group) {
            return Ok(());
        }
        let ip = group.to_ip();
        let scope = self.ports.first().map_or(0, |port| port.scope);
        let bytes = self.inlets.receive_buffer.unwrap_or(BUFFER);
        let joined =
            open(ip, scope, bytes).and_then(|socket| self.inlets.add(Inlet::own(group, socket)));
        joined.map_err(|e| match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Error::new(
                ErrorKind::Full,
                format!("cannot join {ip}: {e}: each group takes a descriptor (ulimit -n)"),
            ),
            Some(libc::EADDRINUSE) => super::bind_error(ip, &e),
            _ => Error::new(ErrorKind::System, format!("cannot join {ip}: {e}")),
        })
    }

    /// Leaves the groups that `stays` does not want; whether there were any.
    pub(crate) fn leave(&mut self, mut stays: impl FnMut(Gid) -> bool) -> bool {
        self.inlets.retain(|inlet| !inlet.gid.is_multicast() || stays(inlet.gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(own: &str, group: &str) -> String {
        let group: IpAddr = group.parse().unwrap();
        // As written: a mapped address stays 16 bytes.
        let gid = match group {
            IpAddr::V4(_) => Gid::from_ip(group),
            IpAddr::V6(v6) => Gid(v6.octets()),
        };
        address(own.parse().unwrap(), gid).to_string()
    }

    #[test]
    fn a_group_is_carried_in_the_family_of_the_own_address() {
        assert_eq!(carried("127.0.0.2", "::ffff:224.1.2.3"), "224.1.2.3");
        assert_eq!(carried("127.0.0.2", "ff0e::ffff:224.1.2.3"), "224.1.2.3");
        assert_eq!(carried("fd00::1", "ff05::7"), "ff05::7");
        assert_eq!(carried("fd00::1", "::ffff:224.1.2.3"), "ff0e::ffff:e001:203");
        // Not IPv4 groups in disguise.
        for other in ["ff01::1", "ff01::2", "ff02::1", "ff0e::ffff:10.1.2.3"] {
            assert!(carried("127.0.0.2", other).starts_with("239."), "{other}");
        }
        assert_ne!(carried("127.0.0.2", "ff01::1"), carried("127.0.0.2", "ff01::2"));
        assert_ne!(carried("127.0.0.2", "ff01::1"), carried("127.0.0.2", "ff02::1"));
    }
}
