//! Style as a test, over the whole workspace: widths and lengths, where `unsafe` and the operating
//! system may be named, which crate may know which, leftovers. Each test lists all that it finds.

#[path = "tidy/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use source::{Function, blank, functions, words};

const LINE: usize = 100;
const FILE: usize = 600;
const FUNCTION: usize = 70;

/// Functions that may be longer than [`FUNCTION`], each with its reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Crates in which `unsafe` may stand: system calls and process memory, the C ABI.
const UNSAFE_CRATES: &[&str] = &["live", "cabi"];

/// Crates below `live`: no clock, no socket, no thread, no randomness but from a seed.
const PURE_CRATES: &[&str] = &["wire", "engine", "switch", "audit", "check", "doctor"];

/// What a pure crate's source does not name.
const IMPURE: &[&[&str]] = &[
    &["std", "time"],
    &["std", "thread"],
    &["std", "fs"],
    &["std", "env"],
    &["std", "process"],
    &["SystemTime"],
    &["UdpSocket"],
    &["TcpStream"],
    &["TcpListener"],
    &["UnixStream"],
    &["UnixListener"],
    &["UnixDatagram"],
    &["thread_rng"],
    &["getrandom"],
    &["OsRng"],
];

/// Who may depend on whom (directory names under `crates`). Arrows point down only.
const EDGES: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("engine", &["wire"]),
    ("switch", &["wire"]),
    ("audit", &["wire"]),
    ("sim", &["wire", "engine", "switch", "audit"]),
    ("live", &["wire", "engine", "switch"]),
    ("verbs", &["wire", "engine", "live"]),
    ("check", &[]),
    ("doctor", &["wire"]),
    ("cabi", &["verbs", "check"]),
    ("cli", &["wire", "engine", "switch", "audit", "sim", "live", "verbs", "check", "doctor"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Every file with one of these extensions, by its path from the root.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).expect("a readable directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let kind = entry.file_type().expect("a file type");
            if kind.is_dir() && !name.starts_with('.') && name != "target" {
                open.push(path);
            } else if kind.is_file()
                && extensions
                    .iter()
                    .any(|extension| path.extension().is_some_and(|e| e == *extension))
            {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
                found.push((name, text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no files under {}", root.display());
    found
}

fn sources() -> Vec<(String, String)> {
    files(&["rs"])
}

/// The directory under `crates` that a path lies in.
fn crate_of(path: &str) -> &str {
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates"), Some(name)) => name,
        _ => "",
    }
}

fn report(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}; {} found:\n  {}", found.len(), found.join("\n  "));
}

#[test]
fn lines_are_at_most_100_wide() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (i, line) in text.lines().enumerate() {
            let width = line.chars().count();
            if width > LINE {
                found.push(format!("{path}:{}: {width}", i + 1));
            }
        }
    }
    report("lines of source are at most 100 characters wide", &found);
}

#[test]
fn files_are_at_most_600_lines() {
    let found: Vec<String> = sources()
        .iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > FILE)
        .map(|(path, lines)| format!("{path}: {lines}"))
        .collect();
    report("files of source have at most 600 lines: look for the second noun", &found);
}

#[test]
fn functions_are_at_most_70_lines() {
    let mut found = Vec::new();
    let mut exceptions: BTreeMap<&str, bool> =
        LONG_FUNCTIONS.iter().map(|(name, _)| (*name, false)).collect();
    for (path, text) in sources() {
        for Function { name, line, lines } in functions(&blank(&text)) {
            if lines <= FUNCTION {
                continue;
            }
            match exceptions.get_mut(format!("{path}:{name}").as_str()) {
                Some(used) => *used = true,
                None => found.push(format!("{path}:{line}: {name} has {lines}")),
            }
        }
    }
    let unused = exceptions.iter().filter(|(_, used)| !**used);
    found.extend(unused.map(|(name, _)| format!("{name}: is no exception any more, take it out")));
    report("functions have at most 70 lines", &found);
}

#[test]
fn files_say_what_lives_in_them() {
    let found: Vec<String> = sources()
        .iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path.clone())
        .collect();
    report("files open with lines of //! that say what lives there", &found);
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if UNSAFE_CRATES.contains(&crate_of(&path)) {
            continue;
        }
        for (i, line) in blank(&text).lines().enumerate() {
            if words(line).any(|word| word == "unsafe") {
                found.push(format!("{path}:{}", i + 1));
            }
        }
    }
    report("unsafe stands only in live and cabi", &found);
}

