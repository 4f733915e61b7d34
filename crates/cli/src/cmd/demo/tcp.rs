//! The same over TCP, for comparison: a stream of messages and a ping-pong between two processes,
//! by the standard library's sockets. The bytes are compared, outside of what is timed, as they are
//! for RDMA.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use socket2::{Domain, Socket, Type};

use super::super::perf::pair::{self, Server};
use super::steps::{BW_SIZE, Figure, Host, LAT_SIZE, Value};
use crate::error::{Failure, Result};
use crate::render;

/// Bytes of a round: sent, then compared.
const ROUND: usize = 32 << 20;
/// Either end gives the other up after so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first byte of a round says which kind it is.
const STREAM: u8 = b's';
const PING: u8 = b'p';

/// Bandwidth and latency.
pub(super) fn measure(hosts: &[Host; 2], time: Duration) -> Result<(Figure, Figure)> {
    let [server, client] = hosts;
    let mut peer = Server::start(server.addr, &["tcp-peer".into()], &[])?;
    let result = connect(client.addr, peer.address)
        .map_err(failed)
        .and_then(|mut stream| Ok((bandwidth(&mut stream, time)?, latency(&mut stream, time)?)));
    match result {
        Ok(figures) => peer.finish(Ok(())).map(|()| figures),
        Err(failure) => Err(failure),
    }
}

fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Rounds of a stream; the clock stops when the peer has all of a round's bytes.
fn bandwidth(stream: &mut TcpStream, time: Duration) -> Result<Figure> {
    let start = Instant::now();
    let (mut bytes, mut seconds, mut round) = (0u64, 0.0, 0u8);
    let mut data = vec![0; ROUND];
    while round == 0 || start.elapsed() < time {
        fill(&mut data, round);
        stream.write_all(&[STREAM, round]).map_err(failed)?;
        expect(stream, b'r')?;
        let begin = Instant::now();
        for message in data.chunks(BW_SIZE as usize) {
            stream.write_all(message).map_err(failed)?;
        }
        expect(stream, b'k')?;
        seconds += begin.elapsed().as_secs_f64();
        expect(stream, b'=')?;
        bytes += ROUND as u64;
        round = round.wrapping_add(1).max(1);
    }
    let gbit_per_s = bytes as f64 * 8.0 / 1e9 / seconds;
    Ok(Figure { value: Value::Bandwidth { gbit_per_s }, checked: bytes })
}

/// Half round trips of small messages.
fn latency(stream: &mut TcpStream, time: Duration) -> Result<Figure> {
    let mut times = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
        .map_err(|error| Failure::failed(format!("no histogram: {error}")))?;
    let start = Instant::now();
    let (mut sent, mut back) = ([0; LAT_SIZE as usize], [0; LAT_SIZE as usize]);
    let mut n = 0u64;
    while times.is_empty() || start.elapsed() < time {
        fill(&mut sent, n as u8);
        sent[0] = PING;
        let begin = Instant::now();
        stream.write_all(&sent).map_err(failed)?;
        stream.read_exact(&mut back).map_err(failed)?;
        let ns = begin.elapsed().as_nanos() as u64 / 2;
        if back != sent {
            return Err(Failure::failed(format!("wrong data in TCP's message {n}")));
        }
        n += 1;
        // The first ones find the path cold, as those of RDMA do, which are left out too.
        if n > 10 {
            times.saturating_record(ns.max(1));
        }
    }
    let us = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1000.0;
    let value = Value::Latency { median_us: us(0.5), p99_us: us(0.99) };
    Ok(Figure { value, checked: 2 * n * u64::from(LAT_SIZE) })
}

/// The other end: answers until the client closes.
pub(crate) fn peer(addr: IpAddr) -> Result<()> {
    let listener = TcpListener::bind((addr, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    render::text(&format!("{}{address}\n", pair::ANNOUNCEMENT))?;
    let (mut stream, _) = accept(&listener).map_err(failed)?;
    prepare(&stream).map_err(failed)?;
    let mut message = [0; LAT_SIZE as usize];
    let (mut data, mut expected) = (vec![0; ROUND], vec![0; ROUND]);
    loop {
        match stream.read(&mut message[..1]).map_err(failed)? {
            0 => return Ok(()),
            _ if message[0] == PING => {
                stream.read_exact(&mut message[1..]).map_err(failed)?;
                stream.write_all(&message).map_err(failed)?;
            }
            _ => {
                stream.read_exact(&mut message[1..2]).map_err(failed)?;
                fill(&mut expected, message[1]);
                stream.write_all(b"r").map_err(failed)?;
                stream.read_exact(&mut data).map_err(failed)?;
                stream.write_all(b"k").map_err(failed)?;
                let verdict = if data == expected { b"=" } else { b"!" };
                stream.write_all(verdict).map_err(failed)?;
            }
        }
    }
}

/// A client that never comes must not leave a process behind.
fn accept(listener: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, address)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, address));
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn expect(stream: &mut TcpStream, answer: u8) -> Result<()> {
    let mut found = [0];
    stream.read_exact(&mut found).map_err(failed)?;
    if found[0] == answer {
        return Ok(());
    }
    Err(Failure::failed("the peer found wrong data in TCP's stream"))
}

/// Bytes of round `round`, each word of its own value.
fn fill(data: &mut [u8], round: u8) {
    for (i, word) in data.chunks_mut(8).enumerate() {
        let value = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(round);
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::failed(format!("TCP: {error}"))
}
