//! Installed programs and libraries start with the shared object in place of theirs, versions
//! included, and loading it has no effect on the process.

mod support;

use std::path::Path;
use std::process::Command;

/// Programs that use libibverbs, by themselves or through librdmacm, libmlx5 or libefa.
const PROGRAMS: &[&str] = &[
    "ibv_devices",
    "ibv_devinfo",
    "ibv_asyncwatch",
    "ibv_rc_pingpong",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong",
    "ibv_srq_pingpong",
    "ibv_xsrq_pingpong",
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_atomic_bw",
    "ib_atomic_lat",
    "qperf",
    "fio",
    "rping",
    "ucmatose",
    "udaddy",
    "mckey",
    "rdma_client",
    "rdma_server",
    "rdma_xclient",
    "rdma_xserver",
    "rstream",
    "riostream",
    "rcopy",
    "udpong",
    "cmtime",
    "ucx_info",
    "ucx_perftest",
    "fi_info",
    "fi_pingpong",
];

/// Libraries that come along or are loaded at run time.
const LIBRARIES: &[&str] = &[
    "libmlx5.so.1",
    "libmlx4.so.1",
    "libefa.so.1",
    "librdmacm.so.1",
    "libfabric.so.1",
    "ucx/libuct_ib.so.0",
    "ucx/libuct_rdmacm.so.0",
];

fn unresolved(file: &Path) -> Vec<String> {
    let output = support::run(Command::new("ldd").arg("-r").arg(file));
    support::said(&output)
        .lines()
        .filter(|line| {
            ["undefined symbol", "no version information", "not found"]
                .iter()
                .any(|complaint| line.contains(complaint))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn installed_programs_and_libraries_resolve() {
    if support::installed("ldd").is_none() {
        eprintln!("skipped: there is no ldd");
        return;
    }
    let libraries = LIBRARIES
        .iter()
        .map(|name| Path::new("/usr/lib").join(target_triple()).join(name))
        .filter(|path| path.exists());
    let files: Vec<_> =
        PROGRAMS.iter().filter_map(|name| support::installed(name)).chain(libraries).collect();
    if files.is_empty() {
        eprintln!("skipped: no program that uses libibverbs is installed");
    }
    for file in files {
        let complaints = unresolved(&file);
        assert!(complaints.is_empty(), "{}: {complaints:#?}", file.display());
    }
}

fn target_triple() -> &'static str {
    if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" }
}

#[test]
fn a_preloaded_library_does_not_disturb_other_programs() {
    // Descriptors may be inherited from whoever runs the tests: compare.
    let count = |preload: Option<&Path>| {
        let mut command = Command::new("sh");
        command.args(["-c", "ls /proc/self/task | wc -l; ls /proc/self/fd | wc -l"]);
        if let Some(path) = preload {
            command.env("LD_PRELOAD", path);
        }
        let output = command.output().expect("sh starts");
        assert!(output.status.success());
        assert!(output.stderr.is_empty(), "{}", support::said(&output));
        support::said(&output)
    };
    assert_eq!(count(Some(&support::library())), count(None), "threads and descriptors");
}

#[test]
fn the_device_list_and_its_errors() {
    let Some(program) = support::installed("ibv_devices") else {
        eprintln!("skipped: ibv_devices is not installed");
        return;
    };
    let output = support::run(Command::new(&program).env("CROCEVIA_ADDR", "127.0.0.80"));
    assert!(support::said(&output).contains("crocevia0"), "{}", support::said(&output));

    let nowhere = "203.0.113.77";
    let output = support::run(Command::new(&program).env("CROCEVIA_ADDR", nowhere));
    assert!(!output.status.success());
    assert!(support::said(&output).contains(nowhere), "the message names it");
    let quiet = support::run(
        Command::new(&program).env("CROCEVIA_ADDR", nowhere).env("CROCEVIA_LOG", "off"),
    );
    assert!(!support::said(&quiet).contains("crocevia:"), "{}", support::said(&quiet));
}
