//! Memory that goes away under its registration: unmapped, cut off or protected. Each access to it
//! is an error of the request, at the side whose memory it is; nothing else is harmed.

use engine::{
    AsyncEvent, QpState, QpType, SendData, SendFlags, SendOp, SendRequest, Sge, SrqAttr,
    TrainLimits,
};
use wire::{Operation, Syndrome};

use crate::pair::bench::{BUFFERS, Bench, LOCAL, REGION, THERE};

const OPERATIONAL: &str = "nak(RemoteOperationalError)";
const NOTHING: [String; 0] = [];

/// The first 4096 bytes of an area go.
fn vanish(b: &mut Bench, addr: u64) {
    b.host.device.memory().vanish(addr..addr + 4096);
}

fn post_from(b: &mut Bench, wr_id: u64, op: SendOp, sge: Sge) {
    let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(&[sge]));
    b.post_raw(&SendRequest { wr_id, op, flags, data, datagram: None }).expect("posted");
}

/// The queue pair is in error, with these events.
fn failed(b: &mut Bench, events: &[AsyncEvent]) {
    assert_eq!(b.state(), QpState::Err);
    assert_eq!(b.events(), events);
}

#[test]
fn what_a_peer_asks_of_it_is_an_operational_error() {
    for operation in
        [Operation::WriteOnly, Operation::ReadRequest, Operation::FetchAdd, Operation::CompareSwap]
    {
        let mut b = Bench::rc();
        vanish(&mut b, REGION);
        let made = match operation {
            Operation::WriteOnly => b.rdma(operation, 200, REGION, 8).bytes(&[9; 8]).ack(),
            Operation::ReadRequest => b.rdma(operation, 200, REGION, 8).ack(),
            _ => b.atomic(operation, 200, REGION, 1, 0).ack(),
        };
        let lines = b.answer(made);
        let msn = u32::from(operation == Operation::ReadRequest);
        assert_eq!(lines, [format!("Acknowledge 200 {OPERATIONAL} msn={msn}")], "{operation:?}");
        let event = AsyncEvent::QpAccessErr(b.qp);
        failed(&mut b, &[event]);
        assert_eq!(b.counter("memory_faults"), 1);
        assert_eq!(b.bytes(REGION, 8), [0; 8]);
    }
}

#[test]
fn a_write_of_many_packets_is_refused_where_its_memory_ends() {
    let mut b = Bench::rc();
    vanish(&mut b, REGION + 2048);
    b.inject(b.rdma(Operation::WriteFirst, 200, REGION, 3000).data(1024));
    b.inject(b.packet(Operation::WriteMiddle, 201).data(1024));
    assert!(b.lines().is_empty());
    let made = b.packet(Operation::WriteLast, 202).data(952).ack();
    assert_eq!(b.answer(made), [format!("Acknowledge 202 {OPERATIONAL} msn=0")]);
}

#[test]
fn a_read_is_answered_up_to_where_its_memory_ends() {
    for limits in [TrainLimits::SINGLE, TrainLimits { segments: 64, bytes: 60_000 }] {
        let mut b = Bench::with(|o| o.limits = limits);
        vanish(&mut b, REGION + 2048);
        let lines = b.answer(b.rdma(Operation::ReadRequest, 200, REGION, 3500).ack());
        let expected = [
            "ReadResponseFirst 200 ack msn=1 1024B",
            "ReadResponseMiddle 201 1024B",
            "Acknowledge 202 nak(RemoteOperationalError) msn=1",
        ];
        assert_eq!(lines, expected);
        let event = AsyncEvent::QpAccessErr(b.qp);
        failed(&mut b, &[event]);
    }
}

