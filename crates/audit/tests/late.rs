//! Late or lost: answers that come after the repetition, or just before it, are no losses; those
//! that come long before it, or only once, are.

mod support;

use support::exchange::{Exchange, op};
use support::{audit, codes};

#[track_caller]
fn expect(exchange: &Exchange, right: &[&str]) {
    let report = audit(&exchange.events);
    let got: Vec<_> = codes(&report).into_iter().map(|(code, _)| code).collect();
    assert_eq!(got, right, "{:#?}", report.findings);
}

/// A READ of three responses of which the first has come.
fn half_read() -> Exchange {
    let mut x = Exchange::new();
    x.sends(0, 4).read(4, 3000).response(op::RESPONSE_FIRST, 4, 1024);
    x
}

fn rest_asked_for(x: &mut Exchange) {
    x.with_reth(op::READ, 5, 1976, 0x1000 + 1024);
}

#[test]
fn responses_that_come_twice_after_the_repetition_were_late() {
    let mut x = half_read();
    rest_asked_for(x.wait(67_000));
    x.response(op::RESPONSE_MIDDLE, 5, 1024).response(op::RESPONSE_LAST, 6, 952);
    let mut near = x.clone();
    x.response(op::RESPONSE_FIRST, 5, 1024).response(op::RESPONSE_LAST, 6, 952).sends(7, 2);
    expect(&x, &["R023", "R025"]);
    // Once only: it was lost, whoever numbers it how.
    near.sends(7, 2);
    expect(&near, &["R022", "R025"]);
    let mut lost = half_read();
    rest_asked_for(&mut lost);
    lost.response(op::RESPONSE_FIRST, 5, 1024).response(op::RESPONSE_LAST, 6, 952).sends(7, 2);
    expect(&lost, &["R022"]);
}

#[test]
fn a_second_answer_to_something_else_says_nothing_of_a_loss() {
    let mut x = half_read();
    rest_asked_for(x.wait(67_000));
    x.response(op::RESPONSE_FIRST, 5, 1024).response(op::RESPONSE_LAST, 6, 952);
    x.request(op::SEND_ONLY, 7, 100).ack(7, 6).ack(7, 6).sends(8, 2);
    expect(&x, &["R022", "R025"]);
}

#[test]
fn a_repetition_right_behind_the_answer_was_on_its_way() {
    let between = |ns: u64, read: bool| {
        let mut x = Exchange::new();
        x.sends(0, 4);
        let ask = |x: &mut Exchange| match read {
            true => drop(x.read(4, 100)),
            false => drop(x.request(op::SEND_ONLY, 4, 100)),
        };
        let answer = |x: &mut Exchange| match read {
            true => drop(x.response(op::RESPONSE_ONLY, 4, 100)),
            false => drop(x.ack(4, 5)),
        };
        ask(&mut x);
        answer(x.wait(67_000));
        let time = x.newest().at.time.0;
        ask(&mut x);
        x.newest().at.time.0 = time + ns;
        answer(x.wait(ns / 1000 + 1));
        x.sends(5, 2);
        let report = audit(&x.events);
        let found = report.findings.iter().map(|f| (f.rule.code(), f.detail.contains("late, not")));
        found.collect::<Vec<_>>()
    };
    assert_eq!(between(3_000, false), [("R023", true)]);
    assert_eq!(between(3_000, true), [("R023", true)]);
    assert_eq!(between(3_000_000, false), [("R023", false)]);
    assert_eq!(between(3_000_000, true), [("R022", false)]);
}

#[test]
fn a_send_answered_twice_after_its_repetition_was_late() {
    let mut x = Exchange::new();
    x.sends(0, 4).request(op::SEND_ONLY, 4, 100).wait(67_000).request(op::SEND_ONLY, 4, 100);
    let mut near = x.clone();
    x.ack(4, 5).ack(4, 5).sends(5, 2);
    expect(&x, &["R023", "R025"]);
    near.ack(4, 5).sends(5, 2);
    expect(&near, &["R021", "R025"]);
}
