//! What reaches the terminal: text, tables, JSON, errors; whether there is colour. No command's own
//! shapes.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::error::{Failure, Result};

/// Writes `text` to standard output.
pub(crate) fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes `value` to standard output as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut body = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::failed(format!("the result has no JSON form: {error}")))?;
    body.push('\n');
    text(&body)
}

/// Whether a terminal obeys a character instead of showing it, or shows others elsewhere for it.
pub(crate) fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A message, which may name files and what stood in them, without what a terminal obeys but ends
/// of lines.
fn plainly(message: &str) -> String {
    message.replace(|c| steers(c) && c != '\n', "\u{fffd}")
}

/// Writes an error to standard error. Nothing can be done if that fails.
pub(crate) fn error(message: &str) {
    let (message, mut err) = (plainly(message), io::stderr().lock());
    let _ = if colour(err.is_terminal()) {
        writeln!(err, "\u{1b}[1;31mcrocevia: error:\u{1b}[0m {message}")
    } else {
        writeln!(err, "crocevia: error: {message}")
    };
}

/// Writes text to standard error as it is.
pub(crate) fn plain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a remark to standard error.
pub(crate) fn note(message: &str) {
    let _ = writeln!(io::stderr().lock(), "crocevia: {}", plainly(message));
}

/// Whether to colour what goes to a terminal (`NO_COLOR`, no-color.org).
pub(crate) fn colour(is_terminal: bool) -> bool {
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Rows under a head, as wide as they need; all but the first `left` columns to the right.
pub(crate) fn lay_out(head: &[&str], rows: &[Vec<String>], left: usize) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain([head[i].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (i, (cell, width)) in cells.zip(&widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            let _ = if i < left {
                write!(text, "{gap}{cell:width$}")
            } else {
                write!(text, "{gap}{cell:>width$}")
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut head.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    out
}

/// A GID as eight groups of four digits, the shape of sysfs and `show_gids`.
pub(crate) fn gid_full(gid: crocevia::Gid) -> String {
    let groups: Vec<String> =
        gid.0.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":")
}

/// A GUID as four groups of four digits, the shape of `ibv_devinfo`.
pub(crate) fn guid(guid: u64) -> String {
    let bytes = guid.to_be_bytes();
    let groups: Vec<String> =
        bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":")
}

/// A number of bytes in the unit that people say: `64 B`, `64 KiB`, `8 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = n as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 || unit == 0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// `n` of a thing, with its plural: `1 message`, `2 messages`.
pub(crate) fn count(n: u64, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}
