//! Send, receive and shared receive queues: flushing, draining, sizes, limits, what a post refuses.

use engine::{
    AsyncEvent, AttrMask, ErrorKind, PostError, QpAttr, QpState, QpType, RecvRequest, SendData,
    SendFlags, SendOp, SendRequest, Sge, SrqAttr, TrainLimits,
};
use wire::{LKey, NakCode, Operation, Qpn};

use super::datagram;
use crate::pair::bench::{BUFFERS, Bench, LOCAL, PEER_QP, REGION, THERE, pattern};
use crate::pair::setup;

const NONE: Vec<AsyncEvent> = Vec::new();

/// Posts a request on another queue pair of the bench.
fn post_on(b: &mut Bench, qp: Qpn, wr_id: u64) {
    let wr = SendRequest {
        wr_id,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        data: SendData::Sges(&[]),
        datagram: None,
    };
    b.host.device.post_send(b.now, qp, &wr).expect("a good request");
}

#[test]
fn an_error_flushes_what_is_behind_in_order() {
    let mut b = Bench::rc();
    for wr_id in 1..=4 {
        let flags = if wr_id == 4 { SendFlags::empty() } else { SendFlags::SIGNALED };
        b.post_with(wr_id, SendOp::Send, 8, flags).expect("good");
    }
    b.recv(11, 8);
    b.recv(12, 8);
    assert_eq!(b.lines().len(), 4);
    b.inject(b.nak(101, NakCode::RemoteAccessError));
    assert_eq!(b.state(), QpState::Err);
    let flushed = ["1 Send 8B", "2 RemAccessErr", "3 WrFlushErr", "4 WrFlushErr"];
    assert_eq!(b.sends(), flushed, "an error completes the unsignaled request too");
    assert_eq!(b.receives(), ["11 WrFlushErr", "12 WrFlushErr"]);
    b.post(5, SendOp::Read(THERE), 8);
    b.recv(13, 8);
    b.post(6, SendOp::Send, 8);
    assert_eq!(b.sends(), ["5 WrFlushErr", "6 WrFlushErr"], "posted later");
    assert_eq!(b.receives(), ["13 WrFlushErr"]);
    assert!(b.lines().is_empty());
    assert_eq!(b.events(), NONE, "the completion has told it");
}

#[test]
fn the_error_state_asked_for_flushes_everything() {
    for service in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut b = Bench::of(service);
        b.modify(QpState::Sqd);
        for wr_id in 1..=3 {
            match service {
                QpType::Ud => {
                    let to = datagram::to_peer(b.peer);
                    datagram::post(&mut b, wr_id, SendOp::Send, 8, to).expect("good");
                }
                _ => b.post(wr_id, SendOp::Send, 8),
            }
        }
        b.recv(11, 80);
        b.modify(QpState::Err);
        assert_eq!(b.sends(), ["1 WrFlushErr", "2 WrFlushErr", "3 WrFlushErr"]);
        assert_eq!(b.receives(), ["11 WrFlushErr"]);
        assert!(b.lines().is_empty());
    }
}

#[test]
fn a_receive_request_in_use_is_flushed_first() {
    let mut b = Bench::rc();
    b.recv(11, 4096);
    b.recv(12, 4096);
    b.inject(b.packet(Operation::SendFirst, 200).data(1024));
    b.modify(QpState::Err);
    assert_eq!(b.receives(), ["11 WrFlushErr", "12 WrFlushErr"]);
}

