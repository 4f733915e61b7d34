//! Flow control of the unreliable services: who is asked, what an answer opens, who is asked no
//! more. A question is an `Acknowledge` that asks, of the opcode that only this project knows.

use engine::{QpType, Remote, SendData, SendFlags, SendOp, SendRequest, Sge};
use wire::{Deth, Opcode, Operation, Packet, QKey, Qpn, Span, Syndrome};

use super::datagram::{post, to_peer};
use crate::pair::bench::{Bench, LOCAL, Made, PEER_QP, THERE};

/// What the kernel charges for a full packet of MTU 1024.
const COST: usize = 2048 + 256;
const BUFFER: u64 = 200_000;
/// What a window holds: an eighth stays free.
const WINDOW: usize = BUFFER as usize * 7 / 8 / COST;

fn bench(service: QpType) -> Bench {
    let mut b = Bench::with(|o| {
        o.service = service;
        o.config.receive_buffer = BUFFER;
        o.cap.max_send_wr = 1024;
    });
    b.host.device.set_flow(true);
    b
}

fn is_flow(packet: &Packet<Vec<u8>>) -> bool {
    packet.bth.opcode == Opcode::FLOW
}

/// Data packets sent now, and the PSNs of questions, each behind the packet of its number.
fn sent(b: &mut Bench) -> (usize, Vec<u32>) {
    let packets = b.sent();
    for (i, packet) in packets.iter().enumerate().filter(|(_, packet)| is_flow(packet)) {
        assert!(packet.bth.ack_request, "nobody has asked");
        assert_eq!(packet.ext.deth.expect("it has one").source_qp, b.qp);
        let data = packets[..i].iter().rev().find(|packet| !is_flow(packet));
        assert!(
            data.is_none_or(|data| data.bth.psn.get() >= packet.bth.psn.get()),
            "before its place"
        );
    }
    let asks: Vec<u32> = packets.iter().filter(|p| is_flow(p)).map(|p| p.bth.psn.get()).collect();
    (packets.len() - asks.len(), asks)
}

/// The peer tells.
fn tell(b: &Bench, psn: u32, credits: u8) -> Made {
    let mut made = b.packet(Operation::SendOnly, psn).aeth(Syndrome::Ack(credits), 0);
    made.0.bth.opcode = Opcode::FLOW;
    let key = made.0.ext.deth.map_or(QKey::default(), |deth| deth.qkey);
    made.0.ext.deth = Some(Deth { qkey: key, source_qp: PEER_QP });
    made
}

fn ask(b: &Bench, psn: u32) -> Made {
    tell(b, psn, 31).ack()
}

#[test]
fn no_more_is_in_flight_than_the_window_holds() {
    let mut b = bench(QpType::Uc);
    b.post(1, SendOp::Write(THERE), 500_000);
    let (first, asks) = sent(&mut b);
    assert!((WINDOW - 2..=WINDOW).contains(&first), "{first} of {WINDOW}");
    assert_eq!(asks, [100 + first as u32 / 2], "behind half a window");
    // What is told of makes room for as much.
    b.inject(tell(&b, asks[0], 31));
    let (more, _) = sent(&mut b);
    let told = asks[0] as usize + 1 - 100;
    assert!(more.abs_diff(told) <= 1, "{more} after {told}");
    // Told once more, or of what nobody has asked: nothing new.
    b.inject(tell(&b, asks[0], 31));
    b.inject(tell(&b, asks[0] + 1, 31));
    assert_eq!(sent(&mut b).0, 0);
    assert_eq!(b.counter("rx_stale_ack"), 2);
}

#[test]
fn the_whole_of_a_message_leaves_as_the_peer_tells() {
    let mut b = bench(QpType::Uc);
    b.post(1, SendOp::Write(THERE), 1_000_000);
    let mut all = 0;
    loop {
        let (packets, asks) = sent(&mut b);
        all += packets;
        assert!(packets <= WINDOW);
        if b.sends() == ["1 RdmaWrite 1000000B"] {
            break;
        }
        assert!(!asks.is_empty(), "it waits and does not ask, after {all} packets");
        for psn in asks {
            b.inject(tell(&b, psn, 31));
        }
    }
    assert_eq!(all, 1_000_000_usize.div_ceil(1024));
}

