//! The window towards a peer over all queue pairs, and the bound of READ responses asked for.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use engine::{SendData, SendFlags, SendOp, SendRequest, Sge};
use wire::{NakCode, Operation, Qpn, Span, Syndrome};

use crate::pair::bench::{Bench, LOCAL, PEER_QP, THERE};

/// What the kernel charges for a full packet of MTU 1024: 2048 bytes and the descriptor.
const COST: usize = 2048 + 256;
/// Receive buffer of these tests.
const BUFFER: u64 = 200_000;

fn bench() -> Bench {
    Bench::with(|o| {
        o.config.receive_buffer = BUFFER;
        o.attr.timeout = 14;
    })
}

fn post_on(b: &mut Bench, qp: Qpn, op: SendOp, length: u32) {
    post_flagged(b, qp, op, length, SendFlags::SIGNALED);
}

fn post_flagged(b: &mut Bench, qp: Qpn, op: SendOp, length: u32, flags: SendFlags) {
    let sges = [Sge { addr: LOCAL, length, lkey: b.region.lkey }];
    let data = SendData::Sges(&sges);
    let wr = SendRequest { wr_id: 1, op, flags, data, datagram: None };
    let now = b.now;
    b.host.device.post_send(now, qp, &wr).expect("a good request");
}

#[test]
fn what_is_in_flight_over_all_queue_pairs_stays_within_the_receive_buffer() {
    let mut b = bench();
    let mut qps = vec![b.qp];
    for n in 0..3 {
        qps.push(b.another(Qpn::new(0x80_0000 + n), |_, _| {}));
    }
    for &qp in &qps {
        post_on(&mut b, qp, SendOp::Write(THERE), 500_000);
    }
    let sent = b.sent();
    // Each queue pair may put one packet that asks beyond it.
    assert!(sent.len() * COST <= BUFFER as usize + 4 * COST, "{} packets", sent.len());
    assert!(sent.len() * COST >= BUFFER as usize * 3 / 4, "{} packets", sent.len());
}

#[test]
fn acknowledgements_make_room_for_as_much_as_they_cover() {
    let mut b = bench();
    b.post(1, SendOp::Write(THERE), 500_000);
    let first = b.sent().len() as u32;
    b.inject(b.acknowledge(100 + 9, 0));
    let more = b.sent().len() as u32;
    assert!((9..=11).contains(&more), "{more} packets after an acknowledgement of 10");
    assert!(u64::from(first) * COST as u64 <= BUFFER + COST as u64);
}

#[test]
fn room_that_one_queue_pair_leaves_another_takes() {
    let mut b = bench();
    let second = b.another(Qpn::new(0x88_8888), |_, _| {});
    b.post(1, SendOp::Write(THERE), 500_000);
    let first = b.sent().len() as u32;
    post_on(&mut b, second, SendOp::Write(THERE), 20_000);
    assert!(b.sent().len() <= 1);
    // The first one has waited longer; then it is the other's turn.
    b.inject(b.acknowledge(100 + first / 2, 0));
    b.sent();
    b.inject(b.acknowledge(100 + first - 1, 0));
    let sent = b.sent();
    assert!(sent.iter().any(|packet| packet.bth.dest_qp == Qpn::new(0x88_8888)));
}

#[test]
fn a_loss_shrinks_the_window_and_progress_grows_it_again() {
    let mut b = bench();
    b.post(1, SendOp::Write(THERE), 1_000_000);
    let full = b.sent().len();
    b.inject(b.nak(100, NakCode::PsnSequenceError));
    let halved = b.sent().len();
    assert!(halved.abs_diff(full / 2) <= 2, "{full}, then {halved}");
    // Another NAK for the same window of data belongs to the same event.
    b.inject(b.nak(100, NakCode::PsnSequenceError));
    assert_eq!(b.sent().len(), halved);
    // Every round trip it grows by a little.
    let mut una = 100;
    let mut sizes = Vec::new();
    let mut flight = halved as u32;
    for _ in 0..12 {
        una += flight;
        b.inject(b.acknowledge(una - 1, 0));
        flight = b.sent().len() as u32;
        sizes.push(flight);
    }
    assert!(sizes.is_sorted(), "{sizes:?}");
    let last = *sizes.last().expect("sizes");
    assert!(last as usize > halved + 10 && last as usize <= full, "{full}: {sizes:?}");
}

