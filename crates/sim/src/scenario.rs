//! Scenario files: TOML in, a network and a plan out, or an error that names the line, the field,
//! what was found and what was expected. `docs/scenarios.md` describes the fields.

mod build;
mod file;
mod quantity;
mod work;

use std::fmt;
use std::ops::Range;

use wire::Instant;

use crate::network::Network;
use crate::plan::Plan;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it teaches: a sentence or two.
    pub teaches: String,
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// When it ends at the latest.
    pub until: Instant,
    /// What there is.
    pub network: Network,
    /// What is done.
    pub plan: Plan,
    /// Names of the workloads: a flow's group is an index here.
    pub groups: Vec<String>,
}

/// What is wrong in a scenario file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// Line, counted from 1.
    pub line: usize,
    /// What, where, and what was expected: a sentence.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ScenarioError {}

/// The text of a file, to find lines in.
#[derive(Clone, Copy)]
struct Text<'a>(&'a str);

impl Text<'_> {
    /// An error at a place of the text.
    fn error(self, span: Range<usize>, message: impl Into<String>) -> ScenarioError {
        let before = self.0.as_bytes().get(..span.start).unwrap_or(self.0.as_bytes());
        let line = 1 + before.iter().filter(|b| **b == b'\n').count();
        ScenarioError { line, message: message.into() }
    }
}

impl Scenario {
    /// Reads a scenario. A seed given here is taken in place of the file's.
    pub fn read(text: &str, seed: Option<u64>) -> Result<Self, ScenarioError> {
        let at = Text(text);
        let mut file: file::File = toml::from_str(text).map_err(|error| {
            let message = error.message().replace('\n', "; ");
            let span = error.span().unwrap_or(0..0);
            let line = text.get(span.clone()).and_then(|part| part.lines().next()).unwrap_or("");
            let found = line.trim();
            let told = found.is_empty() || message.contains(found) || found.len() > 60;
            let found = if told { String::new() } else { format!(" (at `{found}`)") };
            at.error(span, format!("{message}{found}"))
        })?;
        file.seed = seed.unwrap_or(file.seed);
        build::scenario(at, &file)
    }
}
