//! Connection management as a value: listeners, connecting, accepting, refusing, disconnecting, and
//! service resolution for datagrams. It neither sees queue pairs nor sends packets: management
//! datagrams go in and out as 256 bytes, and events carry the plan by which the driver moves its
//! queue pair. Formats are in `wire::mad`; the rules are the InfiniBand architecture's chapter 12
//! and the transport rules, "Connections".

use std::collections::VecDeque;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use wire::mad::{CmMessage, IpCmHeader, MAD_LEN, Mad, MadHeader, ServiceId};
use wire::{Instant, Mtu, Psn, Qpn, Span};

use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use crate::work::AddressVector;

mod active;
mod connection;
mod datagram;
mod event;
mod listen;
mod passive;
mod plan;
mod port;
mod release;
mod request;
mod table;
mod timers;

pub use connection::ConnState;
pub use event::{CmEvent, Incoming, Question, Rejected, Resolved, Response};
pub use plan::{QpPlan, QpStep};
pub use port::Port;
pub use request::{
    Accept, ConnId, ConnectRequest, Listen, ListenId, MadFrom, OutgoingMad, ResolveAnswer,
    ResolveId, ResolveRequest,
};

use connection::Conn;
use datagram::Resolutions;
use listen::Listeners;
use table::Table;
use timers::{Clock, Timers};

/// What a connection manager is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Source of every number that must not be guessed: communication ids, PSNs, transactions.
    pub seed: [u8; 32],
    /// Upper eight bits of every communication id, by which a port shared by several processes
    /// finds the owner.
    pub slot: u8,
    /// GUID of the adapter.
    pub guid: u64,
    /// Active MTU of the port: requests for more are refused.
    pub mtu: Mtu,
}

/// What a connection manager counts; each only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CmCounters {
    /// Datagrams that are none of connection management's.
    pub rx_malformed: u64,
    /// Messages for a connection that does not exist, from the wrong address, or in a state that
    /// has no use for them.
    pub rx_unexpected: u64,
    /// Messages that had come before.
    pub rx_duplicates: u64,
    /// Requests not taken because the backlog or the events' queue was full.
    pub rx_no_room: u64,
    /// Messages sent again.
    pub tx_retries: u64,
    /// Messages not sent because the driver did not take them away.
    pub tx_no_room: u64,
}

/// What a deadline is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Conn(ConnId),
    Asked(ResolveId),
    Question(ResolveId),
}

/// The connection manager of a port. Methods are what the application does (`listen`, `connect`,
/// `accept` …), what happens to it (`handle_*`), and `poll_*`, which hands out what it has to say.
/// After any call of the first two kinds, take [`poll_event`](Self::poll_event) and
/// [`poll_mad`](Self::poll_mad) until they give nothing, then sleep until
/// [`poll_timeout`](Self::poll_timeout) at most and call [`handle_timeout`](Self::handle_timeout).
///
/// Queue pairs are moved by the driver, in this order. Passive: on `Incoming`, ask
/// [`accept_plan`](Self::accept_plan), move the queue pair to RTS, then [`accept`](Self::accept):
/// it can take data before the REP leaves. Active: on `Response`, move the queue pair by the
/// event's plan, then [`establish`](Self::establish): the RTU leaves after that. The driver passes
/// the device's `COMM_EST` to [`handle_comm_est`](Self::handle_comm_est), moves a queue pair to ERR
/// on `Disconnected`, and does not use its number again before `TimeWaitExit`
/// ([`in_time_wait`](Self::in_time_wait)).
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    rng: ChaCha20Rng,
    clock: Clock,
    timers: Timers<Due>,
    table: Table,
    listeners: Listeners,
    resolutions: Resolutions,
    events: VecDeque<CmEvent>,
    outgoing: VecDeque<OutgoingMad>,
    counters: CmCounters,
    /// Upper half of the transaction numbers.
    agent: u32,
}

impl Cm {
    /// A connection manager without listeners or connections.
    pub fn new(config: CmConfig) -> Self {
        let mut rng = ChaCha20Rng::from_seed(config.seed);
        let agent = rng.next_u32();
        Self {
            config,
            rng,
            clock: Clock::new(),
            timers: Timers::new(),
            table: Table::new(),
            listeners: Listeners::new(),
            resolutions: Resolutions::new(),
            events: VecDeque::new(),
            outgoing: VecDeque::new(),
            counters: CmCounters::default(),
            agent,
        }
    }

