//! The examples, as users start them: both ends in one process, and in two.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The examples use the same addresses: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An example, built as the tests are.
fn example(name: &str) -> Command {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "test", "-p", "crocevia", "--example", name])
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.parent().and_then(Path::parent).expect("it lies in target/*/deps");
    let mut command = Command::new(target.join("examples").join(name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("CROCEVIA_ADDR");
    command
}

/// Ends a child that a failing test leaves behind.
struct Guard(Option<Child>);

impl Guard {
    fn start(mut command: Command) -> Self {
        Self(Some(command.spawn().expect("the example starts")))
    }

    fn finish(mut self) -> Output {
        let mut child = self.0.take().expect("finished once");
        let start = Instant::now();
        while child.try_wait().expect("it is our child").is_none() {
            if start.elapsed() > Duration::from_secs(120) {
                child.kill().expect("it is our child");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().expect("it is our child")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run(name: &str, args: &[&str]) -> (bool, String) {
    let mut command = example(name);
    command.args(args);
    told(Guard::start(command).finish())
}

fn told(output: Output) -> (bool, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Two processes: a server, and a client as soon as the server's port is open.
fn run_two(name: &str, server: &[&str], client: &[&str]) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut first = example(name);
    first.args(server).args(["--addr", "127.0.0.80", "--port", &port]);
    let first = Guard::start(first);
    let start = Instant::now();
    // The listener serves one connection only, so it is not probed but tried.
    loop {
        let mut second = example(name);
        second.args(client).args(["--addr", "127.0.0.81", "--port", &port]);
        let (good, text) = told(Guard::start(second).finish());
        if good {
            break;
        }
        let early = text.contains("Connection refused") || text.contains("ConnectionRefused");
        assert!(early && start.elapsed() < Duration::from_secs(20), "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (good, text) = told(first.finish());
    assert!(good, "{text}");
}

fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&dir).expect("cargo's directory for tests");
    dir.join(name)
}

#[test]
fn pingpong() {
    let _alone = alone();
    for args in [&["--iters", "300"][..], &["--iters", "100", "--wait", "--size", "100000"]] {
        let (good, text) = run("pingpong", args);
        assert!(good && text.contains("t_typical"), "{text}");
    }
    run_two("pingpong", &["server", "--iters", "200"], &["client", "127.0.0.1", "--iters", "200"]);
}

#[test]
fn filecopy() {
    let _alone = alone();
    let (source, copy) = (scratch("source"), scratch("copy"));
    let (from, to) = (source.to_str().unwrap(), copy.to_str().unwrap());
    for size in [0, 1, 65_535, 65_536, 65_537, 3_000_003] {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 7 + i / 251) as u8).collect();
        fs::write(&source, &bytes).unwrap();
        let (good, text) = run("filecopy", &[from, to, "--chunk", "65536", "--depth", "3"]);
        assert!(good, "{size}: {text}");
        assert!(fs::read(&copy).unwrap() == bytes, "{size}: {text}");
    }
    fs::remove_file(&copy).unwrap();
    run_two("filecopy", &["serve", from], &["fetch", "127.0.0.1", to]);
    assert!(fs::read(&copy).unwrap() == fs::read(&source).unwrap());
    let (good, text) = run("filecopy", &["/nonexistent/file", to]);
    assert!(!good && text.contains("/nonexistent/file"), "{text}");
}

#[test]
fn kv() {
    let _alone = alone();
    let (good, text) = run("kv", &["--txns", "300"]);
    assert!(good && text.contains("serialisable: "), "{text}");
    assert!(text.contains("16000 before, 16000 after"), "{text}");
}

#[test]
fn kv_without_a_step_is_found_out() {
    let _alone = alone();
    for (step, finding) in [("locks", "one update is lost"), ("validation", "a cycle: ")] {
        // An interleaving that shows it is a matter of chance: give it several.
        let found = (0..20).any(|_| {
            let (good, text) = run("kv", &["--txns", "500", "--break", step]);
            assert_eq!(good, !text.contains("Error"), "{text}");
            text.contains(finding)
        });
        assert!(found, "{step}");
    }
}
