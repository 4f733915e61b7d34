//! What the tests of this crate share.

use socket2::{Domain, Socket, Type};
use std::os::fd::AsRawFd;

/// Puts the calling thread, and threads that it starts, into a network of their own that has a
/// loopback interface only. False if the system does not permit it.
pub(crate) fn own_network() -> bool {
    // SAFETY: affects only the calling thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return false;
    }
    set_up(true)
}

/// Sets the loopback interface up or down; false if the system does not permit it.
pub(crate) fn set_up(up: bool) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    // SAFETY: plain old data for which all zeros are a value.
    let mut lo: libc::ifreq = unsafe { std::mem::zeroed() };
    lo.ifr_name[0] = b'l' as libc::c_char;
    lo.ifr_name[1] = b'o' as libc::c_char;
    let flags = if up { libc::IFF_UP | libc::IFF_RUNNING } else { 0 };
    lo.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the request reads the structure given.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const lo) == 0 }
}
