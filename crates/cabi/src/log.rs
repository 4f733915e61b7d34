//! What the library says on standard error. An errno is a number; the sentence behind it says what
//! was expected, what was found and what to do. `CROCEVIA_LOG` = `off`, `error` (the default),
//! `warn`, `info` or `debug` chooses how much is said. Each sentence is said once, whatever the
//! numbers in it: programs try sizes until one fits.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

/// How important a sentence is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    /// Nothing is said.
    Off,
    /// A call failed in a way that a working program would not expect.
    Error,
    /// A call failed in a way that programs try on purpose (unsupported, busy).
    Warn,
    /// A call failed as part of normal flow (queue full).
    Info,
    /// More.
    Debug,
}

/// Sentences remembered so as not to be repeated; beyond that many, nothing more is said.
const MAX_SENTENCES: usize = 64;

impl Level {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "off" | "none" | "0" => Self::Off,
            "error" => Self::Error,
            "warn" => Self::Warn,
            "info" => Self::Info,
            "debug" | "trace" => Self::Debug,
            _ => return None,
        })
    }

    fn word(self) -> &'static str {
        match self {
            Self::Off | Self::Error => "error",
            Self::Warn => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

fn threshold() -> Level {
    static THRESHOLD: OnceLock<Level> = OnceLock::new();
    *THRESHOLD.get_or_init(|| {
        let Some(text) = std::env::var_os("CROCEVIA_LOG") else { return Level::Error };
        text.to_str().and_then(Level::parse).unwrap_or_else(|| {
            eprintln!(
                "crocevia: warning: CROCEVIA_LOG={}: expected off, error, warn, info or debug; \
                 taken as error",
                text.display()
            );
            Level::Error
        })
    })
}

/// Whether sentences of `level` are said at all.
pub(crate) fn enabled(level: Level) -> bool {
    level <= threshold()
}

/// A sentence without its numbers, hexadecimal ones included.
fn shape(line: &str) -> String {
    let mut pieces = line.split("0x");
    let first = pieces.next().unwrap_or_default();
    let rest =
        pieces.flat_map(|piece| piece.trim_start_matches(|c: char| c.is_ascii_hexdigit()).chars());
    first.chars().chain(rest).filter(|c| !c.is_ascii_digit()).collect()
}

/// Says that `call` failed, once per sentence.
pub(crate) fn say(level: Level, call: &str, sentence: &dyn Display) {
    if !enabled(level) {
        return;
    }
    static SAID: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let line = format!("crocevia: {}: {call}: {sentence}", level.word());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let said = said.get_or_insert_default();
    if said.len() >= MAX_SENTENCES || !said.insert(shape(&line)) {
        return;
    }
    eprintln!("{line}");
    if said.len() == MAX_SENTENCES {
        eprintln!("crocevia: further messages are not shown");
    }
}

/// Has the faults that are injected told: single ones at `debug`, those that happen once and the
/// sum at `info`. Each is a line of its own, however often.
pub(crate) fn watch_faults() {
    if enabled(Level::Info) {
        crocevia::watch_faults(enabled(Level::Debug), |device, news| {
            let level = if news.is_detail() { Level::Debug } else { Level::Info };
            // One write for a line, so that those of several threads do not mix.
            let line = format!("crocevia: {}: {device}: faults: {news}\n", level.word());
            // Nobody is there to be told that nobody listens.
            let _ = std::io::stderr().write_all(line.as_bytes());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, shape};

    #[test]
    fn sentences_that_differ_in_numbers_are_one() {
        assert_eq!(shape("max_inline_data is 2048"), shape("max_inline_data is 96"));
        assert_eq!(shape("QP 0x01aefb: none"), shape("QP 0x13beef: none"));
        assert_ne!(shape("QP 0x01aefb: none"), shape("QP 0x01aefb: some"));
        assert_ne!(shape("max_inline_data is 2048"), shape("max_send_wr is 2048"));
    }

    #[test]
    fn levels_are_ordered_and_parsed() {
        assert!(Level::Off < Level::Error && Level::Error < Level::Warn);
        assert_eq!(Level::parse("off"), Some(Level::Off));
        assert_eq!(Level::parse("debug"), Some(Level::Debug));
        assert_eq!(Level::parse("loud"), None);
    }
}
