//! The exported names. Each public name is one jump under a versioned symbol, because rustc's own
//! list of exports cannot carry versions; calls of the data path do not come this way but through
//! the tables in the context. `symbols.txt` is the list.

/// Emits one trampoline per name, with its version node.
#[cfg(not(test))]
macro_rules! export {
    ($($node:literal $name:ident;)*) => { $(
        core::arch::global_asm!(
            // "R" keeps the section through garbage collection: nothing refers to it.
            concat!(".pushsection .text.x_", stringify!($name), ",\"axR\",@progbits"),
            concat!(".globl __x_", stringify!($name)),
            concat!(".type __x_", stringify!($name), ",@function"),
            concat!("__x_", stringify!($name), ":"),
            jump!(),
            concat!(".size __x_", stringify!($name), ", . - __x_", stringify!($name)),
            concat!(".symver __x_", stringify!($name), ", ", stringify!($name), "@@@", $node),
            ".popsection",
            f = sym crate::entry::$name,
        );
    )* };
}

#[cfg(all(not(test), target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "jmp {f}"
    };
}

#[cfg(all(not(test), target_arch = "aarch64"))]
macro_rules! jump {
    () => {
        "b {f}"
    };
}

/// Emits the unversioned names that the system's provider libraries (libmlx5, libefa) want at load
/// time. They come along as dependencies of some programs and find no device of theirs here, so
/// nothing but their registration is ever called.
#[cfg(not(test))]
macro_rules! stubs {
    ($($kind:ident $name:ident;)*) => { $( stub!($kind $name); )* };
}

#[cfg(not(test))]
macro_rules! stub {
    (errno $name:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> core::ffi::c_int {
            libc::ENOSYS
        }
    };
    (null $name:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut core::ffi::c_void {
            core::ptr::null_mut()
        }
    };
    (silent $name:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    };
}

#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/exports.rs"));
