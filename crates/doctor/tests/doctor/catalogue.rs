//! Each rule just broken and just not, by editing a host that is well: what is expected is all that
//! is found, so that a rule which fires beside another is noticed too.

mod addresses;
mod classes;
mod drivers;
mod link;
mod lossless;
mod machine;
mod traffic;

use std::collections::BTreeSet;

use doctor::{Asked, Rule};

use crate::host::{Edit, codes, edit, host, report};

/// Changes of a host, and the findings that they make.
pub(crate) struct Case {
    /// What is changed, in words.
    name: &'static str,
    /// The recorded host.
    host: &'static str,
    edits: &'static [Edit],
    expected: &'static [&'static str],
}

/// All cases.
fn cases() -> impl Iterator<Item = &'static Case> {
    let topics = [
        addresses::CASES,
        classes::CASES,
        drivers::CASES,
        link::CASES,
        lossless::CASES,
        machine::CASES,
        traffic::CASES,
    ];
    topics.into_iter().flatten()
}

#[test]
fn just_this_is_found() {
    let mut wrong = Vec::new();
    for case in cases() {
        let mut tree = host(case.host);
        edit(&mut tree, case.edits);
        let report = report(&tree, &Asked::default());
        let found = codes(&report);
        if found != case.expected {
            let (name, expected) = (case.name, case.expected);
            wrong
                .push(format!("{name}: expected {expected:?}, found {found:?}\n{}", report.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rules that need two readings; `two_readings.rs` has them.
const OF_TWO_READINGS: &[Rule] = &[Rule::Paused, Rule::Pausing, Rule::CnpNoEffect];

#[test]
fn every_rule_has_its_cases() {
    let broken: BTreeSet<&str> = cases().flat_map(|case| case.expected).copied().collect();
    let of_two = OF_TWO_READINGS.iter().map(|rule| rule.code());
    let covered: BTreeSet<&str> = broken.into_iter().chain(of_two).collect();
    let all: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.code()).collect();
    assert_eq!(covered, all);
    let well = cases().filter(|case| case.expected.is_empty()).count();
    assert!(well >= 40, "only {well} near misses");
}
