//! `crocevia audit`: captures judged, and what is said of them: on a screen, as JSON, as frames, as
//! a sequence diagram, as a page. The judging is the `audit` crate's, the reading `pipeline`'s and
//! `live`'s.

mod decode;
mod document;
mod explain;
mod filter;
mod findings;
mod frames;
#[cfg(test)]
mod fuzz;
mod html;
mod ladder;
mod live;
mod pipeline;
mod progress;
mod screen;
mod summary;
mod tables;
mod watch;

use audit::series::Series;
use audit::{Options, Report};

use crate::args::{AuditArgs, AuditCommand, Expect};
use crate::error::{Failure, Result};
use crate::render;

use filter::Filter;
use screen::Screen;
use summary::Wish;
use watch::Watch;

/// Judges captures. Exit status 1 says that something was found, and nothing else.
pub(crate) fn run(args: &AuditArgs) -> Result<()> {
    told(args).map_err(Failure::not_a_finding)
}

fn told(args: &AuditArgs) -> Result<()> {
    if let Some(AuditCommand::Decode(args)) = &args.command {
        return decode::run(args);
    }
    if args.rules {
        return explain::list();
    }
    if let Some(rule) = &args.explain {
        return explain::explain(rule);
    }
    let filter = args.filter.as_deref().map(Filter::parse).transpose()?;
    if let Some(names) = &args.frames {
        let rules = explain::rules(names)?;
        return frames::run(args, &rules, filter);
    }
    if let Some(which) = &args.ladder {
        return ladder::run(args, which, filter);
    }
    // A page that cannot be written costs nobody the report of what was listened to.
    let mut written = Ok(());
    let report = match &args.html {
        Some(file) => {
            html::check(file)?;
            let mut plotted = html::Plotted { filter: filter.clone(), series: Series::default() };
            let report = judge(args, &mut plotted)?;
            written = html::write(file, &report, &mut plotted);
            report
        }
        None if !args.live.is_empty() => live::watched(args, filter.clone())?,
        None => judge(args, &mut watch::Plain { filter: filter.clone() })?,
    };
    if args.json {
        render::json(&document::of(&report, filter.as_ref().map(Filter::text))?)?;
    } else {
        render::text(&summary::text(&report, Wish::of(args), Screen::stdout()))?;
    }
    written?;
    ended(&report, !report.is_clean())
}

/// How it ends if something was found, or not; a damaged capture is a finding in every form.
fn ended(report: &Report, found: bool) -> Result<()> {
    let damaged = report.captures.iter().any(|capture| capture.damage.is_some());
    if found || damaged { Err(Failure::Findings) } else { Ok(()) }
}

/// Reads and judges all captures, then leaves in the report what the filter wants.
fn judge(args: &AuditArgs, watch: &mut impl Watch) -> Result<Report> {
    let mut report = read(args, watch)?;
    for capture in &report.captures {
        if let Some(damage) = &capture.damage {
            render::note(&format!("{}: {damage}", screen::harmless(&capture.name)));
        }
    }
    if let Some(filter) = watch.filter() {
        filter.narrow(&mut report);
    }
    Ok(report)
}

/// Reads and judges all captures.
fn read(args: &AuditArgs, watch: &mut impl Watch) -> Result<Report> {
    let options = Options {
        expect_ecn: args.expect.contains(&Expect::Ecn),
        link_gbps: args.link_speed,
        ..Options::default()
    };
    if args.live.is_empty() {
        pipeline::run(&args.files, options, watch)
    } else {
        live::run(args, options, watch)
    }
}
