//! Pauses and the rules R080 to R086: each rule's positive, and what nearly is one. Frames are made
//! by hand: the field has no captures of deadlocks to give away.

#[path = "support/stage.rs"]
mod stage;

use audit::{Report, Rule};
use stage::{MS, S, Stage, US, encode, found, frame, mac, of, packet};
use wire::Mac;
use wire::ethernet::Ethernet;
use wire::frame::{Frame, emit_frame};
use wire::mac_control::{MacControl, Pfc};

/// The switch's port towards host 1, and towards host 2.
const PORT: Mac = Mac([0xCC, 0, 0, 0, 0, 1]);
const MOST: u16 = 0xFFFF;
/// DSCP 26 with ECT(0): priority 3.
const CLASS_3: u8 = 0x6A;

fn control(from: Mac, control: MacControl) -> Vec<u8> {
    let frame = Frame::mac_control(from, control);
    let mut bytes = vec![0; frame.wire_len()];
    emit_frame(&frame, &mut bytes).expect("it is well formed");
    bytes
}

fn pfc(from: Mac, priority: u8, quanta: u16) -> Vec<u8> {
    control(from, MacControl::Pfc(Pfc::one(priority, quanta).expect("a priority")))
}

/// A data packet of a class from one host to another.
fn data(from: u8, to: u8, class: u8, psn: u32) -> Vec<u8> {
    let mut packet = packet(from, to, 0x2A, 0x11, psn, 1024);
    packet.path.traffic_class = class;
    frame(from, to, &packet)
}

/// A stage on the link of host 1, to which hosts 1 and 2 have sent.
fn stage() -> Stage {
    let mut stage = Stage::new();
    for n in 0..200 {
        stage.show(S + n * US, 0, &data(1, 2, CLASS_3, n as u32));
        stage.show(S + n * US + 500, 0, &data(2, 1, CLASS_3, n as u32));
    }
    stage
}

/// From here on tests have the time to themselves.
const T: u64 = 2 * S;

fn none() -> Vec<String> {
    Vec::new()
}

/// Pauses renewed every 150 µs from `from` for `length`, then ended.
fn hold(stage: &mut Stage, point: u16, port: Mac, priority: u8, from: u64, length: u64) {
    let mut time = from;
    while time < from + length {
        stage.show(time, point, &pfc(port, priority, MOST));
        time += 150 * US;
    }
    stage.show(from + length, point, &pfc(port, priority, 0));
}

#[test]
fn time_paused_is_told_by_priority() {
    let mut stage = stage();
    // Ended after 100 µs; renewed after 200 µs and left to run out (335.5 µs at 100 Gb/s).
    stage.show(T, 0, &pfc(mac(1), 3, MOST));
    stage.show(T + 100 * US, 0, &pfc(mac(1), 3, 0));
    stage.show(T + MS, 0, &pfc(mac(1), 3, MOST));
    stage.show(T + MS + 200 * US, 0, &pfc(mac(1), 3, MOST));
    stage.show(T + 5 * MS, 0, &data(1, 2, CLASS_3, 1000));
    let report = stage.finish();
    let [link] = &report.links[..] else { panic!("{:?}", report.links) };
    assert_eq!((link.link, &*link.port, link.link_gbps), (1, "02:00:00:00:00:01", 100));
    assert_eq!(link.pauses, [0, 0, 0, 3, 0, 0, 0, 0]);
    assert!((link.paused_us[3] - (100.0 + 200.0 + 335.539)).abs() < 0.01, "{:?}", link.paused_us);
    assert!((link.longest_us[3] - 535.539).abs() < 0.01, "{:?}", link.longest_us);
    assert_eq!(link.paused_us[4], 0.0);
    assert_eq!(found(&report, "R08"), none());
}

