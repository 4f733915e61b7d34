//! Unreliable connections: gaps cut messages, first and only packets resynchronise, nothing is
//! answered.

use engine::{Access, PostError, QpState, QpType, SendFlags, SendOp};
use wire::{Operation, RKey};

use crate::pair::bench::{Bench, LOCAL, REGION, THERE, pattern};

const MTU: usize = 1024;

fn uc() -> Bench {
    Bench::of(QpType::Uc)
}

/// The packets arrive; none is answered.
fn arrive(b: &mut Bench, packets: impl IntoIterator<Item = (Operation, u32, usize)>) {
    for (operation, psn, length) in packets {
        let made = b.packet(operation, psn).data(length).ack();
        assert_eq!(b.answer(made), Vec::<String>::new(), "UC answered {operation:?} {psn}");
    }
}

use Operation::{SendFirst, SendLast, SendLastImm, SendMiddle, SendOnly, WriteLast, WriteOnly};

#[test]
fn messages_arrive_whole() {
    let mut b = uc();
    let at = b.recv(1, 4096);
    b.recv(2, 10);
    arrive(&mut b, [(SendFirst, 200, MTU), (SendMiddle, 201, MTU), (SendLast, 202, 3)]);
    arrive(&mut b, [(SendOnly, 203, 10)]);
    assert_eq!(b.receives(), ["1 Recv 2051B", "2 Recv 10B"]);
    assert_eq!(b.bytes(at + 2048, 3), pattern(3));
}

