//! DCBX: TLVs byte for byte, any bytes read without harm, the rules of who gives way, and two
//! switches that agree.

mod rig;

use proptest::prelude::*;
use rig::{at, config, gid, hop, packet};
use switch::dcbx::exchange::{Exchange, Wishes};
use switch::dcbx::{Advert, AdvertError, Algorithm, Application, Ets, EtsTable, PfcSetting};
use switch::{Content, Options, Switch, SwitchEvent};
use wire::{Instant, Mac, Span};

const A: Mac = Mac([2, 0, 0, 0, 0, 0xA]);
const B: Mac = Mac([2, 0, 0, 0, 0, 0xB]);

fn table(rdma: u8) -> EtsTable {
    let mut algorithm = [Algorithm::Ets; 8];
    algorithm[6] = Algorithm::Strict;
    let bandwidth = [100 - rdma, 0, 0, rdma, 0, 0, 0, 0];
    EtsTable { class: [0, 0, 0, 3, 0, 0, 6, 0], bandwidth, algorithm }
}

fn wishes(willing: bool, enabled: u8) -> Wishes {
    Wishes {
        ets: Ets { willing, cbs: false, classes: 8, table: table(50) },
        recommendation: Some(table(70)),
        pfc: PfcSetting { willing, bypass: false, capability: 8, enabled },
        applications: vec![Application { priority: 3, selector: 3, protocol: 4791 }],
    }
}

