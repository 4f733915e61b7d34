//! The rival of `ib_write_bw`: datagram trains (UDP_SEGMENT out, UDP_GRO in) in the shape of RDMA
//! WRITEs, from one thread to another.
//!
//! A message is its FIRST packet alone and one train of the rest, as the headers of RoCEv2 force
//! it. The window is real: the receiver sends credits back. `--full` adds what a RoCE NIC cannot
//! leave out: one copy into the train buffer, the ICRC at both ends, one copy into the
//! application's memory. There is no retransmission: a lost datagram ends the run with an error.

use bench_programs::report;
use clap::Parser;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// BTH and ICRC; FIRST has a RETH besides.
const HEADERS: usize = 12 + 4;
const RETH: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);
/// A receiver that has waited this long gives the credits it still holds.
const IDLE: Duration = Duration::from_micros(50);
/// Largest UDP payload of one train.
const TRAIN_BYTES: usize = 65_507;

#[derive(Parser, Clone)]
#[command(
    about = "UDP_SEGMENT/UDP_GRO trains shaped as RDMA WRITEs; prints payload Gbit/s as JSON"
)]
struct Args {
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 65_536)]
    size: usize,
    /// Payload bytes of a packet.
    #[arg(short, long, default_value_t = 4096)]
    mtu: usize,
    /// Packets in flight.
    #[arg(short, long, default_value_t = 256)]
    window: u64,
    /// How long to send.
    #[arg(short = 'D', long, default_value_t = 1.0)]
    seconds: f64,
    /// Copies and CRC at both ends.
    #[arg(long)]
    full: bool,
    /// SO_RCVBUF of the receiver.
    #[arg(long, default_value_t = 4 << 20)]
    receive_buffer: usize,
    /// Address of the receiver.
    #[arg(long, default_value = "127.0.0.2")]
    server: IpAddr,
    /// Address of the sender.
    #[arg(long, default_value = "127.0.0.3")]
    client: IpAddr,
    /// The sender's network namespace, such as /proc/PID/ns/net.
    #[arg(long)]
    client_net: Option<std::path::PathBuf>,
}

/// What one packet carries beside the payload, and its place in the train buffer.
struct Shape {
    payload: usize,
    extra: usize,
}

fn shapes(args: &Args) -> Vec<Shape> {
    let mut left = args.size;
    let mut list = Vec::new();
    while left > 0 {
        let payload = left.min(args.mtu);
        list.push(Shape { payload, extra: if list.is_empty() { RETH } else { 0 } });
        left -= payload;
    }
    list
}

/// The trains of one message: ranges of packets that are equal in size but the last.
fn trains(list: &[Shape], mtu: usize) -> Vec<std::ops::Range<usize>> {
    let per_train = (TRAIN_BYTES / (mtu + HEADERS)).min(64);
    let mut out: Vec<_> = list.first().map(|_| 0..1).into_iter().collect();
    let mut next = 1;
    while next < list.len() {
        let end = (next + per_train).min(list.len());
        out.push(next..end);
        next = end;
    }
    out
}

/// Writes the packets of a train; with `full` the payload is copied and its CRC taken.
fn fill(buffer: &mut [u8], list: &[Shape], memory: &[u8], mut offset: usize, full: bool) -> usize {
    let mut at = 0;
    for shape in list {
        let body = at + HEADERS - 4 + shape.extra;
        let end = body + shape.payload;
        if full {
            buffer[body..end].copy_from_slice(&memory[offset..offset + shape.payload]);
            let crc = crc32fast::hash(&buffer[at..end]);
            buffer[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        }
        offset += shape.payload;
        at = end + 4;
    }
    at
}

fn send(args: &Args, socket: &UdpSocket, to: SocketAddr) -> io::Result<u64> {
    let to = SockaddrStorage::from(to);
    let list = shapes(args);
    let trains = trains(&list, args.mtu);
    let memory: Vec<u8> = (0..args.size).map(|i| (i * 31) as u8).collect();
    let mut buffer = vec![0_u8; args.size + list.len() * (HEADERS + RETH)];
    let (mut sent, mut credited) = (0_u64, 0_u64);
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.seconds));
    let mut heard = Instant::now();
    while start.elapsed() < length || credited < sent {
        let mut credit = [0; 8];
        match socket.recv(&mut credit) {
            Ok(8) => (credited, heard) = (u64::from_le_bytes(credit), Instant::now()),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if sent + list.len() as u64 > credited + args.window || start.elapsed() >= length {
                    if heard.elapsed() > PATIENCE {
                        return Err(io::Error::other(format!(
                            "lost: {sent} sent, {credited} came"
                        )));
                    }
                    thread::yield_now();
                }
            }
            Err(e) => return Err(e),
        }
        if sent + list.len() as u64 > credited + args.window || start.elapsed() >= length {
            continue;
        }
        for range in &trains {
            let offset: usize = list[..range.start].iter().map(|s| s.payload).sum();
            let bytes = fill(&mut buffer, &list[range.clone()], &memory, offset, args.full);
            let segment = (list[range.start].payload + list[range.start].extra + HEADERS) as u16;
            let control = [ControlMessage::UdpGsoSegments(&segment)];
            let control = if range.len() > 1 { &control[..] } else { &[] };
            let data = [IoSlice::new(&buffer[..bytes])];
            sendmsg(socket.as_raw_fd(), &data, control, MsgFlags::empty(), Some(&to))?;
        }
        sent += list.len() as u64;
    }
    Ok(sent)
}

