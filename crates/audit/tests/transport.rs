//! The rules of requester and responder (R02x to R05x, R11x): for each an exchange that breaks it,
//! and one that nearly does.

mod support;

use support::exchange::{Exchange, op};
use support::{audit, codes};
use wire::packet::{NakCode, Syndrome};

/// The rules that an exchange breaks, as codes.
#[track_caller]
fn expect(exchange: &Exchange, right: &[&str]) {
    let report = audit(&exchange.events);
    let got: Vec<_> = codes(&report).into_iter().map(|(code, _)| code).collect();
    assert_eq!(got, right, "{:#?}", report.findings);
}

/// The frames of the only finding.
#[track_caller]
fn frames(exchange: &Exchange) -> Vec<u64> {
    let report = audit(&exchange.events);
    let [finding] = &report.findings[..] else { panic!("{:#?}", report.findings) };
    finding.sample.iter().map(|at| at.frame).collect()
}

fn started() -> Exchange {
    let mut exchange = Exchange::new();
    exchange.sends(0, 4);
    exchange
}

#[test]
fn orderly_traffic_has_no_finding() {
    let mut x = started();
    x.request(op::SEND_FIRST, 4, 1024).request(op::SEND_MIDDLE, 5, 1024);
    x.request(op::SEND_LAST, 6, 5).ack(6, 5);
    x.with_reth(op::WRITE_FIRST, 7, 2048, 0).request(op::WRITE_LAST, 8, 1024).ack(8, 6);
    x.read(9, 3000).response(op::RESPONSE_FIRST, 9, 1024).response(op::RESPONSE_MIDDLE, 10, 1024);
    x.response(op::RESPONSE_LAST, 11, 952);
    x.atomic(12).atomic_ack(12, 7);
    for (psn, msn) in [(13, 9), (14, 10), (15, 11)] {
        x.request(op::SEND_ONLY, psn, 100).ack(psn, msn);
    }
    expect(&x, &[]);
}

#[test]
fn r020_lost_before() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).lose().request(op::SEND_ONLY, 5, 100);
    x.out_of_sequence(4).request(op::SEND_ONLY, 4, 100).ack(4, 5);
    let mut near = x.clone();
    x.request(op::SEND_ONLY, 5, 100).ack(5, 6);
    expect(&x, &["R020", "R024"]);
    // The capture missed it, not the receiver.
    near.events.truncate(9);
    near.ack(5, 6).sends(6, 2);
    expect(&near, &[]);
}

#[test]
fn r021_lost_behind_by_nak() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100).out_of_sequence(4);
    x.request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100).ack(5, 6);
    expect(&x, &["R021", "R024"]);
    let report = audit(&x.events);
    let lost = report.findings.iter().find(|f| f.rule.code() == "R021").expect("R021");
    let sample: Vec<_> = lost.sample.iter().map(|at| at.frame).collect();
    assert_eq!(sample, [9, 11, 12], "the packet, the NAK, the repetition");
}

#[test]
fn r022_response_lost() {
    let mut x = started();
    x.read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024);
    x.response(op::RESPONSE_MIDDLE, 5, 1024).lose().response(op::RESPONSE_LAST, 6, 952);
    let mut near = x.clone();
    x.with_reth(op::READ, 5, 1976, 0x1000 + 1024);
    x.response(op::RESPONSE_FIRST, 5, 1024).response(op::RESPONSE_LAST, 6, 952).sends(7, 2);
    expect(&x, &["R022"]);
    // The capture missed one: the requester goes on.
    near.sends(7, 300);
    expect(&near, &[]);
}

#[test]
fn r023_ack_lost() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).ack(4, 5).wait(70_000).request(op::SEND_ONLY, 4, 100);
    x.ack(4, 5).sends(5, 2);
    expect(&x, &["R023", "R025"]);
    // Two ACKs for one request are a responder's right.
    let mut near = started();
    near.request(op::SEND_ONLY, 4, 100).ack(4, 5).ack(4, 5).sends(5, 2);
    expect(&near, &[]);
}

#[test]
fn r025_timeout() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).wait(67_000).request(op::SEND_ONLY, 4, 100).ack(4, 5);
    expect(&x, &["R021", "R025"]);
    // Idle time alone is nothing.
    let mut near = started();
    near.wait(5_000_000).sends(4, 2).wait(5_000_000).sends(6, 2);
    expect(&near, &[]);
}

