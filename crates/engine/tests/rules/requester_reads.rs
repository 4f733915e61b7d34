//! Requester: READs and atomics: their own responses, the initiator depth, fences, gaps in the
//! answer, large READs in pieces.

use engine::{QpState, SendFlags, SendOp};
use wire::{NakCode, Operation, Span, Syndrome};

use crate::pair::bench::{Bench, LOCAL, Made, REGION, THERE, pattern};

const ADD: SendOp = SendOp::FetchAdd { remote: THERE, add: 1 };

/// The READ response packet `psn` of a READ at PSN 100 of `length` patterned bytes.
fn response(b: &Bench, operation: Operation, psn: u32, length: usize) -> Made {
    let all = pattern(length);
    let start = (psn - 100) as usize * 1024;
    let made = b.packet(operation, psn).bytes(&all[start..(start + 1024).min(length)]);
    match operation {
        Operation::ReadResponseMiddle => made,
        _ => made.aeth(Syndrome::Ack(31), 1),
    }
}

#[test]
fn only_its_own_response_completes_a_read_or_an_atomic() {
    for op in [SendOp::Read(THERE), ADD] {
        let mut b = Bench::rc();
        b.post(1, op, 8);
        let request = b.lines();
        assert_eq!(b.answer(b.acknowledge(100, 1)), request, "asked again");
        assert!(b.sends().is_empty());
        assert_eq!(b.state(), QpState::Rts);
    }
}

#[test]
fn the_answer_of_an_atomic_is_the_value_before_it_in_host_order() {
    let mut b = Bench::rc();
    b.post(1, ADD, 8);
    b.lines();
    let answer = b.packet(Operation::AtomicAcknowledge, 100).aeth(Syndrome::Ack(31), 1);
    b.inject(answer.original(0x0102_0304_0506_0708));
    assert_eq!(b.sends(), ["1 FetchAdd 8B"]);
    assert_eq!(b.host.device.memory().word(LOCAL), 0x0102_0304_0506_0708);
}

#[test]
fn reads_and_atomics_outstanding_never_exceed_the_depth() {
    let mut b = Bench::with(|o| o.attr.max_rd_atomic = 2);
    for wr_id in 1..=5 {
        b.post(wr_id, if wr_id % 2 == 0 { ADD } else { SendOp::Read(THERE) }, 8);
    }
    b.post(6, SendOp::Send, 8);
    assert_eq!(
        b.lines(),
        ["ReadRequest 100 A va=0xaa0000 len=8", "FetchAdd 101 A va=0xaa0000 1/0"]
    );
    let read = b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(8);
    assert_eq!(b.answer(read), ["ReadRequest 102 A va=0xaa0000 len=8"]);
    let atomic = b.packet(Operation::AtomicAcknowledge, 101).aeth(Syndrome::Ack(31), 2).original(0);
    assert_eq!(b.answer(atomic), ["FetchAdd 103 A va=0xaa0000 1/0"]);
    let read = b.packet(Operation::ReadResponseOnly, 102).aeth(Syndrome::Ack(31), 3).data(8);
    assert_eq!(b.answer(read), ["ReadRequest 104 A va=0xaa0000 len=8", "SendOnly 105 A 8B"]);
}

#[test]
fn a_fenced_request_waits_for_all_earlier_reads_and_atomics() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 8);
    b.post(2, ADD, 8);
    b.post(3, SendOp::Send, 8);
    b.post_with(4, SendOp::Send, 8, SendFlags::SIGNALED | SendFlags::FENCE).expect("good");
    assert_eq!(b.lines().len(), 3, "the request without a fence overtakes the data");
    let read = b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 1).data(8);
    assert!(b.answer(read).is_empty());
    let atomic = b.packet(Operation::AtomicAcknowledge, 101).aeth(Syndrome::Ack(31), 2).original(0);
    assert_eq!(b.answer(atomic), ["SendOnly 103 A 8B"]);
}

#[test]
fn a_fence_does_not_wait_for_writes() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 8);
    b.post_with(2, SendOp::Send, 8, SendFlags::FENCE).expect("good");
    assert_eq!(b.lines().len(), 2);
}

