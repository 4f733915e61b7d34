//! The Ethernet addresses of peers: what the system's tables of neighbours and routes say, asked by
//! rtnetlink (`rtnetlink(7)`) once for each peer, and again now and then while it says nothing.

use std::collections::VecDeque;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use wire::Mac;

/// Peers remembered.
const PEERS: usize = 16;
/// The kernel answers within the call that asks.
const PATIENCE: Duration = Duration::from_millis(10);
/// Message header, and what stands before the attributes in the messages used here.
const HEADER: usize = 16;
const FIXED: usize = 12;

/// Peers, as far as they are known.
pub(super) struct Peers(VecDeque<Peer>);

struct Peer {
    ip: IpAddr,
    mac: Option<Mac>,
    /// Packets of which the address was asked for while it was not known.
    packets: u32,
}

impl Peers {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    /// The Ethernet address by which a peer is reached from the interface of this index; zeros
    /// without one, and while the system does not know it.
    pub(super) fn mac(&mut self, interface: Option<u32>, ip: IpAddr) -> Mac {
        let Some(interface) = interface else { return Mac::default() };
        let at = self.0.iter().position(|peer| peer.ip == ip).unwrap_or_else(|| {
            if self.0.len() == PEERS {
                self.0.pop_front();
            }
            self.0.push_back(Peer { ip, mac: None, packets: 0 });
            self.0.len() - 1
        });
        let Some(peer) = self.0.get_mut(at) else { return Mac::default() };
        if peer.mac.is_none() {
            peer.packets = peer.packets.saturating_add(1);
            if peer.packets.is_power_of_two() {
                peer.mac = look_up(interface, ip);
            }
        }
        peer.mac.unwrap_or_default()
    }
}

/// The address of a neighbour, or of the gateway to who is none.
fn look_up(interface: u32, ip: IpAddr) -> Option<Mac> {
    let mut system = Asking::new()?;
    system.neighbour(interface, ip).or_else(|| {
        let (interface, next) = system.route(ip)?;
        system.neighbour(interface, next.unwrap_or(ip))
    })
}

/// A conversation with the kernel.
struct Asking {
    socket: Socket,
    answer: Vec<u8>,
}

impl Asking {
    fn new() -> Option<Self> {
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol)).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Self { socket, answer: vec![0; 2048] })
    }

    fn neighbour(&mut self, interface: u32, ip: IpAddr) -> Option<Mac> {
        let mut fixed = [0; FIXED];
        fixed[0] = family(ip);
        fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
        self.ask(libc::RTM_GETNEIGH, fixed, (libc::NDA_DST, ip), libc::RTM_NEWNEIGH)?;
        let mac: [u8; 6] = self.attribute(libc::NDA_LLADDR)?.try_into().ok()?;
        Some(Mac(mac))
    }

    /// The interface towards an address, and the gateway if there is one.
    fn route(&mut self, ip: IpAddr) -> Option<(u32, Option<IpAddr>)> {
        let mut fixed = [0; FIXED];
        fixed[0] = family(ip);
        fixed[1] = if ip.is_ipv4() { 32 } else { 128 };
        self.ask(libc::RTM_GETROUTE, fixed, (libc::RTA_DST, ip), libc::RTM_NEWROUTE)?;
        let interface = u32::from_ne_bytes(self.attribute(libc::RTA_OIF)?.try_into().ok()?);
        let gateway = self.attribute(libc::RTA_GATEWAY).and_then(|bytes| match *bytes {
            [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
            _ => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        });
        Some((interface, gateway))
    }

    /// Asks about an address; `None` if the answer is not of kind `wanted`.
    fn ask(
        &mut self,
        kind: u16,
        fixed: [u8; FIXED],
        (attribute, ip): (u16, IpAddr),
        wanted: u16,
    ) -> Option<()> {
        let address = match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let mut question = vec![0; HEADER];
        question[4..6].copy_from_slice(&kind.to_ne_bytes());
        question[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        question.extend(fixed);
        question.extend((address.len() as u16 + 4).to_ne_bytes());
        question.extend(attribute.to_ne_bytes());
        question.extend(address);
        let len = question.len() as u32;
        question[..4].copy_from_slice(&len.to_ne_bytes());
        self.socket.send(&question).ok()?;
        self.answer.resize(self.answer.capacity(), 0);
        let len = self.socket.read(&mut self.answer).ok()?;
        self.answer.truncate(len);
        let kind = self.answer.get(4..6)?;
        (kind == wanted.to_ne_bytes()).then_some(())
    }

    /// An attribute of the answer.
    fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        let mut rest = self.answer.get(HEADER + FIXED..)?;
        loop {
            let (head, _) = rest.split_first_chunk::<4>()?;
            let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            if u16::from_ne_bytes([head[2], head[3]]) == wanted {
                return rest.get(4..len);
            }
            rest = rest.get(len.max(4).next_multiple_of(4)..)?;
        }
    }
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_oneself_is_by_the_loopback_interface_and_has_no_address() {
        let mut system = Asking::new().unwrap();
        let (interface, gateway) = system.route("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!((interface, gateway), (1, None));
        assert_eq!(look_up(1, "127.0.0.1".parse().unwrap()).unwrap_or_default(), Mac::default());
        let mut peers = Peers::new();
        for last in 0..40 {
            assert_eq!(peers.mac(None, IpAddr::from([127, 0, 0, last])), Mac::default());
            assert_eq!(peers.mac(Some(1), IpAddr::from([127, 0, 0, last])), Mac::default());
        }
        assert_eq!(peers.0.len(), PEERS);
    }
}
