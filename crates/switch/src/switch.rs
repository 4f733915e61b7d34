//! The switch: tables and the doors through which frames, pauses and time come in.

use std::collections::VecDeque;

use wire::{Gid, Instant, Mac, Span};

use crate::balance::Flowlets;
use crate::bridge::Bridge;
use crate::buffer::{Ingress, Memory};
use crate::classify::Classifier;
use crate::config::{EcnAt, SwitchConfig};
use crate::counters::{DropCause, PortCounters};
use crate::forward::Routes;
use crate::frame::{Content, Frame};
use crate::limits::SPARE;
use crate::options::Options;
use crate::port::{Entry, Port};
use crate::timers::Timers;

mod neighbour;
mod path;
mod pausing;
mod store;
mod storm;

use path::Path;

/// A port of a switch, counted from 0.
pub type PortId = u16;

/// One way on: a port and how much of the traffic it takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NextHop {
    /// Where the frame leaves.
    pub port: PortId,
    /// Its share among the next hops, not 0.
    pub weight: u16,
    /// The MAC that the frame is sent to.
    pub mac: Mac,
}

/// How flows are spread over next hops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Balance {
    /// ECMP: a seeded hash of the five-tuple.
    Flow,
    /// The HPCC simulator's hash and modulo, for comparison with it.
    FlowHpcc,
    /// The least loaded hop, chosen anew after a gap of this length in a flow.
    Flowlet(Span),
    /// The least loaded hop for each packet.
    Packet,
    /// Hops in turn, packet by packet.
    Spray,
}

/// What the switch tells of by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchEvent {
    /// A watchdog has found a storm of pauses on a port's priority, or its end.
    Storm {
        /// Which port.
        port: PortId,
        /// Which priority.
        priority: u8,
        /// It has begun.
        began: bool,
    },
    /// A port and its neighbour have agreed by DCBX on something else than before.
    Agreed {
        /// Which port.
        port: PortId,
        /// Priorities with PFC in force, as bits.
        pfc: u8,
    },
}

/// A switch. After `receive`, `handle_link` or `handle_timeout`, drain: `poll_port` names each port
/// that may have something to send and did not before; a driver whose cable there is free calls
/// `poll_transmit` for it, and again each time that the cable becomes free, until it gives nothing.
/// Then sleep until `poll_timeout` at most.
#[derive(Debug)]
pub struct Switch<B> {
    config: SwitchConfig,
    options: Options,
    balance: Balance,
    classifier: Classifier,
    memory: Memory,
    routes: Routes,
    flowlets: Flowlets,
    bridge: Bridge,
    /// Sources of frames to be routed are learned too: routes lead to neighbours by their MAC.
    learns: bool,
    ports: Vec<Port<B>>,
    timers: Timers,
    /// Copies for mirrors.
    mirrored: Ingress,
    /// The watchdog's timer runs.
    watching: bool,
    /// Ports to name.
    ready: VecDeque<PortId>,
    events: VecDeque<SwitchEvent>,
    /// State of the numbers drawn for marks.
    drawn: u64,
    /// Boxes of pause frames received, for those sent.
    spare: Vec<Box<Frame<B>>>,
}

/// Timers of a port: a pause to say again, and one to end, for each priority; an advert to send,
/// and one that is no longer true.
const SLOTS: usize = 18;
const EXPIRY: usize = 8;
const TELL: usize = 16;
const HEARD: usize = 17;

impl<B: Clone> Switch<B> {
    /// A switch with empty tables; refuses a configuration that cannot work, with a sentence that
    /// names the field, the value and what was expected.
    pub fn new(config: SwitchConfig) -> Result<Self, String> {
        Self::with_options(config, Options::default())
    }

    /// A switch with further properties.
    pub fn with_options(config: SwitchConfig, options: Options) -> Result<Self, String> {
        let kept = crate::validate::check(&config, &options)?;
        let mut switch = Self {
            balance: Balance::Flow,
            classifier: Classifier::new(&config),
            memory: Memory::new(&config.buffer, kept),
            routes: Routes::new(),
            flowlets: Flowlets::default(),
            bridge: Bridge::new(config.ports.len(), &options.vlans, options.ageing),
            learns: false,
            mirrored: Ingress::lossy(),
            watching: false,
            ports: (0..config.ports.len()).map(|i| Port::new(&config, &options, i)).collect(),
            timers: Timers::new(config.ports.len() * SLOTS + 1),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            drawn: config.seed,
            spare: Vec::new(),
            config,
            options,
        };
        switch.begin_exchange();
        Ok(switch)
    }

