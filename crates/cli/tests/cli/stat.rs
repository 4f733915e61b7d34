//! `stat`: this test process opens a device and asks the command about itself.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crocevia::{Access, Context, Pd, Qp, QpOptions};
use engine::counters::{CounterInfo, CounterKind};
use serde_json::Value;

use super::{command, crocevia, fail, output, stderr, stdout, succeed};

/// An open device with a queue pair, on an address of this process only.
struct Open {
    _qp: Qp,
    _pd: Pd,
    context: Context,
    addr: String,
}

fn open(last: u8) -> Open {
    let pid = std::process::id();
    let addr = Ipv4Addr::new(127, 192 + (pid >> 8) as u8 % 32, pid as u8, last).to_string();
    let context = Context::open_addr(&addr).expect("a device");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(16, None).expect("a queue");
    let qp = pd.create_qp(&QpOptions::rc(&cq)).expect("a queue pair");
    qp.init(Access::empty()).expect("a state");
    Open { _qp: qp, _pd: pd, context, addr }
}

fn pid() -> String {
    std::process::id().to_string()
}

fn about_us(more: &[&str]) -> String {
    succeed(&mut crocevia(&[&["stat", "--pid", &pid()], more].concat()))
}

/// The lines that speak of a device, which has this address.
fn row<'a>(text: &'a str, addr: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == addr));
    line.unwrap_or_else(|| panic!("no {addr} in {text}")).split_whitespace().collect()
}

fn of<'a>(value: &'a Value, addr: &str) -> &'a Value {
    let devices = value["devices"].as_array().expect("an array");
    devices.iter().find(|device| device["addresses"][0] == addr).expect("the device")
}

#[test]
fn a_running_process_is_shown() {
    let open = open(1);
    let text = about_us(&[]);
    let head: Vec<&str> = text.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head[..6], ["PID", "COMMAND", "DEVICE", "ADDRESS", "QPS", "TX-PACKETS"]);
    let row = row(&text, &open.addr);
    let device = open.context.device().name.clone();
    assert_eq!((row[0], row[2], row[4]), (pid().as_str(), device.as_str(), "1"), "{text}");
    let all = about_us(&["-a", "--qp"]);
    for info in engine::Counters::INFO {
        assert!(all.contains(&format!("    {}: 0\n", info.name)), "{}", info.name);
    }
    assert!(all.contains("    state: INIT\n"), "{all}");
    assert!(all.lines().all(|line| line.trim_end() == line), "no blanks at the ends of lines");

    let value: Value = serde_json::from_str(&about_us(&["--json", "--qp"])).expect("JSON");
    let stat = of(&value, &open.addr);
    assert_eq!(stat["pid"], std::process::id());
    assert_eq!(stat["qps"][0]["state"], "INIT");
    let counted: Vec<(&str, u64)> = open.context.counters().iter().collect();
    assert_eq!(stat["counters"].as_object().expect("members").len(), counted.len());
    let metrics = about_us(&["--prometheus", "--device", &device]);
    assert!(metrics.contains("# TYPE crocevia_tx_packets_total counter\n"), "{metrics}");
    assert!(!metrics.contains("crocevia_qp_"), "queue pairs only if asked for");
}

#[test]
fn nothing_that_runs_is_said_so() {
    let nobody = i32::MAX.to_string();
    let ask = ["stat", "--pid", &nobody];
    fail(&mut crocevia(&ask), 1, &[&format!("process {nobody} has no"), "crocevia run"]);
    fail(&mut crocevia(&["stat", "--device", "nosuch7"]), 1, &["no process has nosuch7 open"]);
    let json = succeed(&mut crocevia(&[&ask[..], &["--json"]].concat()));
    let value: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value, serde_json::json!({ "devices": [], "silent": [] }));
    assert_eq!(succeed(&mut crocevia(&[&ask[..], &["--prometheus"]].concat())), "");
    let watched = succeed(&mut crocevia(&[&ask[..], &["-w0.01", "--count", "3"]].concat()));
    assert_eq!(watched, "no crocevia device is open\n", "once");
}

