//! What the kernel's UDP gives without any RDMA, to measure the NIC against: half round trips of
//! 64 bytes between two threads that spin, and trains from one thread to another.
//!
//! `cargo run --release -p crocevia-live --example bare_udp`
#![allow(unsafe_code)] // Socket options that the standard library does not know.
#![allow(clippy::print_stdout)]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 20_000;
const SEGMENT: usize = 4096 + 28;
const TRAIN: usize = 15;
/// Packets under way at most.
const WINDOW: u64 = 512;

fn option(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    // SAFETY: the pointer and length describe `value`.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, 4)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn pair() -> (UdpSocket, UdpSocket) {
    let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for socket in [&a, &b] {
        socket.set_nonblocking(true).unwrap();
    }
    (a, b)
}

fn spin(socket: &UdpSocket, buffer: &mut [u8], yields: bool) -> usize {
    let mut tries = 0_u32;
    loop {
        match socket.recv(buffer) {
            Ok(n) => return n,
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
        }
        tries += 1;
        if yields && tries.is_multiple_of(8) {
            std::thread::yield_now();
        }
    }
}

fn latency() {
    let (a, b) = pair();
    let (to_a, to_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    let mut times = Vec::with_capacity(ROUNDS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            for _ in 0..ROUNDS {
                spin(&b, &mut buffer, true);
                b.send_to(&buffer, to_a).unwrap();
            }
        });
        let mut buffer = [0; 64];
        for _ in 0..ROUNDS {
            let start = Instant::now();
            a.send_to(&buffer, to_b).unwrap();
            spin(&a, &mut buffer, true);
            times.push(start.elapsed() / 2);
        }
    });
    times.sort();
    let at = |part: f64| times[(part * (ROUNDS - 1) as f64) as usize];
    println!("64 B one way: {:?} min, {:?} median, {:?} 99 %", at(0.0), at(0.5), at(0.99));
}

fn bandwidth() {
    let (a, b) = pair();
    let to = b.local_addr().unwrap();
    option(&a, libc::SOL_UDP, libc::UDP_SEGMENT, SEGMENT as i32);
    option(&b, libc::SOL_UDP, libc::UDP_GRO, 1);
    for force in [(&a, libc::SO_SNDBUF), (&b, libc::SO_RCVBUF)] {
        option(force.0, libc::SOL_SOCKET, force.1, 4 << 20);
    }
    let received = AtomicU64::new(0);
    let stop = Instant::now() + Duration::from_secs(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 16];
            while Instant::now() < stop {
                match b.recv(&mut buffer) {
                    Ok(n) => {
                        received.fetch_add(n.div_ceil(SEGMENT) as u64, Ordering::Relaxed);
                    }
                    Err(_) => std::thread::yield_now(),
                }
            }
        });
        let train = vec![7; TRAIN * SEGMENT];
        let mut sent = 0;
        while Instant::now() < stop {
            if sent - received.load(Ordering::Relaxed) < WINDOW && a.send_to(&train, to).is_ok() {
                sent += TRAIN as u64;
            }
        }
    });
    let packets = received.into_inner();
    println!(
        "trains of {TRAIN} packets: {} MB/s of payload in packets of 4096 B",
        packets * 4096 / 1_000_000
    );
}

fn main() {
    latency();
    bandwidth();
}
