//! The summary of made-up reports: what stands in it, and that it keeps to the screen.

use std::net::IpAddr;

use audit::finding::{Finding, Flow, Number, Subject};
use audit::record::{At, Time};
use audit::report::{Connection, Conversation, End, LinkReport, Operations, Totals, Traffic};
use audit::{Rule, Side};
use wire::Gid;

use super::*;

fn gid(text: &str) -> Gid {
    Gid::from_ip(text.parse::<IpAddr>().expect("an address"))
}

fn at(frame: u64) -> At {
    At { time: Time(1_785_542_399_123_456_000 + frame * 1_000_000), file: 0, frame }
}

fn finding(rule: Rule, qp: u32, count: u64) -> Finding {
    let (source, destination) = (gid("10.77.1.1"), gid("10.77.1.2"));
    Finding {
        rule,
        severity: rule.severity(),
        subject: Subject::Flow(Flow { source, destination, qp }),
        side: Side::Behind(destination),
        causes: Vec::new(),
        detail: "PSN 0x123459 was seen here, answered by a sequence NAK and sent again".into(),
        count,
        first: Some(at(12)),
        last: Some(at(70)),
        sample: vec![at(12), at(70)],
        numbers: vec![Number::sum("lost_packets", 9.0), Number::max("recovery_us", 812.5)],
    }
}

fn talk(id: u32) -> Conversation {
    let operations = vec![Operations {
        kind: "WRITE",
        count: 1000,
        bytes: 4_096_000,
        latency_us: Some([3.0, 12.34, 812.5, 900.0]),
    }];
    let forward = Traffic {
        packets: 70,
        goodput_bytes: 4_096_000,
        retransmitted: 9,
        operations,
        ..Traffic::default()
    };
    let backward = Traffic { packets: 10, sequence_naks: 3, acks: 7, ..Traffic::default() };
    Conversation {
        id,
        a: End { address: "10.77.1.1".into(), qp: Some(0x11) },
        b: End { address: "10.77.1.2".into(), qp: Some(0x12) },
        encapsulation: "RoCEv2",
        service: "RC",
        mtu: Some(1024),
        first: at(1),
        last: at(80),
        midstream: false,
        forward,
        backward,
    }
}

fn report(findings: Vec<Finding>) -> Report {
    let capture = Capture {
        name: "loss.pcap".into(),
        format: "pcap, little endian, Ethernet".into(),
        records: 80,
        bytes: 70_000,
        first: Some(at(1).time),
        last: Some(at(80).time),
        dropped: None,
        damage: None,
    };
    let totals = Totals { packets: 80, bytes: 70_000, icrc_right: 80, ..Totals::default() };
    Report {
        captures: vec![capture],
        totals,
        conversations: vec![talk(1)],
        conversations_seen: 1,
        findings,
        ..Report::default()
    }
}

const USUAL: Wish =
    Wish { all_findings: false, qps: false, connections: false, links: false, live: false };

fn summary(report: &Report) -> String {
    text(report, USUAL, Screen::plain(100, 40))
}

#[track_caller]
fn fits(text: &str, width: usize, lines: usize) {
    assert!(text.lines().count() <= lines, "{} lines:\n{text}", text.lines().count());
    for line in text.lines() {
        assert!(line.chars().count() <= width, "wider than {width}: {line}");
        assert_eq!(line.trim_end(), line, "blanks at the end");
    }
}

