//! Extended reliable connections: requests name the shared receive queue they are for, which says
//! where they complete and what they may reach.

use engine::{
    AsyncEvent, CqId, ErrorKind, PostError, QpState, QpType, RecvRequest, SendData, SendFlags,
    SendOp, SendRequest, Sge, SrqAttr, SrqId, XrcdId,
};
use wire::{Opcode, Operation, Service, SrqNum};

use crate::pair::bench::{BUFFERS, Bench, LOCAL, Made, REGION, THERE, completion_line, pattern};
use crate::pair::setup;

const MTU: usize = 1024;
const ATTR: SrqAttr = SrqAttr { max_wr: 16, max_sge: 1, limit: 0 };

fn post(b: &mut Bench, wr_id: u64, op: SendOp, length: u32, srq: u32) -> Result<(), PostError> {
    let sges = [Sge { addr: LOCAL, length, lkey: b.region.lkey }];
    let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(&sges));
    let wr = SendRequest { wr_id, op, flags, data, datagram: None };
    let (now, qp) = (b.now, b.qp);
    b.host.device.post_send_xrc(now, qp, &wr, SrqNum::new(srq))
}

#[test]
fn requests_name_the_queue_they_are_for() {
    let mut b = Bench::of(QpType::XrcSend);
    post(&mut b, 1, SendOp::Send, 2100, 5).expect("a good request");
    post(&mut b, 2, SendOp::Write(THERE), 8, 6).expect("a good request");
    post(&mut b, 3, SendOp::Read(THERE), 8, 7).expect("a good request");
    let add = SendOp::FetchAdd { remote: THERE, add: 1 };
    post(&mut b, 4, add, 8, 8).expect("a good request");
    let sent = b.sent();
    let named: Vec<_> = sent.iter().map(|p| p.ext.xrc_srq.map(SrqNum::get)).collect();
    assert_eq!(named, [5, 5, 5, 6, 7, 8].map(Some));
    assert!(sent.iter().all(|packet| packet.bth.opcode.service() == Some(Service::Xrc)));
    // Acknowledged as on any reliable connection.
    b.inject(b.acknowledge(103, 2));
    assert_eq!(b.sends(), ["1 Send 2100B", "2 RdmaWrite 8B"]);
    let response = b.packet(Operation::ReadResponseOnly, 104);
    b.inject(response.aeth(wire::Syndrome::Ack(31), 3).data(8));
    assert_eq!(b.sends(), ["3 RdmaRead 8B"]);
}

#[test]
fn a_request_without_a_queue_is_refused() {
    let mut b = Bench::of(QpType::XrcSend);
    let refused = b.post_with(1, SendOp::Send, 8, SendFlags::SIGNALED);
    assert_eq!(refused, Err(PostError::Destination));
    let (now, qp) = (b.now, b.qp);
    let receive = b.host.device.post_recv(now, qp, &RecvRequest { wr_id: 1, sges: &[] });
    assert_eq!(receive, Err(PostError::QueueFull));
    // Requests of a peer are not for an end that only sends.
    let made = for_srq(b.packet(Operation::SendOnly, 200).data(8).ack(), 0);
    assert!(b.answer(made).is_empty());
    assert_eq!(b.counter("rx_wrong_opcode"), 1);
    let mut rc = Bench::rc();
    assert_eq!(post(&mut rc, 1, SendOp::Send, 8, 5), Err(PostError::Destination));
}

/// An end that receives, with two queues in its domain, the second of another protection domain.
struct Receiver {
    b: Bench,
    xrcd: XrcdId,
    srqs: [SrqId; 2],
    cqs: [CqId; 2],
}

fn receiver() -> Receiver {
    let mut b = Bench::of(QpType::XrcSend);
    let other = b.host.device.alloc_pd().expect("a domain");
    let xrcd = b.host.device.open_xrcd().expect("an XRC domain");
    let cqs = [b.host.create_cq(64), b.host.create_cq(64)];
    let device = &mut b.host.device;
    let srqs = [(b.pd, cqs[0]), (other, cqs[1])]
        .map(|(pd, cq)| device.create_xrc_srq(pd, (xrcd, cq), &ATTR).expect("a queue"));
    b.qp = device.create_xrc_receiver(xrcd).expect("a queue pair");
    b.init.qp_type = QpType::XrcRecv;
    setup::raise(device, b.now, b.qp, &b.init, &b.attr, QpState::Rts);
    Receiver { b, xrcd, srqs, cqs }
}

