//! Faults that implementations of this transport are known to have had; each test shows that this
//! one has not.

use engine::{
    Access, AsyncEvent, BindWindow, QpState, QpType, RegionAttr, SendData, SendFlags, SendOp,
    SendRequest, Sge, WindowType,
};
use wire::{NakCode, Operation, RKey, Span, Syndrome};

use crate::pair::bench::{Bench, LOCAL, REGION, THERE, pattern};

/// A key that nobody has been given.
const NO_KEY: RKey = RKey::new(0x12_3456);

#[test]
fn an_rnr_timer_is_waited_for() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 16);
    assert_eq!(b.lines(), ["SendOnly 100 A 16B"]);
    let rnr = b.packet(Operation::Acknowledge, 100).aeth(Syndrome::RnrNak(14), 0);
    assert!(b.answer(rnr).is_empty());
    // Code 14 is 1.28 ms.
    assert!(b.after(Span::from_us(1279)).is_empty());
    let (span, lines) = b.until_sent(Span::from_ms(10));
    assert_eq!(span, Span::from_us(1));
    assert_eq!(lines, ["SendOnly 100 A 16B"]);
    assert!(b.answer(b.acknowledge(100, 1)).is_empty());
    assert_eq!(b.sends(), ["1 Send 16B"]);
}

#[test]
fn a_repeated_atomic_is_answered_from_the_stored_result() {
    let mut b = Bench::rc();
    b.host.device.memory().set_word(REGION, 5);
    let add = b.atomic(Operation::FetchAdd, 200, REGION, 3, 0);
    let swap = b.atomic(Operation::CompareSwap, 201, REGION, 100, 8);
    assert_eq!(b.answer(add.clone()), ["AtomicAcknowledge 200 ack msn=1 old=5"]);
    assert_eq!(b.answer(swap.clone()), ["AtomicAcknowledge 201 ack msn=2 old=8"]);
    let write = b.rdma(Operation::WriteOnly, 202, REGION, 8).bytes(&7u64.to_ne_bytes()).ack();
    assert_eq!(b.answer(write), ["Acknowledge 202 ack msn=3"]);
    // The answers were lost: the same values again, whatever the memory holds now, and the newest
    // MSN.
    assert_eq!(b.answer(add), ["AtomicAcknowledge 200 ack msn=3 old=5"]);
    assert_eq!(b.answer(swap), ["AtomicAcknowledge 201 ack msn=3 old=8"]);
    assert_eq!(b.host.device.memory().word(REGION), 7);
    assert_eq!(b.host.device.memory().atomics.len(), 2);
    assert_eq!(b.counter("rx_atomic_requests"), 2);
    assert_eq!(b.counter("duplicate_request"), 2);
}

#[test]
fn local_operations_are_not_repeated_with_what_is_sent_again() {
    let mut b = Bench::with(|o| o.attr.timeout = 10);
    let (mw, key) = b.host.device.alloc_mw(b.pd, WindowType::Type2).expect("a window");
    let keys = [0x41, 0x42].map(|low| RKey::new(key.get() & !0xFF | low));
    let binds = keys.map(|rkey| BindWindow {
        mw,
        rkey,
        lkey: b.region.lkey,
        addr: REGION,
        length: 64,
        access: Access::REMOTE_WRITE,
    });
    b.post(0, SendOp::BindWindow(binds[0]), 0);
    assert!(b.lines().is_empty());
    assert_eq!(b.sends(), ["0 BindMw 0B"]);
    b.post(1, SendOp::Send, 16);
    b.post(2, SendOp::LocalInvalidate(keys[0]), 0);
    b.post(3, SendOp::BindWindow(binds[1]), 0);
    b.post(4, SendOp::Send, 16);
    assert_eq!(b.lines(), ["SendOnly 100 A 16B", "SendOnly 101 A 16B"]);
    assert!(b.sends().is_empty(), "nothing completes before what was posted earlier");
    // Executed a second time, each of them would fail.
    for _ in 0..2 {
        let (_, lines) = b.until_sent(Span::from_ms(20));
        assert_eq!(lines, ["SendOnly 100 A 16B", "SendOnly 101 A 16B"]);
    }
    assert_eq!(b.answer(b.nak(101, NakCode::PsnSequenceError)), ["SendOnly 101 A 16B"]);
    assert_eq!(b.sends(), ["1 Send 16B", "2 LocalInv 0B", "3 BindMw 0B"]);
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.sends(), ["4 Send 16B"]);
    let write = b.rdma(Operation::WriteOnly, 200, REGION, 4).rkey(keys[1]).data(4).ack();
    assert_eq!(b.answer(write), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn operations_without_a_receive_request_are_executed_without_one() {
    let mut b = Bench::rc();
    let write = b.rdma(Operation::WriteOnly, 200, REGION, 4).data(4).ack();
    assert_eq!(b.answer(write), ["Acknowledge 200 ack msn=1"]);
    let read = b.rdma(Operation::ReadRequest, 201, REGION, 4).ack();
    assert_eq!(b.answer(read), ["ReadResponseOnly 201 ack msn=2 4B"]);
    let atomic = b.atomic(Operation::FetchAdd, 202, REGION + 8, 1, 0);
    assert_eq!(b.answer(atomic), ["AtomicAcknowledge 202 ack msn=3 old=0"]);
    assert_eq!(b.counter("out_of_buffer"), 0);
    let imm = b.rdma(Operation::WriteOnlyImm, 203, REGION, 4).imm(9).data(4).ack();
    assert_eq!(b.answer(imm), ["Acknowledge 203 rnr(12) msn=3"]);
}

#[test]
fn operations_without_a_receive_request_are_refused_without_one() {
    type Make = fn(&Bench) -> crate::pair::bench::Made;
    let made: [Make; 3] = [
        |b| b.rdma(Operation::WriteOnly, 200, REGION, 4).rkey(NO_KEY).data(4).ack(),
        |b| b.rdma(Operation::ReadRequest, 200, REGION, 4).rkey(NO_KEY).ack(),
        |b| b.atomic(Operation::FetchAdd, 200, REGION, 1, 0).rkey(NO_KEY),
    ];
    for make in made {
        let mut b = Bench::rc();
        let packet = make(&b);
        assert_eq!(b.answer(packet), ["Acknowledge 200 nak(RemoteAccessError) msn=0"]);
        assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.qp)]);
        assert_eq!(b.counter("resp_remote_access_errors"), 1);
        assert_eq!(b.state(), QpState::Err);
    }
}

