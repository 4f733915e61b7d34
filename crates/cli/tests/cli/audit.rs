//! `audit` and `audit decode` on captures of a real peer: what is said, in which form, with which
//! exit code.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::{crocevia, fail, output, stderr, stdout, succeed};

fn capture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures").join(name);
    path.display().to_string()
}

/// What a run prints that found something.
#[track_caller]
fn found(arguments: &[&str]) -> String {
    let output = output(&mut crocevia(arguments));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    stdout(&output)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_clean_capture_is_said_to_be_clean() {
    let file = capture("rc-write-mtu1024.pcap");
    let text = succeed(&mut crocevia(&["audit", &file]));
    assert!(text.contains("\nNothing is wrong in it.\n"), "{text}");
    assert!(text.contains("ICRC: 16 right, 0 wrong"), "{text}");
    let value = json(&succeed(&mut crocevia(&["audit", &file, "--json"])));
    assert_eq!(value["clean"], true);
    assert_eq!(value["totals"]["packets"], 16);
}

#[test]
fn a_loss_is_explained_on_one_screen() {
    let file = capture("loss-drop-request.pcap");
    let text = found(&["audit", &file]);
    assert!(text.lines().count() <= 40, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in [" 1 ERROR R021 ", "towards 10.77.1.2", "seen    8 times, frames #5 ", "remedy  "] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let frames = found(&["audit", &file, "--frames", "lost-behind-capture"]);
    let numbers: Vec<&str> = frames.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(numbers, ["#5", "#14", "#24", "#34", "#43", "#54", "#64", "#75"]);
    let none = succeed(&mut crocevia(&["audit", &file, "--frames", "R010"]));
    assert_eq!(none, "");
}

#[test]
fn what_cannot_be_read_is_2() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    let empty = file("empty.pcap", b"").display().to_string();
    fail(&mut crocevia(&["audit", &empty]), 2, &["empty.pcap"]);
    let text = file("text.pcap", b"not a capture at all, only text").display().to_string();
    fail(&mut crocevia(&["audit", &text]), 2, &["text.pcap", "byte 0", "pcapng"]);
    let missing = dir.path().join("missing").display().to_string();
    fail(&mut crocevia(&["audit", &missing]), 2, &["missing"]);
    let directory = dir.path().display().to_string();
    fail(&mut crocevia(&["audit", &directory]), 2, &["directory"]);
    fail(&mut crocevia(&["audit", "-"]), 2, &["standard input"]);
    fail(&mut crocevia(&["audit", "decode", &text]), 2, &["text.pcap"]);
}

#[test]
fn wrong_usage_is_2() {
    let file = capture("rc-write-mtu1024.pcap");
    fail(&mut crocevia(&["audit"]), 2, &["<FILE>"]);
    fail(&mut crocevia(&["audit", "--explain", "R999"]), 2, &["R999", "R001"]);
    fail(&mut crocevia(&["audit", &file, "--frames", "lost"]), 2, &["lost", "R020"]);
    let filter = ["audit", &file, "--filter", "host 10.0.0"];
    fail(&mut crocevia(&filter), 2, &["column 6", "an IP address", "^"]);
    fail(&mut crocevia(&["audit", &file, "--ladder", "x"]), 2, &["'x'", "10.0.0.1:0x11"]);
    fail(&mut crocevia(&["audit", &file, "--ladder", "99"]), 2, &["no conversation 99"]);
    fail(&mut crocevia(&["audit", "-", "--ladder", "1"]), 2, &["standard input"]);
    fail(&mut crocevia(&["audit", &file, "--expect", "x"]), 2, &["ecn"]);
    let filter = ["audit", "decode", &file, "--filter", "conversation 1"];
    fail(&mut crocevia(&filter), 2, &["decode does not judge"]);
    fail(&mut crocevia(&["audit", "decode", &file, "--frame", "9..3"]), 2, &["9..3"]);
}

#[test]
fn standard_input_and_a_damaged_file() {
    let bytes = std::fs::read(capture("rc-write-mtu1024.pcap")).expect("the capture");
    let run = |bytes: &[u8]| {
        let mut child = crocevia(&["audit", "-", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(bytes).expect("room in the pipe");
        drop(input);
        child.wait_with_output().expect("the command ends")
    };
    let whole = run(&bytes);
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
    let cut = run(&bytes[..bytes.len() - 5]);
    assert_eq!(cut.status.code(), Some(1), "{}", stderr(&cut));
    assert!(stderr(&cut).contains("standard input: byte "), "{}", stderr(&cut));
    let value = json(&stdout(&cut));
    assert_eq!(value["captures"][0]["records"], 15);
    assert!(value["captures"][0]["damage"].as_str().is_some_and(|text| text.contains("6390")));
}

#[test]
fn rules_are_explained() {
    let text = succeed(&mut crocevia(&["audit", "--explain", "r021"]));
    assert!(text.starts_with("R021 lost-behind-capture (error)\n\n"), "{text}");
    let all = succeed(&mut crocevia(&["audit", "--explain", "all"]));
    let list = succeed(&mut crocevia(&["audit", "--rules"]));
    for rule in ["R001", "R010", "R021", "R060", "R080", "R111"] {
        assert!(all.contains(&format!("\n{rule} ")) || all.starts_with(rule), "{rule}");
        assert!(list.lines().any(|line| line.starts_with(rule)), "{rule}");
    }
    for line in all.lines().filter(|line| !line.starts_with(['|', ' '])) {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn a_reader_that_goes_ends_it_quietly() {
    let file = capture("loss-netem-1pc.pcap");
    for more in [&["--qps"][..], &["--frames", "all"], &["--json"], &["--ladder", "1"]] {
        let arguments = [&["audit", &file], more].concat();
        let mut child = crocevia(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the command ends");
        assert_eq!(stderr(&output), "", "{more:?}");
        assert_eq!(output.status.code(), Some(0), "{more:?}");
    }
}
