//! What RDMA is compared with: which course a rival runs for a test, between which addresses, and
//! how the two ends begin. The runs themselves are in `tcp` and `udp`.

mod tcp;
mod trains;
mod udp;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

use crocevia::Gid;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::bw::STALL;
use super::exchange::{Control, Message};
use super::plan::{Agreed, Amount, Connection, Op};
use super::session::Session;
use super::versus::{Figure, Rival};
use crate::error::{Failure, Result};

const MB: f64 = 1_048_576.0;
/// Round trips before the first that counts, as RDMA has them.
const WARM_UP: u64 = 10;
/// Bytes that ask for an answer of the message's size, where RDMA has a READ.
const REQUEST: usize = 8;
/// Longest time that is told apart, in ns.
const LONGEST: u64 = 60_000_000_000;
/// Largest message of a ping-pong of datagrams: nothing but the receiver's buffer holds them.
const MOST_DATAGRAMS: u32 = 64 << 10;

/// The client asks its server for one run of a rival.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Bout {
    pub(crate) rival: Rival,
    /// Bytes of a message.
    pub(crate) bytes: u32,
    /// The client's port, where it has one already (UDP).
    pub(crate) port: u16,
}

/// Who sends what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// A stream from the client to the server.
    Forth,
    /// A stream from the server to the client.
    Back,
    /// To and fro: the client's message has `ask` bytes; a time is a round trip by `halves`.
    PingPong { ask: usize, halves: u64 },
}

/// One run, as both ends know it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Course {
    way: Way,
    /// Bytes of a message.
    size: usize,
    amount: Amount,
    /// Payload bytes of a packet.
    mtu: usize,
    /// Bytes beside the payload of every packet, and beside these of a message's first.
    headers: [usize; 2],
    /// Whether the time of a round trip is wanted, or the rate of them.
    latency: bool,
}

impl Course {
    fn new(agreed: &Agreed, size: u32) -> Self {
        let size = size as usize;
        let way = match (agreed.test.op(), agreed.test.is_latency()) {
            (Op::Write | Op::Send, false) => Way::Forth,
            (Op::Read, false) => Way::Back,
            (Op::Write | Op::Send, true) => Way::PingPong { ask: size, halves: 2 },
            (Op::Read, true) => Way::PingPong { ask: REQUEST, halves: 1 },
            (Op::Atomic, _) => Way::PingPong { ask: size, halves: 1 },
        };
        // BTH and ICRC; DETH. The first besides: RETH, AETH, AtomicETH without its 8 bytes.
        let each = 16 + if agreed.connection == Connection::Ud { 8 } else { 0 };
        let first = match agreed.test.op() {
            Op::Write => 16,
            Op::Read => 4,
            Op::Send => 0,
            Op::Atomic => 20,
        };
        Self {
            way,
            size,
            amount: agreed.amount,
            mtu: agreed.mtu.bytes() as usize,
            headers: [each, first],
            latency: agreed.test.is_latency(),
        }
    }

    /// How many messages, or until when.
    fn limits(&self) -> (u64, Option<Instant>) {
        match self.amount {
            Amount::Iterations(n) => (n, None),
            Amount::Seconds(s) => (u64::MAX, Some(Instant::now() + Duration::from_secs_f64(s))),
        }
    }

    /// The figure of a stream.
    fn bandwidth(bytes: u64, time: Duration, lost: u64) -> Figure {
        Figure { value: bytes as f64 / time.as_secs_f64().max(1e-9) / MB, lost }
    }

    /// Round trips by `trip`, which says whether its message had to be sent again; only those that
    /// had not count.
    fn ping_pong(&self, mut trip: impl FnMut(u64) -> Result<bool>) -> Result<Figure> {
        let mut times = Histogram::<u64>::new_with_bounds(1, LONGEST, 3)
            .map_err(|error| Failure::failed(format!("no histogram: {error}")))?;
        let Way::PingPong { halves, .. } = self.way else { return Ok(Figure::default()) };
        let (limit, until) = self.limits();
        let limit = limit.saturating_add(WARM_UP);
        let (mut n, mut lost, mut seconds) = (0, 0, 0.0);
        while n < limit && until.is_none_or(|until| n <= WARM_UP || Instant::now() < until) {
            n += 1;
            let begin = Instant::now();
            let resent = trip(n)?;
            let time = begin.elapsed();
            lost += u64::from(resent);
            if n > WARM_UP && !resent {
                let ns = u64::try_from(time.as_nanos()).unwrap_or(LONGEST) / halves;
                times.saturating_record(ns.max(1));
                seconds += time.as_secs_f64();
            }
        }
        let value = if self.latency {
            times.value_at_quantile(0.5) as f64 / 1000.0
        } else {
            times.len() as f64 * self.size as f64 / seconds.max(1e-9) / MB
        };
        Ok(Figure { value, lost })
    }
}

/// Why `rival` has no figure for messages of `size` bytes, if it has none.
pub(crate) fn unfit(session: &Session, rival: Rival, size: u32) -> Option<String> {
    let unfit = rival == Rival::Udp && session.agreed.test.is_latency() && size > MOST_DATAGRAMS;
    unfit.then(|| {
        format!(
            "udp: no ping-pong of more than {MOST_DATAGRAMS} bytes, which at once may not fit the \
             receiver's buffer"
        )
    })
}

/// The client's part of one run.
pub(crate) fn measure(session: &mut Session, rival: Rival, size: u32) -> Result<Figure> {
    let course = Course::new(&session.agreed, size);
    let [own, peer] = addresses(session);
    let control = &mut session.control;
    match rival {
        Rival::Tcp => tcp::client(control, &course, own, peer),
        Rival::Udp => udp::client(control, &course, own, peer),
    }
    .map_err(|failure| failure.within(&format!("--vs {}", rival.name())))
}

/// The server's part of one run.
pub(crate) fn serve(session: &mut Session, bout: Bout) -> Result<()> {
    let course = Course::new(&session.agreed, bout.bytes);
    let [own, mut peer] = addresses(session);
    peer.set_port(bout.port);
    let control = &mut session.control;
    match bout.rival {
        Rival::Tcp => tcp::server(control, &course, own, peer),
        Rival::Udp => udp::server(control, &course, own, peer),
    }
    .map_err(|failure| failure.within(&format!("--vs {}", bout.rival.name())))
}

/// The addresses between which RDMA runs, the own one first; ports are 0.
fn addresses(session: &Session) -> [SocketAddr; 2] {
    let scope = session.control.scope();
    let address = |gid: Gid| match gid.to_ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, 0, 0, scope).into(),
        ip => SocketAddr::new(ip, 0),
    };
    [address(session.identity.local_gid), address(session.identity.remote_gid)]
}

/// Asks for the run and hears the server's port.
fn ask(control: &mut Control, rival: Rival, course: &Course, port: u16) -> Result<u16> {
    control.send(&Message::Bout(Bout { rival, bytes: course.size as u32, port }))?;
    match control.recv()? {
        Message::Port(port) => Ok(port),
        other => Err(control.unexpected(&other, "the rival's port")),
    }
}

/// What the server has measured.
fn hear(control: &mut Control) -> Result<Figure> {
    match control.recv()? {
        Message::Figure(figure) => Ok(figure),
        other => Err(control.unexpected(&other, "the rival's figure")),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(error.to_string())
}

/// Nothing has moved since `begin`.
fn stalled(begin: Instant) -> Result<()> {
    if begin.elapsed() > STALL {
        return Err(Failure::failed(format!(
            "nothing came for {STALL:?}; is a firewall between the two addresses?"
        )));
    }
    Ok(())
}
