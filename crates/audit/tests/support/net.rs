//! Packets of a network for the tests of its judges: a packet is described, made into the bytes of
//! a frame, captured at a time, peeled and audited.
#![allow(dead_code, reason = "each test program uses its part")]

use audit::finding::Finding;
use audit::peel::Peeler;
use audit::record::{At, Direction, Link, Point, Time};
use audit::{Auditor, Options, Record, Rule};
use wire::ethernet::Ethernet;
use wire::frame::{Body, Frame, Network, emit_frame};
use wire::ip::Ip;
use wire::mac_control::{MacControl, Pfc};
use wire::{Encapsulation, Gid, HeaderSet, Mac, Msn, PKey, Psn, QKey, Qpn, RKey, SrqNum, Syndrome};

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
    pub(crate) macs: (Mac, Mac),
    pub(crate) v6: bool,
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
        // Alike in both directions for 0x11 and 0x22, 0x12 and 0x23.
        port: 0xC000 | (qp % 17) as u16,
        ident: psn as u16,
        payload: 4096,
        asks: true,
        encapsulation: Encapsulation::RoceV2,
        tag: None,
        macs: (mac(from), mac(to)),
        v6: false,
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
    Sent { opcode: CNP, class: 48 << 2, port: 0, payload: 16, ..ack(from, to, qp, 0) }
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

    fn packet<'a>(&self, payload: &'a [u8]) -> wire::Packet<&'a [u8]> {
        let opcode = wire::Opcode(self.opcode);
        let has = |set: HeaderSet| opcode.headers().is_some_and(|headers| headers.contains(set));
        let aeth = wire::Aeth { syndrome: Syndrome::Ack(31), msn: Msn::new(0) };
        let reth = wire::Reth { va: 0, rkey: RKey::new(1), length: self.payload };
        let deth = wire::Deth { qkey: QKey::new(1), source_qp: Qpn::new(0x55) };
        wire::Packet {
            path: wire::Path {
                encapsulation: self.encapsulation,
                source: self.gid(self.from),
                destination: self.gid(self.to),
                traffic_class: self.class,
                hop_limit: self.ttl,
                flow_label: 0,
                source_port: self.port,
                priority: 0,
            },
            bth: wire::Bth {
                opcode,
                solicited: false,
                migration: true,
                pkey: PKey::DEFAULT,
                fecn: false,
                becn: self.opcode == CNP,
                dest_qp: Qpn::new(self.qp),
                ack_request: self.asks,
                psn: Psn::new(self.psn),
            },
            ext: wire::Extensions {
                aeth: has(HeaderSet::AETH).then_some(aeth),
                reth: has(HeaderSet::RETH).then_some(reth),
                deth: has(HeaderSet::DETH).then_some(deth),
                xrc_srq: has(HeaderSet::XRCETH).then(|| SrqNum::new(1)),
                ..wire::Extensions::default()
            },
            payload,
        }
    }

    fn gid(&self, number: u8) -> Gid {
        if self.v6 {
            return Gid([0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number]);
        }
        end(number)
    }

    /// The frame as it is on the wire.
    fn bytes(&self) -> Vec<u8> {
        let payload = vec![0; self.payload as usize];
        let mut ethernet = Ethernet::new(self.macs.0, self.macs.1);
        if let Some((priority, vlan)) = self.tag {
            ethernet = ethernet.tagged(priority, vlan);
        }
        let mut frame = Frame::new(ethernet, &self.packet(&payload)).expect("a frame");
        if let Body::Roce(roce) = &mut frame.body
            && let Network::Udp { ip: Ip::V4(ip), .. } = &mut roce.network
        {
            ip.ident = self.ident;
        }
        emitted(&frame)
    }
}

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; frame.wire_len()];
    emit_frame(frame, &mut bytes).expect("it is well formed");
    bytes
}

/// The families of rules that are about the network.
const RULES: [&str; 3] = ["R019", "R06", "R07"];

/// A network under audit. Findings of other rules than the network's are left out.
pub(crate) struct Net {
    peeler: Peeler,
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
        Self { peeler: Peeler::default(), auditor, frames: [0; 8] }
    }

    /// A packet at a time, ns.
    pub(crate) fn send(&mut self, ns: u64, sent: Sent) {
        self.take(ns, sent.file, sent.point, sent.direction, &sent.bytes());
    }

    /// A pause of a priority by a port.
    pub(crate) fn pause(&mut self, ns: u64, port: Mac, priority: u8) {
        let pfc = Pfc::one(priority, 0xFFFF).expect("a priority");
        let frame = Frame::mac_control(port, MacControl::Pfc(pfc));
        self.take(ns, 0, 0, None, &emitted(&frame));
    }

    /// A captured frame.
    fn take(&mut self, ns: u64, file: u16, point: u16, way: Option<Direction>, bytes: &[u8]) {
        let frame = &mut self.frames[usize::from(file)];
        *frame += 1;
        let record = Record {
            at: At { time: Time(1_700_000_000_000_000_000 + ns), file, frame: *frame },
            point: Point(point),
            link: Link::Ethernet,
            direction: way,
            original_len: bytes.len() as u32,
            segment: None,
            bytes,
        };
        let mut events = Vec::new();
        self.peeler.peel(&record, &mut events);
        for event in &events {
            self.auditor.see(event);
        }
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
