//! A finding: which rule, about what, the values seen and where, the command that mends it.

use std::fmt::Display;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::catalogue::{Rule, Severity};
use crate::reader::Seen;

/// A value that a finding rests on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Evidence {
    /// What it is: `MTU`, `out_of_sequence`.
    pub what: String,
    /// The value, with its unit.
    pub value: String,
    /// The file or command that it came from.
    pub from: String,
}

impl Evidence {
    /// A value as it was seen.
    pub fn of<T: Display>(what: impl Into<String>, seen: &Seen<T>) -> Self {
        Self { what: what.into(), value: seen.value.to_string(), from: seen.from.clone() }
    }

    /// A value in other words.
    pub fn new(what: impl Into<String>, value: impl Into<String>, from: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into(), from: from.into() }
    }
}

/// What is wrong with a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// How bad it is here.
    pub severity: Severity,
    /// What it is about: `mlx5_0/1 (ens1f0)`, `ens1f0`, `process 17`.
    pub subject: String,
    /// The values seen.
    pub found: Vec<Evidence>,
    /// The command that mends it here.
    pub remedy: String,
}

impl Finding {
    /// A finding of the rule's own severity.
    pub fn new(rule: Rule, subject: impl Into<String>) -> Self {
        let severity = rule.severity();
        Self { rule, severity, subject: subject.into(), found: Vec::new(), remedy: String::new() }
    }

    /// With a value.
    #[must_use]
    pub fn with(mut self, evidence: Evidence) -> Self {
        self.found.push(evidence);
        self
    }

    /// With another severity.
    #[must_use]
    pub fn at(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// With the command.
    #[must_use]
    pub fn mend(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Finding", 8)?;
        object.serialize_field("finding", self.rule.code())?;
        object.serialize_field("rule", self.rule.word())?;
        object.serialize_field("severity", &self.severity)?;
        object.serialize_field("subject", &self.subject)?;
        object.serialize_field("title", self.rule.title())?;
        object.serialize_field("found", &self.found)?;
        object.serialize_field("means", self.rule.means())?;
        object.serialize_field("to_do", &self.remedy)?;
        object.end()
    }
}
