//! What there is: hosts, switches, and the cables between them. Plain values; nothing runs here.

use std::net::IpAddr;

use engine::Congestion;
use switch::{Balance, Options, SwitchConfig};
use wire::{Instant, Mtu, Rate, Span};

use crate::frame::Framing;

/// A host or a switch: hosts are counted first, from 0, switches after them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// A network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// The switches.
    pub switches: Vec<SwitchSpec>,
    /// The cables; a node's ports are counted in this order.
    pub cables: Vec<Cable>,
    /// Routes in place of the shortest paths.
    pub routes: Vec<Route>,
    /// How long frames are.
    pub framing: Framing,
    /// Serialisation times are cut to whole nanoseconds, as in the HPCC simulator.
    pub whole_ns: bool,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Its name in every report.
    pub name: String,
    /// Its address; none: assigned (10.0.0.0/8, hosts of one switch in one block).
    pub address: Option<IpAddr>,
    /// Its NIC.
    pub nic: NicSpec,
    /// From then on its NIC stops priority 3 of its switch for ever: a NIC that has failed so.
    pub storm: Option<Instant>,
}

/// A NIC.
#[derive(Clone, Debug)]
pub struct NicSpec {
    /// Greatest payload of a packet.
    pub mtu: Mtu,
    /// How long an acknowledgement may wait for company.
    pub ack_delay: Span,
    /// Payload of a full packet, where it is less than the MTU.
    pub segment: Option<u32>,
    /// At least every so many packets one asks for an acknowledgement.
    pub ack_interval: u64,
    /// Acknowledgements go by DSCP 48 in place of that of their data.
    pub acks_apart: bool,
    /// Congestion control; the line's rate is that of the cable.
    pub congestion: Congestion,
}

impl Default for NicSpec {
    fn default() -> Self {
        Self {
            mtu: Mtu::B1024,
            ack_delay: Span::ZERO,
            segment: None,
            ack_interval: engine::limits::ACK_INTERVAL,
            acks_apart: false,
            congestion: Congestion::OFF,
        }
    }
}

/// A switch.
#[derive(Clone, Debug)]
pub struct SwitchSpec {
    /// Its name in every report.
    pub name: String,
    /// What it is made of; its ports in the order of its cables.
    pub config: SwitchConfig,
    /// How it spreads flows.
    pub balance: Balance,
    /// What else is set.
    pub options: Options,
}

/// A switch's route to a host, in place of the shortest paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The switch.
    pub switch: NodeId,
    /// The host.
    pub to: NodeId,
    /// Ports of the next hops; none: the host cannot be reached from there.
    pub ports: Vec<u16>,
}

/// A cable between two nodes, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    /// One end.
    pub a: NodeId,
    /// The other.
    pub b: NodeId,
    /// Rate of each direction.
    pub rate: Rate,
    /// Time from one end to the other.
    pub delay: Span,
    /// Chance that a frame is lost, in parts of 10^9.
    pub loss_ppb: u32,
    /// Each direction loses every data packet whose number, from 1, is a multiple of this.
    pub drop_every: Option<u64>,
}

impl Cable {
    /// A cable between nodes 0 and 1 that loses nothing: 100 Gb/s, no delay.
    pub const PERFECT: Self = Self {
        a: NodeId(0),
        b: NodeId(1),
        rate: Rate::from_gbps(100),
        delay: Span::ZERO,
        loss_ppb: 0,
        drop_every: None,
    };
}

impl Network {
    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.hosts.len() + self.switches.len()
    }

    /// Whether a node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        (node.0 as usize) < self.hosts.len()
    }

    /// A node's name; empty if there is no such node.
    pub fn name(&self, node: NodeId) -> &str {
        let index = node.0 as usize;
        match self.hosts.get(index) {
            Some(host) => &host.name,
            None => self.switches.get(index - self.hosts.len()).map_or("", |s| &s.name),
        }
    }

    /// For each node its ports: the cable, and the node and port at the other end.
    pub fn ports(&self) -> Vec<Vec<PortEnd>> {
        let mut ports: Vec<Vec<PortEnd>> = vec![Vec::new(); self.nodes()];
        for (index, cable) in self.cables.iter().enumerate() {
            let (a, b) = (cable.a.0 as usize, cable.b.0 as usize);
            let (at_a, at_b) = (ports[a].len() as u16, ports[b].len() as u16);
            let at_b = if a == b { at_b + 1 } else { at_b };
            ports[a].push(PortEnd { cable: index as u32, peer: cable.b, peer_port: at_b });
            ports[b].push(PortEnd { cable: index as u32, peer: cable.a, peer_port: at_a });
        }
        ports
    }
}

/// A node's port, and what is plugged into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortEnd {
    /// Index of the cable.
    pub cable: u32,
    /// The node at the other end.
    pub peer: NodeId,
    /// Its port.
    pub peer_port: u16,
}
