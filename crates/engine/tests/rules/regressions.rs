//! Faults that were found once and must not come back, each as the exchange of packets that showed
//! it: device-wide ones here, those of one side of a connection in `requester` and `responder`.

mod requester;
mod responder;

use engine::{
    Access, AsyncEvent, LinkState, Moderation, QpState, SendData, SendFlags, SendOp, SendRequest,
    Sge,
};
use wire::{Operation, Qpn, Span};

use crate::pair::bench::{Bench, LOCAL, REGION, THERE};
use crate::pair::{inspect, setup};

/// The peer's second queue pair.
const SECOND: Qpn = Qpn::new(0x5555);
/// READ response packets of 1024 bytes for which a receive buffer of 100 000 bytes has room.
const READ_ROOM: u32 = 37;

/// Posts a signaled request on a queue pair that is not the bench's own.
fn post_on(b: &mut Bench, qp: Qpn, op: SendOp, length: u32) {
    let sges = [Sge { addr: LOCAL, length, lkey: b.region.lkey }];
    let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(&sges));
    let wr = SendRequest { wr_id: 9, op, flags, data, datagram: None };
    b.host.device.post_send(b.now, qp, &wr).expect("a good request");
}

/// Time passes; what was sent meanwhile to one of the peer's queue pairs.
fn after_to(b: &mut Bench, span: Span, to: Qpn) -> Vec<String> {
    b.log.clear();
    b.advance(span);
    let to_it = b.log.iter().filter(|(_, packet)| packet.bth.dest_qp == to);
    to_it.map(|(_, packet)| inspect::line(packet)).collect()
}

/// A bench with room for [`READ_ROOM`] packets, and a second queue pair to another host that has
/// asked for as many of them.
fn read_room_taken(packets: u32) -> (Bench, Qpn) {
    let mut b = Bench::with(|o| o.config.receive_buffer = 100_000);
    let second = b.another(SECOND, |_, attr| attr.av = setup::av(setup::gid(8), 0));
    post_on(&mut b, second, SendOp::Read(THERE), packets * 1024);
    let length = packets.min(READ_ROOM) * 1024;
    assert_eq!(b.lines(), [format!("ReadRequest 100 A va=0xaa0000 len={length}")]);
    (b, second)
}

#[test]
fn a_read_without_room_goes_after_its_patience() {
    let (mut b, _) = read_room_taken(2 * READ_ROOM);
    b.post(1, SendOp::Read(THERE), 4096);
    assert_eq!(b.lines(), [""; 0], "no room");
    let (waited, lines) = b.until_sent(Span::from_ms(100));
    assert_eq!(waited, engine::limits::WINDOW_PATIENCE);
    assert_eq!(lines, ["ReadRequest 100 A va=0xaa0000 len=1024"], "one packet beyond the room");
}

#[test]
fn a_read_takes_room_that_a_destroyed_queue_pair_held() {
    let (mut b, second) = read_room_taken(2 * READ_ROOM);
    b.post(1, SendOp::Read(THERE), 4096);
    assert_eq!(b.lines(), [""; 0], "no room");
    b.host.device.destroy_qp(second).expect("a queue pair");
    let now = b.now;
    assert_eq!(b.host.device.poll_timeout(now), Some(now), "the driver is told at once");
    assert_eq!(b.lines(), ["ReadRequest 100 A va=0xaa0000 len=4096"]);
}

#[test]
fn reads_from_one_peer_do_not_count_against_the_window_of_another() {
    let mut b = Bench::with(|o| {
        o.config.receive_buffer = 100_000;
        o.attr.timeout = 8; // 1.05 ms
    });
    b.post(1, SendOp::Send, 10);
    assert_eq!(b.after(Span::from_us(1_100)), ["SendOnly 100 A 10B"; 2], "timeout: least window");
    let ack = b.acknowledge(100, 1);
    b.inject(ack);
    let second = b.another(SECOND, |_, attr| attr.av = setup::av(setup::gid(8), 0));
    post_on(&mut b, second, SendOp::Read(THERE), 32 * 1024);
    assert_eq!(b.lines(), ["ReadRequest 100 A va=0xaa0000 len=32768"]);
    b.post(2, SendOp::Read(THERE), 4096);
    assert_eq!(b.lines(), ["ReadRequest 101 A va=0xaa0000 len=4096"]);
}

