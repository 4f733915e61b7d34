//! Paths: DSCP by direction and on the way, RoCE versions, UDP source ports, TTL. What one queue
//! pair's packets show at one point is followed here; `path/copies.rs` compares the same packet at
//! several points, `path/ends.rs` compares queue pairs and directions in the end.

use wire::{Encapsulation, Mac};

use self::copies::Copies;
use super::stream::{Stream, ahead, stream};
use crate::event::{Event, Packet};
use crate::finding::{Findings, Flow, Instance, Number, Side, Subject};
use crate::limits;
use crate::record::{At, Point};
use crate::rule::Rule;
use crate::talk::{Gone, HalfId, Talks};

mod copies;
mod ends;

/// PSNs that a stream may go ahead from one packet to the next and still be the same connection: a
/// long READ takes many at once.
const CONTINUES: u32 = 1 << 16;
/// Changes that make a value one that changes: fewer may be a new connection or a rerouting.
const CHANGES: u8 = 3;
/// Packets after which an earlier change no longer counts.
const RECENT: u32 = 1000;

/// What is remembered of a half.
#[derive(Debug, Default)]
pub struct State {
    /// Addresses of its first packet's frame.
    pub(super) macs: Option<(Mac, Mac)>,
    /// UDP source port of its first packet in a connection.
    port: Option<u16>,
    requests: Track,
    responses: Track,
    answers: Answers,
}

/// Requests or READ responses of a half, in the order of their PSNs.
#[derive(Debug, Default)]
struct Track {
    psn: u32,
    packets: u32,
    /// Of the newest packet.
    values: Values,
    /// Whether the DSCP ever changed.
    mixed: bool,
    changes: Option<Box<Changes>>,
}

/// What packets of one connection share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Values {
    dscp: u8,
    ttl: u8,
    port: u16,
}

/// How often each changed of late.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    dscp: Change,
    ttl: Change,
    port: Change,
}

#[derive(Clone, Copy, Debug, Default)]
struct Change {
    count: u8,
    /// The stream's packets at the last one.
    at: u32,
}

/// Acknowledgements of a half.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    packets: u32,
    dscp: u8,
    mixed: bool,
}

/// Watches the network layer of each flow.
#[derive(Debug, Default)]
pub struct Judge {
    point: Option<Point>,
    several: bool,
    packets: usize,
    copies: Option<Box<Copies>>,
    ends: ends::All,
}

impl Judge {
    /// A packet of a half.
    pub fn packet(
        &mut self,
        event: &Event,
        packet: &Packet,
        half: HalfId,
        talks: &mut Talks,
        findings: &mut Findings,
    ) {
        self.watch(event);
        let half = talks.get_mut(half);
        let home = half.is_home(event);
        if let Some(copies) = &mut self.copies
            && (home || event.point != half.home)
        {
            copies.packet(event, packet, home, half.flow, findings);
        }
        if !home {
            return;
        }
        let state = &mut half.path;
        if state.macs.is_none() {
            state.macs = event.macs;
        }
        let stream = match stream(packet.bth.opcode) {
            Some(stream) if stream != Stream::Cnp => stream,
            _ => return,
        };
        state.port.get_or_insert(packet.path.source_port);
        let tell = Telling { at: event.at, flow: half.flow, findings };
        match stream {
            Stream::Request => state.requests.packet(packet, tell),
            Stream::Response => state.responses.packet(packet, tell),
            Stream::Answer | Stream::Cnp => state.answers.packet(packet),
        }
    }

    /// Packets are remembered for their copies where there are several points, and at first: the
    /// clock of a second file may lag behind.
    fn watch(&mut self, event: &Event) {
        self.packets = self.packets.saturating_add(1);
        let several = *self.point.get_or_insert(event.point) != event.point;
        if several || self.packets == 1 {
            self.copies.get_or_insert_default();
            self.several |= several;
        } else if self.packets > limits::COPIES && !self.several {
            self.copies = None;
        }
    }

    /// Two halves that make room: what only a look at all of them tells is kept for the end.
    pub fn forgotten(&mut self, gone: &Gone, findings: &mut Findings) {
        self.ends.forgotten(gone, findings);
    }

