//! System calls as safe functions: descriptor options, waiting, the clock, randomness, the calling
//! thread's scheduling, fork. Messages on datagram sockets are in `mmsg`.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Once, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use libc::{c_int, c_void, socklen_t};

/// Turns the usual −1 into the thread's error.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets an integer socket option.
pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_plain(fd, level, name, value)
}

/// Sets a socket option of another type.
pub(crate) fn set_plain<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which outlives the call; the descriptor is
    // open for as long as it is borrowed.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    };
    check(result).map(drop)
}

/// A value for which all bytes are good, as socket options are.
///
/// # Safety
/// Any bytes of its size are a value of the type.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: integers without gaps.
unsafe impl Plain for [u32; 9] {}
// SAFETY: three integers.
unsafe impl Plain for libc::ucred {}
// SAFETY: three integers.
unsafe impl Plain for libc::ip_mreqn {}
// SAFETY: bytes and an integer, without gaps.
unsafe impl Plain for libc::ipv6_mreq {}

/// Reads a socket option; what the kernel does not fill in stays as it is in `value`.
pub(crate) fn get_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    mut value: T,
) -> io::Result<T> {
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the pointers describe `value` and `len`, both alive and writable during the call;
    // whatever is written is a value of the type.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    check(result).map(|_| value)
}

/// Reads an integer socket option.
pub(crate) fn get_int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    get_option(fd, level, name, 0)
}

