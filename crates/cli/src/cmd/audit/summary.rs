//! The audit on one screen: what was read, what is wrong, most severe first, who talked. Findings
//! have as much room as the other parts leave them: in full, in two lines, in one.

use audit::Severity;
use audit::report::{Capture, Report};

use super::findings::{Group, Writer, groups, singly};
use super::screen::{self, Screen, Style};
use super::tables;
use crate::args::{Amount, AuditArgs};
use crate::render;

/// Captures that are named.
const CAPTURES: usize = 3;
/// Conversations, connections and links shown.
const CONVERSATIONS: usize = 4;
const CONNECTIONS: usize = 3;
const LINKS: usize = 3;

/// What is to be shown beyond the usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) all_findings: bool,
    pub(super) qps: bool,
    pub(super) connections: bool,
    pub(super) links: bool,
    /// Whether interfaces are listened to: what went by cannot be read again.
    pub(super) live: bool,
}

impl Wish {
    /// What the arguments ask for.
    pub(super) fn of(args: &AuditArgs) -> Self {
        Self {
            all_findings: args.findings == Amount::All,
            qps: args.qps,
            connections: args.connections,
            links: args.links,
            live: !args.live.is_empty(),
        }
    }
}

/// The summary of a report.
pub(super) fn text(report: &Report, wish: Wish, screen: Screen) -> String {
    let head: Vec<String> =
        facts(report).iter().flat_map(|text| screen::wrap(text, screen.width)).collect();
    let tables = tables(report, wish, screen);
    let used = head.len() + 2 + tables.lines().count();
    let room = screen.lines.saturating_sub(used).max(8);
    let mut lines = head;
    lines.push(String::new());
    lines.extend(findings(report, wish, screen, room));
    let mut out = lines.join("\n");
    out.push('\n');
    out.push_str(&tables);
    out
}

/// What was read, a sentence each.
pub(super) fn facts(report: &Report) -> Vec<String> {
    let mut facts: Vec<String> = report.captures.iter().take(CAPTURES).map(capture).collect();
    let more = report.captures.len().saturating_sub(CAPTURES);
    if more > 0 {
        facts.push(format!("and {}", render::count(more as u64, "more capture")));
    }
    facts.push(totals(report));
    facts
}

fn capture(capture: &Capture) -> String {
    let name = screen::harmless(&capture.name);
    let mut text = format!("{name}: {}, ", capture.format);
    text += &render::count(capture.records, "frame");
    if let (Some(first), Some(last)) = (capture.first, capture.last) {
        let span = screen::span(last.since(first) as f64 / 1e3);
        text += &format!(", {span} from {} UTC", screen::date(first));
    }
    if let Some(dropped) = capture.dropped.filter(|dropped| *dropped > 0) {
        text += &format!("; the capture itself lost {}", render::count(dropped, "frame"));
    }
    if capture.damage.is_some() {
        text += "; ends early";
    }
    text
}

fn totals(report: &Report) -> String {
    let totals = &report.totals;
    let packets = render::count(totals.packets, "RDMA packet");
    let mut text = format!("{packets}, {}; ICRC: ", render::bytes(totals.bytes));
    let mut counts = vec![format!("{} right, {} wrong", totals.icrc_right, totals.icrc_wrong)];
    if totals.icrc_untold > 0 {
        counts.push(format!("{} not told (cut)", totals.icrc_untold));
    }
    text += &counts.join(", ");
    let more = [
        (totals.refused, "malformed"),
        (totals.damaged, "damaged below the transport"),
        (totals.ce, "marked CE"),
        (totals.cnp, "CNP"),
        (totals.pauses, "pauses"),
        (totals.lldp, "LLDP"),
        (totals.trains, "trains taken apart"),
        (totals.other, "other frames"),
        (totals.unread, "unreadable frames"),
    ];
    for (count, what) in more.iter().filter(|(count, _)| *count > 0) {
        text += &format!("; {count} {what}");
    }
    text
}

/// What is said where there is no finding.
pub(super) fn nothing(report: &Report) -> &'static str {
    match report.totals.packets {
        0 => {
            "Nothing to judge: no RoCE or InfiniBand packet in it (or none that a --filter lets \
             through). Was the right interface captured, with its UDP port 4791 (docs/audit.md)?"
        }
        _ => "Nothing is wrong in it.",
    }
}

