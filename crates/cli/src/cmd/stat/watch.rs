//! `crocevia stat -w`: what is counted in a second, again and again. A terminal gets one picture
//! that changes, everything else one line a device each time.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use live::{DeviceStat, QpStat, Stats};

use super::table::{self, WHICH, WHO};
use super::{ask, document};
use crate::args::{StatArgs, StatForm};
use crate::error::{Failure, Result};
use crate::render::{self, lay_out};

/// Goes to the upper left corner of the terminal and clears what is below.
const HOME: &str = "\u{1b}[H\u{1b}[J";
/// Messages of all kinds, as a requester begins and a responder executes them.
const SENT: [&str; 4] =
    ["tx_send_requests", "tx_write_requests", "tx_read_requests", "tx_atomic_requests"];
const EXECUTED: [&str; 4] =
    ["rx_send_requests", "rx_write_requests", "rx_read_requests", "rx_atomic_requests"];

/// What is shown of a device or queue pair: totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    messages: [u64; 2],
    packets: [u64; 2],
    bytes: [u64; 2],
    resent: u64,
    drops: u64,
}

const HEAD: [&str; 8] = [
    "TX-MSG/S",
    "TX-PKT/S",
    "TX-GBIT/S",
    "RX-MSG/S",
    "RX-PKT/S",
    "RX-GBIT/S",
    "RETRANS/S",
    "DROPS/S",
];

impl Totals {
    fn new(count: impl Fn(&str) -> u64, drops: u64) -> Self {
        let all = |names: [&str; 4]| names.iter().map(|name| count(name)).sum();
        Self {
            messages: [all(SENT), all(EXECUTED)],
            packets: [count("tx_packets"), count("rx_packets")],
            bytes: [count("tx_bytes"), count("rx_bytes")],
            resent: count("retransmitted_packets"),
            drops,
        }
    }

    /// The cells under [`HEAD`]: what has been added in `seconds`.
    fn rates(&self, before: &Self, seconds: f64) -> Vec<String> {
        let per_second = |now: u64, then: u64| {
            let added = now.saturating_sub(then) as f64;
            if seconds > 0.0 { added / seconds } else { 0.0 }
        };
        let count = |now, then| format!("{:.0}", per_second(now, then));
        let mut cells = Vec::new();
        for way in [0, 1] {
            cells.push(count(self.messages[way], before.messages[way]));
            cells.push(count(self.packets[way], before.packets[way]));
            let bits = 8.0 * per_second(self.bytes[way], before.bytes[way]);
            cells.push(format!("{:.3}", bits / 1e9));
        }
        cells.push(count(self.resent, before.resent));
        cells.push(count(self.drops, before.drops));
        cells
    }
}

/// What was seen last: by process, device, address and, for queue pairs, number.
pub(super) type Key = (u32, String, String, Option<u32>);
pub(super) type Seen = BTreeMap<Key, (Duration, Totals)>;

fn key(stat: &DeviceStat, qpn: Option<u32>) -> Key {
    let address = stat.addresses.first().cloned().unwrap_or_default();
    (stat.pid, stat.device.clone(), address, qpn)
}

/// The rows of devices and of queue pairs, and what they were made of.
pub(super) fn rows(
    stats: &[DeviceStat],
    before: &Seen,
) -> (Vec<Vec<String>>, Vec<Vec<String>>, Seen) {
    let mut seen = Seen::new();
    let mut rates = |stat: &DeviceStat, qpn, totals: Totals| {
        let key = key(stat, qpn);
        // By the device's own clock. What is new has no rate yet.
        let (then, old) = before.get(&key).copied().unwrap_or((stat.uptime, totals));
        seen.insert(key, (stat.uptime, totals));
        totals.rates(&old, stat.uptime.saturating_sub(then).as_secs_f64())
    };
    let (mut devices, mut pairs) = (Vec::new(), Vec::new());
    for stat in stats {
        let drops = super::drops(stat).values().sum();
        let totals = Totals::new(|name| stat.counter(name), drops);
        let mut row = table::who(stat);
        row.push(table::qp_count(stat).to_string());
        row.extend(rates(stat, None, totals));
        devices.push(row);
        for qp in &stat.qps {
            let totals = totals_of(qp);
            let mut row = table::which(stat, qp);
            row.extend(rates(stat, Some(qp.qpn), totals));
            pairs.push(row);
        }
    }
    (devices, pairs, seen)
}

fn totals_of(qp: &QpStat) -> Totals {
    Totals::new(|name| qp.counter(name), super::qp_drops(qp))
}

/// Goes on until it is interrupted, nobody reads, or as often as asked.
pub(super) fn run(args: &StatArgs, interval: Duration) -> Result<()> {
    if args.form() == StatForm::Prometheus {
        return Err(Failure::usage("--prometheus gives one picture: leave --watch away"));
    }
    let mut view = View { seen: Seen::new(), terminal: std::io::stdout().is_terminal(), turn: 0 };
    let mut next = Instant::now();
    loop {
        let stats = ask(args)?;
        if args.form() == StatForm::Json {
            let mut line = document::of(&stats, args.qp).to_string();
            line.push('\n');
            render::text(&line)?;
        } else {
            render::text(&view.picture(&stats, args))?;
        }
        view.turn += 1;
        if args.count.is_some_and(|count| view.turn >= count) {
            return Ok(());
        }
        next = (next + interval).max(Instant::now());
        std::thread::sleep(next - Instant::now());
    }
}

struct View {
    seen: Seen,
    terminal: bool,
    turn: u64,
}

impl View {
    fn picture(&mut self, stats: &Stats, args: &StatArgs) -> String {
        let (devices, pairs, seen) = rows(&stats.devices, &self.seen);
        self.seen = seen;
        let head = [&WHO[..], &["QPS"], &HEAD[..]].concat();
        let mut out = String::new();
        if self.terminal {
            out.push_str(HOME);
        }
        if devices.is_empty() && stats.silent.is_empty() && (self.terminal || self.turn == 0) {
            out.push_str("no crocevia device is open\n");
        }
        if !devices.is_empty() {
            out.push_str(&lay_out(&head, &devices, WHO.len()));
        }
        if self.terminal {
            out.push_str(&table::drops(&stats.devices));
        }
        if args.qp && !pairs.is_empty() {
            let head = [&WHICH[..], &HEAD[..]].concat();
            out.push_str(&lay_out(&head, &pairs, WHICH.len()));
        }
        for silent in &stats.silent {
            out.push_str(&format!("{silent}\n"));
        }
        out
    }
}
