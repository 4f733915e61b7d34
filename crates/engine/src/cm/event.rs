//! What the connection manager tells the driver.

use wire::mad::{IpCmHeader, RejectReason, ServiceId, SidrStatus};
use wire::{Gid, Mtu, QKey, Qpn};

use super::plan::QpPlan;
use super::request::{ConnId, ListenId, ResolveId};
use crate::attr::QpType;
use crate::work::AddressVector;

/// A peer wants a connection: to be answered with `accept` or `reject`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// The connection to be.
    pub id: ConnId,
    /// Whom it asked.
    pub listener: ListenId,
    /// What it asked for.
    pub service: ServiceId,
    /// Address header of RDMA-CM services.
    pub ip: Option<IpCmHeader>,
    /// The peer, as the own queue pair will address it.
    pub av: AddressVector,
    /// The own GID that it wrote to.
    pub local: Gid,
    /// RC or UC.
    pub qp_type: QpType,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// Path MTU.
    pub mtu: Mtu,
    /// READs and atomics that the peer will have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that it lets this side have outstanding.
    pub initiator_depth: u8,
    /// Retries after timeouts.
    pub retry_count: u8,
    /// RNR retries that this side shall make.
    pub rnr_retry: u8,
    /// What the peer says of end-to-end credits.
    pub flow_control: bool,
    /// The peer receives from a shared receive queue.
    pub srq: bool,
    /// ACK timeout code that the peer proposes.
    pub ack_timeout: u8,
    /// The application's bytes, the whole field after the address header: 56, or 92 without one.
    pub private: Vec<u8>,
}

/// The peer accepted: move the queue pair by the plan, then call `establish` (or `reject`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The connection.
    pub id: ConnId,
    /// How the queue pair has to be moved.
    pub plan: QpPlan,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// READs and atomics that the peer will have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that it lets this side have outstanding.
    pub initiator_depth: u8,
    /// RNR retries that this side shall make.
    pub rnr_retry: u8,
    /// What the peer says of end-to-end credits.
    pub flow_control: bool,
    /// The peer receives from a shared receive queue.
    pub srq: bool,
    /// The application's bytes: 196.
    pub private: Vec<u8>,
}

/// A peer refused, or gave up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// The connection.
    pub id: ConnId,
    /// Why.
    pub reason: RejectReason,
    /// Detail; with reason 26 (path MTU) the code of the MTU that the peer takes.
    pub info: Vec<u8>,
    /// The application's bytes: 148.
    pub private: Vec<u8>,
}

/// A peer asks for the queue pair of a datagram service: to be answered with `answer`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// The question.
    pub id: ResolveId,
    /// Whom it asked.
    pub listener: ListenId,
    /// What it asked for.
    pub service: ServiceId,
    /// Address header of RDMA-CM services.
    pub ip: Option<IpCmHeader>,
    /// The peer.
    pub av: AddressVector,
    /// The own GID that it wrote to.
    pub local: Gid,
    /// The application's bytes, the whole field after the address header: 180, or 216 without one.
    pub private: Vec<u8>,
}

/// The answer to a question of this side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The question.
    pub id: ResolveId,
    /// The peer.
    pub av: AddressVector,
    /// Its queue pair.
    pub qpn: Qpn,
    /// The Q_Key of that.
    pub qkey: QKey,
    /// The application's bytes: 136.
    pub private: Vec<u8>,
}

/// An event of the connection manager. For one connection they come in this order, active side:
/// `Response`, `Established`, `Disconnected`, `TimeWaitExit`; passive side: `Incoming`,
/// `Established`, `Disconnected`, `TimeWaitExit`. `Rejected` or `Failed` may take the place of any
/// before `Established`; a `TimeWaitExit` follows those too if the queue pair may have been used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer wants a connection.
    Incoming(Box<Incoming>),
    /// The peer accepted.
    Response(Box<Response>),
    /// Both sides are ready.
    Established(ConnId),
    /// The peer refused.
    Rejected(Box<Rejected>),
    /// The peer did not answer in time.
    Failed(ConnId),
    /// The connection has ended, by this side's wish or the peer's; the queue pair is to go to ERR.
    Disconnected(ConnId),
    /// The connection is forgotten; this queue pair number may be used again.
    TimeWaitExit(ConnId, Qpn),
    /// A peer asks for the queue pair of a datagram service.
    Question(Box<Question>),
    /// The answer to a question of this side.
    Resolved(Box<Resolved>),
    /// A question of this side was refused, or not answered in time (`None`).
    Unresolved(ResolveId, Option<SidrStatus>),
}

impl CmEvent {
    /// The connection that the event is about.
    pub fn connection(&self) -> Option<ConnId> {
        match self {
            Self::Incoming(incoming) => Some(incoming.id),
            Self::Response(response) => Some(response.id),
            Self::Rejected(rejected) => Some(rejected.id),
            Self::Established(id)
            | Self::Failed(id)
            | Self::Disconnected(id)
            | Self::TimeWaitExit(id, _) => Some(*id),
            Self::Question(_) | Self::Resolved(_) | Self::Unresolved(..) => None,
        }
    }

    /// The service resolution that the event is about.
    pub fn resolution(&self) -> Option<ResolveId> {
        match self {
            Self::Question(question) => Some(question.id),
            Self::Resolved(resolved) => Some(resolved.id),
            Self::Unresolved(id, _) => Some(*id),
            _ => None,
        }
    }
}
