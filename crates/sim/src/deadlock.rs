//! Who waits for whom: a ring of ports that stop each other never moves again, whatever the senders
//! do.

use std::collections::BTreeMap;

use wire::Instant;

use crate::network::NodeId;
use crate::switching::Switching;

/// A port's priority that may not send.
type Place = (u32, u16, u8);

/// A ring of ports, each stopped by the next one's switch, whose bytes wait for the next port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// The priority.
    pub priority: u8,
    /// The egress ports, in the order in which they wait for each other.
    pub ports: Vec<(NodeId, u16)>,
}

/// The first ring among the switches, if there is one.
pub(crate) fn find(now: Instant, switches: &BTreeMap<u32, &Switching>) -> Option<Ring> {
    let mut waits: BTreeMap<Place, Vec<Place>> = BTreeMap::new();
    for (&node, at) in switches {
        for (port, sender) in at.senders.iter().enumerate() {
            for priority in 0..8 {
                let port = port as u16;
                if !at.switch.is_stopped(now, port, priority) {
                    continue;
                }
                let (peer, peer_port) = sender.peer;
                let Some(next) = switches.get(&peer) else { continue };
                let held = next.switch.holds(peer_port, priority).into_iter();
                let stopped = held.filter(|&p| next.switch.is_stopped(now, p, priority));
                let places = stopped.map(|p| (peer, p, priority)).collect();
                waits.insert((node, port, priority), places);
            }
        }
    }
    // Places without a way out are taken away until only rings, and what leads to them, are left.
    loop {
        let known: Vec<Place> = waits.keys().copied().collect();
        let before = known.len();
        for places in waits.values_mut() {
            places.retain(|place| known.binary_search(place).is_ok());
        }
        waits.retain(|_, places| !places.is_empty());
        if waits.len() == before {
            break;
        }
    }
    let mut place = *waits.keys().next()?;
    let mut seen: Vec<Place> = Vec::new();
    while !seen.contains(&place) {
        seen.push(place);
        place = *waits.get(&place)?.first()?;
    }
    let begin = seen.iter().position(|p| *p == place)?;
    let ports = seen[begin..].iter().map(|&(node, port, _)| (NodeId(node), port)).collect();
    Some(Ring { priority: place.2, ports })
}
