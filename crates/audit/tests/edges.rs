//! Edges of the transport's rules: what a capture missed, ends too early for, or counts in times
//! that no clock shows.

mod support;

use audit::Time;
use support::exchange::{Exchange, op};
use support::{audit, codes};

#[track_caller]
fn expect(exchange: &Exchange, right: &[&str]) {
    let report = audit(&exchange.events);
    let got: Vec<_> = codes(&report).into_iter().map(|(code, _)| code).collect();
    assert_eq!(got, right, "{:#?}", report.findings);
}

fn started() -> Exchange {
    let mut exchange = Exchange::new();
    exchange.sends(0, 4);
    exchange
}

#[test]
fn times_may_be_as_far_apart_as_can_be_written() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).rnr(4, 1).newest().at.time = Time(0);
    x.request(op::SEND_ONLY, 4, 100).newest().at.time = Time(u64::MAX);
    x.ack(4, 5).newest().at.time = Time(u64::MAX);
    x.request(op::SEND_ONLY, 5, 100).newest().at.time = Time(0);
    audit(&x.events);
}

#[test]
fn r041_not_of_responses_that_the_capture_missed() {
    let mut x = started();
    x.read(4, 64).response(op::RESPONSE_ONLY, 4, 64).lose();
    x.sends(5, 2).wait(900_000).sends(7, 1);
    expect(&x, &[]);
    // What comes behind is acknowledged, but for the last.
    let mut x = started();
    x.read(4, 64).response(op::RESPONSE_ONLY, 4, 64).lose();
    x.sends(5, 2).request(op::SEND_ONLY, 7, 100).wait(900_000);
    x.packet(false, 0x81, 0, Default::default(), 16);
    expect(&x, &["R041"]);
}

#[test]
fn r051_not_where_the_requester_tried_again() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).rnr(4, 26).wait(90_000).request(op::SEND_ONLY, 4, 100);
    let mut once = x.clone();
    x.rnr(4, 26);
    expect(&x, &["R051"]);
    // It has tried, and the capture ends before the answer.
    x.wait(90_000).request(op::SEND_ONLY, 4, 100);
    expect(&x, &[]);
    once.ack(4, 5).request(op::SEND_ONLY, 5, 100).rnr(5, 26);
    expect(&once, &[]);
}

/// So many tries of one request, `us` apart, and the capture's end `silence` behind the last.
fn tries(many: u32, us: u64, silence: u64) -> Exchange {
    let mut x = started();
    for _ in 1..many {
        x.request(op::SEND_ONLY, 4, 100).wait(us);
    }
    x.request(op::SEND_ONLY, 4, 100);
    noticed(&mut x, silence);
    x
}

/// Something else that is captured so many microseconds later.
fn noticed(x: &mut Exchange, us: u64) {
    x.wait(us).packet(false, 0x81, 0, Default::default(), 16);
}

fn has(exchange: &Exchange, code: &str) -> bool {
    codes(&audit(&exchange.events)).iter().any(|(found, _)| *found == code)
}

#[test]
fn r020_asked_for_before_the_first_that_was_seen() {
    let mut x = Exchange::new();
    x.request(op::SEND_ONLY, 5, 100).request(op::SEND_ONLY, 6, 100).ack(6, 7);
    x.request(op::SEND_ONLY, 7, 100).out_of_sequence(4);
    assert!(has(&x, "R020"));
}

#[test]
fn r020_by_silence_where_identifications_tell_nothing() {
    let after = |us| {
        let mut x = started();
        x.request(op::SEND_ONLY, 4, 100).lose().request(op::SEND_ONLY, 5, 100);
        x.newest_packet().path.ident = 0;
        x.wait(us).request(op::SEND_ONLY, 4, 100).newest_packet().path.ident = 0;
        x.ack(5, 6);
        x
    };
    expect(&after(67_000), &["R020", "R025"]);
    expect(&after(1_000), &[]);
}

