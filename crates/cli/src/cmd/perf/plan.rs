//! What a measurement is: the record of its command line, the plan made of it, and what two ends
//! agree on. Every rule about which options go together stands here.

use std::fmt;

use clap::{Args, ValueEnum};
use crocevia::Mtu;
use serde::{Deserialize, Serialize};

use super::versus::{Rival, Vs};
use crate::error::{Failure, Result};

/// Largest size of `-a`.
pub(crate) const ALL_LIMIT: u32 = 8 << 20;
/// Largest size of `-s`.
const MAX_SIZE: u32 = 1 << 30;
/// Bytes of an atomic.
pub(crate) const ATOMIC_BYTES: u32 = 8;
const DEFAULT_PORT: u16 = 18515;
const DEFAULT_BW_SIZE: u32 = 65536;
const DEFAULT_LAT_SIZE: u32 = 2;
const DEFAULT_DEPTH: u32 = 128;
const DEFAULT_ROUNDS: u32 = 3;
const MAX_QPS: u32 = 1024;
const MAX_SECONDS: f64 = 86_400.0;

/// An operation and what is measured of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// Bandwidth of RDMA WRITE
    WriteBw,
    /// Latency of RDMA WRITE (half a round trip)
    WriteLat,
    /// Bandwidth of RDMA READ
    ReadBw,
    /// Latency of RDMA READ (whole round trip)
    ReadLat,
    /// Bandwidth of SEND
    SendBw,
    /// Latency of SEND (half a round trip)
    SendLat,
    /// Rate of fetch-and-add on 8 bytes
    AtomicBw,
    /// Latency of fetch-and-add (whole round trip)
    AtomicLat,
}

/// The operation of a [`Test`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Write,
    Read,
    Send,
    Atomic,
}

impl Test {
    /// The operation.
    pub(crate) fn op(self) -> Op {
        match self {
            Self::WriteBw | Self::WriteLat => Op::Write,
            Self::ReadBw | Self::ReadLat => Op::Read,
            Self::SendBw | Self::SendLat => Op::Send,
            Self::AtomicBw | Self::AtomicLat => Op::Atomic,
        }
    }

    /// Whether latency is measured, not bandwidth.
    pub(crate) fn is_latency(self) -> bool {
        matches!(self, Self::WriteLat | Self::ReadLat | Self::SendLat | Self::AtomicLat)
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WriteBw => "write-bw",
            Self::WriteLat => "write-lat",
            Self::ReadBw => "read-bw",
            Self::ReadLat => "read-lat",
            Self::SendBw => "send-bw",
            Self::SendLat => "send-lat",
            Self::AtomicBw => "atomic-bw",
            Self::AtomicLat => "atomic-lat",
        }
    }

    /// The heading that perftest gives it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::WriteBw => "RDMA_Write BW Test",
            Self::WriteLat => "RDMA_Write Latency Test",
            Self::ReadBw => "RDMA_Read BW Test",
            Self::ReadLat => "RDMA_Read Latency Test",
            Self::SendBw => "Send BW Test",
            Self::SendLat => "Send Latency Test",
            Self::AtomicBw => "Atomic FETCH_AND_ADD BW Test",
            Self::AtomicLat => "Atomic FETCH_AND_ADD Latency Test",
        }
    }

    fn default_iterations(self) -> u64 {
        match self {
            Self::WriteBw | Self::SendBw => 5000,
            _ => 1000,
        }
    }
}

/// The service of the queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "UPPER")]
pub(crate) enum Connection {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// Message sizes to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Sizes {
    One(u32),
    /// Powers of two from 2 on.
    All,
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(size) => write!(f, "{size}"),
            Self::All => f.write_str("all (-a)"),
        }
    }
}

/// How much to measure of each size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Amount {
    Iterations(u64),
    Seconds(f64),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iterations(n) => write!(f, "{n} iterations (-n)"),
            Self::Seconds(s) => write!(f, "{s} seconds (-D)"),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  crocevia perf write-bw --pair                   both ends at once, on two loopback addresses
  crocevia perf send-lat                          server: waits for a client
  crocevia perf send-lat 192.0.2.7 -n 10000       client of a server on 192.0.2.7
  crocevia perf read-bw --pair -a --check         all sizes, every byte verified
  crocevia perf send-bw --pair -c UD -s 1024 -D 5 --json
  crocevia perf write-bw --pair --vs tcp,udp      beside TCP and bare UDP, 3 rounds in turn

