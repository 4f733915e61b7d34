//! Kernel TCP as RDMA's rival: one stream of messages, or a ping-pong that spins, each on a
//! connection of its own. The receiver measures the stream, from its go-ahead to the last byte.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{Course, Way, ask, failed, hear, stalled};
use crate::cmd::perf::bw::STALL;
use crate::cmd::perf::exchange::{Control, Message};
use crate::cmd::perf::plan::Amount;
use crate::cmd::perf::versus::{Figure, Rival};
use crate::error::{Failure, Result};

/// A blocking read or write returns after this long, to look at the other connection.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of a read, at least and at most.
const READ: [usize; 2] = [64 << 10, 1 << 20];
/// Bytes of a write, at most.
const WRITE: usize = 8 << 20;

/// The client's part.
pub(super) fn client(
    control: &mut Control,
    course: &Course,
    own: SocketAddr,
    mut peer: SocketAddr,
) -> Result<Figure> {
    peer.set_port(ask(control, Rival::Tcp, course, 0)?);
    let stream = connect(own, peer)
        .and_then(|stream| prepare(stream, course))
        .map_err(|error| failed(format!("no connection from {own} to {peer}: {error}")))?;
    match course.way {
        Way::Forth => {
            give(control, &stream, course)?;
            hear(control)
        }
        Way::Back => take(control, &stream, course),
        Way::PingPong { ask, .. } => {
            let (sent, mut back) = (vec![0x5a; ask], vec![0; course.size]);
            let figure = course.ping_pong(|_| {
                write(control, &stream, &sent)?;
                match read(control, &stream, &mut back)? {
                    true => Ok(false),
                    false => Err(failed("the server closed the connection")),
                }
            })?;
            // The server has seen the end before it hears of anything else.
            stream.shutdown(Shutdown::Write).map_err(failed)?;
            hear(control).map(|_| figure)
        }
    }
}

/// The server's part.
pub(super) fn server(
    control: &mut Control,
    course: &Course,
    own: SocketAddr,
    peer: SocketAddr,
) -> Result<()> {
    let listener = TcpListener::bind(own).map_err(failed)?;
    control.send(&Message::Port(listener.local_addr().map_err(failed)?.port()))?;
    let stream = accept(control, &listener, peer)?;
    let stream = prepare(stream, course).map_err(failed)?;
    match course.way {
        Way::Forth => {
            let figure = take(control, &stream, course)?;
            control.send(&Message::Figure(figure))
        }
        Way::Back => give(control, &stream, course),
        Way::PingPong { ask, .. } => {
            let (mut asked, answer) = (vec![0; ask], vec![0xa5; course.size]);
            while read(control, &stream, &mut asked)? {
                write(control, &stream, &answer)?;
            }
            control.send(&Message::Figure(Figure::default()))
        }
    }
}

fn connect(own: SocketAddr, peer: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, None)?;
    socket.bind(&own.into())?;
    socket.connect_timeout(&peer.into(), STALL)?;
    Ok(socket.into())
}

/// The client's connection; a stranger's is closed.
fn accept(control: &mut Control, listener: &TcpListener, peer: SocketAddr) -> Result<TcpStream> {
    listener.set_nonblocking(true).map_err(failed)?;
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, from)) if from.ip() == peer.ip() => return Ok(stream),
            Ok(_) => {}
            Err(error) if waits(&error) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(failed(error)),
        }
        control.alive()?;
        stalled(begin)?;
    }
}

/// A ping-pong spins; a stream sleeps, as programs do that move much.
fn prepare(stream: TcpStream, course: &Course) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(matches!(course.way, Way::PingPong { .. }))?;
    stream.set_read_timeout(Some(PAUSE))?;
    stream.set_write_timeout(Some(PAUSE))?;
    Ok(stream)
}

/// Sends the messages once the receiver has given its go-ahead.
fn give(control: &mut Control, stream: &TcpStream, course: &Course) -> Result<()> {
    let data = vec![0x5a; course.size.min(WRITE)];
    if !read(control, stream, &mut [0])? {
        return Err(failed("the other end closed the connection"));
    }
    let (limit, until) = course.limits();
    let mut n = 0;
    while n < limit && until.is_none_or(|until| Instant::now() < until) {
        let mut left = course.size;
        while left > 0 {
            let part = left.min(data.len());
            write(control, stream, &data[..part])?;
            left -= part;
        }
        n += 1;
    }
    stream.shutdown(Shutdown::Write).map_err(failed)
}

/// Receives until the sender's end.
fn take(control: &mut Control, mut stream: &TcpStream, course: &Course) -> Result<Figure> {
    let mut data = vec![0; course.size.clamp(READ[0], READ[1])];
    let begin = Instant::now();
    write(control, stream, &[0])?;
    let (mut last, mut bytes) = (begin, 0);
    loop {
        match stream.read(&mut data) {
            Ok(0) => break,
            Ok(n) => {
                bytes += n as u64;
                last = Instant::now();
            }
            Err(error) if waits(&error) => stalled(last)?,
            Err(error) => return Err(failed(error)),
        }
        control.alive()?;
    }
    match course.amount {
        Amount::Iterations(n) if bytes != n.saturating_mul(course.size as u64) => {
            Err(Failure::failed(format!("the stream ended after {bytes} bytes")))
        }
        _ => Ok(Course::bandwidth(bytes, last - begin, 0)),
    }
}

/// Fills `buffer`; false if the stream has ended before.
fn read(control: &mut Control, mut stream: &TcpStream, buffer: &mut [u8]) -> Result<bool> {
    let begin = Instant::now();
    let mut at = 0;
    while at < buffer.len() {
        match stream.read(&mut buffer[at..]) {
            Ok(0) if at == 0 => return Ok(false),
            Ok(0) => return Err(failed("the connection ended within a message")),
            Ok(n) => at += n,
            Err(error) if waits(&error) => stalled(begin)?,
            Err(error) => return Err(failed(error)),
        }
        control.alive()?;
    }
    Ok(true)
}

fn write(control: &mut Control, mut stream: &TcpStream, mut data: &[u8]) -> Result<()> {
    let mut begin = None;
    while !data.is_empty() {
        match stream.write(data) {
            Ok(n) => {
                data = &data[n..];
                begin = None;
            }
            Err(error) if waits(&error) => stalled(*begin.get_or_insert_with(Instant::now))?,
            Err(error) => return Err(failed(error)),
        }
        control.alive()?;
    }
    Ok(())
}

fn waits(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
