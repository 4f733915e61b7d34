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
