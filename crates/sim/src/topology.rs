//! Generators of networks: the shapes that people build, of any size.

use wire::{Rate, Span};

use crate::network::{Cable, HostSpec, Network, NicSpec, NodeId, SwitchSpec};
use crate::profile::SwitchProfile;

/// Cables of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wire {
    /// Rate.
    pub rate: Rate,
    /// From end to end.
    pub delay: Span,
}

/// A shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Two hosts on one cable.
    Pair,
    /// All hosts on one switch.
    Star {
        /// Hosts.
        hosts: u32,
    },
    /// Two switches with hosts, and a trunk between them.
    Dumbbell {
        /// Hosts at the left switch, and at the right.
        left: u32,
        /// Hosts at the right switch.
        right: u32,
    },
    /// Switches in a row, with hosts at each: flows that go further pass more of them.
    ParkingLot {
        /// Switches.
        switches: u32,
        /// Hosts at each.
        hosts: u32,
    },
    /// Every leaf is cabled to every spine.
    LeafSpine {
        /// Leaves.
        leaves: u32,
        /// Spines.
        spines: u32,
        /// Hosts at each leaf.
        hosts: u32,
    },
    /// The k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, (k/2)² cores, k³/4
    /// hosts.
    FatTree {
        /// Ports of every switch: even, at least 2.
        k: u32,
    },
    /// Servers with one NIC in each rail: NICs of one rail share their leaves.
    Rail {
        /// Servers.
        servers: u32,
        /// NICs of each: rails.
        rails: u32,
        /// Servers at a leaf.
        group: u32,
        /// Spines between the leaves.
        spines: u32,
    },
    /// Switches in a ring, with hosts at each.
    Ring {
        /// Switches, at least 3.
        switches: u32,
        /// Hosts at each.
        hosts: u32,
    },
}

/// What a network is made with.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Cables of hosts.
    pub access: Wire,
    /// Cables between switches.
    pub fabric: Wire,
    /// NICs.
    pub nic: NicSpec,
    /// Switches.
    pub switch: SwitchProfile,
}

/// A network in the making.
struct Builder<'a> {
    parts: &'a Parts,
    hosts: Vec<(String, u32)>,
    switches: Vec<String>,
    trunks: Vec<(u32, u32)>,
}

impl Builder<'_> {
    fn switch(&mut self, name: String) -> u32 {
        self.switches.push(name);
        self.switches.len() as u32 - 1
    }

    /// Hosts `h0`, `h1` … at a switch.
    fn hosts(&mut self, switch: u32, count: u32) {
        for _ in 0..count {
            self.hosts.push((format!("h{}", self.hosts.len()), switch));
        }
    }

    fn trunk(&mut self, a: u32, b: u32) {
        self.trunks.push((a, b));
    }

    fn build(self) -> Network {
        let first = self.hosts.len() as u32;
        let parts = self.parts;
        let cable = |a, b, wire: Wire| Cable {
            a: NodeId(a),
            b: NodeId(b),
            rate: wire.rate,
            delay: wire.delay,
            ..Cable::PERFECT
        };
        let access = self.hosts.iter().enumerate();
        let mut cables: Vec<Cable> =
            access.map(|(h, (_, s))| cable(h as u32, first + s, parts.access)).collect();
        let trunks = self.trunks.iter().map(|(a, b)| cable(first + a, first + b, parts.fabric));
        cables.extend(trunks);
        let host =
            |(name, _)| HostSpec { name, address: None, nic: parts.nic.clone(), storm: None };
        let mut network = Network {
            hosts: self.hosts.into_iter().map(host).collect(),
            cables,
            ..Network::default()
        };
        network.switches = dress(&network, self.switches, &parts.switch);
        network
    }
}

/// Switches of a profile, with a port for each of their cables; `network` has its hosts and cables
/// already.
pub fn dress(network: &Network, names: Vec<String>, profile: &SwitchProfile) -> Vec<SwitchSpec> {
    let first = network.hosts.len();
    let mut wires: Vec<Vec<Wire>> = vec![Vec::new(); names.len()];
    for cable in &network.cables {
        for end in [cable.a, cable.b] {
            if let Some(ports) = (end.0 as usize).checked_sub(first).and_then(|s| wires.get_mut(s))
            {
                ports.push(Wire { rate: cable.rate, delay: cable.delay });
            }
        }
    }
    let all = names.into_iter().zip(wires).enumerate();
    all.map(|(index, (name, wires))| profile.switch(name, (first + index) as u32, &wires)).collect()
}

