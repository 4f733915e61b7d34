//! `audit` on many files, on packed and unreadable ones and on pipes: threads and files end as they
//! should, and the result does not depend on their speed.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{crocevia, fail, output, stderr, stdout, succeed};

fn capture(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    dir.join(name).display().to_string()
}

#[test]
fn many_files_are_merged_and_always_alike() {
    let names = ["loss-netem-1pc.pcap", "rc-atomic.pcap", "v6-rc.pcap", "ud-send.pcap"];
    let files: Vec<String> = (0..32).map(|i| capture(names[i % 4])).collect();
    let arguments: Vec<&str> =
        ["audit", "--json"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let first = output(&mut crocevia(&arguments));
    assert_eq!(first.status.code(), Some(1), "{}", stderr(&first));
    let value: serde_json::Value = serde_json::from_str(&stdout(&first)).expect("JSON");
    let of = |name: &str| {
        value["captures"]
            .as_array()
            .expect("captures")
            .iter()
            .filter(|c| c["name"].as_str().is_some_and(|text| text.ends_with(name)))
            .map(|c| c["records"].as_u64().expect("records"))
            .sum::<u64>()
    };
    assert_eq!(of("loss-netem-1pc.pcap"), 8 * 604);
    assert_eq!(value["captures"].as_array().map(Vec::len), Some(32));
    for _ in 0..4 {
        assert!(stdout(&output(&mut crocevia(&arguments))) == stdout(&first), "alike");
    }
    let file = capture("rc-atomic.pcap");
    let too_many: Vec<&str> = ["audit"].into_iter().chain((0..129).map(|_| &*file)).collect();
    fail(&mut crocevia(&too_many), 2, &["129 captures at once, at most 128", "mergecap"]);
}

#[test]
fn one_unreadable_file_among_others_is_2() {
    let (good, dir) = (capture("rc-atomic.pcap"), tempfile::tempdir().expect("a directory"));
    let none = dir.path().join("none.pcap").display().to_string();
    fail(&mut crocevia(&["audit", &good, &none]), 2, &["none.pcap: No such file"]);
    let folder = dir.path().display().to_string();
    fail(&mut crocevia(&["audit", &folder]), 2, &["Is a directory"]);
    let empty = dir.path().join("empty.pcap");
    std::fs::write(&empty, b"").expect("a file");
    let empty = empty.display().to_string();
    fail(&mut crocevia(&["audit", &empty]), 2, &["empty.pcap", "an empty file"]);
    // A capture without packets is read, and clean.
    let head = &std::fs::read(&good).expect("a capture")[..24];
    std::fs::write(&empty, head).expect("a file");
    succeed(&mut crocevia(&["audit", &empty]));
}

#[test]
fn a_silent_pipe_does_not_hold_it_once_nobody_reads() {
    // One bad packet, again and again: more findings than any buffer of the output holds.
    let file = std::fs::read(capture("poke-bad-icrc.pcap")).expect("a capture");
    let len = u32::from_le_bytes([file[32], file[33], file[34], file[35]]) as usize;
    let record = &file[24..40 + len];
    let mut child = crocevia(&["audit", "--frames", "R010,R011", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let mut input = child.stdin.take().expect("its input");
    drop(child.stdout.take());
    // It may end before it has read all of this, which is well.
    let _ = input.write_all(&[&file[..24], &record.repeat(5000)[..]].concat());
    let start = Instant::now();
    while child.try_wait().expect("a state").is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "it waits for the silent pipe");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(input);
}
