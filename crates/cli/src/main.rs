//! The `crocevia` command. Here: dispatch, exit codes, where errors go. Arguments are in `args`,
//! each command in its own file of `cmd`.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod error;
mod render;

use std::process::ExitCode;

use args::Command;
use error::{Failure, Result};

fn main() -> ExitCode {
    match args::parse().and_then(dispatch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            match &failure {
                Failure::BrokenPipe | Failure::Findings => {}
                Failure::Help(text) => render::plain(text),
                failure => render::error(&failure.to_string()),
            }
            ExitCode::from(failure.code())
        }
    }
}

fn dispatch(command: Command) -> Result<()> {
    match command {
        Command::Help(text) => render::text(&text),
        Command::Run(args) => cmd::run::run(&args),
        Command::Demo(args) => cmd::demo::run(&args),
        Command::Perf(plan) => cmd::perf::run(&plan),
        Command::Link(args) => cmd::link::run(&args),
        Command::Gids(args) => cmd::gids::run(&args),
        Command::Devinfo(args) => cmd::devinfo::run(&args),
        Command::Stat(args) => cmd::stat::run(&args),
        Command::Audit(args) => cmd::audit::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Sim(args) => cmd::sim::run(&args),
        Command::TcpPeer(addr) => cmd::demo::tcp_peer(addr),
    }
}
