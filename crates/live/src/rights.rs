//! What processes of one user hand each other and agree by: descriptors over a socket, who is at
//! the other end of one, memory without a name, and locks on its bytes.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use libc::{c_int, c_void, socklen_t};

use crate::sys::{check, get_option};

/// Most descriptors in one message; the kernel's own limit is 253.
pub(crate) const MOST: usize = 128;

/// Room for the control message with the descriptors.
const CONTROL: usize = 16 + size_of::<RawFd>() * MOST + 16;

#[repr(C, align(8))]
struct Control(MaybeUninit<[u8; CONTROL]>);

/// Sends bytes with descriptors, all or nothing, without waiting.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= MOST, "more descriptors than a message takes");
    let mut control = Control(MaybeUninit::zeroed());
    let mut part =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
    let data = (size_of::<RawFd>() * fds.len()) as u32;
    // SAFETY: plain old data for which all zeros are a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast::<c_void>();
    // SAFETY: computes a size.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(data) } as _;
    // SAFETY: the control buffer is aligned and, by the assertion above, has room for the header
    // and `data` bytes behind it; all that is written is of plain integers. The kernel only reads
    // what `message` describes, which outlives the call.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(data) as _;
        let at = libc::CMSG_DATA(header).cast::<RawFd>();
        for (i, fd) in fds.iter().enumerate() {
            at.add(i).write_unaligned(fd.as_raw_fd());
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
    };
    match sent {
        n if n == bytes.len() as isize => Ok(()),
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives bytes and the descriptors that come with them, closed on exec; how many bytes.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control(MaybeUninit::zeroed());
    let mut part =
        libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    // SAFETY: plain old data for which all zeros are a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast::<c_void>();
    message.msg_controllen = CONTROL as _;
    // SAFETY: the kernel writes into `bytes` and the control buffer, both as long as `message` says
    // and alive during the call.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the control buffer with whole messages up to `msg_controllen`,
    // which the macros walk; descriptors in it are new and nobody else's.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(h) = header.as_ref() {
            if (h.cmsg_level, h.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let len = h.cmsg_len - libc::CMSG_LEN(0) as usize;
                let at = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..len / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(at.add(i).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((n as usize, fds))
}

/// The user and the process at the other end of a connected socket.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<(libc::uid_t, libc::pid_t)> {
    let unknown = libc::ucred { pid: 0, uid: 0, gid: 0 };
    get_option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, unknown)
        .map(|peer| (peer.uid, peer.pid))
}

/// Connects to an abstract name, without waiting: `WouldBlock` if whoever has it does not take
/// connections as fast as they come.
pub(crate) fn connect(name: &str) -> io::Result<UnixStream> {
    // SAFETY: plain old data for which all zeros are a value.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // Abstract names begin with a zero byte and end with the address.
    let places = address.sun_path.iter_mut().skip(1);
    places.zip(name.bytes()).for_each(|(place, byte)| *place = byte as _);
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    assert!(len <= size_of::<libc::sockaddr_un>(), "a name that fits");
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes three numbers; a descriptor that it returns is new and nobody else's.
    let socket =
        unsafe { check(libc::socket(libc::AF_UNIX, kind, 0)).map(|fd| OwnedFd::from_raw_fd(fd))? };
    // SAFETY: the pointer and length describe a part of `address`.
    check(unsafe {
        libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len as socklen_t)
    })?;
    Ok(UnixStream::from(socket))
}

/// The effective user of this process.
pub(crate) fn own_user() -> libc::uid_t {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// An empty file in memory, closed on exec.
pub(crate) fn memfd() -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; a descriptor that it returns is new and nobody else's.
    unsafe {
        check(libc::memfd_create(c"crocevia".as_ptr(), libc::MFD_CLOEXEC))
            .map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Takes (or gives back) the lock on one byte of a file for this process, without waiting; whether
/// it was free. The lock ends with the process, and with the closing of any of its descriptors of
/// the file (`fcntl(2)`, traditional locks).
pub(crate) fn lock_byte(file: BorrowedFd<'_>, byte: u8, take: bool) -> bool {
    // SAFETY: plain old data for which all zeros are a value.
    let mut lock: libc::flock = unsafe { zeroed() };
    let kind = if take { libc::F_WRLCK } else { libc::F_UNLCK };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = byte.into();
    lock.l_len = 1;
    // SAFETY: the pointer is to `lock`, which outlives the call.
    let result: c_int = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
    result == 0
}

/// Whether another process has the lock on one byte of a file.
pub(crate) fn is_byte_locked(file: BorrowedFd<'_>, byte: u8) -> bool {
    // SAFETY: plain old data for which all zeros are a value.
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = byte.into();
    lock.l_len = 1;
    // SAFETY: the pointer is to `lock`, which outlives the call; the kernel writes it.
    let result: c_int = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    result == 0 && c_int::from(lock.l_type) != libc::F_UNLCK
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn descriptors_arrive_as_what_they_were() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut ends, mut others): (Vec<UnixStream>, Vec<UnixStream>) =
            (0..MOST).map(|_| UnixStream::pair().unwrap()).unzip();
        let fds: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
        send(a.as_fd(), b"hello", &fds).unwrap();
        let mut bytes = [0; 16];
        let (n, got) = receive(b.as_fd(), &mut bytes).unwrap();
        assert_eq!((&bytes[..n], got.len()), (&b"hello"[..], MOST));
        ends.clear();
        for (i, fd) in got.into_iter().enumerate() {
            UnixStream::from(fd).write_all(&[i as u8]).unwrap();
            let mut byte = [0];
            others[i].read_exact(&mut byte).unwrap();
            assert_eq!(byte, [i as u8]);
        }
        send(a.as_fd(), b"bare", &[]).unwrap();
        let (n, got) = receive(b.as_fd(), &mut bytes).unwrap();
        assert_eq!((&bytes[..n], got.len()), (&b"bare"[..], 0));
        drop(a);
        assert_eq!(receive(b.as_fd(), &mut bytes).unwrap().0, 0);
        assert!(send(b.as_fd(), b"x", &[]).is_err());
    }

    #[test]
    fn connecting_never_waits() {
        let name = format!("crocevia-test/{}", std::process::id());
        assert_eq!(connect(&name).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let mut one = connect(&name).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        other.write_all(b"x").unwrap();
        one.set_nonblocking(false).unwrap();
        one.read_exact(&mut [0]).unwrap();
        let mut many = Vec::new();
        let full = loop {
            match connect(&name) {
                Ok(one) => many.push(one),
                Err(e) => break e.kind(),
            }
        };
        assert_eq!(full, io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_other_end_is_known() {
        let (a, _b) = UnixStream::pair().unwrap();
        let (user, process) = peer(a.as_fd()).unwrap();
        assert_eq!((user, process as u32), (own_user(), std::process::id()));
        assert!(peer(memfd().unwrap().as_fd()).is_err());
    }

    #[test]
    fn a_process_may_lock_a_byte_again_and_give_it_back() {
        let file = memfd().unwrap();
        for byte in [0, 63, 255] {
            assert!(lock_byte(file.as_fd(), byte, true));
            assert!(lock_byte(file.as_fd(), byte, true), "locks are of the process");
            assert!(!is_byte_locked(file.as_fd(), byte), "only others' are told of");
            assert!(lock_byte(file.as_fd(), byte, false));
        }
    }
}
