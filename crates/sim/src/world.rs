//! Builds the world of a network and a plan, and runs it.

use std::fmt;
use std::sync::Arc;

use engine::{AddressVector, Congestion, Device, DeviceConfig, GidEntry};
use switch::{NextHop, Switch};
use wire::{Encapsulation, Gid, Instant, Mac, Psn, Qpn, RKey, Span};

use crate::app::{App, Asked, End, address};
use crate::cable::Sender;
use crate::exchange::{Alone, Hall, Place};
use crate::host::Host;
use crate::memory::Lengths;
use crate::network::{Network, NodeId, PortEnd};
use crate::outcome::Outcome;
use crate::plan::{Flow, Plan, Verb};
use crate::routes::{self, Block};
use crate::switching::{Means, Switching};
use crate::worker::{Node, Worker};

/// Why a world cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildError(pub String);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}

/// How far a run goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Simulated time after which it stops, whatever is unfinished.
    pub until: Instant,
    /// Threads.
    pub threads: usize,
}

/// A network with everything in it, before its first event.
#[derive(Debug)]
pub struct World {
    nodes: Vec<Option<Node>>,
    hosts: usize,
    /// The shortest cable: no frame arrives within this time of being sent.
    window: Span,
    flows: u64,
    gids: Vec<Gid>,
}

/// A locally administered MAC of a node's port.
fn mac(node: u32, port: u16) -> Mac {
    let [a, b, c, d] = node.to_be_bytes();
    Mac([0x02 | (a << 2), b, c, d, (port >> 8) as u8, port as u8])
}

impl World {
    /// Builds the world. The seed decides on everything that is drawn.
    pub fn new(network: &Network, plan: &Plan, seed: u64) -> Result<Self, BuildError> {
        check(network, plan)?;
        let ports = network.ports();
        let (gids, blocks) = routes::assign(network, &ports);
        let mut nodes = Vec::with_capacity(network.nodes());
        let mut rkeys = Vec::with_capacity(network.hosts.len());
        for (index, gid) in gids.iter().enumerate() {
            let host = host(network, &ports, index, *gid, seed)?;
            rkeys.push(host.app.rkey);
            nodes.push(host);
        }
        program(&mut nodes, plan, &gids, seed);
        let rkeys: Arc<[RKey]> = rkeys.into();
        for host in &mut nodes {
            host.app.begin(Arc::clone(&rkeys));
        }
        let mut nodes: Vec<_> = nodes.into_iter().map(|h| Some(Node::Host(Box::new(h)))).collect();
        for index in 0..network.switches.len() {
            let switching = switching(network, &ports, index, seed)?;
            nodes.push(Some(Node::Switch(Box::new(switching))));
        }
        route(network, &ports, &gids, &blocks, &mut nodes);
        let window = network.cables.iter().map(|c| c.delay).min().unwrap_or(Span::from_us(1));
        let flows = plan.flows.len() as u64;
        Ok(Self { nodes, hosts: network.hosts.len(), window, flows, gids })
    }

    /// Address of a host.
    pub fn address(&self, host: NodeId) -> Option<Gid> {
        self.gids.get(host.0 as usize).copied()
    }

    /// Keeps mean lengths of all queues, from this time on.
    pub fn watch_queues(&mut self, from: Instant) {
        for node in self.nodes.iter_mut().flatten() {
            if let Node::Switch(s) = node {
                s.means = Some(Means::new(from, s.senders.len()));
            }
        }
    }

    /// Runs until all flows have ended, or the time is over. `watch` is told of each window's end
    /// and how many flows have ended.
    pub fn run(self, limits: Limits, watch: &mut dyn FnMut(Instant, u64)) -> Outcome {
        let (window, hosts, flows) = (self.window, self.hosts, self.flows);
        let threads = if window == Span::ZERO { 1 } else { limits.threads.clamp(1, 1 << 10) };
        let worker_of = spread(&self.nodes, hosts, threads);
        let mut workers = split(self.nodes, &worker_of, threads, window);
        let stop = (limits.until, flows);
        let mut now = limits.until;
        if let [only] = workers.as_mut_slice() {
            now = only.run(&mut Alone, &worker_of, stop, watch);
        } else {
            let hall = Hall::new(threads);
            std::thread::scope(|scope| {
                let mut rest = workers.iter_mut();
                let first = rest.next();
                for worker in rest {
                    let (hall, worker_of) = (&hall, &worker_of);
                    scope.spawn(move || {
                        let own = usize::from(worker.own);
                        worker.run(&mut Place { hall, own }, worker_of, stop, |_, _| {})
                    });
                }
                if let Some(worker) = first {
                    let mut place = Place { hall: &hall, own: 0 };
                    now = worker.run(&mut place, &worker_of, stop, watch);
                }
            });
        }
        outcome(now, flows, workers)
    }
}

