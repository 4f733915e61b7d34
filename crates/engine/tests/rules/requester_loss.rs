//! Requester: sequence NAKs, the ACK timeout, RNR NAKs, and the probe for a lost tail.

use engine::{QpState, SendOp};
use wire::{NakCode, Operation, Span, Syndrome};

use crate::pair::bench::{Bench, LOCAL, Made, THERE, pattern};

/// The ACK timeout of code 10.
const TIMEOUT: Span = Span::from_ps(4_096_000 << 10);

fn rnr(b: &Bench, psn: u32, timer: u8) -> Made {
    b.packet(Operation::Acknowledge, psn).aeth(Syndrome::RnrNak(timer), 0)
}

/// A bench with a timeout and these numbers of retries.
fn timed(retry_cnt: u8, rnr_retry: u8) -> Bench {
    Bench::with(|o| {
        (o.attr.timeout, o.attr.retry_cnt, o.attr.rnr_retry) = (10, retry_cnt, rnr_retry)
    })
}

#[test]
fn a_sequence_nak_goes_back_into_the_middle_of_a_message() {
    let mut b = Bench::rc();
    b.fill(LOCAL, 4000);
    b.post(1, SendOp::WriteImm(THERE, [0, 0, 0, 7]), 4000);
    assert_eq!(b.lines().len(), 4);
    b.inject(b.nak(102, NakCode::PsnSequenceError));
    let again = b.sent();
    let lines: Vec<_> = again.iter().map(crate::pair::inspect::line).collect();
    // No first packet and no RETH again.
    assert_eq!(lines, ["WriteMiddle 102 1024B", "WriteLastImm 103 A imm=7 928B"]);
    let bytes: Vec<u8> = again.into_iter().flat_map(|packet| packet.payload).collect();
    assert!(bytes == pattern(4000)[2048..]);
    b.inject(b.acknowledge(103, 1));
    assert_eq!(b.sends(), ["1 RdmaWrite 4000B"]);
    assert_eq!(b.counter("packet_seq_err"), 1);
    assert_eq!(b.counter("retransmitted_packets"), 2);
}

#[test]
fn a_sequence_nak_goes_back_over_several_messages() {
    let mut b = Bench::rc();
    for wr_id in 1..=4 {
        b.post(wr_id, SendOp::Send, 8);
    }
    b.lines();
    assert_eq!(
        b.answer(b.nak(101, NakCode::PsnSequenceError)),
        ["SendOnly 101 A 8B", "SendOnly 102 8B", "SendOnly 103 A 8B"]
    );
    assert_eq!(b.sends(), ["1 Send 8B"]);
    b.inject(b.acknowledge(103, 4));
    assert_eq!(b.sends(), ["2 Send 8B", "3 Send 8B", "4 Send 8B"]);
}

#[test]
fn sequence_naks_without_progress_cost_retries() {
    let mut b = timed(2, 7);
    b.post(1, SendOp::Send, 8);
    b.lines();
    for _ in 0..2 {
        assert_eq!(b.answer(b.nak(100, NakCode::PsnSequenceError)), ["SendOnly 100 A 8B"]);
    }
    assert!(b.answer(b.nak(100, NakCode::PsnSequenceError)).is_empty());
    assert_eq!(b.sends(), ["1 RetryExcErr"]);
    assert_eq!(b.state(), QpState::Err);
}

#[test]
fn n_retries_are_n_plus_one_transmissions() {
    for retries in [0, 1, 3, 7] {
        let mut b = timed(retries, 7);
        b.post(1, SendOp::Send, 8);
        b.post(2, SendOp::Send, 8);
        let sent = b.after(Span::from_ms(1000));
        let firsts = sent.iter().filter(|line| *line == "SendOnly 100 A 8B").count();
        assert_eq!(firsts, usize::from(retries) + 1, "retry_cnt {retries}");
        assert_eq!(b.sends(), ["1 RetryExcErr", "2 WrFlushErr"]);
        assert_eq!(b.counter("req_transport_retries_exceeded"), 1);
        assert_eq!(b.counter("local_ack_timeout_err"), u64::from(retries) + 1);
        assert_eq!(b.state(), QpState::Err);
    }
}

