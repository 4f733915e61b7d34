//! What a run has shown, in numbers: completion times, slowdown against an empty network, goodput,
//! fairness, what ports and NICs counted.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use wire::{Rate, Span};

use crate::frame::Framing;
use crate::network::{Network, NodeId, PortEnd};
use crate::outcome::{FlowRecord, Outcome};
use crate::plan::{Flow, Plan, Verb};

/// Percentiles by nearest rank.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    /// The least.
    pub min: f64,
    /// Half are not greater.
    pub p50: f64,
    /// 95 of 100 are not greater.
    pub p95: f64,
    /// 99 of 100 are not greater.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
    /// The arithmetic mean.
    pub mean: f64,
}

impl Percentiles {
    /// Of these values; zeros if there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let Some((&min, &max)) = values.first().zip(values.last()) else { return Self::default() };
        let n = values.len();
        let at = |percent: usize| values[(n * percent).div_ceil(100).clamp(1, n) - 1];
        let mean = values.iter().sum::<f64>() / n as f64;
        Self { min, p50: at(50), p95: at(95), p99: at(99), max, mean }
    }
}

/// Flows that belong together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Flows in the plan.
    pub flows: usize,
    /// Of them, those that have ended.
    pub done: usize,
    /// Those that have failed.
    pub failed: usize,
    /// Payload bytes of those that have ended.
    pub bytes: u64,
    /// Completion times, in microseconds.
    pub completion_us: Percentiles,
    /// Completion time over that in an empty network.
    pub slowdown: Percentiles,
    /// Payload rate of each flow, in Gb/s.
    pub rate_gbps: Percentiles,
    /// Payload of all over the time from the first beginning to the last end, in Gb/s.
    pub goodput_gbps: f64,
    /// Jain's index of the flows' rates: 1 is fair, 1/n is one takes all.
    pub fairness: f64,
}

/// Sums over NICs and switches.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Totals {
    /// Simulated time, in microseconds.
    pub time_us: f64,
    /// Flows that have not ended.
    pub unfinished: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// ACK timeouts.
    pub timeouts: u64,
    /// CNPs sent by NICs.
    pub cnps: u64,
    /// Packets marked by switches.
    pub marked: u64,
    /// Pauses received (those that stop).
    pub pauses: u64,
    /// Frames dropped by switches, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// The most bytes that an egress queue has held.
    pub queue_peak: u64,
    /// Data packets that have crossed a cable.
    pub hops: u64,
    /// Events handled.
    pub events: u64,
}

/// A run in numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// By group, in the order of the workloads.
    pub groups: Vec<Group>,
    /// Over everything.
    pub totals: Totals,
}

/// A flow in numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowLine {
    /// Its index in the plan.
    pub flow: u32,
    /// Name of its group.
    pub group: String,
    /// Who asked.
    pub from: String,
    /// Of whom.
    pub to: String,
    /// Payload bytes.
    pub bytes: u64,
    /// When it began, in nanoseconds.
    pub start_ns: f64,
    /// How long it took, in nanoseconds; none: it has not ended.
    pub completion_ns: Option<f64>,
    /// How long it takes in an empty network, in nanoseconds.
    pub ideal_ns: f64,
}

/// Looks up shortest paths.
pub struct Paths<'a> {
    network: &'a Network,
    ports: Vec<Vec<PortEnd>>,
    known: BTreeMap<(NodeId, NodeId), Vec<u32>>,
}

impl<'a> Paths<'a> {
    /// Of a network.
    pub fn new(network: &'a Network) -> Self {
        Self { network, ports: network.ports(), known: BTreeMap::new() }
    }

    /// The switch that a host is cabled to, and the cable; itself if it is cabled to a host.
    fn access(&self, host: NodeId) -> Option<(NodeId, u32)> {
        let end = self.ports.get(host.0 as usize)?.first()?;
        Some((end.peer, end.cable))
    }

    /// Cables of a shortest path from host to host.
    pub fn between(&mut self, a: NodeId, b: NodeId) -> Vec<u32> {
        let (Some((from, first)), Some((to, last))) = (self.access(a), self.access(b)) else {
            return Vec::new();
        };
        if from == b {
            return vec![first];
        }
        let mut path = vec![first];
        if from != to {
            if !self.known.contains_key(&(from, to)) {
                let found = self.search(from, to);
                self.known.insert((from, to), found);
            }
            path.extend(&self.known[&(from, to)]);
        }
        path.push(last);
        path
    }

    fn search(&self, from: NodeId, to: NodeId) -> Vec<u32> {
        let mut came: Vec<Option<(NodeId, u32)>> = vec![None; self.network.nodes()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for end in &self.ports[node.0 as usize] {
                let peer = end.peer.0 as usize;
                if came[peer].is_none() && !self.network.is_host(end.peer) && end.peer != from {
                    came[peer] = Some((node, end.cable));
                    queue.push_back(end.peer);
                }
            }
        }
        let (mut path, mut node) = (Vec::new(), to);
        while let Some((before, cable)) = came[node.0 as usize] {
            path.push(cable);
            node = before;
        }
        path.reverse();
        path
    }

