//! Conversations, connections and links as tables.

use std::ops::Range;

use audit::report::{Connection, Conversation, End, LinkReport, Report, Traffic};

use super::screen;
use crate::render::{self, lay_out};

/// A table: names of columns, rows, and how many columns are text.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) left: usize,
}

impl Table {
    /// As text; nothing if it has no rows.
    fn text(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        lay_out(&self.head, &self.rows, self.left)
    }

    /// Without those of some columns in which no row has anything.
    fn without_empty(mut self, columns: Range<usize>) -> Self {
        for column in columns.rev() {
            if self.rows.iter().all(|row| row[column] == "-" || row[column].is_empty()) {
                self.head.remove(column);
                self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
                self.left -= usize::from(column < self.left);
            }
        }
        self
    }
}

/// The cell of a queue pair.
fn qp(end: &End) -> String {
    end.qp.map_or("?".to_owned(), |qp| format!("{qp:#x}"))
}

/// Both ends with their queue pairs.
pub(super) fn ends(talk: &Conversation) -> String {
    format!("{} {} <> {} {}", talk.a.address, qp(&talk.a), talk.b.address, qp(&talk.b))
}

/// Seconds from the first to the last packet.
fn seconds(talk: &Conversation) -> f64 {
    talk.last.time.since(talk.first.time) as f64 / 1e9
}

/// Goodput of a direction of a conversation in Gbit/s; `None` where no time passed.
pub(super) fn goodput(talk: &Conversation, traffic: &Traffic) -> Option<f64> {
    let seconds = seconds(talk);
    (seconds > 0.0).then(|| traffic.goodput_bytes as f64 * 8.0 / seconds / 1e9)
}

fn gbps(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), screen::three)
}

/// Share of the packets that was sent again, in percent.
fn resent(traffic: &[&Traffic]) -> String {
    let packets: u64 = traffic.iter().map(|t| t.packets).sum();
    let again: u64 = traffic.iter().map(|t| t.retransmitted).sum();
    match (packets, again) {
        (_, 0) => "0".to_owned(),
        (0, _) => "-".to_owned(),
        (packets, again) => screen::three(again as f64 * 100.0 / packets as f64),
    }
}