#[test]
fn losses_one_after_the_other_shrink_the_window_each_time() {
    let mut b = bench();
    b.post(1, SendOp::Write(THERE), 1_000_000);
    let full = b.sent().len();
    let mut una = 100;
    let mut again = 0;
    for _ in 0..20 {
        una += 5;
        b.inject(b.nak(una, NakCode::PsnSequenceError));
        again += b.sent().len();
    }
    // What is sent again is for the most part what was lost, not what was in flight at first.
    assert!(again < 6 * full, "{again} packets, {full} at first");
    let flight = b.answer(b.nak(una + 1, NakCode::PsnSequenceError)).len();
    assert!((4..20).contains(&flight), "still enough that a loss is noticed: {flight}");
}

#[test]
fn a_timeout_shrinks_the_window_to_its_floor() {
    let mut b = bench();
    b.post(1, SendOp::Write(THERE), 500_000);
    let full = b.sent().len();
    let (_, lines) = b.until_sent(Span::from_ms(500));
    assert!(lines.len() < full / 4, "{} of {full}", lines.len());
    assert!(lines.last().expect("packets").contains(" A "), "the last one asks: {lines:?}");
    // It doubles until half of what it was.
    b.inject(b.acknowledge(100 + lines.len() as u32 - 1, 0));
    let second = b.sent().len();
    assert!(second > lines.len() * 3 / 2, "{second} after {}", lines.len());
}

#[test]
fn other_peers_have_windows_of_their_own() {
    let mut b = bench();
    let other = b.another(Qpn::new(0x88_8888), |_, attr| attr.av.dgid = crate::pair::setup::gid(8));
    b.post(1, SendOp::Write(THERE), 500_000);
    let first = b.sent().len();
    post_on(&mut b, other, SendOp::Write(THERE), 500_000);
    assert_eq!(b.sent().len(), first);
}

#[test]
fn a_queue_pair_that_gets_no_room_sends_one_packet_after_a_patient_wait() {
    let mut b = bench();
    let second = b.another(Qpn::new(0x88_8888), |_, _| {});
    b.post(1, SendOp::Write(THERE), 500_000);
    b.sent();
    post_on(&mut b, second, SendOp::Send, 1000);
    let lines = b.lines();
    assert!(lines.is_empty(), "{lines:?}");
    let (_, lines) = b.until_sent(Span::from_ms(60));
    assert_eq!(lines, ["SendOnly 100 A 1000B"]);
}

#[test]
fn what_a_dead_queue_pair_had_in_flight_is_given_back() {
    for destroyed in [false, true] {
        let mut b = bench();
        let second = b.another(Qpn::new(0x88_8888), |_, _| {});
        b.post(1, SendOp::Write(THERE), 500_000);
        let full = b.sent().len();
        if destroyed {
            let qp = b.qp;
            b.host.device.destroy_qp(qp).expect("a queue pair");
        } else {
            b.modify(engine::QpState::Err);
        }
        post_on(&mut b, second, SendOp::Write(THERE), 500_000);
        assert_eq!(b.sent().len(), full, "destroyed: {destroyed}");
    }
}

#[test]
fn read_responses_asked_for_stay_within_the_own_receive_buffer() {
    let mut b = bench();
    let mut qps = vec![b.qp];
    for n in 0..3 {
        qps.push(b.another(Qpn::new(0x80_0000 + n), |_, attr| {
            attr.av.dgid = crate::pair::setup::gid(4 + n as usize);
        }));
    }
    let length = 60 * 1024;
    for &qp in &qps {
        post_on(&mut b, qp, SendOp::Read(THERE), length);
    }
    let count = |sent: &[wire::Packet<Vec<u8>>]| -> usize {
        let asked = sent.iter().filter_map(|packet| packet.ext.reth);
        asked.map(|reth| reth.length.div_ceil(1024) as usize).sum()
    };
    let asked = count(&b.sent());
    assert!(asked * COST <= BUFFER as usize && asked * COST >= BUFFER as usize * 3 / 4, "{asked}");
    // What has arrived makes room for others, once it is room for a train.
    let mut more = Vec::new();
    for psn in 100..115 {
        let made = b.packet(Operation::ReadResponseMiddle, psn).data(1024);
        b.inject(made.aeth(Syndrome::Ack(31), 1));
        more.push(count(&b.sent()));
    }
    let total: usize = more.iter().sum();
    assert!((14..=16).contains(&total), "{more:?} asked for as 15 arrived");
    assert!(more.iter().all(|&n| n == 0 || n >= 14), "{more:?}: asked for in crumbs");
}

