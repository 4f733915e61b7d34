//! Responder: when and in which order answers leave, what they see, and what still leaves when the
//! queue pair or the region goes.

use engine::{AsyncEvent, QpState, SendOp};
use wire::{Operation, Span};

use crate::pair::bench::{Bench, Made, REGION, THERE, pattern};

const DELAY: Span = Span::from_us(20);

fn write(b: &Bench, psn: u32) -> Made {
    b.rdma(Operation::WriteOnly, psn, REGION, 8).data(8).ack()
}

/// A bench whose acknowledgements wait for company.
fn waiting() -> Bench {
    Bench::with(|o| o.config.ack_delay = DELAY)
}

#[test]
fn one_acknowledgement_answers_several_requests() {
    let mut b = Bench::rc();
    for psn in 200..210 {
        b.inject(write(&b, psn));
    }
    assert_eq!(b.lines(), ["Acknowledge 209 ack msn=10"]);
    assert!(b.lines().is_empty());
}

#[test]
fn packets_that_do_not_ask_are_not_answered() {
    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::WriteFirst, 200, REGION, 3000).data(1024));
    b.inject(b.packet(Operation::WriteMiddle, 201).data(1024));
    assert!(b.after(Span::from_ms(100)).is_empty());
    // One in the middle that asks is.
    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::WriteFirst, 200, REGION, 3000).data(1024).ack());
    assert_eq!(b.lines(), ["Acknowledge 200 ack msn=0"]);
}

#[test]
fn an_acknowledgement_rides_behind_the_next_packet() {
    let mut b = waiting();
    assert!(b.answer(write(&b, 200)).is_empty());
    b.advance(Span::from_us(5));
    b.post(1, SendOp::Write(THERE), 64);
    let (now, limits) = (b.now, b.host.limits);
    let mut train = engine::Train::default();
    let all = engine::Priorities::ALL;
    assert!(b.host.device.poll_transmit(now, limits, all, &mut train));
    assert_eq!(train.packets.len(), 2, "one train");
    assert_eq!(train.packets[1].bth.opcode.operation(), Some(Operation::Acknowledge));
    assert_eq!(b.counter("tx_acks_riding"), 1);
}

#[test]
fn without_company_it_leaves_after_the_delay() {
    let mut b = waiting();
    assert!(b.answer(write(&b, 200)).is_empty());
    assert!(b.after(Span::from_us(19)).is_empty());
    // More requests do not prolong it.
    assert!(b.answer(write(&b, 201)).is_empty());
    assert_eq!(b.after(Span::from_us(1)), ["Acknowledge 201 ack msn=2"]);
}

#[test]
fn after_a_wait_in_vain_the_next_ones_do_not_wait() {
    let mut b = waiting();
    b.inject(write(&b, 200));
    assert_eq!(b.after(DELAY).len(), 1);
    assert_eq!(b.answer(write(&b, 201)), ["Acknowledge 201 ack msn=2"]);
}

#[test]
fn naks_and_answers_with_data_do_not_wait() {
    let mut b = waiting();
    assert!(b.answer(write(&b, 200)).is_empty());
    assert_eq!(b.answer(write(&b, 202)), ["Acknowledge 201 nak(PsnSequenceError) msn=1"]);
    let mut b = waiting();
    b.inject(write(&b, 200));
    let read = b.rdma(Operation::ReadRequest, 201, REGION, 8).ack();
    assert_eq!(b.answer(read), ["ReadResponseOnly 201 ack msn=2 8B"]);
    assert!(b.after(Span::from_us(100)).is_empty(), "the response has acknowledged the WRITE");
    let mut b = waiting();
    let send = b.packet(Operation::SendOnly, 200).data(1).ack();
    assert_eq!(b.answer(send), ["Acknowledge 200 rnr(12) msn=0"]);
}