#[test]
fn reset_takes_unpolled_completions_out_and_drops_the_rest() {
    let mut b = Bench::rc();
    let other = b.another(Qpn::new(0x88), |_, _| {});
    b.recv(11, 8);
    b.recv(12, 8);
    b.post(1, SendOp::Send, 8);
    post_on(&mut b, other, 2);
    assert_eq!(b.lines().len(), 2);
    b.post(3, SendOp::Send, 8);
    b.inject(b.packet(Operation::SendOnly, 200).data(8));
    b.inject(b.acknowledge(100, 1));
    b.inject(b.acknowledge(100, 1).to(other));
    b.modify(QpState::Reset);
    assert_eq!(b.sends(), ["2 Send 0B"], "the other queue pair's stays");
    assert!(b.receives().is_empty());
    assert!(b.after(wire::Span::from_ms(1000)).is_empty());
    assert!(b.sends().is_empty());
    // It begins anew: nothing of before is left.
    let (attr, init) = (b.attr, b.init);
    setup::raise(&mut b.host.device, b.now, b.qp, &init, &attr, QpState::Rts);
    assert!(b.lines().is_empty());
    b.inject(b.packet(Operation::SendOnly, 200).data(8));
    assert_eq!(b.lines(), ["Acknowledge 200 rnr(12) msn=0"], "its receive requests are gone");
    b.post(4, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
}

#[test]
fn a_send_error_of_an_unreliable_connection_leads_to_sqe_and_back() {
    let mut b = Bench::of(QpType::Uc);
    b.post(1, SendOp::Send, 2048);
    let bad = [
        Sge { addr: LOCAL, length: 1024, lkey: b.region.lkey },
        Sge { addr: LOCAL, length: 8, lkey: LKey::new(1) },
    ];
    let flags = SendFlags::empty();
    let data = SendData::Sges(&bad);
    b.post_raw(&SendRequest { wr_id: 2, op: SendOp::Send, flags, data, datagram: None })
        .expect("keys are looked at later");
    b.post(3, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendFirst 100 1024B", "SendLast 101 1024B", "SendFirst 102 1024B"]);
    assert_eq!(b.sends(), ["1 Send 2048B", "2 LocProtErr", "3 WrFlushErr"]);
    assert_eq!(b.state(), QpState::Sqe);
    b.post(4, SendOp::Send, 8);
    assert_eq!(b.sends(), ["4 WrFlushErr"]);
    b.recv(11, 8);
    b.inject(b.packet(Operation::SendOnly, 200).data(8));
    assert_eq!(b.receives(), ["11 Recv 8B"], "receiving goes on");
    b.modify(QpState::Rts);
    b.post(5, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 103 8B"], "behind what has been sent");
    assert_eq!(b.sends(), ["5 Send 8B"]);
    assert_eq!(b.events(), [AsyncEvent::CommEst(b.qp)][..0], "no event");
}

#[test]
fn a_send_error_of_datagrams_leads_to_sqe_and_back() {
    let mut b = Bench::of(QpType::Ud);
    let to = datagram::to_peer(b.peer);
    let bad = [Sge { addr: LOCAL, length: 8, lkey: LKey::new(1) }];
    let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(&bad));
    let wr = SendRequest { wr_id: 2, op: SendOp::Send, flags, data, datagram: Some(to) };
    datagram::post(&mut b, 1, SendOp::Send, 8, to).expect("good");
    b.post_raw(&wr).expect("keys are looked at later");
    datagram::post(&mut b, 3, SendOp::Send, 8, to).expect("good");
    assert_eq!(b.lines().len(), 1);
    assert_eq!(b.sends(), ["1 Send 8B", "2 LocProtErr", "3 WrFlushErr"]);
    assert_eq!(b.state(), QpState::Sqe);
    b.recv(11, 48);
    b.inject(b.packet(Operation::SendOnly, 0).data(8));
    assert_eq!(b.receives(), ["11 Recv 48B"]);
    b.modify(QpState::Rts);
    datagram::post(&mut b, 4, SendOp::Send, 8, to).expect("good");
    assert!(b.lines()[0].starts_with("SendOnly 101 "));
}

/// A bench whose link takes one packet a train, with a message of three packets begun and another
/// one behind it.
fn begun() -> Bench {
    let mut b = Bench::with(|o| o.limits = TrainLimits::SINGLE);
    b.post(1, SendOp::Send, 3000);
    b.post(2, SendOp::Send, 8);
    let now = b.now;
    assert!(b.host.drain_one(now, |_| {}));
    b
}

fn drain(b: &mut Bench, notify: Option<bool>) {
    let mask = match notify {
        Some(_) => AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY,
        None => AttrMask::STATE,
    };
    let en_sqd_async_notify = notify.unwrap_or(false);
    let attr = QpAttr { state: QpState::Sqd, en_sqd_async_notify, ..b.attr };
    b.host.device.modify_qp(b.now, b.qp, &attr, mask).expect("legal");
}

#[test]
fn a_draining_queue_finishes_what_has_begun_and_tells_once() {
    let mut b = begun();
    drain(&mut b, Some(true));
    assert_eq!(b.lines(), ["SendMiddle 101 1024B", "SendLast 102 A 952B"]);
    assert_eq!(b.events(), NONE, "not acknowledged yet");
    b.inject(b.acknowledge(102, 1));
    assert_eq!(b.events(), [AsyncEvent::SqDrained(b.qp)]);
    assert_eq!(b.sends(), ["1 Send 3000B"]);
    b.post(3, SendOp::Send, 9);
    b.recv(11, 8);
    b.inject(b.packet(Operation::SendOnly, 200).data(8).ack());
    assert_eq!(b.lines(), ["Acknowledge 200 ack msn=1"], "receiving goes on, sending does not");
    assert_eq!(b.events(), NONE, "once");
    assert_eq!(b.state(), QpState::Sqd);
    b.modify(QpState::Rts);
    assert_eq!(b.lines(), ["SendOnly 103 A 8B", "SendOnly 104 A 9B"]);
}

#[test]
fn an_idle_queue_is_drained_at_once() {
    let mut b = Bench::rc();
    drain(&mut b, Some(true));
    assert_eq!(b.events(), [AsyncEvent::SqDrained(b.qp)]);
    b.modify(QpState::Rts);
    drain(&mut b, Some(false));
    assert_eq!(b.events(), NONE, "asked not to");
    b.modify(QpState::Rts);
    drain(&mut b, Some(true));
    assert_eq!(b.events().len(), 1, "each move");
    b.modify(QpState::Rts);
    drain(&mut b, None);
    assert_eq!(b.events(), NONE, "not asked this time");
}

#[test]
fn a_draining_queue_sends_again_what_was_lost() {
    let mut b = begun();
    drain(&mut b, Some(true));
    b.lines();
    b.inject(b.nak(100, NakCode::PsnSequenceError));
    assert_eq!(b.lines(), ["SendFirst 100 1024B", "SendMiddle 101 1024B", "SendLast 102 A 952B"]);
    assert_eq!(b.events(), NONE);
    b.modify(QpState::Rts);
    assert_eq!(b.lines(), ["SendOnly 103 A 8B"]);
    b.inject(b.acknowledge(103, 2));
    assert_eq!(b.events(), NONE, "no longer draining");
}

#[test]
fn datagrams_drain_too() {
    let mut b = Bench::of(QpType::Ud);
    drain(&mut b, Some(true));
    assert_eq!(b.events(), [AsyncEvent::SqDrained(b.qp)]);
    let to = datagram::to_peer(b.peer);
    datagram::post(&mut b, 1, SendOp::Send, 8, to).expect("good");
    assert!(b.lines().is_empty());
    b.modify(QpState::Rts);
    assert_eq!(b.lines().len(), 1);
}

fn shared(max_wr: u32) -> Bench {
    Bench::with(|o| o.srq = Some(SrqAttr { max_wr, max_sge: 2, limit: 0 }))
}

fn send_to(b: &mut Bench, psn: u32) {
    b.inject(b.packet(Operation::SendOnly, psn).data(8));
}

#[test]
fn the_limit_of_a_shared_queue_is_told_once() {
    let mut b = shared(16);
    let srq = b.srq.expect("an SRQ");
    for wr_id in 1..=6 {
        b.recv(wr_id, 8);
    }
    b.host.device.modify_srq(srq, None, Some(4)).expect("legal");
    assert_eq!(b.host.device.query_srq(srq).expect("an SRQ").limit, 4);
    send_to(&mut b, 200);
    send_to(&mut b, 201);
    assert_eq!(b.events(), NONE, "four are left");
    send_to(&mut b, 202);
    assert_eq!(b.events(), [AsyncEvent::SrqLimitReached(srq)]);
    assert_eq!(b.host.device.query_srq(srq).expect("an SRQ").limit, 0);
    send_to(&mut b, 203);
    assert_eq!(b.events(), NONE);
    b.host.device.modify_srq(srq, None, Some(3)).expect("legal");
    assert_eq!(b.events(), [AsyncEvent::SrqLimitReached(srq)], "fewer already");
    assert_eq!(b.receives().len(), 4);
}

#[test]
fn a_shared_queue_changes_its_size_and_keeps_what_is_in_it() {
    let mut b = shared(2);
    let srq = b.srq.expect("an SRQ");
    b.recv(1, 8);
    b.recv(2, 8);
    let post = |b: &mut Bench, wr_id| {
        let sges = [Sge { addr: BUFFERS, length: 8, lkey: b.region.lkey }];
        b.host.device.post_srq_recv(srq, &RecvRequest { wr_id, sges: &sges })
    };
    assert_eq!(post(&mut b, 3), Err(PostError::QueueFull));
    b.host.device.modify_srq(srq, Some(3), None).expect("larger");
    post(&mut b, 3).expect("room");
    assert_eq!(post(&mut b, 4), Err(PostError::QueueFull));
    b.host.device.modify_srq(srq, Some(2), None).expect_err("three are in it");
    b.host.device.modify_srq(srq, None, Some(4)).expect_err("a limit above the size");
    assert_eq!(b.host.device.query_srq(srq).expect("an SRQ").max_wr, 3);
    send_to(&mut b, 200);
    b.host.device.modify_srq(srq, Some(2), None).expect("two are in it");
    send_to(&mut b, 201);
    send_to(&mut b, 202);
    assert_eq!(b.receives(), ["1 Recv 8B", "2 Recv 8B", "3 Recv 8B"]);
}

#[test]
fn with_a_shared_queue_only_the_request_taken_is_flushed() {
    let mut b = shared(8);
    let other = b.another(Qpn::new(0x88), |_, _| {});
    for wr_id in 1..=3 {
        b.recv(wr_id, 4096);
    }
    b.inject(b.packet(Operation::SendFirst, 200).data(1024));
    b.modify(QpState::Err);
    assert_eq!(b.receives(), ["1 WrFlushErr"]);
    assert_eq!(b.events(), [AsyncEvent::QpLastWqeReached(b.qp)]);
    b.inject(b.packet(Operation::SendOnly, 200).data(8).to(other));
    assert_eq!(b.receives(), ["2 Recv 8B"], "the rest serves others");
    let wr = RecvRequest { wr_id: 9, sges: &[] };
    assert_eq!(b.host.device.post_recv(b.now, other, &wr), Err(PostError::SharedReceive));
}

#[test]
fn a_shared_queue_in_use_is_busy() {
    let mut b = shared(8);
    let srq = b.srq.expect("an SRQ");
    let busy = b.host.device.destroy_srq(srq).expect_err("in use").kind();
    assert_eq!(busy, ErrorKind::Busy);
    b.host.device.destroy_qp(b.qp).expect("it exists");
    b.host.device.destroy_srq(srq).expect("free");
    assert_eq!(b.host.device.query_srq(srq).expect_err("gone").kind(), ErrorKind::NotFound);
}

#[test]
fn a_full_queue_refuses_and_the_ones_before_are_posted() {
    let mut b = Bench::with(|o| {
        o.cap.max_send_wr = 3;
        o.cap.max_recv_wr = 2;
    });
    for wr_id in 1..=3 {
        b.post(wr_id, SendOp::Send, 8);
    }
    let full = b.post_with(4, SendOp::Send, 8, SendFlags::SIGNALED);
    assert_eq!(full, Err(PostError::QueueFull));
    assert_eq!(b.host.device.send_room(b.qp), 0);
    assert_eq!(b.lines().len(), 3);
    let full = b.post_with(4, SendOp::Send, 8, SendFlags::SIGNALED);
    assert_eq!(full, Err(PostError::QueueFull), "sent is not completed");
    b.inject(b.acknowledge(100, 1));
    b.post(4, SendOp::Send, 8);
    assert_eq!(b.host.device.send_room(b.qp), 0);
    assert_eq!(b.sends(), ["1 Send 8B"]);
    b.recv(11, 8);
    b.recv(12, 8);
    let wr = RecvRequest { wr_id: 13, sges: &[] };
    assert_eq!(b.host.device.post_recv(b.now, b.qp, &wr), Err(PostError::QueueFull));
    send_to(&mut b, 200);
    b.host.device.post_recv(b.now, b.qp, &wr).expect("room");
    send_to(&mut b, 201);
    b.inject(b.packet(Operation::SendOnly, 202));
    assert_eq!(b.receives(), ["11 Recv 8B", "12 Recv 8B", "13 Recv 0B"]);
}

#[test]
fn a_refused_request_leaves_no_trace() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 8);
    let six = Sge { addr: LOCAL, length: 1, lkey: b.region.lkey };
    let data = SendData::Sges(&[six; 5]);
    let flags = SendFlags::SIGNALED;
    let wr = SendRequest { wr_id: 2, op: SendOp::Send, flags, data, datagram: None };
    assert_eq!(b.post_raw(&wr), Err(PostError::TooManySges));
    b.post(3, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 100 A 8B", "SendOnly 101 A 8B"]);
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.sends(), ["1 Send 8B", "3 Send 8B"]);
}