#[test]
fn the_speed_of_the_link_makes_the_time() {
    let options = audit::Options { link_gbps: Some(10), ..audit::Options::default() };
    let mut stage = Stage::with(options);
    stage.show(T, 0, &pfc(mac(1), 3, MOST));
    stage.show(T + 9 * MS, 0, &data(1, 2, CLASS_3, 1000));
    let report = stage.finish();
    assert!((report.links[0].paused_us[3] - 3355.39).abs() < 0.01, "{:?}", report.links[0]);
    // A slow link that is held is seen by its silence, without being told the speed: renewed every
    // 1.6 ms, which is longer than a pause lasts at 100 Gb/s.
    let mut stage = self::stage();
    for n in 0..5 {
        stage.show(T + n * 1600 * US, 0, &pfc(mac(1), 3, MOST));
    }
    stage.show(T + 8 * MS, 0, &pfc(mac(1), 3, 0));
    let report = stage.finish();
    assert!((report.links[0].paused_us[3] - 8000.0).abs() < 0.01, "{:?}", report.links[0]);
    // With traffic between them they were single pauses.
    let mut stage = self::stage();
    for n in 0..5 {
        stage.show(T + n * 1600 * US, 0, &pfc(mac(1), 3, MOST));
        stage.show(T + n * 1600 * US + 800 * US, 0, &data(2, 1, CLASS_3, 900 + n as u32));
    }
    stage.show(T + 8 * MS, 0, &pfc(mac(1), 3, 0));
    let report = stage.finish();
    assert!((report.links[0].paused_us[3] - 5.0 * 335.539).abs() < 0.1, "{:?}", report.links[0]);
}

#[test]
fn a_storm_of_short_pauses() {
    let storm = |pause_us: u64, length_ms: u64| {
        let mut stage = stage();
        let mut time = T;
        while time < T + length_ms * MS {
            stage.show(time, 0, &pfc(mac(1), 3, MOST));
            stage.show(time + pause_us * US, 0, &pfc(mac(1), 3, 0));
            time += 100 * US;
        }
        stage.finish()
    };
    let report = storm(90, 50);
    assert_eq!(found(&report, "R08"), ["R080 x1"]);
    let finding = of(&report, Rule::PauseStorm)[0];
    let whose = "port 02:00:00:00:00:01 (10.0.0.1) pauses priority 3";
    assert!(finding.detail.contains(whose), "{finding:?}");
    assert_eq!(finding.side, audit::Side::Host(stage::gid(1)));
    assert!(finding.detail.contains("100 Gb/s, assumed"), "{finding:?}");
    // Half of the time is congestion; ten milliseconds are a burst.
    assert_eq!(found(&storm(50, 50), "R08"), none());
    assert_eq!(found(&storm(90, 9), "R08"), none());
    // Two windows of ten milliseconds.
    assert_eq!(found(&storm(90, 17), "R08"), none());
    assert_eq!(found(&storm(90, 20), "R08"), ["R080 x1"]);
}

#[test]
fn a_long_pause_and_a_storm_of_one() {
    let held = |length| {
        let mut stage = stage();
        hold(&mut stage, 0, mac(1), 3, T, length);
        stage.show(T + S, 0, &data(1, 2, CLASS_3, 1000));
        stage.finish()
    };
    let report = held(30 * MS);
    assert_eq!(found(&report, "R08"), ["R081 x1"]);
    let finding = of(&report, Rule::LongPause)[0];
    assert!((finding.numbers[0].value - 30.0).abs() < 1e-6, "{finding:?}");
    assert_eq!(found(&held(9 * MS), "R08"), none());
    assert_eq!(found(&held(300 * MS), "R08"), ["R080 x1"], "what a watchdog would end");
    // A pause that the capture ends in is not longer than the capture.
    let mut stage = stage();
    hold(&mut stage, 0, mac(1), 3, T, 9 * MS);
    stage.show(T + 9 * MS + 1, 0, &pfc(mac(1), 3, MOST));
    assert_eq!(found(&stage.finish(), "R08"), none());
}

fn one_way(lossy: bool, other_pauses: bool) -> Report {
    one_way_with(lossy.then_some(1), other_pauses, 20, [200; 2])
}

