//! Congestion control of queue pairs: which marks are told of, when, and how; what CNPs do to a
//! sender's pace, and that nobody else's CNPs do.

use engine::{Congestion, Control, Dcqcn, Notification, SendOp, TrainLimits};
use wire::{Opcode, Operation, Psn, Rate, Span};

use crate::pair::bench::{Bench, Made, REGION, THERE};
use crate::pair::setup;

/// A reliable connection under DCQCN, at a port of 40 Gb/s.
fn controlled(notification: Notification, dcqcn: Dcqcn) -> Bench {
    let mut b = Bench::with(|o| {
        o.state = engine::QpState::Reset;
        o.limits = TrainLimits::SINGLE;
    });
    let line = Rate::from_gbps(40);
    let control = Control::Dcqcn(dcqcn);
    b.host.device.set_congestion(Congestion { control, line, notification, overhead: None });
    let (now, qp, init, attr) = (b.now, b.qp, b.init, b.attr);
    setup::raise(&mut b.host.device, now, qp, &init, &attr, engine::QpState::Rts);
    b
}

/// The PSN `n` of a stream of WRITEs, with the CE mark.
fn marked(b: &Bench, n: u32) -> Made {
    let mut made = b.rdma(Operation::WriteOnly, 200 + n, REGION, 64).data(64);
    made.0.path.traffic_class |= 3;
    made
}

fn cnp(b: &Bench) -> Made {
    let mut made = b.acknowledge(0, 0);
    made.0.bth.opcode = Opcode::CNP;
    made.0.bth.psn = Psn::default();
    made.0.bth.becn = true;
    made.0.ext = wire::Extensions::default();
    made.0.payload = vec![0; 16];
    made
}

fn cnps(b: &mut Bench) -> Vec<wire::Packet<Vec<u8>>> {
    b.sent().into_iter().filter(|p| p.bth.opcode == Opcode::CNP).collect()
}

#[test]
fn a_mark_is_answered_by_a_cnp_of_its_own_class_to_the_sending_queue_pair() {
    let mut b = controlled(Notification::VENDOR, Dcqcn::VENDOR);
    let made = marked(&b, 0);
    b.inject(made);
    let sent = cnps(&mut b);
    let [cnp] = sent.as_slice() else { panic!("one CNP: {sent:?}") };
    assert_eq!(cnp.bth.dest_qp, b.attr.dest_qp);
    assert_eq!(cnp.path.destination, b.peer);
    assert_eq!(cnp.path.traffic_class, 48 << 2 | 2, "DSCP 48, ECT(0)");
    assert_eq!(cnp.path.priority, 6);
    assert_eq!((cnp.bth.psn, cnp.bth.becn), (Psn::default(), true));
    assert_eq!(cnp.payload, vec![0; 16]);
    assert_eq!(b.counter("np_cnp_sent"), 1);
    assert_eq!(b.counter("np_ecn_marked_roce_packets"), 1);
}

#[test]
fn adapters_pass_over_marks_within_the_spacing() {
    let mut b = controlled(Notification::VENDOR, Dcqcn::VENDOR);
    let mut sent = Vec::new();
    for n in 0..10 {
        let made = marked(&b, n);
        b.inject(made);
        sent.push(cnps(&mut b).len());
        b.advance(Span::from_us(1));
    }
    assert_eq!(sent, [1, 0, 0, 0, 1, 0, 0, 0, 1, 0]);
    b.log.clear();
    b.advance(Span::from_us(100));
    assert!(b.log.is_empty(), "nothing is told of late");
}

#[test]
fn the_paper_tells_at_the_end_of_the_window_of_marks_within_it() {
    let mut b = controlled(Notification::PAPER, Dcqcn::PAPER);
    let begin = b.now;
    for n in 0..3 {
        let made = marked(&b, n);
        b.inject(made);
        b.advance(Span::from_us(10));
    }
    b.advance(Span::from_us(200));
    let log = b.log.iter().filter(|(_, p)| p.bth.opcode == Opcode::CNP);
    let times: Vec<_> = log.map(|(at, _)| at.since(begin)).collect();
    assert_eq!(times, [Span::ZERO, Span::from_us(50)]);
}

