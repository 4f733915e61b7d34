//! Queues: marks, lossy shares, trust, cells, turns, pauses of whole links, links that fail.

mod rig;

use rig::{MAC, at, config, drain, gid, hop, packet, star};
use switch::{
    Alpha, Bandwidth, Content, DropCause, EcnAt, EcnProfile, Frame, Options, Scheduling, Switch,
    Trust,
};
use wire::mac_control::{MacControl, Pfc};
use wire::{Mac, Span};

fn ecn(at: EcnAt) -> EcnProfile {
    EcnProfile { kmin: 3_000, kmax: 3_000, pmax_ppb: 1_000_000_000, at, average_shift: 0 }
}

/// Which of six frames of 1000 bytes, sent one after the other, are marked.
fn marked(profile: EcnProfile, traffic_class: u8) -> Vec<bool> {
    let mut config = config(2, 1 << 20, 20_000);
    config.ports[1].ecn[3] = Some(profile);
    let mut switch = star(config);
    for _ in 0..6 {
        let mut frame = packet(1, 3, 1000);
        frame.header.net.as_mut().expect("a packet").traffic_class = traffic_class;
        switch.receive(at(0), 0, frame);
    }
    let frames = drain(&mut switch, at(0), 1);
    let ce = |frame: &Frame<u64>| frame.header.net.expect("a packet").traffic_class & 3 == 3;
    let marks: Vec<bool> = frames.iter().map(ce).collect();
    let counted = switch.counters(1).expect("a port").priorities[3].ecn_marked;
    assert_eq!(counted, marks.iter().filter(|m| **m).count() as u64);
    marks
}

#[test]
fn marks_by_the_length_before_or_behind() {
    let ect = 3 << 5 | 2;
    // Found by each: 0, 1000, … 5000; more than 3000 counts.
    assert_eq!(marked(ecn(EcnAt::Enqueue), ect), [false, false, false, false, true, true]);
    // Left by each: 5000, 4000, … 0.
    assert_eq!(marked(ecn(EcnAt::Dequeue), ect), [true, true, false, false, false, false]);
    // ECT(1) is capable as well; a packet that is not is left to PFC.
    assert_eq!(marked(ecn(EcnAt::Dequeue), 3 << 5 | 1)[..2], [true, true]);
    assert_eq!(marked(ecn(EcnAt::Dequeue), 3 << 5), [false; 6]);
}

#[test]
fn a_lossy_queue_has_its_share_of_what_is_free() {
    let mut config = config(3, 2 * 3 * 24_096, 20_000);
    // 72,288 bytes of pool; a queue may hold half of what is free.
    config.buffer.egress_alpha = Some(Alpha { numerator: 1, denominator: 2 });
    let mut switch = star(config.clone());
    for _ in 0..40 {
        switch.receive(at(0), 0, packet(1, 0, 1000));
    }
    // q + 1000 <= (72,288 - q) / 2 holds up to q = 23,000.
    assert_eq!(switch.egress_bytes(1, 0), 24_000);
    let counters = switch.counters(0).expect("a port");
    assert_eq!(counters.dropped[&DropCause::Buffer], 16);
    assert_eq!(counters.priorities[0].rx_cong_discard, 16);
    // Another queue has half of the rest; lossless frames are not held to it.
    for _ in 0..40 {
        switch.receive(at(0), 0, packet(2, 0, 1000));
    }
    assert_eq!(switch.egress_bytes(2, 0), 16_000);
    for _ in 0..20 {
        switch.receive(at(0), 1, packet(1, 3, 1000));
    }
    assert_eq!(switch.egress_bytes(1, 3), 20_000);
    // Without a share only the end of the pool stops it.
    config.buffer.egress_alpha = None;
    let mut switch = star(config);
    for _ in 0..80 {
        switch.receive(at(0), 0, packet(1, 0, 1000));
    }
    assert_eq!(switch.egress_bytes(1, 0), 72_000);
}

#[test]
fn space_is_counted_in_cells() {
    let mut config = config(2, 1 << 20, 20_000);
    config.buffer.cell = 208;
    let mut switch = star(config);
    for (length, bytes) in [(64, 208), (208, 416), (209, 832)] {
        switch.receive(at(0), 0, packet(1, 3, length));
        assert_eq!(switch.egress_bytes(1, 3), bytes);
        assert_eq!(switch.ingress_bytes(0, 3), bytes);
    }
    assert_eq!(drain(&mut switch, at(0), 1).len(), 3);
    assert_eq!(switch.counters(1).expect("a port").priorities[3].tx_bytes, 64 + 208 + 209);
}

