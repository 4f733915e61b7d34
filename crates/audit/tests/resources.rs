//! READs outstanding against what the connection manager agreed on (R036), and a queue pair that
//! it connects anew.

mod support;

use audit::What;
use support::connection::{op, rep, req};
use support::exchange::Exchange;
use support::{audit, codes};
use wire::mad::{CmMessage, Mad, Rep};
use wire::{Psn, Qpn};

/// A handshake after which `a` begins with PSN 0 and `b` serves `resources` READs at once.
fn connect(x: &mut Exchange, id: u32, first: u32, resources: u8) {
    let req = req(id);
    let psn = Psn::new(first);
    let rep = Rep { psn, responder_resources: resources, ..rep(id, id + 100) };
    let transaction = u64::from(id) << 8;
    for (back, message) in [(false, CmMessage::Req(req)), (true, CmMessage::Rep(rep))] {
        let event = x.packet(back, 0x64, 0, Default::default(), 256);
        let What::Packet(packet) = &mut event.what else { unreachable!() };
        packet.bth.dest_qp = Qpn::GSI;
        packet.mad = Some(Box::new(Mad::new(transaction, message)));
    }
}

fn reads(x: &mut Exchange, first: u32, count: u32) {
    for psn in first..first + count {
        x.read(psn, 64);
    }
    for psn in first..first + count {
        x.response(op::RESPONSE_ONLY, psn, 64);
    }
}

#[test]
fn r036_too_many_reads() {
    let broken = |count| {
        let mut x = Exchange::new();
        connect(&mut x, 7, 0, 2);
        reads(&mut x, 0, count);
        let report = audit(&x.events);
        codes(&report)
    };
    assert_eq!(broken(2), []);
    assert_eq!(broken(4), [("R036", 2)]);
}

#[test]
fn r036_not_of_reads_whose_responses_the_capture_missed() {
    let mut x = Exchange::new();
    connect(&mut x, 7, 0, 2);
    for psn in 0..20 {
        x.read(psn, 64).response(op::RESPONSE_ONLY, psn, 64);
        if psn % 4 == 1 {
            x.lose();
        }
    }
    assert_eq!(codes(&audit(&x.events)), []);
}

#[test]
fn r036_not_of_reads_behind_a_gap() {
    let mut x = Exchange::new();
    connect(&mut x, 7, 0, 2);
    x.read(0, 64).read(1, 64).lose().read(2, 64).read(3, 64);
    assert_eq!(codes(&audit(&x.events)), []);
}

#[test]
fn r040_of_a_queue_pair_that_never_asked() {
    let answers = |us| {
        let mut x = Exchange::new();
        connect(&mut x, 7, 0, 2);
        // Its CNP shows the queue pair, but it asks for nothing.
        x.packet(false, 0x81, 0, Default::default(), 16);
        x.wait(us).ack(5, 1).ack(6, 2);
        codes(&audit(&x.events))
    };
    assert_eq!(answers(100_000), []);
    assert_eq!(answers(600_000), [("R040", 1)]);
}

#[test]
fn without_a_handshake_nobody_knows_the_limit() {
    let mut x = Exchange::new();
    reads(&mut x, 0, 40);
    assert_eq!(codes(&audit(&x.events)), []);
}

#[test]
fn a_queue_pair_connected_anew_begins_anew() {
    let mut x = Exchange::new();
    connect(&mut x, 7, 0, 2);
    x.sends(0, 4);
    connect(&mut x, 8, 2, 2);
    // PSN 2 is no repetition.
    x.sends(2, 4);
    assert_eq!(codes(&audit(&x.events)), []);
}
