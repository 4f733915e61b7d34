//! Writes a capture of a clean exchange as large as asked: reliable WRITEs and SENDs of one packet
//! each on several queue pairs, with their acknowledgements. What captures are read with is
//! measured on it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use bench_programs::report;
use clap::Parser;
use wire::ethernet::Ethernet;
use wire::frame::{Frame, emit_frame};
use wire::packet::{Aeth, Bth, Encapsulation, Extensions, Packet, Path, Reth, Syndrome};
use wire::{Gid, Mac, Msn, Opcode, Operation, PKey, Psn, Qpn, RKey, Service};

#[derive(Parser)]
#[command(about = "Writes a pcap file of RoCEv2 packets; one JSON line of what is in it")]
struct Args {
    /// Where to.
    file: PathBuf,
    /// Request packets.
    #[arg(short, long, default_value_t = 1_000_000)]
    packets: u64,
    /// Bytes of payload of each.
    #[arg(short, long, default_value_t = 4096)]
    size: usize,
    /// Every so manieth packet of a queue pair is acknowledged.
    #[arg(short, long, default_value_t = 1)]
    acks: u64,
    /// Queue pairs.
    #[arg(short, long, default_value_t = 8)]
    qps: u64,
}

/// Writes frames as records of a pcap file.
struct Capture {
    out: BufWriter<File>,
    frame: Vec<u8>,
    /// Nanoseconds since 1970.
    time: u64,
    frames: u64,
    bytes: u64,
}

impl Capture {
    fn new(file: File) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        // Nanoseconds, version 2.4, no snap length, Ethernet.
        for word in [0xA1B2_3C4D_u32, 4 << 16 | 2, 0, 0, 262_144, 1] {
            out.write_all(&word.to_le_bytes())?;
        }
        let time = 1_700_000_000_000_000_000;
        Ok(Self { out, frame: vec![0; 9000], time, frames: 0, bytes: 24 })
    }

    fn put(&mut self, ethernet: Ethernet, packet: &Packet<&[u8]>) -> io::Result<()> {
        let frame = Frame::new(ethernet, packet).map_err(io::Error::other)?;
        let len = emit_frame(&frame, &mut self.frame).map_err(io::Error::other)?;
        // As long as it takes at 100 Gbit/s.
        self.time += (len as u64 + 24) * 8 / 100 + 1;
        let (seconds, nanoseconds) = (self.time / 1_000_000_000, self.time % 1_000_000_000);
        for word in [seconds as u32, nanoseconds as u32, len as u32, len as u32] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&self.frame[..len])?;
        self.frames += 1;
        self.bytes += 16 + len as u64;
        Ok(())
    }
}

fn path(source: [u8; 4], destination: [u8; 4], qp: u64) -> Path {
    Path {
        encapsulation: Encapsulation::RoceV2,
        source: Gid::from_ip(source.into()),
        destination: Gid::from_ip(destination.into()),
        traffic_class: 104,
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xC000 | (qp * 97 % 0x3FFF) as u16,
        priority: 3,
    }
}

fn bth(operation: Operation, qp: u32, psn: u64, ack_request: bool) -> Bth {
    Bth {
        opcode: Opcode::new(Service::Rc, operation),
        solicited: false,
        migration: true,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(qp),
        ack_request,
        psn: Psn::new(psn as u32),
    }
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let (acks, qps) = (args.acks.max(1), args.qps.clamp(1, 1 << 20));
    let mut capture = Capture::new(File::create(&args.file)?)?;
    let payload: Vec<u8> = (0..args.size).map(|i| (i * 7 + 3) as u8).collect();
    let ends = [[10, 9, 0, 1], [10, 9, 0, 2]];
    let macs = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
    let there = Ethernet::new(macs[0], macs[1]);
    let back = Ethernet::new(macs[1], macs[0]);
    for i in 0..args.packets {
        let (qp, turn) = (i % qps, i / qps);
        let psn = 1000 * qp + turn;
        let last = i + qps >= args.packets;
        let asks = turn % acks == acks - 1 || last;
        let is_write = qp.is_multiple_of(2);
        let operation = if is_write { Operation::WriteOnly } else { Operation::SendOnly };
        let reth = Reth { va: 0x10_0000, rkey: RKey::new(0x1234), length: args.size as u32 };
        let request = Packet {
            path: path(ends[0], ends[1], qp),
            bth: bth(operation, 0x1000 + qp as u32, psn, asks),
            ext: Extensions { reth: is_write.then_some(reth), ..Extensions::default() },
            payload: &payload[..],
        };
        capture.put(there, &request)?;
        if asks {
            let aeth = Aeth { syndrome: Syndrome::Ack(31), msn: Msn::new(turn as u32 + 1) };
            let answer = Packet {
                path: path(ends[1], ends[0], qp),
                bth: bth(Operation::Acknowledge, 0x2000 + qp as u32, psn, false),
                ext: Extensions { aeth: Some(aeth), ..Extensions::default() },
                payload: &[][..],
            };
            capture.put(back, &answer)?;
        }
    }
    capture.out.flush()?;
    report("capture_file", &[("frames", capture.frames as f64), ("bytes", capture.bytes as f64)]);
    Ok(())
}
