//! Rules R090 to R095: what the two ends of a link announce, and what each does with what it hears.
//!
//! With IEEE DCBX an end that is willing takes over what the other announces (PFC, applications) or
//! recommends (ETS) and then announces that itself. So a difference is a fault only if both ends
//! have spoken again since they heard each other (`settled`), or if neither is willing, so that
//! nothing will change. With CEE an end goes on announcing what it wishes, whatever it has taken
//! over: there a difference counts only where nobody yields, or where an end says itself that the
//! two do not fit.

use super::Agent;
use crate::fabric::lldp::{App, Ets, Selector, Tables};
use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::record::Point;
use crate::rule::Rule;

/// Protocols of RoCE.
const ROCE_V1: (Selector, u16) = (Selector::EtherType, 0x8915);
const ROCE_V2: (Selector, u16) = (Selector::Port, 4791);

/// Two ends whose announcements are compared.
struct Pair<'a> {
    point: Point,
    a: &'a Agent,
    b: &'a Agent,
}

impl Pair<'_> {
    fn add(
        &self,
        findings: &mut Findings,
        rule: Rule,
        numbers: &[Number],
        detail: impl FnOnce(String, String) -> String,
    ) {
        let instance = Instance {
            rule,
            subject: Subject::Link(self.point),
            side: Side::Network,
            at: &[self.a.last.max(self.b.last), self.a.last.min(self.b.last)],
            numbers,
        };
        findings.add(instance, || detail(self.a.said.name(), self.b.said.name()));
    }
}

/// Who yields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Willing {
    Neither,
    A,
    B,
    Both,
}

impl Willing {
    const fn of(a: bool, b: bool) -> Self {
        match (a, b) {
            (false, false) => Self::Neither,
            (true, false) => Self::A,
            (false, true) => Self::B,
            (true, true) => Self::Both,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Neither => "neither is willing to take over the other's",
            Self::A => "the first is willing, but has not taken it over",
            Self::B => "the second is willing, but has not taken it over",
            Self::Both => "both are willing",
        }
    }
}

/// Compares two ends. `settled`: each has spoken again since it heard what the other announces now.
pub(super) fn ends(point: Point, a: &Agent, b: &Agent, settled: bool, findings: &mut Findings) {
    let pair = Pair { point, a, b };
    match (&a.said.ieee, &b.said.ieee, &a.said.cee, &b.said.cee) {
        (Some(of_a), Some(of_b), _, _) => tables(&pair, of_a, of_b, settled, true, findings),
        (_, _, Some(of_a), Some(of_b)) => tables(&pair, of_a, of_b, settled, false, findings),
        (Some(_), None, None, Some(_)) if settled => versions(&pair, true, findings),
        (None, Some(_), Some(_), None) if settled => versions(&pair, false, findings),
        _ => {}
    }
}

/// R095.
fn versions(pair: &Pair<'_>, a_is_ieee: bool, findings: &mut Findings) {
    pair.add(findings, Rule::DcbxVersions, &[], |a, b| {
        let (ieee, cee) = if a_is_ieee { (a, b) } else { (b, a) };
        format!("{ieee} speaks IEEE DCBX, {cee} CEE: neither hears the other")
    });
}

fn tables(
    pair: &Pair<'_>,
    a: &Tables,
    b: &Tables,
    settled: bool,
    ieee: bool,
    findings: &mut Findings,
) {
    let pfc = pfc(pair, a, b, settled, ieee, findings);
    let ets = ets(pair, a, b, settled, ieee, findings);
    let willing = |tables: &Tables| {
        tables.pfc.is_some_and(|pfc| pfc.willing) || tables.ets.is_some_and(|ets| ets.willing)
    };
    let apps = apps(pair, a, b, settled, ieee, Willing::of(willing(a), willing(b)), findings);
    let stuck: Vec<_> = [pfc, ets, apps].into_iter().flatten().collect();
    if !stuck.is_empty() {
        pair.add(findings, Rule::DcbxNoneWilling, &[], |a, b| {
            format!("neither {a} nor {b} is willing, and they differ in {}", stuck.join(", "))
        });
    }
    if !settled {
        both_willing(pair, a, b, findings);
    }
}

/// Whether a difference is a fault. Each pair of announcements comes here twice: at once, and when
/// both ends have heard each other.
const fn counts(willing: Willing, settled: bool, ieee: bool) -> bool {
    match willing {
        Willing::Neither => !settled,
        Willing::Both => settled,
        Willing::A | Willing::B => settled && ieee,
    }
}

/// R090; gives the table's name if nobody is willing.
fn pfc(
    pair: &Pair<'_>,
    a: &Tables,
    b: &Tables,
    settled: bool,
    ieee: bool,
    findings: &mut Findings,
) -> Option<&'static str> {
    let (a, b) = (a.pfc?, b.pfc?);
    let willing = Willing::of(a.willing, b.willing);
    let says_so = settled && (a.error || b.error);
    let differ = a.enabled != b.enabled;
    let is_fault = differ && counts(willing, settled, ieee);
    if !is_fault && !says_so {
        return None;
    }
    let numbers = [
        Number::last("pfc_first", f64::from(a.enabled)),
        Number::last("pfc_second", f64::from(b.enabled)),
    ];
    pair.add(findings, Rule::DcbxPfc, &numbers, |name_a, name_b| {
        format!(
            "{name_a} announces PFC for {}, {name_b} for {}: {}",
            priorities(a.enabled),
            priorities(b.enabled),
            willing.words()
        )
    });
    (differ && willing == Willing::Neither).then_some("PFC")
}