/// A column that is left out where all of it would be zeros.
type Count = (&'static str, fn(&Traffic) -> u64);

const COUNTS: [Count; 5] = [
    ("NAK", |t| t.sequence_naks + t.other_naks),
    ("RNR", |t| t.rnr_naks),
    ("CE", |t| t.ce),
    ("CNP", |t| t.cnp),
    ("ACK", |t| t.acks),
];

/// The first `most` conversations, one a line, the latencies of their operations beside them as far
/// as `width` allows.
pub(super) fn busiest(report: &Report, most: usize, width: usize) -> String {
    let shown = &report.conversations[..most.min(report.conversations.len())];
    if shown.is_empty() {
        return String::new();
    }
    let both =
        |talk: &Conversation, of: fn(&Traffic) -> u64| of(&talk.forward) + of(&talk.backward);
    let counts: Vec<Count> = COUNTS[..4]
        .iter()
        .filter(|(_, of)| shown.iter().any(|talk| both(talk, *of) > 0))
        .copied()
        .collect();
    let mut head = vec!["#", "QUEUE PAIRS", "SVC", "MTU", "PACKETS", "GBIT/S", "RESENT%"];
    head.extend(counts.iter().map(|(name, _)| *name));
    let row = |talk: &Conversation| {
        let (forward, backward) = (&talk.forward, &talk.backward);
        let mtu = talk.mtu.map_or("-".to_owned(), |mtu| mtu.to_string());
        let sum = goodput(talk, forward).zip(goodput(talk, backward)).map(|(a, b)| a + b);
        let mut row = vec![talk.id.to_string(), ends(talk), talk.service.to_owned(), mtu];
        row.push((forward.packets + backward.packets).to_string());
        row.extend([gbps(sum), resent(&[forward, backward])]);
        row.extend(counts.iter().map(|(_, of)| both(talk, *of).to_string()));
        row
    };
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    beside(lay_out(&head, &rows, 3), shown, width)
}

/// Adds the column of latencies to a table, or leaves it out where it does not fit.
fn beside(table: String, shown: &[Conversation], width: usize) -> String {
    let used = table.lines().map(|line| line.chars().count()).max().unwrap_or(0) + 2;
    let latencies: Vec<String> = shown.iter().map(latency).collect();
    let need = latencies.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    if need == 0 {
        return table;
    }
    if used + need.max(LATENCY.len()) > width {
        return under(&table, &latencies, width);
    }
    let mut out = String::new();
    let cells = std::iter::once(LATENCY).chain(latencies.iter().map(String::as_str));
    for (line, cell) in table.lines().zip(cells) {
        let line = format!("{line}{:1$}{cell}", "", used - line.chars().count());
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

const LATENCY: &str = "LATENCY p50/p99";

/// The latencies on lines of their own.
fn under(table: &str, latencies: &[String], width: usize) -> String {
    let mut out = String::new();
    let cells = std::iter::once("").chain(latencies.iter().map(String::as_str));
    for (line, cell) in table.lines().zip(cells) {
        out.push_str(line);
        out.push('\n');
        if !cell.is_empty() {
            let text = screen::cut(&format!("     {LATENCY} {cell}"), width);
            out.push_str(&text);
            out.push('\n');
        }
    }
    out
}

/// Median and 99th percentile by operation: `WRITE 12.3 µs/40 µs`. Where both ends ask, `>` and `<`
/// tell which.
fn latency(talk: &Conversation) -> String {
    let of = |traffic: &Traffic| {
        let times = traffic.operations.iter().filter_map(|operation| {
            let [_, median, high, _] = operation.latency_us?;
            let (median, high) = (screen::span(median), screen::span(high));
            Some(format!("{} {median}/{high}", operation.kind))
        });
        times.collect::<Vec<String>>().join(", ")
    };
    let (there, back) = (of(&talk.forward), of(&talk.backward));
    match (there.is_empty(), back.is_empty()) {
        (_, true) => there,
        (true, false) => back,
        (false, false) => format!("> {there}  < {back}"),
    }
}

/// Every conversation, a line for each direction and one for each kind of operation.
pub(super) fn queue_pairs(report: &Report) -> String {
    let operations = operation_rows(report).text();
    let gap = if operations.is_empty() { "" } else { "\n" };
    format!("{}{gap}{operations}", queue_pair_rows(report).text())
}

/// The directions of every conversation.
pub(super) fn queue_pair_rows(report: &Report) -> Table {
    let mut head = vec!["#", "FROM", "TO", "QP", "SVC", "MTU", "PACKETS", "BYTES", "GBIT/S"];
    head.push("RESENT%");
    head.extend(COUNTS.iter().map(|(name, _)| *name));
    let mut rows = Vec::new();
    for talk in &report.conversations {
        let mtu = talk.mtu.map_or("-".to_owned(), |mtu| mtu.to_string());
        let ways = [(&talk.a, &talk.b, &talk.forward), (&talk.b, &talk.a, &talk.backward)];
        for (from, to, traffic) in ways.into_iter().filter(|(.., traffic)| traffic.packets > 0) {
            let mut row = vec![talk.id.to_string(), from.address.clone(), to.address.clone()];
            row.extend([qp(to), talk.service.to_owned(), mtu.clone()]);
            row.extend([traffic.packets.to_string(), traffic.bytes.to_string()]);
            row.extend([gbps(goodput(talk, traffic)), resent(&[traffic])]);
            row.extend(COUNTS.iter().map(|(_, of)| of(traffic).to_string()));
            rows.push(row);
        }
    }
    Table { head, rows, left: 5 }
}

/// Operations by conversation, direction and kind.
pub(super) fn operation_rows(report: &Report) -> Table {
    let head = ["#", "REQUESTER", "OPERATION", "COUNT", "BYTES", "MIN", "P50", "P99", "MAX"];
    let mut rows = Vec::new();
    for talk in &report.conversations {
        for (end, traffic) in [(&talk.a, &talk.forward), (&talk.b, &talk.backward)] {
            for operation in &traffic.operations {
                let mut row =
                    vec![talk.id.to_string(), end.address.clone(), operation.kind.to_owned()];
                row.extend([operation.count.to_string(), operation.bytes.to_string()]);
                match operation.latency_us {
                    Some(times) => row.extend(times.map(screen::span)),
                    None => row.extend(["-"; 4].map(str::to_owned)),
                }
                rows.push(row);
            }
        }
    }
    Table { head: head.to_vec(), rows, left: 3 }
}

/// The first `most` connections; with `all` what their handshakes agreed on, too.
pub(super) fn connections(report: &Report, most: usize, all: bool) -> String {
    connection_rows(report, most, all).text()
}

/// The same as a table.
pub(super) fn connection_rows(report: &Report, most: usize, all: bool) -> Table {
    let start = screen::start(report);
    let mut head = vec!["CONNECTION", "SERVICE", "QPS", "MTU", "STATE", "FRAMES"];
    let row = |connection: &Connection| {
        let frames = match (connection.frames.first(), connection.frames.last()) {
            (Some(first), Some(last)) if first != last => {
                format!("{} to {last}", screen::frame(*first, start))
            }
            (Some(first), _) => screen::frame(*first, start),
            _ => "-".to_owned(),
        };
        let mut row = vec![
            format!("{} > {}", connection.active, connection.passive),
            screen::harmless(&connection.service),
            pair(connection.active_qp, " ", connection.passive_qp, |qp| format!("{qp:#x}")),
            connection.mtu.map_or("-".to_owned(), |mtu| mtu.to_string()),
            screen::harmless(&connection.state),
            frames,
        ];
        if all {
            row.extend(agreed(connection));
        }
        row
    };
    let rows: Vec<Vec<String>> = report.connections.iter().take(most).map(row).collect();
    if all {
        head.extend(AGREED);
    }
    let columns = 6..head.len();
    Table { left: head.len(), head, rows }.without_empty(columns)
}

const AGREED: [&str; 8] =
    ["TYPE", "CM SAYS", "PSNS", "READS", "RETRY", "TIMEOUT", "AGAIN", "PRIVATE"];
/// Characters that are shown of private data; JSON has all.
const PRIVATE: usize = 33;

/// What a handshake says beyond who talks to whom: the cells under [`AGREED`].
fn agreed(connection: &Connection) -> [String; 8] {
    let number = |n: u8| n.to_string();
    let data = |text: &str| (!text.is_empty()).then(|| screen::cut(text, PRIVATE));
    let timeout = connection.ack_timeout.map(|code| 4.096 * f64::from(code.min(31)).exp2());
    [
        connection.transport.to_owned(),
        pair(
            connection.from.map(|from| from.to_string()),
            " > ",
            connection.to.map(|to| to.to_string()),
            |address| address,
        ),
        pair(connection.active_psn, " ", connection.passive_psn, |psn| format!("{psn:#x}")),
        pair(connection.responder_resources, "/", connection.initiator_depth, number),
        pair(connection.retry_count, "/", connection.rnr_retry, number),
        timeout.map_or("-".to_owned(), screen::span),
        match connection.repeated {
            0 => "-".to_owned(),
            again => again.to_string(),
        },
        pair(data(&connection.private), " ", data(&connection.passive_private), |text| text),
    ]
}

/// Both of two values, or a dash where neither is known.
fn pair<T>(one: Option<T>, between: &str, other: Option<T>, text: impl Fn(T) -> String) -> String {
    match (one.map(&text), other.map(&text)) {
        (None, None) => "-".to_owned(),
        (one, other) => {
            let shown = |value: Option<String>| value.unwrap_or("-".to_owned());
            format!("{}{between}{}", shown(one), shown(other))
        }
    }
}

/// The first `most` ports that paused their links: each with the priorities that it paused.
pub(super) fn links(report: &Report, most: usize) -> String {
    link_rows(report, most).text()
}

/// The same as a table.
pub(super) fn link_rows(report: &Report, most: usize) -> Table {
    let head = ["LINK", "PAUSED BY", "NAME", "GBIT/S", "PRIORITY", "PAUSES", "PAUSED", "LONGEST"];
    let rows: Vec<_> = report.links.iter().take(most).flat_map(priorities).collect();
    Table { head: head.to_vec(), rows, left: 3 }.without_empty(2..3)
}

fn priorities(link: &LinkReport) -> Vec<Vec<String>> {
    let alike = |i: usize| {
        link.pauses[i] == link.pauses[0]
            && link.paused_us[i] == link.paused_us[0]
            && link.longest_us[i] == link.longest_us[0]
    };
    let row = |name: String, i: usize| {
        vec![
            link.link.to_string(),
            screen::harmless(&link.port),
            link.name.as_deref().map_or("-".to_owned(), screen::harmless),
            link.link_gbps.to_string(),
            name,
            link.pauses[i].to_string(),
            screen::span(link.paused_us[i]),
            screen::span(link.longest_us[i]),
        ]
    };
    if (0..8).all(alike) {
        let any = link.pauses[0] > 0;
        return if any { vec![row("all".to_owned(), 0)] } else { Vec::new() };
    }
    (0..8).filter(|i| link.pauses[*i] > 0).map(|i| row(i.to_string(), i)).collect()
}

/// A line with what there is beyond what is shown; empty if nothing is.
pub(super) fn more(shown: usize, all: u64, thing: &str, option: &str) -> String {
    match all.saturating_sub(shown as u64) {
        0 => String::new(),
        more => format!("and {}: {option}\n", render::count(more, &format!("more {thing}"))),
    }
}