/// A row of `docs/counters.md`.
fn documented(text: &str, title: &str, info: &CounterInfo) -> bool {
    let part = text.split("\n## ").find(|part| part.starts_with(title)).expect("a chapter");
    let kind = match info.kind {
        CounterKind::Count => "",
        CounterKind::Drop => "drop",
        CounterKind::Loss => "loss",
    };
    let start = format!("\n| `{}` | {} | {kind}", info.name, info.help.trim());
    part.contains(&start)
}

#[test]
fn every_counter_is_documented_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/counters.md");
    let text = std::fs::read_to_string(path).expect("the page");
    for (title, table) in [("Device", engine::Counters::INFO), ("Link", live::LinkCounters::INFO)] {
        for info in table {
            assert!(documented(&text, title, info), "{title}: {} is not, or otherwise", info.name);
        }
        let part = text.split("\n## ").find(|part| part.starts_with(title)).expect("a chapter");
        let rows = part.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, table.len(), "{title}: rows of counters that there are not");
    }
    // Those that queue pairs have are marked.
    for (name, _) in engine::QpCounters::default().iter() {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let kind = row.and_then(|row| row.split('|').nth(3)).unwrap_or_default();
        assert!(kind.contains("QP"), "{name} is one of a queue pair: {row:?}");
    }
}

#[test]
fn wrong_usage() {
    let cases: [(&[&str], &str); 9] = [
        (&["--json", "--prometheus"], "cannot be used with"),
        (&["--all", "--json"], "cannot be used with"),
        (&["-w0"], "0.01 to 86400 seconds"),
        (&["-wNaN"], "0.01 to 86400 seconds"),
        (&["--watch=1e9"], "0.01 to 86400 seconds"),
        (&["--pid", "me"], "me"),
        (&["--count", "3"], "--watch"),
        (&["-w", "--prometheus"], "leave --watch away"),
        (&["--timeout", "-1"], "-1"),
    ];
    for (words, part) in cases {
        let words = [&["stat"], words].concat();
        fail(&mut crocevia(&words), 2, &[part]);
    }
}

#[test]
fn rates_come_in_lines_and_end_with_their_reader() {
    let open = open(2);
    let text = about_us(&["-w0.05", "--count", "3"]);
    assert_eq!(text.matches(&open.addr).count(), 3, "{text}");
    assert!(text.contains("TX-GBIT/S") && !text.contains('\u{1b}'), "{text}");
    let lines = about_us(&["-w0.05", "--count", "2", "--json"]);
    let values: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(values.len(), 2);
    let uptime = |value: &Value| of(value, &open.addr)["uptime_ns"].as_u64().expect("a number");
    assert!(uptime(&values[1]) > uptime(&values[0]));

    let mut watch = crocevia(&["stat", "--pid", &pid(), "-w0.02"]);
    let mut child =
        watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert!(line.starts_with("PID"), "{line}");
    drop(out);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > Duration::from_secs(10) {
            child.kill().expect("a child");
            panic!("it goes on although nobody reads");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(status.success() && said.is_empty(), "{status:?} {said}");
}

#[test]
fn another_user_is_told_whose_process_it_is() {
    let _open = open(3);
    if command("setpriv".as_ref(), &["--version"]).output().is_err() {
        return eprintln!("skipped: no setpriv to become another user");
    }
    // A copy that everybody can read and execute.
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("crocevia");
    std::fs::copy(env!("CARGO_BIN_EXE_crocevia"), &program).expect("a copy");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), readable).expect("permissions");
    let program = program.to_string_lossy().into_owned();
    let become_other = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let own = pid();
    let words = [&become_other[..], &[&program, "stat", "--pid", &own]].concat();
    let result = output(&mut command("setpriv".as_ref(), &words));
    if stderr(&result).contains("setpriv:") {
        return eprintln!("skipped: {}", stderr(&result).trim());
    }
    assert_eq!(result.status.code(), Some(1), "{}", stderr(&result));
    assert!(stderr(&result).contains("belongs to user"), "{}", stderr(&result));
    assert_eq!(stdout(&result), "");
}