    /// Counters.
    pub fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// Where a connection stands; `None` once it is forgotten.
    pub fn state(&self, id: ConnId) -> Option<ConnState> {
        self.table.get(id).map(|conn| conn.state)
    }

    /// How the queue pair of a connection has to be moved: after `Response` (active) or `accept`
    /// (passive; before it, ask [`accept_plan`](Self::accept_plan)).
    pub fn plan(&self, id: ConnId) -> Result<QpPlan> {
        let conn = self.conn(id)?;
        match conn.state {
            ConnState::ReqSent | ConnState::ReqReceived | ConnState::Refused => {
                Err(wrong_state(conn, "the peer's REP, or accept, comes first"))
            }
            _ => Ok(conn.terms.plan()),
        }
    }

    /// Whether a queue pair number rests: a packet of its last connection may still be on its way.
    pub fn in_time_wait(&self, qpn: Qpn) -> bool {
        self.table.with_qpn(qpn).any(|conn| conn.state == ConnState::TimeWait)
    }

    /// Offers a service. `AddressInUse` if the very service and address are offered already.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenId> {
        self.listeners.add(listen)
    }

    /// Withdraws an offer. Requests that have come already stay, to be accepted or refused.
    pub fn unlisten(&mut self, id: ListenId) -> Result<()> {
        self.listeners.remove(id)
    }

    /// A management datagram has come to the general services queue pair.
    pub fn handle_mad(&mut self, now: Instant, from: &MadFrom, payload: &[u8]) {
        self.clock.advance(now);
        let Ok(Mad { header, message }) = Mad::parse(payload) else {
            self.counters.rx_malformed += 1;
            return;
        };
        match message {
            CmMessage::Req(req) => self.on_req(from, header, &req),
            CmMessage::Rep(rep) => self.on_rep(from, header, &rep),
            CmMessage::Rtu(rtu) => self.on_rtu(from, &rtu),
            CmMessage::Mra(mra) => self.on_mra(from, &mra),
            CmMessage::Rej(rej) => self.on_rej(from, &rej),
            CmMessage::Dreq(dreq) => self.on_dreq(from, header, &dreq),
            CmMessage::Drep(drep) => self.on_drep(from, &drep),
            CmMessage::SidrReq(req) => self.on_question(from, header, &req),
            CmMessage::SidrRep(rep) => self.on_resolved(from, &rep),
            CmMessage::Lap(lap) => self.on_lap(from, header, &lap),
            // This side never asks for an alternate path.
            CmMessage::Apr(_) => self.counters.rx_unexpected += 1,
        }
        self.check_invariants();
    }

    /// A packet came for a queue pair in RTR or RTS that had none before (`COMM_EST`): the peer has
    /// the REP, whatever became of its RTU.
    pub fn handle_comm_est(&mut self, now: Instant, qpn: Qpn) {
        self.clock.advance(now);
        let waiting = |conn: &&Conn| conn.state == ConnState::RepSent;
        let id = self.table.with_qpn(qpn).find(waiting).map(|conn| conn.id);
        if let Some(id) = id {
            self.established(id);
        }
        self.check_invariants();
    }

    /// The port's active MTU changed.
    pub fn handle_mtu(&mut self, mtu: Mtu) {
        self.config.mtu = mtu;
    }

    /// Runs what is due: repeats messages, gives up, ends time-waits.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.clock.advance(now);
        while let Some(due) = self.timers.pop(&self.clock) {
            match due {
                Due::Conn(id) => self.conn_due(id),
                Due::Asked(id) => self.asked_due(id),
                Due::Question(id) => self.question_due(id),
            }
        }
        self.check_invariants();
    }

    /// When `handle_timeout` has to be called, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first(&self.clock)
    }

    /// The next datagram to send.
    pub fn poll_mad(&mut self) -> Option<OutgoingMad> {
        self.outgoing.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    fn conn(&self, id: ConnId) -> Result<&Conn> {
        self.table.get(id).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no connection {:#010x}: it has ended", id.0))
        })
    }

    /// A communication or request id that is not in use.
    fn draw_id(&mut self) -> u32 {
        loop {
            let id = u32::from(self.config.slot) << 24 | self.rng.next_u32() >> 8;
            let used = self.table.contains(ConnId(id)) || self.resolutions.contains(ResolveId(id));
            if id != 0 && !used {
                return id;
            }
        }
    }

    fn draw_psn(&mut self) -> Psn {
        Psn::new(self.rng.next_u32() >> 8)
    }

    /// The transaction of a message that this side opens.
    fn transaction(&self, id: u32) -> u64 {
        u64::from(self.agent) << 32 | u64::from(id)
    }

    /// An event of a connection, unless the application has let go of it.
    fn tell(&mut self, id: ConnId, event: CmEvent) {
        if self.table.get(id).is_some_and(|conn| !conn.detached) {
            self.events.push_back(event);
        }
    }

    fn send(&mut self, to: AddressVector, payload: [u8; MAD_LEN]) {
        if self.outgoing.len() >= limits::MAX_CM_OUTGOING {
            self.counters.tx_no_room += 1;
            return;
        }
        // Datagrams spread by their queue pair, not by the connection's flow label.
        self.outgoing.push_back(OutgoingMad { av: AddressVector { flow_label: 0, ..to }, payload });
    }

    /// Answers a message without a connection.
    fn answer_to(&mut self, from: &MadFrom, header: MadHeader, message: CmMessage) {
        self.send(from.av, Mad::new(header.transaction, message).emit());
    }

    /// Sends a connection's message and moves the connection to the state in which it is repeated.
    fn begin(&mut self, id: ConnId, state: ConnState, mad: Mad) {
        let Some(conn) = self.table.get_mut(id) else { return };
        *conn.last = mad.emit();
        conn.state = state;
        conn.retry = conn.retry.restarted();
        let wait = conn.retry.wait();
        self.set_timer(id, Some(wait));
        self.repeat(id);
    }

    /// Sends the connection's last message (again).
    fn repeat(&mut self, id: ConnId) {
        if let Some(conn) = self.table.get(id) {
            let (to, payload) = (conn.peer, *conn.last);
            self.send(to, payload);
        }
    }

    fn set_timer(&mut self, id: ConnId, wait: Option<Span>) {
        let tick = wait.map(|span| self.clock.after(span));
        if let Some(conn) = self.table.get_mut(id) {
            self.timers.set(&mut conn.deadline, Due::Conn(id), tick);
        }
    }

    /// The connection no longer waits for the application: its place in the backlog is free.
    fn leave_backlog(&mut self, id: ConnId) {
        if let Some(listener) = self.table.get_mut(id).and_then(|conn| conn.waiting_at.take()) {
            self.listeners.release(listener);
        }
    }

    /// Broken invariants are faults of this module; they stop the program in debug builds.
    fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        if self.table.len() <= 64 {
            self.table.check();
            let timed = self.table.iter().filter(|conn| conn.deadline.is_some()).count();
            assert_eq!(self.timers.len(), timed + self.resolutions.timed());
            for conn in self.table.iter() {
                let idle = [ConnState::RepReceived, ConnState::Established].contains(&conn.state);
                assert_eq!(conn.deadline.is_none(), idle, "{:?}", conn.state);
                let waits = conn.state == ConnState::ReqReceived;
                assert_eq!(conn.waiting_at.is_some(), waits, "{:?}", conn.state);
            }
        }
    }
}

