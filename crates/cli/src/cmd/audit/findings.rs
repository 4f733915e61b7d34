//! Findings as lines: those of one rule folded into one, in full, in short, or each by itself.

use std::collections::BTreeMap;

use audit::finding::{Finding, Number, Subject};
use audit::record::{At, Time};
use audit::report::{Conversation, Report};
use audit::{Rule, Severity};

use super::screen::{self, Screen, Style, wrap};
use crate::render;

/// Columns before the text of a finding's lines.
const INDENT: usize = 11;

/// All findings of one rule.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) rule: Rule,
    pub(super) severity: Severity,
    /// The one that happened most often comes first.
    pub(super) findings: Vec<&'a Finding>,
}

/// The findings gathered by rule, in the order of the report.
pub(super) fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for finding in &report.findings {
        match groups.iter_mut().find(|group| group.rule == finding.rule) {
            Some(group) => group.findings.push(finding),
            None => groups.push(Group {
                rule: finding.rule,
                severity: finding.severity,
                findings: vec![finding],
            }),
        }
    }
    for group in &mut groups {
        // What is summed up under no name gives no example.
        group.findings.sort_by_key(|finding| finding.subject == Subject::Others);
    }
    groups
}

/// Each finding as a group of its own.
pub(super) fn singly<'a>(report: &'a Report) -> Vec<Group<'a>> {
    let group = |finding: &'a Finding| Group {
        rule: finding.rule,
        severity: finding.severity,
        findings: vec![finding],
    };
    report.findings.iter().map(group).collect()
}

impl Group<'_> {
    fn count(&self) -> u64 {
        self.findings.iter().map(|finding| finding.count).sum()
    }

    fn first(&self) -> Option<At> {
        self.findings.iter().filter_map(|f| f.first).min_by_key(|at| (at.time, at.frame))
    }

    fn last(&self) -> Option<At> {
        self.findings.iter().filter_map(|f| f.last).max_by_key(|at| (at.time, at.frame))
    }
}

/// What is needed to write findings.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    screen: Screen,
    start: Time,
    conversations: BTreeMap<(&'a str, &'a str, u32), u32>,
}

impl<'a> Writer<'a> {
    /// A writer of the findings of `report`.
    pub(super) fn new(report: &'a Report, screen: Screen) -> Self {
        let ways = |talk: &'a Conversation| {
            let way = |from: &'a str, to: &'a str, qp: Option<u32>| {
                qp.map(|qp| ((from, to, qp), talk.id))
            };
            let (a, b) = (&talk.a, &talk.b);
            let there = way(&a.address, &b.address, b.qp);
            there.into_iter().chain(way(&b.address, &a.address, a.qp))
        };
        let conversations = report.conversations.iter().rev().flat_map(ways).collect();
        Self { screen, start: screen::start(report), conversations }
    }

    /// The number of the conversation that a finding is about.
    pub(super) fn conversation(&self, subject: Subject) -> Option<u32> {
        let Subject::Flow(flow) = subject else { return None };
        let [from, to] = [flow.source, flow.destination].map(|gid| gid.to_ip().to_string());
        self.conversations.get(&(from.as_str(), to.as_str(), flow.qp)).copied()
    }

    /// A subject with the number of its conversation.
    pub(super) fn subject(&self, subject: Subject) -> String {
        match self.conversation(subject) {
            Some(id) => format!("{subject} (conversation {id})"),
            None => subject.to_string(),
        }
    }

    /// Everything about a group.
    pub(super) fn full(&self, number: usize, group: &Group<'_>) -> Vec<String> {
        let Some(top) = group.findings.first() else { return Vec::new() };
        let mut lines = self.title(number, group);
        let place = self.place(group, top);
        let side = format!("side: {}", top.side);
        let room = self.screen.width - INDENT;
        if place.chars().count() + side.chars().count() + 3 <= room {
            self.field(&mut lines, "where", &format!("{place};  {side}"));
        } else {
            self.field(&mut lines, "where", &place);
            self.field(&mut lines, "side", &top.side.to_string());
        }
        self.field(&mut lines, "seen", &self.seen(group));
        if !top.detail.is_empty() {
            self.field(&mut lines, "what", &screen::harmless(&top.detail));
        }
        if let Some(causes) = causes(group) {
            self.field(&mut lines, "cause", &causes);
        }
        self.field(&mut lines, "remedy", group.rule.remedy());
        lines
    }

    /// A group in two lines.
    pub(super) fn short(&self, number: usize, group: &Group<'_>) -> Vec<String> {
        let Some(top) = group.findings.first() else { return Vec::new() };
        let head = self.head(number, group);
        let room = self.screen.width.saturating_sub(head.chars().count() + 1);
        let title = screen::cut(group.rule.title(), room);
        let text = format!("{}; {}", self.place(group, top), self.seen(group));
        let text = screen::cut(&text, self.screen.width - INDENT);
        vec![
            format!("{} {title}", self.screen.paint(&head, colour(group.severity))),
            format!("{:INDENT$}{text}", ""),
        ]
    }

    /// A group in one line.
    pub(super) fn line(&self, number: usize, group: &Group<'_>) -> String {
        let head = self.head(number, group);
        let times = render::count(group.count(), "time");
        let room = self.screen.width.saturating_sub(head.chars().count() + 1);
        let text = screen::cut(&format!("{times}: {}", group.rule.title()), room);
        format!("{} {text}", self.screen.paint(&head, colour(group.severity)))
    }

    fn head(&self, number: usize, group: &Group<'_>) -> String {
        format!("{number:>2} {} {}", group.severity.word().to_uppercase(), group.rule.code())
    }

    fn title(&self, number: usize, group: &Group<'_>) -> Vec<String> {
        let head = self.head(number, group);
        let used = head.chars().count() + 1;
        let mut title =
            wrap(group.rule.title(), self.screen.width.saturating_sub(used)).into_iter();
        let first = self.screen.paint(&title.next().unwrap_or_default(), Style::Bold);
        let mut lines =
            vec![format!("{} {first}", self.screen.paint(&head, colour(group.severity)))];
        lines.extend(title.map(|l| format!("{:used$}{}", "", self.screen.paint(&l, Style::Bold))));
        lines
    }

    fn field(&self, lines: &mut Vec<String>, name: &str, text: &str) {
        let room = self.screen.width.saturating_sub(INDENT);
        for (i, line) in wrap(text, room).into_iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            let name = self.screen.paint(&format!("   {name:<8}"), Style::Faint);
            lines.push(format!("{name}{line}"));
        }
    }

    /// Where: the subject of the most frequent finding, and how many more there are.
    fn place(&self, group: &Group<'_>, top: &Finding) -> String {
        let text = self.subject(top.subject);
        let is_sum = |finding: &&&Finding| finding.subject == Subject::Others;
        let beyond = group.findings.iter().filter(is_sum).count();
        let more = group.findings.len() - 1 - beyond.min(group.findings.len() - 1);
        let (one, many) = match top.subject {
            Subject::Flow(_) => ("queue pair", "queue pairs"),
            Subject::Hosts(..) => ("pair of hosts", "pairs of hosts"),
            Subject::Link(_) => ("link", "links"),
            Subject::Capture | Subject::Others => ("other", "others"),
        };
        match (more, beyond) {
            (0, 0) => text,
            (1, 0) => format!("{text}, and 1 more {one}"),
            (more, 0) => format!("{text}, and {more} more {many}"),
            // Those beyond what is listed singly are not counted.
            (more, _) => format!("{text}, and more than {more} more {many}"),
        }
    }

    /// How often, from when to when, the numbers.
    pub(super) fn seen(&self, group: &Group<'_>) -> String {
        let mut text = render::count(group.count(), "time");
        match (group.first(), group.last()) {
            (Some(first), Some(last)) if first != last => {
                let (first, last) =
                    (screen::frame(first, self.start), screen::frame(last, self.start));
                text += &format!(", frames {first} to {last}");
            }
            (Some(first), _) => text += &format!(", frame {}", screen::frame(first, self.start)),
            _ => {}
        }
        let numbers = Finding::numbers_of(group.findings.iter().copied());
        for number in &numbers {
            text += &format!("; {}", amount(number));
        }
        text
    }
}