#[test]
fn what_is_not_ecn_capable_or_carries_nothing_is_not_told_of() {
    let mut b = controlled(Notification::VENDOR, Dcqcn::VENDOR);
    let mut empty = b.rdma(Operation::WriteOnly, 200, REGION, 0);
    empty.0.path.traffic_class |= 3;
    b.inject(empty);
    let mut capable = marked(&b, 1);
    capable.0.path.traffic_class = 2;
    b.inject(capable);
    assert!(cnps(&mut b).is_empty());
    let mut off = Bench::rc();
    let made = marked(&off, 0);
    off.inject(made);
    assert!(cnps(&mut off).is_empty(), "without congestion control");
}

#[test]
fn packets_say_that_they_are_ecn_capable_if_somebody_obeys() {
    let mut b = controlled(Notification::VENDOR, Dcqcn::VENDOR);
    b.post(1, SendOp::Write(THERE), 64);
    assert_eq!(b.sent()[0].path.traffic_class & 3, 2);
    let mut off = Bench::rc();
    off.post(1, SendOp::Write(THERE), 64);
    assert_eq!(off.sent()[0].path.traffic_class & 3, 0);
}

#[test]
fn a_cnp_halves_the_pace_of_the_paper_and_acknowledgements_do_not_wait() {
    let mut b = controlled(Notification::PAPER, Dcqcn::PAPER);
    b.post(1, SendOp::Write(THERE), 64 * 1024);
    let made = cnp(&b);
    b.inject(made);
    assert_eq!(b.counter("rp_cnp_handled"), 1);
    let rate = b.host.device.report_qp(b.qp).expect("a queue pair").rate;
    assert_eq!(rate, Some(Rate::from_gbps(20)));
    let begin = b.now;
    b.advance(Span::from_us(10));
    // 14 + 20 + 8 + 12 + 1024 + 4 + 4 bytes at 20 Gb/s: 434.4 ns; the first has a RETH.
    let times: Vec<_> = b.log.iter().map(|(at, _)| at.since(begin).as_ps()).collect();
    assert_eq!(times[..3], [0, 440_800, 875_200], "{times:?}");
    assert_eq!(times.len(), 1 + (10_000_000 - 440_800) / 434_400 + 1);
    // A request that asks for an acknowledgement comes in between.
    b.log.clear();
    let made = b.rdma(Operation::WriteOnly, 200, REGION, 64).data(64).ack();
    b.inject(made);
    let lines = b.lines();
    assert!(lines.len() == 1 && lines[0].contains("Acknowledge 200"), "{lines:?}");
}

#[test]
fn cnps_from_elsewhere_or_without_control_change_nothing() {
    let mut b = controlled(Notification::PAPER, Dcqcn::PAPER);
    let mut made = cnp(&b);
    made.0.path.source = setup::gid(7);
    b.inject(made);
    assert_eq!(b.counter("rp_cnp_ignored"), 1);
    assert_eq!(b.host.device.report_qp(b.qp).expect("a queue pair").rate, None);
    let mut off = Bench::rc();
    let made = cnp(&off);
    off.inject(made);
    assert_eq!(off.counter("rp_cnp_ignored"), 1);
}

#[test]
fn the_rate_comes_back_by_itself_and_pacing_ends() {
    let mut b = controlled(Notification::PAPER, Dcqcn::PAPER);
    let made = cnp(&b);
    b.inject(made);
    b.advance(Span::from_ms(10));
    assert_eq!(
        b.host.device.report_qp(b.qp).expect("a queue pair").rate,
        Some(Rate::from_gbps(40))
    );
    b.post(1, SendOp::Write(THERE), 8 * 1024);
    assert_eq!(b.sent().len(), 8, "nothing waits");
}

