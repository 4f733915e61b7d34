//! Requester: what ends the service of a queue pair, stale and impossible responses, and end-to-end
//! credits.

use engine::{QpState, SendData, SendFlags, SendOp, SendRequest, Sge};
use wire::{LKey, NakCode, Operation, Span, Syndrome};

use crate::pair::bench::{Bench, LOCAL, Made, THERE};

const ADD: SendOp = SendOp::FetchAdd { remote: THERE, add: 1 };

#[test]
fn a_refusal_fails_its_request_and_flushes_what_is_behind() {
    for (code, status, counter) in [
        (NakCode::InvalidRequest, "RemInvReqErr", "req_remote_invalid_request"),
        (NakCode::RemoteAccessError, "RemAccessErr", "req_remote_access_errors"),
        (NakCode::RemoteOperationalError, "RemOpErr", "req_remote_operational_errors"),
    ] {
        let mut b = Bench::rc();
        b.post(1, SendOp::Send, 8);
        b.post_with(2, SendOp::Write(THERE), 3000, SendFlags::empty()).expect("good");
        b.post_with(3, SendOp::Send, 8, SendFlags::empty()).expect("good");
        b.post(4, SendOp::Read(THERE), 8);
        b.recv(10, 64);
        b.recv(11, 64);
        b.lines();
        // In the middle of the WRITE. Errors make a completion, unsignaled or not.
        assert!(b.answer(b.nak(102, code)).is_empty());
        let failed = format!("2 {status}");
        assert_eq!(b.sends(), ["1 Send 8B", &failed, "3 WrFlushErr", "4 WrFlushErr"]);
        assert_eq!(b.receives(), ["10 WrFlushErr", "11 WrFlushErr"]);
        assert_eq!(b.counter(counter), 1);
        assert_eq!(b.state(), QpState::Err);
        // What is posted later flushes too.
        b.post(5, SendOp::Send, 8);
        b.recv(12, 64);
        assert_eq!(b.sends(), ["5 WrFlushErr"]);
        assert_eq!(b.receives(), ["12 WrFlushErr"]);
        assert!(b.after(Span::from_ms(1000)).is_empty(), "nothing leaves any more");
    }
}

#[test]
fn a_refusal_of_a_read_or_an_atomic_fails_it() {
    for op in [SendOp::Read(THERE), ADD] {
        let mut b = Bench::rc();
        b.post(1, op, 8);
        b.lines();
        b.inject(b.nak(100, NakCode::RemoteAccessError));
        assert_eq!(b.sends(), ["1 RemAccessErr"]);
    }
}

#[test]
fn a_refusal_in_the_middle_of_a_read_response_fails_the_read() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 3000);
    b.lines();
    b.inject(b.packet(Operation::ReadResponseFirst, 100).aeth(Syndrome::Ack(31), 1).data(1024));
    b.inject(b.nak(101, NakCode::RemoteAccessError));
    assert_eq!(b.sends(), ["1 RemAccessErr"]);
}

/// Posts a signaled SEND of two entries: one good, and `bad`.
fn post_two(b: &mut Bench, wr_id: u64, bad: Sge) {
    let sges = [Sge { addr: LOCAL, length: 8, lkey: b.region.lkey }, bad];
    let wr = SendRequest {
        wr_id,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        data: SendData::Sges(&sges),
        datagram: None,
    };
    b.post_raw(&wr).expect("a good request");
}

#[test]
fn a_bad_local_key_or_range_fails_in_its_turn_and_does_not_leave() {
    let end = crate::pair::bench::REGION + crate::pair::bench::REGION_LEN;
    let cases: [fn(&Bench, u64) -> Sge; 3] = [
        |_, _| Sge { addr: LOCAL, length: 8, lkey: LKey::new(0x123) },
        |b, end| Sge { addr: end - 7, length: 8, lkey: b.region.lkey },
        |b, _| Sge { addr: 0, length: 8, lkey: b.region.lkey },
    ];
    for case in cases {
        let mut b = Bench::rc();
        let bad = case(&b, end);
        b.post(1, SendOp::Send, 8);
        post_two(&mut b, 2, bad);
        b.post(3, SendOp::Send, 8);
        assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
        assert!(b.sends().is_empty());
        b.inject(b.acknowledge(100, 1));
        assert_eq!(b.sends(), ["1 Send 8B", "2 LocProtErr", "3 WrFlushErr"]);
        assert_eq!(b.state(), QpState::Err);
    }
}

