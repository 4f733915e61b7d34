//! What only a look at all queue pairs tells: directions with different DSCPs, mixed RoCE
//! versions, one source port for many queue pairs.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Encapsulation, Gid, Mac, Service};

use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::limits;
use crate::record::At;
use crate::rule::Rule;
use crate::talk::{Gone, Half, Talks};

/// Packets of a kind that a half must have for its DSCP to count.
const ENOUGH: u32 = 4;
/// Packets that make a queue pair one that is used.
const USED: u64 = 8;
/// Queue pairs on each source port from which on they lack entropy.
const CROWD: usize = 8;
/// DSCPs from here on (CS5, EF, CS6, CS7) are given to acknowledgements on purpose.
const PREFERRED: u8 = 40;

/// What halves show between their ends, those that are forgotten too.
#[derive(Debug, Default)]
pub(super) struct All {
    versions: BTreeMap<Ends, Versions>,
    ports: BTreeMap<(Gid, Gid), Ports>,
}

impl All {
    /// Halves that are no longer remembered.
    pub(super) fn forgotten(&mut self, gone: &Gone, findings: &mut Findings) {
        if let Some(peer) = &gone.peer {
            asymmetric(&gone.half, peer, findings);
        }
        for (half, _) in gone.pairs() {
            self.see(half, limits::ENDS_OF_FORGOTTEN);
        }
    }

    /// The end of the captures.
    pub(super) fn judge(mut self, talks: &Talks, findings: &mut Findings) {
        for (id, half) in talks.iter() {
            if let Some(peer) = half.peer
                && id < peer
            {
                asymmetric(half, talks.get(peer), findings);
            }
            self.see(half, usize::MAX);
        }
        versions(&self.versions, findings);
        entropy(self.ports, findings);
    }

    /// Notes a half while there are less than so many ends.
    fn see(&mut self, half: &Half, most: usize) {
        let (low, high) = pair(half);
        let macs = half.path.macs.map(|(a, b)| Ends::Macs(a.min(b), a.max(b)));
        for ends in [Some(Ends::Gids(low, high)), macs].into_iter().flatten() {
            if self.versions.len() >= most && !self.versions.contains_key(&ends) {
                continue;
            }
            let versions = self.versions.entry(ends).or_default();
            let place = match half.encapsulation {
                Encapsulation::RoceV1 => &mut versions.v1,
                Encapsulation::RoceV2 => &mut versions.v2,
                Encapsulation::Infiniband => continue,
            };
            let seen = (half.first, low, high);
            *place = place.filter(|(at, ..)| at.time <= half.first.time).or(Some(seen));
        }
        self.see_port(half, most);
    }

    fn see_port(&mut self, half: &Half, most: usize) {
        let connected = matches!(half.service, Some(Service::Rc | Service::Uc | Service::Xrc));
        let Some(port) = half.path.port else { return };
        if half.encapsulation != Encapsulation::RoceV2 || !connected || half.packets < USED {
            return;
        }
        let ends = (half.flow.source, half.flow.destination);
        if self.ports.len() >= most && !self.ports.contains_key(&ends) {
            return;
        }
        let ports = self.ports.entry(ends).or_insert_with(|| Ports {
            queue_pairs: 0,
            ports: BTreeSet::new(),
            first: half.first,
            last: half.first,
        });
        ports.queue_pairs += 1;
        if ports.ports.len() < limits::PORTS {
            ports.ports.insert(port);
        }
        ports.last = half.first;
    }
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
#[derive(Debug, Default)]
struct Versions {
    v1: Option<(At, Gid, Gid)>,
    v2: Option<(At, Gid, Gid)>,
}

/// Two ends: by address, or by MAC address, since RoCEv1 may use other GIDs.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ends {
    Gids(Gid, Gid),
    Macs(Mac, Mac),
}

fn versions(all: &BTreeMap<Ends, Versions>, findings: &mut Findings) {
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
#[derive(Debug)]
struct Ports {
    queue_pairs: usize,
    ports: BTreeSet<u16>,
    first: At,
    last: At,
}

fn entropy(all: BTreeMap<(Gid, Gid), Ports>, findings: &mut Findings) {
    for ((source, destination), ports) in all {
        let (queue_pairs, distinct) = (ports.queue_pairs, ports.ports.len());
        if queue_pairs < CROWD * distinct || distinct == limits::PORTS {
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
