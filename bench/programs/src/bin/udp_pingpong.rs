//! The rival of `ib_write_lat`: two threads, one datagram to and fro, both spin on a receive that
//! does not block.
//!
//! No protocol, no check, no copy: the floor of what the kernel's UDP path takes one way. With
//! `--company` each datagram has a second one behind it in a train, which is the floor for RDMA
//! ends that answer each other: an acknowledgement leaves with the next message.

use bench_programs::{quantile, report};
use clap::Parser;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg, setsockopt, sockopt};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Spinning UDP ping-pong; prints half round trips in microseconds as JSON")]
struct Args {
    /// Bytes in a datagram; an 8-byte RDMA WRITE is a datagram of 40.
    #[arg(short, long, default_value_t = 40)]
    size: usize,
    /// Round trips that are measured.
    #[arg(short = 'n', long, default_value_t = 10_000)]
    count: usize,
    /// A second datagram of so many bytes in one train with the first, as an RDMA end that answers
    /// has an acknowledgement to send along.
    #[arg(long)]
    company: Option<usize>,
    /// Address of the answering side.
    #[arg(long, default_value = "127.0.0.2")]
    server: IpAddr,
    /// Address of the asking side.
    #[arg(long, default_value = "127.0.0.3")]
    client: IpAddr,
}

const PATIENCE: Duration = Duration::from_secs(5);

/// Spins until a datagram is there.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    let mut spins = 0_u64;
    let mut since = None;
    loop {
        match socket.recv(buffer) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                spins += 1;
                if spins.is_multiple_of(1 << 16) {
                    let start = *since.get_or_insert_with(Instant::now);
                    if start.elapsed() > PATIENCE {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
            }
            other => return other,
        }
    }
}

/// How a side sends: one datagram, or a train of two.
#[derive(Clone, Copy)]
struct Shape {
    size: usize,
    company: Option<usize>,
}

impl Shape {
    fn send(self, socket: &UdpSocket, peer: SocketAddr) -> io::Result<()> {
        let datagrams = [0x5a; 2048];
        let Some(company) = self.company else {
            return socket.send_to(&datagrams[..self.size], peer).map(drop);
        };
        let segment = self.size as u16;
        let bytes = [IoSlice::new(&datagrams[..self.size + company])];
        let controls = [ControlMessage::UdpGsoSegments(&segment)];
        let (fd, to) = (socket.as_raw_fd(), SockaddrStorage::from(peer));
        sendmsg(fd, &bytes, &controls, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }
}

fn answer(socket: &UdpSocket, peer: SocketAddr, rounds: usize, shape: Shape) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    for _ in 0..rounds {
        receive(socket, &mut buffer)?;
        shape.send(socket, peer)?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let server = UdpSocket::bind((args.server, 0))?;
    let client = UdpSocket::bind((args.client, 0))?;
    server.set_nonblocking(true)?;
    client.set_nonblocking(true)?;
    let (server_at, client_at) = (server.local_addr()?, client.local_addr()?);
    let warm_up = args.count / 10 + 1;
    let rounds = warm_up + args.count;
    let shape = Shape {
        size: args.size.clamp(1, 1024),
        company: args.company.map(|n| n.clamp(1, args.size)),
    };
    if shape.company.is_some() {
        for socket in [&server, &client] {
            setsockopt(socket, sockopt::UdpGroSegment, &true)?;
        }
    }
    let other = thread::spawn(move || answer(&server, client_at, rounds, shape));
    let mut buffer = vec![0; 65_536];
    let mut half_trips = Vec::with_capacity(args.count);
    for round in 0..rounds {
        let start = Instant::now();
        shape.send(&client, server_at)?;
        receive(&client, &mut buffer)?;
        if round >= warm_up {
            half_trips.push(start.elapsed().as_nanos() as u64 / 2);
        }
    }
    other.join().map_err(|_| io::Error::other("the answering thread panicked"))??;
    half_trips.sort_unstable();
    let us = |share| quantile(&half_trips, share) as f64 / 1e3;
    report("udp_pingpong", &[("p50_us", us(0.5)), ("p99_us", us(0.99)), ("min_us", us(0.0))]);
    Ok(())
}
