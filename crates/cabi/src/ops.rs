//! The tables of function addresses behind the inline calls of `infiniband/verbs.h`: in the public
//! context, and before it.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::*;
use crate::{entry, watch};

/// What marks a context that has a [`verbs_context`] around it.
const EXTENDED: usize = usize::MAX;

/// The context of an open device, with its tables filled in.
pub(crate) fn context(device: *mut ibv_device, async_fd: c_int) -> verbs_context {
    let vectors = std::thread::available_parallelism().map_or(1, |n| n.get() as c_int);
    verbs_context {
        since_59: [null_mut(); 6],
        query_port: Some(entry::query_port),
        advise_mr: Some(entry::advise_mr),
        alloc_null_mr: null_mut(),
        counters: [null_mut(); 4],
        device_memory: [null_mut(); 3],
        flow_actions: [null_mut(); 3],
        modify_qp_rate_limit: null_mut(),
        alloc_parent_domain: Some(entry::alloc_parent_domain),
        dealloc_td: Some(entry::dealloc_td),
        alloc_td: Some(entry::alloc_td),
        modify_cq: Some(entry::modify_cq),
        post_srq_ops: null_mut(),
        work_queues: [null_mut(); 5],
        query_rt_values: Some(entry::query_rt_values),
        create_cq_ex: Some(entry::create_cq_ex),
        private: null_mut(),
        query_device_ex: Some(entry::query_device_ex),
        destroy_flow: null_mut(),
        placeholder_2: null_mut(),
        create_flow: null_mut(),
        placeholder_1: null_mut(),
        open_qp: Some(entry::open_qp),
        create_qp_ex: Some(entry::create_qp_ex),
        get_srq_num: Some(entry::get_srq_num),
        create_srq_ex: Some(entry::create_srq_ex),
        open_xrcd: Some(entry::open_xrcd),
        close_xrcd: Some(entry::close_xrcd),
        placeholder_3: 0,
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device,
            ops: context_ops(),
            cmd_fd: -1,
            async_fd,
            num_comp_vectors: vectors,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: EXTENDED as *mut _,
        },
    }
}

fn context_ops() -> ibv_context_ops {
    let checked = watch::on();
    ibv_context_ops {
        query_device: Some(entry::ibv_query_device),
        query_port: Some(entry::ibv_query_port),
        dead_2: [null_mut(); 5],
        alloc_mw: Some(entry::alloc_mw),
        bind_mw: Some(entry::bind_mw),
        dealloc_mw: Some(entry::dealloc_mw),
        dead_10: null_mut(),
        poll_cq: Some(if checked { watch::watched_poll_cq } else { entry::poll_cq }),
        req_notify_cq: Some(match checked {
            true => watch::watched_req_notify_cq,
            false => entry::req_notify_cq,
        }),
        dead_13: [null_mut(); 7],
        post_srq_recv: Some(match checked {
            true => watch::watched_post_srq_recv,
            false => entry::post_srq_recv,
        }),
        dead_21: [null_mut(); 4],
        post_send: Some(if checked { watch::watched_post_send } else { entry::post_send }),
        post_recv: Some(if checked { watch::watched_post_recv } else { entry::post_recv }),
        dead_27: [null_mut(); 5],
    }
}
