//! Packets of a network as events, for the tests of its judges: a packet is described, sent at a
//! time, and audited.
#![allow(dead_code, reason = "each test program uses its part")]

use audit::finding::Finding;
use audit::record::{At, Direction, Point, Time};
use audit::{Auditor, Event, Options, Rule, What};
use wire::mac_control::{MacControl, Pfc};
use wire::{Encapsulation, Gid, Mac, Msn, PKey, Psn, Qpn, Syndrome};

pub(crate) const RC_SEND_ONLY: u8 = 0x04;
pub(crate) const UC_SEND_ONLY: u8 = 0x24;
pub(crate) const UD_SEND_ONLY: u8 = 0x64;
pub(crate) const READ_RESPONSE_ONLY: u8 = 0x10;
pub(crate) const ACK: u8 = 0x11;
pub(crate) const CNP: u8 = 0x81;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// The end with a number, from 1.
pub(crate) fn end(number: u8) -> Gid {
    Gid::from_ip([10, 0, 0, number].into())
}

pub(crate) fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

/// A packet and how it is seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) qp: u32,
    pub(crate) opcode: u8,
    pub(crate) psn: u32,
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    pub(crate) port: u16,
    pub(crate) ident: u16,
    pub(crate) payload: u32,
    pub(crate) asks: bool,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) tag: Option<(u8, u16)>,
    pub(crate) macs: Option<(Mac, Mac)>,
    pub(crate) point: u16,
    pub(crate) file: u16,
    pub(crate) direction: Option<Direction>,
}

/// A SEND of 4 KiB from one end to a queue pair of another; it asks for an acknowledgement.
pub(crate) fn data(from: u8, to: u8, qp: u32, psn: u32) -> Sent {
    Sent {
        from,
        to,
        qp,
        opcode: RC_SEND_ONLY,
        psn: psn & 0xFF_FFFF,
        class: 0,
        ttl: 64,
        port: 0xC000 | qp as u16,
        ident: psn as u16,
        payload: 4096,
        asks: true,
        encapsulation: Encapsulation::RoceV2,
        tag: None,
        macs: Some((mac(from), mac(to))),
        point: 0,
        file: 0,
        direction: None,
    }
}

pub(crate) fn ack(from: u8, to: u8, qp: u32, psn: u32) -> Sent {
    Sent { opcode: ACK, payload: 0, asks: false, ..data(from, to, qp, psn) }
}

/// A CNP in a class of its own.
pub(crate) fn cnp(from: u8, to: u8, qp: u32) -> Sent {
    Sent { opcode: CNP, class: 48 << 2, port: 0, ..ack(from, to, qp, 0) }
}

impl Sent {
    pub(crate) fn class(self, class: u8) -> Self {
        Self { class, ..self }
    }
    pub(crate) fn ttl(self, ttl: u8) -> Self {
        Self { ttl, ..self }
    }
    pub(crate) fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }
    pub(crate) fn opcode(self, opcode: u8) -> Self {
        Self { opcode, ..self }
    }
    pub(crate) fn payload(self, payload: u32) -> Self {
        Self { payload, ..self }
    }
    pub(crate) fn tag(self, priority: u8) -> Self {
        Self { tag: Some((priority, 100)), ..self }
    }
    pub(crate) fn over(self, encapsulation: Encapsulation) -> Self {
        Self { encapsulation, ..self }
    }
    /// Seen at a point of a file.
    pub(crate) fn seen(self, point: u16, file: u16) -> Self {
        Self { point, file, ..self }
    }
    pub(crate) fn going(self, direction: Direction) -> Self {
        Self { direction: Some(direction), ..self }
    }

    fn event(self, at: At) -> Event {
        let acknowledges = self.opcode == ACK || self.opcode == READ_RESPONSE_ONLY;
        let aeth = wire::Aeth { syndrome: Syndrome::Ack(31), msn: Msn::new(0) };
        let path = audit::event::Path {
            encapsulation: self.encapsulation,
            source: end(self.from),
            destination: end(self.to),
            traffic_class: self.class,
            hop_limit: self.ttl,
            flow_label: 0,
            source_port: self.port,
            ident: self.ident,
            dont_fragment: true,
            udp_checksum: Some(true),
        };
        let bth = wire::Bth {
            opcode: wire::Opcode(self.opcode),
            solicited: false,
            migration: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: self.opcode == CNP,
            dest_qp: Qpn::new(self.qp),
            ack_request: self.asks,
            psn: Psn::new(self.psn),
        };
        let ext =
            wire::Extensions { aeth: acknowledges.then_some(aeth), ..wire::Extensions::default() };
        let packet = audit::event::Packet {
            path,
            bth,
            ext,
            payload_len: self.payload,
            icrc: audit::event::Icrc::Right,
            mad: None,
        };
        Event {
            at,
            part: 0,
            point: Point(self.point),
            direction: self.direction,
            len: self.payload + 62,
            macs: self.macs,
            tag: self.tag,
            tunnels: 0,
            what: What::Packet(packet),
        }
    }
}

/// The families of rules that are about the network.
const RULES: [&str; 3] = ["R019", "R06", "R07"];

/// A network under audit. Findings of other rules than the network's are left out.
pub(crate) struct Net {
    auditor: Auditor,
    frames: [u64; 8],
}

impl Net {
    pub(crate) fn new() -> Self {
        Self::expecting(false)
    }

    /// Where ECN is expected, or not.
    pub(crate) fn expecting(expect_ecn: bool) -> Self {
        let auditor = Auditor::new(Options { expect_ecn, ..Options::default() });
        Self { auditor, frames: [0; 8] }
    }

    fn at(&mut self, ns: u64, file: u16) -> At {
        let frame = &mut self.frames[usize::from(file)];
        *frame += 1;
        At { time: Time(1_700_000_000_000_000_000 + ns), file, frame: *frame }
    }

    /// A packet at a time, ns.
    pub(crate) fn send(&mut self, ns: u64, sent: Sent) {
        let event = sent.event(self.at(ns, sent.file));
        self.auditor.see(&event);
    }

    /// A pause of a priority by a port.
    pub(crate) fn pause(&mut self, ns: u64, port: Mac, priority: u8) {
        let pfc = Pfc::one(priority, 0xFFFF).expect("a priority");
        let event = Event {
            at: self.at(ns, 0),
            part: 0,
            point: Point(0),
            direction: None,
            len: 60,
            macs: Some((port, Mac::MAC_CONTROL)),
            tag: None,
            tunnels: 0,
            what: What::Pause(MacControl::Pfc(pfc)),
        };
        self.auditor.see(&event);
    }

    /// The end; the findings about the network.
    pub(crate) fn finish(self) -> Vec<Finding> {
        let mut findings = self.auditor.finish(Vec::new()).findings;
        findings.retain(|f| RULES.iter().any(|family| f.rule.code().starts_with(family)));
        findings
    }

    /// The end; the rules that were found, each once for each subject.
    pub(crate) fn rules(self) -> Vec<Rule> {
        self.finish().iter().map(|finding| finding.rule).collect()
    }
}
