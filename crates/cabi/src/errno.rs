//! The boundary to C: results become errno values or NULL, panics become EIO, and a pending
//! `pthread_cancel` waits until the call is over (it would unwind through frames that hold locks).

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crocevia::{Error, ErrorKind, PostError};

use crate::log::{self, Level};
use crate::watch;

/// Why a call failed.
pub(crate) enum Fail {
    /// A plain errno: an argument that says nothing to a person (NULL, an index out of range).
    Code(c_int),
    /// With a sentence.
    Said(Error),
    /// EFAULT with a sentence: memory that is not there.
    Memory(String),
    /// A work request was refused.
    Post(PostError),
}

impl Fail {
    /// EINVAL with a sentence.
    pub(crate) fn invalid(sentence: impl Into<String>) -> Self {
        Self::Said(Error::invalid(sentence))
    }

    /// EOPNOTSUPP with a sentence.
    pub(crate) fn unsupported(sentence: impl Into<String>) -> Self {
        Self::Said(Error::new(ErrorKind::Unsupported, sentence))
    }

    /// The errno, after the sentence has been said.
    pub(crate) fn report(&self, call: &str) -> c_int {
        match self {
            Self::Code(code) => *code,
            Self::Said(error) => {
                let level = match error.kind() {
                    ErrorKind::Unsupported | ErrorKind::Busy => Level::Warn,
                    _ => Level::Error,
                };
                log::say(level, call, error);
                error.errno()
            }
            Self::Memory(sentence) => {
                log::say(Level::Error, call, sentence);
                libc::EFAULT
            }
            Self::Post(error) => {
                let level = match error {
                    PostError::QueueFull => Level::Info,
                    _ => Level::Error,
                };
                log::say(level, call, error);
                error.errno()
            }
        }
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Said(error)
    }
}

impl From<PostError> for Fail {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

/// EINVAL without a sentence.
pub(crate) const EINVAL: Fail = Fail::Code(libc::EINVAL);

/// The result of the inside of a call.
pub(crate) type Done<T> = Result<T, Fail>;

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: the location of the calling thread's errno is always valid.
    unsafe { *libc::__errno_location() = code }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Cancellation is disabled while this lives.
struct NoCancel(c_int);

impl NoCancel {
    #[inline]
    fn new() -> Self {
        let mut old = 0;
        // SAFETY: a plain call on the calling thread; `old` is writable.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
        Self(old)
    }
}

impl Drop for NoCancel {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above; a null `old` is allowed.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// Runs the inside of a call; `None` if it panicked (which is a bug of this library, said aloud).
#[inline]
pub(crate) fn guarded<T>(call: &str, f: impl FnOnce() -> T) -> Option<T> {
    let _guard = NoCancel::new();
    // Unwind safety: state behind the handles is only reached through locks that tolerate poison.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(_) => {
            log::say(Level::Error, call, &"internal error, the call was abandoned");
            None
        }
    }
}

/// A call that returns 0 or an errno.
#[inline]
pub(crate) fn code(call: &'static str, f: impl FnOnce() -> Done<()>) -> c_int {
    watch::enter(call);
    match guarded(call, f) {
        Some(Ok(())) => 0,
        Some(Err(fail)) => {
            let code = guarded(call, || fail.report(call)).unwrap_or(libc::EIO);
            watch::failed(code);
            set_errno(code);
            code
        }
        None => libc::EIO,
    }
}

/// A call that returns 0, or −1 with errno set.
pub(crate) fn minus_one(call: &'static str, f: impl FnOnce() -> Done<()>) -> c_int {
    match code(call, f) {
        0 => 0,
        errno => {
            set_errno(errno);
            -1
        }
    }
}

/// A call that returns an object, or NULL with errno set.
pub(crate) fn object<T>(call: &'static str, f: impl FnOnce() -> Done<*mut T>) -> *mut T {
    let mut made = core::ptr::null_mut();
    let errno = code(call, || {
        made = f()?;
        Ok(())
    });
    if errno != 0 {
        set_errno(errno);
        return core::ptr::null_mut();
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_eio() {
        assert_eq!(code("test", || panic!("on purpose")), libc::EIO);
    }

    #[test]
    fn a_failure_sets_errno() {
        set_errno(0);
        assert_eq!(minus_one("test", || Err(EINVAL)), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        assert!(object::<u8>("test", || Err(Fail::Code(libc::ENOMEM))).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
    }
}
