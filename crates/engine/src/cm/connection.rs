//! One connection: its state, what it repeats, what it knows of the peer.

use wire::mad::{MAD_LEN, timeout_span};
use wire::{Gid, Qpn, Span};

use super::plan::Terms;
use super::request::{ConnId, ListenId};
use super::timers::Tick;
use crate::limits;
use crate::work::AddressVector;

/// Where a connection stands. Active: ReqSent, RepReceived, Established. Passive: ReqReceived,
/// RepSent, Established. Both then DreqSent (if this side asked), TimeWait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnState {
    /// REQ repeated until something comes back.
    ReqSent,
    /// REP has come; the driver moves the queue pair.
    RepReceived,
    /// REQ has come; the application thinks.
    ReqReceived,
    /// REP repeated until RTU or data come.
    RepSent,
    /// Ready.
    Established,
    /// DREQ repeated until DREP comes.
    DreqSent,
    /// Over; late messages are answered, the queue pair number is not to be used.
    TimeWait,
    /// Refused by this side; a repeated REQ gets the same REJ.
    Refused,
}

/// Which side a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Active,
    Passive,
}

/// When a message is sent again: at 1/16, 1/8, 1/4, 1/2 of the timeout, then at the timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    full: Span,
    /// Repeats at the full timeout.
    limit: u8,
    sent: u8,
}

impl Retry {
    /// For a message that is being sent the first time.
    pub(super) fn new(timeout_code: u8, limit: u8) -> Self {
        Self { full: timeout_span(timeout_code), limit: limit.min(15), sent: 1 }
    }

    /// How long to wait after the last transmission.
    pub(super) fn wait(&self) -> Span {
        let quick = limits::CM_QUICK_RETRIES;
        match quick.saturating_sub(self.sent - 1) {
            0 => self.full,
            halvings => Span::from_ps((self.full.as_ps() >> halvings).max(1)),
        }
    }

    /// Takes one more transmission; false if there is none left.
    pub(super) fn again(&mut self) -> bool {
        let more = self.sent < limits::CM_QUICK_RETRIES + 1 + self.limit;
        self.sent += u8::from(more);
        more
    }

    /// The same from the start.
    pub(super) fn restarted(self) -> Self {
        Self { sent: 1, ..self }
    }

    /// The full timeout.
    pub(super) fn full(&self) -> Span {
        self.full
    }
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) role: Role,
    pub(super) state: ConnState,
    /// The application has let go of it: no more events.
    pub(super) detached: bool,
    /// Both sides were ready once.
    pub(super) was_established: bool,
    /// Where its messages go.
    pub(super) peer: AddressVector,
    /// The peer's name for it.
    pub(super) remote_id: Option<u32>,
    /// Transaction of its REQ.
    pub(super) transaction: u64,
    /// The own queue pair.
    pub(super) qpn: Option<Qpn>,
    /// What the queue pair is set to.
    pub(super) terms: Terms,
    /// The message that is sent again: REQ, REP, RTU, DREQ or REJ.
    pub(super) last: Box<[u8; MAD_LEN]>,
    pub(super) retry: Retry,
    /// Deadline in the timers.
    pub(super) deadline: Option<Tick>,
    /// Whose backlog it fills.
    pub(super) waiting_at: Option<ListenId>,
}

impl Conn {
    /// The peer's GID, as it stands in its packets.
    pub(super) fn peer_gid(&self) -> Gid {
        self.peer.dgid
    }

    /// How long the queue pair number rests: twice the ACK timeout, within bounds.
    pub(super) fn time_wait(&self) -> Span {
        let (least, greatest) = limits::CM_TIME_WAIT;
        timeout_span(self.terms.ack_timeout.clamp(least, greatest)).times(2)
    }
}
