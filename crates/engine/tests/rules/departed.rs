//! A queue pair that is gone: its last acknowledgement is repeated, what it had executed is
//! acknowledged again, and nothing else is answered.

use engine::limits::{DEPARTED, LAST_WORDS, LAST_WORDS_WITHIN, MAX_DEPARTED};
use engine::{
    Access, FaultSpec, QpInit, QpState, QpType, RecvRequest, SendData, SendFlags, SendOp,
    SendRequest, Sge, TrainLimits, WcStatus,
};
use wire::{Operation, Psn, RKey, Span};

use crate::pair::bench::{Bench, Made, REGION};
use crate::pair::memory::TestMemory;
use crate::pair::setup;
use crate::pair::world::World;

/// What is sent once more.
const LAST: &str = "Acknowledge 200 ack msn=1";

fn write(b: &Bench) -> Made {
    b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8).ack()
}

/// A bench whose queue pair has executed a WRITE, acknowledged it, and been destroyed `later`.
fn gone(later: Span) -> (Bench, Made) {
    let mut b = Bench::rc();
    let request = write(&b);
    let again = write(&b);
    assert_eq!(b.answer(request), [LAST]);
    b.advance(later);
    b.host.device.destroy_qp(b.qp).expect("a queue pair");
    (b, again)
}

#[test]
fn the_last_acknowledgement_is_repeated_and_then_the_device_is_still() {
    let (mut b, _) = gone(LAST_WORDS_WITHIN);
    assert_eq!(b.lines(), [""; 0]);
    let start = b.now;
    assert_eq!(b.after(Span::from_ms(100)), [LAST; 3]);
    let times: Vec<Span> = b.log.iter().map(|(at, _)| at.since(start)).collect();
    assert_eq!(times, LAST_WORDS);
    assert!(!b.host.device.is_departing());
    assert_eq!(b.host.device.poll_timeout(b.now), None);
}

#[test]
fn a_request_again_is_acknowledged_for_a_while() {
    let (mut b, again) = gone(LAST_WORDS_WITHIN + Span::from_us(1));
    assert_eq!(b.after(Span::from_ms(100)), [""; 0], "its peer had time to ask again");
    assert_eq!(b.answer(again), [LAST]);
    assert_eq!((b.counter("duplicate_request"), b.counter("rx_unknown_qp")), (1, 0));
    b.advance(DEPARTED);
    let again = write(&b);
    assert_eq!(b.answer(again), [""; 0]);
    assert_eq!(b.counter("rx_unknown_qp"), 1);
}

#[test]
fn requests_again_that_come_together_are_acknowledged_once() {
    let (mut b, again) = gone(Span::from_ms(400));
    b.inject(again);
    b.inject(write(&b));
    assert_eq!(b.lines(), [LAST]);
}

#[test]
fn what_was_not_executed_or_comes_from_elsewhere_is_not_answered() {
    let (mut b, again) = gone(Span::from_ms(400));
    let ahead = b.rdma(Operation::WriteOnly, 201, REGION, 8).data(8).ack();
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 8).ack();
    let mut foreign = again;
    foreign.0.path.source = setup::gid(5);
    for (count, packet) in [(1, ahead), (2, read), (3, foreign)] {
        assert_eq!(b.answer(packet), [""; 0]);
        assert_eq!(b.counter("rx_unknown_qp"), count);
    }
    let response = b.acknowledge(100, 1);
    assert_eq!(b.answer(response), [""; 0]);
    assert_eq!((b.counter("rx_stale_ack"), b.counter("rx_unknown_qp")), (1, 3));
}

#[test]
fn who_was_never_asked_or_refused_or_owed_a_read_says_nothing() {
    let mut b = Bench::rc();
    let second = b.another(wire::Qpn::new(0x5555), |_, _| {});
    let third = b.another(wire::Qpn::new(0x5556), |_, _| {});
    for qp in [b.qp, second] {
        let mut request = write(&b);
        request.0.bth.dest_qp = qp;
        assert_eq!(b.answer(request), [LAST]);
    }
    let mut bad = b.rdma(Operation::WriteOnly, 201, REGION, 8).data(8).ack();
    bad = bad.rkey(RKey::new(0x12_3456));
    bad.0.bth.dest_qp = second;
    assert_eq!(b.answer(bad), ["Acknowledge 201 nak(RemoteAccessError) msn=1"]);
    let read = b.rdma(Operation::ReadRequest, 201, REGION, 8).ack();
    assert_eq!(b.answer(read), ["ReadResponseOnly 201 ack msn=2 8B"]);
    for qp in [b.qp, second, third] {
        b.host.device.destroy_qp(qp).expect("a queue pair");
    }
    assert!(!b.host.device.is_departing());
    assert_eq!(b.after(Span::from_ms(100)), [""; 0]);
}

