//! Completion queues: creation, polling, arming. The extended interface is in `cq_ex.rs`, channels
//! and their events in `event.rs`.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};

use crocevia::{Completion, Cq, Error, Moderation, Span, WcStatus};

use crate::abi::*;
use crate::convert;
use crate::entry::{context_of, failed, fill_cq_ex};
use crate::errno::{Done, EINVAL, Fail, code, guarded, object, set_errno};
use crate::handle::{ChannelHandle, CqHandle, Slot, disown, find, free, give, trust};
use crate::watch;

/// Completions taken from a queue at once: what perftest asks for.
const BATCH: usize = 16;

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    object("ibv_create_cq", || {
        let cqe = u32::try_from(cqe)
            .map_err(|_| Fail::invalid(format!("a completion queue of {cqe} entries")))?;
        create(context, cqe, cq_context, channel, i64::from(comp_vector), false)
    })
}

/// A completion queue with everything the extended interface needs.
pub(crate) fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: i64,
    single_threaded: bool,
) -> Done<*mut ibv_cq> {
    let handle = context_of(context)?;
    // SAFETY: the context is live; the field never changes.
    let vectors = i64::from(unsafe { (*context).num_comp_vectors });
    if !(0..vectors).contains(&comp_vector) {
        let sentence = format!("completion vector {comp_vector}: there are {vectors}, from 0");
        return Err(Fail::invalid(sentence));
    }
    let channel_handle = match channel.is_null() {
        true => None,
        false => Some(find::<ChannelHandle>(channel)?),
    };
    let cq = handle.context.create_cq(cqe, channel_handle.map(|c| c.channel.get()))?;
    let id = cq.id();
    // SAFETY: integers, addresses and optional function addresses; all zero is a value.
    let mut public: ibv_cq_ex = unsafe { core::mem::zeroed() };
    public.base.context = context;
    public.base.channel = channel;
    public.base.cq_context = cq_context;
    public.base.handle = id.0;
    public.base.cqe = cq.capacity() as c_int;
    public.base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    public.base.cond = libc::PTHREAD_COND_INITIALIZER;
    fill_cq_ex(&mut public);
    if let Some(channel) = channel_handle {
        // SAFETY: the channel is live; a program makes no two queues on it at the same time unless
        // it does not care for the count, which only it reads.
        unsafe { (*channel.public.get()).refcnt += 1 };
    }
    let address = give(CqHandle {
        public: UnsafeCell::new(public),
        cq: Slot::new(cq),
        current: UnsafeCell::new(Completion::default()),
        single_threaded,
    });
    // SAFETY: made just now; nobody else has it.
    watch::created(address, || watch::cq(unsafe { &*address }));
    handle.cqs.insert(id, address);
    handle.adopt();
    Ok(address)
}

pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    code("ibv_resize_cq", || {
        let handle = find::<CqHandle>(cq)?;
        let cqe = u32::try_from(cqe).map_err(|_| EINVAL)?;
        handle.cq.get().resize(cqe)?;
        // SAFETY: the handle is live; only this call writes the field.
        unsafe { (*handle.public.get()).base.cqe = handle.cq.get().capacity() as c_int };
        watch::resized(cq, handle.cq.get().capacity());
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    const MODERATE: u32 = 1;
    code("ibv_modify_cq", || {
        let handle = find::<CqHandle>(cq)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let attr = unsafe { attr.read() };
        if attr.attr_mask & !MODERATE != 0 {
            return Err(EINVAL);
        }
        if attr.attr_mask & MODERATE != 0 {
            let period = Span::from_us(u64::from(attr.cq_period));
            handle.cq.get().modify(Moderation { count: attr.cq_count, period })?;
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    code("ibv_destroy_cq", || {
        let handle = find::<CqHandle>(cq)?;
        let id = handle.cq.get().id();
        watch::ending(cq);
        // Through a clone: another thread may be about to acknowledge events by the handle, which
        // this waits for.
        handle.cq.get().clone().destroy().map_err(|(_, error)| error)?;
        let end = |cq: Cq| {
            drop(cq);
            Ok::<(), (Cq, Error)>(())
        };
        // SAFETY: a program that destroys a queue uses it in no other call any more.
        unsafe { handle.cq.end(end) }?;
        // SAFETY: the handle is live until `free`.
        let (context, channel) = unsafe {
            let base = &(*handle.public.get()).base;
            (base.context, base.channel)
        };
        if let Ok(channel) = find::<ChannelHandle>(channel) {
            // SAFETY: as at creation.
            unsafe { (*channel.public.get()).refcnt -= 1 };
        }
        context_of(context)?.cqs.remove(&id, cq);
        free::<CqHandle>(cq);
        disown(context);
        Ok(())
    })
}

/// Takes up to `out.len()` completions in batches of `N`.
///
/// # Safety
/// `out` has `count` writable entries.
#[inline]
unsafe fn take<const N: usize>(cq: &Cq, count: usize, out: *mut ibv_wc) -> usize {
    let mut batch = [Completion::default(); N];
    let mut taken = 0;
    while taken < count {
        let want = N.min(count - taken);
        let got = cq.poll(&mut batch[..want]);
        for (i, completion) in batch[..got].iter().enumerate() {
            if completion.status != WcStatus::Success {
                failed::report(cq, completion);
            }
            // SAFETY: taken + i < count.
            unsafe { out.add(taken + i).write(convert::wc(completion)) };
        }
        taken += got;
        if got < want {
            break;
        }
    }
    taken
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, out: *mut ibv_wc) -> c_int {
    let Ok(wanted) = usize::try_from(count) else { return -1 };
    if cq.is_null() || (out.is_null() && wanted > 0) {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: a live completion queue and `count` entries by the call's contract.
    let polled = guarded("ibv_poll_cq", || unsafe {
        let cq = trust::<CqHandle>(cq).cq.get();
        match wanted {
            1 => take::<1>(cq, 1, out),
            _ => take::<BATCH>(cq, wanted, out),
        }
    });
    polled.map_or(-1, |n| n as c_int)
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    if cq.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: a live completion queue by the call's contract.
    let armed = guarded("ibv_req_notify_cq", || unsafe {
        trust::<CqHandle>(cq).cq.get().req_notify(solicited_only != 0);
    });
    if armed.is_some() { 0 } else { libc::EIO }
}