/// Why, as far as other findings tell: each cause with how often, and its first frames.
pub(super) fn causes(group: &Group<'_>) -> Option<String> {
    /// Frames of each that are named here; JSON has more.
    const FRAMES: usize = 3;
    let mut all = Vec::new();
    for cause in group.findings.iter().flat_map(|finding| &finding.causes) {
        cause.join(cause.count, &mut all);
    }
    all.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    let text = all.into_iter().map(|mut cause| {
        cause.sample.truncate(FRAMES);
        format!("{} {cause}", cause.count)
    });
    let text: Vec<String> = text.collect();
    (!text.is_empty()).then(|| text.join("; "))
}

/// The colour of a severity.
pub(super) fn colour(severity: Severity) -> Style {
    match severity {
        Severity::Critical | Severity::Error => Style::Red,
        Severity::Warning => Style::Yellow,
    }
}

/// A number with its name in words and its unit.
pub(super) fn amount(number: &Number) -> String {
    let value = number.value;
    let whole = |value: f64| {
        if value.fract() == 0.0 && value.abs() < 1e15 {
            format!("{value:.0}")
        } else {
            screen::three(value)
        }
    };
    let (name, text) = match number.name.rsplit_once('_') {
        Some((name, "bytes")) if value >= 0.0 => (name, render::bytes(value as u64)),
        Some((name, "ns")) => (name, screen::span(value / 1e3)),
        Some((name, "us")) => (name, screen::span(value)),
        Some((name, "ms")) => (name, screen::span(value * 1e3)),
        Some((name, "s")) => (name, screen::span(value * 1e6)),
        Some((name, "percent")) => (name, format!("{} %", screen::three(value))),
        Some((name, "gbps")) => (name, format!("{} Gbit/s", screen::three(value))),
        _ => (number.name, whole(value)),
    };
    format!("{} {text}", name.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_their_unit() {
        let text = |name, value| amount(&Number::sum(name, value));
        assert_eq!(text("wasted_bytes", 2048.0), "wasted 2 KiB");
        assert_eq!(text("longest_us", 1234.5), "longest 1.23 ms");
        assert_eq!(text("share_percent", 12.345), "share 12.3 %");
        assert_eq!(text("lost_packets", 3.0), "lost packets 3");
        assert_eq!(text("packets", 3.25), "packets 3.25");
    }
}
