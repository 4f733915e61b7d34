//! D3: "RDMA over Commodity Ethernet at Scale" (SIGCOMM 2016), section 4.1: every 256th packet is
//! lost. With go-back-N each loss wastes what is in flight when the NAK arrives.

use engine::{Control, Notification};
use sim::workload::{Manner, Planner};
use sim::{Cable, Framing, HostSpec, Limits, Network, NodeId, Plan, Verb, World};
use wire::{Instant, Span};

use crate::{WIRE, nic};

/// Bytes of a message: 4000 packets.
const MESSAGE: u64 = 4_000_000;
const MESSAGES: u64 = 25;

fn goodput(verb: Verb) -> f64 {
    let nic = nic(WIRE.rate, Control::None, Notification::VENDOR);
    let host = |name: &str| HostSpec {
        name: name.to_owned(),
        address: None,
        nic: nic.clone(),
        storm: None,
    };
    let network = Network {
        hosts: vec![host("a"), host("b")],
        cables: vec![Cable { drop_every: Some(256), ..WIRE }],
        framing: Framing::Hpcc,
        ..Network::default()
    };
    let mut plan = Plan::default();
    let manner = Manner { verb, ..Manner::default() };
    let mut planner = Planner::new(&mut plan, manner, 1, 0);
    planner.stream(NodeId(0), NodeId(1), MESSAGES * MESSAGE, (MESSAGE as u32, 4));
    let world = World::new(&network, &plan, 1).expect("a world");
    let limits = Limits { until: Instant::from_ns(1_000_000_000), threads: 1 };
    let outcome = world.run(limits, &mut |_, _| {});
    assert_eq!(outcome.unfinished, 0, "{verb:?}");
    let time = outcome.flows[0].completion_time().expect("an end");
    let alone = WIRE.rate.time_for(MESSAGES * MESSAGE / 1000 * 1048);
    alone.as_ps() as f64 / time.as_ps() as f64
}

#[test]
fn d3_go_back_n_wastes_a_round_trip_for_each_loss() {
    let packet = WIRE.rate.time_for(1048).as_ps();
    let nak = WIRE.rate.time_for(60).as_ps();
    // From the end of the lost packet until the NAK that the next one sets off.
    let until = packet + nak + 2 * Span::from_us(1).as_ps();
    let in_flight = until / packet + 1;
    let derived = (255.0 - in_flight as f64) / 256.0;
    for verb in [Verb::Write, Verb::Send] {
        let got = goodput(verb);
        eprintln!("D3: {verb:?}: goodput {got:.4}, derived {derived:.4} ({in_flight} in flight)");
        assert!((got / derived - 1.0).abs() < 0.05, "{got}, derived {derived}");
    }
}