#[test]
fn a_key_is_looked_at_when_the_packet_leaves_not_when_it_is_posted() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 8);
    b.host.device.dereg_mr(b.region.id).expect("a region");
    assert!(b.lines().is_empty());
    assert_eq!(b.sends(), ["1 LocProtErr"]);
    // An empty entry needs no key.
    let mut b = Bench::rc();
    post_two(&mut b, 1, Sge { addr: 0, length: 0, lkey: LKey::new(0) });
    assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
}

#[test]
fn a_read_response_of_another_length_than_asked_is_a_length_error() {
    use Operation::{ReadResponseFirst, ReadResponseMiddle, ReadResponseOnly};
    for (operation, bytes) in [
        (ReadResponseOnly, 7),
        (ReadResponseOnly, 9),
        (ReadResponseOnly, 0),
        (ReadResponseFirst, 1024),
    ] {
        let mut b = Bench::rc();
        b.post(1, SendOp::Read(THERE), 8);
        b.lines();
        b.inject(b.packet(operation, 100).aeth(Syndrome::Ack(31), 1).data(bytes));
        assert_eq!(b.sends(), ["1 LocLenErr"], "{operation:?} {bytes}");
        assert_eq!(b.host.device.memory().written, 0);
    }
    for bytes in [1023, 1, 1025] {
        let mut b = Bench::rc();
        b.post(1, SendOp::Read(THERE), 3000);
        b.lines();
        b.inject(b.packet(ReadResponseFirst, 100).aeth(Syndrome::Ack(31), 1).data(1024));
        b.inject(b.packet(ReadResponseMiddle, 101).data(bytes));
        assert_eq!(b.sends(), ["1 LocLenErr"], "{bytes}");
        assert_eq!(b.state(), QpState::Err);
    }
}

#[test]
fn a_response_that_cannot_belong_to_the_request_is_a_bad_response() {
    type Make = fn(&Bench) -> Made;
    let cases: [(SendOp, Make); 9] = [
        (SendOp::Send, |b| {
            b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(8)
        }),
        (SendOp::Write(THERE), |b| {
            b.packet(Operation::AtomicAcknowledge, 100).aeth(Syndrome::Ack(31), 1).original(1)
        }),
        (SendOp::Read(THERE), |b| {
            b.packet(Operation::AtomicAcknowledge, 100).aeth(Syndrome::Ack(31), 1).original(1)
        }),
        (ADD, |b| b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(8)),
        (SendOp::Send, |b| b.packet(Operation::Acknowledge, 100).aeth(Syndrome::Reserved(0x45), 1)),
        (SendOp::Send, |b| b.nak(100, NakCode::InvalidRdRequest)),
        (SendOp::Read(THERE), |b| {
            let nak = Syndrome::Nak(NakCode::RemoteAccessError);
            b.packet(Operation::ReadResponseOnly, 100).aeth(nak, 1).data(8)
        }),
        (SendOp::Read(THERE), |b| {
            b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::RnrNak(3), 1).data(8)
        }),
        (ADD, |b| {
            let nak = Syndrome::Nak(NakCode::RemoteAccessError);
            b.packet(Operation::AtomicAcknowledge, 100).aeth(nak, 1).original(5)
        }),
    ];
    for (index, (op, make)) in cases.into_iter().enumerate() {
        let mut b = Bench::rc();
        b.post(1, op, 8);
        b.post(2, SendOp::Send, 8);
        b.lines();
        b.inject(make(&b));
        assert_eq!(b.sends(), ["1 BadRespErr", "2 WrFlushErr"], "case {index}");
        assert_eq!(b.state(), QpState::Err);
        assert_eq!(b.host.device.memory().written, 0, "case {index}");
    }
}

