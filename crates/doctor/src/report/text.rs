//! The one-screen summary: tables, findings with their values and remedies, what was not read.

use std::fmt::Write;

use crate::catalogue::Severity;
use crate::finding::{Evidence, Finding};
use crate::parse::cpus::CpuSet;
use crate::report::Report;
use crate::rules::list;

/// Columns of text.
const WIDTH: usize = 100;
/// Things not read that are told; the rest are counted.
const NOT_READ: usize = 8;
/// Findings up to which each is told at once; beyond, a line for each comes first.
const AT_ONCE: usize = 8;
/// Interfaces shown where no RoCE port is.
const INTERFACES: usize = 16;

/// Words in lines of at most [`WIDTH`] columns, the first indented by `first`, the others by
/// `rest`.
pub(crate) fn wrap(text: &str, first: usize, rest: usize) -> String {
    let mut out = " ".repeat(first);
    let mut column = first;
    let mut is_first = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !is_first && column + 1 + length > WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(rest));
            column = rest;
        } else if !is_first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        is_first = false;
    }
    out
}

fn lay_out(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn ports(report: &Report) -> String {
    let rates = report.ports.iter().any(|row| row.rx_gbps.is_some() || row.tx_gbps.is_some());
    let mut head =
        vec!["PORT", "STATE", "GBIT/S", "NETDEV", "V2-GIDS", "TOS", "NODE", "PCIE", "DRIVER"];
    if rates {
        head.extend(["RX-GBIT/S", "TX-GBIT/S"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for row in &report.ports {
        let mut cells = vec![
            row.port.clone(),
            cell(row.state.as_ref()),
            cell(row.gbps),
            if row.netdevs.is_empty() { "-".to_owned() } else { row.netdevs.join(",") },
            row.v2_gids.to_string(),
            cell(row.tos),
            cell(row.node),
            cell(row.pcie.as_ref()),
            row.driver.clone(),
        ];
        if rates {
            let rate = |rate: Option<f64>| cell(rate.map(|gbps| format!("{gbps:.2}")));
            cells.extend([rate(row.rx_gbps), rate(row.tx_gbps)]);
        }
        rows.push(cells);
    }
    lay_out(&rows)
}

fn interfaces(report: &Report) -> String {
    let head = ["NETDEV", "STATE", "MTU", "GBIT/S", "TRUST", "PFC", "ECN", "PAUSE", "ADDRESS"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for row in report.interfaces.iter().take(INTERFACES) {
        let set = |set: &Option<Vec<u8>>| cell(set.as_ref().map(|set| ranges(set)));
        rows.push(vec![
            row.name.clone(),
            cell(row.state.as_ref()),
            cell(row.mtu),
            cell(row.gbps),
            cell(row.trust),
            set(&row.pfc),
            set(&row.ecn),
            cell(row.pause),
            cell(row.addresses.first()),
        ]);
    }
    let mut out = lay_out(&rows);
    if report.interfaces.len() > INTERFACES {
        let _ = writeln!(out, "and {} more", report.interfaces.len() - INTERFACES);
    }
    out
}

/// `3`, `0-2,6`, `none`.
fn ranges(priorities: &[u8]) -> String {
    let list = list(priorities).replace(' ', "");
    list.parse::<CpuSet>().map_or(list, |set| set.to_string())
}

fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// The place of a value as it is shown: a file that has the value's own name by its directory.
fn place(evidence: &Evidence) -> &str {
    let own = |(_, name): &(&str, &str)| *name == evidence.what;
    evidence.from.rsplit_once('/').filter(own).map_or(evidence.from.as_str(), |(dir, _)| dir)
}

/// The values, those of one place together: `a 1, b 2 (/sys/…), c 3 (command)`.
fn values(found: &[Evidence]) -> String {
    let mut out = String::new();
    for (i, evidence) in found.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        let _ = write!(out, "{} {}", evidence.what, evidence.value);
        let from = place(evidence);
        let next = found.get(i + 1).map(place);
        if !from.is_empty() && next != Some(from) {
            let _ = write!(out, " ({from})");
        }
    }
    out
}

fn head(finding: &Finding) -> String {
    let severity = finding.severity.word().to_uppercase();
    let (code, subject, title) = (finding.rule.code(), &finding.subject, finding.rule.title());
    wrap(&format!("{severity} {code} {subject}: {title}"), 0, 2)
}

fn finding(finding: &Finding) -> String {
    let head = head(finding);
    let found = wrap(&format!("found: {}", values(&finding.found)), 2, 9);
    let remedy = wrap(&format!("to do: {}", finding.remedy), 2, 9);
    format!("{head}\n{found}\n{remedy}\n")
}

pub(super) fn summary(report: &Report) -> String {
    let mut out = String::new();
    let host = report.host.as_deref().unwrap_or("this host");
    let _ = write!(out, "{host}: {}", counted(report.ports.len(), "RoCE port"));
    if !report.others.is_empty() {
        let others = report.others.join(", ");
        let _ = write!(out, ", not RoCE and not judged: {others}");
    }
    match (report.compared, report.seconds) {
        (true, Some(seconds)) => {
            let _ = write!(out, ", two readings {seconds:.1} s apart");
        }
        (true, None) => out.push_str(", two readings"),
        _ => {}
    }
    out.push_str("\n\n");
    if report.ports.is_empty() {
        out.push_str("No RoCE adapter: judged as a host for crocevia's own NIC.\n");
    } else {
        out.push_str(&ports(report));
    }
    if !report.interfaces.is_empty() {
        out.push('\n');
        out.push_str(&interfaces(report));
    }
    out.push('\n');
    let counts: Vec<String> =
        [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")]
            .iter()
            .map(|(severity, word)| (report.count(*severity), word))
            .filter(|(n, _)| *n > 0)
            .map(|(n, word)| counted(n, word))
            .collect();
    if counts.is_empty() {
        out.push_str("Nothing found.\n");
    } else {
        let _ =
            writeln!(out, "{}. `crocevia doctor --explain CODE` tells more.\n", counts.join(", "));
    }
    if report.findings.len() > AT_ONCE {
        for one in &report.findings {
            let _ = writeln!(out, "{}", head(one));
        }
        out.push_str("\nWhat was seen, and what to do about it:\n\n");
    }
    for one in &report.findings {
        out.push_str(&finding(one));
    }
    not_read(report, &mut out);
    out
}

fn not_read(report: &Report, out: &mut String) {
    if report.not_read.is_empty() {
        return;
    }
    out.push_str("\nNot read:\n");
    for note in report.not_read.iter().take(NOT_READ) {
        let _ = writeln!(out, "{}", wrap(&format!("{}: {}", note.what, note.why), 2, 4));
    }
    if report.not_read.len() > NOT_READ {
        let more = report.not_read.len() - NOT_READ;
        let _ = writeln!(out, "  and {more} more (--json has all)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped() {
        assert_eq!(wrap("a b", 2, 4), "  a b");
        let text = "word ".repeat(40);
        let lines: Vec<String> = wrap(&text, 0, 2).lines().map(str::to_owned).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert!(lines[1].starts_with("  word"));
    }

    #[test]
    fn priorities_are_ranges() {
        assert_eq!(ranges(&[]), "none");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 1, 2, 6]), "0-2,6");
    }
}
