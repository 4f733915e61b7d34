//! The connection manager over a good wire and over one that loses what the test says: who says
//! what, in which order, and what the queue pairs are set to.

mod cm_support;

use cm_support::{Faults, SERVICE, World, av, gid, request};
use engine::cm::{Accept, CmEvent, ConnState, ConnectRequest, Listen, MadFrom};
use engine::{Access, AddressVector, AttrMask, ErrorKind, QpState, QpType};
use wire::mad::{CmMessage, IpCmHeader, Lap, Mad, RejectReason};
use wire::{Gid, Mtu, Qpn, Span};

const GOOD: Faults = Faults { loss: 0, duplicate: 0, delay_ms: 1 };
const DEAF: Faults = Faults { loss: 1000, duplicate: 0, delay_ms: 1 };

#[test]
fn connect_accept_establish_disconnect() {
    let mut w = World::listening(2, GOOD);
    let ip =
        IpCmHeader { source_port: 40_000, source: gid(0).to_ip(), destination: gid(1).to_ip() };
    let ask = ConnectRequest { ip: Some(ip), private: b"hello", ..request(0x11) };
    let active = w.cms[0].connect(w.now, &ask).unwrap();
    w.run(Span::from_ms(5));
    let incoming = w.incoming();
    assert_eq!((incoming.ip, incoming.service), (Some(ip), SERVICE));
    assert_eq!(incoming.private.len(), 56);
    assert_eq!(&incoming.private[..6], b"hello\0");
    assert_eq!(incoming.remote_qpn, Qpn::new(0x11));
    assert_eq!((incoming.av.dgid, incoming.local), (gid(0), gid(1)));

    let accept = Accept { private: b"welcome", ..Accept::new(Qpn::new(0x22)) };
    let plan = w.cms[1].accept_plan(incoming.id, &accept).unwrap();
    assert_eq!(w.cms[1].accept(w.now, incoming.id, &accept).unwrap(), plan);
    w.run(Span::from_ms(5));
    let CmEvent::Response(response) = w.event(0) else { panic!("no response") };
    assert_eq!((response.id, response.remote_qpn), (active, Qpn::new(0x22)));
    assert_eq!(&response.private[..8], b"welcome\0");
    w.cms[0].establish(w.now, active).unwrap();
    w.run(Span::from_ms(5));
    assert_eq!(w.event(0), CmEvent::Established(active));
    assert_eq!(w.event(1), CmEvent::Established(incoming.id));
    assert_eq!(w.transcript(), ["0 REQ", "1 REP", "0 RTU"]);

    // Both sides are set to the same numbers, crosswise.
    let (mine, theirs) = (response.plan, plan);
    assert_eq!(mine.rtr.attr.rq_psn, theirs.rts.attr.sq_psn);
    assert_eq!(theirs.rtr.attr.rq_psn, mine.rts.attr.sq_psn);
    assert_eq!((mine.rtr.attr.dest_qp, theirs.rtr.attr.dest_qp), (Qpn::new(0x22), Qpn::new(0x11)));
    assert_eq!(mine.rtr.attr.path_mtu, Mtu::B1024);
    assert_eq!(theirs.rtr.attr.path_mtu, Mtu::B1024);
    assert_ne!(mine.rtr.attr.av.flow_label, 0);
    assert_eq!(mine.rtr.attr.av.flow_label, theirs.rtr.attr.av.flow_label);
    assert_eq!((mine.rts.attr.retry_cnt, theirs.rts.attr.retry_cnt), (7, 7));

    w.cms[1].disconnect(w.now, incoming.id).unwrap();
    w.run(Span::from_ms(5));
    assert_eq!(w.event(0), CmEvent::Disconnected(active));
    assert_eq!(w.event(1), CmEvent::Disconnected(incoming.id));
    assert_eq!(w.transcript(), ["1 DREQ", "0 DREP"]);
    assert!(w.cms[0].in_time_wait(Qpn::new(0x11)) && w.cms[1].in_time_wait(Qpn::new(0x22)));
    w.cms[0].disconnect(w.now, active).unwrap();
    w.run(Span::from_ms(10_000));
    assert_eq!(w.event(0), CmEvent::TimeWaitExit(active, Qpn::new(0x11)));
    assert_eq!(w.event(1), CmEvent::TimeWaitExit(incoming.id, Qpn::new(0x22)));
    assert!(!w.cms[0].in_time_wait(Qpn::new(0x11)));
    assert_eq!(w.cms[0].state(active), None);
    assert!(w.transcript().is_empty());
    assert_eq!(w.cms[0].poll_timeout(), None);
    assert_eq!(w.cms[0].disconnect(w.now, active).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_plan_has_what_each_step_requires() {
    let mut w = World::listening(2, GOOD);
    let rc = w.cms[0].connect(w.now, &request(1)).unwrap();
    assert!(w.cms[0].plan(rc).is_err(), "nothing is known of the peer yet");
    w.run(Span::from_ms(5));
    let id = w.incoming().id;
    let accept = Accept::new(Qpn::new(2));
    let plan = w.cms[1].accept_plan(id, &accept).unwrap();
    assert_eq!(plan.steps().map(|s| s.attr.state), [QpState::Init, QpState::Rtr, QpState::Rts]);
    let common = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    assert_eq!(plan.init.mask, common);
    let uc_rtr =
        AttrMask::STATE | AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
    let rc_rtr = AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
    assert_eq!(plan.rtr.mask, uc_rtr | rc_rtr);
    let rc_rts =
        AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
    assert_eq!(plan.rts.mask, AttrMask::STATE | AttrMask::SQ_PSN | rc_rts);
    assert!(plan.init.attr.access.contains(Access::REMOTE_READ | Access::REMOTE_WRITE));

    let ask = ConnectRequest { qp_type: QpType::Uc, ..request(3) };
    w.cms[0].connect(w.now, &ask).unwrap();
    w.run(Span::from_ms(5));
    let incoming = w.incoming();
    assert_eq!(incoming.qp_type, QpType::Uc);
    let plan = w.cms[1].accept_plan(incoming.id, &accept).unwrap();
    assert_eq!((plan.rtr.mask, plan.rts.mask), (uc_rtr, AttrMask::STATE | AttrMask::SQ_PSN));
    assert_eq!(plan.init.attr.access, Access::REMOTE_WRITE);
}

#[test]
fn depths_never_exceed_what_the_other_side_serves() {
    let mut w = World::listening(2, GOOD);
    let ask = ConnectRequest { responder_resources: 3, initiator_depth: 16, ..request(1) };
    w.cms[0].connect(w.now, &ask).unwrap();
    w.run(Span::from_ms(5));
    let incoming = w.incoming();
    assert_eq!((incoming.responder_resources, incoming.initiator_depth), (16, 3));
    let accept = Accept { responder_resources: 4, ..Accept::new(Qpn::new(2)) };
    let plan = w.cms[1].accept(w.now, incoming.id, &accept).unwrap();
    assert_eq!((plan.rts.attr.max_rd_atomic, plan.rtr.attr.max_dest_rd_atomic), (3, 4));
    w.run(Span::from_ms(5));
    let plan = w.response();
    assert_eq!((plan.rts.attr.max_rd_atomic, plan.rtr.attr.max_dest_rd_atomic), (4, 3));
}

#[test]
fn rnr_retries_are_what_the_other_side_asks_for() {
    let mut w = World::listening(2, GOOD);
    w.cms[0].connect(w.now, &ConnectRequest { rnr_retry: 2, ..request(1) }).unwrap();
    w.run(Span::from_ms(5));
    let id = w.incoming().id;
    let accept = Accept { rnr_retry: 5, ..Accept::new(Qpn::new(2)) };
    assert_eq!(w.cms[1].accept(w.now, id, &accept).unwrap().rts.attr.rnr_retry, 2);
    w.run(Span::from_ms(5));
    assert_eq!(w.response().rts.attr.rnr_retry, 5);
}

#[test]
fn nobody_listens() {
    let mut w = World::new(2, GOOD);
    let id = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let CmEvent::Rejected(rejected) = w.event(0) else { panic!("not rejected") };
    assert_eq!((rejected.id, rejected.reason), (id, RejectReason::INVALID_SERVICE_ID));
    assert_eq!(w.transcript(), ["0 REQ", "1 REJ 8 of Req"]);
    assert_eq!(w.cms[0].state(id), None);
    assert!(!w.cms[0].in_time_wait(Qpn::new(1)));
}

#[test]
fn listeners_on_an_address_go_before_those_on_any() {
    let mut w = World::new(2, GOOD);
    let other = Gid::from_ip([10, 0, 0, 99].into());
    let listen = |address| Listen { service: SERVICE, address, backlog: 4 };
    w.cms[1].listen(listen(Some(other))).unwrap();
    w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    assert!(matches!(w.event(0), CmEvent::Rejected(_)), "the listener is on another address");

    let any = w.cms[1].listen(listen(None)).unwrap();
    let exact = w.cms[1].listen(listen(Some(gid(1)))).unwrap();
    let twice = w.cms[1].listen(listen(None)).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::AddressInUse);
    w.cms[0].connect(w.now, &request(2)).unwrap();
    w.run(Span::from_ms(5));
    assert_eq!(w.incoming().listener, exact);
    w.cms[1].unlisten(exact).unwrap();
    w.cms[0].connect(w.now, &request(3)).unwrap();
    w.run(Span::from_ms(5));
    assert_eq!(w.incoming().listener, any);
    assert_eq!(w.cms[1].unlisten(exact).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_application_refuses_with_its_own_bytes_and_the_refusal_is_repeated() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let id = w.incoming().id;
    w.faults = DEAF; // The REJ is lost; the REQ comes again.
    w.cms[1].reject(w.now, id, RejectReason::CONSUMER, b"no room").unwrap();
    w.drain();
    w.faults = GOOD;
    w.run(Span::from_ms(1000));
    let CmEvent::Rejected(rejected) = w.event(0) else { panic!("not rejected") };
    assert_eq!((rejected.id, rejected.reason), (active, RejectReason::CONSUMER));
    assert_eq!(&rejected.private[..8], b"no room\0");
    let expected = ["0 REQ", "1 REJ 28 of Req", "0 REQ", "1 REJ 28 of Req"];
    assert_eq!(w.transcript(), expected);
    assert!(w.take_events(1).is_empty(), "the application hears of the request once");
    w.run(Span::from_ms(20_000));
    assert_eq!(w.cms[1].state(id), None);
}

#[test]
fn the_active_side_refuses_the_reply() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    w.run(Span::from_ms(5));
    w.response();
    w.cms[0].reject(w.now, active, RejectReason::CONSUMER, &[]).unwrap();
    w.run(Span::from_ms(5));
    let CmEvent::Rejected(rejected) = w.event(1) else { panic!("not rejected") };
    assert_eq!((rejected.id, rejected.reason), (passive, RejectReason::CONSUMER));
    assert!(w.cms[0].in_time_wait(Qpn::new(1)) && w.cms[1].in_time_wait(Qpn::new(2)));
    w.run(Span::from_ms(10_000));
    assert_eq!(w.event(0), CmEvent::TimeWaitExit(active, Qpn::new(1)));
    assert_eq!(w.event(1), CmEvent::TimeWaitExit(passive, Qpn::new(2)));
}

#[test]
fn a_request_is_repeated_and_given_up_and_the_peer_is_told() {
    let mut w = World::listening(2, DEAF);
    let start = w.now;
    let ask = ConnectRequest { response_timeout: 18, max_cm_retries: 2, ..request(1) };
    let id = w.cms[0].connect(w.now, &ask).unwrap();
    w.run(Span::from_ms(60_000));
    assert_eq!(w.take_events(0), [CmEvent::Failed(id), CmEvent::TimeWaitExit(id, Qpn::new(1))]);
    let mut expected = vec!["0 REQ"; 1 + 4 + 2];
    expected.push("0 REJ 4 of Req");
    assert_eq!(w.transcript(), expected);
    // 1/16 + 1/8 + 1/4 + 1/2 and three times the whole of 1.07 s, to the picosecond.
    let whole = 4_096_000u64 << 18;
    let mut w = World::listening(2, DEAF);
    w.cms[0].connect(w.now, &ask).unwrap();
    w.run(Span::from_ps(whole / 16 * (1 + 2 + 4 + 8 + 48) - 1));
    assert!(w.take_events(0).is_empty());
    w.run(Span::from_ps(1));
    assert_eq!(w.take_events(0).len(), 1);
    assert_ne!(w.now, start);
}

#[test]
fn a_request_given_up_is_withdrawn_from_the_application() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[0].destroy(w.now, active).unwrap();
    w.run(Span::from_ms(5));
    let CmEvent::Rejected(rejected) = w.event(1) else { panic!("not withdrawn") };
    assert_eq!((rejected.id, rejected.reason), (passive, RejectReason::TIMEOUT));
    assert_eq!(rejected.info, 0x1000u64.to_be_bytes(), "the adapter's GUID");
    assert_eq!(w.cms[1].state(passive), None);
    let late = w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2)));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::NotFound);

    // If the application has not even taken the request, it hears nothing.
    let active = w.cms[0].connect(w.now, &request(3)).unwrap();
    let req = w.cms[0].poll_mad().unwrap();
    w.deliver(0, &req);
    w.cms[0].destroy(w.now, active).unwrap();
    let rej = w.cms[0].poll_mad().unwrap();
    w.deliver(0, &rej);
    assert!(w.take_events(1).is_empty());
    assert!(w.take_events(0).is_empty());
}

