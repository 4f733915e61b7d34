//! `crocevia doctor`: exit statuses, directories, recordings, tools that misbehave. What is found
//! on which host is tested in `crates/doctor`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{crocevia, fail, output, stderr, stdout, succeed};

fn host(name: &str) -> String {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/hosts");
    hosts.join(name).to_str().expect("a path in UTF-8").to_owned()
}

/// A copy of a recorded host, to be changed.
fn copy(name: &str) -> tempfile::TempDir {
    fn all(from: &Path, to: &Path) {
        fs::create_dir_all(to).expect("a new directory");
        for entry in fs::read_dir(from).expect("a directory").flatten() {
            let to = to.join(entry.file_name());
            if entry.path().is_dir() {
                all(&entry.path(), &to);
            } else {
                fs::copy(entry.path(), to).expect("a copy");
            }
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    all(Path::new(&host(name)), dir.path());
    dir
}

fn path(dir: &tempfile::TempDir) -> &str {
    dir.path().to_str().expect("a path in UTF-8")
}

#[test]
fn statuses_are_0_1_and_2() {
    let text = succeed(&mut crocevia(&["doctor", "--root", &host("cx5-good")]));
    assert!(text.contains("Nothing found."), "{text}");

    let bare = output(&mut crocevia(&["doctor", "--root", &host("cx5-bare")]));
    assert_eq!(bare.status.code(), Some(1));
    assert!(stdout(&bare).contains("WARNING H030 enp129s0"), "{}", stdout(&bare));
    assert_eq!(stderr(&bare), "");

    let empty = tempfile::tempdir().expect("a directory");
    fail(&mut crocevia(&["doctor", "--root", path(&empty)]), 2, &["nothing of a host", "--record"]);
    fail(&mut crocevia(&["doctor", "--root", "/nonexistent"]), 2, &["/nonexistent: No such file"]);
}

#[test]
fn wrong_arguments_are_2() {
    let good = host("cx5-good");
    let root = ["doctor", "--root", &good];
    let with = |more: &[&str]| crocevia(&[&root[..], more].concat());
    fail(&mut with(&["--interface", "eth9"]), 2, &["no interface eth9", "ens1f0np0"]);
    fail(&mut with(&["--device", "mlx5_9"]), 2, &["no RoCE device mlx5_9", "mlx5_0"]);
    fail(&mut with(&["--interface", "../../etc"]), 2, &["expected a name"]);
    fail(&mut with(&["--pid", "17"]), 2, &["no process 17"]);
    fail(&mut with(&["--interval", "1"]), 2, &["--interval"]);
    fail(&mut with(&["--record", "/nonexistent/x"]), 2, &["--record"]);
    fail(&mut crocevia(&["doctor", "--before", &good]), 2, &["--after"]);
    fail(&mut crocevia(&["doctor", "--interval", "0"]), 2, &["0.01 to 86400"]);
    fail(&mut crocevia(&["doctor", "--explain", "H999"]), 2, &["H001", "--explain all"]);
}

#[test]
fn findings_are_explained() {
    let text = succeed(&mut crocevia(&["doctor", "--explain", "h031"]));
    assert!(text.starts_with("H031 roce-not-lossless (error): "), "{text}");
    assert!(text.contains("\nTo do:\n  mlnx_qos -i IF"), "{text}");
    let all = succeed(&mut crocevia(&["doctor", "--explain", "all"]));
    assert!(all.lines().count() > 40 && all.lines().all(|line| line.starts_with('H')), "{all}");
}

#[test]
fn two_directories_are_compared() {
    let (before, after) = (host("cx5-good"), host("cx5-later"));
    let compared = output(&mut crocevia(&["doctor", "--before", &before, "--after", &after]));
    assert_eq!(compared.status.code(), Some(1), "{}", stderr(&compared));
    let text = stdout(&compared);
    assert!(text.contains("two readings 10.0 s apart") && text.contains("H053"), "{text}");
    let json = output(&mut crocevia(&["doctor", "--before", &before, "--after", &after, "--json"]));
    assert!(stdout(&json).contains("\"compared\": true"), "{}", stdout(&json));
}

#[test]
fn links_are_followed_inside_only() {
    let dir = copy("cx5-good");
    let mtu = dir.path().join("sys/class/net/ens1f0np0/mtu");
    fs::remove_file(&mtu).expect("a file");
    symlink("/proc/sys/kernel/ostype", &mtu).expect("a link");
    let text = succeed(&mut crocevia(&["doctor", "--root", path(&dir)]));
    assert!(text.contains("/mtu: a link that leads out of the directory"), "{text}");

    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "1500\n").expect("a file");
    fs::remove_file(&mtu).expect("a link");
    symlink("../../../../elsewhere", &mtu).expect("a link");
    let inside = output(&mut crocevia(&["doctor", "--root", path(&dir)]));
    assert!(stdout(&inside).contains("H011"), "{}", stdout(&inside));
}

#[test]
fn pipes_and_endless_files_do_not_hold_it() {
    let dir = copy("cx5-good");
    let net = dir.path().join("sys/class/net/ens1f0np0");
    fs::remove_file(net.join("mtu")).expect("a file");
    let made = std::process::Command::new("mkfifo").arg(net.join("mtu")).status();
    assert!(made.expect("mkfifo is there").success());
    fs::remove_file(net.join("operstate")).expect("a file");
    let large = fs::File::create(net.join("operstate")).expect("a file");
    large.set_len(1 << 40).expect("a sparse file");
    let start = Instant::now();
    let text = succeed(&mut crocevia(&["doctor", "--root", path(&dir)]));
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(text.contains("/mtu: not a file"), "{text}");
    assert!(text.contains("/operstate: longer than 16384 bytes"), "{text}");
}

/// A directory with a program for each name, and nothing else.
fn tools(tools: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, script) in tools {
        let file = dir.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    }
    let path = dir.path().to_owned();
    (dir, path)
}

