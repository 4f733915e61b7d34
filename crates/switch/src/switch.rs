//! The switch: tables and the doors through which frames, pauses and time come in.

use wire::{Gid, Instant, Mac, Span};

use crate::config::SwitchConfig;
use crate::counters::PortCounters;
use crate::frame::Frame;

/// A port of a switch, counted from 0.
pub type PortId = u16;

/// One way on: a port and how much of the traffic it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    body: std::marker::PhantomData<B>,
}

impl<B: Clone> Switch<B> {
    /// A switch with empty tables; refuses a configuration that cannot work, with a sentence that
    /// names the field, the value and what was expected.
    pub fn new(config: SwitchConfig) -> Result<Self, String> {
        Ok(Self { config, body: std::marker::PhantomData })
    }

    /// What it is made of.
    pub fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Adds a route: addresses that begin with the first `bits` bits of `prefix` (of 128; IPv4 is
    /// mapped, so a host route has 128) go by these hops.
    pub fn set_route(&mut self, prefix: Gid, bits: u8, hops: Vec<NextHop>) {
        let _ = (prefix, bits, hops);
    }

    /// How flows are spread.
    pub fn set_balance(&mut self, balance: Balance) {
        let _ = balance;
    }

    /// A frame has arrived, its last bit now.
    pub fn receive(&mut self, now: Instant, port: PortId, frame: Box<Frame<B>>) {
        let _ = (now, port, frame);
    }

    /// The link of a port went up or down.
    pub fn handle_link(&mut self, now: Instant, port: PortId, up: bool) {
        let _ = (now, port, up);
    }

    /// Runs the timers that are due: pauses that expire, pauses to refresh, the watchdog, ageing.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next frame to leave at a port; pauses first.
    pub fn poll_transmit(&mut self, now: Instant, port: PortId) -> Option<Box<Frame<B>>> {
        let _ = (now, port);
        None
    }

    /// A port that may have become able to send since it was named last.
    pub fn poll_port(&mut self) -> Option<PortId> {
        None
    }

    /// When `handle_timeout` has to be called, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Something to tell.
    pub fn poll_event(&mut self) -> Option<SwitchEvent> {
        None
    }

    /// What a port has counted.
    pub fn counters(&self, port: PortId) -> Option<&PortCounters> {
        let _ = port;
        None
    }

    /// Bytes in an egress queue.
    pub fn egress_bytes(&self, port: PortId, queue: u8) -> u64 {
        let _ = (port, queue);
        0
    }

    /// Bytes that came in by a port and priority and have not left.
    pub fn ingress_bytes(&self, port: PortId, priority: u8) -> u64 {
        let _ = (port, priority);
        0
    }

    /// Whether the neighbour at this port has stopped this priority of ours.
    pub fn is_stopped(&self, now: Instant, port: PortId, priority: u8) -> bool {
        let _ = (now, port, priority);
        false
    }

    /// Whether we have stopped the neighbour's priority there.
    pub fn stops(&self, port: PortId, priority: u8) -> bool {
        let _ = (port, priority);
        false
    }

    /// Egress ports whose queues hold bytes that came in by `port` at `priority`, ascending. It
    /// looks through the queues: for diagnosis.
    pub fn holds(&self, port: PortId, priority: u8) -> Vec<PortId> {
        let _ = (port, priority);
        Vec::new()
    }
}