#[test]
fn a_slow_application_is_reported_to_the_peer() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(400));
    assert_eq!(w.transcript(), ["0 REQ", "0 REQ", "1 MRA"]);
    w.run(Span::from_ms(60_000));
    assert!(w.transcript().is_empty(), "an MRA stops the repeats");
    w.run(Span::from_ms(20_000));
    assert_eq!(w.transcript(), ["0 REQ", "1 MRA"]);
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    w.run(Span::from_ms(5));
    w.response();
    w.cms[0].establish(w.now, active).unwrap();
    w.run(Span::from_ms(5));
    assert_eq!(w.event(1), CmEvent::Established(passive));
}

#[test]
fn a_slow_driver_is_reported_to_the_peer() {
    let mut w = World::listening(2, GOOD);
    w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    w.run(Span::from_ms(400));
    assert_eq!(w.transcript(), ["0 REQ", "1 REP", "1 REP", "0 MRA"]);
    w.run(Span::from_ms(60_000));
    assert!(w.transcript().is_empty());
    assert_eq!(w.cms[1].state(passive), Some(ConnState::RepSent));
}

#[test]
fn an_application_that_never_answers_is_not_waited_for() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.faults = DEAF;
    w.run(Span::from_ms(130_000));
    assert_eq!(w.event(1), CmEvent::Failed(passive));
    assert_eq!(w.cms[1].state(passive), None);
    assert_eq!(w.take_events(0)[0], CmEvent::Failed(active));
}

