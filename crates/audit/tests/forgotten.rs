//! More conversations than are remembered: what is forgotten is judged as at the end of a capture.

mod support;

use audit::{Auditor, Event, Options, Report, limits};
use support::codes;
use support::exchange::{Exchange, op};
use wire::packet::Encapsulation;
use wire::{Gid, Qpn};

/// The exchange, then so many other conversations that it is forgotten.
fn drowned(x: &Exchange) -> Report {
    let mut auditor = Auditor::new(Options::default());
    for event in &x.events {
        auditor.see(event);
    }
    let mut other = x.clone();
    let event = other.packet(false, op::SEND_ONLY, 0, Default::default(), 1).clone();
    for n in 0..2 * limits::HALVES as u32 {
        auditor.see(&of_another(event.clone(), n));
    }
    auditor.finish(Vec::new())
}

fn of_another(mut event: Event, n: u32) -> Event {
    let audit::What::Packet(packet) = &mut event.what else { unreachable!() };
    let gid = |last: u8| Gid::from_ip(std::net::Ipv4Addr::new(10, 9, 9, last).into());
    (packet.path.source, packet.path.destination) = (gid(1), gid(2));
    packet.path.traffic_class = 0;
    packet.bth.dest_qp = Qpn::new(n + 100);
    event
}

/// The same rules are found whether it is forgotten or not.
#[track_caller]
fn expect(x: &Exchange, right: &[&str]) {
    let names = |report: &Report| -> Vec<_> { codes(report).iter().map(|(c, _)| *c).collect() };
    let alone = support::audit(&x.events);
    assert_eq!(names(&alone), right, "alone: {:#?}", alone.findings);
    let drowned = drowned(x);
    assert_eq!(codes(&drowned), codes(&alone), "{:#?}", drowned.findings);
}

fn started() -> Exchange {
    let mut x = Exchange::new();
    x.sends(0, 4);
    x
}

/// SENDs whose packets and answers have these traffic classes.
fn classes(x: &mut Exchange, first: u32, count: u32, there: u8, back: u8) {
    for psn in first..first + count {
        x.request(op::SEND_ONLY, psn, 100).newest_packet().path.traffic_class = there;
        x.ack(psn, psn + 1).newest_packet().path.traffic_class = back;
    }
}

#[test]
fn orderly_conversations() {
    expect(&started(), &[]);
}

#[test]
fn r026_retry_exceeded() {
    let mut x = started();
    for _ in 0..4 {
        x.request(op::SEND_ONLY, 4, 100).wait(67_000);
    }
    expect(&x, &["R021", "R025", "R026"]);
}

#[test]
fn r034_mtu_mismatch() {
    let mut x = started();
    x.request(op::SEND_FIRST, 4, 2048).request(op::SEND_LAST, 5, 1).ack(5, 5);
    x.read(6, 3000).response(op::RESPONSE_FIRST, 6, 1024).response(op::RESPONSE_MIDDLE, 7, 1024);
    expect(&x, &["R034"]);
}

#[test]
fn r060_not_ect() {
    let mut x = Exchange::new();
    classes(&mut x, 0, 20, 0, 0);
    x.packet(true, 0x81, 0, Default::default(), 16);
    expect(&x, &["R060"]);
}

#[test]
fn r062_ce_without_cnp() {
    let mut x = Exchange::new();
    classes(&mut x, 0, 40, 3, 0);
    x.wait(2000).ack(39, 40);
    expect(&x, &["R062"]);
}

#[test]
fn r064_cnp_class() {
    let mut x = Exchange::new();
    classes(&mut x, 0, 20, 2, 0);
    x.packet(true, 0x81, 0, Default::default(), 16);
    x.newest_packet().path.traffic_class = 2;
    expect(&x, &["R064"]);
}

#[test]
fn r066_dscp_asymmetric() {
    let mut x = Exchange::new();
    classes(&mut x, 0, 20, 26 << 2, 0);
    expect(&x, &["R066"]);
}

#[test]
fn r070_versions_mixed() {
    let mut x = started();
    x.sends(4, 4);
    for event in &mut x.events[8..] {
        let audit::What::Packet(packet) = &mut event.what else { unreachable!() };
        packet.path.encapsulation = Encapsulation::RoceV1;
    }
    expect(&x, &["R070"]);
}

#[test]
fn r071_no_entropy() {
    let mut x = Exchange::new();
    for qp in 0..10 {
        let before = x.events.len();
        x.sends(0, 10);
        for event in &mut x.events[before..] {
            let audit::What::Packet(packet) = &mut event.what else { unreachable!() };
            packet.bth.dest_qp = Qpn::new(packet.bth.dest_qp.get() + qp);
        }
    }
    expect(&x, &["R071"]);
}
