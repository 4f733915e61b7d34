//! What is told: the hosts' devices and interfaces, findings, what was not read; as text here and
//! as JSON by serde. What is wrong is decided by the rules.

mod table;
mod text;

use serde::Serialize;

use crate::catalogue::Severity;
use crate::finding::Finding;
use crate::host::{Asked, Host};
use crate::reader::Note;
use crate::rules::{Samples, judge};

pub(crate) use text::wrap;

/// Changes where a name of the JSON goes away or means something else.
const VERSION: u32 = 1;

/// A host's findings, ready to be shown.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// 1, as long as no name goes away or means something else (`docs/doctor.md`).
    pub version: u32,
    /// The host's name.
    pub host: Option<String>,
    /// Seconds between two readings.
    pub seconds: Option<f64>,
    /// Whether there were two readings.
    pub compared: bool,
    /// The RoCE ports.
    pub ports: Vec<table::PortRow>,
    /// The interfaces.
    pub interfaces: Vec<table::InterfaceRow>,
    /// What is wrong, most severe first.
    pub findings: Vec<Finding>,
    /// What was not read, and why.
    pub not_read: Vec<Note>,
    /// RDMA devices that are not for RoCE, and not judged.
    #[serde(rename = "not_judged")]
    pub others: Vec<String>,
}

impl Report {
    /// Judges.
    pub fn new(samples: Samples<'_>, asked: &Asked) -> Self {
        let host: &Host = samples.now;
        Self {
            version: VERSION,
            host: host.name.clone(),
            seconds: samples.seconds.filter(|_| samples.before.is_some()),
            compared: samples.before.is_some(),
            ports: table::ports(samples),
            interfaces: table::interfaces(host),
            findings: judge(samples, asked),
            not_read: host.notes.clone(),
            others: host.others.clone(),
        }
    }

    /// How many findings are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// The summary that a person reads, without what a terminal would obey: a copied directory may
    /// hold anything.
    pub fn text(&self) -> String {
        let is_bad = |c: char| {
            c.is_control() && c != '\n'
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        text::summary(self).replace(is_bad, "\u{fffd}")
    }
}
