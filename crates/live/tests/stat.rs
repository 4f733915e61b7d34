//! What a process tells of its NICs, asked by itself: what was counted, and what those who mean ill
//! can do to it. A process of its own, because it looks at all of its sockets.
#![allow(unsafe_code)] // fork, waitpid, geteuid.

mod support;

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::{QpInit, QpType, SendOp};
use live::{DeviceStat, Query, Silence, Stats, query};
use support::{Side, own, pair};

/// Each test sees the NICs of the others otherwise.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn user() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// All that this process tells.
fn ask(qps: bool) -> Stats {
    let pid = Some(std::process::id());
    query(&Query { pid, qps, ..Query::default() }).unwrap()
}

/// What the NIC of a side tells.
fn of(side: &Side, qps: bool) -> DeviceStat {
    let stats = ask(qps);
    assert_eq!(stats.silent, []);
    let address = side.nic.info().gids[0].gid.to_ip().to_string();
    let found = stats.devices.into_iter().find(|stat| stat.addresses[0] == address);
    found.expect("the device is told of")
}

/// The names under which this process can be asked.
fn names() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/unix").unwrap();
    let own = format!("@crocevia/stat/{}/{}/", user(), std::process::id());
    let names = table.split_whitespace().filter(|word| word.starts_with(&own));
    let mut names: Vec<String> = names.map(|name| name[1..].to_owned()).collect();
    names.dedup();
    names
}

fn connect(name: &str) -> UnixStream {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Queue pairs beside the one that a side has.
fn more_qps(side: &Side, count: usize) {
    side.nic.control(|device, _| {
        let (_, init) = device.query_qp(side.qp).unwrap();
        let mut cap = init.cap;
        (cap.max_send_wr, cap.max_recv_wr) = (1, 1);
        for _ in 0..count {
            device.create_qp(&QpInit { qp_type: QpType::Rc, cap, ..init }).unwrap();
        }
    });
}

#[test]
fn a_process_tells_what_its_nics_have_counted() {
    let _alone = alone();
    let (a, b) = pair(own(1), own(2), "", 4096);
    for round in 0..10 {
        a.post(round, SendOp::Write(b.remote(0)), a.sge(0, 3000));
        a.success(round);
    }
    let (sent, received) = (of(&a, true), of(&b, true));
    assert_eq!(sent.pid, std::process::id());
    assert_eq!(sent.uid, user());
    assert!(!sent.command.is_empty());
    // On a loaded machine some is sent again.
    let again = sent.counter("retransmitted_bytes");
    assert_eq!(sent.counter("tx_write_requests"), 10);
    assert_eq!(sent.counter("tx_write_bytes") - again, 30_000);
    assert_eq!(received.counter("rx_write_requests"), 10);
    assert_eq!(received.counter("rx_bytes"), 30_000);
    assert_eq!(received.link_counter("rx_packets"), received.counter("rx_packets"));
    let [qp] = &sent.qps[..] else { panic!("{:?}", sent.qps) };
    assert_eq!(qp.qpn, a.qp.get());
    assert_eq!(qp.fact("state"), Some("RTS"));
    assert_eq!(qp.fact("peer"), Some(received.addresses[0].as_str()));
    assert_eq!(qp.counter("tx_bytes") - qp.counter("retransmitted_bytes"), 30_000);
    assert_eq!(sent.objects[0], ("qps".to_owned(), 1));
    assert!(of(&a, false).qps.is_empty());
    let other = Query { device: Some("nosuch".into()), ..Query::default() };
    assert_eq!(query(&other).unwrap(), Stats::default());
    let nobody = Query { pid: Some(u32::MAX - 1), ..Query::default() };
    assert_eq!(query(&nobody).unwrap(), Stats::default());
    drop((a, b));
    assert_eq!(ask(true), Stats::default(), "what is closed is told of no more");
    assert_eq!(names(), Vec::<String>::new());
}

#[test]
fn ten_thousand_queue_pairs_are_told_of_while_others_use_the_device() {
    let _alone = alone();
    let (a, b) = pair(own(3), own(4), "", 4096);
    more_qps(&a, 10_000);
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let start = Instant::now();
            (of(&a, true), start.elapsed())
        });
        let mut round = 0;
        while !asker.is_finished() || round < 100 {
            a.post(round, SendOp::Write(b.remote(0)), a.sge(0, 64));
            a.success(round);
            round += 1;
        }
        let (stat, took) = asker.join().unwrap();
        assert_eq!(stat.qps.len(), 10_001);
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
    a.assert_calm();
}