#[test]
fn an_overrun_while_sending_fails_the_other_users_of_the_queue_at_once() {
    let mut b = Bench::with(|o| o.cqe = 2);
    let second = b.another(SECOND, |_, _| {});
    for i in 0..4 {
        b.recv(i, 64);
    }
    let keys = b.host.register(b.pd, REGION, 4096, setup::REMOTE | Access::LOCAL_WRITE);
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 100).rkey(keys.rkey).ack();
    b.inject(read);
    b.host.device.dereg_mr(keys.id).expect("a region");
    let (now, mut lines) = (b.now, Vec::new());
    assert!(b.host.drain_one(now, |packet| lines.push(inspect::line(&packet))));
    assert_eq!(lines, ["Acknowledge 200 nak(RemoteAccessError) msn=1"]);
    let expected =
        [AsyncEvent::CqErr(b.recv_cq), AsyncEvent::QpAccessErr(b.qp), AsyncEvent::QpFatal(second)];
    assert_eq!(b.events(), expected);
    assert_eq!(b.host.device.query_qp(second).expect("a queue pair").0.state, QpState::Err);
}

#[test]
fn an_overrun_raises_cq_err_once() {
    let mut b = Bench::with(|o| o.cqe = 2);
    (0..6).for_each(|i| b.post(i, SendOp::Send, 1));
    b.lines();
    let ack = b.acknowledge(105, 6);
    b.inject(ack);
    assert_eq!(b.events(), [AsyncEvent::CqErr(b.send_cq), AsyncEvent::QpFatal(b.qp)]);
    assert_eq!(b.state(), QpState::Err);
    b.post(7, SendOp::Send, 1);
    assert_eq!(b.events(), [], "the flush of a later one is lost too, that is known");
    assert_eq!(b.sends(), ["0 Send 1B", "1 Send 1B"]);
}

/// A bench that owes an acknowledgement which waits for company.
fn owing() -> Bench {
    let mut b = Bench::with(|o| o.config.ack_delay = Span::from_us(20));
    let write = b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8).ack();
    assert_eq!(b.answer(write), [""; 0], "it waits for company");
    b
}

#[test]
fn a_link_that_is_down_holds_last_words_and_wants_no_polling() {
    let mut b = owing();
    b.advance(Span::from_us(5));
    b.host.device.destroy_qp(b.qp).expect("a queue pair");
    b.host.device.handle_link(LinkState::Down);
    assert_eq!(b.after(Span::from_ms(10)), [""; 0], "and the timers come to an end");
    assert_eq!(b.host.device.poll_timeout(b.now), None);
    b.host.device.handle_link(LinkState::Up);
    assert_eq!(b.host.device.poll_timeout(b.now), Some(b.now));
    assert_eq!(b.lines(), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.after(Span::from_ms(10)), ["Acknowledge 200 ack msn=1"; 3]);
    assert_eq!(b.host.device.poll_timeout(b.now), None);
}

#[test]
fn a_queue_pair_destroyed_while_the_link_is_down_has_its_last_words_if_it_comes_up_soon() {
    for (down, words) in [(290, 3), (310, 0)] {
        let mut b = owing();
        b.host.device.handle_link(LinkState::Down);
        b.host.device.destroy_qp(b.qp).expect("a queue pair");
        assert_eq!(b.after(Span::from_ms(down)), [""; 0]);
        b.host.device.handle_link(LinkState::Up);
        assert_eq!(b.after(Span::from_ms(10)), vec!["Acknowledge 200 ack msn=1"; words]);
        assert_eq!(b.host.device.poll_timeout(b.now), None);
    }
}

