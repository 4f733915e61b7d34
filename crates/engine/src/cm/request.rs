//! What the application asks of the connection manager, and the names it gets back.

use wire::mad::{IpCmHeader, MAD_LEN, ServiceId, SidrStatus};
use wire::{Gid, Mtu, QKey, Qpn};

use crate::attr::QpType;
use crate::limits;
use crate::work::AddressVector;

/// Names a connection: the local communication id of its messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u32);

/// Names a listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenId(pub u32);

/// Names a service resolution, asked or to be answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResolveId(pub u32);

/// Where a management datagram came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadFrom {
    /// How to answer the sender: its GID, the index of the own GID that it wrote to, the traffic
    /// class of its packet.
    pub av: AddressVector,
    /// The own GID that it wrote to.
    pub local: Gid,
}

/// A management datagram to be sent to the peer's general services queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutgoingMad {
    /// Where to.
    pub av: AddressVector,
    /// The datagram.
    pub payload: [u8; MAD_LEN],
}

/// A service to be offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// The service. Connections and datagram services have their own port spaces.
    pub service: ServiceId,
    /// The own GID to be reached by; `None`: any. A listener on the very GID goes before one on
    /// any.
    pub address: Option<Gid>,
    /// Requests that may wait for the application; more are not taken, and their senders repeat
    /// them.
    pub backlog: u32,
}

/// A connection to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectRequest<'a> {
    /// The service asked for.
    pub service: ServiceId,
    /// The peer. A flow label of 0 means: draw one; it spreads connections over paths.
    pub av: AddressVector,
    /// The own GID, the one that `av.sgid_index` names.
    pub local: Gid,
    /// RC or UC.
    pub qp_type: QpType,
    /// The own queue pair.
    pub qpn: Qpn,
    /// It has a shared receive queue.
    pub srq: bool,
    /// Path MTU.
    pub mtu: Mtu,
    /// READs and atomics that the peer may have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that will be outstanding at the peer; the peer may grant fewer.
    pub initiator_depth: u8,
    /// Retries after timeouts, both sides, 0..=7.
    pub retry_count: u8,
    /// RNR retries that the peer shall make, 0..=7; 7 is without limit.
    pub rnr_retry: u8,
    /// Told to the peer; no meaning for the connection manager.
    pub flow_control: bool,
    /// ACK timeout code, both sides.
    pub ack_timeout: u8,
    /// RNR timer code of the own queue pair.
    pub min_rnr_timer: u8,
    /// Response timeout code of the exchange: 4.096 µs × 2^code.
    pub response_timeout: u8,
    /// Repeats of a message at the full timeout, 0..=15.
    pub max_cm_retries: u8,
    /// Address header of RDMA-CM services.
    pub ip: Option<IpCmHeader>,
    /// For the peer's application: 92 bytes, 56 with an address header.
    pub private: &'a [u8],
}

impl<'a> ConnectRequest<'a> {
    /// A reliable connection with the defaults of `limits`, one READ each way, 7 retries.
    pub fn new(service: ServiceId, av: AddressVector, local: Gid, qpn: Qpn, mtu: Mtu) -> Self {
        Self {
            service,
            av,
            local,
            qp_type: QpType::Rc,
            qpn,
            srq: false,
            mtu,
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry: 7,
            flow_control: false,
            ack_timeout: limits::CM_ACK_TIMEOUT,
            min_rnr_timer: limits::CM_MIN_RNR_TIMER,
            response_timeout: limits::CM_RESPONSE_TIMEOUT,
            max_cm_retries: limits::CM_RETRIES,
            ip: None,
            private: &[],
        }
    }
}

/// The terms on which a request is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept<'a> {
    /// The own queue pair.
    pub qpn: Qpn,
    /// It has a shared receive queue.
    pub srq: bool,
    /// READs and atomics that the peer may have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that will be outstanding at the peer; never more than it offers, so 255
    /// means "all that it offers".
    pub initiator_depth: u8,
    /// RNR retries that the peer shall make, 0..=7; 7 is without limit.
    pub rnr_retry: u8,
    /// Told to the peer; no meaning for the connection manager.
    pub flow_control: bool,
    /// ACK timeout code of the own queue pair; `None`: the peer's proposal.
    pub ack_timeout: Option<u8>,
    /// RNR timer code of the own queue pair.
    pub min_rnr_timer: u8,
    /// For the peer's application: 196 bytes.
    pub private: &'a [u8],
}

impl<'a> Accept<'a> {
    /// All that the peer offers, one READ for it, the defaults of `limits`.
    pub fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            srq: false,
            responder_resources: 1,
            initiator_depth: u8::MAX,
            rnr_retry: 7,
            flow_control: false,
            ack_timeout: None,
            min_rnr_timer: limits::CM_MIN_RNR_TIMER,
            private: &[],
        }
    }
}

/// A question for the queue pair of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolveRequest<'a> {
    /// The service asked for.
    pub service: ServiceId,
    /// The peer.
    pub av: AddressVector,
    /// Response timeout code: 4.096 µs × 2^code.
    pub response_timeout: u8,
    /// Repeats of the question at the full timeout, 0..=15.
    pub max_cm_retries: u8,
    /// Address header of RDMA-CM services.
    pub ip: Option<IpCmHeader>,
    /// For the peer's application: 216 bytes, 180 with an address header.
    pub private: &'a [u8],
}

impl<'a> ResolveRequest<'a> {
    /// A question with the defaults of `limits`.
    pub fn new(service: ServiceId, av: AddressVector) -> Self {
        Self {
            service,
            av,
            response_timeout: limits::CM_RESPONSE_TIMEOUT,
            max_cm_retries: limits::CM_RETRIES,
            ip: None,
            private: &[],
        }
    }
}

/// The answer to such a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolveAnswer<'a> {
    /// `VALID`, or why not.
    pub status: SidrStatus,
    /// The queue pair.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: QKey,
    /// For the peer's application: 136 bytes.
    pub private: &'a [u8],
}