#[test]
fn r026_retry_exceeded() {
    let mut x = started();
    for _ in 0..4 {
        x.request(op::SEND_ONLY, 4, 100).wait(67_000);
    }
    expect(&x, &["R021", "R025", "R026"]);
    let mut near = x;
    near.ack(4, 5).sends(5, 2);
    expect(&near, &["R021", "R025"]);
    // A capture that ends between impatient tries does not show how they end.
    let tries = |wait: &[u64]| {
        let mut x = started();
        for us in wait {
            x.request(op::SEND_ONLY, 4, 100).wait(*us);
        }
        x.request(op::SEND_ONLY, 4, 100);
        x
    };
    expect(&tries(&[30, 500, 2000, 4000]), &["R021", "R025"]);
    expect(&tries(&[30, 500, 2000, 2000, 2000, 2000, 2000]), &["R025", "R026"]);
}

#[test]
fn r027_reordered() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100);
    // 5 was captured before 4, by their identifications.
    let n = x.events.len();
    let what = x.events[n - 1].what.clone();
    x.events[n - 1].what = std::mem::replace(&mut x.events[n - 2].what, what);
    let mut near = x.clone();
    x.out_of_sequence(4).request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100);
    x.ack(5, 6);
    expect(&x, &["R024", "R027"]);
    // Out of order in the file only: the receiver is content.
    near.ack(5, 6).sends(6, 2);
    expect(&near, &[]);
}

#[test]
fn r028_network_duplicate() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100);
    let again = x.newest().clone();
    x.ack(4, 5).request(op::SEND_ONLY, 5, 100);
    x.newest().what = again.what;
    x.ack(4, 5);
    expect(&x, &["R028"]);
    // A sender that counts in each train anew: the same number means nothing.
    let mut near = Exchange::new();
    for train in 0..4 {
        for n in 0..3 {
            near.request(op::SEND_ONLY, train * 3 + n, 100);
            near.newest_packet().path.ident = n as u16 + 1;
        }
        near.ack(train * 3 + 2, train * 3 + 3);
    }
    near.request(op::SEND_ONLY, 12, 100);
    near.newest_packet().path.ident = 1;
    near.wait(1000).request(op::SEND_ONLY, 12, 100);
    near.newest_packet().path.ident = 1;
    near.ack(12, 13);
    expect(&near, &["R025"]);
}

#[test]
fn r030_psn_skipped() {
    let mut x = started();
    for _ in 0..4 {
        x.request(op::SEND_ONLY, 6, 100).out_of_sequence(4);
    }
    expect(&x, &["R030"]);
    // Once or twice the packet asked for may have been lost again.
    let mut near = started();
    near.request(op::SEND_ONLY, 6, 100).out_of_sequence(4).request(op::SEND_ONLY, 6, 100);
    near.out_of_sequence(4).request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100);
    near.request(op::SEND_ONLY, 6, 100).ack(6, 7);
    expect(&near, &["R020", "R024"]);
}

#[test]
fn r031_psn_after_read() {
    let mut x = started();
    x.with_reth(op::WRITE_FIRST, 4, 2048, 0).request(op::WRITE_LAST, 5, 1024).ack(5, 5);
    let mut near = x.clone();
    x.read(6, 4096).request(op::SEND_ONLY, 7, 100);
    expect(&x, &["R031"]);
    near.read(6, 2000).response(op::RESPONSE_FIRST, 6, 1024).response(op::RESPONSE_LAST, 7, 976);
    let mut late = near.clone();
    near.request(op::SEND_ONLY, 8, 100);
    expect(&near, &[]);
    // Its responses are there already; asked for again, it is no other request.
    let mut again = late.clone();
    late.request(op::SEND_ONLY, 7, 100);
    expect(&late, &["R031"]);
    again.wait(67_000).with_reth(op::READ, 7, 976, 0x1000 + 1024);
    expect(&again, &["R022", "R025"]);
    let mut open = started();
    open.request(op::SEND_FIRST, 4, 1024).request(op::SEND_LAST, 5, 1).ack(5, 5);
    open.read(6, 4096).request(op::SEND_ONLY, 10, 100);
    expect(&open, &[]);
}

#[test]
fn r032_opcode_order() {
    let mut x = started();
    x.request(op::SEND_FIRST, 4, 1024).with_reth(op::WRITE_ONLY, 5, 10, 0);
    expect(&x, &["R032"]);
    let mut near = started();
    near.request(op::SEND_FIRST, 4, 1024).request(op::SEND_MIDDLE, 5, 1024).lose();
    near.request(op::SEND_LAST, 6, 10).ack(6, 5);
    expect(&near, &[]);
}