#[test]
fn a_queue_pair_in_error_still_has_last_words_once_it_is_gone() {
    let mut b = Bench::rc();
    let request = write(&b);
    assert_eq!(b.answer(request), [LAST]);
    b.modify(QpState::Err);
    assert_eq!(b.after(Span::from_ms(100)), [LAST; 3]);
    let again = write(&b);
    assert_eq!(b.answer(again), [LAST]);
    let ahead = b.rdma(Operation::WriteOnly, 201, REGION, 8).data(8).ack();
    assert_eq!(b.answer(ahead), [""; 0]);
    assert_eq!(b.counter("rx_wrong_state"), 1);
    b.host.device.destroy_qp(b.qp).expect("a queue pair");
    assert_eq!(b.after(Span::from_ms(100)), [""; 0], "they have been said");
    let again = write(&b);
    assert_eq!(b.answer(again), [LAST]);
}

#[test]
fn who_connects_again_says_nothing_of_what_was_before() {
    let mut b = Bench::rc();
    let request = write(&b);
    assert_eq!(b.answer(request), [LAST]);
    b.modify(QpState::Err);
    b.modify(QpState::Reset);
    assert!(b.host.device.is_departing());
    // Another to the same queue pair of the peer, which could take the words for its own.
    let second = b.another(crate::pair::bench::PEER_QP, |_, _| {});
    assert_eq!(b.lines(), [""; 0]);
    assert!(!b.host.device.is_departing());
    assert_eq!(b.after(Span::from_ms(100)), [""; 0]);
    // One to another is no matter.
    let mut request = write(&b);
    request.0.bth.dest_qp = second;
    assert_eq!(b.answer(request), [LAST]);
    b.host.device.destroy_qp(second).expect("a queue pair");
    b.another(wire::Qpn::new(0x5555), |_, _| {});
    assert_eq!(b.after(Span::from_ms(100)), [LAST; 3]);
    // And itself.
    let (now, init, attr) = (b.now, b.init, b.attr);
    setup::raise(&mut b.host.device, now, b.qp, &init, &attr, QpState::Rts);
    let request = write(&b);
    assert_eq!(b.answer(request), [LAST]);
}

#[test]
fn who_asks_a_queue_pair_that_is_gone_again_and_again_does_not_keep_others_from_sending() {
    let mut b = Bench::rc();
    let gone: Vec<_> = (0..20).map(|_| b.another(wire::Qpn::new(0x5555), |_, _| {})).collect();
    for &qp in &gone {
        let mut request = write(&b);
        request.0.bth.dest_qp = qp;
        assert_eq!(b.answer(request), [LAST]);
        b.host.device.destroy_qp(qp).expect("a queue pair");
    }
    b.advance(Span::from_ms(100));
    (0..5).for_each(|i| b.post(i, SendOp::Send, 5000));
    for &qp in &gone {
        let mut again = write(&b);
        again.0.bth.dest_qp = qp;
        b.inject(again);
    }
    let (now, mut trains) = (b.now, Vec::new());
    for _ in 0..4 {
        let mut packets = 0;
        assert!(b.host.drain_one(now, |_| packets += 1));
        trains.push(packets);
    }
    assert_eq!(trains, [1, 5, 1, 5]);
}

#[test]
fn a_device_that_departs_repeats_what_its_queue_pairs_said_last() {
    let mut b = Bench::rc();
    let request = write(&b);
    assert_eq!(b.answer(request), [LAST]);
    assert!(!b.host.device.is_departing());
    b.host.device.depart();
    assert!(b.host.device.is_departing());
    assert_eq!(b.after(LAST_WORDS[1]), [LAST; 2]);
    assert!(b.host.device.is_departing());
    assert_eq!(b.after(Span::from_ms(100)), [LAST]);
    assert!(!b.host.device.is_departing());
    // It was not the end: the queue pair goes on, and has last words of its own.
    b.host.device.depart();
    assert!(!b.host.device.is_departing(), "there is nothing new");
    let next = b.rdma(Operation::WriteOnly, 201, REGION, 8).data(8).ack();
    assert_eq!(b.answer(next), ["Acknowledge 201 ack msn=2"]);
    b.host.device.depart();
    b.advance(LAST_WORDS[0]);
    let next = b.rdma(Operation::WriteOnly, 202, REGION, 8).data(8).ack();
    assert_eq!(b.answer(next), ["Acknowledge 202 ack msn=3"]);
    assert_eq!(
        b.after(Span::from_ms(100)),
        ["Acknowledge 202 ack msn=3"; 2],
        "what is true by then"
    );
    b.host.device.destroy_qp(b.qp).expect("a queue pair");
    assert_eq!(b.after(Span::from_ms(100)), [""; 0], "they have been said");
}