/// A descriptor to wait for, and what for.
pub(crate) fn interest(fd: BorrowedFd<'_>, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}

/// Waits until one of the descriptors is ready or the time is over (`None`: without limit); the
/// number of ready ones. A signal counts as the end of the wait.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let spec = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: t.subsec_nanos() as _,
    });
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` is a live slice of its own length; `spec` is null or points to a timespec that
    // lives until the end of this function; a null mask leaves the signals as they are.
    let ready =
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, spec, std::ptr::null()) };
    match check(ready) {
        Ok(n) => Ok(n as usize),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(e) => Err(e),
    }
}

/// Gives the processor to whoever waits for it.
pub(crate) fn yield_now() {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::sched_yield() };
}

/// Sleeps. Safe in a signal handler.
pub(crate) fn nap(ns: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns.min(999_999_999) as _ };
    // SAFETY: `time` is a live timespec; the rest of an interrupted sleep is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Adds one to the event descriptor of this number, which is never closed. Safe in a signal
/// handler.
pub(crate) fn ring(fd: c_int) {
    let one = 1_u64;
    // SAFETY: the pointer and length describe `one`.
    unsafe { libc::write(fd, (&raw const one).cast::<c_void>(), 8) };
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a live timespec; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// Nanoseconds since 1970.
pub(crate) fn realtime_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a live timespec; CLOCK_REALTIME always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut t) };
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// Nanoseconds that the calling thread has had a processor.
pub(crate) fn thread_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a live timespec; the clock of the calling thread always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// What the machine is, and its operating system with its release.
pub(crate) fn machine() -> (String, String) {
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // SAFETY: arrays of characters, for which all zeros are a value.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: fills in the structure given.
    unsafe { libc::uname(&raw mut name) };
    (text(&name.machine), format!("{} {}", text(&name.sysname), text(&name.release)))
}

/// Adds to the calling thread's niceness.
pub(crate) fn be_nice(more: c_int) {
    // SAFETY: takes numbers; with 0 it is about the calling thread alone. What is refused changes
    // nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, more) };
}

/// Locks a file for as long as its open description lives, if nobody has; whether it is so now.
pub(crate) fn lock_file(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: takes two numbers; the descriptor is open for as long as it is borrowed.
    match check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

/// Fills a buffer from the system's random source.
pub(crate) fn random(out: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < out.len() {
        let rest = &mut out[filled..];
        // SAFETY: the pointer and length describe `rest`.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast::<c_void>(), rest.len(), 0) };
        if n > 0 {
            filled += n as usize;
        } else {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A random 16-bit number, for choices that need no strength.
pub(crate) fn random_u16() -> u16 {
    let mut bytes = [0; 2];
    match random(&mut bytes) {
        Ok(()) => u16::from_ne_bytes(bytes),
        Err(_) => monotonic_ns() as u16,
    }
}

/// Runs `f` with every signal of the calling thread blocked, as a thread made by `f` then inherits:
/// handlers are to run on the application's threads only.
fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises `all` before pthread_sigmask reads it, which initialises
    // `old`.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr())
    };
    let result = f();
    if blocked == 0 {
        // SAFETY: the call above succeeded and so has initialised `old`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    }
    result
}

/// A timer of the monotonic clock as a descriptor, closed on exec.
pub(crate) fn timerfd() -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers; a descriptor that it returns is new and nobody else's.
    unsafe {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        let fd = check(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Lets a timer run out once, so long from now.
pub(crate) fn set_timer(fd: BorrowedFd<'_>, after: Duration) -> io::Result<()> {
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let value = libc::timespec {
        tv_sec: after.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: after.subsec_nanos() as _,
    };
    let spec = libc::itimerspec { it_interval: none, it_value: value };
    let old = std::ptr::null_mut();
    // SAFETY: `spec` is a live itimerspec; the old setting is not asked for.
    check(unsafe { libc::timerfd_settime(fd.as_raw_fd(), 0, &raw const spec, old) }).map(drop)
}

/// Threads of this library that have been started and do not have their names yet.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// Starts a thread of this library's own, with all signals blocked. Its name is to begin with
/// `crocevia-`.
pub(crate) fn spawn(
    name: &str,
    stack: usize,
    f: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    STARTING.fetch_add(1, Ordering::SeqCst);
    let run = move || {
        STARTING.fetch_sub(1, Ordering::SeqCst);
        f();
    };
    let builder = Builder::new().name(name.to_owned()).stack_size(stack);
    with_signals_blocked(|| builder.spawn(run)).inspect_err(|_| {
        STARTING.fetch_sub(1, Ordering::SeqCst);
    })
}

/// Whether a thread of this library has been started that cannot be told by its name from the
/// program's yet.
pub fn threads_are_starting() -> bool {
    STARTING.load(Ordering::SeqCst) != 0
}

/// Lets the calling thread's sleeps end within a microsecond of their time instead of within fifty.
pub(crate) fn precise_timers() {
    // SAFETY: this option takes one number and touches only the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000, 0, 0, 0) };
}

/// Asks for short time slices for the calling thread: when it wakes up it then comes before those
/// that compute. Kernels before 6.12, and other classes of scheduling, do not know that.
pub(crate) fn short_slices() {
    const SLICE_NS: u64 = 100_000;
    let mut attr = [0_u64; 6];
    let size = size_of::<[u64; 6]>();
    // SAFETY: the attributes of the calling thread (0) are written to `attr`, whose size is given,
    // and read from there; of these only the slice has been changed.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), size, 0) != 0 {
            return;
        }
        // Size and policy are the two halves of the first word, the slice is the fourth.
        let policy = (attr[0] >> 32) as u32;
        #[cfg(target_endian = "big")]
        let policy = attr[0] as u32;
        if policy == libc::SCHED_OTHER as u32 {
            attr[3] = SLICE_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, attr.as_ptr(), 0);
        }
    }
}

/// A descriptor that can be read when an interface of this network namespace has changed.
pub(crate) fn interface_news() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes three numbers; a descriptor that it returns is new and nobody else's.
    let fd = unsafe {
        let fd = check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?;
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: plain old data for which all zeros are a value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = libc::RTMGRP_LINK as u32;
    // SAFETY: the pointer and length describe `address`, which outlives the call.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            size_of::<libc::sockaddr_nl>() as socklen_t,
        )
    })?;
    Ok(fd)
}

/// Reads all that such a descriptor says; whether it may concern the interface with this index.
pub(crate) fn take_interface_news(fd: BorrowedFd<'_>, index: u32) -> bool {
    /// Nobody keeps telling for so long.
    const MOST: usize = 1024;
    /// Where the index stands: behind a message header and eight bytes (`rtnetlink(7)`).
    const INDEX: std::ops::Range<usize> = 20..24;
    let (mut message, mut concerned) = ([0_u8; INDEX.end], false);
    for _ in 0..MOST {
        let place = message.as_mut_ptr().cast::<c_void>();
        // SAFETY: `place` has room for as much as is asked for; the rest of a message is dropped.
        let n = unsafe { libc::recv(fd.as_raw_fd(), place, message.len(), libc::MSG_DONTWAIT) };
        match n {
            // News that found no room are told of as an error, once.
            ..0 if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => {
                concerned = true;
            }
            ..0 => break,
            _ => concerned |= n as usize != message.len() || message[INDEX] == index.to_ne_bytes(),
        }
    }
    concerned
}

/// A descriptor that can be read when somebody who could only read a file has closed it.
pub(crate) fn readers_leave(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: takes a number; a descriptor that it returns is new and nobody else's.
    let fd = unsafe {
        let fd = check(libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK))?;
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: a path that ends with zero; the descriptor is open.
    check(unsafe {
        libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), libc::IN_CLOSE_NOWRITE)
    })?;
    Ok(fd)
}

/// An event descriptor with the given flags, at zero.
pub(crate) fn eventfd(flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers; a descriptor that it returns is new and nobody else's.
    unsafe { check(libc::eventfd(0, flags)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// An epoll instance.
pub(crate) fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: takes a number; a descriptor that it returns is new and nobody else's.
    unsafe { check(libc::epoll_create1(libc::EPOLL_CLOEXEC)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Adds a descriptor to an epoll instance, to be told of when it can be read.
pub(crate) fn epoll_add(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
    let (epoll, fd) = (epoll.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: the pointer is to `event`, which outlives the call; both descriptors are open.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// Fills in what is ready at an epoll instance now; how many there are.
pub(crate) fn epoll_ready(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
) -> io::Result<usize> {
    let (fd, len) = (epoll.as_raw_fd(), events.len() as c_int);
    // SAFETY: the pointer and length describe `events`.
    check(unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), len, 0) }).map(|n| n as usize)
}

/// Lets a program choose the socket of a datagram among those that share the port.
pub(crate) fn attach_reuseport_filter(
    fd: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel copies it and does not write.
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the pointer and length describe `program`, and its own the instructions; both outlive
    // the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    };
    check(result).map(drop)
}

/// Where descriptors that the application does not know of begin: programs that use `select` need
/// the low ones for themselves.
const HIGH_DESCRIPTORS: c_int = 512;

/// The same file on a high descriptor; as it is where the process may not have such ones.
pub(crate) fn high(fd: OwnedFd) -> OwnedFd {
    // SAFETY: takes two numbers; a descriptor that it returns is new and nobody else's.
    unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH_DESCRIPTORS) {
            -1 => fd,
            high => OwnedFd::from_raw_fd(high),
        }
    }
}

/// Reads eight bytes, blocking as the descriptor's flags say.
pub(crate) fn read_u64(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value = 0_u64;
    // SAFETY: the pointer and length describe `value`.
    let n = unsafe { libc::read(fd.as_raw_fd(), (&raw mut value).cast::<c_void>(), 8) };
    if n == 8 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Reads eight bytes if they are there, whatever the descriptor's flags; `None` if not.
pub(crate) fn try_read_u64(fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    let mut value = 0_u64;
    let part = libc::iovec { iov_base: (&raw mut value).cast::<c_void>(), iov_len: 8 };
    // SAFETY: `part` describes `value`; both outlive the call. Offset −1 means none.
    let n = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) };
    if n == 8 {
        return Ok(Some(value));
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // Before Linux 5.8 event descriptors do not know RWF_NOWAIT.
        e if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            let ready = poll(&mut [interest(fd, libc::POLLIN)], Some(Duration::ZERO))?;
            if ready == 0 { Ok(None) } else { read_u64(fd).map(Some) }
        }
        e => Err(e),
    }
}

/// Writes eight bytes.
pub(crate) fn write_u64(fd: BorrowedFd<'_>, value: u64) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`.
    let n = unsafe { libc::write(fd.as_raw_fd(), (&raw const value).cast::<c_void>(), 8) };
    if n == 8 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many descriptors this process may have open.
