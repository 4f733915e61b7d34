//! Counters as tables of text: devices, queue pairs, drops by cause, everything.

use std::fmt::Write;

use live::{DeviceStat, QpStat};

use crate::render::lay_out;

/// What names a device: process, program, device, address.
pub(super) const WHO: [&str; 4] = ["PID", "COMMAND", "DEVICE", "ADDRESS"];

/// The cells under [`WHO`].
pub(super) fn who(stat: &DeviceStat) -> Vec<String> {
    let address = stat.addresses.first().cloned().unwrap_or_default();
    vec![stat.pid.to_string(), stat.command.clone(), stat.device.clone(), address]
}

fn objects(stat: &DeviceStat, kind: &str) -> u64 {
    stat.objects.iter().find(|(name, _)| name == kind).map_or(0, |(_, n)| *n)
}

/// Queue pairs of a device.
pub(super) fn qp_count(stat: &DeviceStat) -> u64 {
    objects(stat, "qps")
}

/// One line a device.
pub(super) fn devices(stats: &[DeviceStat]) -> String {
    let names = ["tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "retransmitted_packets"];
    let head = ["QPS", "TX-PACKETS", "TX-BYTES", "RX-PACKETS", "RX-BYTES", "RETRANS", "DROPS"];
    let rows: Vec<Vec<String>> = stats
        .iter()
        .map(|stat| {
            let mut row = who(stat);
            row.push(qp_count(stat).to_string());
            row.extend(names.iter().map(|name| stat.counter(name).to_string()));
            row.push(super::drops(stat).values().sum::<u64>().to_string());
            row
        })
        .collect();
    lay_out(&[&WHO[..], &head[..]].concat(), &rows, WHO.len())
}

/// Why packets were lost, where any were.
pub(super) fn drops(stats: &[DeviceStat]) -> String {
    let rows: Vec<Vec<String>> = stats
        .iter()
        .flat_map(|stat| {
            super::drops(stat).into_iter().map(|(cause, count)| {
                let pid = stat.pid.to_string();
                vec![pid, stat.device.clone(), cause.to_owned(), count.to_string()]
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", lay_out(&["PID", "DEVICE", "DROPPED-FOR", "PACKETS"], &rows, 3))
}

/// A queue pair's number as perftest writes it.
pub(super) fn number(qpn: u32) -> String {
    format!("{qpn:#08x}")
}

/// What names a queue pair: process, device, and what it is.
pub(super) const WHICH: [&str; 7] = ["PID", "DEVICE", "QPN", "TYPE", "STATE", "PEER", "PEER-QPN"];

/// The cells under [`WHICH`].
pub(super) fn which(stat: &DeviceStat, qp: &QpStat) -> Vec<String> {
    let fact = |name: &str| qp.fact(name).unwrap_or("-").to_owned();
    let peer = qp.fact("peer_qpn").and_then(|qpn| qpn.parse().ok()).map_or("-".into(), number);
    let place = [stat.pid.to_string(), stat.device.clone(), number(qp.qpn)];
    let kind = [fact("type"), fact("state"), fact("peer"), peer];
    place.into_iter().chain(kind).collect()
}

/// One line a queue pair.
pub(super) fn qps(stats: &[DeviceStat]) -> String {
    let head = [
        "SQ",
        "RQ",
        "FLIGHT",
        "TX-PACKETS",
        "TX-BYTES",
        "RX-PACKETS",
        "RX-BYTES",
        "RETRANS",
        "TIMEOUTS",
        "RNR",
        "DROPS",
    ];
    let names = [
        "tx_packets",
        "tx_bytes",
        "rx_packets",
        "rx_bytes",
        "retransmitted_packets",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
    ];
    let row = |stat: &DeviceStat, qp: &QpStat| {
        let queue = |name: &str| match qp.fact(name) {
            Some(used) => format!("{used}/{}", qp.fact(&format!("{name}_max")).unwrap_or("?")),
            None => "srq".to_owned(),
        };
        let mut row = which(stat, qp);
        row.extend([queue("send_queue"), queue("recv_queue")]);
        row.push(qp.fact("in_flight").unwrap_or("-").to_owned());
        row.extend(names.iter().map(|name| qp.counter(name).to_string()));
        row.push(super::qp_drops(qp).to_string());
        row
    };
    let rows: Vec<Vec<String>> =
        stats.iter().flat_map(|stat| stat.qps.iter().map(move |qp| row(stat, qp))).collect();
    format!("\n{}", lay_out(&[&WHICH[..], &head[..]].concat(), &rows, WHICH.len()))
}

/// Every counter on a line of its own, as `ethtool -S` has them; of queue pairs those that are not
/// zero.
pub(super) fn everything(stats: &[DeviceStat]) -> String {
    let mut out = String::new();
    for stat in stats {
        let _ = writeln!(
            out,
            "\n{} {} {} {}, open for {:.1} s",
            stat.pid,
            stat.command,
            stat.device,
            stat.addresses.join(" "),
            stat.uptime.as_secs_f64()
        );
        let parts =
            [("objects", &stat.objects), ("counters", &stat.counters), ("link", &stat.link)];
        for (title, counters) in parts {
            let _ = writeln!(out, "  {title}:");
            for (name, value) in counters {
                let _ = writeln!(out, "    {name}: {value}");
            }
        }
        for qp in &stat.qps {
            let _ = writeln!(out, "  qp {}:", number(qp.qpn));
            for (name, value) in &qp.facts {
                let _ = writeln!(out, "    {name}: {value}");
            }
            for (name, value) in qp.counters.iter().filter(|(_, value)| *value > 0) {
                let _ = writeln!(out, "    {name}: {value}");
            }
        }
    }
    out
}
