//! Pauses: sent exactly at the thresholds, refreshed, obeyed, over when their time is.

mod rig;

use rig::{at, config, drain, packet, star};
use switch::{Content, DropCause, Frame, Switch};
use wire::mac_control::{MacControl, Pfc};
use wire::{Instant, Mac, Rate};

fn pfc(priority: u8, quanta: u16) -> MacControl {
    MacControl::Pfc(Pfc::one(priority, quanta).expect("a priority"))
}

fn pause<B>(control: MacControl) -> Box<Frame<B>> {
    Box::new(Frame::control(Mac([2, 0, 0, 0, 0, 1]), control))
}

fn sent(switch: &mut Switch<u64>, now: Instant, port: u16) -> Option<MacControl> {
    let frame = switch.poll_transmit(now, port)?;
    let Content::Control(control) = frame.content else { panic!("{frame:?} is no pause") };
    assert_eq!(frame.length, 64);
    assert_eq!(frame.header.source, Mac([2, 0, 0, 9, 0, port as u8]));
    Some(control)
}

#[test]
fn xoff_at_a_static_threshold_and_xon_below_it() {
    let mut config = config(2, 1 << 20, 20_000);
    for port in &mut config.ports {
        let pfc = port.pfc[3].as_mut().expect("lossless");
        pfc.xoff = Some(10_000);
        pfc.xon_offset = 3_000;
    }
    let mut switch = star(config);
    // The reserve of 4096 bytes, then 9,904 bytes of the pool: not yet.
    for _ in 0..14 {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    assert_eq!(switch.ingress_bytes(0, 3), 14_000);
    assert!(!switch.stops(0, 3));
    assert_eq!(sent(&mut switch, at(0), 0), None);
    // 10,000 exactly.
    switch.receive(at(0), 0, packet(1, 3, 96));
    assert!(switch.stops(0, 3));
    while let Some(port) = switch.poll_port() {
        assert!(port < 2);
    }
    assert_eq!(sent(&mut switch, at(1), 0), Some(pfc(3, 0xFFFF)));
    assert_eq!(sent(&mut switch, at(1), 0), None);
    assert_eq!(switch.counters(0).expect("port 0").priorities[3].tx_pause, 1);
    // The pause ends at 7,000 bytes of the pool.
    for _ in 0..2 {
        assert!(switch.poll_transmit(at(2), 1).is_some());
        assert_eq!(sent(&mut switch, at(2), 0), None);
    }
    assert!(switch.poll_transmit(at(3), 1).is_some());
    assert_eq!(switch.ingress_bytes(0, 3), 4_096 + 7_000);
    assert_eq!(sent(&mut switch, at(3), 0), Some(pfc(3, 0)));
    assert_eq!(switch.counters(0).expect("port 0").priorities[3].tx_pause, 1);
}

#[test]
fn headroom_takes_what_comes_after_and_is_counted_when_full() {
    let mut switch = star(config(2, 2 * (4096 + 20_000) + 80_000, 20_000));
    let mut frames = 0;
    while !switch.stops(0, 3) {
        switch.receive(at(0), 0, packet(1, 3, 1000));
        frames += 1;
    }
    // The pool holds 8,904 bytes of 13 frames; (80,000 - 8,904)/8 is 8,887.
    assert_eq!((frames, switch.ingress_bytes(0, 3)), (13, 13_000));
    for _ in 0..20 {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    let counters = switch.counters(0).expect("port 0");
    assert_eq!(counters.dropped.get(&DropCause::Headroom), None);
    switch.receive(at(0), 0, packet(1, 3, 1000));
    let counters = switch.counters(0).expect("port 0");
    assert_eq!(counters.dropped.get(&DropCause::Headroom), Some(&1));
    assert_eq!(counters.priorities[3].rx_buf_discard, 1);
    assert_eq!(counters.priorities[3].ingress_watermark, 33_000);
    assert_eq!(drain(&mut switch, at(0), 1).len(), 33);
    assert_eq!((switch.ingress_bytes(0, 3), switch.egress_bytes(1, 3)), (0, 0));
    assert!(!switch.stops(0, 3));
}

#[test]
fn a_pause_is_refreshed_at_half_its_time() {
    let mut switch = star(config(2, 200_000, 60_000));
    while !switch.stops(0, 3) {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    assert_eq!(sent(&mut switch, at(100), 0), Some(pfc(3, 0xFFFF)));
    // 32,767 quanta of 5.12 ns.
    let half = at(100) + Rate::from_gbps(100).time_for(32_767 * 64);
    assert_eq!(switch.poll_timeout(), Some(half));
    while switch.poll_port().is_some() {}
    assert_eq!(switch.poll_transmit(half, 0), None);
    switch.handle_timeout(half);
    assert_eq!(switch.poll_port(), Some(0));
    assert_eq!(sent(&mut switch, half, 0), Some(pfc(3, 0xFFFF)));
    assert_eq!(switch.counters(0).expect("port 0").priorities[3].tx_pause, 2);
    drain(&mut switch, half, 1);
    assert_eq!(sent(&mut switch, half, 0), Some(pfc(3, 0)));
    switch.handle_timeout(half + wire::Span::from_ms(1));
    assert_eq!(sent(&mut switch, half, 0), None);
}

#[test]
fn a_pause_is_obeyed_until_its_quanta_are_over() {
    let mut switch = star(config(2, 200_000, 60_000));
    switch.receive(at(0), 1, pause(pfc(3, 100)));
    switch.receive(at(0), 0, packet(1, 3, 1000));
    switch.receive(at(0), 0, packet(1, 5, 1000));
    // Another priority goes on.
    assert_eq!(switch.poll_port(), Some(1));
    let other = switch.poll_transmit(at(0), 1).expect("priority 5");
    assert_eq!(other.header.net.expect("a packet").traffic_class >> 5, 5);
    assert_eq!(switch.poll_transmit(at(511), 1), None);
    assert!(switch.is_stopped(at(511), 1, 3));
    // 100 quanta of 5.12 ns are over at 512 ns.
    assert!(!switch.is_stopped(at(512), 1, 3));
    assert_eq!(switch.poll_timeout(), Some(at(512)));
    switch.handle_timeout(at(512));
    assert_eq!(switch.poll_port(), Some(1));
    assert!(switch.poll_transmit(at(512), 1).is_some());
    let counters = switch.counters(1).expect("port 1").priorities[3];
    assert_eq!((counters.rx_pause, counters.rx_pause_transition), (1, 1));
    assert_eq!(counters.rx_pause_duration, 512_000);
}

#[test]
fn a_pause_ends_with_quanta_of_zero_and_is_lengthened_by_another() {
    let mut switch = star(config(2, 200_000, 60_000));
    switch.receive(at(0), 1, pause(pfc(3, 100)));
    switch.receive(at(500), 1, pause(pfc(3, 100)));
    switch.receive(at(500), 0, packet(1, 3, 1000));
    assert_eq!(switch.poll_transmit(at(600), 1), None);
    switch.receive(at(700), 1, pause(pfc(3, 0)));
    assert_eq!(switch.poll_port(), Some(1));
    assert!(switch.poll_transmit(at(700), 1).is_some());
    let counters = switch.counters(1).expect("port 1").priorities[3];
    assert_eq!((counters.rx_pause, counters.rx_pause_transition), (2, 1));
    assert_eq!(counters.rx_pause_duration, 700_000);
    // A priority that is not lossless here is not stopped, and nor is anything by 802.3x.
    switch.receive(at(800), 1, pause(pfc(5, 0xFFFF)));
    switch.receive(at(800), 1, pause(MacControl::Pause { quanta: 0xFFFF }));
    assert!((0..8).all(|priority| !switch.is_stopped(at(800), 1, priority)));
}
