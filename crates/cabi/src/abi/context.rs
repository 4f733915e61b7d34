//! The context with its two tables: the one behind `ibv_context.ops`, and the one that grows at
//! negative offsets before the public context.

use core::ffi::{c_int, c_uint, c_void};

use libc::pthread_mutex_t;

use super::*;

type NoOp = *mut c_void;

/// `struct ibv_context_ops`: the slots that inline calls use, and the dead ones between them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_context_ops {
    pub query_device: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int>,
    pub query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int>,
    pub dead_2: [NoOp; 5],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub dead_10: NoOp,
    pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub dead_13: [NoOp; 7],
    pub post_srq_recv: Option<
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    >,
    pub dead_21: [NoOp; 4],
    pub post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub dead_27: [NoOp; 5],
}

/// `struct ibv_context`.
#[repr(C)]
pub(crate) struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    /// All ones: a [`verbs_context`] surrounds this.
    pub abi_compat: *mut c_void,
}

/// `struct verbs_context` in the newest layout known. New operations come at its beginning; the
/// caller looks only as far as its own headers know.
#[repr(C)]
pub(crate) struct verbs_context {
    pub since_59: [NoOp; 6],
    pub query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    pub advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> c_int>,
    pub alloc_null_mr: NoOp,
    pub counters: [NoOp; 4],
    pub device_memory: [NoOp; 3],
    pub flow_actions: [NoOp; 3],
    pub modify_qp_rate_limit: NoOp,
    pub alloc_parent_domain: Option<
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
    >,
    pub dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
    pub alloc_td:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
    pub modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
    pub post_srq_ops: NoOp,
    pub work_queues: [NoOp; 5],
    pub query_rt_values:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
    pub create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub private: NoOp,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int,
    >,
    pub destroy_flow: NoOp,
    pub placeholder_2: NoOp,
    pub create_flow: NoOp,
    pub placeholder_1: NoOp,
    pub open_qp:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
    pub create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
    pub create_srq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    pub open_xrcd:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
    pub close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
    pub placeholder_3: u64,
    /// Bytes of this structure.
    pub sz: usize,
    pub context: ibv_context,
}

/// Access flags of `ibv_reg_mr` are signed, those of the newer calls are not.
pub(crate) type AccessFlags = c_uint;

layout! {
    OPS:
    ibv_context_ops: 256, query_port @ 8, alloc_mw @ 56, bind_mw @ 64, dealloc_mw @ 72,
        poll_cq @ 88, req_notify_cq @ 96, post_srq_recv @ 160, post_send @ 200, post_recv @ 208;
}

#[cfg(target_arch = "x86_64")]
layout! {
    CONTEXT:
    ibv_context: 328, ops @ 8, cmd_fd @ 264, async_fd @ 268, num_comp_vectors @ 272, mutex @ 280,
        abi_compat @ 320;
}

/// Checks how far before the public context an operation lies.
macro_rules! before_context {
    ($($field:ident - $offset:literal;)*) => {
        $(const _: () = assert!(
            core::mem::offset_of!(verbs_context, context)
                - core::mem::offset_of!(verbs_context, $field) == $offset
        );)*
        #[cfg(test)]
        pub(super) const BEFORE_CONTEXT: &[(&str, usize)] = &[$((stringify!($field), $offset),)*];
    };
}

before_context! {
    sz - 8; close_xrcd - 24; open_xrcd - 32; create_srq_ex - 40; get_srq_num - 48;
    create_qp_ex - 56; open_qp - 64; create_flow - 80; destroy_flow - 96; query_device_ex - 104;
    private - 112; create_cq_ex - 120; query_rt_values - 128; work_queues - 168;
    post_srq_ops - 176; modify_cq - 184; alloc_td - 192; dealloc_td - 200;
    alloc_parent_domain - 208; modify_qp_rate_limit - 216; flow_actions - 240;
    device_memory - 264; counters - 296; alloc_null_mr - 304; advise_mr - 312; query_port - 320;
    since_59 - 368;
}

#[cfg(target_arch = "x86_64")]
const _: () = assert!(size_of::<verbs_context>() == 696);