impl Receiver {
    fn recv(&mut self, queue: usize, wr_id: u64) {
        let sges = [Sge { addr: BUFFERS, length: 4096, lkey: self.b.region.lkey }];
        let wr = RecvRequest { wr_id, sges: &sges[..1 - queue] };
        self.b.host.device.post_srq_recv(self.srqs[queue], &wr).expect("a good request");
    }

    fn request(&self, queue: usize, operation: Operation, psn: u32) -> Made {
        for_srq(self.b.packet(operation, psn), self.srqs[queue].0)
    }

    fn completions(&mut self, queue: usize) -> Vec<String> {
        self.b.host.poll_all(self.cqs[queue]).iter().map(completion_line).collect()
    }
}

fn for_srq(mut made: Made, number: u32) -> Made {
    made.0.ext.xrc_srq = Some(SrqNum::new(number));
    made
}

#[test]
fn a_message_goes_to_the_queue_that_it_names() {
    let mut r = receiver();
    r.recv(0, 10);
    r.recv(1, 20);
    let made = r.request(1, Operation::SendOnly, 200).ack();
    assert_eq!(r.b.answer(made), ["Acknowledge 200 ack msn=1"]);
    for (operation, psn, length) in
        [(Operation::SendFirst, 201, MTU), (Operation::SendLastImm, 202, 9)]
    {
        let made = r.request(0, operation, psn).data(length).imm(3);
        r.b.inject(if operation == Operation::SendFirst { strip_imm(made) } else { made.ack() });
    }
    assert_eq!(r.b.lines(), ["Acknowledge 202 ack msn=2"]);
    assert_eq!(r.completions(1), ["20 Recv 0B"]);
    assert_eq!(r.completions(0), ["10 Recv 1033B imm=3"]);
    assert_eq!(r.b.bytes(BUFFERS, MTU), pattern(MTU));
    // None left there: not ready, in the queue that it is for.
    let made = r.request(1, Operation::SendOnly, 203).ack();
    assert_eq!(r.b.answer(made), ["Acknowledge 203 rnr(12) msn=2"]);
}

fn strip_imm(mut made: Made) -> Made {
    made.0.ext.imm = None;
    made
}

#[test]
fn the_queue_says_what_a_request_may_reach() {
    let mut r = receiver();
    let rkey = r.b.region.rkey;
    let made = r.request(0, Operation::WriteOnly, 200).reth(REGION, rkey, 8).data(8).ack();
    assert_eq!(r.b.answer(made), ["Acknowledge 200 ack msn=1"]);
    let made = r.request(0, Operation::ReadRequest, 201).reth(REGION, rkey, 8).ack();
    assert_eq!(r.b.answer(made), ["ReadResponseOnly 201 ack msn=2 8B"]);
    // Again, as a duplicate.
    let made = r.request(0, Operation::ReadRequest, 201).reth(REGION, rkey, 8).ack();
    assert_eq!(r.b.answer(made), ["ReadResponseOnly 201 ack msn=2 8B"]);
    // The region is of the other queue's protection domain.
    let made = r.request(1, Operation::WriteOnly, 202).reth(REGION, rkey, 8).data(8).ack();
    assert_eq!(r.b.answer(made), ["Acknowledge 202 nak(RemoteAccessError) msn=2"]);
    assert_eq!(r.b.events(), [AsyncEvent::QpAccessErr(r.b.qp)]);
}

