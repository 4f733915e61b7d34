//! The switch: tables and the doors through which frames, pauses and time come in.

use std::collections::VecDeque;

use wire::mac_control::MacControl;
use wire::{Gid, Instant, Mac, Span};

use crate::balance::{self, Flowlets, View};
use crate::buffer::Memory;
use crate::classify::Classifier;
use crate::config::{EcnAt, SwitchConfig};
use crate::counters::{DropCause, PortCounters};
use crate::forward::Routes;
use crate::frame::{Content, Frame};
use crate::options::Options;
use crate::port::{Entry, Port};
use crate::schedule::bits;
use crate::timers::Timers;

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
    ports: Vec<Port<B>>,
    timers: Timers,
    /// Ports to name.
    ready: VecDeque<PortId>,
    events: VecDeque<SwitchEvent>,
    /// State of the numbers drawn for marks.
    drawn: u64,
    /// Boxes of pause frames received, for those sent.
    spare: Vec<Box<Frame<B>>>,
}

/// Timers of a port: a pause to say again, and one to end, for each priority.
const SLOTS: usize = 16;
const EXPIRY: usize = 8;

impl<B: Clone> Switch<B> {
    /// A switch with empty tables; refuses a configuration that cannot work, with a sentence that
    /// names the field, the value and what was expected.
    pub fn new(config: SwitchConfig) -> Result<Self, String> {
        Self::with_options(config, Options::default())
    }

