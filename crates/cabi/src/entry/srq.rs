//! Shared receive queues.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};

use crocevia::{Srq, SrqAttr};

use crate::abi::*;
use crate::convert::{self, Scratch};
use crate::entry::{context_of, refused};
use crate::errno::{Done, EINVAL, Fail, code, guarded, object};
use crate::handle::{
    CqHandle, PdHandle, Slot, SrqHandle, XrcdHandle, disown, find, free, give, trust,
};
use crate::watch;

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    object("ibv_create_srq", || {
        if init.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, valid by the call's contract.
        let init = unsafe { &mut *init };
        create_srq(pd, init.srq_context, None, &mut init.attr)
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    object("ibv_create_srq_ex", || {
        context_of(context)?;
        if init.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, valid by the call's contract.
        let init = unsafe { &mut *init };
        let typed = init.comp_mask & srq_init::TYPE != 0;
        let of_xrc = srq_init::XRCD | srq_init::CQ;
        let xrc = match if typed { init.srq_type } else { srq_init::BASIC } {
            srq_init::BASIC => None,
            srq_init::XRC if init.comp_mask & of_xrc == of_xrc => Some((init.xrcd, init.cq)),
            srq_init::XRC => {
                return Err(Fail::invalid(
                    "a shared receive queue for XRC needs an XRC domain and a completion queue",
                ));
            }
            other => {
                return Err(Fail::unsupported(format!(
                    "shared receive queue type {other}: basic (0) and XRC (1) are offered"
                )));
            }
        };
        if init.comp_mask & !(srq_init::TYPE | srq_init::PD | of_xrc) != 0 {
            let unknown = init.comp_mask;
            return Err(Fail::unsupported(format!(
                "shared receive queue attributes {unknown:#x} (comp_mask)"
            )));
        }
        if init.comp_mask & srq_init::PD == 0 {
            return Err(EINVAL);
        }
        create_srq(init.pd, init.srq_context, xrc, &mut init.attr)
    })
}

fn create_srq(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
    attr: &mut ibv_srq_attr,
) -> Done<*mut ibv_srq> {
    let domain = find::<PdHandle>(pd)?;
    // The limit is set by modifying; creation ignores it.
    let sizes = SrqAttr { max_wr: attr.max_wr, max_sge: attr.max_sge, limit: 0 };
    let srq = match xrc {
        None => domain.pd()?.create_srq(&sizes)?,
        Some((xrcd, cq)) => {
            let (xrcd, cq) = (find::<XrcdHandle>(xrcd)?, find::<CqHandle>(cq)?);
            domain.pd()?.create_xrc_srq(&sizes, xrcd.xrcd.get(), cq.cq.get())?
        }
    };
    let granted = srq.query()?;
    attr.max_wr = granted.max_wr;
    attr.max_sge = granted.max_sge;
    let id = srq.id();
    // SAFETY: the handle is live.
    let context = unsafe { (*domain.public.get()).context };
    let owner = context_of(context)?;
    let address = give(SrqHandle {
        public: UnsafeCell::new(ibv_srq {
            context,
            srq_context,
            pd,
            handle: id.0,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        }),
        srq: Slot::new(srq),
    });
    // Which of an XRC queue's requests has completed does not follow from the queue pair.
    if xrc.is_none() {
        // SAFETY: made just now; nobody else has it.
        watch::created(address, || watch::srq(unsafe { &*address }, attr));
    }
    owner.srqs.insert(id, address);
    owner.adopt();
    Ok(address)
}

pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    code("ibv_modify_srq", || {
        let handle = find::<SrqHandle>(srq)?;
        if attr.is_null() || mask as u32 & !(srq_mask::MAX_WR | srq_mask::LIMIT) != 0 {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let attr = unsafe { attr.read() };
        let max_wr = (mask as u32 & srq_mask::MAX_WR != 0).then_some(attr.max_wr);
        let limit = (mask as u32 & srq_mask::LIMIT != 0).then_some(attr.srq_limit);
        handle.srq.get().modify(max_wr, limit)?;
        if let Some(depth) = max_wr {
            watch::resized(srq, depth);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, out: *mut ibv_srq_attr) -> c_int {
    code("ibv_query_srq", || {
        let handle = find::<SrqHandle>(srq)?;
        if out.is_null() {
            return Err(EINVAL);
        }
        let attr = handle.srq.get().query()?;
        // SAFETY: not null, writable by the call's contract.
        unsafe {
            out.write(ibv_srq_attr {
                max_wr: attr.max_wr,
                max_sge: attr.max_sge,
                srq_limit: attr.limit,
            });
        }
        Ok(())
    })
}

/// The number that XRC requests carry; basic queues have one too, though nobody asks by it.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, out: *mut u32) -> c_int {
    code("ibv_get_srq_num", || {
        let handle = find::<SrqHandle>(srq)?;
        if out.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, writable by the call's contract.
        unsafe { *out = handle.srq.get().number().get() };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    code("ibv_destroy_srq", || {
        let handle = find::<SrqHandle>(srq)?;
        let id = handle.srq.get().id();
        watch::ending(srq);
        // SAFETY: a program that destroys a queue uses it in no other call but those that
        // acknowledge its events, which do not look at the slot.
        unsafe { handle.srq.end(Srq::destroy) }?;
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        context_of(context)?.srqs.remove(&id, srq);
        free::<SrqHandle>(srq);
        disown(context);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    if srq.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: a live queue and a valid list by the call's contract.
    let outcome = guarded("ibv_post_srq_recv", || unsafe {
        trust::<SrqHandle>(srq).srq.get().batch(|batch| {
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
    refused("ibv_post_srq_recv", first, bad, outcome)
}
