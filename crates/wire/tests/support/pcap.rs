//! A small reader of classic capture files, for tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the captures lie.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// The names of all captures, in order.
pub(crate) fn names() -> Vec<String> {
    let entries = fs::read_dir(directory()).expect("the captures");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("a name")).collect();
    names.retain(|name| name.ends_with(".pcap"));
    names.sort();
    assert!(names.len() > 80, "only {} captures", names.len());
    names
}

/// The frames of one capture, whole.
pub(crate) fn frames(name: &str) -> Vec<Vec<u8>> {
    let data = fs::read(directory().join(name)).expect(name);
    let (header, mut rest) = data.split_at(24);
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    assert_eq!(word(header, 0), 0xA1B2_C3D4, "{name}: little endian, microseconds");
    assert_eq!(word(header, 20), 1, "{name}: Ethernet");
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (captured, original) = (word(rest, 8), word(rest, 12));
        assert_eq!(captured, original, "{name}: cut short");
        let (frame, behind) = rest[16..].split_at(captured as usize);
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}
