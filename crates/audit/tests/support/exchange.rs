//! A made-up exchange between two queue pairs, packet by packet: `a` (10.0.0.1, queue pair 0xa1)
//! asks, `b` (10.0.0.2, queue pair 0xb2) answers, 10 us between packets, IP identifications
//! counted by each sender.

use audit::event::{Event, Icrc, Packet, Path, What};
use audit::{At, Point, Time};
use wire::packet::{Aeth, AtomicEth, Bth, Encapsulation, Extensions, NakCode, Reth, Syndrome};
use wire::{Msn, Opcode, PKey, Psn, Qpn, RKey};

use super::connection::gid;
pub(crate) use super::connection::{QP_A, QP_B, op};

/// Packets so far.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) events: Vec<Event>,
    now: u64,
    idents: [u16; 2],
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Self { events: Vec::new(), now: 1_000_000_000, idents: [100, 200] }
    }

    /// Lets time pass, microseconds.
    pub(crate) fn wait(&mut self, us: u64) -> &mut Self {
        self.now += us * 1000;
        self
    }

    /// A packet from `a` (or, `back`, from `b`).
    pub(crate) fn packet(
        &mut self,
        back: bool,
        opcode: u8,
        psn: u32,
        ext: Extensions,
        payload_len: u32,
    ) -> &mut Event {
        self.now += 10_000;
        let ident = &mut self.idents[usize::from(back)];
        *ident += 1;
        let (source, destination, qp) =
            if back { (gid(2), gid(1), QP_A) } else { (gid(1), gid(2), QP_B) };
        let asks = !back && !matches!(opcode & 0x1F, 0x00 | 0x01 | 0x06 | 0x07);
        let path = Path {
            encapsulation: Encapsulation::RoceV2,
            source,
            destination,
            // CNPs have a class of their own.
            traffic_class: if opcode == 0x81 { 48 << 2 } else { 0 },
            hop_limit: 64,
            flow_label: 0,
            source_port: 0xC123,
            ident: *ident,
            dont_fragment: true,
            udp_checksum: Some(true),
        };
        let bth = Bth {
            opcode: Opcode(opcode),
            solicited: false,
            migration: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(qp),
            ack_request: asks,
            psn: Psn::new(psn),
        };
        let what =
            What::Packet(Packet { path, bth, ext, payload_len, icrc: Icrc::Right, mad: None });
        self.events.push(Event {
            at: At { time: Time(self.now), file: 0, frame: self.events.len() as u64 + 1 },
            part: 0,
            point: Point(0),
            direction: None,
            len: payload_len + 62,
            macs: None,
            tag: None,
            tunnels: 0,
            what,
        });
        self.events.last_mut().expect("just pushed")
    }

    /// A SEND or the middle of a WRITE: a request without extension headers.
    pub(crate) fn request(&mut self, opcode: u8, psn: u32, payload: u32) -> &mut Self {
        self.packet(false, opcode, psn, Extensions::default(), payload);
        self
    }

    /// A WRITE's first packet, or a READ (whose payload is 0), of `length` bytes.
    pub(crate) fn with_reth(&mut self, opcode: u8, psn: u32, length: u32, va: u64) -> &mut Self {
        let payload = if opcode == op::READ { 0 } else { length.min(1024) };
        let reth = Some(Reth { va, rkey: RKey::new(0x1234), length });
        self.packet(false, opcode, psn, Extensions { reth, ..Default::default() }, payload);
        self
    }

    /// A READ of `length` bytes.
    pub(crate) fn read(&mut self, psn: u32, length: u32) -> &mut Self {
        self.with_reth(op::READ, psn, length, 0x1000)
    }

    /// A fetch-and-add.
    pub(crate) fn atomic(&mut self, psn: u32) -> &mut Self {
        let atomic =
            Some(AtomicEth { va: 0x1000, rkey: RKey::new(0x1234), swap_add: 1, compare: 0 });
        self.packet(false, op::FETCH_ADD, psn, Extensions { atomic, ..Default::default() }, 0);
        self
    }

    /// An answer with an AETH.
    pub(crate) fn answer(
        &mut self,
        opcode: u8,
        psn: u32,
        syndrome: Syndrome,
        msn: u32,
        payload: u32,
    ) -> &mut Self {
        let aeth = Some(Aeth { syndrome, msn: Msn::new(msn) });
        self.packet(true, opcode, psn, Extensions { aeth, ..Default::default() }, payload);
        self
    }

    pub(crate) fn ack(&mut self, psn: u32, msn: u32) -> &mut Self {
        self.answer(op::ACK, psn, Syndrome::Ack(31), msn, 0)
    }

    pub(crate) fn nak(&mut self, psn: u32, code: NakCode) -> &mut Self {
        self.answer(op::ACK, psn, Syndrome::Nak(code), 0, 0)
    }

    pub(crate) fn out_of_sequence(&mut self, psn: u32) -> &mut Self {
        self.nak(psn, NakCode::PsnSequenceError)
    }

    pub(crate) fn rnr(&mut self, psn: u32, timer: u8) -> &mut Self {
        self.answer(op::ACK, psn, Syndrome::RnrNak(timer), 0, 0)
    }

    /// A READ response; a middle one has no AETH.
    pub(crate) fn response(&mut self, opcode: u8, psn: u32, payload: u32) -> &mut Self {
        if opcode == op::RESPONSE_MIDDLE {
            self.packet(true, opcode, psn, Extensions::default(), payload);
            return self;
        }
        self.answer(opcode, psn, Syndrome::Ack(31), 1, payload)
    }

    pub(crate) fn atomic_ack(&mut self, psn: u32, value: u64) -> &mut Self {
        let aeth = Some(Aeth { syndrome: Syndrome::Ack(31), msn: Msn::new(1) });
        let ext = Extensions { aeth, atomic_ack: Some(value), ..Default::default() };
        self.packet(true, op::ATOMIC_ACK, psn, ext, 0);
        self
    }

    /// SENDs of one packet from `from` on, each acknowledged.
    pub(crate) fn sends(&mut self, from: u32, count: u32) -> &mut Self {
        for n in 0..count {
            self.request(op::SEND_ONLY, from + n, 100).ack(from + n, from + n + 1);
        }
        self
    }

    /// Takes the newest packet out of the capture: it was lost before it.
    pub(crate) fn lose(&mut self) -> &mut Self {
        self.events.pop();
        self
    }

    /// The newest packet, to change.
    pub(crate) fn newest(&mut self) -> &mut Event {
        self.events.last_mut().expect("a packet")
    }

    /// Its headers.
    pub(crate) fn newest_packet(&mut self) -> &mut Packet {
        match &mut self.newest().what {
            What::Packet(packet) => packet,
            other => panic!("{other:?}"),
        }
    }
}
