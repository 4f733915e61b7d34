//! Inputs and outputs of the HPCC simulator (a fork of ns-3): its config, topology and flow files
//! are read unchanged, its result files written in its columns. In compatibility mode its
//! peculiarities are copied too: serialisation times cut to whole nanoseconds, its ECMP hash.

mod config;
mod output;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use engine::{Congestion, Control, Notification};
use switch::{Balance, EcnAt};
use wire::{Instant, Mtu, Rate, Span};

pub use config::Config;
pub use output::{fct, pfc, qlen};

use crate::frame::Framing;
use crate::network::{Cable, HostSpec, Network, NicSpec, NodeId};
use crate::plan::{Connection, Flow, Plan, Verb};
use crate::profile::{EcnRule, Marking, SwitchProfile};
use crate::units;

/// What is wrong in a file: its line, counted from 1 (0: the whole file), and a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputError {
    /// The line.
    pub line: usize,
    /// What was found and what was expected.
    pub message: String,
}

pub(crate) fn wrong(line: usize, message: impl Into<String>) -> InputError {
    InputError { line, message: message.into() }
}

/// A topology file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    /// Number of nodes.
    pub nodes: u32,
    /// Which of them are switches.
    pub switches: Vec<u32>,
    /// Links: ends, rate, delay, chance of an error in parts of 10^9.
    pub links: Vec<(u32, u32, Rate, Span, u32)>,
}

/// A line of a flow file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowLine {
    /// Sender and receiver, by node.
    pub ends: (u32, u32),
    /// Priority group.
    pub group: u8,
    /// UDP destination port.
    pub port: u16,
    /// Payload bytes.
    pub bytes: u64,
    /// Start.
    pub start: Instant,
}

/// Words of a file with their lines.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.flat_map(|(line, text)| text.split_whitespace().map(move |word| (line + 1, word)))
}

/// Takes the next word as a value.
fn take<'a, T>(
    words: &mut impl Iterator<Item = (usize, &'a str)>,
    what: &str,
    read: impl Fn(&'a str) -> Result<T, String>,
) -> Result<T, InputError> {
    let Some((line, word)) = words.next() else {
        return Err(wrong(0, format!("{what}: the file ends before it")));
    };
    read(word).map_err(|message| wrong(line, format!("{what}: {message}")))
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("expected a whole number, found `{word}`"))
}

impl Topology {
    /// Reads a topology file: `nodes switches links`, the switches, and a link in each line.
    pub fn read(text: &str) -> Result<Self, InputError> {
        let mut words = words(text);
        let nodes = take(&mut words, "number of nodes", number)?;
        let switches: u32 = take(&mut words, "number of switches", number)?;
        let links: u32 = take(&mut words, "number of links", number)?;
        let node = |word: &str| {
            let node: u32 = number(word)?;
            if node < nodes {
                return Ok(node);
            }
            Err(format!("expected a node from 0 to {}, found {node}", nodes.max(1) - 1))
        };
        let mut topology = Self { nodes, ..Self::default() };
        for _ in 0..switches {
            topology.switches.push(take(&mut words, "switch", node)?);
        }
        for _ in 0..links {
            let a = take(&mut words, "link: source", node)?;
            let b = take(&mut words, "link: destination", node)?;
            let rate = take(&mut words, "link: rate", units::rate)?;
            let delay = take(&mut words, "link: delay", units::span)?;
            let error = take(&mut words, "link: error rate", units::fraction)?;
            topology.links.push((a, b, rate, delay, error));
        }
        Ok(topology)
    }
}

/// Reads a flow file: a count, then `src dst pg dport bytes start_s`. More lines than the count are
/// passed over, and fewer are taken as they are.
pub fn read_flows(text: &str, topology: &Topology) -> Result<Vec<FlowLine>, InputError> {
    let mut words = words(text).peekable();
    let count: usize = take(&mut words, "number of flows", number)?;
    let host = |word: &str| {
        let node: u32 = number(word)?;
        if node >= topology.nodes || topology.switches.contains(&node) {
            return Err(format!("expected a host, found node {node}"));
        }
        Ok(node)
    };
    let mut flows = Vec::new();
    while flows.len() < count && words.peek().is_some() {
        let a = take(&mut words, "flow: source", host)?;
        let b = take(&mut words, "flow: destination", host)?;
        let group = take(&mut words, "flow: priority group", |word| {
            number(word).and_then(|n: u8| {
                if n < 8 { Ok(n) } else { Err(format!("expected 0 to 7, found {n}")) }
            })
        })?;
        let port = take(&mut words, "flow: destination port", number)?;
        let bytes = take(&mut words, "flow: bytes", number)?;
        let seconds = |word: &str| units::span(&format!("{word}s"));
        let start = take(&mut words, "flow: start", seconds)?;
        let start = Instant::ZERO + start;
        flows.push(FlowLine { ends: (a, b), group, port, bytes, start });
    }
    Ok(flows)
}

/// A case: what the files say, as a network and a plan.
#[derive(Clone, Debug)]
pub struct Case {
    /// What there is; a node's number in the files is in [`numbers`](Self::numbers).
    pub network: Network,
    /// What is done.
    pub plan: Plan,
    /// The flows as they were read, in the order of the plan.
    pub flows: Vec<FlowLine>,
    /// Each flow's UDP source port.
    pub ports: Vec<u16>,
    /// Number in the files, by node.
    pub numbers: Vec<u32>,
    /// When it ends.
    pub until: Instant,
}

