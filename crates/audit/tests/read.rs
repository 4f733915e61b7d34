//! Captures of a real peer (those of the wire crate) read and peeled: every packet is found and its
//! ICRC is what their manifest says.

#[path = "support/files.rs"]
mod files;

use audit::event::Icrc;
use audit::{Event, What};

/// Packets with a right, with a wrong ICRC, and all else.
fn count(events: &[Event]) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for event in events {
        let icrc = match &event.what {
            What::Packet(packet) => packet.icrc,
            What::Refused { icrc, .. } => *icrc,
            _ => {
                counts.2 += 1;
                continue;
            }
        };
        match icrc {
            Icrc::Right => counts.0 += 1,
            Icrc::Wrong(_) => counts.1 += 1,
            Icrc::Cut => panic!("nothing is cut: {event:?}"),
        }
    }
    counts
}

#[test]
fn icrcs_are_what_the_manifest_says() {
    let manifest = files::manifest();
    assert!(manifest.len() > 70, "{} lines", manifest.len());
    for line in manifest {
        let (events, report) = files::events(&files::read(&line.file));
        assert_eq!(report.damage, None, "{}", line.file);
        assert_eq!(report.records as usize, events.len(), "{}", line.file);
        let (right, wrong, other) = count(&events);
        assert_eq!((right, wrong), (line.good, line.bad), "{}", line.file);
        assert!(other >= line.other, "{}: {other} other frames", line.file);
    }
}

#[test]
fn frames_are_counted_from_one() {
    let (events, _) = files::events(&files::read("rc-atomic.pcap"));
    let frames: Vec<u64> = events.iter().map(|event| event.at.frame).collect();
    assert_eq!(frames, (1..=events.len() as u64).collect::<Vec<_>>());
}
