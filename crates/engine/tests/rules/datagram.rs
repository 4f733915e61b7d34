//! UD and GSI: the GRH area, Q_Keys, multicast, what is dropped and counted.

use engine::{
    AsyncEvent, Completion, Datagram, PostError, QpState, QpType, RecvRequest, SendData, SendFlags,
    SendOp, SendRequest, Sge,
};
use wire::{Gid, Operation, QKey, Qpn};

use crate::pair::bench::{BUFFERS, Bench, LOCAL, PEER_QP, pattern};
use crate::pair::setup::{self, QKEY};

/// Where a datagram to the hand-made peer goes.
pub(crate) fn to_peer(gid: Gid) -> Datagram {
    Datagram { av: setup::av(gid, 0), dest_qp: PEER_QP, qkey: QKEY }
}

/// Posts a datagram of `length` bytes.
pub(crate) fn post(
    b: &mut Bench,
    wr_id: u64,
    op: SendOp,
    length: u32,
    to: Datagram,
) -> Result<(), PostError> {
    let sges = [Sge { addr: LOCAL, length, lkey: b.region.lkey }];
    let data = SendData::Sges(&sges);
    let flags = SendFlags::SIGNALED;
    b.post_raw(&SendRequest { wr_id, op, flags, data, datagram: Some(to) })
}

fn completions(b: &mut Bench) -> Vec<Completion> {
    let cq = b.recv_cq;
    b.host.poll_all(cq)
}

#[test]
fn a_datagram_arrives_behind_the_ipv4_header() {
    let mut b = Bench::of(QpType::Ud);
    let at = b.recv(1, 140);
    let mut made = b.packet(Operation::SendOnlyImm, 0xABC).imm(7).data(100).solicited();
    made.0.path.traffic_class = 0x20;
    made.0.path.priority = 3;
    assert!(b.answer(made).is_empty(), "a datagram is not answered");
    let entry = completions(&mut b).pop().expect("a completion");
    assert_eq!((entry.wr_id, entry.byte_len, entry.grh, entry.src_qp), (1, 140, true, PEER_QP));
    assert_eq!(entry.data, engine::WcData::Imm([0, 0, 0, 7]));
    assert!(entry.solicited);
    assert_eq!(entry.sl, 3);
    let area = b.bytes(at, 40);
    assert_eq!(area[..20], [0; 20]);
    // IPv4: 20 + UDP 8 + BTH 12 + DETH 8 + immediate 4 + 100 + ICRC 4.
    assert_eq!(area[20..24], [0x45, 0x20, 0, 156]);
    assert_eq!(area[32..], [10, 0, 0, 10, 10, 0, 0, 1]);
    assert_eq!(b.bytes(at + 40, 100), pattern(100));
}

#[test]
fn a_datagram_arrives_behind_the_ipv6_header() {
    let mut b = Bench::of(QpType::Ud);
    let at = b.recv(1, 200);
    let mut made = b.packet(Operation::SendOnly, 0).data(5);
    made.0.path.source = setup::gid6(9);
    made.0.path.destination = setup::gid6(0);
    made.0.path.flow_label = 0x12345;
    b.inject(made);
    assert_eq!(completions(&mut b)[0].byte_len, 45);
    let area = b.bytes(at, 40);
    // Payload length: UDP 8 + BTH 12 + DETH 8 + 5 and its pad + ICRC 4.
    assert_eq!(area[..8], [0x60, 0x01, 0x23, 0x45, 0, 40, 17, 64]);
    assert_eq!(area[8..24], setup::gid6(9).0);
    assert_eq!(area[24..], setup::gid6(0).0);
    assert_eq!(b.bytes(at + 40, 5), pattern(5));
}

