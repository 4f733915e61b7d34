//! Seeds about the network: ECN, paths, pauses, DCBX, connections.

use wire::frame::Frame;
use wire::mac_control::{MacControl, Pfc};
use wire::mad::{CmMessage, Rej, RejectReason, Subject};
use wire::packet::NakCode;
use wire::{Encapsulation, Mac};

use super::traffic::{BARE, ECT, IP, MARKED, MS, QP_A, QP_B, QP_UC, Record, Traffic, UDP, US};
use super::traffic::{emitted, mac, mend, op, packet, rep, req};
use super::{Seed, seed};

/// A switch's port.
const PORT: Mac = Mac([0xCC, 0, 0, 0, 0, 1]);
const MOST: u16 = 0xFFFF;
const WILLING: u8 = 0x80;

pub(crate) const SEEDS: &[Seed] = &[
    seed("R060", &[], |t| t.all("uc", |_, bytes| bytes[IP + 1] = BARE)),
    seed("R061", &["R083"], |t| {
        t.records.retain(|record| record.name != "cnp");
        for name in ["request", "uc"] {
            t.all(name, |_, bytes| bytes[IP + 1] = ECT);
        }
        // While traffic goes on.
        let start = t.records[10].ns;
        for n in 0..40 {
            add(t, start + n * 20 * US, 0, pfc(PORT, 3, 100));
        }
    }),
    seed("R062", &[], |t| {
        t.records.retain(|record| record.name != "cnp");
        t.sends(200);
        t.all("request", |n, bytes| bytes[IP + 1] = if n % 10 == 3 { MARKED } else { ECT });
    }),
    seed("R063", &[], no_slow_down),
    seed("R064", &[], |t| t.all("cnp", |_, bytes| bytes[IP + 1] = BARE)),
    seed("R065", &[], unfounded),
    seed("R066", &[], |t| t.all("answer", |_, bytes| bytes[IP + 1] = 2)),
    seed("R067", &[], |t| {
        t.all("uc", |n, bytes| bytes[IP + 1] = if n % 3 == 0 { 2 } else { ECT });
    }),
    seed("R068", &["R060", "R062"], |t| {
        // The same packets behind a hop that clears the field.
        t.links.push(1);
        for mut record in t.records.clone() {
            if record.name == "uc" {
                record.bytes[IP + 1] = BARE;
                record.bytes[IP + 8] -= 1;
                mend(&mut record.bytes);
                record.ns += US;
                record.point = 1;
                t.records.push(record);
            }
        }
    }),
    seed("R019", &[], |t| t.all("uc", |n, bytes| bytes[IP + 8] = 60 + (n % 2) as u8)),
    seed("R070", &[], |t| {
        let mut old = packet(1, op::UC_SEND_ONLY, 0xC4, 9, 64);
        old.path.encapsulation = Encapsulation::RoceV1;
        t.send("v1", &old);
    }),
    seed("R071", &[], |t| {
        for n in 0..400 {
            let mut packet = packet(1, op::UC_SEND_ONLY, 0x300 + n % 40, n / 40, 64);
            packet.path.source_port = 0xC555;
            t.send("crowd", &packet);
        }
    }),
    seed("R072", &[], |t| {
        t.all("uc", |n, bytes| bytes[UDP + 1] = (n * 37) as u8);
    }),
    seed("R080", &[], |t| {
        let start = t.now + MS;
        for n in 0..500 {
            add(t, start + n * 100 * US, 0, pfc(mac(1), 3, MOST));
            add(t, start + n * 100 * US + 90 * US, 0, pfc(mac(1), 3, 0));
        }
    }),
    seed("R081", &[], |t| {
        let start = t.now + MS;
        hold(t, 0, mac(1), start, 30 * MS);
    }),
    seed("R082", &["R021", "R024"], one_way),
    seed("R083", &[], |t| {
        t.sends(150);
        let start = t.records[10].ns;
        for n in 0..40 {
            add(t, start + n * 40 * US, 0, pfc(mac(1), 4, 100));
        }
    }),
    seed("R084", &[], |t| {
        let start = t.now + MS;
        hold(t, 0, mac(2), start, 2 * MS);
        t.now = start + 500 * US;
        for n in 0..50 {
            t.send("uc", &packet(1, op::UC_SEND_ONLY, QP_UC, 560 + n, 64));
        }
    }),
    seed("R085", &[], ring),
    seed("R086", &[], |t| {
        let frame = Frame::mac_control(mac(1), MacControl::Pause { quanta: 100 });
        t.show("pause", emitted(&frame));
    }),
    seed("R090", &[], |t| agents(t, 2, &priorities(WILLING, 0), &priorities(0, 8))),
    seed("R091", &[], |t| {
        let switch = [shares(9, 0, [60, 40]), shares(10, 0, [50, 50])].concat();
        agents(t, 2, &shares(9, WILLING, [100, 0]), &switch);
    }),
    seed("R092", &[], |t| {
        let with = |willing, priority: u8| {
            let roce = ieee(12, &[0, priority << 5 | 3, 0x12, 0xB7]);
            [priorities(willing, 8), roce].concat()
        };
        agents(t, 2, &with(WILLING, 5), &with(0, 3));
    }),
    seed("R093", &[], |t| agents(t, 1, &priorities(WILLING, 8), &priorities(WILLING, 8))),
    seed("R094", &["R090"], |t| agents(t, 1, &priorities(0, 8), &priorities(0, 16))),
    seed("R095", &[], |t| {
        let control = tlv(1, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        let old = [control, tlv(3, &[0, 0, 0x80, 0, 8, 8])].concat();
        let old = tlv(127, &[&[0x00, 0x1B, 0x21, 2], &old[..]].concat());
        agents(t, 2, &priorities(0, 8), &old);
    }),
    seed("R096", &[], |t| agents(t, 1, &shares(9, 0, [50, 49]), &[])),
    seed("R100", &[], |t| {
        let rej = Rej {
            local_id: 0,
            remote_id: 9,
            subject: Subject::Req,
            info_len: 0,
            reason: RejectReason::CONSUMER,
            info: [0; 72],
            private: [0; 148],
        };
        t.cm(1, 0x99, other_req()).cm(2, 0x99, CmMessage::Rej(rej));
    }),
    seed("R101", &[], |t| {
        t.cm(1, 0x99, other_req()).wait(5_000_000).cm(1, 0x99, other_req());
        let mut rep = rep(9, 10);
        rep.qpn = wire::Qpn::new(0xF1);
        t.cm(2, 0x99, CmMessage::Rep(rep));
    }),
    seed("R102", &[], |t| {
        for _ in 0..3 {
            t.cm(1, 0x99, other_req()).wait(6_300_000);
        }
    }),
    seed("R103", &[], |t| {
        // Agreed on another beginning than is used.
        let mut rep = rep(7, 8);
        rep.psn = wire::Psn::new(1005);
        let mut other = Traffic::new();
        other.cm(2, 0x77, CmMessage::Rep(rep));
        let ident = t.records[1].bytes[IP + 4..IP + 6].to_vec();
        t.records[1].bytes = other.records[0].bytes.clone();
        t.records[1].bytes[IP + 4..IP + 6].copy_from_slice(&ident);
        mend(&mut t.records[1].bytes);
    }),
];

fn add(t: &mut Traffic, ns: u64, point: u16, bytes: Vec<u8>) {
    t.records.push(Record { ns, point, bytes, name: "added".to_owned() });
}

fn pfc(from: Mac, priority: u8, quanta: u16) -> Vec<u8> {
    let pfc = Pfc::one(priority, quanta).expect("a priority");
    emitted(&Frame::mac_control(from, MacControl::Pfc(pfc)))
}

/// Pauses of priority 3 renewed every 50 µs, then ended.
fn hold(t: &mut Traffic, point: u16, port: Mac, from: u64, length: u64) {
    for n in 0..length / (50 * US) {
        add(t, from + n * 50 * US, point, pfc(port, 3, MOST));
    }
    add(t, from + length, point, pfc(port, 3, 0));
}

/// 33 Gbit/s go on through dense CNPs.
fn no_slow_down(t: &mut Traffic) {
    let (start, first) = (t.now + MS, t.psn);
    for n in 0..25_000_u32 {
        t.now = start + u64::from(n) * US;
        let mut data = packet(1, op::SEND_ONLY, QP_B, first + n, 1024);
        data.bth.ack_request = n % 64 == 63;
        data.path.traffic_class = if n % 16 == 0 { MARKED } else { ECT };
        t.send("data", &data);
        t.msn += 1;
        if n % 64 == 63 {
            t.now -= 5 * US;
            t.ack(first + n);
        }
        if n > 5000 && n % 50 == 0 {
            t.send("cnp", &packet(2, op::CNP, QP_A, 0, 16));
        }
    }
}

/// CNPs for data that nothing marked, though marks of other flows are seen.
fn unfounded(t: &mut Traffic) {
    t.records.retain(|record| record.name != "cnp");
    t.all("request", |_, bytes| bytes[IP + 1] = ECT);
    for psn in 0..1000 {
        let mut data = packet(1, op::UC_SEND_ONLY, QP_UC, 560 + psn, 64);
        data.path.traffic_class = if psn < 30 { MARKED } else { ECT };
        t.send("uc", &data);
        if psn < 30 {
            let mut cnp = packet(2, op::CNP, 0x55, 0, 16);
            cnp.path.source_port = 0xC000 | QP_UC as u16;
            t.send("cnp", &cnp);
        }
    }
    t.sends(1000);
    for _ in 0..20 {
        t.send("cnp", &packet(2, op::CNP, QP_A, 0, 16)).sends(1);
    }
}

/// Both ends send, one pauses, and what it sends is lost.
fn one_way(t: &mut Traffic) {
    for (n, psn) in (0..200).zip(2000..) {
        t.sends(1);
        t.send("back", &packet(2, op::SEND_ONLY, QP_A, psn, 64));
        t.send("back-ack", &{
            let mut ack = packet(1, op::ACK, QP_B, psn, 0);
            ack.ext.aeth = ack.ext.aeth.map(|a| wire::Aeth { msn: wire::Msn::new(n + 1), ..a });
            ack
        });
        if n % 10 == 0 {
            let now = t.now;
            add(t, now + US, 0, pfc(mac(1), 3, 0xFF));
            add(t, now + 2 * US, 0, pfc(mac(1), 3, 0));
        }
    }
    let p = t.psn;
    t.request(op::SEND_ONLY, p, 100).request(op::SEND_ONLY, p + 1, 100);
    t.nak(p, NakCode::PsnSequenceError);
    t.request(op::SEND_ONLY, p, 100).request(op::SEND_ONLY, p + 1, 100);
    t.msn += 2;
    t.ack(p + 1);
}

/// Four links between four switches that hold each other; their traffic is that of a flow.
fn ring(t: &mut Traffic) {
    let start = t.now + 100 * MS;
    for point in 1..5_u16 {
        t.links.push(1);
        let (waits, holds) = (point as u8, point as u8 % 4 + 1);
        let port = |number: u8, side: u16| Mac([0xCC, 0, 0, 0, number, (point * 2 + side) as u8]);
        for mut record in t.records.clone() {
            if record.name == "uc" && record.point == 0 {
                record.ns += u64::from(point) * US;
                record.point = point;
                t.records.push(record);
            }
        }
        add(t, start - MS, point, pfc(port(waits, 0), 3, 10));
        hold(t, point, port(holds, 1), start, 8 * MS);
    }
}

fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (kind << 9 | value.len() as u16).to_be_bytes().to_vec();
    bytes.extend(value);
    bytes
}

