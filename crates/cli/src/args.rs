//! The command line: low-level records as clap fills them. What they mean together is decided here
//! for simple commands, in `cmd::perf::plan` for `perf`.

mod audit;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::cmd::doctor::args::DoctorArgs;
use crate::cmd::perf::plan::{PerfRecord, Plan};
use crate::cmd::sim::args::SimArgs;
use crate::error::{Failure, Result};

pub(crate) use audit::{Amount, AuditArgs, AuditCommand, DecodeArgs, Expect};

/// What is to be done.
pub(crate) enum Command {
    /// Print this text.
    Help(String),
    Run(RunArgs),
    Demo(DemoArgs),
    Perf(Plan),
    Link(ListArgs),
    Gids(ListArgs),
    Devinfo(DevinfoArgs),
    Stat(StatArgs),
    Audit(Box<AuditArgs>),
    Doctor(DoctorArgs),
    Sim(SimArgs),
    TcpPeer(IpAddr),
}

const EXAMPLES: &str = "\
Examples:
  crocevia demo                                  two hosts, all operations, with and without loss
  crocevia run -- ib_write_bw                    an RDMA program, unmodified, as it is installed
  crocevia run --faults loss=1%,seed=7 -- CMD    the same on a link that loses packets
  crocevia perf write-bw --pair                  bandwidth of RDMA WRITE between two processes
  crocevia link                                  what RDMA devices there are
  crocevia stat -w                               what running programs send and receive
  crocevia audit trace.pcapng                    what is wrong in a captured network, and why
  crocevia doctor                                what is misconfigured on this host
  crocevia sim scenarios/victim.toml             what a RoCE network does, simulated

Environment:
  CROCEVIA_ADDR     address or interface that the device is to have (--addr)
  CROCEVIA_FAULTS   faults to inject, as for --faults
  CROCEVIA_PCAP     file to capture to, as for --pcap; also of perf and demo
  CROCEVIA_CHECK    what to do about misuse of verbs, as for --check
  NO_COLOR          no colours

Exit status: 0 success, 1 failure, 2 wrong usage.";

/// RDMA over Converged Ethernet in software: runs RDMA programs without an RDMA network card,
/// a kernel module or root.
#[derive(Parser)]
#[command(name = "crocevia", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
struct Record {
    #[command(subcommand)]
    command: CommandRecord,
}

#[derive(Subcommand)]
enum CommandRecord {
    Run(RunArgs),
    Demo(DemoArgs),
    Perf(PerfRecord),
    Link(LinkRecord),
    Gids(GidsRecord),
    Devinfo(DevinfoArgs),
    Stat(StatArgs),
    Audit(Box<AuditArgs>),
    Doctor(DoctorArgs),
    Sim(SimArgs),
    #[command(hide = true)]
    TcpPeer(TcpPeerRecord),
}

const RUN_EXAMPLES: &str = "\
Examples:
  crocevia run -- ibv_devinfo
  crocevia run --addr 127.0.0.2 -- ib_write_bw
  crocevia run --addr 127.0.0.3 -- ib_write_bw 127.0.0.2
  crocevia run --faults loss=1%,reorder=2%,seed=42 -- ib_send_lat 192.0.2.7
  crocevia run --faults delay=20us,tx.delay=20us,tx.rate=10gbit -- ib_write_bw 192.0.2.7
  crocevia run --faults fail=qp_error@1000 -- ib_write_bw 192.0.2.7
  crocevia run --pcap trace.pcapng -- ib_write_bw 192.0.2.7; tshark -r trace.pcapng
  crocevia run --check -- ./my-program

