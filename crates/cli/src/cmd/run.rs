//! `crocevia run`: finds the library, makes a directory of links under the names that programs
//! load, sets the loader's environment and becomes the program. The directory is `links`' matter.

mod check;
mod links;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::RunArgs;
use crate::error::{Failure, Result};
use crate::render;

/// Cargo's name of the shared object.
const LIBRARY: &str = "libcrocevia_ibverbs.so";
/// Exit code of a launcher whose program was not found (as in `env(1)`).
const EXIT_NOT_FOUND: u8 = 127;
/// Exit code of a launcher whose program could not be executed.
const EXIT_NOT_EXECUTABLE: u8 = 126;

/// Becomes the program; returns only if that fails.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    if let Some(rules) = check::list(&args.check) {
        return render::text(&rules);
    }
    check_faults(args.faults.as_deref())?;
    let Some(name) = args.command.first() else {
        return Err(Failure::usage("there is no program: give a command after --"));
    };
    let program = find_program(name)?;
    let library = find_library()?;
    // An address that does not exist is told here, not by each program in its own way.
    super::devices(args.addr.as_deref())?;
    let links = links::directory(&library)?;
    let pcap = prepare_capture(args.pcap.as_deref())?;
    warn_setuid(&program);

    let mut command = Command::new(name);
    command.args(&args.command[1..]);
    command.env("LD_LIBRARY_PATH", prepend("LD_LIBRARY_PATH", links.as_os_str()));
    command.env("LD_PRELOAD", prepend("LD_PRELOAD", links.join(links::IBVERBS).as_os_str()));
    if let Some(addr) = &args.addr {
        command.env("CROCEVIA_ADDR", addr);
    }
    if let Some(faults) = &args.faults {
        command.env("CROCEVIA_FAULTS", faults);
    }
    if let Some(pcap) = pcap {
        command.env("CROCEVIA_PCAP", pcap);
    }
    check::ask(&args.check, &mut command)?;
    Err(exec_failure(&program, &command.exec()))
}

/// The specification of `--faults`, else of the environment, must be one.
fn check_faults(option: Option<&str>) -> Result<()> {
    let (source, spec) = match option {
        Some(spec) => ("--faults", spec.to_owned()),
        None => match std::env::var("CROCEVIA_FAULTS") {
            Ok(spec) => ("CROCEVIA_FAULTS", spec),
            Err(_) => return Ok(()),
        },
    };
    super::parse_faults(&spec).map(drop).map_err(|failure| failure.within(source))
}

/// The file of `--pcap`, else of the environment, in a form that does not depend on the working
/// directory: emptied, if it can be written.
fn prepare_capture(option: Option<&Path>) -> Result<Option<PathBuf>> {
    let asked = match option {
        Some(file) => Some(file.to_owned()),
        None => std::env::var_os("CROCEVIA_PCAP").filter(|v| !v.is_empty()).map(PathBuf::from),
    };
    let Some(asked) = asked else { return Ok(None) };
    let file = match asked.to_str() {
        Some("-") => asked,
        _ => std::path::absolute(&asked).unwrap_or(asked),
    };
    live::prepare_capture(&file)?;
    Ok(Some(file))
}

/// `value` before what the environment variable `name` has; once, however often `run` is nested.
fn prepend(name: &str, value: &OsStr) -> OsString {
    let old = std::env::var_os(name).unwrap_or_default();
    let mut new = value.to_owned();
    let rest = old.as_encoded_bytes().split(|&byte| byte == b':' || byte == b' ');
    for part in rest.filter(|part| !part.is_empty() && *part != value.as_encoded_bytes()) {
        new.push(":");
        // The bytes were cut at ASCII characters, so they are whole.
        new.push(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(part));
    }
    new
}

/// Where `execvp` will find the program.
fn find_program(name: &OsStr) -> Result<PathBuf> {
    let not_found = |detail: &str| {
        let name = name.to_string_lossy();
        Failure::Exit(EXIT_NOT_FOUND, format!("{name}: command not found{detail}"))
    };
    if name.is_empty() {
        return Err(Failure::usage("the program's name is empty: give a command after --"));
    }
    if name.as_encoded_bytes().starts_with(b"-") {
        return Err(Failure::usage(format!(
            "{} is no option of crocevia run: see `crocevia run --help`",
            name.to_string_lossy()
        )));
    }
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if path.exists() { Ok(path) } else { Err(not_found(": no such file")) };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/bin:/usr/bin".into());
    let found: Vec<PathBuf> =
        std::env::split_paths(&path).map(|dir| dir.join(name)).filter(|p| p.is_file()).collect();
    let best = found.iter().find(|path| is_executable(path)).or(found.first());
    best.cloned().ok_or_else(|| not_found(" in PATH; is its package installed?"))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

fn exec_failure(program: &Path, error: &std::io::Error) -> Failure {
    let path = program.display();
    let message = match error.kind() {
        ErrorKind::NotFound => format!(
            "{path} exists, but its interpreter does not: look at its first line (#!), or at \
             `file {path}` for a program of another system"
        ),
        ErrorKind::PermissionDenied if program.is_dir() => format!("{path} is a directory"),
        ErrorKind::PermissionDenied => {
            format!("{path} may not be executed: is its x bit set (chmod +x)?")
        }
        _ => format!("{path} could not be executed: {error}"),
    };
    Failure::Exit(EXIT_NOT_EXECUTABLE, message)
}

/// Warns where the loader will ignore what `run` sets. Nothing else stands in the way of such a
/// program, so it is run all the same.
fn warn_setuid(program: &Path) {
    let Ok(meta) = program.metadata() else { return };
    if meta.permissions().mode() & 0o6000 != 0 {
        render::note(&format!(
            "{} is set-user-ID or set-group-ID: the loader ignores LD_PRELOAD for it, it will use \
             the system's libibverbs",
            program.display()
        ));
    }
}

/// The shared object, beside this program or where an installation or a build puts it.
fn find_library() -> Result<PathBuf> {
    let exe = std::env::current_exe()
        .and_then(|exe| exe.canonicalize())
        .map_err(|error| Failure::failed(format!("the own program's path is unknown: {error}")))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let places = ["", "../lib/crocevia", "../lib", "deps", ".."].map(|place| dir.join(place));
    // In a build tree there may be two, of which the older is what an earlier build left.
    let age = |path: &PathBuf| path.metadata().and_then(|meta| meta.modified()).ok();
    let found = places.iter().map(|place| place.join(LIBRARY)).filter(|path| path.is_file());
    if let Some(path) = found.max_by_key(age) {
        return path.canonicalize().map_err(|error| {
            Failure::failed(format!("{} could not be resolved: {error}", path.display()))
        });
    }
    Err(Failure::failed(format!(
        "the library {LIBRARY} was not found beside {} nor in {}: build it with `cargo build \
         --release -p crocevia-cabi`, or install it into one of these",
        exe.display(),
        dir.parent().unwrap_or(dir).join("lib/crocevia").display(),
    )))
}
