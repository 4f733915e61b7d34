//! `--frames`: every instance of some rules as it is found, one a line: frame, time, rule, subject,
//! detail, further frames.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufWriter, Write, stdout};
use std::sync::mpsc::{Receiver, Sender, channel};

use audit::event::{Packet, What};
use audit::finding::{Flow, Instance, Subject};
use audit::record::Time;
use audit::talk::Remark;
use audit::{Auditor, Event, Rule};

use super::filter::Filter;
use super::screen;
use super::watch::Watch;
use crate::args::AuditArgs;
use crate::error::Result;

/// Prints the frames.
pub(super) fn run(args: &AuditArgs, rules: &[Rule], filter: Option<Filter>) -> Result<()> {
    let mut frames = Frames::new(rules, filter, BufWriter::new(stdout()));
    let report = super::judge(args, &mut frames)?;
    frames.flush()?;
    super::ended(&report, frames.any)
}

/// Directions of conversations that are remembered.
const FLOWS: usize = 65_536;

/// Which direction belongs to which conversation, and its queue pairs, as far as they are known.
#[derive(Default)]
struct Talks {
    flows: BTreeMap<Flow, u32>,
    qps: BTreeMap<u32, Vec<u32>>,
}

impl Talks {
    fn learn(&mut self, packet: &Packet, conversation: u32) {
        let (source, destination) = (packet.path.source, packet.path.destination);
        let flow = Flow { source, destination, qp: packet.bth.dest_qp.get() };
        if self.flows.get(&flow) == Some(&conversation) || self.flows.len() == FLOWS {
            return;
        }
        self.flows.insert(flow, conversation);
        let qps = self.qps.entry(conversation).or_default();
        if !qps.contains(&flow.qp) {
            qps.push(flow.qp);
        }
    }

    fn of(&self, subject: Subject) -> Option<(u32, &[u32])> {
        let Subject::Flow(flow) = subject else { return None };
        let id = *self.flows.get(&flow)?;
        Some((id, self.qps.get(&id)?))
    }
}

/// An instance, as it is found.
struct Found {
    instance: Instance<'static>,
    at: Vec<audit::At>,
    detail: String,
}

/// Prints instances to `out`.
pub(super) struct Frames<W> {
    rules: BTreeSet<Rule>,
    filter: Option<Filter>,
    talks: Talks,
    start: Option<Time>,
    sender: Option<Sender<Found>>,
    lines: Receiver<Found>,
    out: W,
    any: bool,
}

impl<W: Write> Frames<W> {
    /// Those of some rules.
    pub(super) fn new(rules: &[Rule], filter: Option<Filter>, out: W) -> Self {
        let (sender, lines) = channel();
        Self {
            rules: rules.iter().copied().collect(),
            filter,
            talks: Talks::default(),
            start: None,
            sender: Some(sender),
            lines,
            out,
            any: false,
        }
    }

    /// Where they were printed to, all of them.
    #[cfg(test)]
    pub(super) fn end(mut self) -> Result<W> {
        self.flush()?;
        Ok(self.out)
    }

    /// Writes what has been found since.
    fn drain(&mut self) -> Result<()> {
        while let Ok(found) = self.lines.try_recv() {
            let start = self.start.unwrap_or_default();
            let subject = found.instance.subject;
            let talk = self.talks.of(subject);
            if self.filter.as_ref().is_none_or(|filter| filter.fits_of(subject, &found.at, talk)) {
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

impl<W: Write> Watch for Frames<W> {
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

    fn seen(&mut self, event: &Event, remark: Option<&Remark>) -> Result<()> {
        self.start.get_or_insert(event.at.time);
        if let (Some(remark), What::Packet(packet)) = (remark, &event.what)
            && self.filter.as_ref().is_some_and(Filter::needs_conversations)
        {
            self.talks.learn(packet, remark.conversation);
        }
        self.drain()
    }

    fn so_far(&mut self) -> Result<()> {
        self.flush()
    }
}