#[test]
fn a_gap_cuts_the_message_and_its_receive_request_serves_the_next() {
    let mut b = uc();
    let at = b.recv(1, 4096);
    b.recv(2, 4096);
    arrive(&mut b, [(SendFirst, 200, MTU), (SendLast, 202, 8)]);
    assert!(b.receives().is_empty());
    assert_eq!(b.counter("uc_dropped_messages"), 1);
    arrive(&mut b, [(SendOnly, 203, 16)]);
    assert_eq!(b.receives(), ["1 Recv 16B"]);
    assert_eq!(b.bytes(at, 16), pattern(16));
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn the_rest_of_a_cut_message_is_dropped() {
    let mut b = uc();
    b.recv(1, 8192);
    // The first packet is lost.
    arrive(&mut b, [(SendMiddle, 201, MTU), (SendMiddle, 202, MTU), (SendLast, 203, 8)]);
    assert!(b.receives().is_empty());
    arrive(&mut b, [(SendFirst, 204, MTU), (SendLast, 205, 8)]);
    assert_eq!(b.receives(), ["1 Recv 1032B"]);
}

#[test]
fn a_message_behind_a_gap_resynchronises() {
    let mut b = uc();
    b.recv(1, 64);
    b.recv(2, 64);
    arrive(&mut b, [(SendOnly, 5000, 16), (SendOnly, 5001, 17)]);
    assert_eq!(b.receives(), ["1 Recv 16B", "2 Recv 17B"]);
}

#[test]
fn a_first_packet_within_a_message_begins_another() {
    let mut b = uc();
    b.recv(1, 8192);
    // The end of the first message and nothing else was lost, 2^24 packets ago: the PSN fits.
    arrive(&mut b, [(SendFirst, 200, MTU), (SendFirst, 201, MTU), (SendLast, 202, 4)]);
    assert_eq!(b.receives(), ["1 Recv 1028B"]);
    assert_eq!(b.counter("uc_dropped_messages"), 1);
}

#[test]
fn late_and_repeated_packets_are_not_delivered() {
    let mut b = uc();
    b.recv(1, 64);
    b.recv(2, 64);
    arrive(&mut b, [(SendOnly, 200, 4), (SendOnly, 200, 4), (SendOnly, 199, 4)]);
    assert_eq!(b.receives(), ["1 Recv 4B"]);
    assert_eq!(b.counter("duplicate_request"), 2);
    arrive(&mut b, [(SendOnly, 201, 5)]);
    assert_eq!(b.receives(), ["2 Recv 5B"]);
}

#[test]
fn a_late_packet_does_not_cut_the_message_in_progress() {
    let mut b = uc();
    b.recv(1, 8192);
    arrive(&mut b, [(SendFirst, 200, MTU), (SendFirst, 200, MTU), (SendLast, 201, 4)]);
    assert_eq!(b.receives(), ["1 Recv 1028B"]);
}

#[test]
fn no_receive_request_drops_the_message() {
    let mut b = uc();
    arrive(&mut b, [(SendFirst, 200, MTU)]);
    b.recv(1, 8192);
    arrive(&mut b, [(SendLast, 201, 4)]);
    assert!(b.receives().is_empty(), "the end of a message whose beginning was dropped");
    assert_eq!(b.counter("out_of_buffer"), 1);
    arrive(&mut b, [(SendOnly, 202, 4)]);
    assert_eq!(b.receives(), ["1 Recv 4B"]);
}

#[test]
fn a_message_longer_than_its_buffer_is_dropped() {
    let mut b = uc();
    b.recv(1, 1500);
    arrive(&mut b, [(SendFirst, 200, MTU), (SendLast, 201, 1000), (SendOnly, 202, 1500 - MTU)]);
    assert_eq!(b.receives(), ["1 Recv 476B"], "the request has stayed");
    assert_eq!(b.state(), QpState::Rts);
    assert!(b.events().is_empty());
}

#[test]
fn a_write_arrives_and_a_bad_key_is_dropped_without_answer() {
    let mut b = uc();
    let good = b.rdma(Operation::WriteFirst, 200, REGION, 1028).data(MTU);
    assert!(b.answer(good).is_empty());
    arrive(&mut b, [(WriteLast, 201, 4)]);
    assert_eq!(b.bytes(REGION + 1024, 4), pattern(4));
    let before = b.bytes(REGION, 2048);
    let bad = b.rdma(WriteOnly, 202, REGION, 8).rkey(RKey::new(0x1234_5678)).bytes(&[9; 8]);
    assert!(b.answer(bad).is_empty());
    let beyond = b.rdma(WriteOnly, 203, REGION - 1, 8).bytes(&[9; 8]);
    assert!(b.answer(beyond).is_empty());
    assert_eq!(b.bytes(REGION, 2048), before);
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    let again = b.rdma(WriteOnly, 204, REGION, 8).bytes(&[7; 8]);
    assert!(b.answer(again).is_empty());
    assert_eq!(b.bytes(REGION, 8), [7; 8], "the next message is taken");
}

#[test]
fn a_cut_write_leaves_the_receive_request_of_the_next_one_alone() {
    let mut b = uc();
    b.recv(1, 0);
    b.inject(b.rdma(Operation::WriteFirst, 200, REGION, 1028).data(MTU));
    // The end with the immediate is lost, another message follows.
    b.inject(b.rdma(Operation::WriteOnlyImm, 202, REGION, 4).imm(5).data(4));
    assert_eq!(b.receives(), ["1 RecvRdmaWithImm 4B imm=5"]);
}

#[test]
fn reads_and_atomics_do_not_exist() {
    let mut b = uc();
    for operation in [Operation::ReadRequest, Operation::FetchAdd, Operation::Acknowledge] {
        assert!(b.answer(b.packet(operation, 200)).is_empty());
    }
    assert_eq!(b.counter("rx_wrong_opcode"), 3);
    let fetch = SendOp::FetchAdd { remote: THERE, add: 1 };
    for op in [SendOp::Read(THERE), fetch, SendOp::SendInvalidate(THERE.rkey)] {
        assert_eq!(b.post_with(1, op, 8, SendFlags::SIGNALED), Err(PostError::Operation));
    }
}

#[test]
fn a_sender_completes_without_answer_and_never_asks_for_one() {
    let mut b = uc();
    b.fill(LOCAL, 4096);
    b.post(1, SendOp::SendImm([0, 0, 0, 5]), 2050);
    b.post(2, SendOp::Write(THERE), 1025);
    // An `A` would stand behind the PSN.
    assert_eq!(
        b.lines(),
        [
            "SendFirst 100 1024B",
            "SendMiddle 101 1024B",
            "SendLastImm 102 imm=5 2B",
            "WriteFirst 103 va=0xaa0000 len=1025 1024B",
            "WriteLast 104 1B",
        ]
    );
    assert_eq!(b.sends(), ["1 Send 2050B", "2 RdmaWrite 1025B"]);
    assert!(b.after(wire::Span::from_ms(10_000)).is_empty(), "nothing is sent again");
}

#[test]
fn the_immediate_at_the_end_is_delivered() {
    let mut b = uc();
    b.recv(1, 4096);
    b.inject(b.packet(SendFirst, 200).data(MTU));
    b.inject(b.packet(SendLastImm, 201).imm(77).data(4).solicited());
    assert_eq!(b.receives(), ["1 Recv 1028B imm=77 S"]);
}

#[test]
fn without_the_right_to_write_a_write_is_dropped() {
    let mut b = Bench::with(|o| {
        o.service = QpType::Uc;
        o.attr.access = Access::empty();
    });
    assert!(b.answer(b.rdma(WriteOnly, 200, REGION, 8).data(8)).is_empty());
    assert_eq!(b.bytes(REGION, 8), [0; 8]);
    assert_eq!(b.state(), QpState::Rts);
}
