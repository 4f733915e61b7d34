//! Completion queues: overrun, arming, moderation, sizes, several handles.

use engine::{AsyncEvent, CqId, ErrorKind, Moderation, QpState, SendOp};
use wire::{Operation, Qpn, Span};

use crate::pair::bench::{Bench, completion_line};

fn receive(b: &mut Bench, psn: u32, solicited: bool) {
    b.recv(u64::from(psn), 8);
    let made = b.packet(Operation::SendOnly, psn).data(8);
    b.inject(if solicited { made.solicited() } else { made });
}

/// Whether the receive queue has raised its event since the last look.
fn rang(b: &mut Bench) -> bool {
    b.host.drain_events();
    let cq = b.recv_cq;
    b.host.ready.remove(&cq)
}

fn arm(b: &Bench, solicited_only: bool) {
    b.host.cqs[&b.recv_cq].req_notify(solicited_only);
}

#[test]
fn an_overrun_is_told_and_what_is_in_the_queue_stays() {
    let mut b = Bench::with(|o| o.cqe = 2);
    let other = b.another(Qpn::new(0x88), |_, _| {});
    let third = b.another(Qpn::new(0x89), |init, _| init.send_cq = init.recv_cq);
    let beside = b.host.create_cq(8);
    let apart = b.another(Qpn::new(0x8A), |init, _| {
        (init.send_cq, init.recv_cq) = (beside, beside);
    });
    for wr_id in 1..=3 {
        b.post(wr_id, SendOp::Send, 8);
    }
    b.lines();
    b.inject(b.acknowledge(102, 3));
    let (first, send_cq) = (b.qp, b.send_cq);
    assert_eq!(
        b.events(),
        [AsyncEvent::CqErr(send_cq), AsyncEvent::QpFatal(first), AsyncEvent::QpFatal(other)]
    );
    assert!(b.host.cqs[&send_cq].is_overrun());
    let state = |b: &Bench, qp| b.host.device.query_qp(qp).expect("a queue pair").0.state;
    assert_eq!((state(&b, first), state(&b, other)), (QpState::Err, QpState::Err));
    assert_eq!((state(&b, third), state(&b, apart)), (QpState::Rts, QpState::Rts));
    assert_eq!(b.sends(), ["1 Send 8B", "2 Send 8B"], "nothing is overwritten");
}

#[test]
fn an_overrun_by_flushing_is_told_once() {
    let mut b = Bench::with(|o| o.cqe = 2);
    b.modify(QpState::Sqd);
    for wr_id in 1..=6 {
        b.post(wr_id, SendOp::Send, 8);
    }
    b.modify(QpState::Err);
    assert_eq!(b.events(), [AsyncEvent::CqErr(b.send_cq)], "the queue pair is in error already");
    b.post(7, SendOp::Send, 8);
    assert_eq!(b.events(), [], "once for the queue");
    assert_eq!(b.sends(), ["1 WrFlushErr", "2 WrFlushErr"]);
}

#[test]
fn flushes_behind_an_overrun_do_not_tell_it_again() {
    let mut b = Bench::with(|o| o.cqe = 1);
    for wr_id in 1..=4 {
        b.post(wr_id, SendOp::Send, 8);
    }
    b.lines();
    b.inject(b.acknowledge(101, 2));
    assert_eq!(b.events(), [AsyncEvent::CqErr(b.send_cq), AsyncEvent::QpFatal(b.qp)]);
}

#[test]
fn a_queue_that_overruns_again_loses_nothing_unnoticed() {
    let mut b = Bench::with(|o| o.cqe = 1);
    let (attr, init) = (b.attr, b.init);
    for round in 0..2 {
        b.post(1, SendOp::Send, 8);
        b.post(2, SendOp::Send, 8);
        b.lines();
        b.inject(b.acknowledge(101, 2));
        let events = b.events();
        assert_eq!(
            events.contains(&AsyncEvent::CqErr(b.send_cq)),
            round == 0,
            "once for the queue"
        );
        assert!(events.contains(&AsyncEvent::QpFatal(b.qp)), "round {round}");
        assert_eq!(b.sends(), ["1 Send 8B"]);
        b.modify(QpState::Reset);
        crate::pair::setup::raise(&mut b.host.device, b.now, b.qp, &init, &attr, QpState::Rts);
    }
}

