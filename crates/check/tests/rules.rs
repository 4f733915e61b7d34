//! The checker without a NIC: calls in, findings out.

use std::cell::RefCell;

use check::{
    Call, Caps, Checker, Cq, Done, Finding, Handle, Memory, Mr, Object, Operation, Piece, Qp,
    ReceiveWork, Rule, SendWork, Service, Site, Srq, Status,
};

const CONTEXT: Handle = Handle(1);
const PD: Handle = Handle(2);
const CQ: Handle = Handle(3);
const QP: Handle = Handle(4);
const SRQ: Handle = Handle(5);
const MR: Handle = Handle(6);
const LKEY: u32 = 77;
const BASE: u64 = 0x10_0000;
const SIZE: u64 = 0x10_0000;

struct Bytes(RefCell<Vec<u8>>);

impl Memory for Bytes {
    fn read(&self, addr: u64, out: &mut [u8]) -> bool {
        let bytes = self.0.borrow();
        let start = addr.wrapping_sub(BASE) as usize;
        let Some(found) = bytes.get(start..start.saturating_add(out.len())) else { return false };
        out.copy_from_slice(found);
        true
    }
}

struct World {
    checker: Checker,
    memory: Bytes,
}

fn call(name: &'static str) -> Call {
    Call { name, site: Site(1) }
}

fn done(wr_id: u64, status: Status, receive: bool) -> Done {
    Done { wr_id, qp: 9, status, receive }
}

impl World {
    fn new(strict: bool) -> Self {
        Self::with(strict, 1000, None)
    }

    fn with(strict: bool, cq_depth: u32, srq: Option<Handle>) -> Self {
        let mut checker = Checker::new(strict);
        let caps = Caps { sends: 4, receives: 8, send_pieces: 2, receive_pieces: 2, inline: 16 };
        let qp = Qp {
            context: CONTEXT,
            number: 9,
            pd: PD,
            send_cq: CQ,
            receive_cq: CQ,
            srq,
            service: Service::Rc,
            caps,
            signal_all: false,
        };
        let cq = Cq { context: CONTEXT, number: 0, depth: cq_depth, channel: None };
        let shared = Srq { context: CONTEXT, number: 0, pd: PD, depth: 8, pieces: 2 };
        let mr = Mr {
            context: CONTEXT,
            pd: PD,
            addr: BASE,
            length: SIZE,
            iova: 0,
            lkey: LKEY,
            local_write: true,
        };
        for (handle, object) in [
            (CONTEXT, Object::Context),
            (PD, Object::Pd(0)),
            (CQ, Object::Cq(cq)),
            (SRQ, Object::Srq(shared)),
            (MR, Object::Mr(mr)),
            (QP, Object::Qp(qp)),
        ] {
            checker.created(call("create"), handle, object);
        }
        let mut world = Self { checker, memory: Bytes(RefCell::new(vec![0; SIZE as usize])) };
        world.state(3);
        world
    }

    fn state(&mut self, to: u32) {
        let address = check::Address { is_global: true, sgid_index: 0, dgid: [1; 16] };
        let asked = check::Move { mask: check::attribute::STATE, to, address, path_mtu: 0 };
        let port = check::Port { gids: Vec::new(), active_mtu: 5 };
        self.checker.moved(call("ibv_modify_qp"), QP, &asked, &port, 0);
    }

    fn send(&mut self, wr_id: u64, signaled: bool, operation: Operation, at: u64, length: u32) {
        let work = SendWork {
            wr_id,
            operation,
            signaled,
            inline: false,
            addressed: false,
            pieces: vec![Piece { addr: at, length, lkey: LKEY }],
            inline_length: 0,
        };
        let pending = self.checker.sending(call("ibv_post_send"), QP, &[work], &self.memory);
        self.checker.posted(pending, 1, 0);
    }

    fn receive(&mut self, queue: Handle, wr_id: u64, at: u64, length: u32) {
        let pieces = vec![Piece { addr: at, length, lkey: LKEY }];
        let work = ReceiveWork { wr_id, pieces };
        let pending = self.checker.receiving(call("ibv_post_recv"), queue, &[work]);
        self.checker.posted(pending, 1, 0);
    }

    fn poll(&mut self, list: &[Done]) {
        self.checker.polled(call("ibv_poll_cq"), CQ, list, &self.memory);
    }

    fn touch(&self, at: u64) {
        self.memory.0.borrow_mut()[at as usize] ^= 1;
    }

    fn found(&mut self) -> Vec<(Rule, Option<u64>)> {
        let findings: Vec<Finding> = self.checker.findings();
        findings.iter().map(|finding| (finding.rule, finding.wr_id)).collect()
    }
}

