//! Accounts are kept whatever happens: random frames, pauses, links that fail and time that passes
//! end, once drained, with an empty buffer and every frame sent or counted; twice the same is the
//! same.

mod rig;

use std::collections::BTreeMap;

use proptest::prelude::*;
use rig::{at, config, gid, hop, packet};
use switch::{
    Alpha, Balance, Bandwidth, Content, EcnAt, EcnProfile, Frame, Options, Scheduling, StormAction,
    Switch, SwitchEvent, Watchdog,
};
use wire::mac_control::{MacControl, Pfc};
use wire::{Instant, Mac, Span};

const PORTS: u16 = 4;

#[derive(Clone, Debug)]
enum Step {
    Packet { port: u16, to: u8, priority: u8, length: u32, hop_limit: u8 },
    Local { port: u16, to: u8, from: u8, length: u32 },
    Pause { port: u16, classes: u8, quanta: u16 },
    Link { port: u16, up: bool },
    Send { port: u16, frames: u8 },
    Wait { ns: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..PORTS + 1;
    let length =
        prop_oneof![8 => 60_u32..1600, 1 => Just(0), 1 => Just(u32::MAX), 1 => any::<u32>()];
    prop_oneof![
        8 => (port.clone(), 0..6_u8, 0..8_u8, length.clone(), any::<u8>()).prop_map(
            |(port, to, priority, length, hop_limit)| {
                Step::Packet { port, to, priority, length, hop_limit }
            }
        ),
        2 => (port.clone(), 0..9_u8, 0..6_u8, length)
            .prop_map(|(port, to, from, length)| Step::Local { port, to, from, length }),
        2 => (port.clone(), any::<u8>(), any::<u16>())
            .prop_map(|(port, classes, quanta)| Step::Pause { port, classes, quanta }),
        1 => (port.clone(), any::<bool>()).prop_map(|(port, up)| Step::Link { port, up }),
        3 => (port, any::<u8>()).prop_map(|(port, frames)| Step::Send { port, frames }),
        2 => any::<u32>().prop_map(|ns| Step::Wait { ns: ns % 400_000 }),
    ]
}

fn build(total: u64, cell: u32, balance: Balance) -> Switch<u64> {
    let mut config = config(usize::from(PORTS), total, 6_000);
    config.buffer.cell = cell;
    config.buffer.egress_alpha = Some(Alpha { numerator: 1, denominator: 2 });
    for (index, port) in config.ports.iter_mut().enumerate() {
        port.scheduling = [Scheduling::Weighted(Bandwidth(1 + index as u8)); 8];
        port.scheduling[6] = Scheduling::Strict;
        port.link_pause = index == 2;
        port.pfc[4] = port.pfc[3].map(|mut pfc| {
            pfc.xoff = Some(5_000);
            pfc
        });
        let at = if index % 2 == 0 { EcnAt::Enqueue } else { EcnAt::Dequeue };
        let ecn =
            EcnProfile { kmin: 1_000, kmax: 9_000, pmax_ppb: 500_000_000, at, average_shift: 1 };
        port.ecn = [Some(ecn); 8];
    }
    let us = Span::from_us;
    let watchdog = Watchdog {
        poll: us(100),
        detection: us(200),
        restoration: us(100),
        action: StormAction::Drop,
    };
    let options = Options {
        watchdog: Some(watchdog),
        mirrors: vec![switch::Mirror { of: 1, to: 3 }],
        ..Options::default()
    };
    let mut switch = Switch::with_options(config, options).expect("a configuration that works");
    for port in 0..PORTS {
        switch.set_route(gid(port as u8), 128, vec![hop(port)]);
    }
    switch.set_route(gid(4), 128, vec![hop(0), hop(1), hop(2), hop(3)]);
    switch.set_balance(balance);
    switch
}

/// What is seen from outside.
#[derive(Clone, PartialEq, Debug, Default)]
struct Seen {
    frames: Vec<(u16, Frame<u64>)>,
    events: Vec<SwitchEvent>,
}

fn run(switch: &mut Switch<u64>, steps: &[Step]) -> Seen {
    let (mut now, mut seen, mut stamp) = (at(0), Seen::default(), 0);
    for step in steps {
        match step.clone() {
            Step::Packet { port, to, priority, length, hop_limit } => {
                stamp += 1;
                let mut frame = packet(to, priority, length);
                frame.header.net.as_mut().expect("a packet").hop_limit = hop_limit;
                frame.content = Content::Data(stamp);
                switch.receive(now, port, frame);
            }
            Step::Local { port, to, from, length } => {
                stamp += 1;
                let mut frame = packet(0, 0, length);
                frame.header.net = None;
                frame.header.tag = Some((0, from));
                frame.header.source = Mac([2, 7, 0, 0, 0, from]);
                frame.header.destination = Mac([2, 7, 0, 0, 0, to]);
                frame.content = Content::Data(stamp);
                switch.receive(now, port, frame);
            }
            Step::Pause { port, classes, quanta } => {
                let pfc = Pfc { classes: u16::from(classes), quanta: [quanta; 8] };
                let control = MacControl::Pfc(pfc);
                let control = if classes == 7 { MacControl::Pause { quanta } } else { control };
                switch.receive(now, port, Box::new(Frame::control(Mac([2; 6]), control)));
            }
            Step::Link { port, up } => switch.handle_link(now, port, up),
            Step::Send { port, frames } => send(switch, now, port, frames.into(), &mut seen),
            Step::Wait { ns } => {
                now = now + Span::from_ns(ns.into());
                switch.handle_timeout(now);
            }
        }
        seen.events.extend(std::iter::from_fn(|| switch.poll_event()));
        while switch.poll_port().is_some() {}
    }
    // All links up, all pauses over, nothing held by the watchdog.
    for round in 0..4 {
        for port in 0..PORTS {
            switch.handle_link(now, port, true);
        }
        now = now + Span::from_ms(10 * (round + 1));
        switch.handle_timeout(now);
        for port in (0..PORTS).rev() {
            send(switch, now, port, usize::MAX, &mut seen);
        }
    }
    seen
}

fn send(switch: &mut Switch<u64>, now: Instant, port: u16, frames: usize, seen: &mut Seen) {
    for _ in 0..frames {
        let Some(frame) = switch.poll_transmit(now, port) else { return };
        seen.frames.push((port, *frame));
    }
}

/// Frames with each stamp that have been sent.
fn copies(seen: &Seen) -> BTreeMap<u64, u64> {
    let mut copies = BTreeMap::new();
    for (_, frame) in &seen.frames {
        if let Content::Data(stamp) = frame.content {
            *copies.entry(stamp).or_default() += 1;
        }
    }
    copies
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn accounts_are_kept(
        steps in prop::collection::vec(step(), 0..300),
        total in 100_000_u64..400_000,
        cell in 0_u32..300,
        how in 0..5,
    ) {
        let balance = match how {
            0 => Balance::Flow,
            1 => Balance::FlowHpcc,
            2 => Balance::Packet,
            3 => Balance::Spray,
            _ => Balance::Flowlet(Span::from_us(10)),
        };
        let mut switch = build(total, cell, balance);
        let seen = run(&mut switch, &steps);
        for port in 0..PORTS {
            for priority in 0..8 {
                prop_assert_eq!(switch.ingress_bytes(port, priority), 0);
                prop_assert_eq!(switch.egress_bytes(port, priority), 0);
                prop_assert!(!switch.stops(port, priority));
            }
            prop_assert!(switch.holds(port, 3).is_empty());
        }
        prop_assert_eq!(switch.shared_bytes(), 0);

        // Every data frame that came to a port was sent or is counted as dropped.
        let mut came = 0;
        let stamped = |step: &&Step| matches!(step, Step::Packet { .. } | Step::Local { .. });
        for step in steps.iter().filter(stamped) {
            let (Step::Packet { port, .. } | Step::Local { port, .. }) = step else { continue };
            came += u64::from(*port < PORTS);
        }
        let counters = |port| switch.counters(port).expect("a port");
        let causes = (0..PORTS).flat_map(|port| &counters(port).dropped);
        let dropped: u64 = causes
            .filter(|(cause, _)| **cause != switch::DropCause::Mirror)
            .map(|(_, count)| count)
            .sum();
        let went = copies(&seen).len() as u64;
        prop_assert!(went <= came && came <= went + dropped, "{came} came, {went} went, {dropped}");

        let mut again = build(total, cell, balance);
        prop_assert_eq!(run(&mut again, &steps), seen);
    }
}