/// Refuses what names something that is not there.
fn check(network: &Network, plan: &Plan) -> Result<(), BuildError> {
    for (index, cable) in network.cables.iter().enumerate() {
        for end in [cable.a, cable.b] {
            if end.0 as usize >= network.nodes() {
                return Err(BuildError(format!("cable {index}: there is no node {}", end.0)));
            }
        }
        if cable.rate.as_bps() == 0 {
            return Err(BuildError(format!("cable {index}: a rate of 0")));
        }
    }
    let ports = network.ports();
    for (index, route) in network.routes.iter().enumerate() {
        let there = ports.get(route.switch.0 as usize).map_or(0, Vec::len);
        if network.is_host(route.switch) || !network.is_host(route.to) {
            return Err(BuildError(format!("route {index}: from a switch to a host is needed")));
        }
        if let Some(port) = route.ports.iter().find(|port| usize::from(**port) >= there) {
            let name = network.name(route.switch);
            return Err(BuildError(format!("route {index}: {name} has {there} ports, no {port}")));
        }
    }
    for (index, c) in plan.connections.iter().enumerate() {
        if !network.is_host(c.a) || !network.is_host(c.b) || c.a == c.b {
            return Err(BuildError(format!(
                "connection {index}: from node {} to node {}: two hosts are needed",
                c.a.0, c.b.0
            )));
        }
    }
    for (index, flow) in plan.flows.iter().enumerate() {
        if flow.connection as usize >= plan.connections.len() {
            let c = flow.connection;
            return Err(BuildError(format!("flow {index}: there is no connection {c}")));
        }
        let Some((asker, _)) = flow.ends(plan) else { continue };
        for &before in &flow.after {
            let ends = plan.flows.get(before as usize).and_then(|b| b.ends(plan));
            if !ends.is_some_and(|(a, b)| a == asker || b == asker) {
                return Err(BuildError(format!(
                    "flow {index} waits for flow {before}, which does not end at {}",
                    network.name(asker)
                )));
            }
        }
    }
    Ok(())
}

/// A cable's sending end at a node's port.
fn sender(network: &Network, end: &PortEnd, seed: u64) -> Sender {
    let cable = &network.cables[end.cable as usize];
    let peer = (end.peer.0, end.peer_port);
    let direction = u64::from(end.peer == cable.b);
    Sender::new(peer, (cable.rate, cable.delay), network.framing, network.whole_ns).with_faults(
        cable,
        seed,
        u64::from(end.cable) << 1 | direction,
    )
}