#[test]
fn every_unsafe_block_has_its_argument() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let code = blank(&text);
        let raw: Vec<&str> = text.lines().collect();
        for (i, line) in code.lines().enumerate() {
            let opens = line.contains("unsafe {") || line.contains("unsafe impl");
            // The argument stands above the statement, which may have begun some lines before.
            let near = &raw[i.saturating_sub(8)..=i];
            if opens && !near.iter().any(|line| line.contains("SAFETY:")) {
                found.push(format!("{path}:{}", i + 1));
            }
        }
    }
    report("an unsafe block has a SAFETY comment with its argument", &found);
}

#[test]
fn pure_crates_do_not_name_the_system() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let inside = format!("crates/{}/src/", crate_of(&path));
        if !PURE_CRATES.contains(&crate_of(&path)) || !path.starts_with(&inside) {
            continue;
        }
        for (i, line) in blank(&text).lines().enumerate() {
            let line: Vec<&str> = words(line).collect();
            let named = IMPURE.iter().find(|name| line.windows(name.len()).any(|w| w == **name));
            if let Some(name) = named {
                found.push(format!("{path}:{}: {}", i + 1, name.join("::")));
            }
        }
    }
    report("a crate below live has no clock, socket, thread or file", &found);
}

#[test]
fn crates_know_only_those_below() {
    let mut found = Vec::new();
    let crates = crates();
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    for (name, manifest) in &crates {
        if ["common", "util", "utils", "types", "helpers"].contains(&name.as_str()) {
            found.push(format!("{name}: is a name that says nothing"));
        }
        let Some(below) = allowed.get(name.as_str()) else {
            found.push(format!("{name}: has no line in the table of edges"));
            continue;
        };
        for dependency in dependencies(manifest) {
            let known = crates.keys().any(|other| *other == dependency);
            if known && !below.contains(&dependency.as_str()) {
                found.push(format!("{name} -> {dependency}"));
            }
        }
    }
    report("arrows between crates point down only (ARCHITECTURE.md)", &found);
}

/// The crates of the workspace by directory, with their manifests.
fn crates() -> BTreeMap<String, String> {
    let manifests = files(&["toml"]);
    let of = |(path, text): &(String, String)| {
        let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        Some((name.to_owned(), text.clone()))
    };
    let crates: BTreeMap<String, String> = manifests.iter().filter_map(of).collect();
    assert!(crates.len() >= 6, "found only {:?}", crates.keys());
    crates
}

/// The directories of the workspace's crates that a manifest names, in any section of dependencies
/// but the one for tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies") && !section.contains("dev-dependencies") {
            let name = line.split(['.', '=', ' ']).next().unwrap_or("");
            let name = if name == "crocevia" { "verbs" } else { name };
            found.push(name.trim_start_matches("crocevia-").to_owned());
        }
    }
    found
}

#[test]
fn nothing_is_left_over() {
    // Blanked source has no strings, so the names of macros may stand here; those of remarks are
    // spelt in two parts.
    let macros = ["todo!", "unimplemented!", "dbg!"];
    let remarks = [["FIX", "ME"], ["TO", "DO:"], ["XX", "X:"]].map(|parts| parts.concat());
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (i, (raw, code)) in text.lines().zip(blank(&text).lines()).enumerate() {
            let macros = macros.iter().filter(|name| code.contains(**name)).copied();
            let remarks = remarks.iter().filter(|mark| raw.contains(*mark)).map(String::as_str);
            let ignored = code.contains("#[ignore").then_some("an ignored test");
            for what in macros.chain(remarks).chain(ignored) {
                found.push(format!("{path}:{}: {what}", i + 1));
            }
        }
    }
    report("nothing is left for later in the source", &found);
}

#[test]
fn no_path_of_one_machine() {
    let places = ["work", "root", "home", "Users"].map(|place| format!("/{place}/"));
    let mut found = Vec::new();
    for (path, text) in files(&["rs", "toml", "md", "sh", "py", "c", "h", "yml", "yaml"]) {
        for (i, line) in text.lines().enumerate() {
            // A place inside a longer path is another place.
            let named = |place: &String| {
                line.match_indices(place.as_str()).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    !before.is_some_and(|c| c.is_alphanumeric() || "._-}$*~".contains(c))
                })
            };
            if let Some(place) = places.iter().find(|place| named(place)) {
                found.push(format!("{path}:{}: {place}", i + 1));
            }
        }
    }
    report("no file names a place that only one machine has", &found);
}
