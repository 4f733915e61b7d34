//! D16: packets in a routing loop ("Deadlocks in Datacenter Networks", HotNets 2016): n switches,
//! links of rate B, packets with a TTL injected at a rate r. Each takes TTL hops of n × B: with PFC
//! the loop deadlocks if, and only if, r > n × B / TTL: 5 Gb/s for two switches at 40 Gb/s and 16.

use engine::{Control, Notification};
use sim::profile::SwitchProfile;
use sim::workload::{Manner, Planner};
use sim::{Cable, Framing, HostSpec, Limits, Network, NodeId, Outcome, Plan, Route, World};
use switch::DropCause;
use wire::{Instant, Rate};

use crate::{WIRE, nic};

/// A host sends to one whose address two switches send to each other.
fn run(mbps: u64) -> Outcome {
    let nic = nic(Rate::from_bps(mbps * 1_000_000), Control::None, Notification::VENDOR);
    let host = |name: &str| HostSpec {
        name: name.to_owned(),
        address: None,
        nic: nic.clone(),
        storm: None,
    };
    let cable = |a, b, rate| Cable { a: NodeId(a), b: NodeId(b), rate, ..WIRE };
    let slow = Rate::from_bps(mbps * 1_000_000);
    let mut network = Network {
        hosts: vec![host("from"), host("to")],
        cables: vec![cable(0, 2, slow), cable(2, 3, WIRE.rate), cable(3, 1, slow)],
        framing: Framing::Hpcc,
        routes: vec![
            Route { switch: NodeId(2), to: NodeId(1), ports: vec![1] },
            Route { switch: NodeId(3), to: NodeId(1), ports: vec![0] },
        ],
        ..Network::default()
    };
    let names = vec!["s".to_owned(), "t".to_owned()];
    let profile = SwitchProfile::shared(2_000_000);
    network.switches = sim::topology::dress(&network, names, &profile);
    let mut plan = Plan::default();
    let manner = Manner { timeout: 0, ..Manner::default() };
    let mut planner = Planner::new(&mut plan, manner, 1, 0);
    planner.stream(NodeId(0), NodeId(1), 1 << 40, (0, 1));
    plan.connections[0].hop_limit = 16;
    let world = World::new(&network, &plan, 1).expect("a world");
    world.run(Limits { until: Instant::from_ns(50_000_000), threads: 1 }, &mut |_, _| {})
}

#[test]
fn d16_a_loop_deadlocks_beyond_its_threshold_and_not_below() {
    let below = run(4_500);
    let ended = |o: &Outcome| {
        let ports = o.switches.iter().flatten();
        ports.filter_map(|port| port.dropped.get(&DropCause::HopLimit)).sum::<u64>()
    };
    eprintln!("D16: 4.5 Gb/s: ring {:?}, {} packets died of their TTL", below.ring, ended(&below));
    assert_eq!(below.ring, None);
    // 4.5 Gb/s of 1048 bytes for 50 ms.
    assert!(ended(&below) > 26_000, "{}", ended(&below));
    let beyond = run(5_500);
    eprintln!("D16: 5.5 Gb/s: ring {:?}, {} died", beyond.ring, ended(&beyond));
    let ring = beyond.ring.as_ref().expect("a ring of ports that stop each other");
    assert_eq!(ring.ports.len(), 2);
    assert!(ended(&beyond) < 20_000, "all stands still");
}
