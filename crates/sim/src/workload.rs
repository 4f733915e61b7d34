//! Workloads: what people run, as connections and flows.

use wire::{Instant, Span};

use crate::draw::{Draw, Sizes};
use crate::network::NodeId;
use crate::plan::{Connection, Flow, Plan, Verb};

/// What all flows of a workload have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// How bytes are moved.
    pub verb: Verb,
    /// DSCP.
    pub dscp: u8,
    /// ACK timeout code: 4.096 µs × 2^code; 0: none.
    pub timeout: u8,
    /// Retries.
    pub retries: u8,
    /// When it begins.
    pub start: Instant,
    /// What the flows belong to, for reports.
    pub group: u16,
}

impl Default for Manner {
    /// WRITEs with DSCP 26 (AF31, priority 3), an ACK timeout of 16.8 ms and 7 retries, from the
    /// beginning.
    fn default() -> Self {
        Self {
            verb: Verb::Write,
            dscp: 26,
            timeout: 12,
            retries: 7,
            start: Instant::ZERO,
            group: 0,
        }
    }
}

/// Adds to a plan.
#[derive(Debug)]
pub struct Planner<'a> {
    /// The plan.
    pub plan: &'a mut Plan,
    /// Manner of what is added.
    pub manner: Manner,
    draw: Draw,
}

/// An algorithm for an all-reduce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllReduce {
    /// 2(n-1) steps of S/n around a ring.
    Ring,
    /// Recursive halving, then doubling: 2 log2(n) steps; n is a power of two.
    HalvingDoubling,
    /// Up a binary tree and down again.
    Tree,
}

impl<'a> Planner<'a> {
    /// Adds to `plan`; what is drawn depends on seed and stream.
    pub fn new(plan: &'a mut Plan, manner: Manner, seed: u64, stream: u64) -> Self {
        Self { plan, manner, draw: Draw::new(seed, stream) }
    }

    /// A connection, with its own entropy.
    pub fn connect(&mut self, a: NodeId, b: NodeId) -> u32 {
        let flow_label = self.draw.below(1 << 20) as u32;
        self.connect_with(a, b, flow_label, self.manner.start)
    }

    fn connect_with(&mut self, a: NodeId, b: NodeId, flow_label: u32, opens: Instant) -> u32 {
        let Manner { dscp, timeout, retries, .. } = self.manner;
        self.plan.connections.push(Connection {
            a,
            b,
            dscp,
            priority: 0,
            flow_label,
            ports: None,
            hop_limit: 0,
            opens,
            timeout,
            retries,
        });
        self.plan.connections.len() as u32 - 1
    }

    /// A flow; its number.
    pub fn flow(&mut self, connection: u32, bytes: u64, change: impl FnOnce(&mut Flow)) -> u32 {
        let Manner { verb, start, group, .. } = self.manner;
        let mut flow = Flow {
            connection,
            reverse: false,
            verb,
            bytes,
            message: 0,
            depth: 1,
            start,
            after: Vec::new(),
            think: Span::ZERO,
            group,
        };
        change(&mut flow);
        self.plan.flows.push(flow);
        self.plan.flows.len() as u32 - 1
    }

    /// One stream from `from` to `to`: messages of `message` bytes, `depth` at a time.
    pub fn stream(&mut self, from: NodeId, to: NodeId, bytes: u64, (message, depth): (u32, u32)) {
        let connection = self.connect(from, to);
        self.flow(connection, bytes, |flow| (flow.message, flow.depth) = (message, depth));
    }

    /// All of `senders` to one, each `bytes`.
    pub fn incast(&mut self, senders: &[NodeId], sink: NodeId, bytes: u64) {
        for &sender in senders.iter().filter(|s| **s != sink) {
            let connection = self.connect(sender, sink);
            self.flow(connection, bytes, |_| {});
        }
    }

