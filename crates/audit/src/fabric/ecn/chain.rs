//! The links of the ECN chain, judged by what was counted until the end of the captures.

use std::collections::BTreeMap;

use wire::{Encapsulation, Gid};

use super::rate::Steady;
use super::{Class, Pauser, State};
use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::record::{Point, Time};
use crate::rule::Rule;
use crate::talk::{Gone, Half, Talks};

/// Data packets that make a flow one that ECN is about.
const FLOW: u32 = 8;
/// Marks that a receiver must answer.
const MARKS: u32 = 8;
/// The same where it answers other flows' marks: adapters limit CNPs for all of them together.
const MARKS_SHARED: u32 = 64;
/// Time that a receiver has for it, ns.
const ANSWER_TIME: u64 = 1_000_000;
/// Data packets that should have met a queue.
const QUEUED: u32 = 64;
/// Pauses that show queues by themselves, and together with grown delay.
const PAUSES: u64 = 32;
const PAUSES_WITH_DELAY: u64 = 4;
/// CNPs without a mark.
const UNFOUNDED: u64 = 8;

/// What goes from one end to another.
#[derive(Default)]
struct Way {
    capable: u64,
    ce: u64,
    cnps: u64,
    last: Time,
    class: Option<Class>,
    classes: bool,
}

struct Ways {
    all: BTreeMap<(Gid, Gid), Way>,
    /// Marks by where they could be seen.
    marks: BTreeMap<(Gid, Gid, Point), u64>,
}

pub(super) fn judge(expected: bool, pausers: &[Pauser], talks: &Talks, findings: &mut Findings) {
    let ways = Ways::of(talks.iter().map(|(_, half)| half));
    for (_, half) in talks.iter() {
        let peer = half.peer.map(|peer| talks.get(peer));
        both(half, peer, (expected, pausers, &ways), findings);
    }
}

/// Two halves alone: what others between the same ends show is not known.
pub(super) fn forgotten(expected: bool, pausers: &[Pauser], gone: &Gone, findings: &mut Findings) {
    let ways = Ways::of(gone.pairs().map(|(half, _)| half));
    for (half, peer) in gone.pairs() {
        both(half, peer, (expected, pausers, &ways), findings);
    }
}

fn both(
    half: &Half,
    peer: Option<&Half>,
    (expected, pausers, ways): (bool, &[Pauser], &Ways),
    findings: &mut Findings,
) {
    if half.encapsulation != Encapsulation::RoceV2 {
        return;
    }
    not_ect(half, expected, ways, findings);
    no_marks(half, peer, expected, pausers, ways, findings);
    no_cnp(half, peer, ways, findings);
    cnp_class(half, peer, ways, findings);
    cnp_unfounded(half, peer, ways, findings);
}

impl Ways {
    fn of<'a>(halves: impl Iterator<Item = &'a Half>) -> Self {
        let mut ways = Self { all: BTreeMap::new(), marks: BTreeMap::new() };
        for half in halves {
            let state = &half.ecn;
            let (source, destination) = (half.flow.source, half.flow.destination);
            let way = ways.all.entry((source, destination)).or_default();
            way.capable += u64::from(state.data - state.not_ect);
            way.ce += u64::from(state.ce);
            way.cnps += State::cnps(half);
            way.last = way.last.max(half.last.time);
            if state.data > 0 {
                way.classes |= way.class.is_some_and(|class| class != state.class);
                way.class = Some(state.class);
            }
            if state.ce > 0 {
                let marks = ways.marks.entry((source, destination, half.home)).or_default();
                *marks += u64::from(state.ce);
            }
        }
        ways
    }

    fn get(&self, from: Gid, to: Gid) -> Option<&Way> {
        self.all.get(&(from, to))
    }
}

