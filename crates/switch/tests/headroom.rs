//! Two switches back to back: five greedy senders at one, a slow sink behind the other. With the
//! headroom of the formula nothing is lost, with little less something is, and it is counted.

mod rig;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rig::{config, gid, hop, packet};
use switch::{Content, DropCause, Frame, Options, Switch, thresholds};
use wire::mac_control::{MacControl, pause_time};
use wire::{Instant, Rate, Span};

const SENDERS: u16 = 5;
/// The port of each switch that leads to the other; the second's port 0 leads to the sink.
const TRUNK: u16 = 5;
const LENGTH: u32 = 1518;
const MTU: u64 = 1522;
/// Preamble, start of frame and gap.
const GAP: u64 = 20;
const RATE: Rate = Rate::from_gbps(100);

/// A sender that always has a frame, and obeys pauses after some time.
struct Greedy {
    stopped: Option<Instant>,
}

struct Wires {
    switches: [Switch<u64>; 2],
    senders: Vec<Greedy>,
    /// Events: time, order, and what.
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    things: Vec<Option<Thing>>,
    busy: BTreeMap<(usize, u16), Instant>,
    delay: Span,
    reaction: Span,
    delivered: u64,
    sink_rate: Rate,
}

enum Thing {
    Arrive(usize, u16, Box<Frame<u64>>),
    Free(usize, u16),
    Wake(usize),
    Send(usize),
    Obey(usize, bool, Instant),
}

impl Wires {
    fn new(headroom: u64, delay: Span, reaction: Span, endless: bool) -> Self {
        let build = |ways: Vec<u16>| {
            let config = config(usize::from(SENDERS) + 1, 1 << 20, headroom);
            let options = Options { endless_pauses: endless, ..Options::default() };
            let mut switch = Switch::with_options(config, options).expect("it works");
            switch.set_route(gid(1), 128, ways.into_iter().map(hop).collect());
            switch
        };
        Self {
            switches: [build(vec![TRUNK]), build(vec![0])],
            senders: (0..SENDERS).map(|_| Greedy { stopped: None }).collect(),
            events: BinaryHeap::new(),
            things: Vec::new(),
            busy: BTreeMap::new(),
            delay,
            reaction,
            delivered: 0,
            sink_rate: Rate::from_gbps(10),
        }
    }

    fn at(&mut self, at: Instant, thing: Thing) {
        let order = self.things.len();
        self.things.push(Some(thing));
        self.events.push(Reverse((at.as_ps(), order as u64, order)));
    }

    fn pump(&mut self, now: Instant, node: usize, port: u16) {
        if self.busy.get(&(node, port)).is_some_and(|until| now.is_before(*until)) {
            return;
        }
        let Some(mut frame) = self.switches[node].poll_transmit(now, port) else { return };
        let rate = if (node, port) == (1, 0) { self.sink_rate } else { RATE };
        let end = now + rate.time_for(u64::from(frame.length) + GAP);
        self.busy.insert((node, port), end);
        self.at(end, Thing::Free(node, port));
        let arrival = end + self.delay;
        match (node, port) {
            (0, TRUNK) => {
                frame.header.destination = rig::MAC;
                self.at(arrival, Thing::Arrive(1, TRUNK, frame));
            }
            // The peer's switch takes its reaction time as well.
            (1, TRUNK) => self.at(arrival + self.reaction, Thing::Arrive(0, TRUNK, frame)),
            (1, _) => self.delivered += 1,
            (_, sender) => {
                if let Content::Control(MacControl::Pfc(pfc)) = frame.content {
                    let quanta = pfc.get(3).expect("the priority");
                    let until = arrival + self.reaction + pause_time(quanta, RATE);
                    let thing = Thing::Obey(usize::from(sender), quanta > 0, until);
                    self.at(arrival + self.reaction, thing);
                }
            }
        }
    }

    fn settle(&mut self, now: Instant, node: usize) {
        while let Some(port) = self.switches[node].poll_port() {
            self.pump(now, node, port);
        }
        if let Some(at) = self.switches[node].poll_timeout() {
            self.at(if at.is_before(now) { now } else { at }, Thing::Wake(node));
        }
    }