#[test]
fn data_establishes_when_the_rtu_is_lost() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    w.run(Span::from_ms(5));
    w.response();
    w.faults = DEAF;
    w.cms[0].establish(w.now, active).unwrap();
    w.drain();
    w.faults = GOOD;
    w.cms[1].handle_comm_est(w.now, Qpn::new(9));
    assert!(w.take_events(1).is_empty(), "another queue pair");
    w.cms[1].handle_comm_est(w.now, Qpn::new(2));
    assert_eq!(w.event(1), CmEvent::Established(passive));
    w.cms[1].handle_comm_est(w.now, Qpn::new(2));
    w.run(Span::from_ms(60_000));
    assert!(w.take_events(1).is_empty(), "once only");
    assert_eq!(w.transcript(), ["0 REQ", "1 REP", "0 RTU"], "the REP is not repeated any more");
}

#[test]
fn a_lost_rtu_is_sent_again_for_the_repeated_reply() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    w.run(Span::from_ms(5));
    w.response();
    w.faults = DEAF;
    w.cms[0].establish(w.now, active).unwrap();
    w.drain();
    w.faults = GOOD;
    w.run(Span::from_ms(1000));
    assert_eq!(w.event(1), CmEvent::Established(passive));
    assert_eq!(w.event(0), CmEvent::Established(active));
    assert_eq!(w.transcript(), ["0 REQ", "1 REP", "0 RTU", "1 REP", "0 RTU"]);
}