#[test]
fn a_response_keeps_the_rights_of_its_own_request() {
    let mut r = receiver();
    r.recv(1, 1);
    let rkey = r.b.region.rkey;
    let made = r.request(0, Operation::ReadRequest, 200).reth(REGION, rkey, 8).ack();
    r.b.inject(made);
    // Before it has left, a request for a queue without rights to that region comes.
    let made = r.request(1, Operation::SendOnly, 201).ack();
    r.b.inject(made);
    assert_eq!(r.b.lines(), ["ReadResponseOnly 200 ack msn=1 8B", "Acknowledge 201 ack msn=2"]);
}

#[test]
fn queues_that_do_not_exist_in_the_domain_make_a_request_invalid() {
    let nak = ["Acknowledge 200 nak(InvalidRequest) msn=0"];
    let makers: [fn(&mut Receiver) -> u32; 3] = [
        |_| 0xFFFF,
        // A basic one.
        |r| r.b.host.device.create_srq(r.b.pd, &ATTR).expect("a queue").0,
        // One of another domain.
        |r| {
            let device = &mut r.b.host.device;
            let xrcd = device.open_xrcd().expect("an XRC domain");
            device.create_xrc_srq(r.b.pd, (xrcd, r.cqs[0]), &ATTR).expect("a queue").0
        },
    ];
    for make in makers {
        let mut r = receiver();
        let number = make(&mut r);
        let made = for_srq(r.b.packet(Operation::SendOnly, 200).ack(), number);
        assert_eq!(r.b.answer(made), nak);
        assert!(r.b.events().contains(&AsyncEvent::QpReqErr(r.b.qp)));
        assert_eq!(r.b.state(), QpState::Err);
    }
    // A message for two.
    let mut r = receiver();
    r.recv(0, 1);
    let made = r.request(0, Operation::SendFirst, 200).data(MTU);
    r.b.inject(made);
    let made = r.request(1, Operation::SendLast, 201).data(1).ack();
    assert_eq!(r.b.answer(made), ["Acknowledge 201 nak(InvalidRequest) msn=0"]);
    // What it held is flushed to the queue that it came from.
    assert_eq!(r.completions(0), ["1 WrFlushErr"]);
}

#[test]
fn only_a_sender_of_this_kind_is_listened_to() {
    let mut r = receiver();
    let mut made = r.request(0, Operation::SendOnly, 200).ack();
    made.0.bth.opcode = Opcode::new(Service::Rc, Operation::SendOnly);
    made.0.ext.xrc_srq = None;
    assert!(r.b.answer(made).is_empty());
    let made = r.b.acknowledge(100, 0);
    assert!(r.b.answer(made).is_empty(), "it has asked for nothing");
    assert_eq!(r.b.counter("rx_wrong_opcode"), 2);
}

#[test]
fn a_domain_lasts_as_long_as_what_is_in_it() {
    let mut r = receiver();
    let (xrcd, qp) = (r.xrcd, r.b.qp);
    let device = &mut r.b.host.device;
    let busy = |result: engine::Result<()>| result.expect_err("in use").kind();
    assert_eq!(busy(device.close_xrcd(xrcd)), ErrorKind::Busy);
    // Opened twice more, it goes with the third end.
    device.open_xrc_receiver(xrcd, qp).expect("it is there");
    device.open_xrc_receiver(xrcd, qp).expect("it is there");
    let elsewhere = device.open_xrcd().expect("an XRC domain");
    assert_eq!(busy(device.open_xrc_receiver(elsewhere, qp)), ErrorKind::NotFound);
    for _ in 0..3 {
        device.query_qp(qp).expect("it is still there");
        device.destroy_qp(qp).expect("an end");
    }
    device.query_qp(qp).expect_err("gone");
    assert_eq!(busy(device.destroy_cq(r.cqs[0])), ErrorKind::Busy);
    for srq in r.srqs {
        device.destroy_srq(srq).expect("nobody uses it");
    }
    device.destroy_cq(r.cqs[0]).expect("nobody uses it");
    device.close_xrcd(xrcd).expect("empty");
    assert_eq!(busy(device.close_xrcd(xrcd)), ErrorKind::NotFound);
    assert_eq!(busy(device.create_xrc_receiver(xrcd).map(drop)), ErrorKind::NotFound);
}