#[test]
fn it_does_not_wait_on_the_application_nor_on_the_own_requester() {
    // Completions unpolled, the own requests stuck behind an RNR timer.
    let mut b = waiting();
    b.recv(1, 64);
    b.post(1, SendOp::Send, 8);
    b.lines();
    b.inject(b.packet(Operation::Acknowledge, 100).aeth(wire::Syndrome::RnrNak(31), 0));
    b.inject(b.packet(Operation::SendOnly, 200).data(8).ack());
    assert_eq!(b.after(DELAY), ["Acknowledge 200 ack msn=1"]);
}

#[test]
fn responses_come_in_request_order_and_acknowledge_what_stands_between() {
    let mut b = Bench::rc();
    b.fill(REGION, 4096);
    b.inject(write(&b, 200));
    b.inject(b.rdma(Operation::ReadRequest, 201, REGION, 2000).ack());
    b.inject(write(&b, 203));
    b.inject(b.atomic(Operation::FetchAdd, 204, REGION + 8, 1, 0));
    b.inject(b.rdma(Operation::ReadRequest, 205, REGION, 8).ack());
    b.inject(write(&b, 206));
    let lines = b.lines();
    let heads: Vec<_> =
        lines.iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        heads,
        [
            "ReadResponseFirst 201",
            "ReadResponseLast 202",
            "AtomicAcknowledge 204",
            "ReadResponseOnly 205",
            "Acknowledge 206"
        ]
    );
    assert!(lines[0].contains("msn=2") && lines[2].contains("msn=4"), "{lines:?}");
}

#[test]
fn a_read_sees_the_writes_before_it_and_an_atomic_too() {
    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::WriteOnly, 200, REGION, 8).bytes(&6u64.to_ne_bytes()).ack());
    b.inject(b.rdma(Operation::ReadRequest, 201, REGION, 8).ack());
    let sent = b.sent();
    assert_eq!(sent[0].payload, 6u64.to_ne_bytes());
    b.inject(b.atomic(Operation::FetchAdd, 202, REGION, 4, 0));
    b.inject(b.rdma(Operation::ReadRequest, 203, REGION, 8).ack());
    let sent = b.sent();
    assert_eq!(sent[0].ext.atomic_ack, Some(6));
    assert_eq!(sent[1].payload, 10u64.to_ne_bytes());
}

#[test]
fn data_are_in_memory_before_the_acknowledgement_leaves_in_ascending_order() {
    let mut b = Bench::rc();
    b.host.device.memory().log_writes = true;
    let data = pattern(3000);
    b.inject(b.rdma(Operation::WriteFirst, 200, REGION, 3000).bytes(&data[..1024]));
    b.inject(b.packet(Operation::WriteMiddle, 201).bytes(&data[1024..2048]));
    b.inject(b.packet(Operation::WriteLast, 202).bytes(&data[2048..]).ack());
    assert!(b.bytes(REGION, 3000) == data);
    let writes = &b.host.device.memory().writes;
    assert_eq!(*writes, [(REGION, 1024), (REGION + 1024, 1024), (REGION + 2048, 952)]);
}

#[test]
fn refused_behind_a_read_the_read_is_answered_first() {
    let mut b = Bench::rc();
    b.fill(REGION, 2000);
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION, 2000).ack());
    b.inject(b.atomic(Operation::FetchAdd, 202, REGION + 4096, 1, 0));
    let bad = wire::RKey::new(0x12_3456);
    b.inject(write(&b, 203).rkey(bad));
    assert_eq!(b.state(), QpState::Err);
    assert_eq!(
        b.lines(),
        [
            "ReadResponseFirst 200 ack msn=1 1024B",
            "ReadResponseLast 201 ack msn=1 976B",
            "AtomicAcknowledge 202 ack msn=2 old=0",
            "Acknowledge 203 nak(RemoteAccessError) msn=2"
        ]
    );
    assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.qp)]);
    assert!(b.lines().is_empty());
}