Faults are fields separated by commas, of the packets received, or behind tx. of those sent:
  loss, dup, reorder, corrupt   1% or 0.01: so many packets are lost, doubled, overtaken, damaged
  delay, jitter                 20us: each packet takes so long, and up to so much more
  rate, queue                   10gbit, 256k: rate of the link; bytes that wait before it, 1m unless
                                said, beyond which packets are lost
  ecn                           KMIN:KMAX:PMAX, 100k:400k:10%: packets that say ECT (--tclass=2 of
                                perftest) get CE by the bytes that wait: none up to KMIN, then up to
                                PMAX, all from KMAX on
  seed                          42: what all this is drawn from, packet by packet
  fail                          KIND@WHEN, any number of times: what happens once. WHEN is the
                                number of a packet (the first is 1), or a time since the device was
                                opened, 2s; it strikes the first packet from then on that it fits
    drop, dup, reorder, corrupt the packet; drop@WHEN/50ms: all for so long
    qp_error                    its queue pair: QP_FATAL, all requests flushed
    cq_overrun                  the completion queue of its work: CQ_ERR
    rnr                         the SEND received is told to come again later
    nak_sequence, nak_invalid, nak_access, nak_operation
                                the request received is refused
    port_down, port_up          the link: PORT_ERR, PORT_ACTIVE; port_down@WHEN/50ms: for so long.
                                Nothing is sent meanwhile, so that no packet sent ends it
    device_fatal                everything: DEVICE_FATAL, no packet any more
Bytes are those on an Ethernet line, preamble and gap included. Sent packets that pass through
faults leave one by one. CROCEVIA_LOG=info tells on standard error what struck, and the sum at the
end; debug tells of each packet.

Exit status: that of CMD; 99 for --check=fail; 127 if CMD was not found, 126 if it could not be
executed, 1 if the library is missing or the address does not exist, 2 for wrong usage.";

/// Run an RDMA program on the crocevia device
///
/// The program gets crocevia's libibverbs.so.1 instead of the system's, by LD_LIBRARY_PATH and
/// LD_PRELOAD; so do the programs that it starts. Nothing is installed, no root is needed.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
#[command(override_usage = "crocevia run [OPTIONS] -- <CMD>...")]
pub(crate) struct RunArgs {
    /// Address or interface that the device is to have; any 127.x.y.z will do without set-up
    #[arg(long, value_name = "ADDR")]
    pub(crate) addr: Option<String>,

    /// Faults to inject: loss=1%,tx.delay=20us,fail=qp_error@1000,seed=42; see below
    #[arg(long, value_name = "SPEC")]
    pub(crate) faults: Option<String>,

    /// Write what the device sends and receives to FILE, as pcapng; %p in FILE is the process's
    /// number. Of several processes the first has FILE, the others the number before its extension.
    /// CROCEVIA_PCAP_SNAPLEN=N keeps N bytes of each packet
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) check: CheckArgs,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(required_unless_present = "check", value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What is asked of the checker.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Report misuse of verbs as it happens. MODE: report; fail: exit status 99 if there was any;
    /// abort at the first; strict: doubtful habits too; joined by commas. `list` tells the rules
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "report")]
    pub(crate) check: Option<String>,

    /// Append what is found to FILE instead of standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) check_file: Option<PathBuf>,

    /// Append it to FILE as lines of JSON too
    #[arg(long, value_name = "FILE")]
    pub(crate) check_json: Option<PathBuf>,
}

const DEMO_EXAMPLES: &str = "\
Exit status: 0 if every step was done and every byte was right.";

/// Show it: two hosts, every operation, checked, with and without loss
///
/// Two processes on two loopback addresses are two hosts. Between them: write, read, send and
/// atomic, bandwidth and latency, beside TCP on the same addresses, then the RDMA operations again
/// with 1 % of the packets lost. Every byte is checked. Takes about half a minute.
#[derive(Args, Debug)]
#[command(after_help = DEMO_EXAMPLES)]
pub(crate) struct DemoArgs {
    /// A tenth of the time for each step; the numbers are rougher
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Faults of the second half
    #[arg(long, value_name = "SPEC", default_value = "loss=1%,seed=42")]
    pub(crate) faults: String,
}

/// Show RDMA links, as `rdma link show` does
///
/// One line for each device: name, port, state and network interface.
#[derive(Args, Debug)]
struct LinkRecord {
    #[command(flatten)]
    list: ListArgs,
}

/// Show the GID table, as `show_gids` does
///
/// One line for each GID. INDEX is what programs call the GID index (-x).
#[derive(Args, Debug)]
struct GidsRecord {
    #[command(flatten)]
    list: ListArgs,
}

/// What the listing commands take.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only the device with this address or interface
    #[arg(long, value_name = "ADDR")]
    pub(crate) addr: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show devices and their ports, as `ibv_devinfo` does
#[derive(Args, Debug)]
pub(crate) struct DevinfoArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,

    /// All limits, and the GID table
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

