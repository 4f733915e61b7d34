//! Results, and how they look: perftest's header and columns, or JSON. MB is 2^20 bytes there.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::plan::{Agreed, Amount, Connection, Test};
use super::session::Identity;
use super::versus::Table;
use crate::error::Result;
use crate::render;

const RULE: &str = "------------------------------------------------------------------------------\
                    ---------";
const MB: f64 = 1_048_576.0;

/// A bandwidth result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct BwRow {
    pub(crate) bytes: u32,
    pub(crate) iterations: u64,
    /// MB/s (2^20 bytes).
    pub(crate) bw_peak: f64,
    /// MB/s (2^20 bytes).
    pub(crate) bw_average: f64,
    /// Millions of messages a second.
    pub(crate) msg_rate: f64,
    /// Messages that did not arrive (UC, UD).
    pub(crate) lost: u64,
}

impl BwRow {
    /// The result of `arrived` of `sent` messages in `seconds`; `peak` in messages a second.
    pub(crate) fn new(bytes: u32, sent: u64, arrived: u64, seconds: f64, peak: f64) -> Self {
        let rate = arrived as f64 / seconds.max(1e-9);
        let to_mb = f64::from(bytes) / MB;
        Self {
            bytes,
            iterations: sent,
            bw_peak: peak.max(rate) * to_mb,
            bw_average: rate * to_mb,
            msg_rate: rate / 1e6,
            lost: sent - arrived.min(sent),
        }
    }
}

/// A latency result, in µs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct LatRow {
    pub(crate) bytes: u32,
    pub(crate) iterations: u64,
    pub(crate) t_min: f64,
    pub(crate) t_max: f64,
    pub(crate) t_typical: f64,
    pub(crate) t_avg: f64,
    pub(crate) t_stdev: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// Messages sent again because nothing came back (UC, UD); not in the times.
    pub(crate) lost: u64,
}

impl LatRow {
    /// The result of the nanoseconds in `times`.
    pub(crate) fn new(bytes: u32, times: &Histogram<u64>, lost: u64) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        Self {
            bytes,
            iterations: times.len(),
            t_min: us(times.min()),
            t_max: us(times.max()),
            t_typical: us(times.value_at_quantile(0.5)),
            t_avg: times.mean() / 1000.0,
            t_stdev: times.stdev() / 1000.0,
            p99: us(times.value_at_quantile(0.99)),
            p999: us(times.value_at_quantile(0.999)),
            lost,
        }
    }
}

/// One line of results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Row {
    Lat(LatRow),
    Bw(BwRow),
}

/// What was verified of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// Everything that a measurement gave.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    pub(crate) agreed: Agreed,
    pub(crate) identity: Identity,
    pub(crate) rows: Vec<Row>,
    /// `None` without `--check`.
    pub(crate) checked: Option<Checked>,
    /// `None` without `--vs`.
    pub(crate) vs: Option<Table>,
}

#[derive(Serialize)]
struct Json<'a> {
    test: Test,
    device: &'a str,
    connection: String,
    mtu: u32,
    qps: u32,
    tx_depth: u32,
    gid_index: u8,
    local_gid: String,
    remote_gid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_s: Option<f64>,
    results: &'a [Row],
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<Checked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vs: Option<&'a Table>,
}

/// Prints the outcome as JSON.
pub(crate) fn json(outcome: &Outcome) -> Result<()> {
    let Outcome { agreed, identity, rows, checked, vs } = outcome;
    render::json(&Json {
        test: agreed.test,
        device: &identity.device,
        connection: agreed.connection.to_string(),
        mtu: agreed.mtu.bytes(),
        qps: agreed.qps,
        tx_depth: agreed.depth,
        gid_index: identity.gid_index,
        local_gid: identity.local_gid.to_string(),
        remote_gid: identity.remote_gid.to_string(),
        duration_s: match agreed.amount {
            Amount::Seconds(seconds) => Some(seconds),
            Amount::Iterations(_) => None,
        },
        results: rows,
        checked: *checked,
        vs: vs.as_ref(),
    })
}

