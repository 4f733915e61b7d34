//! The directory that `--record` writes: new or empty, plain files only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use doctor::Tree;

use super::UNREADABLE;
use crate::error::{Failure, Result};
use crate::render;

/// Where to write.
pub(super) struct Place {
    root: PathBuf,
}

impl Place {
    /// Makes the directory, before anything is read. Nothing that is there is written over.
    pub(super) fn prepare(path: &Path) -> Result<Self> {
        let shown = path.display();
        let wrong =
            |error: io::Error| Failure::Exit(UNREADABLE, format!("--record {shown}: {error}"));
        match fs::create_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_dir(path).map_err(wrong)?.next().is_some() {
                    let expected = "expected a directory that is new or empty";
                    return Err(Failure::usage(format!("--record {shown}: {expected}")));
                }
            }
            Err(error) => return Err(wrong(error)),
        }
        Ok(Self { root: path.to_owned() })
    }

    pub(super) fn name(&self) -> String {
        self.root.display().to_string()
    }

    /// Writes the files; how many, as text.
    pub(super) fn write(&self, tree: &Tree) -> Result<String> {
        let mut count = 0;
        for (path, bytes) in tree.files() {
            let path = self.root.join(path);
            let wrong = |error: io::Error| {
                Failure::Exit(UNREADABLE, format!("{}: {error}", path.display()))
            };
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(wrong)?;
            }
            fs::write(&path, bytes).map_err(wrong)?;
            count += 1;
        }
        Ok(render::count(count, "file"))
    }
}