#[test]
fn timeouts_in_a_row_may_grow_to_four_times_the_value() {
    let mut b = timed(7, 7);
    b.host.device.set_back_off(true);
    b.post(1, SendOp::Send, 8);
    b.lines();
    for _ in 0..2 {
        for times in [1, 1, 1, 1, 2, 2, 4] {
            let (waited, lines) = b.until_sent(TIMEOUT.times(5));
            assert_eq!((waited, lines.len()), (TIMEOUT.times(times), 1));
        }
        if b.counter("local_ack_timeout_err") < 14 {
            b.inject(b.acknowledge(100, 1));
            b.post(2, SendOp::Send, 8);
            b.lines();
        }
    }
    b.advance(TIMEOUT.times(4));
    assert_eq!(b.sends(), ["1 Send 8B", "2 RetryExcErr"]);
}

#[test]
fn a_timeout_comes_between_one_and_four_times_the_value_and_resends_from_the_oldest() {
    let mut b = timed(7, 7);
    b.post(1, SendOp::Send, 8);
    b.post(2, SendOp::Write(THERE), 2000);
    b.lines();
    let start = b.now;
    b.advance(Span::from_ms(2));
    b.inject(b.acknowledge(101, 1));
    let progress = b.now;
    let (_, lines) = b.until_sent(TIMEOUT.times(5));
    assert_eq!(lines, ["WriteLast 102 A 976B"]);
    let waited = b.now.since(progress);
    assert!(waited >= TIMEOUT && waited < TIMEOUT.times(4), "{waited:?}");
    assert!(b.now.since(start) > TIMEOUT, "progress starts it anew");
}

#[test]
fn progress_restores_the_retries() {
    let mut b = timed(1, 7);
    b.post(1, SendOp::Write(THERE), 6 * 1024);
    b.lines();
    for psn in 100..105 {
        // One of one is spent each time.
        let (_, lines) = b.until_sent(TIMEOUT.times(5));
        assert!(lines[0].contains(&psn.to_string()), "{lines:?}");
        b.inject(b.acknowledge(psn, 0));
        assert_eq!(b.state(), QpState::Rts);
    }
    b.advance(TIMEOUT.times(20));
    assert_eq!(b.sends(), ["1 RetryExcErr"]);
}

#[test]
fn without_a_timeout_nothing_is_ever_sent_again() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 8);
    b.lines();
    assert!(b.after(Span::from_ms(3_600_000)).is_empty());
    assert_eq!(b.state(), QpState::Rts);
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B"]);
}

#[test]
fn no_timer_runs_while_nothing_is_unacknowledged() {
    let mut b = timed(0, 0);
    assert!(b.after(Span::from_ms(10_000)).is_empty());
    b.post(1, SendOp::Send, 8);
    b.lines();
    b.inject(b.acknowledge(100, 1));
    assert!(b.after(Span::from_ms(10_000)).is_empty());
    assert_eq!((b.state(), b.counter("local_ack_timeout_err")), (QpState::Rts, 0));
}

#[test]
fn an_rnr_nak_resends_from_its_psn_after_its_timer() {
    let mut b = timed(0, 7);
    for wr_id in 1..=3 {
        b.post(wr_id, SendOp::Send, 8);
    }
    b.lines();
    // Code 16 is 2.56 ms, code 20 10.24 ms: longer than the ACK timeout, which does not run
    // meanwhile.
    for (timer, micros) in [(16, 2560), (20, 10_240), (1, 10)] {
        assert!(b.answer(rnr(&b, 101, timer)).is_empty());
        assert!(b.after(Span::from_us(micros - 1)).is_empty());
        assert_eq!(b.after(Span::from_us(2)), ["SendOnly 101 A 8B", "SendOnly 102 A 8B"]);
    }
    assert_eq!(b.sends(), ["1 Send 8B"]);
    assert_eq!(b.counter("rnr_nak_retry_err"), 3);
    assert_eq!(b.counter("local_ack_timeout_err"), 0);
    b.inject(b.acknowledge(102, 3));
    assert_eq!(b.sends(), ["2 Send 8B", "3 Send 8B"]);
}