#[test]
fn a_read_takes_as_many_psns_as_its_answer_has_packets() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 3000);
    b.post(2, SendOp::Send, 16);
    assert_eq!(b.lines(), ["ReadRequest 100 A va=0xaa0000 len=3000", "SendOnly 103 A 16B"]);
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 2049).ack();
    assert_eq!(
        b.answer(read),
        [
            "ReadResponseFirst 200 ack msn=1 1024B",
            "ReadResponseMiddle 201 1024B",
            "ReadResponseLast 202 ack msn=1 1B"
        ]
    );
    let write = b.rdma(Operation::WriteOnly, 203, REGION, 4).data(4).ack();
    assert_eq!(b.answer(write), ["Acknowledge 203 ack msn=2"]);
}

#[test]
fn a_zero_length_read_takes_one_psn() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 0);
    b.post(2, SendOp::Send, 16);
    assert_eq!(b.lines(), ["ReadRequest 100 A va=0xaa0000 len=0", "SendOnly 101 A 16B"]);
    b.inject(b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1));
    assert_eq!(b.sends(), ["1 RdmaRead 0B"]);
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 0).ack();
    assert_eq!(b.answer(read), ["ReadResponseOnly 200 ack msn=1"]);
    let write = b.rdma(Operation::WriteOnly, 201, REGION, 4).data(4).ack();
    assert_eq!(b.answer(write), ["Acknowledge 201 ack msn=2"]);
}

#[test]
fn a_reth_that_wraps_past_the_address_space_is_refused() {
    // The last page of the address space names memory; ranges from it may reach its end, not
    // beyond.
    let top = 0u64.wrapping_sub(4096);
    for (operation, va, length, inside) in [
        (Operation::WriteOnly, u64::MAX - 7, 8, true),
        (Operation::WriteOnly, u64::MAX - 7, 9, false),
        (Operation::WriteFirst, top, 4096, true),
        (Operation::WriteFirst, top, u32::MAX / 2, false),
        (Operation::ReadRequest, top, 4096, true),
        (Operation::ReadRequest, top, 4097, false),
        (Operation::ReadRequest, u64::MAX, 2, false),
    ] {
        let mut b = Bench::rc();
        let attr = RegionAttr {
            pd: b.pd,
            addr: REGION,
            length: 4096,
            iova: top,
            access: Access::LOCAL_WRITE | crate::pair::setup::REMOTE,
        };
        let keys = b.host.device.reg_mr(&attr).expect("a registration");
        let bytes = match operation {
            Operation::WriteOnly => length as usize,
            Operation::WriteFirst => 1024,
            _ => 0,
        };
        let made = b.packet(operation, 200).reth(va, keys.rkey, length).data(bytes).ack();
        let lines = b.answer(made);
        let refused = lines == ["Acknowledge 200 nak(RemoteAccessError) msn=0"];
        assert_eq!(refused, !inside, "{operation:?} {va:#x} {length}: {lines:?}");
    }
}

