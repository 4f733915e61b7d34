//! `--check` of `crocevia run`: what it asks for, told to the library by the environment. The files
//! are opened here once, so that one that cannot be written is told before the program starts.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

use check::{Mode, Rule};

use crate::args::CheckArgs;
use crate::error::{Failure, Result};

/// The word of `--check` that asks for the list of rules.
const LIST: &str = "list";

/// The rules, a line each, if they are asked for.
pub(super) fn list(args: &CheckArgs) -> Option<String> {
    (args.check.as_deref() == Some(LIST)).then(|| {
        let line = |rule: &Rule| {
            let strict = if rule.is_strict() { " (strict)" } else { "" };
            format!("{} {:<20} {}{strict}\n", rule.code(), rule.word(), rule.title())
        };
        Rule::ALL.iter().map(line).collect()
    })
}

/// Sets the environment of the program.
pub(super) fn ask(args: &CheckArgs, command: &mut Command) -> Result<()> {
    let files = [
        (&args.check_file, "--check-file", "CROCEVIA_CHECK_FILE"),
        (&args.check_json, "--check-json", "CROCEVIA_CHECK_JSON"),
    ];
    let asked = args.check.as_deref();
    let asked = asked.or(files.iter().any(|(file, ..)| file.is_some()).then_some("report"));
    let (source, words) = match (asked, std::env::var("CROCEVIA_CHECK")) {
        (Some(words), _) => ("--check", words.to_owned()),
        (None, Ok(words)) => ("CROCEVIA_CHECK", words),
        (None, Err(_)) => return Ok(()),
    };
    Mode::parse(&words).map_err(|word| {
        let known = Mode::WORDS;
        Failure::usage(format!(
            "{source}: expected some of {known}, joined by commas; found `{word}`"
        ))
    })?;
    if asked.is_some() {
        command.env("CROCEVIA_CHECK", &words);
    }
    for (file, option, variable) in files {
        if let Some(file) = file {
            command.env(variable, writable(file).map_err(|failure| failure.within(option))?);
        }
    }
    Ok(())
}

/// The file's absolute path, made if there is none: the program may change its directory.
fn writable(file: &Path) -> Result<PathBuf> {
    let cannot = |error: std::io::Error| Failure::failed(format!("{}: {error}", file.display()));
    OpenOptions::new().append(true).create(true).open(file).map_err(cannot)?;
    std::path::absolute(file).map_err(cannot)
}