#[test]
fn a_loss_is_told_with_all_that_is_needed() {
    let text = summary(&report(vec![finding(Rule::LostBehind, 0x12, 9)]));
    fits(&text, 100, 40);
    for part in [
        "loss.pcap: pcap, little endian, Ethernet, 80 frames, 79 ms from 2026-07-31 23:59:59.1244",
        "80 RDMA packets, 68.4 KiB; ICRC: 80 right, 0 wrong",
        "1 finding: 1 error",
        " 1 ERROR R021 packets seen here, but lost behind",
        "where   10.77.1.1 > 10.77.1.2 qp 0x12 (conversation 1)",
        "side    behind the capture, towards 10.77.1.2",
        "9 times, frames #12 (0.011000 s) to #70 (0.069000 s); lost packets 9; recovery 812 µs",
        "PSN 0x123459 was seen here",
        "more: --explain R021; with the file: --frames R021, --ladder 1",
        "remedy  look for drops towards the receiver",
        "10.77.1.1 0x11 <> 10.77.1.2 0x12",
        "WRITE 12.3 µs/812 µs",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn clean_and_empty_captures_are_said_to_be_so() {
    let clean = summary(&report(Vec::new()));
    assert!(clean.contains("\nNothing is wrong in it.\n"), "{clean}");
    let empty = summary(&Report::default());
    assert!(empty.contains("no RoCE or InfiniBand packet"), "{empty}");
    fits(&empty, 100, 40);
}

#[test]
fn many_queue_pairs_are_folded_and_many_rules_shortened() {
    let mut findings: Vec<Finding> =
        (0..15).map(|qp| finding(Rule::LostBehind, 0x12 + qp, 20 - u64::from(qp))).collect();
    let folded = summary(&report(findings.clone()));
    assert!(folded.contains("(conversation 1), and 14 more queue pairs"), "{folded}");
    assert!(folded.contains("seen    195 times"), "{folded}");
    assert!(folded.contains("lost packets 135"), "{folded}");
    fits(&folded, 100, 40);

    let sum = Finding { subject: Subject::Others, ..finding(Rule::LostBehind, 0, 999) };
    findings.insert(0, sum);
    let beyond = summary(&report(findings.clone()));
    assert!(beyond.contains("(conversation 1), and more than 14 more queue pairs"), "{beyond}");
    findings.extend(Rule::ALL.iter().map(|rule| finding(*rule, 0x12, 1)));
    for (width, lines) in [(100, 40), (60, 40), (160, 70)] {
        let mut report = report(findings.clone());
        report.conversations = (1..=9).map(talk).collect();
        report.conversations_seen = 70_000;
        let connection = Connection { service: "TCP port 7471".into(), ..Connection::default() };
        report.connections = vec![connection; 9];
        let pauses = [9, 0, 0, 4, 0, 0, 0, 0];
        report.links = vec![LinkReport { link: 1, pauses, ..LinkReport::default() }];
        let crowded = text(&report, USUAL, Screen::plain(width, lines));
        fits(&crowded, width, lines.max(46));
        assert!(crowded.contains("more findings: --findings all"), "{crowded}");
        assert!(crowded.contains("and 69996 more conversations: --qps"), "{crowded}");
        assert!(crowded.contains("and 6 more connections: --connections"), "{crowded}");
    }
}

#[test]
fn all_findings_are_told_one_by_one() {
    let findings: Vec<Finding> =
        (0..15).map(|qp| finding(Rule::LostBehind, 0x12 + qp, 9)).collect();
    let wish = Wish { all_findings: true, ..USUAL };
    let text = text(&report(findings), wish, Screen::plain(100, 40));
    assert_eq!(text.matches(" ERROR R021 ").count(), 15, "{text}");
    assert!(text.contains("qp 0x20"), "{text}");
}

#[test]
fn names_from_outside_do_not_steer_the_terminal() {
    let mut report = report(vec![finding(Rule::LostBehind, 0x12, 9)]);
    report.captures[0].name = "a\u{1b}]0;x\u{7}\n.pcap".into();
    report.findings[0].detail = "\u{1b}[2J\r".into();
    let text = summary(&report);
    assert!(!text.contains(['\u{1b}', '\u{7}', '\r']), "{text:?}");
}

#[test]
fn tables_are_whole_where_they_are_asked_for() {
    let mut report = report(Vec::new());
    report.conversations = (1..=30).map(talk).collect();
    report.conversations_seen = 30;
    let wish = Wish { qps: true, connections: true, links: true, ..USUAL };
    let text = text(&report, wish, Screen::plain(100, 40));
    assert_eq!(text.matches("10.77.1.1  10.77.1.2  0x12").count(), 30, "{text}");
    assert_eq!(text.matches("WRITE").count(), 30, "{text}");
}

#[test]
fn what_went_by_cannot_be_read_again() {
    let report = report(vec![finding(Rule::LostBehind, 0x12, 9)]);
    let told = summary(&report);
    assert!(told.contains("with the file: --frames R021"), "{told}");
    let live = text(&report, Wish { live: true, ..USUAL }, Screen::plain(100, 40));
    assert!(live.contains("another --live: --frames R021, --html PAGE"), "{live}");
    assert!(!live.contains("with the file") && !live.contains("--ladder"), "{live}");
}

#[test]
fn connections_and_ports_tell_all_when_asked() {
    let mut report = report(Vec::new());
    report.connections = vec![
        Connection {
            active: "10.77.1.1".into(),
            passive: "10.77.1.2".into(),
            transport: "RC",
            from: "10.77.1.9:4000".parse().ok(),
            active_psn: Some(0x1234),
            passive_psn: Some(7),
            responder_resources: Some(16),
            initiator_depth: Some(4),
            retry_count: Some(7),
            rnr_retry: Some(6),
            ack_timeout: Some(14),
            private: "6865".repeat(20),
            repeated: 3,
            ..Connection::default()
        },
        Connection { transport: "UD", ..Connection::default() },
    ];
    let usual = summary(&report);
    assert!(!usual.contains("PSNS"), "{usual}");
    let wish = Wish { connections: true, ..USUAL };
    let all = text(&report, wish, Screen::plain(100, 40));
    let (head, row) = all
        .lines()
        .skip_while(|line| !line.starts_with("CONNECTION"))
        .fold((None, None), |(head, row), line| {
            (head.or(Some(line)), row.or(head.and(Some(line))))
        });
    let (head, row) = (head.expect("a table"), row.expect("a row"));
    for (name, value) in [
        ("TYPE", "RC"),
        ("CM SAYS", "10.77.1.9:4000 > -"),
        ("PSNS", "0x1234 0x7"),
        ("READS", "16/4"),
        ("RETRY", "7/6"),
        ("TIMEOUT", "67.1 ms"),
        ("AGAIN", "3"),
        ("PRIVATE", "68656865686568656865686568656865… -"),
    ] {
        assert!(head.contains(name) && row.contains(value), "{name} {value}\n{head}\n{row}");
    }
    // What nobody tells has no column.
    report.connections.remove(0);
    let none = text(&report, wish, Screen::plain(100, 40));
    assert!(!none.contains("PSNS") && none.contains("TYPE"), "{none}");

    let pauses = [0, 0, 0, 5, 0, 0, 0, 0];
    let port = |name: Option<&str>| LinkReport {
        port: "02:00:00:00:00:01".into(),
        name: name.map(str::to_owned),
        link_gbps: 100,
        pauses,
        ..LinkReport::default()
    };
    report.links = vec![port(Some("Ethernet1/1 of leaf\u{1b}[2J")), port(None)];
    let told = summary(&report);
    assert!(told.contains("Ethernet1/1 of leaf\u{fffd}[2J"), "{told}");
    assert!(told.contains(" NAME ") && told.contains(" 100 "), "{told}");
    report.links.remove(0);
    assert!(!summary(&report).contains(" NAME "));
}
