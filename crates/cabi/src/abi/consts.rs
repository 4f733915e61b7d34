//! Values of the enumerations of `infiniband/verbs.h` that this library looks at or gives.

/// `IBV_NODE_CA`.
pub(crate) const NODE_CA: i32 = 1;
/// `IBV_TRANSPORT_IB`.
pub(crate) const TRANSPORT_IB: i32 = 0;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;
/// `IBV_PORT_DOWN` and `IBV_PORT_ACTIVE`.
pub(crate) const PORT_DOWN: u32 = 1;
/// See [`PORT_DOWN`].
pub(crate) const PORT_ACTIVE: u32 = 4;
/// `IBV_ATOMIC_HCA`. The device gives more (`GLOB`: atomic towards the host's CPUs too), but
/// adapters say this, and some programs take anything else for nothing.
pub(crate) const ATOMIC_HCA: i32 = 1;
/// `IBV_FORK_UNNEEDED`.
pub(crate) const FORK_UNNEEDED: i32 = 2;

/// `IBV_QPT_RC` and its kin.
pub(crate) const QPT_RC: u32 = 2;
/// See [`QPT_RC`].
pub(crate) const QPT_UC: u32 = 3;
/// See [`QPT_RC`].
pub(crate) const QPT_UD: u32 = 4;
/// See [`QPT_RC`].
pub(crate) const QPT_XRC_SEND: u32 = 9;
/// See [`QPT_RC`].
pub(crate) const QPT_XRC_RECV: u32 = 10;

/// `IBV_SEND_SIGNALED`.
pub(crate) const SEND_SIGNALED: u32 = 1 << 1;
/// `IBV_SEND_INLINE`.
pub(crate) const SEND_INLINE: u32 = 1 << 3;

/// `IBV_ACCESS_OPTIONAL_RANGE`: access bits that a device may ignore.
pub(crate) const ACCESS_OPTIONAL_RANGE: u32 = 0x3FF0_0000;

/// `enum ibv_wr_opcode`.
pub(crate) mod wr {
    pub(crate) const RDMA_WRITE: u32 = 0;
    pub(crate) const RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(crate) const SEND: u32 = 2;
    pub(crate) const SEND_WITH_IMM: u32 = 3;
    pub(crate) const RDMA_READ: u32 = 4;
    pub(crate) const ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(crate) const ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(crate) const LOCAL_INV: u32 = 7;
    pub(crate) const BIND_MW: u32 = 8;
    pub(crate) const SEND_WITH_INV: u32 = 9;
}

/// `enum ibv_wc_flags`.
pub(crate) mod wc_flag {
    pub(crate) const GRH: u32 = 1;
    pub(crate) const WITH_IMM: u32 = 1 << 1;
    pub(crate) const WITH_INV: u32 = 1 << 3;
}

/// `enum ibv_create_cq_wc_flags`.
pub(crate) mod wc_ex {
    /// `IBV_WC_STANDARD_FLAGS`: byte_len, imm, qp_num, src_qp, slid, sl, dlid_path_bits.
    pub(crate) const STANDARD: u64 = 0x7F;
    pub(crate) const COMPLETION_TIMESTAMP: u64 = 1 << 7;
    pub(crate) const COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;
}

/// `enum ibv_cq_init_attr_mask` and `enum ibv_create_cq_attr_flags`.
pub(crate) mod cq_init {
    pub(crate) const FLAGS: u32 = 1;
    pub(crate) const PD: u32 = 1 << 1;
    pub(crate) const SINGLE_THREADED: u32 = 1;
}

/// `enum ibv_qp_init_attr_mask`.
pub(crate) mod qp_init {
    pub(crate) const PD: u32 = 1;
    pub(crate) const XRCD: u32 = 1 << 1;
    pub(crate) const CREATE_FLAGS: u32 = 1 << 2;
    pub(crate) const SEND_OPS_FLAGS: u32 = 1 << 6;
}

/// `enum ibv_srq_init_attr_mask`.
pub(crate) mod srq_init {
    pub(crate) const TYPE: u32 = 1;
    pub(crate) const PD: u32 = 1 << 1;
    pub(crate) const XRCD: u32 = 1 << 2;
    pub(crate) const CQ: u32 = 1 << 3;
    /// `enum ibv_srq_type`.
    pub(crate) const BASIC: u32 = 0;
    pub(crate) const XRC: u32 = 1;
}

/// `enum ibv_xrcd_init_attr_mask`.
pub(crate) mod xrcd_init {
    pub(crate) const FD: u32 = 1;
    pub(crate) const OFLAGS: u32 = 1 << 1;
}

/// `enum ibv_qp_open_attr_mask`.
pub(crate) mod qp_open {
    pub(crate) const NUM: u32 = 1;
    pub(crate) const XRCD: u32 = 1 << 1;
    pub(crate) const CONTEXT: u32 = 1 << 2;
    pub(crate) const TYPE: u32 = 1 << 3;
}

/// `enum ibv_srq_attr_mask`.
pub(crate) mod srq_mask {
    pub(crate) const MAX_WR: u32 = 1;
    pub(crate) const LIMIT: u32 = 1 << 1;
}

/// `enum ibv_rereg_mr_flags` and `enum ibv_rereg_mr_err_code`.
pub(crate) mod rereg {
    pub(crate) const TRANSLATION: i32 = 1;
    pub(crate) const PD: i32 = 1 << 1;
    pub(crate) const ACCESS: i32 = 1 << 2;
    pub(crate) const ERR_INPUT: i32 = -1;
    pub(crate) const ERR_CMD: i32 = -4;
}

/// `enum ibv_device_cap_flags`.
pub(crate) mod device_cap {
    pub(crate) const CURR_QP_STATE_MOD: u32 = 1 << 7;
    pub(crate) const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    pub(crate) const SYS_IMAGE_GUID: u32 = 1 << 11;
    pub(crate) const RC_RNR_NAK_GEN: u32 = 1 << 12;
    pub(crate) const SRQ_RESIZE: u32 = 1 << 13;
    pub(crate) const MEM_WINDOW: u32 = 1 << 17;
    pub(crate) const XRC: u32 = 1 << 20;
    pub(crate) const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    pub(crate) const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
}

/// `enum ibv_port_cap_flags`.
pub(crate) mod port_cap {
    pub(crate) const CM_SUP: u32 = 1 << 16;
    pub(crate) const IP_BASED_GIDS: u32 = 1 << 26;
}

/// `enum ibv_event_type`.
pub(crate) mod event {
    pub(crate) const CQ_ERR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_REQ_ERR: u32 = 2;
    pub(crate) const QP_ACCESS_ERR: u32 = 3;
    pub(crate) const COMM_EST: u32 = 4;
    pub(crate) const SQ_DRAINED: u32 = 5;
    pub(crate) const DEVICE_FATAL: u32 = 8;
    pub(crate) const PORT_ACTIVE: u32 = 9;
    pub(crate) const PORT_ERR: u32 = 10;
    pub(crate) const SRQ_ERR: u32 = 14;
    pub(crate) const SRQ_LIMIT_REACHED: u32 = 15;
    pub(crate) const QP_LAST_WQE_REACHED: u32 = 16;
    pub(crate) const GID_CHANGE: u32 = 18;
}