/// Queue pairs to the same peer share its window, however much of it one of them held first.
#[test]
fn queue_pairs_to_one_peer_share_its_window_evenly() {
    let mut b = bench();
    let mut qps = HashMap::from([(PEER_QP, b.qp)]);
    b.post(1, SendOp::Write(THERE), 500_000);
    let mut flying = VecDeque::from(b.sent());
    for n in 0..3 {
        let dest = Qpn::new(0x80_0000 + n);
        qps.insert(dest, b.another(dest, |_, _| {}));
        post_on(&mut b, qps[&dest], SendOp::Write(THERE), 500_000);
    }
    let mut sent = HashMap::<Qpn, usize>::new();
    for _ in 0..100 {
        // The peer acknowledges the ten oldest packets.
        let mut last = BTreeMap::new();
        for packet in flying.drain(..flying.len().min(10)) {
            last.insert(packet.bth.dest_qp.get(), packet.bth.psn.get());
        }
        for (dest, psn) in last {
            let mut made = b.acknowledge(psn, 0);
            made.0.bth.dest_qp = qps[&Qpn::new(dest)];
            b.inject(made);
        }
        for packet in b.sent() {
            *sent.entry(packet.bth.dest_qp).or_default() += 1;
            flying.push_back(packet);
        }
    }
    let total: usize = sent.values().sum();
    assert!(total > 900 && sent.len() == 4, "{sent:?}");
    assert!(sent.values().all(|&n| (total / 5..=total / 3).contains(&n)), "{sent:?}");
}

/// Thousands of queue pairs that each want to send one small message all get their turn, none by
/// running out of patience.
#[test]
fn many_queue_pairs_to_one_peer_all_get_their_turn() {
    const MANY: u32 = 3000;
    let mut b = bench();
    let mut qps = HashMap::new();
    for n in 0..MANY {
        let dest = Qpn::new(0x80_0000 + n);
        let qp = b.another(dest, |_, _| {});
        qps.insert(dest, qp);
        // Without completions, which would overrun the one queue.
        post_flagged(&mut b, qp, SendOp::Write(THERE), 8, SendFlags::empty());
    }
    let (mut seen, mut rounds) = (HashSet::new(), 0);
    while seen.len() < MANY as usize {
        let sent = b.sent();
        assert!(!sent.is_empty(), "after {} of {MANY} nobody sends", seen.len());
        rounds += 1;
        for packet in sent {
            assert!(seen.insert(packet.bth.dest_qp), "{packet:?} again");
            let mut made = b.acknowledge(packet.bth.psn.get(), 1);
            made.0.bth.dest_qp = qps[&packet.bth.dest_qp];
            b.inject(made);
        }
    }
    assert!(rounds <= 30, "{rounds} rounds");
}

/// Three queue pairs with much to send, the first of which has filled the window; and the packets
/// that it has in flight.
fn crowded() -> (Bench, u32) {
    let mut b = bench();
    let others = [1, 2].map(|n| b.another(Qpn::new(0x80_0000 + n), |_, _| {}));
    b.post(1, SendOp::Write(THERE), 500_000);
    let full = b.sent().len() as u32;
    for qp in others {
        post_on(&mut b, qp, SendOp::Write(THERE), 500_000);
    }
    assert!(b.sent().is_empty(), "no room");
    (b, full)
}

#[test]
fn who_waits_among_others_is_called_for_a_train_not_for_a_packet() {
    let (mut b, full) = crowded();
    let mut acked = 0;
    let sent = loop {
        b.inject(b.acknowledge(100 + acked, 0));
        acked += 1;
        let sent = b.sent();
        if !sent.is_empty() {
            break sent;
        }
        assert!(acked < full, "nobody is called");
    };
    assert!((8..full / 2).contains(&acked), "called after {acked} of {full} packets");
    assert!(sent.len() as u32 + 2 >= acked, "{} packets into room for {acked}", sent.len());
}

#[test]
fn nobody_goes_beyond_the_window_while_the_peer_takes_what_is_sent() {
    let (mut b, full) = crowded();
    // One packet is taken each 2 ms: each queue pair waits longer than its patience.
    for acked in 0..8 {
        let early = b.after(Span::from_ms(2));
        assert!(early.is_empty(), "{early:?} after {acked} of {full} packets");
        b.inject(b.acknowledge(100 + acked, 0));
        assert!(b.sent().is_empty());
    }
    // Once nothing comes any more they go: into the room there is, and a packet of each beyond.
    let (_, lines) = b.until_sent(Span::from_ms(60));
    assert!((1..=8 + 2).contains(&lines.len()), "{lines:?}");
}