#[test]
fn a_region_that_goes_after_a_refusal_refuses_the_read_before_it() {
    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION, 2000).ack());
    b.inject(write(&b, 202).rkey(wire::RKey::new(0x12_3456)));
    b.host.device.dereg_mr(b.region.id).expect("a region");
    // A NAK behind an unanswered READ would make its requester ask for that again, in vain.
    assert_eq!(b.lines(), ["Acknowledge 200 nak(RemoteAccessError) msn=1"]);
    assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.qp)], "told once");
}

#[test]
fn an_application_that_moves_to_error_answers_no_more_reads() {
    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION, 2000).ack());
    b.modify(QpState::Err);
    assert!(b.lines().is_empty());
}

#[test]
fn a_destroyed_queue_pair_sends_the_acknowledgement_that_it_owes() {
    let mut b = waiting();
    b.recv(1, 64);
    b.inject(b.packet(Operation::SendOnly, 200).data(8).ack());
    assert!(b.lines().is_empty(), "it waits for company");
    let qp = b.qp;
    b.host.device.destroy_qp(qp).expect("a queue pair");
    assert_eq!(b.lines(), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.receives(), ["1 Recv 8B"]);
    assert!(b.lines().is_empty());
    assert!(b.answer(b.packet(Operation::SendOnly, 201).data(8).ack()).is_empty());
    assert_eq!(b.counter("rx_unknown_qp"), 1);
}

#[test]
fn a_destroyed_queue_pair_sends_the_nak_that_it_owes() {
    let mut b = Bench::rc();
    b.inject(write(&b, 200).rkey(wire::RKey::new(0x12_3456)));
    let qp = b.qp;
    b.host.device.destroy_qp(qp).expect("a queue pair");
    assert_eq!(b.lines(), ["Acknowledge 200 nak(RemoteAccessError) msn=0"]);
}

#[test]
fn a_device_about_to_close_sends_what_is_owed() {
    let mut b = waiting();
    b.inject(write(&b, 200));
    assert!(b.lines().is_empty());
    b.host.device.hasten();
    assert_eq!(b.lines(), ["Acknowledge 200 ack msn=1"]);
}

#[test]
fn a_region_deregistered_while_a_read_is_answered_ends_the_answer_with_a_nak() {
    let mut b = Bench::with(|o| o.limits.segments = 2);
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION, 5000).ack());
    let mut out = Vec::new();
    let now = b.now;
    assert!(b.host.drain_one(now, |packet| out.push(crate::pair::inspect::line(&packet))));
    assert_eq!(out, ["ReadResponseFirst 200 ack msn=1 1024B", "ReadResponseMiddle 201 1024B"]);
    b.host.device.dereg_mr(b.region.id).expect("a region");
    // Nothing more of it is read.
    assert_eq!(b.lines(), ["Acknowledge 202 nak(RemoteAccessError) msn=1"]);
    assert_eq!(b.state(), QpState::Err);
    assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.qp)]);
}

#[test]
fn a_region_deregistered_while_an_answer_is_repeated_ends_the_repetition_alone() {
    // The requester has had its answer, has said so, and the owner has taken its memory away.
    let mut b = Bench::rc();
    let pd = b.pd;
    let keys = b.host.register(pd, REGION, 8192, engine::Access::REMOTE_READ);
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 5000).rkey(keys.rkey).ack();
    assert_eq!(b.answer(read.clone()).len(), 5);
    b.inject(read);
    b.host.device.dereg_mr(keys.id).expect("a region");
    assert!(b.lines().is_empty());
    assert_eq!(b.state(), QpState::Rts);
    assert_eq!(b.answer(write(&b, 205)), ["Acknowledge 205 ack msn=2"]);
}

#[test]
fn a_repetition_of_an_answer_under_way_does_not_double_it() {
    let mut b = Bench::with(|o| o.limits.segments = 2);
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 4096).ack();
    b.inject(read.clone());
    b.inject(read);
    assert_eq!(b.lines().len(), 4, "nothing of it had left");
    assert_eq!(b.answer(write(&b, 204)), ["Acknowledge 204 ack msn=2"]);
}
