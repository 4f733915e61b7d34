//! Protection domains (with thread and parent domains) and memory regions.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crocevia::{Access, Error, ErrorKind, Mr, Pd, Region};

use crate::abi::*;
use crate::convert;
use crate::errno::{Done, EINVAL, Fail, code, object};
use crate::handle::{
    ContextHandle, MrHandle, PdHandle, PdKind, Slot, TdHandle, disown, find, free, give, is_live,
};
use crate::{mapped, watch};

/// The context of an object, from its public pointer to it.
pub(crate) fn context_of<'a>(context: *mut ibv_context) -> Done<&'a ContextHandle> {
    find::<ContextHandle>(context)
}

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    object("ibv_alloc_pd", || {
        let handle = context_of(context)?;
        let pd = handle.context.alloc_pd()?;
        handle.adopt();
        Ok(new_pd(context, pd.id().0, PdKind::Own(Slot::new(pd))))
    })
}

fn new_pd(context: *mut ibv_context, number: u32, pd: PdKind) -> *mut ibv_pd {
    let address = give(PdHandle {
        public: UnsafeCell::new(ibv_pd { context, handle: number }),
        pd,
        children: AtomicUsize::new(0),
    });
    watch::created(address, || check::Object::Pd(number));
    address
}

pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    code("ibv_dealloc_pd", || {
        let handle = find::<PdHandle>(pd)?;
        let children = handle.children.load(Ordering::Relaxed);
        if children > 0 {
            let sentence = format!("{children} parent domain(s) still stand over it");
            return Err(Error::new(ErrorKind::Busy, sentence).into());
        }
        match &handle.pd {
            // SAFETY: a program that frees a domain uses it in no other call meanwhile.
            PdKind::Own(slot) => unsafe { slot.end(Pd::destroy) }?,
            PdKind::Parent(below) => {
                if let Ok(below) = find::<PdHandle>(*below) {
                    below.children.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        free::<PdHandle>(pd);
        disown(context);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    object("ibv_alloc_td", || {
        let handle = context_of(context)?;
        // SAFETY: not null, readable by the call's contract.
        if attr.is_null() || unsafe { (*attr).comp_mask } != 0 {
            return Err(EINVAL);
        }
        handle.adopt();
        let address = give(TdHandle { public: UnsafeCell::new(ibv_td { context }) });
        watch::created(address, || check::Object::Td);
        Ok(address)
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    code("ibv_dealloc_td", || {
        let handle = find::<TdHandle>(td)?;
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        free::<TdHandle>(td);
        disown(context);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    /// Own allocators may be given; there is nothing to allocate with them.
    const KNOWN: u32 = 0b11;
    object("ibv_alloc_parent_domain", || {
        let handle = context_of(context)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        let attr = unsafe { attr.read() };
        let below = find::<PdHandle>(attr.pd)?;
        if !attr.td.is_null() && !is_live::<TdHandle>(attr.td) {
            return Err(EINVAL);
        }
        if attr.comp_mask & !KNOWN != 0 {
            return Err(Fail::Code(libc::EOPNOTSUPP));
        }
        below.children.fetch_add(1, Ordering::Relaxed);
        handle.adopt();
        Ok(new_pd(context, below.pd()?.id().0, PdKind::Parent(attr.pd)))
    })
}

/// Gives a region its public face.
fn new_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    mr: Mr,
    mapping: Option<(usize, usize)>,
) -> Done<*mut ibv_mr> {
    let handle = find::<PdHandle>(pd)?;
    // SAFETY: the handle is live.
    let context = unsafe { (*handle.public.get()).context };
    context_of(context)?.adopt();
    let public = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle: mr.id().0,
        lkey: mr.lkey().get(),
        rkey: mr.rkey().get(),
    };
    let (iova, writable) = (mr.iova(), mr.access().contains(Access::LOCAL_WRITE));
    let known = watch::mr(&public, iova, writable);
    let address = give(MrHandle { public: UnsafeCell::new(public), mr: Slot::new(mr), mapping });
    watch::created(address, || check::Object::Mr(known));
    Ok(address)
}

fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: u32,
) -> Done<*mut ibv_mr> {
    let domain = find::<PdHandle>(pd)?.pd()?;
    let access = convert::access(access)?;
    if (addr as usize).checked_add(length).is_none() {
        return Err(Fail::invalid("the region would pass the end of the address space"));
    }
    mapped::check(addr, length, access)?;
    // SAFETY: the program promises, as to every verbs library, that the memory stays what it is
    // until the region is deregistered.
    let region = unsafe { Region::from_raw(addr.cast(), length) };
    let mr = match iova {
        Some(iova) if !access.contains(Access::ZERO_BASED) => {
            domain.register_iova(region, iova, access)?
        }
        _ => domain.register(region, access)?,
    };
    new_mr(pd, addr, length, mr, None)
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    object("ibv_reg_mr", || register(pd, addr, length, None, access as u32))
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    object("ibv_reg_mr_iova", || register(pd, addr, length, Some(iova), access as u32))
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: AccessFlags,
) -> *mut ibv_mr {
    object("ibv_reg_mr_iova2", || register(pd, addr, length, Some(iova), access))
}

/// Maps the buffer; a CPU can reach only such as can be mapped.
pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    object("ibv_reg_dmabuf_mr", || {
        let domain = find::<PdHandle>(pd)?.pd()?;
        let access = convert::access(access as u32)?;
        // SAFETY: a plain query.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let within = offset % page;
        let start = libc::off_t::try_from(offset - within).map_err(|_| EINVAL)?;
        let mapped = length.checked_add(within as usize).ok_or(EINVAL)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe {
            libc::mmap(core::ptr::null_mut(), mapped, protection, libc::MAP_SHARED, fd, start)
        };
        if base == libc::MAP_FAILED {
            return Err(Fail::unsupported(format!(
                "the dma-buf cannot be mapped into the process ({}), and a CPU reaches no other",
                std::io::Error::last_os_error()
            )));
        }
        let addr = base.wrapping_byte_add(within as usize);
        // SAFETY: mapped above; unmapped only after the registration has ended.
        let region = unsafe { Region::from_raw(addr.cast(), length) };
        let made = domain
            .register_iova(region, iova, access)
            .map_err(Fail::from)
            .and_then(|mr| new_mr(pd, addr, length, mr, Some((base as usize, mapped))));
        if made.is_err() {
            // SAFETY: the mapping of above, which nothing uses.
            unsafe { libc::munmap(base, mapped) };
        }
        made
    })
}

pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let mut result = rereg::ERR_INPUT;
    let errno = code("ibv_rereg_mr", || {
        let handle = find::<MrHandle>(mr)?;
        let known = rereg::TRANSLATION | rereg::PD | rereg::ACCESS;
        if flags == 0 || flags & !known != 0 {
            return Err(EINVAL);
        }
        let new_pd = match flags & rereg::PD {
            0 => None,
            _ => Some(find::<PdHandle>(pd)?.pd()?),
        };
        let access = match flags & rereg::ACCESS {
            0 => None,
            _ => Some(convert::access(access as u32)?),
        };
        let region = match flags & rereg::TRANSLATION {
            0 => None,
            _ if addr.is_null() || length == 0 => return Err(EINVAL),
            _ => {
                mapped::check(addr, length, access.unwrap_or_default())?;
                // SAFETY: promised by the program, as for registering.
                Some(unsafe { Region::from_raw(addr.cast(), length) })
            }
        };
        result = rereg::ERR_CMD;
        watch::region_ending(mr);
        // SAFETY: a program that changes a region uses it in no other call meanwhile; the public
        // part is written under the same promise.
        let (region_object, public) = unsafe { (handle.mr.get_mut(), &mut *handle.public.get()) };
        region_object.rereg(new_pd, region, access)?;
        public.lkey = region_object.lkey().get();
        public.rkey = region_object.rkey().get();
        if flags & rereg::PD != 0 {
            public.pd = pd;
        }
        if flags & rereg::TRANSLATION != 0 {
            public.addr = addr;
            public.length = length;
        }
        watch::reregistered(mr, || {
            let writable = region_object.access().contains(Access::LOCAL_WRITE);
            watch::mr(public, region_object.iova(), writable)
        });
        result = 0;
        Ok(())
    });
    debug_assert!((errno == 0) == (result == 0));
    result
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    code("ibv_dereg_mr", || {
        let handle = find::<MrHandle>(mr)?;
        watch::region_ending(mr);
        // SAFETY: a program that deregisters a region uses it in no other call meanwhile.
        unsafe { handle.mr.end(Mr::destroy) }?;
        if let Some((base, length)) = handle.mapping {
            // SAFETY: our own mapping, which nothing reaches any more.
            unsafe { libc::munmap(base as *mut c_void, length) };
        }
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        free::<MrHandle>(mr);
        disown(context);
        Ok(())
    })
}

/// Advice about paging: there is nothing to prefetch into.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    /// Prefetch, prefetch for writing, prefetch without faults; flush.
    const LAST_ADVICE: u32 = 2;
    const FLUSH: u32 = 1;
    code("ibv_advise_mr", || {
        find::<PdHandle>(pd)?;
        if advice > LAST_ADVICE || flags & !FLUSH != 0 || (list.is_null() && count > 0) {
            return Err(EINVAL);
        }
        Ok(())
    })
}
