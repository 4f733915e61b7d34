//! Help texts against the files in `help/`. After a wanted change, run with `CROCEVIA_UPDATE=1` and
//! look at the difference.

use std::path::Path;

use super::{crocevia, fail, output, stderr, stdout, succeed};

#[track_caller]
fn matches(name: &str, arguments: &[&str]) {
    let text = succeed(&mut crocevia(arguments));
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/help").join(format!("{name}.txt"));
    if std::env::var_os("CROCEVIA_UPDATE").is_some() {
        std::fs::write(&file, &text).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, expected, "{} differs; CROCEVIA_UPDATE=1 writes it", file.display());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "wider than 100: {line}");
    }
}

#[test]
fn help_texts_are_these() {
    matches("crocevia", &["--help"]);
    let commands =
        ["run", "demo", "perf", "link", "gids", "devinfo", "stat", "audit", "doctor", "sim"];
    for command in commands {
        matches(command, &[command, "--help"]);
    }
    matches("audit-decode", &["audit", "decode", "--help"]);
}

#[test]
fn version_is_the_workspaces() {
    let text = succeed(&mut crocevia(&["--version"]));
    assert_eq!(text, format!("crocevia {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn nothing_asked_for_gives_help_as_an_error() {
    let output = output(&mut crocevia(&[]));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("Usage: crocevia <COMMAND>"), "{}", stderr(&output));
}

#[test]
fn wrong_usage_is_2() {
    fail(&mut crocevia(&["lnk"]), 2, &["unrecognized subcommand 'lnk'", "link"]);
    fail(&mut crocevia(&["link", "--jsn"]), 2, &["unexpected argument '--jsn'", "--json"]);
    fail(&mut crocevia(&["run"]), 2, &["<CMD>"]);
    fail(&mut crocevia(&["perf"]), 2, &["<TEST>"]);
}

#[test]
fn a_reader_that_goes_is_no_error() {
    use std::process::Stdio;
    let mut child = crocevia(&["perf", "--help"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the command ends");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(stderr(&output), "");
}
