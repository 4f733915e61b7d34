//! Batches of messages on datagram sockets: `sendmmsg` with a segment size per message, `recvmmsg`
//! into large buffers with the segment size, traffic class and hop limit that came along.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_uint, c_void, socklen_t};

/// Messages that one send call takes.
pub(crate) const MAX_SEND: usize = 16;
/// Messages that one receive call brings.
pub(crate) const MAX_RECEIVE: usize = 4;
/// Bytes of one receive buffer: nothing that UDP can carry is longer.
pub(crate) const RECEIVE_LEN: usize = 1 << 16;

/// Room for the control messages of one message: five of at most 24 bytes.
const CONTROL_LEN: usize = 128;

/// A message to be sent: a part of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outgoing {
    /// First byte in the buffer.
    pub(crate) start: usize,
    /// Bytes.
    pub(crate) len: usize,
    /// The kernel cuts the message into datagrams of so many bytes; 0: it is one datagram.
    pub(crate) segment: u16,
    /// Where it goes.
    pub(crate) to: SocketAddr,
    /// TOS or traffic class byte.
    pub(crate) traffic_class: u8,
    /// TTL or hop limit; 0: the system's default.
    pub(crate) hop_limit: u8,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

fn name_of(to: SocketAddr) -> (Name, socklen_t) {
    match to {
        SocketAddr::V4(a) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: a.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                sin_zero: [0; 8],
            };
            (Name { v4 }, size_of::<libc::sockaddr_in>() as socklen_t)
        }
        SocketAddr::V6(a) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: a.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                sin6_scope_id: a.scope_id(),
            };
            (Name { v6 }, size_of::<libc::sockaddr_in6>() as socklen_t)
        }
    }
}

/// Size of a control message header with its padding, and what the next message is aligned to.
const HEADER: usize = size_of::<libc::cmsghdr>().next_multiple_of(ALIGN);
const ALIGN: usize = size_of::<usize>();

impl Control {
    /// Appends a control message at `at`; where the next one goes.
    fn put(&mut self, at: usize, level: c_int, kind: c_int, data: &[u8]) -> usize {
        let end = at + HEADER + data.len();
        assert!(end <= CONTROL_LEN);
        // SAFETY: plain old data for which all zeros are a value.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_len = (HEADER + data.len()) as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: `at + size of a header` is within the array by the assertion above.
        unsafe { self.0.as_mut_ptr().add(at).cast::<libc::cmsghdr>().write_unaligned(header) };
        self.0[at + HEADER..end].copy_from_slice(data);
        end.next_multiple_of(ALIGN)
    }

    /// Writes what goes along with `message`; the bytes used.
    fn fill(&mut self, message: &Outgoing) -> usize {
        let mut at = 0;
        if message.segment != 0 {
            let size = message.segment.to_ne_bytes();
            at = self.put(at, libc::SOL_UDP, libc::UDP_SEGMENT, &size);
        }
        let (level, class, hops) = match message.to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        if message.traffic_class != 0 {
            let value = c_int::from(message.traffic_class).to_ne_bytes();
            at = self.put(at, level, class, &value);
        }
        if message.hop_limit != 0 {
            at = self.put(at, level, hops, &c_int::from(message.hop_limit).to_ne_bytes());
        }
        at
    }
}

