//! Requester: sequence numbers, what asks for an acknowledgement, what an acknowledgement
//! completes, and in which order.

use engine::{SendFlags, SendOp};
use wire::{NakCode, Operation, Psn, Span, Syndrome};

use crate::pair::bench::{Bench, THERE};

#[test]
fn each_packet_takes_the_next_psn_across_messages() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 2000);
    b.post(2, SendOp::SendImm([0, 0, 0, 5]), 0);
    b.post(3, SendOp::WriteImm(THERE, [0, 0, 0, 6]), 1500);
    let invalidate = wire::RKey::new(0x42);
    b.post(4, SendOp::SendInvalidate(invalidate), 8);
    assert_eq!(
        b.lines(),
        [
            "WriteFirst 100 va=0xaa0000 len=2000 1024B".to_owned(),
            "WriteLast 101 A 976B".to_owned(),
            "SendOnlyImm 102 imm=5".to_owned(),
            "WriteFirst 103 va=0xaa0000 len=1500 1024B".to_owned(),
            "WriteLastImm 104 imm=6 476B".to_owned(),
            format!("SendOnlyInvalidate 105 A inv={invalidate} 8B"),
        ]
    );
}

#[test]
fn sequence_numbers_wrap_at_24_bits() {
    let mut b = Bench::with(|o| o.attr.sq_psn = Psn::new(0xFF_FFFE));
    b.post(1, SendOp::Send, 4000);
    assert_eq!(
        b.lines(),
        [
            "SendFirst 16777214 1024B",
            "SendMiddle 16777215 1024B",
            "SendMiddle 0 1024B",
            "SendLast 1 A 928B"
        ]
    );
    assert_eq!(
        b.answer(b.nak(0, NakCode::PsnSequenceError)),
        ["SendMiddle 0 1024B", "SendLast 1 A 928B"]
    );
    b.inject(b.acknowledge(1, 1));
    assert_eq!(b.sends(), ["1 Send 4000B"]);
}

#[test]
fn a_starting_psn_is_masked_to_24_bits() {
    let mut b = Bench::with(|o| o.attr.sq_psn = Psn::new(0x100_0005));
    b.post(1, SendOp::Send, 4);
    assert_eq!(b.lines(), ["SendOnly 5 A 4B"]);
}

#[test]
fn fetches_ask_always_and_messages_when_no_answer_is_due_or_nothing_follows() {
    let mut b = Bench::rc();
    let eight = SendOp::FetchAdd { remote: THERE, add: 1 };
    b.post(1, SendOp::Read(THERE), 5000);
    b.post(2, eight, 8);
    b.post(3, SendOp::Write(THERE), 3000);
    b.post(4, SendOp::Send, 0);
    assert_eq!(
        b.lines(),
        [
            "ReadRequest 100 A va=0xaa0000 len=5000",
            "FetchAdd 105 A va=0xaa0000 1/0",
            "WriteFirst 106 va=0xaa0000 len=3000 1024B",
            "WriteMiddle 107 1024B",
            "WriteLast 108 952B",
            "SendOnly 109 A"
        ]
    );
}

#[test]
fn a_long_message_asks_within_every_64_packets() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 300 * 1024);
    let asked: Vec<_> = b
        .sent()
        .iter()
        .filter(|packet| packet.bth.ack_request)
        .map(|packet| packet.bth.psn.get())
        .collect();
    assert_eq!(asked, [163, 227, 291, 355, 399]);
}

#[test]
fn a_small_window_asks_four_times_as_often_as_it_fills() {
    // About 16 packets fit.
    let mut b = Bench::with(|o| o.config.receive_buffer = 43_000);
    b.post(1, SendOp::Write(THERE), 100 * 1024);
    let sent = b.sent();
    assert!(sent.len() < 20, "{} packets", sent.len());
    let gaps: Vec<_> = sent.split(|packet| packet.bth.ack_request).map(<[_]>::len).collect();
    assert!(gaps.len() > 3 && gaps.iter().all(|&gap| gap < 5), "{gaps:?}");
    assert!(sent.last().expect("packets").bth.ack_request, "the one that fills it asks");
}