#[test]
fn r033_bad_length() {
    for (first, last) in [(1000, 24), (1024, 1025), (1024, 0)] {
        let mut x = started();
        x.request(op::SEND_FIRST, 4, first).request(op::SEND_LAST, 5, last).ack(5, 5);
        expect(&x, &["R033"]);
    }
    let mut near = started();
    near.request(op::SEND_FIRST, 4, 1024).request(op::SEND_LAST, 5, 1024).ack(5, 5);
    near.request(op::SEND_ONLY, 6, 1024).request(op::SEND_ONLY, 7, 0).ack(7, 7);
    expect(&near, &[]);
}

#[test]
fn r034_mtu_mismatch() {
    let mut x = started();
    x.request(op::SEND_FIRST, 4, 2048).request(op::SEND_LAST, 5, 1).ack(5, 5);
    x.read(6, 3000).response(op::RESPONSE_FIRST, 6, 1024).response(op::RESPONSE_MIDDLE, 7, 1024);
    expect(&x, &["R034"]);
    let mut near = started();
    near.request(op::SEND_FIRST, 4, 1024).request(op::SEND_LAST, 5, 1).ack(5, 5);
    near.read(6, 3000).response(op::RESPONSE_FIRST, 6, 1024);
    expect(&near, &[]);
}

#[test]
fn r035_changed_on_retry() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).wait(67_000).request(op::SEND_ONLY, 4, 99).ack(4, 5);
    expect(&x, &["R021", "R025", "R035"]);
}

#[test]
fn r037_rnr_ignored() {
    // Timer code 20: 10.24 ms.
    let waits = |us: [u64; 4]| {
        let mut x = started();
        for (psn, us) in (4..).zip(us) {
            x.request(op::SEND_ONLY, psn, 100).rnr(psn, 20).wait(us);
            x.request(op::SEND_ONLY, psn, 100).ack(psn, psn + 1);
        }
        x
    };
    expect(&waits([5_000; 4]), &["R037", "R050"]);
    expect(&waits([10_240; 4]), &["R050"]);
    // Its NAK was lost, or it was on its way.
    expect(&waits([5_000, 10_240, 10_240, 5_000]), &["R050"]);
}

#[test]
fn r038_service_mixed() {
    let mut x = started();
    x.request(0x20 | op::SEND_ONLY, 4, 100);
    expect(&x, &["R038"]);
}

#[test]
fn r039_after_fatal() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).nak(4, NakCode::RemoteAccessError);
    let mut near = x.clone();
    x.wait(100_000).request(op::SEND_ONLY, 5, 100);
    expect(&x, &["R039", "R052"]);
    // What was on its way.
    near.request(op::SEND_ONLY, 5, 100);
    expect(&near, &["R052"]);
}

#[test]
fn r040_ghost_ack() {
    let mut x = started();
    x.sends(4, 8).ack(1000, 5).sends(12, 2);
    expect(&x, &["R040"]);
    // The capture's order: the request comes right behind.
    let mut near = started();
    near.ack(4, 5).request(op::SEND_ONLY, 4, 100).sends(5, 2);
    expect(&near, &[]);
}

#[test]
fn r041_missing_ack() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).wait(2_000_000);
    x.packet(true, 0x81, 0, Default::default(), 16);
    expect(&x, &["R041"]);
    assert_eq!(frames(&x), [9]);
    // The capture ends before the answer is due.
    let mut near = started();
    near.request(op::SEND_ONLY, 4, 100).wait(100_000);
    near.packet(true, 0x81, 0, Default::default(), 16);
    expect(&near, &[]);
}

#[test]
fn r042_bad_msn() {
    let mut x = started();
    for psn in 4..10 {
        x.request(op::SEND_ONLY, psn, 100).ack(psn, 3 * psn);
    }
    expect(&x, &["R042"]);
    // Wraps after 24 bits.
    let mut near = Exchange::new();
    near.request(op::SEND_ONLY, 4, 1).ack(4, 0xFF_FFFF).request(op::SEND_ONLY, 5, 1).ack(5, 0);
    near.request(op::SEND_ONLY, 6, 1).ack(6, 1);
    expect(&near, &[]);
}

#[test]
fn r044_atomic_twice() {
    let mut x = started();
    x.atomic(4).atomic_ack(4, 7).wait(67_000).atomic(4).atomic_ack(4, 8);
    expect(&x, &["R022", "R025", "R044"]);
    let mut near = started();
    near.atomic(4).atomic_ack(4, 7).wait(67_000).atomic(4).atomic_ack(4, 7);
    expect(&near, &["R022", "R025"]);
}

