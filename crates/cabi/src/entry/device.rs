//! The device list, opening and closing, and what a device says about itself. Ports and GIDs are in
//! `port.rs`.

use core::ffi::{c_char, c_int, c_void};
use core::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

use crocevia::{Context, DeviceInfo, DeviceLimits};

use crate::abi::*;
use crate::errno::{Done, EINVAL, Fail, code, guarded, object};
use crate::handle::{ContextHandle, DeviceHandle, Table, disown, find, give, lock};
use crate::{ops, watch};

/// A vendor that nobody is: the locally administered bit of the OUI is set, so that no program has
/// special rules for it.
const VENDOR_ID: u32 = 0xC2_0CE0;
const VENDOR_PART_ID: u32 = 1;

/// Devices handed out so far. They stay: a program may keep the address of one beyond the list.
static DEVICES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn name_into(field: &mut [c_char], text: &str) {
    let room = field.len() - 1;
    for (to, from) in field.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

fn new_device(info: &DeviceInfo) -> *mut ibv_device {
    let mut public = ibv_device {
        ops: [core::ptr::null_mut(); 2],
        node_type: NODE_CA,
        transport_type: TRANSPORT_IB,
        name: [0; 64],
        dev_name: [0; 64],
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    };
    let dev_name = format!("uverbs{}", info.index);
    name_into(&mut public.name, &info.name);
    name_into(&mut public.dev_name, &dev_name);
    name_into(&mut public.dev_path, &format!("/sys/class/infiniband_verbs/{dev_name}"));
    name_into(&mut public.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
    let handle = DeviceHandle { public, tail: [0; 16], info: Mutex::new(info.clone()) };
    Box::into_raw(Box::new(handle)).cast()
}

/// The device of `info`: the one handed out before under that name, or a new one.
fn device_for(info: &DeviceInfo) -> *mut ibv_device {
    let mut devices = lock(&DEVICES);
    for &address in devices.iter() {
        // SAFETY: devices are never freed.
        let known = unsafe { &*(address as *const DeviceHandle) };
        let mut held = lock(&known.info);
        if held.name == info.name && held.index == info.index {
            *held = info.clone();
            return address as *mut ibv_device;
        }
    }
    let device = new_device(info);
    devices.push(device as usize);
    device
}

fn find_device<'a>(device: *mut ibv_device) -> Done<&'a DeviceHandle> {
    if !lock(&DEVICES).contains(&(device as usize)) {
        return Err(EINVAL);
    }
    // SAFETY: it is one of ours, and those are never freed.
    Ok(unsafe { &*device.cast::<DeviceHandle>() })
}

pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    if !count.is_null() {
        // SAFETY: not null, writable by the call's contract.
        unsafe { *count = 0 };
    }
    object("ibv_get_device_list", || {
        let infos = crocevia::devices()?;
        // SAFETY: a plain allocation, which `ibv_free_device_list` gives back.
        let list = unsafe { libc::calloc(infos.len() + 1, size_of::<*mut ibv_device>()) };
        let list = list.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Fail::Code(libc::ENOMEM));
        }
        for (i, info) in infos.iter().enumerate() {
            // SAFETY: the list has one slot more than there are devices, already zero.
            unsafe { *list.add(i) = device_for(info) };
        }
        if !count.is_null() {
            // SAFETY: as above.
            unsafe { *count = infos.len() as c_int };
        }
        Ok(list)
    })
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: null, or allocated by `ibv_get_device_list`.
    unsafe { libc::free(list.cast::<c_void>()) }
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return core::ptr::null();
    }
    // SAFETY: not null, a device by the call's contract.
    unsafe { (&raw const (*device).name).cast() }
}

pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    guarded("ibv_get_device_index", || {
        find_device(device).map_or(-1, |handle| lock(&handle.info).index as c_int)
    })
    .unwrap_or(-1)
}

/// The GUID, in network byte order.
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    guarded("ibv_get_device_guid", || {
        find_device(device).map_or(0, |handle| lock(&handle.info).guid.to_be())
    })
    .unwrap_or(0)
}

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    object("ibv_open_device", || {
        let info = lock(&find_device(device)?.info).clone();
        crate::log::watch_faults();
        let context = Context::open(&info)?;
        flush_at_exit();
        let public = ops::context(device, context.async_fd());
        let address = give(ContextHandle {
            verbs: public,
            wallclock_offset: wallclock_offset(&context),
            context,
            cqs: Table::new(),
            qps: Table::new(),
            srqs: Table::new(),
            xrcds: Mutex::default(),
            users: AtomicUsize::new(1),
            closed: AtomicBool::new(false),
        });
        watch::created(address, || check::Object::Context);
        Ok(address)
    })
}

/// Nanoseconds from the device's clock to the wall clock.
fn wallclock_offset(context: &Context) -> i128 {
    let device = i128::from(context.clock_ps() / 1000);
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as i128);
    wall - device
}

/// At exit, what is owed to peers (an ACK of what the program has already seen) still leaves.
fn flush_at_exit() {
    extern "C" fn flush() {
        guarded("exit", crocevia::flush_all);
    }
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: registers a function that takes and returns nothing and cannot unwind.
        unsafe { libc::atexit(flush) };
    });
}

/// Objects that were left behind point to the context and may still be destroyed; the device closes
/// with the last of them.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    code("ibv_close_device", || {
        if find::<ContextHandle>(context)?.closed.swap(true, Ordering::AcqRel) {
            return Err(EINVAL);
        }
        watch::ended(context);
        disown(context);
        Ok(())
    })
}

