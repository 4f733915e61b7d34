//! Bare UDP as RDMA's rival, in the packet shape of the RDMA test: trains of datagrams one way
//! (UDP_SEGMENT out, UDP_GRO in) with credits back, or a ping-pong that spins. There is neither
//! copy nor check. How messages become trains is in `trains`.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, sendmsg,
    setsockopt, sockopt,
};

use super::trains::{PAYLOAD, Train, message, trains};
use super::{Course, Way, ask, failed, hear, stalled};
use crate::cmd::perf::exchange::{Control, Message};
use crate::cmd::perf::versus::{Figure, Rival};
use crate::error::Result;

/// SO_RCVBUF that is asked for; a stock kernel gives less.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Packets in flight, at most.
const WINDOW: u64 = 256;
/// What the kernel may account for a packet of n bytes is at most about twice n and this.
const ACCOUNTED: usize = 1024;
/// Bytes of a credit: packets that came, and how many may be in flight.
const CREDIT: usize = 16;
/// A receiver that has waited this long gives the credits it still holds.
const IDLE: Duration = Duration::from_micros(50);
/// What has not been heard of for this long is lost; no longer does a receiver wait for it.
const LOST: Duration = Duration::from_millis(100);

/// The client's part.
pub(super) fn client(
    control: &mut Control,
    course: &Course,
    own: SocketAddr,
    mut peer: SocketAddr,
) -> Result<Figure> {
    let socket = UdpSocket::bind(own).map_err(failed)?;
    let port = socket.local_addr().map_err(failed)?.port();
    peer.set_port(ask(control, Rival::Udp, course, port)?);
    let mut end = End::new(socket, peer, course).map_err(failed)?;
    match course.way {
        Way::Forth => {
            end.give(control, course)?;
            hear(control)
        }
        Way::Back => end.take(control, course),
        Way::PingPong { ask, .. } => {
            let asking = trains(&message(ask, course), u64::MAX);
            let answer = message(course.size, course).len() as u64;
            let figure =
                course.ping_pong(|number| end.round_trip(control, &asking, answer, number))?;
            control.send(&Message::End { sent: 0 })?;
            Ok(figure)
        }
    }
}

/// The server's part.
pub(super) fn server(
    control: &mut Control,
    course: &Course,
    own: SocketAddr,
    peer: SocketAddr,
) -> Result<()> {
    let socket = UdpSocket::bind(own).map_err(failed)?;
    let port = socket.local_addr().map_err(failed)?.port();
    let mut end = End::new(socket, peer, course).map_err(failed)?;
    control.send(&Message::Port(port))?;
    match course.way {
        Way::Forth => {
            let figure = end.take(control, course)?;
            control.send(&Message::Figure(figure))
        }
        Way::Back => end.give(control, course),
        Way::PingPong { ask, .. } => {
            let answer = trains(&message(course.size, course), u64::MAX);
            end.answer(control, message(ask, course).len() as u64, &answer)
        }
    }
}

/// One end's socket, and what it has in hand.
struct End {
    socket: UdpSocket,
    /// Whether the kernel cuts trains.
    segments: bool,
    /// Packets that may be on their way to this end.
    window: u64,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    control: Vec<u8>,
    /// Of a ping-pong: the message that is coming in, and how many of its packets have come.
    partial: (u64, u64),
}

