//! The extended completion queue: `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll` and what is
//! read of the completion between them.

use core::ffi::{c_int, c_uint, c_void};

use crocevia::{Completion, WcStatus};

use crate::abi::*;
use crate::convert;
use crate::entry::{context_of, create, failed};
use crate::errno::{EINVAL, Fail, guarded, object};
use crate::handle::{ContextHandle, CqHandle, PdHandle, is_live, trust};
use crate::watch;

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    const KNOWN: u64 =
        wc_ex::STANDARD | wc_ex::COMPLETION_TIMESTAMP | wc_ex::COMPLETION_TIMESTAMP_WALLCLOCK;
    object("ibv_create_cq_ex", || {
        context_of(context)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let attr = unsafe { attr.read() };
        if attr.comp_mask & !(cq_init::FLAGS | cq_init::PD) != 0 {
            return Err(EINVAL);
        }
        if attr.wc_flags & !KNOWN != 0 {
            let unknown = attr.wc_flags & !KNOWN;
            return Err(Fail::unsupported(format!("completion fields {unknown:#x} (wc_flags)")));
        }
        let flags = if attr.comp_mask & cq_init::FLAGS != 0 { attr.flags } else { 0 };
        if flags & !cq_init::SINGLE_THREADED != 0 {
            return Err(Fail::unsupported(format!("completion queue flags {flags:#x}")));
        }
        if attr.comp_mask & cq_init::PD != 0 && !is_live::<PdHandle>(attr.parent_domain) {
            return Err(EINVAL);
        }
        let single_threaded = flags & cq_init::SINGLE_THREADED != 0;
        let vector = i64::from(attr.comp_vector);
        let cq = create(context, attr.cqe, attr.cq_context, attr.channel, vector, single_threaded)?;
        Ok(cq.cast::<ibv_cq_ex>())
    })
}

/// Sets the functions that inline calls reach through the queue.
pub(crate) fn fill_cq_ex(public: &mut ibv_cq_ex) {
    let checked = watch::on();
    public.start_poll = Some(if checked { watch::watched_start_poll } else { start_poll });
    public.next_poll = Some(if checked { watch::watched_next_poll } else { next_poll });
    public.end_poll = Some(end_poll);
    public.read_opcode = Some(read_opcode);
    public.read_vendor_err = Some(read_vendor_err);
    public.read_byte_len = Some(read_byte_len);
    public.read_imm_data = Some(read_imm_data);
    public.read_qp_num = Some(read_qp_num);
    public.read_src_qp = Some(read_src_qp);
    public.read_wc_flags = Some(read_wc_flags);
    public.read_slid = Some(read_slid);
    public.read_sl = Some(read_sl);
    public.read_dlid_path_bits = Some(read_dlid_path_bits);
    public.read_completion_ts = Some(read_completion_ts);
    public.read_cvlan = Some(read_cvlan);
    public.read_flow_tag = Some(read_flow_tag);
    public.read_tm_info = Some(read_tm_info);
    public.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

/// # Safety
/// `cq` is a live completion queue.
#[inline]
unsafe fn handle<'a>(cq: *mut ibv_cq_ex) -> &'a CqHandle {
    // SAFETY: by contract; the public part begins with an `ibv_cq`.
    unsafe { trust::<CqHandle>(cq.cast::<ibv_cq>()) }
}

/// Takes the next completion; 0 or ENOENT.
///
/// # Safety
/// The calling thread is the one that polls.
#[inline]
unsafe fn advance(handle: &CqHandle) -> c_int {
    let next = guarded("ibv_start_poll", || handle.cq.get().poll_one());
    let Some(Some(completion)) = next else { return libc::ENOENT };
    if completion.status != WcStatus::Success {
        failed::report(handle.cq.get(), &completion);
    }
    // SAFETY: by contract nobody else looks at what the polling thread reads.
    unsafe {
        let public = handle.public.get();
        (*public).status = completion.status as u32;
        (*public).wr_id = completion.wr_id;
        *handle.current.get() = completion;
    }
    0
}

/// What the thread that polls is looking at.
///
/// # Safety
/// The calling thread is that one, between `start_poll` and `end_poll`.
pub(crate) unsafe fn current(cq: *mut ibv_cq_ex) -> Completion {
    // SAFETY: by contract.
    unsafe { *handle(cq).current.get() }
}

pub(crate) unsafe extern "C" fn start_poll(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: valid by the call's contract. The mutex makes this thread the one that polls, until
    // `end_poll`; nothing else in this library locks it.
    unsafe {
        if !attr.is_null() && (*attr).comp_mask != 0 {
            return libc::EINVAL;
        }
        let handle = handle(cq);
        if !handle.single_threaded {
            libc::pthread_mutex_lock(&raw mut (*cq).base.mutex);
        }
        let result = advance(handle);
        if result != 0 && !handle.single_threaded {
            libc::pthread_mutex_unlock(&raw mut (*cq).base.mutex);
        }
        result
    }
}

pub(crate) unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: between `start_poll` and `end_poll`, by the call's contract.
    unsafe { advance(handle(cq)) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: after a `start_poll` that gave something, by the call's contract.
    unsafe {
        if !handle(cq).single_threaded {
            libc::pthread_mutex_unlock(&raw mut (*cq).base.mutex);
        }
    }
}

/// Defines functions that read the current completion.
macro_rules! read {
    ($($name:ident -> $type:ty = |$c:ident| $value:expr;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: between `start_poll` and `end_poll`, by the call's contract.
            let $c = unsafe { &*handle(cq).current.get() };
            $value
        }
    )* };
}

read! {
    read_opcode -> u32 = |c| c.opcode as u32;
    read_vendor_err -> u32 = |c| c.vendor_err;
    read_byte_len -> u32 = |c| c.byte_len;
    read_imm_data -> u32 = |c| convert::imm_and_flags(c).0;
    read_qp_num -> u32 = |c| c.qp.get();
    read_src_qp -> u32 = |c| c.src_qp.get();
    read_wc_flags -> c_uint = |c| convert::imm_and_flags(c).1;
    read_slid -> u32 = |_c| 0;
    read_sl -> u8 = |c| convert::service_level(c);
    read_dlid_path_bits -> u8 = |_c| 0;
    read_completion_ts -> u64 = |c| c.timestamp / 1000;
    read_cvlan -> u16 = |_c| 0;
    read_flow_tag -> u32 = |_c| 0;
}

unsafe extern "C" fn read_tm_info(_cq: *mut ibv_cq_ex, info: *mut c_void) {
    /// Tag and private data of `struct ibv_wc_tm_info`, with its padding.
    const SIZE: usize = 16;
    if !info.is_null() {
        // SAFETY: not null, writable by the call's contract.
        unsafe { core::ptr::write_bytes(info.cast::<u8>(), 0, SIZE) };
    }
}

unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: between `start_poll` and `end_poll`, by the call's contract; the context outlives its
    // queues.
    unsafe {
        let timestamp = (*handle(cq).current.get()).timestamp;
        let offset = trust::<ContextHandle>((*cq).base.context).wallclock_offset;
        u64::try_from(i128::from(timestamp / 1000) + offset).unwrap_or(0)
    }
}
