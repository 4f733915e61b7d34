//! The drawing: two lines down the screen, an arrow for each packet, what is wrong below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use audit::Rule;
use audit::record::{At, Time};
use audit::report::{End, Report};
use wire::Position;

use super::{Kind, Ladder, Note, Row};

use crate::cmd::audit::screen::{self, Screen, Style};
use crate::render;

/// Columns before the left line: frame, time, time since the line above.
const MARGIN: usize = 32;
/// Middle packets of a message that are drawn one by one.
const SINGLY: usize = 3;

/// The whole drawing.
pub(in crate::cmd::audit) fn text(ladder: &Ladder, report: &Report, screen: Screen) -> String {
    let start = screen::start(report);
    let notes = ladder.notes.lock().map(|notes| notes.clone()).unwrap_or_default();
    let lost = lost_responses(ladder, &notes);
    let mut at_frame: BTreeMap<(u16, u64), Vec<Note>> = BTreeMap::new();
    for note in notes {
        if let Some(first) = note.at.first() {
            at_frame.entry(*first).or_default().push(note);
        }
    }
    let mut drawing = Drawing {
        ladder,
        notes: at_frame,
        start,
        screen,
        room: screen.width.saturating_sub(MARGIN + 2),
        before: None,
        next: [None; 2],
        open: [None; 2],
        lost,
        out: String::new(),
    };
    drawing.head();
    let mut at = 0;
    while at < ladder.rows.len() {
        let many = drawing.run(at);
        drawing.rows(&ladder.rows[at..at + many]);
        at += many;
    }
    drawing.end();
    drawing.out
}

struct Drawing<'a> {
    ladder: &'a Ladder,
    /// By file and number of their first frame.
    notes: BTreeMap<(u16, u64), Vec<Note>>,
    start: Time,
    screen: Screen,
    /// Columns between the lines.
    room: usize,
    /// When the line above was.
    before: Option<Time>,
    /// The PSN that each end's next new request is to have, relative.
    next: [Option<i64>; 2],
    /// The PSN of the next response, inside the answer to a READ of each end.
    open: [Option<i64>; 2],
    /// File and number of frames with READ responses that did not arrive.
    lost: BTreeSet<(u16, u64)>,
    out: String,
}