fn host(
    network: &Network,
    ports: &[Vec<PortEnd>],
    index: usize,
    gid: Gid,
    seed: u64,
) -> Result<Host, BuildError> {
    let spec = &network.hosts[index];
    let failed = |what: &dyn fmt::Display| BuildError(format!("host {}: {what}", spec.name));
    if ports[index].len() != 1 {
        let n = ports[index].len();
        return Err(failed(&format!("{n} cables: a NIC has one port")));
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    let config = DeviceConfig {
        seed: bytes,
        slots: Vec::new(),
        gids: vec![GidEntry { gid, encapsulation: Encapsulation::RoceV2 }],
        mtu: spec.nic.mtu,
        receive_buffer: u64::MAX,
        ack_delay: spec.nic.ack_delay,
        credits: false,
    };
    let mut device = Device::new(config, Lengths);
    if let Some(end) = ports[index].first() {
        let line = network.cables[end.cable as usize].rate;
        device.set_congestion(Congestion { line, ..spec.nic.congestion });
    }
    device.set_ack_interval(spec.nic.ack_interval);
    if let Some(bytes) = spec.nic.segment {
        device.set_segment(bytes);
    }
    let app = App::new(&mut device, spec.nic.mtu).map_err(|e| failed(&e))?;
    let end = ports[index].first();
    let cable = end.map(|end| sender(network, end, seed));
    let gateway = end.map_or(Mac([0; 6]), |end| mac(end.peer.0, end.peer_port));
    let macs = (mac(index as u32, 0), gateway);
    let mut host = Host::new(index as u32, device, app, cable, macs, network.framing);
    host.acks_apart = spec.nic.acks_apart;
    host.storm = spec.storm;
    Ok(host)
}

/// A number drawn from the seed for something with a name (SplitMix64's last step).
fn drawn(seed: u64, what: u64, index: u64) -> u64 {
    let mut z = seed ^ what.rotate_left(32) ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Gives each host its ends of connections, and its flows.
fn program(hosts: &mut [Host], plan: &Plan, gids: &[Gid], seed: u64) {
    // By whom each flow is waited for: at its asker, or at the other end, which then is told.
    let mut told = vec![false; plan.flows.len()];
    for flow in &plan.flows {
        let asker = flow.ends(plan).map(|(a, _)| a);
        for &before in &flow.after {
            let first = &plan.flows[before as usize];
            told[before as usize] |= first.ends(plan).map(|(a, _)| a) != asker;
        }
    }
    // Queue pair numbers are counted at each host, from a start that is drawn.
    let mut place = vec![(0, 0); plan.connections.len()];
    for (index, c) in plan.connections.iter().enumerate() {
        let number = |host: NodeId| {
            let count = hosts[host.0 as usize].app.ends.len() as u32;
            Qpn::new(0x100 + (drawn(seed, 1, u64::from(host.0)) as u32 & 0xF_FFFF) + count)
        };
        let (a, b) = (number(c.a), number(c.b));
        let psn = |side: u64| Psn::new(drawn(seed, 2 + side, index as u64) as u32 & 0xFF_FFFF);
        let end = |own: Qpn, peer: Qpn, to: NodeId, psns: (Psn, Psn)| End {
            number: own,
            peer,
            peer_host: to.0,
            av: AddressVector {
                hop_limit: c.hop_limit,
                ..address(gids[to.0 as usize], c.dscp, c.priority, c.flow_label)
            },
            psn: psns.0,
            peer_psn: psns.1,
            timeout: c.timeout,
            retries: c.retries,
            opens: c.opens,
            ports: c.ports,
            depth: 0,
            receives: 0,
        };
        let back = c.ports.map(|(source, destination)| (destination, source));
        let at_b = End { ports: back, ..end(b, a, c.a, (psn(1), psn(0))) };
        let ends = [(c.a, end(a, b, c.b, (psn(0), psn(1)))), (c.b, at_b)];
        let [at_a, at_b] = ends.map(|(host, end)| {
            let all = &mut hosts[host.0 as usize].app.ends;
            all.push(end);
            all.len() as u32 - 1
        });
        place[index] = (at_a, at_b);
    }
    for (index, flow) in plan.flows.iter().enumerate() {
        ask(hosts, plan, (index as u32, flow), place[flow.connection as usize], told[index]);
    }
}

/// Gives a flow to the host that asks for it, and the other what it needs for it.
fn ask(
    hosts: &mut [Host],
    plan: &Plan,
    (index, flow): (u32, &Flow),
    (at_a, at_b): (u32, u32),
    told: bool,
) {
    let Some((asker, other)) = flow.ends(plan) else { return };
    let (own, peer) = if flow.reverse { (at_b, at_a) } else { (at_a, at_b) };
    let asked = Asked::new(index, own, flow, told);
    let messages = flow.bytes.div_ceil(asked.message).max(1);
    let host = &mut hosts[asker.0 as usize].app;
    let end = &mut host.ends[own as usize];
    end.depth = end.depth.saturating_add(asked.depth.min(messages.min(1 << 15) as u32));
    let local = host.asked.len() as u32;
    host.asked.push(asked);
    for &before in &flow.after {
        host.waiting.entry(before).or_default().push(local);
    }
    let receives = match flow.verb {
        Verb::Send => messages,
        Verb::Write => u64::from(told),
        Verb::Read => 0,
    };
    hosts[other.0 as usize].app.ends[peer as usize].receives += receives;
}

fn switching(
    network: &Network,
    ports: &[Vec<PortEnd>],
    index: usize,
    seed: u64,
) -> Result<Switching, BuildError> {
    let spec = &network.switches[index];
    let node = network.hosts.len() + index;
    let failed = |what: &str| BuildError(format!("switch {}: {what}", spec.name));
    let (has, wants) = (ports[node].len(), spec.config.ports.len());
    if has != wants {
        return Err(failed(&format!("{wants} ports are configured, {has} have cables")));
    }
    let built = Switch::with_options(spec.config.clone(), spec.options.clone());
    let mut switch = built.map_err(|e| failed(&e))?;
    switch.set_balance(spec.balance);
    let senders = ports[node].iter().map(|end| sender(network, end, seed)).collect();
    Ok(Switching::new(node as u32, switch, senders))
}

/// Fills the switches' tables.
fn route(
    network: &Network,
    ports: &[Vec<PortEnd>],
    gids: &[Gid],
    blocks: &[Block],
    nodes: &mut [Option<Node>],
) {
    let first = network.hosts.len();
    let hop = |node: usize, port: u16| {
        let end = &ports[node][usize::from(port)];
        NextHop { port, weight: 1, mac: mac(end.peer.0, end.peer_port) }
    };
    let by_plan = |nodes: &mut [Option<Node>]| {
        for route in &network.routes {
            let (node, to) = (route.switch.0 as usize, route.to.0 as usize);
            if let (Some(Some(Node::Switch(s))), Some(&gid)) = (nodes.get_mut(node), gids.get(to)) {
                let hops = route.ports.iter().map(|port| hop(node, *port)).collect();
                s.switch.set_route(gid, 128, hops);
            }
        }
    };
    for block in blocks {
        let Some(access) = block.switch else { continue };
        let ways = routes::towards(network, ports, access);
        for (index, ways) in ways.into_iter().enumerate() {
            let node = first + index;
            let Some(Some(Node::Switch(s))) = nodes.get_mut(node) else { continue };
            if node == access.0 as usize {
                for (port, end) in ports[node].iter().enumerate() {
                    if let Some(&gid) = gids.get(end.peer.0 as usize) {
                        s.switch.set_route(gid, 128, vec![hop(node, port as u16)]);
                    }
                }
            } else if !ways.is_empty() {
                let hops: Vec<_> = ways.into_iter().map(|port| hop(node, port)).collect();
                let given =
                    block.hosts.iter().any(|&h| network.hosts[h as usize].address.is_some());
                if given {
                    for &host in &block.hosts {
                        s.switch.set_route(gids[host as usize], 128, hops.clone());
                    }
                } else {
                    s.switch.set_route(block.prefix, block.bits, hops);
                }
            }
        }
    }
    by_plan(nodes);
}

/// Which worker has which node: hosts stay with their switch, switches are dealt out in order.
fn spread(nodes: &[Option<Node>], hosts: usize, threads: usize) -> Vec<u16> {
    let switches = (nodes.len() - hosts).max(1);
    let mut of = vec![0_u16; nodes.len()];
    for (index, place) in of.iter_mut().enumerate().skip(hosts) {
        *place = ((index - hosts) * threads / switches) as u16;
    }
    for (index, node) in nodes.iter().take(hosts).enumerate() {
        if let Some(Node::Host(host)) = node
            && let Some(sender) = &host.sender
        {
            let peer = sender.peer.0 as usize;
            of[index] = if peer < hosts { (index % threads) as u16 } else { of[peer] };
        }
    }
    of
}

fn split(nodes: Vec<Option<Node>>, worker_of: &[u16], threads: usize, window: Span) -> Vec<Worker> {
    let empty = || (0..nodes.len()).map(|_| None).collect::<Vec<_>>();
    let mut of: Vec<Vec<Option<Node>>> = (0..threads).map(|_| empty()).collect();
    for (index, node) in nodes.into_iter().enumerate() {
        of[usize::from(worker_of[index])][index] = node;
    }
    let workers = of.into_iter().enumerate();
    workers.map(|(own, nodes)| Worker::new(own as u16, threads, nodes, window)).collect()
}

fn outcome(now: Instant, flows: u64, workers: Vec<Worker>) -> Outcome {
    let mut outcome = Outcome { now, ..Outcome::default() };
    let mut nodes: Vec<(usize, Node)> = Vec::new();
    for worker in workers {
        outcome.events += worker.events;
        nodes.extend(worker.into_nodes());
    }
    nodes.sort_by_key(|(index, _)| *index);
    let switches = nodes.iter().filter_map(|(index, node)| match node {
        Node::Switch(switching) => Some((*index as u32, &**switching)),
        Node::Host(_) => None,
    });
    outcome.ring = crate::deadlock::find(now, &switches.collect());
    for (_, node) in nodes {
        match node {
            Node::Host(host) => {
                outcome.flows.extend_from_slice(&host.app.records);
                outcome.pauses.extend_from_slice(&host.pauses);
                outcome.hosts.push(*host.device.counters());
                outcome.hops += host.hops;
            }
            Node::Switch(mut s) => {
                outcome.queues.extend(s.means.as_mut().map(|means| means.finish(now)));
                let ports = 0..s.senders.len() as u16;
                let counters = ports.map(|p| s.switch.counters(p).cloned().unwrap_or_default());
                outcome.switches.push(counters.collect());
                outcome.pauses.extend_from_slice(&s.pauses);
                outcome.hops += s.hops;
            }
        }
    }
    outcome.flows.sort_by_key(|record| record.flow);
    outcome.pauses.sort();
    let done = |r: &&crate::FlowRecord| r.ended.is_some() || r.failed.is_some();
    outcome.unfinished = flows - outcome.flows.iter().filter(done).count() as u64;
    outcome
}