/// Why a shape cannot be built: a sentence.
pub fn build(shape: Shape, parts: &Parts) -> Result<Network, String> {
    let mut b = Builder { parts, hosts: Vec::new(), switches: Vec::new(), trunks: Vec::new() };
    let positive = |name: &str, n: u32| {
        if n == 0 { Err(format!("{name}: expected at least 1, found 0")) } else { Ok(()) }
    };
    match shape {
        Shape::Pair => return Ok(pair(parts)),
        Shape::Star { hosts } => {
            positive("hosts", hosts)?;
            let s = b.switch("s0".to_owned());
            b.hosts(s, hosts);
        }
        Shape::Dumbbell { left, right } => {
            positive("left", left)?;
            positive("right", right)?;
            let (l, r) = (b.switch("left".to_owned()), b.switch("right".to_owned()));
            b.hosts(l, left);
            b.hosts(r, right);
            b.trunk(l, r);
        }
        Shape::ParkingLot { switches, hosts } => {
            positive("switches", switches)?;
            row(&mut b, switches, hosts);
        }
        Shape::Ring { switches, hosts } => {
            if switches < 3 {
                return Err(format!("switches: a ring has at least 3, found {switches}"));
            }
            row(&mut b, switches, hosts);
            b.trunk(switches - 1, 0);
        }
        Shape::LeafSpine { leaves, spines, hosts } => {
            positive("leaves", leaves)?;
            positive("spines", spines)?;
            leaf_spine(&mut b, leaves, spines, |b, leaf| b.hosts(leaf, hosts));
        }
        Shape::FatTree { k } => fat_tree(&mut b, k)?,
        Shape::Rail { servers, rails, group, spines } => {
            for (name, n) in [("servers", servers), ("rails", rails), ("group", group)] {
                positive(name, n)?;
            }
            positive("spines", spines)?;
            rail(&mut b, servers, rails, (group, spines));
        }
    }
    Ok(b.build())
}

fn pair(parts: &Parts) -> Network {
    let host = |name: &str| HostSpec {
        name: name.to_owned(),
        address: None,
        nic: parts.nic.clone(),
        storm: None,
    };
    let Wire { rate, delay } = parts.access;
    Network {
        hosts: vec![host("h0"), host("h1")],
        cables: vec![Cable { rate, delay, ..Cable::PERFECT }],
        ..Network::default()
    }
}

fn row(b: &mut Builder<'_>, switches: u32, hosts: u32) {
    for index in 0..switches {
        let s = b.switch(format!("s{index}"));
        b.hosts(s, hosts);
        if s > 0 {
            b.trunk(s - 1, s);
        }
    }
}

fn leaf_spine(
    b: &mut Builder<'_>,
    leaves: u32,
    spines: u32,
    mut populate: impl FnMut(&mut Builder<'_>, u32),
) {
    for index in 0..leaves {
        let leaf = b.switch(format!("leaf{index}"));
        populate(b, leaf);
    }
    for index in 0..spines {
        let spine = b.switch(format!("spine{index}"));
        for leaf in 0..leaves {
            b.trunk(leaf, spine);
        }
    }
}

fn fat_tree(b: &mut Builder<'_>, k: u32) -> Result<(), String> {
    if k < 2 || !k.is_multiple_of(2) || k > 256 {
        return Err(format!("k: expected an even number from 2 to 256, found {k}"));
    }
    let half = k / 2;
    let mut aggregations = Vec::new();
    for pod in 0..k {
        let edges: Vec<u32> = (0..half).map(|e| b.switch(format!("edge{pod}.{e}"))).collect();
        let above: Vec<u32> = (0..half).map(|a| b.switch(format!("agg{pod}.{a}"))).collect();
        for &edge in &edges {
            b.hosts(edge, half);
            for &aggregation in &above {
                b.trunk(edge, aggregation);
            }
        }
        aggregations.push(above);
    }
    for column in 0..half {
        for index in 0..half {
            let core = b.switch(format!("core{column}.{index}"));
            for pod in &aggregations {
                b.trunk(pod[column as usize], core);
            }
        }
    }
    Ok(())
}

/// NIC `r` of server `s` is the host `s<s>.r<r>`.
fn rail(b: &mut Builder<'_>, servers: u32, rails: u32, (group, spines): (u32, u32)) {
    let groups = servers.div_ceil(group);
    leaf_spine(b, groups * rails, spines, |_, _| {});
    for server in 0..servers {
        for rail in 0..rails {
            let leaf = server / group * rails + rail;
            b.hosts.push((format!("s{server}.r{rail}"), leaf));
        }
    }
}
