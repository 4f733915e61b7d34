//! D18: "RDMA over Commodity Ethernet at Scale" (SIGCOMM 2016), section 4.3: one NIC sends pauses
//! for ever. Without a watchdog everything that shares a switch with it stops in the end; with one,
//! the others go on.

use engine::{Control, Notification};
use sim::profile::SwitchProfile;
use sim::workload::{Manner, Planner};
use sim::{Limits, NodeId, Outcome, Plan, World};
use switch::Watchdog;
use wire::Instant;

use crate::{WIRE, nic, star};

/// Flow 0 goes to the host that storms from 1 ms on, and shares its sender with flow 1.
fn run(watchdog: Option<Watchdog>, until_ms: u64) -> Outcome {
    let nic = nic(WIRE.rate, Control::None, Notification::VENDOR);
    let mut network = star(6, WIRE, &nic, &SwitchProfile::shared(2_000_000));
    network.hosts[0].storm = Some(Instant::from_ns(1_000_000));
    network.switches[0].options.watchdog = watchdog;
    let mut plan = Plan::default();
    let manner = Manner { timeout: 0, ..Manner::default() };
    let mut planner = Planner::new(&mut plan, manner, 1, 0);
    planner.stream(NodeId(1), NodeId(0), 1 << 40, (0, 1));
    planner.stream(NodeId(1), NodeId(2), 1 << 40, (0, 1));
    planner.stream(NodeId(3), NodeId(4), 1 << 40, (0, 1));
    let world = World::new(&network, &plan, 1).expect("a world");
    world.run(Limits { until: Instant::from_ns(until_ms * 1_000_000), threads: 1 }, &mut |_, _| {})
}

/// Payload that host 2 takes between two times, as a part of what its cable carries.
fn share(watchdog: Option<Watchdog>, from_ms: u64, to_ms: u64) -> f64 {
    let bytes = |until| run(watchdog, until).hosts[2].rx_bytes as f64;
    let full = 40e9 / 8.0 * 1000.0 / 1048.0 * (to_ms - from_ms) as f64 / 1e3;
    (bytes(to_ms) - bytes(from_ms)) / full
}

#[test]
fn d18_a_storm_of_pauses_stops_all_who_share_a_sender_with_it() {
    let without = share(None, 20, 30);
    // It acts 100 ms after the storm has begun, looking every 10 ms; 10 ms more are granted.
    let with = share(Some(Watchdog::MICROSOFT), 121, 131);
    eprintln!(
        "D18: a flow beside the storm's: {without:.3} without, {with:.3} with a watchdog (of 0.5)"
    );
    assert!(without < 0.01, "{without}");
    // The flow to the storm's host goes on to be sent, and dropped: half is what the other has.
    assert!(with > 0.95 * 0.5, "{with}");
}