#[test]
fn a_peer_that_never_answers_is_sent_to_without_limit() {
    let mut b = bench(QpType::Uc);
    let second = b.another(Qpn::new(0x80_0001), |_, _| {});
    b.post(1, SendOp::Write(THERE), 900_000);
    let (first, _) = sent(&mut b);
    assert!(first <= WINDOW);
    b.log.clear();
    b.advance(Span::from_ms(400));
    assert_eq!(b.sends(), ["1 RdmaWrite 900000B"]);
    assert_eq!(b.counter("flow_given_up"), 1);
    // Nor is it asked again, by this queue pair or another one.
    b.post(2, SendOp::Write(THERE), 900_000);
    assert_eq!(sent(&mut b), (900_000_usize.div_ceil(1024), Vec::new()));
    let sges = [Sge { addr: LOCAL, length: 900_000, lkey: b.region.lkey }];
    let (op, flags, data) = (SendOp::Write(THERE), SendFlags::empty(), SendData::Sges(&sges));
    let now = b.now;
    let wr = SendRequest { wr_id: 3, op, flags, data, datagram: None };
    b.host.device.post_send(now, second, &wr).expect("a good request");
    assert_eq!(sent(&mut b), (900_000_usize.div_ceil(1024), Vec::new()));
}

#[test]
fn a_peer_that_has_answered_is_waited_for_longer() {
    let mut b = bench(QpType::Uc);
    b.post(1, SendOp::Write(THERE), 900_000);
    let (_, asks) = sent(&mut b);
    b.inject(tell(&b, asks[0], 31));
    sent(&mut b);
    b.log.clear();
    b.advance(Span::from_ms(400));
    let data = b.log.iter().filter(|(_, packet)| !is_flow(packet)).count();
    assert!(data < WINDOW, "{data}: each time it is asked a little may go");
    assert!(b.sends().is_empty());
    // It had not had the processor: it answers the last question.
    let psn = b.log.iter().rfind(|(_, packet)| is_flow(packet)).expect("asked").1.bth.psn.get();
    b.inject(tell(&b, psn, 31));
    assert!(sent(&mut b).0 > 0);
    // It is gone for good.
    b.advance(Span::from_ms(2000));
    assert_eq!(b.sends(), ["1 RdmaWrite 900000B"]);
}

#[test]
fn who_sends_little_does_not_ask() {
    let mut b = bench(QpType::Uc);
    for n in 0..200 {
        b.post(n, SendOp::Write(THERE), 10_000);
        assert_eq!(sent(&mut b), (10, Vec::new()), "message {n}");
        b.advance(Span::from_ms(11));
    }
    assert_eq!(b.counter("tx_flow_asks"), 0);
}

#[test]
fn messages_wait_for_receive_requests() {
    let mut b = bench(QpType::Uc);
    for n in 0..400 {
        b.post(n, SendOp::Send, 8);
    }
    let (untold, asks) = sent(&mut b);
    assert!((64..=256).contains(&untold), "{untold} before a word");
    // The peer has four: code 4.
    b.inject(tell(&b, *asks.last().expect("asked"), 4));
    let behind = 100 + untold - 1 - *asks.last().expect("asked") as usize;
    let (told, asks) = sent(&mut b);
    assert_eq!(told + behind, if behind > 4 { behind } else { 4 });
    // None: it is asked again and again, and nothing goes until it has some.
    let mut last = asks;
    for _ in 0..5 {
        for psn in last {
            b.inject(tell(&b, psn, 0));
        }
        let (data, asks) = sent(&mut b);
        assert_eq!(data, 0);
        last = asks;
        if last.is_empty() {
            b.log.clear();
            b.advance(Span::from_ms(7));
            let asked = b.log.iter().filter(|(_, packet)| is_flow(packet));
            last = asked.map(|(_, packet)| packet.bth.psn.get()).collect();
            assert_eq!(last.len(), b.log.len(), "only questions");
        }
    }
    b.inject(tell(&b, *last.last().expect("asked"), 10));
    assert_eq!(sent(&mut b).0, 32, "for which code 10 stands");
}

#[test]
fn a_write_takes_no_receive_request() {
    let mut b = bench(QpType::Uc);
    for n in 0..400 {
        b.post(n, SendOp::Write(Remote { addr: 0xAA_0000, ..THERE }), 8);
    }
    let (all, asks) = sent(&mut b);
    // Small packets cost a receiver 768 bytes each.
    assert!(all > 200 && all < 256, "{all}: the window alone holds it");
    b.inject(tell(&b, *asks.last().expect("asked"), 0));
    assert!(sent(&mut b).0 > 100);
}