#[test]
fn the_grh_area_may_cross_entries_of_the_buffer() {
    let mut b = Bench::of(QpType::Ud);
    let lkey = b.region.lkey;
    let sges = [
        Sge { addr: BUFFERS + 1, length: 39, lkey },
        Sge { addr: BUFFERS + 0x100, length: 2, lkey },
        Sge { addr: BUFFERS + 0x200, length: 50, lkey },
    ];
    let wr = RecvRequest { wr_id: 1, sges: &sges };
    b.host.device.post_recv(b.now, b.qp, &wr).expect("good");
    b.inject(b.packet(Operation::SendOnly, 0).data(51));
    assert_eq!(b.receives(), ["1 Recv 91B"]);
    assert_eq!(b.bytes(BUFFERS + 0x101, 1), pattern(1));
    assert_eq!(b.bytes(BUFFERS + 0x200, 50), pattern(51)[1..]);
    assert_eq!(b.bytes(BUFFERS + 0x100, 1), [1], "last byte of 10.0.0.1");
}

#[test]
fn a_wrong_q_key_is_dropped_and_counted() {
    let mut b = Bench::of(QpType::Ud);
    b.recv(1, 200);
    for wrong in [QKEY.get() ^ 1, QKEY.get() ^ 0x8000_0000, 0] {
        assert!(b.answer(b.packet(Operation::SendOnly, 0).qkey(QKey::new(wrong))).is_empty());
    }
    assert_eq!(b.counter("rx_wrong_qkey"), 3);
    assert!(b.receives().is_empty());
    b.inject(b.packet(Operation::SendOnly, 0));
    assert_eq!(b.receives(), ["1 Recv 40B"]);
}

#[test]
fn a_q_key_with_the_top_bit_means_the_own_one() {
    let mut b = Bench::of(QpType::Ud);
    for (given, sent) in [(5, 5), (0x7FFF_FFFF, 0x7FFF_FFFF), (0x8000_0000, QKEY.get())] {
        let to = Datagram { qkey: QKey::new(given), ..to_peer(b.peer) };
        post(&mut b, 1, SendOp::Send, 4, to).expect("good");
        let packets = b.sent();
        assert_eq!(packets.len(), 1);
        let deth = packets[0].ext.deth.expect("a datagram has a DETH");
        assert_eq!((deth.qkey, deth.source_qp), (QKey::new(sent), b.qp));
        assert_eq!(packets[0].bth.dest_qp, PEER_QP);
    }
}

#[test]
fn a_buffer_without_the_40_bytes_is_not_used_up() {
    let mut b = Bench::of(QpType::Ud);
    b.recv(1, 139);
    b.inject(b.packet(Operation::SendOnly, 0).data(100));
    assert_eq!(b.counter("rx_datagram_too_long"), 1);
    assert!(b.receives().is_empty());
    assert_eq!(b.state(), QpState::Rts);
    b.inject(b.packet(Operation::SendOnly, 1).data(99));
    assert_eq!(b.receives(), ["1 Recv 139B"], "the request has stayed");
}

#[test]
fn no_receive_request_is_counted() {
    let mut b = Bench::of(QpType::Ud);
    assert!(b.answer(b.packet(Operation::SendOnly, 0)).is_empty());
    assert_eq!(b.counter("out_of_buffer"), 1);
    b.recv(1, 40);
    b.inject(b.packet(Operation::SendOnly, 0));
    assert_eq!(b.receives(), ["1 Recv 40B"]);
}

#[test]
fn the_psn_is_not_checked() {
    let mut b = Bench::of(QpType::Ud);
    for (wr_id, psn) in [(1, 5), (2, 5), (3, 0xFF_FFFF), (4, 4)] {
        b.recv(wr_id, 40);
        b.inject(b.packet(Operation::SendOnly, psn));
        assert_eq!(b.receives(), [format!("{wr_id} Recv 40B")]);
    }
}