#[test]
fn r045_wrong_replay() {
    let part = |x: &mut Exchange, psn: u32| {
        x.read(psn, 3000).response(op::RESPONSE_FIRST, psn, 1024);
        x.response(op::RESPONSE_MIDDLE, psn + 1, 1024).lose();
        x.response(op::RESPONSE_LAST, psn + 2, 952);
        x.with_reth(op::READ, psn + 1, 1976, 0x1000 + 1024);
    };
    let mut x = started();
    for psn in [4, 7, 10] {
        part(&mut x, psn);
        x.response(op::RESPONSE_FIRST, psn, 1024).response(op::RESPONSE_MIDDLE, psn + 1, 1024);
        x.response(op::RESPONSE_MIDDLE, psn + 1, 1024).response(op::RESPONSE_LAST, psn + 2, 952);
    }
    expect(&x, &["R022", "R045"]);
    // Numbered as at first, from where it was asked for.
    let mut near = started();
    for psn in [4, 7, 10] {
        part(&mut near, psn);
        near.response(op::RESPONSE_MIDDLE, psn + 1, 1024);
        near.response(op::RESPONSE_LAST, psn + 2, 952);
    }
    expect(&near, &["R022"]);
}

#[test]
fn r046_bad_read_response() {
    for (opcode, payload) in [(op::RESPONSE_LAST, 952), (op::RESPONSE_MIDDLE, 1000)] {
        let mut x = started();
        x.read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024).response(opcode, 5, payload);
        expect(&x, &["R046"]);
    }
}

#[test]
fn r047_spurious_nak() {
    let mut x = started();
    for psn in 4..7 {
        x.request(op::SEND_ONLY, psn, 100).out_of_sequence(psn).request(op::SEND_ONLY, psn, 100);
        x.ack(psn, psn + 1);
    }
    expect(&x, &["R021", "R047"]);
    let mut near = started();
    near.request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100).rnr(4, 1);
    near.out_of_sequence(4).request(op::SEND_ONLY, 4, 100).request(op::SEND_ONLY, 5, 100);
    near.ack(5, 6);
    expect(&near, &[]);
}

#[test]
fn r050_rnr_storm() {
    let mut x = started();
    for psn in 4..8 {
        x.request(op::SEND_ONLY, psn, 100).rnr(psn, 1).request(op::SEND_ONLY, psn, 100);
        x.ack(psn, psn + 1);
    }
    expect(&x, &["R050"]);
    let mut near = started();
    near.request(op::SEND_ONLY, 4, 100).rnr(4, 1).request(op::SEND_ONLY, 4, 100).ack(4, 5);
    expect(&near, &[]);
}

#[test]
fn r051_rnr_exceeded() {
    let mut x = started();
    for _ in 0..3 {
        x.request(op::SEND_ONLY, 4, 100).rnr(4, 1);
    }
    expect(&x, &["R050", "R051"]);
    x.request(op::SEND_ONLY, 4, 100).ack(4, 5);
    expect(&x, &["R050"]);
}

#[test]
fn r052_to_r056_refusals() {
    let refused = |code| {
        let mut x = started();
        x.with_reth(op::WRITE_ONLY, 4, 10, 0x7000).nak(4, code);
        x
    };
    expect(&refused(NakCode::RemoteAccessError), &["R052"]);
    expect(&refused(NakCode::InvalidRequest), &["R053"]);
    expect(&refused(NakCode::RemoteOperationalError), &["R054"]);
    let report = audit(&refused(NakCode::RemoteAccessError).events);
    let detail = "WRITE at PSN 4: va 0x7000, rkey 0x00001234, 10 bytes";
    assert_eq!(report.findings[0].detail, detail);
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).answer(op::ACK, 4, Syndrome::Reserved(0x40), 0, 0);
    x.ack(4, 5);
    expect(&x, &["R055"]);
    for (length, rule) in [(101, "R056"), (100, "R053")] {
        let mut x = started();
        x.request(op::SEND_ONLY, 4, length).nak(4, NakCode::InvalidRequest);
        expect(&x, &[rule]);
    }
}

#[test]
fn a_capture_that_begins_in_the_middle_has_no_finding() {
    let mut whole = started();
    whole.request(op::SEND_FIRST, 4, 1024).request(op::SEND_MIDDLE, 5, 1024);
    whole.request(op::SEND_LAST, 6, 5).ack(6, 5).read(7, 3000);
    whole.response(op::RESPONSE_FIRST, 7, 1024).response(op::RESPONSE_MIDDLE, 8, 1024);
    whole.response(op::RESPONSE_LAST, 9, 952).sends(10, 3);
    for start in 0..whole.events.len() {
        let mut late = whole.clone();
        late.events.drain(..start);
        expect(&late, &[]);
    }
}

