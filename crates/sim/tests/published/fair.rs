//! D4 and D5 (DCQCN, SIGCOMM 2015, section 2): who shares a bottleneck under PFC alone, and who
//! suffers from it without sharing it. A Clos network of four racks at 40 Gb/s: four ToRs, two
//! pods of two leaves, two spines.

use engine::{Control, Dcqcn, Notification};
use sim::profile::SwitchProfile;
use sim::workload::{Manner, Planner};
use sim::{Cable, Framing, HostSpec, Limits, Network, NodeId, Outcome, Plan, World};
use wire::Instant;

use crate::{WIRE, nic};

/// Hosts at each ToR.
const HOSTS: u32 = 5;
/// How long a run is, in nanoseconds.
const RUN: u64 = 20_000_000;

/// The network; host `n` of rack `r` is node `r * HOSTS + n`.
fn clos(control: Control) -> Network {
    let nic = nic(WIRE.rate, control, Notification::PAPER);
    let host = |i| HostSpec { name: format!("h{i}"), address: None, nic: nic.clone(), storm: None };
    let hosts = 4 * HOSTS;
    let cable = |a, b| Cable { a: NodeId(a), b: NodeId(b), ..WIRE };
    let mut cables: Vec<Cable> = (0..hosts).map(|h| cable(h, hosts + h / HOSTS)).collect();
    let (tor, leaf, spine) = (hosts, hosts + 4, hosts + 8);
    for t in 0..4 {
        cables.extend((0..2).map(|l| cable(tor + t, leaf + t / 2 * 2 + l)));
    }
    for l in 0..4 {
        cables.extend((0..2).map(|s| cable(leaf + l, spine + s)));
    }
    let mut network = Network {
        hosts: (0..hosts).map(host).collect(),
        cables,
        framing: Framing::Hpcc,
        ..Network::default()
    };
    let names = ["t1", "t2", "t3", "t4", "l1", "l2", "l3", "l4", "s1", "s2"];
    let profile = SwitchProfile::shared(12_000_000);
    network.switches = sim::topology::dress(&network, names.map(str::to_owned).to_vec(), &profile);
    network
}

/// Payload rates of the senders, in Gb/s, over the second half of a run.
fn rates(control: Control, flows: &[(u32, u32)], seed: u64) -> Vec<f64> {
    let run = |until: u64| -> Outcome {
        let network = clos(control);
        let mut plan = Plan::default();
        let mut planner = Planner::new(&mut plan, Manner::default(), seed, 0);
        for &(from, to) in flows {
            planner.stream(NodeId(from), NodeId(to), 1 << 40, (0, 1));
        }
        let world = World::new(&network, &plan, seed).expect("a world");
        world.run(Limits { until: Instant::from_ns(until), threads: 1 }, &mut |_, _| {})
    };
    let (half, whole) = (run(RUN / 2), run(RUN));
    let sent = |o: &Outcome, from: u32| o.hosts[from as usize].tx_bytes as f64;
    let rate = |from: u32| (sent(&whole, from) - sent(&half, from)) * 8.0 / (RUN / 2) as f64;
    flows.iter().map(|&(from, _)| rate(from)).collect()
}

fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|r| r * r).sum::<f64>())
}

const RECEIVER: u32 = 3 * HOSTS;
/// One from each other rack, and the last from the receiver's own.
const UNFAIR: [(u32, u32); 4] =
    [(0, RECEIVER), (HOSTS, RECEIVER), (2 * HOSTS, RECEIVER), (RECEIVER + 1, RECEIVER)];

#[test]
fn d4_pauses_favour_the_sender_beside_the_receiver() {
    for seed in 1..4 {
        let pfc = rates(Control::None, &UNFAIR, seed);
        eprintln!("D4: PFC alone, seed {seed}: {pfc:.2?} Gb/s, the last is local");
        // Three remote ones come by two ports: one may have a port alone, as the local one has.
        let most = pfc[..3].iter().copied().fold(0.0, f64::max);
        let mean = pfc[..3].iter().sum::<f64>() / 3.0;
        assert!(pfc[3] > 0.99 * most && pfc[3] > 1.2 * mean, "{pfc:?}");
    }
}

#[test]
fn d4_dcqcn_is_fair() {
    let fair = rates(Control::Dcqcn(Dcqcn::PAPER), &UNFAIR, 1);
    eprintln!("D4: DCQCN: {fair:.2?} Gb/s, Jain's index {:.4}", jain(&fair));
    assert!(jain(&fair) > 0.98, "{fair:?}");
}

/// The victim's median rate with so many further senders in the third rack.
fn victim(control: Control, further: u32) -> f64 {
    let mut flows: Vec<_> = (0..4).map(|h| (h, RECEIVER)).collect();
    flows.push((4, HOSTS));
    flows.extend((0..further).map(|h| (2 * HOSTS + h, RECEIVER)));
    let mut all: Vec<f64> = (1..4).map(|seed| rates(control, &flows, seed)[4]).collect();
    all.sort_by(f64::total_cmp);
    all[1]
}

#[test]
fn d5_a_victim_suffers_from_senders_that_it_never_meets() {
    let pfc: Vec<f64> = (0..3).map(|n| victim(Control::None, n)).collect();
    let dcqcn: Vec<f64> = (0..3).map(|n| victim(Control::Dcqcn(Dcqcn::PAPER), n)).collect();
    eprintln!("D5: victim's median with 0, 1, 2 further senders: PFC {pfc:.2?}, DCQCN {dcqcn:.2?}");
    assert!(pfc[0] > pfc[1] && pfc[1] > pfc[2], "{pfc:?}");
    assert!(dcqcn.iter().zip(&pfc).all(|(with, without)| with > without), "{dcqcn:?} {pfc:?}");
}
