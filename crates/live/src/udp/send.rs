//! Sending: trains become messages in one buffer that stays in the cache, and messages leave in
//! batches. Registered memory is read once, into that buffer, so that the ICRC is always that of
//! the bytes sent, whatever the application does to the memory meanwhile.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use engine::{Fragment, MemoryFault, Train, TrainLimits, TxPacket, limits};
use socket2::Socket;
use wire::transport::{MAX_HEADERS, ROCE_PORT, emit_headers};
use wire::{Gid, Path};

use super::{BUFFER, Port, UdpLink, datagram_socket, groups, set_buffer, socket_address};
use crate::capture::Outbound;
use crate::icrc::{Flow, States, seal};
use crate::mem;
use crate::mmsg::{self, Outgoing};
use crate::sys::{random_u16, set_int};

/// Sending sockets of an address.
pub(super) const FLOWS: usize = 16;
/// First of the UDP source ports that RoCE uses.
const FIRST_PORT: u16 = 0xC000;
/// Ports tried for a sending socket.
const PORT_TRIES: usize = 64;

/// Payload of the longest UDP datagram over IPv4, and over IPv6 without extension headers.
const LONGEST_V4: usize = 65535 - 20 - 8;
const LONGEST_V6: usize = 65535 - 40 - 8;
/// Bytes of the buffer: four of the longest messages.
const OUTBOX_LEN: usize = 4 << 16;

/// Messages that wait for the kernel, oldest first.
pub(super) struct Sender {
    pub(super) states: States,
    limits: TrainLimits,
    pub(super) buffer: Vec<u8>,
    pub(super) used: usize,
    pub(super) messages: Vec<Message>,
    /// Messages at the front that have been sent.
    pub(super) sent: usize,
    blocked: bool,
    pub(super) tap: Option<Outbound>,
}

#[derive(Clone, Copy)]
pub(super) struct Message {
    pub(super) out: Outgoing,
    pub(super) port: usize,
    pub(super) flow: usize,
    pub(super) packets: usize,
    pub(super) icrc: Flow,
}

impl Message {
    /// What the kernel is to send: a single packet is not to be cut.
    fn outgoing(&self) -> Outgoing {
        let segment = if self.packets == 1 { 0 } else { self.out.segment };
        Outgoing { segment, ..self.out }
    }
}

impl Sender {
    /// A sender for a device whose first address is `ip`.
    pub(super) fn new(ip: IpAddr, tap: Option<Outbound>) -> Self {
        let bytes = if ip.is_ipv4() { LONGEST_V4 } else { LONGEST_V6 };
        Self {
            states: States::new(),
            limits: TrainLimits { segments: longest_train(), bytes: bytes.min(LONGEST_V6) },
            buffer: vec![0; OUTBOX_LEN],
            used: 0,
            messages: Vec::with_capacity(2 * mmsg::MAX_SEND),
            sent: 0,
            blocked: false,
            tap,
        }
    }

    /// The socket whose buffer is full.
    pub(super) fn blocked_on<'a>(&self, ports: &'a [Port]) -> Option<&'a Socket> {
        let message = self.messages.get(self.sent).filter(|_| self.blocked)?;
        ports[message.port].flows[message.flow].as_ref().map(|(socket, _)| socket)
    }
}

/// How many datagrams the kernel cuts from one message: 128, before Linux 6.6 64, before 4.18 only
/// one. Found by trying on the loopback interface, once.
fn longest_train() -> usize {
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let tries = |segments: usize| -> io::Result<()> {
            let own = datagram_socket(Ipv4Addr::LOCALHOST.into())?;
            own.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            let to = own.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
            let len = segments;
            let out = Outgoing { start: 0, len, segment: 1, to, traffic_class: 0, hop_limit: 0 };
            mmsg::send(own.as_fd(), &vec![0; len], [out].into_iter()).map(drop)
        };
        [128, 64].into_iter().find(|segments| tries(*segments).is_ok()).unwrap_or(1)
    })
}

impl UdpLink {
    /// What a train may be at present.
    pub(crate) fn train_limits(&self) -> TrainLimits {
        self.sender.limits
    }

    /// Whether one more train fits; if not, [`flush`](Self::flush) first.
    pub(crate) fn has_room(&self) -> bool {
        self.sender.buffer.len() - self.sender.used >= 1 << 16
            && self.sender.messages.len() < mmsg::MAX_SEND
    }

    /// Whether messages wait for the kernel to take more.
    pub(crate) fn is_blocked(&self) -> bool {
        self.sender.blocked
    }