#[test]
fn thirty_two_entries_gather_and_scatter() {
    let mut b = Bench::with(|o| {
        o.cap.max_send_sge = 32;
        o.cap.max_recv_sge = 32;
    });
    let lkey = b.region.lkey;
    let place = |base: u64, i: u64| Sge { addr: base + i * 100, length: 1 + i as u32 % 7, lkey };
    let from: Vec<Sge> = (0..32).map(|i| place(LOCAL, i)).collect();
    let into: Vec<Sge> = (0..32).map(|i| place(BUFFERS, 31 - i)).collect();
    let total: u32 = from.iter().map(|s| s.length).sum();
    let mut expected = Vec::new();
    for (i, sge) in from.iter().enumerate() {
        let bytes = vec![i as u8 + 1; sge.length as usize];
        b.host.device.memory().slice_mut(sge.addr, bytes.len()).copy_from_slice(&bytes);
        expected.extend(bytes);
    }
    let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(&from));
    b.post_raw(&SendRequest { wr_id: 1, op: SendOp::Send, flags, data, datagram: None })
        .expect("good");
    let sent = b.sent();
    assert_eq!(sent[0].payload, expected);
    b.host.device.post_recv(b.now, b.qp, &RecvRequest { wr_id: 2, sges: &into }).expect("good");
    b.inject(b.packet(Operation::SendOnly, 200).bytes(&expected));
    assert_eq!(b.receives(), [format!("2 Recv {total}B")]);
    let mut at = 0;
    for sge in &into {
        let length = sge.length as usize;
        assert_eq!(b.bytes(sge.addr, length), expected[at..at + length]);
        at += length;
    }
    let many = vec![place(LOCAL, 0); 33];
    let wr = RecvRequest { wr_id: 3, sges: &many };
    assert_eq!(b.host.device.post_recv(b.now, b.qp, &wr), Err(PostError::TooManySges));
}

