//! Calls without an object of their own: fork, sysfs, imports, ECE, and the translations of kernel
//! structures for the system's librdmacm.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::abi::*;
use crate::errno::{code, guarded, set_errno};

/// Nothing is pinned, so a fork needs no preparation.
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    FORK_UNNEEDED
}

pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// The mount point of sysfs; `SYSFS_PATH` overrides it.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = std::env::var_os("SYSFS_PATH").unwrap_or_else(|| "/sys".into());
        let trimmed = path.as_bytes().strip_suffix(b"/").unwrap_or(path.as_bytes());
        CString::new(trimmed).unwrap_or_else(|_| c"/sys".to_owned())
    })
    .as_ptr()
}

/// Reads a file below `dir` into `buf`, without its last newline; the number of bytes, or −1.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    if dir.is_null() || file.is_null() || buf.is_null() || size == 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    let read = guarded("ibv_read_sysfs_file", || {
        // SAFETY: not null, and strings by the call's contract.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let path =
            Path::new(OsStr::from_bytes(dir.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
        std::fs::read(path)
    });
    let Some(Ok(content)) = read else {
        set_errno(libc::ENOENT);
        return -1;
    };
    let mut n = content.len().min(size).min(c_int::MAX as usize);
    if n > 0 && content[n - 1] == b'\n' {
        n -= 1;
    }
    // SAFETY: `buf` holds `size` bytes by contract and n ≤ size; the terminator is put only if it
    // fits.
    unsafe {
        core::ptr::copy_nonoverlapping(content.as_ptr().cast::<c_char>(), buf, n);
        if n < size {
            *buf.add(n) = 0;
        }
    }
    n as c_int
}

fn no_import<T>() -> *mut T {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// Objects of one process cannot be used by another: the NIC lives in its process.
pub(crate) extern "C" fn ibv_import_device(_cmd_fd: c_int) -> *mut ibv_context {
    no_import()
}

pub(crate) extern "C" fn ibv_import_pd(_context: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    no_import()
}

pub(crate) extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}

pub(crate) extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    no_import()
}

pub(crate) extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

pub(crate) extern "C" fn ibv_import_dm(_context: *mut ibv_context, _handle: u32) -> *mut c_void {
    no_import()
}

pub(crate) extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}

/// No enhanced connection is offered: all zero.
pub(crate) unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    if qp.is_null() || ece.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: not null, writable by the call's contract.
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}

/// Accepts that a peer offers nothing, refuses anything else.
pub(crate) unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    if qp.is_null() || ece.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: not null, readable by the call's contract.
    let ece = unsafe { ece.read() };
    if ece.comp_mask != 0 {
        return libc::EINVAL;
    }
    if ece.vendor_id == 0 && ece.options == 0 { 0 } else { libc::EOPNOTSUPP }
}

/// The layer below resolves neighbours; there is no MAC address to tell.
pub(crate) extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _eth_mac: *mut u8,
    _vid: *mut u16,
) -> c_int {
    code("ibv_resolve_eth_l2_from_gid", || {
        Err(crate::errno::Fail::unsupported("neighbours are resolved by the system's IP stack"))
    })
}

fn ah_attr(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.dgid },
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

pub(crate) unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    to: *mut ibv_ah_attr,
    from: *const ib_uverbs_ah_attr,
) {
    if !to.is_null() && !from.is_null() {
        // SAFETY: not null, valid by the call's contract.
        unsafe { to.write(ah_attr(&*from)) }
    }
}

pub(crate) unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    to: *mut ibv_qp_attr,
    from: *const ib_uverbs_qp_attr,
) {
    if to.is_null() || from.is_null() {
        return;
    }
    // SAFETY: not null, readable by the call's contract.
    let f = unsafe { &*from };
    let attr = ibv_qp_attr {
        qp_state: f.qp_state,
        cur_qp_state: f.cur_qp_state,
        path_mtu: f.path_mtu,
        path_mig_state: f.path_mig_state,
        qkey: f.qkey,
        rq_psn: f.rq_psn,
        sq_psn: f.sq_psn,
        dest_qp_num: f.dest_qp_num,
        qp_access_flags: f.qp_access_flags,
        cap: ibv_qp_cap {
            max_send_wr: f.max_send_wr,
            max_recv_wr: f.max_recv_wr,
            max_send_sge: f.max_send_sge,
            max_recv_sge: f.max_recv_sge,
            max_inline_data: f.max_inline_data,
        },
        ah_attr: ah_attr(&f.ah_attr),
        alt_ah_attr: ah_attr(&f.alt_ah_attr),
        pkey_index: f.pkey_index,
        alt_pkey_index: f.alt_pkey_index,
        en_sqd_async_notify: f.en_sqd_async_notify,
        sq_draining: f.sq_draining,
        max_rd_atomic: f.max_rd_atomic,
        max_dest_rd_atomic: f.max_dest_rd_atomic,
        min_rnr_timer: f.min_rnr_timer,
        port_num: f.port_num,
        timeout: f.timeout,
        retry_cnt: f.retry_cnt,
        rnr_retry: f.rnr_retry,
        alt_port_num: f.alt_port_num,
        alt_timeout: f.alt_timeout,
        rate_limit: 0,
    };
    // SAFETY: not null, writable by the call's contract.
    unsafe { to.write(attr) }
}

pub(crate) unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    to: *mut ibv_sa_path_rec,
    from: *const ib_user_path_rec,
) {
    if to.is_null() || from.is_null() {
        return;
    }
    // SAFETY: not null, readable by the call's contract.
    let f = unsafe { &*from };
    let record = ibv_sa_path_rec {
        dgid: ibv_gid { raw: f.dgid },
        sgid: ibv_gid { raw: f.sgid },
        dlid: f.dlid,
        slid: f.slid,
        raw_traffic: f.raw_traffic as i32,
        flow_label: f.flow_label,
        hop_limit: f.hop_limit,
        traffic_class: f.traffic_class,
        reversible: f.reversible as i32,
        numb_path: f.numb_path,
        pkey: f.pkey,
        sl: f.sl,
        mtu_selector: f.mtu_selector,
        mtu: f.mtu as u8,
        rate_selector: f.rate_selector,
        rate: f.rate,
        packet_life_time_selector: f.packet_life_time_selector,
        packet_life_time: f.packet_life_time,
        preference: f.preference,
    };
    // SAFETY: not null, writable by the call's contract.
    unsafe { to.write(record) }
}

pub(crate) unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    to: *mut ib_user_path_rec,
    from: *const ibv_sa_path_rec,
) {
    if to.is_null() || from.is_null() {
        return;
    }
    // SAFETY: not null, readable by the call's contract.
    let f = unsafe { &*from };
    let record = ib_user_path_rec {
        dgid: f.dgid.raw,
        sgid: f.sgid.raw,
        dlid: f.dlid,
        slid: f.slid,
        raw_traffic: f.raw_traffic as u32,
        flow_label: f.flow_label,
        reversible: f.reversible as u32,
        mtu: u32::from(f.mtu),
        pkey: f.pkey,
        hop_limit: f.hop_limit,
        traffic_class: f.traffic_class,
        numb_path: f.numb_path,
        sl: f.sl,
        mtu_selector: f.mtu_selector,
        rate_selector: f.rate_selector,
        rate: f.rate,
        packet_life_time_selector: f.packet_life_time_selector,
        packet_life_time: f.packet_life_time,
        preference: f.preference,
    };
    // SAFETY: not null, writable by the call's contract.
    unsafe { to.write(record) }
}
