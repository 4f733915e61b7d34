//! The thin thread: two hosts on one cable, with exact times.

use sim::{Cable, Connection, Flow, Framing, HostSpec, Limits, Network, NodeId, Plan, Verb, World};
use wire::{Instant, Rate, Span};

fn pair(framing: Framing) -> Network {
    let host = |name: &str| HostSpec {
        name: name.to_owned(),
        address: None,
        nic: sim::NicSpec::default(),
        storm: None,
    };
    Network {
        hosts: vec![host("a"), host("b")],
        cables: vec![Cable {
            a: NodeId(0),
            b: NodeId(1),
            rate: Rate::from_gbps(100),
            delay: Span::from_us(1),
            ..Cable::PERFECT
        }],
        framing,
        ..Network::default()
    }
}

fn connection(a: u32, b: u32) -> Connection {
    Connection {
        a: NodeId(a),
        b: NodeId(b),
        dscp: 26,
        priority: 0,
        flow_label: 0,
        ports: None,
        hop_limit: 0,
        opens: Instant::ZERO,
        timeout: 0,
        retries: 7,
    }
}

fn flow(bytes: u64) -> Flow {
    Flow {
        connection: 0,
        reverse: false,
        verb: Verb::Write,
        bytes,
        message: 0,
        depth: 1,
        start: Instant::ZERO,
        after: Vec::new(),
        think: Span::ZERO,
        group: 0,
    }
}

#[test]
fn a_write_takes_its_serialisation_time_and_the_way_back() {
    let plan = Plan { connections: vec![connection(0, 1)], flows: vec![flow(1024 * 1000)] };
    let world = World::new(&pair(Framing::Ethernet), &plan, 1).expect("a world");
    let limits = Limits { until: Instant::from_ns(1_000_000_000), threads: 1 };
    let outcome = world.run(limits, &mut |_, _| {});
    assert_eq!(outcome.unfinished, 0);
    // 14 + 20 + 8 + 12 + 1024 + 4 + 4 and 20 of preamble and gap; the first has a RETH.
    let data = 1000 * (1086 + 20) + 16;
    // 14 + 20 + 8 + 12 + 4 + 4 + 4 = 66, and 20.
    let ack = 66 + 20;
    let expected = Rate::from_gbps(100).time_for(data + ack) + Span::from_us(2);
    assert_eq!(outcome.flows[0].completion_time(), Some(expected));
}

#[test]
fn in_an_empty_network_a_flow_takes_the_ideal_time() {
    for bytes in [1, 1024, 5000, 1_000_000] {
        let network = pair(Framing::Ethernet);
        let plan = Plan { connections: vec![connection(0, 1)], flows: vec![flow(bytes)] };
        let ideal = sim::summary::Paths::new(&network).ideal(&plan, &plan.flows[0]);
        let world = World::new(&network, &plan, 1).expect("a world");
        let limits = Limits { until: Instant::from_ns(1_000_000_000), threads: 1 };
        let took = world.run(limits, &mut |_, _| {}).flows[0].completion_time().expect("an end");
        let slowdown = took.as_ps() as f64 / ideal.as_ps() as f64;
        assert!((slowdown - 1.0).abs() < 1e-3, "{bytes} bytes: {took:?} and {ideal:?}");
    }
}