#[test]
fn every_packet_has_its_place() {
    let _alone = alone();
    let (a, b) = pair(own(7), own(8), "corrupt=10%,loss=3%,dup=5%,seed=5", 1 << 16);
    for round in 0..20 {
        a.post(round, SendOp::Write(b.remote(0)), a.sge(0, 60_000));
        a.success(round);
    }
    let stranger = UdpSocket::bind((own(9), 0)).unwrap();
    let mut bytes: Vec<u8> = (0..200).map(|i| (i * 7) as u8).collect();
    // Where the slot of the queue pair is; without, nobody receives it.
    bytes[5] = (b.qp.get() >> 16) as u8;
    for opcode in [0x04, 0x0A, 0x11, 0x15, 0x64, 0x81, 0xFF] {
        for len in [6, 12, 15, 16, 17, 40, 200] {
            for version in [0, 1] {
                (bytes[0], bytes[1]) = (opcode, version);
                stranger.send_to(&bytes[..len], (own(8), wire::ROCE_PORT)).unwrap();
            }
        }
    }
    let before = of(&b, false).link_counter("rx_packets");
    let start = Instant::now();
    while of(&b, false).link_counter("rx_packets") < before + 98 {
        b.nic.progress();
        if start.elapsed() > Duration::from_secs(1) {
            // Some came before the first look.
            break;
        }
    }
    for side in [&a, &b] {
        let (stat, c) = (of(side, false), side.counters());
        let link = side.nic.link_counters();
        let passed = link.rx_packets + link.faults_rx_duplicated - link.faults_rx_lost;
        assert_eq!(passed, link.rx_strays + link.dropped() + c.rx_packets, "{stat:?}");
        assert!(link.rx_icrc_encapsulated > 0 && link.faults_rx_duplicated > 0);
    }
    let link = b.nic.link_counters();
    let causes = [link.rx_truncated, link.rx_wrong_version, link.rx_unknown_opcode];
    assert!(causes.iter().all(|&count| count > 0), "{link:?}");
}

#[test]
fn who_means_ill_gets_nothing_and_does_no_harm() {
    let _alone = alone();
    let a = Side::open(own(5), "", 4096);
    more_qps(&a, 3000);
    let name = names().remove(0);
    // Who asks for nothing that there is, is sent away.
    let garbage: [&[u8]; 4] = [b"\n", b"GET / HTTP/1.1\r\n", &[0xFF; 64], &[b'x'; 4096]];
    for bytes in garbage {
        let mut stream = connect(&name);
        // It may be sent away before it has said everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{bytes:?}");
    }
    // Who asks and does not take the answer, or does not ask, waits alone.
    let mut idle: Vec<UnixStream> = (0..4).map(|_| connect(&name)).collect();
    let mut deaf: Vec<UnixStream> = (0..4).map(|_| connect(&name)).collect();
    for stream in &mut deaf {
        stream.write_all(b"crocevia-stat 1 qps\n").unwrap();
    }
    assert_eq!(of(&a, true).qps.len(), 3001);
    // After a while they are sent away, and what they held is free.
    for stream in idle.iter_mut().chain(&mut deaf) {
        let start = Instant::now();
        let mut answer = Vec::new();
        if stream.read_to_end(&mut answer).is_err() {
            assert!(start.elapsed() < Duration::from_secs(4));
        }
    }
    // While more ask than are answered at once, one waits for its turn.
    let many: Vec<UnixStream> = (0..16).map(|_| connect(&name)).collect();
    let pid = Some(std::process::id());
    let hasty = Query { pid, patience: Duration::from_millis(100), ..Query::default() };
    let silent = query(&hasty).unwrap().silent;
    assert_eq!(silent.iter().map(|silent| silent.why).collect::<Vec<_>>(), [Silence::Slow]);
    let patient = Query { patience: Duration::from_secs(10), ..hasty };
    assert_eq!(query(&patient).unwrap().devices.len(), 1);
    drop(many);
    let crowd: Vec<UnixStream> = (0..100).map(|_| connect(&name)).collect();
    drop(crowd);
    assert_eq!(of(&a, true).qps.len(), 3001);
    assert_eq!(of(&a, false).objects[0].1, 3001);
}

#[test]
fn a_child_of_a_fork_is_not_asked_in_its_parents_place() {
    let _alone = alone();
    let a = Side::open(own(6), "", 4096);
    // SAFETY: the child only sleeps and ends by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: sleeps, and ends the child without running anything of the parent's.
        unsafe {
            libc::sleep(30);
            libc::_exit(0);
        }
    }
    let told = of(&a, true);
    drop(a);
    let start = Instant::now();
    while !names().is_empty() && start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let left = names();
    // SAFETY: ends and waits for this process's own child.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    assert_eq!(told.qps.len(), 1);
    assert_eq!(left, Vec::<String>::new(), "the child holds a name");
}
