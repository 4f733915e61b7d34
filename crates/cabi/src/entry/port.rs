//! The port, its GIDs and its one partition key.

use core::ffi::c_int;
use core::mem::{offset_of, size_of};

use crocevia::{Encapsulation, GidEntry, PortInfo, PortState};

use crate::abi::*;
use crate::errno::{Done, EINVAL, Fail, code, guarded, minus_one, set_errno};
use crate::handle::{ContextHandle, find};

/// What the exported `ibv_query_port` may write: very old callers have no more room.
const OLD_PORT_ATTR: usize = offset_of!(ibv_port_attr, port_cap_flags2);
/// `IBV_QPF_GRH_REQUIRED`.
const GRH_REQUIRED: u8 = 1;
/// Without anything to go by (the loopback interface has no speed).
const DEFAULT_SPEED_MBPS: u32 = 100_000;
/// Mbit/s, code of the width, code of the speed of a lane: the largest not above counts.
const SPEEDS: [(u32, u8, u8); 10] = [
    (1_000, 1, 1),
    (10_000, 1, 4),
    (20_000, 2, 2),
    (25_000, 1, 32),
    (40_000, 2, 8),
    (50_000, 1, 64),
    (100_000, 2, 32),
    (200_000, 2, 64),
    (400_000, 2, 128),
    (800_000, 4, 128),
];

fn width_and_speed(mbps: Option<u32>) -> (u8, u8) {
    let mbps = mbps.filter(|&n| n > 0).unwrap_or(DEFAULT_SPEED_MBPS);
    SPEEDS.iter().rev().find(|s| s.0 <= mbps).map_or((1, 1), |s| (s.1, s.2))
}

fn port_attr(port: &PortInfo) -> ibv_port_attr {
    let active = port.state == PortState::Active;
    let (active_width, active_speed) = width_and_speed(port.speed_mbps);
    ibv_port_attr {
        state: if active { PORT_ACTIVE } else { PORT_DOWN },
        max_mtu: u32::from(port.max_mtu.code()),
        active_mtu: u32::from(port.active_mtu.code()),
        gid_tbl_len: port.gid_table_len as c_int,
        port_cap_flags: port_cap::CM_SUP | port_cap::IP_BASED_GIDS,
        max_msg_sz: port.max_msg_sz,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: port.pkey_table_len,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width,
        active_speed,
        // LinkUp or Disabled.
        phys_state: if active { 5 } else { 3 },
        link_layer: LINK_LAYER_ETHERNET,
        flags: GRH_REQUIRED,
        port_cap_flags2: 0,
        active_speed_ex: 0,
    }
}

/// The context of an address and the check that the port is the one there is.
fn with_port<'a>(context: *mut ibv_context, port: u32) -> Done<&'a ContextHandle> {
    let handle = find::<ContextHandle>(context)?;
    if port == 1 { Ok(handle) } else { Err(EINVAL) }
}

unsafe fn query_port_into(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
    size: usize,
) -> Done<()> {
    let handle = with_port(context, u32::from(port))?;
    if out.is_null() {
        return Err(EINVAL);
    }
    let attr = port_attr(&handle.context.port());
    // SAFETY: `out` has `size` writable bytes by the caller's contract.
    unsafe {
        core::ptr::write_bytes(out.cast::<u8>(), 0, size);
        let known = size.min(size_of::<ibv_port_attr>());
        core::ptr::copy_nonoverlapping((&raw const attr).cast::<u8>(), out.cast::<u8>(), known);
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the smallest structure that any caller has.
    code("ibv_query_port", || unsafe { query_port_into(context, port, out, OLD_PORT_ATTR) })
}

/// As [`ibv_query_port`], for callers that say how much room they have.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: the caller says how much room there is.
    code("ibv_query_port", || unsafe { query_port_into(context, port, out, size) })
}

pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut ibv_gid,
) -> c_int {
    minus_one("ibv_query_gid", || {
        let handle = with_port(context, u32::from(port))?;
        let gids = handle.context.gids();
        let entry = usize::try_from(index).ok().and_then(|i| gids.get(i));
        match entry {
            Some(entry) if !out.is_null() => {
                // SAFETY: not null; the union's alignment is not insisted on.
                unsafe { out.write_unaligned(ibv_gid { raw: entry.gid.0 }) };
                Ok(())
            }
            Some(_) => Err(EINVAL),
            None => Err(no_such_gid(&gids, i64::from(index))),
        }
    })
}

fn no_such_gid(gids: &[GidEntry], index: i64) -> Fail {
    let table: Vec<String> =
        gids.iter().enumerate().map(|(i, entry)| format!("{i}: {}", entry.gid)).collect();
    Fail::invalid(format!("GID index {index} is empty; the table is {{{}}}", table.join(", ")))
}

