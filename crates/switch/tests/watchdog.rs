//! The watchdog: when it finds a storm of pauses, what it does meanwhile, when it is over.

mod rig;

use rig::{at, config, gid, hop, packet};
use switch::{DropCause, Frame, Options, StormAction, Switch, SwitchEvent, Watchdog};
use wire::mac_control::{MacControl, Pfc};
use wire::{Mac, Span};

const US: u64 = 1000;

fn build(action: StormAction) -> Switch<u64> {
    let us = Span::from_us;
    let watchdog = Watchdog { poll: us(100), detection: us(200), restoration: us(300), action };
    let options = Options { watchdog: Some(watchdog), ..Options::default() };
    let mut switch = Switch::with_options(config(3, 4_000_000, 20_000), options).expect("it works");
    for port in 0..3 {
        switch.set_route(gid(port as u8), 128, vec![hop(port)]);
    }
    switch
}

/// A neighbour at port 1 that repeats its pause every 50 us, and a sender to it; until this time
/// the switch's timers run. Returns when storms began and ended.
fn storm(switch: &mut Switch<u64>, pauses: std::ops::Range<u64>, until: u64) -> Vec<(u64, bool)> {
    let mut told = Vec::new();
    for us in 0..until {
        let now = at(us * US);
        if pauses.contains(&us) && us % 50 == 0 {
            let control = MacControl::Pfc(Pfc::one(3, 0xFFFF).expect("a priority"));
            switch.receive(now, 1, Box::new(Frame::control(Mac([2; 6]), control)));
        }
        if us % 10 == 0 {
            switch.receive(now, 0, packet(1, 3, 1000));
            switch.receive(now, 1, packet(2, 3, 1000));
        }
        if switch.poll_timeout().is_some_and(|due| due.is_due(now)) {
            switch.handle_timeout(now);
        }
        for port in 0..3 {
            while switch.poll_transmit(now, port).is_some() {}
        }
        while let Some(event) = switch.poll_event() {
            let SwitchEvent::Storm { port, priority, began } = event else { panic!("{event:?}") };
            assert_eq!((port, priority), (1, 3));
            told.push((us, began));
        }
    }
    told
}

#[test]
fn a_storm_is_found_dropped_and_over() {
    let mut switch = build(StormAction::Drop);
    // Stopped at 0, looked at every 100 us; the last pause comes at 950 us.
    let told = storm(&mut switch, 0..1000, 2000);
    assert_eq!(told, [(200, true), (1300, false)]);
    let counters = switch.counters(1).expect("a port");
    assert_eq!(counters.storms, (1, 1));
    // Frames came at 0, 10, … 200; all of them but those after the look at 200 wait there.
    let to = switch.counters(0).expect("a port").dropped[&DropCause::Watchdog];
    // One each 10 us from 0 to 1300, the last of which comes before the look that ends the storm.
    assert_eq!(to, 131);
    let from = switch.counters(1).expect("a port").dropped[&DropCause::Watchdog];
    let storms = switch.storms(1, 3).expect("a watchdog");
    assert_eq!((storms.detected, storms.restored), (1, 1));
    assert_eq!((storms.rx_drop, storms.tx_drop), (from, to));
    // What came in by the port from 210 to 1300.
    assert_eq!(from, 110);
    assert_eq!((switch.ingress_bytes(0, 3), switch.shared_bytes()), (0, 0));
    // Afterwards it is lossless again.
    assert_eq!(switch.counters(1).expect("a port").priorities[3].tx_frames, 69);
}

#[test]
fn forwarding_ignores_pauses() {
    let mut switch = build(StormAction::Forward);
    let told = storm(&mut switch, 0..1000, 1500);
    assert_eq!(told, [(200, true), (1300, false)]);
    assert_eq!(switch.counters(0).expect("a port").dropped.len(), 0);
    assert_eq!(switch.counters(1).expect("a port").priorities[3].tx_frames, 150);
    // 21 that had waited until 200 us, and one each 10 us until 1290.
    assert_eq!(switch.storms(1, 3).expect("a watchdog").tx_ok, 21 + 109);
}

#[test]
fn an_alert_changes_nothing() {
    let mut switch = build(StormAction::Alert);
    let told = storm(&mut switch, 0..400, 2000);
    assert_eq!(told, [(200, true), (700, false)]);
    assert_eq!(switch.counters(1).expect("a port").priorities[3].tx_frames, 200);
    assert_eq!(switch.counters(1).expect("a port").dropped.len(), 0);
}

#[test]
fn a_queue_that_moves_or_is_empty_is_no_storm() {
    let mut switch = build(StormAction::Drop);
    // Pauses of less than the detection time, each ended before the next.
    let control = |quanta| MacControl::Pfc(Pfc::one(3, quanta).expect("a priority"));
    let mut told = 0;
    for us in 0..3000 {
        let now = at(us * US);
        let quanta = match us % 190 {
            0 => Some(0xFFFF),
            180 => Some(0),
            _ => None,
        };
        if let Some(quanta) = quanta {
            switch.receive(now, 1, Box::new(Frame::control(Mac([2; 6]), control(quanta))));
            // And one at port 2, which has nothing to send.
            switch.receive(now, 2, Box::new(Frame::control(Mac([2; 6]), control(0xFFFF))));
        }
        if us % 50 == 0 {
            switch.receive(now, 0, packet(1, 3, 1000));
        }
        switch.handle_timeout(now);
        while switch.poll_transmit(now, 1).is_some() {}
        told += usize::from(switch.poll_event().is_some());
    }
    assert_eq!(told, 0);
    assert_eq!(build(StormAction::Drop).poll_timeout(), None, "idle without pauses");
}