    /// The end of the captures.
    pub fn finish(&mut self, talks: &mut Talks, findings: &mut Findings) {
        core::mem::take(&mut self.ends).judge(talks, findings);
    }
}

impl Change {
    /// One more, at the stream's packet number `packets`; whether there are too many.
    fn again(&mut self, packets: u32) -> bool {
        let recent = packets.wrapping_sub(self.at) <= RECENT;
        *self = Self { count: if recent { self.count.saturating_add(1) } else { 1 }, at: packets };
        self.count >= CHANGES
    }
}

impl Answers {
    fn packet(&mut self, packet: &Packet) {
        let dscp = packet.path.traffic_class >> 2;
        self.mixed |= self.packets > 0 && self.dscp != dscp;
        self.dscp = dscp;
        self.packets = self.packets.saturating_add(1);
    }
}

impl Track {
    fn packet(&mut self, packet: &Packet, tell: Telling<'_>) {
        let path = &packet.path;
        let values =
            Values { dscp: path.traffic_class >> 2, ttl: path.hop_limit, port: path.source_port };
        let psn = packet.bth.psn.get();
        let goes_on = ahead(psn, self.psn).wrapping_sub(1) < CONTINUES && self.packets > 0;
        if goes_on && values == self.values && values.ttl > 0 {
            self.psn = psn;
            self.packets = self.packets.saturating_add(1);
        } else if self.packets == 0 || ahead(self.psn, psn) > CONTINUES {
            self.change(values, psn, goes_on, path.encapsulation, tell);
        }
        // Else sent again, late, or seen twice: it says nothing of the path's constancy.
    }

    /// A packet with other values than the one before, or of a new connection.
    #[cold]
    fn change(
        &mut self,
        new: Values,
        psn: u32,
        goes_on: bool,
        encapsulation: Encapsulation,
        mut tell: Telling<'_>,
    ) {
        if new.ttl == 0 && encapsulation == Encapsulation::RoceV2 {
            tell.odd_ttl(0, || "a packet with TTL 0: no router may pass it on".into());
        }
        let first = self.packets == 0;
        let old = core::mem::replace(&mut self.values, new);
        self.mixed |= !first && old.dscp != new.dscp;
        self.psn = psn;
        if !goes_on {
            (self.packets, self.changes) = (1, None);
            return;
        }
        self.packets = self.packets.saturating_add(1);
        if old == new {
            return;
        }
        let changes = self.changes.get_or_insert_default();
        if old.dscp != new.dscp && changes.dscp.again(self.packets) {
            tell.dscp_changes(old.dscp, new.dscp);
        }
        let least = old.ttl.min(new.ttl);
        if old.ttl != new.ttl && (changes.ttl.again(self.packets) || least == 1) {
            tell.odd_ttl(least, || {
                format!("packets of one queue pair come with TTL {} and {}", old.ttl, new.ttl)
            });
        }
        if old.port != new.port && changes.port.again(self.packets) {
            tell.port_changes(old.port, new.port);
        }
    }
}

/// A packet that may be told of.
struct Telling<'a> {
    at: At,
    flow: Flow,
    findings: &'a mut Findings,
}

impl Telling<'_> {
    fn tell(&mut self, rule: Rule, side: Side, number: Number, detail: impl FnOnce() -> String) {
        let instance = Instance {
            rule,
            subject: Subject::Flow(self.flow),
            side,
            at: &[self.at],
            numbers: &[number],
        };
        self.findings.add(instance, detail);
    }

    fn odd_ttl(&mut self, least: u8, detail: impl FnOnce() -> String) {
        let number = Number::min("least_ttl", least.into());
        self.tell(Rule::OddTtl, Side::Before(self.flow.source), number, detail);
    }

    fn dscp_changes(&mut self, old: u8, new: u8) {
        let number = Number::last("dscp", new.into());
        self.tell(Rule::DscpChanged, Side::Before(self.flow.source), number, || {
            format!("packets of one queue pair come with DSCP {old} and {new} by turns")
        });
    }

    fn port_changes(&mut self, old: u16, new: u16) {
        let number = Number::last("source_port", new.into());
        self.tell(Rule::PortChanges, Side::Host(self.flow.source), number, || {
            format!("UDP source port {new} after {old} within a connection")
        });
    }
}
