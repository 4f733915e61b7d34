//! The checker on programs that each break one rule, and on their near misses: what is found is
//! exactly what the program says, in its order, quiet or under load, without loss or with.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use check::Rule;

/// Why nothing can be run here, if so.
fn missing() -> Option<&'static str> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return Some("libibverbs-dev is not installed");
    }
    Command::new("cc").arg("--version").output().is_err().then_some("there is no C compiler")
}

/// Programs that are about no rule in particular.
const OTHERS: &[&str] = &["extended", "threads", "fork", "sizes"];

/// The names of all programs: those of the rules are named after them.
fn names() -> Vec<String> {
    let rules = Rule::ALL.iter().map(|rule| rule.code().to_lowercase());
    rules.chain(OTHERS.iter().map(|name| (*name).to_owned())).collect()
}

/// Compiles a program.
fn compile(name: &str, source: &str, to: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = support::library_dir().join(to);
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source, &support::library()])
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{name}: {}", support::said(&output));
    program
}

/// Compiles all programs, once.
fn programs() -> Option<&'static [(String, PathBuf)]> {
    static PROGRAMS: OnceLock<Option<Vec<(String, PathBuf)>>> = OnceLock::new();
    let compile = |name: String| {
        let program = compile(&name, &format!("tests/c/check/{name}.c"), &name);
        (name, program)
    };
    PROGRAMS
        .get_or_init(|| {
            if let Some(reason) = missing() {
                eprintln!("skipped: {reason}");
                return None;
            }
            Some(names().into_iter().map(compile).collect())
        })
        .as_deref()
}

/// A loopback address and a file for findings that no other run uses at the same time.
fn fresh() -> (String, PathBuf) {
    static RUN: AtomicU32 = AtomicU32::new(0);
    let (id, run) = (std::process::id(), RUN.fetch_add(1, Ordering::Relaxed));
    let addr = format!("127.{}.{}.{}", 92 + run / 250, id % 254 + 1, run % 250 + 1);
    (addr, support::library_dir().join(format!("findings-{run}")))
}

/// One run: what the program said would be found, what was found, and everything that was said.
struct Run {
    expected: Vec<String>,
    found: Vec<String>,
    json: Vec<serde_json::Value>,
    said: String,
    status: std::process::ExitStatus,
}

fn run(program: &Path, argument: &str, mode: &str, faults: &str) -> Run {
    let (addr, file) = fresh();
    let _ = std::fs::remove_file(&file);
    let output = support::run(
        Command::new("timeout")
            .arg("120")
            .arg(program)
            .arg(argument)
            .env("CROCEVIA_ADDR", addr)
            .env("CROCEVIA_LOG", "off")
            .env("CROCEVIA_FAULTS", faults)
            .env("CROCEVIA_CHECK", mode)
            .env("CROCEVIA_CHECK_JSON", &file),
    );
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = out.lines().filter_map(|line| line.strip_prefix("EXPECT "));
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let json: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let found = json.iter().filter(|line| line.get("finding").is_some()).map(|line| {
        let word = |name: &str| line[name].as_str().unwrap_or("?").to_owned();
        let wr_id = line.get("wr_id").map_or("-".to_owned(), ToString::to_string);
        format!("{} {} {wr_id} {}", word("finding"), word("call"), word("object"))
    });
    Run {
        expected: expected.map(str::to_owned).collect(),
        found: found.collect(),
        said: support::said(&output),
        status: output.status,
        json,
    }
}

/// The rule that a program is about, if it is about one.
fn rule_of(name: &str) -> Option<Rule> {
    Rule::ALL.iter().copied().find(|rule| rule.code().eq_ignore_ascii_case(name))
}

/// Runs all programs both ways, and compares.
fn all(faults: &str) {
    let Some(programs) = programs() else { return };
    for (name, program) in programs {
        let rule = rule_of(name);
        let mode = if rule.is_some_and(Rule::is_strict) { "strict" } else { "report" };
        for argument in ["commit", "miss"] {
            let run = run(program, argument, mode, faults);
            assert!(run.status.success(), "{name} {argument}: {}\n{}", run.status, run.said);
            assert_eq!(run.found, run.expected, "{name} {argument}\n{}", run.said);
            assert_eq!(!run.expected.is_empty(), argument == "commit", "{name} {argument}");
            let code = rule.map_or("C", Rule::code);
            assert!(run.expected.iter().all(|line| line.starts_with(code)), "{name}");
            // There is one summary, it is the last line, and it counts the same.
            let summaries = run.json.iter().filter(|line| line.get("summary").is_some()).count();
            assert_eq!(summaries, 1, "{name} {argument}\n{}", run.said);
            let summary = &run.json.last().expect("a summary")["summary"];
            let counts = summary.as_object().expect("counts").values();
            let count: u64 = counts.filter_map(serde_json::Value::as_u64).sum();
            assert_eq!(count, run.expected.len() as u64, "{name} {argument}: {summary}");
        }
    }
}

