//! Counters: those of a queue pair beside the device's, ordinary traffic by class, drops by cause,
//! and what is told of queue pairs.

use engine::{QpReport, QpState, QpType, SendOp};
use wire::{NakCode, Operation, Psn, Qpn, Span, Syndrome};

use crate::pair::bench::{Bench, PEER_QP, REGION, THERE};
use crate::pair::counting;
use crate::pair::setup;

/// Whatever came to the only queue pair of the bench: `offered` payload bytes in all.
#[track_caller]
pub(crate) fn adds_up(b: &Bench, offered: u64) {
    counting::adds_up(&b.host.device, "the bench");
    assert_eq!(b.counter("rx_bytes") + b.counter("rx_dropped_bytes"), offered, "bytes received");
}

fn report(b: &Bench) -> QpReport {
    b.host.device.report_qp(b.qp).expect("a queue pair")
}

/// The counters of the queue pair that are not zero.
fn counted(b: &Bench) -> Vec<(&'static str, u64)> {
    report(b).counters.iter().filter(|(_, value)| *value > 0).collect()
}

#[test]
fn messages_packets_and_bytes_by_class() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 3000);
    b.post(2, SendOp::Send, 100);
    b.post(3, SendOp::Read(THERE), 2000);
    b.post(4, SendOp::FetchAdd { remote: THERE, add: 1 }, 8);
    b.lines();
    let expected = [
        ("tx_packets", 6),
        ("tx_bytes", 3100),
        ("tx_send_requests", 1),
        ("tx_write_requests", 1),
        ("tx_read_requests", 1),
        ("tx_atomic_requests", 1),
    ];
    assert_eq!(counted(&b), expected);
    for (name, value) in expected {
        assert_eq!(b.counter(name), value, "{name}");
    }
    for (name, value) in [
        ("tx_write_packets", 3),
        ("tx_write_bytes", 3000),
        ("tx_send_packets", 1),
        ("tx_send_bytes", 100),
        ("tx_read_packets", 1),
        ("tx_atomic_packets", 1),
        ("tx_ack_packets", 0),
    ] {
        assert_eq!(b.counter(name), value, "{name}");
    }
    let qp = report(&b);
    assert_eq!((qp.send_queue, qp.in_flight), ((4, b.init.cap.max_send_wr), 7));
    assert_eq!((qp.unacknowledged, qp.next), (Psn::new(100), Psn::new(107)));
    b.inject(b.acknowledge(103, 2));
    b.inject(b.packet(Operation::ReadResponseFirst, 104).data(1024).aeth(Syndrome::Ack(31), 3));
    b.inject(b.packet(Operation::ReadResponseLast, 105).data(976).aeth(Syndrome::Ack(31), 3));
    b.inject(b.packet(Operation::AtomicAcknowledge, 106).aeth(Syndrome::Ack(31), 4).original(3));
    let qp = report(&b);
    assert_eq!((qp.send_queue.0, qp.in_flight), (0, 0));
    let traffic = qp.counters.traffic;
    assert_eq!((traffic.rx_packets, traffic.rx_bytes), (4, 2000));
    assert_eq!(b.counter("rx_read_response_bytes"), 2000);
    assert_eq!(b.counter("rx_ack_packets"), 1);
    assert_eq!(b.counter("rx_atomic_response_packets"), 1);
    adds_up(&b, 2000);
}

#[test]
fn what_a_responder_executes_answers_and_refuses() {
    let mut b = Bench::rc();
    b.recv(1, 4096);
    b.inject(b.packet(Operation::SendOnly, 200).data(40));
    b.inject(b.rdma(Operation::WriteOnly, 201, REGION, 8).data(8).ack());
    b.inject(b.rdma(Operation::ReadRequest, 202, REGION, 1500).ack());
    b.inject(b.rdma(Operation::WriteOnly, 204, REGION, 8).data(8).ack());
    b.inject(b.rdma(Operation::WriteOnly, 205, REGION, 8).data(8).ack());
    b.lines();
    b.inject(b.rdma(Operation::WriteOnly, 205, REGION, 8).data(8).ack());
    b.lines();
    b.inject(b.packet(Operation::SendOnly, 206).data(40));
    b.lines();
    b.inject(b.rdma(Operation::WriteOnly, 209, REGION, 8).data(8).ack());
    b.lines();
    let expected = [
        ("rx_packets", 8),
        ("rx_bytes", 64),
        ("tx_packets", 5),
        ("tx_bytes", 1500),
        ("rx_send_requests", 1),
        ("rx_write_requests", 3),
        ("rx_read_requests", 1),
        ("tx_acks", 2),
        ("acks_coalesced", 1),
        ("tx_rnr_naks", 1),
        ("out_of_sequence", 1),
        ("duplicate_request", 1),
        ("rx_after_nak", 1),
        ("rx_beyond_expected", 1),
        ("out_of_buffer", 1),
    ];
    assert_eq!(counted(&b), expected);
    for (name, value) in expected {
        assert_eq!(b.counter(name), value, "{name}");
    }
    assert_eq!(b.counter("tx_read_response_bytes"), 1500);
    let qp = report(&b);
    assert_eq!((qp.expected, qp.recv_queue.0), (Psn::new(206), 0));
    assert_eq!(qp.path, Some((setup::gid(0), b.peer)));
    assert_eq!((qp.dest_qp, qp.state, qp.qp_type), (Some(PEER_QP), QpState::Rts, QpType::Rc));
    adds_up(&b, 40 + 8 * 5 + 40);
}

