//! XRC domains, and opening their receiving queue pairs once more. Their shared receive queues are
//! in `srq.rs`, creation of queue pairs in `qp.rs`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;

use crocevia::{Qpn, Xrcd};

use crate::abi::*;
use crate::entry::{context_of, hand_out};
use crate::errno::{Done, EINVAL, Fail, code, object};
use crate::handle::{File, Slot, XrcdHandle, disown, find, free, give, lock};
use crate::watch;

/// The file behind a descriptor.
fn file_of(fd: c_int) -> Done<File> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes `stat` if it succeeds.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(Fail::invalid("the descriptor of the XRC domain is not open"));
    }
    // SAFETY: the call has succeeded.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.st_dev, stat.st_ino))
}

/// A domain of its own, or, by a file, one that is shared within this process and context: what
/// other processes open is theirs.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    object("ibv_open_xrcd", || {
        let owner = context_of(context)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let attr = unsafe { attr.read() };
        let wanted = xrcd_init::FD | xrcd_init::OFLAGS;
        if attr.comp_mask != wanted {
            return Err(Fail::invalid("an XRC domain is opened with fd and oflags"));
        }
        let mut known = lock(&owner.xrcds);
        let file = if attr.fd == -1 { None } else { Some(file_of(attr.fd)?) };
        let open = file.and_then(|file| known.iter().find(|(other, _)| *other == Some(file)));
        let xrcd = match open {
            Some(_) if attr.oflags & libc::O_EXCL != 0 => {
                return Err(Fail::invalid("the XRC domain is open already (O_EXCL)"));
            }
            Some(&(_, address)) => find::<XrcdHandle>(address as *mut _)?.xrcd.get().clone(),
            None if file.is_some() && attr.oflags & libc::O_CREAT == 0 => {
                return Err(Fail::invalid(
                    "no XRC domain is open for this file in this process: O_CREAT opens one; \
                     domains are not shared with other processes",
                ));
            }
            None => owner.context.open_xrcd()?,
        };
        let public = UnsafeCell::new(ibv_xrcd { context });
        let address = give(XrcdHandle { public, xrcd: Slot::new(xrcd) });
        watch::created(address, || check::Object::Xrcd);
        known.push((file, address as usize));
        owner.adopt();
        Ok(address)
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    code("ibv_close_xrcd", || {
        let handle = find::<XrcdHandle>(xrcd)?;
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        let mut known = lock(&context_of(context)?.xrcds);
        // SAFETY: a program that closes a domain uses it in no other call; those that open one by
        // its file wait for the lock.
        unsafe { handle.xrcd.end(Xrcd::destroy) }?;
        known.retain(|&(_, address)| address != xrcd as usize);
        drop(known);
        free::<XrcdHandle>(xrcd);
        disown(context);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    object("ibv_open_qp", || {
        context_of(context)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let attr = unsafe { attr.read() };
        let needed = qp_open::NUM | qp_open::XRCD | qp_open::TYPE;
        if attr.comp_mask & needed != needed || attr.comp_mask & !(needed | qp_open::CONTEXT) != 0 {
            return Err(Fail::invalid("a queue pair is opened by its number, XRC domain and type"));
        }
        if attr.qp_type != QPT_XRC_RECV {
            return Err(Fail::invalid("only receiving XRC queue pairs are opened"));
        }
        let qp = find::<XrcdHandle>(attr.xrcd)?.xrcd.get().open_qp(Qpn::new(attr.qp_num))?;
        let user = if attr.comp_mask & qp_open::CONTEXT != 0 {
            attr.qp_context
        } else {
            core::ptr::null_mut()
        };
        hand_out(context, qp, user, None, None)
    })
}
