//! The rival of `ib_write_lat`: two threads, one datagram to and fro, both spin on a receive that
//! does not block.
//!
//! No protocol, no check, no copy: the floor of what the kernel's UDP path takes one way.

use bench_programs::{quantile, report};
use clap::Parser;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
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

fn answer(socket: &UdpSocket, peer: SocketAddr, rounds: usize) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    for _ in 0..rounds {
        let size = receive(socket, &mut buffer)?;
        socket.send_to(&buffer[..size], peer)?;
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
    let other = thread::spawn(move || answer(&server, client_at, rounds));
    let datagram = vec![0x5a; args.size.max(1)];
    let mut buffer = vec![0; 65_536];
    let mut half_trips = Vec::with_capacity(args.count);
    for round in 0..rounds {
        let start = Instant::now();
        client.send_to(&datagram, server_at)?;
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