/// Sends up to [`MAX_SEND`] of `messages`, which are parts of `buffer`, in order and without
/// waiting; how many were taken by the kernel (at least one).
///
/// # Errors
/// Why the first message could not be sent.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    buffer: &[u8],
    messages: impl Iterator<Item = Outgoing>,
) -> io::Result<usize> {
    let mut count = 0;
    let mut names = [const { MaybeUninit::<Name>::uninit() }; MAX_SEND];
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_SEND];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MAX_SEND];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_SEND];
    for (i, message) in messages.take(MAX_SEND).enumerate() {
        let bytes = &buffer[message.start..message.start + message.len];
        let (name, name_len) = name_of(message.to);
        let name = names[i].write(name);
        let part = parts[i].write(libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: bytes.len(),
        });
        let control = controls[i].write(Control([0; CONTROL_LEN]));
        let control_len = control.fill(&message);
        // SAFETY: plain old data for which all zeros are a value.
        let mut header: libc::mmsghdr = unsafe { zeroed() };
        header.msg_hdr.msg_name = std::ptr::from_mut(name).cast::<c_void>();
        header.msg_hdr.msg_namelen = name_len;
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        if control_len > 0 {
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast::<c_void>();
            header.msg_hdr.msg_controllen = control_len as _;
        }
        headers[i].write(header);
        count += 1;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let headers = headers.as_mut_ptr().cast::<libc::mmsghdr>();
    loop {
        // SAFETY: the first `count` headers have been written; each points into the arrays
        // above and into `buffer`, which outlive the call and are only read by it. One message goes
        // by the simpler call.
        let sent = unsafe {
            match count {
                0 => return Ok(0),
                1 => libc::sendmsg(fd.as_raw_fd(), &raw const (*headers).msg_hdr, flags).min(1),
                n => libc::sendmmsg(fd.as_raw_fd(), headers, n as c_uint, flags as _) as isize,
            }
        };
        if sent >= 0 {
            return Ok(count.min(sent.max(1) as usize));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// What came along with a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Incoming {
    /// Bytes.
    pub(crate) len: usize,
    /// The message consists of datagrams of so many bytes, the last one perhaps shorter.
    pub(crate) segment: usize,
    /// Who sent it.
    pub(crate) from: IpAddr,
    /// From which port.
    pub(crate) source_port: u16,
    /// TOS or traffic class byte.
    pub(crate) traffic_class: u8,
    /// TTL or hop limit.
    pub(crate) hop_limit: u8,
    /// IPv6 flow label.
    pub(crate) flow_label: u32,
    /// Datagrams that the kernel has dropped on this socket so far (modulo 2^32), if it said so.
    pub(crate) dropped: Option<u32>,
    /// Whether the message or what came along did not fit.
    pub(crate) truncated: bool,
}

/// Buffers for received messages.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    messages: [Incoming; MAX_RECEIVE],
}

impl Inbox {
    /// Empty buffers.
    pub(crate) fn new() -> Self {
        let none = Incoming {
            len: 0,
            segment: 0,
            from: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            source_port: 0,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            dropped: None,
            truncated: false,
        };
        Self { bytes: vec![0; MAX_RECEIVE * RECEIVE_LEN], messages: [none; MAX_RECEIVE] }
    }

    /// Receives at most `want` messages (1..=[`MAX_RECEIVE`]) without waiting; how many came.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>, want: usize) -> io::Result<usize> {
        match want.clamp(1, MAX_RECEIVE) {
            1 => self.receive_one(fd),
            want => self.receive_many(fd, want),
        }
    }

    /// By the simpler call, with little to prepare: who polls does it all the time.
    fn receive_one(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut place = Place::new();
        let mut header = place.header(&mut self.bytes[..RECEIVE_LEN]);
        // SAFETY: the header points to buffers of the lengths given, which outlive the call.
        let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        if len < 0 {
            return Err(io::Error::last_os_error());
        }
        self.messages[0] = place.incoming(&header, len as usize);
        Ok(1)
    }

    fn receive_many(&mut self, fd: BorrowedFd<'_>, want: usize) -> io::Result<usize> {
        let mut places = [const { Place::new() }; MAX_RECEIVE];
        // SAFETY: plain old data for which all zeros are a value.
        let mut headers: [libc::mmsghdr; MAX_RECEIVE] = unsafe { zeroed() };
        let buffers = self.bytes.chunks_exact_mut(RECEIVE_LEN);
        for ((header, place), buffer) in headers.iter_mut().zip(&mut places).zip(buffers) {
            header.msg_hdr = place.header(buffer);
        }
        let none = std::ptr::null_mut();
        // SAFETY: `want` headers at least have been filled in; each points to buffers of the
        // lengths given, all different, which outlive the call. No timeout.
        let received = unsafe {
            let flags = libc::MSG_DONTWAIT as _;
            libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), want as c_uint, flags, none)
        };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let received = (received as usize).min(MAX_RECEIVE);
        for (i, (header, place)) in headers.iter().zip(&places).take(received).enumerate() {
            self.messages[i] = place.incoming(&header.msg_hdr, header.msg_len as usize);
        }
        Ok(received)
    }

    /// A received message.
    pub(crate) fn message(&self, index: usize) -> (&Incoming, &[u8]) {
        let message = &self.messages[index];
        (message, &self.bytes[index * RECEIVE_LEN..][..message.len])
    }
}

