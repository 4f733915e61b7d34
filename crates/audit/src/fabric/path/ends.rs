//! What only a look at all queue pairs tells: directions with different DSCPs, mixed RoCE
//! versions, one source port for many queue pairs.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Encapsulation, Gid, Mac, Service};

use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::record::At;
use crate::rule::Rule;
use crate::talk::{Half, Talks};

/// Packets of a kind that a half must have for its DSCP to count.
const ENOUGH: u32 = 4;
/// Packets that make a queue pair one that is used.
const USED: u64 = 8;
/// Queue pairs on each source port from which on they lack entropy.
const CROWD: usize = 8;
/// DSCPs from here on (CS5, EF, CS6, CS7) are given to acknowledgements on purpose.
const PREFERRED: u8 = 40;

/// The end of the captures.
pub(super) fn judge(talks: &Talks, findings: &mut Findings) {
    for (id, half) in talks.iter() {
        if let Some(peer) = half.peer
            && id < peer
        {
            asymmetric(half, talks.get(peer), findings);
        }
    }
    versions(talks, findings);
    entropy(talks, findings);
}

fn pair(half: &Half) -> (Gid, Gid) {
    let (a, b) = (half.flow.source, half.flow.destination);
    (a.min(b), a.max(b))
}

/// The DSCP that a half stands for, and whether it is that of data.
fn dscp(half: &Half) -> Option<(u8, bool)> {
    let state = &half.path;
    let tracks = [&state.requests, &state.responses];
    if tracks.iter().any(|track| track.mixed) || state.answers.mixed {
        return None;
    }
    let mut data = tracks.iter().filter(|track| track.packets >= ENOUGH);
    if let Some(track) = data.next() {
        let one = data.all(|other| other.values.dscp == track.values.dscp);
        return one.then_some((track.values.dscp, true));
    }
    (state.answers.packets >= ENOUGH).then_some((state.answers.dscp, false))
}

fn asymmetric(a: &Half, b: &Half, findings: &mut Findings) {
    let (Some((one, one_data)), Some((other, other_data))) = (dscp(a), dscp(b)) else { return };
    let preferred = |this: u8, data: bool, that: u8| !data && this >= PREFERRED && this > that;
    if one == other || preferred(one, one_data, other) || preferred(other, other_data, one) {
        return;
    }
    let side = match (one, other) {
        (0, _) => Side::Host(a.flow.source),
        (_, 0) => Side::Host(b.flow.source),
        _ => Side::Unknown,
    };
    let (low, high) = pair(a);
    let instance = Instance {
        rule: Rule::DscpAsymmetric,
        subject: Subject::Hosts(low, high),
        side,
        at: &[a.first, b.first],
        numbers: &[Number::last("dscp", one.into()), Number::last("dscp_back", other.into())],
    };
    findings.add(instance, || {
        let what = |data| if data { "" } else { " (acknowledgements)" };
        let (there, back) = (what(one_data), what(other_data));
        format!("{}: DSCP {one}{there}, {}: DSCP {other}{back}", a.flow, b.flow)
    });
}

/// First frames of a pair of ends by RoCE version.
#[derive(Default)]
struct Versions {
    v1: Option<(At, Gid, Gid)>,
    v2: Option<(At, Gid, Gid)>,
}

/// Two ends: by address, or by MAC address, since RoCEv1 may use other GIDs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Ends {
    Gids(Gid, Gid),
    Macs(Mac, Mac),
}

fn versions(talks: &Talks, findings: &mut Findings) {
    let mut all: BTreeMap<Ends, Versions> = BTreeMap::new();
    for (_, half) in talks.iter() {
        let (low, high) = pair(half);
        let macs = half.path.macs.map(|(a, b)| Ends::Macs(a.min(b), a.max(b)));
        for ends in [Some(Ends::Gids(low, high)), macs].into_iter().flatten() {
            let versions = all.entry(ends).or_default();
            let place = match half.encapsulation {
                Encapsulation::RoceV1 => &mut versions.v1,
                Encapsulation::RoceV2 => &mut versions.v2,
                Encapsulation::Infiniband => continue,
            };
            place.get_or_insert((half.first, low, high));
        }
    }
    let mut told = BTreeSet::new();
    for versions in all.values() {
        let (Some((v1, _, _)), Some((v2, low, high))) = (versions.v1, versions.v2) else {
            continue;
        };
        if !told.insert((v1, v2)) {
            continue;
        }
        let instance = Instance {
            rule: Rule::VersionsMixed,
            subject: Subject::Hosts(low, high),
            side: Side::Unknown,
            at: &[v1, v2],
            numbers: &[],
        };
        findings.add(instance, || format!("RoCEv1 in frame {v1}, RoCEv2 in frame {v2}"));
    }
}

/// Queue pairs from one end to another and their source ports.
struct Ports {
    queue_pairs: usize,
    ports: BTreeSet<u16>,
    first: At,
    last: At,
}

fn entropy(talks: &Talks, findings: &mut Findings) {
    let mut all: BTreeMap<(Gid, Gid), Ports> = BTreeMap::new();
    for (_, half) in talks.iter() {
        let connected = matches!(half.service, Some(Service::Rc | Service::Uc | Service::Xrc));
        let Some(port) = half.path.port else { continue };
        if half.encapsulation != Encapsulation::RoceV2 || !connected || half.packets < USED {
            continue;
        }
        let ends = (half.flow.source, half.flow.destination);
        let ports = all.entry(ends).or_insert_with(|| Ports {
            queue_pairs: 0,
            ports: BTreeSet::new(),
            first: half.first,
            last: half.first,
        });
        ports.queue_pairs += 1;
        ports.ports.insert(port);
        ports.last = half.first;
    }
    for ((source, destination), ports) in all {
        let (queue_pairs, distinct) = (ports.queue_pairs, ports.ports.len());
        if queue_pairs < CROWD * distinct {
            continue;
        }
        let instance = Instance {
            rule: Rule::NoEntropy,
            subject: Subject::Hosts(source.min(destination), source.max(destination)),
            side: Side::Host(source),
            at: &[ports.first, ports.last],
            numbers: &[
                Number::max("queue_pairs", queue_pairs as f64),
                Number::max("source_ports", distinct as f64),
            ],
        };
        findings.add(instance, || {
            let plural = if distinct == 1 { "" } else { "s" };
            format!(
                "{queue_pairs} queue pairs from {} to {} use {distinct} UDP source port{plural}",
                source.to_ip(),
                destination.to_ip()
            )
        });
    }
}
