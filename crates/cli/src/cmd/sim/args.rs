//! The command line of `crocevia sim`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  crocevia sim scenarios/victim.toml              what the scenario shows, as tables
  crocevia sim scenarios/victim.toml --seed 7     the same with other draws
  crocevia sim scenarios/victim.toml --json -     as JSON, every flow included
  crocevia sim scenarios/victim.toml --csv out    flows.csv, pauses.csv, ports.csv in a directory

docs/scenarios.md has every field of a scenario file.

Exit status: 0 all flows have ended, 1 some have not, or failed, 2 the file or the usage is wrong.";

/// Simulate a network: hosts that run this NIC, switches, cables, and what is done on them
///
/// Reads a scenario (TOML): a topology, NICs, switches and workloads. Every simulated host runs the
/// NIC engine that also serves real programs. The same file and seed give the same result, bit for
/// bit, on any number of threads.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    /// The scenario file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Draw from this seed in place of the file's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Use so many threads; all processors unless said
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// Write the result as JSON to OUT; - is standard output, in place of the tables
    #[arg(long, value_name = "OUT")]
    pub(crate) json: Option<PathBuf>,

    /// Write flows.csv, pauses.csv and ports.csv into DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) csv: Option<PathBuf>,

    /// Do not show progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
