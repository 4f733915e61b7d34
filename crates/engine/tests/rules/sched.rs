//! Whose turn it is: rotation, paused priorities, the link, trains, and that a device comes to
//! rest.

use engine::{
    AsyncEvent, Datagram, LinkState, Priorities, QpState, QpType, SendData, SendFlags, SendOp,
    SendRequest, Sge, Train, TrainLimits,
};
use wire::{Gid, Operation, Qpn, Span};

use super::datagram;
use crate::pair::bench::{Bench, LOCAL, PEER_QP};
use crate::pair::{inspect, setup};

fn post(b: &mut Bench, qp: Qpn, length: u32) {
    let sges = [Sge { addr: LOCAL, length, lkey: b.region.lkey }];
    let wr = SendRequest {
        wr_id: 1,
        op: SendOp::Send,
        flags: SendFlags::SIGNALED,
        data: SendData::Sges(&sges),
        datagram: None,
    };
    b.host.device.post_send(b.now, qp, &wr).expect("a good request");
}

/// The trains that leave now: destination and number of packets.
fn trains(b: &mut Bench) -> Vec<(Qpn, usize)> {
    let (mut train, mut out) = (Train::default(), Vec::new());
    let limits = b.host.limits;
    while b.host.device.poll_transmit(b.now, limits, b.host.allowed, &mut train) {
        inspect::train(&train, limits);
        out.push((train.packets[0].bth.dest_qp, train.packets.len()));
        assert!(out.len() < 10_000, "trains without end");
    }
    out
}

/// Nothing leaves, and no timer is due.
fn at_rest(b: &mut Bench) {
    assert!(b.lines().is_empty());
    let now = b.now;
    if let Some(at) = b.host.device.poll_timeout(now) {
        assert!(now.is_before(at), "poll_timeout says now and nothing comes of it");
    }
}

fn many(n: u32, limits: TrainLimits) -> (Bench, Vec<Qpn>) {
    let mut b = Bench::with(|o| o.limits = limits);
    let mut qps = vec![b.qp];
    qps.extend((1..n).map(|i| b.another(Qpn::new(PEER_QP.get() + i), |_, _| {})));
    b.lines();
    (b, qps)
}

#[test]
fn a_hundred_queue_pairs_take_turns() {
    let limits = TrainLimits { segments: 4, bytes: 60_000 };
    let (mut b, qps) = many(100, limits);
    for &qp in &qps {
        post(&mut b, qp, 12 * 1024);
    }
    let sent = trains(&mut b);
    assert_eq!(sent.len(), 300);
    for round in sent.chunks(100) {
        let mut seen: Vec<Qpn> = round.iter().map(|(qp, _)| *qp).collect();
        seen.sort_by_key(|qp| qp.get());
        seen.dedup();
        assert_eq!(seen.len(), 100, "every queue pair once a round");
        assert!(round.iter().all(|(_, packets)| *packets == 4));
    }
    at_rest(&mut b);
}

#[test]
fn one_that_comes_late_waits_one_round_only() {
    let (mut b, qps) = many(10, TrainLimits::SINGLE);
    for &qp in &qps[1..] {
        post(&mut b, qp, 64 * 1024);
    }
    let (mut train, now) = (Train::default(), b.now);
    for _ in 0..25 {
        assert!(b.host.device.poll_transmit(now, b.host.limits, Priorities::ALL, &mut train));
    }
    let late = qps[0];
    post(&mut b, late, 8);
    let sent = trains(&mut b);
    let turn = sent.iter().position(|(dest, _)| *dest == PEER_QP).expect("it sends");
    assert!(turn <= 9, "its turn comes after {turn} others");
}

#[test]
fn a_number_used_again_has_one_place_in_the_rotation() {
    let (mut b, _) = many(2, TrainLimits::SINGLE);
    let rival = b.another(Qpn::new(0x50), |_, _| {});
    b.lines();
    // Created, made ready, destroyed: what it leaves must not serve its successor.
    for _ in 0..5 {
        let gone = b.another(Qpn::new(0x60), |_, _| {});
        b.host.device.destroy_qp(gone).expect("it exists");
    }
    let heir = b.another(Qpn::new(0x61), |_, _| {});
    post(&mut b, heir, 8 * 1024);
    post(&mut b, rival, 8 * 1024);
    let order: Vec<Qpn> = trains(&mut b).into_iter().map(|(qp, _)| qp).collect();
    for pair in order.chunks(2) {
        assert_ne!(pair[0], pair[1], "in turn: {order:?}");
    }
}