#[test]
fn a_datagram_queue_pair_follows_its_target() {
    let mut b = bench(QpType::Ud);
    let peer = b.peer;
    for n in 0..300 {
        post(&mut b, n, SendOp::Send, 1000, to_peer(peer)).expect("a good request");
    }
    let (first, asks) = sent(&mut b);
    assert!(first <= WINDOW && !asks.is_empty(), "{first} {asks:?}");
    b.inject(tell(&b, asks[0], 31));
    let (more, asks) = sent(&mut b);
    assert!(more > WINDOW / 3 && !asks.is_empty(), "{more} {asks:?}");
    // From another address nothing is told.
    let mut other = tell(&b, asks[0], 31);
    other.0.path.source = crate::pair::setup::gid(7);
    b.inject(other);
    assert_eq!(sent(&mut b).0, 0);
}

/// One that has been given up is sent to at once when its turn comes again, and waited for again
/// when it has been heard of.
#[test]
fn a_datagram_peer_that_was_given_up_holds_others_up_once() {
    let mut b = bench(QpType::Ud);
    let peer = b.peer;
    let mut other = to_peer(crate::pair::setup::gid(7));
    other.dest_qp = Qpn::new(0x77);
    let burst = |b: &mut Bench| {
        for n in 0..300 {
            post(b, n, SendOp::Send, 1000, to_peer(peer)).expect("a good request");
        }
        post(b, 1000, SendOp::Send, 1000, other).expect("a good request");
    };
    burst(&mut b);
    let (first, _) = sent(&mut b);
    assert!(first < 300);
    b.advance(Span::from_ms(2000));
    assert!(b.sends().iter().any(|done| done.starts_with("1000 ")), "the wait has an end");
    burst(&mut b);
    assert_eq!(sent(&mut b), (301, Vec::new()), "nobody waits again");
    // It speaks: the next burst is told how many it takes.
    b.recv(1, 4096);
    let made = b.packet(Operation::SendOnly, 0xABC).data(100);
    b.inject(made);
    b.sends();
    burst(&mut b);
    assert!(sent(&mut b).0 < 300);
}

#[test]
fn what_is_asked_is_answered() {
    for service in [QpType::Uc, QpType::Ud] {
        let mut b = bench(service);
        for n in 0..9 {
            b.recv(n, 4096);
        }
        let made = ask(&b, 0xABC);
        b.inject(made);
        let answers = b.sent();
        assert_eq!(answers.len(), 1, "{service:?}");
        let (bth, aeth) = (answers[0].bth, answers[0].ext.aeth.expect("it has one"));
        assert!(is_flow(&answers[0]) && !bth.ack_request);
        assert_eq!((bth.dest_qp, bth.psn.get()), (PEER_QP, 0xABC));
        // Nine are ready: code 6 stands for eight.
        let deth = answers[0].ext.deth.expect("it has one");
        assert_eq!((aeth.syndrome, deth.source_qp), (Syndrome::Ack(6), b.qp));
        assert_eq!(answers[0].path.destination, b.peer);
    }
}

#[test]
fn nobody_else_asks_or_answers() {
    // A reliable connection has acknowledgements.
    let mut b = bench(QpType::Rc);
    let made = ask(&b, 200);
    assert!(b.answer(made).is_empty());
    assert_eq!(b.counter("rx_wrong_opcode"), 1);
    // A connected one is asked by its peer only.
    let mut b = bench(QpType::Uc);
    let mut made = ask(&b, 200);
    made.0.path.source = crate::pair::setup::gid(7);
    assert!(b.answer(made).is_empty());
    assert_eq!(b.counter("rx_wrong_address"), 1);
    // A datagram queue pair is asked by those who know its key only.
    let mut b = bench(QpType::Ud);
    let mut made = ask(&b, 200);
    made.0.ext.deth = Some(Deth { qkey: QKey::new(0x666), source_qp: PEER_QP });
    assert!(b.answer(made).is_empty());
    assert_eq!(b.counter("rx_wrong_qkey"), 1);
    let made = ask(&b, 200);
    assert_eq!(b.answer(made).len(), 1);
    // As after creation: everything leaves.
    let mut b = bench(QpType::Uc);
    b.host.device.set_flow(false);
    let made = ask(&b, 200);
    assert!(b.answer(made).is_empty());
    b.post(1, SendOp::Write(THERE), 900_000);
    assert_eq!(sent(&mut b), (900_000_usize.div_ceil(1024), Vec::new()));
}
