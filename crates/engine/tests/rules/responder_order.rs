//! Responder: sequence numbers ahead and behind, duplicates, RNR, and the counting of messages.

use engine::{QpState, SendOp};
use wire::{Operation, Psn, Span};

use crate::pair::bench::{Bench, Made, REGION, THERE, pattern};

fn send(b: &Bench, psn: u32) -> Made {
    b.packet(Operation::SendOnly, psn).data(16).ack()
}

fn write(b: &Bench, psn: u32) -> Made {
    b.rdma(Operation::WriteOnly, psn, REGION, 8).data(8).ack()
}

#[test]
fn one_nak_for_a_gap_and_silence_until_it_is_filled() {
    let mut b = Bench::rc();
    assert_eq!(b.answer(write(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.answer(write(&b, 202)), ["Acknowledge 201 nak(PsnSequenceError) msn=1"]);
    for psn in [203, 202, 204, 300, 0x80_0000] {
        assert!(b.answer(write(&b, psn)).is_empty());
    }
    assert_eq!(b.counter("out_of_sequence"), 6);
    assert_eq!(b.counter("rx_after_nak"), 5);
    assert_eq!(b.counter("rx_write_requests"), 1, "nothing ahead was executed");
    assert_eq!(b.answer(write(&b, 201)), ["Acknowledge 201 ack msn=2"]);
    // The next gap is another.
    assert_eq!(b.answer(write(&b, 205)), ["Acknowledge 202 nak(PsnSequenceError) msn=2"]);
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn a_gap_within_a_message_is_asked_for_and_the_message_goes_on() {
    let mut b = Bench::rc();
    let data = pattern(3000);
    let addr = b.recv(1, 4096);
    b.inject(b.packet(Operation::SendFirst, 200).bytes(&data[..1024]));
    let last = b.packet(Operation::SendLast, 202).bytes(&data[2048..]).ack();
    assert_eq!(b.answer(last.clone()), ["Acknowledge 201 nak(PsnSequenceError) msn=0"]);
    b.inject(b.packet(Operation::SendMiddle, 201).bytes(&data[1024..2048]));
    assert_eq!(b.answer(last), ["Acknowledge 202 ack msn=1"]);
    assert_eq!(b.receives(), ["1 Recv 3000B"]);
    assert!(b.bytes(addr, 3000) == data);
}

#[test]
fn behind_by_up_to_half_the_circle_is_a_duplicate() {
    let mut b = Bench::rc();
    b.inject(write(&b, 200));
    b.lines();
    let expected = 201u32;
    for behind in [1, 2, 1000, (1 << 23) - 1, 1 << 23] {
        let psn = expected.wrapping_sub(behind) & 0xFF_FFFF;
        let lines = b.answer(write(&b, psn));
        assert_eq!(lines, ["Acknowledge 200 ack msn=1"], "{behind} behind");
    }
    assert_eq!(b.counter("duplicate_request"), 5);
    assert_eq!(b.counter("out_of_sequence"), 0);
    let ahead = expected.wrapping_add((1 << 23) - 1) & 0xFF_FFFF;
    assert_eq!(b.answer(write(&b, ahead)), ["Acknowledge 201 nak(PsnSequenceError) msn=1"]);
}

#[test]
fn sequence_numbers_wrap_at_24_bits() {
    let mut b = Bench::with(|o| o.attr.rq_psn = Psn::new(0xFF_FFFF));
    assert_eq!(b.answer(write(&b, 0xFF_FFFF)), ["Acknowledge 16777215 ack msn=1"]);
    assert_eq!(b.answer(write(&b, 0)), ["Acknowledge 0 ack msn=2"]);
    assert_eq!(b.answer(write(&b, 0xFF_FFFF)), ["Acknowledge 0 ack msn=2"]);
    assert_eq!(b.answer(write(&b, 2)), ["Acknowledge 1 nak(PsnSequenceError) msn=2"]);
}

#[test]
fn repeated_sends_and_writes_are_acknowledged_again_and_not_executed() {
    let mut b = Bench::rc();
    let addr = b.recv(1, 64);
    b.recv(2, 64);
    b.inject(send(&b, 200));
    b.inject(write(&b, 201));
    assert_eq!(b.lines(), ["Acknowledge 201 ack msn=2"]);
    b.host.device.memory().slice_mut(addr, 16).fill(0);
    b.host.device.memory().slice_mut(REGION, 8).fill(0);
    for made in [send(&b, 200), write(&b, 201)] {
        assert_eq!(b.answer(made), ["Acknowledge 201 ack msn=2"], "the newest PSN and MSN");
    }
    assert_eq!(b.bytes(addr, 16), [0; 16]);
    assert_eq!(b.bytes(REGION, 8), [0; 8]);
    assert_eq!(b.receives(), ["1 Recv 16B"]);
    assert_eq!(b.counter("rx_send_requests"), 1);
    // The second receive request is still there.
    b.inject(send(&b, 202));
    assert_eq!(b.receives(), ["2 Recv 16B"]);
}

#[test]
fn a_duplicate_amid_a_message_does_not_disturb_it() {
    let mut b = Bench::rc();
    b.recv(1, 64);
    let addr = b.recv(2, 4096);
    let data = pattern(2000);
    b.inject(send(&b, 200));
    b.lines();
    b.inject(b.packet(Operation::SendFirst, 201).bytes(&data[..1024]));
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 201 ack msn=1"]);
    b.inject(b.packet(Operation::SendFirst, 201).bytes(&data[..1024]));
    let last = b.packet(Operation::SendLast, 202).bytes(&data[1024..]).ack();
    assert_eq!(b.answer(last), ["Acknowledge 202 ack msn=2"]);
    assert_eq!(b.receives(), ["1 Recv 16B", "2 Recv 2000B"]);
    assert!(b.bytes(addr, 2000) == data);
}

#[test]
fn a_repeated_read_is_executed_again_also_in_part() {
    let mut b = Bench::rc();
    b.fill(REGION, 3000);
    let whole = b.rdma(Operation::ReadRequest, 200, REGION, 3000).ack();
    assert_eq!(b.answer(whole.clone()).len(), 3);
    assert_eq!(b.answer(write(&b, 203)), ["Acknowledge 203 ack msn=2"]);
    // Memory as it is now; First again; the newest MSN.
    b.host.device.memory().slice_mut(REGION, 3000).fill(9);
    b.inject(whole);
    let sent = b.sent();
    let lines: Vec<_> = sent.iter().map(crate::pair::inspect::line).collect();
    assert_eq!(
        lines,
        [
            "ReadResponseFirst 200 ack msn=2 1024B",
            "ReadResponseMiddle 201 1024B",
            "ReadResponseLast 202 ack msn=2 952B"
        ]
    );
    assert!(sent.iter().all(|packet| packet.payload.iter().all(|&byte| byte == 9)));
    let rest = b.rdma(Operation::ReadRequest, 201, REGION + 1024, 1976).ack();
    assert_eq!(
        b.answer(rest),
        ["ReadResponseFirst 201 ack msn=2 1024B", "ReadResponseLast 202 ack msn=2 952B"]
    );
    let middle = b.rdma(Operation::ReadRequest, 201, REGION + 1024, 1024).ack();
    assert_eq!(b.answer(middle), ["ReadResponseOnly 201 ack msn=2 1024B"]);
    assert_eq!(b.answer(write(&b, 204)), ["Acknowledge 204 ack msn=3"]);
    assert_eq!(b.counter("rx_read_requests"), 1);
}

#[test]
fn a_repeated_read_needs_a_read_before_it_and_its_key() {
    let mut b = Bench::rc();
    b.inject(write(&b, 200));
    b.inject(b.rdma(Operation::ReadRequest, 201, REGION, 2000).ack());
    b.lines();
    // Where a WRITE was; longer than the READ was; without a key.
    assert!(b.answer(b.rdma(Operation::ReadRequest, 200, REGION, 8).ack()).is_empty());
    assert!(b.answer(b.rdma(Operation::ReadRequest, 202, REGION, 2000).ack()).is_empty());
    let bad = wire::RKey::new(0x12_3456);
    let made = b.rdma(Operation::ReadRequest, 201, REGION, 2000).rkey(bad).ack();
    assert!(b.answer(made).is_empty());
    assert_eq!(b.state(), QpState::Rts);
    assert_eq!(b.answer(write(&b, 203)), ["Acknowledge 203 ack msn=3"]);
}

#[test]
fn reads_and_atomics_older_than_the_agreed_depth_are_dropped() {
    let mut b = Bench::with(|o| o.attr.max_dest_rd_atomic = 2);
    for psn in 200..203 {
        b.inject(b.atomic(Operation::FetchAdd, psn, REGION, 1, 0));
        b.lines();
    }
    assert!(b.answer(b.atomic(Operation::FetchAdd, 200, REGION, 1, 0)).is_empty());
    let lines = b.answer(b.atomic(Operation::FetchAdd, 201, REGION, 1, 0));
    assert_eq!(lines, ["AtomicAcknowledge 201 ack msn=3 old=1"]);
    b.inject(b.rdma(Operation::ReadRequest, 203, REGION, 8).ack());
    b.inject(b.rdma(Operation::ReadRequest, 204, REGION, 8).ack());
    b.lines();
    assert!(b.answer(b.atomic(Operation::FetchAdd, 202, REGION, 1, 0)).is_empty());
    assert_eq!(b.answer(b.rdma(Operation::ReadRequest, 203, REGION, 8).ack()).len(), 1);
    b.inject(b.rdma(Operation::ReadRequest, 205, REGION, 8).ack());
    b.lines();
    assert!(b.answer(b.rdma(Operation::ReadRequest, 203, REGION, 8).ack()).is_empty());
    assert_eq!(b.host.device.memory().word(REGION), 3);
    assert_eq!(b.host.device.memory().atomics.len(), 3);
}

#[test]
fn an_rnr_nak_then_silence_until_the_expected_one_comes_again() {
    let mut b = Bench::with(|o| o.attr.min_rnr_timer = 7);
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 rnr(7) msn=0"]);
    // What follows was sent before the NAK arrived.
    assert!(b.answer(send(&b, 201)).is_empty());
    assert!(b.answer(write(&b, 202)).is_empty());
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 rnr(7) msn=0"], "still none");
    b.recv(1, 64);
    b.recv(2, 64);
    assert!(b.answer(send(&b, 201)).is_empty(), "in order only");
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.answer(send(&b, 201)), ["Acknowledge 201 ack msn=2"]);
    assert_eq!(b.counter("out_of_buffer"), 2);
    assert_eq!(b.receives(), ["1 Recv 16B", "2 Recv 16B"]);
}

#[test]
fn only_the_first_packet_of_a_send_and_the_one_with_the_immediate_need_a_receive_request() {
    let mut b = Bench::rc();
    let first = b.packet(Operation::SendFirst, 200).data(1024);
    assert_eq!(b.answer(first.clone()), ["Acknowledge 200 rnr(12) msn=0"]);
    b.recv(1, 4096);
    assert!(b.answer(first).is_empty());
    let last = b.packet(Operation::SendLast, 201).data(5).ack();
    assert_eq!(b.answer(last), ["Acknowledge 201 ack msn=1"]);
    assert!(b.answer(b.rdma(Operation::WriteFirst, 202, REGION, 2000).data(1024)).is_empty());
    let last = b.packet(Operation::WriteLastImm, 203).imm(4).data(976).ack();
    assert_eq!(b.answer(last.clone()), ["Acknowledge 203 rnr(12) msn=1"]);
    b.recv(2, 0);
    assert_eq!(b.answer(last), ["Acknowledge 203 ack msn=2"]);
    assert_eq!(b.receives(), ["1 Recv 1029B", "2 RecvRdmaWithImm 2000B imm=4"]);
}

#[test]
fn a_duplicate_while_a_nak_is_outstanding_is_acknowledged() {
    let mut b = Bench::rc();
    b.inject(write(&b, 200));
    b.lines();
    assert_eq!(b.answer(write(&b, 202)), ["Acknowledge 201 nak(PsnSequenceError) msn=1"]);
    assert_eq!(b.answer(write(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    // A NAK that has not left says as much as that acknowledgement, and more.
    let mut b = Bench::rc();
    b.inject(write(&b, 200));
    b.inject(write(&b, 202));
    b.inject(write(&b, 200));
    assert_eq!(b.lines(), ["Acknowledge 201 nak(PsnSequenceError) msn=1"]);
}

#[test]
fn the_msn_counts_completed_messages_of_every_kind() {
    let mut b = Bench::rc();
    for wr_id in 0..4 {
        b.recv(wr_id, 4096);
    }
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    let first = b.packet(Operation::SendFirst, 201).data(1024).ack();
    assert_eq!(b.answer(first), ["Acknowledge 201 ack msn=1"], "half a message is none");
    let last = b.packet(Operation::SendLast, 202).data(1).ack();
    assert_eq!(b.answer(last), ["Acknowledge 202 ack msn=2"]);
    assert_eq!(b.answer(write(&b, 203)), ["Acknowledge 203 ack msn=3"]);
    let read = b.rdma(Operation::ReadRequest, 204, REGION, 2000).ack();
    // A READ counts before its first response.
    assert_eq!(
        b.answer(read),
        ["ReadResponseFirst 204 ack msn=4 1024B", "ReadResponseLast 205 ack msn=4 976B"]
    );
    let atomic = b.atomic(Operation::CompareSwap, 206, REGION, 0, 1);
    let lines = b.answer(atomic);
    assert!(lines[0].starts_with("AtomicAcknowledge 206 ack msn=5"), "{lines:?}");
    assert_eq!(b.answer(write(&b, 208)), ["Acknowledge 207 nak(PsnSequenceError) msn=5"]);
}

#[test]
fn the_msn_wraps_at_24_bits() {
    // So many messages take a while: zero-length WRITEs, none of them answered.
    let mut b = Bench::with(|o| o.attr.rq_psn = Psn::new(0));
    let mut made = b.rdma(Operation::WriteOnly, 0, 0, 0);
    for psn in 0..(1u32 << 24) - 1 {
        made.0.bth.psn = Psn::new(psn);
        let now = b.now;
        b.host.device.receive(
            now,
            &wire::Packet {
                path: made.0.path,
                bth: made.0.bth,
                ext: made.0.ext,
                payload: engine::Payload::Bytes(&[]),
            },
        );
    }
    made.0.bth.psn = Psn::new((1 << 24) - 1);
    assert_eq!(b.answer(made.clone().ack()), ["Acknowledge 16777215 ack msn=0"]);
    made.0.bth.psn = Psn::new(0);
    assert_eq!(b.answer(made.ack()), ["Acknowledge 0 ack msn=1"]);
}

#[test]
fn requester_and_responder_do_not_touch_each_other() {
    let mut b = Bench::with(|o| o.attr.timeout = 10);
    b.post(1, SendOp::Write(THERE), 2000);
    assert_eq!(b.lines().len(), 2);
    // An RNR NAK for our own and a gap in the peer's: neither holds up the other.
    let rnr = b.packet(Operation::Acknowledge, 100).aeth(wire::Syndrome::RnrNak(20), 0);
    b.inject(rnr);
    assert_eq!(b.answer(write(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.answer(write(&b, 205)), ["Acknowledge 201 nak(PsnSequenceError) msn=1"]);
    assert_eq!(b.after(Span::from_us(10_241)).len(), 2);
    b.inject(b.acknowledge(101, 1));
    assert_eq!(b.sends(), ["1 RdmaWrite 2000B"]);
}