#[test]
fn the_link_s_limits_hold_for_every_train() {
    for (segments, bytes) in [(1, 60_000), (3, 60_000), (64, 2500), (64, 1), (7, 7 * 1040)] {
        let limits = TrainLimits { segments, bytes };
        let (mut b, qps) = many(3, limits);
        for (i, &qp) in qps.iter().enumerate() {
            post(&mut b, qp, 10_000 + i as u32);
            post(&mut b, qp, 5);
            post(&mut b, qp, 2048);
        }
        // `trains` looks at sizes, destination and limits of each.
        let packets: usize = trains(&mut b).iter().map(|(_, n)| n).sum();
        assert_eq!(packets, 3 * (10 + 1 + 2), "{limits:?}");
    }
}

#[test]
fn a_shorter_packet_ends_its_train() {
    let (mut b, qps) = many(1, TrainLimits { segments: 64, bytes: 60_000 });
    for length in [2048 + 7, 3072, 100, 100, 96, 100] {
        post(&mut b, qps[0], length);
    }
    let counts: Vec<usize> = trains(&mut b).into_iter().map(|(_, n)| n).collect();
    assert_eq!(counts, [3, 4, 2, 1], "a train ends with its first shorter packet");
}

#[test]
fn datagrams_to_different_peers_do_not_share_a_train() {
    let mut b = Bench::of(QpType::Ud);
    let to = datagram::to_peer(b.peer);
    let elsewhere = Datagram { av: setup::av(setup::gid(7), 0), ..to };
    let other_qp = Datagram { dest_qp: Qpn::new(3), ..to };
    let mut other_class = to;
    other_class.av.traffic_class = 0x20;
    for to in [to, to, elsewhere, elsewhere, to, other_qp, other_class, other_class] {
        datagram::post(&mut b, 1, SendOp::Send, 100, to).expect("good");
    }
    let counts: Vec<usize> = trains(&mut b).into_iter().map(|(_, n)| n).collect();
    assert_eq!(counts, [2, 2, 1, 1, 2]);
    assert_eq!(b.sends().len(), 8);
}

fn with_priority(b: &mut Bench, dest: u32, sl: u8) -> Qpn {
    b.another(Qpn::new(dest), |_, attr| attr.av.sl = sl)
}

#[test]
fn a_paused_priority_waits_for_its_end() {
    let mut b = Bench::rc();
    let (third, fifth) = (with_priority(&mut b, 3, 3), with_priority(&mut b, 5, 5));
    b.lines();
    let end = b.now + Span::from_us(100);
    b.host.device.handle_pause(3, end);
    post(&mut b, third, 8);
    post(&mut b, fifth, 8);
    assert_eq!(trains(&mut b), [(Qpn::new(5), 1)]);
    assert_eq!(b.host.device.poll_timeout(b.now), Some(end), "it wakes up at the end of the pause");
    b.now = b.now + Span::from_us(99);
    assert_eq!(trains(&mut b), []);
    b.now = end;
    assert_eq!(trains(&mut b), [(Qpn::new(3), 1)]);
    at_rest(&mut b);
}

#[test]
fn a_pause_can_be_renewed_and_ended_early() {
    let mut b = Bench::rc();
    let third = with_priority(&mut b, 3, 3);
    b.lines();
    let now = b.now;
    b.host.device.handle_pause(3, now + Span::from_us(100));
    post(&mut b, third, 8);
    b.host.device.handle_pause(3, now + Span::from_us(300));
    b.now = now + Span::from_us(200);
    assert_eq!(trains(&mut b), []);
    b.host.device.handle_pause(3, b.now);
    assert_eq!(trains(&mut b), [(Qpn::new(3), 1)]);
    b.host.device.handle_pause(200, now + Span::from_ms(1));
    post(&mut b, third, 8);
    assert_eq!(trains(&mut b).len(), 1, "a priority that does not exist stops nobody");
}

#[test]
fn datagrams_heed_the_priority_of_their_address() {
    let mut b = Bench::of(QpType::Ud);
    let mut to = datagram::to_peer(b.peer);
    to.av.sl = 3;
    let end = b.now + Span::from_us(100);
    b.host.device.handle_pause(3, end);
    datagram::post(&mut b, 1, SendOp::Send, 8, to).expect("good");
    assert!(b.lines().is_empty(), "priority 3 is paused");
    assert_eq!(b.host.device.poll_timeout(b.now), Some(end));
    b.now = end;
    assert_eq!(b.lines().len(), 1);
    b.host.device.handle_pause(0, end + Span::from_us(100));
    datagram::post(&mut b, 2, SendOp::Send, 8, to).expect("good");
    assert_eq!(b.lines().len(), 1, "priority 0 is paused, not 3");
    at_rest(&mut b);
}