impl End {
    fn new(socket: UdpSocket, peer: SocketAddr, course: &Course) -> std::io::Result<Self> {
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        let segments = getsockopt(&socket, sockopt::UdpGsoSegment).is_ok();
        // Kernels without it deliver the datagrams one by one.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        // Only root may have more than the system's limit.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER);
        }
        let buffer = getsockopt(&socket, sockopt::RcvBuf)?;
        let packet = course.size.min(course.mtu) + course.headers[0] + course.headers[1];
        let window = (buffer / (2 * (packet + ACCOUNTED))) as u64;
        Ok(Self {
            socket,
            segments,
            window: window.clamp(2, WINDOW),
            outbox: vec![0x5a; PAYLOAD],
            inbox: vec![0; 65_536],
            control: nix::cmsg_space!(i32),
            partial: (0, 0),
        })
    }

    /// What has come: bytes, and how many of them each datagram has (the last may have less).
    fn receive(&mut self) -> Result<Option<(usize, usize)>> {
        let mut data = [IoSliceMut::new(&mut self.inbox)];
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let got =
            match recvmsg::<SockaddrStorage>(fd, &mut data, Some(&mut self.control[..]), flags) {
                Ok(got) => got,
                // Refused: the peer closes when it has all.
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
        let mut segment = got.bytes;
        for message in got.cmsgs().map_err(failed)? {
            if let ControlMessageOwned::UdpGroSegments(size) = message {
                segment = usize::try_from(size).unwrap_or(segment);
            }
        }
        Ok(Some((got.bytes, segment.max(1))))
    }

    /// Sends a train, waiting for room if need be.
    fn send(&mut self, control: &mut Control, train: &Train) -> Result<()> {
        let begin = Instant::now();
        while self.segments && train.packets > 1 {
            let segment = train.segment as u16;
            let cut = [ControlMessage::UdpGsoSegments(&segment)];
            let data = [IoSlice::new(&self.outbox[..train.bytes])];
            let fd = self.socket.as_raw_fd();
            match sendmsg(fd, &data, &cut, MsgFlags::empty(), None::<&SockaddrStorage>) {
                Ok(_) => return Ok(()),
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ECONNREFUSED) => {
                    control.alive()?;
                    stalled(begin)?;
                }
                // The interface cannot.
                Err(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::EOPNOTSUPP) => {
                    self.segments = false;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        for datagram in self.outbox[..train.bytes].chunks(train.segment) {
            while let Err(error) = self.socket.send(datagram) {
                if !waits(&error) {
                    return Err(failed(error));
                }
                control.alive()?;
                stalled(begin)?;
            }
        }
        Ok(())
    }

    /// Sends a stream of messages, never more than the receiver has room for.
    fn give(&mut self, control: &mut Control, course: &Course) -> Result<()> {
        let mut credits = Credits::new();
        let begin = Instant::now();
        while credits.window == 0 {
            self.hear_credit(&mut credits)?;
            control.alive()?;
            stalled(begin)?;
        }
        let list = message(course.size, course);
        // Many messages may share a train, as small ones of RDMA do.
        let block = (PAYLOAD / list.iter().sum::<usize>().max(1)).clamp(1, 32) as u64;
        let most = credits.window.div_ceil(2);
        let plan = |messages: u64| trains(&list.repeat(messages as usize), most);
        let whole = plan(block);
        let (limit, until) = course.limits();
        let mut n = 0;
        while n < limit && until.is_none_or(|until| Instant::now() < until) {
            let messages = block.min(limit - n);
            let rest = if messages == block { Vec::new() } else { plan(messages) };
            for train in if rest.is_empty() { &whole } else { &rest } {
                self.await_credit(control, &mut credits, train.packets)?;
                self.send(control, train)?;
                credits.sent += train.packets;
            }
            n += messages;
        }
        let all = credits.window;
        self.await_credit(control, &mut credits, all)?;
        control.send(&Message::End { sent: n })
    }

    /// Waits until `packets` more may be in flight.
    fn await_credit(
        &mut self,
        control: &mut Control,
        credits: &mut Credits,
        packets: u64,
    ) -> Result<()> {
        self.hear_credit(credits)?;
        control.alive()?;
        let mut heard = (credits.came, Instant::now());
        while credits.in_flight() + packets > credits.window {
            std::thread::yield_now();
            self.hear_credit(credits)?;
            control.alive()?;
            if credits.came != heard.0 {
                heard = (credits.came, Instant::now());
            } else if heard.1.elapsed() > LOST {
                credits.lost = credits.sent - credits.came.min(credits.sent);
            }
        }
        Ok(())
    }

    fn hear_credit(&mut self, credits: &mut Credits) -> Result<()> {
        while let Some((bytes, _)) = self.receive()? {
            // Several may have been put together: the last is the newest.
            let Some(credit) = self.inbox[..bytes].last_chunk::<CREDIT>() else { continue };
            let [came, window] =
                [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| credit[at + i])));
            credits.came = credits.came.max(came);
            credits.window = window.clamp(2, WINDOW);
        }
        Ok(())
    }

    /// Receives a stream of messages until the sender has ended.
    fn take(&mut self, control: &mut Control, course: &Course) -> Result<Figure> {
        let begin = Instant::now();
        let (mut last, mut told_at) = (begin, begin);
        let (mut packets, mut told, mut ended) = (0, 0, None);
        self.tell_credit(0);
        loop {
            if let Some(message) = control.tick()? {
                let Message::End { sent } = message else {
                    return Err(control.unexpected(&message, "the end of the datagrams"));
                };
                ended = Some(sent);
            }
            if let Some((bytes, segment)) = self.receive()? {
                packets += bytes.div_ceil(segment) as u64;
                last = Instant::now();
                if packets - told >= self.window / 4 {
                    self.tell_credit(packets);
                    (told, told_at) = (packets, last);
                }
                continue;
            }
            if ended.is_some() {
                break;
            }
            // A credit may be lost as well, so that the last is repeated.
            let (held, now) = (packets > told, Instant::now());
            if now - last > IDLE && (held || now - told_at > LOST / 4) {
                self.tell_credit(packets);
                (told, told_at) = (packets, now);
            }
            std::thread::yield_now();
        }
        let sent = ended.unwrap_or(0);
        let all = sent * message(course.size, course).len() as u64;
        let share = packets.min(all) as f64 / all.max(1) as f64;
        let bytes = (sent as f64 * course.size as f64 * share) as u64;
        Ok(Course::bandwidth(bytes, last - begin, all - packets.min(all)))
    }

    fn tell_credit(&self, packets: u64) {
        let mut credit = [0; CREDIT];
        credit[..8].copy_from_slice(&packets.to_le_bytes());
        credit[8..].copy_from_slice(&self.window.to_le_bytes());
        // One that does not leave is as good as lost: the next says the same and more.
        let _ = self.socket.send(&credit);
    }

    /// Message `number` out, its answer of `packets` in; whether it had to be sent again.
    fn round_trip(
        &mut self,
        control: &mut Control,
        asking: &[Train],
        packets: u64,
        number: u64,
    ) -> Result<bool> {
        let begin = Instant::now();
        let (mut sent, mut resent) = (begin, false);
        self.send_message(control, asking, number)?;
        loop {
            if self.arrived(packets)? == Some(number) {
                return Ok(resent);
            }
            control.alive()?;
            stalled(begin)?;
            if sent.elapsed() > LOST {
                self.send_message(control, asking, number)?;
                (sent, resent) = (Instant::now(), true);
            }
        }
    }

    /// Answers messages of `packets` until the client has ended.
    fn answer(&mut self, control: &mut Control, packets: u64, answer: &[Train]) -> Result<()> {
        loop {
            // One that comes again is answered again.
            if let Some(number) = self.arrived(packets)? {
                self.send_message(control, answer, number)?;
            }
            match control.tick()? {
                None => {}
                Some(Message::End { .. }) => return Ok(()),
                Some(other) => return Err(control.unexpected(&other, "the end of the datagrams")),
            }
        }
    }

    fn send_message(&mut self, control: &mut Control, trains: &[Train], number: u64) -> Result<()> {
        for train in trains {
            for at in (0..train.bytes).step_by(train.segment) {
                self.outbox[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            self.send(control, train)?;
        }
        Ok(())
    }

    /// The number of a message that is complete now.
    fn arrived(&mut self, packets: u64) -> Result<Option<u64>> {
        let Some((bytes, segment)) = self.receive()? else { return Ok(None) };
        let mut complete = None;
        for datagram in self.inbox[..bytes].chunks(segment) {
            let Some(number) = datagram.first_chunk::<8>() else { continue };
            let number = u64::from_le_bytes(*number);
            let before = if self.partial.0 == number { self.partial.1 } else { 0 };
            self.partial = (number, before + 1);
            if self.partial.1 >= packets {
                self.partial.1 = 0;
                complete = Some(number);
            }
        }
        Ok(complete)
    }
}

/// What a sender knows of its packets.
struct Credits {
    sent: u64,
    /// As the receiver has said.
    came: u64,
    /// Given up: neither came nor is still in flight.
    lost: u64,
    window: u64,
}

impl Credits {
    fn new() -> Self {
        Self { sent: 0, came: 0, lost: 0, window: 0 }
    }

    fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.came + self.lost)
    }
}

fn waits(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    ) || error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}
