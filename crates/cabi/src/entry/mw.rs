//! Memory windows: allocation, and the bind call of type 1. Type 2 is bound by a work request.

use core::cell::UnsafeCell;
use core::ffi::c_int;

use crocevia::{Mw, PostError, WindowType};

use crate::abi::*;
use crate::convert;
use crate::entry::context_of;
use crate::errno::{EINVAL, code, object};
use crate::handle::{
    MrHandle, MwHandle, PdHandle, QpHandle, Slot, disown, find, free, give, is_live,
};
use crate::watch;

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    object("ibv_alloc_mw", || {
        let domain = find::<PdHandle>(pd)?;
        let window_type = match kind {
            1 => WindowType::Type1,
            2 => WindowType::Type2,
            _ => return Err(EINVAL),
        };
        // SAFETY: the handle is live.
        let context = unsafe { (*domain.public.get()).context };
        let mw = domain.pd()?.alloc_mw(window_type)?;
        context_of(context)?.adopt();
        let number = mw.id().0;
        let address = give(MwHandle {
            public: UnsafeCell::new(ibv_mw {
                context,
                pd,
                rkey: mw.rkey().get(),
                handle: mw.id().0,
                kind,
            }),
            mw: Slot::new(mw),
        });
        watch::created(address, || check::Object::Mw(number));
        Ok(address)
    })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    code("ibv_dealloc_mw", || {
        let handle = find::<MwHandle>(mw)?;
        // SAFETY: a program that frees a window uses it in no other call meanwhile.
        unsafe { handle.mw.end(Mw::destroy) }?;
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        free::<MwHandle>(mw);
        disown(context);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    code("ibv_bind_mw", || {
        let (pair, window) = (find::<QpHandle>(qp)?, find::<MwHandle>(mw)?);
        if bind.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let bind = unsafe { bind.read() };
        if !bind.bind_info.mr.is_null() && !is_live::<MrHandle>(bind.bind_info.mr) {
            return Err(EINVAL);
        }
        // SAFETY: window and region are live.
        let binding = unsafe { convert::bind_window(mw, 0, &bind.bind_info) }?;
        if bind.send_flags & SEND_INLINE != 0 {
            return Err(PostError::Inline.into());
        }
        let flags = convert::send_flags(bind.send_flags)?;
        let rkey = pair.qp.get().bind_mw(bind.wr_id, flags, window.mw.get(), binding)?;
        watch::bound(qp, bind.wr_id, bind.send_flags & SEND_SIGNALED != 0);
        // SAFETY: the window is live; binding it is the program's one call about it now.
        unsafe { (*window.public.get()).rkey = rkey.get() };
        Ok(())
    })
}