#[test]
fn priorities_that_the_link_does_not_allow_stay() {
    let mut b = Bench::rc();
    let third = with_priority(&mut b, 3, 3);
    post(&mut b, third, 8);
    b.host.allowed = Priorities(!(1 << 3));
    assert_eq!(trains(&mut b), []);
    b.host.allowed = Priorities::ALL;
    assert_eq!(trains(&mut b), [(Qpn::new(3), 1)]);
}

#[test]
fn nothing_leaves_while_the_link_is_down() {
    let mut b = Bench::with(|o| o.attr.timeout = 10);
    b.host.device.handle_link(LinkState::Down);
    b.host.device.handle_link(LinkState::Down);
    assert_eq!(b.events(), [AsyncEvent::PortErr]);
    b.post(1, SendOp::Send, 8);
    at_rest(&mut b);
    assert!(b.after(Span::from_ms(100)).is_empty());
    b.host.device.handle_link(LinkState::Up);
    assert_eq!(b.events(), [AsyncEvent::PortActive]);
    assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B"]);
}

#[test]
fn what_a_destroyed_queue_pair_owes_keeps_nobody_awake() {
    let mut b = Bench::rc();
    b.host.device.handle_link(LinkState::Down);
    b.recv(1, 8);
    b.inject(b.packet(Operation::SendOnly, 200).data(8).ack());
    b.host.device.destroy_qp(b.qp).expect("it exists");
    at_rest(&mut b);
    let mut b = Bench::rc();
    b.recv(1, 8);
    b.inject(b.packet(Operation::SendOnly, 200).data(8).ack());
    b.host.device.destroy_qp(b.qp).expect("it exists");
    assert_eq!(b.host.device.poll_timeout(b.now), Some(b.now));
    b.host.device.handle_link(LinkState::Down);
    at_rest(&mut b);
    b.host.device.handle_link(LinkState::Up);
    assert_eq!(b.lines(), ["Acknowledge 200 ack msn=1"], "it leaves when the link is back");
    at_rest(&mut b);
}

#[test]
fn a_device_comes_to_rest() {
    for service in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Err] {
            let mut b = Bench::with(|o| {
                o.service = service;
                o.attr.timeout = 12;
                o.state = if state == QpState::Init { state } else { QpState::Rtr };
            });
            if !matches!(state, QpState::Init | QpState::Rtr) {
                b.modify(QpState::Rts);
            }
            if matches!(state, QpState::Sqd | QpState::Err) {
                b.modify(state);
            }
            for wr_id in 1..4 {
                let to = datagram::to_peer(b.peer);
                let _ = match service {
                    QpType::Ud => datagram::post(&mut b, wr_id, SendOp::Send, 8, to),
                    _ => b.post_with(wr_id, SendOp::Send, 8, SendFlags::SIGNALED),
                };
            }
            b.lines();
            at_rest(&mut b);
            b.inject(b.packet(Operation::SendOnly, 200).ack());
            b.lines();
            at_rest(&mut b);
            // Retries and all: it ends.
            b.advance(Span::from_ms(60_000));
            at_rest(&mut b);
            assert_eq!(b.host.device.poll_timeout(b.now), None, "{service:?} {state:?}");
        }
    }
}

#[test]
fn an_overrun_found_while_sending_fails_the_queue_pairs_too() {
    let mut b = Bench::with(|o| o.cqe = 1);
    let other = b.another(Qpn::new(0x88), |_, _| {});
    b.recv(1, 8);
    b.recv(2, 8);
    let read = b.rdma(Operation::ReadRequest, 200, crate::pair::bench::REGION, 8).ack();
    b.inject(read);
    // The region goes before the answer leaves: the queue pair fails and flushes more than fits.
    let mr = b.region.id;
    b.host.device.dereg_mr(mr).expect("no windows");
    assert_eq!(b.lines(), ["Acknowledge 200 nak(RemoteAccessError) msn=1"]);
    let events = b.events();
    assert!(events.contains(&AsyncEvent::CqErr(b.recv_cq)), "{events:?}");
    assert!(events.contains(&AsyncEvent::QpFatal(other)), "{events:?}");
}

#[test]
fn a_change_of_gids_is_told_and_used() {
    let mut b = Bench::of(QpType::Ud);
    let mut gids = b.host.device.gids().to_vec();
    b.host.device.handle_gids(gids.clone());
    assert_eq!(b.events(), [], "the same as before");
    gids[1].gid = Gid::default();
    b.host.device.handle_gids(gids);
    assert_eq!(b.events(), [AsyncEvent::GidChange]);
    let mut to = datagram::to_peer(b.peer);
    to.av.sgid_index = 1;
    let refused = datagram::post(&mut b, 1, SendOp::Send, 8, to);
    assert_eq!(refused, Err(engine::PostError::GidIndex), "an entry that has gone");
    assert!(b.host.device.check_av(&to.av).is_err());
}