#[test]
fn longer_than_the_mtu_completes_and_nothing_leaves() {
    let mut b = Bench::of(QpType::Ud);
    let to = to_peer(b.peer);
    post(&mut b, 1, SendOp::Send, 4096, to).expect("good");
    post(&mut b, 2, SendOp::Send, 4097, to).expect("good");
    post(&mut b, 3, SendOp::SendImm([0, 0, 0, 9]), 4, to).expect("good");
    let qkey = format!("qkey={:#x}", QKEY.get());
    assert_eq!(
        b.lines(),
        [format!("SendOnly 100 {qkey} 4096B"), format!("SendOnlyImm 101 {qkey} imm=9 4B")]
    );
    assert_eq!(b.sends(), ["1 Send 4096B", "2 Send 4097B", "3 Send 4B"]);
    assert_eq!(b.counter("tx_datagram_too_long"), 1);
    assert_eq!(b.state(), QpState::Rts);
    post(&mut b, 4, SendOp::Send, 5000, to).expect("good");
    assert!(b.lines().is_empty());
    assert_eq!(b.sends(), ["4 Send 5000B"], "alone in the queue");
}

#[test]
fn multicast_reaches_every_queue_pair_attached() {
    let mut b = Bench::of(QpType::Ud);
    let group = Gid::from_ip(std::net::Ipv4Addr::new(239, 1, 2, 3).into());
    let (second, third) = (b.another(PEER_QP, |_, _| {}), b.another(PEER_QP, |_, _| {}));
    let first = b.qp;
    for qp in [first, second] {
        b.host.device.attach_mcast(qp, group).expect("a group");
    }
    // Attaching twice does not deliver twice.
    b.host.device.attach_mcast(second, group).expect("a group");
    let everybody = [first, second, third];
    let arrive = |b: &mut Bench| {
        for (i, qp) in everybody.iter().enumerate() {
            let sges = [Sge { addr: BUFFERS + 0x100 * i as u64, length: 60, lkey: b.region.lkey }];
            let wr = RecvRequest { wr_id: 0, sges: &sges };
            b.host.device.post_recv(b.now, *qp, &wr).expect("good");
        }
        let mut made = b.packet(Operation::SendOnly, 0).to(Qpn::MULTICAST).data(9);
        made.0.path.destination = group;
        b.inject(made);
        completions(b).iter().map(|c| c.qp).collect::<Vec<_>>()
    };
    assert_eq!(arrive(&mut b), [first, second]);
    assert_eq!(b.counter("out_of_buffer"), 0, "once each");
    assert_eq!(b.host.device.groups().collect::<Vec<_>>(), [group]);
    b.host.device.detach_mcast(first, group).expect("attached");
    b.host.device.detach_mcast(first, group).expect_err("no longer");
    assert_eq!(arrive(&mut b), [second]);
    b.host.device.destroy_qp(second).expect("it exists");
    assert_eq!(b.host.device.groups().count(), 0, "the last member has gone");
    let before = b.counter("rx_unknown_qp");
    let mut made = b.packet(Operation::SendOnly, 0).to(Qpn::MULTICAST);
    made.0.path.destination = group;
    b.inject(made);
    assert!(completions(&mut b).is_empty());
    assert_eq!(b.counter("rx_unknown_qp"), before + 1, "a group that nobody is in is counted");
}

#[test]
fn only_datagram_queue_pairs_join_groups() {
    let mut b = Bench::rc();
    let group = Gid::from_ip(std::net::Ipv4Addr::new(239, 1, 2, 3).into());
    let (rc, peer) = (b.qp, b.peer);
    b.host.device.attach_mcast(rc, group).expect_err("RC");
    let ud = b.another(PEER_QP, |init, _| init.qp_type = QpType::Ud);
    b.host.device.attach_mcast(ud, peer).expect_err("not a group");
    b.host.device.attach_mcast(ud, group).expect("both right");
}

