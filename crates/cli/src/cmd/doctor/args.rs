//! The command line of `crocevia doctor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  crocevia doctor                             this host
  crocevia doctor --interface eth0 --interval 10
                                              an interface and its counters over ten seconds
  crocevia doctor --pid 4711                  with the limits and processors of a process
  crocevia doctor --record /tmp/node7         keep all that is read, to be looked at elsewhere
  crocevia doctor --root /tmp/node7           what is wrong with the host that was recorded
  crocevia doctor --before day1 --after day2  what two recordings' counters say
  crocevia doctor --explain H031              what a finding means; `all` lists them

Read as root for all of it: without, some tools and files say `permission denied`, and what was not
read is told. docs/doctor.md has every finding, and the files that a copied directory may have.

Exit status: 0 nothing found, or notes only; 1 warnings or errors; 2 nothing to read, a recording
that cannot be written, or wrong usage.";

/// Say what is misconfigured on a RoCE host, and the command that mends it
///
/// Reads RDMA devices, interfaces, PFC, DSCP, classes, ECN, GIDs, MTU, counters, limits, NUMA,
/// interrupts: of this host, or of a directory copied from one. Changes nothing.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// A directory copied from a host: sys, proc, and cmd with the output of tools
    #[arg(long, value_name = "DIR", conflicts_with_all = ["interval", "before", "record"])]
    pub(crate) root: Option<PathBuf>,

    /// Judge this interface, as one for RoCE even if no RDMA device is on it
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,

    /// Judge this RDMA device only
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<String>,

    /// Judge the limits and processors of this process instead of those of the command itself
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Read counters twice, so many seconds apart, and judge what they grew
    #[arg(long, value_name = "SECONDS", value_parser = crate::args::seconds)]
    #[arg(conflicts_with = "before")]
    pub(crate) interval: Option<Duration>,

    /// The earlier of two directories
    #[arg(long, value_name = "DIR", requires = "after")]
    pub(crate) before: Option<PathBuf>,

    /// The later of two directories
    #[arg(long, value_name = "DIR", requires = "before")]
    pub(crate) after: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write all that is read to DIR, which is new or empty
    #[arg(long, value_name = "DIR", conflicts_with = "before")]
    pub(crate) record: Option<PathBuf>,

    /// Explain a finding; `all` lists them
    #[arg(long, value_name = "CODE", exclusive = true)]
    pub(crate) explain: Option<String>,
}
