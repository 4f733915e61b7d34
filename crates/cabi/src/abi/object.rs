//! Objects that the library hands out and whose public fields a program reads directly.

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::{ibv_context, ibv_data_buf, ibv_mw_bind_info, ibv_poll_cq_attr, ibv_sge, layout};

/// `struct ibv_device`.
#[repr(C)]
pub(crate) struct ibv_device {
    pub ops: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

/// `struct ibv_td`.
#[repr(C)]
pub(crate) struct ibv_td {
    pub context: *mut ibv_context,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub(crate) struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: c_int,
}

/// `struct ibv_ah`.
#[repr(C)]
pub(crate) struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(crate) struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

/// `struct ibv_cq_ex`: an [`ibv_cq`] and what inline calls of the extended interface reach.
#[repr(C)]
pub(crate) struct ibv_cq_ex {
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: u32,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
    pub read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
    pub read_slid: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    pub read_completion_ts: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
    pub read_cvlan: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u16>,
    pub read_flow_tag: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_tm_info: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut c_void)>,
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
}

/// `struct ibv_xrcd`.
#[repr(C)]
pub(crate) struct ibv_xrcd {
    pub context: *mut ibv_context,
}

/// `struct ibv_srq`.
#[repr(C)]
pub(crate) struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: u32,
    pub qp_type: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

/// A builder of `struct ibv_qp_ex`.
pub(crate) type Builder<A> = Option<A>;

/// `struct ibv_qp_ex`: an [`ibv_qp`] and the builders of the `ibv_wr_*` calls.
#[repr(C)]
pub(crate) struct ibv_qp_ex {
    pub base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
    pub wr_bind_mw:
        Builder<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub wr_local_inv: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub wr_rdma_read: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    pub wr_rdma_write: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    pub wr_rdma_write_imm: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub wr_send: Builder<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub wr_send_imm: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub wr_send_inv: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub wr_send_tso: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, u16, u16)>,
    pub wr_set_ud_addr: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
    pub wr_set_xrc_srqn: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub wr_set_inline_data: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
    pub wr_set_inline_data_list:
        Builder<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
    pub wr_set_sge: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub wr_set_sge_list: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
    pub wr_start: Builder<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub wr_complete: Builder<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
    pub wr_abort: Builder<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub wr_atomic_write: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void)>,
    pub wr_flush: Builder<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8)>,
}

layout! {
    OBJECTS:
    ibv_device: 664, node_type @ 16, transport_type @ 20, name @ 24, dev_name @ 88,
        dev_path @ 152, ibdev_path @ 408;
    ibv_pd: 16, handle @ 8;
    ibv_td: 8;
    ibv_mr: 48, pd @ 8, addr @ 16, length @ 24, handle @ 32, lkey @ 36, rkey @ 40;
    ibv_mw: 32, rkey @ 16, handle @ 20, kind @ 24;
    ibv_ah: 24, pd @ 8, handle @ 16;
    ibv_comp_channel: 16, fd @ 8, refcnt @ 12;
}

#[cfg(target_arch = "x86_64")]
layout! {
    OBJECTS_WITH_MUTEX:
    ibv_cq: 128, channel @ 8, cq_context @ 16, handle @ 24, cqe @ 28, mutex @ 32, cond @ 72,
        comp_events_completed @ 120, async_events_completed @ 124;
    ibv_cq_ex: 288, comp_mask @ 128, status @ 132, wr_id @ 136, start_poll @ 144, next_poll @ 152,
        end_poll @ 160, read_opcode @ 168, read_vendor_err @ 176, read_byte_len @ 184,
        read_imm_data @ 192, read_qp_num @ 200, read_src_qp @ 208, read_wc_flags @ 216,
        read_slid @ 224, read_sl @ 232, read_dlid_path_bits @ 240, read_completion_ts @ 248,
        read_cvlan @ 256, read_flow_tag @ 264, read_tm_info @ 272,
        read_completion_wallclock_ns @ 280;
    ibv_srq: 128, srq_context @ 8, pd @ 16, handle @ 24, mutex @ 32, cond @ 72,
        events_completed @ 120;
    ibv_qp: 160, qp_context @ 8, pd @ 16, send_cq @ 24, recv_cq @ 32, srq @ 40, handle @ 48,
        qp_num @ 52, state @ 56, qp_type @ 60, mutex @ 64, cond @ 104, events_completed @ 152;
    ibv_qp_ex: 360, comp_mask @ 160, wr_id @ 168, wr_flags @ 176, wr_atomic_cmp_swp @ 184,
        wr_atomic_fetch_add @ 192, wr_bind_mw @ 200, wr_local_inv @ 208, wr_rdma_read @ 216,
        wr_rdma_write @ 224, wr_rdma_write_imm @ 232, wr_send @ 240, wr_send_imm @ 248,
        wr_send_inv @ 256, wr_send_tso @ 264, wr_set_ud_addr @ 272, wr_set_xrc_srqn @ 280,
        wr_set_inline_data @ 288, wr_set_inline_data_list @ 296, wr_set_sge @ 304,
        wr_set_sge_list @ 312, wr_start @ 320, wr_complete @ 328, wr_abort @ 336,
        wr_atomic_write @ 344, wr_flush @ 352;
}
