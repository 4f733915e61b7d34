//! The data path under the checker: functions that stand in the tables of a context, a queue and a
//! queue pair in place of the plain ones, so that those know nothing of it. Each is entered with
//! the caller's address as one argument more.

use core::ffi::c_int;

use check::{Call, Done, Handle, Operation, Piece, ReceiveWork, SendWork, Site, Status};

use super::memory::OwnMemory;
use super::{dead, key, session, with};
use crate::abi::*;
use crate::entry::{self, Building};
use crate::errno::guarded;
use crate::handle::{
    AhHandle, CqHandle, Handle as Owner, MrHandle, MwHandle, QpHandle, SrqHandle, is_live, lock,
};

/// Defines an entry that hands its return address on, in the register of the argument behind its
/// last one.
macro_rules! entries {
    ($($name:ident($($type:ty),*) -> $result:ty = $to:ident, $x86:literal, $arm:literal;)*) => { $(
        /// See the function that it jumps to.
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($(_: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {f}", f = sym $to);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {f}", f = sym $to);
        }
    )* };
}

entries! {
    watched_post_send(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int =
        post_send, "rcx", "x3";
    watched_post_recv(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int =
        post_recv, "rcx", "x3";
    watched_post_srq_recv(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int =
        post_srq_recv, "rcx", "x3";
    watched_poll_cq(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int = poll_cq, "rcx", "x3";
    watched_req_notify_cq(*mut ibv_cq, c_int) -> c_int = req_notify_cq, "rdx", "x2";
    watched_start_poll(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int = start_poll, "rdx", "x2";
    watched_next_poll(*mut ibv_cq_ex) -> c_int = next_poll, "rsi", "x1";
    watched_wr_complete(*mut ibv_qp_ex) -> c_int = wr_complete, "rsi", "x1";
}

/// Requests of a list that are looked at: more than any queue holds.
const LONGEST: usize = 1 << 16;

fn call(name: &'static str, site: u64) -> Call {
    Call { name, site: Site(site) }
}

/// Whether the object of a call is there; says so if it is not any more.
fn lives<H: Owner>(call: Call, public: *mut H::Public) -> bool {
    is_live::<H>(public) || (dead(call, public, H::KIND), false).1
}

/// # Safety
/// `list` has `count` readable entries, if `count` is positive.
unsafe fn pieces(list: *const ibv_sge, count: c_int) -> Vec<Piece> {
    let count = usize::try_from(count).unwrap_or(0);
    if list.is_null() || count > LONGEST {
        return Vec::new();
    }
    // SAFETY: by contract, and not null.
    let list = unsafe { core::slice::from_raw_parts(list, count) };
    let piece = |sge: &ibv_sge| Piece { addr: sge.addr, length: sge.length, lkey: sge.lkey };
    list.iter().map(piece).collect()
}

fn operation(wr: &ibv_send_wr) -> Operation {
    match wr.opcode {
        wr::SEND | wr::SEND_WITH_IMM | wr::SEND_WITH_INV => Operation::Send,
        wr::RDMA_WRITE | wr::RDMA_WRITE_WITH_IMM => Operation::Write,
        wr::RDMA_READ => Operation::Read,
        wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD => {
            Operation::Atomic(wr.atomic().remote_addr)
        }
        wr::LOCAL_INV | wr::BIND_MW => Operation::Local,
        other => Operation::Other(other),
    }
}

/// # Safety
/// As `ibv_post_send` wants it.
unsafe fn send_work(wr: &ibv_send_wr) -> SendWork {
    SendWork {
        wr_id: wr.wr_id,
        operation: operation(wr),
        signaled: wr.send_flags & SEND_SIGNALED != 0,
        inline: wr.send_flags & SEND_INLINE != 0,
        addressed: !wr.ud().ah.is_null(),
        // SAFETY: by contract.
        pieces: unsafe { pieces(wr.sg_list, wr.num_sge) },
        inline_length: 0,
    }
}

/// Whether the objects that a send request names are there.
fn names_live(call: Call, datagram: bool, wr: &ibv_send_wr) -> bool {
    let there = |public: *mut ibv_mr| public.is_null() || lives::<MrHandle>(call, public);
    if wr.opcode == wr::BIND_MW {
        let bind = wr.bind_mw();
        return (bind.mw.is_null() || lives::<MwHandle>(call, bind.mw)) && there(bind.bind_info.mr);
    }
    !datagram || wr.ud().ah.is_null() || lives::<AhHandle>(call, wr.ud().ah)
}

/// The place in a list of what was refused; its length if nothing was.
fn accepted<W>(list: &[*mut W], result: c_int, bad: *mut W) -> usize {
    if result == 0 {
        return list.len();
    }
    list.iter().position(|wr| *wr == bad).unwrap_or(list.len())
}

/// Writes the refused request to where the program wants it.
unsafe fn refuse<W>(bad: *mut *mut W, at: *mut W) {
    if !bad.is_null() {
        // SAFETY: not null, writable by the call's contract.
        unsafe { *bad = at };
    }
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    site: u64,
) -> c_int {
    let call = call("ibv_post_send", site);
    // SAFETY: a valid list by the call's contract; that the queue pair is live is asked.
    let done = guarded(call.name, || unsafe {
        let session = session()?;
        if qp.is_null() || !lives::<QpHandle>(call, qp) {
            refuse(bad, first);
            return Some(libc::EINVAL);
        }
        let (mut list, mut works, mut at) = (Vec::new(), Vec::new(), first);
        let datagram = (*qp).qp_type == QPT_UD;
        while let Some(wr) = at.as_ref().filter(|_| list.len() < LONGEST) {
            if !names_live(call, datagram, wr) {
                refuse(bad, first);
                return Some(libc::EINVAL);
            }
            list.push(at);
            works.push(send_work(wr));
            at = wr.next;
        }
        let mut refused = core::ptr::null_mut();
        let mut checker = lock(&session.checker);
        let pending = checker.sending(call, key(qp), &works, &OwnMemory);
        let result = entry::post_send(qp, first, &raw mut refused);
        checker.posted(pending, accepted(&list, result, refused), result);
        super::report::say(&mut checker);
        if result != 0 {
            refuse(bad, refused);
        }
        Some(result)
    });
    // SAFETY: as the caller says.
    done.flatten().unwrap_or_else(|| unsafe { entry::post_send(qp, first, bad) })
}

type PostRecv<Q> = unsafe extern "C" fn(*mut Q, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// # Safety
/// As the call wants it, but that the queue may have been destroyed.
unsafe fn receive<H: Owner>(
    call: Call,
    queue: *mut H::Public,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    plain: PostRecv<H::Public>,
) -> c_int {
    // SAFETY: a valid list by contract; that the queue is live is asked.
    let done = guarded(call.name, || unsafe {
        let session = session()?;
        if queue.is_null() || !lives::<H>(call, queue) {
            refuse(bad, first);
            return Some(libc::EINVAL);
        }
        let (mut list, mut works, mut at) = (Vec::new(), Vec::new(), first);
        while let Some(wr) = at.as_ref().filter(|_| list.len() < LONGEST) {
            list.push(at);
            works.push(ReceiveWork { wr_id: wr.wr_id, pieces: pieces(wr.sg_list, wr.num_sge) });
            at = wr.next;
        }
        let mut refused = core::ptr::null_mut();
        let mut checker = lock(&session.checker);
        let pending = checker.receiving(call, key(queue), &works);
        let result = plain(queue, first, &raw mut refused);
        checker.posted(pending, accepted(&list, result, refused), result);
        super::report::say(&mut checker);
        if result != 0 {
            refuse(bad, refused);
        }
        Some(result)
    });
    // SAFETY: as the caller says.
    done.flatten().unwrap_or_else(|| unsafe { plain(queue, first, bad) })
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    site: u64,
) -> c_int {
    let call = call("ibv_post_recv", site);
    // SAFETY: as the caller says.
    unsafe { receive::<QpHandle>(call, qp, first, bad, entry::post_recv) }
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    site: u64,
) -> c_int {
    let call = call("ibv_post_srq_recv", site);
    // SAFETY: as the caller says.
    unsafe { receive::<SrqHandle>(call, srq, first, bad, entry::post_srq_recv) }
}

const RNR_RETRY_EXC_ERR: u32 = 13;

fn status(value: u32) -> Status {
    match value {
        0 => Status::Success,
        RNR_RETRY_EXC_ERR => Status::RnrExceeded,
        _ => Status::Failed,
    }
}

/// The bit of a completion's opcode that says that it is a receive.
const RECEIVE: u32 = 1 << 7;

/// Tells of completions that have just been polled.
fn polled(call: Call, cq: Handle, done: &[Done]) {
    if !done.is_empty() {
        guarded(call.name, || with(|checker| checker.polled(call, cq, done, &OwnMemory)));
    }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, out: *mut ibv_wc, site: u64) -> c_int {
    let call = call("ibv_poll_cq", site);
    let dead = || !cq.is_null() && !lives::<CqHandle>(call, cq);
    if guarded(call.name, dead) == Some(true) {
        crate::errno::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: as the caller says.
    let taken = unsafe { entry::poll_cq(cq, count, out) };
    let n = usize::try_from(taken).unwrap_or(0);
    if n > 0 {
        // SAFETY: the plain call has written that many entries.
        let list = unsafe { core::slice::from_raw_parts(out, n) };
        let done = |wc: &ibv_wc| Done {
            wr_id: wc.wr_id,
            qp: wc.qp_num,
            status: status(wc.status),
            receive: wc.opcode & RECEIVE != 0,
        };
        polled(call, key(cq), &list.iter().map(done).collect::<Vec<_>>());
    }
    taken
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int, site: u64) -> c_int {
    let call = call("ibv_req_notify_cq", site);
    let known = guarded(call.name, || {
        let lives = cq.is_null() || lives::<CqHandle>(call, cq);
        // Before it is done: an event may come at once.
        lives && with(|checker| checker.armed(key(cq))).is_some()
    });
    if known == Some(false) {
        return libc::EINVAL;
    }
    // SAFETY: as the caller says.
    unsafe { entry::req_notify_cq(cq, solicited_only) }
}

/// Tells of the completion that the extended interface is looking at.
unsafe fn polled_ex(call: Call, cq: *mut ibv_cq_ex) {
    // SAFETY: between `start_poll` and `end_poll`, the queue is live.
    let (status_value, wr_id, current) = unsafe {
        let current = entry::current(cq);
        ((*cq).status, (*cq).wr_id, current)
    };
    let receive = current.opcode as u32 & RECEIVE != 0;
    let done = Done { wr_id, qp: current.qp.get(), status: status(status_value), receive };
    polled(call, key(cq.cast::<ibv_cq>()), &[done]);
}

unsafe extern "C" fn start_poll(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
    site: u64,
) -> c_int {
    let call = call("ibv_start_poll", site);
    if guarded(call.name, || lives::<CqHandle>(call, cq.cast::<ibv_cq>())) == Some(false) {
        return libc::EINVAL;
    }
    // SAFETY: as the caller says.
    unsafe {
        let result = entry::start_poll(cq, attr);
        if result == 0 {
            polled_ex(call, cq);
        }
        result
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex, site: u64) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        let result = entry::next_poll(cq);
        if result == 0 {
            polled_ex(call("ibv_next_poll", site), cq);
        }
        result
    }
}

/// A request that was built by `ibv_wr_*` calls.
fn built_work(built: &Building<'_>) -> SendWork {
    use crocevia::{SendData, SendFlags, SendOp};
    let request = &built.request;
    let (inline, pieces) = match request.data {
        SendData::Inline(_) => (true, Vec::new()),
        SendData::Sges(list) => {
            let piece = |sge: &crocevia::Sge| Piece {
                addr: sge.addr,
                length: sge.length,
                lkey: sge.lkey.get(),
            };
            (false, list.iter().map(piece).collect())
        }
    };
    let operation = match request.op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => Operation::Send,
        SendOp::Write(_) | SendOp::WriteImm(..) => Operation::Write,
        SendOp::Read(_) => Operation::Read,
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            Operation::Atomic(remote.addr)
        }
        SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => Operation::Local,
    };
    SendWork {
        wr_id: request.wr_id,
        operation,
        signaled: request.flags.contains(SendFlags::SIGNALED),
        inline,
        addressed: request.datagram.is_some(),
        pieces,
        inline_length: built.inline as u64,
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex, site: u64) -> c_int {
    let call = call("ibv_wr_complete", site);
    let base = qp.cast::<ibv_qp>();
    // SAFETY: as the caller says, but that the queue pair may have been destroyed, which is asked.
    // It is this thread's, since `wr_start`.
    let done = guarded(call.name, || unsafe {
        let session = session()?;
        if !lives::<QpHandle>(call, base) {
            libc::pthread_mutex_unlock(&raw mut (*qp).base.mutex);
            return Some(libc::EINVAL);
        }
        let works: Vec<_> = entry::building(qp, |list| list.map(|b| built_work(&b)).collect());
        let mut checker = lock(&session.checker);
        let room = entry::room(qp);
        let pending = checker.sending(call, key(base), &works, &OwnMemory);
        let result = entry::wr_complete(qp);
        // All or none, but for a request that is wrong in itself.
        let taken = match result {
            0 => works.len(),
            _ => room.saturating_sub(entry::room(qp)),
        };
        checker.posted(pending, taken, result);
        super::report::say(&mut checker);
        Some(result)
    });
    // SAFETY: as the caller says.
    done.flatten().unwrap_or_else(|| unsafe { entry::wr_complete(qp) })
}

/// A window of type 1 is bound by a call that posts; its request completes like any other.
pub(crate) fn bound(qp: *mut ibv_qp, wr_id: u64, signaled: bool) {
    if !super::on() {
        return;
    }
    let work = SendWork {
        wr_id,
        operation: Operation::Local,
        signaled,
        inline: false,
        addressed: false,
        pieces: Vec::new(),
        inline_length: 0,
    };
    let call = super::current();
    with(|checker| {
        let pending = checker.sending(call, key(qp), &[work], &OwnMemory);
        checker.posted(pending, 1, 0);
    });
}
