//! The terminal as the audit's texts see it: width, colour, wrapping; moments and amounts in the
//! units that people read. Nothing about findings or conversations.

use std::io::{IsTerminal, stdout};

use audit::record::{At, Time};
use audit::report::Report;
use terminal_size::{Height, Width, terminal_size_of};

use crate::render;

/// Columns where the output is no terminal.
const COLUMNS: usize = 100;
/// Columns that are used at least and at most.
const LEAST: usize = 60;
const MOST: usize = 160;
/// Lines of a summary where the terminal does not have more.
const LINES: usize = 40;

/// Where a text goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Columns.
    pub(super) width: usize,
    /// Lines of a summary.
    pub(super) lines: usize,
    colour: bool,
}

/// How a piece of text looks on a terminal with colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Plain,
    Bold,
    Faint,
    Red,
    Yellow,
    Green,
    Cyan,
    Magenta,
}

impl Screen {
    /// Standard output.
    pub(super) fn stdout() -> Self {
        let colour = render::colour(stdout().is_terminal());
        match terminal_size_of(stdout()) {
            Some((Width(width), Height(height))) if width > 0 => Self {
                width: usize::from(width).clamp(LEAST, MOST),
                lines: LINES.max(usize::from(height).saturating_sub(2)),
                colour,
            },
            _ => Self { width: COLUMNS, lines: LINES, colour },
        }
    }

    /// The same with so many lines.
    pub(super) fn with_lines(self, lines: usize) -> Self {
        Self { lines, ..self }
    }

    /// A screen without colour.
    #[cfg(test)]
    pub(super) fn plain(width: usize, lines: usize) -> Self {
        Self { width, lines, colour: false }
    }

    /// `text` in a style.
    pub(super) fn paint(self, text: &str, style: Style) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Faint => "2",
            Style::Red => "1;31",
            Style::Yellow => "33",
            Style::Green => "32",
            Style::Cyan => "36",
            Style::Magenta => "35",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// `text` cut to the width, so that it stays on one line.
    pub(super) fn cut(self, text: &str) -> String {
        cut(text, self.width)
    }
}

/// `text` in at most `width` columns.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// `text` in lines of at most `width` columns, broken between words; a longer word is broken where
/// the line ends.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(core::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while word.len() > width {
            let rest = word.split_off(width);
            lines.push(word.into_iter().collect());
            word = rest;
        }
        used += word.len();
        line.extend(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A text from outside (a file's name, an address, private data) without what a terminal obeys.
pub(super) fn harmless(text: &str) -> String {
    text.replace(render::steers, "\u{fffd}")
}

/// When the captures begin: what times are counted from.
pub(super) fn start(report: &Report) -> Time {
    report.captures.iter().filter_map(|capture| capture.first).min().unwrap_or_default()
}

/// A moment in seconds from the start: `1.234567`.
pub(super) fn moment(time: Time, start: Time) -> String {
    let (ns, sign) = match time.0.checked_sub(start.0) {
        Some(ns) => (ns, ""),
        None => (start.0 - time.0, "-"),
    };
    let us = ns / 1000;
    format!("{sign}{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// A frame with its time.
pub(super) fn frame(at: At, start: Time) -> String {
    format!("{at} ({} s)", moment(at.time, start))
}

/// A span of time in the unit that suits it: `850 ns`, `12.3 µs`, `4.05 ms`, `1.2 s`.
pub(super) fn span(us: f64) -> String {
    match us.abs() {
        us_abs if us_abs < 1.0 => format!("{:.0} ns", us * 1e3),
        us_abs if us_abs < 1e3 => format!("{} µs", three(us)),
        us_abs if us_abs < 1e6 => format!("{} ms", three(us / 1e3)),
        _ => format!("{} s", three(us / 1e6)),
    }
}

/// A number with three significant digits, none of them behind the point needlessly.
pub(super) fn three(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 0.01 => 4,
        v if v >= 0.001 => 5,
        _ => 6,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Date and time of day in UTC: `2026-08-30 10:11:12.345678`.
pub(super) fn date(time: Time) -> String {
    let (days, ns) = (time.0 / 86_400_000_000_000, time.0 % 86_400_000_000_000);
    let (year, month, day) = civil(days);
    let us = ns / 1000;
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}.{us:06}")
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // 400 years have 146,097 days; counted from the first of March, leap days come last.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_long_ones_broken() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijklmnop x", 8), ["abcdefgh", "ijklmnop", "x"]);
        assert_eq!(wrap("", 8), [""; 0]);
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(harmless("a\u{1b}[31m\u{202e}b"), "a\u{fffd}[31m\u{fffd}b");
    }

    #[test]
    fn moments_and_dates() {
        assert_eq!(moment(Time(1_234_567_890), Time(0)), "1.234567");
        assert_eq!(moment(Time(5), Time(1_000_005)), "-0.001000");
        assert_eq!(date(Time(0)), "1970-01-01 00:00:00.000000");
        assert_eq!(date(Time(951_782_400_000_000_000)), "2000-02-29 00:00:00.000000");
        assert_eq!(date(Time(1_785_542_399_123_456_789)), "2026-07-31 23:59:59.123456");
        assert_eq!(date(Time(u64::MAX)).split('-').next(), Some("2554"));
        assert_eq!(three(0.001_234_5), "0.00123");
        assert_eq!(span(0.85), "850 ns");
        assert_eq!(
            (span(12.34), span(4050.0), span(1.2e6)),
            ("12.3 µs".into(), "4.05 ms".into(), "1.2 s".into())
        );
    }
}