impl Drawing<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn head(&mut self) {
        let talk = &self.ladder.talk;
        let name = |end: &End| {
            let qp = end.qp.map_or("?".to_owned(), |qp| format!("{qp:#x}"));
            format!("{} qp {qp}", end.address)
        };
        let (left, right) = (name(&talk.a), name(&talk.b));
        let mtu = talk.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let bases: Vec<String> = [("left", 0), ("right", 1)]
            .iter()
            .filter_map(|(side, end)| Some((side, self.ladder.bases[*end]?)))
            .map(|(side, psn)| format!("{psn:#08x} ({psn}) of those from the {side}"))
            .collect();
        let text = format!(
            "Conversation {}: {left} and {right}, {}{mtu}. PSNs count from the first: {}.",
            talk.id,
            talk.service,
            bases.join(", ")
        );
        for line in screen::wrap(&text, self.screen.width) {
            self.line(&line);
        }
        self.line("");
        let gap = (self.room + 2).saturating_sub(left.len() + right.len()).max(1);
        let head = format!("{:>9} {:>12} {:>8} ", "FRAME", "TIME s", "AFTER");
        let head = format!("{head}{left}{:gap$}{right}", "");
        self.line(&self.screen.paint(&self.screen.cut(&head), Style::Bold));
    }

    /// How many rows from `at` on are one line: middle packets in a row that nothing is said about.
    fn run(&self, at: usize) -> usize {
        let rows = &self.ladder.rows[at..];
        let first = &rows[0];
        let alike = |(i, row): (usize, &Row)| {
            row.is_middle()
                && (row.kind, row.forward, row.again, row.len, row.ce)
                    == (first.kind, first.forward, first.again, first.len, first.ce)
                && u32::try_from(i).is_ok_and(|i| row.psn == (first.psn + i) & 0xFF_FFFF)
                && self.notes(row.at).next().is_none()
                && !self.is_lost(row.at)
        };
        let many = rows.iter().enumerate().take_while(|(i, row)| alike((*i, row))).count();
        if many > SINGLY { many } else { 1 }
    }

    fn is_lost(&self, at: At) -> bool {
        self.lost.contains(&(at.file, at.frame))
    }

    fn notes(&self, at: At) -> impl Iterator<Item = &Note> {
        self.notes.get(&(at.file, at.frame)).into_iter().flatten()
    }

    /// Rows as one line, with what is to be said about it.
    fn rows(&mut self, rows: &[Row]) {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
        self.gap(first, rows.len());
        let after = match self.before {
            Some(before) if first.at.time >= before => {
                screen::span(first.at.time.since(before) as f64 / 1e3)
            }
            _ => String::new(),
        };
        self.before = Some(last.at.time);
        let number = format!("{}", first.at);
        let time = screen::moment(first.at.time, self.start);
        let margin = format!("{number:>9} {time:>12} {after:>8} ");
        let margin = self.screen.paint(&margin, Style::Faint);
        let arrow = self.screen.paint(&self.arrow(rows), style(first));
        let _ = writeln!(self.out, "{margin}|{arrow}|");
        let notes: Vec<String> = self.notes(first.at).map(|note| note.text.clone()).collect();
        for note in notes {
            self.note(&note);
        }
    }

    fn note(&mut self, note: &str) {
        let text = screen::harmless(note);
        for (i, line) in screen::wrap(&text, self.room.saturating_sub(4)).iter().enumerate() {
            let mark = if i == 0 { "! " } else { "  " };
            let pad = self.room.saturating_sub(line.chars().count() + 3);
            let text = format!("{:MARGIN$}| {mark}{line}{:pad$}|", "", "");
            self.out.push_str(&self.screen.paint(&text, Style::Red));
            self.out.push('\n');
        }
    }

    /// The PSN of a row relative to the first of the requester whose it is.
    fn relative(&self, row: &Row) -> i64 {
        let end = usize::from(row.forward == row.answers());
        let base = self.ladder.bases[end].unwrap_or(row.psn);
        let ahead = row.psn.wrapping_sub(base) & 0xFF_FFFF;
        if ahead < 0x80_0000 { i64::from(ahead) } else { i64::from(ahead) - 0x100_0000 }
    }

    /// A line where new requests leave PSNs out: the packets did not come by here.
    fn gap(&mut self, row: &Row, many: usize) {
        let psn = self.relative(row);
        if let Kind::Response(operation) = row.kind {
            let end = usize::from(row.forward);
            if !matches!(operation.position(), Position::First | Position::Only) {
                self.absent(self.open[end].filter(|next| psn > *next), psn);
            }
            let open = matches!(operation.position(), Position::First | Position::Middle);
            self.open[end] = open.then_some(psn + many as i64);
            return;
        }
        let Kind::Request(operation) = row.kind else { return };
        let end = usize::from(!row.forward);
        self.absent(self.next[end].filter(|next| psn > *next && !row.again), psn);
        let takes = match (operation, self.ladder.talk.mtu) {
            (wire::Operation::ReadRequest, Some(mtu)) => {
                i64::from(row.asked.div_ceil(mtu.max(1)).max(1))
            }
            // How many it takes cannot be told without the MTU.
            (wire::Operation::ReadRequest, None) => {
                self.next[end] = None;
                return;
            }
            _ => many as i64,
        };
        self.next[end] = Some(self.next[end].unwrap_or(psn).max(psn + takes));
    }

    /// A line for PSNs from `from` on and before `psn`.
    fn absent(&mut self, from: Option<i64>, psn: i64) {
        let (Some(from), last) = (from, psn - 1) else { return };
        let which = if from == last { format!("{from}") } else { format!("{from}..{last}") };
        let text = format!("psn {which} did not come by here");
        let text = format!("{:MARGIN$}|{}|", "", fill(&format!(" {text} "), ". ", self.room));
        self.out.push_str(&self.screen.paint(&text, Style::Yellow));
        self.out.push('\n');
    }

    /// The arrow of one or several packets, as long as the room.
    fn arrow(&self, rows: &[Row]) -> String {
        let (Some(first), many) = (rows.first(), rows.len()) else { return String::new() };
        let psn = self.relative(first);
        let mut text = format!(" {}", first.name);
        match many {
            _ if first.kind == Kind::Cnp => {}
            1 => text += &format!(" psn {psn}"),
            many => text += &format!(" psn {psn}..{}, {many} packets", psn + many as i64 - 1),
        }
        if matches!(first.kind, Kind::Request(_) | Kind::Response(_)) {
            text += &format!(" len {}", first.len);
        }
        if !first.more.is_empty() {
            text += &format!(" {}", first.more);
        }
        let behind = |note: &Note| note.rule == Rule::LostBehind;
        let lost = self.is_lost(first.at) || self.notes(first.at).any(behind);
        let marks = [
            (first.ack_request, " ackreq"),
            (first.ce, " CE"),
            (first.again, " AGAIN"),
            (lost, " LOST"),
        ];
        for (_, mark) in marks.iter().filter(|(is, _)| *is) {
            text += mark;
        }
        text.push(' ');
        let room = self.room.saturating_sub(2);
        let shaft = if first.again { "=" } else { "-" };
        let body = fill(&screen::cut(&text, room.saturating_sub(2)), shaft, room);
        match first.forward {
            true => format!(" {body}>"),
            false => format!("<{body} "),
        }
    }

    fn end(&mut self) {
        let drawn = self.ladder.rows.len() as u64;
        match self.ladder.packets.saturating_sub(drawn) {
            0 if drawn == 0 => self.line("No packet of it fits the filter."),
            0 => {}
            more => {
                let more = render::count(more, "more packet");
                let last = self.ladder.rows.last().map_or(0, |row| row.at.frame);
                self.line(&format!(
                    "{more}: --limit N, or --filter 'frame {}..' to go on",
                    last + 1
                ));
            }
        }
    }
}

