//! What a responder owes: answers before a refusal, answers again, acknowledgements in time.

use engine::{Access, AsyncEvent, QpState, SendOp, TrainLimits};
use wire::{Operation, Span};

use crate::pair::bench::{Bench, REGION};
use crate::pair::{inspect, setup};

/// One train, in lines.
fn train(b: &mut Bench) -> Vec<String> {
    let (now, mut lines) = (b.now, Vec::new());
    b.host.drain_one(now, |packet| lines.push(inspect::line(&packet)));
    lines
}

#[test]
fn answers_owed_before_a_refused_request_leave_before_its_nak() {
    let mut b = Bench::rc();
    let requests = [
        b.rdma(Operation::ReadRequest, 200, REGION, 2048).ack(),
        b.atomic(Operation::FetchAdd, 202, REGION, 0, 0),
        b.rdma(Operation::WriteOnly, 203, REGION, 8).rkey(wire::RKey::new(1)).data(8).ack(),
    ];
    requests.into_iter().for_each(|request| b.inject(request));
    assert_eq!(b.state(), QpState::Err);
    let expected = [
        "ReadResponseFirst 200 ack msn=1 1024B",
        "ReadResponseLast 201 ack msn=1 1024B",
        "AtomicAcknowledge 202 ack msn=2 old=0",
        "Acknowledge 203 nak(RemoteAccessError) msn=2",
    ];
    assert_eq!(b.lines(), expected);
    assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.qp)]);
}

#[test]
fn a_late_duplicate_of_a_read_whose_region_has_gone_does_no_harm() {
    let mut b = Bench::rc();
    let keys = b.host.register(b.pd, REGION, 4096, setup::REMOTE | Access::LOCAL_WRITE);
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 100).rkey(keys.rkey).ack();
    assert_eq!(b.answer(read.clone()), ["ReadResponseOnly 200 ack msn=1 100B"]);
    b.inject(read);
    b.host.device.dereg_mr(keys.id).expect("a region");
    assert_eq!(b.lines(), [""; 0], "its requester has had the answer");
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    let write = b.rdma(Operation::WriteOnly, 201, REGION, 8).data(8).ack();
    assert_eq!(b.answer(write), ["Acknowledge 201 ack msn=2"]);
}

#[test]
fn a_shorter_repeat_of_a_read_leaves_the_rest_of_its_answer_owed() {
    let mut b = Bench::with(|o| o.limits = TrainLimits { segments: 2, bytes: 60_000 });
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 6 * 1024).ack();
    b.inject(read);
    let expected = ["ReadResponseFirst 200 ack msn=1 1024B", "ReadResponseMiddle 201 1024B"];
    assert_eq!(train(&mut b), expected);
    let again = b.rdma(Operation::ReadRequest, 200, REGION, 1024).ack();
    let expected = [
        "ReadResponseOnly 200 ack msn=1 1024B",
        "ReadResponseFirst 202 ack msn=1 1024B",
        "ReadResponseMiddle 203 1024B",
        "ReadResponseMiddle 204 1024B",
        "ReadResponseLast 205 ack msn=1 1024B",
    ];
    assert_eq!(b.answer(again), expected);
}

#[test]
fn a_repeat_of_what_has_not_been_answered_yet_is_answered_once() {
    let mut b = Bench::rc();
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 2048).ack();
    let part = b.rdma(Operation::ReadRequest, 201, REGION + 1024, 1024).ack();
    b.inject(read.clone());
    b.inject(part);
    b.inject(read);
    let expected =
        ["ReadResponseFirst 200 ack msn=1 1024B", "ReadResponseLast 201 ack msn=1 1024B"];
    assert_eq!(b.lines(), expected);
}

#[test]
fn a_longer_repeat_is_answered_in_full() {
    let mut b = Bench::rc();
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 2048).ack();
    b.fill(REGION, 2048);
    let expected =
        ["ReadResponseFirst 200 ack msn=1 1024B", "ReadResponseLast 201 ack msn=1 1024B"];
    assert_eq!(b.answer(read.clone()), expected);
    let probe = b.rdma(Operation::ReadRequest, 200, REGION, 1024).ack();
    b.inject(probe);
    b.inject(read);
    assert_eq!(b.lines(), expected);
}

#[test]
fn an_acknowledgement_does_not_starve_behind_trains_that_have_no_room_for_it() {
    let mut b = Bench::with(|o| {
        o.config.receive_buffer = 64 << 20;
        o.config.ack_delay = Span::from_us(20);
    });
    // Each train ends with a packet that is shorter than the first: nothing fits behind it.
    (0..60).for_each(|i| b.post(i, SendOp::Send, 1026));
    let write = b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8).ack();
    b.inject(write);
    assert_eq!(train(&mut b), ["SendFirst 100 1024B", "SendLast 101 A 2B"]);
    b.now = b.now + Span::from_us(10);
    assert_eq!(train(&mut b), ["SendFirst 102 1024B", "SendLast 103 2B"], "it may wait yet");
    b.now = b.now + Span::from_us(10);
    assert_eq!(train(&mut b), ["Acknowledge 200 ack msn=1"], "its time has come");
    assert_eq!(train(&mut b), ["SendFirst 104 1024B", "SendLast 105 2B"]);
}

#[test]
fn a_send_cannot_invalidate_the_key_of_an_ordinary_region() {
    let mut b = Bench::rc();
    b.recv(1, 64);
    let key = b.region.rkey;
    let send = b.packet(Operation::SendOnlyInvalidate, 200).invalidate(key).data(8).ack();
    assert_eq!(b.answer(send), ["Acknowledge 200 nak(RemoteAccessError) msn=0"]);
    assert_eq!(b.state(), QpState::Err);
    assert_eq!(b.receives(), ["1 WrFlushErr"]);
    assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.qp)]);
    // The key lives: a queue pair of the same domain still answers under it.
    let second = b.another(super::SECOND, |_, _| {});
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 8).to(second).ack();
    assert_eq!(b.answer(read), ["ReadResponseOnly 200 ack msn=1 8B"]);
}