#[test]
fn sizes_beyond_the_device_are_refused_by_name() {
    let mut b = Bench::rc();
    let init = b.init;
    let mut refused = |change: fn(&mut engine::QpCap)| {
        let mut init = init;
        change(&mut init.cap);
        b.host.device.create_qp(&init).expect_err("too much").to_string()
    };
    assert!(refused(|c| c.max_send_sge = 33).contains("max_send_sge is 33: at most 32"));
    assert!(refused(|c| c.max_recv_sge = 33).contains("max_recv_sge"));
    assert!(refused(|c| c.max_inline_data = 1025).contains("max_inline_data is 1025"));
    assert!(refused(|c| c.max_send_wr = 32769).contains("max_send_wr"));
    assert!(refused(|c| c.max_recv_wr = 1 << 31).contains("max_recv_wr"));
}

#[test]
fn inline_bytes_are_copied_at_post_time_and_bounded() {
    let mut b = Bench::with(|o| o.cap.max_inline_data = 1024);
    let inline = |b: &mut Bench, op, bytes: &[u8]| {
        let (flags, data) = (SendFlags::SIGNALED, SendData::Inline(bytes));
        b.post_raw(&SendRequest { wr_id: 1, op, flags, data, datagram: None })
    };
    let mut bytes = pattern(1024);
    inline(&mut b, SendOp::Send, &bytes).expect("as long as may be");
    bytes[0] ^= 0xFF;
    inline(&mut b, SendOp::Write(THERE), &bytes[..3]).expect("good");
    inline(&mut b, SendOp::Send, &[]).expect("empty");
    let sent = b.sent();
    assert_eq!(sent[0].payload, pattern(1024));
    assert_eq!(sent[1].payload, bytes[..3]);
    assert_eq!(inline(&mut b, SendOp::Send, &pattern(1025)), Err(PostError::Inline));
    assert_eq!(inline(&mut b, SendOp::Read(THERE), &bytes[..8]), Err(PostError::Inline));
    let add = SendOp::FetchAdd { remote: THERE, add: 1 };
    assert_eq!(inline(&mut b, add, &bytes[..8]), Err(PostError::Inline));
    // Sent again after a loss: the copy is still there.
    b.inject(b.nak(100, NakCode::PsnSequenceError));
    assert_eq!(b.sent()[0].payload, pattern(1024));
}