#[test]
fn r023_lost_or_late_by_the_usual_answer_time() {
    // So many answers after `usual` us, and a repetition `behind` us behind the last.
    let again = |answers: u32, usual, behind| {
        let mut x = Exchange::new();
        for psn in 0..answers {
            x.request(op::SEND_ONLY, psn, 100).wait(usual).ack(psn, psn + 1);
        }
        x.wait(behind).request(op::SEND_ONLY, answers - 1, 100).ack(answers - 1, answers);
        let report = audit(&x.events);
        let told = report.findings.iter().find(|finding| finding.rule.code() == "R023");
        told.is_some_and(|finding| finding.detail.contains("late, not lost"))
    };
    assert!(again(32, 1_000, 100), "less than half of what is usual");
    assert!(!again(32, 1_000, 1_000));
    assert!(!again(8, 1_000, 100), "what is usual is not known yet");
    assert!(!again(32, 100_000, 10_000), "two milliseconds at most");
}

#[test]
fn r023_a_second_answer_comes_soon() {
    let second = |us| {
        let mut x = started();
        x.request(op::SEND_ONLY, 4, 100).wait(67_000).request(op::SEND_ONLY, 4, 100).ack(4, 5);
        x.wait(us).ack(4, 5);
        x
    };
    expect(&second(100), &["R023", "R025"]);
    expect(&second(60_000), &["R021", "R025"]);
}

#[test]
fn r026_three_tries_and_a_silence() {
    assert!(has(&tries(3, 20_000, 100_000), "R026"));
    assert!(!has(&tries(2, 20_000, 100_000), "R026"));
    // The silence: twice the longest wait, ten milliseconds at least.
    assert!(!has(&tries(3, 20_000, 15_000), "R026"));
    assert!(!has(&tries(3, 2_000, 6_000), "R026"));
    assert!(has(&tries(3, 2_000, 12_000), "R026"));
}

#[test]
fn r027_over_the_wrap_of_identifications() {
    let mut x = started();
    for (psn, ident) in [(4, 0xFFFE), (6, 1), (5, 0xFFFF)] {
        x.request(op::SEND_ONLY, psn, 100).newest_packet().path.ident = ident;
    }
    x.out_of_sequence(5).request(op::SEND_ONLY, 5, 100).newest_packet().path.ident = 2;
    x.request(op::SEND_ONLY, 6, 100).newest_packet().path.ident = 3;
    x.ack(6, 7);
    expect(&x, &["R024", "R027"]);
}

#[test]
fn r028_not_where_a_sender_began_to_count_anew() {
    let mut x = started();
    for (psn, ident) in [(4, 5), (5, 6), (6, 7)] {
        x.request(op::SEND_ONLY, psn, 100).newest_packet().path.ident = ident;
    }
    x.wait(67_000).request(op::SEND_ONLY, 5, 100).newest_packet().path.ident = 6;
    x.ack(6, 7);
    assert!(!has(&x, "R028"));
}

#[test]
fn r030_and_r031_by_how_often_the_requester_goes_back() {
    let skips = |x: &mut Exchange, psn: u32, times: u32| {
        x.request(op::SEND_ONLY, psn + 2, 100);
        for _ in 0..times {
            x.out_of_sequence(psn).request(op::SEND_ONLY, psn + 2, 100);
        }
        x.out_of_sequence(psn);
    };
    let mut twice = started();
    skips(&mut twice, 4, 2);
    assert!(!has(&twice, "R030"));
    let read = |times| {
        let mut x = started();
        x.request(op::SEND_FIRST, 4, 1024).request(op::SEND_LAST, 5, 1).ack(5, 5);
        x.read(6, 100);
        skips(&mut x, 7, times);
        x
    };
    assert!(has(&read(2), "R031"));
    assert!(!has(&read(1), "R031"));
}