What both ends give must agree; what only one gives holds for both. MB is 2^20 bytes. BW peak is
the best over stretches of at least a queue's depth and a twentieth of the messages. The latency
of write and send is half a round trip, that of read and atomic a whole one, as perftest has it.

--vs runs on the same two addresses. bw: one TCP stream, written in messages of the same size, and
trains of datagrams in the packet shape of the test, with credits so that none is lost, unchecked
and uncopied; for read-bw both go from the server to the client. lat: a ping-pong that spins, over
TCP with TCP_NODELAY, and of datagrams (to 64 KiB); for read-lat 8 bytes ask for the message. Both
atomic tests stand beside a ping-pong of 8 bytes, one at a time, which atomic-bw gives as MB/s.";

/// Measure bandwidth and latency between two hosts, in perftest's terms
///
/// Without PEER it is the server and waits for a client; with PEER it is the client. The two speak
/// over TCP to agree on what to do, the measurement itself is RDMA.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerfRecord {
    /// Operation, and bandwidth (bw) or latency (lat)
    #[arg(value_enum, value_name = "TEST")]
    test: Test,

    /// Address or name of the server; without it, be the server
    #[arg(value_name = "PEER", conflicts_with = "pair")]
    peer: Option<String>,

    /// Bytes of a message; K, M, G for powers of 1024 [default: 65536 for bw, 2 for lat]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u32>,

    /// Sizes 2 to 8 MiB in powers of two (UD: to the MTU)
    #[arg(short, long, conflicts_with = "size")]
    all: bool,

    /// Messages of each size, over all queue pairs
    /// [default: 5000; 1000 for read-bw, atomic-bw and lat]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(5..))]
    iters: Option<u64>,

    /// Measure for this long, each size, instead of counting messages
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters")]
    #[arg(value_parser = parse_seconds)]
    duration: Option<f64>,

    /// Queue pairs [default: 1]
    #[arg(short, long, value_name = "QPS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_QPS)))]
    qps: Option<u32>,

    /// Messages in flight on each queue pair [default: 128]
    #[arg(short = 't', long = "tx-depth", value_name = "DEPTH")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(engine::limits::MAX_QP_WR)))]
    depth: Option<u32>,

    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the smaller of the two ports']
    #[arg(short, long, value_name = "MTU", value_parser = parse_mtu)]
    mtu: Option<u32>,

    /// Service of the queue pairs [default: RC]
    #[arg(short, long, value_enum, value_name = "RC|UC|UD", ignore_case = true)]
    #[arg(hide_possible_values = true)]
    connection: Option<Connection>,

    /// Index of the own GID (see `crocevia gids`)
    #[arg(short = 'x', long, value_name = "INDEX", default_value_t = 0)]
    gid_index: u8,

    /// TCP port of the server, for the exchange
    #[arg(short, long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,

    /// Own address or interface [default: CROCEVIA_ADDR, else the one that leads to the peer]
    #[arg(long, value_name = "ADDR", conflicts_with = "pair")]
    addr: Option<String>,

    /// Verify every byte; bandwidth counts the time of transfer alone
    #[arg(long)]
    check: bool,

    /// Measure rivals too, in turn with RDMA: kernel TCP, bare UDP; the server learns it by itself
    #[arg(long, value_enum, value_name = "tcp,udp", value_delimiter = ',')]
    #[arg(hide_possible_values = true)]
    vs: Vec<Rival>,

    /// Rounds of --vs, each size [default: 3]
    #[arg(long, value_name = "N", requires = "vs")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Run both ends: two processes on two loopback addresses
    #[arg(long)]
    pair: bool,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,

    /// Say on standard output where the server listens (the other end of --pair)
    #[arg(long, hide = true)]
    announce: bool,
}

/// A side's part in a measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Server,
    Client(String),
    Pair,
}

/// What one side was told to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    pub(crate) ask: Ask,
    pub(crate) gid_index: u8,
    pub(crate) port: u16,
    pub(crate) addr: Option<String>,
    pub(crate) json: bool,
    pub(crate) announce: bool,
}

