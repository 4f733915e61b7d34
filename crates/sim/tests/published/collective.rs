//! D21 (ASTRA-sim with ns-3, HotI 2022): for collectives on a Clos network the choice of congestion
//! control matters little. D14 (DCQCN+, ICNP 2018): how large an incast DCQCN still drains.

use engine::{Control, Dcqcn, Notification};
use sim::profile::SwitchProfile;
use sim::topology::{self, Parts, Shape, Wire};
use sim::workload::{AllReduce, Manner, Planner};
use sim::{Framing, Limits, NodeId, Plan, World};
use wire::{Instant, Rate};

use crate::{WIRE, nic, star};

fn all_reduce(control: Control, notification: Notification) -> f64 {
    let wire = Wire { rate: Rate::from_gbps(100), delay: WIRE.delay };
    let parts = Parts {
        access: wire,
        fabric: wire,
        nic: nic(wire.rate, control, notification),
        switch: SwitchProfile::shared(32_000_000),
    };
    let shape = Shape::LeafSpine { leaves: 4, spines: 4, hosts: 4 };
    let mut network = topology::build(shape, &parts).expect("a network");
    network.framing = Framing::Hpcc;
    let mut plan = Plan::default();
    let mut planner = Planner::new(&mut plan, Manner::default(), 1, 0);
    let ranks: Vec<NodeId> = (0..16).map(NodeId).collect();
    planner.all_reduce(&ranks, 16_000_000, AllReduce::Ring).expect("a ring");
    let world = World::new(&network, &plan, 1).expect("a world");
    let limits = Limits { until: Instant::from_ns(1_000_000_000), threads: 1 };
    let outcome = world.run(limits, &mut |_, _| {});
    assert_eq!(outcome.unfinished, 0);
    let ends = outcome.flows.iter().filter_map(|flow| flow.ended);
    ends.map(|at| at.as_ps() as f64 / 1e6).fold(0.0, f64::max)
}

#[test]
fn d21_a_ring_all_reduce_takes_much_the_same_under_each_control() {
    let none = all_reduce(Control::None, Notification::VENDOR);
    let paper = all_reduce(Control::Dcqcn(Dcqcn::PAPER), Notification::PAPER);
    let vendor = all_reduce(Control::Dcqcn(Dcqcn::VENDOR), Notification::VENDOR);
    eprintln!("D21: {none:.1} us under PFC alone, {paper:.1} (paper), {vendor:.1} (vendor)");
    let most = none.max(paper).max(vendor);
    let least = none.min(paper).min(vendor);
    assert!(most / least < 1.1, "{none} {paper} {vendor}");
}

/// Pauses in the second half of 60 ms of an incast of so many flows from 8 senders.
fn late_pauses(rate: Rate, dcqcn: Dcqcn, flows: u32) -> usize {
    let nic = nic(rate, Control::Dcqcn(dcqcn), Notification::PAPER);
    let wire = sim::Cable { rate, ..WIRE };
    let network = star(9, wire, &nic, &SwitchProfile::shared(2_000_000));
    let mut plan = Plan::default();
    let mut planner = Planner::new(&mut plan, Manner::default(), 1, 0);
    for flow in 0..flows {
        planner.manner.start = Instant::from_ns(u64::from(flow) * 20_000_000 / u64::from(flows));
        planner.stream(NodeId(1 + flow % 8), NodeId(0), 1 << 40, (0, 1));
    }
    let world = World::new(&network, &plan, 1).expect("a world");
    let limits = Limits { until: Instant::from_ns(60_000_000), threads: 1 };
    let outcome = world.run(limits, &mut |_, _| {});
    let late = |p: &&sim::PauseRecord| p.stops && p.at > 30_000_000_000;
    outcome.pauses.iter().filter(late).count()
}

#[test]
fn d14_an_incast_beyond_some_hundred_flows_does_not_drain() {
    let slow = Dcqcn { rpg_ai_rate: Rate::from_bps(10_000_000), ..Dcqcn::PAPER };
    let counts = [40, 80, 160, 320];
    let at_40 = counts.map(|n| late_pauses(WIRE.rate, Dcqcn::PAPER, n));
    let at_10 = counts.map(|n| late_pauses(Rate::from_gbps(10), slow, n));
    eprintln!("D14: pauses late in an incast of {counts:?} flows: 40G {at_40:?}, 10G {at_10:?}");
    // About 160 flows at 40 Gb/s and 80 at 10 Gb/s still drain: within a factor of two.
    assert_eq!((at_40[1], at_40[2] < 100, at_40[3] > 100), (0, true, true), "{at_40:?}");
    assert_eq!((at_10[0], at_10[2] > 100), (0, true), "{at_10:?}");
}
