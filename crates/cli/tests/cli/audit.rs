//! `audit` and `audit decode` on captures of a real peer: what is said, in which form, with which
//! exit code.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::{crocevia, fail, output, stderr, stdout, succeed};

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures")
}

fn capture(name: &str) -> String {
    captures().join(name).display().to_string()
}

fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Text against a file in `audit/`; `CROCEVIA_UPDATE=1` writes it.
#[track_caller]
fn is_as_kept(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/audit").join(name);
    if std::env::var_os("CROCEVIA_UPDATE").is_some() {
        std::fs::write(&file, text).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, kept, "{} differs; CROCEVIA_UPDATE=1 writes it", file.display());
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

/// In this capture the requester goes on one PSN too early behind a READ, so that its direction and
/// the answers' turn out not to fit: two rows, each with a number that `--ladder` takes.
#[test]
fn directions_that_do_not_fit_each_other_have_a_number_each() {
    let file = format!("{}/tests/cli/audit/psn-after-read.pcap", env!("CARGO_MANIFEST_DIR"));
    // Something is found in the first.
    let cases = [("1", 1, "Conversation 1: 10.77.1.1"), ("2", 0, "Conversation 2: 10.77.1.2")];
    for (number, status, first) in cases {
        let shown = output(&mut crocevia(&["audit", &file, "--ladder", number]));
        assert_eq!(shown.status.code(), Some(status), "{}", stderr(&shown));
        let text = stdout(&shown);
        assert!(text.starts_with(first), "{text}");
    }
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
    fail(&mut crocevia(&["audit", "/dev/null", "--ladder", "1"]), 2, &["twice", "/dev/null"]);
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
fn damage_is_told_in_every_form() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = std::fs::read(capture("rc-write-mtu1024.pcap")).expect("the capture");
    // Its name is not obeyed by the terminal either.
    let file = dir.path().join("cut\u{1b}[2J.pcap");
    std::fs::write(&file, &bytes[..bytes.len() - 5]).expect("a file");
    let file = file.to_str().expect("a name");
    let page = dir.path().join("page.html");
    let page = page.to_str().expect("a name");
    let forms: [&[&str]; 6] = [
        &["audit", file],
        &["audit", file, "--json"],
        &["audit", file, "--frames", "all"],
        &["audit", file, "--ladder", "1"],
        &["audit", file, "--html", page],
        &["audit", "decode", file],
    ];
    for form in forms {
        let output = output(&mut crocevia(form));
        assert_eq!(output.status.code(), Some(1), "{form:?}");
        assert!(stderr(&output).contains("byte 6390"), "{form:?} {}", stderr(&output));
        for text in [stdout(&output), stderr(&output)] {
            assert!(!text.contains('\u{1b}'), "{form:?} {text}");
        }
    }
    let none = dir.path().join("no\u{1b}[2J.pcap");
    let output = output(&mut crocevia(&["audit", none.to_str().expect("a name")]));
    assert_eq!(output.status.code(), Some(2));
    assert!(!stderr(&output).contains('\u{1b}'), "{}", stderr(&output));
}

#[test]
fn a_system_that_refuses_is_told_with_2() {
    let file = capture("loss-drop-request.pcap");
    for form in [&["audit", &file][..], &["audit", "decode", &file], &["doctor"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let output = crocevia(form).stdout(full).output().expect("the command starts");
        assert_eq!(output.status.code(), Some(2), "{form:?} {}", stderr(&output));
        assert!(stderr(&output).contains("could not be written"), "{}", stderr(&output));
    }
    if std::process::Command::new("prlimit").arg("--version").output().is_err() {
        eprintln!("skipped: no program prlimit");
        return;
    }
    let (dir, binary, file) = for_anybody();
    let limits = ["--nproc=1", "--", binary.to_str().expect("a name"), "audit"];
    let mut command = super::command("prlimit".as_ref(), &limits);
    as_nobody(command.arg(&file));
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("no thread to read by"), "{}", stderr(&output));
    drop(dir);
}

#[test]
fn a_page_takes_the_place_of_pages_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, page) = (dir.path().join("a.pcap"), dir.path().join("a.html"));
    std::fs::copy(capture("rc-write-mtu1024.pcap"), &file).expect("a copy");
    let before = std::fs::read(&file).expect("the file");
    let (name, page) = (file.to_str().expect("a name"), page.to_str().expect("a name"));
    let other = capture("rc-write-mtu1024.pcap");
    fail(&mut crocevia(&["audit", "--html", name, &other]), 2, &["a.pcap is there and is no page"]);
    assert_eq!(std::fs::read(&file).expect("the file"), before);
    for _ in 0..2 {
        succeed(&mut crocevia(&["audit", name, "--html", page]));
    }
    std::fs::write(page, "").expect("a file");
    succeed(&mut crocevia(&["audit", name, "--html", page]));
    // The summary is printed even if the page cannot be.
    let nowhere = dir.path().join("no/page.html");
    let nowhere = nowhere.to_str().expect("a name");
    let output = output(&mut crocevia(&["audit", name, "--html", nowhere]));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stdout(&output).contains("RDMA packets") && stderr(&output).contains("cannot be written")
    );
    for form in [["--frames", "all"], ["--ladder", "1"]] {
        let words = [&["audit", name, "--html", page][..], &form].concat();
        fail(&mut crocevia(&words), 2, &["cannot be used with"]);
    }
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