#[test]
fn only_so_many_are_remembered() {
    let mut b = Bench::rc();
    let first = b.qp;
    for count in 0..=MAX_DEPARTED {
        if count > 0 {
            b.qp = b.another(wire::Qpn::new(0x5555 + count as u32), |_, _| {});
        }
        let request = write(&b);
        b.inject(request);
        b.host.device.destroy_qp(b.qp).expect("a queue pair");
    }
    b.advance(Span::from_ms(100));
    assert!(!b.host.device.is_departing());
    b.log.clear();
    let mut again = write(&b);
    again.0.bth.dest_qp = first;
    assert_eq!(b.answer(again), [""; 0], "forgotten");
    let again = write(&b);
    assert_eq!(b.answer(again), [LAST]);
}

/// A SEND of `length` bytes to a peer that destroys its queue pair as soon as it has it, or `exits`
/// after its last words, over a wire that loses 5 % both ways; how it completes.
fn to_one_that_leaves(seed: u64, length: u32, probes: bool, exits: bool) -> WcStatus {
    let limits = TrainLimits { segments: 16, bytes: 60_000 };
    let memory = || TestMemory::new(REGION - 0x1000, 0x40_000);
    let spec = FaultSpec { seed, ..format!("loss=5%,seed={seed}").parse().expect("a spec") };
    let hosts = (0..2).map(|i| (setup::config(i, seed), memory(), limits)).collect();
    let mut world = World::new(hosts, spec);
    let now = world.now;
    let mut ends = Vec::new();
    for host in &mut world.hosts {
        host.device.set_probe(probes.then_some(engine::limits::PROBE));
        let pd = host.device.alloc_pd().expect("a domain");
        let cq = host.create_cq(16);
        let region = host.register(pd, REGION, 0x20_000, Access::LOCAL_WRITE | setup::REMOTE);
        let init = QpInit {
            qp_type: QpType::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap: setup::CAP,
            sq_sig_all: true,
        };
        let (qp, _) = host.device.create_qp(&init).expect("a queue pair");
        ends.push((qp, cq, init, Sge { addr: REGION, length, lkey: region.lkey }));
    }
    for own in 0..2 {
        let (qp, _, init, _) = ends[own];
        let mut attr = setup::attr(setup::gid(1 - own), ends[1 - own].0);
        (attr.timeout, attr.rq_psn, attr.sq_psn) = (14, Psn::new(100), Psn::new(100));
        setup::raise(&mut world.hosts[own].device, now, qp, &init, &attr, QpState::Rts);
    }
    let [(from, sent, _, out), (to, got, _, into)] = [ends[0], ends[1]];
    let wr = RecvRequest { wr_id: 1, sges: &[into] };
    world.hosts[1].device.post_recv(now, to, &wr).expect("a good request");
    let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(std::slice::from_ref(&out)));
    let wr = SendRequest { wr_id: 2, op: SendOp::Send, flags, data, datagram: None };
    world.hosts[0].device.post_send(now, from, &wr).expect("a good request");
    let mut there = true;
    loop {
        assert!(world.turn(4), "seed {seed}: the sender waits for ever");
        if there && !world.hosts[1].poll_all(got).is_empty() {
            world.hosts[1].device.destroy_qp(to).expect("a queue pair");
            there = false;
        }
        if exits && !there && !world.hosts[1].device.is_departing() {
            world.hosts[1].device.handle_link(engine::LinkState::Down);
        }
        if let Some(wc) = world.hosts[0].poll_all(sent).first() {
            return wc.status;
        }
    }
}

#[test]
fn a_sender_completes_although_its_peer_leaves_and_packets_are_lost() {
    for seed in 0..1000 {
        for (length, probes) in [(0, false), (1, true), (65_536, false), (65_536, true)] {
            for exits in [false, true] {
                let status = to_one_that_leaves(seed, length, probes, exits);
                let what = format!("{length} bytes, probes: {probes}, exits: {exits}");
                assert_eq!(status, WcStatus::Success, "seed {seed}, {what}");
            }
        }
    }
}
