//! The ECN chain: ECT set, CE marked, CNP sent, sender slower. Each packet is counted here;
//! `ecn/chain.rs` judges the counts in the end, `ecn/rate.rs` whether a sender slows down,
//! `ecn/delay.rs` whether queues build.

use wire::mac_control::MacControl;
use wire::{Encapsulation, Mac, Syndrome};

use self::delay::Delay;
use self::rate::Rate;
use super::stream::{Stream, stream};
use crate::event::{Event, Packet};
use crate::finding::Findings;
use crate::limits;
use crate::record::{At, Direction, Point};
use crate::talk::{Gone, Half, HalfId, Talks};

mod chain;
mod delay;
mod rate;

const NOT_ECT: u8 = 0;
const CE: u8 = 3;
/// CNPs so soon after the first packet of their flow may answer marks from before the capture, ns.
const SETTLED: u64 = 1_000_000;

/// What is remembered of a half.
#[derive(Debug, Default)]
pub struct State {
    /// Packets with payload in a connection, at the half's first point.
    data: u32,
    /// Of these, without ECT.
    not_ect: u32,
    /// Of these, marked CE.
    ce: u32,
    /// Copies of packets marked CE, at other points.
    ce_copies: u32,
    /// First data packet without ECT.
    bare: At,
    /// First data packet marked CE.
    marked: At,
    /// How the data travels.
    class: Class,
    /// Whether the capturing machine received data.
    received: bool,
    rate: Rate,
    delay: Option<Box<Delay>>,
    cnps: Option<Box<Cnps>>,
}

/// What decides of the queue that a packet waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Class {
    dscp: u8,
    priority: Option<u8>,
}

/// The CNPs of a half.
#[derive(Clone, Copy, Debug)]
struct Cnps {
    count: u64,
    /// Those that cannot answer marks from before the capture.
    settled: u64,
    first: At,
    last: At,
    class: Class,
    /// Whether the capturing machine sent them.
    sent: bool,
}

/// A port that pauses its neighbour.
#[derive(Clone, Copy, Debug)]
struct Pauser {
    point: Point,
    mac: Option<Mac>,
    by_priority: [u64; 8],
    first: At,
    last: At,
}

/// Watches the chain of each flow.
#[derive(Debug)]
pub struct Judge {
    expected: bool,
    /// Any sign that ECN is wanted, in the whole capture.
    wanted: bool,
    pausers: Vec<Pauser>,
}

impl Judge {
    /// With `expected`, ECN is wanted even if nothing in the capture speaks of it.
    pub fn new(expected: bool) -> Self {
        Self { expected, wanted: expected, pausers: Vec::new() }
    }

    /// A packet of a half.
    pub fn packet(
        &mut self,
        event: &Event,
        packet: &Packet,
        id: HalfId,
        talks: &mut Talks,
        findings: &mut Findings,
    ) {
        let Some(stream) = stream(packet.bth.opcode) else { return };
        if packet.path.encapsulation != Encapsulation::RoceV2 {
            return;
        }
        let ecn = packet.path.traffic_class & 3;
        self.wanted |= ecn != NOT_ECT || stream == Stream::Cnp;
        let half = talks.get_mut(id);
        if !half.is_home(event) {
            let marked = u32::from(ecn == CE && packet.payload_len > 0);
            half.ecn.ce_copies = half.ecn.ce_copies.saturating_add(marked);
            return;
        }
        match stream {
            Stream::Cnp => self.cnp(event, packet, id, talks),
            Stream::Answer if self.wanted => answer(event, packet, id, talks),
            Stream::Request | Stream::Response => {
                if let Some(slower) = half.ecn.data(event, packet, stream) {
                    chain::no_slow_down(half, &slower, findings);
                }
            }
            Stream::Answer => {}
        }
    }

    fn cnp(&mut self, event: &Event, packet: &Packet, id: HalfId, talks: &mut Talks) {
        let peer = talks.get(id).peer.filter(|&peer| peer != id);
        let began = peer.map(|peer| talks.get(peer).first);
        let settled = began.is_some_and(|began| event.at.time.since(began.time) >= SETTLED);
        let half = talks.get_mut(id);
        let cnps = half.ecn.cnps.get_or_insert_with(|| {
            Box::new(Cnps {
                count: 0,
                settled: 0,
                first: event.at,
                last: event.at,
                class: Class::of(event, packet),
                sent: event.direction == Some(Direction::Out),
            })
        });
        cnps.count += 1;
        cnps.settled += u64::from(settled);
        cnps.last = event.at;
        let home = half.home;
        if let Some(peer) = peer {
            let data = talks.get_mut(peer);
            if data.home == home {
                data.ecn.rate.cnp(event.at);
            }
        }
    }