fn ieee(subtype: u8, body: &[u8]) -> Vec<u8> {
    tlv(127, &[&[0x00, 0x80, 0xC2, subtype], body].concat())
}

fn priorities(willing: u8, enabled: u8) -> Vec<u8> {
    ieee(11, &[willing | 8, enabled])
}

/// ETS: priority 3 in class 1.
fn shares(subtype: u8, willing: u8, shares: [u8; 2]) -> Vec<u8> {
    let mut body = vec![willing, 0x00, 0x01, 0x00, 0x00, shares[0], shares[1]];
    body.extend([0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0]);
    ieee(subtype, &body)
}

/// Host and switch announce, so many times.
fn agents(t: &mut Traffic, times: u64, host: &[u8], switch: &[u8]) {
    let start = t.now;
    for n in 0..times * 2 {
        let (mac, dcbx) = [(mac(1), host), (PORT, switch)][n as usize % 2];
        let mut bytes = [0x01, 0x80, 0xC2, 0, 0, 0x0E].to_vec();
        bytes.extend(mac.0);
        bytes.extend([0x88, 0xCC]);
        bytes.extend(tlv(1, &[&[4], &mac.0[..]].concat()));
        bytes.extend(tlv(2, b"\x05eth1"));
        bytes.extend(tlv(3, &120_u16.to_be_bytes()));
        bytes.extend(dcbx);
        bytes.extend([0, 0]);
        bytes.resize(bytes.len().max(60), 0);
        add(t, start + (n + 1) * 10_000 * MS, 0, bytes);
    }
}

/// A request for another connection.
fn other_req() -> CmMessage {
    let mut req = req(9);
    req.qpn = wire::Qpn::new(0xF0);
    CmMessage::Req(req)
}
