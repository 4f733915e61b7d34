//! The `ibv_wr_*` interface: requests are built one by one between `ibv_wr_start` and
//! `ibv_wr_complete`, and posted together.

use core::ffi::{c_int, c_void};
use core::ops::Range;

use crocevia::{
    Datagram, PostError, QpType, RKey, Remote, SendData, SendFlags, SendOp, SendRequest, Sge,
    SrqNum, limits,
};

use crate::abi::*;
use crate::convert;
use crate::errno::{Fail, guarded, set_errno};
use crate::handle::{MwHandle, QpHandle, is_live, trust};
use crate::watch;

/// The requests built so far.
#[derive(Default)]
pub(crate) struct Builder {
    requests: Vec<Built>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    failed: Option<PostError>,
}

struct Built {
    wr_id: u64,
    flags: SendFlags,
    op: SendOp,
    data: Data,
    datagram: Option<Datagram>,
    /// The peer's shared receive queue (XRC).
    srq: Option<SrqNum>,
    /// The window to be told its new key.
    mw: *mut ibv_mw,
}

/// Where a request's data stand in the builder.
enum Data {
    Sges(Range<usize>),
    Inline(Range<usize>),
    /// More inline bytes than any queue pair takes; the request fails.
    TooLong(usize),
}

impl Builder {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.bytes.clear();
        self.failed = None;
    }

    fn fail(&mut self, error: PostError) {
        self.failed.get_or_insert(error);
    }

    fn last(&mut self) -> Option<&mut Built> {
        if self.requests.is_empty() {
            self.fail(PostError::Operation);
        }
        self.requests.last_mut()
    }

    fn set_sges(&mut self, list: impl Iterator<Item = Sge>) {
        let start = self.sges.len();
        self.sges.extend(list);
        let range = start..self.sges.len();
        if let Some(last) = self.last() {
            last.data = Data::Sges(range);
        }
    }

    /// # Safety
    /// Each buffer is readable.
    unsafe fn set_inline(&mut self, buffers: &[ibv_data_buf]) {
        let start = self.bytes.len();
        let total = buffers.iter().fold(0_usize, |sum, b| sum.saturating_add(b.length));
        if total > limits::MAX_INLINE as usize {
            if let Some(last) = self.last() {
                last.data = Data::TooLong(total);
            }
            return self.fail(PostError::Inline);
        }
        for buffer in buffers.iter().filter(|b| b.length > 0) {
            // SAFETY: by contract.
            self.bytes.extend_from_slice(unsafe {
                core::slice::from_raw_parts(buffer.addr.cast::<u8>(), buffer.length)
            });
        }
        let range = start..self.bytes.len();
        if let Some(last) = self.last() {
            last.data = Data::Inline(range);
        }
    }

    fn request<'a>(&'a self, built: &Built) -> SendRequest<'a> {
        let data = match &built.data {
            Data::Sges(range) => SendData::Sges(&self.sges[range.clone()]),
            Data::Inline(range) => SendData::Inline(&self.bytes[range.clone()]),
            Data::TooLong(_) => SendData::Inline(&[]),
        };
        SendRequest {
            wr_id: built.wr_id,
            op: built.op,
            flags: built.flags,
            data,
            datagram: built.datagram,
        }
    }
}

/// `send_ops_flags` that a service has.
pub(crate) fn allowed_send_ops(qp_type: QpType) -> u64 {
    const WRITE: u64 = 0b11;
    const SEND: u64 = 0b11 << 2;
    const READ: u64 = 1 << 4;
    const ATOMICS: u64 = 0b11 << 5;
    const LOCAL_INV: u64 = 1 << 7;
    const BIND_MW: u64 = 1 << 8;
    const SEND_WITH_INV: u64 = 1 << 9;
    match qp_type {
        QpType::Rc | QpType::XrcSend => {
            WRITE | SEND | READ | ATOMICS | LOCAL_INV | BIND_MW | SEND_WITH_INV
        }
        QpType::Uc => WRITE | SEND | LOCAL_INV | BIND_MW,
        QpType::Ud | QpType::Gsi => SEND,
        QpType::XrcRecv => 0,
    }
}

/// Sets the functions that inline calls reach through the queue pair.
pub(crate) fn fill_qp_ex(public: &mut ibv_qp_ex) {
    public.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    public.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    public.wr_bind_mw = Some(wr_bind_mw);
    public.wr_local_inv = Some(wr_local_inv);
    public.wr_rdma_read = Some(wr_rdma_read);
    public.wr_rdma_write = Some(wr_rdma_write);
    public.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    public.wr_send = Some(wr_send);
    public.wr_send_imm = Some(wr_send_imm);
    public.wr_send_inv = Some(wr_send_inv);
    public.wr_send_tso = Some(wr_send_tso);
    public.wr_set_ud_addr = Some(wr_set_ud_addr);
    public.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    public.wr_set_inline_data = Some(wr_set_inline_data);
    public.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    public.wr_set_sge = Some(wr_set_sge);
    public.wr_set_sge_list = Some(wr_set_sge_list);
    public.wr_start = Some(wr_start);
    public.wr_complete = Some(match watch::on() {
        true => watch::watched_wr_complete,
        false => wr_complete,
    });
    public.wr_abort = Some(wr_abort);
    public.wr_atomic_write = Some(wr_atomic_write);
    public.wr_flush = Some(wr_flush);
}

pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    let extended = guarded("ibv_qp_to_qp_ex", || {
        // SAFETY: asked first whether it is live.
        is_live::<QpHandle>(qp) && unsafe { trust::<QpHandle>(qp) }.builder.is_some()
    });
    if extended == Some(true) {
        return qp.cast();
    }
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// # Safety
/// `qp` is a live queue pair.
#[inline]
unsafe fn handle<'a>(qp: *mut ibv_qp_ex) -> &'a QpHandle {
    // SAFETY: by contract; the public part begins with an `ibv_qp`.
    unsafe { trust::<QpHandle>(qp.cast::<ibv_qp>()) }
}

/// Runs `f` on the builder of a queue pair.
///
/// # Safety
/// `qp` is a live queue pair, and the calling thread is between `wr_start` and the end.
#[inline]
unsafe fn with(qp: *mut ibv_qp_ex, f: impl FnOnce(&mut Builder, &ibv_qp_ex)) {
    // SAFETY: by contract; the mutex taken by `wr_start` makes the builder this thread's.
    unsafe {
        if let Some(builder) = &handle(qp).builder {
            guarded("ibv_wr", || f(&mut *builder.get(), &*qp));
        }
    }
}

/// Begins a request.
///
/// # Safety
/// As for [`with`].
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: by contract.
    unsafe {
        with(qp, |builder, public| match convert::send_flags(public.wr_flags) {
            Ok(flags) => {
                builder.requests.push(Built {
                    wr_id: public.wr_id,
                    flags,
                    op,
                    data: Data::Sges(0..0),
                    datagram: None,
                    srq: None,
                    mw: core::ptr::null_mut(),
                });
            }
            Err(error) => builder.fail(error),
        });
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a live queue pair by the call's contract. The mutex makes the builder this thread's
    // until `wr_complete` or `wr_abort`; nothing else in this library locks it.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*qp).base.mutex);
        with(qp, |builder, _| builder.clear());
    }
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: after `wr_start`, by the call's contract.
    unsafe {
        with(qp, |builder, _| builder.clear());
        libc::pthread_mutex_unlock(&raw mut (*qp).base.mutex);
    }
}

/// A request that has been built and not yet posted.
pub(crate) struct Building<'a> {
    pub request: SendRequest<'a>,
    /// Inline bytes, which the request does not hold if there are too many.
    pub inline: usize,
}

/// Runs `f` on what has been built so far.
///
/// # Safety
/// As for [`with`].
pub(crate) unsafe fn building<R: Default>(
    qp: *mut ibv_qp_ex,
    f: impl FnOnce(&mut dyn Iterator<Item = Building<'_>>) -> R,
) -> R {
    // SAFETY: by contract.
    let Some(builder) = (unsafe { &handle(qp).builder }) else { return R::default() };
    // SAFETY: the mutex taken by `wr_start` makes the builder this thread's.
    let builder = unsafe { &*builder.get() };
    f(&mut builder.requests.iter().map(|built| {
        let inline = match &built.data {
            Data::Sges(_) => 0,
            Data::Inline(range) => range.len(),
            Data::TooLong(length) => *length,
        };
        Building { request: builder.request(built), inline }
    }))
}

/// Send requests that still fit.
///
/// # Safety
/// `qp` is a live queue pair.
pub(crate) unsafe fn room(qp: *mut ibv_qp_ex) -> usize {
    // SAFETY: by contract.
    unsafe { handle(qp) }.qp.get().send_batch(|batch| batch.room())
}

pub(crate) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: after `wr_start`, by the call's contract.
    unsafe {
        let mut outcome = Err(PostError::Operation);
        let handle = handle(qp);
        with(qp, |builder, _| {
            outcome = post(handle, builder);
            builder.clear();
        });
        libc::pthread_mutex_unlock(&raw mut (*qp).base.mutex);
        match outcome {
            Ok(()) => 0,
            Err(error) => {
                guarded("ibv_wr_complete", || Fail::Post(error).report("ibv_wr_complete"))
                    .unwrap_or(libc::EIO)
            }
        }
    }
}

