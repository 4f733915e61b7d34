//! A directory as a source: what was copied from a host. Links are followed only inside it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use doctor::{Source, Unread, limits};

use crate::error::{Failure, Result};

/// A directory, by its real path.
pub(super) struct Directory {
    root: PathBuf,
}

/// Reads at most `limit` bytes; waits for nobody, as a FIFO or a device would make one.
pub(super) fn read_bounded(path: &Path, limit: usize) -> std::result::Result<Vec<u8>, Unread> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
        .map_err(reason)?;
    let kind = file.metadata().map_err(reason)?.file_type();
    if !kind.is_file() {
        return Err(Unread::Failed("not a file".to_owned()));
    }
    read_open(&file, limit)
}

fn read_open(file: &File, limit: usize) -> std::result::Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(reason)?;
    if bytes.len() > limit { Err(Unread::TooLarge(limit)) } else { Ok(bytes) }
}

/// What an error of the system is to the doctor.
pub(super) fn reason(error: io::Error) -> Unread {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unread::Missing,
        io::ErrorKind::PermissionDenied => Unread::Denied,
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            Unread::Failed(text.to_lowercase())
        }
    }
}

/// The names in a directory.
pub(super) fn list_bounded(path: &Path) -> std::result::Result<Vec<String>, Unread> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(reason)?.take(limits::NAMES + 1) {
        if let Ok(name) = entry.map_err(reason)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

impl Directory {
    /// A directory that can be read.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let wrong =
            |error: io::Error| Failure::Exit(super::UNREADABLE, format!("{shown}: {error}"));
        let root = fs::canonicalize(path).map_err(wrong)?;
        fs::read_dir(&root).map_err(wrong)?;
        Ok(Self { root })
    }

    /// The real path of one inside.
    fn inside(&self, path: &str) -> std::result::Result<PathBuf, Unread> {
        let real = fs::canonicalize(self.root.join(path)).map_err(reason)?;
        if real.starts_with(&self.root) { Ok(real) } else { Err(Unread::Outside) }
    }
}

impl Source for Directory {
    fn read(&self, path: &str, limit: usize) -> std::result::Result<Vec<u8>, Unread> {
        read_bounded(&self.inside(path)?, limit)
    }

    fn list(&self, dir: &str) -> std::result::Result<Vec<String>, Unread> {
        list_bounded(&self.inside(dir)?)
    }
}
