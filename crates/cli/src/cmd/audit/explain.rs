//! `--explain` and `--rules`: the rule book on the terminal. Its text is that of the `audit` crate.

use std::fmt::Write;

use audit::Rule;

use super::findings::colour;
use super::screen::{self, Screen, Style};
use crate::error::{Failure, Result};
use crate::render;

/// Prints a rule's section, or all of them.
pub(super) fn explain(name: &str) -> Result<()> {
    let screen = Screen::stdout();
    let rules = rules(name)?;
    let sections: Vec<String> = rules.into_iter().map(|rule| section(rule, screen)).collect();
    render::text(&sections.join("\n"))
}

/// Prints one line for each rule.
pub(super) fn list() -> Result<()> {
    let screen = Screen::stdout();
    let mut out = String::new();
    for rule in Rule::ALL {
        let severity =
            screen.paint(&format!("{:8}", rule.severity().word()), colour(rule.severity()));
        let indent = 4 + 1 + 8 + 1;
        let title = format!("{}: {}", rule.word(), rule.title());
        let lines = screen::wrap(&title, screen.width.saturating_sub(indent));
        let _ = writeln!(out, "{} {severity} {}", rule.code(), lines.first().map_or("", |l| l));
        for line in lines.iter().skip(1) {
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
    }
    render::text(&out)
}

/// The rules of a list: numbers or words with commas between, or `all`.
pub(super) fn rules(names: &str) -> Result<Vec<Rule>> {
    if names.eq_ignore_ascii_case("all") {
        return Ok(Rule::ALL.to_vec());
    }
    let find = |name: &str| {
        Rule::find(name.trim()).ok_or_else(|| {
            let known = format!("{} to {}", first(), last());
            Failure::usage(format!(
                "there is no rule '{}': expected a number ({known}) or a word of `crocevia audit \
                 --rules`, or all{}",
                screen::harmless(name.trim()),
                near(name.trim()).map_or(String::new(), |near| format!("; perhaps {near}?"))
            ))
        })
    };
    names.split(',').map(find).collect()
}

fn first() -> &'static str {
    Rule::ALL.first().map_or("", |rule| rule.code())
}

fn last() -> &'static str {
    Rule::ALL.last().map_or("", |rule| rule.code())
}

/// A rule whose word has a part of `name` in it.
fn near(name: &str) -> Option<String> {
    let name = name.to_lowercase();
    let part = name.split(['-', '_', ' ']).max_by_key(|part| part.len()).filter(|p| p.len() > 2)?;
    let rule = Rule::ALL.iter().find(|rule| rule.word().contains(part))?;
    Some(format!("{} ({})", rule.word(), rule.code()))
}

fn section(rule: Rule, screen: Screen) -> String {
    let head = format!("{} {} ({})", rule.code(), rule.word(), rule.severity().word());
    let mut out = screen.paint(&head, Style::Bold);
    out.push_str("\n\n");
    for (i, paragraph) in paragraphs(rule.explanation()).iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&paragraph.text(screen.width));
    }
    out
}

/// A piece of Markdown that is wrapped, or kept as it is.
enum Paragraph<'a> {
    Text(String),
    Kept(Vec<&'a str>),
}

impl Paragraph<'_> {
    fn text(&self, width: usize) -> String {
        match self {
            Self::Text(text) => {
                let mark = if text.starts_with("* ") || text.starts_with("- ") { 2 } else { 0 };
                let lines = screen::wrap(text, width - mark);
                let lines = lines.iter().enumerate();
                lines
                    .map(|(i, l)| format!("{:1$}{l}\n", "", if i > 0 { mark } else { 0 }))
                    .collect()
            }
            Self::Kept(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
        }
    }
}

/// Markdown in pieces: paragraphs and points of lists to wrap, tables and code to keep.
fn paragraphs(text: &str) -> Vec<Paragraph<'_>> {
    let mut out: Vec<Paragraph<'_>> = Vec::new();
    let mut fenced = false;
    let mut open = false;
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        let keep = fenced || fence || line.starts_with('|') || line.starts_with("    ");
        let point = line.starts_with("* ") || line.starts_with("- ");
        match (out.last_mut(), keep) {
            _ if line.trim().is_empty() && !fenced => open = false,
            (Some(Paragraph::Kept(lines)), true) if open => lines.push(line),
            (Some(Paragraph::Text(text)), false) if open && !point => {
                text.push(' ');
                text.push_str(line.trim());
            }
            (_, true) => {
                out.push(Paragraph::Kept(vec![line]));
                open = true;
            }
            (_, false) => {
                out.push(Paragraph::Text(line.trim().to_owned()));
                open = true;
            }
        }
        fenced ^= fence;
    }
    out
}