    /// A switch with further properties.
    pub fn with_options(config: SwitchConfig, options: Options) -> Result<Self, String> {
        let kept = crate::validate::check(&config, &options)?;
        Ok(Self {
            balance: Balance::Flow,
            classifier: Classifier::new(&config),
            memory: Memory::new(&config.buffer, kept),
            routes: Routes::new(),
            flowlets: Flowlets::default(),
            ports: (0..config.ports.len()).map(|i| Port::new(&config, &options, i)).collect(),
            timers: Timers::new(config.ports.len() * SLOTS),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            drawn: config.seed,
            spare: Vec::new(),
            config,
            options,
        })
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
                self.spare.push(frame);
                return;
            }
            Content::Lldp(_) => return,
            Content::Data(_) => {}
        }
        let priority = self.classifier.priority(&frame.header);
        let counters = &mut at.counters.priorities[usize::from(priority)];
        counters.rx_frames += 1;
        counters.rx_bytes += u64::from(frame.length);
        match self.route(now, &mut frame) {
            Ok(to) => self.enqueue((port, priority), to, frame),
            Err(cause) => self.drop_frame(port, priority, cause),
        }
    }

    /// Finds where a frame goes, and rewrites it for that.
    fn route(&mut self, now: Instant, frame: &mut Frame<B>) -> Result<PortId, DropCause> {
        let net = frame.header.net.as_mut().ok_or(DropCause::NoRoute)?;
        if net.hop_limit <= 1 {
            return Err(DropCause::HopLimit);
        }
        let way = self.routes.find(net.destination).ok_or(DropCause::NoRoute)?;
        let ports = &self.ports;
        let load = |port: u16| {
            ports.get(usize::from(port)).filter(|port| port.up).map(|port| port.waiting)
        };
        let seed = self.config.seed;
        let mut view = View { now, seed, load, flowlets: &mut self.flowlets };
        let hop = balance::choose(self.balance, way, net, &mut view);
        let hop = hop.ok_or(DropCause::LinkDown)?;
        net.hop_limit -= 1;
        frame.header.destination = hop.mac;
        if let Some(port) = self.ports.get(usize::from(hop.port)) {
            frame.header.source = port.mac;
        }
        Ok(hop.port)
    }

    /// Asks for room and puts a frame into its queue.
    fn enqueue(&mut self, (port, priority): (PortId, u8), to: PortId, mut frame: Box<Frame<B>>) {
        let queue = self.classifier.queue(priority);
        let Some(egress) = self.ports.get(usize::from(to)).filter(|egress| egress.up) else {
            return self.drop_frame(port, priority, DropCause::LinkDown);
        };
        let queued = egress.queues[usize::from(queue)].bytes;
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        let ingress = &mut at.ingress[usize::from(priority)];
        let Some(charge) = self.memory.charge(frame.length) else {
            return self.drop_frame(port, priority, DropCause::Buffer);
        };
        if let Err(cause) = self.memory.admit(ingress, queued, u64::from(charge)) {
            return self.drop_frame(port, priority, cause);
        }
        let watermark = &mut at.counters.priorities[usize::from(priority)].ingress_watermark;
        *watermark = ingress.bytes().max(*watermark);
        let bit = 1 << priority;
        if at.pauses.wanted & bit == 0 && self.memory.must_stop(ingress) {
            self.want(port, priority, true);
        }
        let egress = &mut self.ports[usize::from(to)];
        if let Some(red) = &mut egress.queues[usize::from(queue)].red
            && red.profile.at == EcnAt::Enqueue
            && red.marks(queued, &mut self.drawn)
            && frame.mark_ce()
        {
            egress.counters.priorities[usize::from(queue)].ecn_marked += 1;
        }
        egress.push(queue, Entry { frame, charge, ingress: port, priority });
        if egress.idle {
            self.announce(to);
        }
    }

    /// Counts a frame that does not go on.
    fn drop_frame(&mut self, port: PortId, priority: u8, cause: DropCause) {
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        *at.counters.dropped.entry(cause).or_default() += 1;
        let counters = &mut at.counters.priorities[usize::from(priority & 7)];
        match cause {
            DropCause::Headroom => counters.rx_buf_discard += 1,
            DropCause::Buffer => counters.rx_cong_discard += 1,
            _ => {}
        }
    }

    /// The neighbour at a port ought to rest a priority, or may go on.
    fn want(&mut self, port: PortId, priority: u8, rest: bool) {
        let index = usize::from(port);
        let Some(at) = self.ports.get_mut(index) else { return };
        let slot = index * SLOTS + usize::from(priority);
        if rest {
            at.pauses.wanted |= 1 << priority;
        } else {
            at.pauses.wanted &= !(1 << priority);
            at.pauses.refresh &= at.pauses.wanted;
            self.timers.clear(slot);
        }
        self.announce(port);
    }

    /// Names a port to the driver.
    fn announce(&mut self, port: PortId) {
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        if at.idle && at.can_send() {
            at.idle = false;
            self.ready.push_back(port);
        }
    }

    /// A pause frame has been received.
    fn obey(&mut self, now: Instant, port: PortId, control: MacControl) {
        let index = usize::from(port);
        let Some(at) = self.ports.get_mut(index) else { return };
        for priority in 0..8_u8 {
            let quanta = match &control {
                MacControl::Pause { quanta } if at.pauses.link => Some(*quanta),
                MacControl::Pfc(pfc) if !at.pauses.link => pfc.get(priority),
                _ => None,
            };
            let Some(quanta) = quanta else { continue };
            let place = usize::from(priority);
            at.counters.priorities[place].rx_pause += u64::from(quanta > 0);
            if !at.pauses.link && at.ingress[place].pfc.is_none() {
                continue;
            }
            let rate = (!self.options.endless_pauses).then_some(at.rate);
            at.pauses.obey(now, priority, quanta, rate, &mut at.counters);
            let slot = index * SLOTS + EXPIRY + place;
            match at.pauses.until[place] {
                Some(until) => self.timers.set(slot, until),
                None => self.timers.clear(slot),
            }
        }
        at.held = self.classifier.queues(at.pauses.stopped);
        self.announce(port);
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
            for queue in 0..8 {
                self.flush(port, queue, DropCause::LinkDown);
            }
        }
        self.announce(port);
    }

    /// Drops all frames of a queue.
    fn flush(&mut self, port: PortId, queue: u8, cause: DropCause) {
        let pop = |ports: &mut [Port<B>]| ports.get_mut(usize::from(port))?.pop(queue);
        while let Some(entry) = pop(&mut self.ports) {
            self.release(&entry);
            self.drop_frame(entry.ingress, entry.priority, cause);
        }
    }

    /// Gives back the room of a frame that has left.
    fn release(&mut self, entry: &Entry<B>) {
        let Some(at) = self.ports.get_mut(usize::from(entry.ingress)) else { return };
        let ingress = &mut at.ingress[usize::from(entry.priority)];
        self.memory.release(ingress, u64::from(entry.charge));
        let wanted = at.pauses.wanted >> entry.priority & 1 == 1;
        if wanted && self.memory.may_resume(ingress) {
            self.want(entry.ingress, entry.priority, false);
        }
    }

    /// Runs the timers that are due: pauses that expire, pauses to refresh, the watchdog, ageing.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.timers.pop(now) {
            let (index, kind) = (slot / SLOTS, slot % SLOTS);
            let Some(at) = self.ports.get_mut(index) else { continue };
            if kind < EXPIRY {
                at.pauses.refresh |= at.pauses.wanted & 1 << kind;
            } else {
                at.pauses.expire(now, &mut at.counters);
                at.held = self.classifier.queues(at.pauses.stopped);
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
        if at.pauses.stopped != 0 {
            at.pauses.expire(now, &mut at.counters);
            at.held = self.classifier.queues(at.pauses.stopped);
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
        self.release(&entry);
        Some(entry.frame)
    }

    /// The pause frame that a port owes.
    fn say(&mut self, now: Instant, port: PortId) -> Option<Box<Frame<B>>> {
        let index = usize::from(port);
        let at = self.ports.get_mut(index)?;
        let (control, stops) = at.pauses.say()?;
        for priority in bits(stops).map(usize::from) {
            at.counters.priorities[priority].tx_pause += 1;
            if !self.options.endless_pauses {
                let quanta = at.pauses.quanta[priority] / 2;
                let half = wire::mac_control::pause_time(quanta.max(1), at.rate);
                self.timers.set(index * SLOTS + priority, now + half);
            }
        }
        let frame = Frame::control(at.mac, control);
        Some(match self.spare.pop() {
            Some(mut place) => {
                *place = frame;
                place
            }
            None => Box::new(frame),
        })
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
