//! A flood of hostile datagrams at the NICs whose traffic can be seen on this network: random ones,
//! forgeries and damaged copies of running connections, from addresses that no connection knows and
//! from those of its peers; alone and in trains. See `mix` for what there is.
//!
//! It needs the right to see packets (CAP_NET_RAW, as root of a user namespace has). The kinds,
//! sizes and changes depend on the seed only; the numbers forged are those of the traffic. Prints
//! what it has sent, by kind, and what it was answered, as JSON.

mod mix;
mod packet;
mod seen;
mod sockets;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bench_programs::report;
use clap::Parser;

use mix::{KINDS, Kind, Mixer, Origin};
use packet::Flow;
use seen::Traffic;
use sockets::{Ears, Senders};

/// Between two looks at the traffic.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long to wait for the first traffic.
const PATIENCE: Duration = Duration::from_secs(20);
/// Datagrams of a train at most, and bytes.
const TRAIN: usize = 64;
const TRAIN_BYTES: usize = 65_000;
/// How many in a hundred messages come from the NIC's own address.
const OWN: usize = 3;
/// How long to listen for late answers.
const ECHO: Duration = Duration::from_millis(300);

#[derive(Parser)]
#[command(about = "Sends hostile datagrams at running traffic; prints what was sent and answered")]
struct Args {
    /// Datagrams to send.
    #[arg(short, long, default_value_t = 100_000)]
    count: u64,
    /// Datagrams per second; 0: as fast as it goes.
    #[arg(short, long, default_value_t = 0.0)]
    rate: f64,
    /// Seed of what is sent.
    #[arg(short, long, default_value_t = 1)]
    seed: u64,
    /// Addresses of this host that are no NIC's: one at least of each family that is used.
    #[arg(short = 'a', long, required = true)]
    stranger: Vec<IpAddr>,
    /// How many in a hundred messages come from the address of a peer.
    #[arg(short, long, default_value_t = 50)]
    peers: usize,
    /// Only copies of packets as they were, from strangers.
    #[arg(long)]
    spoof: bool,
    /// Where a NIC is that need have no traffic.
    #[arg(long)]
    at: Vec<IpAddr>,
    /// Stop before that when this file exists.
    #[arg(long)]
    until: Option<PathBuf>,
}

/// What has been sent.
#[derive(Default)]
struct Sent {
    datagrams: u64,
    messages: u64,
    trains: u64,
    /// Of those, to a slot of queue pair numbers of which no queue pair has been seen: the sockets
    /// of such a slot are nobody's, and the kernel fills and drops.
    nobodys_datagrams: u64,
    nobodys_messages: u64,
    bytes: u64,
    kinds: [[u64; KINDS.len()]; 3],
}

struct Flood {
    args: Args,
    mixer: Mixer,
    traffic: Traffic,
    senders: Senders,
    ears: Ears,
    sent: Sent,
    buffer: Vec<u8>,
}

