//! Listening in a network of the test's own: what is sent there is seen once, whole, with its
//! segments; what ends it. Skipped where no network can be made.

use std::io::{Write, pipe};
use std::net::UdpSocket;

use super::*;
use crate::testing::{own_network, set_up};

/// A frame that keeps its bytes.
type Seen = (Vec<u8>, u32, Option<u16>, bool, u64);

fn next(socket: &mut PacketSocket) -> Vec<Seen> {
    let (stop, _keep) = pipe().expect("a pipe");
    let mut seen = Vec::new();
    let going = socket.receive(stop.as_fd(), &mut |f| {
        seen.push((f.bytes.to_vec(), f.original_len, f.segment, f.outgoing, f.time_ns));
    });
    assert!(going.expect("frames"));
    seen
}

fn sender(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(("127.0.0.2", port)).expect("a way");
    socket
}

fn in_own_network(test: fn()) {
    std::thread::spawn(move || {
        if own_network() {
            test();
        } else {
            eprintln!("skipped: no network namespaces here");
        }
    })
    .join()
    .expect("the test");
}

#[test]
fn frames_are_seen_once_and_whole() {
    in_own_network(|| {
        let mut socket = PacketSocket::open("lo", false).expect("lo");
        assert_eq!((socket.link(), socket.interface()), (FrameLink::Ethernet, "lo"));
        let _other = sender(53).send(&[7; 100]);
        let before = sys::realtime_ns();
        let _receiver = UdpSocket::bind("127.0.0.2:4791").expect("the port");
        let roce = sender(4791);
        roce.send(&[9; 1000]).expect("sent");
        let seen = next(&mut socket);
        let [(bytes, len, None, false, time)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((bytes.len(), *len), (14 + 28 + 1000, 14 + 28 + 1000));
        assert_eq!(bytes[36..38], 4791_u16.to_be_bytes());
        assert!((before..before + 60_000_000_000).contains(time), "{before} {time}");

        let fd = roce.as_fd();
        sys::set_int(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 1044).expect("segments");
        roce.send(&[9; 10_000]).expect("sent");
        let seen = next(&mut socket);
        assert!(seen.iter().all(|(.., outgoing, _)| !outgoing));
        if socket.offload {
            assert_eq!((seen[0].0.len(), seen[0].2), (14 + 28 + 10_000, Some(1044)));
        }
        assert_eq!(socket.dropped(), 0);
    });
}

#[test]
fn what_finds_no_room_is_counted() {
    in_own_network(|| {
        let mut socket = PacketSocket::open("lo", false).expect("lo");
        let fd = socket.socket.as_fd();
        sys::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 1).expect("a small buffer");
        let _receiver = UdpSocket::bind("127.0.0.2:4791").expect("the port");
        let roce = sender(4791);
        for _ in 0..200 {
            roce.send(&[9; 1000]).expect("sent");
        }
        let seen = next(&mut socket).len() as u64;
        assert!(seen < 200, "{seen}");
        assert_eq!(socket.dropped(), 200 - seen);
        assert_eq!(socket.dropped(), 200 - seen);
    });
}

#[test]
fn it_ends_when_it_is_told_or_the_interface_goes_down() {
    in_own_network(|| {
        let mut socket = PacketSocket::open("lo", true).expect("lo");
        let (stop, mut teller) = pipe().expect("a pipe");
        teller.write_all(b"x").expect("written");
        let none = &mut |_: Frame<'_>| panic!("nothing was sent");
        assert!(!socket.receive(stop.as_fd(), none).expect("no fault"));
        let (stop, teller) = pipe().expect("a pipe");
        drop(teller);
        assert!(!socket.receive(stop.as_fd(), none).expect("no fault"));

        let (stop, _teller) = pipe().expect("a pipe");
        assert!(set_up(false));
        let end = socket.receive(stop.as_fd(), none);
        assert!(matches!(end, Err(PacketError::Down)), "{end:?}");
        let again = PacketSocket::open("lo", false);
        assert!(matches!(again, Err(PacketError::Down)), "{again:?}");
        let unknown = PacketSocket::open("eth9", false);
        let Err(PacketError::NoInterface(there)) = unknown else { panic!("{unknown:?}") };
        assert_eq!(there, ["lo"]);
    });
}

#[test]
fn refusal_is_told_from_other_errors() {
    let of = |number| PacketError::from(io::Error::from_raw_os_error(number));
    assert!(matches!(of(libc::EPERM), PacketError::NotPermitted));
    assert!(matches!(of(libc::ENETDOWN), PacketError::Down));
    assert!(matches!(of(libc::ENOBUFS), PacketError::System(_)));
}
