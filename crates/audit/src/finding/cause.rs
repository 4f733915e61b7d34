//! Why something is slow: the cause of a stall or outlier, named by the finding that tells of it.

use std::fmt;

use serde::Serialize;

use crate::limits;
use crate::record::At;
use crate::rule::Rule;

/// What explains instances of a finding.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cause {
    /// The rule that tells of it; none where that is no fault by itself, or where nothing explains
    /// the instances.
    pub rule: Option<Rule>,
    /// In a word or two: `time-out`, `RNR NAK`, `pause`, `no cause in this capture`.
    pub what: &'static str,
    /// Instances that it explains.
    pub count: u64,
    /// Some of its frames.
    pub sample: Vec<At>,
}

impl Cause {
    /// A cause with the frames that show it.
    pub fn new(rule: Option<Rule>, what: &'static str, frames: &[At]) -> Self {
        let sample = frames.iter().take(limits::SAMPLE).copied().collect();
        Self { rule, what, count: 1, sample }
    }

    /// Nothing that was seen explains it.
    pub fn unknown() -> Self {
        Self::new(None, "no cause in this capture", &[])
    }

    /// Adds `count` instances of it to a list of causes.
    pub fn join(&self, count: u64, causes: &mut Vec<Self>) {
        let same = |cause: &&mut Self| (cause.rule, cause.what) == (self.rule, self.what);
        let Some(known) = causes.iter_mut().find(same) else {
            causes.push(Self { count, ..self.clone() });
            return;
        };
        known.count += count;
        for at in &self.sample {
            if known.sample.len() < limits::SAMPLE && !known.sample.contains(at) {
                known.sample.push(*at);
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rule, self.sample.is_empty()) {
            (None, true) => return f.write_str(self.what),
            (Some(rule), _) => write!(f, "explained by {} ({})", rule.code(), self.what)?,
            (None, false) => write!(f, "explained by {}", self.what)?,
        }
        for (at, n) in self.sample.iter().zip(0..) {
            let before = match (n, self.sample.len()) {
                (0, 1) => " in frame",
                (0, _) => " in frames",
                _ => ",",
            };
            write!(f, "{before} {at}")?;
        }
        Ok(())
    }
}
