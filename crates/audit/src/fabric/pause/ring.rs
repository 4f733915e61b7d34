//! R085: rings of pauses. An edge is a link on which one device holds another: the one that is held
//! waits for the one that holds. A ring of three or more devices that have all waited for each
//! other at the same time, in one priority, is a deadlock: none of them can empty its buffers.
//!
//! Who is a device: the LLDP chassis of the frames' sender, else its MAC address, where addresses
//! close to each other are the ports of one switch if the traffic shows that they are a switch's.

use std::collections::BTreeMap;

use wire::Mac;

use super::complaint::port;
use super::link::{End, GLOBAL, Link};
use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::limits;
use crate::record::{At, Point, Time};
use crate::rule::Rule;

/// Nanoseconds that each pause of a ring must have held.
const HELD: u64 = 2_000_000;
/// Nanoseconds between two searches, and between two words on one ring.
const PATIENCE: u64 = 1_000_000;
const AGAIN: u64 = 100_000_000;
/// MAC addresses of one switch's ports are at most so far apart.
const PORTS_OF_A_SWITCH: u64 = 128;

/// Whom a MAC address belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Device {
    Chassis(Box<[u8]>),
    Mac(u64),
}

/// One device waits for another.
struct Edge {
    waits: usize,
    held_by: usize,
    point: Point,
    port: String,
    since: Time,
    last: At,
}

/// Looks for rings.
#[derive(Debug, Default)]
pub(super) struct Rings {
    searched: Time,
    told: BTreeMap<Vec<(Point, usize)>, Time>,
}

impl Rings {
    /// Something has been paused once more.
    pub(super) fn search(
        &mut self,
        now: Time,
        links: &[Link],
        given: Option<u64>,
        findings: &mut Findings,
    ) {
        if now.since(self.searched) < PATIENCE {
            return;
        }
        self.searched = now;
        for class in 0..=GLOBAL {
            self.search_class(now, class, links, given, findings);
        }
    }

    fn search_class(
        &mut self,
        now: Time,
        class: usize,
        links: &[Link],
        given: Option<u64>,
        findings: &mut Findings,
    ) {
        let edges = edges(now, class, links, given);
        let Some(ring) = ring(&edges) else { return };
        let mut key: Vec<_> = ring.iter().map(|edge| (edges[*edge].point, class)).collect();
        key.sort_unstable();
        let told = self.told.get(&key).copied();
        if told.is_some_and(|told| now.since(told) < AGAIN) {
            return;
        }
        if told.is_some() || self.told.len() < limits::RINGS {
            self.told.insert(key, now);
        }
        tell(now, class, ring.iter().map(|edge| &edges[*edge]).collect(), findings);
    }
}

fn tell(now: Time, class: usize, ring: Vec<&Edge>, findings: &mut Findings) {
    let at: Vec<_> = ring.iter().map(|edge| edge.last).collect();
    let held = ring.iter().map(|edge| now.since(edge.since)).min().unwrap_or(0) as f64 / 1e6;
    let numbers = [
        Number::max("held_ms", held),
        Number::max("devices", ring.len() as f64),
        Number::last("priority", class as f64),
    ];
    let instance = Instance {
        rule: Rule::PauseCycle,
        subject: Subject::Capture,
        side: Side::Network,
        at: &at,
        numbers: &numbers,
    };
    findings.add(instance, || {
        let chain: Vec<_> =
            ring.iter().map(|edge| format!("{} on link {}", edge.port, edge.point.0 + 1)).collect();
        let what = match class {
            GLOBAL => String::from("all priorities"),
            class => format!("priority {class}"),
        };
        format!(
            "each of {} devices waits for the next in {what}, for {held:.1} ms or longer: held by \
             {}",
            ring.len(),
            chain.join(", then ")
        )
    });
}

