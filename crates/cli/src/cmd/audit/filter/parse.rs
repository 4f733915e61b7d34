//! The grammar of filters:
//!
//! ```text
//! expr = both { "or" both }        both = one { "and" one }
//! one  = "not" one | "(" expr ")" | term
//! term = ("host" | "src" | "dst") ADDRESS | "qp" N | "conversation" N
//!      | "time" RANGE | "frame" RANGE
//! ```
//! Errors name the column. Nesting and length are bounded.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use wire::Gid;

use super::{Expr, Moment};
use crate::cmd::audit::screen::harmless;

/// How deep parentheses and `not` may stand in each other.
const DEPTH: usize = 32;
/// Words that an expression has at most.
const WORDS: usize = 1024;
/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// What is wrong, and the character at which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    at: usize,
    message: String,
}

impl Fault {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    /// The sentence, with the expression and a mark below the place.
    pub(super) fn in_text(&self, text: &str) -> String {
        let column = self.at + 1;
        let (text, mark) = (harmless(text), " ".repeat(self.at));
        format!("--filter, column {column}: {}\n  {text}\n  {mark}^", self.message)
    }
}

/// A word with the character at which it begins.
type Word<'a> = (usize, &'a str);

struct Parser<'a> {
    words: Vec<Word<'a>>,
    at: usize,
    end: usize,
    depth: usize,
}

/// Reads an expression.
pub(super) fn expression(text: &str) -> Result<Expr, Fault> {
    let words = words(text);
    if words.len() > WORDS {
        return Err(Fault::new(words[WORDS].0, format!("more than {WORDS} words")));
    }
    let mut parser = Parser { words, at: 0, end: text.chars().count(), depth: 0 };
    let expr = parser.either()?;
    match parser.peek() {
        None => Ok(expr),
        Some((at, word)) => {
            Err(Fault::new(at, format!("expected and, or, or the end, found '{}'", harmless(word))))
        }
    }
}

/// Words and parentheses.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut open: Option<(usize, usize)> = None;
    for (column, (byte, c)) in text.char_indices().enumerate() {
        let splits = c.is_whitespace() || c == '(' || c == ')';
        match (open, splits) {
            (None, false) => open = Some((column, byte)),
            (Some((start, from)), true) => {
                words.push((start, &text[from..byte]));
                open = None;
            }
            _ => {}
        }
        if c == '(' || c == ')' {
            words.push((column, &text[byte..byte + 1]));
        }
    }
    if let Some((start, from)) = open {
        words.push((start, &text[from..]));
    }
    words
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, what: &str) -> Result<Word<'a>, Fault> {
        let word = self
            .peek()
            .ok_or_else(|| Fault::new(self.end, format!("expected {what}, found the end")))?;
        self.at += 1;
        Ok(word)
    }

    /// Takes the next word if it is this one.
    fn skip(&mut self, wanted: &str) -> bool {
        let is = self.peek().is_some_and(|(_, word)| word.eq_ignore_ascii_case(wanted));
        self.at += usize::from(is);
        is
    }

    fn either(&mut self) -> Result<Expr, Fault> {
        let mut left = self.both()?;
        while self.skip("or") {
            left = Expr::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Expr, Fault> {
        let mut left = self.one()?;
        while self.skip("and") {
            left = Expr::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Expr, Fault> {
        const WANTED: &str = "host, src, dst, qp, conversation, time, frame, not or (";
        let (at, word) = self.take(WANTED)?;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Fault::new(at, format!("more than {DEPTH} levels of not and parentheses")));
        }
        let expr = match word.to_ascii_lowercase().as_str() {
            "not" => Expr::Not(Box::new(self.one()?)),
            "(" => {
                let expr = self.either()?;
                match self.take("and, or, or )")? {
                    (_, ")") => expr,
                    (at, word) => {
                        let message = format!("expected and, or, or ), found '{}'", harmless(word));
                        return Err(Fault::new(at, message));
                    }
                }
            }
            "host" => Expr::Host(self.address()?),
            "src" => Expr::Source(self.address()?),
            "dst" => Expr::Destination(self.address()?),
            "qp" => {
                let wanted = "a queue pair number, 0 to 0xffffff";
                let small = |word: &str| number(word).filter(|qp| *qp <= 0xFF_FFFF);
                Expr::Qp(self.value(wanted, small)? as u32)
            }
            "conversation" => {
                let wanted = "the number of a conversation, as the summary has it";
                let small = |word: &str| u32::try_from(number(word)?).ok();
                Expr::Conversation(self.value(wanted, small)?)
            }
            "frame" => Expr::Frame(self.value("frames: 12, 12..20, 12.. or ..20", frames)?),
            "time" => {
                let wanted = "FROM..TO, each seconds from the first packet (1.5) or a time of day \
                              in UTC (10:00:05), one of them left out if you like";
                let (from, to) = self.value(wanted, times)?;
                Expr::Time(from, to)
            }
            _ => {
                let message = format!("expected {WANTED}, found '{}'", harmless(word));
                return Err(Fault::new(at, message));
            }
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn address(&mut self) -> Result<Gid, Fault> {
        let parse = |word: &str| word.parse::<IpAddr>().ok();
        self.value("an IP address or GID", parse).map(Gid::from_ip)
    }

    fn value<T>(&mut self, wanted: &str, parse: impl Fn(&'a str) -> Option<T>) -> Result<T, Fault> {
        let (at, word) = self.take(wanted)?;
        parse(word)
            .ok_or_else(|| Fault::new(at, format!("expected {wanted}, found '{}'", harmless(word))))
    }
}

/// A number, decimal or hexadecimal.
pub(super) fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse().ok())?,
    }
}

/// The two sides of a range; a word without dots is both.
fn range(word: &str) -> (&str, &str) {
    word.split_once("..").unwrap_or((word, word))
}

/// A range of frames.
pub(super) fn frames(word: &str) -> Option<RangeInclusive<u64>> {
    let (from, to) = range(word);
    let side = |side: &str, open: u64| if side.is_empty() { Some(open) } else { number(side) };
    let (from, to) = (side(from, 0)?, side(to, u64::MAX)?);
    (from <= to && word != ".." && !word.is_empty()).then_some(from..=to)
}

/// A range of times.
fn times(word: &str) -> Option<(Moment, Moment)> {
    let (from, to) = word.split_once("..")?;
    let range = (moment(from)?, moment(to)?);
    let ordered = match range {
        (Moment::FromStart(from), Moment::FromStart(to)) => from <= to,
        (from, to) => from != to,
    };
    ordered.then_some(range)
}

fn moment(word: &str) -> Option<Moment> {
    if word.is_empty() {
        return Some(Moment::Open);
    }
    let parts: Vec<&str> = word.split(':').collect();
    let last = parts.last()?;
    let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain = last.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds: f64 = if plain { last.parse().ok()? } else { return None };
    match parts[..] {
        [_] if seconds < 1e10 => Some(Moment::FromStart((seconds * SECOND) as u64)),
        [hours, minutes, _] if [hours, minutes].iter().all(digits) => {
            let (hours, minutes) = (hours.parse::<u64>().ok()?, minutes.parse::<u64>().ok()?);
            if hours > 23 || minutes > 59 || seconds >= 60.0 {
                return None;
            }
            let whole = (hours * 3600 + minutes * 60) * 1_000_000_000;
            Some(Moment::OfDay(whole + (seconds * SECOND) as u64))
        }
        _ => None,
    }
}