#[test]
fn an_rnr_nak_goes_back_into_the_middle_of_a_write() {
    let mut b = Bench::rc();
    b.post(1, SendOp::WriteImm(THERE, [0; 4]), 3000);
    b.lines();
    assert!(b.answer(rnr(&b, 102, 1)).is_empty());
    assert_eq!(b.after(Span::from_us(20)), ["WriteLastImm 102 A imm=0 952B"]);
}

#[test]
fn while_an_rnr_timer_runs_sequence_naks_for_its_psn_are_ignored_and_nothing_new_is_sent() {
    let mut b = timed(0, 7);
    b.post(1, SendOp::Send, 8);
    b.post(2, SendOp::Send, 8);
    b.lines();
    b.inject(rnr(&b, 100, 14));
    // The responder had it for what followed.
    assert!(b.answer(b.nak(100, NakCode::PsnSequenceError)).is_empty());
    assert!(b.answer(b.nak(100, NakCode::PsnSequenceError)).is_empty());
    assert_eq!(b.state(), QpState::Rts, "no retry was spent");
    assert_eq!(b.counter("packet_seq_err"), 0);
    b.post(3, SendOp::Send, 8);
    assert!(b.lines().is_empty());
    assert_eq!(b.after(Span::from_us(1281)).len(), 3);
}

#[test]
fn rnr_retries_are_counted_and_seven_is_without_limit() {
    for (retries, naks) in [(0, 1), (1, 2), (3, 4), (6, 7)] {
        let mut b = timed(7, retries);
        b.post(1, SendOp::Send, 8);
        b.post(2, SendOp::Send, 8);
        b.lines();
        for nak in 1..=naks {
            assert_eq!(b.state(), QpState::Rts, "rnr_retry {retries} after {} NAKs", nak - 1);
            b.inject(rnr(&b, 100, 1));
            b.advance(Span::from_us(20));
        }
        assert_eq!(b.sends(), ["1 RnrRetryExcErr", "2 WrFlushErr"], "rnr_retry {retries}");
        assert_eq!(b.counter("req_rnr_retries_exceeded"), 1);
    }
    let mut b = timed(0, 7);
    b.post(1, SendOp::Send, 8);
    b.lines();
    for _ in 0..100 {
        b.inject(rnr(&b, 100, 1));
        assert_eq!(b.after(Span::from_us(20)), ["SendOnly 100 A 8B"]);
    }
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn progress_restores_the_rnr_retries() {
    let mut b = timed(7, 1);
    for wr_id in 1..=4 {
        b.post(wr_id, SendOp::Send, 8);
    }
    b.lines();
    for psn in 100..104 {
        b.inject(rnr(&b, psn, 1));
        assert!(!b.after(Span::from_us(20)).is_empty());
    }
    assert_eq!(b.state(), QpState::Rts);
    b.inject(rnr(&b, 103, 1));
    assert_eq!(b.sends(), ["1 Send 8B", "2 Send 8B", "3 Send 8B", "4 RnrRetryExcErr"]);
}

#[test]
fn a_late_acknowledgement_ends_the_wait() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Send, 8);
    b.lines();
    b.inject(rnr(&b, 100, 31));
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B"]);
    b.post(2, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 101 A 8B"]);
}