/// Data both ways, so many packets by each host, so many pauses by host 1; of what host `lossy`
/// sends a part is lost and asked for again.
fn one_way_with(lossy: Option<u8>, other_pauses: bool, pauses: u32, packets: [u32; 2]) -> Report {
    let mut stage = Stage::new();
    let mut time = T;
    let send = |stage: &mut Stage, from: u8, opcode: u8, psn: u32, len, time| {
        let mut packet = packet(from, 3 - from, opcode, 0x11, psn, len);
        packet.path.traffic_class = CLASS_3;
        packet.bth.ack_request = true;
        stage.show(time, 0, &frame(from, 3 - from, &packet))
    };
    for n in 0..200 {
        time += 100 * US;
        // Requests without data behind those with it.
        let len = |host: usize| if n < packets[host] { 64 } else { 0 };
        send(&mut stage, 1, 0x04, 1000 + n, len(0), time);
        send(&mut stage, 2, 0x04, 5000 + n, len(1), time + US);
        send(&mut stage, 2, 0x11, 1000 + n, 0, time + 2 * US);
        send(&mut stage, 1, 0x11, 5000 + n, 0, time + 3 * US);
        if n % 10 == 0 && n / 10 < pauses {
            stage.show(time + 4 * US, 0, &pfc(mac(1), 3, 0xFF));
            stage.show(time + 5 * US, 0, &pfc(mac(1), 3, 0));
            if other_pauses {
                stage.show(time + 4 * US, 0, &pfc(PORT, 3, 0xFF));
                stage.show(time + 5 * US, 0, &pfc(PORT, 3, 0));
            }
        }
    }
    if let Some(host) = lossy {
        // The first does not get there: a sequence NAK, and again from there.
        let (other, psn) = (3 - host, [1200, 5200][usize::from(host - 1)]);
        send(&mut stage, host, 0x04, psn, 64, time + 10 * US);
        send(&mut stage, host, 0x04, psn + 1, 64, time + 11 * US);
        let mut nak = packet(other, host, 0x11, 0x11, psn, 0);
        nak.path.traffic_class = CLASS_3;
        nak.ext.aeth = Some(wire::Aeth {
            syndrome: wire::Syndrome::Nak(wire::packet::NakCode::PsnSequenceError),
            msn: wire::Msn::new(200),
        });
        stage.show(time + 13 * US, 0, &frame(other, host, &nak));
        send(&mut stage, host, 0x04, psn, 64, time + 14 * US);
        send(&mut stage, host, 0x04, psn + 1, 64, time + 15 * US);
        send(&mut stage, other, 0x11, psn + 1, 0, time + 16 * US);
    }
    stage.finish()
}

#[test]
fn one_end_that_never_pauses_and_loses() {
    let report = one_way(true, false);
    assert_eq!(found(&report, "R021"), ["R021 x1"], "the loss itself");
    assert_eq!(found(&report, "R08"), ["R082 x1"]);
    // A receiver that is slower than its network is the usual reason for pauses of one end.
    assert_eq!(found(&one_way(false, false), "R08"), none());
    assert_eq!(found(&one_way(true, true), "R08"), none());
    let with = |pauses, packets| found(&one_way_with(Some(1), false, pauses, packets), "R08");
    assert_eq!(with(10, [200; 2]), ["R082 x1"]);
    let report = one_way_with(Some(2), false, 20, [200; 2]);
    assert_eq!(found(&report, "R021"), ["R021 x1"]);
    assert_eq!(found(&report, "R08"), none(), "lost towards the end that pauses");
    assert_eq!(with(9, [200; 2]), none());
    assert_eq!(with(20, [90, 200]), none(), "hardly any data towards the silent end");
    assert_eq!(with(20, [200, 90]), none(), "hardly any data from it");
}

#[test]
fn pauses_of_a_class_that_nobody_uses() {
    let paused = |priority, class| {
        let mut stage = Stage::new();
        for n in 0..200 {
            stage.show(T + n * 10 * US, 0, &data(1, 2, class, n as u32));
            if n % 10 == 0 {
                stage.show(T + n * 10 * US + US, 0, &pfc(mac(1), priority, 100));
            }
        }
        stage.finish()
    };
    assert_eq!(found(&paused(4, CLASS_3), "R08"), ["R083 x1"]);
    assert_eq!(found(&paused(3, CLASS_3), "R08"), none());
    assert_eq!(found(&paused(3, 0), "R08"), ["R083 x1"], "DSCP 0 is priority 0");
    // The tag says 4, the DSCP 3: which one the switch trusts is not known.
    let tagged = |priority| {
        let mut stage = Stage::new();
        for n in 0..200 {
            let mut packet = packet(1, 2, 0x2A, 0x11, n, 1024);
            packet.path.traffic_class = CLASS_3;
            let ethernet = Ethernet::new(mac(1), mac(2)).tagged(4, 7);
            stage.show(T + u64::from(n) * 10 * US, 0, &encode(ethernet, &packet));
            if n % 10 == 0 {
                stage.show(T + u64::from(n) * 10 * US + US, 0, &pfc(mac(1), priority, 100));
            }
        }
        stage.finish()
    };
    assert_eq!(found(&tagged(4), "R08"), none());
    assert_eq!(found(&tagged(3), "R08"), none());
    assert_eq!(found(&tagged(5), "R08"), ["R083 x1"]);
    // A few pauses, or a few packets, are not enough to say so.
    let mut few = stage();
    for n in 0..5 {
        few.show(T + n * MS, 0, &pfc(mac(1), 4, 100));
    }
    assert_eq!(found(&few.finish(), "R08"), none());
    for (packets, right) in [(99, none()), (100, vec!["R083 x1".to_owned()])] {
        let mut stage = Stage::new();
        for n in 0..packets {
            stage.show(T + n * US, 0, &data(1, 2, CLASS_3, n as u32));
        }
        for n in 0..10 {
            stage.show(T + MS + n * MS, 0, &pfc(mac(1), 4, 100));
        }
        assert_eq!(found(&stage.finish(), "R08"), right, "{packets} packets");
    }
    // A pause of the whole link holds all.
    let mut global = stage();
    for n in 0..20 {
        global.show(T + n * MS, 0, &pfc(mac(1), 4, 100));
    }
    global.show(T + S, 0, &control(mac(1), MacControl::Pause { quanta: 100 }));
    assert_eq!(found(&global.finish(), "R08"), ["R086 x1"]);
}

