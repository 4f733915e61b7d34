//! What a requester makes of answers that are lost, late, doubled, or not what they seem.

use engine::{AsyncEvent, AttrMask, QpAttr, QpState, SendFlags, SendOp};
use wire::{NakCode, Operation, Span, Syndrome};

use super::{SECOND, after_to, post_on};
use crate::pair::bench::{Bench, PEER_QP, THERE};

/// RNR timer code 12.
const RNR: Span = Span::from_us(640);
/// No packets.
const NOTHING: [&str; 0] = [];

#[test]
fn a_probe_answered_alone_does_not_set_the_timers_spinning() {
    let mut b = Bench::with(|o| {
        o.config.receive_buffer = 40_000;
        o.attr.timeout = 14; // 67 ms
    });
    b.host.device.set_probe(Some(Span::from_us(500)));
    let second = b.another(SECOND, |_, _| {});
    b.post(1, SendOp::Write(THERE), 4096);
    assert_eq!(b.lines().len(), 4);
    let probe = ["WriteFirst 100 A va=0xaa0000 len=4096 1024B"];
    assert_eq!(b.after(Span::from_us(510)), probe);
    post_on(&mut b, second, SendOp::Write(THERE), 60_000);
    assert_eq!(b.lines().len(), 11, "the window is full");
    // The answer says that the three behind it are lost; they have no room now.
    let ack = b.acknowledge(100, 0);
    assert_eq!(b.answer(ack), NOTHING);
    assert_eq!(after_to(&mut b, Span::from_us(4_900), PEER_QP), NOTHING);
    let beyond = after_to(&mut b, Span::from_us(200), PEER_QP);
    assert_eq!(beyond, ["WriteMiddle 101 A 1024B"], "one packet, after its patience");
}

#[test]
fn a_read_before_a_refused_request_succeeds() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 100);
    b.post(2, SendOp::Write(THERE), 8);
    b.post(3, SendOp::Send, 8);
    assert_eq!(b.lines().len(), 3);
    let answer = b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(100);
    b.inject(answer);
    let refusal = b.nak(101, NakCode::RemoteAccessError);
    b.inject(refusal);
    assert_eq!(b.sends(), ["1 RdmaRead 100B", "2 RemAccessErr", "3 WrFlushErr"]);
}

#[test]
fn a_new_path_in_sqd_sends_again_what_went_by_the_old_one() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 10);
    b.post(2, SendOp::Send, 10);
    assert_eq!(b.lines(), ["SendOnly 100 A 10B", "SendOnly 101 A 10B"]);
    let sqd = QpAttr { state: QpState::Sqd, en_sqd_async_notify: true, ..b.attr };
    let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
    b.host.device.modify_qp(b.now, b.qp, &sqd, mask).expect("RTS to SQD");
    b.post(3, SendOp::Send, 10);
    let mut moved = sqd;
    moved.av.traffic_class = 32;
    let mask = AttrMask::STATE | AttrMask::AV;
    b.host.device.modify_qp(b.now, b.qp, &moved, mask).expect("another path");
    // There is no ACK timeout: nothing else would bring them.
    let again = b.sent();
    let psns: Vec<u32> = again.iter().map(|packet| packet.bth.psn.get()).collect();
    assert_eq!(psns, [100, 101], "and not the one posted since");
    assert!(again.iter().all(|packet| packet.path.traffic_class == 32));
    assert_eq!(b.events(), []);
    let ack = b.acknowledge(101, 2);
    b.inject(ack);
    assert_eq!(b.sends(), ["1 Send 10B", "2 Send 10B"]);
    assert_eq!(b.events(), [AsyncEvent::SqDrained(b.qp)]);
}

#[test]
fn a_doubled_rnr_nak_costs_one_retry() {
    let mut b = Bench::with(|o| o.attr.rnr_retry = 1);
    b.post(1, SendOp::Send, 10);
    assert_eq!(b.lines(), ["SendOnly 100 A 10B"]);
    let nak = b.packet(Operation::Acknowledge, 100).aeth(Syndrome::RnrNak(12), 0);
    b.inject(nak.clone());
    b.now = b.now + Span::from_us(100);
    b.inject(nak.clone());
    assert_eq!(b.state(), QpState::Rts);
    let rest = Span::from_us(540);
    assert_eq!(b.until_sent(RNR), (rest, vec!["SendOnly 100 A 10B".into()]), "as the first says");
    b.inject(nak);
    assert_eq!(b.sends(), ["1 RnrRetryExcErr"], "the next one is another");
}

#[test]
fn a_doubled_sequence_nak_costs_one_retry() {
    let mut b = Bench::with(|o| o.attr.retry_cnt = 1);
    b.post(1, SendOp::Send, 10);
    b.post(2, SendOp::Send, 10);
    let both = ["SendOnly 100 A 10B", "SendOnly 101 A 10B"];
    assert_eq!(b.lines(), both);
    let nak = b.nak(100, NakCode::PsnSequenceError);
    b.inject(nak.clone());
    b.inject(nak.clone());
    assert_eq!(b.state(), QpState::Rts);
    assert_eq!(b.lines(), both);
    b.inject(nak);
    assert_eq!(b.sends(), ["1 RetryExcErr", "2 WrFlushErr"], "the next one is another");
}