#[test]
fn a_repeated_read_of_it_is_refused_but_the_connection_stands() {
    let mut b = Bench::rc();
    let read = |b: &mut Bench| b.answer(b.rdma(Operation::ReadRequest, 200, REGION, 8).ack());
    assert_eq!(read(&mut b), ["ReadResponseOnly 200 ack msn=1 8B"]);
    vanish(&mut b, REGION);
    // Its requester has had the answer, if the repetition is a late one.
    assert_eq!(read(&mut b), [format!("Acknowledge 200 {OPERATIONAL} msn=1")]);
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    let made = b.rdma(Operation::WriteOnly, 201, REGION + 8192, 8).data(8).ack();
    assert_eq!(b.answer(made), ["Acknowledge 201 ack msn=2"]);
}

#[test]
fn what_follows_a_read_of_it_is_not_answered() {
    let mut b = Bench::rc();
    vanish(&mut b, REGION);
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION + 8192, 8).ack());
    b.inject(b.rdma(Operation::ReadRequest, 201, REGION, 8).ack());
    b.inject(b.rdma(Operation::ReadRequest, 202, REGION + 8192, 8).ack());
    b.inject(b.rdma(Operation::WriteOnly, 203, REGION + 8192, 8).data(8).ack());
    let expected =
        ["ReadResponseOnly 200 ack msn=1 8B", "Acknowledge 201 nak(RemoteOperationalError) msn=3"];
    let lines = b.lines();
    assert_eq!(lines[0], expected[0]);
    assert!(lines[1].starts_with("Acknowledge 201 nak(RemoteOperationalError)"), "{lines:?}");
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_read_before_a_refused_request_is_refused_itself() {
    let mut b = Bench::rc();
    vanish(&mut b, REGION);
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION, 8).ack());
    b.inject(b.rdma(Operation::WriteOnly, 201, REGION - 4096, 8).data(8).ack());
    assert_eq!(b.lines(), [format!("Acknowledge 200 {OPERATIONAL} msn=1")]);
    let event = AsyncEvent::QpAccessErr(b.qp);
    failed(&mut b, &[event]);
}

#[test]
fn a_read_whose_key_dies_before_a_later_one_is_refused_is_refused_first() {
    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION, 3000).ack());
    let id = b.region.id;
    b.host.device.dereg_mr(id).expect("no windows");
    b.inject(b.rdma(Operation::ReadRequest, 203, REGION, 3000).ack());
    assert_eq!(b.lines(), ["Acknowledge 200 nak(RemoteAccessError) msn=1"]);
    let event = AsyncEvent::QpAccessErr(b.qp);
    failed(&mut b, &[event]);
}

#[test]
fn what_is_sent_from_it_is_a_local_error_when_its_turn_comes() {
    for op in [SendOp::Send, SendOp::Write(THERE)] {
        for limits in [TrainLimits::SINGLE, TrainLimits { segments: 64, bytes: 60_000 }] {
            let mut b = Bench::with(|o| o.limits = limits);
            b.post(1, op, 8);
            let lkey = b.region.lkey;
            vanish(&mut b, LOCAL + 8192);
            post_from(&mut b, 2, op, Sge { addr: LOCAL + 8192 - 1024, length: 2048, lkey });
            b.post(3, op, 8);
            // The first, and what of the second could be read.
            assert_eq!(b.lines().len(), 2, "{op:?}");
            assert_eq!(b.sends(), NOTHING);
            b.inject(b.acknowledge(100, 1));
            assert_eq!(b.sends()[1..], ["2 LocProtErr", "3 WrFlushErr"], "{op:?}");
            failed(&mut b, &[]);
            assert!(b.lines().is_empty());
        }
    }
}

#[test]
fn it_goes_between_a_packet_and_its_repetition() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 3000);
    assert_eq!(b.lines().len(), 3);
    vanish(&mut b, LOCAL);
    b.inject(b.nak(101, wire::NakCode::PsnSequenceError));
    assert!(b.lines().is_empty());
    assert_eq!(b.sends(), ["1 LocProtErr"]);
    failed(&mut b, &[]);
}

#[test]
fn an_acknowledgement_behind_it_in_the_train_still_leaves() {
    let mut b = Bench::rc();
    b.recv(9, 64);
    let made = b.packet(Operation::SendOnly, 200).data(8).ack();
    // The device owes an acknowledgement, which waits for company.
    b.inject(made);
    vanish(&mut b, LOCAL);
    b.post(1, SendOp::Send, 8);
    assert_eq!(b.lines(), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.sends(), ["1 LocProtErr"]);
}