#[test]
fn a_passive_side_that_gives_up_tells_the_active_one() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    w.run(Span::from_ms(5));
    w.response();
    w.faults = DEAF;
    w.cms[0].establish(w.now, active).unwrap();
    assert_eq!(w.event(0), CmEvent::Established(active));
    while w.cms[1].state(passive) == Some(ConnState::RepSent) {
        let until = w.cms[1].poll_timeout().unwrap();
        w.now = until;
        w.cms[1].handle_timeout(until);
        if w.cms[1].state(passive) == Some(ConnState::TimeWait) {
            w.faults = GOOD; // The REJ gets through.
        }
        w.drain();
    }
    assert_eq!(w.event(1), CmEvent::Failed(passive));
    w.run(Span::from_ms(10));
    assert_eq!(w.event(0), CmEvent::Disconnected(active));
}

#[test]
fn a_request_for_a_larger_mtu_is_refused_with_the_one_that_would_do() {
    let mut w = World::listening(2, GOOD);
    w.cms[1].handle_mtu(Mtu::B512);
    w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let CmEvent::Rejected(rejected) = w.event(0) else { panic!("not rejected") };
    assert_eq!(rejected.reason, RejectReason::INVALID_MTU);
    assert_eq!(rejected.info, [Mtu::B512.code()]);
}