/// Numbers of `enum ibv_gid_type`.
fn gid_type(entry: &GidEntry) -> u32 {
    match entry.encapsulation {
        Encapsulation::Infiniband => 0,
        Encapsulation::RoceV1 => 1,
        Encapsulation::RoceV2 => 2,
    }
}

fn gid_entry(handle: &ContextHandle, index: usize, entry: &GidEntry) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: entry.gid.0,
        gid_index: index as u32,
        port_num: 1,
        gid_type: gid_type(entry),
        ndev_ifindex: handle.context.device().netdev.index,
    }
}

/// Copies as much of an entry as the caller has room for, and clears the rest.
///
/// # Safety
/// `out` has `size` writable bytes.
unsafe fn put_entry(out: *mut ibv_gid_entry, size: usize, entry: &ibv_gid_entry) {
    // SAFETY: by contract.
    unsafe {
        core::ptr::write_bytes(out.cast::<u8>(), 0, size);
        let known = size.min(size_of::<ibv_gid_entry>());
        core::ptr::copy_nonoverlapping(
            core::ptr::from_ref(entry).cast::<u8>(),
            out.cast::<u8>(),
            known,
        );
    }
}

pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    out: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    code("ibv_query_gid_ex", || {
        let handle = with_port(context, port)?;
        if out.is_null() || size < offset_of!(ibv_gid_entry, gid_index) {
            return Err(EINVAL);
        }
        if flags != 0 {
            return Err(Fail::Code(libc::EOPNOTSUPP));
        }
        let gids = handle.context.gids();
        // An empty slot; programs walk the table and expect it.
        let entry = gids.get(index as usize).ok_or(Fail::Code(libc::ENODATA))?;
        // SAFETY: not null, with `size` bytes by the call's contract.
        unsafe { put_entry(out, size, &gid_entry(handle, index as usize, entry)) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    out: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    size: usize,
) -> isize {
    let mut count = 0;
    let errno = code("ibv_query_gid_table", || {
        let handle = find::<ContextHandle>(context)?;
        if flags != 0 {
            return Err(Fail::Code(libc::EOPNOTSUPP));
        }
        let gids = handle.context.gids();
        if gids.len() > max_entries || size < offset_of!(ibv_gid_entry, gid_index) {
            return Err(EINVAL);
        }
        if out.is_null() && !gids.is_empty() {
            return Err(EINVAL);
        }
        for (i, entry) in gids.iter().enumerate() {
            // SAFETY: `out` has `max_entries` entries of `size` bytes by the call's contract.
            unsafe {
                let slot = out.cast::<u8>().add(i * size).cast();
                put_entry(slot, size, &gid_entry(handle, i, entry));
            }
        }
        count = gids.len() as isize;
        Ok(())
    });
    if errno == 0 { count } else { -(errno as isize) }
}

/// The type of a GID in the numbers of sysfs: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    out: *mut u32,
) -> c_int {
    minus_one("ibv_query_gid_type", || {
        let handle = with_port(context, u32::from(port))?;
        let gids = handle.context.gids();
        let entry = gids.get(index as usize).ok_or(EINVAL)?;
        if out.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, writable by the call's contract.
        unsafe { *out = u32::from(entry.encapsulation == Encapsulation::RoceV2) };
        Ok(())
    })
}

/// The default partition, in either byte order.
const DEFAULT_PKEY: u16 = 0xFFFF;

pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut u16,
) -> c_int {
    minus_one("ibv_query_pkey", || {
        with_port(context, u32::from(port))?;
        if index != 0 || out.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, writable by the call's contract.
        unsafe { *out = DEFAULT_PKEY };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    let known = guarded("ibv_get_pkey_index", || with_port(context, u32::from(port)).is_ok());
    if known == Some(true) && pkey == DEFAULT_PKEY {
        return 0;
    }
    set_errno(libc::EINVAL);
    -1
}

#[cfg(test)]
mod tests {
    use super::width_and_speed;

    #[test]
    fn speeds_have_codes() {
        assert_eq!(width_and_speed(Some(25_000)), (1, 32));
        assert_eq!(width_and_speed(Some(100_000)), (2, 32));
        assert_eq!(width_and_speed(Some(30_000)), (1, 32), "the largest not above");
        assert_eq!(width_and_speed(Some(100)), (1, 1));
        assert_eq!(width_and_speed(None), (2, 32));
        assert_eq!(width_and_speed(Some(0)), width_and_speed(None));
    }
}