#[test]
fn a_scatter_gather_entry_that_wraps_past_the_address_space_fails_here() {
    let top = 0u64.wrapping_sub(4096);
    for (addr, length, inside) in [(top, 4096, true), (top + 1, 4096, false), (u64::MAX, 2, false)]
    {
        let mut b = Bench::rc();
        let access = Access::LOCAL_WRITE;
        let attr = RegionAttr { pd: b.pd, addr: REGION, length: 4096, iova: top, access };
        let lkey = b.host.device.reg_mr(&attr).expect("a registration").lkey;
        let sges = [Sge { addr, length, lkey }];
        let wr = SendRequest {
            wr_id: 1,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            data: SendData::Sges(&sges),
            datagram: None,
        };
        b.post_raw(&wr).expect("a good request");
        let lines = b.lines();
        if inside {
            assert_eq!(lines.len(), 4, "{lines:?}");
            assert!(b.sends().is_empty());
        } else {
            // What was sent before the address wrapped has left; the rest never does.
            assert!(lines.iter().all(|line| !line.starts_with("SendLast")), "{lines:?}");
            assert_eq!(b.sends(), ["1 LocProtErr"]);
        }
    }
}

#[test]
fn unreliable_services_never_ask_for_an_acknowledgement() {
    let mut b = Bench::of(QpType::Uc);
    b.post(1, SendOp::Send, 100 * 1024);
    b.post(2, SendOp::Write(THERE), 2000);
    b.post(3, SendOp::WriteImm(THERE, [1; 4]), 0);
    let sent = b.sent();
    assert_eq!(sent.len(), 103);
    assert!(sent.iter().all(|packet| !packet.bth.ack_request));
    assert!(b.after(Span::from_ms(1000)).is_empty());

    let mut b = Bench::of(QpType::Ud);
    let sges = [Sge { addr: LOCAL, length: 64, lkey: b.region.lkey }];
    let av = crate::pair::setup::av(b.peer, 0);
    let qkey = crate::pair::setup::QKEY;
    let wr = SendRequest {
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        data: SendData::Sges(&sges),
        datagram: Some(engine::Datagram { av, dest_qp: crate::pair::bench::PEER_QP, qkey }),
    };
    b.post_raw(&wr).expect("a good request");
    let sent = b.sent();
    assert_eq!(sent.len(), 1);
    assert!(!sent[0].bth.ack_request);
}

#[test]
fn a_message_one_byte_over_the_mtu_is_split_right() {
    for (length, expected) in [
        (1024, vec!["SendOnly 100 A 1024B"]),
        (1025, vec!["SendFirst 100 1024B", "SendLast 101 A 1B"]),
        (2048, vec!["SendFirst 100 1024B", "SendLast 101 A 1024B"]),
        (2049, vec!["SendFirst 100 1024B", "SendMiddle 101 1024B", "SendLast 102 A 1B"]),
    ] {
        let mut b = Bench::rc();
        b.fill(LOCAL, length as usize);
        b.post(1, SendOp::Send, length);
        let sent = b.sent();
        let lines: Vec<_> = sent.iter().map(crate::pair::inspect::line).collect();
        assert_eq!(lines, expected);
        let bytes: Vec<u8> = sent.into_iter().flat_map(|packet| packet.payload).collect();
        assert!(bytes == pattern(length as usize), "other bytes for {length}");
    }
}

#[test]
fn a_packet_one_byte_over_the_mtu_is_refused() {
    for (operation, right, wrong) in [
        (Operation::SendOnly, 1024, 1025),
        (Operation::SendFirst, 1024, 1025),
        (Operation::WriteOnly, 1024, 1025),
        (Operation::WriteFirst, 1024, 1025),
    ] {
        for (bytes, refused) in [(right, false), (wrong, true)] {
            let mut b = Bench::rc();
            b.recv(1, 4096);
            let length = if operation == Operation::WriteFirst { 4000 } else { bytes };
            let mut made = b.packet(operation, 200).data(bytes as usize).ack();
            if operation.is_write() {
                made = made.reth(REGION, b.region.rkey, length);
            }
            let lines = b.answer(made);
            assert_eq!(
                lines == ["Acknowledge 200 nak(InvalidRequest) msn=0"],
                refused,
                "{operation:?} of {bytes}: {lines:?}"
            );
        }
    }
}

#[test]
fn data_may_arrive_before_the_queue_pair_may_send() {
    let mut b = Bench::with(|o| o.state = QpState::Rtr);
    b.recv(1, 64);
    b.recv(2, 64);
    b.recv(3, 64);
    let send = |b: &Bench, psn| b.packet(Operation::SendOnly, psn).data(16).ack();
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.events(), [AsyncEvent::CommEst(b.qp)]);
    assert_eq!(b.answer(send(&b, 201)), ["Acknowledge 201 ack msn=2"]);
    b.modify(QpState::Rts);
    assert_eq!(b.answer(send(&b, 202)), ["Acknowledge 202 ack msn=3"]);
    assert!(b.events().is_empty(), "told once");
    assert_eq!(b.receives(), ["1 Recv 16B", "2 Recv 16B", "3 Recv 16B"]);
    b.post(4, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
}
