//! Address handles, also from a received datagram, and multicast groups.

use core::cell::UnsafeCell;
use core::ffi::c_int;

use crocevia::{Error, Gid, Qp};

use crate::abi::*;
use crate::convert;
use crate::entry::context_of;
use crate::errno::{Done, EINVAL, Fail, code, object};
use crate::handle::{AhHandle, ContextHandle, PdHandle, QpHandle, Slot, disown, find, free, give};
use crate::watch;

pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    object("ibv_create_ah", || {
        if attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, readable by the call's contract.
        create(pd, unsafe { &*attr })
    })
}

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Done<*mut ibv_ah> {
    let domain = find::<PdHandle>(pd)?;
    if attr.port_num > 1 {
        return Err(Fail::invalid(format!("port {}: the device has port 1", attr.port_num)));
    }
    // SAFETY: the handle is live.
    let context = unsafe { (*domain.public.get()).context };
    let made = domain.pd()?.create_ah(&convert::address_vector(attr));
    let ah = made.inspect_err(|_| watch::address_refused(pd, context, attr))?;
    context_of(context)?.adopt();
    let address = give(AhHandle {
        public: UnsafeCell::new(ibv_ah { context, pd, handle: 0 }),
        ah: Slot::new(ah),
    });
    watch::created(address, || check::Object::Ah);
    Ok(address)
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    code("ibv_destroy_ah", || {
        let handle = find::<AhHandle>(ah)?;
        let end = |ah: crocevia::Ah| {
            ah.destroy();
            Ok::<(), (crocevia::Ah, Error)>(())
        };
        // SAFETY: a program that destroys a handle uses it in no other call meanwhile.
        unsafe { handle.ah.end(end) }?;
        // SAFETY: the handle is live until `free`.
        let context = unsafe { (*handle.public.get()).context };
        free::<AhHandle>(ah);
        disown(context);
        Ok(())
    })
}

/// How to answer the sender of a datagram, from the 40 bytes before it. With IPv4 those hold an
/// IPv4 header in their second half, with IPv6 (and RoCE v1) a header of that length.
fn reply_vector(handle: &ContextHandle, wc: &ibv_wc, area: &[u8; 40]) -> Done<ibv_ah_attr> {
    if wc.wc_flags & wc_flag::GRH == 0 {
        return Err(Fail::invalid("the completion is not of a datagram with GRH"));
    }
    let v4 = &area[20..];
    let is_v4 = v4[0] == 0x45 && area[0] >> 4 != 6;
    let (own, peer, flow_label, traffic_class) = if is_v4 {
        let address = |at: usize| Gid::from_ip([v4[at], v4[at + 1], v4[at + 2], v4[at + 3]].into());
        (address(16), address(12), 0, v4[1])
    } else {
        let gid = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&area[at..at + 16]);
            Gid(bytes)
        };
        let word = u32::from_be_bytes([area[0], area[1], area[2], area[3]]);
        (gid(24), gid(8), word & 0xF_FFFF, (word >> 20) as u8)
    };
    let gids = handle.context.gids();
    let by_gid = gids.iter().position(|entry| entry.gid == own);
    // Sent to a multicast group: any own address of the same family answers.
    let by_family = || gids.iter().position(|entry| entry.gid.is_ipv4() == own.is_ipv4());
    let sgid_index = by_gid.or_else(by_family).ok_or_else(|| {
        Fail::invalid(format!("the datagram was sent to {own}, which is no GID of this device"))
    })?;
    Ok(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: peer.0 },
            flow_label,
            sgid_index: sgid_index as u8,
            hop_limit: 0xFF,
            traffic_class,
        },
        dlid: wc.slid,
        // The completion's tells the kind of header, not a priority (see `convert`).
        sl: 0,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: 1,
        port_num: 1,
    })
}

/// # Safety
/// `wc` and `grh` are null or valid.
unsafe fn reply(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
) -> Done<ibv_ah_attr> {
    let handle = find::<ContextHandle>(context)?;
    if port != 1 || wc.is_null() || grh.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: not null, readable by contract; the area may lie anywhere in the receive buffer.
    let (wc, area) = unsafe { (&*wc, grh.cast::<[u8; 40]>().read_unaligned()) };
    reply_vector(handle, wc, &area)
}

pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    out: *mut ibv_ah_attr,
) -> c_int {
    code("ibv_init_ah_from_wc", || {
        if out.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: valid by the call's contract; `out` is not null.
        unsafe { out.write(reply(context, port, wc, grh)?) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    object("ibv_create_ah_from_wc", || {
        // SAFETY: the handle is live; `wc` and `grh` are valid by the call's contract.
        let attr = unsafe {
            let context = (*find::<PdHandle>(pd)?.public.get()).context;
            reply(context, port, wc, grh)?
        };
        create(pd, &attr)
    })
}

/// # Safety
/// `gid` is null or valid.
unsafe fn group(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    f: impl FnOnce(&Qp, Gid) -> Result<(), Error>,
) -> Done<()> {
    let handle = find::<QpHandle>(qp)?;
    if gid.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: not null, readable by contract.
    let gid = unsafe { gid.cast::<[u8; 16]>().read() };
    Ok(f(handle.qp.get(), Gid(gid))?)
}

pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: valid by the call's contract.
    code("ibv_attach_mcast", || unsafe { group(qp, gid, Qp::attach_mcast) })
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: valid by the call's contract.
    code("ibv_detach_mcast", || unsafe { group(qp, gid, Qp::detach_mcast) })
}
