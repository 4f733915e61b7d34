//! Frames in batches: `recvmmsg` into large buffers, and what the kernel tells beside each frame:
//! time, direction, the tag that it took off, how it will be cut. No decisions about the socket.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_uint, c_void, socklen_t};

use super::Frame;
use crate::sys;

/// Frames of one call.
const BATCH: usize = 32;
/// Bytes of a frame that are kept: a train of segments is a datagram of 64 KiB at most, headers
/// and a tunnel's around it.
const FRAME_LEN: usize = (1 << 16) + 512;
/// Bytes before a frame that a tag is put back into.
const ROOM: usize = TAG_LEN;
const TAG_LEN: usize = 4;
/// Bytes of both Ethernet addresses, behind which tags stand.
const MACS_LEN: usize = 12;
/// Bytes of `struct virtio_net_hdr`.
const OFFLOAD_LEN: usize = 10;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: UDP that is cut into datagrams; and the bit that may stand beside.
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;
const CUSTOMER_TAG: u16 = 0x8100;

/// Room for the control messages of one frame: a time and `struct tpacket_auxdata`.
const CONTROL_LEN: usize = 96;
const HEADER: usize = size_of::<libc::cmsghdr>().next_multiple_of(ALIGN);
const ALIGN: usize = size_of::<usize>();

/// What the kernel writes beside a frame's bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Beside {
    control: [u8; CONTROL_LEN],
    offload: [u8; OFFLOAD_LEN],
}

/// What comes along in control messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Told {
    time_ns: Option<u64>,
    /// Bytes of the frame, without a tag that was taken off.
    len: Option<u32>,
    /// Tag protocol and control information.
    tag: Option<(u16, u16)>,
}

/// Buffers for frames.
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Empty buffers. What no frame reaches takes no memory.
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BATCH * (ROOM + FRAME_LEN)] }
    }

    /// Receives without waiting and hands on what came; whether there may be more.
    ///
    /// `offload` tells whether frames have an offload header before them, and `tags` whether there
    /// is an Ethernet header to put tags back into.
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        (offload, tags): (bool, bool),
        take: &mut dyn FnMut(Frame<'_>),
    ) -> io::Result<bool> {
        let mut beside = [Beside { control: [0; CONTROL_LEN], offload: [0; OFFLOAD_LEN] }; BATCH];
        let mut names = [const { MaybeUninit::<libc::sockaddr_ll>::zeroed() }; BATCH];
        // SAFETY: plain old data for which all zeros are a value.
        let mut parts: [[libc::iovec; 2]; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let buffers = self.bytes.chunks_exact_mut(ROOM + FRAME_LEN);
        for (i, buffer) in buffers.enumerate() {
            let before = if offload { OFFLOAD_LEN } else { 0 };
            parts[i][0].iov_base = beside[i].offload.as_mut_ptr().cast::<c_void>();
            parts[i][0].iov_len = before;
            parts[i][1].iov_base = buffer[ROOM..].as_mut_ptr().cast::<c_void>();
            parts[i][1].iov_len = FRAME_LEN;
            let header = &mut headers[i].msg_hdr;
            header.msg_name = names[i].as_mut_ptr().cast::<c_void>();
            header.msg_namelen = size_of::<libc::sockaddr_ll>() as socklen_t;
            header.msg_iov = parts[i].as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = beside[i].control.as_mut_ptr().cast::<c_void>();
            header.msg_controllen = CONTROL_LEN as _;
        }
        let none = std::ptr::null_mut();
        // SAFETY: all headers have been filled in; each points to buffers of the lengths given, all
        // different, which outlive the call. No timeout.
        let received = unsafe {
            let flags = libc::MSG_DONTWAIT as _;
            libc::recvmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), BATCH as c_uint, flags, none)
        };
        let received = sys::check(received)? as usize;
        let buffers = self.bytes.chunks_exact_mut(ROOM + FRAME_LEN);
        for (i, buffer) in buffers.take(received).enumerate() {
            let header = &headers[i];
            #[allow(clippy::unnecessary_cast)] // Another type with other C libraries.
            let used = (header.msg_hdr.msg_controllen as usize).min(CONTROL_LEN);
            let told = read_control(&beside[i].control[..used]);
            let before = if offload { OFFLOAD_LEN } else { 0 };
            let len = (header.msg_len as usize).saturating_sub(before).min(FRAME_LEN);
            // SAFETY: zeroed when made, perhaps overwritten by the kernel.
            let kind = unsafe { names[i].assume_init_ref() }.sll_pkttype;
            let segment = if offload { segment(&beside[i].offload) } else { None };
            let tag = told.tag.filter(|_| tags);
            let original = told.len.unwrap_or(len as u32);
            take(Frame {
                time_ns: told.time_ns.unwrap_or_else(sys::realtime_ns),
                original_len: original + if tag.is_some() { TAG_LEN as u32 } else { 0 },
                outgoing: kind == libc::PACKET_OUTGOING,
                segment,
                bytes: tagged(&mut buffer[..ROOM + len], tag),
            });
        }
        Ok(received == BATCH)
    }
}

/// The frame behind the room at the front of `buffer`, with the tag that it had on the link.
fn tagged(buffer: &mut [u8], tag: Option<(u16, u16)>) -> &[u8] {
    match tag {
        Some((protocol, control)) if buffer.len() >= ROOM + MACS_LEN => {
            buffer.copy_within(ROOM..ROOM + MACS_LEN, ROOM - TAG_LEN);
            let place = ROOM - TAG_LEN + MACS_LEN;
            buffer[place..place + 2].copy_from_slice(&protocol.to_be_bytes());
            buffer[place + 2..place + TAG_LEN].copy_from_slice(&control.to_be_bytes());
            &buffer[ROOM - TAG_LEN..]
        }
        _ => &buffer[ROOM..],
    }
}

