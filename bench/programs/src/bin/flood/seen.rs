//! What of the running traffic can be seen: the newest packets of each kind towards each queue
//! pair, with the numbers that make a forgery look right. They are looked at through a packet
//! socket that is open for a moment only, so that the flood itself does not pass through it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, recv, socket};

use crate::packet::{BTH, Flow, ICRC, PORT, Rng, u24};

/// Bytes of each packet that are kept: all headers.
const SNAP: usize = 96;
/// Packets that are remembered, in all and of a queue pair and opcode; the oldest are replaced.
const MOST: usize = 1024;
const OF_A_KIND: usize = 4;
/// Processes, or parts of their queue pairs, that may share an address.
const SLOTS: u8 = 64;
/// A look takes at most this long, and this many packets.
const LOOK: Duration = Duration::from_micros(1500);
const PACKETS: usize = 64;

/// A packet as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) flow: Flow,
    /// Headers from the BTH on; then what there was of the payload.
    pub(crate) head: Vec<u8>,
    /// Bytes from the BTH through the ICRC, as far as they are known: a train comes in one piece.
    pub(crate) len: usize,
}

impl Seen {
    pub(crate) fn opcode(&self) -> u8 {
        self.head[0]
    }

    pub(crate) fn qpn(&self) -> u32 {
        u24(&self.head, 5)
    }

    /// Reads a packet from its IP header on; `None` if it does not go to the RoCE port. `of`: the
    /// bytes that were on the wire.
    fn read(bytes: &[u8], of: usize) -> Option<Self> {
        let (source, target, at): (IpAddr, IpAddr, usize) = match bytes.first()? >> 4 {
            4 if bytes.get(9) == Some(&17) => {
                let ip = |at: usize| Some(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?));
                (ip(12)?.into(), ip(16)?.into(), usize::from(bytes[0] & 15) * 4)
            }
            6 if bytes.get(6) == Some(&17) => {
                let ip = |at: usize| Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?));
                (ip(8)?.into(), ip(24)?.into(), 40)
            }
            _ => return None,
        };
        let udp = bytes.get(at..at + 8)?;
        let port = |i: usize| u16::from_be_bytes([udp[i], udp[i + 1]]);
        let head = bytes.get(at + 8..)?;
        if port(2) != PORT || head.len() < BTH + ICRC {
            return None;
        }
        let flow = Flow { source, target, source_port: port(0) };
        let len = (of - at - 8).min(4096 + 64).next_multiple_of(4);
        Some(Self { flow, head: head[..head.len().min(SNAP)].to_vec(), len })
    }
}

/// What has been seen so far.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) packets: Vec<Seen>,
    /// Where those of a queue pair and opcode are, and whose turn to be replaced it is.
    kinds: HashMap<(u32, u8), (Vec<usize>, usize)>,
    /// Numbers of the queue pairs that packets have gone to.
    pub(crate) qpns: HashSet<u32>,
    /// Upper bytes of those of each address: what chooses a receiver among the processes that
    /// share the address, of which there are up to [`SLOTS`].
    slots: HashSet<(IpAddr, u8)>,
}

impl Traffic {
    /// Looks at what passes now. `own`: source ports of the flood itself, `strangers`: addresses
    /// that are no NIC's.
    pub(crate) fn look(&mut self, own: &HashSet<u16>, strangers: &[IpAddr]) -> io::Result<()> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let kind = SockType::Datagram;
        let tap = socket(AddressFamily::Packet, kind, flags, SockProtocol::EthAll)?;
        let (start, mut bytes) = (Instant::now(), [0_u8; 2048]);
        let mut taken = 0;
        while taken < PACKETS && start.elapsed() < LOOK {
            match recv(tap.as_raw_fd(), &mut bytes, nix::sys::socket::MsgFlags::MSG_TRUNC) {
                Ok(of) => {
                    let seen = Seen::read(&bytes[..of.min(bytes.len())], of);
                    let others = |s: &Seen| {
                        !own.contains(&s.flow.source_port) && !strangers.contains(&s.flow.target)
                    };
                    if let Some(seen) = seen.filter(others) {
                        taken += 1;
                        self.add(seen);
                    }
                }
                Err(nix::errno::Errno::EAGAIN) => std::thread::yield_now(),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Whether queue pairs of this number's slot have been seen at an address.
    pub(crate) fn is_slot(&self, target: IpAddr, message: &[u8]) -> bool {
        // The choice is by four bytes from the fifth on, of the whole message; without them it is
        // slot 0.
        let slot = if message.len() < 8 { 0 } else { message[5] % SLOTS };
        self.slots.contains(&(target, slot))
    }

    /// Packets as they might be, for queue pairs that a NIC may have.
    pub(crate) fn make_up(&mut self, rng: &mut Rng, source: IpAddr, target: IpAddr) {
        for number in 0..64 {
            let mut head: Vec<u8> = (0..64).map(|_| rng.next() as u8).collect();
            head[..5].copy_from_slice(&[
                [0x04, 0x0A, 0x0C, 0x11, 0x24, 0x64][number % 6],
                0,
                0xFF,
                0xFF,
                0,
            ]);
            // Of a slot that is used first.
            head[5] = 1;
            let flow = Flow { source, target, source_port: 0xC000 };
            self.add(Seen { flow, head, len: 4 * (5 + rng.below(200)) });
        }
    }

    fn add(&mut self, seen: Seen) {
        self.qpns.insert(seen.qpn());
        self.slots.insert((seen.flow.target, seen.head[5] % SLOTS));
        // Of each kind as many, however much more of one there is.
        let (places, turn) = self.kinds.entry((seen.qpn(), seen.opcode())).or_default();
        if places.len() < OF_A_KIND && self.packets.len() < MOST {
            places.push(self.packets.len());
            self.packets.push(seen);
        } else if let Some(&place) = places.get(*turn % OF_A_KIND) {
            *turn += 1;
            self.packets[place] = seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_the_roce_port_are_read() {
        let mut bytes = vec![0; 20 + 8 + 30];
        (bytes[0], bytes[9]) = (0x45, 17);
        bytes[12..16].copy_from_slice(&[127, 0, 0, 3]);
        bytes[16..20].copy_from_slice(&[127, 0, 0, 2]);
        bytes[20..24].copy_from_slice(&[0xC0, 1, 0x12, 0xB7]);
        bytes[28] = 0x0A;
        bytes[33..36].copy_from_slice(&[1, 2, 3]);
        let seen = Seen::read(&bytes, 58).unwrap();
        assert_eq!((seen.opcode(), seen.qpn(), seen.len), (0x0A, 0x010203, 32));
        assert_eq!(seen.flow.source_port, 0xC001);
        assert_eq!(seen.flow.source, IpAddr::from([127, 0, 0, 3]));
        for end in 0..44 {
            assert!(Seen::read(&bytes[..end], end).is_none(), "{end}");
        }
        bytes[23] = 0;
        assert!(Seen::read(&bytes, 58).is_none());
    }
}