#[test]
fn a_completion_ends_the_unsignaled_requests_before_it() {
    let mut world = World::new(false);
    world.send(1, false, Operation::Send, 0, 8);
    world.send(2, false, Operation::Write, 100, 8);
    world.send(3, true, Operation::Send, 200, 8);
    world.send(4, true, Operation::Send, 300, 8);
    world.touch(100);
    world.touch(300);
    world.poll(&[done(3, Status::Success, false)]);
    assert_eq!(world.found(), [(Rule::BufferChanged, Some(2))]);
    world.touch(0);
    world.touch(200);
    world.poll(&[done(4, Status::Success, false)]);
    assert_eq!(world.found(), [(Rule::BufferChanged, Some(4))]);
}

#[test]
fn two_threads_may_tell_of_completions_in_the_wrong_order() {
    let mut world = World::new(false);
    world.send(1, true, Operation::Send, 0, 8);
    world.send(2, true, Operation::Send, 100, 8);
    world.poll(&[done(2, Status::Success, false)]);
    world.poll(&[done(1, Status::Success, false)]);
    world.touch(0);
    world.send(3, true, Operation::Send, 0, 8);
    world.poll(&[done(3, Status::Success, false)]);
    assert_eq!(world.found(), []);
}

#[test]
fn what_failed_is_not_compared_and_may_lose_its_region() {
    let mut world = World::new(false);
    world.send(1, true, Operation::Send, 0, 8);
    world.receive(QP, 2, 100, 8);
    world.touch(0);
    world.poll(&[done(1, Status::Failed, false)]);
    world.checker.region_ending(call("ibv_dereg_mr"), MR);
    assert_eq!(world.found(), []);
}

#[test]
fn a_failed_completion_does_not_say_what_it_was() {
    let mut world = World::with(false, 2, None);
    world.receive(QP, 1, 0, 8);
    world.send(2, true, Operation::Send, 100, 8);
    // The receive fails: its place is free again, and that of the send is not.
    world.poll(&[done(1, Status::Failed, false)]);
    world.receive(QP, 3, 0, 8);
    assert_eq!(world.found(), []);
    world.receive(QP, 4, 200, 8);
    assert_eq!(world.found(), [(Rule::CqOverflow, Some(4))]);
}

#[test]
fn a_reset_takes_requests_back() {
    let mut world = World::with(false, 2, None);
    for round in 0..3 {
        world.receive(QP, round, 0, 64);
        world.send(round, true, Operation::Read, 100, 8);
        world.state(0);
        world.state(3);
    }
    assert_eq!(world.found(), []);
    world.checker.region_ending(call("ibv_dereg_mr"), MR);
    assert_eq!(world.found(), []);
}

#[test]
fn receives_of_a_shared_queue_end_in_any_order() {
    let mut world = World::with(false, 1, Some(SRQ));
    for i in 0..4 {
        world.receive(SRQ, i, i * 64, 64);
    }
    for i in [2, 0, 3, 1] {
        world.poll(&[done(i, Status::Success, true)]);
        world.receive(SRQ, 10 + i, i * 64 + 1, 63);
    }
    assert_eq!(world.found(), []);
    world.checker.region_ending(call("ibv_dereg_mr"), MR);
    assert_eq!(world.found(), [(Rule::MrInUse, Some(12))]);
}

#[test]
fn a_send_queue_of_unsignaled_requests_does_not_grow() {
    let mut world = World::new(false);
    for i in 0..100 {
        world.send(i, false, Operation::Send, 0, 8);
    }
    // Each time that the queue would be full; five of them are told.
    let found = world.found();
    assert_eq!(found.first(), Some(&(Rule::Unsignaled, Some(4))));
    assert_eq!(found.len(), 5);
    assert_eq!(world.checker.counts().collect::<Vec<_>>(), [(Rule::Unsignaled, 24)]);
}

#[test]
fn of_a_refused_list_only_what_was_looked_at_counts() {
    let mut world = World::new(false);
    let work = |wr_id, lkey| SendWork {
        wr_id,
        operation: Operation::Send,
        signaled: true,
        inline: false,
        addressed: false,
        pieces: vec![Piece { addr: 0, length: 8, lkey }],
        inline_length: 0,
    };
    let list = [work(1, LKEY), work(2, 5), work(3, 6)];
    let pending = world.checker.sending(call("ibv_post_send"), QP, &list, &world.memory);
    // The queue was full at the second: whether that is right is not known yet.
    world.checker.posted(pending, 1, 12);
    assert_eq!(world.found(), [(Rule::UnknownLkey, Some(2))]);
    world.poll(&[done(1, Status::Success, false)]);
    assert_eq!(world.checker.watched().sends, 1);
}