/// Host 1 pauses priority 3 for 2 ms; meanwhile packets come in, each as (from, to, class), 1 µs
/// apart from `start`.
fn during(start: u64, count: u64, from: u8, to: u8, class: u8) -> Vec<String> {
    let mut stage = stage();
    let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
    for n in 0..40 {
        frames.push((T + n * 50 * US, pfc(mac(1), 3, MOST)));
    }
    frames.push((T + 2 * MS, pfc(mac(1), 3, 0)));
    for n in 0..count {
        frames.push((T + start + n * US, data(from, to, class, 1000 + n as u32)));
    }
    frames.sort_by_key(|(time, _)| *time);
    for (time, bytes) in frames {
        stage.show(time, 0, &bytes);
    }
    found(&stage.finish(), "R08")
}

/// The same for packets with tag 3 whose DSCP says 6.
fn during_tagged() -> Vec<String> {
    let mut stage = stage();
    for n in 0..20 {
        stage.show(T + n * 50 * US, 0, &pfc(mac(1), 3, MOST));
    }
    for n in 0..40 {
        let mut packet = packet(2, 1, 0x2A, 0x11, 1000 + n, 1024);
        packet.path.traffic_class = 0xC0;
        let ethernet = Ethernet::new(mac(2), mac(1)).tagged(3, 7);
        stage.show(T + 1010 * US + u64::from(n) * 100, 0, &encode(ethernet, &packet));
    }
    found(&stage.finish(), "R08")
}

#[test]
fn a_pause_that_is_not_heeded() {
    assert_eq!(during(500 * US, 100, 2, 1, CLASS_3), ["R084 x97"], "from the fourth on");
    // Under way when the pause was sent.
    assert_eq!(during(2 * US, 40, 2, 1, CLASS_3), none());
    // Of another priority, or in the other direction.
    assert_eq!(during(500 * US, 100, 2, 1, 0xC0), none());
    assert_eq!(during(500 * US, 100, 1, 2, CLASS_3), none());
    // When it is over.
    assert_eq!(during(2 * MS + US, 100, 2, 1, CLASS_3), none());
    // Too few to be more than a slow reaction.
    assert_eq!(during(500 * US, 3, 2, 1, CLASS_3), none());
    // Whose tag says another priority than its DSCP: the sender knows which one counts.
    assert_eq!(during_tagged(), none());
    // Other hosts' packets, of which it is not known which way they go.
    assert_eq!(during(500 * US, 100, 3, 4, CLASS_3), none());
}

#[test]
fn a_pause_that_may_have_run_out_is_heeded() {
    // One frame, 335 µs at 100 Gb/s, but 84 µs at 400 Gb/s: which it is, nobody said.
    let mut stage = stage();
    stage.show(T, 0, &pfc(mac(1), 3, MOST));
    for n in 0..100 {
        stage.show(T + 100 * US + n * US, 0, &data(2, 1, CLASS_3, 1000 + n as u32));
    }
    assert_eq!(found(&stage.finish(), "R08"), none());
    let options = audit::Options { link_gbps: Some(100), ..audit::Options::default() };
    let mut stage = Stage::with(options);
    stage.show(T, 0, &pfc(mac(1), 3, MOST));
    for n in 0..100 {
        stage.show(T + 100 * US + n * US, 0, &data(2, 1, CLASS_3, 1000 + n as u32));
    }
    assert_eq!(found(&stage.finish(), "R08"), ["R084 x97"]);
}

