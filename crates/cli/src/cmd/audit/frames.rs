//! `--frames`: every instance of some rules as it is found, one a line: frame, time, rule, subject,
//! detail, further frames.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufWriter, Write, stdout};
use std::sync::mpsc::{Receiver, Sender, channel};

use audit::finding::Instance;
use audit::record::Time;
use audit::talk::Remark;
use audit::{Auditor, Event, Rule};

use super::filter::Filter;
use super::screen;
use super::watch::Watch;
use crate::args::AuditArgs;
use crate::error::{Failure, Result};

/// Prints the frames.
pub(super) fn run(args: &AuditArgs, rules: &[Rule], filter: Option<Filter>) -> Result<()> {
    let (sender, lines) = channel();
    let mut frames = Frames {
        rules: rules.iter().copied().collect(),
        filter,
        start: None,
        sender: Some(sender),
        lines,
        out: BufWriter::new(stdout()),
        any: false,
    };
    super::judge(args, &mut frames)?;
    frames.flush()?;
    if frames.any { Err(Failure::Findings) } else { Ok(()) }
}

/// An instance, as it is found.
struct Found {
    instance: Instance<'static>,
    at: Vec<audit::At>,
    detail: String,
}

struct Frames {
    rules: BTreeSet<Rule>,
    filter: Option<Filter>,
    start: Option<Time>,
    sender: Option<Sender<Found>>,
    lines: Receiver<Found>,
    out: BufWriter<std::io::Stdout>,
    any: bool,
}

impl Frames {
    /// Writes what has been found since.
    fn drain(&mut self) -> Result<()> {
        while let Ok(found) = self.lines.try_recv() {
            let start = self.start.unwrap_or_default();
            let fits = self
                .filter
                .as_ref()
                .is_none_or(|filter| filter.fits(found.instance.subject, &found.at));
            if fits {
                self.any = true;
                writeln!(self.out, "{}", line(&found, start))?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.drain()?;
        Ok(self.out.flush()?)
    }
}

fn line(found: &Found, start: Time) -> String {
    let mut line = String::new();
    if let Some(first) = found.at.first() {
        let _ = write!(line, "{first} {} ", screen::moment(first.time, start));
    }
    let detail = screen::harmless(&found.detail);
    let _ = write!(line, "{} {}: {detail}", found.instance.rule.code(), found.instance.subject);
    let more: Vec<String> = found.at.iter().skip(1).map(ToString::to_string).collect();
    if !more.is_empty() {
        let _ = write!(line, " (with {})", more.join(" "));
    }
    line
}

impl Watch for Frames {
    fn begin(&mut self, auditor: &mut Auditor) {
        let Some(sender) = self.sender.take() else { return };
        let rules = self.rules.clone();
        auditor.findings().listen(Box::new(move |instance, detail| {
            if rules.contains(&instance.rule) {
                let found = Found {
                    instance: Instance { at: &[], numbers: &[], ..*instance },
                    at: instance.at.to_vec(),
                    detail: detail.to_owned(),
                };
                // Nobody takes it once the output has ended.
                let _ = sender.send(found);
            }
        }));
    }

    fn streams(&self) -> bool {
        true
    }

    fn filter(&mut self) -> Option<&mut Filter> {
        self.filter.as_mut()
    }

    fn seen(&mut self, event: &Event, _remark: Option<&Remark>) -> Result<()> {
        self.start.get_or_insert(event.at.time);
        self.drain()
    }

    fn so_far(&mut self) -> Result<()> {
        self.flush()
    }
}