/// The payload of each datagram that a frame will be cut into, by its offload header.
fn segment(offload: &[u8; OFFLOAD_LEN]) -> Option<u16> {
    let [_, kind, _, _, a, b, ..] = *offload;
    let size = u16::from_ne_bytes([a, b]);
    (kind & !GSO_ECN == GSO_UDP && size > 0).then_some(size)
}

fn read_control(mut control: &[u8]) -> Told {
    let mut told = Told::default();
    while control.len() >= HEADER {
        // SAFETY: at least the size of a header is left; any bytes are a header.
        let header = unsafe { control.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast)] // Another type with other C libraries.
        let len = header.cmsg_len as usize;
        let Some(data) = control.get(HEADER..len) else { break };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => told.time_ns = time(data),
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => auxiliary(data, &mut told),
            _ => {}
        }
        control = control.get(len.next_multiple_of(ALIGN)..).unwrap_or(&[]);
    }
    told
}

/// A `struct timespec`, of two words of 64 or of 32 bits.
fn time(data: &[u8]) -> Option<u64> {
    let (seconds, ns) = match *data {
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] => (
            i64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            i64::from_ne_bytes([i, j, k, l, m, n, o, p]),
        ),
        [a, b, c, d, e, f, g, h] => {
            (i32::from_ne_bytes([a, b, c, d]).into(), i32::from_ne_bytes([e, f, g, h]).into())
        }
        _ => return None,
    };
    let (seconds, ns) = (u64::try_from(seconds).ok()?, u64::try_from(ns).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// A `struct tpacket_auxdata`.
fn auxiliary(data: &[u8], told: &mut Told) {
    let word =
        |at: usize| data.get(at..).and_then(<[u8]>::first_chunk).map(|w| u32::from_ne_bytes(*w));
    let half =
        |at: usize| data.get(at..).and_then(<[u8]>::first_chunk).map(|w| u16::from_ne_bytes(*w));
    let (Some(status), Some(len)) = (word(0), word(4)) else { return };
    told.len = Some(len);
    if status & libc::TP_STATUS_VLAN_VALID != 0 {
        let protocol = half(18).filter(|_| status & libc::TP_STATUS_VLAN_TPID_VALID != 0);
        told.tag = half(16).map(|control| (protocol.unwrap_or(CUSTOMER_TAG), control));
    }
}

#[cfg(test)]
mod tests {
    use libc::c_int;

    use super::*;

    fn control(level: c_int, kind: c_int, data: &[u8]) -> Vec<u8> {
        // SAFETY: plain old data for which all zeros are a value.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_len = (HEADER + data.len()) as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        let mut bytes = vec![0; (HEADER + data.len()).next_multiple_of(ALIGN)];
        // SAFETY: the vector is at least as long as a header.
        unsafe { bytes.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(header) };
        bytes[HEADER..HEADER + data.len()].copy_from_slice(data);
        bytes
    }

    fn auxdata(status: u32, len: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut data = Vec::new();
        data.extend([status, len, len].iter().flat_map(|word| word.to_ne_bytes()));
        data.extend([14_u16, 34, tci, tpid].iter().flat_map(|word| word.to_ne_bytes()));
        control(libc::SOL_PACKET, libc::PACKET_AUXDATA, &data)
    }

    #[test]
    fn a_tag_stands_again_where_it_stood() {
        let frame: Vec<u8> = (0..60).collect();
        let mut buffer = [&[0xEE; ROOM][..], &frame].concat();
        assert_eq!(tagged(&mut buffer, None), &frame[..]);
        let with = tagged(&mut buffer, Some((0x88A8, 0x6005))).to_vec();
        assert_eq!(with, [&frame[..12], &[0x88, 0xA8, 0x60, 5], &frame[12..]].concat());
        // A frame that is too short to have one stays as it is.
        for len in 0..12 {
            let mut buffer = [&[0xEE; ROOM][..], &frame[..len]].concat();
            assert_eq!(tagged(&mut buffer, Some((0x8100, 1))), &frame[..len]);
        }
    }

    #[test]
    fn what_comes_along_is_read() {
        let time = [1_700_000_000_i64, 123_456_789].map(i64::to_ne_bytes).concat();
        let both = [
            control(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time),
            auxdata(0x51, 1500, 0x6005, 0x88A8),
        ]
        .concat();
        let told = Told {
            time_ns: Some(1_700_000_000_123_456_789),
            len: Some(1500),
            tag: Some((0x88A8, 0x6005)),
        };
        assert_eq!(read_control(&both), told);
        // A tag whose protocol is not told is a customer's; the priority tag 0 is one too.
        assert_eq!(read_control(&auxdata(0x11, 60, 0, 0)).tag, Some((0x8100, 0)));
        assert_eq!(read_control(&auxdata(0x01, 60, 0x6005, 0x8100)).tag, None);
        for len in 0..both.len() {
            let told = read_control(&both[..len]);
            assert!(told.tag.is_none() || len >= both.len() - ALIGN, "{len}");
        }
        assert_eq!(read_control(&[]), Told::default());
    }

    #[test]
    fn only_udp_that_is_cut_has_a_segment() {
        let header = |kind: u8, size: u16| {
            let [a, b] = size.to_ne_bytes();
            [0, kind, 42, 0, a, b, 0, 0, 0, 0]
        };
        assert_eq!(segment(&header(5, 1044)), Some(1044));
        assert_eq!(segment(&header(0x85, 1044)), Some(1044));
        for (kind, size) in [(0, 1044), (1, 1448), (3, 1480), (4, 1428), (5, 0)] {
            assert_eq!(segment(&header(kind, size)), None, "{kind}");
        }
    }
}
