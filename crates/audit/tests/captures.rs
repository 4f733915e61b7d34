//! Captures of a real Linux peer: what was lost, refused or broken in them is told with the right
//! frames, and the clean ones have no finding. `MANIFEST.md` beside the captures says what each
//! shows.

mod support;

use support::{audit, capture, codes};

/// A rule, its count, its first frames.
type Expected = (&'static str, u64, &'static [u64]);

/// Captures in which something is wrong with the transport: rules with their counts, first frames.
const FINDINGS: &[(&str, &[Expected])] = &[
    ("duplicate-netem", &[("R028", 21, &[2, 6, 11, 17])]),
    ("loss-drop-last", &[("R021", 3, &[3, 4, 8, 9]), ("R025", 3, &[4, 9, 14])]),
    ("loss-drop-request", &[("R021", 8, &[5, 7, 8, 14]), ("R024", 8, &[9, 6, 19, 15])]),
    ("loss-netem-1pc", &[("R020", 3, &[198, 199, 200]), ("R024", 3, &[201, 198])]),
    ("loss-read-response", &[("R022", 5, &[8, 12, 21, 25, 34]), ("R025", 5, &[8, 12, 21, 25, 34])]),
    ("loss-retry-exhausted", &[("R021", 3, &[1, 2]), ("R025", 3, &[2, 3, 4]), ("R026", 1, &[1])]),
    ("nak-access-atomic", &[("R052", 1, &[4, 3])]),
    ("nak-access-read-perm", &[("R052", 1, &[4, 3])]),
    ("nak-access-write-qp", &[("R052", 1, &[4, 3])]),
    ("nak-access-write-rkey", &[("R052", 1, &[4, 3])]),
    ("nak-invalid-read-depth0", &[("R053", 1, &[4, 3])]),
    ("nak-send-too-long", &[("R056", 1, &[4, 3])]),
    ("nak-while-batched", &[("R052", 1, &[9, 8])]),
    ("poke-atomic-misaligned", &[("R053", 1, &[2, 1])]),
    ("poke-bad-icrc", &[("R010", 1, &[1])]),
    ("poke-last-empty", &[("R033", 1, &[2])]),
    ("poke-middle-first", &[("R039", 1, &[3]), ("R053", 1, &[2, 1])]),
    ("poke-psn-ahead", &[("R021", 1, &[1, 7, 8])]),
    ("poke-read-bounds", &[("R052", 1, &[6, 5])]),
    ("poke-resp-nak-op", &[("R054", 1, &[2, 1])]),
    ("poke-resp-silent", &[("R021", 101, &[1, 2]), ("R025", 101, &[2, 3]), ("R026", 1, &[1])]),
    (
        "poke-resp-silent-retry3",
        &[("R021", 3, &[1, 4]), ("R024", 6, &[5, 2]), ("R025", 3, &[4, 7, 10]), ("R026", 1, &[1])],
    ),
    ("poke-sequence-only", &[("R032", 1, &[2]), ("R053", 1, &[3, 2])]),
    ("poke-short-first", &[("R033", 1, &[1])]),
    ("poke-stray-responses", &[("R040", 1, &[3, 1])]),
    ("poke-uc-gap", &[("R020", 1, &[3])]),
    ("poke-uc-gap-only", &[("R020", 2, &[2, 3])]),
    ("poke-write-length-mismatch", &[("R033", 1, &[1]), ("R053", 1, &[2, 1])]),
    ("poke-write-length-over", &[("R033", 1, &[1]), ("R053", 1, &[2, 1])]),
    ("poke-wrong-service", &[("R038", 1, &[3])]),
    ("poke612-long-only", &[("R053", 1, &[2, 1])]),
    ("poke612-new-opcodes", &[("R023", 2, &[3, 4]), ("R025", 2, &[3, 4])]),
    ("poke612-short-first", &[("R033", 1, &[1]), ("R053", 1, &[2, 1])]),
    ("rc-send-inv", &[("R052", 1, &[12, 11])]),
    ("rnr-exhausted", &[("R050", 1, &[6]), ("R051", 1, &[6])]),
    ("rnr-recover", &[("R050", 5, &[6, 10, 17, 22, 27])]),
];

/// Rules that this test is about: the others have tests of their own on the same captures.
const TRANSPORT: [&str; 4] = ["R02", "R03", "R04", "R05"];

fn names() -> Vec<String> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    let entries = std::fs::read_dir(dir).expect("the captures");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    let names = names.map(|name| name.expect("a name in UTF-8"));
    let mut names: Vec<_> =
        names.filter_map(|name| name.strip_suffix(".pcap").map(str::to_owned)).collect();
    names.sort();
    names
}

#[test]
fn each_capture_has_its_findings_and_no_other() {
    let names = names();
    assert!(names.len() > 80, "{} captures", names.len());
    let mut wrong = Vec::new();
    for name in &names {
        let expected = FINDINGS.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, of)| of);
        let report = audit(&capture(&format!("{name}.pcap")));
        let is_mine =
            |code: &str| TRANSPORT.iter().any(|family| code.starts_with(family)) || code == "R010";
        let got: Vec<_> = codes(&report).into_iter().filter(|(code, _)| is_mine(code)).collect();
        let right: Vec<_> = expected.iter().map(|(code, count, _)| (*code, *count)).collect();
        if got != right {
            wrong.push(format!("{name}: {got:?}, expected {right:?}: {:#?}", report.findings));
        }
        for (code, _, frames) in expected {
            let sample = report.findings.iter().filter(|finding| finding.rule.code() == *code);
            let sample: Vec<_> =
                sample.flat_map(|finding| &finding.sample).map(|at| at.frame).collect();
            if !sample.starts_with(frames) {
                wrong.push(format!("{name} {code}: frames {sample:?}, expected {frames:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn conversations_of_a_capture_are_paired() {
    let report = audit(&capture("rc-all-mtu512.pcap"));
    let [talk] = &report.conversations[..] else { panic!("{:#?}", report.conversations) };
    assert_eq!((talk.service, talk.mtu), ("RC", Some(512)));
    assert_eq!((talk.a.qp, talk.b.qp), (Some(29), Some(29)));
    assert_eq!(talk.forward.packets + talk.backward.packets, 26);
    let kinds: Vec<_> = talk.forward.operations.iter().map(|op| (op.kind, op.count)).collect();
    assert_eq!(kinds, [("SEND", 3), ("WRITE", 2), ("READ", 1), ("ATOMIC", 2)]);
    assert!(talk.forward.operations.iter().all(|op| op.latency_us.is_some()), "{talk:#?}");
}