#[test]
fn the_switch_pauses_a_host() {
    // The port's address is in no packet; that host 1 is the other end shows by its own pauses.
    let run = |host_is_known: bool| {
        let mut stage = stage();
        if host_is_known {
            stage.show(T - MS, 0, &pfc(mac(1), 3, 10));
        }
        let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
        for n in 0..40 {
            frames.push((T + n * 50 * US, pfc(PORT, 3, MOST)));
        }
        for n in 0..100 {
            frames.push((T + 500 * US + n * US, data(1, 2, CLASS_3, 1000 + n as u32)));
            frames.push((T + 500 * US + n * US + 100, data(2, 1, CLASS_3, 1000 + n as u32)));
        }
        frames.sort_by_key(|(time, _)| *time);
        for (time, bytes) in frames {
            stage.show(time, 0, &bytes);
        }
        found(&stage.finish(), "R08")
    };
    assert_eq!(run(true), ["R084 x97"], "what host 1 sends, not what it gets");
    assert_eq!(run(false), none());
}

#[test]
fn a_global_pause() {
    let mut global = stage();
    global.show(T, 0, &control(mac(1), MacControl::Pause { quanta: 100 }));
    let report = global.finish();
    assert_eq!(found(&report, "R08"), ["R086 x1"]);
    assert_eq!(report.links[0].pauses, [1; 8]);
    // The frame that ends one pauses nothing, and a link without RoCE may do as it likes.
    let mut resumed = stage();
    resumed.show(T, 0, &control(mac(1), MacControl::Pause { quanta: 0 }));
    assert_eq!(found(&resumed.finish(), "R08"), none());
    let mut other = stage();
    other.show(T, 1, &control(mac(1), MacControl::Pause { quanta: 100 }));
    assert_eq!(found(&other.finish(), "R08"), none());
}

/// Switch `number`'s port.
fn switch(number: u8, port: u8) -> Mac {
    Mac([0xCC, 0, 0, 0, number, port])
}

/// Four links between switches a → b, each held by the second of the pair, captured at points 0..;
/// both ends show themselves on each.
fn ring(links: &[(u8, u8)], apart: u64, length: u64) -> Report {
    let mut stage = Stage::new();
    let mut frames: Vec<(u64, u16, Vec<u8>)> = Vec::new();
    for (point, (waits, holds)) in links.iter().enumerate() {
        let point = point as u16;
        for n in 0..200 {
            frames.push((S + n * US, point, data(1, 2, CLASS_3, n as u32)));
        }
        // Once the one that waits has paused too, long ago.
        let (other, own) = (switch(*waits, point as u8 * 2), switch(*holds, point as u8 * 2 + 1));
        frames.push((S + MS, point, pfc(other, 3, 10)));
        let start = T + u64::from(point) * apart;
        for n in 0..length / (100 * US) {
            frames.push((start + n * 100 * US, point, pfc(own, 3, MOST)));
        }
        frames.push((start + length, point, pfc(own, 3, 0)));
    }
    frames.sort_by_key(|(time, point, _)| (*time, *point));
    for (time, point, bytes) in frames {
        stage.show(time, point, &bytes);
    }
    stage.finish()
}

#[test]
fn switches_that_wait_for_each_other_in_a_ring() {
    let report = ring(&[(1, 2), (2, 3), (3, 4), (4, 1)], 0, 8 * MS);
    assert_eq!(found(&report, "R08"), ["R085 x1"]);
    let finding = of(&report, Rule::PauseCycle)[0];
    assert_eq!(finding.sample.len(), 4, "a frame of each link");
    assert!(finding.detail.contains("each of 4 devices waits for the next in priority 3"));
    // A chain, two ends of one link, a ring that is not at one time, or not for long.
    assert_eq!(found(&ring(&[(1, 2), (2, 3), (3, 4), (1, 4)], 0, 8 * MS), "R08"), none());
    assert_eq!(found(&ring(&[(1, 2), (2, 1)], 0, 8 * MS), "R08"), none());
    assert_eq!(found(&ring(&[(1, 2), (2, 3), (3, 1)], 9 * MS, 8 * MS), "R08"), none());
    assert_eq!(found(&ring(&[(1, 2), (2, 3), (3, 1)], 0, MS), "R08"), none());
    assert_eq!(found(&ring(&[(1, 2), (2, 3), (3, 1)], 0, 1900 * US), "R08"), none());
    assert_eq!(found(&ring(&[(1, 2), (2, 3), (3, 1)], 100 * US, 8 * MS), "R08"), ["R085 x1"]);
}

