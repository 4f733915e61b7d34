//! DCBX and the rules R090 to R096: each rule's positive, and what nearly is one. LLDP frames are
//! made by hand, byte by byte as IEEE 802.1Qaz and the CEE drafts have them.

#[path = "support/stage.rs"]
mod stage;

use audit::{Report, Rule};
use stage::{S, Stage, US, found, frame, of, packet};
use wire::Mac;

const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SWITCH: Mac = Mac([0xCC, 0, 0, 0, 0, 1]);

fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (kind << 9 | value.len() as u16).to_be_bytes().to_vec();
    bytes.extend(value);
    bytes
}

fn organisation(oui: [u8; 3], subtype: u8, body: &[u8]) -> Vec<u8> {
    tlv(127, &[&oui[..], &[subtype], body].concat())
}

fn ieee(subtype: u8, body: &[u8]) -> Vec<u8> {
    organisation([0x00, 0x80, 0xC2], subtype, body)
}

const WILLING: u8 = 0x80;

fn pfc(willing: u8, enabled: u8) -> Vec<u8> {
    ieee(11, &[willing | 8, enabled])
}

/// Priority 3 in class 1, the others in class 0, with these shares.
fn table(first: u8, shares: [u8; 2]) -> Vec<u8> {
    let mut body = vec![first, 0x00, 0x01, 0x00, 0x00];
    body.extend([shares[0], shares[1], 0, 0, 0, 0, 0, 0]);
    body.extend([2, 2, 0, 0, 0, 0, 0, 0]);
    body
}

fn ets(willing: u8, shares: [u8; 2]) -> Vec<u8> {
    ieee(9, &table(willing, shares))
}

fn recommends(shares: [u8; 2]) -> Vec<u8> {
    ieee(10, &table(0, shares))
}

/// Entries of priority, selector, protocol.
fn apps(entries: &[(u8, u8, u16)]) -> Vec<u8> {
    let mut body = vec![0];
    for (priority, selector, protocol) in entries {
        body.push(priority << 5 | selector);
        body.extend(protocol.to_be_bytes());
    }
    ieee(12, &body)
}

fn cee_feature(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    tlv(kind, &[&[0, 0, flags, 0], body].concat())
}

