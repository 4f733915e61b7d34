//! Answers as text there and back, whatever bytes come instead, and the kernel's table of sockets.

use engine::{CqId, QpCounters, QpState, QpType};
use wire::{Gid, Mac, Mtu, Psn, Qpn};

use super::text::{self, NotAnAnswer};
use super::*;
use crate::netdev::NetDev;

fn info() -> DeviceInfo {
    let gid = |text: &str| engine::GidEntry {
        gid: Gid::from_ip(text.parse().unwrap()),
        encapsulation: wire::Encapsulation::RoceV2,
    };
    let empty = engine::GidEntry { gid: Gid::default(), ..gid("127.0.73.1") };
    DeviceInfo {
        name: "crocevia3".into(),
        index: 3,
        netdev: NetDev {
            name: "eth\n0".into(),
            index: 7,
            mtu: 1500,
            up: true,
            loopback: false,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            addrs: Vec::new(),
            speed_mbps: None,
        },
        gids: vec![gid("127.0.73.1"), empty, gid("fd00::1")],
        guid: 1,
        mtu: Mtu::B1024,
    }
}

fn snapshot() -> Snapshot {
    Snapshot {
        uptime: Duration::from_millis(1500),
        objects: Objects { qps: 2, cqs: 1, srqs: 0, departed: 5 },
        counters: Counters { rx_packets: u64::MAX, out_of_buffer: 3, ..Counters::default() },
        link: LinkCounters { rx_packets: 9, rx_icrc_encapsulated: 4, ..LinkCounters::default() },
    }
}

fn report(connected: bool) -> QpReport {
    let gid = |text: &str| Gid::from_ip(text.parse().unwrap());
    let mut counters = QpCounters::default();
    counters.traffic.tx_bytes = 1 << 40;
    counters.exceptions.rx_stale_ack = 2;
    QpReport {
        qpn: Qpn::new(0x12_3456),
        qp_type: QpType::Rc,
        state: QpState::Rts,
        path: connected.then_some((gid("fd00::1"), gid("fd00::2"))),
        dest_qp: connected.then_some(Qpn::new(17)),
        mtu: 1024,
        unacknowledged: Psn::new(10),
        next: Psn::new(20),
        expected: Psn::new(30),
        msn: wire::Msn::new(40),
        in_flight: 10,
        send_queue: (3, 128),
        recv_queue: (0, 64),
        srq: None,
        send_cq: CqId(1),
        recv_cq: CqId(2),
        retries_left: 7,
        rate: None,
        peer_not_ready: false,
        counters,
    }
}

/// An answer, whole.
fn answer(qps: &[QpReport]) -> String {
    let mut out = String::new();
    text::head(&mut out, "a prog\u{1b}[31m\nlink x 1", &info(), &snapshot());
    qps.iter().for_each(|qp| text::qp(&mut out, qp));
    text::end(&mut out);
    out
}

#[test]
fn an_answer_is_understood() {
    let stat = text::parse(answer(&[report(true), report(false)]).as_bytes()).unwrap();
    assert_eq!(stat.command, "a prog?[31m?link x 1", "no line and no terminal is fooled");
    assert_eq!((stat.device.as_str(), stat.netdev.as_str()), ("crocevia3", "eth?0"));
    assert_eq!(stat.addresses, ["127.0.73.1", "fd00::1"]);
    assert_eq!((stat.mtu, stat.uptime), (1024, Duration::from_millis(1500)));
    assert_eq!(stat.objects[0], ("qps".to_owned(), 2));
    assert_eq!(stat.counters.len(), Counters::INFO.len());
    assert_eq!(stat.counter("rx_packets"), u64::MAX);
    assert_eq!((stat.counter("out_of_buffer"), stat.counter("no_such")), (3, 0));
    assert_eq!(stat.link.len(), LinkCounters::INFO.len());
    assert_eq!(
        (stat.link_counter("rx_packets"), stat.link_counter("rx_icrc_encapsulated")),
        (9, 4)
    );
    let [connected, alone] = &stat.qps[..] else { panic!("{:?}", stat.qps) };
    assert_eq!(connected.qpn, 0x12_3456);
    assert_eq!((connected.fact("state"), connected.fact("peer")), (Some("RTS"), Some("fd00::2")));
    assert_eq!((connected.fact("peer_qpn"), alone.fact("peer_qpn")), (Some("17"), None));
    assert_eq!((connected.fact("send_queue"), connected.fact("sq_psn")), (Some("3"), Some("20")));
    let all = QpCounters::default().iter().count();
    assert_eq!(connected.counters.len(), all, "also those that are 0");
    assert_eq!((connected.counter("tx_bytes"), connected.counter("rx_stale_ack")), (1 << 40, 2));
}