#[test]
fn priorities_by_dscp_or_by_tag() {
    for (trust, expected) in [(Trust::Dscp, 5), (Trust::Pcp, 2)] {
        let mut config = config(2, 1 << 20, 20_000);
        config.trust = trust;
        config.dscp_map[26] = 5;
        config.class_of[5] = 6;
        let mut switch = star(config);
        let mut frame = packet(1, 0, 1000);
        frame.header.net.as_mut().expect("a packet").traffic_class = 26 << 2 | 2;
        frame.header.tag = Some((0, 2));
        switch.receive(at(0), 0, frame);
        assert_eq!(switch.ingress_bytes(0, expected), 1000);
        let queue = if expected == 5 { 6 } else { 2 };
        assert_eq!(switch.egress_bytes(1, queue), 1000);
    }
}

#[test]
fn queues_take_turns_by_weight_behind_the_strict_one() {
    let mut config = config(2, 8 << 20, 20_000);
    config.ports[1].scheduling = [Scheduling::Weighted(Bandwidth(1)); 8];
    config.ports[1].scheduling[1] = Scheduling::Weighted(Bandwidth(3));
    config.ports[1].scheduling[6] = Scheduling::Strict;
    let mut switch = star(config);
    for _ in 0..2000 {
        for priority in [0, 1] {
            switch.receive(at(0), 0, packet(1, priority, 1000 + 500 * u32::from(priority)));
        }
    }
    switch.receive(at(0), 0, packet(1, 6, 64));
    let mut bytes = [0_u64; 8];
    let first = switch.poll_transmit(at(0), 1).expect("a frame");
    assert_eq!(first.length, 64);
    for _ in 0..1000 {
        let frame = switch.poll_transmit(at(0), 1).expect("a frame");
        let priority = frame.header.net.expect("a packet").traffic_class >> 5;
        bytes[usize::from(priority)] += u64::from(frame.length);
    }
    // Quanta of 1600 and 4800 bytes.
    assert!(bytes[1].abs_diff(3 * bytes[0]) <= 4_800 + 3 * 1_600, "{bytes:?}");
}

