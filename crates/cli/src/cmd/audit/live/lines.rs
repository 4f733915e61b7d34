//! Findings as they appear while it goes on, one a line: the first instance of each rule about each
//! subject. All instances are for `--frames`.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};

use audit::finding::Subject;
use audit::record::{At, Time};
use audit::talk::Remark;
use audit::{Auditor, Event, Rule};

use crate::cmd::audit::filter::Filter;
use crate::cmd::audit::screen;
use crate::cmd::audit::watch::Watch;
use crate::error::Result;
use crate::render;

/// Findings of one rule that are told; more stand in the summary.
const SUBJECTS: usize = 64;

/// A finding's first instance.
struct Found {
    rule: Rule,
    subject: Subject,
    at: Vec<At>,
    detail: String,
}

/// Tells findings.
#[derive(Debug)]
pub(super) struct Lines {
    filter: Option<Filter>,
    sender: Option<Sender<Found>>,
    found: Receiver<Found>,
    start: Option<Time>,
}

impl Lines {
    pub(super) fn new(filter: Option<Filter>) -> Self {
        let (sender, found) = channel();
        Self { filter, sender: Some(sender), found, start: None }
    }
}

impl Watch for Lines {
    fn begin(&mut self, auditor: &mut Auditor) {
        let Some(sender) = self.sender.take() else { return };
        let mut told = BTreeSet::new();
        auditor.findings().listen(Box::new(move |instance, detail| {
            let (rule, subject) = (instance.rule, instance.subject);
            let of_rule = (rule, Subject::Capture)..=(rule, Subject::Others);
            if told.contains(&(rule, subject)) || told.range(of_rule).count() >= SUBJECTS {
                return;
            }
            told.insert((rule, subject));
            let (at, detail) = (instance.at.to_vec(), detail.to_owned());
            // Nobody takes it once the output has ended.
            let _ = sender.send(Found { rule, subject, at, detail });
        }));
    }

    fn filter(&mut self) -> Option<&mut Filter> {
        self.filter.as_mut()
    }

    fn seen(&mut self, event: &Event, _remark: Option<&Remark>) -> Result<()> {
        self.start.get_or_insert(event.at.time);
        Ok(())
    }

    fn so_far(&mut self) -> Result<()> {
        while let Ok(found) = self.found.try_recv() {
            if self.filter.as_ref().is_none_or(|filter| filter.fits(found.subject, &found.at)) {
                render::text(&line(&found, self.start.unwrap_or_default()))?;
            }
        }
        Ok(())
    }
}

fn line(found: &Found, start: Time) -> String {
    let Found { rule, subject, at, detail } = found;
    let time = at.first().map_or(String::new(), |at| screen::moment(at.time, start) + " s ");
    let severity = rule.severity().word().to_uppercase();
    let detail = screen::harmless(detail);
    format!("{time}{severity} {} {}: {subject}: {detail}\n", rule.code(), rule.title())
}