#[test]
fn a_gap_in_the_answer_is_asked_for_once_from_the_first_missing_byte() {
    let mut b = Bench::with(|o| o.attr.retry_cnt = 1);
    b.post(1, SendOp::Read(THERE), 5000);
    b.lines();
    assert!(b.answer(response(&b, Operation::ReadResponseFirst, 100, 5000)).is_empty());
    // 101 is lost.
    let before = b.host.device.memory().written;
    let lines = b.answer(response(&b, Operation::ReadResponseMiddle, 102, 5000));
    assert_eq!(lines, ["ReadRequest 101 A va=0xaa0400 len=3976"]);
    assert_eq!(b.counter("implied_nak_seq_err"), 1);
    assert!(b.answer(response(&b, Operation::ReadResponseMiddle, 103, 5000)).is_empty());
    assert!(b.answer(response(&b, Operation::ReadResponseLast, 104, 5000)).is_empty());
    assert_eq!(b.host.device.memory().written, before, "what stands beyond the gap is thrown away");
    assert_eq!(b.counter("implied_nak_seq_err"), 1);
    // The answer to the repeated request begins with First, as the specification has it.
    b.inject(response(&b, Operation::ReadResponseFirst, 101, 5000));
    b.inject(response(&b, Operation::ReadResponseMiddle, 102, 5000));
    // Another gap is another matter: progress restored the retry.
    let lines = b.answer(response(&b, Operation::ReadResponseLast, 104, 5000));
    assert_eq!(lines, ["ReadRequest 103 A va=0xaa0c00 len=1928"]);
    b.inject(response(&b, Operation::ReadResponseFirst, 103, 5000));
    b.inject(response(&b, Operation::ReadResponseLast, 104, 5000));
    assert_eq!(b.sends(), ["1 RdmaRead 5000B"]);
    assert!(b.bytes(LOCAL, 5000) == pattern(5000));
}

#[test]
fn an_answer_is_placed_by_its_psn_whatever_its_opcode_says() {
    use Operation::{ReadResponseFirst, ReadResponseLast, ReadResponseMiddle, ReadResponseOnly};
    for second in [ReadResponseFirst, ReadResponseMiddle] {
        for third in [ReadResponseOnly, ReadResponseLast, ReadResponseFirst, ReadResponseMiddle] {
            let mut b = Bench::rc();
            b.post(1, SendOp::Read(THERE), 3000);
            b.lines();
            b.inject(response(&b, ReadResponseFirst, 100, 3000));
            assert_eq!(b.answer(response(&b, ReadResponseLast, 102, 3000)).len(), 1);
            b.inject(response(&b, second, 101, 3000));
            b.inject(response(&b, third, 102, 3000));
            assert_eq!(b.sends(), ["1 RdmaRead 3000B"], "{second:?} {third:?}");
            assert!(b.bytes(LOCAL, 3000) == pattern(3000));
        }
    }
}

#[test]
fn an_acknowledgement_or_response_beyond_an_unfinished_read_asks_for_it_again() {
    type Make = fn(&Bench) -> Made;
    let beyond: [Make; 4] = [
        |b| b.acknowledge(102, 2),
        |b| b.nak(102, NakCode::PsnSequenceError),
        |b| b.nak(102, NakCode::RemoteAccessError),
        |b| b.packet(Operation::AtomicAcknowledge, 103).aeth(Syndrome::Ack(31), 3).original(1),
    ];
    for make in beyond {
        let mut b = Bench::rc();
        b.post(1, SendOp::Read(THERE), 2000);
        b.post(2, SendOp::Send, 8);
        b.post(3, ADD, 8);
        let first = b.lines();
        assert_eq!(first.len(), 3);
        assert_eq!(b.answer(make(&b)), first);
        assert!(b.answer(make(&b)).is_empty(), "once per gap");
        assert!(b.sends().is_empty());
        assert_eq!(b.state(), QpState::Rts);
        assert_eq!(b.counter("implied_nak_seq_err"), 1);
    }
}

#[test]
fn an_rnr_nak_beyond_an_unfinished_read_asks_for_that_at_once_and_for_the_rest_after_its_timer() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 8);
    b.post(2, SendOp::Send, 8);
    let first = b.lines();
    let rnr = b.packet(Operation::Acknowledge, 101).aeth(Syndrome::RnrNak(14), 1);
    assert_eq!(b.answer(rnr), first[..1]);
    assert!(b.after(Span::from_us(1279)).is_empty());
    assert_eq!(b.after(Span::from_us(2)), first[1..]);
}

#[test]
fn an_atomic_is_asked_again_unchanged() {
    let mut b = Bench::rc();
    b.post(1, ADD, 8);
    b.post(2, SendOp::Send, 8);
    let first = b.lines();
    assert_eq!(b.answer(b.acknowledge(101, 2)), first);
    b.inject(b.packet(Operation::AtomicAcknowledge, 100).aeth(Syndrome::Ack(31), 2).original(6));
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.sends(), ["1 FetchAdd 8B", "2 Send 8B"]);
}

#[test]
fn gaps_without_progress_cost_retries() {
    let mut b = Bench::with(|o| (o.attr.retry_cnt, o.attr.timeout) = (1, 10));
    b.post(1, SendOp::Read(THERE), 8);
    b.post(2, SendOp::Send, 8);
    b.lines();
    assert_eq!(b.answer(b.acknowledge(101, 2)).len(), 2);
    b.advance(Span::from_ms(100));
    assert_eq!(b.sends(), ["1 RetryExcErr", "2 WrFlushErr"]);
    assert_eq!(b.counter("local_ack_timeout_err"), 1);
}