#[test]
fn a_pause_of_the_whole_link() {
    let mut config = config(3, 400_000, 20_000);
    for port in &mut config.ports {
        port.link_pause = true;
    }
    let mut switch = star(config);
    while !switch.stops(0, 3) {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    let pause = |quanta| Content::Control(MacControl::Pause { quanta });
    let sent = drain(&mut switch, at(0), 0);
    assert_eq!(sent.iter().map(|f| f.content.clone()).collect::<Vec<_>>(), [pause(0xFFFF)]);
    // Everything rests, also lossy frames; PFC is not obeyed here.
    let control = MacControl::Pfc(Pfc { classes: 0xFF, quanta: [0xFFFF; 8] });
    switch.receive(at(0), 2, Box::new(Frame::control(MAC, control)));
    assert!(!switch.is_stopped(at(0), 2, 3));
    switch.receive(at(0), 0, packet(1, 0, 1000));
    let control = MacControl::Pause { quanta: 100 };
    switch.receive(at(0), 1, Box::new(Frame::control(MAC, control)));
    assert!((0..8).all(|priority| switch.is_stopped(at(511), 1, priority)));
    assert_eq!(switch.poll_transmit(at(511), 1), None);
    assert!(switch.poll_transmit(at(512), 1).is_some());
    drain(&mut switch, at(512), 1);
    let sent = drain(&mut switch, at(512), 0);
    assert_eq!(sent.iter().map(|f| f.content.clone()).collect::<Vec<_>>(), [pause(0)]);
}

#[test]
fn endless_pauses_neither_expire_nor_are_said_again() {
    let options = Options { endless_pauses: true, ..Options::default() };
    let mut switch: Switch<u64> =
        Switch::with_options(config(2, 400_000, 60_000), options).expect("it works");
    switch.set_route(gid(1), 128, vec![hop(1)]);
    let pause = |quanta| {
        let pfc = Pfc::one(3, quanta).expect("a priority");
        Box::new(Frame::control(MAC, MacControl::Pfc(pfc)))
    };
    switch.receive(at(0), 1, pause(1));
    while !switch.stops(0, 3) {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    assert_eq!(drain(&mut switch, at(0), 0).len(), 1);
    assert_eq!(switch.poll_timeout(), None);
    let late = at(0) + Span::from_ms(100_000);
    switch.handle_timeout(late);
    assert!(switch.is_stopped(late, 1, 3));
    assert_eq!((drain(&mut switch, late, 0).len(), drain(&mut switch, late, 1).len()), (0, 0));
    switch.receive(late, 1, pause(0));
    assert!(!drain(&mut switch, late, 1).is_empty());
    assert_eq!(drain(&mut switch, late, 0).len(), 1);
    let counters = switch.counters(1).expect("a port").priorities[3];
    assert_eq!(counters.rx_pause_duration, Span::from_ms(100_000).as_ps());
}

#[test]
fn a_link_that_fails_loses_its_queues_and_forgets_its_pauses() {
    let mut switch = star(config(3, 400_000, 20_000));
    switch.receive(at(0), 1, {
        let pfc = Pfc::one(3, 0xFFFF).expect("a priority");
        Box::new(Frame::control(Mac([2; 6]), MacControl::Pfc(pfc)))
    });
    while !switch.stops(0, 3) {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    let waiting = switch.ingress_bytes(0, 3) / 1000;
    assert_eq!(switch.holds(0, 3), [1]);
    assert_eq!(drain(&mut switch, at(0), 0).len(), 1);
    while switch.poll_port().is_some() {}
    switch.handle_link(at(10), 1, false);
    assert_eq!(switch.ingress_bytes(0, 3), 0);
    assert_eq!(switch.counters(0).expect("a port").dropped[&DropCause::LinkDown], waiting);
    // The neighbour that was stopped may go on.
    assert_eq!(switch.poll_port(), Some(0));
    assert_eq!(drain(&mut switch, at(10), 0).len(), 1);
    switch.receive(at(20), 0, packet(1, 3, 1000));
    assert_eq!(switch.counters(0).expect("a port").dropped[&DropCause::LinkDown], waiting + 1);
    // Up again, it is not stopped any more, and is named when there is something to send.
    switch.handle_link(at(30), 1, true);
    switch.receive(at(30), 0, packet(1, 3, 1000));
    assert_eq!(switch.poll_port(), Some(1));
    assert_eq!(drain(&mut switch, at(30), 1).len(), 1);
    // A pause that was said before the link failed is said again after.
    while !switch.stops(0, 3) {
        switch.receive(at(40), 0, packet(1, 3, 1000));
    }
    assert_eq!(drain(&mut switch, at(40), 0).len(), 1);
    switch.handle_link(at(50), 0, false);
    assert_eq!(drain(&mut switch, at(50), 0).len(), 0);
    switch.handle_link(at(60), 0, true);
    assert_eq!(drain(&mut switch, at(60), 0).len(), 1);
}

#[test]
fn a_port_is_named_once_until_it_has_given_nothing() {
    let mut switch = star(config(2, 400_000, 20_000));
    for _ in 0..3 {
        switch.receive(at(0), 0, packet(1, 3, 1000));
    }
    assert_eq!((switch.poll_port(), switch.poll_port()), (Some(1), None));
    assert!(switch.poll_transmit(at(0), 1).is_some());
    switch.receive(at(0), 0, packet(1, 3, 1000));
    assert_eq!(switch.poll_port(), None);
    assert_eq!(drain(&mut switch, at(0), 1).len(), 3);
    switch.receive(at(0), 0, packet(1, 3, 1000));
    assert_eq!((switch.poll_port(), switch.poll_port()), (Some(1), None));
}

#[test]
fn what_does_not_exist_is_answered_quietly() {
    let mut switch = star(config(2, 400_000, 20_000));
    switch.receive(at(0), 2, packet(1, 3, 1000));
    switch.receive(at(0), u16::MAX, packet(1, 3, 1000));
    switch.handle_link(at(0), 9, false);
    switch.set_route(gid(1), 255, vec![hop(700)]);
    switch.receive(at(0), 0, packet(1, 3, 1000));
    assert_eq!(switch.counters(0).expect("a port").dropped[&DropCause::LinkDown], 1);
    assert_eq!((switch.poll_transmit(at(0), 2), switch.poll_port()), (None, None));
    assert_eq!((switch.counters(2), switch.storms(0, 3), switch.telemetry(2)), (None, None, None));
    assert_eq!((switch.egress_bytes(0, 8), switch.ingress_bytes(7, 3)), (0, 0));
    assert!(!switch.is_stopped(at(0), 0, 200) && !switch.stops(0, 200));
    let empty = config(0, 0, 0);
    assert!(Switch::<u64>::new(empty).is_ok());
}
