//! D15: the fixed point of DCQCN's fluid model ("ECN or Delay", CoNEXT 2016), with the paper's
//! parameters at 40 Gb/s and packets of 1000 bytes: all flows at C/N, the queue at
//! `Kmin + p*/Pmax × (Kmax - Kmin)`.

use engine::{Control, Dcqcn, Notification};
use sim::profile::{EcnRule, Marking, SwitchProfile};
use sim::workload::{Manner, Planner};
use sim::{Limits, NodeId, Plan, World};
use switch::EcnAt;
use wire::Instant;

use crate::{WIRE, nic, star};

/// How long a run is, and how much of it counts, at its end, in nanoseconds. (Over 20 ms a flow's
/// rate strays by a quarter: it is cut some forty times then, and each cut is drawn.)
const RUN: u64 = 240_000_000;
const WATCHED: u64 = 200_000_000;

/// Payload bytes that each sender has sent after so many nanoseconds, and the mean queue in bytes.
fn run(senders: u32, pmax_ppb: u32, until: u64) -> (Vec<u64>, u64) {
    let nic = nic(WIRE.rate, Control::Dcqcn(Dcqcn::PAPER), Notification::PAPER);
    let mut profile = SwitchProfile::shared(12_000_000);
    let rule = EcnRule { kmin: 5_000, kmax: 200_000, pmax_ppb, at: EcnAt::Enqueue };
    profile.marking[3] = Some(Marking::Same(rule));
    let network = star(senders + 1, WIRE, &nic, &profile);
    let mut plan = Plan::default();
    let mut planner = Planner::new(&mut plan, Manner::default(), 1, 0);
    let from: Vec<NodeId> = (1..=senders).map(NodeId).collect();
    planner.incast(&from, NodeId(0), 1 << 40);
    let mut world = World::new(&network, &plan, 1).expect("a world");
    world.watch_queues(Instant::from_ns(RUN - WATCHED));
    let limits = Limits { until: Instant::from_ns(until), threads: 1 };
    let outcome = world.run(limits, &mut |_, _| {});
    let sent = outcome.hosts[1..].iter().map(|nic| nic.tx_bytes).collect();
    (sent, outcome.queues[0][0])
}

fn check(senders: u32, pmax_ppb: u32, fixed_point: f64) {
    let (before, _) = run(senders, pmax_ppb, RUN - WATCHED);
    let (after, queue) = run(senders, pmax_ppb, RUN);
    let full = 40e9 / 8.0 * 1000.0 / 1048.0 * WATCHED as f64 / 1e9;
    let shares: Vec<f64> = before.iter().zip(&after).map(|(b, a)| (a - b) as f64 / full).collect();
    let ratio = queue as f64 / fixed_point;
    eprintln!(
        "D15: N = {senders}, Pmax = {} %: shares {shares:.4?}, mean queue {queue} B, {ratio:.2} of \
         the fluid model's {fixed_point} B",
        f64::from(pmax_ppb) / 1e7
    );
    let fair = 1.0 / f64::from(senders);
    // Each cut is a matter of chance: with more flows, each is cut more seldom.
    let part = if senders <= 4 { 0.05 } else { 0.1 };
    for share in shares {
        assert!((share / fair - 1.0).abs() < part, "a share of {share}, not {fair}");
    }
    assert!((0.5..2.0).contains(&ratio), "{queue} B, {ratio} of {fixed_point}");
}

#[test]
fn d15_few_flows_at_one_per_cent() {
    check(2, 10_000_000, 20_200.0);
    check(4, 10_000_000, 41_800.0);
}

#[test]
fn d15_flows_at_ten_per_cent() {
    check(2, 100_000_000, 6_500.0);
    check(4, 100_000_000, 8_700.0);
    check(8, 100_000_000, 13_900.0);
    check(10, 100_000_000, 16_800.0);
}