    /// Each host to another one, and each from another one: drawn.
    pub fn permutation(&mut self, hosts: &[NodeId], bytes: u64) {
        let mut to: Vec<NodeId> = hosts.to_vec();
        self.draw.shuffle(&mut to);
        // A cycle through the drawn order has no fixed point.
        for at in 0..to.len() {
            let (a, b) = (to[at], to[(at + 1) % to.len()]);
            if a != b {
                let connection = self.connect(a, b);
                self.flow(connection, bytes, |_| {});
            }
        }
    }

    /// Flows that arrive at each host as a Poisson process, to destinations drawn evenly: sizes
    /// from `sizes`, so many that payload takes `load_ppb` (parts of 10^9) of the hosts' rate.
    pub fn poisson(
        &mut self,
        hosts: &[NodeId],
        sizes: Sizes,
        (rate, load_ppb): (wire::Rate, u32),
        lasts: Span,
    ) {
        if hosts.len() < 2 || load_ppb == 0 {
            return;
        }
        let bits = u128::from(sizes.mean().max(1)) * 8 * 1_000_000_000 * 1_000_000_000_000;
        let mean = bits / (u128::from(rate.as_bps()) * u128::from(load_ppb)).max(1);
        let mean = Span::from_ps(mean.min(u128::from(u64::MAX)) as u64);
        let (start, end) = (self.manner.start, self.manner.start + lasts);
        let mut arrivals = Vec::new();
        for (index, &host) in hosts.iter().enumerate() {
            let mut at = start + self.draw.exponential(mean);
            while at.is_before(end) {
                let other = self.draw.below(hosts.len() as u64 - 1) as usize;
                let other = hosts[if other >= index { other + 1 } else { other }];
                let bytes = sizes.draw(&mut self.draw);
                let label = self.draw.below(1 << 20) as u32;
                arrivals.push((at.as_ps(), host, other, bytes, label));
                at = at + self.draw.exponential(mean);
            }
        }
        arrivals.sort_by_key(|(at, host, ..)| (*at, *host));
        for (at, host, other, bytes, label) in arrivals {
            let at = Instant::from_ps(at);
            let connection = self.connect_with(host, other, label, at);
            self.flow(connection, bytes, |flow| flow.start = at);
        }
    }

    /// An all-reduce of `bytes` at each rank.
    ///
    /// # Errors
    /// A sentence, if the algorithm does not work for so many ranks.
    pub fn all_reduce(
        &mut self,
        ranks: &[NodeId],
        bytes: u64,
        algorithm: AllReduce,
    ) -> Result<(), String> {
        let n = ranks.len();
        if n < 2 {
            return Err(format!("an all-reduce has at least 2 ranks, found {n}"));
        }
        match algorithm {
            AllReduce::Ring => self.ring(ranks, bytes),
            AllReduce::Tree => self.tree(ranks, bytes),
            AllReduce::HalvingDoubling if n.is_power_of_two() => self.halving(ranks, bytes),
            AllReduce::HalvingDoubling => {
                return Err(format!("halving and doubling takes a power of two ranks, found {n}"));
            }
        }
        Ok(())
    }

    fn ring(&mut self, ranks: &[NodeId], bytes: u64) {
        let n = ranks.len();
        let piece = bytes.div_ceil(n as u64);
        let ways: Vec<u32> = (0..n).map(|i| self.connect(ranks[i], ranks[(i + 1) % n])).collect();
        let mut last: Vec<u32> = Vec::new();
        for _ in 0..2 * (n - 1) {
            let step = (0..n).map(|i| {
                // What came from the left goes on to the right.
                let before = last.get((i + n - 1) % n).copied();
                self.flow(ways[i], piece, |flow| flow.after.extend(before))
            });
            last = step.collect();
        }
    }