#[test]
fn the_general_services_queue_pair_is_number_1() {
    let mut b = Bench::of(QpType::Gsi);
    assert_eq!(b.qp, Qpn::GSI);
    let init = b.init;
    let error = b.host.device.create_qp(&init).expect_err("there is one already");
    assert_eq!(error.kind(), engine::ErrorKind::Busy);
    b.recv(1, 40 + 256);
    b.inject(b.packet(Operation::SendOnly, 0).data(256));
    assert_eq!(b.receives(), ["1 Recv 296B"]);
    let to = Datagram { dest_qp: Qpn::GSI, ..to_peer(b.peer) };
    post(&mut b, 2, SendOp::Send, 256, to).expect("good");
    assert_eq!(b.lines().len(), 1);
    assert_eq!(b.sends(), ["2 Send 256B"]);
}

#[test]
fn datagrams_only_send() {
    let mut b = Bench::of(QpType::Ud);
    let to = to_peer(b.peer);
    let there = crate::pair::bench::THERE;
    for op in [
        SendOp::Write(there),
        SendOp::WriteImm(there, [0; 4]),
        SendOp::Read(there),
        SendOp::SendInvalidate(there.rkey),
        SendOp::LocalInvalidate(there.rkey),
        SendOp::FetchAdd { remote: there, add: 1 },
    ] {
        assert_eq!(post(&mut b, 1, op, 8, to), Err(PostError::Operation), "{op:?}");
    }
    assert_eq!(b.post_with(1, SendOp::Send, 8, SendFlags::empty()), Err(PostError::Destination));
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    let wr = SendRequest {
        wr_id: 1,
        op: SendOp::Send,
        flags: fenced,
        data: SendData::Sges(&[]),
        datagram: Some(to),
    };
    assert_eq!(b.post_raw(&wr), Err(PostError::Operation), "a fence is for RC");
    let mut nowhere = to;
    nowhere.av.sgid_index = 9;
    assert_eq!(post(&mut b, 1, SendOp::Send, 8, nowhere), Err(PostError::GidIndex));
    assert!(b.lines().is_empty());
}

#[test]
fn a_receive_buffer_without_write_access_is_an_error_of_the_request() {
    let mut b = Bench::with(|o| {
        o.service = QpType::Ud;
        o.access = engine::Access::empty();
    });
    b.recv(1, 100);
    b.recv(2, 100);
    b.inject(b.packet(Operation::SendOnly, 0));
    assert_eq!(b.receives(), ["1 LocProtErr", "2 WrFlushErr"]);
    assert_eq!((b.state(), b.events()), (QpState::Err, Vec::<AsyncEvent>::new()));
}

#[test]
fn datagrams_are_taken_in_rtr_too() {
    let mut b = Bench::with(|o| {
        o.service = QpType::Ud;
        o.state = QpState::Rtr;
    });
    b.recv(1, 40);
    b.inject(b.packet(Operation::SendOnly, 0));
    assert_eq!(b.receives(), ["1 Recv 40B"]);
    assert!(b.events().is_empty(), "COMM_EST is of connections");
}

#[test]
fn a_datagram_too_long_leaves_the_request_in_the_shared_queue() {
    let attr = engine::SrqAttr { max_wr: 4, max_sge: 1, limit: 0 };
    let mut b = Bench::with(|o| {
        o.service = QpType::Ud;
        o.srq = Some(attr);
    });
    let second = b.another(PEER_QP, |_, _| {});
    let sges = [Sge { addr: BUFFERS, length: 100, lkey: b.region.lkey }];
    let srq = b.srq.expect("made with one");
    b.host.device.post_srq_recv(srq, &RecvRequest { wr_id: 7, sges: &sges }).expect("taken");
    let made = b.packet(Operation::SendOnly, 0).data(61);
    b.inject(made);
    assert!(completions(&mut b).is_empty());
    assert_eq!(b.counter("rx_datagram_too_long"), 1);
    // Another queue pair finds it.
    let made = b.packet(Operation::SendOnly, 0).to(second).data(60);
    b.inject(made);
    let entry = completions(&mut b).pop().expect("a completion");
    assert_eq!((entry.wr_id, entry.qp, entry.byte_len), (7, second, 100));
}