#[test]
fn a_paused_class_of_cnps_waits_and_data_goes_on() {
    let mut b = controlled(Notification::VENDOR, Dcqcn::VENDOR);
    let until = b.now + Span::from_us(30);
    b.host.device.handle_pause(6, until);
    let made = marked(&b, 0);
    b.inject(made);
    b.post(1, SendOp::Write(THERE), 64);
    let sent = b.sent();
    assert!(!sent.is_empty() && sent.iter().all(|p| p.bth.opcode != Opcode::CNP), "{sent:?}");
    b.log.clear();
    b.advance(Span::from_us(40));
    let (at, _) = b.log.iter().find(|(_, p)| p.bth.opcode == Opcode::CNP).expect("a CNP");
    assert_eq!(*at, until);
}

/// What simulations ask of a device besides: numbers, packet sizes, acknowledgement intervals.
mod plans {
    use engine::SendOp;
    use wire::Qpn;

    use crate::pair::bench::{Bench, THERE};
    use crate::pair::setup;

    #[test]
    fn a_number_can_be_chosen_if_it_is_free() {
        let mut b = Bench::rc();
        let init = b.init;
        let wanted = Qpn::new(0x1234);
        let (made, _) = b.host.device.create_qp_numbered(&init, wanted).expect("a free number");
        assert_eq!(made, wanted);
        for taken in [0, 1, 0xFF_FFFF, 0x1234, b.qp.get()] {
            let refused = b.host.device.create_qp_numbered(&init, Qpn::new(taken));
            assert!(refused.is_err(), "{taken:#x}");
        }
        let (other, _) = b.host.device.create_qp(&init).expect("another one");
        assert_ne!(other, wanted);
    }

    #[test]
    fn a_refused_number_leaves_no_trace() {
        let mut b = Bench::rc();
        let mut init = b.init;
        init.cap.max_send_wr = u32::MAX;
        assert!(b.host.device.create_qp_numbered(&init, Qpn::new(0x4321)).is_err());
        let init = b.init;
        let (drawn, _) = b.host.device.create_qp(&init).expect("a queue pair");
        assert_ne!(drawn, Qpn::new(0x4321));
    }

    #[test]
    fn packets_may_be_smaller_than_the_path_allows() {
        let mut b = Bench::with(|o| o.state = engine::QpState::Reset);
        b.host.device.set_segment(1000);
        let (now, qp, init, attr) = (b.now, b.qp, b.init, b.attr);
        setup::raise(&mut b.host.device, now, qp, &init, &attr, engine::QpState::Rts);
        b.post(1, SendOp::Write(THERE), 2500);
        let lengths: Vec<usize> = b.sent().iter().map(|p| p.payload.len()).collect();
        assert_eq!(lengths, [1000, 1000, 500]);
    }

    #[test]
    fn acknowledgements_may_be_asked_for_more_often() {
        let asked = |b: &mut Bench| {
            b.post(1, SendOp::Write(THERE), 8 * 1024);
            b.sent().iter().filter(|p| p.bth.ack_request).count()
        };
        assert_eq!(asked(&mut Bench::rc()), 1);
        let mut b = Bench::rc();
        b.host.device.set_ack_interval(2);
        assert_eq!(asked(&mut b), 4);
    }

    #[test]
    fn without_a_receive_buffers_end_loss_shrinks_no_window() {
        let mut b = Bench::with(|o| o.config.receive_buffer = u64::MAX);
        b.post(1, SendOp::Write(THERE), 512 * 1024);
        assert_eq!(b.sent().len(), 512);
        let made = b.nak(100, wire::NakCode::PsnSequenceError);
        b.inject(made);
        assert_eq!(b.sent().len(), 512, "all again, at once");
    }
}
