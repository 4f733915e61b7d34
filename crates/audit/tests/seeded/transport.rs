//! Seeds about requesters, responders and what is lost between them, and about time.

use wire::Syndrome;
use wire::packet::NakCode;

use super::traffic::{MS, Traffic, US, op, packet};
use super::{Seed, seed};

const SEQUENCE: NakCode = NakCode::PsnSequenceError;

/// Drops the newest frame: it never came by.
fn lose(t: &mut Traffic) {
    t.records.pop();
}

pub(crate) const SEEDS: &[Seed] = &[
    seed("R020", &["R024"], |t| {
        let p = t.psn;
        t.request(op::SEND_ONLY, p, 100);
        lose(t);
        t.request(op::SEND_ONLY, p + 1, 100).nak(p, SEQUENCE);
        again(t, p);
    }),
    seed("R021", &["R024"], |t| {
        let p = t.psn;
        t.request(op::SEND_ONLY, p, 100).request(op::SEND_ONLY, p + 1, 100).nak(p, SEQUENCE);
        again(t, p);
    }),
    seed("R022", &[], |t| {
        let p = t.psn;
        half_read(t, p);
        t.response(op::RESPONSE_FIRST, p + 1, 1024).response(op::RESPONSE_LAST, p + 2, 952);
        t.psn += 3;
        t.sends(3);
    }),
    seed("R023", &["R025"], |t| {
        let p = t.next();
        t.request(op::SEND_ONLY, p, 100).ack(p).wait(70_000).request(op::SEND_ONLY, p, 100).ack(p);
        t.sends(2);
    }),
    seed("R024", &["R021"], |t| {
        let p = t.psn;
        for n in 0..8 {
            t.request(op::SEND_ONLY, p + n, 100);
        }
        t.nak(p, SEQUENCE);
        for n in 0..8 {
            t.request(op::SEND_ONLY, p + n, 100);
        }
        t.psn += 8;
        t.msn += 8;
        t.ack(p + 7);
    }),
    seed("R025", &["R021"], |t| {
        let p = t.next();
        t.request(op::SEND_ONLY, p, 100).wait(67_000).request(op::SEND_ONLY, p, 100).ack(p);
    }),
    seed("R026", &["R021", "R025"], |t| {
        let p = t.psn;
        for _ in 0..4 {
            t.request(op::SEND_ONLY, p, 100).wait(67_000);
        }
    }),
    seed("R027", &["R024"], |t| {
        let p = t.psn;
        t.request(op::SEND_ONLY, p, 100).request(op::SEND_ONLY, p + 1, 100);
        let n = t.records.len();
        let ns = t.records[n - 1].ns;
        t.records[n - 1].ns = t.records[n - 2].ns;
        t.records[n - 2].ns = ns;
        t.records.swap(n - 1, n - 2);
        t.nak(p, SEQUENCE);
        again(t, p);
    }),
    seed("R028", &[], |t| {
        // The very same frame again, a little later.
        let at = t.records.iter().position(|r| r.name == "uc").expect("a frame") - 6;
        let at = (at..).find(|at| t.records[*at].name == "request").unwrap_or(at);
        let mut copy = t.records[at].clone();
        copy.ns += 3 * US;
        t.records.push(copy);
    }),
    seed("R030", &[], |t| {
        let p = t.psn;
        for _ in 0..4 {
            t.request(op::SEND_ONLY, p + 2, 100).nak(p, SEQUENCE);
        }
    }),
    seed("R031", &[], |t| {
        let p = t.psn;
        t.target(op::READ, p, 0x1000, 4096).request(op::SEND_ONLY, p + 1, 100);
    }),
    seed("R032", &[], |t| {
        let p = t.psn;
        t.request(op::SEND_FIRST, p, 1024).request(op::WRITE_ONLY, p + 1, 10);
    }),
    seed("R033", &[], |t| {
        let p = t.psn;
        t.request(op::SEND_FIRST, p, 1024).request(op::SEND_LAST, p + 1, 1028);
        t.took(2).ack(p + 1);
    }),
    seed("R034", &[], two_mtus),
    seed("R035", &["R021", "R025"], |t| {
        let p = t.next();
        t.request(op::SEND_ONLY, p, 100).wait(67_000).request(op::SEND_ONLY, p, 99).ack(p);
    }),
    seed("R036", &[], |t| {
        // The other end offered four.
        let p = t.psn;
        for n in 0..6 {
            t.target(op::READ, p + n, 0x1000, 64);
        }
        for n in 0..6 {
            t.took(1).response(op::RESPONSE_ONLY, p + n, 64);
        }
    }),
    seed("R037", &["R050"], |t| {
        // 10.24 ms are asked for.
        for _ in 0..4 {
            let p = t.next();
            t.request(op::SEND_ONLY, p, 100).rnr(p, 20).wait(5_000);
            t.request(op::SEND_ONLY, p, 100).ack(p);
        }
    }),
    seed("R038", &[], |t| {
        let p = t.psn;
        t.request(op::UC_SEND_ONLY, p, 100);
    }),
    seed("R039", &["R052"], |t| {
        refused(t, NakCode::RemoteAccessError);
        let p = t.psn;
        t.wait(100_000).request(op::SEND_ONLY, p + 1, 100);
    }),
    seed("R040", &[], |t| {
        // A second after the beginning, so that it is no late answer of before.
        let p = t.psn;
        t.wait(1_000_000).sends(3).ack(p + 1000).sends(3);
    }),
    seed("R041", &[], |t| {
        let p = t.next();
        t.request(op::SEND_ONLY, p, 100).wait(2_000_000);
        t.send("uc", &packet(1, op::UC_SEND_ONLY, 0xC3, 560, 256));
    }),
    seed("R042", &[], |t| {
        for n in 0..6 {
            let p = t.next();
            let msn = t.msn + 3 * n + 5;
            t.request(op::SEND_ONLY, p, 100);
            t.answer(op::ACK, p, Syndrome::Ack(31), msn, 0);
        }
    }),
    seed("R044", &["R022", "R025"], |t| {
        let p = t.next();
        t.request(op::FETCH_ADD, p, 0).response(op::ATOMIC_ACK, p, 0).wait(67_000);
        t.request(op::FETCH_ADD, p, 0);
        let mut second = packet(2, op::ATOMIC_ACK, 0xA1, p, 0);
        second.ext.atomic_ack = Some(8);
        second.ext.aeth = second.ext.aeth.map(|a| wire::Aeth { msn: wire::Msn::new(t.msn), ..a });
        t.send("answer", &second);
    }),
    seed("R045", &["R022"], |t| {
        for _ in 0..3 {
            let p = t.psn;
            half_read(t, p);
            // From the beginning, though the middle was asked for.
            t.response(op::RESPONSE_FIRST, p, 1024).response(op::RESPONSE_MIDDLE, p + 1, 1024);
            t.response(op::RESPONSE_MIDDLE, p + 1, 1024).response(op::RESPONSE_LAST, p + 2, 952);
            t.psn += 3;
        }
    }),
    seed("R046", &[], |t| {
        let p = t.psn;
        t.target(op::READ, p, 0x1000, 3000).took(3);
        t.response(op::RESPONSE_FIRST, p, 1024).response(op::RESPONSE_LAST, p + 1, 952);
    }),
    seed("R047", &["R021"], |t| {
        for _ in 0..3 {
            let p = t.next();
            t.request(op::SEND_ONLY, p, 100).nak(p, SEQUENCE).request(op::SEND_ONLY, p, 100);
            t.ack(p);
        }
    }),
    seed("R050", &[], |t| {
        for _ in 0..4 {
            let p = t.next();
            t.request(op::SEND_ONLY, p, 100).rnr(p, 1).request(op::SEND_ONLY, p, 100).ack(p);
        }
    }),
    seed("R051", &["R050"], |t| {
        let p = t.psn;
        for _ in 0..3 {
            t.request(op::SEND_ONLY, p, 100).rnr(p, 1);
        }
    }),
    seed("R052", &[], |t| refused(t, NakCode::RemoteAccessError)),
    seed("R053", &[], |t| refused(t, NakCode::InvalidRequest)),
    seed("R054", &[], |t| refused(t, NakCode::RemoteOperationalError)),
    seed("R055", &[], |t| {
        let p = t.next();
        let msn = t.msn;
        t.request(op::SEND_ONLY, p, 100).answer(op::ACK, p, Syndrome::Reserved(0x40), msn, 0);
        t.ack(p);
    }),
    seed("R056", &[], |t| {
        // Longer than all before that were taken.
        let p = t.psn;
        t.request(op::SEND_FIRST, p, 1024).request(op::SEND_MIDDLE, p + 1, 1024);
        t.request(op::SEND_MIDDLE, p + 2, 1024).request(op::SEND_LAST, p + 3, 1024);
        t.nak(p + 3, NakCode::InvalidRequest);
    }),
    seed("R110", &[], |t| {
        let p = t.sends(200).next();
        t.request(op::SEND_ONLY, p, 100).wait(300_000).ack(p).sends(2);
    }),
    seed("R111", &[], |t| {
        for n in 0..2000 {
            let p = t.next();
            t.request(op::SEND_ONLY, p, 100);
            t.wait(if n % 50 == 0 { 20 * MS / US } else { 1 }).ack(p);
        }
    }),
];

