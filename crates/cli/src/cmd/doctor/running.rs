//! The running host as a source: files of sysfs and procfs, and tools, each with a bound on time
//! and output.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use doctor::{Source, Unread, limits};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::directory::{list_bounded, read_bounded, reason};

/// Time that a tool has.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes kept of what a tool complains about.
const COMPLAINT: usize = 200;

/// This host.
pub(super) struct Running {
    path: String,
}

impl Running {
    pub(super) fn new() -> Self {
        // Tools live in sbin, which users have not always in their PATH.
        let path = std::env::var("PATH").unwrap_or_default();
        Self { path: format!("{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin") }
    }
}

impl Source for Running {
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Unread> {
        read_bounded(&Path::new("/").join(path), limit)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, Unread> {
        list_bounded(&Path::new("/").join(dir))
    }

    fn run(&self, command: &[&str]) -> Result<Vec<u8>, Unread> {
        let Some((program, arguments)) = command.split_first() else { return Err(Unread::NoTool) };
        // Looked for here, since a directory of PATH that may not be entered is no answer.
        let mut places = self.path.split(':').filter(|dir| dir.starts_with('/'));
        let Some(program) = places.find_map(|dir| executable(&Path::new(dir).join(program))) else {
            return Err(Unread::NoTool);
        };
        let child = Command::new(program)
            .args(arguments)
            .env("LC_ALL", "C")
            .env("PATH", &self.path)
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match child {
            Ok(child) => finish(child),
            Err(error) => Err(match reason(error) {
                Unread::Missing => Unread::NoTool,
                why => why,
            }),
        }
    }
}

/// The path, if a program is there.
fn executable(path: &Path) -> Option<PathBuf> {
    let file = std::fs::metadata(path).ok()?;
    (file.is_file() && file.permissions().mode() & 0o111 != 0).then(|| path.to_owned())
}

/// Waits for a tool, reading both of its outputs, and ends it when its time is over.
fn finish(mut child: Child) -> Result<Vec<u8>, Unread> {
    let read = read_both(&mut child);
    if read.is_err() {
        // It may have ended by itself meanwhile; then there is nothing to end.
        let _ = child.kill();
    }
    let status = child.wait().map_err(reason)?;
    let (output, complaint) = read?;
    // Without rights ethtool prints what it may know, and ends with an error for the rest.
    if status.success() || !output.is_empty() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&complaint);
    let line =
        text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no word of why");
    let line: String = line.chars().take(COMPLAINT).collect();
    let ended = match status.code() {
        Some(code) => format!("ended with status {code}"),
        None => format!("ended by a {status}"),
    };
    Err(Unread::Failed(format!("{ended}: {line}")))
}

fn read_both(child: &mut Child) -> Result<(Vec<u8>, Vec<u8>), Unread> {
    let until = Instant::now() + PATIENCE;
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Unread::Failed("it has no output".to_owned()));
    };
    let (mut output, mut complaint) = (Vec::new(), Vec::new());
    let (mut out_open, mut err_open) = (true, true);
    let mut buffer = [0; 16 << 10];
    while out_open || err_open {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Unread::Failed(format!("no end after {} s", PATIENCE.as_secs())));
        }
        let flags = |open| if open { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut fds =
            [PollFd::new(out.as_fd(), flags(out_open)), PollFd::new(err.as_fd(), flags(err_open))];
        let timeout =
            PollTimeout::try_from(left.min(Duration::from_secs(1))).unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(Unread::Failed(error.to_string())),
        }
        let ready: Vec<bool> =
            fds.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty())).collect();
        if out_open && ready[0] {
            out_open = take(&mut out, &mut buffer, &mut output)?;
            if output.len() > limits::OUTPUT {
                return Err(Unread::TooLarge(limits::OUTPUT));
            }
        }
        if err_open && ready[1] {
            err_open = take(&mut err, &mut buffer, &mut complaint)?;
            complaint.truncate(COMPLAINT * 8);
        }
    }
    Ok((output, complaint))
}

/// Reads once what is there; whether there may be more.
fn take(from: &mut impl Read, buffer: &mut [u8], to: &mut Vec<u8>) -> Result<bool, Unread> {
    let n = from.read(buffer).map_err(reason)?;
    to.extend(&buffer[..n]);
    Ok(n > 0)
}