    /// Copies a train into the buffer, to leave at the next [`flush`](Self::flush). Gives the first
    /// packet whose memory could not be read, if there is one: from there on nothing leaves.
    pub(crate) fn push(&mut self, train: &Train) -> Option<usize> {
        let path = train.path?;
        let Some((port, flow, icrc)) = self.route(&path) else {
            self.counters.tx_no_path += train.packets.len() as u64;
            return None;
        };
        let to = socket_address(groups::destination(&path), ROCE_PORT, self.ports[port].scope);
        let hop_limit = match path.hop_limit {
            limits::DEFAULT_HOP_LIMIT => 0,
            other => other,
        };
        let mut message: Option<Message> = None;
        let mut unreadable = None;
        for (at, packet) in train.packets.iter().enumerate() {
            let (start, room) = (self.sender.used, self.sender.buffer.len() - self.sender.used);
            let wire_len = packet.wire_len();
            // All packets of a message are of one size, but the last, which may be shorter.
            let fits = message.is_some_and(|m| {
                let segment = usize::from(m.out.segment);
                wire_len <= segment
                    && m.out.len == m.packets * segment
                    && m.packets < self.sender.limits.segments
                    && m.out.len + wire_len <= self.sender.limits.bytes
            });
            if !fits {
                self.sender.messages.extend(message.take());
            }
            let out = Outgoing {
                start,
                len: 0,
                segment: wire_len as u16,
                to,
                traffic_class: path.traffic_class,
                hop_limit,
            };
            let ident = message.map_or(0, |m| m.packets as u16);
            let emitted = match wire_len <= room.min(LONGEST_V6) {
                true => self.sender.emit(train, packet, icrc, ident),
                false => Err(NotEmitted::Shape),
            };
            match emitted {
                Ok(()) => {}
                Err(NotEmitted::Shape) => {
                    self.counters.tx_not_emitted += 1;
                    continue;
                }
                Err(NotEmitted::Memory) => {
                    self.counters.tx_not_emitted += (train.packets.len() - at) as u64;
                    unreadable = Some(at);
                    break;
                }
            }
            if let Some(tap) = self.sender.tap.as_mut().filter(|_| packet.again) {
                tap.again(start);
            }
            let m = message.get_or_insert(Message { out, port, flow, packets: 0, icrc });
            m.out.len += wire_len;
            m.packets += 1;
        }
        self.sender.messages.extend(message);
        unreadable
    }

    /// The port and sending socket of a path.
    fn route(&mut self, path: &Path) -> Option<(usize, usize, Flow)> {
        let index = self.ports.iter().position(|port| port.gid == path.source)?;
        let port = &mut self.ports[index];
        // The wished port is a hash of the flow already.
        let flow = usize::from(path.source_port) % FLOWS;
        let slot = &mut port.flows[flow];
        if slot.is_none() {
            *slot = open_flow(port.ip, port.scope, path.source_port).ok();
        }
        let source_port = slot.as_ref()?.1;
        Some((index, flow, Flow::new(port.ip, groups::destination(path), source_port)?))
    }

    /// Gives the kernel what waits. False if it could not take everything: wait until the socket is
    /// writable, or a little, and call again.
    pub(crate) fn flush(&mut self) -> bool {
        self.sender.blocked = false;
        while let Some(first) = self.sender.messages.get(self.sender.sent).copied() {
            let rest = &self.sender.messages[self.sender.sent..];
            let same = |m: &&Message| (m.port, m.flow) == (first.port, first.flow);
            let batch = rest.iter().take(mmsg::MAX_SEND).take_while(same);
            let count = batch.clone().count();
            let port = &self.ports[first.port];
            let Some((socket, source_port)) = &port.flows[first.flow] else { return true };
            if let Some(tap) = &mut self.sender.tap {
                tap.leaving();
            }
            self.counters.tx_calls += 1;
            match mmsg::send(socket.as_fd(), &self.sender.buffer, batch.map(Message::outgoing)) {
                Ok(sent) => {
                    for message in &rest[..sent.min(count)] {
                        self.counters.tx_messages += 1;
                        self.counters.tx_packets += message.packets as u64;
                        if let Some(tap) = &mut self.sender.tap {
                            tap.message(port.ip, *source_port, &message.out, &self.sender.buffer);
                        }
                    }
                    self.sender.sent += sent;
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                        self.counters.tx_blocked += 1;
                        self.sender.blocked = true;
                        return false;
                    }
                    Some(error @ (libc::EMSGSIZE | libc::EIO | libc::EINVAL))
                        if first.packets > 1 =>
                    {
                        self.counters.tx_train_refused += 1;
                        // Of the interface: it cannot sum up what it cuts. The others are of this
                        // destination (a smaller MTU on the way), and trains to others may go.
                        if error == libc::EIO {
                            self.sender.limits.segments = 1;
                        }
                        self.sender.split();
                    }
                    _ => {
                        self.counters.tx_refused += first.packets as u64;
                        self.sender.sent += 1;
                    }
                },
            }
        }
        self.sender.clear();
        true
    }
}