/// A bench that probes after 500 µs, with an ACK timeout of 67 ms.
fn probing(retry_cnt: u8) -> Bench {
    let mut b = Bench::with(|o| (o.attr.timeout, o.attr.retry_cnt) = (14, retry_cnt));
    b.host.device.set_probe(Some(Span::from_us(500)));
    b
}

#[test]
fn a_probe_goes_out_once_acknowledgements_stop_coming() {
    let mut b = probing(0);
    b.post(1, SendOp::Write(THERE), 3000);
    assert_eq!(b.lines().len(), 3);
    assert!(b.after(Span::from_us(499)).is_empty());
    // The oldest packet alone, and it asks.
    assert_eq!(b.after(Span::from_us(2)), ["WriteFirst 100 A va=0xaa0000 len=3000 1024B"]);
    assert_eq!(b.counter("tx_probes"), 1);
    // The tail had been lost: what the answer does not cover goes out again, without a retry spent.
    assert_eq!(b.answer(b.acknowledge(100, 0)), ["WriteMiddle 101 1024B", "WriteLast 102 A 952B"]);
    b.inject(b.acknowledge(102, 1));
    assert_eq!(b.sends(), ["1 RdmaWrite 3000B"]);
    assert_eq!(b.counter("local_ack_timeout_err"), 0);
}

#[test]
fn a_probe_whose_answer_covers_all_repeats_nothing() {
    let mut b = probing(0);
    b.post(1, SendOp::Send, 3000);
    b.lines();
    assert_eq!(b.after(Span::from_us(501)), ["SendFirst 100 A 1024B"]);
    assert!(b.answer(b.acknowledge(102, 1)).is_empty(), "only the acknowledgement was lost");
    assert_eq!(b.sends(), ["1 Send 3000B"]);
}

#[test]
fn probes_are_few_and_leave_the_timeout_as_it_is() {
    let mut b = probing(1);
    b.post(1, SendOp::Send, 8);
    let sent = b.after(Span::from_ms(66));
    assert!((3..=6).contains(&sent.len()), "{sent:?}");
    assert_eq!(b.counter("local_ack_timeout_err"), 0);
    b.advance(Span::from_ms(1000));
    assert_eq!(b.sends(), ["1 RetryExcErr"]);
    assert_eq!(b.counter("local_ack_timeout_err"), 2);
}

#[test]
fn a_probe_for_a_read_asks_for_one_packet_and_one_for_an_atomic_repeats_it() {
    let mut b = probing(0);
    b.post(1, SendOp::Read(THERE), 3000);
    b.lines();
    assert_eq!(b.after(Span::from_us(501)), ["ReadRequest 100 A va=0xaa0000 len=1024"]);
    let first = b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(1024);
    assert_eq!(b.answer(first), ["ReadRequest 101 A va=0xaa0400 len=1976"]);

    let mut b = probing(0);
    b.post(1, SendOp::CompareSwap { remote: THERE, compare: 3, swap: 4 }, 8);
    let lines = b.lines();
    assert_eq!(lines, ["CompareSwap 100 A va=0xaa0000 4/3"]);
    assert_eq!(b.after(Span::from_us(501)), lines);
}

/// The same, but for 8 ms while nothing tells of losses.
fn calm() -> Bench {
    let mut b = probing(7);
    b.host.device.set_calm(Span::from_ms(8));
    b
}

/// After how many µs of silence a message of two packets is probed for; then all of it has arrived.
fn probed_after(b: &mut Bench, psn: u32, msn: u32) -> u64 {
    b.post(u64::from(msn), SendOp::Send, 2000);
    assert_eq!(b.lines().len(), 2);
    let mut us = 0;
    while b.after(Span::from_us(100)).is_empty() {
        us += 100;
    }
    assert!(b.answer(b.acknowledge(psn + 1, msn)).is_empty());
    us
}

#[test]
fn where_nothing_is_lost_a_probe_is_patient() {
    let mut b = calm();
    assert_eq!(probed_after(&mut b, 100, 1), 7900);
    // What the answer tells is that an acknowledgement was lost or late: no reason for haste.
    assert_eq!(probed_after(&mut b, 102, 2), 7900);
}

