//! The captures of the wire crate, and how any capture's bytes become events.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::path::PathBuf;

use audit::Event;
use audit::capture::{Block, Reader};
use audit::peel::Peeler;
use audit::report::Capture;

/// A line of the captures' manifest, as far as it is needed here.
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) good: usize,
    pub(crate) bad: usize,
    pub(crate) other: usize,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures")
}

/// The bytes of a capture.
pub(crate) fn read(name: &str) -> Vec<u8> {
    fs::read(directory().join(name)).expect("a capture")
}

/// The manifest's table.
pub(crate) fn manifest() -> Vec<Line> {
    let text = fs::read_to_string(directory().join("MANIFEST.md")).expect("the manifest");
    text.lines().filter(|line| line.contains(".pcap |")).map(line).collect()
}

fn line(text: &str) -> Line {
    let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
    let mut line = Line { file: cells[0].to_owned(), good: 0, bad: 0, other: 0 };
    for part in cells.last().expect("the last cell").split([',', ';']).map(str::trim) {
        let words: Vec<&str> = part.split(' ').collect();
        match words[..] {
            ["all", count, "ok"] | [count, "ok"] => line.good = count.parse().expect("a number"),
            [count, "deliberately", "bad"] => line.bad = count.parse().expect("a number"),
            [count, "other", "frames"] => line.other = count.parse().expect("a number"),
            _ => panic!("an unknown verdict: {part}"),
        }
    }
    line
}

/// The events of a capture, and what it was.
pub(crate) fn events(bytes: &[u8]) -> (Vec<Event>, Capture) {
    let mut reader = Reader::open(bytes, 0).expect("a capture");
    let (mut block, mut peeler, mut events) = (Block::default(), Peeler::default(), Vec::new());
    let damage = loop {
        match reader.fill(&mut block) {
            Ok(true) => block.records().for_each(|record| peeler.peel(&record, &mut events)),
            Ok(false) => break None,
            Err(damage) => break Some(damage.to_string()),
        }
    };
    (events, Capture { damage, ..reader.summary() })
}