impl Plan {
    /// The plan that the command line means.
    pub(crate) fn from_record(record: PerfRecord) -> Result<Self> {
        let sizes = match (record.size, record.all) {
            (_, true) => Some(Sizes::All),
            (size, false) => size.map(Sizes::One),
        };
        let amount = match (record.iters, record.duration) {
            (_, Some(seconds)) => Some(Amount::Seconds(seconds)),
            (iterations, None) => iterations.map(Amount::Iterations),
        };
        let plan = Self {
            role: match (record.pair, record.peer) {
                (true, _) => Role::Pair,
                (false, Some(peer)) => Role::Client(peer),
                (false, None) => Role::Server,
            },
            ask: Ask {
                test: record.test,
                sizes,
                amount,
                qps: record.qps,
                depth: record.depth,
                mtu: record.mtu,
                connection: record.connection,
                check: record.check.then_some(true),
                vs: Vs::new(record.vs, record.rounds.unwrap_or(DEFAULT_ROUNDS)),
            },
            gid_index: record.gid_index,
            port: record.port,
            addr: record.addr,
            json: record.json,
            announce: record.announce,
        };
        plan.ask.validate()?;
        Ok(plan)
    }
}

/// What one side asks for; `None` where it takes what the other side asks for, or the default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) test: Test,
    pub(crate) sizes: Option<Sizes>,
    pub(crate) amount: Option<Amount>,
    pub(crate) qps: Option<u32>,
    pub(crate) depth: Option<u32>,
    pub(crate) mtu: Option<u32>,
    pub(crate) connection: Option<Connection>,
    pub(crate) check: Option<bool>,
    /// An end that does not know it does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) vs: Option<Vs>,
}

impl Ask {
    /// The default of everything.
    pub(crate) fn new(test: Test) -> Self {
        Self {
            test,
            sizes: None,
            amount: None,
            qps: None,
            depth: None,
            mtu: None,
            connection: None,
            check: None,
            vs: None,
        }
    }

    /// Refuses what cannot be done, whatever the other side asks for.
    fn validate(&self) -> Result<()> {
        let test = self.test.name();
        let connection = self.connection.unwrap_or(Connection::Rc);
        match (connection, self.test.op()) {
            (Connection::Uc, op @ (Op::Read | Op::Atomic)) => {
                return Err(Failure::usage(format!(
                    "{test} on UC: an unreliable connection has no {}; use -c RC",
                    if op == Op::Read { "READ" } else { "atomics" }
                )));
            }
            (Connection::Ud, Op::Read | Op::Write | Op::Atomic) => {
                return Err(Failure::usage(format!(
                    "{test} on UD: datagrams can only be sent; use send-bw or send-lat, or -c RC"
                )));
            }
            _ => {}
        }
        if self.test.op() == Op::Atomic && self.sizes.is_some_and(|s| s != Sizes::One(ATOMIC_BYTES))
        {
            return Err(Failure::usage(format!(
                "{test} has one size, {ATOMIC_BYTES} bytes: leave out -s and -a"
            )));
        }
        if self.test.is_latency() {
            let option = match self {
                Self { qps: Some(_), .. } => Some("-q (queue pairs)"),
                Self { depth: Some(_), .. } => Some("-t (messages in flight)"),
                _ => None,
            };
            if let Some(option) = option {
                return Err(Failure::usage(format!(
                    "{test} has one message in flight on one queue pair: {option} is for the \
                     bandwidth tests"
                )));
            }
        }
        Ok(())
    }

    /// What the two ends do, or the parameter on which they differ. Both ends come to the same.
    pub(crate) fn agree(server: &Self, client: &Self, ports: [Mtu; 2]) -> Result<Agreed> {
        if server.test != client.test {
            return Err(differ("test", server.test.name(), client.test.name()));
        }
        let test = server.test;
        let default_size = match (test.op(), test.is_latency()) {
            (Op::Atomic, _) => ATOMIC_BYTES,
            (_, true) => DEFAULT_LAT_SIZE,
            (_, false) => DEFAULT_BW_SIZE,
        };
        let connection = pick("connection type (-c)", server.connection, client.connection)?
            .unwrap_or(Connection::Rc);
        let mtu = agree_mtu(server, client, ports)?;
        let agreed = Agreed {
            test,
            sizes: match pick("size (-s, -a)", server.sizes, client.sizes)? {
                Some(Sizes::All) => Agreed::all_sizes(connection, mtu),
                Some(Sizes::One(size)) => vec![size],
                None if connection == Connection::Ud => vec![default_size.min(mtu.bytes())],
                None => vec![default_size],
            },
            amount: pick("amount (-n, -D)", server.amount, client.amount)?
                .unwrap_or(Amount::Iterations(test.default_iterations())),
            qps: pick("number of queue pairs (-q)", server.qps, client.qps)?.unwrap_or(1),
            depth: pick("depth (-t)", server.depth, client.depth)?.unwrap_or(DEFAULT_DEPTH),
            mtu,
            connection,
            check: server.check == Some(true) || client.check == Some(true),
            vs: pick("rivals (--vs)", server.vs.clone(), client.vs.clone())?,
        };
        Self { connection: Some(connection), ..client.clone() }.validate()?;
        agreed.validate()?;
        Ok(agreed)
    }
}

