//! Calls off the data path as the checker is told of them: creation, destruction, registration,
//! moves of queue pairs, addresses. Each costs one branch while calls are not checked.

use std::collections::VecDeque;

use check::{Address, Caps, Handle, Move, Object, Port, Service};
use crocevia::QpType;

use super::{current, existing, key, on, with};
use crate::abi::*;
use crate::handle::{ContextHandle, QpHandle, find, lock};

/// Addresses of objects that are no more, kept so that they name nothing else meanwhile.
#[derive(Default)]
pub(super) struct Quarantine(VecDeque<Kept>);

struct Kept {
    public: Handle,
    address: usize,
    release: unsafe fn(usize),
}

/// Objects in quarantine at most.
const KEPT: usize = 1 << 14;

/// An object has been made by the call that this thread is in.
#[inline]
pub(crate) fn created<P>(public: *mut P, object: impl FnOnce() -> Object) {
    if on() {
        with(|checker| checker.created(current(), key(public), object()));
    }
}

/// An object has ended for the program, though it may still be held by others.
#[inline]
pub(crate) fn ended<P>(public: *mut P) {
    if on() {
        with(|checker| checker.destroyed(current(), key(public)));
    }
}

/// An object has left the registry; true if it is kept, and `release` will be called later.
///
/// # Safety
/// `release` may be called once with the address, whenever the object is used no more.
#[inline]
pub(crate) unsafe fn keep<P>(public: *mut P, address: usize, release: unsafe fn(usize)) -> bool {
    if !on() || existing().is_none() {
        return false;
    }
    ended(public);
    let Some(session) = existing() else { return false };
    let mut quarantine = lock(&session.quarantine);
    quarantine.0.push_back(Kept { public: key(public), address, release });
    let oldest = if quarantine.0.len() > KEPT { quarantine.0.pop_front() } else { None };
    drop(quarantine);
    if let Some(kept) = oldest {
        with(|checker| checker.forget(kept.public));
        // SAFETY: by contract, and taken out of the list just now.
        unsafe { (kept.release)(kept.address) };
    }
    true
}

fn caps(cap: &ibv_qp_cap) -> Caps {
    Caps {
        sends: cap.max_send_wr,
        receives: cap.max_recv_wr,
        send_pieces: cap.max_send_sge,
        receive_pieces: cap.max_recv_sge,
        inline: cap.max_inline_data,
    }
}

/// A queue pair.
pub(crate) fn qp(public: &ibv_qp, qp_type: QpType, cap: &ibv_qp_cap, all: bool) -> Object {
    Object::Qp(check::Qp {
        context: key(public.context),
        number: public.qp_num,
        pd: key(public.pd),
        send_cq: key(public.send_cq),
        receive_cq: key(public.recv_cq),
        srq: (!public.srq.is_null()).then(|| key(public.srq)),
        service: match qp_type {
            // What holds for those that send holds for XRC; those that receive post nothing.
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud | QpType::Gsi => Service::Ud,
        },
        caps: caps(cap),
        signal_all: all,
    })
}

/// A completion queue.
pub(crate) fn cq(public: &ibv_cq) -> Object {
    Object::Cq(check::Cq {
        context: key(public.context),
        number: public.handle,
        depth: public.cqe as u32,
        channel: (!public.channel.is_null()).then(|| key(public.channel)),
    })
}

/// A shared receive queue.
pub(crate) fn srq(public: &ibv_srq, attr: &ibv_srq_attr) -> Object {
    Object::Srq(check::Srq {
        context: key(public.context),
        number: public.handle,
        pd: key(public.pd),
        depth: attr.max_wr,
        pieces: attr.max_sge,
    })
}

/// A region.
pub(crate) fn mr(public: &ibv_mr, iova: u64, local_write: bool) -> check::Mr {
    check::Mr {
        context: key(public.context),
        pd: key(public.pd),
        addr: public.addr as u64,
        length: public.length as u64,
        iova,
        lkey: public.lkey,
        local_write,
    }
}

/// A queue has another depth.
#[inline]
pub(crate) fn resized<P>(public: *mut P, depth: u32) {
    if on() {
        with(|checker| checker.resized(key(public), depth));
    }
}

/// A region is about to be deregistered or changed.
#[inline]
pub(crate) fn region_ending(public: *mut ibv_mr) {
    if on() {
        with(|checker| checker.region_ending(current(), key(public)));
    }
}

/// A region has been changed.
#[inline]
pub(crate) fn reregistered(public: *mut ibv_mr, mr: impl FnOnce() -> check::Mr) {
    if on() {
        with(|checker| checker.reregistered(current(), key(public), mr()));
    }
}

fn port(context: *mut ibv_context) -> Port {
    match find::<ContextHandle>(context) {
        Ok(handle) => Port {
            gids: handle.context.gids().iter().map(|entry| entry.gid.0).collect(),
            active_mtu: u32::from(handle.context.port().active_mtu.code()),
        },
        Err(_) => Port { gids: Vec::new(), active_mtu: u32::MAX },
    }
}

fn address(from: &ibv_ah_attr) -> Address {
    Address {
        is_global: from.is_global != 0,
        sgid_index: from.grh.sgid_index,
        dgid: from.grh.dgid.raw,
    }
}

/// A queue pair was to be moved, and the call gave `errno`.
///
/// # Safety
/// `attr` is null or readable.
#[inline]
pub(crate) unsafe fn moved(qp: *mut ibv_qp, attr: *const ibv_qp_attr, mask: i32, errno: i32) {
    if !on() {
        return;
    }
    // SAFETY: by contract.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return };
    let Ok(handle) = find::<QpHandle>(qp) else { return };
    // SAFETY: the handle is live; the field never changes.
    let context = unsafe { (*handle.public.get()).base.context };
    let asked = Move {
        mask: mask as u32,
        to: attr.qp_state,
        address: address(&attr.ah_attr),
        path_mtu: attr.path_mtu,
    };
    let port = if errno == 0 { Port { gids: Vec::new(), active_mtu: 0 } } else { port(context) };
    with(|checker| checker.moved(current(), key(qp), &asked, &port, errno));
}

/// An address handle was refused.
#[cold]
pub(crate) fn address_refused(pd: *mut ibv_pd, context: *mut ibv_context, attr: &ibv_ah_attr) {
    if on() {
        let port = port(context);
        let address = address(attr);
        with(|checker| checker.address_refused(current(), key(pd), &address, &port));
    }
}