#[test]
fn messages_up_to_two_gigabytes_are_taken() {
    let mut b = Bench::rc();
    b.modify(QpState::Sqd);
    let half = Sge { addr: REGION, length: 1 << 30, lkey: b.region.lkey };
    let one = Sge { length: 1, ..half };
    let mut post = |op, sges: &[Sge]| {
        let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(sges));
        b.post_raw(&SendRequest { wr_id: 1, op, flags, data, datagram: None })
    };
    for op in [SendOp::Send, SendOp::Write(THERE), SendOp::Read(THERE)] {
        post(op, &[half, half]).expect("2^31");
        assert_eq!(post(op, &[half, half, one]), Err(PostError::TooLong));
        let most = Sge { length: u32::MAX, ..half };
        assert_eq!(post(op, &[most; 4]), Err(PostError::TooLong), "the sum is of 64 bits");
    }
}

#[test]
fn an_atomic_takes_one_aligned_entry_of_eight_bytes() {
    let mut b = Bench::rc();
    let sge = Sge { addr: LOCAL, length: 8, lkey: b.region.lkey };
    let four = Sge { length: 4, ..sge };
    let at = |addr| engine::Remote { addr, ..THERE };
    let mut post = |addr, sges: &[Sge]| {
        let op = SendOp::FetchAdd { remote: at(addr), add: 1 };
        let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(sges));
        b.post_raw(&SendRequest { wr_id: 1, op, flags, data, datagram: None })
    };
    assert_eq!(post(THERE.addr, &[four]), Err(PostError::Atomic));
    assert_eq!(post(THERE.addr, &[four, four]), Err(PostError::Atomic));
    assert_eq!(post(THERE.addr, &[]), Err(PostError::Atomic));
    assert_eq!(post(THERE.addr + 4, &[sge]), Err(PostError::Atomic));
    post(THERE.addr, &[sge]).expect("good");
}

