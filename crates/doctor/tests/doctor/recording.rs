//! What is recorded of a host gives the same report as the host, and tells why things are missing.

use doctor::{Asked, Host, Recorder, Report, Source, Tree, Unread};

use crate::host::{HOSTS, codes, host, report};

#[test]
fn a_recording_gives_the_same_report() {
    for name in HOSTS {
        let tree = host(name);
        let recorder = Recorder::new(&tree);
        Host::gather(&recorder, &Asked::default());
        let recorded = recorder.finish();
        let (first, again) =
            (report(&tree, &Asked::default()), report(&recorded, &Asked::default()));
        assert_eq!(first.findings, again.findings, "{name}");
        let shape = |report: &Report| format!("{:?} {:?}", report.ports, report.interfaces);
        assert_eq!(shape(&first), shape(&again), "{name}");
        // What was not read then is not read now, with a reason that says so.
        let what = |report: &Report| -> Vec<String> {
            report.not_read.iter().map(|note| note.what.clone()).collect()
        };
        assert_eq!(what(&first), what(&again), "{name}");
    }
}

/// A host on which a file may not be read, and a tool is not there.
struct Barred<'a>(&'a Tree);

impl Source for Barred<'_> {
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Unread> {
        if path.ends_with("default_roce_tos") {
            Err(Unread::Denied)
        } else {
            self.0.read(path, limit)
        }
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, Unread> {
        self.0.list(dir)
    }

    fn run(&self, command: &[&str]) -> Result<Vec<u8>, Unread> {
        if command[0] == "lldptool" { Err(Unread::NoTool) } else { self.0.run(command) }
    }
}

#[test]
fn reasons_are_recorded() {
    let tree = host("cx5-good");
    let barred = Barred(&tree);
    let recorder = Recorder::new(&barred);
    let here = Host::gather(&recorder, &Asked::default());
    let recorded = recorder.finish();
    let there = Host::gather(&recorded, &Asked::default());
    let why = |host: &Host, what: &str| {
        let note = host.notes.iter().find(|note| note.what.contains(what));
        note.map(|note| note.why.clone()).unwrap_or_default()
    };
    assert_eq!(why(&here, "default_roce_tos"), "permission denied");
    assert_eq!(why(&there, "default_roce_tos"), "permission denied (when it was recorded)");
    assert_eq!(why(&here, "lldptool"), "no such program");
    assert_eq!(why(&there, "lldptool"), "no such program (when it was recorded)");
    assert_eq!(codes(&report(&recorded, &Asked::default())), [""; 0]);
}

#[test]
fn nothing_is_no_host() {
    let host = Host::gather(&Tree::new(), &Asked::default());
    assert!(!host.readable);
    assert!(host.devices.is_empty() && host.interfaces.is_empty());
}