/// The links on which a class is held now and has been for a while.
fn edges(now: Time, class: usize, links: &[Link], given: Option<u64>) -> Vec<Edge> {
    let mut found = Vec::new();
    for (at, link) in links.iter().enumerate() {
        if link.mixed {
            continue;
        }
        let speeds = link.speeds(given);
        for (number, end) in link.ends.iter().enumerate() {
            let Some(on) = &end.classes[class].on else { continue };
            let held = on.holds_at(now, speeds, true) && now.since(on.first.time) >= HELD;
            let other = match link.ends.get(1 - number.min(1)).filter(|o| o.mac != end.mac) {
                Some(other) => Some(other.mac),
                None => end.neighbour.routed(),
            };
            if let (true, Some(other)) = (held, other)
                && found.len() < limits::RING_EDGES
            {
                found.push((Point(at as u16), end, on.first.time, on.last, other));
            }
        }
    }
    let macs: Vec<Mac> = found.iter().flat_map(|(_, end, _, _, other)| [end.mac, *other]).collect();
    let devices = devices(&macs, links);
    let number = |mac: &Mac| {
        let device = devices.get(mac);
        devices.values().position(|other| Some(other) == device).unwrap_or(usize::MAX)
    };
    let edges = found
        .iter()
        .map(|(point, end, since, last, other)| Edge {
            waits: number(other),
            held_by: number(&end.mac),
            point: *point,
            port: port(end),
            since: *since,
            last: *last,
        })
        .collect();
    trimmed(edges)
}

/// The edges that may be on a ring: somebody waits for who waits, and who holds waits in turn.
fn trimmed(mut edges: Vec<Edge>) -> Vec<Edge> {
    loop {
        let before = edges.len();
        let waiting: Vec<usize> = edges.iter().map(|edge| edge.waits).collect();
        let holding: Vec<usize> = edges.iter().map(|edge| edge.held_by).collect();
        edges.retain(|edge| waiting.contains(&edge.held_by) && holding.contains(&edge.waits));
        if edges.len() == before {
            return edges;
        }
    }
}

/// Which device each address belongs to.
fn devices(macs: &[Mac], links: &[Link]) -> BTreeMap<Mac, Device> {
    let all = || links.iter().flat_map(|link| &link.ends);
    let chassis = |mac: Mac| all().find_map(|e: &End| e.chassis.clone().filter(|_| e.mac == mac));
    let is_switch = |mac: Mac| {
        links.iter().any(|l| l.ends.iter().any(|end| end.mac == mac && l.is_switch(end)))
    };
    let mut sorted = macs.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut devices = BTreeMap::new();
    let mut group: Option<u64> = None;
    for mac in sorted {
        let number = mac.0.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let device = if let Some(chassis) = chassis(mac) {
            Device::Chassis(chassis)
        } else if is_switch(mac) {
            let first = group.filter(|first| number - first < PORTS_OF_A_SWITCH);
            group = Some(first.unwrap_or(number));
            Device::Mac(first.unwrap_or(number))
        } else {
            Device::Mac(number)
        };
        devices.insert(mac, device);
    }
    devices
}

/// The shortest ring of three or more devices, as edges in the order of waiting.
fn ring(edges: &[Edge]) -> Option<Vec<usize>> {
    let mut best: Option<Vec<usize>> = None;
    for (start, edge) in edges.iter().enumerate() {
        if edge.waits == edge.held_by {
            continue;
        }
        // Breadth first from who holds this edge to who waits on it.
        let mut paths = vec![vec![start]];
        let mut seen = vec![edge.held_by];
        let mut at = 0;
        'search: while at < paths.len() {
            let path = paths[at].clone();
            at += 1;
            let Some(tail) = path.last().map(|last| edges[*last].held_by) else { continue };
            for (next, further) in edges.iter().enumerate() {
                if further.waits != tail {
                    continue;
                }
                let mut longer = path.clone();
                longer.push(next);
                if further.held_by == edge.waits {
                    let is_better = best.as_ref().is_none_or(|best| longer.len() < best.len());
                    if longer.len() >= 3 && is_better {
                        best = Some(longer);
                    }
                    break 'search;
                }
                if !seen.contains(&further.held_by) {
                    seen.push(further.held_by);
                    paths.push(longer);
                }
            }
        }
    }
    best
}