#[test]
fn summaries_and_drawings_are_these() {
    let run = |arguments: &[&str]| {
        let mut command = crocevia(&[&["audit"], arguments].concat());
        stdout(&output(command.current_dir(captures())))
    };
    let loss = run(&["loss-drop-request.pcap"]);
    is_as_kept("loss.txt", &loss);
    assert!(document("README.md").contains(&loss), "the README shows this output:\n{loss}");
    is_as_kept("clean.txt", &run(&["rc-write-mtu1024.pcap", "--qps"]));
    is_as_kept("connections.txt", &run(&["cm-rping.pcap", "--connections"]));
    is_as_kept("ladder.txt", &run(&["loss-drop-request.pcap", "--ladder", "1", "--limit", "20"]));
    is_as_kept("ladder-read.txt", &run(&["loss-read-response.pcap", "--ladder", "1"]));
    is_as_kept("decode.txt", &run(&["decode", "cm-rping.pcap", "--frame", "..9"]));
    is_as_kept("tree.txt", &run(&["decode", "cm-rping.pcap", "--frame", "1..4", "--tree"]));
}

#[test]
fn ladders_are_found_by_number_queue_pair_and_address() {
    let file = capture("loss-drop-request.pcap");
    let by = |which: &str| found(&["audit", &file, "--ladder", which]);
    let number = by("1");
    for which in ["0x52", "10.77.1.1:0x52", "[::ffff:10.77.1.2]:82"] {
        assert_eq!(by(which), number, "{which}");
    }
    assert!(number.contains("=== SEND First psn 3 len 1024 AGAIN ==="), "{number}");
    assert!(number.contains("! R021 lost-behind-capture"), "{number}");
    let part = found(&["audit", &file, "--ladder", "1", "--filter", "frame 5..8"]);
    assert_eq!(part.lines().filter(|line| line.trim_start().starts_with('#')).count(), 4, "{part}");
    let nothing = ["audit", &file, "--ladder", "10.77.1.9:0x52"];
    fail(&mut crocevia(&nothing), 2, &["0x52", "--qps"]);
}

#[test]
fn filters_narrow_what_is_judged() {
    let file = capture("loss-drop-request.pcap");
    let count = |filter: &str| {
        let output = output(&mut crocevia(&["audit", &file, "--json", "--filter", filter]));
        let value = json(&stdout(&output));
        let packets = value["totals"]["packets"].as_u64().expect("a number");
        let findings = value["findings"].as_array().expect("an array").len();
        (output.status.code(), packets, findings)
    };
    assert_eq!(count("host 10.77.1.1"), (Some(1), 80, 2));
    assert_eq!(count("host 10.0.0.9"), (Some(0), 0, 0));
    assert_eq!(count("frame 1..4"), (Some(0), 4, 0));
    assert_eq!(count("time 0..0.0025"), (Some(0), 4, 0));
    assert_eq!(count("qp 0x52 and conversation 1"), (Some(1), 80, 2));
    assert_eq!(count("qp 0x53"), (Some(0), 80, 0));
    for (filter, lines) in [("qp 0x52", 8), ("conversation 1", 8)] {
        let text = found(&["audit", &file, "--frames", "R021", "--filter", filter]);
        assert_eq!(text.lines().count(), lines, "{filter}: {text}");
    }
    for filter in ["qp 0x53", "conversation 2"] {
        let none = ["audit", &file, "--frames", "all", "--filter", filter];
        assert_eq!(succeed(&mut crocevia(&none)), "", "{filter}");
    }
    let one = ["audit", &file, "--frames", "R021", "--filter", "frame 14"];
    assert_eq!(succeed(&mut crocevia(&one)), "", "one frame alone shows no loss");
}

#[test]
fn the_page_is_written_and_needs_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("page.html").display().to_string();
    let file = capture("loss-drop-request.pcap");
    found(&["audit", &file, "--html", &page]);
    let text = std::fs::read_to_string(&page).expect("a page");
    for part in ["R021", "<svg", "PSN of requests", "sent again", "</html>"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("://"), "no network");
}

#[test]
fn every_name_of_the_json_and_every_option_is_documented() {
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    found.push(name.clone());
                    // Those of a finding's numbers are the rule's.
                    if name != "numbers" {
                        names(value, found);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let manual = document("docs/audit.md");
    for file in ["loss-drop-request.pcap", "cm-rping.pcap"] {
        let output = output(&mut crocevia(&["audit", &capture(file), "--json"]));
        let mut found = Vec::new();
        names(&json(&stdout(&output)), &mut found);
        assert!(found.len() > 60, "{found:?}");
        for name in found {
            let quoted = [format!("`{name}`"), format!("\"{name}\"")];
            assert!(quoted.iter().any(|q| manual.contains(q)), "{name} is not in docs/audit.md");
        }
    }
    let help = succeed(&mut crocevia(&["audit", "--help"]));
    for word in help.split_whitespace().filter(|word| word.starts_with("--")) {
        let option = word.trim_end_matches([',', '.', ':', ';', ')']);
        assert!(option == "--help" || manual.contains(option), "{option} is not in docs/audit.md");
    }
}

/// The command and a capture where every user may read them.
fn for_anybody() -> (tempfile::TempDir, PathBuf, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    let (binary, file) = (dir.path().join("crocevia"), dir.path().join("loss.pcap"));
    super::copy_program(env!("CARGO_BIN_EXE_crocevia"), &binary);
    std::fs::copy(capture("loss-drop-request.pcap"), &file).expect("a copy");
    for (path, mode) in [(dir.path(), 0o755), (&*binary, 0o755), (&*file, 0o644)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    }
    (dir, binary, file)
}

/// Runs without rights: those of root are lent away, others have none.
fn as_nobody(command: &mut std::process::Command) {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    if std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0) {
        command.uid(65534).gid(65534);
    }
}

#[test]
fn nobody_needs_rights_to_audit() {
    let (_dir, binary, file) = for_anybody();
    let mut command = super::command(binary.as_os_str(), &["audit"]);
    as_nobody(command.arg(&file));
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("R021"));
}
