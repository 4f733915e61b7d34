//! The HPCC simulator's result files.

use std::fmt::Write as _;

use wire::{Instant, Span};

use super::{Case, address};
use crate::outcome::Outcome;
use crate::summary::Paths;

/// Bytes before a packet's payload.
const HEADERS: u64 = 48;

/// Round trip of a packet and its acknowledgement without queues, as the simulator reckons it:
/// twice the delays, and the payload's time on each link.
fn base_rtt(paths: &mut Paths<'_>, case: &Case, index: usize) -> Option<(Span, wire::Rate)> {
    let (a, b) = case.plan.flows.get(index)?.ends(&case.plan)?;
    let payload = u64::from(case.network.hosts.first()?.nic.segment?);
    let cables = paths.between(a, b);
    let mut span = Span::ZERO;
    let mut slowest: Option<wire::Rate> = None;
    for cable in cables {
        let cable = case.network.cables.get(cable as usize)?;
        span = span + cable.delay + cable.delay + cable.rate.time_for(payload);
        slowest = Some(slowest.map_or(cable.rate, |rate| rate.min(cable.rate)));
    }
    Some((span, slowest?))
}

/// `fct.txt`: `sip dip sport dport bytes start_ns fct_ns standalone_fct_ns`, in the order in which
/// flows end.
pub fn fct(case: &Case, outcome: &Outcome) -> String {
    let mut paths = Paths::new(&case.network);
    let mut ended: Vec<_> = outcome.flows.iter().filter_map(|r| Some((r.ended?, r))).collect();
    ended.sort_by_key(|(at, record)| (at.as_ps(), record.flow));
    let mut out = String::new();
    for (at, record) in ended {
        let index = record.flow as usize;
        let (Some(line), Some(port)) = (case.flows.get(index), case.ports.get(index)) else {
            continue;
        };
        let Some((rtt, rate)) = base_rtt(&mut paths, case, index) else { continue };
        let payload = case.network.hosts.first().and_then(|h| h.nic.segment).unwrap_or(1000);
        let packets = line.bytes.div_ceil(u64::from(payload)).max(1);
        let alone = rtt + rate.time_for(line.bytes + packets * HEADERS);
        let ip = |node| u32::from(address(node));
        let _ = writeln!(
            out,
            "{:08x} {:08x} {port} {} {} {} {} {}",
            ip(line.ends.0),
            ip(line.ends.1),
            line.port,
            line.bytes,
            nanos(record.begun),
            at.since(record.begun).as_ps() / 1000,
            alone.as_ps() / 1000
        );
    }
    out
}

/// `pfc.txt`: `time_ns node node_type ifindex type`.
pub fn pfc(case: &Case, outcome: &Outcome) -> String {
    let mut out = String::new();
    for pause in &outcome.pauses {
        let number = case.numbers.get(pause.node.0 as usize).copied().unwrap_or_default();
        let kind = u8::from(!case.network.is_host(pause.node));
        let _ = writeln!(
            out,
            "{} {number} {kind} {} {}",
            pause.at / 1000,
            u32::from(pause.port) + 1,
            u8::from(pause.stops)
        );
    }
    out
}

/// `qlen.txt` where no sample lies in the window: nothing. (The simulator dumps its samples only at
/// multiples of 100 ms.)
pub fn qlen(_: &Case, _: &Outcome) -> String {
    String::new()
}

fn nanos(at: Instant) -> u64 {
    at.as_ps() / 1000
}
