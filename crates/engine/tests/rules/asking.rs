//! Requester: which messages ask for an acknowledgement at their end. Those for which somebody
//! waits do; an unsignaled one that has others behind it leaves that to them.

use engine::{SendData, SendFlags, SendOp, SendRequest, Sge};
use wire::{LKey, Operation, Span};

use crate::pair::bench::{Bench, LOCAL, THERE};

const SILENT: SendFlags = SendFlags::empty();

fn post_silent(b: &mut Bench, wr_ids: std::ops::Range<u64>, op: SendOp) {
    for wr_id in wr_ids {
        b.post_with(wr_id, op, 8, SILENT).expect("a good request");
    }
}

#[test]
fn unsignaled_messages_leave_it_to_those_behind_them() {
    let mut b = Bench::rc();
    post_silent(&mut b, 1..3, SendOp::Write(THERE));
    b.post(3, SendOp::Write(THERE), 8);
    post_silent(&mut b, 4..6, SendOp::Write(THERE));
    let asks: Vec<bool> = b.sent().iter().map(|p| p.bth.ack_request).collect();
    // The signaled one, and the last in the queue.
    assert_eq!(asks, [false, false, true, false, true]);
    b.inject(b.acknowledge(104, 5));
    assert_eq!(b.sends(), ["3 RdmaWrite 8B"]);
    assert!(b.after(Span::from_ms(2000)).is_empty(), "nothing is left to ask for");
}

#[test]
fn a_message_that_leaves_the_queue_empty_asks_at_once() {
    let mut b = Bench::rc();
    for psn in 100..104 {
        b.post_with(1, SendOp::Send, 8, SILENT).expect("a good request");
        assert_eq!(b.lines(), [format!("SendOnly {psn} A 8B")]);
    }
}

#[test]
fn what_takes_no_packet_does_not_ask_for_those_before_it() {
    let mut b = Bench::rc();
    b.post_with(1, SendOp::Write(THERE), 8, SILENT).expect("a good request");
    let key = wire::RKey::new(0x4242);
    b.post_with(2, SendOp::LocalInvalidate(key), 0, SendFlags::SIGNALED).expect("a good request");
    assert!(b.sent()[0].bth.ack_request, "the request behind it completes only after it");
}

#[test]
fn long_runs_of_unsignaled_messages_ask_at_intervals() {
    let mut b = Bench::rc();
    post_silent(&mut b, 0..60, SendOp::Write(THERE));
    let asked = |b: &mut Bench| -> Vec<usize> {
        let sent = b.sent();
        (0..sent.len()).filter(|&i| sent[i].bth.ack_request).collect()
    };
    let first = asked(&mut b);
    let gaps: Vec<usize> = first.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.iter().all(|&gap| gap <= 64), "{first:?}");
    assert_eq!(first.last(), Some(&59), "and the last one");
}

#[test]
fn with_few_credits_each_send_asks_for_more() {
    let mut b = Bench::rc();
    // Credit code 5 is 6 receive requests: far fewer than a peer that lets many in at once has.
    b.post(1, SendOp::Send, 8);
    b.lines();
    let few = b.packet(Operation::Acknowledge, 100).aeth(wire::Syndrome::Ack(5), 1);
    b.inject(few);
    post_silent(&mut b, 2..6, SendOp::Send);
    assert!(b.sent().iter().all(|p| p.bth.ack_request));
}

#[test]
fn a_draining_queue_pair_asks_for_what_it_still_sends() {
    let mut b = Bench::rc();
    b.post_with(1, SendOp::Write(THERE), 70 * 1024, SILENT).expect("a good request");
    b.post_with(2, SendOp::Write(THERE), 8, SILENT).expect("a good request");
    b.modify(engine::QpState::Sqd);
    let sent = b.sent();
    assert!(sent.last().is_none_or(|p| p.bth.ack_request), "its end is awaited");
}

#[test]
fn while_an_answer_is_due_a_signaled_message_leaves_the_asking_to_those_behind_it() {
    let mut b = Bench::rc();
    (0..4).for_each(|wr_id| b.post(wr_id, SendOp::Write(THERE), 8));
    let asks: Vec<bool> = b.sent().iter().map(|p| p.bth.ack_request).collect();
    assert_eq!(asks, [true, false, false, true]);
    b.inject(b.acknowledge(103, 4));
    assert_eq!(b.sends().len(), 4);
}

#[test]
fn a_stream_of_signaled_messages_asks_at_intervals() {
    let mut b = Bench::rc();
    (0..60).for_each(|wr_id| b.post(wr_id, SendOp::Write(THERE), 8));
    let sent = b.sent();
    let asked: Vec<usize> = (0..sent.len()).filter(|&i| sent[i].bth.ack_request).collect();
    assert_eq!((asked.first(), asked.last()), (Some(&0), Some(&59)));
    let gaps: Vec<usize> = asked.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.iter().all(|&gap| gap <= 64), "{asked:?}");
    assert!(asked.len() < 30, "{asked:?}");
}

/// A request that fails at this side when its turn comes.
fn post_bad(b: &mut Bench, wr_id: u64) {
    let bad = [Sge { addr: LOCAL, length: 8, lkey: LKey::new(0x4242) }];
    let (op, data) = (SendOp::Write(THERE), SendData::Sges(&bad));
    let wr = SendRequest { wr_id, op, flags: SendFlags::SIGNALED, data, datagram: None };
    b.post_raw(&wr).expect("it fails in its turn");
}

#[test]
fn who_was_left_the_asking_and_fails_here_asks_by_a_probe() {
    let mut b = Bench::rc();
    b.post_with(1, SendOp::Write(THERE), 8, SILENT).expect("a good request");
    post_bad(&mut b, 2);
    let lines = b.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(!lines[0].contains(" A ") && lines[1].starts_with("WriteOnly 100 A "), "{lines:?}");
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["2 LocProtErr"]);
}

#[test]
fn an_answer_that_is_due_to_an_earlier_message_does_not_do_for_what_followed() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 8);
    b.post(2, SendOp::Write(THERE), 8);
    post_bad(&mut b, 3);
    let asks: Vec<(u32, bool)> =
        b.sent().iter().map(|p| (p.bth.psn.get(), p.bth.ack_request)).collect();
    assert_eq!(asks, [(100, true), (101, false), (100, true)], "the last one is a probe");
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.sends(), ["1 RdmaWrite 8B", "2 RdmaWrite 8B", "3 LocProtErr"]);
}