#[test]
fn tlvs_byte_for_byte() {
    let advert = Exchange::new(A, wishes(true, 0b1000)).advert(A, 120);
    let bytes = advert.emit(B);
    let expected: &[&[u8]] = &[
        &[0x02, 7, 4, 2, 0, 0, 0, 0, 0xA],
        &[0x04, 7, 3, 2, 0, 0, 0, 0, 0xB],
        &[0x06, 2, 0, 120],
        // ETS configuration: willing, 8 classes; priorities 3 and 6 have classes of their own.
        &[0xFE, 25, 0x00, 0x80, 0xC2, 9, 0x80, 0x00, 0x03, 0x00, 0x60],
        &[50, 0, 0, 50, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 0, 2],
        &[0xFE, 25, 0x00, 0x80, 0xC2, 10, 0x00, 0x00, 0x03, 0x00, 0x60],
        &[30, 0, 0, 70, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 0, 2],
        &[0xFE, 6, 0x00, 0x80, 0xC2, 11, 0x88, 0b1000],
        // UDP port 4791 has priority 3.
        &[0xFE, 8, 0x00, 0x80, 0xC2, 12, 0x00, 3 << 5 | 3, 0x12, 0xB7],
        &[0, 0],
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(Advert::parse(&bytes), Ok(advert));
}

#[test]
fn what_is_not_understood_is_named() {
    let pfc = [0xFE, 6, 0x00, 0x80, 0xC2, 11, 0x88, 8];
    let parse = |bytes: &[u8]| Advert::parse(bytes);
    assert_eq!(parse(&[]), Ok(Advert::default()));
    assert_eq!(parse(&pfc[..7]), Err(AdvertError::Truncated { kind: 127 }));
    assert_eq!(parse(&[pfc, pfc].concat()), Err(AdvertError::Twice { kind: 11 }));
    let short = [0xFE, 5, 0x00, 0x80, 0xC2, 11, 0x88];
    assert_eq!(parse(&short), Err(AdvertError::TooShort { kind: 11, found: 1 }));
    // Another organisation's, and a type that is not known.
    assert_eq!(parse(&[0xFE, 4, 0x00, 0x1B, 0x21, 2, 0x10, 1, 9]), Ok(Advert::default()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(advert) = Advert::parse(&bytes) {
            let again = Advert::parse(&advert.emit(A)).expect("what is written is read");
            prop_assert_eq!(again.pfc, advert.pfc);
        }
    }
}

#[test]
fn who_gives_way() {
    let heard = |own: bool, mac: Mac, theirs: bool, from: Mac| {
        let mut exchange = Exchange::new(mac, wishes(own, 0b0000_1000));
        let advert = Exchange::new(from, wishes(theirs, 0b0001_0000)).advert(from, 120);
        exchange.hear(at(0), from, advert);
        (exchange.pfc(), exchange.ets().bandwidth[3], exchange.mismatch())
    };
    assert_eq!(heard(true, B, false, A), (0b0001_0000, 70, false));
    assert_eq!(heard(false, A, true, B), (0b0000_1000, 50, false));
    assert_eq!(heard(true, A, true, B), (0b0001_0000, 70, false));
    assert_eq!(heard(true, B, true, A), (0b0000_1000, 70, false));
    assert_eq!(heard(false, A, false, B), (0b0000_1000, 50, true));
}

fn build(mac: Mac, wishes: Wishes) -> Switch<u64> {
    let mut config = config(2, 400_000, 20_000);
    config.mac = mac;
    for port in &mut config.ports {
        port.pfc[4] = port.pfc[3];
    }
    let options = Options { dcbx: vec![Some(wishes)], ..Options::default() };
    let mut switch = Switch::with_options(config, options).expect("it works");
    switch.set_route(gid(1), 128, vec![hop(1)]);
    switch
}

/// Runs timers and carries adverts between ports 0 until there are none.
fn talk(switches: &mut [Switch<u64>; 2], now: Instant) -> u32 {
    let mut frames = 0;
    for switch in switches.iter_mut() {
        switch.handle_timeout(now);
    }
    loop {
        let mut quiet = true;
        for from in 0..2 {
            while let Some(frame) = switches[from].poll_transmit(now, 0) {
                assert!(matches!(frame.content, Content::Lldp(_)));
                switches[1 - from].receive(now, 0, frame);
                frames += 1;
                quiet = false;
            }
        }
        if quiet {
            return frames;
        }
    }
}

#[test]
fn two_switches_agree_and_part() {
    let mut switches = [build(A, wishes(true, 0b0000_1000)), build(B, wishes(false, 0b0001_0000))];
    let lossless = |switch: &mut Switch<u64>, priority: u8| {
        let before = switch.shared_bytes();
        switch.receive(at(0), 0, {
            let mut frame = packet(1, priority, 1000);
            frame.header.destination = switch.config().mac;
            frame
        });
        // A lossless priority has a reserve of its own.
        let shared = switch.shared_bytes() == before;
        assert!(switch.poll_transmit(at(0), 1).is_some());
        shared
    };
    assert!(lossless(&mut switches[0], 3) && !lossless(&mut switches[0], 4));
    // Each tells once, and the willing one again what it has taken.
    assert_eq!(talk(&mut switches, at(0)), 3);
    assert_eq!(switches[0].poll_event(), Some(SwitchEvent::Agreed { port: 0, pfc: 0b0001_0000 }));
    assert_eq!(switches[1].poll_event(), None);
    assert!(!lossless(&mut switches[0], 3) && lossless(&mut switches[0], 4));
    // Repeated every 30 s.
    assert_eq!(switches[0].poll_timeout(), Some(at(0) + Span::from_ms(30_000)));
    assert_eq!(talk(&mut switches, at(0) + Span::from_ms(30_000)), 2);
    // The other falls silent: 120 s later its wishes are forgotten.
    let late = at(0) + Span::from_ms(150_000);
    switches[0].handle_timeout(late);
    assert_eq!(switches[0].poll_event(), Some(SwitchEvent::Agreed { port: 0, pfc: 0b0000_1000 }));
    assert!(switches[0].exchange(0).expect("DCBX").peer().is_none());
    assert!(lossless(&mut switches[0], 3));
    // What is no advert is counted.
    let mut frame = switches[0].poll_transmit(late, 0).expect("an advert");
    frame.content = Content::Lldp(vec![0xFE, 0xFF]);
    switches[1].receive(late, 0, frame);
    assert_eq!(switches[1].counters(0).expect("a port").lldp_discards, 1);
}

#[test]
fn what_waits_when_a_priority_stops_being_lossless_is_accounted_for() {
    let mut switches = [build(A, wishes(true, 0b0000_1000)), build(B, wishes(false, 0b0001_0000))];
    let mut frame = packet(1, 3, 1000);
    frame.header.destination = A;
    while !switches[0].stops(0, 3) {
        switches[0].receive(at(0), 0, frame.clone());
    }
    for _ in 0..5 {
        switches[0].receive(at(0), 0, frame.clone());
    }
    assert!(matches!(
        switches[0].poll_transmit(at(0), 0).expect("a pause").content,
        Content::Control(_)
    ));
    switches[0].handle_timeout(at(0));
    switches[1].handle_timeout(at(0));
    let advert = switches[1].poll_transmit(at(0), 0).expect("an advert");
    switches[0].receive(at(0), 0, advert);
    assert!(!switches[0].stops(0, 3));
    while switches[0].poll_transmit(at(0), 1).is_some() {}
    assert_eq!((switches[0].shared_bytes(), switches[0].ingress_bytes(0, 3)), (0, 0));
}
