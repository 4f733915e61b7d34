//! The arguments of `crocevia audit` and `crocevia audit decode`. What they mean is in
//! `cmd::audit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  crocevia audit trace.pcapng                 what is wrong, on whose side, what to do about it
  crocevia audit left.pcap right.pcap.gz      captures of several links, judged together
  zstd -dc trace.zst | crocevia audit -       from standard input
  crocevia audit --explain R021               what a rule means, its thresholds and remedies
  crocevia audit trace.pcap --frames R021     every frame that shows it
  crocevia audit trace.pcap --qps             every queue pair: packets, goodput, latency
  crocevia audit trace.pcap --filter 'host 10.0.0.1 and time 1.5..2.5'
  crocevia audit trace.pcap --ladder 3        conversation 3 as a sequence diagram
  crocevia audit trace.pcap --html report.html
  crocevia audit --live eth0 --for 60         what happens on an interface now; needs CAP_NET_RAW
  crocevia audit decode trace.pcap --tree     every field of every header

Filters: host ADDR, src ADDR, dst ADDR, qp N, conversation N, time FROM..TO, frame FROM..TO, joined
by and, or, not and parentheses. Times are seconds from the first packet, or HH:MM:SS in UTC.
docs/audit.md is the manual: how to capture well, filters, the names in the JSON.

Exit status: 0 nothing is wrong; 1 findings, or a capture is damaged; 2 a capture cannot be read,
the page cannot be written, or wrong usage.";

/// Say why a RoCE network is slow, from a capture
///
/// Reads captures (pcap, pcapng; also gzip and zstd; of Ethernet, InfiniBand, Linux cooked, raw IP)
/// of any size, checks every ICRC, rebuilds the conversations of queue pairs, and says what is
/// wrong, where, on whose side, with the frames that show it and what to do about it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(override_usage = "crocevia audit [OPTIONS] <FILE>...\n       \
                            crocevia audit [OPTIONS] --live <IFACE>\n       \
                            crocevia audit --explain <RULE>\n       \
                            crocevia audit decode [OPTIONS] <FILE>...")]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,

    /// Captures; - is standard input. Those of several links are judged together, in the order of
    /// their times
    #[arg(value_name = "FILE", required_unless_present_any = ["explain", "rules", "live"])]
    pub(crate) files: Vec<PathBuf>,

    /// Listen to interfaces instead of reading captures: eth0, or several with commas. Needs
    /// CAP_NET_RAW
    #[arg(long, value_name = "IFACE", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["files", "ladder"])]
    pub(crate) live: Vec<String>,

    /// With --live: end after so many seconds
    #[arg(long = "for", value_name = "SECONDS", requires = "live", conflicts_with = "files",
          value_parser = super::seconds)]
    pub(crate) duration: Option<Duration>,

    /// With --live: also listen to what is for other stations, as on a mirror port
    #[arg(long, requires = "live", conflicts_with = "files")]
    pub(crate) promiscuous: bool,

    /// Judge and show only what fits: host 10.0.0.1 and qp 0x11 and time 1.5..2; see below
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,

    /// What the network is meant to have, though nothing in the capture speaks of it
    #[arg(long, value_name = "WHAT")]
    pub(crate) expect: Vec<Expect>,

    /// Speed of the links, where it is known: pauses are told in bit times. Without it 100 Gb/s is
    /// assumed, or more where the traffic shows more
    #[arg(long, value_name = "GBPS", value_parser = clap::value_parser!(u32).range(1..=3200))]
    pub(crate) link_speed: Option<u32>,

    /// Print JSON
    #[arg(long, conflicts_with_all = ["frames", "ladder"])]
    pub(crate) json: bool,

    /// Findings to show: what fits the screen with those of a rule about many queue pairs folded,
    /// or all
    #[arg(long, value_name = "WHICH", default_value = "screen", hide_default_value = true)]
    pub(crate) findings: Amount,

    /// Show every queue pair, both directions
    #[arg(long)]
    pub(crate) qps: bool,

    /// Show every connection that the connection manager made or tried to make
    #[arg(long)]
    pub(crate) connections: bool,

    /// Show the links on which there were pauses
    #[arg(long)]
    pub(crate) links: bool,

    /// Print each frame that shows a finding of these rules (R021, lost-behind-capture, all;
    /// several with commas) as it is found, instead of the summary
    #[arg(long, value_name = "RULES", conflicts_with = "ladder")]
    pub(crate) frames: Option<String>,

    /// Draw a conversation as a sequence diagram instead of the summary: its number, a queue pair
    /// (0x11), or ADDR:QP
    #[arg(long, value_name = "WHICH")]
    pub(crate) ladder: Option<String>,

    /// With --ladder: lines to draw at most; 0 is all
    #[arg(long, value_name = "N", default_value_t = 200, requires = "ladder")]
    pub(crate) limit: usize,

    /// Also write a page with plots to FILE, which is new or such a page; it needs nothing else, no
    /// network either
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frames", "ladder"])]
    pub(crate) html: Option<PathBuf>,

    /// Print what a rule means, what shows it and what to do: R021, its word, or all
    #[arg(long, value_name = "RULE", conflicts_with_all = ["files", "live"])]
    pub(crate) explain: Option<String>,

    /// List the rules
    #[arg(long, conflicts_with_all = ["files", "explain", "live"])]
    pub(crate) rules: bool,
}

/// What is below `audit`.
#[derive(Subcommand, Debug)]
pub(crate) enum AuditCommand {
    Decode(DecodeArgs),
}

/// What a network is meant to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Expect {
    /// ECN: a flow without it is a finding
    Ecn,
}

/// How many findings are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Amount {
    Screen,
    All,
}

const DECODE_EXAMPLES: &str = "\
Examples:
  crocevia audit decode trace.pcap
  crocevia audit decode trace.pcap --frame 12..20 --tree
  crocevia audit decode trace.pcap --filter 'qp 0x11 and not host 10.0.0.2'

Exit status: 0; 1 a capture is damaged, what is before the damage was printed; 2 a capture cannot be
read, or wrong usage.";

/// Print packets, one a line or with every field of every header
#[derive(Args, Debug)]
#[command(after_help = DECODE_EXAMPLES)]
pub(crate) struct DecodeArgs {
    /// Captures; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Only packets that fit: host, src, dst, qp, time, frame, joined by and, or, not
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,

    /// A tree for each packet
    #[arg(long)]
    pub(crate) tree: bool,

    /// Only these frames: 12, 12..20, 12.. or ..20
    #[arg(long, value_name = "RANGE")]
    pub(crate) frame: Option<String>,
}