fn wrong_state(conn: &Conn, expected: &str) -> Error {
    Error::invalid(format!("connection {:#010x} is in {:?}: {expected}", conn.id.0, conn.state))
}

/// The private data field of a request: the address header, if any, then the application's bytes.
fn private_field<const N: usize>(
    message: &str,
    ip: Option<IpCmHeader>,
    private: &[u8],
) -> Result<[u8; N]> {
    let header = ip.map(|ip| ip.emit());
    let header = header.as_ref().map_or(&[][..], |bytes| &bytes[..]);
    let room = N - header.len();
    if private.len() > room {
        return Err(Error::invalid(format!(
            "{} bytes of private data: a {message} takes {room}",
            private.len()
        )));
    }
    let mut field = [0; N];
    field[..header.len()].copy_from_slice(header);
    field[header.len()..header.len() + private.len()].copy_from_slice(private);
    Ok(field)
}

/// The address header, if the service has one, and the application's bytes behind it.
fn split_private(service: ServiceId, field: &[u8]) -> (Option<IpCmHeader>, Vec<u8>) {
    let header = service.to_rdma_cm().and_then(|_| IpCmHeader::parse(field));
    let skip = if header.is_some() { IpCmHeader::LEN } else { 0 };
    (header, field[skip..].to_vec())
}