#[test]
fn flush_and_atomic_write_are_dropped_and_counted() {
    let mut b = Bench::rc();
    for (count, operation) in [(1, Operation::AtomicWrite), (2, Operation::Flush)] {
        let foreign = b.rdma(operation, 200, REGION, 8).data(8).ack();
        assert_eq!(b.answer(foreign), [""; 0]);
        assert_eq!(b.counter("rx_wrong_opcode"), count);
    }
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    let write = b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8).ack();
    assert_eq!(b.answer(write), ["Acknowledge 200 ack msn=1"], "the PSN has not been taken");
}

/// Rounds in which short deadlines stand before a long one.
const ROUNDS: u32 = 2_000;
/// Wake-ups that one queue pair may leave behind.
const STALE: usize = 80;

/// Lets all wake-ups pass; how many there were.
fn wakes_left(b: &mut Bench) -> usize {
    let mut wakes = 0;
    while let Some(at) = b.host.device.poll_timeout(b.now) {
        b.now = if b.now.is_before(at) { at } else { b.now };
        b.host.device.handle_timeout(b.now);
        assert_eq!(b.lines(), [""; 0], "nothing is left to send");
        wakes += 1;
        assert!(wakes <= 4 * ROUNDS as usize, "wake-ups without end");
    }
    wakes
}

/// An armed queue whose events are moderated, and which is armed again and again before the period
/// ends, is woken for the last arm alone.
#[test]
fn arming_again_and_again_leaves_no_copies_of_the_period_behind() {
    let mut b = Bench::rc();
    let moderation = Moderation { count: 100, period: Span::from_ms(10_000) };
    b.host.device.modify_cq(b.recv_cq, moderation).expect("a queue");
    for n in 0..ROUNDS {
        b.recv(0, 64);
        b.host.cqs[&b.recv_cq].req_notify(false);
        let send = b.packet(Operation::SendOnly, 200 + n).data(8);
        b.inject(send);
        assert_eq!(b.receives().len(), 1);
        b.advance(Span::from_us(1));
    }
    let stale = wakes_left(&mut b);
    assert!(stale <= STALE, "{stale} wake-ups of one completion queue");
    assert!(b.host.ready.contains(&b.recv_cq), "the event of the last arm");
}

/// One request is outstanding all the time, with an ACK timeout of 4.3 s, while acknowledgements of
/// the responder wait, now in vain, now for company; `pause` passes in each round.
fn stale_wakes(probe: Option<Span>, pause: Span) -> usize {
    let mut b = Bench::with(|o| {
        o.config.ack_delay = Span::from_us(20);
        o.attr.timeout = 20;
    });
    b.host.device.set_probe(probe);
    b.post(0, SendOp::Send, 8);
    b.lines();
    let acks = |lines: &[String]| lines.iter().filter(|l| l.starts_with("Acknowledge")).count();
    for n in 0..ROUNDS {
        let write = b.rdma(Operation::WriteOnly, 200 + 2 * n, REGION, 8).data(8).ack();
        b.inject(write);
        assert_eq!(acks(&b.after(Span::from_us(20))), 1, "in vain");
        b.advance(pause);
        b.post(0, SendOp::Send, 8);
        let write = b.rdma(Operation::WriteOnly, 201 + 2 * n, REGION, 8).data(8).ack();
        assert_eq!(acks(&b.answer(write)), 1, "in company");
        let ack = b.acknowledge(100 + n, n + 1);
        b.inject(ack);
        assert_eq!(b.sends(), ["0 Send 8B"]);
        b.lines();
    }
    let ack = b.acknowledge(100 + ROUNDS, ROUNDS + 1);
    b.inject(ack);
    b.lines();
    wakes_left(&mut b)
}

#[test]
fn short_deadlines_leave_no_copies_of_a_long_one_behind() {
    let stale = stale_wakes(None, Span::ZERO);
    assert!(stale <= STALE, "{stale} wake-ups of one queue pair");
}

#[test]
fn deadlines_of_three_lengths_leave_no_copies_behind() {
    let stale = stale_wakes(Some(Span::from_us(500)), Span::from_ms(8));
    assert!(stale <= STALE, "{stale} wake-ups of one queue pair");
}