#[test]
fn a_queue_is_armed_for_one_event() {
    let mut b = Bench::rc();
    receive(&mut b, 200, false);
    assert!(!rang(&mut b), "not armed");
    arm(&b, false);
    assert!(!rang(&mut b), "what came before is to be polled");
    receive(&mut b, 201, false);
    assert!(rang(&mut b));
    receive(&mut b, 202, true);
    assert!(!rang(&mut b), "one-shot");
    arm(&b, false);
    arm(&b, false);
    receive(&mut b, 203, false);
    receive(&mut b, 204, false);
    assert!(rang(&mut b));
    assert!(!rang(&mut b), "armed twice is armed once");
}

#[test]
fn solicited_only_waits_for_the_solicited_bit_or_an_error() {
    let mut b = Bench::rc();
    arm(&b, true);
    receive(&mut b, 200, false);
    assert!(!rang(&mut b));
    receive(&mut b, 201, true);
    assert!(rang(&mut b));
    arm(&b, true);
    receive(&mut b, 202, false);
    b.recv(9, 8);
    b.modify(QpState::Err);
    assert!(rang(&mut b), "an error rings");
}

#[test]
fn any_overrides_solicited_only_and_not_the_reverse() {
    for order in [[true, false], [false, true]] {
        let mut b = Bench::rc();
        order.iter().for_each(|&solicited_only| arm(&b, solicited_only));
        receive(&mut b, 200, false);
        assert!(rang(&mut b), "{order:?}");
        // The event has used the arming up: it does not come back as solicited-only.
        arm(&b, true);
        receive(&mut b, 201, false);
        assert!(!rang(&mut b), "{order:?}");
    }
}

fn moderate(b: &mut Bench, count: u16, us: u64) {
    let moderation = Moderation { count, period: Span::from_us(us) };
    b.host.device.modify_cq(b.recv_cq, moderation).expect("a queue");
}

#[test]
fn moderation_by_count() {
    let mut b = Bench::rc();
    moderate(&mut b, 3, 0);
    arm(&b, false);
    for psn in 200..202 {
        receive(&mut b, psn, false);
        b.advance(Span::from_ms(100));
        assert!(!rang(&mut b), "{psn}");
    }
    receive(&mut b, 202, false);
    assert!(rang(&mut b));
    arm(&b, false);
    receive(&mut b, 203, false);
    assert!(!rang(&mut b), "the count begins anew");
}

#[test]
fn moderation_by_period() {
    let mut b = Bench::rc();
    moderate(&mut b, 100, 50);
    arm(&b, false);
    receive(&mut b, 200, false);
    b.advance(Span::from_us(30));
    receive(&mut b, 201, false);
    b.advance(Span::from_us(19));
    assert!(!rang(&mut b), "from the first, not yet");
    b.advance(Span::from_us(1));
    assert!(rang(&mut b));
    b.advance(Span::from_ms(1));
    assert!(!rang(&mut b), "once");
    // A count that is full comes before the period, which does not ring once more.
    moderate(&mut b, 2, 50);
    arm(&b, false);
    receive(&mut b, 202, false);
    receive(&mut b, 203, false);
    assert!(rang(&mut b));
    b.advance(Span::from_ms(1));
    assert!(!rang(&mut b));
}

#[test]
fn arming_again_loses_no_event_under_moderation() {
    let mut b = Bench::rc();
    moderate(&mut b, 100, 50);
    arm(&b, false);
    receive(&mut b, 200, false);
    // Another waiter arms the same queue, and polls nothing.
    arm(&b, true);
    b.advance(Span::from_us(60));
    assert!(rang(&mut b), "the first waiter still waits for this");
}

#[test]
fn a_change_of_moderation_loses_no_event() {
    for (count, us) in [(0, 0), (100, 200), (100, 0), (100, 10)] {
        let mut b = Bench::rc();
        moderate(&mut b, 100, 50);
        arm(&b, false);
        receive(&mut b, 200, false);
        moderate(&mut b, count, us);
        b.advance(Span::from_us(300));
        assert!(rang(&mut b), "changed to {count} and {us} us");
    }
}

