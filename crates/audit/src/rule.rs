//! The rules: number, word, severity, what is wrong, what to do. The numbers never change their
//! meaning. `list.rs` has the texts, `rules.md` beside the sources explains each at length.

use serde::{Serialize, Serializer};

mod list;

pub use list::Rule;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It may cost something, or points to a fault elsewhere.
    Warning,
    /// It costs throughput or latency, or breaks requests.
    Error,
    /// It stops traffic, or spoils data.
    Critical,
}

impl Severity {
    /// The word that a report prints.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

const EXPLANATIONS: &str = include_str!("../rules.md");

impl Rule {
    /// The rule with a number or word, in any case.
    pub fn find(name: &str) -> Option<Self> {
        let is = |text: &str| text.eq_ignore_ascii_case(name);
        Self::ALL.iter().copied().find(|rule| is(rule.code()) || is(rule.word()))
    }

    /// Its section of the rule book, in Markdown, without the heading.
    pub fn explanation(self) -> &'static str {
        let heading = ["\n## ", self.code(), " "].concat();
        let Some((_, section)) = EXPLANATIONS.split_once(&*heading) else { return "" };
        let (_, section) = section.split_once('\n').unwrap_or((section, ""));
        section.split("\n## ").next().unwrap_or_default().trim()
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_explained_and_no_other() {
        let headings: Vec<_> =
            EXPLANATIONS.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let rules: Vec<_> =
            Rule::ALL.iter().map(|rule| format!("{} {}", rule.code(), rule.word())).collect();
        assert_eq!(headings, rules, "the sections of rules.md, in the order of the numbers");
        for rule in Rule::ALL {
            assert!(rule.explanation().len() > 80, "{} has no text", rule.code());
        }
    }

    #[test]
    fn numbers_rise_and_words_are_unique() {
        let codes: Vec<_> = Rule::ALL.iter().map(|rule| rule.code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        for rule in Rule::ALL {
            assert_eq!(Rule::find(rule.word()), Some(*rule));
            assert_eq!(Rule::find(&rule.code().to_lowercase()), Some(*rule));
        }
        assert_eq!(Rule::find("R999"), None);
    }
}