/// R060.
fn not_ect(half: &Half, expected: bool, ways: &Ways, findings: &mut Findings) {
    let (state, flow) = (&half.ecn, half.flow);
    let (data, bare) = (state.data, state.not_ect);
    if bare < FLOW || u64::from(bare) * 100 < u64::from(data) {
        return;
    }
    let both = [ways.get(flow.source, flow.destination), ways.get(flow.destination, flow.source)];
    let any = |what: fn(&Way) -> u64| both.iter().flatten().any(|way| what(way) > 0);
    let why = if any(|way| way.cnps) {
        "CNPs are sent between these ends"
    } else if any(|way| way.ce) {
        "packets between these ends are marked CE"
    } else if any(|way| way.capable) {
        "other packets between these ends have ECT"
    } else if expected {
        "ECN is expected"
    } else {
        "ECN is used elsewhere in the capture"
    };
    let instance = Instance {
        rule: Rule::NotEct,
        subject: Subject::Flow(flow),
        side: Side::Host(flow.source),
        at: &[state.bare],
        numbers: &[
            Number::sum("not_ect_packets", bare.into()),
            Number::sum("data_packets", data.into()),
        ],
    };
    findings.add(instance, || format!("{bare} of {data} data packets are not ECT, but {why}"));
}

/// R061.
fn no_marks(
    half: &Half,
    peer: Option<&Half>,
    expected: bool,
    pausers: &[Pauser],
    ways: &Ways,
    findings: &mut Findings,
) {
    let (state, flow) = (&half.ecn, half.flow);
    let capable = state.data - state.not_ect;
    let notified = match peer {
        Some(peer) => State::cnps(peer),
        None => ways.get(flow.destination, flow.source).map_or(0, |way| way.cnps),
    };
    if capable < QUEUED || state.ce > 0 || state.ce_copies > 0 || notified > 0 {
        return;
    }
    let pauses = pauses(half, pausers);
    let delay = state.delay.as_ref().and_then(|delay| Some((delay.standing?, delay.least)));
    let paused = pauses >= if delay.is_some() { PAUSES_WITH_DELAY } else { PAUSES };
    let expected_delay = expected && delay.is_some();
    if !paused && !expected_delay {
        return;
    }
    let at = delay.map_or(half.first, |((_, at), _)| at);
    let us = |ns: u32| f64::from(ns) / 1e3;
    let mut numbers = vec![Number::max("pauses", pauses as f64)];
    if let Some(((grown, _), least)) = delay {
        numbers.push(Number::min("least_delay_us", us(least)));
        numbers.push(Number::max("standing_delay_us", us(grown)));
    }
    let instance = Instance {
        rule: Rule::NoMarks,
        subject: Subject::Flow(flow),
        side: Side::Network,
        at: &[at],
        numbers: &numbers,
    };
    findings.add(instance, || {
        let paused = match pauses {
            0 => String::new(),
            _ => format!("; a switch pauses this link {pauses} times"),
        };
        let grown = delay.map_or_else(String::new, |((grown, _), least)| {
            format!("; answers came after {:.0} µs and come after {:.0} µs", us(least), us(grown))
        });
        format!("{capable} packets with ECT, none marked{paused}{grown}")
    });
}

/// Pauses that hold a half's packets at its point, and do not come from the ends themselves: a slow
/// receiver's pauses say nothing of switches.
fn pauses(half: &Half, pausers: &[Pauser]) -> u64 {
    let ends = half.path.macs;
    let holds = |pauser: &&Pauser| {
        let own = ends.zip(pauser.mac).is_some_and(|((a, b), mac)| mac == a || mac == b);
        let overlap = pauser.first.time <= half.last.time && half.first.time <= pauser.last.time;
        pauser.point == half.home && !own && overlap
    };
    let count = |pauser: &Pauser| match half.ecn.class.priority {
        Some(priority) => pauser.by_priority[usize::from(priority & 7)],
        None => pauser.by_priority.iter().copied().max().unwrap_or(0),
    };
    pausers.iter().filter(holds).map(count).sum()
}

