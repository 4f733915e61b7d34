//! D6 and D7 of the published results: a victim of pauses, and how DCQCN frees it. Five senders on
//! one switch, a trunk of four times their rate; four send to one sink, the fifth to another.

use engine::{Congestion, Control, Dcqcn, Notification};
use sim::profile::{EcnRule, Marking, SwitchProfile};
use sim::workload::{Manner, Planner};
use sim::{Cable, Framing, HostSpec, Limits, Network, NicSpec, NodeId, Outcome, Plan, World};
use switch::EcnAt;
use wire::{Instant, Mtu, Rate, Span};

/// Payload of each flow, in bytes.
const BYTES: u64 = 40_000_000;
const NIC: Rate = Rate::from_gbps(100);

/// The network of these two results; packets are those of the simulator that gave them: 1000 bytes
/// of payload behind 48 of headers.
fn network(control: Control) -> Network {
    let nic = NicSpec {
        mtu: Mtu::B1024,
        ack_delay: Span::ZERO,
        segment: Some(1000),
        ack_interval: engine::limits::ACK_INTERVAL,
        acks_apart: false,
        congestion: Congestion {
            control,
            line: NIC,
            notification: Notification { spacing: Span::ZERO, ..Notification::VENDOR },
            overhead: Some(48),
        },
    };
    let host = |i| HostSpec { name: format!("h{i}"), address: None, nic: nic.clone(), storm: None };
    let cable = |a, b, gbps| Cable {
        a: NodeId(a),
        b: NodeId(b),
        rate: Rate::from_gbps(gbps),
        delay: Span::from_us(1),
        ..Cable::PERFECT
    };
    let mut cables: Vec<_> = (0..5).map(|h| cable(h, 7, 100)).collect();
    cables.extend([cable(5, 8, 100), cable(6, 8, 100), cable(7, 8, 400)]);
    let mut network = Network {
        hosts: (0..7).map(host).collect(),
        cables,
        framing: Framing::Hpcc,
        ..Network::default()
    };
    let rule = EcnRule { kmin: 4_000, kmax: 16_000, pmax_ppb: 200_000_000, at: EcnAt::Dequeue };
    let profile = SwitchProfile::hpcc(4 << 20, NIC, Marking::PerGbps(rule));
    let names = vec!["left".to_owned(), "right".to_owned()];
    network.switches = sim::topology::dress(&network, names, &profile);
    network
}

fn run(control: Control, threads: usize) -> Outcome {
    let network = network(control);
    let mut plan = Plan::default();
    let mut planner = Planner::new(&mut plan, Manner::default(), 1, 0);
    let hosts: Vec<_> = (0..5).map(NodeId).collect();
    planner.incast(&hosts[..4], NodeId(5), BYTES);
    planner.stream(hosts[4], NodeId(6), BYTES, (0, 1));
    let world = World::new(&network, &plan, 1).expect("a world");
    let limits = Limits { until: Instant::from_ns(500_000_000), threads };
    let outcome = world.run(limits, &mut |_, _| {});
    assert_eq!(outcome.unfinished, 0);
    outcome
}

/// Payload rate of flow `index`, in Gb/s.
fn gbps(outcome: &Outcome, index: usize) -> f64 {
    let time = outcome.flows[index].completion_time().expect("an end");
    BYTES as f64 * 8.0 / (time.as_ps() as f64 / 1e3)
}

fn stops(outcome: &Outcome) -> usize {
    outcome.pauses.iter().filter(|pause| pause.stops).count()
}

#[test]
fn d6_pauses_hold_the_victim_to_the_rate_of_the_incast() {
    let outcome = run(Control::None, 1);
    let rates: Vec<f64> = (0..5).map(|i| gbps(&outcome, i)).collect();
    eprintln!("D6: {rates:.2?} Gb/s, {} pauses, {} events", stops(&outcome), outcome.events);
    for rate in &rates {
        assert!((rate / 24.3 - 1.0).abs() < 0.05, "{rates:?}");
    }
    assert!((4000..16_000).contains(&stops(&outcome)), "{}", stops(&outcome));
    let dropped = outcome.switches.iter().flatten().flat_map(|p| p.dropped.values()).sum::<u64>();
    assert_eq!(dropped, 0);
}

#[test]
fn d7_dcqcn_frees_the_victim() {
    let dcqcn = Dcqcn {
        rpg_ai_rate: Rate::from_bps(20_000_000),
        rpg_hai_rate: Rate::from_bps(200_000_000),
        rpg_min_rate: Rate::from_bps(100_000_000),
        ..Dcqcn::hpcc_sim(NIC)
    };
    let outcome = run(Control::Dcqcn(dcqcn), 1);
    let rates: Vec<f64> = (0..5).map(|i| gbps(&outcome, i)).collect();
    eprintln!("D7: {rates:.2?} Gb/s, {} pauses, {} events", stops(&outcome), outcome.events);
    assert!((rates[4] / 96.1 - 1.0).abs() < 0.02, "{rates:?}");
    assert!(stops(&outcome) <= 10, "{} pauses", stops(&outcome));
}

#[test]
fn two_runs_and_any_number_of_threads_are_the_same() {
    let one = run(Control::None, 1);
    assert!(one == run(Control::None, 1));
    assert!(one == run(Control::None, 2));
}