#[test]
fn a_read_asked_for_again_does_not_reach_across_what_a_probe_asked_for() {
    let mut b = Bench::with(|o| o.attr.timeout = 14); // 67 ms
    b.host.device.set_probe(Some(Span::from_us(500)));
    b.post(1, SendOp::Read(THERE), 4096);
    assert_eq!(b.lines(), ["ReadRequest 100 A va=0xaa0000 len=4096"]);
    let probe = "ReadRequest 100 A va=0xaa0000 len=1024";
    assert_eq!(b.after(Span::from_ms(67)), [probe; 4]);
    // The peer may know the READ by the probe alone, as one of a single packet.
    let (_, again) = b.until_sent(Span::from_ms(1));
    assert_eq!(again, [probe, "ReadRequest 101 A va=0xaa0400 len=3072"]);
}

/// A READ of four packets that has been probed for.
fn probed() -> Bench {
    let mut b = Bench::with(|o| o.attr.timeout = 14);
    b.host.device.set_probe(Some(Span::from_us(500)));
    b.post(1, SendOp::Read(THERE), 4096);
    b.lines();
    assert_eq!(b.after(Span::from_us(510)), ["ReadRequest 100 A va=0xaa0000 len=1024"]);
    b
}

#[test]
fn an_ordinary_read_response_is_not_taken_for_the_answer_to_a_probe() {
    let mut b = probed();
    let operations = [
        Operation::ReadResponseFirst,
        Operation::ReadResponseMiddle,
        Operation::ReadResponseMiddle,
    ];
    for (psn, operation) in (100..).zip(operations) {
        let mut response = b.packet(operation, psn).data(1024);
        if operation == Operation::ReadResponseFirst {
            response = response.aeth(Syndrome::Ack(31), 1);
        }
        assert_eq!(b.answer(response), NOTHING);
    }
    let last = b.packet(Operation::ReadResponseLast, 103).aeth(Syndrome::Ack(31), 1).data(1024);
    assert_eq!(b.answer(last), NOTHING);
    assert_eq!(b.sends(), ["1 RdmaRead 4096B"]);
    assert_eq!(b.counter("retransmitted_packets"), 1, "the probe");
}

#[test]
fn the_answer_to_a_probe_alone_says_that_the_rest_is_lost() {
    let mut b = probed();
    let only = b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(1024);
    assert_eq!(b.answer(only), ["ReadRequest 101 A va=0xaa0400 len=3072"]);
}

/// A READ and a SEND, of which the READ has not been answered when an RNR NAK for the SEND comes.
fn not_ready_behind_read(rnr_retry: u8) -> Bench {
    let mut b = Bench::with(|o| o.attr.rnr_retry = rnr_retry);
    b.post(1, SendOp::Read(THERE), 100);
    b.post(2, SendOp::Send, 10);
    let read = "ReadRequest 100 A va=0xaa0000 len=100";
    assert_eq!(b.lines(), [read, "SendOnly 101 A 10B"]);
    let nak = b.packet(Operation::Acknowledge, 101).aeth(Syndrome::RnrNak(12), 1);
    assert_eq!(b.answer(nak), [read], "the READ at once, the SEND not yet");
    b
}

#[test]
fn an_rnr_nak_behind_an_unfinished_read_holds_the_send_for_its_timer() {
    let mut b = not_ready_behind_read(1);
    b.advance(Span::from_us(100));
    let answer = b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(100);
    assert_eq!(b.answer(answer), NOTHING);
    assert_eq!(b.sends(), ["1 RdmaRead 100B"]);
    let send = vec!["SendOnly 101 A 10B".into()];
    assert_eq!(b.until_sent(RNR), (Span::from_us(540), send));
    let ack = b.acknowledge(101, 2);
    b.inject(ack);
    assert_eq!(b.sends(), ["2 Send 10B"]);
}

#[test]
fn an_rnr_nak_without_retries_fails_the_send_and_not_the_read_before_it() {
    let mut b = not_ready_behind_read(0);
    assert_eq!((b.state(), b.sends()), (QpState::Rts, vec![]));
    let answer = b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(100);
    assert_eq!(b.answer(answer), NOTHING);
    assert_eq!(b.after(RNR), ["SendOnly 101 A 10B"]);
    let nak = b.packet(Operation::Acknowledge, 101).aeth(Syndrome::RnrNak(12), 1);
    b.inject(nak);
    assert_eq!(b.sends(), ["1 RdmaRead 100B", "2 RnrRetryExcErr"]);
}

#[test]
fn a_second_rnr_nak_behind_the_same_read_holds_the_send_again() {
    let mut b = not_ready_behind_read(7);
    assert_eq!(b.after(RNR), ["SendOnly 101 A 10B"], "the READ is lost again");
    let nak = b.packet(Operation::Acknowledge, 101).aeth(Syndrome::RnrNak(12), 1);
    assert_eq!(b.answer(nak), NOTHING);
    assert_eq!(b.after(RNR), ["SendOnly 101 A 10B"]);
}

#[test]
fn without_initiator_depth_reads_and_atomics_fail_here() {
    let add = SendOp::FetchAdd { remote: THERE, add: 1 };
    for (op, length) in [(SendOp::Read(THERE), 100), (add, 8)] {
        let mut b = Bench::with(|o| o.attr.max_rd_atomic = 0);
        b.post(1, SendOp::Send, 8);
        b.post_with(2, op, length, SendFlags::empty()).expect("a good request");
        assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
        let ack = b.acknowledge(100, 1);
        b.inject(ack);
        assert_eq!(b.lines(), NOTHING);
        assert_eq!(b.sends(), ["1 Send 8B", "2 LocQpOpErr"]);
        assert_eq!(b.state(), QpState::Err);
    }
}
