//! The command as its users meet it: the real binary, its output, exit codes and environment.

mod audit;
mod audit_files;
mod demo;
mod doctor;
mod help;
mod list;
mod perf;
mod run;
mod stat;

use std::process::{Command, Output, Stdio};

/// The binary, in an environment that no developer's settings change.
fn crocevia(arguments: &[&str]) -> Command {
    command(env!("CARGO_BIN_EXE_crocevia").as_ref(), arguments)
}

fn command(program: &std::ffi::OsStr, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    for name in ["CROCEVIA_ADDR", "CROCEVIA_FAULTS", "CROCEVIA_PCAP", "NO_COLOR", "COLUMNS"] {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD");
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// The command succeeds; its standard output.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
    stdout(&output)
}

/// The command fails with `code`, says nothing on standard output, and one error that contains all
/// of `parts`.
#[track_caller]
fn fail(command: &mut Command, code: i32, parts: &[&str]) {
    let output = output(command);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("crocevia: error: "), "{text:?}");
    assert_eq!(text.matches("crocevia: error: ").count(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert_eq!(stdout(&output), "");
}

/// A copy of a program that can be executed at once. Another process writes it: a file that one of
/// our threads has open for writing is inherited by whatever another thread starts meanwhile, and
/// is "busy" until that has executed its own program.
fn copy_program(from: &str, to: &std::path::Path) {
    let done = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(done.success(), "cp {from} {}", to.display());
}
