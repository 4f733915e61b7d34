//! `--html`: the audit as one page that needs nothing else: summary, findings with remedies, plots,
//! tables. Its size is bounded, and whatever names a capture brings, they are text in it.

mod plot;
mod plots;

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use audit::Event;
use audit::report::Report;
use audit::series::Series;
use audit::talk::Remark;

use super::filter::Filter;
use super::findings::{Group, Writer, amount, causes, groups};
use super::screen::{self, Screen};
use super::watch::Watch;
use super::{summary, tables};
use crate::error::{Failure, Result};
use crate::render;

/// Exit code where the page cannot be written.
const EXIT_UNWRITTEN: u8 = 2;
/// What pages begin with.
const PAGE: &[u8] = b"<!doctype html>";
/// Findings, and rows of each table, at most.
const FINDINGS: usize = 100;
const ROWS: usize = 500;
/// Queue pairs of a rule that are named.
const SUBJECTS: usize = 10;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/cursor.js");

/// Gathers series while the captures are judged.
#[derive(Debug)]
pub(super) struct Plotted {
    pub(super) filter: Option<Filter>,
    pub(super) series: Series,
}

impl Watch for Plotted {
    fn filter(&mut self) -> Option<&mut Filter> {
        self.filter.as_mut()
    }

    fn seen(&mut self, event: &Event, remark: Option<&Remark>) -> Result<()> {
        self.series.see(event, remark);
        Ok(())
    }
}

/// A page is not to take the place of something else: `--html *.pcap` names a capture.
///
/// # Errors
/// What is there has a content that is no page.
pub(super) fn check(file: &Path) -> Result<()> {
    if file == Path::new("-") {
        return Err(Failure::usage("--html -: expected a file, the summary goes to the output"));
    }
    let Ok(mut there) = File::open(file) else { return Ok(()) };
    let mut begins = [0; PAGE.len()];
    if !there.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
        return Ok(());
    }
    let is_page = there.read_exact(&mut begins).is_ok() && begins.eq_ignore_ascii_case(PAGE);
    let name = screen::harmless(&file.display().to_string());
    let why = format!("--html: {name} is there and is no page: expected a new file, or a page");
    if is_page { Ok(()) } else { Err(Failure::usage(why)) }
}

/// Writes the page to `file`.
pub(super) fn write(file: &Path, report: &Report, plotted: &mut Plotted) -> Result<()> {
    plotted.series.finish();
    let filter = plotted.filter.as_ref().map(Filter::text);
    let page = page(report, &plotted.series, filter);
    std::fs::write(file, page).map_err(|error| {
        let name = screen::harmless(&file.display().to_string());
        Failure::Exit(EXIT_UNWRITTEN, format!("--html: {name} cannot be written: {error}"))
    })
}

/// Text that is safe in HTML, attributes included.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in screen::harmless(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The whole page.
pub(super) fn page(report: &Report, series: &Series, filter: Option<&str>) -> String {
    let name = report.captures.first().map_or("", |capture| &capture.name);
    let mut out =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    // Nothing is fetched, whatever a text might contain.
    out.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'unsafe-inline'\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n",
    );
    let _ = writeln!(out, "<title>RDMA audit: {}</title>", escape(name));
    let _ = writeln!(out, "<style>\n{STYLE}</style></head><body>");
    let _ = writeln!(out, "<h1>RDMA audit of {}</h1>", escape(name));
    for line in summary::facts(report) {
        let _ = writeln!(out, "<p>{}</p>", escape(&line));
    }
    if let Some(filter) = filter {
        let _ = writeln!(out, "<p>Only what fits <code>{}</code>.</p>", escape(filter));
    }
    findings(report, &mut out);
    out.push_str(&plots::all(report, series));
    table("Conversations", &tables::queue_pair_rows(report), &mut out);
    table("Operations", &tables::operation_rows(report), &mut out);
    table("Connections", &tables::connection_rows(report, usize::MAX, true), &mut out);
    table("Paused links", &tables::link_rows(report, usize::MAX), &mut out);
    let _ = writeln!(out, "<script>\n{SCRIPT}</script></body></html>");
    out
}

fn findings(report: &Report, out: &mut String) {
    let groups = groups(report);
    if groups.is_empty() {
        let text = summary::nothing(report);
        let class = if report.totals.packets == 0 { "warning" } else { "ok" };
        let _ = writeln!(out, "<div class=\"card {class}\">{}</div>", escape(text));
        return;
    }
    let _ = writeln!(out, "<h2>{}</h2>", escape(&summary::tally(&groups)));
    let writer = Writer::new(report, Screen::stdout());
    for group in groups.iter().take(FINDINGS) {
        finding(group, &writer, out);
    }
}

fn finding(group: &Group<'_>, writer: &Writer<'_>, out: &mut String) {
    let (rule, severity) = (group.rule, group.severity.word());
    let _ = writeln!(
        out,
        "<div class=\"card {severity}\" id=\"{}\"><h3><b>{severity}</b> {} {}</h3>\n<dl>",
        rule.code(),
        rule.code(),
        escape(rule.title())
    );
    let mut field = |name: &str, text: &str| {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escape(text));
    };
    for finding in group.findings.iter().take(SUBJECTS) {
        let numbers: Vec<String> = finding.numbers.iter().map(amount).collect();
        let mut text = writer.subject(finding.subject);
        let _ = write!(text, ", {}", render::count(finding.count, "time"));
        if !numbers.is_empty() {
            let _ = write!(text, ": {}", numbers.join("; "));
        }
        field("where", &text);
    }
    let more = group.findings.len().saturating_sub(SUBJECTS);
    if more > 0 {
        field("", &format!("and {more} more"));
    }
    if let Some(top) = group.findings.first() {
        field("side", &top.side.to_string());
        field("what", &top.detail);
    }
    if let Some(causes) = causes(group) {
        field("cause", &causes);
    }
    field("seen", &writer.seen(group));
    field("remedy", rule.remedy());
    let text = escape_lines(rule.explanation());
    let _ = writeln!(
        out,
        "</dl><details><summary>What {} means</summary><pre>{text}</pre></details></div>",
        rule.code()
    );
}

/// As [`escape`], with the ends of lines kept.
fn escape_lines(text: &str) -> String {
    text.lines().map(|line| escape(line) + "\n").collect()
}

/// A table; its first columns are text. Nothing if it has no rows.
fn table(title: &str, table: &tables::Table, out: &mut String) {
    if table.rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>{title}</h2><div class=\"wide\"><table><tr>");
    let class = |i: usize| if i < table.left { " class=\"l\"" } else { "" };
    for (i, name) in table.head.iter().enumerate() {
        let _ = write!(out, "<th{}>{name}</th>", class(i));
    }
    out.push_str("</tr>\n");
    for row in table.rows.iter().take(ROWS) {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(i), escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    let more = table.rows.len().saturating_sub(ROWS);
    if more > 0 {
        let _ = writeln!(out, "<p class=\"faint\">and {more} more rows</p>");
    }
}

#[cfg(test)]
mod tests;