#[test]
fn a_timeout_asks_for_the_rest_of_a_read() {
    let mut b = Bench::with(|o| o.attr.timeout = 10);
    b.post(1, SendOp::Read(THERE), 3000);
    b.lines();
    b.inject(response(&b, Operation::ReadResponseFirst, 100, 3000));
    let (_, lines) = b.until_sent(Span::from_ms(50));
    assert_eq!(lines, ["ReadRequest 101 A va=0xaa0400 len=1976"]);
    // The first answer was only late: it serves as well.
    b.inject(response(&b, Operation::ReadResponseMiddle, 101, 3000));
    b.inject(response(&b, Operation::ReadResponseLast, 102, 3000));
    assert_eq!(b.sends(), ["1 RdmaRead 3000B"]);
    // And the second answer is nothing new.
    b.inject(response(&b, Operation::ReadResponseFirst, 101, 3000));
    assert!(b.bytes(LOCAL, 3000) == pattern(3000));
    assert_eq!(b.counter("rx_stale_ack"), 1);
}

#[test]
fn a_read_that_has_the_wrong_place_for_its_answer_is_not_asked_for() {
    let mut b = Bench::with(|o| o.access = engine::Access::REMOTE_READ);
    b.post(1, SendOp::Send, 8);
    b.post(2, SendOp::Read(THERE), 8);
    b.post(3, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
    assert!(b.sends().is_empty(), "it fails in its turn");
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B", "2 LocProtErr", "3 WrFlushErr"]);
    assert_eq!(b.state(), QpState::Err);
}

#[test]
fn a_large_read_is_asked_for_in_pieces_and_repeated_within_their_bounds() {
    // About 16 packets of answer fit into the device's own receive buffer.
    let mut b = Bench::with(|o| (o.config.receive_buffer, o.attr.timeout) = (43_000, 10));
    let length = 40 * 1024;
    b.post(1, SendOp::Read(THERE), length);
    let asked = |lines: &[String]| -> Vec<(u32, u32)> {
        let number = |word: &str| word.parse::<u32>().expect("a number");
        let one = |line: &String| {
            let words: Vec<_> = line.split(' ').collect();
            (number(words[1]), number(words[4].trim_start_matches("len=")).div_ceil(1024))
        };
        lines.iter().map(one).collect()
    };
    let first = asked(&b.lines());
    let (start, packets) = first[0];
    assert_eq!((first.len(), start), (1, 100));
    assert!((8..=20).contains(&packets), "{packets} packets");
    // The first half of the answer makes room for another piece, which goes on where that ends.
    let mut further = Vec::new();
    for psn in 100..100 + packets / 2 {
        let lines = b.answer(response(&b, Operation::ReadResponseMiddle, psn, length as usize));
        further.extend(asked(&lines));
    }
    assert_eq!(further[0].0, 100 + packets);
    assert!(further.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{further:?}");
    // Lost: each repetition lies within one of the pieces.
    let (_, lines) = b.until_sent(Span::from_ms(50));
    let mut pieces = first.clone();
    pieces.extend(&further);
    for (psn, count) in asked(&lines) {
        let inside = |&(at, n): &(u32, u32)| at <= psn && psn + count <= at + n;
        assert!(pieces.iter().any(inside), "{psn}+{count} in {pieces:?}");
    }
    assert_eq!(asked(&lines)[0].0, 100 + packets / 2);
    // It ends well.
    for psn in 100 + packets / 2..140 {
        b.inject(response(&b, Operation::ReadResponseMiddle, psn, length as usize));
        b.lines();
    }
    assert_eq!(b.sends(), ["1 RdmaRead 40960B"]);
    assert!(b.bytes(LOCAL, length as usize) == pattern(length as usize));
}

#[test]
fn reads_of_other_queue_pairs_share_the_own_receive_buffer() {
    let mut b = Bench::with(|o| o.config.receive_buffer = 43_000);
    let second = b.another(wire::Qpn::new(0x88_8888), |_, _| {});
    b.post(1, SendOp::Read(THERE), 64 * 1024);
    let lkey = b.region.lkey;
    let sges = [engine::Sge { addr: REGION, length: 64 * 1024, lkey }];
    let wr = engine::SendRequest {
        wr_id: 2,
        op: SendOp::Read(THERE),
        flags: SendFlags::SIGNALED,
        data: engine::SendData::Sges(&sges),
        datagram: None,
    };
    let now = b.now;
    b.host.device.post_send(now, second, &wr).expect("a good request");
    let sent = b.sent();
    let asked: u32 = sent.iter().filter_map(|p| p.ext.reth).map(|reth| reth.length).sum();
    assert!(asked >= 8 * 1024 && u64::from(asked) < 43_000, "{asked} bytes asked for");
}
