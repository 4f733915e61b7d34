//! Published results that the simulator reproduces, each with its value beside the tolerance. The
//! letters are those of `docs/validation.md`.

mod collective;
mod fair;
mod fluid;
mod looped;
mod loss;
mod storm;

use engine::{Congestion, Control, Notification};
use sim::profile::SwitchProfile;
use sim::{Cable, Framing, HostSpec, Network, NicSpec, NodeId};
use wire::{Rate, Span};

/// A NIC with packets of `segment` bytes of payload behind 48 of headers.
fn nic(line: Rate, control: Control, notification: Notification) -> NicSpec {
    NicSpec {
        segment: Some(1000),
        congestion: Congestion { control, line, notification, overhead: Some(48) },
        ..NicSpec::default()
    }
}

/// Hosts on one switch.
fn star(hosts: u32, cable: Cable, nic: &NicSpec, profile: &SwitchProfile) -> Network {
    let host = |i| HostSpec { name: format!("h{i}"), address: None, nic: nic.clone(), storm: None };
    let cable = |h| Cable { a: NodeId(h), b: NodeId(hosts), ..cable };
    let mut network = Network {
        hosts: (0..hosts).map(host).collect(),
        cables: (0..hosts).map(cable).collect(),
        framing: Framing::Hpcc,
        ..Network::default()
    };
    network.switches = sim::topology::dress(&network, vec!["s".to_owned()], profile);
    network
}

const WIRE: Cable = Cable { rate: Rate::from_gbps(40), delay: Span::from_us(1), ..Cable::PERFECT };