#[test]
fn one_direction_alone_has_no_finding() {
    let mut whole = started();
    whole.read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024);
    whole.response(op::RESPONSE_MIDDLE, 5, 1024).response(op::RESPONSE_LAST, 6, 952);
    whole.sends(7, 50);
    for back in [false, true] {
        let mut half = whole.clone();
        half.events.retain(|event| {
            let audit::What::Packet(packet) = &event.what else { return false };
            (packet.bth.dest_qp.get() == support::exchange::QP_A) == back
        });
        expect(&half, &[]);
    }
}

#[test]
fn a_queue_pair_used_again_is_another_connection() {
    let mut x = started();
    for first in [0x80_0000, 0x10, 0xF0_0000] {
        x.request(op::SEND_ONLY, first, 100).ack(first, 1);
        x.request(op::SEND_ONLY, first + 1, 100).ack(first + 1, 2);
    }
    expect(&x, &[]);
}

#[test]
fn psns_wrap() {
    let mut x = Exchange::new();
    for n in 0..8u32 {
        let psn = (0xFF_FFFC + n) & 0xFF_FFFF;
        x.request(op::SEND_ONLY, psn, 10).ack(psn, n + 1);
    }
    expect(&x, &[]);
}

#[test]
fn r110_stall() {
    let mut x = Exchange::new();
    x.sends(0, 200).request(op::SEND_ONLY, 200, 100).wait(300_000).ack(200, 201).sends(201, 2);
    expect(&x, &["R110"]);
    // As long, but no longer than usual.
    let mut near = Exchange::new();
    for psn in 0..200 {
        near.request(op::SEND_ONLY, psn, 100).wait(300_000).ack(psn, psn + 1);
    }
    expect(&near, &[]);
}

#[test]
fn r111_outliers() {
    let slow_ones = |every: u32| {
        let mut x = Exchange::new();
        for psn in 0..2000 {
            let us = if psn % every == 0 { 20_000 } else { 10 };
            x.request(op::SEND_ONLY, psn, 100).wait(us).ack(psn, psn + 1);
        }
        x
    };
    expect(&slow_ones(50), &["R111"]);
    expect(&slow_ones(500), &[]);
}

#[test]
fn what_is_remembered_is_bounded() {
    // Nobody acknowledges anything.
    let mut x = Exchange::new();
    x.request(op::SEND_ONLY, 0, 1);
    let event = x.newest().clone();
    let mut auditor = audit::Auditor::new(audit::Options::default());
    for n in 0..2_000_000u32 {
        let mut event = event.clone();
        event.at.time.0 += u64::from(n) * 1000;
        let audit::What::Packet(packet) = &mut event.what else { unreachable!() };
        packet.bth.psn = wire::Psn::new(n / 20);
        packet.bth.dest_qp = wire::Qpn::new(n % 20 + 100);
        packet.path.source_port = 0xC000 + n as u16 % 20;
        packet.path.ident = 0;
        auditor.see(&event);
    }
    let report = auditor.finish(Vec::new());
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.conversations.len(), 20);
}

#[test]
fn more_conversations_than_are_remembered() {
    let mut x = Exchange::new();
    x.request(op::SEND_ONLY, 0, 1);
    let event = x.newest().clone();
    let mut auditor = audit::Auditor::new(audit::Options::default());
    for n in 0..200_000u32 {
        let mut event = event.clone();
        let audit::What::Packet(packet) = &mut event.what else { unreachable!() };
        packet.bth.dest_qp = wire::Qpn::new(n + 100);
        auditor.see(&event);
    }
    let report = auditor.finish(Vec::new());
    assert_eq!(report.conversations_seen, 200_000);
    assert_eq!(report.conversations.len(), audit::limits::HALVES);
}

#[test]
fn unreliable_connections_have_no_repetitions() {
    const UC: u8 = 0x20;
    let mut x = Exchange::new();
    for psn in [0, 1, 3, 2, 4] {
        x.request(UC | op::SEND_ONLY, psn, 100);
        x.newest_packet().path.ident = 0;
    }
    expect(&x, &["R020", "R027"]);
    x.lose().request(UC | op::SEND_ONLY, 3, 100);
    x.newest_packet().path.ident = 0;
    expect(&x, &["R020", "R027", "R028"]);
}

#[test]
fn a_late_answer_is_no_loss() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).wait(67_000).request(op::SEND_ONLY, 4, 100);
    x.ack(4, 5).ack(4, 5).sends(5, 2);
    expect(&x, &["R023", "R025"]);
    // So soon that it may be late.
    let mut soon = started();
    soon.request(op::SEND_ONLY, 4, 100).wait(500).request(op::SEND_ONLY, 4, 100).ack(4, 5);
    expect(&soon, &["R025"]);
}
