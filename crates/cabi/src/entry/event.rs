//! Completion channels and asynchronous events. The two calls that block are thin frames which own
//! nothing: a thread blocked in one may be cancelled (`pthread_cancel` unwinds through it).

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};

use crocevia::{AsyncEvent, CompChannel, Qpn, SrqId};

use crate::abi::*;
use crate::entry::context_of;
use crate::errno::{Done, EINVAL, code, guarded, object, set_errno};
use crate::handle::{
    ChannelHandle, ContextHandle, CqHandle, QpHandle, Slot, SrqHandle, disown, find, free, give,
    is_live,
};
use crate::watch;

// Declared here and not taken from the libc crate: cancellation unwinds out of it.
unsafe extern "C-unwind" {
    fn read(fd: c_int, buf: *mut c_void, count: usize) -> isize;
}

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    object("ibv_create_comp_channel", || {
        let handle = context_of(context)?;
        let channel = handle.context.create_comp_channel()?;
        handle.adopt();
        let fd = channel.fd();
        let address = give(ChannelHandle {
            public: UnsafeCell::new(ibv_comp_channel { context, fd, refcnt: 0 }),
            channel: Slot::new(channel),
        });
        watch::created(address, || check::Object::Channel(fd));
        Ok(address)
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    code("ibv_destroy_comp_channel", || {
        let handle = find::<ChannelHandle>(channel)?;
        // SAFETY: a program that destroys a channel uses it in no other call meanwhile.
        unsafe { handle.channel.end(CompChannel::destroy) }?;
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        free::<ChannelHandle>(channel);
        disown(context);
        Ok(())
    })
}

/// Takes the event whose announcement has been read; false if it has gone with its queue.
fn take_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> bool {
    let taken = guarded("ibv_get_cq_event", || {
        let handle = find::<ChannelHandle>(channel).ok()?;
        let id = handle.channel.get().take_event()?;
        // SAFETY: the channel is live.
        let context = context_of(unsafe { (*handle.public.get()).context }).ok()?;
        let queue = context.cqs.get::<ibv_cq>(&id)?;
        watch::event_taken(queue);
        // SAFETY: a queue with an unacknowledged event is not freed; the pointers are null or
        // writable by the call's contract.
        unsafe {
            if !cq.is_null() {
                *cq = queue;
            }
            if !cq_context.is_null() {
                *cq_context = (*queue).cq_context;
            }
        }
        Some(())
    });
    taken.flatten().is_some()
}

pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let live = guarded("ibv_get_cq_event", || {
        watch::enter("ibv_get_cq_event");
        let known = find::<ChannelHandle>(channel).is_ok();
        if known {
            // SAFETY: it is live; the field never changes.
            watch::waits(channel, unsafe { (*channel).fd });
        }
        known
    });
    if live != Some(true) {
        set_errno(libc::EINVAL);
        return -1;
    }
    loop {
        let mut announced = 0_u64;
        // SAFETY: the channel is live and the buffer has 8 bytes.
        let n = unsafe { read((*channel).fd, (&raw mut announced).cast(), 8) };
        if n != 8 {
            return -1;
        }
        if take_cq_event(channel, cq, cq_context) {
            return 0;
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    guarded("ibv_ack_cq_events", || {
        watch::enter("ibv_ack_cq_events");
        if let Ok(handle) = find::<CqHandle>(cq) {
            // Before it is done: whoever waits for it may destroy the queue at once.
            watch::acknowledged(cq, count);
            handle.cq.get().ack_events(count);
        }
    });
}

/// The event as C programs see it; `None` if its object has gone.
fn async_event(context: &ContextHandle, event: &AsyncEvent) -> Option<ibv_async_event> {
    let qp = |qpn, event_type| {
        let qp = context.qps.get(&qpn)?;
        Some(ibv_async_event { element: event_element { qp }, event_type })
    };
    let srq = |id, event_type| {
        let srq = context.srqs.get(&id)?;
        Some(ibv_async_event { element: event_element { srq }, event_type })
    };
    let port =
        |event_type| Some(ibv_async_event { element: event_element { port_num: 1 }, event_type });
    match *event {
        AsyncEvent::CommEst(n) => qp(n, event::COMM_EST),
        AsyncEvent::SqDrained(n) => qp(n, event::SQ_DRAINED),
        AsyncEvent::QpFatal(n) => qp(n, event::QP_FATAL),
        AsyncEvent::QpReqErr(n) => qp(n, event::QP_REQ_ERR),
        AsyncEvent::QpAccessErr(n) => qp(n, event::QP_ACCESS_ERR),
        AsyncEvent::QpLastWqeReached(n) => qp(n, event::QP_LAST_WQE_REACHED),
        AsyncEvent::SrqLimitReached(id) => srq(id, event::SRQ_LIMIT_REACHED),
        AsyncEvent::SrqErr(id) => srq(id, event::SRQ_ERR),
        AsyncEvent::CqErr(id) => {
            let cq = context.cqs.get(&id)?;
            Some(ibv_async_event { element: event_element { cq }, event_type: event::CQ_ERR })
        }
        AsyncEvent::PortActive => port(event::PORT_ACTIVE),
        AsyncEvent::PortErr => port(event::PORT_ERR),
        AsyncEvent::GidChange => port(event::GID_CHANGE),
        AsyncEvent::DeviceFatal => port(event::DEVICE_FATAL),
    }
}

/// Takes the event whose announcement has been read; false if it has gone with its object.
fn take_async_event(context: *mut ibv_context, out: *mut ibv_async_event) -> bool {
    let taken = guarded("ibv_get_async_event", || {
        let handle = find::<ContextHandle>(context).ok()?;
        let event = handle.context.take_async_event()?;
        let Some(value) = async_event(handle, &event) else {
            handle.context.ack_async_event(&event);
            return None;
        };
        watch::async_event_taken(&value);
        // SAFETY: checked not to be null; writable by the call's contract.
        unsafe { out.write(value) };
        Some(())
    });
    taken.flatten().is_some()
}

pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    out: *mut ibv_async_event,
) -> c_int {
    let live = guarded("ibv_get_async_event", || is_live::<ContextHandle>(context));
    if live != Some(true) || out.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    loop {
        let mut announced = 0_u64;
        // SAFETY: the context is live and the buffer has 8 bytes.
        let n = unsafe { read((*context).async_fd, (&raw mut announced).cast(), 8) };
        if n != 8 {
            return -1;
        }
        if take_async_event(context, out) {
            return 0;
        }
    }
}

/// The event of the layer below that an event of a program stands for. Which one of an object's
/// events it was does not matter: they are counted by object.
fn acknowledged(event: &ibv_async_event) -> Done<Option<(*mut ibv_context, AsyncEvent)>> {
    // SAFETY: every member of the union is plain data; which one counts the type says, and the
    // registry is asked before it is followed.
    let (cq, qp, srq) = unsafe { (event.element.cq, event.element.qp, event.element.srq) };
    Ok(match event.event_type {
        event::CQ_ERR => {
            let handle = find::<CqHandle>(cq)?;
            // SAFETY: the handle is live.
            let context = unsafe { (*handle.public.get()).base.context };
            Some((context, AsyncEvent::CqErr(handle.cq.get().id())))
        }
        event::SRQ_ERR | event::SRQ_LIMIT_REACHED => {
            let handle = find::<SrqHandle>(srq)?;
            // SAFETY: the handle is live. Its slot may be on its way out, so it is not looked at.
            let public = unsafe { &*handle.public.get() };
            Some((public.context, AsyncEvent::SrqErr(SrqId(public.handle))))
        }
        event::COMM_EST
        | event::SQ_DRAINED
        | event::QP_FATAL
        | event::QP_REQ_ERR
        | event::QP_ACCESS_ERR
        | event::QP_LAST_WQE_REACHED => {
            let handle = find::<QpHandle>(qp)?;
            // SAFETY: as above.
            let base = unsafe { &(*handle.public.get()).base };
            Some((base.context, AsyncEvent::QpFatal(Qpn::new(base.qp_num))))
        }
        _ => None,
    })
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    code("ibv_ack_async_event", || {
        if event.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let event = unsafe { event.read() };
        watch::async_event_acknowledged(&event);
        if let Some((context, event)) = acknowledged(&event)? {
            context_of(context)?.context.ack_async_event(&event);
        }
        Ok(())
    });
}