#[test]
fn responses_outside_what_is_unacknowledged_have_no_effect() {
    let mut b = Bench::with(|o| (o.attr.retry_cnt, o.attr.rnr_retry) = (0, 0));
    b.post(1, SendOp::Send, 8);
    b.post(2, SendOp::Send, 8);
    b.lines();
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B"]);
    // Late ones, ghosts ahead, and ghosts half a circle away: also such that would do harm.
    for psn in [100, 99, 102, 103, 0x80_0000, 0xFF_FFFF] {
        for syndrome in [
            Syndrome::Ack(31),
            Syndrome::RnrNak(0),
            Syndrome::Nak(NakCode::PsnSequenceError),
            Syndrome::Nak(NakCode::RemoteAccessError),
            Syndrome::Reserved(0x41),
        ] {
            let made = b.packet(Operation::Acknowledge, psn).aeth(syndrome, 9);
            assert!(b.answer(made).is_empty(), "{psn} {syndrome:?}");
        }
        let data = b.packet(Operation::ReadResponseOnly, psn).aeth(Syndrome::Ack(31), 1).data(8);
        assert!(b.answer(data).is_empty());
    }
    assert_eq!(b.counter("rx_stale_ack"), 36);
    assert!(b.sends().is_empty());
    assert_eq!(b.state(), QpState::Rts);
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.sends(), ["2 Send 8B"]);
}

#[test]
fn responses_before_anything_was_sent_have_no_effect() {
    let mut b = Bench::rc();
    b.inject(b.acknowledge(100, 1));
    b.inject(b.nak(99, NakCode::RemoteAccessError));
    b.post(1, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
    assert!(b.sends().is_empty());
    let mut b = Bench::with(|o| o.state = QpState::Rtr);
    b.inject(b.acknowledge(100, 1));
    assert_eq!((b.state(), b.counter("rx_stale_ack")), (QpState::Rtr, 1));
}

fn grant(b: &Bench, psn: u32, code: u8, msn: u32) -> Made {
    b.packet(Operation::Acknowledge, psn).aeth(Syndrome::Ack(code), msn)
}

#[test]
fn credits_bound_what_consumes_receive_requests_with_one_probe_beyond() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 8);
    b.lines();
    // Message 1 is complete, two more may go: up to message 3, and message 4 as a probe.
    b.inject(grant(&b, 100, 2, 1));
    for wr_id in 2..=7 {
        b.post(wr_id, SendOp::Send, 8);
    }
    assert_eq!(b.lines(), ["SendOnly 101 A 8B", "SendOnly 102 A 8B", "SendOnly 103 A 8B"]);
    // None left over: limit 4.
    assert_eq!(b.answer(grant(&b, 103, 0, 4)), ["SendOnly 104 A 8B"], "a probe");
    assert!(b.after(Span::from_ms(100)).is_empty());
    assert_eq!(b.answer(grant(&b, 104, 8, 5)), ["SendOnly 105 A 8B", "SendOnly 106 A 8B"]);
}

#[test]
fn the_limit_of_credits_only_grows() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 8);
    b.post(2, SendOp::Send, 8);
    b.lines();
    b.inject(grant(&b, 100, 4, 1));
    // Message 2 is counted by the responder, whose queue holds less than it has said before.
    b.inject(grant(&b, 101, 0, 2));
    for wr_id in 3..=9 {
        b.post(wr_id, SendOp::Send, 8);
    }
    // Limit 5: messages 3, 4, 5, and 6 as a probe.
    assert_eq!(b.lines().len(), 4);
}

#[test]
fn writes_and_reads_do_not_wait_for_credits() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 8);
    b.lines();
    b.inject(grant(&b, 100, 0, 1));
    b.post(2, SendOp::Write(THERE), 8);
    b.post(3, SendOp::Write(THERE), 8);
    b.post(4, SendOp::Read(THERE), 8);
    b.post(5, ADD, 8);
    assert_eq!(b.lines().len(), 4);
    // A WRITE with immediate consumes a receive request.
    b.post(6, SendOp::WriteImm(THERE, [0; 4]), 8);
    assert!(b.lines().is_empty());
}

#[test]
fn without_credits_everything_goes_at_once() {
    let mut b = Bench::rc();
    for wr_id in 1..=8 {
        b.post(wr_id, SendOp::Send, 8);
    }
    assert_eq!(b.lines().len(), 8, "before the first acknowledgement");
    b.inject(grant(&b, 106, 0, 7));
    for wr_id in 9..=20 {
        b.post(wr_id, SendOp::Send, 8);
    }
    // Message 8 is under way, beyond the limit of 7.
    assert!(b.lines().is_empty());
    // Code 31: the peer does not count.
    assert_eq!(b.answer(grant(&b, 107, 31, 8)).len(), 12);
}