/// Two requests sent again, and taken.
fn again(t: &mut Traffic, p: u32) {
    t.request(op::SEND_ONLY, p, 100).request(op::SEND_ONLY, p + 1, 100);
    t.psn += 2;
    t.msn += 2;
    t.ack(p + 1).sends(2);
}

/// A READ whose middle response is lost, and asked for again.
fn half_read(t: &mut Traffic, p: u32) {
    t.msn += 1;
    t.target(op::READ, p, 0x1000, 3000).response(op::RESPONSE_FIRST, p, 1024);
    t.response(op::RESPONSE_MIDDLE, p + 1, 1024);
    lose(t);
    t.response(op::RESPONSE_LAST, p + 2, 952);
    t.target(op::READ, p + 1, 0x1000 + 1024, 1976);
}

fn refused(t: &mut Traffic, code: NakCode) {
    let p = t.psn;
    t.target(op::WRITE_ONLY, p, 0x7000, 10).nak(p, code);
}

/// Two more queue pairs, whose ends were set up with different path MTUs.
fn two_mtus(t: &mut Traffic) {
    let (one, two) = (0xA7, 0xB7);
    let mut say = |from, opcode, psn, len, msn| {
        let mut packet = packet(from, opcode, if from == 1 { two } else { one }, psn, len);
        packet.path.source_port = 0xC777;
        packet.ext.aeth = packet.ext.aeth.map(|a| wire::Aeth { msn: wire::Msn::new(msn), ..a });
        t.send("other", &packet);
    };
    for psn in 0..4 {
        say(1, op::SEND_ONLY, psn, 100, 0);
        say(2, op::ACK, psn, 0, psn + 1);
    }
    say(1, op::SEND_FIRST, 4, 2048, 0);
    say(1, op::SEND_LAST, 5, 4, 0);
    say(2, op::ACK, 5, 0, 5);
    say(1, op::READ, 6, 3000, 0);
    say(2, op::RESPONSE_FIRST, 6, 1024, 6);
    say(2, op::RESPONSE_MIDDLE, 7, 1024, 6);
    say(2, op::RESPONSE_LAST, 8, 952, 6);
}