#[test]
fn r032_and_r033_in_the_middle_of_a_message() {
    let mut mixed = started();
    mixed.request(op::SEND_FIRST, 4, 1024).request(op::WRITE_MIDDLE, 5, 1024);
    expect(&mixed, &["R032"]);
    // More than the RETH says, before its LAST.
    let mut long = started();
    long.with_reth(op::WRITE_FIRST, 4, 1500, 0).request(op::WRITE_MIDDLE, 5, 1024);
    expect(&long, &["R033"]);
    let mut right = started();
    right.with_reth(op::WRITE_FIRST, 4, 2048, 0).request(op::WRITE_MIDDLE, 5, 1024);
    expect(&right, &[]);
}

#[test]
fn r034_of_requests_both_ways() {
    let both = |size| {
        let mut x = started();
        x.request(op::SEND_FIRST, 4, 1024).request(op::SEND_LAST, 5, 1).ack(5, 5);
        for (opcode, psn, payload) in [(op::SEND_FIRST, 900, size), (op::SEND_LAST, 901, 1)] {
            x.packet(true, opcode, psn, Default::default(), payload);
        }
        x
    };
    expect(&both(2048), &["R034"]);
    expect(&both(1024), &[]);
}

#[test]
fn r035_another_kind_of_the_same_length() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).wait(67_000).with_reth(op::WRITE_ONLY, 4, 100, 0).ack(4, 5);
    expect(&x, &["R021", "R025", "R035"]);
}

/// Answers after `usual` us, and RNR NAKs of 10.24 ms after which the requester comes back in
/// so many us each.
fn rnr_waits(usual: u64, us: &[u64]) -> Exchange {
    let mut x = Exchange::new();
    for psn in 0..8 {
        x.request(op::SEND_ONLY, psn, 100).wait(usual).ack(psn, psn + 1);
    }
    for (psn, us) in (8..).zip(us) {
        x.request(op::SEND_ONLY, psn, 100).rnr(psn, 20).wait(*us);
        x.request(op::SEND_ONLY, psn, 100).wait(usual).ack(psn, psn + 1);
    }
    x
}

#[test]
fn r037_three_times_more_often_than_not_and_by_more_than_the_clocks() {
    assert!(has(&rnr_waits(10, &[5_000; 3]), "R037"));
    assert!(!has(&rnr_waits(10, &[5_000; 2]), "R037"));
    assert!(!has(&rnr_waits(10, &[9_900; 6]), "R037"), "less than a twentieth");
    assert!(!has(&rnr_waits(3_000, &[5_000; 6]), "R037"), "it may have been on its way");
    let kept = [10_240, 10_240, 10_240, 5_000, 5_000, 5_000];
    assert!(!has(&rnr_waits(10, &kept), "R037"));
}

#[test]
fn r039_not_behind_a_reserved_syndrome() {
    let mut x = started();
    let reserved = wire::packet::Syndrome::Reserved(0x40);
    x.request(op::SEND_ONLY, 4, 100).answer(op::ACK, 4, reserved, 0, 0).ack(4, 5);
    x.wait(100_000).sends(5, 2);
    expect(&x, &["R055"]);
}

#[test]
fn r040_an_answer_before_its_request() {
    let early = |us, psn| {
        let mut x = Exchange::new();
        x.sends(0, 12).ack(12, 13).wait(us).request(op::SEND_ONLY, psn, 100).ack(psn, psn + 1);
        x
    };
    assert!(!has(&early(5_000, 12), "R040"), "the capture's order");
    assert!(has(&early(20_000, 12), "R040"));
    assert!(!has(&early(20_000, 14), "R040"), "its request is in the gap");
}

#[test]
fn r041_not_behind_an_rnr_nak() {
    let mut x = started();
    x.request(op::SEND_ONLY, 4, 100).rnr(4, 1);
    noticed(&mut x, 2_000_000);
    expect(&x, &[]);
}

#[test]
fn r042_four_times() {
    let wrong = |times| {
        let mut x = started();
        for n in 0..times {
            x.request(op::SEND_ONLY, 4 + n, 100).ack(4 + n, 100 * (n + 1));
        }
        x
    };
    expect(&wrong(3), &[]);
    expect(&wrong(4), &["R042"]);
    // Messages that the capture missed are counted by the responder.
    let mut x = started();
    for psn in (4..40).step_by(3) {
        x.request(op::SEND_ONLY, psn, 100).request(op::SEND_ONLY, psn + 1, 100).lose();
        x.request(op::SEND_ONLY, psn + 2, 100).ack(psn, psn + 1).ack(psn + 2, psn + 3);
    }
    expect(&x, &[]);
}

