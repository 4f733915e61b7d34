//! A simulation's outcome as tables.

use std::fmt::Write as _;
use std::time::Duration;

use sim::scenario::Scenario;
use sim::summary::Summary;

use crate::render;

/// The whole screen.
pub(super) fn show(
    scenario: &Scenario,
    summary: &Summary,
    stuck: &[String],
    took: Duration,
) -> String {
    let mut out = String::new();
    let (network, t) = (&scenario.network, &summary.totals);
    let _ = writeln!(out, "{} (seed {})", scenario.name, scenario.seed);
    if !scenario.teaches.is_empty() {
        let _ = writeln!(out, "{}", scenario.teaches);
    }
    let _ = writeln!(
        out,
        "{} hosts, {} switches, {} cables; {:.3} us simulated in {:.2} s: {} events, {:.2} M data \
         packets over cables\n",
        network.hosts.len(),
        network.switches.len(),
        network.cables.len(),
        t.time_us,
        took.as_secs_f64(),
        t.events,
        t.hops as f64 / 1e6
    );
    out.push_str(&groups(summary));
    out.push('\n');
    out.push_str(&counts(summary));
    if !stuck.is_empty() {
        out.push_str("\nnot ended:\n");
        for line in stuck {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

fn groups(summary: &Summary) -> String {
    let head = [
        "workload",
        "flows",
        "ended",
        "FCT us p50",
        "p95",
        "p99",
        "max",
        "slowdown p50",
        "p99",
        "Gb/s each",
        "Gb/s all",
        "fairness",
    ];
    let rows: Vec<Vec<String>> = summary
        .groups
        .iter()
        .map(|g| {
            let c = &g.completion_us;
            vec![
                g.name.clone(),
                g.flows.to_string(),
                g.done.to_string(),
                number(c.p50),
                number(c.p95),
                number(c.p99),
                number(c.max),
                format!("{:.2}", g.slowdown.p50),
                format!("{:.2}", g.slowdown.p99),
                format!("{:.2}", g.rate_gbps.mean),
                format!("{:.2}", g.goodput_gbps),
                format!("{:.3}", g.fairness),
            ]
        })
        .collect();
    render::lay_out(&head, &rows, 1)
}

/// A number with as many digits as tell something.
fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn counts(summary: &Summary) -> String {
    let t = &summary.totals;
    let mut rows = vec![
        ("pauses received", t.pauses),
        ("packets marked CE", t.marked),
        ("CNPs", t.cnps),
        ("packets sent again", t.retransmitted),
        ("ACK timeouts", t.timeouts),
        ("longest queue, bytes", t.queue_peak),
    ];
    let causes: Vec<(String, u64)> =
        t.dropped.iter().map(|(cause, n)| (format!("dropped: {cause}"), *n)).collect();
    rows.extend(causes.iter().map(|(name, n)| (name.as_str(), *n)));
    rows.push(("flows not ended", t.unfinished));
    let shown = rows.into_iter().filter(|(_, n)| *n > 0);
    let rows: Vec<Vec<String>> = shown.map(|(n, v)| vec![n.to_owned(), v.to_string()]).collect();
    if rows.is_empty() { String::new() } else { render::lay_out(&["counted", ""], &rows, 1) }
}