#[test]
fn where_packets_are_lost_a_probe_is_quick_for_a_second() {
    let mut b = calm();
    b.post(1, SendOp::Send, 2000);
    b.lines();
    let nak = b.packet(Operation::Acknowledge, 101);
    let nak = nak.aeth(Syndrome::Nak(NakCode::PsnSequenceError), 0);
    assert_eq!(b.answer(nak), ["SendLast 101 A 976B"]);
    b.inject(b.acknowledge(101, 1));
    assert_eq!(probed_after(&mut b, 102, 2), 400);
    b.advance(Span::from_ms(990));
    assert_eq!(probed_after(&mut b, 104, 3), 400);
    b.advance(Span::from_ms(20));
    assert_eq!(probed_after(&mut b, 106, 4), 7900);
}

#[test]
fn a_probe_that_is_answered_twice_was_not_needed() {
    let mut b = calm();
    for psn in 100..102 {
        // The answer to the probe of the only packet: that had been lost, as far as is known ...
        b.post(1, SendOp::Send, 8);
        b.lines();
        assert!(b.after(Span::from_us(7900)).is_empty());
        assert_eq!(b.after(Span::from_us(200)), [format!("SendOnly {psn} A 8B")]);
        b.inject(b.acknowledge(psn, psn - 99));
        // ... until the other answer comes.
        b.inject(b.acknowledge(psn, psn - 99));
    }
    assert_eq!(b.counter("rx_stale_ack"), 2);
    b.post(1, SendOp::Send, 8);
    b.lines();
    b.after(Span::from_ms(9));
    b.inject(b.acknowledge(102, 3));
    assert_eq!(probed_after(&mut b, 103, 4), 400);
}

#[test]
fn a_patient_probe_is_sent_well_before_the_timeout() {
    let mut b = Bench::with(|o| o.attr.timeout = 12);
    b.host.device.set_probe(Some(Span::from_us(500)));
    b.host.device.set_calm(Span::from_ms(8));
    b.post(1, SendOp::Send, 8);
    b.lines();
    // A third of 16.8 ms.
    assert!(b.after(Span::from_us(5580)).is_empty());
    assert_eq!(b.after(Span::from_us(20)), ["SendOnly 100 A 8B"]);
}

#[test]
fn without_a_wish_for_it_there_is_no_probe() {
    let mut b = Bench::with(|o| o.attr.timeout = 14);
    b.post(1, SendOp::Send, 8);
    b.lines();
    assert!(b.after(Span::from_ms(66)).is_empty());
}

#[test]
fn no_probe_while_an_rnr_timer_runs() {
    let mut b = probing(0);
    b.post(1, SendOp::Send, 8);
    b.lines();
    b.inject(rnr(&b, 100, 20));
    assert!(b.after(Span::from_us(10_239)).is_empty());
    assert_eq!(b.after(Span::from_us(2)), ["SendOnly 100 A 8B"]);
}

#[test]
fn a_device_waits_its_least_timeout_at_least() {
    for (code, least, expected) in [(1, 17, 17), (14, 17, 67), (1, 0, 0)] {
        let mut b = Bench::with(|o| {
            o.attr.timeout = code;
            o.state = QpState::Reset;
        });
        b.host.device.set_least_timeout(Span::from_ms(least));
        let (init, attr, now, qp) = (b.init, b.attr, b.now, b.qp);
        let rts = QpState::Rts;
        crate::pair::setup::raise(&mut b.host.device, now, qp, &init, &attr, rts);
        b.post(1, SendOp::Write(THERE), 8);
        assert_eq!(b.sent().len(), 1);
        let (after, _) = b.until_sent(Span::from_ms(500));
        assert_eq!(after.as_ps() / 1_000_000_000, expected, "code {code}");
    }
}
