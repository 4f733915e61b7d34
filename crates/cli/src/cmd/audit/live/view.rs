//! The summary on a terminal while it goes on, drawn again twice a second.

use std::time::Duration;

use audit::report::{Report, Totals};

use super::terminal::{Terminal, height};
use crate::args::AuditArgs;
use crate::cmd::audit::filter::Filter;
use crate::cmd::audit::screen::{self, Screen, Style};
use crate::cmd::audit::summary::{self, Wish};
use crate::cmd::audit::watch::Watch;
use crate::error::Result;

/// How often it is drawn.
pub(super) const EVERY: Duration = Duration::from_millis(500);

/// The view.
#[derive(Debug)]
pub(in crate::cmd::audit) struct View {
    filter: Option<Filter>,
    wish: Wish,
    interfaces: String,
    terminal: Option<Terminal>,
    /// What was counted at the last picture, and when.
    last: (Totals, Duration),
}

impl View {
    pub(super) fn new(args: &AuditArgs, filter: Option<Filter>) -> Self {
        Self {
            filter,
            wish: Wish::of(args),
            interfaces: screen::harmless(&args.live.join(", ")),
            terminal: None,
            last: (Totals::default(), Duration::ZERO),
        }
    }

    /// Takes the terminal; whether keys can be read.
    pub(super) fn start(&mut self) -> Result<bool> {
        let (terminal, keys) = Terminal::enter()?;
        self.terminal = Some(terminal);
        Ok(keys)
    }

    /// Gives the terminal back.
    pub(super) fn end(&mut self) {
        self.terminal = None;
    }

    /// Draws the result so far, `elapsed` after the beginning.
    pub(super) fn look(&mut self, mut report: Report, elapsed: Duration) -> Result<()> {
        let head = self.head(&report.totals, elapsed);
        if let Some(filter) = &self.filter {
            filter.narrow(&mut report);
        }
        let screen = Screen::stdout().with_lines(height().saturating_sub(2));
        let text = summary::text(&report, self.wish, screen);
        let head = screen.paint(&screen.cut(&head), Style::Bold);
        match &mut self.terminal {
            Some(terminal) => terminal.draw(&format!("{head}\n\n{text}")),
            None => Ok(()),
        }
    }

    fn head(&mut self, totals: &Totals, elapsed: Duration) -> String {
        let (before, then) = std::mem::replace(&mut self.last, (*totals, elapsed));
        let seconds = elapsed.saturating_sub(then).as_secs_f64().max(1e-3);
        let packets = totals.packets.saturating_sub(before.packets) as f64 / seconds;
        let bits = totals.bytes.saturating_sub(before.bytes) as f64 * 8.0 / seconds;
        let rate = if bits >= 1e9 {
            format!("{} Gb/s", screen::three(bits / 1e9))
        } else {
            format!("{} Mb/s", screen::three(bits / 1e6))
        };
        format!(
            "live on {}: {:.1} s; {packets:.0} packets/s, {rate}; q or Ctrl-C ends",
            self.interfaces,
            elapsed.as_secs_f64()
        )
    }
}

impl Watch for View {
    fn filter(&mut self) -> Option<&mut Filter> {
        self.filter.as_mut()
    }

    fn view(&mut self) -> Option<&mut View> {
        Some(self)
    }
}