fn findings(report: &Report, wish: Wish, screen: Screen, room: usize) -> Vec<String> {
    if report.is_clean() {
        let style = if report.totals.packets == 0 { Style::Yellow } else { Style::Green };
        let lines = screen::wrap(nothing(report), screen.width);
        return lines.iter().map(|line| screen.paint(line, style)).collect();
    }
    let writer = Writer::new(report, screen);
    let groups = if wish.all_findings { singly(report) } else { groups(report) };
    let mut lines = vec![screen.paint(&screen.cut(&tally(&groups)), Style::Bold)];
    if wish.all_findings {
        for (i, group) in groups.iter().enumerate() {
            lines.push(String::new());
            lines.extend(writer.full(i + 1, group));
        }
        return lines;
    }
    let hint = groups.first().map_or(Vec::new(), |group| hint(&writer, group, wish, screen));
    lines.extend(fit(&writer, &groups, room.saturating_sub(1 + hint.len())));
    lines.extend(hint);
    lines
}

/// `3 findings: 1 error, 2 warnings, most severe first`.
pub(super) fn tally(groups: &[Group<'_>]) -> String {
    let of = |severity: Severity| groups.iter().filter(|g| g.severity == severity).count();
    let kinds: Vec<String> = [Severity::Critical, Severity::Error, Severity::Warning]
        .into_iter()
        .filter(|severity| of(*severity) > 0)
        .map(|severity| match severity {
            Severity::Critical => format!("{} critical", of(severity)),
            _ => render::count(of(severity) as u64, severity.word()),
        })
        .collect();
    let order = if groups.len() > 1 { ", most severe first" } else { "" };
    let count = render::count(groups.len() as u64, "finding");
    format!("{count}: {}{order}", kinds.join(", "))
}

/// What to type to know more of the first finding.
fn hint(writer: &Writer<'_>, group: &Group<'_>, wish: Wish, screen: Screen) -> Vec<String> {
    let code = group.rule.code();
    let text = if wish.live {
        format!(
            "more: --explain {code}; from the beginning of another --live: --frames {code}, \
             --html PAGE, --findings all"
        )
    } else {
        let ladder = group.findings.first().and_then(|f| writer.conversation(f.subject));
        let ladder = ladder.map_or(String::new(), |id| format!(", --ladder {id}"));
        format!(
            "more: --explain {code}; with the file: --frames {code}{ladder}, --html PAGE, \
             --findings all"
        )
    };
    screen::wrap(&text, screen.width).iter().map(|l| screen.paint(l, Style::Faint)).collect()
}

/// The groups in as many lines as there is room for: the first in full, those behind in two lines
/// or one, so that each is named as long as that is possible.
fn fit(writer: &Writer<'_>, groups: &[Group<'_>], room: usize) -> Vec<String> {
    let full: Vec<Vec<String>> =
        groups.iter().enumerate().map(|(i, group)| writer.full(i + 1, group)).collect();
    let mut lines = Vec::new();
    let count = groups.len();
    for (i, group) in groups.iter().enumerate() {
        let left = room.saturating_sub(lines.len());
        let behind = count - i - 1;
        // The first says what is the matter; it is never cut.
        if i == 0 || left >= full[i].len() + 2 * behind {
            lines.extend(full[i].iter().cloned());
        } else if left >= 2 + behind {
            lines.extend(writer.short(i + 1, group));
        } else if left > 1 || (left == 1 && behind == 0) {
            lines.push(writer.line(i + 1, group));
        } else {
            let more = render::count((behind + 1) as u64, "more finding");
            lines.push(format!("   and {more}: --findings all"));
            break;
        }
    }
    lines
}

/// What follows the findings: conversations, connections, links; as asked, or the first of each.
fn tables(report: &Report, wish: Wish, screen: Screen) -> String {
    let mut out = String::new();
    let mut add = |text: String| {
        if !text.is_empty() {
            out.push('\n');
            out.push_str(&text);
        }
    };
    if wish.qps {
        add(tables::queue_pairs(report));
    } else {
        let shown = CONVERSATIONS.min(report.conversations.len());
        let table = tables::busiest(report, CONVERSATIONS, screen.width);
        add(table + &tables::more(shown, report.conversations_seen, "conversation", "--qps"));
    }
    let most = |asked: bool, usual: usize| if asked { usize::MAX } else { usual };
    let connections = most(wish.connections, CONNECTIONS).min(report.connections.len());
    let table = tables::connections(report, connections, wish.connections);
    let all = report.connections.len() as u64;
    add(table + &tables::more(connections, all, "connection", "--connections"));
    let links = most(wish.links, LINKS).min(report.links.len());
    let all = report.links.len() as u64;
    add(tables::links(report, links) + &tables::more(links, all, "link", "--links"));
    let lines = out.lines().map(|line| screen.cut(line));
    if wish.qps || wish.connections || wish.links { out } else { lines.map(|l| l + "\n").collect() }
}

#[cfg(test)]
mod tests;
