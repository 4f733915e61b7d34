//! Whether memory that a program registers is there. An adapter's driver pins every page, so that a
//! wrong address is refused by the registration; without a look, the first packet that touches it
//! would be what fails. What happens to the mapping afterwards is not watched: see `live::mem`.

use core::ffi::c_void;
use std::io;
use std::sync::OnceLock;

use crocevia::Access;

use crate::errno::{Done, Fail};

/// Refuses, with EFAULT, a range that is not mapped throughout, or whose first or last page cannot
/// be read (or written, with `access` that lets the device write). Pages between are looked at for
/// holes only: the cost grows with the mappings, not with the pages; one that refuses is an error
/// of the request that reaches it. A range for on-demand paging
/// may be mapped later.
pub(crate) fn check(addr: *mut c_void, length: usize, access: Access) -> Done<()> {
    if length == 0 || access.contains(Access::ON_DEMAND) {
        return Ok(());
    }
    let page = page_size();
    let (start, last) = (addr as usize, (addr as usize).saturating_add(length - 1));
    let (first_page, last_page) = (start - start % page, last - last % page);
    // SAFETY: MS_ASYNC changes nothing and reaches no memory: it looks whether all is mapped.
    let looked = unsafe {
        libc::msync(first_page as *mut c_void, last_page - first_page + page, libc::MS_ASYNC)
    };
    if looked != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
        return Err(refused(start, length, "not mapped throughout"));
    }
    let writes =
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND;
    let (advice, missing) = match access.intersects(writes) {
        true => (libc::MADV_POPULATE_WRITE, "not writable"),
        false => (libc::MADV_POPULATE_READ, "not readable"),
    };
    if can_populate() && !(populates(first_page, advice) && populates(last_page, advice)) {
        return Err(refused(start, length, missing));
    }
    Ok(())
}

fn refused(start: usize, length: usize, how: &str) -> Fail {
    Fail::Memory(format!("the memory at {start:#x}, {length} bytes, is {how}"))
}

fn page_size() -> usize {
    // SAFETY: a plain query.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Whether the page is there with the rights that `advice` names, as a page fault would find out.
fn populates(page: usize, advice: i32) -> bool {
    // SAFETY: faults a page in, as any access would; what it holds stays.
    let result = unsafe { libc::madvise(page as *mut c_void, page_size(), advice) };
    let refusals = [libc::EFAULT, libc::EINVAL, libc::ENOMEM];
    result == 0
        || io::Error::last_os_error().raw_os_error().is_none_or(|code| !refusals.contains(&code))
}

/// Kernels before 5.14 answer EINVAL to every question.
fn can_populate() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let here = 0_u8;
        let at = &raw const here as usize;
        populates(at - at % page_size(), libc::MADV_POPULATE_READ)
    })
}
