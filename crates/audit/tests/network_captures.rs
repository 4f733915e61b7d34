//! Captures of a real Linux peer have no finding about the network: whatever they show of loss or
//! refusals, their ECN, DSCP, TTL and ports are as that peer makes them.

mod support;

use support::{audit, capture};

/// Rules about the network.
const FAMILIES: [&str; 3] = ["R019", "R06", "R07"];

#[test]
fn no_capture_has_a_finding_about_the_network() {
    // `tos-ect1-ce` has a sender that marks CE by itself and a receiver that never sends CNPs, but
    // three packets of data do not make a flow; `cm-ucmatose-tos` and `ud-tos` have DSCPs which are
    // the same both ways; `flowlabel-sport` has a new source port with each new queue pair.
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    let mut files = 0;
    for entry in std::fs::read_dir(dir).expect("the captures") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        if !name.ends_with(".pcap") {
            continue;
        }
        files += 1;
        let report = audit(&capture(&name));
        let mut found = report.findings.iter();
        let told = found.find(|f| FAMILIES.iter().any(|family| f.rule.code().starts_with(family)));
        assert_eq!(told, None, "{name}");
    }
    assert!(files > 70, "{files} captures");
}
