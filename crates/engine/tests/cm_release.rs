//! How connections end: disconnecting from either side or both, letting go, late and lost messages,
//! a peer that has forgotten.

mod cm_support;

use cm_support::{Faults, World, av, cm, request};
use engine::cm::{Accept, CmEvent, ResolveRequest};
use wire::mad::RejectReason;
use wire::{Qpn, Span};

const GOOD: Faults = Faults { loss: 0, duplicate: 0, delay_ms: 1 };
const DEAF: Faults = Faults { loss: 1000, duplicate: 0, delay_ms: 1 };

#[test]
fn a_disconnect_that_overtakes_the_rtu_establishes_first() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    w.run(Span::from_ms(5));
    w.response();
    w.cms[0].establish(w.now, active).unwrap();
    w.cms[0].disconnect(w.now, active).unwrap();
    let rtu = w.cms[0].poll_mad().unwrap();
    let dreq = w.cms[0].poll_mad().unwrap();
    w.deliver(0, &dreq);
    w.deliver(0, &rtu);
    assert_eq!(w.take_events(1), [CmEvent::Established(passive), CmEvent::Disconnected(passive)]);
}

#[test]
fn a_reply_to_a_request_given_up_is_refused() {
    let mut w = World::listening(2, GOOD);
    let active = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(5));
    let passive = w.incoming().id;
    w.cms[1].accept(w.now, passive, &Accept::new(Qpn::new(2))).unwrap();
    let rep = w.cms[1].poll_mad().unwrap();
    w.faults = DEAF; // The REJ that gives up is lost.
    w.cms[0].destroy(w.now, active).unwrap();
    w.drain();
    w.faults = GOOD;
    w.sent.clear();
    w.deliver(1, &rep);
    w.run(Span::from_ms(5));
    let CmEvent::Rejected(rejected) = w.event(1) else { panic!("not rejected") };
    assert_eq!((rejected.id, rejected.reason), (passive, RejectReason::TIMEOUT));
    // Long after, the id is not even known.
    w.run(Span::from_ms(10_000));
    w.sent.clear();
    w.deliver(1, &rep);
    w.drain();
    assert_eq!(w.transcript(), ["0 REJ 6 of Rep"]);
}

#[test]
fn both_disconnect_at_once() {
    let mut w = World::listening(2, GOOD);
    let (active, passive) = w.connected((1, 2));
    w.cms[0].disconnect(w.now, active).unwrap();
    w.cms[1].disconnect(w.now, passive).unwrap();
    w.run(Span::from_ms(10));
    assert_eq!(w.event(0), CmEvent::Disconnected(active));
    assert_eq!(w.event(1), CmEvent::Disconnected(passive));
    assert_eq!(w.transcript(), ["0 DREQ", "1 DREQ", "0 DREP", "1 DREP"]);
}

#[test]
fn a_disconnect_that_nobody_answers_ends_all_the_same() {
    let mut w = World::listening(2, GOOD);
    let (active, passive) = w.connected((1, 2));
    w.faults = DEAF;
    w.cms[0].disconnect(w.now, active).unwrap();
    w.run(Span::from_ms(200_000));
    assert_eq!(
        w.take_events(0),
        [CmEvent::Disconnected(active), CmEvent::TimeWaitExit(active, Qpn::new(1))]
    );
    assert_eq!(w.transcript(), ["0 DREQ"; 20]);
    // The other side asks much later: what is unknown has ended.
    w.faults = GOOD;
    w.cms[1].disconnect(w.now, passive).unwrap();
    w.run(Span::from_ms(10));
    assert_eq!(w.event(1), CmEvent::Disconnected(passive));
    assert_eq!(w.transcript(), ["1 DREQ", "0 DREP"]);
}

#[test]
fn a_lost_answer_to_a_disconnect_is_given_again() {
    let mut w = World::listening(2, GOOD);
    let (active, passive) = w.connected((1, 2));
    w.cms[0].disconnect(w.now, active).unwrap();
    let dreq = w.cms[0].poll_mad().unwrap();
    w.deliver(0, &dreq);
    let _lost = w.cms[1].poll_mad().unwrap();
    assert_eq!(w.event(1), CmEvent::Disconnected(passive));
    w.run(Span::from_ms(400));
    assert_eq!(w.event(0), CmEvent::Disconnected(active));
    assert_eq!(w.transcript(), ["0 DREQ", "1 DREP"]);
}

#[test]
fn a_connection_let_go_of_ends_in_silence() {
    let mut w = World::listening(2, GOOD);
    let (active, passive) = w.connected((1, 2));
    w.cms[0].destroy(w.now, active).unwrap();
    w.run(Span::from_ms(10));
    assert_eq!(w.transcript(), ["0 DREQ", "1 DREP"]);
    assert_eq!(w.event(1), CmEvent::Disconnected(passive));
    assert!(w.cms[0].in_time_wait(Qpn::new(1)), "the number rests all the same");
    w.run(Span::from_ms(10_000));
    assert!(w.take_events(0).is_empty());
    assert_eq!(w.cms[0].state(active), None);
}

#[test]
fn a_peer_that_has_forgotten_makes_the_connection_stale() {
    let mut w = World::listening(2, GOOD);
    let (_, passive) = w.connected((1, 2));
    // Node 0 starts again and uses the same queue pair number.
    w.cms[0] = cm(0, 77);
    let again = w.cms[0].connect(w.now, &request(1)).unwrap();
    w.run(Span::from_ms(10));
    let CmEvent::Rejected(rejected) = &w.take_events(0)[0] else { panic!("not rejected") };
    assert_eq!((rejected.id, rejected.reason), (again, RejectReason::STALE_CONNECTION));
    assert_eq!(w.event(1), CmEvent::Disconnected(passive));
    assert_eq!(w.transcript(), ["0 REQ", "1 DREQ", "1 REJ 10 of Req", "0 DREP"]);
    assert!(w.cms[0].in_time_wait(Qpn::new(1)));
    w.run(Span::from_ms(10_000));
    w.take_events(0);
    w.take_events(1);
    w.connected((1, 3));
}

#[test]
fn a_process_that_ends_tells_all_its_peers() {
    let mut w = World::listening(2, GOOD);
    let (_, passive) = w.connected((1, 2));
    w.cms[0].connect(w.now, &request(3)).unwrap();
    w.run(Span::from_ms(5));
    let waiting = w.incoming().id;
    w.cms[0].resolve(w.now, &ResolveRequest::new(cm_support::SERVICE, av(1))).unwrap();
    let question = w.cms[0].poll_mad().unwrap();
    w.deliver(0, &question);
    assert!(matches!(w.event(1), CmEvent::Question(_)));
    w.sent.clear();
    w.cms[0].shutdown(w.now);
    w.drain();
    let mut sent = w.transcript();
    sent.sort();
    assert_eq!(sent, ["0 DREQ", "0 REJ 4 of Req"]);
    w.run(Span::from_ms(5));
    let events = w.take_events(1);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.contains(&CmEvent::Disconnected(passive)));
    assert_eq!(w.cms[1].state(waiting), None);
    w.cms[1].shutdown(w.now);
    w.drain();
    assert!(w.transcript().contains(&"1 SIDR_REP 2".to_owned()));
    assert!(w.take_events(0).is_empty());
}