/// The address of a node.
pub(crate) fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0B00_0001 + ((node / 256) << 16) + ((node % 256) << 8))
}

impl Case {
    /// Builds the case; `compat` copies the simulator's peculiarities.
    pub fn new(
        config: &Config,
        topology: &Topology,
        flows: Vec<FlowLine>,
        compat: bool,
    ) -> Result<Self, InputError> {
        let hosts = (0..topology.nodes).filter(|node| !topology.switches.contains(node));
        let numbers: Vec<u32> = hosts.chain(topology.switches.iter().copied()).collect();
        let ids = numbers.iter().enumerate().map(|(id, number)| (*number, NodeId(id as u32)));
        let ids: BTreeMap<u32, NodeId> = ids.collect();
        let network = network(config, topology, &numbers, &ids, compat)?;
        let mut plan = Plan::default();
        let mut next: BTreeMap<(u32, u32), u16> = BTreeMap::new();
        let mut ports = Vec::with_capacity(flows.len());
        for flow in &flows {
            let port = next.entry(flow.ends).or_insert(10_000);
            ports.push(*port);
            let connection = plan.connections.len() as u32;
            plan.connections.push(Connection {
                a: ids[&flow.ends.0],
                b: ids[&flow.ends.1],
                dscp: flow.group << 3,
                priority: 0,
                flow_label: 0,
                ports: Some((*port, flow.port)),
                hop_limit: 0,
                opens: flow.start,
                timeout: if compat { 0 } else { 12 },
                retries: 7,
            });
            *port = port.wrapping_add(1);
            plan.flows.push(Flow {
                connection,
                reverse: false,
                verb: Verb::Write,
                bytes: flow.bytes,
                message: 0,
                depth: 1,
                start: flow.start,
                after: Vec::new(),
                think: Span::ZERO,
                group: 0,
            });
        }
        Ok(Self { network, plan, flows, ports, numbers, until: Instant::ZERO + config.stop })
    }
}

fn network(
    config: &Config,
    topology: &Topology,
    numbers: &[u32],
    ids: &BTreeMap<u32, NodeId>,
    compat: bool,
) -> Result<Network, InputError> {
    let switches = topology.switches.len();
    let hosts = numbers.len() - switches;
    let rate_of = |host: u32| {
        let link = topology.links.iter().find(|(a, b, ..)| *a == host || *b == host);
        link.map_or(Rate::from_gbps(100), |link| link.2)
    };
    let host = |number: u32| {
        let line = rate_of(number);
        // Each mark comes back with its acknowledgement.
        let notification = if compat || config.cnp_interval == Span::ZERO {
            Notification { spacing: Span::ZERO, ..Notification::VENDOR }
        } else {
            Notification { spacing: config.cnp_interval, ..Notification::VENDOR }
        };
        let control = match config.mode {
            1 => Control::Dcqcn(config.dcqcn),
            _ => Control::None,
        };
        HostSpec {
            name: format!("host{number}"),
            address: Some(IpAddr::V4(address(number))),
            storm: None,
            nic: NicSpec {
                mtu: Mtu::B4096,
                segment: Some(config.payload),
                ack_interval: config.ack_interval,
                acks_apart: config.ack_high_priority,
                congestion: Congestion { control, line, notification, overhead: Some(48) },
                ..NicSpec::default()
            },
        }
    };
    let cable = |&(a, b, rate, delay, error): &(u32, u32, Rate, Span, u32)| Cable {
        a: ids[&a],
        b: ids[&b],
        rate,
        delay,
        loss_ppb: error.max(config.error_ppb),
        drop_every: None,
    };
    let mut network = Network {
        hosts: numbers[..hosts].iter().map(|n| host(*n)).collect(),
        cables: topology.links.iter().map(cable).collect(),
        framing: Framing::Hpcc,
        whole_ns: compat,
        ..Network::default()
    };
    let nic = numbers.first().map_or(Rate::from_gbps(100), |n| rate_of(*n));
    dress(&mut network, config, &numbers[hosts..], nic, compat)?;
    Ok(network)
}

/// Gives the network its switches, which have these numbers in the files.
fn dress(
    network: &mut Network,
    config: &Config,
    numbers: &[u32],
    nic: Rate,
    compat: bool,
) -> Result<(), InputError> {
    let rule = EcnRule { kmin: 0, kmax: 0, pmax_ppb: 0, at: EcnAt::Dequeue };
    let mut profile = SwitchProfile::hpcc(config.buffer, nic, Marking::Same(rule));
    profile.balance = if compat { Balance::FlowHpcc } else { Balance::Flow };
    let names = numbers.iter().map(|n| format!("switch{n}")).collect();
    network.switches = crate::topology::dress(network, names, &profile);
    for (switch, number) in network.switches.iter_mut().zip(numbers) {
        switch.config.seed = u64::from(*number);
        for port in &mut switch.config.ports {
            let marks = config.marks(port.rate).map_err(|m| wrong(0, m))?;
            for queue in [1, 2, 3, 4, 5, 7] {
                port.ecn[queue] = config.marking.then_some(marks);
            }
        }
    }
    Ok(())
}