/// What both ends do.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Agreed {
    pub(crate) test: Test,
    pub(crate) sizes: Vec<u32>,
    pub(crate) amount: Amount,
    pub(crate) qps: u32,
    pub(crate) depth: u32,
    pub(crate) mtu: Mtu,
    pub(crate) connection: Connection,
    pub(crate) check: bool,
    pub(crate) vs: Option<Vs>,
}

impl Agreed {
    fn all_sizes(connection: Connection, mtu: Mtu) -> Vec<u32> {
        let last = if connection == Connection::Ud { mtu.bytes() } else { ALL_LIMIT };
        (1..=last.ilog2()).map(|power| 1 << power).collect()
    }

    /// The largest size.
    pub(crate) fn max_size(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    fn validate(&self) -> Result<()> {
        let size = self.max_size();
        if self.connection == Connection::Ud && size > self.mtu.bytes() {
            return Err(Failure::usage(format!(
                "a datagram carries at most one MTU: {size} bytes were asked for, the MTU is {}; \
                 give a smaller -s, or use -c RC",
                self.mtu.bytes()
            )));
        }
        let bytes = u64::from(size) * u64::from(self.qps);
        if bytes > 1 << 32 {
            return Err(Failure::usage(format!(
                "{} queue pairs with {size} bytes each need {bytes} bytes of memory: give a \
                 smaller -q or -s (4 GiB in all)",
                self.qps
            )));
        }
        Ok(())
    }
}

/// What both sides give must be the same.
fn pick<T: PartialEq + fmt::Display>(
    name: &str,
    server: Option<T>,
    client: Option<T>,
) -> Result<Option<T>> {
    match (server, client) {
        (Some(server), Some(client)) if server != client => {
            Err(differ(name, &server.to_string(), &client.to_string()))
        }
        (server, client) => Ok(server.or(client)),
    }
}

fn differ(name: &str, server: &str, client: &str) -> Failure {
    Failure::failed(format!(
        "the two ends differ in the {name}: the server has {server}, the client {client}; give \
         both the same, or leave it out at one end"
    ))
}

fn agree_mtu(server: &Ask, client: &Ask, [server_port, client_port]: [Mtu; 2]) -> Result<Mtu> {
    let asked = pick("MTU (-m)", server.mtu, client.mtu)?.and_then(Mtu::from_bytes);
    let limit = server_port.min(client_port);
    match asked {
        Some(mtu) if mtu > limit => Err(Failure::failed(format!(
            "the MTU (-m) of {} bytes is more than the path takes: the server's port has {}, the \
             client's {}; give a smaller -m, or raise the interface's MTU",
            mtu.bytes(),
            server_port.bytes(),
            client_port.bytes()
        ))),
        Some(mtu) => Ok(mtu),
        None => Ok(limit),
    }
}

fn parse_size(text: &str) -> std::result::Result<u32, String> {
    let expected =
        || format!("expected 1 to {MAX_SIZE} bytes, such as 64, 4096, 64K or 8M, found {text:?}");
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1u32),
    };
    let size = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(scale));
    size.filter(|size| (1..=MAX_SIZE).contains(size)).ok_or_else(expected)
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.01..=MAX_SECONDS).contains(s));
    seconds.ok_or_else(|| {
        format!("expected seconds from 0.01 to {MAX_SECONDS:.0}, such as 5 or 0.5, found {text:?}")
    })
}

fn parse_mtu(text: &str) -> std::result::Result<u32, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.map(Mtu::bytes)
        .ok_or_else(|| format!("expected 256, 512, 1024, 2048 or 4096, found {text:?}"))
}
