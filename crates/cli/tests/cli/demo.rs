//! `crocevia demo`: the short form, whole.

use serde_json::Value;

use super::{crocevia, fail, succeed};

#[test]
fn everything_is_measured_and_every_byte_right() {
    let text = succeed(&mut crocevia(&["demo", "--quick", "--json"]));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let lines = report["lines"].as_array().expect("lines");
    assert_eq!(lines.len(), 5, "{report}");
    for line in lines {
        let clean = &line["clean"];
        assert!(clean["latency"]["median_us"].as_f64() > Some(0.0), "{line}");
        assert!(clean["bandwidth"]["checked"].as_u64() > Some(0), "{line}");
        let is_tcp = line["operation"] == "TCP";
        assert_eq!(line["faulty"].is_null(), is_tcp, "{line}");
    }
    assert!(report["checked_bytes"].as_u64() > Some(64 << 20), "{report}");
    assert_eq!(report["wrong_bytes"], 0);
}

#[test]
fn bad_faults_are_told_before_anything_starts() {
    fail(&mut crocevia(&["demo", "--faults", "loss=2x"]), 2, &["--faults", "loss"]);
}
