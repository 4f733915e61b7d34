//! Addresses and shortest paths: which next hops lead from each switch to the hosts behind each
//! access switch.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use wire::Gid;

use crate::network::{Network, NodeId, PortEnd};

/// Hosts behind one access switch, in one block of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The switch; none: hosts that are cabled to each other.
    pub(crate) switch: Option<NodeId>,
    pub(crate) hosts: Vec<u32>,
    pub(crate) prefix: Gid,
    /// Leading bits of 128 that all its addresses share.
    pub(crate) bits: u8,
}

/// Assigns addresses: hosts of one switch lie in one block.
pub(crate) fn assign(network: &Network, ports: &[Vec<PortEnd>]) -> (Vec<Gid>, Vec<Block>) {
    let mut gids = vec![Gid([0; 16]); network.hosts.len()];
    let mut blocks: Vec<Block> = Vec::new();
    let mut of_switch = vec![usize::MAX; network.nodes()];
    for (host, ends) in ports.iter().enumerate().take(network.hosts.len()) {
        let access = ends.first().map(|end| end.peer).filter(|n| !network.is_host(*n));
        let place = access.map_or(usize::MAX, |n| of_switch[n.0 as usize]);
        match blocks.get_mut(place) {
            Some(block) => block.hosts.push(host as u32),
            None => {
                if let Some(node) = access {
                    of_switch[node.0 as usize] = blocks.len();
                }
                let hosts = vec![host as u32];
                blocks.push(Block { switch: access, hosts, prefix: Gid([0; 16]), bits: 128 });
            }
        }
    }
    let mut next = 0x0A00_0000_u64;
    for block in &mut blocks {
        let size = (block.hosts.len() as u64 + 2).next_power_of_two();
        next = next.next_multiple_of(size);
        let v4 = |n: u64| Gid::from_ip(IpAddr::V4(Ipv4Addr::from(n as u32)));
        block.prefix = v4(next);
        block.bits = 128 - size.trailing_zeros() as u8;
        for (index, &host) in block.hosts.iter().enumerate() {
            let given = network.hosts[host as usize].address;
            gids[host as usize] = given.map_or(v4(next + 1 + index as u64), Gid::from_ip);
        }
        next += size;
    }
    (gids, blocks)
}

/// For each switch, in order: the ports that lead on a shortest path to `to`, by the number of the
/// node there; empty where none does.
pub(crate) fn towards(network: &Network, ports: &[Vec<PortEnd>], to: NodeId) -> Vec<Vec<u16>> {
    let mut distance = vec![u32::MAX; network.nodes()];
    distance[to.0 as usize] = 0;
    let mut queue = VecDeque::from([to]);
    while let Some(node) = queue.pop_front() {
        for end in &ports[node.0 as usize] {
            let peer = end.peer.0 as usize;
            // Hosts do not forward.
            if distance[peer] == u32::MAX && !network.is_host(end.peer) {
                distance[peer] = distance[node.0 as usize] + 1;
                queue.push_back(end.peer);
            }
        }
    }
    let hosts = network.hosts.len();
    let of = |index: usize| {
        let own = distance[hosts + index];
        let nearer = |end: &PortEnd| {
            let far = distance[end.peer.0 as usize];
            far != u32::MAX && own != u32::MAX && far + 1 == own
        };
        let all = ports[hosts + index].iter().enumerate();
        let mut found: Vec<_> = all.filter(|(_, end)| nearer(end)).collect();
        found.sort_by_key(|(port, end)| (end.peer, *port));
        found.into_iter().map(|(port, _)| port as u16).collect()
    };
    (0..network.switches.len()).map(of).collect()
}