#[test]
fn the_end_of_a_region_and_of_the_numbers() {
    let mut world = World::new(false);
    world.send(1, true, Operation::Send, SIZE - 8, 8);
    world.send(2, true, Operation::Send, SIZE - 7, 8);
    world.send(3, true, Operation::Send, u64::MAX, 8);
    world.send(4, true, Operation::Send, SIZE, 0);
    assert_eq!(world.found(), [(Rule::OutsideMr, Some(2)), (Rule::OutsideMr, Some(3))]);
}

#[test]
fn memory_that_has_gone_is_a_change() {
    let mut world = World::new(false);
    world.send(1, true, Operation::Send, 0, 8);
    world.memory.0.borrow_mut().clear();
    world.poll(&[done(1, Status::Success, false)]);
    assert_eq!(world.found(), [(Rule::BufferChanged, Some(1))]);
}

#[test]
fn completions_of_strangers_are_nothing() {
    let mut world = World::new(false);
    let stranger = Done { qp: 10, ..done(1, Status::Success, false) };
    world.poll(&[stranger, done(5, Status::Success, false), done(6, Status::Success, true)]);
    world.checker.polled(call("ibv_poll_cq"), Handle(99), &[stranger], &world.memory);
    assert_eq!(world.found(), []);
}

#[test]
fn strict_rules_only_when_asked_for() {
    for strict in [false, true] {
        let mut world = World::new(strict);
        world.receive(QP, 1, 0, 64);
        world.receive(QP, 2, 0, 64);
        world.send(3, true, Operation::Send, 32, 8);
        let expected: &[_] = match strict {
            true => &[(Rule::SharedBuffer, Some(2)), (Rule::SharedBuffer, Some(3))],
            false => &[],
        };
        assert_eq!(world.found(), expected);
        // What is done with is shared no more.
        world.poll(&[done(1, Status::Success, true), done(2, Status::Success, true)]);
        world.poll(&[done(3, Status::Success, false)]);
        world.send(4, true, Operation::Read, 0, 64);
        assert_eq!(world.found(), []);
    }
}

#[test]
fn arms_events_and_sleep() {
    const CHANNEL: Handle = Handle(20);
    const ARMED: Handle = Handle(21);
    let mut world = World::new(false);
    let checker = &mut world.checker;
    checker.created(call("create"), CHANNEL, Object::Channel(7));
    assert!(!checker.would_sleep(CHANNEL), "no queue leads there yet");
    let cq = Cq { context: CONTEXT, number: 1, depth: 8, channel: Some(CHANNEL) };
    checker.created(call("create"), ARMED, Object::Cq(cq));
    assert!(checker.would_sleep(CHANNEL));
    // Armed again before the first event was taken: one more may come.
    checker.armed(ARMED);
    checker.armed(ARMED);
    checker.event_taken(call("ibv_get_cq_event"), ARMED);
    assert!(!checker.would_sleep(CHANNEL));
    checker.event_taken(call("ibv_get_cq_event"), ARMED);
    assert!(checker.would_sleep(CHANNEL));
    checker.events_acknowledged(ARMED, 1);
    assert!(checker.would_wait(ARMED));
    checker.events_acknowledged(ARMED, 7);
    assert!(!checker.would_wait(ARMED));
    checker.async_event_taken(call("ibv_get_async_event"), QP);
    assert!(checker.would_wait(QP));
    checker.async_event_acknowledged(QP);
    assert!(!checker.would_wait(QP));
}

#[test]
fn handles_live_and_die() {
    let mut world = World::new(false);
    let checker = &mut world.checker;
    checker.destroyed(call("ibv_destroy_qp"), QP);
    assert!(checker.dead(call("ibv_destroy_qp"), QP, check::Kind::Qp));
    assert!(!checker.dead(call("ibv_destroy_cq"), QP, check::Kind::Cq), "of another kind");
    assert!(!checker.dead(call("ibv_destroy_qp"), Handle(1234), check::Kind::Qp), "never was");
    checker.created(call("create"), QP, Object::Ah);
    assert!(!checker.dead(call("ibv_destroy_qp"), QP, check::Kind::Qp), "an address anew");
    assert_eq!(checker.alive(), 6);
    assert_eq!(checker.exit(call("exit")), 6);
    let found = world.found();
    assert_eq!(found.iter().filter(|(rule, _)| *rule == Rule::Leak).count(), 6);
}
