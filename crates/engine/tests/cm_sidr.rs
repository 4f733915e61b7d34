//! Service resolution for datagrams: one question, one answer, whatever is lost.

mod cm_support;

use cm_support::{Faults, World, av, gid};
use engine::cm::{CmEvent, Listen, ResolveAnswer, ResolveRequest};
use wire::mad::{IpCmHeader, PortSpace, ServiceId, SidrStatus};
use wire::{QKey, Qpn, Span};

const GOOD: Faults = Faults { loss: 0, duplicate: 0, delay_ms: 1 };
const DEAF: Faults = Faults { loss: 1000, duplicate: 0, delay_ms: 1 };

#[test]
fn a_datagram_service_is_resolved() {
    let service = ServiceId::rdma_cm(PortSpace::Udp, 7174);
    let mut w = World::new(2, GOOD);
    w.cms[1].listen(Listen { service, address: None, backlog: 4 }).unwrap();
    let ip = IpCmHeader { source_port: 9, source: gid(0).to_ip(), destination: gid(1).to_ip() };
    let ask =
        ResolveRequest { ip: Some(ip), private: b"who", ..ResolveRequest::new(service, av(1)) };
    let asked = w.cms[0].resolve(w.now, &ask).unwrap();
    w.run(Span::from_ms(300)); // The question is repeated; the application hears it once.
    let CmEvent::Question(question) = w.event(1) else { panic!("no question") };
    assert_eq!((question.ip, question.private.len()), (Some(ip), 180));
    assert_eq!(&question.private[..4], b"who\0");
    let answer = ResolveAnswer {
        status: SidrStatus::VALID,
        qpn: Qpn::new(0x44),
        qkey: QKey::new(0x0123_4567),
        private: b"me",
    };
    w.faults = DEAF;
    w.cms[1].answer(w.now, question.id, &answer).unwrap();
    w.drain();
    w.faults = GOOD;
    w.run(Span::from_ms(2000));
    let CmEvent::Resolved(resolved) = w.event(0) else { panic!("not resolved") };
    assert_eq!((resolved.id, resolved.qpn), (asked, Qpn::new(0x44)));
    assert_eq!((resolved.qkey, resolved.av.dgid), (QKey::new(0x0123_4567), gid(1)));
    assert_eq!((&resolved.private[..3], resolved.private.len()), (&b"me\0"[..], 136));
    let expected = ["0 SIDR_REQ", "0 SIDR_REQ", "1 SIDR_REP 0", "0 SIDR_REQ", "1 SIDR_REP 0"];
    assert_eq!(w.transcript(), expected);
    assert!(w.cms[1].answer(w.now, question.id, &answer).is_err(), "answered already");
    w.run(Span::from_ms(200_000));
    assert_eq!(w.cms[1].poll_timeout(), None, "the answer is forgotten in the end");
}

#[test]
fn a_datagram_service_is_refused_or_silent() {
    let service = ServiceId::rdma_cm(PortSpace::Udp, 1);
    let mut w = World::new(2, GOOD);
    let ask = ResolveRequest { max_cm_retries: 1, ..ResolveRequest::new(service, av(1)) };
    let id = w.cms[0].resolve(w.now, &ask).unwrap();
    w.run(Span::from_ms(10));
    assert_eq!(w.event(0), CmEvent::Unresolved(id, Some(SidrStatus::UNSUPPORTED)));

    w.cms[1].listen(Listen { service, address: None, backlog: 1 }).unwrap();
    let id = w.cms[0].resolve(w.now, &ask).unwrap();
    w.run(Span::from_ms(10));
    let CmEvent::Question(question) = w.event(1) else { panic!("no question") };
    w.cms[1].cancel(w.now, question.id).unwrap();
    w.run(Span::from_ms(10));
    assert_eq!(w.event(0), CmEvent::Unresolved(id, Some(SidrStatus::REJECTED)));

    w.faults = DEAF;
    let id = w.cms[0].resolve(w.now, &ask).unwrap();
    w.run(Span::from_ms(60_000));
    assert_eq!(w.event(0), CmEvent::Unresolved(id, None));
    let id = w.cms[0].resolve(w.now, &ask).unwrap();
    w.cms[0].cancel(w.now, id).unwrap();
    w.run(Span::from_ms(60_000));
    assert!(w.take_events(0).is_empty());
}