/// The newest response with the PSN of each repetition that tells of a lost one: it came by here.
fn lost_responses(ladder: &Ladder, notes: &[Note]) -> BTreeSet<(u16, u64)> {
    let told = notes.iter().filter(|note| note.rule == Rule::ResponseLost);
    let told: BTreeSet<_> = told.filter_map(|note| note.at.first()).collect();
    let mut newest = BTreeMap::new();
    let mut lost = BTreeSet::new();
    for row in &ladder.rows {
        let frame = (row.at.file, row.at.frame);
        match row.kind {
            Kind::Response(_) => drop(newest.insert((row.forward, row.psn), frame)),
            Kind::Request(_) if told.contains(&frame) => {
                lost.extend(newest.remove(&(!row.forward, row.psn)));
            }
            _ => {}
        }
    }
    lost
}

/// `text` in the middle of a line of `with`.
fn fill(text: &str, with: &str, width: usize) -> String {
    let used = text.chars().count();
    let free = width.saturating_sub(used);
    let side = |n: usize| with.chars().cycle().take(n).collect::<String>();
    format!("{}{text}{}", side(free / 2), side(free - free / 2))
}

fn style(row: &Row) -> Style {
    match row.kind {
        Kind::Nak => Style::Red,
        Kind::Rnr => Style::Yellow,
        Kind::Cnp => Style::Cyan,
        _ if row.again => Style::Magenta,
        Kind::Ack => Style::Faint,
        Kind::Request(_) | Kind::Response(_) => Style::Plain,
    }
}