#[test]
fn what_comes_back_into_it_is_a_local_error() {
    for op in [SendOp::Read(THERE), SendOp::FetchAdd { remote: THERE, add: 1 }] {
        let mut b = Bench::rc();
        b.post(1, op, 8);
        assert_eq!(b.lines().len(), 1);
        vanish(&mut b, LOCAL);
        let made = match op {
            SendOp::Read(_) => b.packet(Operation::ReadResponseOnly, 100).data(8),
            _ => b.packet(Operation::AtomicAcknowledge, 100).original(5),
        };
        b.inject(made.aeth(Syndrome::Ack(31), 1));
        assert_eq!(b.sends(), ["1 LocProtErr"], "{op:?}");
        failed(&mut b, &[]);
        assert_eq!(b.counter("memory_faults"), 1);
    }
}

#[test]
fn a_message_into_it_is_an_error_at_both_ends() {
    let mut b = Bench::rc();
    b.recv(1, 64);
    b.recv(2, 64);
    vanish(&mut b, BUFFERS);
    let made = b.packet(Operation::SendOnly, 200).data(8).ack();
    assert_eq!(b.answer(made), [format!("Acknowledge 200 {OPERATIONAL} msn=0")]);
    assert_eq!(b.receives(), ["1 LocProtErr", "2 WrFlushErr"]);
    // The receive completion tells it.
    failed(&mut b, &[]);
}

#[test]
fn a_shared_receive_request_in_it_fails_one_queue_pair() {
    let mut b = Bench::with(|o| o.srq = Some(SrqAttr { max_wr: 8, max_sge: 4, limit: 0 }));
    b.recv(1, 64);
    b.recv(2, 64);
    vanish(&mut b, BUFFERS);
    let made = b.packet(Operation::SendOnly, 200).data(8).ack();
    assert_eq!(b.answer(made), [format!("Acknowledge 200 {OPERATIONAL} msn=0")]);
    assert_eq!(b.receives(), ["1 LocProtErr"], "the other is for other queue pairs");
    let event = AsyncEvent::QpLastWqeReached(b.qp);
    failed(&mut b, &[event]);
}

#[test]
fn unreliable_services_fail_where_it_is_their_own_and_drop_what_a_peer_asks() {
    for service in [QpType::Uc, QpType::Ud] {
        let mut b = Bench::of(service);
        b.recv(1, 100);
        b.recv(2, 100);
        vanish(&mut b, BUFFERS);
        let psn = if service == QpType::Uc { 200 } else { 0 };
        b.inject(b.packet(Operation::SendOnly, psn).data(8));
        assert_eq!(b.receives(), ["1 LocProtErr", "2 WrFlushErr"], "{service:?}");
        failed(&mut b, &[]);
    }
    let mut b = Bench::of(QpType::Uc);
    vanish(&mut b, REGION);
    b.inject(b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8));
    b.inject(b.rdma(Operation::WriteOnly, 201, REGION + 8192, 8).bytes(&[7; 8]));
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    assert_eq!(b.counter("memory_faults"), 1);
    assert_eq!(b.bytes(REGION + 8192, 8), [7; 8]);
}

#[test]
fn unreliable_sends_from_it_fail_in_their_turn() {
    let mut b = Bench::of(QpType::Uc);
    b.post(1, SendOp::Send, 8);
    let lkey = b.region.lkey;
    vanish(&mut b, LOCAL + 8192);
    post_from(&mut b, 2, SendOp::Send, Sge { addr: LOCAL + 8192, length: 8, lkey });
    b.post(3, SendOp::Send, 8);
    assert_eq!(b.lines().len(), 1);
    assert_eq!(b.sends(), ["1 Send 8B", "2 LocProtErr", "3 WrFlushErr"]);
    assert_eq!(b.state(), QpState::Sqe);
}
