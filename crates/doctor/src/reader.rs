//! Reads a source with the doctor's bounds, and keeps a remark on each thing that was there and
//! made no sense, or that was wanted and could not be read. A missing thing is never an error.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::str::FromStr;

use serde::Serialize;

use crate::limits;
use crate::source::{Source, Unread, command_file};
use crate::tree;

/// A value and where it was seen: a path, or a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen<T> {
    /// The value.
    pub value: T,
    /// `/sys/class/net/eth0/mtu`, or `` `ethtool -a eth0` ``.
    pub from: String,
}

impl<T> Seen<T> {
    /// The same place with another value, computed from this one.
    pub(crate) fn map<U>(&self, value: U) -> Seen<U> {
        Seen { value, from: self.from.clone() }
    }
}

/// Something that was not read, and why.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Note {
    /// The path or command.
    pub what: String,
    /// The reason: what the system said, or what was found and what was expected.
    pub why: String,
}

/// A source being read.
pub(crate) struct Reader<'a> {
    source: &'a dyn Source,
    reasons: std::collections::BTreeMap<String, String>,
    notes: RefCell<BTreeSet<Note>>,
}

/// How a command is named to people.
pub(crate) fn shown(command: &[&str]) -> String {
    format!("`{}`", command.join(" "))
}

/// A value that makes no sense, short and on one line.
pub(crate) fn excerpt(text: &str) -> String {
    let text = text.trim();
    let short: String = text.chars().take(limits::SHOWN).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{dots}")
}

impl<'a> Reader<'a> {
    /// Begins to read.
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        let not_read = source.read(tree::NOT_READ, limits::OUTPUT).unwrap_or_default();
        let reasons = tree::reasons(&String::from_utf8_lossy(&not_read));
        Self { source, reasons, notes: RefCell::default() }
    }

    /// What was not read, in the order of names.
    pub(crate) fn notes(self) -> Vec<Note> {
        self.notes.into_inner().into_iter().collect()
    }

    /// Keeps a remark.
    pub(crate) fn note(&self, what: impl Into<String>, why: impl Into<String>) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < limits::NOTES {
            notes.insert(Note { what: what.into(), why: why.into() });
        }
    }

    /// A reason as a recorded directory has it, if it has one.
    fn reason(&self, path: &str, why: Unread) -> Unread {
        match (self.reasons.get(path), &why) {
            (Some(reason), Unread::Missing | Unread::Failed(_)) => {
                Unread::Failed(format!("{reason} (when it was recorded)"))
            }
            _ => why,
        }
    }

    fn text(bytes: Vec<u8>) -> Result<String, Unread> {
        String::from_utf8(bytes).map_err(|e| Unread::NotText(e.utf8_error().valid_up_to()))
    }

    /// A file as text, without a remark.
    pub(crate) fn quiet(&self, path: &str, limit: usize) -> Result<Seen<String>, Unread> {
        let bytes = self.source.read(path, limit).map_err(|why| self.reason(path, why))?;
        Ok(Seen { value: Self::text(bytes)?, from: format!("/{path}") })
    }

    /// A file as text. One that is missing gives no remark; any other reason does.
    pub(crate) fn file(&self, path: &str) -> Option<Seen<String>> {
        self.long(path, limits::VALUE)
    }

    /// As [`Self::file`], with another bound.
    pub(crate) fn long(&self, path: &str, limit: usize) -> Option<Seen<String>> {
        match self.quiet(path, limit) {
            Ok(seen) => Some(seen),
            Err(Unread::Missing) => None,
            Err(why) => {
                self.note(format!("/{path}"), why.to_string());
                None
            }
        }
    }

    /// The text of a file without the white space around it; empty counts as missing.
    pub(crate) fn word(&self, path: &str) -> Option<Seen<String>> {
        let seen = self.file(path)?;
        let word = seen.value.trim().to_owned();
        if word.is_empty() { None } else { Some(seen.map(word)) }
    }

    /// A number in a file; what else stands there gives a remark with the file, the value and what
    /// was `expected`.
    pub(crate) fn number<T: FromStr>(&self, path: &str, expected: &str) -> Option<Seen<T>> {
        let seen = self.word(path)?;
        self.parsed(&seen, seen.value.parse().ok(), expected)
    }

    /// A value that was parsed from a seen text, or a remark.
    pub(crate) fn parsed<T>(
        &self,
        seen: &Seen<String>,
        value: Option<T>,
        expected: &str,
    ) -> Option<Seen<T>> {
        if value.is_none() {
            let found = excerpt(&seen.value);
            self.note(seen.from.clone(), format!("found {found}, expected {expected}"));
        }
        value.map(|value| seen.map(value))
    }

    /// The output of a tool, with a remark if there is none.
    pub(crate) fn output(&self, command: &[&str]) -> Option<Seen<String>> {
        let path = command_file(command);
        let run = self.source.run(command).map_err(|why| self.reason(&path, why));
        match run.and_then(Self::text) {
            Ok(value) => Some(Seen { value, from: shown(command) }),
            Err(why) => {
                self.note(shown(command), why.to_string());
                None
            }
        }
    }

    /// The names in a directory that begin with `prefix` and could be names of devices.
    pub(crate) fn names(&self, dir: &str, prefix: &str) -> Vec<String> {
        match self.source.list(dir) {
            Ok(mut names) => {
                names.retain(|name| name.starts_with(prefix) && crate::source::is_name(name));
                names.sort();
                if names.len() > limits::NAMES {
                    let more = names.len() - limits::NAMES;
                    self.note(format!("/{dir}"), format!("{more} of its entries were left out"));
                    names.truncate(limits::NAMES);
                }
                names
            }
            Err(Unread::Missing) => Vec::new(),
            Err(why) => {
                self.note(format!("/{dir}"), why.to_string());
                Vec::new()
            }
        }
    }
}