/// Prints what stands above the results.
pub(crate) fn header(agreed: &Agreed, identity: &Identity) -> Result<()> {
    let mut out = String::new();
    let _ = writeln!(out, "{RULE}\n{:20}{}", "", agreed.test.title());
    let mut pair = |left: (&str, String), right: (&str, String)| {
        let left = format!(" {:15} : {}", left.0, left.1);
        let _ = writeln!(out, "{left:40}{:14} : {}", right.0, right.1);
    };
    pair(("Number of qps", agreed.qps.to_string()), ("Device", identity.device.clone()));
    pair(("Connection type", agreed.connection.to_string()), ("Transport type", "IB".into()));
    pair(("Mtu", format!("{}[B]", agreed.mtu.bytes())), ("Link type", "Ethernet".into()));
    let depth = if agreed.test.is_latency() { 1 } else { agreed.depth };
    pair(("TX depth", depth.to_string()), ("GID index", identity.gid_index.to_string()));
    if agreed.check {
        let _ = writeln!(out, " {:15} : every byte", "Data check");
    }
    let _ = writeln!(out, "{RULE}");
    for (side, qpns, gid) in [
        ("local", &identity.local_qps, identity.local_gid),
        ("remote", &identity.remote_qps, identity.remote_gid),
    ] {
        for end in qpns {
            let _ = writeln!(
                out,
                " {side} address: LID 0000 QPN {:#08x} PSN {:#08x}",
                end.qpn, end.psn
            );
        }
        let _ = writeln!(out, " GID: {gid}");
    }
    let _ = writeln!(out, "{RULE}\n{}", columns(agreed.test));
    render::text(&out)
}

fn columns(test: Test) -> &'static str {
    if test.is_latency() {
        " #bytes     #iterations    t_min[usec]    t_max[usec]    t_typical[usec]    \
         t_avg[usec]    t_stdev[usec]    99% percentile[usec]    99.9% percentile[usec]"
    } else {
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
    }
}

/// Prints one line of results.
pub(crate) fn row(row: &Row, connection: Connection) -> Result<()> {
    let (mut line, iterations, lost) = match row {
        Row::Bw(bw) => (
            format!(
                " {:<10} {:<14} {:<18.2} {:<20.2} {:.6}",
                bw.bytes, bw.iterations, bw.bw_peak, bw.bw_average, bw.msg_rate
            ),
            bw.iterations,
            bw.lost,
        ),
        Row::Lat(lat) => (
            format!(
                " {:<10} {:<14} {:<14.2} {:<14.2} {:<18.2} {:<14.2} {:<16.2} {:<23.2} {:.2}",
                lat.bytes,
                lat.iterations,
                lat.t_min,
                lat.t_max,
                lat.t_typical,
                lat.t_avg,
                lat.t_stdev,
                lat.p99,
                lat.p999
            ),
            lat.iterations,
            lat.lost,
        ),
    };
    line.push('\n');
    if lost > 0 {
        let _ = writeln!(
            line,
            "  {lost} of {iterations} messages were lost on the way, as {connection} may; \
             the bandwidth counts those that arrived"
        );
    }
    render::text(&line)
}

/// Prints what stands below the results.
pub(crate) fn footer(outcome: &Outcome) -> Result<()> {
    let mut out = format!("{RULE}\n");
    let agreed = &outcome.agreed;
    if let Some(table) = &outcome.vs {
        let _ = writeln!(out, "{}{RULE}", table.text());
    }
    if let Some(Checked { messages, bytes }) = outcome.checked {
        let _ = writeln!(
            out,
            " Data check: {}, {} verified, 0 wrong\n{RULE}",
            render::count(messages, "message"),
            render::bytes(bytes)
        );
    } else if agreed.connection == Connection::Uc && agreed.test == Test::WriteBw && !agreed.check {
        let _ = writeln!(
            out,
            " UC writes are not acknowledged: this is what was sent; --check counts what arrived\n\
             {RULE}"
        );
    }
    render::text(&out)
}