/// Posts what has been built, under one lock.
fn post(handle: &QpHandle, builder: &Builder) -> Result<(), PostError> {
    if let Some(error) = builder.failed {
        return Err(error);
    }
    handle.qp.get().send_batch(|batch| {
        // All or none: the program will try all of them again.
        if builder.requests.len() > batch.room() {
            return Err(PostError::QueueFull);
        }
        builder.requests.iter().try_for_each(|built| {
            let request = builder.request(built);
            match built.srq {
                Some(srq) => batch.push_xrc(&request, srq)?,
                None => batch.push(&request)?,
            }
            if let (SendOp::BindWindow(bind), false) = (built.op, built.mw.is_null()) {
                // SAFETY: checked to be live when the request was built.
                unsafe {
                    (*trust::<MwHandle>(built.mw).public.get()).rkey = bind.rkey.get();
                }
            }
            Ok(())
        })
    })
}

fn remote(rkey: u32, addr: u64) -> Remote {
    Remote { addr, rkey: RKey::new(rkey) }
}

/// Defines builders that begin a request.
macro_rules! begins {
    ($($name:ident($($arg:ident: $type:ty),*) = $op:expr;)*) => { $(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $type)*) {
            // SAFETY: between `wr_start` and the end, by the call's contract.
            unsafe { begin(qp, $op) }
        }
    )* };
}

begins! {
    wr_rdma_write(rkey: u32, addr: u64) = SendOp::Write(remote(rkey, addr));
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) =
        SendOp::WriteImm(remote(rkey, addr), imm.to_ne_bytes());
    wr_rdma_read(rkey: u32, addr: u64) = SendOp::Read(remote(rkey, addr));
    wr_send() = SendOp::Send;
    wr_send_imm(imm: u32) = SendOp::SendImm(imm.to_ne_bytes());
    wr_send_inv(rkey: u32) = SendOp::SendInvalidate(RKey::new(rkey));
    wr_local_inv(rkey: u32) = SendOp::LocalInvalidate(RKey::new(rkey));
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) =
        SendOp::CompareSwap { remote: remote(rkey, addr), compare, swap };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) =
        SendOp::FetchAdd { remote: remote(rkey, addr), add };
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: between `wr_start` and the end, with valid arguments, by the call's contract.
    unsafe {
        let bind = match info.as_ref() {
            Some(info) => convert::bind_window(mw, rkey, info),
            None => Err(PostError::Operation),
        };
        match bind {
            Ok(bind) => {
                begin(qp, SendOp::BindWindow(bind));
                with(qp, |builder, _| {
                    if let Some(last) = builder.last() {
                        last.mw = mw;
                    }
                });
            }
            Err(error) => with(qp, |builder, _| builder.fail(error)),
        }
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: between `wr_start` and the end, with a live handle, by the call's contract.
    unsafe {
        with(qp, |builder, _| match convert::datagram(ah, qpn, qkey) {
            Ok(datagram) => {
                if let Some(last) = builder.last() {
                    last.datagram = Some(datagram);
                }
            }
            Err(error) => builder.fail(error),
        });
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = convert::sge(&ibv_sge { addr, length, lkey });
    // SAFETY: between `wr_start` and the end, by the call's contract.
    unsafe { with(qp, |builder, _| builder.set_sges(core::iter::once(sge))) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: between `wr_start` and the end, with `count` entries, by the call's contract.
    unsafe {
        with(qp, |builder, _| {
            if count > limits::MAX_SGE as usize || (list.is_null() && count > 0) {
                return builder.fail(PostError::TooManySges);
            }
            let list = if count == 0 { &[] } else { core::slice::from_raw_parts(list, count) };
            builder.set_sges(list.iter().map(convert::sge));
        });
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: between `wr_start` and the end, with a readable buffer, by the call's contract.
    unsafe { with(qp, |builder, _| builder.set_inline(&[ibv_data_buf { addr, length }])) }
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: between `wr_start` and the end, with `count` readable buffers, by the call's
    // contract.
    unsafe {
        with(qp, |builder, _| {
            if list.is_null() && count > 0 {
                return builder.fail(PostError::Inline);
            }
            let list = if count == 0 { &[] } else { core::slice::from_raw_parts(list, count) };
            builder.set_inline(list);
        });
    }
}

/// Requests that creation refuses; whoever builds one nevertheless learns it at the end.
unsafe fn not_offered(qp: *mut ibv_qp_ex) {
    // SAFETY: between `wr_start` and the end, by the call's contract.
    unsafe { with(qp, |builder, _| builder.fail(PostError::Operation)) }
}

unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, _: *mut c_void, _: u16, _: u16) {
    // SAFETY: as for the caller.
    unsafe { not_offered(qp) }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    // SAFETY: between `wr_start` and the end, by the call's contract.
    unsafe {
        with(qp, |builder, _| {
            if let Some(last) = builder.last() {
                last.srq = Some(SrqNum::new(number));
            }
        });
    }
}

unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, _: u32, _: u64, _: *const c_void) {
    // SAFETY: as for the caller.
    unsafe { not_offered(qp) }
}

unsafe extern "C" fn wr_flush(qp: *mut ibv_qp_ex, _: u32, _: u64, _: usize, _: u8, _: u8) {
    // SAFETY: as for the caller.
    unsafe { not_offered(qp) }
}
