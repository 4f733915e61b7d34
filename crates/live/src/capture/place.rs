//! Where a capture goes: which file a process takes, so that several processes with the same
//! options do not write over each other's captures, nor over anything else.

use std::ffi::{CString, OsString};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use engine::{Error, ErrorKind};

use crate::sys;

/// Names tried.
const NAMES: u32 = 1000;

/// What a capture is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    File,
    /// A named pipe: opened by the writer, because that waits for a reader.
    Pipe,
    /// A terminal or the like.
    Device,
}

/// A file to write to.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) file: Option<File>,
    /// Of a pipe: has something to read when a reader has gone.
    leavers: Option<File>,
}

/// Why a file cannot be had.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) path: PathBuf,
    pub(super) why: io::Error,
}

/// How that is said.
pub(super) fn refusal(path: &Path, why: &dyn Display) -> String {
    format!("cannot capture to {}: {why}", path.display())
}

/// Empties the file that a capture is to go to, unless somebody captures to it now: for who starts
/// programs that capture, so that the first of them gets the file as it is called.
///
/// # Errors
/// `System` if it cannot be written; the message names it.
pub fn prepare(asked: &Path) -> engine::Result<()> {
    let path = expand(asked, std::process::id());
    let refused = |why: io::Error| Error::new(ErrorKind::System, refusal(&path, &why));
    if is_dash(asked) {
        return Err(refused(dash()));
    }
    if kind_of(&path) != Kind::File {
        return Ok(());
    }
    let fresh = !path.exists();
    let file = OpenOptions::new().append(true).create(true).open(&path).map_err(refused)?;
    if sys::lock_file(file.as_fd()).unwrap_or(true) {
        file.set_len(0).map_err(refused)?;
        if fresh && path != asked {
            // Perhaps no process of this number will capture.
            std::fs::remove_file(&path).map_err(refused)?;
        }
    }
    Ok(())
}

/// Takes the file that a capture of this process goes to, and its name. `own` is the one that it
/// has had before.
pub(super) fn take(asked: &Path, own: Option<&Path>) -> Result<(PathBuf, Place), Refusal> {
    let pid = std::process::id();
    let first = expand(asked, pid);
    let refuse = |path: &Path, why| Refusal { path: path.to_owned(), why };
    if is_dash(asked) {
        return Err(refuse(asked, dash()));
    }
    let kind = kind_of(&first);
    if kind != Kind::File {
        let open = || OpenOptions::new().write(true).open(&first);
        let file = if kind == Kind::Device {
            Some(open().map_err(|why| refuse(&first, why))?)
        } else {
            None
        };
        return Ok((first.clone(), Place { path: first, kind, file, leavers: None }));
    }
    if let Some(own) = own {
        let file = OpenOptions::new().append(true).create(true).open(own);
        let file = file.map_err(|why| refuse(own, why))?;
        return Ok((own.to_owned(), place(own.to_owned(), file)));
    }
    let with_pid = if first == asked { numbered(&first, pid) } else { first.clone() };
    let others = (2..NAMES).map(|number| numbered(&with_pid, number));
    let mut last = None;
    for path in [first.clone(), with_pid.clone()].into_iter().chain(others) {
        match fresh(&path) {
            Ok(Some(file)) => return Ok((path.clone(), place(path, file))),
            Ok(None) => {}
            // Another user's.
            Err(why) if path == first && why.kind() == io::ErrorKind::PermissionDenied => {
                last = Some(refuse(&path, why));
            }
            Err(why) => return Err(last.unwrap_or_else(|| refuse(&path, why))),
        }
    }
    Err(last.unwrap_or_else(|| refuse(&first, io::ErrorKind::AlreadyExists.into())))
}

fn place(path: PathBuf, file: File) -> Place {
    let file = File::from(sys::high(file.into()));
    sys::release_on_fork(file.as_fd());
    Place { path, kind: Kind::File, file: Some(file), leavers: None }
}

/// The file of this name, if it is empty and nobody else has it.
fn fresh(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    // Where files cannot be locked, they cannot be shared either.
    let locked = sys::lock_file(file.as_fd()).unwrap_or(true);
    Ok((locked && file.metadata()?.len() == 0).then_some(file))
}

impl Place {
    /// Opens the pipe, which waits until somebody reads it.
    pub(super) fn open_pipe(&mut self) -> io::Result<&mut File> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        if !sys::lock_file(file.as_fd()).unwrap_or(true) {
            return Err(io::Error::other(
                "another process captures to this pipe (%p in the name gives each its own)",
            ));
        }
        let file = File::from(sys::high(file.into()));
        sys::release_on_fork(file.as_fd());
        if self.leavers.is_none() {
            // Where there is no such thing, a change of readers may go unnoticed.
            let name = CString::new(self.path.as_os_str().as_bytes()).unwrap_or_default();
            self.leavers = sys::readers_leave(&name).ok().map(|fd| sys::high(fd).into());
        }
        self.reader_has_left();
        Ok(self.file.insert(file))
    }

    /// Whether a reader of the pipe has gone since this was last asked; another may have come.
    pub(super) fn reader_has_left(&mut self) -> bool {
        let Some(leavers) = &mut self.leavers else { return false };
        let (mut events, mut any) = ([0; 4096], false);
        while leavers.read(&mut events).is_ok_and(|len| len > 0) {
            any = true;
        }
        any
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            sys::keep_on_fork(file.as_fd());
        }
    }
}

fn is_dash(asked: &Path) -> bool {
    asked.as_os_str() == "-"
}

fn dash() -> io::Error {
    io::Error::other(
        "standard output is the program's own; name a file, or a pipe that somebody reads \
         (mkfifo PIPE; wireshark -k -i PIPE)",
    )
}

fn kind_of(path: &Path) -> Kind {
    match path.metadata().map(|meta| meta.file_type()) {
        Ok(kind) if kind.is_fifo() => Kind::Pipe,
        Ok(kind) if kind.is_char_device() => Kind::Device,
        _ => Kind::File,
    }
}

/// The name with `%p` replaced by the process's number, and `%%` by `%`.
fn expand(asked: &Path, pid: u32) -> PathBuf {
    let mut name = Vec::new();
    let mut bytes = asked.as_os_str().as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let directive = if byte == b'%' { bytes.peek().copied() } else { None };
        match directive {
            Some(b'p') => name.extend(pid.to_string().bytes()),
            Some(b'%') => name.push(b'%'),
            _ => {
                name.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    OsString::from_vec(name).into()
}

/// The name with a number before its extension: `a/b.pcapng` becomes `a/b.17.pcapng`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let expanded = |name: &str| expand(Path::new(name), 17).into_os_string();
        assert_eq!(expanded("a/%p/x-%p.pcapng"), "a/17/x-17.pcapng");
        assert_eq!(expanded("100%%p %q %"), "100%p %q %");
        let named = |name: &str| numbered(Path::new(name), 3).into_os_string();
        assert_eq!(named("/tmp/a.b/x.pcapng"), "/tmp/a.b/x.3.pcapng");
        assert_eq!(named("x"), "x.3");
        assert_eq!(named(".x"), ".x.3");
    }
}
