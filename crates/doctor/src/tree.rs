//! A host in memory: files by path. What `--record` fills and the tests edit; not where it is read
//! from or written to.

use std::collections::BTreeMap;

use crate::limits;
use crate::source::{Source, Unread, command_file};

/// The file of a recorded directory that tells why things are missing: lines `path: reason`.
pub const NOT_READ: &str = "not-read.txt";

/// Files by their path from the root.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Vec<u8>>,
}

impl Tree {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a file, over one that is there.
    pub fn set(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path.to_owned(), bytes.into());
    }

    /// Writes a tool's output.
    pub fn set_output(&mut self, command: &[&str], bytes: impl Into<Vec<u8>>) {
        self.set(&command_file(command), bytes);
    }

    /// Removes a file, or all below a directory.
    pub fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.files.retain(|name, _| name != path && !name.starts_with(&below));
    }

    /// All files in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// The bytes of a file.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    fn bytes(&self) -> usize {
        self.files.iter().map(|(path, bytes)| path.len() + bytes.len()).sum()
    }
}

impl Source for Tree {
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Unread> {
        match self.files.get(path) {
            Some(bytes) if bytes.len() > limit => Err(Unread::TooLarge(limit)),
            Some(bytes) => Ok(bytes.clone()),
            None => Err(Unread::Missing),
        }
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, Unread> {
        let below = format!("{dir}/");
        let inside = self.files.range(below.clone()..).map(|(path, _)| path);
        let inside = inside.take_while(|path| path.starts_with(&below));
        let mut names: Vec<String> = inside
            .filter_map(|path| path[below.len()..].split('/').next())
            .map(str::to_owned)
            .collect();
        names.dedup();
        if names.is_empty() { Err(Unread::Missing) } else { Ok(names) }
    }
}

/// Keeps all that passes from a source to its reader: the directory that `--record` writes.
pub struct Recorder<'a> {
    inner: &'a dyn Source,
    tree: std::cell::RefCell<Tree>,
    missing: std::cell::RefCell<BTreeMap<String, String>>,
}

impl<'a> Recorder<'a> {
    /// Records what is read of `inner`.
    pub fn new(inner: &'a dyn Source) -> Self {
        Self { inner, tree: Default::default(), missing: Default::default() }
    }

    /// What was read, with the reasons for what was not.
    pub fn finish(self) -> Tree {
        let mut tree = self.tree.into_inner();
        let lines: Vec<String> = self
            .missing
            .into_inner()
            .iter()
            .map(|(path, why)| format!("{path}: {why}\n"))
            .collect();
        tree.set(NOT_READ, lines.concat());
        tree
    }

    fn keep(&self, path: &str, result: &Result<Vec<u8>, Unread>) {
        match result {
            Ok(bytes) => {
                let mut tree = self.tree.borrow_mut();
                let fits = tree.bytes() + bytes.len() <= limits::RECORD
                    && tree.files.len() < limits::RECORD_FILES;
                if fits {
                    tree.set(path, bytes.clone());
                } else {
                    drop(tree);
                    self.miss(path, "left out: the recording would be too large");
                }
            }
            Err(Unread::Missing) => {}
            Err(why) => self.miss(path, &why.to_string()),
        }
    }

    fn miss(&self, path: &str, why: &str) {
        let mut missing = self.missing.borrow_mut();
        if missing.len() < limits::RECORD_FILES {
            // A reason is one line, whatever the system says.
            let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            missing.insert(path.to_owned(), why);
        }
    }
}

impl Source for Recorder<'_> {
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Unread> {
        let result = self.inner.read(path, limit);
        self.keep(path, &result);
        result
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, Unread> {
        let result = self.inner.list(dir);
        if let Err(why) = &result
            && *why != Unread::Missing
        {
            self.miss(dir, &why.to_string());
        }
        result
    }

    fn run(&self, command: &[&str]) -> Result<Vec<u8>, Unread> {
        let result = self.inner.run(command);
        self.keep(&command_file(command), &result);
        result
    }
}

/// The reasons that a recorded directory gives, by path.
pub fn reasons(not_read: &str) -> BTreeMap<String, String> {
    let lines = not_read.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(path, why)| (path.to_owned(), why.to_owned())).collect()
}