#[test]
fn naks_by_code_both_ways() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 2000);
    b.lines();
    b.inject(b.nak(100, NakCode::PsnSequenceError));
    b.inject(b.packet(Operation::Acknowledge, 100).aeth(Syndrome::RnrNak(1), 0));
    b.inject(b.nak(100, NakCode::RemoteAccessError));
    b.inject(b.rdma(Operation::WriteOnly, 200, REGION - 8, 8).data(8).ack());
    let c = report(&b).counters.exceptions;
    assert_eq!((c.packet_seq_err, c.req_remote_access_errors), (1, 1));
    assert_eq!((c.req_cqe_error, c.req_cqe_flush_error), (1, 0));
    assert_eq!(c.rx_wrong_state, 1, "the queue pair is in error");
    adds_up(&b, 8);

    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::WriteOnly, 201, REGION, 8).data(8).ack());
    b.lines();
    b.inject(b.rdma(Operation::WriteOnly, 200, REGION - 8, 8).data(8).ack());
    b.lines();
    let c = report(&b).counters.exceptions;
    assert_eq!((c.tx_seq_naks, c.tx_access_naks, c.resp_remote_access_errors), (1, 1, 1));
    adds_up(&b, 16);
}

#[test]
fn retransmission_is_counted_with_its_cause() {
    let mut b = Bench::with(|o| o.attr.timeout = 14);
    b.post(1, SendOp::Write(THERE), 3000);
    b.lines();
    b.inject(b.nak(101, NakCode::PsnSequenceError));
    b.lines();
    let c = report(&b).counters.exceptions;
    assert_eq!((c.retransmitted_packets, c.retransmitted_bytes), (2, 1976));
    b.advance(Span::from_ms(400));
    let c = report(&b).counters.exceptions;
    assert!(c.local_ack_timeout_err >= 1, "{c:?}");
    assert_eq!(c.retransmitted_packets, b.counter("retransmitted_packets"));
    assert_eq!(c.retransmitted_bytes, b.counter("retransmitted_bytes"));
    let sent = report(&b).counters.traffic;
    assert_eq!(sent.tx_bytes - c.retransmitted_bytes, 3000, "what is new, without what is again");
}

#[test]
fn queue_pairs_come_a_few_at_a_time_and_start_from_zero() {
    let mut b = Bench::rc();
    let mut made: Vec<Qpn> = (0..7).map(|_| b.another(PEER_QP, |_, _| {})).collect();
    made.push(b.qp);
    made.sort();
    let mut seen: Vec<Qpn> = counting::reports(&b.host.device).iter().map(|r| r.qpn).collect();
    seen.sort();
    assert_eq!(seen, made);
    assert_eq!(b.host.device.report_qps(u32::MAX, u32::MAX, &mut Vec::new()), None);
    // The place of one that has gone is used again, its counters are not.
    b.post(1, SendOp::Write(THERE), 100);
    b.lines();
    assert!(!counted(&b).is_empty());
    b.host.device.destroy_qp(b.qp).expect("it is there");
    assert!(b.host.device.report_qp(b.qp).is_err());
    let next = b.another(PEER_QP, |_, _| {});
    let fresh = b.host.device.report_qp(next).expect("a queue pair");
    assert_eq!(fresh.counters, Default::default());
}

#[test]
fn counters_survive_a_reset() {
    let mut b = Bench::rc();
    b.post(1, SendOp::Write(THERE), 100);
    b.lines();
    b.modify(QpState::Reset);
    assert_eq!(report(&b).counters.traffic.tx_bytes, 100);
    assert_eq!((report(&b).path, report(&b).dest_qp), (None, None));
}

#[test]
fn names_are_unique_and_described() {
    let tables = [
        engine::Counters::INFO,
        engine::counters::QpTraffic::INFO,
        engine::counters::QpExceptions::INFO,
    ];
    for table in tables {
        for (i, info) in table.iter().enumerate() {
            assert!(info.help.trim().ends_with('.'), "{}: {:?}", info.name, info.help);
            assert!(table[..i].iter().all(|other| other.name != info.name), "{}", info.name);
        }
    }
    // One name means one thing.
    for info in tables[1].iter().chain(tables[2]) {
        assert!(tables[0].iter().any(|other| other.name == info.name), "{}", info.name);
    }
}
