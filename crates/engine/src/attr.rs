//! Attributes of queue pairs and other objects, as `ibv_modify_qp(3)` and its kin name them.

use bitflags::bitflags;
use wire::{Mtu, Psn, QKey, Qpn};

use crate::cq::CqId;
use crate::memory::PdId;
use crate::srq::SrqId;
use crate::work::{Access, AddressVector};

/// The service of a queue pair; values are those of `ibv_qp_type`, GSI excepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// General services (QP1): datagrams that carry management.
    Gsi,
    /// Sending end of an extended reliable connection.
    XrcSend,
    /// Receiving end of one.
    XrcRecv,
}

/// The states of a queue pair; values are those of `ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u32)]
pub enum QpState {
    /// Nothing is set.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained (or draining).
    Sqd = 4,
    /// Send queue error (UC, UD).
    Sqe = 5,
    /// Error: everything flushes.
    Err = 6,
}

bitflags! {
    /// Which members of [`QpAttr`] count; the values are those of `ibv_qp_attr_mask`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AttrMask: u32 {
        /// Next state.
        const STATE = 1 << 0;
        /// Current state, as the caller believes.
        const CUR_STATE = 1 << 1;
        /// Whether to raise `SQ_DRAINED`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// Rights of the peer.
        const ACCESS_FLAGS = 1 << 3;
        /// P_Key index.
        const PKEY_INDEX = 1 << 4;
        /// Port.
        const PORT = 1 << 5;
        /// Q_Key.
        const QKEY = 1 << 6;
        /// Address vector.
        const AV = 1 << 7;
        /// Path MTU.
        const PATH_MTU = 1 << 8;
        /// ACK timeout.
        const TIMEOUT = 1 << 9;
        /// Retries.
        const RETRY_CNT = 1 << 10;
        /// RNR retries.
        const RNR_RETRY = 1 << 11;
        /// First PSN to expect.
        const RQ_PSN = 1 << 12;
        /// READs and atomics outstanding as requester.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// Alternate path (none on RoCE).
        const ALT_PATH = 1 << 14;
        /// RNR timer to send.
        const MIN_RNR_TIMER = 1 << 15;
        /// First PSN to send.
        const SQ_PSN = 1 << 16;
        /// READs and atomics outstanding as responder.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Path migration state.
        const PATH_MIG_STATE = 1 << 18;
        /// Sizes (cannot be changed).
        const CAP = 1 << 19;
        /// The peer's queue pair.
        const DEST_QPN = 1 << 20;
        /// Rate limit (not offered).
        const RATE_LIMIT = 1 << 25;
    }
}

/// Attributes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// State, or state to move to.
    pub state: QpState,
    /// State that the caller believes to be the current one.
    pub cur_state: QpState,
    /// Raise `SQ_DRAINED` when the send queue has drained.
    pub en_sqd_async_notify: bool,
    /// What the peer may do to this queue pair's memory.
    pub access: Access,
    /// Index into the P_Key table; only 0.
    pub pkey_index: u16,
    /// Port; only 1.
    pub port: u8,
    /// Q_Key (datagrams).
    pub qkey: QKey,
    /// The peer's address.
    pub av: AddressVector,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// The peer's queue pair.
    pub dest_qp: Qpn,
    /// First PSN to expect.
    pub rq_psn: Psn,
    /// First PSN to send.
    pub sq_psn: Psn,
    /// ACK timeout code, 0..=31: 4.096 µs × 2^code; 0 is never.
    pub timeout: u8,
    /// Retries after timeouts and sequence errors, 0..=7.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs, 0..=7; 7 is without limit.
    pub rnr_retry: u8,
    /// RNR timer code to send, 0..=31.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: u8,
}

/// Sizes of a queue pair's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpCap {
    /// Send requests.
    pub max_send_wr: u32,
    /// Receive requests; ignored with a shared receive queue.
    pub max_recv_wr: u32,
    /// Scatter-gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter-gather entries of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of an inline send request.
    pub max_inline_data: u32,
}

/// What a queue pair is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Service.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Where send requests complete.
    pub send_cq: CqId,
    /// Where receive requests complete.
    pub recv_cq: CqId,
    /// Shared receive queue.
    pub srq: Option<SrqId>,
    /// Sizes asked for; granted exactly.
    pub cap: QpCap,
    /// Every send request is signaled.
    pub sq_sig_all: bool,
}
