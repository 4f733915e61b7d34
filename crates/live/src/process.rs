//! State of the process, begun anew in each child of a fork: a child must neither use its parent's
//! nor wait for a lock that one of its parent's threads held at the fork.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::{self, fork_generation};

/// A value that each process has for itself. That of a parent stays in the memory of its children,
/// out of use.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static> {
    newest: AtomicPtr<Of<T>>,
}

#[derive(Debug)]
struct Of<T> {
    generation: u32,
    value: T,
}

impl<T: Default + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { newest: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The value of this process.
    pub(crate) fn get(&self) -> &'static T {
        let generation = fork_generation();
        loop {
            let newest = self.newest.load(Ordering::Acquire);
            // SAFETY: what stands here was leaked below and is never freed or changed.
            if let Some(of) = unsafe { newest.as_ref() }.filter(|of| of.generation == generation) {
                return &of.value;
            }
            let own = Box::into_raw(Box::new(Of { generation, value: T::default() }));
            let set =
                self.newest.compare_exchange(newest, own, Ordering::AcqRel, Ordering::Acquire);
            if set.is_err() {
                // Another thread was first.
                // SAFETY: made above, and nobody else knows of it.
                drop(unsafe { Box::from_raw(own) });
            }
        }
    }
}

/// A descriptor that children of a fork give up: others tell by its end that this process has gone.
#[derive(Debug)]
pub(crate) struct Held<T: AsFd>(pub(crate) T);

impl<T: AsFd> Held<T> {
    pub(crate) fn new(of: T) -> Self {
        sys::release_on_fork(of.as_fd());
        Self(of)
    }
}

impl<T: AsFd> Drop for Held<T> {
    fn drop(&mut self) {
        sys::keep_on_fork(self.0.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn all_threads_have_the_same_and_a_child_another() {
        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
        let threads: Vec<_> =
            (0..8).map(|_| std::thread::spawn(|| *VALUE.get().lock().unwrap() += 1)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let held = VALUE.get().lock().unwrap();
        assert_eq!(*held, 8);
        // SAFETY: the child only looks at its own value and ends by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let found = VALUE.get().try_lock().map_or(9, |value| *value);
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(found as i32) };
        }
        let mut status = 0;
        // SAFETY: waits for this process's own child.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 0));
    }
}