#[test]
fn hosts_with_neighbouring_addresses_are_no_ring() {
    // Host 2 holds its switch, that one the next, that one host 1: how congestion spreads.
    let mut frames: Vec<(u64, u16, Vec<u8>)> = Vec::new();
    let links = [(switch(1, 0), mac(2)), (switch(2, 0), switch(1, 1)), (mac(1), switch(2, 1))];
    for (point, (waits, holds)) in links.into_iter().enumerate() {
        for n in 0..200 {
            frames.push((S + n * US, point as u16, data(1, 2, CLASS_3, n as u32)));
        }
        frames.push((S + MS, point as u16, pfc(waits, 3, 10)));
        for n in 0..80 {
            frames.push((T + n * 100 * US, point as u16, pfc(holds, 3, MOST)));
        }
        frames.push((T + 8 * MS, point as u16, pfc(holds, 3, 0)));
    }
    frames.sort_by_key(|(time, point, _)| (*time, *point));
    let mut stage = Stage::new();
    for (time, point, bytes) in frames {
        stage.show(time, point, &bytes);
    }
    assert_eq!(found(&stage.finish(), "R08"), none());
}

#[test]
fn a_flood_of_ports_stays_bounded() {
    let mut stage = Stage::new();
    for n in 0..20_000_u32 {
        let [_, a, b, c] = n.to_be_bytes();
        let port = Mac([0xCC, 1, 0, a, b, c]);
        stage.show(T + u64::from(n) * US, n as u16, &pfc(port, 3, MOST));
        stage.show(T + u64::from(n) * US, 0, &pfc(port, 3, MOST));
    }
    let report = stage.finish();
    assert!(report.links.len() <= audit::limits::LINKS * audit::limits::ENDS);
}

#[test]
fn real_captures_have_no_pauses() {
    for name in stage::capture_names() {
        let mut stage = Stage::new();
        stage.replay(&name, Some);
        let report = stage.finish();
        assert_eq!(found(&report, "R08"), none(), "{name}");
        assert_eq!(report.links.len(), 0, "{name}");
    }
}

/// A link between two routers: packets of many hosts, all with the routers' own MAC addresses.
fn routed(stage: &mut Vec<(u64, u16, Vec<u8>)>, point: u16, from: Mac, to: Mac) {
    for n in 0..200_u64 {
        let (source, destination) = (1 + (n % 7) as u8, 20 + (n % 5) as u8);
        let mut packet = packet(source, destination, 0x2A, 0x11, n as u32, 1024);
        packet.path.traffic_class = CLASS_3;
        stage.push((S + 10 * MS + n * US, point, encode(Ethernet::new(from, to), &packet)));
    }
}

#[test]
fn routers_that_wait_for_each_other_in_a_ring() {
    // Each link's other end is known by the packets that it sends; only one end ever pauses.
    let ring = |links: &[(u8, u8)]| {
        let mut frames: Vec<(u64, u16, Vec<u8>)> = Vec::new();
        for (point, (waits, holds)) in links.iter().enumerate() {
            let point = point as u16;
            let own = switch(*holds, 0);
            frames.push((S, point, pfc(own, 3, 10)));
            routed(&mut frames, point, switch(*waits, 0), own);
            for n in 0..80 {
                frames.push((T + n * 100 * US, point, pfc(own, 3, MOST)));
            }
            frames.push((T + 8 * MS, point, pfc(own, 3, 0)));
        }
        frames.sort_by_key(|(time, point, _)| (*time, *point));
        let mut stage = Stage::new();
        for (time, point, bytes) in frames {
            stage.show(time, point, &bytes);
        }
        found(&stage.finish(), "R08")
    };
    assert_eq!(ring(&[(1, 2), (2, 3), (3, 1)]), ["R085 x1"]);
    assert_eq!(ring(&[(1, 2), (2, 3), (1, 3)]), none());
}