#[test]
fn moderation_ended_is_no_longer_waited_for() {
    let mut b = Bench::rc();
    moderate(&mut b, 100, 50);
    moderate(&mut b, 0, 0);
    arm(&b, false);
    receive(&mut b, 200, false);
    assert!(rang(&mut b));
}

#[test]
fn errors_are_not_moderated() {
    let mut b = Bench::rc();
    moderate(&mut b, 100, 50);
    arm(&b, false);
    b.recv(9, 8);
    b.modify(QpState::Err);
    assert!(rang(&mut b));
}

#[test]
fn a_queue_changes_its_size_and_keeps_what_is_in_it() {
    let mut b = Bench::with(|o| o.cqe = 2);
    let cq = b.recv_cq;
    receive(&mut b, 200, false);
    receive(&mut b, 201, false);
    let error = b.host.device.resize_cq(cq, 1).expect_err("two are in it");
    assert!(error.to_string().contains("2 entries"), "{error}");
    assert_eq!(b.host.cqs[&cq].capacity(), 2);
    b.host.device.resize_cq(cq, 3).expect("larger");
    receive(&mut b, 202, false);
    assert_eq!(b.events(), []);
    assert_eq!(b.receives(), ["200 Recv 8B", "201 Recv 8B", "202 Recv 8B"]);
    b.host.device.resize_cq(cq, 1).expect("empty");
    receive(&mut b, 203, false);
    receive(&mut b, 204, false);
    assert_eq!(b.events()[0], AsyncEvent::CqErr(cq));
    for capacity in [0, u32::MAX] {
        b.host.device.resize_cq(cq, capacity).expect_err("out of bounds");
        b.host.device.create_cq(capacity).expect_err("out of bounds");
    }
}

#[test]
fn every_handle_polls_the_same_queue() {
    let mut b = Bench::rc();
    for psn in 200..205 {
        receive(&mut b, psn, false);
    }
    let second = std::sync::Arc::clone(&b.host.cqs[&b.recv_cq]);
    let mut out = [engine::Completion::default(); 2];
    assert_eq!(second.poll(&mut out), 2);
    assert_eq!(out.map(|c| completion_line(&c)), ["200 Recv 8B", "201 Recv 8B"]);
    assert_eq!(second.len(), 3);
    assert_eq!(second.poll(&mut []), 0);
    assert_eq!(b.receives(), ["202 Recv 8B", "203 Recv 8B", "204 Recv 8B"]);
    assert!(second.is_empty());
    assert_eq!(second.poll(&mut out), 0);
    second.req_notify(false);
    receive(&mut b, 205, false);
    assert!(rang(&mut b), "armed through the second handle");
}

#[test]
fn a_queue_in_use_is_busy_and_its_events_go_with_it() {
    let mut b = Bench::rc();
    let (cq, qp) = (b.recv_cq, b.qp);
    assert_eq!(b.host.device.destroy_cq(cq).expect_err("in use").kind(), ErrorKind::Busy);
    arm(&b, false);
    b.recv(1, 8);
    // Not through the bench, which takes events at once.
    let attr = engine::QpAttr { state: QpState::Err, ..b.attr };
    let now = b.now;
    b.host.device.modify_qp(now, qp, &attr, engine::AttrMask::STATE).expect("legal");
    b.host.device.destroy_qp(qp).expect("it exists");
    b.host.device.destroy_cq(cq).expect("free");
    assert!(!rang(&mut b), "no event of a queue that is gone");
    assert_eq!(b.host.device.destroy_cq(cq).expect_err("gone").kind(), ErrorKind::NotFound);
    assert!(b.host.device.modify_cq(CqId(999), Moderation::OFF).is_err());
}

#[test]
fn completions_of_a_destroyed_queue_pair_stay() {
    let mut b = Bench::rc();
    receive(&mut b, 200, false);
    b.host.device.destroy_qp(b.qp).expect("it exists");
    assert_eq!(b.receives(), ["200 Recv 8B"]);
}
