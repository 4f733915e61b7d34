//! One fault for each rule, seeded into a copy of traffic that has none: the bytes of frames are
//! dropped, copied, changed or added, written as a capture, read and judged. Each must be found,
//! and nothing else but what belongs to it.

#[path = "support/connection.rs"]
mod connection;
#[path = "seeded/network.rs"]
mod network;
#[path = "seeded/packets.rs"]
mod packets;
#[path = "seeded/traffic.rs"]
mod traffic;
#[path = "seeded/transport.rs"]
mod transport;

use std::collections::BTreeSet;

use audit::Rule;
use traffic::Traffic;

/// A fault: the rule that it breaks, rules that tell of the same thing from another side, and how
/// it is made.
pub(crate) struct Seed {
    rule: &'static str,
    with: &'static [&'static str],
    make: fn(&mut Traffic),
}

pub(crate) const fn seed(
    rule: &'static str,
    with: &'static [&'static str],
    make: fn(&mut Traffic),
) -> Seed {
    Seed { rule, with, make }
}

fn seeds() -> impl Iterator<Item = &'static Seed> {
    packets::SEEDS.iter().chain(transport::SEEDS).chain(network::SEEDS)
}

fn codes(traffic: &Traffic) -> (BTreeSet<&'static str>, String) {
    let report = traffic.audited();
    let codes = report.findings.iter().map(|finding| finding.rule.code()).collect();
    let told = report.findings.iter();
    let told = told.map(|f| format!("  {} x{}: {}\n", f.rule.code(), f.count, f.detail));
    (codes, told.collect())
}

#[test]
fn the_traffic_has_no_fault() {
    let clean = Traffic::clean();
    let (_, told) = codes(&clean);
    assert_eq!(told, "");
    let totals = clean.audited().totals;
    assert_eq!(totals.icrc_right, clean.records.len() as u64);
}

#[test]
fn each_fault_is_found_and_nothing_else() {
    let mut wrong = Vec::new();
    for Seed { rule, with, make } in seeds() {
        let mut traffic = Traffic::clean();
        make(&mut traffic);
        let (found, told) = codes(&traffic);
        let all: BTreeSet<_> = with.iter().chain([rule]).copied().collect();
        if !found.contains(rule) || !found.is_subset(&all) {
            wrong.push(format!("{rule} with {with:?}, found {found:?}:\n{told}"));
        }
    }
    assert!(wrong.is_empty(), "{} seeds:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_rule_is_forgotten() {
    let all: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.code()).collect();
    let seeded: BTreeSet<_> = seeds().map(|seed| seed.rule).collect();
    assert_eq!(seeded, all);
}