#[test]
fn a_full_backlog_makes_peers_wait() {
    let mut w = World::new(2, GOOD);
    w.cms[1].listen(Listen { service: SERVICE, address: None, backlog: 1 }).unwrap();
    w.cms[0].connect(w.now, &request(1)).unwrap();
    w.cms[0].connect(w.now, &request(2)).unwrap();
    w.run(Span::from_ms(5));
    let first = w.incoming();
    assert_eq!(w.cms[1].counters().rx_no_room, 1);
    w.cms[1].accept(w.now, first.id, &Accept::new(Qpn::new(3))).unwrap();
    w.run(Span::from_ms(400));
    let second = w.incoming();
    assert_ne!(first.remote_qpn, second.remote_qpn);
}

#[test]
fn messages_from_elsewhere_change_nothing() {
    let mut w = World::listening(2, GOOD);
    let (active, passive) = w.connected((1, 2));
    w.cms[0].disconnect(w.now, active).unwrap();
    let dreq = w.cms[0].poll_mad().unwrap();
    let elsewhere = AddressVector { dgid: Gid::from_ip([10, 0, 0, 66].into()), ..av(0) };
    let from = MadFrom { av: elsewhere, local: gid(1) };
    w.cms[1].handle_mad(w.now, &from, &dreq.payload);
    assert_eq!(w.cms[1].state(passive), Some(ConnState::Established));
    assert!(w.take_events(1).is_empty());
    // A wrong queue pair number: not this connection.
    let mut mad = Mad::parse(&dreq.payload).unwrap();
    if let CmMessage::Dreq(dreq) = &mut mad.message {
        dreq.remote_qpn = Qpn::new(0x999);
    }
    let from = MadFrom { av: av(0), local: gid(1) };
    w.cms[1].handle_mad(w.now, &from, &mad.emit());
    assert_eq!(w.cms[1].state(passive), Some(ConnState::Established));
    w.cms[1].handle_mad(w.now, &from, &dreq.payload[..255]);
    assert_eq!(w.cms[1].counters().rx_malformed, 1);
    assert_eq!(w.cms[1].counters().rx_unexpected, 2);
    w.cms[1].handle_mad(w.now, &from, &dreq.payload);
    assert_eq!(w.cms[1].state(passive), Some(ConnState::TimeWait));
}

