//! Queue pairs: creation, state, posting. The `ibv_wr_*` interface is in `qp_ex.rs`.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crocevia::{AttrMask, PostError, Qp, QpOptions, QpType, SrqNum};

use crate::abi::*;
use crate::convert::{self, Scratch};
use crate::entry::{allowed_send_ops, context_of, fill_qp_ex};
use crate::errno::{Done, EINVAL, Fail, code, guarded, object};
use crate::handle::{
    CqHandle, MwHandle, PdHandle, QpHandle, Slot, SrqHandle, XrcdHandle, disown, find, free, give,
    trust,
};
use crate::watch;

pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    object("ibv_create_qp", || {
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, valid by the call's contract.
        create_qp(pd, unsafe { &mut *attr }, None)
    })
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    const KNOWN: u32 =
        qp_init::PD | qp_init::XRCD | qp_init::CREATE_FLAGS | qp_init::SEND_OPS_FLAGS;
    object("ibv_create_qp_ex", || {
        context_of(context)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, valid by the call's contract.
        let attr = unsafe { &mut *attr };
        if attr.comp_mask & !KNOWN != 0 {
            let unknown = attr.comp_mask & !KNOWN;
            return Err(Fail::unsupported(format!(
                "queue pair attributes {unknown:#x} (comp_mask)"
            )));
        }
        if attr.comp_mask & qp_init::CREATE_FLAGS != 0 && attr.create_flags != 0 {
            let flags = attr.create_flags;
            return Err(Fail::unsupported(format!("queue pair creation flags {flags:#x}")));
        }
        if attr.qp_type == QPT_XRC_RECV {
            if attr.comp_mask & qp_init::XRCD == 0 {
                return Err(Fail::invalid("a receiving XRC queue pair needs an XRC domain"));
            }
            let qp = find::<XrcdHandle>(attr.xrcd)?.xrcd.get().create_qp()?;
            return hand_out(context, qp, attr.qp_context, None, None);
        }
        if attr.comp_mask & qp_init::PD == 0 {
            return Err(Fail::invalid("a queue pair needs a protection domain"));
        }
        let mut basic = ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        };
        let ops = (attr.comp_mask & qp_init::SEND_OPS_FLAGS != 0).then_some(attr.send_ops_flags);
        let made = create_qp(attr.pd, &mut basic, ops)?;
        attr.cap = basic.cap;
        Ok(made)
    })
}

fn create_qp(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    send_ops: Option<u64>,
) -> Done<*mut ibv_qp> {
    let domain = find::<PdHandle>(pd)?;
    let qp_type = convert::qp_type(attr.qp_type)?;
    if let Some(unknown) = send_ops.map(|ops| ops & !allowed_send_ops(qp_type)).filter(|&n| n != 0)
    {
        let sentence = format!("operations {unknown:#x} (send_ops_flags) on {qp_type:?}");
        return Err(Fail::unsupported(sentence));
    }
    let send_cq = find::<CqHandle>(attr.send_cq)?;
    let recv_cq = match qp_type {
        // It receives nothing.
        QpType::XrcSend => send_cq,
        _ => find::<CqHandle>(attr.recv_cq)?,
    };
    let srq = match attr.srq.is_null() {
        true => None,
        false => Some(find::<SrqHandle>(attr.srq)?),
    };
    let qp = domain.pd()?.create_qp(&QpOptions {
        qp_type,
        send_cq: send_cq.cq.get(),
        recv_cq: recv_cq.cq.get(),
        srq: srq.map(|srq| srq.srq.get()),
        cap: convert::qp_cap(&attr.cap),
        sq_sig_all: attr.sq_sig_all != 0,
    })?;
    attr.cap = convert::qp_cap_value(&qp.cap());
    // SAFETY: the handle is live.
    let context = unsafe { (*domain.public.get()).context };
    hand_out(context, qp, attr.qp_context, Some((pd, attr)), send_ops)
}

/// The sizes of a queue pair that posts nothing.
const NO_CAP: ibv_qp_cap = ibv_qp_cap {
    max_send_wr: 0,
    max_recv_wr: 0,
    max_send_sge: 0,
    max_recv_sge: 0,
    max_inline_data: 0,
};

