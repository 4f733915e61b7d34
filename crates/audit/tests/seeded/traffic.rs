//! Traffic as bytes, to be broken: three queue pairs between hosts 1 and 2 with everything right
//! about them, each frame with a name; and what seeds use to add to it and to change it.

use audit::capture::{self, Block};
use audit::peel::Peeler;
use audit::report::{Capture, Report};
use audit::{Auditor, Options};
use wire::ethernet::Ethernet;
use wire::frame::{Body, Frame, Network, emit_frame};
use wire::ip::Ip;
use wire::mad::{CmMessage, Mad, Rtu};
use wire::packet::{AtomicEth, NakCode};
use wire::{Aeth, Bth, Deth, Encapsulation, Extensions, HeaderSet, Reth, Syndrome};
use wire::{Gid, Mac, Msn, Opcode, PKey, Psn, QKey, Qpn, RKey, checksum, icrc};

pub(crate) use super::connection::{QP_A, QP_B, gid, op, rep, req};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// DSCP 26 with ECT(0), without, marked; the class of CNPs.
pub(crate) const ECT: u8 = 0x6A;
pub(crate) const BARE: u8 = 0x68;
pub(crate) const MARKED: u8 = 0x6B;
pub(crate) const CNP_CLASS: u8 = 48 << 2;
/// The queue pair of host 2 for datagrams without answers.
pub(crate) const QP_UC: u32 = 0xC3;

/// A frame: when, at which interface, its bytes, and what it is for.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) ns: u64,
    pub(crate) point: u16,
    pub(crate) bytes: Vec<u8>,
    pub(crate) name: String,
}

/// A capture that grows.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) records: Vec<Record>,
    pub(crate) now: u64,
    /// The next PSN of host 1's reliable queue pair, and its messages so far.
    pub(crate) psn: u32,
    pub(crate) msn: u32,
    idents: [u16; 10],
    /// Bytes that the file loses at its end.
    pub(crate) cut: usize,
    /// Links of the interfaces: 1 is Ethernet, 247 InfiniBand.
    pub(crate) links: Vec<u16>,
}

pub(crate) fn mac(host: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, host])
}

/// The payload of a packet that is any: its length.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| n as u8).collect()
}

/// The packet of an opcode from one host to the other's queue pair.
pub(crate) fn packet(from: u8, opcode: u8, qp: u32, psn: u32, len: usize) -> wire::Packet<Vec<u8>> {
    let code = Opcode(opcode);
    let has = |set| code.headers().is_some_and(|headers| headers.contains(set));
    let aeth = Aeth { syndrome: Syndrome::Ack(31), msn: Msn::new(1) };
    let reth = Reth { va: 0x1000, rkey: RKey::new(0x1234), length: len as u32 };
    let atomic = AtomicEth { va: 0x1000, rkey: RKey::new(0x1234), swap_add: 1, compare: 0 };
    let ext = Extensions {
        aeth: has(HeaderSet::AETH).then_some(aeth),
        reth: has(HeaderSet::RETH).then_some(reth),
        deth: has(HeaderSet::DETH).then_some(Deth { qkey: QKey::GSI, source_qp: Qpn::GSI }),
        atomic: (opcode == op::FETCH_ADD).then_some(atomic),
        atomic_ack: (opcode == op::ATOMIC_ACK).then_some(7),
        ..Extensions::default()
    };
    let answers = (0x0D..=0x12).contains(&opcode);
    let length = if matches!(opcode, op::READ | op::ACK | op::ATOMIC_ACK) { 0 } else { len };
    wire::Packet {
        path: wire::Path {
            encapsulation: Encapsulation::RoceV2,
            source: gid(from),
            destination: gid(3 - from),
            traffic_class: if opcode == op::CNP { CNP_CLASS } else { ECT },
            hop_limit: 64,
            flow_label: 0,
            // Alike in both directions.
            source_port: if matches!(qp, QP_A | QP_B) { 0xC123 } else { 0xC000 | qp as u16 },
            priority: 0,
        },
        bth: Bth {
            opcode: code,
            solicited: false,
            migration: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: opcode == op::CNP,
            dest_qp: Qpn::new(qp),
            ack_request: !answers && opcode < 0x20,
            psn: Psn::new(psn),
        },
        ext,
        payload: payload(length),
    }
}

/// The bytes of a packet between the two hosts.
pub(crate) fn encode(packet: &wire::Packet<Vec<u8>>, ident: u16) -> Vec<u8> {
    let host = |gid: Gid| mac(gid.0[15]);
    let ethernet = Ethernet::new(host(packet.path.source), host(packet.path.destination));
    let borrowed = wire::Packet {
        path: packet.path,
        bth: packet.bth,
        ext: packet.ext,
        payload: packet.payload.as_slice(),
    };
    let mut frame = Frame::new(ethernet, &borrowed).expect("a frame");
    if let Body::Roce(roce) = &mut frame.body
        && let Network::Udp { ip: Ip::V4(ip), .. } = &mut roce.network
    {
        ip.ident = ident;
    }
    emitted(&frame)
}

