//! One-shot faults as they strike a device: what the application and the peer see is what a real
//! fault of that kind shows them.

use engine::faults::FaultPlan;
use engine::{
    AsyncEvent, FaultStage, LinkState, QpState, QpType, SendData, SendFlags, SendOp, SendRequest,
};
use wire::{Instant, Operation, Qpn, Span};

use crate::pair::bench::{Bench, Made, REGION, THERE};
use crate::pair::cable::Flying;

struct Struck {
    bench: Bench,
    rx: FaultStage<Flying>,
    tx: FaultStage<Flying>,
}

impl Struck {
    fn new(plan: &str) -> Self {
        Self::on(Bench::rc(), plan)
    }

    fn on(bench: Bench, plan: &str) -> Self {
        let plan: FaultPlan = plan.parse().expect("a good plan");
        let stage =
            |side: engine::faults::FaultSide| FaultStage::new(side.spec, 0).with_shots(side.shots);
        Self { bench, rx: stage(plan.rx), tx: stage(plan.tx) }
    }

    /// The packet arrives past the stage; what the device sends then.
    fn answer(&mut self, made: Made) -> Vec<String> {
        let (now, device) = (self.bench.now, &mut self.bench.host.device);
        self.rx.push(now, Flying::Meaning(made.0));
        while let Some(out) = self.rx.pop(now) {
            out.item.arrive(|p| device.receive_from(&mut self.rx, out.number, now, p));
        }
        self.bench.host.drain_events();
        self.bench.lines()
    }

    /// What the device sends, past the stage: the packets that leave.
    fn sent(&mut self) -> usize {
        let packets = self.bench.sent();
        let (now, device) = (self.bench.now, &mut self.bench.host.device);
        for packet in packets {
            self.tx.push(now, Flying::Meaning(packet));
        }
        let mut left = 0;
        while let Some(out) = self.tx.pop(now) {
            let passes = out.item.arrive(|p| device.lets_out(&mut self.tx, out.number, now, p));
            left += usize::from(passes == Some(true));
        }
        self.bench.host.drain_events();
        left
    }

    fn write(&self, psn: u32) -> Made {
        self.bench.rdma(Operation::WriteOnly, psn, REGION, 8).data(8).ack()
    }
}

fn post_on(b: &mut Bench, qp: Qpn, wr_id: u64) {
    let (op, flags) = (SendOp::Write(THERE), SendFlags::SIGNALED);
    let wr = SendRequest { wr_id, op, flags, data: SendData::Sges(&[]), datagram: None };
    b.host.device.post_send(b.now, qp, &wr).expect("a good request");
}

#[test]
fn a_queue_pair_fails_with_its_event_and_everything_flushed() {
    let mut s = Struck::new("fail=qp_error@2");
    let apart = s.bench.another(Qpn::new(0x88), |_, _| {});
    s.bench.recv(7, 64);
    s.bench.post(1, SendOp::Write(THERE), 8);
    s.bench.lines();
    assert_eq!(s.answer(s.write(200)).len(), 1, "the first passes");
    s.answer(s.write(201));
    assert_eq!(s.bench.events(), [AsyncEvent::QpFatal(s.bench.qp)]);
    assert_eq!(s.bench.state(), QpState::Err);
    assert_eq!(
        (s.bench.sends(), s.bench.receives()),
        (vec!["1 WrFlushErr".into()], vec!["7 WrFlushErr".into()])
    );
    let other = s.bench.host.device.query_qp(apart).expect("a queue pair").0.state;
    assert_eq!(other, QpState::Rts, "no other does");
    s.answer(s.write(202));
    assert_eq!((s.bench.events(), s.rx.counts().struck), (vec![], 1), "once");
}

#[test]
fn a_sent_packet_strikes_the_queue_pair_that_sent_it() {
    let mut s = Struck::new("tx.fail=qp_error@2");
    let other = s.bench.another(Qpn::new(0x88), |_, _| {});
    s.bench.post(1, SendOp::Write(THERE), 8);
    assert_eq!((s.sent(), s.bench.state()), (1, QpState::Rts));
    post_on(&mut s.bench, other, 2);
    assert_eq!(s.sent(), 1);
    assert_eq!(s.bench.events(), [AsyncEvent::QpFatal(other)]);
    assert_eq!(s.bench.state(), QpState::Rts);
}

#[test]
fn the_queue_of_the_packet_s_work_overruns() {
    for (plan, received) in [("fail=cq_overrun@1", true), ("tx.fail=cq_overrun@1", false)] {
        let mut s = Struck::new(plan);
        if received {
            s.answer(s.write(200));
        } else {
            s.bench.post(1, SendOp::Write(THERE), 8);
            s.sent();
        }
        let cq = if received { s.bench.recv_cq } else { s.bench.send_cq };
        assert_eq!(s.bench.events(), [AsyncEvent::CqErr(cq), AsyncEvent::QpFatal(s.bench.qp)]);
        assert!(s.bench.host.cqs[&cq].is_overrun());
        assert_eq!(s.bench.state(), QpState::Err);
    }
}