#[test]
fn an_acknowledgement_covers_all_before_it() {
    let mut b = Bench::rc();
    for wr_id in 1..=5 {
        b.post(wr_id, SendOp::Send, 1500);
    }
    assert_eq!(b.lines().len(), 10);
    b.inject(b.acknowledge(105, 3));
    assert_eq!(b.sends(), ["1 Send 1500B", "2 Send 1500B", "3 Send 1500B"]);
    // Half a message completes nothing.
    b.inject(b.acknowledge(106, 3));
    assert!(b.sends().is_empty());
    b.inject(b.acknowledge(109, 5));
    assert_eq!(b.sends(), ["4 Send 1500B", "5 Send 1500B"]);
}

#[test]
fn a_nak_acknowledges_all_before_its_psn() {
    for syndrome in [Syndrome::Nak(NakCode::PsnSequenceError), Syndrome::RnrNak(1)] {
        let mut b = Bench::rc();
        for wr_id in 1..=3 {
            b.post(wr_id, SendOp::Send, 8);
        }
        b.lines();
        b.inject(b.packet(Operation::Acknowledge, 102).aeth(syndrome, 2));
        assert_eq!(b.sends(), ["1 Send 8B", "2 Send 8B"]);
        assert_eq!(b.after(Span::from_us(10)), ["SendOnly 102 A 8B"]);
    }
}

#[test]
fn responses_acknowledge_the_writes_before_them() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 8);
    b.post(2, SendOp::Read(THERE), 8);
    b.post(3, SendOp::Send, 8);
    b.post(4, SendOp::FetchAdd { remote: THERE, add: 1 }, 8);
    assert_eq!(b.lines().len(), 4);
    let response = b.packet(Operation::ReadResponseOnly, 101).aeth(Syndrome::Ack(31), 2).data(8);
    b.inject(response);
    assert_eq!(b.sends(), ["1 RdmaWrite 8B", "2 RdmaRead 8B"]);
    let atomic = b.packet(Operation::AtomicAcknowledge, 103).aeth(Syndrome::Ack(31), 4).original(9);
    b.inject(atomic);
    assert_eq!(b.sends(), ["3 Send 8B", "4 FetchAdd 8B"]);
}

#[test]
fn unsignaled_requests_complete_silently_and_in_order() {
    let mut b = Bench::rc();
    for wr_id in 1..=6 {
        let flags = if wr_id % 3 == 0 { SendFlags::SIGNALED } else { SendFlags::empty() };
        b.post_with(wr_id, SendOp::Send, 8, flags).expect("a good request");
    }
    assert_eq!(b.lines().len(), 6);
    b.inject(b.acknowledge(101, 2));
    assert!(b.sends().is_empty());
    b.inject(b.acknowledge(105, 6));
    assert_eq!(b.sends(), ["3 Send 8B", "6 Send 8B"]);
    // Their places in the queue are free again.
    for wr_id in 0..64 {
        b.post_with(wr_id, SendOp::Send, 8, SendFlags::empty()).expect("room for all");
    }
}

#[test]
fn a_queue_pair_may_signal_every_request() {
    let mut b = Bench::with(|o| o.sq_sig_all = true);
    b.post_with(1, SendOp::Send, 8, SendFlags::empty()).expect("a good request");
    b.lines();
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B"]);
}

#[test]
fn later_requests_wait_in_the_queue_for_a_read_before_them() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 8);
    b.post(2, SendOp::Send, 8);
    b.lines();
    // The SEND may have arrived; the READ has no answer yet: nothing completes, and it is asked
    // again.
    let lines = b.answer(b.acknowledge(101, 2));
    assert_eq!(lines, ["ReadRequest 100 A va=0xaa0000 len=8", "SendOnly 101 A 8B"]);
    assert!(b.sends().is_empty());
    b.inject(b.packet(Operation::ReadResponseOnly, 100).aeth(Syndrome::Ack(31), 2).data(8));
    assert_eq!(b.sends(), ["1 RdmaRead 8B"]);
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.sends(), ["2 Send 8B"]);
}

#[test]
fn the_solicited_bit_stands_on_the_last_packet_of_what_consumes_a_receive_request() {
    let mut b = Bench::rc();
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    b.post_with(1, SendOp::Send, 1500, flags).expect("a good request");
    b.post_with(2, SendOp::Write(THERE), 8, flags).expect("a good request");
    b.post_with(3, SendOp::WriteImm(THERE, [0; 4]), 8, flags).expect("a good request");
    assert_eq!(
        b.lines(),
        [
            "SendFirst 100 1024B",
            "SendLast 101 A S 476B",
            "WriteOnly 102 va=0xaa0000 len=8 8B",
            "WriteOnlyImm 103 A S va=0xaa0000 len=8 imm=0 8B"
        ]
    );
}
