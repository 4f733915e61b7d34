//! Several processes on one address. Each is this program again, in the part of a member: it opens
//! two NICs on the shared address and writes from one to the other, over and over, checking every
//! byte, until its input ends.
#![allow(unsafe_code)] // kill.
#![allow(clippy::print_stdout)] // A member tells its parent.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::SendOp;
use support::{PATIENCE, Side, bytes, own, pattern};

/// Names the address to a member.
const ADDRESS: &str = "CROCEVIA_TEST_SHARED_ADDRESS";
/// ACK timeouts of 1 s: a busy machine, which schedules a thread late, is not to look like loss.
const TIMEOUT: u8 = 18;
/// Rounds that a member goes on for when it is told to end, however slow the machine.
const ROUNDS: usize = 100;
/// Tells a member to end without a word once it is connected.
const MUTE: &str = "CROCEVIA_TEST_MUTE";

/// A member's part; nothing when run by the test harness.
#[test]
fn member() {
    let Ok(addr) = std::env::var(ADDRESS) else { return };
    let addr: Ipv4Addr = addr.parse().unwrap();
    let (a, b) = (Side::open(addr, "", 65536), Side::open(addr, "", 65536));
    a.connect(&b, TIMEOUT);
    b.connect(&a, TIMEOUT);
    println!("ready {:#x} {:#x}", a.qp.get(), b.qp.get());
    if std::env::var(MUTE).is_ok() {
        std::thread::sleep(PATIENCE);
        return;
    }
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        OVER.store(true, Ordering::Relaxed);
    });
    let (mut round, mut left) = (0, ROUNDS);
    while left > 0 {
        left -= usize::from(OVER.load(Ordering::Relaxed));
        let length = [1, 64, 4096, 65536][round % 4];
        a.region.write(0, &pattern(length, round as u8));
        a.post(round as u64, SendOp::Write(b.remote(0)), a.sge(0, length));
        a.success(round as u64);
        assert_eq!(bytes(&b.region, 0, length), pattern(length, round as u8), "round {round}");
        round += 1;
        if round % 64 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    println!("rounds {round}");
}

struct Member {
    child: Child,
    stdin: Option<ChildStdin>,
    out: BufReader<std::process::ChildStdout>,
    slots: [u32; 2],
}

impl Member {
    fn start(addr: Ipv4Addr, mute: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "member", "--nocapture"]).env(ADDRESS, addr.to_string());
        if mute {
            command.env(MUTE, "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, out) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut member = Self { child, stdin, out: BufReader::new(out), slots: [0; 2] };
        let line = member.line("ready ");
        for (slot, qpn) in member.slots.iter_mut().zip(line.split(' ')) {
            *slot = u32::from_str_radix(&qpn[2..], 16).unwrap() >> 16;
        }
        member
    }

    /// The rest of the next line that begins so.
    fn line(&mut self, begins: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            if self.out.read_line(&mut line).unwrap() == 0 {
                panic!("a member ended: {:?}", self.child.wait());
            }
            // The harness begins a line of its own before it.
            if let Some((_, rest)) = line.split_once(begins) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end; how often it wrote.
    fn end(mut self) -> usize {
        drop(self.stdin.take());
        let rounds = self.line("rounds ").parse().unwrap();
        assert!(self.child.wait().unwrap().success());
        rounds
    }
}

/// A test that fails leaves nobody behind, stopped or not.
impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a port without any sharing can be had: nobody is left.
fn is_free(addr: Ipv4Addr) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        if UdpSocket::bind((addr, wire::ROCE_PORT)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn processes_come_and_go_and_none_disturbs_another() {
    let addr = own(1);
    let mut members: Vec<Member> = (0..4).map(|_| Member::start(addr, false)).collect();
    let mut slots: Vec<u32> = members.iter().flat_map(|m| m.slots).collect();
    slots.sort_unstable();
    assert_eq!(slots, (1..=8).collect::<Vec<u32>>());
    // The first, which serves the others; its slots are the next ones'.
    members.remove(0).kill();
    let later = Member::start(addr, false);
    assert_eq!(later.slots, [1, 2]);
    members.push(later);
    // One after the other, each time another serves.
    for _ in 0..3 {
        members.remove(0).kill();
        members.push(Member::start(addr, false));
    }
    for member in members {
        assert!(member.end() >= ROUNDS);
    }
    assert!(is_free(addr));
}

#[test]
fn slots_are_used_again_however_their_owners_end() {
    let addr = own(2);
    let stays = Member::start(addr, false);
    for _ in 0..40 {
        let member = Member::start(addr, true);
        assert_eq!(member.slots, [3, 4]);
        member.kill();
    }
    assert!(stays.end() >= ROUNDS);
    assert!(is_free(addr));
}

#[test]
fn a_keeper_that_is_stopped_is_named() {
    let addr = own(3);
    let keeper = Member::start(addr, true);
    let pid = keeper.child.id();
    let signal = |number| {
        // SAFETY: a signal to this process's own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(pid as i32, number) }, 0);
    };
    signal(libc::SIGSTOP);
    // Its threads stop one by one.
    std::thread::sleep(Duration::from_millis(100));
    let mut info = live::devices(Some(&addr.to_string())).unwrap().remove(0);
    info.gids.truncate(1);
    let sink = std::sync::Arc::new(support::Events::default());
    let error = live::Nic::open(&info, &live::Options::default(), sink).map(drop).unwrap_err();
    assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
    signal(libc::SIGCONT);
    drop(Side::open(addr, "", 4096));
    keeper.kill();
    assert!(is_free(addr));
}

#[test]
fn a_nic_shares_with_one_of_another_process() {
    let addr = own(4);
    let other = Member::start(addr, false);
    let (a, b) = (Side::open(addr, "", 4096), Side::open(own(5), "", 4096));
    a.connect(&b, TIMEOUT);
    b.connect(&a, TIMEOUT);
    for round in 0..500 {
        a.post(round, SendOp::Write(b.remote(0)), a.sge(0, 4096));
        a.success(round);
        b.post(round, SendOp::Write(a.remote(0)), b.sge(0, 4096));
        b.success(round);
    }
    a.assert_calm();
    assert!(other.end() >= ROUNDS);
}
