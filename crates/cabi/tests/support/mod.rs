//! What the tests of the built shared object have in common: finding it, a directory in which it
//! has the name that programs look for, running programs with it.
#![allow(dead_code)] // Each test uses a part.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The shared object: cargo builds it together with the library that the tests depend on, beside
/// their executables.
pub(crate) fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    let path = exe.with_file_name("libcrocevia_ibverbs.so");
    assert!(path.exists(), "{} has not been built", path.display());
    path
}

/// A directory in which the shared object is `libibverbs.so.1`.
pub(crate) fn library_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let name = format!("lib-{}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&dir).expect("cargo's directory for tests is writable");
        for name in ["libibverbs.so.1", "libibverbs.so"] {
            let link = dir.join(name);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(library(), link).expect("the directory is writable");
        }
        dir
    })
}

/// The lines of `symbols.txt`: node, name, status.
pub(crate) fn symbol_table() -> Vec<(String, String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("symbols.txt");
    let text = std::fs::read_to_string(path).expect("symbols.txt is part of the crate");
    let words = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some((words.next()?, words.next()?, words.next()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(words).collect()
}

/// Where a program is installed, if it is.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/bin").join(program);
    path.exists().then_some(path)
}

/// Runs a command that finds the shared object as its libibverbs.
pub(crate) fn run(command: &mut Command) -> Output {
    command
        .env("LD_LIBRARY_PATH", library_dir())
        .output()
        .unwrap_or_else(|e| panic!("{command:?} does not start: {e}"))
}

/// Standard output and standard error of a command, in one text.
pub(crate) fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}
