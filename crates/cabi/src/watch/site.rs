//! Where the program called the library: the first frame outside it, and that address as people
//! name it.

use core::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use check::Site;

unsafe extern "C" {
    // Of the unwinder that the standard library is linked with; `_Unwind_Trace_Fn` of its header.
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

const GO_ON: c_int = 0;
const END_OF_STACK: c_int = 5;

/// The code of this library.
fn own() -> &'static Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| {
        let mut found = 0..0;
        // SAFETY: the callback has the type wanted and gets the address of `found`, which lives as
        // long as the call.
        unsafe { libc::dl_iterate_phdr(Some(module), (&raw mut found).cast()) };
        found
    })
}

/// Notes the code of the module that this function lies in.
unsafe extern "C" fn module(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    let here = module as *const () as usize;
    // SAFETY: given by `dl_iterate_phdr`, valid during the call.
    let info = unsafe { &*info };
    for i in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the table has that many entries.
        let segment = unsafe { &*info.dlpi_phdr.add(i) };
        let start = (info.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        let range = start..start.wrapping_add(segment.p_memsz as usize);
        if segment.p_type == libc::PT_LOAD && range.contains(&here) {
            // SAFETY: what `own` gave.
            unsafe { *found.cast::<Range<usize>>() = range };
            return 1;
        }
    }
    0
}

unsafe extern "C" fn frame(frame: *mut c_void, found: *mut c_void) -> c_int {
    // SAFETY: given by the unwinder.
    let ip = unsafe { _Unwind_GetIP(frame) };
    if own().contains(&ip) {
        return GO_ON;
    }
    // SAFETY: what `caller` gave.
    unsafe { *found.cast::<usize>() = ip };
    END_OF_STACK
}

/// The return address of the call by which the program entered this library; 0 if the stack does
/// not tell.
pub(super) fn caller() -> Site {
    let mut found = 0_usize;
    // SAFETY: the callback has the type wanted and gets the address of `found`, which lives as long
    // as the call; it does not unwind.
    unsafe { _Unwind_Backtrace(frame, (&raw mut found).cast()) };
    Site(found as u64)
}

/// The module and the place in it, as `addr2line -e MODULE` takes it; with the name of the function
/// if it has one.
pub(super) fn locate(site: Site) -> String {
    // The call before the address that it returns to.
    let Some(at) = site.0.checked_sub(1) else { return "?".to_owned() };
    // SAFETY: an empty record; every field is an address, for which null is a value.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `info` is writable; any address may be asked about.
    let known = unsafe { libc::dladdr(at as *const c_void, &raw mut info) } != 0;
    if !known || info.dli_fname.is_null() || info.dli_fbase.is_null() {
        return format!("{at:#x}");
    }
    // SAFETY: strings of the loader, which stay as long as the module, that is now executing.
    let text = |name| unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let path = text(info.dli_fname);
    let module =
        Path::new(&*path).file_name().map_or_else(|| path.clone(), |n| n.to_string_lossy());
    // SAFETY: the base of a loaded module is its ELF header; `e_type` stands at 16.
    let fixed = unsafe { info.dli_fbase.cast::<u16>().add(8).read() } == libc::ET_EXEC;
    let base = if fixed { 0 } else { info.dli_fbase as u64 };
    let offset = at.wrapping_sub(base);
    // The loader may know the program itself only by what it was called.
    let is_program = info.dli_fbase as usize == program();
    let file = if is_program { "/proc/self/exe" } else { &*path };
    let name = super::symbols::name(file, offset).or_else(|| {
        // SAFETY: null or a string of the loader.
        unsafe { info.dli_sname.as_ref() }.map(|first| text(first).into_owned())
    });
    match name {
        Some(name) => format!("{module}+{offset:#x} ({name})"),
        None => format!("{module}+{offset:#x}"),
    }
}

/// Where the program itself is loaded: the module in which its entry point lies.
fn program() -> usize {
    // SAFETY: a plain query.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) };
    // SAFETY: an empty record; every field is an address, for which null is a value.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `info` is writable; any address may be asked about.
    unsafe { libc::dladdr(entry as *const c_void, &raw mut info) };
    info.dli_fbase as usize
}