#[test]
fn r045_once_or_seldom_is_no_habit() {
    let reads = |all: u32, wrong: u32| {
        let mut x = started();
        for n in 0..all {
            let psn = 4 + 3 * n;
            x.read(psn, 3000).response(op::RESPONSE_FIRST, psn, 1024);
            x.response(op::RESPONSE_MIDDLE, psn + 1, 1024).lose();
            x.response(op::RESPONSE_LAST, psn + 2, 952);
            x.with_reth(op::READ, psn + 1, 1976, 0x1000 + 1024);
            if n + wrong >= all {
                x.response(op::RESPONSE_FIRST, psn, 1024);
            }
            x.response(op::RESPONSE_MIDDLE, psn + 1, 1024);
            x.response(op::RESPONSE_LAST, psn + 2, 952);
        }
        has(&x, "R045")
    };
    assert!(!reads(1, 1));
    assert!(reads(2, 2));
    assert!(!reads(8, 2) && reads(8, 8));
}

#[test]
fn r046_first_and_last_where_none_is_due() {
    for opcode in [op::RESPONSE_FIRST, op::RESPONSE_LAST, op::RESPONSE_ONLY] {
        let mut x = started();
        x.read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024).response(opcode, 5, 1024);
        expect(&x, &["R046"]);
    }
    let mut middle = started();
    middle.read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024);
    middle.response(op::RESPONSE_MIDDLE, 5, 1024).response(op::RESPONSE_MIDDLE, 6, 952);
    expect(&middle, &["R046"]);
}

#[test]
fn r047_twice_may_be_an_accident() {
    let mut x = started();
    for psn in 4..6 {
        x.request(op::SEND_ONLY, psn, 100).out_of_sequence(psn).request(op::SEND_ONLY, psn, 100);
        x.ack(psn, psn + 1);
    }
    assert!(!has(&x, "R047"));
}

#[test]
fn r050_one_for_a_thousand_messages() {
    let among = |messages| {
        let mut x = Exchange::new();
        x.sends(0, messages);
        for psn in messages..messages + 3 {
            x.request(op::SEND_ONLY, psn, 100).rnr(psn, 1).wait(700);
            x.request(op::SEND_ONLY, psn, 100).ack(psn, psn + 1);
        }
        x
    };
    expect(&among(1000), &["R050"]);
    expect(&among(4000), &[]);
}

#[test]
fn r110_by_time_and_by_what_is_usual() {
    let stalls = |usual, us| {
        let mut x = Exchange::new();
        for psn in 0..200 {
            x.request(op::SEND_ONLY, psn, 100).wait(usual).ack(psn, psn + 1);
        }
        x.request(op::SEND_ONLY, 200, 100).wait(us).ack(200, 201).sends(201, 2);
        has(&x, "R110")
    };
    assert!(!stalls(10, 150_000));
    assert!(stalls(10, 210_000));
    assert!(stalls(90, 250_000), "2500 times the usual");
    assert!(!stalls(490, 250_000), "500 times");
}

#[test]
fn r111_by_count_time_and_what_is_usual() {
    let outliers = |operations: u32, usual, us| {
        let mut x = Exchange::new();
        for psn in 0..operations {
            let us = if psn % 50 == 0 { us } else { usual };
            x.request(op::SEND_ONLY, psn, 100).wait(us).ack(psn, psn + 1);
        }
        has(&x, "R111")
    };
    assert!(!outliers(900, 10, 20_000));
    assert!(outliers(1100, 10, 20_000));
    assert!(!outliers(1100, 10, 5_000), "5 ms");
    assert!(!outliers(1100, 1_000, 20_000), "20 times the median");
}
