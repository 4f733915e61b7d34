//! Recorded hosts: from the directories of `tests/hosts` into memory, and edited there.

use std::fs;
use std::path::Path;

use doctor::{Asked, Host, Report, Samples, Tree};

/// Names of the recorded hosts.
pub(crate) const HOSTS: &[&str] = &[
    "bnxt-good",
    "cx5-bare",
    "cx5-good",
    "cx5-later",
    "cx6-tangled",
    "ionic-bond",
    "plain",
    "softroce-guest",
    "softroce-vm",
];

/// A recorded host.
pub(crate) fn host(name: &str) -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts").join(name);
    let mut tree = Tree::new();
    let mut open = vec![root.clone()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a directory of the repository").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let below = path.strip_prefix(&root).expect("a path below it");
                let bytes = fs::read(&path).expect("a file of the repository");
                tree.set(below.to_str().expect("a name in ASCII"), bytes);
            }
        }
    }
    assert!(tree.files().count() > 10, "{name} has nothing");
    tree
}

/// A change of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit {
    /// The whole of it.
    Set(&'static str, &'static str),
    /// One text for another, which must be there.
    Swap(&'static str, &'static str, &'static str),
    /// It is gone, or all below it.
    Drop(&'static str),
}

/// Makes the changes.
#[track_caller]
pub(crate) fn edit(tree: &mut Tree, edits: &[Edit]) {
    for edit in edits {
        match edit {
            Edit::Set(path, text) => tree.set(path, *text),
            Edit::Swap(path, old, new) => {
                let text = tree.get(path).unwrap_or_else(|| panic!("no file {path}"));
                let text = String::from_utf8(text.to_vec()).expect("text");
                assert!(text.contains(old), "{old:?} is not in {path}: {text}");
                tree.set(path, text.replacen(old, new, 1));
            }
            Edit::Drop(path) => {
                let before = tree.files().count();
                tree.remove(path);
                assert!(tree.files().count() < before, "no file {path}");
            }
        }
    }
}

/// The report on one reading.
pub(crate) fn report(tree: &Tree, asked: &Asked) -> Report {
    Report::new(Samples::one(&Host::gather(tree, asked)), asked)
}

/// The report on two.
pub(crate) fn compared(before: &Tree, now: &Tree) -> Report {
    let asked = Asked::default();
    let (before, now) = (Host::gather(before, &asked), Host::gather(now, &asked));
    Report::new(Samples::two(&before, &now, None), &asked)
}

/// The numbers of the findings, in their order.
pub(crate) fn codes(report: &Report) -> Vec<&'static str> {
    let mut codes: Vec<_> = report.findings.iter().map(|finding| finding.rule.code()).collect();
    codes.sort_unstable();
    codes
}