fn attr(info: &DeviceInfo, limits: &DeviceLimits) -> ibv_device_attr {
    let int = |n: u32| c_int::try_from(n).unwrap_or(c_int::MAX);
    // SAFETY: plain integers and arrays of them; all zero is a value.
    let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
    name_into(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = info.guid.to_be();
    attr.sys_image_guid = info.guid.to_be();
    attr.max_mr_size = limits.max_mr_size;
    attr.page_size_cap = 0xFFFF_F000;
    attr.vendor_id = VENDOR_ID;
    attr.vendor_part_id = VENDOR_PART_ID;
    attr.max_qp = int(limits.max_qp);
    attr.max_qp_wr = int(limits.max_qp_wr);
    attr.device_cap_flags = device_cap::CURR_QP_STATE_MOD
        | device_cap::PORT_ACTIVE_EVENT
        | device_cap::SYS_IMAGE_GUID
        | device_cap::RC_RNR_NAK_GEN
        | device_cap::SRQ_RESIZE
        | device_cap::MEM_WINDOW
        | device_cap::XRC
        | device_cap::MEM_MGT_EXTENSIONS
        | device_cap::MEM_WINDOW_TYPE_2B;
    attr.max_sge = int(limits.max_sge);
    attr.max_sge_rd = int(limits.max_sge);
    attr.max_cq = int(limits.max_cq);
    attr.max_cqe = int(limits.max_cqe);
    attr.max_mr = int(limits.max_mr);
    attr.max_pd = int(limits.max_pd);
    attr.max_qp_rd_atom = c_int::from(limits.max_qp_rd_atomic);
    attr.max_res_rd_atom = int(u32::from(limits.max_qp_rd_atomic) * limits.max_qp);
    attr.max_qp_init_rd_atom = c_int::from(limits.max_qp_init_rd_atomic);
    attr.atomic_cap = ATOMIC_HCA;
    attr.max_mw = int(limits.max_mw);
    attr.max_mcast_grp = int(limits.max_groups);
    attr.max_mcast_qp_attach = int(limits.max_members);
    attr.max_total_mcast_qp_attach = int(limits.max_groups * limits.max_members);
    attr.max_ah = c_int::MAX;
    attr.max_srq = int(limits.max_srq);
    attr.max_srq_wr = int(limits.max_srq_wr);
    attr.max_srq_sge = int(limits.max_sge);
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = crocevia::limits::LEAST_TIMEOUT_CODE;
    attr.phys_port_cnt = 1;
    attr
}

pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    out: *mut ibv_device_attr,
) -> c_int {
    code("ibv_query_device", || {
        let handle = find::<ContextHandle>(context)?;
        if out.is_null() {
            return Err(EINVAL);
        }
        let attr = attr(handle.context.device(), &handle.context.limits());
        // SAFETY: not null, writable by the call's contract.
        unsafe { out.write(attr) };
        Ok(())
    })
}

/// On-demand paging, also of all memory there is (`ibv_reg_mr` of `NULL`, `SIZE_MAX`): what is not
/// there when it is reached is an error of the request.
const ODP_GENERAL: u64 = 3;
/// Send, receive, WRITE, READ, atomic, shared receive: a CPU takes page faults by itself.
const ODP_ALL: u32 = 0x3F;
/// Send, receive, WRITE, shared receive.
const ODP_UC: u32 = 0x27;
/// Send, receive, shared receive.
const ODP_UD: u32 = 0x23;
/// Completion timestamps count nanoseconds: 10^6 kHz.
const CORE_CLOCK_KHZ: u64 = 1_000_000;

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    out: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    code("ibv_query_device_ex", || {
        let handle = find::<ContextHandle>(context)?;
        // SAFETY: not null, readable by the call's contract.
        if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
            return Err(EINVAL);
        }
        if out.is_null() || size < size_of::<ibv_device_attr>() {
            return Err(EINVAL);
        }
        // SAFETY: plain integers and arrays of them; all zero is a value.
        let mut ex: ibv_device_attr_ex = unsafe { core::mem::zeroed() };
        ex.orig_attr = attr(handle.context.device(), &handle.context.limits());
        ex.odp_caps = ibv_odp_caps {
            general_caps: ODP_GENERAL,
            rc_odp_caps: ODP_ALL,
            uc_odp_caps: ODP_UC,
            ud_odp_caps: ODP_UD,
        };
        ex.completion_timestamp_mask = u64::MAX;
        ex.hca_core_clock = CORE_CLOCK_KHZ;
        ex.device_cap_flags_ex = u64::from(ex.orig_attr.device_cap_flags);
        ex.max_cq_count = u16::MAX;
        ex.max_cq_period = u16::MAX;
        ex.phys_port_cnt_ex = 1;
        // SAFETY: `out` has `size` writable bytes by the call's contract; what is not known here is
        // set to zero.
        unsafe {
            core::ptr::write_bytes(out.cast::<u8>(), 0, size);
            let known = size.min(size_of::<ibv_device_attr_ex>());
            core::ptr::copy_nonoverlapping((&raw const ex).cast::<u8>(), out.cast::<u8>(), known);
        }
        Ok(())
    })
}

/// The device's clock, which completion timestamps count in.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    const RAW_CLOCK: u32 = 1;
    code("ibv_query_rt_values_ex", || {
        let handle = find::<ContextHandle>(context)?;
        if values.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null, valid by the call's contract.
        let values = unsafe { &mut *values };
        if values.comp_mask & !RAW_CLOCK != 0 {
            return Err(EINVAL);
        }
        if values.comp_mask & RAW_CLOCK != 0 {
            let ns = handle.context.clock_ps() / 1000;
            values.raw_clock.tv_sec = (ns / 1_000_000_000) as libc::time_t;
            values.raw_clock.tv_nsec = (ns % 1_000_000_000) as libc::c_long;
        }
        Ok(())
    })
}