#[test]
fn connected_services_take_no_address_and_unknown_queue_pairs_nothing() {
    let mut b = Bench::rc();
    let to = datagram::to_peer(b.peer);
    assert_eq!(datagram::post(&mut b, 1, SendOp::Send, 8, to), Err(PostError::Destination));
    let (now, nobody) = (b.now, Qpn::new(0x99));
    let wr = RecvRequest { wr_id: 1, sges: &[] };
    assert_eq!(b.host.device.post_recv(now, nobody, &wr), Err(PostError::NoQueuePair));
    assert_eq!(b.host.device.destroy_qp(nobody).expect_err("none").kind(), ErrorKind::NotFound);
    assert!(b.host.device.query_qp(PEER_QP).is_err());
}

#[test]
fn queue_pairs_take_turns_at_the_slots() {
    for (slots, expected) in
        [(vec![], [0; 4]), (vec![3], [3; 4]), (vec![1, 9, 255], [1, 9, 255, 1])]
    {
        let mut b = Bench::with(|o| o.config.slots = slots);
        let others: Vec<Qpn> = (0..3).map(|_| b.another(Qpn::new(0x5555), |_, _| {})).collect();
        let all = [&[b.qp][..], &others].concat();
        let found: Vec<u32> = all.iter().map(|qp| qp.get() >> 16).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn every_request_is_signaled_if_the_queue_pair_says_so() {
    let mut b = Bench::with(|o| o.sq_sig_all = true);
    b.post_with(1, SendOp::Send, 8, SendFlags::empty()).expect("good");
    b.lines();
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B"]);
    let mut b = Bench::rc();
    b.post_with(1, SendOp::Send, 8, SendFlags::empty()).expect("good");
    b.post(2, SendOp::Send, 8);
    b.lines();
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.sends(), ["2 Send 8B"], "an unsignaled request is silent");
}
