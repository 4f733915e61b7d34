//! The forms on counters made up for them: tables, JSON, and the grammar of Prometheus's text.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{Counters, QpCounters};
use live::{LinkCounters, Silence, Silent};

use super::*;

fn owned(counters: impl Iterator<Item = (&'static str, u64)>) -> Vec<(String, u64)> {
    counters.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn stat(pid: u32, command: &str) -> DeviceStat {
    let counters = Counters {
        tx_packets: 100,
        tx_bytes: 123_456_789,
        rx_packets: 99,
        rx_unknown_qp: 2,
        retransmitted_packets: 3,
        tx_write_requests: 10,
        ..Counters::default()
    };
    let link = LinkCounters { rx_packets: 103, rx_icrc_encapsulated: 4, ..LinkCounters::default() };
    let mut of_qp = QpCounters::default();
    of_qp.traffic.tx_packets = 100;
    of_qp.exceptions.rx_stale_ack = 5;
    let facts = [
        ("type", "RC"),
        ("state", "RTS"),
        ("peer", "127.0.73.3"),
        ("peer_qpn", "300"),
        ("in_flight", "7"),
        ("send_queue", "3"),
        ("send_queue_max", "128"),
        ("srq", "0"),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    DeviceStat {
        pid,
        uid: 0,
        command: command.to_owned(),
        device: "crocevia0".to_owned(),
        netdev: "lo".to_owned(),
        addresses: vec!["127.0.73.2".to_owned()],
        mtu: 4096,
        uptime: Duration::from_millis(2500),
        objects: vec![("qps".to_owned(), 1)],
        counters: owned(counters.iter()),
        link: owned(link.iter()),
        qps: vec![QpStat { qpn: 0x01_2345, facts, counters: owned(of_qp.iter()) }],
    }
}

fn stats() -> Stats {
    let silent = Silent { pid: 9, uid: 0, device: "crocevia0".to_owned(), why: Silence::Stopped };
    Stats { devices: vec![stat(1, "ib_write_bw"), stat(22_222, "a \"b\\ c")], silent: vec![silent] }
}

#[test]
fn tables() {
    let stats = stats();
    let devices = table::devices(&stats.devices);
    let head = "PID    COMMAND      DEVICE     ADDRESS     QPS  TX-PACKETS   TX-BYTES  RX-PACKETS";
    let row = "crocevia0  127.0.73.2    1         100  123456789          99";
    let expected = [
        format!("{head}  RX-BYTES  RETRANS  DROPS"),
        format!("1      ib_write_bw  {row}         0        3      6"),
        format!("22222  a \"b\\ c      {row}         0        3      6"),
    ];
    let devices: Vec<&str> = devices.lines().collect();
    assert_eq!(devices, expected);
    let drops = table::drops(&stats.devices[..1]);
    let lines: Vec<Vec<&str>> = drops.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["PID", "DEVICE", "DROPPED-FOR", "PACKETS"]);
    assert_eq!(lines[2], ["1", "crocevia0", "rx_icrc_encapsulated", "4"]);
    assert_eq!(lines[3], ["1", "crocevia0", "rx_unknown_qp", "2"]);
    assert_eq!(table::drops(&[]), "");
    let qps = table::qps(&stats.devices[..1]);
    let row: Vec<&str> = qps.lines().last().expect("a row").split_whitespace().collect();
    let expected = [
        "1",
        "crocevia0",
        "0x012345",
        "RC",
        "RTS",
        "127.0.73.3",
        "0x00012c",
        "3/128",
        "srq",
        "7",
        "100",
        "0",
        "0",
        "0",
        "0",
        "0",
        "0",
        "5",
    ];
    assert_eq!(row, expected);
    let all = table::everything(&stats.devices[..1]);
    for info in Counters::INFO.iter().chain(LinkCounters::INFO) {
        assert!(all.contains(&format!("\n    {}: ", info.name)), "{}", info.name);
    }
    assert!(all.contains("\n    rx_stale_ack: 5\n") && all.contains("open for 2.5 s"), "{all}");
}

#[test]
fn json_has_numbers_and_causes() {
    let value = document::of(&stats(), true);
    let device = &value["devices"][0];
    assert_eq!(device["counters"]["tx_bytes"], 123_456_789);
    assert_eq!(device["drops"]["rx_icrc_encapsulated"], 4);
    assert_eq!(device["qps"][0]["qpn"], 0x01_2345);
    assert_eq!(device["qps"][0]["peer_qpn"], 300);
    assert_eq!(device["qps"][0]["state"], "RTS");
    assert_eq!(device["qps"][0]["counters"]["rx_stale_ack"], 5);
    assert_eq!(value["silent"][0]["why"], "stopped");
    assert!(document::of(&stats(), false)["devices"][0].get("qps").is_none());
    assert_eq!(document::of(&Stats::default(), true)["devices"], serde_json::json!([]));
}

#[test]
fn rates_are_differences_by_the_devices_clock() {
    let mut now = stat(1, "x");
    let (_, _, seen) = watch::rows(std::slice::from_ref(&now), &BTreeMap::new());
    now.uptime += Duration::from_millis(500);
    for (name, value) in &mut now.counters {
        match name.as_str() {
            "tx_packets" => *value += 1000,
            "tx_bytes" => *value += 62_500_000,
            "tx_write_requests" => *value += 50,
            "rx_unknown_qp" => *value += 5,
            _ => {}
        }
    }
    let (rows, pairs, _) = watch::rows(std::slice::from_ref(&now), &seen);
    assert_eq!(rows[0][5..], ["100", "2000", "1.000", "0", "0", "0.000", "0", "10"]);
    assert_eq!(pairs[0][7..], ["0", "0", "0.000", "0", "0", "0.000", "0", "0"]);
    // A process that has been started anew counts from zero again.
    let (rows, _, _) = watch::rows(&[stat(1, "x")], &seen);
    assert_eq!(rows[0][5..], ["0", "0", "0.000", "0", "0", "0.000", "0", "0"]);
}

type Sample = (String, Vec<(String, String)>, f64);

/// Name, labels and value of a sample, if the line is one.
fn sample(line: &str) -> Option<Sample> {
    let name_of = |text: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        (starts && text.chars().all(good)).then(|| text.to_owned())
    };
    let (name, mut rest) = line.split_once('{')?;
    let mut labels = Vec::new();
    loop {
        let (label, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                (at, '"') => break at,
                (_, c) => value.push(c),
            }
        };
        labels.push((name_of(label)?, value));
        rest = &after[end + 1..];
        match rest.split_at_checked(1)? {
            (",", more) => rest = more,
            ("}", more) => break rest = more,
            _ => return None,
        }
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    Some((name_of(name)?, labels, value))
}

#[test]
fn prometheus_text_is_of_its_grammar() {
    let text = prometheus::of(&stats());
    assert!(text.ends_with('\n'));
    let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut current, mut values) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(!help.is_empty());
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, current);
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, labels, value) = sample(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(name, current, "under its own head");
            assert!(seen.insert((name.clone(), labels.clone())), "twice: {line}");
            let of = |label: &str| labels.iter().find(|l| l.0 == label).map(|l| l.1.clone());
            assert!(of("pid").is_some() && of("device").is_some(), "{line}");
            if of("pid").as_deref() == Some("22222") {
                assert_eq!(of("command").as_deref(), Some("a \"b\\ c"));
            }
            values.insert((name, of("pid"), of("cause")), value);
        }
    }
    let value = |name: &str, pid: &str, cause: Option<&str>| {
        values.get(&(name.to_owned(), Some(pid.to_owned()), cause.map(str::to_owned))).copied()
    };
    assert_eq!(value("crocevia_tx_bytes_total", "1", None), Some(123_456_789.0));
    assert_eq!(value("crocevia_link_rx_packets_total", "1", None), Some(103.0));
    assert_eq!(value("crocevia_qp_rx_stale_ack_total", "1", None), Some(5.0));
    assert_eq!(value("crocevia_drops_total", "1", Some("rx_unknown_qp")), Some(2.0));
    assert_eq!(value("crocevia_uptime_seconds", "1", None), Some(2.5));
    assert_eq!(value("crocevia_answers", "1", None), Some(1.0));
    assert_eq!(value("crocevia_answers", "9", None), Some(0.0));
    assert_eq!(prometheus::of(&Stats::default()), "");
}

#[test]
fn a_cause_has_one_name() {
    let losses = |table: &'static [CounterInfo]| {
        table.iter().filter(|info| info.kind != CounterKind::Count).map(|info| info.name)
    };
    let device: BTreeSet<_> = losses(Counters::INFO).collect();
    let link: BTreeSet<_> = losses(LinkCounters::INFO).collect();
    assert!(device.is_disjoint(&link));
}