    fn run(&mut self, until: Instant) {
        for sender in 0..usize::from(SENDERS) {
            self.at(Instant::ZERO, Thing::Send(sender));
        }
        while let Some(Reverse((ps, _, index))) = self.events.pop() {
            let now = Instant::from_ps(ps);
            if until.is_before(now) {
                return;
            }
            match self.things[index].take().expect("an event happens once") {
                Thing::Arrive(node, port, frame) => {
                    self.switches[node].receive(now, port, frame);
                    self.settle(now, node);
                }
                Thing::Free(node, port) => {
                    self.pump(now, node, port);
                    self.settle(now, node);
                }
                Thing::Wake(node) => {
                    let due = self.switches[node].poll_timeout();
                    if due.is_some_and(|due| due.is_due(now)) {
                        self.switches[node].handle_timeout(now);
                        self.settle(now, node);
                    }
                }
                Thing::Obey(sender, stops, end) => {
                    let was = self.senders[sender].stopped;
                    self.senders[sender].stopped = stops.then_some(end);
                    if was.is_some() && !stops {
                        self.at(now, Thing::Send(sender));
                    }
                }
                Thing::Send(sender) => match self.senders[sender].stopped {
                    Some(end) if now.is_before(end) => {}
                    _ => {
                        let frame = packet(1, 3, LENGTH);
                        let end = now + RATE.time_for(u64::from(LENGTH) + GAP);
                        self.at(end + self.delay, Thing::Arrive(0, sender as u16, frame));
                        self.at(end, Thing::Send(sender));
                    }
                },
            }
        }
    }

    fn lost(&self) -> u64 {
        let all = self.switches.iter().flat_map(|switch| (0..=SENDERS).map(|p| switch.counters(p)));
        all.flatten().map(|c| c.dropped.get(&DropCause::Headroom).copied().unwrap_or(0)).sum()
    }
}

#[test]
fn headroom_by_the_formula_loses_nothing() {
    for (metres, quanta, endless) in [(1, 0, false), (100, 394, false), (300, 394, true)] {
        let delay = thresholds::propagation(metres);
        let reaction = thresholds::quanta_time(RATE, quanta);
        let headroom = thresholds::headroom(RATE, delay, reaction, MTU);
        let mut wires = Wires::new(headroom, delay, reaction, endless);
        wires.run(Instant::from_ns(2_000_000));
        assert_eq!(wires.lost(), 0, "{metres} m");
        // The sink is never idle but for the first frame's way to it.
        let time = Rate::from_gbps(10).time_for(u64::from(LENGTH) + GAP).as_ps();
        let most = Span::from_us(2_000).as_ps() / time;
        assert!(wires.delivered + 8 > most, "{} of {most} frames", wires.delivered);
        // Pauses spread from the sink's switch to the senders.
        let paused = wires.switches[0].counters(TRUNK).expect("a port").priorities[3].rx_pause;
        assert!(paused > 0);
        for sender in 0..SENDERS {
            let counters = wires.switches[0].counters(sender).expect("a port");
            assert!(counters.priorities[3].tx_pause > 0);
            let most = counters.priorities[3].ingress_watermark;
            assert!(most > 4096 + 1000, "{most} bytes");
        }
    }
}

#[test]
fn too_little_headroom_loses_and_says_so() {
    let delay = thresholds::propagation(300);
    let reaction = thresholds::quanta_time(RATE, 394);
    // All but what is under way in the reaction time.
    let headroom = thresholds::headroom(RATE, delay, Span::ZERO, MTU);
    let mut wires = Wires::new(headroom, delay, reaction, false);
    wires.run(Instant::from_ns(1_000_000));
    assert!(wires.lost() > 0);
    let discards: u64 = wires
        .switches
        .iter()
        .flat_map(|switch| (0..=SENDERS).filter_map(|port| switch.counters(port)))
        .map(|counters| counters.priorities[3].rx_buf_discard)
        .sum();
    assert_eq!(discards, wires.lost());
}