#[test]
fn what_another_version_says_besides_is_skipped_or_taken() {
    let text = answer(&[report(true)])
        .replace("mtu 1024", "mtu 1024\nsomething new 1 2 3\ncounter new_one 5")
        .replace(" counters", " colour=red counters new_too=6");
    let stat = text::parse(text.as_bytes()).unwrap();
    assert_eq!(stat.counter("new_one"), 5);
    assert_eq!((stat.qps[0].fact("colour"), stat.qps[0].counter("new_too")), (Some("red"), 6));
}

#[test]
fn no_bytes_do_harm() {
    let whole = answer(&[report(true)]).into_bytes();
    for end in 0..whole.len() {
        assert_eq!(text::parse(&whole[..end]), Err(NotAnAnswer::Cut), "{end}");
    }
    let garbage: [&[u8]; 8] = [
        b"crocevia-stat 2\nend\n",
        b"hello\n",
        b"\xff\xfe\n\0end\n",
        b"crocevia-stat 1\ncounter x\nend\n",
        b"crocevia-stat 1\ncounter X-Y 1\nend\n",
        b"crocevia-stat 1\ncounter a 18446744073709551616\nend\n",
        b"crocevia-stat 1\nqp\nend\n",
        b"crocevia-stat 1\nqp 1 a counters b=c\nend\n",
    ];
    for bytes in garbage {
        assert_eq!(text::parse(bytes), Err(NotAnAnswer::Foreign), "{bytes:?}");
    }
    // Each byte changed in turn, in a few ways: a result, whichever.
    let mut bytes = whole.clone();
    for at in 0..bytes.len() {
        for change in [1, 0x20, 0x80, 0xFF] {
            bytes[at] ^= change;
            let _ = text::parse(&bytes);
            bytes[at] ^= change;
        }
    }
    let long = format!("crocevia-stat 1\ndevice {}\nend\n", "x".repeat(1 << 20));
    assert_eq!(text::parse(long.as_bytes()).unwrap().device.len(), 256);
}

#[test]
fn requests_are_these_and_no_others() {
    for want in [Want::Device, Want::Qps] {
        let line = want.line();
        assert!(line.len() <= LONGEST_REQUEST && line.ends_with('\n'));
        assert_eq!(Want::parse(line.trim_end().as_bytes()), Some(want));
    }
    for bad in ["", "crocevia-stat 1", "crocevia-stat 1 all", "crocevia-stat 2 qps", "qps"] {
        assert_eq!(Want::parse(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn the_kernels_table_is_read() {
    let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 1 @crocevia/stat/7/123/crocevia0/0\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 2 @crocevia/stat/7/124/crocevia0/0\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 3 @crocevia/stat/7/125/c\u{1b}[0m/0\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 4 @crocevia/stat/x/126/crocevia0/0\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 5 @crocevia/stat/7/127/crocevia1/3\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 6 @crocevia/4791/127.0.0.1/0\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 7 /run/crocevia/stat/7/9/x/0\n\
        0000000000000000: 00000002 00000000 00010000 0005 01 8\n\
        \n\
        nonsense\n";
    let found: Vec<_> = client::names(table).into_iter().map(|n| (n.pid, n.device)).collect();
    assert_eq!(found, [(123, "crocevia0".to_owned()), (127, "crocevia1".to_owned())]);
}