#[test]
fn a_send_is_told_to_come_again_and_does() {
    let mut s = Struck::new("fail=rnr@1");
    s.bench.recv(1, 64);
    // A WRITE needs no receive request: it passes.
    assert_eq!(s.answer(s.write(200)), ["Acknowledge 200 ack msn=1"]);
    let made = s.bench.packet(Operation::SendOnly, 201).data(8).ack();
    let answer = s.answer(made.clone());
    assert!(answer.len() == 1 && answer[0].contains("rnr"), "{answer:?}");
    assert_eq!(s.bench.counter("out_of_buffer"), 1);
    assert_eq!(s.answer(made), ["Acknowledge 201 ack msn=2"]);
    assert_eq!((s.bench.receives().len(), s.bench.events()), (1, vec![]));
}

#[test]
fn requests_are_refused_as_their_kind_says() {
    for (kind, word, event) in [
        ("nak_invalid", "invalid", true),
        ("nak_operation", "operation", false),
        ("nak_access", "access", false),
    ] {
        let mut s = Struck::new(&format!("fail={kind}@2"));
        s.answer(s.write(200));
        let answer = s.answer(s.write(201));
        let told = answer.len() == 1 && answer[0].to_lowercase().contains(word);
        assert!(told, "{kind}: {answer:?}");
        let expected = match event {
            true => AsyncEvent::QpReqErr(s.bench.qp),
            false => AsyncEvent::QpAccessErr(s.bench.qp),
        };
        assert_eq!((s.bench.events(), s.bench.state()), (vec![expected], QpState::Err));
    }
    let mut s = Struck::new("fail=nak_sequence@1");
    let answer = s.answer(s.write(200));
    assert!(answer.len() == 1 && answer[0].contains("PsnSequenceError"), "{answer:?}");
    assert_eq!(s.answer(s.write(200)), ["Acknowledge 200 ack msn=1"], "sent again, it passes");
}

#[test]
fn what_does_not_fit_is_passed_over() {
    // A duplicate, a packet from elsewhere, a datagram's queue pair: none of them can be refused.
    let mut s = Struck::new("fail=nak_access@2");
    s.answer(s.write(200));
    assert_eq!(s.answer(s.write(200)), ["Acknowledge 200 ack msn=1"]);
    let mut foreign = s.write(201);
    foreign.0.path.source = crate::pair::setup::gid(5);
    assert!(s.answer(foreign).is_empty());
    assert_eq!(s.rx.counts().struck, 0);
    s.answer(s.write(201));
    assert_eq!((s.rx.counts().struck, s.bench.state()), (1, QpState::Err));
    let mut s = Struck::on(Bench::of(QpType::Ud), "fail=nak_access@1,fail=rnr@1,fail=qp_error@2");
    s.bench.recv(1, 64);
    s.bench.recv(2, 64);
    s.answer(s.bench.packet(Operation::SendOnly, 1).data(8));
    assert_eq!((s.rx.counts().struck, s.bench.receives().len()), (0, 1));
    s.answer(s.bench.packet(Operation::SendOnly, 2).data(8));
    assert_eq!(s.bench.events(), [AsyncEvent::QpFatal(s.bench.qp)]);
}

#[test]
fn a_port_goes_down_at_a_packet_and_up_by_the_clock() {
    let mut s = Struck::new("fail=port_down@2/5ms");
    s.answer(s.write(200));
    assert!(s.answer(s.write(201)).is_empty());
    assert_eq!(s.bench.events(), [AsyncEvent::PortErr]);
    assert_eq!(s.bench.host.device.link(), LinkState::Down);
    s.bench.post(1, SendOp::Write(THERE), 8);
    assert_eq!(s.bench.sent().len(), 0, "nothing leaves");
    assert_eq!((s.rx.counts().cut, s.bench.counter("rx_packets")), (1, 1));
    let due = s.rx.next_due().expect("its end");
    assert_eq!(due, s.bench.now + Span::from_ms(5));
    s.bench.now = due;
    let Struck { bench, rx, .. } = &mut s;
    bench.host.device.strike_due(rx, due);
    bench.host.drain_events();
    assert_eq!(bench.events(), [AsyncEvent::PortActive]);
    assert_eq!(s.sent(), 1);
    assert_eq!(s.answer(s.write(201)), ["Acknowledge 201 ack msn=2"]);
}

#[test]
fn a_device_fails_for_good() {
    let mut s = Struck::new("fail=device_fatal@1500ms,fail=port_up@1600ms");
    let other = s.bench.another(Qpn::new(0x88), |_, _| {});
    s.bench.post(1, SendOp::Write(THERE), 8);
    s.bench.now = Instant::ZERO + Span::from_ms(1500);
    assert_eq!(s.rx.next_due(), Some(s.bench.now));
    for _ in 0..2 {
        let Struck { bench, rx, .. } = &mut s;
        bench.host.device.strike_due(rx, bench.now);
        bench.now = bench.now + Span::from_ms(100);
    }
    s.bench.host.drain_events();
    assert_eq!(s.bench.events(), [AsyncEvent::DeviceFatal]);
    assert_eq!(s.bench.sends(), ["1 WrFlushErr"]);
    for qp in [s.bench.qp, other] {
        assert_eq!(s.bench.host.device.query_qp(qp).expect("it is there").0.state, QpState::Err);
    }
    assert_eq!(s.bench.host.device.link(), LinkState::Down, "it does not come up again");
    s.bench.post(2, SendOp::Write(THERE), 8);
    assert_eq!((s.sent(), s.bench.sends()), (0, vec!["2 WrFlushErr".into()]));
}
