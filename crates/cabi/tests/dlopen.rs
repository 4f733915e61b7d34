//! What happens when the shared object is loaded at run time: nothing; and names are found by their
//! versions. Alone in its process, because the threads of other tests would disturb the counts.
#![allow(unsafe_code)] // dlopen and dlvsym.

mod support;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

/// Entries of a directory of `/proc/self`.
fn entries(name: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{name}")).expect("procfs is mounted").count()
}

#[test]
fn loading_does_nothing_and_dlvsym_finds_versions() {
    let path = CString::new(support::library().as_os_str().as_bytes()).expect("a path");
    let environment = std::env::vars_os().count();
    let fds = entries("fd");
    // SAFETY: our library has no constructor that does anything.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "the library loads");
    assert_eq!(entries("fd"), fds, "loading opens nothing");
    assert_eq!(std::env::vars_os().count(), environment);
    for (name, version) in [
        (c"ibv_get_device_list", c"IBVERBS_1.1"),
        (c"ibv_reg_mr_iova2", c"IBVERBS_1.8"),
        (c"ibv_query_ece", c"IBVERBS_1.10"),
        (c"ibv_reg_dmabuf_mr", c"IBVERBS_1.12"),
    ] {
        // SAFETY: a live handle and two strings.
        let found = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
        assert!(!found.is_null(), "{name:?}@{version:?}");
    }
    // SAFETY: as above.
    let wrong =
        unsafe { libc::dlvsym(handle, c"ibv_get_device_list".as_ptr(), c"IBVERBS_1.8".as_ptr()) };
    assert!(wrong.is_null(), "a name has one version");
}
