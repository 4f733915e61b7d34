//! What a device and its port can do, as `ibv_query_device(3)` and `ibv_query_port(3)` tell it.

use engine::limits;
use wire::Mtu;

/// The sizes up to which a device makes objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of a send or receive queue.
    pub max_qp_wr: u32,
    /// Scatter-gather entries of a work request.
    pub max_sge: u32,
    /// Bytes of an inline send request.
    pub max_inline_data: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests of a shared receive queue.
    pub max_srq_wr: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Bytes of a memory region.
    pub max_mr_size: u64,
    /// Memory windows.
    pub max_mw: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics outstanding on a queue pair as requester.
    pub max_qp_init_rd_atomic: u8,
    /// READs and atomics outstanding on a queue pair as responder.
    pub max_qp_rd_atomic: u8,
    /// Multicast groups.
    pub max_groups: u32,
    /// Queue pairs in a multicast group.
    pub max_members: u32,
}

impl DeviceLimits {
    pub(crate) const fn of_engine() -> Self {
        Self {
            max_qp: limits::MAX_QP,
            max_qp_wr: limits::MAX_QP_WR,
            max_sge: limits::MAX_SGE,
            max_inline_data: limits::MAX_INLINE,
            max_cq: limits::MAX_CQ,
            max_cqe: limits::MAX_CQE,
            max_srq: limits::MAX_SRQ,
            max_srq_wr: limits::MAX_SRQ_WR,
            max_mr: limits::MAX_MR,
            max_mr_size: u64::MAX,
            max_mw: limits::MAX_MW,
            max_pd: limits::MAX_PD,
            max_qp_init_rd_atomic: limits::MAX_RD_ATOMIC,
            max_qp_rd_atomic: limits::MAX_RD_ATOMIC,
            max_groups: limits::MAX_GROUPS,
            max_members: limits::MAX_MEMBERS,
        }
    }
}

/// Whether packets pass through a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PortState {
    /// The interface is down.
    Down,
    /// The interface is up.
    Active,
}

/// The port of a device (it has one, number 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// Whether packets pass.
    pub state: PortState,
    /// The largest path MTU that the interface below can carry.
    pub active_mtu: Mtu,
    /// The largest path MTU there is.
    pub max_mtu: Mtu,
    /// Bytes of a message.
    pub max_msg_sz: u32,
    /// Entries of the GID table.
    pub gid_table_len: usize,
    /// Entries of the partition key table.
    pub pkey_table_len: u16,
    /// Speed of the interface below in Mbit/s, if it tells.
    pub speed_mbps: Option<u32>,
}