    /// What it is made of.
    pub fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Its further properties.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Adds a route: addresses that begin with the first `bits` bits of `prefix` (of 128; IPv4 is
    /// mapped, so a host route has 128) go by these hops. It takes the place of one with the same
    /// prefix; without hops it takes that away.
    pub fn set_route(&mut self, prefix: Gid, bits: u8, hops: Vec<NextHop>) {
        self.routes.set(prefix, bits, hops);
    }

    /// Adds a route to a neighbour in a VLAN (0 without VLANs) by its MAC. The port is the one
    /// behind which the MAC was last seen; if it has not been for [`Options::ageing`], packets are
    /// flooded (or dropped, see [`Options::drop_incomplete`]).
    pub fn set_bridged_route(&mut self, prefix: Gid, bits: u8, mac: Mac, vlan: u16) {
        self.learns = true;
        self.routes.set_bridged(prefix, bits, mac, vlan);
    }

    /// How flows are spread.
    pub fn set_balance(&mut self, balance: Balance) {
        self.balance = balance;
    }

    /// A frame has arrived, its last bit now.
    pub fn receive(&mut self, now: Instant, port: PortId, mut frame: Box<Frame<B>>) {
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        match &frame.content {
            Content::Control(control) => {
                let control = *control;
                self.obey(now, port, control);
                if self.spare.len() < SPARE {
                    self.spare.push(frame);
                }
                return;
            }
            Content::Lldp(_) => return self.hear(now, port, &frame),
            Content::Data(_) => {}
        }
        if !at.up {
            return self.drop_frame(port, 0, DropCause::LinkDown);
        }
        let priority = self.classifier.priority(&frame.header);
        let counters = &mut at.counters.priorities[usize::from(priority)];
        counters.rx_frames += 1;
        counters.rx_bytes += u64::from(frame.length);
        if at.storming | at.deaf != 0 {
            let deaf = at.deaf >> priority & 1 == 1;
            self.count_storm(port, priority, |storm| {
                storm.rx_ok += u64::from(!deaf);
                storm.rx_drop += u64::from(deaf);
            });
            if deaf {
                return self.drop_frame(port, priority, DropCause::Watchdog);
            }
        }
        match self.path(now, port, priority, &mut frame) {
            Ok(Path::Port(to)) => self.enqueue((port, priority), to, frame),
            Ok(Path::Flood(vlan)) => self.flood((port, priority), vlan, frame),
            Err(cause) => self.drop_frame(port, priority, cause),
        }
    }

    /// The link of a port went up or down.
    pub fn handle_link(&mut self, now: Instant, port: PortId, up: bool) {
        let index = usize::from(port);
        let Some(at) = self.ports.get_mut(index) else { return };
        if at.up == up {
            return;
        }
        at.up = up;
        // Neither side remembers what the other has asked for.
        for priority in 0..8 {
            at.pauses.resume(now, priority, &mut at.counters);
            self.timers.clear(index * SLOTS + EXPIRY + usize::from(priority));
        }
        at.pauses.told = 0;
        at.held = 0;
        if !up {
            at.idle = true;
            self.bridge.forget(port);
            for queue in 0..8 {
                self.flush(port, queue, DropCause::LinkDown);
            }
        }
        self.announce(port);
    }

    /// Runs the timers that are due: pauses that expire, pauses to refresh, the watchdog, ageing.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.timers.pop(now) {
            let (index, kind) = (slot / SLOTS, slot % SLOTS);
            if index == self.ports.len() {
                self.look(now);
                continue;
            }
            let Some(at) = self.ports.get_mut(index) else { continue };
            match kind {
                0..EXPIRY => at.pauses.refresh |= at.pauses.wanted & 1 << kind,
                TELL => self.owe_advert(index),
                HEARD => self.miss(now, index),
                _ => {
                    at.pauses.expire(now, &mut at.counters);
                    at.hold();
                }
            }
            self.announce(index as PortId);
        }
    }

    /// The next frame to leave at a port; pauses first.
    pub fn poll_transmit(&mut self, now: Instant, port: PortId) -> Option<Box<Frame<B>>> {
        let at = self.ports.get_mut(usize::from(port)).filter(|at| at.up)?;
        if at.pauses.owes() {
            return self.say(now, port);
        }
        if at.tells {
            return self.advertise(now, port);
        }
        if at.pauses.stopped != 0 {
            at.pauses.expire(now, &mut at.counters);
            at.hold();
        }
        let Some(queue) = at.turn() else {
            at.idle = true;
            return None;
        };
        let mut entry = at.pop(queue)?;
        let place = usize::from(queue);
        let left = at.queues[place].bytes;
        let counters = &mut at.counters.priorities[place];
        if let Some(red) = &mut at.queues[place].red
            && red.profile.at == EcnAt::Dequeue
            && red.marks(left, &mut self.drawn)
            && entry.frame.mark_ce()
        {
            counters.ecn_marked += 1;
        }
        counters.tx_frames += 1;
        counters.tx_bytes += u64::from(entry.frame.length);
        let (storming, mirror) = (at.storming >> queue & 1 == 1, at.mirror);
        self.release(&entry);
        if storming {
            self.count_storm(port, entry.priority, |storm| storm.tx_ok += 1);
        }
        if let Some(to) = mirror {
            self.mirror(port, to, &entry.frame);
        }
        Some(entry.frame)
    }

    /// A port that may have become able to send since it was named last.
    pub fn poll_port(&mut self) -> Option<PortId> {
        self.ready.pop_front()
    }

    /// When `handle_timeout` has to be called, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Something to tell.
    pub fn poll_event(&mut self) -> Option<SwitchEvent> {
        self.events.pop_front()
    }

    /// What a port has counted.
    pub fn counters(&self, port: PortId) -> Option<&PortCounters> {
        Some(&self.ports.get(usize::from(port))?.counters)
    }

    /// Bytes in an egress queue.
    pub fn egress_bytes(&self, port: PortId, queue: u8) -> u64 {
        let port = self.ports.get(usize::from(port));
        port.and_then(|port| port.queues.get(usize::from(queue))).map_or(0, |queue| queue.bytes)
    }

    /// Bytes that came in by a port and priority and have not left.
    pub fn ingress_bytes(&self, port: PortId, priority: u8) -> u64 {
        let port = self.ports.get(usize::from(port));
        let ingress = port.and_then(|port| port.ingress.get(usize::from(priority)));
        ingress.map_or(0, |ingress| ingress.bytes())
    }

    /// Bytes of the shared pool that are taken.
    pub fn shared_bytes(&self) -> u64 {
        self.memory.shared
    }

    /// Bytes that wait at a port, and bytes that it has sent: what in-band telemetry tells.
    pub fn telemetry(&self, port: PortId) -> Option<(u64, u64)> {
        let at = self.ports.get(usize::from(port))?;
        Some((at.waiting, at.counters.priorities.iter().map(|queue| queue.tx_bytes).sum()))
    }

    /// Whether the neighbour at this port has stopped this priority of ours.
    pub fn is_stopped(&self, now: Instant, port: PortId, priority: u8) -> bool {
        let Some(at) = self.ports.get(usize::from(port)) else { return false };
        let over = |until: &Option<Instant>| until.is_some_and(|until| until.is_due(now));
        let until = at.pauses.until.get(usize::from(priority));
        until.is_some_and(|until| at.pauses.stopped >> priority & 1 == 1 && !over(until))
    }

    /// Whether we have stopped the neighbour's priority there.
    pub fn stops(&self, port: PortId, priority: u8) -> bool {
        let port = self.ports.get(usize::from(port)).filter(|_| priority < 8);
        port.is_some_and(|port| port.pauses.wanted >> priority & 1 == 1)
    }

    /// Egress ports whose queues hold bytes that came in by `port` at `priority`, ascending. It
    /// looks through the queues: for diagnosis.
    pub fn holds(&self, port: PortId, priority: u8) -> Vec<PortId> {
        let of = |entry: &Entry<B>| entry.ingress == port && entry.priority == priority;
        let holds = |at: &Port<B>| at.queues.iter().any(|queue| queue.entries.iter().any(of));
        let all = self.ports.iter().enumerate().filter(|(_, at)| holds(at));
        all.map(|(index, _)| index as PortId).collect()
    }
}
