//! C programs, compiled against the system's `infiniband/verbs.h`, on the built shared object. Each
//! runs on a loopback address of its own.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program for one test; `None`, with a reason on standard error, if that is not
/// possible here.
fn compile(name: &str, host: u8) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("skipped: libibverbs-dev is not installed");
        return None;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C compiler");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = support::library_dir().join(format!("{name}-{host}"));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        // A program that loads the library at run time does not need it before.
        .arg("-Wl,--as-needed")
        .arg(support::library())
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", support::said(&output));
    Some(program)
}

/// A loopback address that no other run of these tests uses at the same time.
fn address(host: u8) -> String {
    let id = std::process::id();
    format!("127.{host}.{}.{}", (id / 254) % 254 + 1, id % 254 + 1)
}

/// Compiles and runs a program on an address in 127.`host`.0.0.
fn program(name: &str, host: u8) {
    program_with(name, host, &[], "");
}

/// The same, with arguments, while these faults are injected.
fn program_with(name: &str, host: u8, arguments: &[&str], faults: &str) {
    let Some(path) = compile(name, host) else { return };
    let output = support::run(
        Command::new("timeout")
            .arg("60")
            .arg(path)
            .args(arguments)
            .env("CROCEVIA_ADDR", address(host))
            .env("CROCEVIA_FAULTS", faults)
            .env("CROCEVIA_LOG", "debug"),
    );
    assert!(output.status.success(), "{name}: {}\n{}", output.status, support::said(&output));
}

#[test]
fn reliable_connection() {
    program("rc", 80);
}

#[test]
fn extended_interfaces() {
    program("extended", 81);
}

#[test]
fn wrong_arguments() {
    program("errors", 82);
}

#[test]
fn events() {
    program("events", 83);
}

#[test]
fn datagrams() {
    program("datagrams", 84);
}

#[test]
fn receivers_that_leave_at_once() {
    program("leave", 86);
}

#[test]
fn memory_windows() {
    program("windows", 85);
}

#[test]
fn memory_that_goes_away() {
    program("gone", 87);
}

#[test]
fn signal_handlers_of_the_program() {
    program("handlers", 88);
}

#[test]
fn faults_that_happen_once() {
    program("faults", 89);
}

#[test]
fn memory_that_goes_away_while_packets_are_lost() {
    program_with("gone", 91, &["lossy"], "loss=5%,seed=7");
}

#[test]
fn memory_of_every_kind() {
    program("regions", 90);
}

#[test]
fn ten_thousand_connected_queue_pairs_cost_little() {
    program("many", 92);
}

#[test]
fn peers_that_vanish_and_calls_that_return() {
    program("vanish", 93);
}

#[test]
fn a_library_that_is_unloaded() {
    program("unload", 94);
}

#[test]
fn a_java_machine_in_the_process() {
    program("jvm", 95);
}
