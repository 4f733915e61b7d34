//! The table of the captures' manifest: what each file holds, as an independent program counted it.

use std::collections::BTreeMap;
use std::fs;

use super::pcap;

/// One line of the table.
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) packets: usize,
    pub(crate) opcodes: BTreeMap<String, usize>,
    pub(crate) good: usize,
    pub(crate) bad: usize,
    pub(crate) other: usize,
}

/// Reads the table.
pub(crate) fn read() -> Vec<Line> {
    let text = fs::read_to_string(pcap::directory().join("MANIFEST.md")).expect("the manifest");
    text.lines().filter(|line| line.contains(".pcap |")).map(line).collect()
}

fn line(text: &str) -> Line {
    // A pipe within the command is written `\|`.
    let text = text.replace("\\|", "/");
    let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
    let [file, _shows, _mtu, packets, opcodes, _made_by, icrc] = cells[..] else {
        panic!("not seven cells: {text}");
    };
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let opcodes = opcodes.split(", ").map(|entry| {
        let (name, count) = entry.rsplit_once(' ').expect("name and count");
        (name.to_owned(), number(count))
    });
    let (mut good, mut bad, mut other) = (0, 0, 0);
    for part in icrc.split([',', ';']).map(str::trim) {
        let words: Vec<&str> = part.split(' ').collect();
        match words[..] {
            ["all", count, "ok"] | [count, "ok"] => good = number(count),
            [count, "deliberately", "bad"] => bad = number(count),
            [count, "other", "frames"] => other = number(count),
            _ => panic!("an unknown verdict: {part}"),
        }
    }
    Line {
        file: file.to_owned(),
        packets: number(packets),
        opcodes: opcodes.collect(),
        good,
        bad,
        other,
    }
}