pub(crate) fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to `limit`, which is alive and writable.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result == 0 { limit.rlim_cur } else { 0 }
}

/// Packets that the kernel has dropped at a socket since it was made.
pub(crate) fn socket_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SK_MEMINFO_DROPS is the last of nine words.
    get_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, [0_u32; 9]).map(|words| words[8])
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Descriptors that a child of a fork is not to keep, less one; 0 where there is none.
static RELEASED: [AtomicI32; 2048] = [const { AtomicI32::new(0) }; 2048];
/// What the child gets in their place.
static DUMMY: OnceLock<OwnedFd> = OnceLock::new();

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    STARTING.store(0, Ordering::Relaxed);
    let Some(dummy) = DUMMY.get() else { return };
    for place in &RELEASED {
        let fd = place.swap(0, Ordering::Relaxed) - 1;
        if fd >= 0 {
            // SAFETY: allowed in the child of a multi-threaded process; the descriptor is one that
            // this library owns, and goes on being one.
            unsafe { libc::dup3(dummy.as_raw_fd(), fd, libc::O_CLOEXEC) };
        }
    }
}

/// A child of a fork is not to keep this descriptor, which this library owns: whatever it is of
/// would outlive the parent. The child's becomes one of something else.
pub(crate) fn release_on_fork(fd: BorrowedFd<'_>) {
    fork_generation();
    if DUMMY.get().is_none() {
        let Ok(dummy) = eventfd(libc::EFD_CLOEXEC) else { return };
        let _ = DUMMY.set(high(dummy));
    }
    let fd = fd.as_raw_fd() + 1;
    for place in &RELEASED {
        if place.compare_exchange(0, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// The descriptor is about to be closed.
pub(crate) fn keep_on_fork(fd: BorrowedFd<'_>) {
    let fd = fd.as_raw_fd() + 1;
    for place in &RELEASED {
        let _ = place.compare_exchange(fd, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// How many forks lie between the process in which this was first called and the calling one. A
/// number that has changed means: this is a child, and threads made before do not exist here.
pub(crate) fn fork_generation() -> u32 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: the handler is a function of this library that only adds to an atomic, which is
        // allowed in the child of a multi-threaded process.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    FORKS.load(Ordering::Relaxed)
}