/// R062.
fn no_cnp(half: &Half, peer: Option<&Half>, ways: &Ways, findings: &mut Findings) {
    let (state, flow) = (&half.ecn, half.flow);
    let Some(back) = ways.get(flow.destination, flow.source) else { return };
    // Only where what the receiver sends is seen, and long enough.
    if state.ce == 0 || back.last.since(state.marked.time) < ANSWER_TIME {
        return;
    }
    let answered = match peer.and_then(|peer| peer.ecn.cnps.as_ref()) {
        Some(cnps) => cnps.last.time >= state.marked.time,
        None => peer.is_none() && back.cnps > 0,
    };
    let needed = if back.cnps > 0 { MARKS_SHARED } else { MARKS };
    if answered || state.ce < needed {
        return;
    }
    let ce = state.ce;
    let instance = Instance {
        rule: Rule::NoCnp,
        subject: Subject::Flow(flow),
        side: Side::Host(flow.destination),
        at: &[state.marked],
        numbers: &[
            Number::sum("ce_packets", ce.into()),
            Number::sum("data_packets", state.data.into()),
        ],
    };
    findings.add(instance, || {
        let ip = flow.destination.to_ip();
        format!("{ce} of {} data packets come marked CE, {ip} sends no CNP back", state.data)
    });
}

/// R063.
pub(super) fn no_slow_down(half: &Half, steady: &Steady, findings: &mut Findings) {
    let flow = half.flow;
    let instance = Instance {
        rule: Rule::NoSlowDown,
        subject: Subject::Flow(flow),
        side: Side::Host(flow.source),
        at: &[steady.at, steady.cnps.0, steady.cnps.1],
        numbers: &[
            Number::sum("cnps", steady.count.into()),
            Number::last("rate_before_gbps", steady.before / 1e9),
            Number::last("rate_gbps", steady.after / 1e9),
        ],
    };
    findings.add(instance, || {
        let (before, after) = (steady.before / 1e9, steady.after / 1e9);
        let (ip, count) = (flow.source.to_ip(), steady.count);
        format!("{ip} sends {after:.2} Gbit/s after {count} CNPs, {before:.2} Gbit/s before")
    });
}

/// R064: `half` carries the CNPs, `peer` the data that they are about.
fn cnp_class(half: &Half, peer: Option<&Half>, ways: &Ways, findings: &mut Findings) {
    let Some(cnps) = &half.ecn.cnps else { return };
    let (sender, receiver) = (half.flow.destination, half.flow.source);
    let class = match peer.filter(|peer| peer.ecn.data > 0) {
        Some(peer) => Some(peer.ecn.class),
        None => ways.get(sender, receiver).filter(|way| !way.classes).and_then(|way| way.class),
    };
    if !class.is_some_and(|class| class.is_same(cnps.class)) {
        return;
    }
    let dscp = cnps.class.dscp;
    let instance = Instance {
        rule: Rule::CnpClass,
        subject: Subject::Flow(half.flow),
        side: Side::Host(receiver),
        at: &[cnps.first, cnps.last],
        numbers: &[Number::sum("cnps", cnps.count as f64), Number::last("dscp", dscp.into())],
    };
    findings.add(instance, || format!("CNPs have the data's DSCP {dscp}, {} of them", cnps.count));
}

/// R065: `half` carries the CNPs, `peer` the data that they are about.
fn cnp_unfounded(half: &Half, peer: Option<&Half>, ways: &Ways, findings: &mut Findings) {
    let (Some(cnps), Some(data)) = (&half.ecn.cnps, peer) else { return };
    let state = &data.ecn;
    let marked = state.ce > 0 || state.ce_copies > 0;
    if marked || cnps.settled < UNFOUNDED || state.data < FLOW || data.home != half.home {
        return;
    }
    // Marks may be set behind the point of capture, unless this is the receiver itself or marks of
    // other flows between the two are seen here.
    let at_receiver = state.received && cnps.sent;
    let (source, destination) = (data.flow.source, data.flow.destination);
    let marks = ways.marks.get(&(source, destination, data.home)).copied().unwrap_or(0);
    if !at_receiver && marks < u64::from(MARKS) {
        return;
    }
    let count = cnps.settled;
    let instance = Instance {
        rule: Rule::CnpUnfounded,
        subject: Subject::Flow(half.flow),
        side: Side::Host(destination),
        at: &[cnps.first, cnps.last],
        numbers: &[
            Number::sum("cnps", count as f64),
            Number::sum("data_packets", state.data.into()),
        ],
    };
    findings.add(instance, || {
        format!("{count} CNPs, but none of the flow's {} data packets is marked", state.data)
    });
}