const STAT_EXAMPLES: &str = "\
Examples:
  crocevia stat                  all devices that are open, and why packets were dropped
  crocevia stat --qp --pid 4711  every queue pair of a process
  crocevia stat -a               every counter, one a line (docs/counters.md tells their meaning)
  crocevia stat -w               rates, every second
  crocevia stat -w0.1 --json     one JSON document a line, ten a second
  crocevia stat --prometheus     for a scraper, or the node exporter's textfile collector

Processes of this user in this network namespace are asked; root asks those of every user.

Exit status: 0 if all have answered; 1 if one has not, or no device is open (with --json,
--prometheus and --watch that is no failure); 2 for wrong usage.";

/// Show what the devices of running programs count
///
/// Packets, bytes and messages, retransmissions, drops by cause: of each device of each running
/// process, and of each of its queue pairs. Asking costs the process about 0.1 ms of its time.
#[derive(Args, Debug)]
#[command(after_help = STAT_EXAMPLES)]
pub(crate) struct StatArgs {
    /// Also each queue pair
    #[arg(long)]
    pub(crate) qp: bool,

    /// Every counter, also those that are 0
    #[arg(short, long, conflicts_with_all = ["json", "prometheus", "watch"])]
    pub(crate) all: bool,

    /// Again every INTERVAL seconds, as rates
    #[arg(short, long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1")]
    #[arg(value_parser = seconds)]
    pub(crate) watch: Option<Duration>,

    /// With --watch: end after so many times
    #[arg(short, long, value_name = "N", requires = "watch")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Only this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Only devices of this name, such as crocevia0
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,

    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    pub(crate) json: bool,

    /// Print Prometheus's text form
    #[arg(long)]
    pub(crate) prometheus: bool,

    /// Seconds to wait for a process that does not answer
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) timeout: Duration,
}

/// In which form counters are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatForm {
    Table,
    Json,
    Prometheus,
}

impl StatArgs {
    /// The form asked for.
    pub(crate) fn form(&self) -> StatForm {
        match (self.json, self.prometheus) {
            (true, _) => StatForm::Json,
            (_, true) => StatForm::Prometheus,
            _ => StatForm::Table,
        }
    }
}

pub(crate) fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.01..=86_400.0).contains(value));
    value.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.01 to 86400 seconds".to_owned())
}

/// The other end of the demonstration's TCP steps; takes what every server of a pair is given.
#[derive(Args, Debug)]
struct TcpPeerRecord {
    #[arg(long)]
    addr: IpAddr,
    #[arg(short)]
    port: u16,
    #[arg(long)]
    announce: bool,
}

/// The command line as a plan.
pub(crate) fn parse() -> Result<Command> {
    match Record::try_parse() {
        Ok(record) => plan(record.command),
        Err(error) if is_help(error.kind()) => Ok(Command::Help(help_text(&error))),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Asked for nothing: the help says what there is, and nothing has been done.
            Err(Failure::Help(error.render().to_string()))
        }
        Err(error) => {
            // Clap's text begins with its own "error: "; ours says who speaks.
            let text = error.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Err(Failure::usage(text.trim_end()))
        }
    }
}

fn plan(record: CommandRecord) -> Result<Command> {
    Ok(match record {
        CommandRecord::Run(args) => Command::Run(args),
        CommandRecord::Demo(args) => Command::Demo(args),
        CommandRecord::Perf(args) => Command::Perf(Plan::from_record(args)?),
        CommandRecord::Link(args) => Command::Link(args.list),
        CommandRecord::Gids(args) => Command::Gids(args.list),
        CommandRecord::Devinfo(args) => Command::Devinfo(args),
        CommandRecord::Stat(args) => Command::Stat(args),
        CommandRecord::Audit(args) => Command::Audit(args),
        CommandRecord::Doctor(args) => Command::Doctor(args),
        CommandRecord::Sim(args) => Command::Sim(args),
        CommandRecord::TcpPeer(TcpPeerRecord { addr, port: _, announce: _ }) => {
            Command::TcpPeer(addr)
        }
    })
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

fn help_text(error: &clap::Error) -> String {
    use std::io::IsTerminal;
    let styled = error.render();
    if crate::render::colour(std::io::stdout().is_terminal()) {
        styled.ansi().to_string()
    } else {
        styled.to_string()
    }
}