#[test]
fn a_recording_of_this_host_gives_what_the_host_gives() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("new");
    let place = place.to_str().expect("a path in UTF-8");
    let here = output(&mut crocevia(&["doctor", "--interface", "lo", "--record", place]));
    assert!(matches!(here.status.code(), Some(0 | 1)), "{}", stderr(&here));
    assert!(stderr(&here).contains("files written to"), "{}", stderr(&here));
    assert!(Path::new(place).join("sys/class/net/lo/mtu").is_file());
    let there = output(&mut crocevia(&["doctor", "--interface", "lo", "--root", place]));
    assert_eq!(here.status.code(), there.status.code(), "{}", stderr(&there));
    let until = |text: String| text.split("\nNot read").next().map(str::to_owned);
    assert_eq!(until(stdout(&here)), until(stdout(&there)));
    // What is there is not written over.
    let again = &mut crocevia(&["doctor", "--record", place]);
    fail(again, 2, &["new or empty"]);
}

#[test]
fn tools_that_misbehave_are_told_and_ended() {
    let (_keep, path) = tools(&[("ip", "yes 'more and more'"), ("ethtool", "exec sleep 600")]);
    let start = Instant::now();
    let mut command = crocevia(&["doctor", "--interface", "lo", "--json"]);
    let found = output(command.env("PATH", &path));
    let text = stdout(&found);
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(text.contains("longer than 4194304 bytes"), "{text}");
    assert!(text.contains("no end after 5 s"), "{text}");
    assert!(matches!(found.status.code(), Some(0 | 1)), "{}", stderr(&found));
}

#[test]
fn two_readings_of_this_host() {
    let start = Instant::now();
    let found = output(&mut crocevia(&["doctor", "--interval", "0.2", "--interface", "lo"]));
    assert!(matches!(found.status.code(), Some(0 | 1)), "{}", stderr(&found));
    assert!(stdout(&found).contains("two readings"), "{}", stdout(&found));
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn notes_alone_are_no_failure() {
    let plain = host("plain");
    let text = succeed(&mut crocevia(&["doctor", "--root", &plain]));
    assert!(text.contains("NOTE H075") && text.contains("sysctl -w net.core.rmem_max"), "{text}");
    let value: serde_json::Value =
        serde_json::from_str(&succeed(&mut crocevia(&["doctor", "--root", &plain, "--json"])))
            .expect("JSON");
    assert_eq!((&value["version"], &value["findings"][0]["severity"]), (&1.into(), &"note".into()));
}

#[test]
fn names_in_a_directory_do_not_steer_the_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    let bad = dir.path().join("sys/class/net/a\u{1b}[2J\u{202e}");
    fs::create_dir_all(bad).expect("a directory");
    let asked = ["doctor", "--root", path(&dir), "--interface", "eth0"];
    let found = output(&mut crocevia(&asked));
    assert_eq!(found.status.code(), Some(2), "{}", stderr(&found));
    let text = stderr(&found);
    assert!(text.contains("a\u{fffd}[2J\u{fffd}"), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    // A recording that cannot be written is no finding.
    fail(&mut crocevia(&["doctor", "--record", "/nowhere/at/all"]), 2, &["--record /nowhere"]);
}