#[test]
fn alternate_paths_are_refused() {
    let mut w = World::listening(2, GOOD);
    let (active, passive) = w.connected((1, 2));
    let lap = Lap {
        local_id: active.0,
        remote_id: passive.0,
        remote_qpn: Qpn::new(2),
        remote_response_timeout: 20,
        local_lid: 0,
        remote_lid: 0,
        local_gid: gid(0),
        remote_gid: gid(1),
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 64,
        rate: 0,
        sl: 0,
        subnet_local: false,
        ack_timeout: 16,
        private: [0; 168],
    };
    let from = MadFrom { av: av(0), local: gid(1) };
    w.cms[1].handle_mad(w.now, &from, &Mad::new(7, CmMessage::Lap(lap)).emit());
    let answer = Mad::parse(&w.cms[1].poll_mad().unwrap().payload).unwrap();
    let CmMessage::Apr(apr) = answer.message else { panic!("{answer:?}") };
    assert_eq!((apr.status, apr.remote_id, answer.header.transaction), (2, active.0, 7));
    assert_eq!(w.cms[1].state(passive), Some(ConnState::Established));
}

#[test]
fn wrong_calls_are_refused_with_a_reason() {
    let mut w = World::listening(2, GOOD);
    let long = ConnectRequest { private: &[0; 93], ..request(1) };
    let error = w.cms[0].connect(w.now, &long).unwrap_err();
    assert_eq!(error.to_string(), "93 bytes of private data: a REQ takes 92");
    let ud = ConnectRequest { qp_type: QpType::Ud, ..request(1) };
    assert_eq!(w.cms[0].connect(w.now, &ud).unwrap_err().kind(), ErrorKind::Invalid);
    let no_grh = AddressVector { is_global: false, ..av(1) };
    let no_grh = ConnectRequest { av: no_grh, ..request(1) };
    assert_eq!(w.cms[0].connect(w.now, &no_grh).unwrap_err().kind(), ErrorKind::Invalid);
    let (active, passive) = w.connected((1, 2));
    for error in [
        w.cms[0].establish(w.now, active).unwrap_err(),
        w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap_err(),
        w.cms[1].reject(w.now, passive, RejectReason::CONSUMER, &[]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("is in Established"), "{error}");
    }
}

#[test]
fn ids_and_psns_differ_from_connection_to_connection_and_carry_the_slot() {
    let mut config_seed = [0; 32];
    config_seed[0] = 1;
    let config = engine::cm::CmConfig { seed: config_seed, slot: 0xA5, guid: 1, mtu: Mtu::B4096 };
    let mut cm = engine::cm::Cm::new(config);
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..1000 {
        let id = cm.connect(wire::Instant::ZERO, &request(n)).unwrap();
        assert_eq!(id.0 >> 24, 0xA5);
        assert!(seen.insert(id));
    }
    let ids: Vec<u32> = seen.iter().map(|id| id.0 & 0xFF_FFFF).collect();
    let gaps: Vec<u32> = ids.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().max().unwrap() > &20_000, "they are spread over the whole range");
}