pub(crate) fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; frame.wire_len()];
    emit_frame(frame, &mut bytes).expect("it is well formed");
    bytes
}

/// Places in a frame without tags.
pub(crate) const IP: usize = 14;
pub(crate) const UDP: usize = 34;
pub(crate) const BTH: usize = 42;

/// Makes the IP checksum right.
pub(crate) fn mend_ip(bytes: &mut [u8]) {
    bytes[IP + 10..IP + 12].fill(0);
    let sum = checksum::ipv4_header(&bytes[IP..UDP]);
    bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Makes the ICRC right too.
pub(crate) fn mend(bytes: &mut [u8]) {
    mend_ip(bytes);
    let end = bytes.len() - 4;
    let state = icrc::udp_state(&bytes[IP..UDP], &bytes[UDP..BTH]);
    let right = icrc::finish(state, &bytes[BTH..end]);
    bytes[end..].copy_from_slice(&right.to_le_bytes());
}

impl Traffic {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            records: Vec::new(),
            now: 1_700_000_000_000_000_000,
            psn: 1000,
            msn: 0,
            idents: [100, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000],
            cut: 0,
            links: vec![1],
        }
    }

    pub(crate) fn wait(&mut self, us: u64) -> &mut Self {
        self.now += us * US;
        self
    }

    /// A frame 10 µs later.
    pub(crate) fn show(&mut self, name: &str, bytes: Vec<u8>) -> &mut Self {
        self.now += 10 * US;
        self.records.push(Record { ns: self.now, point: 0, bytes, name: name.to_owned() });
        self
    }

    /// A packet, its IP identification counted.
    pub(crate) fn send(&mut self, name: &str, packet: &wire::Packet<Vec<u8>>) -> &mut Self {
        let ident = &mut self.idents[usize::from(packet.path.source.0[15])];
        *ident += 1;
        let bytes = encode(packet, *ident);
        self.show(name, bytes)
    }

    /// A request of host 1 on the reliable queue pair.
    pub(crate) fn request(&mut self, opcode: u8, psn: u32, len: usize) -> &mut Self {
        self.send("request", &packet(1, opcode, QP_B, psn, len))
    }

    /// One with a RETH: address and length.
    pub(crate) fn target(&mut self, opcode: u8, psn: u32, va: u64, length: u32) -> &mut Self {
        let len = if opcode == op::READ { 0 } else { length.min(1024) };
        let mut packet = packet(1, opcode, QP_B, psn, len as usize);
        packet.ext.reth = Some(Reth { va, rkey: RKey::new(0x1234), length });
        self.send("request", &packet)
    }

    /// An answer of host 2.
    pub(crate) fn answer(
        &mut self,
        opcode: u8,
        psn: u32,
        syndrome: Syndrome,
        msn: u32,
        len: usize,
    ) -> &mut Self {
        let mut packet = packet(2, opcode, QP_A, psn, len);
        packet.ext.aeth = packet.ext.aeth.map(|_| Aeth { syndrome, msn: Msn::new(msn) });
        self.send("answer", &packet)
    }

    /// An ACK that counts so many messages more than all before.
    pub(crate) fn ack(&mut self, psn: u32) -> &mut Self {
        let msn = self.msn;
        self.answer(op::ACK, psn, Syndrome::Ack(31), msn, 0)
    }

    pub(crate) fn nak(&mut self, psn: u32, code: NakCode) -> &mut Self {
        let msn = self.msn;
        self.answer(op::ACK, psn, Syndrome::Nak(code), msn, 0)
    }

    pub(crate) fn rnr(&mut self, psn: u32, timer: u8) -> &mut Self {
        let msn = self.msn;
        self.answer(op::ACK, psn, Syndrome::RnrNak(timer), msn, 0)
    }

    pub(crate) fn response(&mut self, opcode: u8, psn: u32, len: usize) -> &mut Self {
        let msn = self.msn;
        self.answer(opcode, psn, Syndrome::Ack(31), msn, len)
    }

    /// SENDs of one packet, each acknowledged.
    pub(crate) fn sends(&mut self, count: u32) -> &mut Self {
        for _ in 0..count {
            let psn = self.next();
            self.request(op::SEND_ONLY, psn, 100).ack(psn);
        }
        self
    }

    /// The PSN of a message of one packet.
    pub(crate) fn next(&mut self) -> u32 {
        self.msn += 1;
        self.psn += 1;
        self.psn - 1
    }

    pub(crate) fn cm(&mut self, from: u8, transaction: u64, message: CmMessage) -> &mut Self {
        let mut packet = packet(from, 0x64, 1, 0, 256);
        packet.payload = Mad::new(transaction, message).emit().to_vec();
        self.send("cm", &packet)
    }

    /// The first frame of a name behind number `skip`, for a change.
    pub(crate) fn named(&mut self, name: &str, skip: usize) -> &mut Vec<u8> {
        let found = self.records.iter_mut().filter(|record| record.name == name).nth(skip);
        &mut found.expect("a frame of this name").bytes
    }

    /// Changes all frames of a name; they are mended.
    pub(crate) fn all(&mut self, name: &str, mut change: impl FnMut(usize, &mut Vec<u8>)) {
        let frames = self.records.iter_mut().filter(|record| record.name == name);
        for (n, record) in frames.enumerate() {
            change(n, &mut record.bytes);
            mend(&mut record.bytes);
        }
    }

    /// The traffic that has no fault.
    pub(crate) fn clean() -> Self {
        let mut t = Self::new();
        t.cm(1, 0x77, CmMessage::Req(req(7))).cm(2, 0x77, CmMessage::Rep(rep(7, 8)));
        let rtu = Rtu { local_id: 7, remote_id: 8, private: [0; 224] };
        t.cm(1, 0x77, CmMessage::Rtu(rtu)).sends(30);
        let p = t.psn;
        t.request(op::SEND_FIRST, p, 1024).request(op::SEND_MIDDLE, p + 1, 1024);
        t.request(op::SEND_LAST, p + 2, 5);
        t.took(3).ack(p + 2);
        t.target(op::WRITE_FIRST, p + 3, 0, 2048).request(op::WRITE_LAST, p + 4, 1024);
        t.took(2).ack(p + 4);
        t.target(op::READ, p + 5, 0x1000, 3000).took(3);
        t.response(op::RESPONSE_FIRST, p + 5, 1024).response(op::RESPONSE_MIDDLE, p + 6, 1024);
        t.response(op::RESPONSE_LAST, p + 7, 952);
        t.request(op::FETCH_ADD, p + 8, 0).took(1);
        t.answer(op::ATOMIC_ACK, p + 8, Syndrome::Ack(31), t.msn, 0);
        t.sends(30);
        // Marked on the way, and answered.
        t.sends(1);
        let at = t.records.len() - 2;
        t.records[at].bytes[IP + 1] = MARKED;
        mend(&mut t.records[at].bytes);
        t.send("cnp", &packet(2, op::CNP, QP_A, 0, 16));
        for psn in 0..60 {
            t.send("uc", &packet(1, op::UC_SEND_ONLY, QP_UC, 500 + psn, 256));
        }
        t.sends(30);
        t
    }

    /// A message of so many packets was sent.
    pub(crate) fn took(&mut self, packets: u32) -> &mut Self {
        self.psn += packets;
        self.msn += 1;
        self
    }

    /// The capture file.
    pub(crate) fn file(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let len = (body.len().next_multiple_of(4) + 12) as u32;
            file.extend([kind.to_le_bytes(), len.to_le_bytes()].concat());
            file.extend(body);
            file.resize(file.len().next_multiple_of(4), 0);
            file.extend(len.to_le_bytes());
        };
        block(
            0x0A0D_0D0A,
            &[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255],
        );
        for link in &self.links {
            let [low, high] = link.to_le_bytes();
            // Nanoseconds.
            block(1, &[low, high, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        }
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_by_key(|record| record.ns);
        for Record { ns, point, bytes, .. } in records {
            let len = (bytes.len() as u32).to_le_bytes();
            let (high, low) = ((ns >> 32) as u32, *ns as u32);
            let head =
                [u32::from(*point).to_le_bytes(), high.to_le_bytes(), low.to_le_bytes(), len, len];
            block(6, &[&head.concat()[..], bytes].concat());
        }
        file.truncate(file.len() - self.cut);
        file
    }

    /// The file read, peeled, judged.
    pub(crate) fn audited(&self) -> Report {
        let mut reader = capture::open(std::io::Cursor::new(self.file()), 0).expect("a capture");
        let (mut block, mut peeler) = (Block::default(), Peeler::default());
        let (mut auditor, mut events) = (Auditor::new(Options::default()), Vec::new());
        let damage = loop {
            match reader.fill(&mut block) {
                Ok(true) => block.records().for_each(|record| peeler.peel(&record, &mut events)),
                Ok(false) => break None,
                Err(damage) => break Some(damage.to_string()),
            }
            for event in events.drain(..) {
                auditor.see(&event);
            }
        };
        auditor.finish(vec![Capture { damage, ..reader.summary() }])
    }
}