fn priorities(bits: u8) -> String {
    let all: Vec<_> = (0..8).filter(|p| bits >> p & 1 == 1).map(|p: u8| p.to_string()).collect();
    match all.len() {
        0 => String::from("no priority"),
        1 => format!("priority {}", all.concat()),
        _ => format!("priorities {}", all.join(", ")),
    }
}

/// R091; gives the table's name if nobody is willing.
fn ets(
    pair: &Pair<'_>,
    a: &Tables,
    b: &Tables,
    settled: bool,
    ieee: bool,
    findings: &mut Findings,
) -> Option<&'static str> {
    let (of_a, of_b) = (a.ets?, b.ets?);
    let willing = Willing::of(of_a.willing, of_b.willing);
    // A willing end follows the other's recommendation; without one it keeps its own.
    let differ = match willing {
        Willing::Neither => differs(&of_a, &of_b),
        Willing::A if ieee => b.recommended.is_some_and(|wish| differs(&of_a, &wish)),
        Willing::B if ieee => a.recommended.is_some_and(|wish| differs(&of_b, &wish)),
        _ => false,
    };
    if !differ || !counts(willing, settled, ieee) {
        return None;
    }
    pair.add(findings, Rule::DcbxEts, &[], |name_a, name_b| {
        let (first, second) = match willing {
            Willing::A => (of_a, b.recommended.unwrap_or(of_b)),
            Willing::B => (a.recommended.unwrap_or(of_a), of_b),
            _ => (of_a, of_b),
        };
        format!("{name_a}: {}; {name_b}: {}; {}", shares(&first), shares(&second), willing.words())
    });
    (willing == Willing::Neither).then_some("ETS")
}

/// Whether two tables lead to different shares.
fn differs(a: &Ets, b: &Ets) -> bool {
    let share = |ets: &Ets| -> [Option<u8>; 8] {
        core::array::from_fn(|class| (ets.shared >> class & 1 == 1).then_some(ets.shares[class]))
    };
    a.classes != b.classes || share(a) != share(b)
}

fn shares(ets: &Ets) -> String {
    let groups: Vec<_> = (0..16_u8)
        .filter_map(|class| {
            let members: Vec<_> = (0..8)
                .filter(|priority| ets.classes[*priority] == class)
                .map(|priority| priority.to_string())
                .collect();
            if members.is_empty() {
                return None;
            }
            let share = match ets.shares.get(usize::from(class)) {
                Some(share) if ets.shared >> class & 1 == 1 => format!("{share} %"),
                _ => String::from("strict"),
            };
            Some(format!("priorities {} {share}", members.join("+")))
        })
        .collect();
    groups.join(", ")
}

/// R092; gives the table's name if nobody is willing.
fn apps(
    pair: &Pair<'_>,
    a: &Tables,
    b: &Tables,
    settled: bool,
    ieee: bool,
    willing: Willing,
    findings: &mut Findings,
) -> Option<&'static str> {
    let (of_a, of_b) = (a.apps.as_ref()?, b.apps.as_ref()?);
    if !counts(willing, settled, ieee) {
        return None;
    }
    let mut keys: Vec<_> = of_a.iter().map(|app| (app.selector, app.protocol)).collect();
    keys.dedup();
    let of = |apps: &[App], key| -> Vec<u8> {
        let same = |app: &&App| (app.selector, app.protocol) == key;
        apps.iter().filter(same).map(|app| app.priority).collect()
    };
    let differing = keys.into_iter().find_map(|key| {
        let is_roce = key == ROCE_V1 || key == ROCE_V2 || key.0 == Selector::Dscp;
        let (first, second) = (of(of_a, key), of(of_b, key));
        (is_roce && !second.is_empty() && first != second).then_some((key, first, second))
    });
    let (key, first, second) = differing?;
    pair.add(findings, Rule::DcbxApp, &[], |name_a, name_b| {
        let what = match key.0 {
            Selector::EtherType => "RoCEv1 (EtherType 0x8915)".to_owned(),
            Selector::Port => "RoCEv2 (port 4791)".to_owned(),
            Selector::Dscp => format!("DSCP {}", key.1),
        };
        let list =
            |priorities: &[u8]| priorities.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "{what} has priority {} for {name_a}, {} for {name_b}: {}",
            list(&first),
            list(&second),
            willing.words()
        )
    });
    (willing == Willing::Neither).then_some("application priorities")
}

/// R093.
fn both_willing(pair: &Pair<'_>, a: &Tables, b: &Tables, findings: &mut Findings) {
    let pfc = a.pfc.is_some_and(|pfc| pfc.willing) && b.pfc.is_some_and(|pfc| pfc.willing);
    let ets = a.ets.is_some_and(|ets| ets.willing) && b.ets.is_some_and(|ets| ets.willing);
    let what = match (pfc, ets) {
        (true, true) => "PFC and ETS",
        (true, false) => "PFC",
        (false, true) => "ETS",
        (false, false) => return,
    };
    pair.add(findings, Rule::DcbxBothWilling, &[], |a, b| {
        format!("{a} and {b} are both willing to take over the other's {what}: nobody leads")
    });
}