/// What the kernel writes besides a message's bytes.
struct Place {
    name: MaybeUninit<libc::sockaddr_in6>,
    part: MaybeUninit<libc::iovec>,
    /// Zeroed: the kernel leaves gaps between what it writes.
    control: Control,
}

impl Place {
    const fn new() -> Self {
        let control = Control([0; CONTROL_LEN]);
        Self { name: MaybeUninit::zeroed(), part: MaybeUninit::uninit(), control }
    }

    /// The header to receive a message into `buffer` by; good for as long as nothing moves.
    fn header(&mut self, buffer: &mut [u8]) -> libc::msghdr {
        // SAFETY: plain old data for which all zeros are a value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_name = self.name.as_mut_ptr().cast::<c_void>();
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as socklen_t;
        header.msg_iov = self.part.write(libc::iovec {
            iov_base: buffer.as_mut_ptr().cast::<c_void>(),
            iov_len: buffer.len(),
        });
        header.msg_iovlen = 1;
        header.msg_control = self.control.0.as_mut_ptr().cast::<c_void>();
        header.msg_controllen = CONTROL_LEN as _;
        header
    }

    /// What came, `len` bytes.
    #[allow(clippy::unnecessary_cast)] // Another type with other C libraries.
    fn incoming(&self, header: &libc::msghdr, len: usize) -> Incoming {
        // SAFETY: zeroed when made, perhaps overwritten by the kernel.
        let name = unsafe { self.name.assume_init_ref() };
        let (from, source_port) = address_of(name);
        let mut message = Incoming {
            len: len.min(RECEIVE_LEN),
            segment: 0,
            from,
            source_port,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            dropped: None,
            truncated: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        };
        let used = (header.msg_controllen as usize).min(CONTROL_LEN);
        read_control(&self.control.0[..used], &mut message);
        if message.segment == 0 {
            message.segment = message.len;
        }
        message
    }
}

fn address_of(name: &libc::sockaddr_in6) -> (IpAddr, u16) {
    if c_int::from(name.sin6_family) == libc::AF_INET6 {
        (Ipv6Addr::from(name.sin6_addr.s6_addr).into(), u16::from_be(name.sin6_port))
    } else {
        // SAFETY: any other family is AF_INET, whose structure is shorter and begins alike; both
        // are plain old data.
        let v4 = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in>() };
        (Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into(), u16::from_be(v4.sin_port))
    }
}

fn read_control(mut control: &[u8], message: &mut Incoming) {
    while control.len() >= HEADER {
        // SAFETY: at least the size of a header is left; any bytes are a header.
        let header = unsafe { control.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast)] // Another type with other C libraries.
        let len = header.cmsg_len as usize;
        let Some(data) = control.get(HEADER..len) else { return };
        // Some values come as one byte, some as an integer.
        let value = match *data {
            [byte] => u32::from(byte),
            [a, b, c, d, ..] => u32::from_ne_bytes([a, b, c, d]),
            _ => 0,
        };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => message.segment = value as usize,
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                message.traffic_class = value as u8;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                message.hop_limit = value as u8;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO) => {
                message.flow_label = u32::from_be(value) & 0xF_FFFF;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => message.dropped = Some(value),
            _ => {}
        }
        control = control.get(len.next_multiple_of(ALIGN)..).unwrap_or(&[]);
    }
}