    /// How long a flow takes in an empty network: its bytes at the slowest cable's rate, a packet's
    /// time at each other one, all delays, and the way back of the acknowledgement (of a READ: the
    /// way of the request).
    pub fn ideal(&mut self, plan: &Plan, flow: &Flow) -> Span {
        let Some((a, b)) = flow.ends(plan) else { return Span::ZERO };
        let path = self.between(a, b);
        let spec = self.network.hosts.get(a.0 as usize);
        let segment = spec.map_or(1024, |host| {
            let mtu = host.nic.mtu.bytes();
            host.nic.segment.map_or(mtu, |bytes| bytes.min(mtu))
        });
        let (header, ack) = match self.network.framing {
            Framing::Ethernet => (62 + 20, 66 + 20),
            Framing::Hpcc => (48, 60),
        };
        let packets = flow.bytes.div_ceil(u64::from(segment)).max(1);
        // A WRITE's first packet has 16 bytes more.
        let extra = if self.network.framing == Framing::Ethernet && flow.verb == Verb::Write {
            16
        } else {
            0
        };
        let whole = flow.bytes + packets * header + extra;
        let one = flow.bytes.min(u64::from(segment)) + header;
        let cables = path.iter().filter_map(|c| self.network.cables.get(*c as usize));
        let cables: Vec<_> = cables.map(|c| (c.rate, c.delay)).collect();
        let slowest = cables.iter().map(|(rate, _)| *rate).min().unwrap_or(Rate::from_gbps(1));
        let mut span = slowest.time_for(whole);
        let mut met = false;
        for (rate, delay) in cables {
            if rate == slowest && !met {
                met = true;
            } else {
                span = span + rate.time_for(one);
            }
            span = span + delay + delay + rate.time_for(ack);
        }
        span
    }
}

fn micros(span: Span) -> f64 {
    span.as_ps() as f64 / 1e6
}

/// Each flow that was begun.
pub fn flows(
    network: &Network,
    plan: &Plan,
    groups: &[String],
    outcome: &Outcome,
) -> Vec<FlowLine> {
    let mut paths = Paths::new(network);
    let line = |record: &FlowRecord| {
        let flow = plan.flows.get(record.flow as usize)?;
        let (a, b) = flow.ends(plan)?;
        let group = groups.get(usize::from(flow.group)).cloned().unwrap_or_default();
        Some(FlowLine {
            flow: record.flow,
            group,
            from: network.name(a).to_owned(),
            to: network.name(b).to_owned(),
            bytes: flow.bytes,
            start_ns: record.begun.as_ps() as f64 / 1e3,
            completion_ns: record.completion_time().map(|t| t.as_ps() as f64 / 1e3),
            ideal_ns: paths.ideal(plan, flow).as_ps() as f64 / 1e3,
        })
    };
    outcome.flows.iter().filter_map(line).collect()
}

impl Summary {
    /// Of a run.
    pub fn new(network: &Network, plan: &Plan, names: &[String], outcome: &Outcome) -> Self {
        let lines = flows(network, plan, names, outcome);
        let groups = names.iter().enumerate().map(|(index, name)| {
            let planned = plan.flows.iter().filter(|f| usize::from(f.group) == index).count();
            let own: Vec<_> = lines.iter().filter(|line| line.group == *name).collect();
            group(name, planned, &own, outcome, plan, index)
        });
        Self { groups: groups.collect(), totals: totals(outcome) }
    }
}

fn group(
    name: &str,
    planned: usize,
    own: &[&FlowLine],
    outcome: &Outcome,
    plan: &Plan,
    index: usize,
) -> Group {
    let done: Vec<_> = own.iter().filter_map(|l| l.completion_ns.map(|t| (*l, t))).collect();
    let of_group = |record: &&FlowRecord| {
        plan.flows.get(record.flow as usize).is_some_and(|f| usize::from(f.group) == index)
    };
    let records = outcome.flows.iter().filter(of_group);
    let failed = records.clone().filter(|r| r.failed.is_some()).count();
    let first = records.clone().map(|r| r.begun.as_ps()).min().unwrap_or(0);
    let last = records.filter_map(|r| r.ended).map(|at| at.as_ps()).max().unwrap_or(first);
    let bytes: u64 = done.iter().map(|(line, _)| line.bytes).sum();
    let rates: Vec<f64> =
        done.iter().filter(|(_, t)| *t > 0.0).map(|(l, t)| l.bytes as f64 * 8.0 / t).collect();
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), r| (s + r, q + r * r));
    let n = rates.len() as f64;
    let span_ns = (last - first) as f64 / 1e3;
    Group {
        name: name.to_owned(),
        flows: planned,
        done: done.len(),
        failed,
        bytes,
        completion_us: Percentiles::of(done.iter().map(|(_, t)| t / 1e3).collect()),
        slowdown: Percentiles::of(done.iter().map(|(l, t)| t / l.ideal_ns.max(1e-3)).collect()),
        rate_gbps: Percentiles::of(rates),
        goodput_gbps: if span_ns > 0.0 { bytes as f64 * 8.0 / span_ns } else { 0.0 },
        fairness: if squares > 0.0 { sum * sum / (n * squares) } else { 0.0 },
    }
}

fn totals(outcome: &Outcome) -> Totals {
    let mut totals = Totals {
        time_us: micros(outcome.now.since(wire::Instant::ZERO)),
        unfinished: outcome.unfinished,
        pauses: outcome.pauses.iter().filter(|pause| pause.stops).count() as u64,
        hops: outcome.hops,
        events: outcome.events,
        ..Totals::default()
    };
    for nic in &outcome.hosts {
        totals.retransmitted += nic.retransmitted_packets;
        totals.timeouts += nic.local_ack_timeout_err;
        totals.cnps += nic.np_cnp_sent;
    }
    for port in outcome.switches.iter().flatten() {
        for (cause, frames) in &port.dropped {
            *totals.dropped.entry(format!("{cause:?}")).or_default() += frames;
        }
        for priority in &port.priorities {
            totals.marked += priority.ecn_marked;
            totals.queue_peak = totals.queue_peak.max(priority.egress_watermark);
        }
    }
    totals
}