    /// A pause: a sign of queues.
    pub fn pause(&mut self, event: &Event, control: &MacControl) {
        let stops = |priority: u8| match control {
            MacControl::Pause { quanta } => *quanta > 0,
            MacControl::Pfc(pfc) => pfc.get(priority).is_some_and(|quanta| quanta > 0),
        };
        let mac = event.macs.map(|(source, _)| source);
        let known = |p: &Pauser| p.point == event.point && p.mac == mac;
        let at = match self.pausers.iter().position(known) {
            Some(at) => at,
            None if self.pausers.len() < limits::PAUSERS => {
                self.pausers.push(Pauser {
                    point: event.point,
                    mac,
                    by_priority: [0; 8],
                    first: event.at,
                    last: event.at,
                });
                self.pausers.len() - 1
            }
            None => return,
        };
        let pauser = &mut self.pausers[at];
        pauser.last = event.at;
        for priority in 0..8 {
            pauser.by_priority[usize::from(priority)] += u64::from(stops(priority));
        }
    }

    /// Two halves that make room are judged by what was seen of them.
    pub fn forgotten(&mut self, gone: &Gone, findings: &mut Findings) {
        if self.wanted {
            chain::forgotten(self.expected, &self.pausers, gone, findings);
        }
    }

    /// The end of the captures.
    pub fn finish(&mut self, talks: &mut Talks, findings: &mut Findings) {
        if self.wanted {
            chain::judge(self.expected, &self.pausers, talks, findings);
        }
    }
}

/// An acknowledgement ends the wait of a request of the other half.
fn answer(event: &Event, packet: &Packet, id: HalfId, talks: &mut Talks) {
    let half = talks.get(id);
    let (Some(peer), home) = (half.peer, half.home) else { return };
    let data = talks.get_mut(peer);
    // Times of two points may come from two clocks.
    if data.home != home {
        return;
    }
    if let Some(delay) = &mut data.ecn.delay {
        let taken = packet.ext.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Ack(_)));
        delay.answer(event.at, packet.bth.psn.get(), taken);
    }
}

impl Class {
    fn of(event: &Event, packet: &Packet) -> Self {
        let priority = event.tag.map(|(priority, _)| priority);
        Self { dscp: packet.path.traffic_class >> 2, priority }
    }

    /// Whether the two wait in one queue, as far as the capture tells.
    fn is_same(self, other: Self) -> bool {
        let priorities = self.priority.zip(other.priority);
        self.dscp == other.dscp && priorities.is_none_or(|(a, b)| a == b)
    }
}

impl State {
    /// A request or READ response; tells when the sender was found not to slow down.
    fn data(&mut self, event: &Event, packet: &Packet, stream: Stream) -> Option<rate::Steady> {
        let ecn = packet.path.traffic_class & 3;
        let psn = packet.bth.psn.get();
        let asks = stream == Stream::Request && packet.bth.ack_request;
        if let Some(delay) = &mut self.delay {
            delay.request(event.at, psn, asks);
        } else if ecn != NOT_ECT && asks {
            self.delay = Some(Box::new(Delay::new(event.at, psn)));
        }
        if packet.payload_len == 0 {
            return None;
        }
        if self.data == 0 {
            self.class = Class::of(event, packet);
        }
        self.data = self.data.saturating_add(1);
        self.received |= event.direction == Some(Direction::In);
        if ecn == NOT_ECT {
            if self.not_ect == 0 {
                self.bare = event.at;
            }
            self.not_ect = self.not_ect.saturating_add(1);
        } else if ecn == CE {
            if self.ce == 0 {
                self.marked = event.at;
            }
            self.ce = self.ce.saturating_add(1);
        }
        self.rate.data(event.at, event.len)
    }

    /// CNPs that a half carried.
    fn cnps(half: &Half) -> u64 {
        half.ecn.cnps.as_ref().map_or(0, |cnps| cnps.count)
    }
}