fn cee(features: &[Vec<u8>]) -> Vec<u8> {
    let control = tlv(1, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
    organisation([0x00, 0x1B, 0x21], 2, &[control, features.concat()].concat())
}

fn frame_of(mac: Mac, name: &str, ttl: u16, tlvs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [0x01, 0x80, 0xC2, 0, 0, 0x0E].to_vec();
    bytes.extend(mac.0);
    bytes.extend([0x88, 0xCC]);
    bytes.extend(tlv(1, &[&[4], &mac.0[..]].concat()));
    bytes.extend(tlv(2, b"\x05eth1"));
    bytes.extend(tlv(3, &ttl.to_be_bytes()));
    bytes.extend(tlv(5, name.as_bytes()));
    bytes.extend(tlvs.concat());
    bytes.extend([0, 0]);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

fn lldp(mac: Mac, tlvs: &[Vec<u8>]) -> Vec<u8> {
    let name = if mac == HOST { "node1" } else { "leaf1" };
    frame_of(mac, name, 120, tlvs)
}

/// Both ends speak `times` times, every 30 s, first the host.
fn exchange(times: u64, host: &[Vec<u8>], switch: &[Vec<u8>]) -> Report {
    let mut stage = Stage::new();
    for n in 0..times {
        stage.show(S + n * 30 * S, 0, &lldp(HOST, host));
        stage.show(S + n * 30 * S + 10 * S, 0, &lldp(SWITCH, switch));
    }
    stage.finish()
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn ends_that_agree() {
    let all = |willing| {
        [
            pfc(willing, 8),
            ets(willing, [50, 50]),
            recommends([50, 50]),
            apps(&[(3, 3, 4791), (3, 5, 26)]),
        ]
    };
    assert_eq!(found(&exchange(3, &all(WILLING), &all(0)), "R09"), none());
    assert_eq!(found(&exchange(3, &all(0), &all(0)), "R09"), none());
}

#[test]
fn a_willing_end_that_takes_over_is_no_fault() {
    // At first the host has its own tables; then it announces the switch's.
    let mut stage = Stage::new();
    let switch = [pfc(0, 8), ets(0, [60, 40]), recommends([50, 50]), apps(&[(3, 3, 4791)])];
    let before = [pfc(WILLING, 0), ets(WILLING, [100, 0]), apps(&[(5, 3, 4791)])];
    let after = [pfc(WILLING, 8), ets(WILLING, [50, 50]), apps(&[(3, 3, 4791)])];
    stage.show(S, 0, &lldp(HOST, &before));
    stage.show(2 * S, 0, &lldp(SWITCH, &switch));
    // Its agent was about to send when it heard the switch.
    stage.show(2 * S + S / 2, 0, &lldp(HOST, &before));
    for n in 1..4 {
        stage.show(n * 30 * S, 0, &lldp(HOST, &after));
        stage.show(n * 30 * S + 5 * S, 0, &lldp(SWITCH, &switch));
    }
    assert_eq!(found(&stage.finish(), "R09"), none());
    // The capture ends before it could.
    assert_eq!(found(&exchange(1, &before, &switch), "R09"), none());
}

#[test]
fn a_willing_end_that_does_not_take_over() {
    let report = exchange(2, &[pfc(WILLING, 0)], &[pfc(0, 8)]);
    assert_eq!(found(&report, "R09"), ["R090 x1"]);
    assert_eq!(
        of(&report, Rule::DcbxPfc)[0].detail,
        "node1 eth1 announces PFC for no priority, leaf1 eth1 for priority 3: the first is \
         willing, but has not taken it over"
    );
    let report = exchange(2, &[ets(WILLING, [100, 0])], &[ets(0, [60, 40]), recommends([50, 50])]);
    assert_eq!(found(&report, "R09"), ["R091 x1"]);
    let report =
        exchange(2, &[pfc(WILLING, 8), apps(&[(5, 3, 4791)])], &[pfc(0, 8), apps(&[(3, 3, 4791)])]);
    assert_eq!(found(&report, "R09"), ["R092 x1"]);
    assert_eq!(
        of(&report, Rule::DcbxApp)[0].detail,
        "RoCEv2 (port 4791) has priority 5 for node1 eth1, 3 for leaf1 eth1: the first is willing, \
         but has not taken it over"
    );
}

#[test]
fn ets_is_each_ends_own_unless_recommended() {
    // The host follows the recommendation, not the switch's own table; without a recommendation
    // it keeps its own.
    let report = exchange(3, &[ets(WILLING, [50, 50])], &[ets(0, [60, 40]), recommends([50, 50])]);
    assert_eq!(found(&report, "R09"), none());
    assert_eq!(found(&exchange(3, &[ets(WILLING, [50, 50])], &[ets(0, [60, 40])]), "R09"), none());
}

#[test]
fn nobody_is_willing() {
    let report = exchange(1, &[pfc(0, 8)], &[pfc(0, 0x18)]);
    assert_eq!(found(&report, "R09"), ["R090 x1", "R094 x1"], "nothing will change that");
    let report = exchange(1, &[ets(0, [50, 50])], &[ets(0, [60, 40])]);
    assert_eq!(found(&report, "R09"), ["R091 x1", "R094 x1"]);
    let report = exchange(1, &[apps(&[(3, 5, 26)])], &[apps(&[(4, 5, 26)])]);
    assert_eq!(found(&report, "R09"), ["R092 x1", "R094 x1"]);
    // Alike, or with entries that have nothing to do with RoCE or that one end only has.
    assert_eq!(found(&exchange(2, &[pfc(0, 8)], &[pfc(0, 8)]), "R09"), none());
    let storage = [apps(&[(4, 1, 0x8906), (3, 4, 4791)])];
    let other = [apps(&[(3, 1, 0x8906), (3, 3, 4791), (3, 1, 0x8915)])];
    assert_eq!(found(&exchange(2, &storage, &other), "R09"), none());
    assert_eq!(found(&exchange(2, &other, &storage), "R09"), none());
    // The same shares, but priority 4 in place of 3 in the second class.
    let mut moved = table(0, [50, 50]);
    (moved[2], moved[3]) = (0x00, 0x10);
    let report = exchange(1, &[ets(0, [50, 50])], &[ieee(9, &moved)]);
    assert_eq!(found(&report, "R09"), ["R091 x1", "R094 x1"]);
    // The same fault is told once, however often it is announced.
    assert_eq!(found(&exchange(9, &[pfc(0, 8)], &[pfc(0, 0)]), "R09"), ["R090 x1", "R094 x1"]);
}

#[test]
fn both_are_willing() {
    let report = exchange(1, &[pfc(WILLING, 8)], &[pfc(WILLING, 8)]);
    assert_eq!(found(&report, "R09"), ["R093 x1"]);
    // Each leads in something.
    let report =
        exchange(3, &[pfc(WILLING, 8), ets(0, [50, 50])], &[pfc(0, 8), ets(WILLING, [50, 50])]);
    assert_eq!(found(&report, "R09"), none());
}

#[test]
fn one_end_speaks_the_old_version() {
    let old = cee(&[cee_feature(3, 0x80, &[8, 8])]);
    let report = exchange(2, &[pfc(0, 8)], std::slice::from_ref(&old));
    assert_eq!(found(&report, "R09"), ["R095 x1"]);
    // Who speaks both, or has not heard the other yet, may still change.
    let report = exchange(2, &[pfc(0, 8), old.clone()], std::slice::from_ref(&old));
    assert_eq!(found(&report, "R09"), none());
    assert_eq!(found(&exchange(1, &[pfc(0, 8)], &[old]), "R09"), none());
    assert_eq!(found(&exchange(3, &[pfc(0, 8)], &[]), "R09"), none(), "no DCBX at all");
}

#[test]
fn the_old_version_compared() {
    let feature = |flags, enabled| cee(&[cee_feature(3, flags, &[enabled, 8])]);
    let groups = |shares: [u8; 2]| {
        let mut body = vec![0x00, 0x01, 0x00, 0x00, shares[0], shares[1]];
        body.extend([0; 6]);
        body.push(8);
        cee(&[cee_feature(2, 0x80, &body)])
    };
    let roce = |priorities| cee(&[cee_feature(4, 0x80, &[0x89, 0x15, 0, 0x1B, 0x21, priorities])]);
    let report = exchange(1, &[feature(0x80, 8)], &[feature(0x80, 16)]);
    assert_eq!(found(&report, "R09"), ["R090 x1", "R094 x1"]);
    // A willing end goes on announcing what it wishes.
    assert_eq!(found(&exchange(3, &[feature(0xC0, 0)], &[feature(0x80, 8)]), "R09"), none());
    // An end says itself that it does not fit.
    let report = exchange(3, &[feature(0xA0, 8)], &[feature(0xC0, 8)]);
    assert_eq!(found(&report, "R09"), ["R090 x1"]);
    let report = exchange(1, &[groups([50, 50])], &[groups([70, 30])]);
    assert_eq!(found(&report, "R09"), ["R091 x1", "R094 x1"]);
    let report = exchange(1, &[roce(0x08)], &[roce(0x10)]);
    assert_eq!(found(&report, "R09"), ["R092 x1", "R094 x1"]);
}

#[test]
fn announcements_that_no_longer_count() {
    // The switch went away before the host came back with another table.
    let mut stage = Stage::new();
    stage.show(S, 0, &lldp(SWITCH, &[pfc(0, 8)]));
    stage.show(200 * S, 0, &lldp(HOST, &[pfc(0, 0)]));
    assert_eq!(found(&stage.finish(), "R09"), none());
    // It said so itself: it counts for 0 s.
    let mut stage = Stage::new();
    stage.show(S, 0, &lldp(SWITCH, &[pfc(0, 8)]));
    stage.show(2 * S, 0, &frame_of(SWITCH, "leaf1", 0, &[pfc(0, 8)]));
    stage.show(3 * S, 0, &lldp(HOST, &[pfc(0, 0)]));
    assert_eq!(found(&stage.finish(), "R09"), none());
    // A third agent, or ends of different links, are not compared.
    let mut stage = Stage::new();
    stage.show(S, 0, &lldp(SWITCH, &[pfc(0, 8)]));
    stage.show(S, 1, &lldp(HOST, &[pfc(0, 0)]));
    stage.show(2 * S, 2, &lldp(SWITCH, &[pfc(0, 8)]));
    stage.show(2 * S, 2, &lldp(Mac([2, 0, 0, 0, 0, 9]), &[pfc(0, 8)]));
    stage.show(2 * S, 2, &lldp(HOST, &[pfc(0, 0)]));
    assert_eq!(found(&stage.finish(), "R09"), none());
}

#[test]
fn tlvs_that_make_no_sense() {
    let bad: [Vec<u8>; 10] = [
        ieee(11, &[8]),
        ieee(9, &table(0, [50, 50])[..20]),
        ieee(9, &[]),
        ets(0, [50, 49]),
        ieee(12, &[0, 0x63, 0x12]),
        ieee(12, &[]),
        [pfc(0, 8), pfc(0, 16)].concat(),
        cee(&[cee_feature(3, 0x80, &[])]),
        organisation([0x00, 0x1B, 0x21], 2, &tlv(3, &[0, 0, 0x80, 0, 8, 8])[..5]),
        organisation([0x00, 0x1B, 0x21], 2, &tlv(1, &[0, 0])),
    ];
    for bad in bad {
        let report = exchange(1, std::slice::from_ref(&bad), &[]);
        assert_eq!(found(&report, "R09"), ["R096 x1"], "{bad:02x?}");
    }
    // A table with a class that there is not.
    let mut body = table(0, [50, 50]);
    body[1] = 0x90;
    assert_eq!(found(&exchange(1, &[ieee(9, &body)], &[]), "R09"), ["R096 x1"]);
    // A frame that ends within a DCBX TLV.
    let mut short = lldp(HOST, &[pfc(0, 8), ets(0, [50, 50])]);
    short.truncate(short.len() - 9);
    let mut stage = Stage::new();
    stage.show(S, 0, &short);
    assert_eq!(found(&stage.finish(), "R09"), ["R096 x1"]);
}

#[test]
fn what_is_unusual_but_makes_sense() {
    for good in [
        ets(0, [0, 0]),
        ieee(8, &[1, 2, 3]),
        ieee(99, &[]),
        apps(&[]),
        apps(&[(3, 7, 1), (3, 0, 1)]),
        ieee(11, &[0x0F, 0xFF, 0, 0]),
        cee(&[tlv(77, &[1, 2, 3])]),
        organisation([0x00, 0x1B, 0x21], 3, &[0xFF; 7]),
        organisation([0x00, 0x12, 0x0F], 1, &[0, 0, 0, 0, 0]),
        tlv(8, &[5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 1, 0]),
        tlv(8, &[200, 1]),
        tlv(8, &[]),
    ] {
        let report = exchange(1, std::slice::from_ref(&good), &[]);
        assert_eq!(found(&report, "R09"), none(), "{good:02x?}");
    }
}

#[test]
fn any_bytes_are_read_without_harm() {
    // A small generator of its own: the same bytes on every run.
    let mut state = 0x9E37_79B9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let whole = [
        pfc(0, 8),
        ets(0, [50, 50]),
        recommends([50, 50]),
        apps(&[(3, 3, 4791), (3, 5, 26)]),
        cee(&[cee_feature(3, 0x80, &[8, 8]), cee_feature(4, 0x80, &[0x89, 0x15, 0, 0, 0, 8])]),
    ];
    let mut stage = Stage::new();
    for n in 0..20_000_u64 {
        let mut bytes = lldp(if next() & 1 == 0 { HOST } else { SWITCH }, &whole);
        for _ in 0..next() % 6 {
            let at = 14 + next() as usize % (bytes.len() - 14);
            bytes[at] = next() as u8;
        }
        bytes.truncate(60 + next() as usize % bytes.len());
        stage.show(S + n * US, 0, &bytes);
    }
    // Only that it comes to an end, and says no more than it may.
    let report = stage.finish();
    assert!(report.findings.iter().all(|f| f.sample.len() <= audit::limits::SAMPLE));
}

#[test]
fn names_come_to_the_pauses() {
    let mut stage = Stage::new();
    stage.show(S, 0, &frame_of(HOST, "node\x1b1", 120, &[]));
    let control = wire::mac_control::MacControl::Pause { quanta: 10 };
    let pause = wire::frame::Frame::mac_control(HOST, control);
    let mut bytes = vec![0; pause.wire_len()];
    wire::frame::emit_frame(&pause, &mut bytes).expect("it is well formed");
    stage.show(2 * S, 0, &bytes);
    stage.show(3 * S, 0, &frame(1, 2, &packet(1, 2, 0x04, 0x11, 1, 64)));
    let report = stage.finish();
    assert_eq!(report.links[0].name.as_deref(), Some("node?1 eth1"));
}

/// An LLDP frame of a port of a chassis.
fn port_of(mac: Mac, chassis: &str) -> Vec<u8> {
    let mut bytes = [0x01, 0x80, 0xC2, 0, 0, 0x0E].to_vec();
    bytes.extend(mac.0);
    bytes.extend([0x88, 0xCC]);
    bytes.extend(tlv(1, &[b"\x07", chassis.as_bytes()].concat()));
    bytes.extend(tlv(2, b"\x05eth1"));
    bytes.extend(tlv(3, &120_u16.to_be_bytes()));
    bytes.resize(60, 0);
    bytes
}

#[test]
fn a_ring_of_pauses_is_known_by_the_chassis() {
    // Ports with unrelated addresses; who they belong to is in LLDP alone.
    let ring = |links: &[(&str, &str)]| {
        let mut frames: Vec<(u64, u16, Vec<u8>)> = Vec::new();
        for (point, (waits, holds)) in links.iter().enumerate() {
            let point = point as u16;
            let port = |end: u8| Mac([0xCC, point as u8 * 9, 7, end, 1, 1]);
            frames.push((S, point, port_of(port(0), waits)));
            frames.push((S + US, point, port_of(port(1), holds)));
            for n in 0..80 {
                let pfc = wire::mac_control::Pfc::one(3, 0xFFFF).expect("a priority");
                let control = wire::mac_control::MacControl::Pfc(pfc);
                let pause = wire::frame::Frame::mac_control(port(1), control);
                let mut bytes = vec![0; pause.wire_len()];
                wire::frame::emit_frame(&pause, &mut bytes).expect("it is well formed");
                frames.push((2 * S + n * 100 * US, point, bytes));
            }
        }
        frames.sort_by_key(|(time, point, _)| (*time, *point));
        let mut stage = Stage::new();
        for (time, point, bytes) in frames {
            stage.show(time, point, &bytes);
        }
        stage.finish()
    };
    let report = ring(&[("s1", "s2"), ("s2", "s3"), ("s3", "s4"), ("s4", "s1")]);
    assert_eq!(found(&report, "R08"), ["R085 x1"]);
    assert!(of(&report, Rule::PauseCycle)[0].detail.contains("(s2 eth1) on link 1"));
    assert_eq!(found(&ring(&[("s1", "s2"), ("s2", "s3"), ("s3", "s4")]), "R08"), none());
}

#[test]
fn the_announced_map_tells_the_class_of_a_packet() {
    // DSCP 40 would be priority 5; the switch says that it is 3.
    let run = |tlvs: &[Vec<u8>]| {
        let mut stage = Stage::new();
        stage.show(S, 0, &lldp(SWITCH, tlvs));
        for n in 0..200 {
            let mut packet = packet(1, 2, 0x2A, 0x11, n, 64);
            packet.path.traffic_class = 40 << 2;
            stage.show(2 * S + u64::from(n) * US, 0, &frame(1, 2, &packet));
        }
        for n in 0..20 {
            let pfc = wire::mac_control::Pfc::one(3, 0x10).expect("a priority");
            let control = wire::mac_control::MacControl::Pfc(pfc);
            let pause = wire::frame::Frame::mac_control(SWITCH, control);
            let mut bytes = vec![0; pause.wire_len()];
            wire::frame::emit_frame(&pause, &mut bytes).expect("it is well formed");
            stage.show(3 * S + n * S / 100, 0, &bytes);
        }
        found(&stage.finish(), "R08")
    };
    assert_eq!(run(&[apps(&[(3, 5, 40)])]), none());
    assert_eq!(run(&[apps(&[(3, 5, 26)])]), ["R083 x1"]);
}