/// Receives until told to stop; payload bytes and the time from the first to the last of them.
fn receive(args: &Args, socket: &UdpSocket, stop: &AtomicBool) -> io::Result<(u64, Duration)> {
    let (mut payload, mut packets, mut told) = (0_u64, 0_u64, 0_u64);
    let (mut first, mut last, mut peer) = (None, Instant::now(), None);
    let mut buffer = vec![0_u8; 65_536];
    let mut memory = vec![0_u8; args.size];
    let mut control = nix::cmsg_space!(i32);
    while !stop.load(Ordering::Relaxed) {
        let mut data = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let got =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut data, Some(&mut control), flags);
        let got = match got {
            Ok(got) => got,
            Err(nix::errno::Errno::EAGAIN) => {
                thread::yield_now();
                if let Some(peer) = peer.filter(|_| told < packets && last.elapsed() > IDLE) {
                    socket.send_to(&packets.to_le_bytes(), peer)?;
                    told = packets;
                }
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let from = got.address.as_ref().and_then(as_std).ok_or(ErrorKind::InvalidData)?;
        peer = Some(from);
        let mut segment = got.bytes;
        for message in got.cmsgs()? {
            if let ControlMessageOwned::UdpGroSegments(size) = message {
                segment = size as usize;
            }
        }
        let bytes = got.bytes;
        last = Instant::now();
        first.get_or_insert(last);
        for packet in buffer[..bytes].chunks(segment.max(HEADERS)) {
            packets += 1;
            payload += take(packet, args, &mut memory)?;
        }
        if packets - told >= args.window / 4 {
            socket.send_to(&packets.to_le_bytes(), from)?;
            told = packets;
        }
    }
    Ok((payload, first.map_or(Duration::ZERO, |f| last - f)))
}

fn shapes_len(args: &Args) -> u64 {
    args.size.div_ceil(args.mtu) as u64
}

/// One packet: its payload length; with `full` the CRC is checked and the payload copied.
fn take(packet: &[u8], args: &Args, memory: &mut [u8]) -> io::Result<u64> {
    let reth = packet.len().saturating_sub(HEADERS) > args.mtu || args.size <= args.mtu;
    let head = HEADERS - 4 + if reth { RETH } else { 0 };
    let body = packet.len().checked_sub(head + 4).ok_or(ErrorKind::InvalidData)?;
    if args.full {
        let (covered, crc) = packet.split_at(packet.len() - 4);
        if crc32fast::hash(covered).to_le_bytes() != *crc {
            return Err(io::Error::other("wrong CRC"));
        }
        let n = body.min(memory.len());
        memory[..n].copy_from_slice(&covered[head..head + n]);
    }
    Ok(body as u64)
}

fn as_std(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(IpAddr::V4(v4.ip()), v4.port()));
    }
    address.as_sockaddr_in6().map(|v6| SocketAddr::new(IpAddr::V6(v6.ip()), v6.port()))
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    if args.size == 0 || args.mtu == 0 || args.window < shapes_len(&args) {
        return Err(io::Error::other("the window must hold one message of at least one byte"));
    }
    let server = UdpSocket::bind((args.server, 0))?;
    if let Some(path) = &args.client_net {
        // A socket stays in the namespace in which it was made.
        setns(std::fs::File::open(path)?, CloneFlags::CLONE_NEWNET)?;
    }
    let client = UdpSocket::bind((args.client, 0))?;
    client.set_nonblocking(true)?;
    setsockopt(&server, sockopt::UdpGroSegment, &true)?;
    setsockopt(&server, sockopt::RcvBufForce, &args.receive_buffer)
        .or_else(|_| setsockopt(&server, sockopt::RcvBuf, &args.receive_buffer))?;
    let to = server.local_addr()?;
    let stop = AtomicBool::new(false);
    let (sent, received) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&args, &server, &stop));
        let sent = send(&args, &client, to);
        stop.store(true, Ordering::Relaxed);
        (sent, receiver.join())
    });
    let packets = sent?;
    let (payload, time) = received.map_err(|_| io::Error::other("the receiver panicked"))??;
    let gbit = payload as f64 * 8.0 / time.as_secs_f64().max(1e-9) / 1e9;
    report("udp_trains", &[("gbit", gbit), ("packets", packets as f64)]);
    Ok(())
}