impl Flood {
    /// Looks until there is traffic, or makes it up.
    fn wait(&mut self) -> io::Result<()> {
        for &target in &self.args.at {
            let family = |a: &&IpAddr| a.is_ipv4() == target.is_ipv4();
            let Some(&source) = self.args.stranger.iter().find(family) else { continue };
            self.traffic.make_up(&mut self.mixer.rng, source, target);
        }
        let start = Instant::now();
        while self.traffic.packets.len() < 8 {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("no traffic to port 4791 within 20 s"));
            }
            self.traffic.look(&self.senders.ports, &self.args.stranger)?;
        }
        Ok(())
    }

    /// Sends one message.
    fn message(&mut self) -> io::Result<()> {
        let rng = &mut self.mixer.rng;
        let seen = &self.traffic.packets[rng.below(self.traffic.packets.len())];
        let target = seen.flow.target;
        let origin = match rng.below(100) {
            _ if self.args.spoof => Origin::Stranger,
            n if n < self.args.peers => Origin::Peer,
            n if n < self.args.peers + OWN => Origin::Own,
            _ => Origin::Stranger,
        };
        let source = match origin {
            Origin::Peer => seen.flow.source,
            Origin::Own => target,
            Origin::Stranger => {
                let family = |a: &&IpAddr| a.is_ipv4() == target.is_ipv4();
                let mine: Vec<_> = self.args.stranger.iter().filter(family).collect();
                match mine.get(rng.below(mine.len())) {
                    Some(&&address) => address,
                    None => return Ok(()),
                }
            }
        };
        let (socket, source_port) = self.senders.of(rng, source)?;
        let flow = Flow { source, target, source_port };
        let size = self.mixer.size(seen).min(if target.is_ipv4() { 65_507 } else { 65_487 });
        let most = (TRAIN_BYTES / size.max(1)).clamp(1, TRAIN);
        let left = (self.args.count - self.sent.datagrams).max(1) as usize;
        let many = self.mixer.rng.below(4) > 0 && size > 0;
        let count = if many { 1 + self.mixer.rng.below(most) } else { 1 }.min(left);
        let mut kinds = [[0; KINDS.len()]; 3];
        for number in 0..count {
            let place = &mut self.buffer[number * size..(number + 1) * size];
            let rng = &mut self.mixer.rng;
            let kind = if self.args.spoof { Kind::Copy } else { Kind::draw(rng, origin) };
            // A connection at a time in a train, or several.
            let packets = &self.traffic.packets;
            let other = &packets[rng.below(packets.len())];
            let alike = other.flow.source == seen.flow.source && other.flow.target == target;
            let of = if alike && rng.below(2) == 0 { other } else { seen };
            let ident = number as u16;
            self.mixer.fill((kind, origin), (of, &self.traffic), (flow, ident), place);
            kinds[origin as usize][kind as usize] += 1;
        }
        if sockets::send(socket, target, &self.buffer[..count * size], size)? {
            let sent = &mut self.sent;
            sent.datagrams += count as u64;
            sent.messages += 1;
            sent.trains += u64::from(count > 1);
            sent.bytes += (count * size) as u64;
            if !self.traffic.is_slot(target, &self.buffer[..count * size]) {
                sent.nobodys_datagrams += count as u64;
                sent.nobodys_messages += 1;
            }
            let sums = sent.kinds.iter_mut().flatten().zip(kinds.iter().flatten());
            sums.for_each(|(sum, more)| *sum += more);
        } else {
            self.senders.refused += 1;
        }
        Ok(())
    }

    fn run(&mut self) -> io::Result<f64> {
        self.wait()?;
        let start = Instant::now();
        let mut looked = start;
        while self.sent.datagrams < self.args.count {
            if looked.elapsed() >= LOOK_EVERY {
                self.traffic.look(&self.senders.ports, &self.args.stranger)?;
                self.ears.listen();
                looked = Instant::now();
                if self.args.until.as_ref().is_some_and(|file| file.exists()) {
                    break;
                }
            }
            let ahead = match self.args.rate {
                rate if rate > 0.0 => self.sent.datagrams as f64 / rate,
                _ => 0.0,
            };
            let ahead = ahead - start.elapsed().as_secs_f64();
            if ahead > 0.001 {
                std::thread::sleep(Duration::from_secs_f64(ahead));
            }
            self.message()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let end = Instant::now();
        while end.elapsed() < ECHO {
            self.ears.listen();
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(seconds)
    }
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let mut flood = Flood {
        mixer: Mixer::new(args.seed),
        traffic: Traffic::default(),
        senders: Senders::default(),
        ears: Ears::new(&args.stranger)?,
        sent: Sent::default(),
        buffer: vec![0; 1 << 16],
        args,
    };
    let seconds = flood.run()?;
    let Flood { sent, ears, traffic, senders, .. } = &flood;
    let mut figures: Vec<(String, f64)> = [
        ("datagrams", sent.datagrams),
        ("messages", sent.messages),
        ("trains", sent.trains),
        ("nobodys_datagrams", sent.nobodys_datagrams),
        ("nobodys_messages", sent.nobodys_messages),
        ("bytes", sent.bytes),
        ("refused_by_kernel", senders.refused),
        ("queue_pairs_seen", traffic.qpns.len() as u64),
        ("answers", ears.heard - ears.told),
        ("flow_answers", ears.told),
    ]
    .map(|(name, value)| (name.to_owned(), value as f64))
    .into();
    figures.push(("seconds".to_owned(), seconds));
    for (kinds, who) in sent.kinds.iter().zip(["stranger", "peer", "own"]) {
        for (count, kind) in kinds.iter().zip(KINDS).filter(|(count, _)| **count > 0) {
            figures.push((format!("{who}_{}", kind.name()), *count as f64));
        }
    }
    for example in &ears.examples {
        eprintln!("answered: {example}");
    }
    let figures: Vec<(&str, f64)> = figures.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    report("flood", &figures);
    Ok(())
}