/// Why a packet was not put into the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotEmitted {
    /// It is not what it says.
    Shape,
    /// Registered memory that it is to carry cannot be read.
    Memory,
}

impl From<MemoryFault> for NotEmitted {
    fn from(_: MemoryFault) -> Self {
        Self::Memory
    }
}

impl Sender {
    /// Writes a packet behind what is in the buffer.
    fn emit(
        &mut self,
        train: &Train,
        packet: &TxPacket,
        flow: Flow,
        ident: u16,
    ) -> Result<(), NotEmitted> {
        let end = self.used + packet.wire_len();
        let out = &mut self.buffer[self.used..end];
        let length = packet.length as usize;
        let headers =
            emit_headers(&packet.bth, &packet.ext, length, out).map_err(|_| NotEmitted::Shape)?;
        debug_assert!(headers <= MAX_HEADERS);
        let mut at = headers;
        for fragment in train.payload(packet) {
            let (Fragment::Memory { length, .. } | Fragment::Inline { length, .. }) = *fragment;
            let place = out.get_mut(at..at + length as usize).ok_or(NotEmitted::Shape)?;
            at += place.len();
            match *fragment {
                Fragment::Memory { addr, .. } => mem::load(addr, place)?,
                Fragment::Inline { start, .. } => {
                    let start = start as usize;
                    match train.inline.get(start..start + place.len()) {
                        Some(bytes) => place.copy_from_slice(bytes),
                        None => return Err(NotEmitted::Shape),
                    }
                }
            }
        }
        if at != headers + length {
            return Err(NotEmitted::Shape);
        }
        out[at..].fill(0);
        seal(&mut self.states, flow, ident, out);
        self.used = end;
        Ok(())
    }

    /// Forgets what was in the buffer.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.sent = 0;
        self.used = 0;
    }

    /// Puts a packet that is whole behind what is in the buffer, as a message of its own.
    pub(super) fn append(&mut self, message: &Message, bytes: &[u8]) {
        let Some(place) = self.buffer.get_mut(self.used..self.used + bytes.len()) else { return };
        place.copy_from_slice(bytes);
        let out = Outgoing { start: self.used, len: bytes.len(), ..message.out };
        self.messages.push(Message { out, ..*message });
        self.used += bytes.len();
    }

    /// Turns the first waiting message into one for each packet, because the kernel does not cut
    /// it.
    pub(super) fn split(&mut self) {
        let whole = self.messages[self.sent];
        let segment = usize::from(whole.out.segment).max(1);
        let end = whole.out.start + whole.out.len;
        let singles = (whole.out.start..end).step_by(segment).map(|start| {
            let len = segment.min(end - start);
            let out = Outgoing { start, len, ..whole.out };
            Message { out, packets: 1, ..whole }
        });
        let singles: Vec<Message> = singles.collect();
        for single in &singles {
            let bytes = &mut self.buffer[single.out.start..single.out.start + single.out.len];
            seal(&mut self.states, single.icrc, 0, bytes);
        }
        self.messages.splice(self.sent..=self.sent, singles);
    }
}

/// Sends a stray packet on to the address that it came to; whether it could be. If not it is lost,
/// as on the wire.
pub(super) fn send_on(ports: &mut [Port], to: Gid, bytes: &[u8]) -> bool {
    let Some(port) = ports.iter_mut().find(|port| port.gid == to) else { return false };
    let flow = &mut port.flows[0];
    if flow.is_none() {
        *flow = open_flow(port.ip, port.scope, FIRST_PORT).ok();
    }
    let Some((socket, _)) = flow else { return false };
    let address = socket_address(port.ip, ROCE_PORT, port.scope);
    socket.send_to(bytes, &address.into()).is_ok()
}

/// A sending socket of an address: on the port wished for if it is free, else on a random one.
fn open_flow(ip: IpAddr, scope: u32, wish: u16) -> io::Result<(Socket, u16)> {
    let socket = datagram_socket(ip)?;
    let fd = socket.as_fd();
    let (level, name) = match ip {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    set_int(fd, level, name, libc::IP_PMTUDISC_PROBE)?;
    if ip.is_ipv6() {
        // The source port tells flows apart; a label of the kernel's would be nobody's.
        set_int(fd, level, libc::IPV6_AUTOFLOWLABEL, 0)?;
    }
    groups::prepare_sender(&socket, ip, scope)?;
    set_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, BUFFER)?;
    // Nobody is to send here: answers go to port 4791.
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    for attempt in 0..PORT_TRIES {
        let port = match attempt {
            0 if wish >= FIRST_PORT => wish,
            _ => random_u16() | FIRST_PORT,
        };
        match socket.bind(&socket_address(ip, port, scope).into()) {
            Ok(()) => return Ok((socket, port)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}