    fn halving(&mut self, ranks: &[NodeId], bytes: u64) {
        let n = ranks.len();
        let steps = n.trailing_zeros();
        // Distances of the steps: n/2, n/4 … 1, and back.
        let down = (0..steps).map(|s| (n >> (s + 1), bytes >> (s + 1)));
        let all: Vec<_> = down.clone().chain(down.rev()).collect();
        let mut ways = std::collections::BTreeMap::new();
        let mut last: Vec<(u32, usize)> = Vec::new();
        for (distance, piece) in all {
            let mut step = Vec::with_capacity(n);
            for i in 0..n {
                let partner = i ^ distance;
                let key = (i.min(partner), i.max(partner));
                let way = match ways.get(&key) {
                    Some(&way) => way,
                    None => {
                        let way = self.connect(ranks[key.0], ranks[key.1]);
                        ways.insert(key, way);
                        way
                    }
                };
                // What the last partner sent has to be here.
                let before = last.get(i).map(|&(_, partner)| last[partner].0);
                let flow = self.flow(way, piece.max(1), |flow| {
                    flow.reverse = i > partner;
                    flow.after.extend(before);
                });
                step.push((flow, partner));
            }
            last = step;
        }
    }

    fn tree(&mut self, ranks: &[NodeId], bytes: u64) {
        let n = ranks.len();
        let ways: Vec<u32> = (1..n).map(|i| self.connect(ranks[i], ranks[(i - 1) / 2])).collect();
        let children = |i: usize| [2 * i + 1, 2 * i + 2].into_iter().filter(move |c| *c < n);
        let mut up = vec![0; n];
        for i in (1..n).rev() {
            let after: Vec<u32> = children(i).map(|c| up[c]).collect();
            up[i] = self.flow(ways[i - 1], bytes, |flow| flow.after = after);
        }
        let mut down = vec![0; n];
        for i in 1..n {
            let parent = (i - 1) / 2;
            let after: Vec<u32> = match parent {
                0 => children(0).map(|c| up[c]).collect(),
                p => vec![down[p]],
            };
            down[i] = self.flow(ways[i - 1], bytes, |flow| {
                flow.reverse = true;
                flow.after = after;
            });
        }
    }

    /// Each rank to every other one, `bytes` each, in n-1 shifts.
    pub fn all_to_all(&mut self, ranks: &[NodeId], bytes: u64) {
        let n = ranks.len();
        let mut last: Vec<Option<u32>> = vec![None; n];
        for shift in 1..n {
            for i in 0..n {
                let way = self.connect(ranks[i], ranks[(i + shift) % n]);
                let before = last[i];
                last[i] = Some(self.flow(way, bytes, |flow| flow.after.extend(before)));
            }
        }
    }

    /// A client that asks `count` times for `bytes.1` bytes with a request of `bytes.0`, each time
    /// `think` after the last answer.
    pub fn request_response(
        &mut self,
        (client, server): (NodeId, NodeId),
        bytes: (u64, u64),
        count: u32,
        think: Span,
    ) {
        let way = self.connect(client, server);
        let mut last = None;
        for _ in 0..count {
            let request = self.flow(way, bytes.0, |flow| {
                flow.after.extend(last);
                flow.think = if last.is_some() { think } else { Span::ZERO };
            });
            last = Some(self.flow(way, bytes.1, |flow| {
                flow.reverse = true;
                flow.after.push(request);
            }));
        }
    }

    /// A client that writes `count` blocks of `bytes` to a server that copies each to `replicas`
    /// and then answers with 64 bytes.
    pub fn storage(
        &mut self,
        client: NodeId,
        server: NodeId,
        replicas: &[NodeId],
        (bytes, count): (u64, u32),
    ) {
        let way = self.connect(client, server);
        let copies: Vec<u32> = replicas.iter().map(|&r| self.connect(server, r)).collect();
        let mut last = None;
        for _ in 0..count {
            let block = self.flow(way, bytes, |flow| flow.after.extend(last));
            let mut done = vec![block];
            for &copy in &copies {
                done.push(self.flow(copy, bytes, |flow| flow.after.push(block)));
            }
            last = Some(self.flow(way, 64, |flow| {
                flow.reverse = true;
                flow.after = done;
            }));
        }
    }
}