#[test]
fn every_rule_is_found_and_its_near_miss_is_not() {
    all("");
}

#[test]
fn the_same_under_loss() {
    // Retries are counted in time: one trouble after the other.
    let _alone = machine();
    all("loss=10%,reorder=5%,dup=5%,corrupt=2%,seed=7");
}

/// Held by who loads the machine, and by who runs programs that look at the time.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_same_under_load() {
    let _alone = machine();
    static STOP: AtomicBool = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(120);
    let burn = move || {
        while !STOP.load(Ordering::Relaxed) && Instant::now() < deadline {
            std::hint::spin_loop();
        }
    };
    let burners: Vec<_> = (0..4).map(|_| std::thread::spawn(burn)).collect();
    let result = std::panic::catch_unwind(|| all(""));
    STOP.store(true, Ordering::Relaxed);
    for burner in burners {
        burner.join().expect("it only counts time");
    }
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn program(rule: Rule) -> Option<&'static Path> {
    let found = programs()?.iter().find(|(name, _)| rule_of(name) == Some(rule));
    found.map(|(_, path)| path.as_path())
}

/// The programs that test the calls themselves do not notice the checker.
#[test]
fn calls_return_what_they_do_without_it() {
    if let Some(reason) = missing() {
        eprintln!("skipped: {reason}");
        return;
    }
    let _alone = machine();
    for name in ["rc", "extended", "errors", "events", "datagrams", "windows", "gone"] {
        let program = compile(name, &format!("tests/c/{name}.c"), &format!("plain-{name}"));
        let run = run(&program, "", "strict", "");
        assert!(run.status.success(), "{name}: {}\n{}", run.status, run.said);
    }
}

#[test]
fn strict_rules_are_not_looked_at_unasked() {
    for rule in Rule::ALL.iter().filter(|rule| rule.is_strict()) {
        let Some(program) = program(*rule) else { return };
        assert_eq!(run(program, "commit", "report", "").found, Vec::<String>::new());
    }
}

#[test]
fn a_place_in_the_program_is_told() {
    let Some(program) = program(Rule::InlineTooLong) else { return };
    let run = run(program, "commit", "on", "");
    let at = run.json[0]["at"].as_str().expect("a place");
    assert!(at.starts_with("c013+0x") && at.ends_with(" (refused)"), "{at}");
    if Command::new("addr2line").arg("--version").output().is_err() {
        eprintln!("skipped: there is no addr2line");
        return;
    }
    let offset = at.trim_start_matches("c013+").split(' ').next().unwrap_or("");
    let output = support::run(Command::new("addr2line").arg("-fe").arg(program).arg(offset));
    let text = support::said(&output);
    assert!(text.contains("c013.c:") || text.contains("verbs.h:"), "{at}: {text}");
}

#[test]
fn abort_ends_at_the_first_finding() {
    use std::os::unix::process::ExitStatusExt;
    let Some(program) = program(Rule::AtomicOperand) else { return };
    let run = run(program, "commit", "abort", "");
    let how = (run.status.signal(), run.status.code());
    assert!(how == (Some(6), None) || how == (None, Some(128 + 6)), "{how:?}");
    assert_eq!(run.found.len(), 1, "{}", run.said);
}

#[test]
fn fail_changes_the_status_of_a_program_that_succeeded() {
    let Some(program) = program(Rule::EarlySend) else { return };
    assert_eq!(run(program, "commit", "fail", "").status.code(), Some(99));
    assert_eq!(run(program, "miss", "fail", "").status.code(), Some(0));
    // Output that stands in the program's buffers is not lost by it.
    assert_eq!(run(program, "commit", "fail,strict", "").expected.len(), 1);
}

#[test]
fn off_is_off() {
    let Some(program) = program(Rule::EarlySend) else { return };
    for mode in ["", "off", "0"] {
        let run = run(program, "commit", mode, "");
        assert!(run.json.is_empty() && !run.said.contains("crocevia check"), "{}", run.said);
    }
}

#[test]
fn a_wrong_word_is_told_and_taken_as_report() {
    let Some(program) = program(Rule::EarlySend) else { return };
    let run = run(program, "commit", "repot", "");
    assert!(run.said.contains("CROCEVIA_CHECK=repot: expected"), "{}", run.said);
    assert_eq!(run.found.len(), 1);
}

#[test]
fn a_file_that_cannot_be_written_loses_nothing() {
    let Some(program) = program(Rule::EarlySend) else { return };
    let (addr, _) = fresh();
    let output = support::run(
        Command::new(program)
            .arg("commit")
            .env("CROCEVIA_ADDR", addr)
            .env("CROCEVIA_CHECK", "report")
            .env("CROCEVIA_CHECK_FILE", "/proc/nowhere/findings")
            .env("CROCEVIA_CHECK_JSON", "/proc/nowhere/findings"),
    );
    let said = support::said(&output);
    assert!(output.status.success() && said.contains("crocevia check: C017 "), "{said}");
    assert!(said.contains("/proc/nowhere/findings cannot be written"), "{said}");
}
