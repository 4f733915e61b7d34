//! Installed programs, unmodified, two processes each: the examples of libibverbs and perftest.

mod support;

use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One pair at a time: the programs measure, and spin.
static ONE: Mutex<()> = Mutex::new(());

/// Loopback addresses and a TCP port that no other run of these tests uses at the same time.
fn places() -> (String, String, u16) {
    let id = std::process::id();
    let (high, low) = ((id / 254) % 254 + 1, id % 254 + 1);
    let server = format!("127.90.{high}.{low}");
    (server, format!("127.91.{high}.{low}"), 20_000 + (id % 20_000) as u16)
}

fn start(program: &str, args: &[&str], addr: &str, port: u16, peer: Option<&str>) -> Child {
    Command::new("timeout")
        .args(["60", program, "-p", &port.to_string()])
        .args(args)
        .args(peer)
        .env("LD_LIBRARY_PATH", support::library_dir())
        .env("CROCEVIA_ADDR", addr)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("timeout starts")
}

/// Whether somebody listens on the port, without connecting to it.
fn listening(port: u16) -> bool {
    let wanted = format!(":{port:04X} ");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or_default();
            format!("{local} ").ends_with(&wanted) && words.nth(1) == Some("0A")
        })
    })
}

/// Runs a program as server and as client; both must succeed.
fn pair(program: &str, args: &[&str]) -> Option<(Output, Output)> {
    if support::installed(program).is_none() {
        eprintln!("skipped: {program} is not installed");
        return None;
    }
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (here, there, port) = places();
    let server = start(program, args, &here, port, None);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !listening(port) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let client = start(program, args, &there, port, Some("127.0.0.1"));
    let client = client.wait_with_output().expect("the client ends");
    let server = server.wait_with_output().expect("the server ends");
    assert!(
        server.status.success() && client.status.success(),
        "{program} {args:?}\n-- server: {}\n{}\n-- client: {}\n{}",
        server.status,
        support::said(&server),
        client.status,
        support::said(&client),
    );
    Some((server, client))
}

#[test]
fn pingpong() {
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"] {
        for more in [&[][..], &["-e"]] {
            let args = [&["-g", "0", "-n", "200"], more].concat();
            if let Some((_, client)) = pair(program, &args) {
                assert!(support::said(&client).contains("200 iters"), "{program}");
            }
        }
    }
    for more in ["-N", "-t", "-o"] {
        pair("ibv_rc_pingpong", &["-g", "0", "-n", "200", more]);
    }
}

/// Options that make a short run on the first GID.
const PERFTEST: &[&str] = &["-d", "crocevia0", "-x", "0", "-F"];

#[test]
fn perftest_bandwidth() {
    for (program, args) in [
        ("ib_write_bw", &["-n", "200", "-s", "65536"][..]),
        ("ib_write_bw", &["-n", "200", "-q", "4", "-b"]),
        ("ib_write_bw", &["-n", "200", "-l", "4", "-s", "4096"]),
        ("ib_read_bw", &["-n", "200", "-s", "65536"]),
        ("ib_send_bw", &["-n", "200", "-s", "65536"]),
        ("ib_send_bw", &["-n", "200", "-e", "-s", "4096"]),
        ("ib_send_bw", &["-n", "200", "--use-srq", "-q", "2", "-s", "4096"]),
        ("ib_atomic_bw", &["-n", "100"]),
        ("ib_atomic_bw", &["-n", "100", "-A", "CMP_AND_SWAP"]),
    ] {
        pair(program, &[PERFTEST, args].concat());
    }
}

#[test]
fn perftest_latency() {
    for (program, args) in [
        ("ib_write_lat", &["-n", "200"][..]),
        ("ib_write_lat", &["-n", "200", "-I", "64", "-s", "64"]),
        ("ib_write_lat", &["-n", "200", "-c", "UC"]),
        ("ib_read_lat", &["-n", "200"]),
        ("ib_send_lat", &["-n", "200"]),
        ("ib_send_lat", &["-n", "200", "-e"]),
        ("ib_send_lat", &["-n", "200", "-c", "UC"]),
        ("ib_send_lat", &["-n", "200", "-c", "UD"]),
        ("ib_atomic_lat", &["-n", "100"]),
    ] {
        pair(program, &[PERFTEST, args].concat());
    }
}

/// All sizes up to 8 MiB: every message arrives whole, or the program would not end.
#[test]
fn perftest_all_sizes() {
    pair("ib_send_bw", &[PERFTEST, &["-a", "-n", "10"]].concat());
}