/// Gives a queue pair its public face; `made` of a protection domain and queues, if it was.
pub(crate) fn hand_out(
    context: *mut ibv_context,
    qp: Qp,
    qp_context: *mut c_void,
    made: Option<(*mut ibv_pd, &ibv_qp_init_attr)>,
    send_ops: Option<u64>,
) -> Done<*mut ibv_qp> {
    let (qpn, qp_type) = (qp.qpn(), qp.qp_type());
    let none = (null_mut(), null_mut(), null_mut(), null_mut());
    let (pd, send_cq, recv_cq, srq) =
        made.map_or(none, |(pd, attr)| (pd, attr.send_cq, attr.recv_cq, attr.srq));
    // SAFETY: integers, addresses and optional function addresses; all zero is a value.
    let mut public: ibv_qp_ex = unsafe { core::mem::zeroed() };
    public.base = ibv_qp {
        context,
        qp_context,
        pd,
        send_cq,
        recv_cq,
        srq,
        handle: qpn.get(),
        qp_num: qpn.get(),
        state: 0,
        qp_type: convert::qp_type_value(qp_type),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    if send_ops.is_some() {
        fill_qp_ex(&mut public);
    }
    let owner = context_of(context)?;
    let (cap, all) = made.map_or((NO_CAP, false), |(_, attr)| (attr.cap, attr.sq_sig_all != 0));
    let known = watch::qp(&public.base, qp_type, &cap, all);
    let address = give(QpHandle {
        public: UnsafeCell::new(public),
        qp: Slot::new(qp),
        qp_type,
        builder: send_ops.map(|_| Box::default()),
    });
    watch::created(address, || known);
    owner.qps.insert(qpn, address);
    owner.adopt();
    Ok(address)
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    code("ibv_destroy_qp", || {
        let handle = find::<QpHandle>(qp)?;
        let qpn = handle.qp.get().qpn();
        watch::ending(qp);
        // SAFETY: a program that destroys a queue pair uses it in no other call but those that
        // acknowledge its events, which do not look at the slot.
        unsafe { handle.qp.end(Qp::destroy) }?;
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).base.context };
        context_of(context)?.qps.remove(&qpn, qp);
        free::<QpHandle>(qp);
        disown(context);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let errno = code("ibv_modify_qp", || {
        let handle = find::<QpHandle>(qp)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let (attr, mask) = convert::qp_attr(unsafe { &*attr }, mask)?;
        handle.qp.get().modify(&attr, mask)?;
        if mask.contains(AttrMask::STATE) {
            // SAFETY: the handle is live; the field is a plain number.
            unsafe { (*handle.public.get()).base.state = attr.state as u32 };
        }
        Ok(())
    });
    // SAFETY: null or readable by the call's contract.
    guarded("ibv_modify_qp", || unsafe { watch::moved(qp, attr, mask, errno) });
    errno
}

/// Fills everything, whatever the mask asks for.
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    out: *mut ibv_qp_attr,
    _mask: c_int,
    init_out: *mut ibv_qp_init_attr,
) -> c_int {
    code("ibv_query_qp", || {
        let handle = find::<QpHandle>(qp)?;
        if out.is_null() {
            return Err(EINVAL);
        }
        let (attr, init) = handle.qp.get().query()?;
        let value = convert::qp_attr_value(&attr, &init.cap);
        // SAFETY: the handle is live; `out` is not null and `init_out` null or writable by the
        // call's contract.
        unsafe {
            let base = &mut (*handle.public.get()).base;
            base.state = value.qp_state;
            out.write(value);
            if !init_out.is_null() {
                init_out.write(ibv_qp_init_attr {
                    qp_context: base.qp_context,
                    send_cq: base.send_cq,
                    recv_cq: base.recv_cq,
                    srq: base.srq,
                    cap: value.cap,
                    qp_type: convert::qp_type_value(init.qp_type),
                    sq_sig_all: c_int::from(init.sq_sig_all),
                });
            }
        }
        Ok(())
    })
}

/// Data are placed in ascending order, within a packet too.
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut ibv_qp,
    _opcode: u32,
    flags: u32,
) -> c_int {
    /// The answer is to be a set of guarantees: whole message, aligned blocks of 128 bytes.
    const RETURN_CAPS: u32 = 1;
    match (qp.is_null(), flags) {
        (true, _) => 0,
        (_, 0) => 1,
        (_, RETURN_CAPS) => 0b11,
        _ => 0,
    }
}

/// What the data path reports: the request that was refused.
#[inline]
pub(crate) fn refused<W>(
    call: &'static str,
    first: *mut W,
    bad: *mut *mut W,
    outcome: Option<Result<(), (*mut W, PostError)>>,
) -> c_int {
    let (at, errno) = match outcome {
        Some(Ok(())) => return 0,
        Some(Err((at, error))) => {
            (at, guarded(call, || Fail::Post(error).report(call)).unwrap_or(libc::EIO))
        }
        None => (first, libc::EIO),
    };
    if !bad.is_null() {
        // SAFETY: not null, writable by the call's contract.
        unsafe { *bad = at };
    }
    errno
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    if qp.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: a live queue pair and a valid list by the call's contract.
    let outcome = guarded("ibv_post_send", || unsafe {
        let handle = trust::<QpHandle>(qp);
        handle.qp.get().send_batch(|batch| {
            let mut scratch = Scratch::new();
            let mut at = first;
            while let Some(wr) = at.as_ref() {
                convert::send_request(handle.qp_type, wr, &mut scratch)
                    .and_then(|request| match handle.qp_type {
                        QpType::XrcSend => batch.push_xrc(&request, SrqNum::new(wr.remote_srqn)),
                        _ => batch.push(&request),
                    })
                    .map_err(|error| (at, error))?;
                if wr.opcode == wr::BIND_MW {
                    // The window carries the key it was bound under.
                    let bind = wr.bind_mw();
                    (*trust::<MwHandle>(bind.mw).public.get()).rkey = bind.rkey;
                }
                at = wr.next;
            }
            Ok(())
        })
    });
    refused("ibv_post_send", first, bad, outcome)
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    if qp.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: a live queue pair and a valid list by the call's contract.
    let outcome = guarded("ibv_post_recv", || unsafe {
        trust::<QpHandle>(qp).qp.get().recv_batch(|batch| {
            let mut scratch = Scratch::new();
            let mut at = first;
            while let Some(wr) = at.as_ref() {
                convert::recv_request(wr, &mut scratch)
                    .and_then(|request| batch.push(&request))
                    .map_err(|error| (at, error))?;
                at = wr.next;
            }
            Ok(())
        })
    });
    refused("ibv_post_recv", first, bad, outcome)
}
