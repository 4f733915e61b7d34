//! `crocevia audit`: what is wrong with the RDMA traffic of captures. Reading, peeling and judging
//! are in `pipeline`.

mod pipeline;

use std::fmt::Write;

use audit::Report;

use crate::args::AuditArgs;
use crate::error::{Failure, Result};
use crate::render;

pub(crate) fn run(args: &AuditArgs) -> Result<()> {
    let report = pipeline::run(&args.files, pipeline::Asked::default(), |_, _| {})?;
    render::text(&summary(&report))?;
    match report.findings.len() {
        0 => Ok(()),
        n => Err(Failure::Exit(1, format!("{n} findings"))),
    }
}

fn summary(report: &Report) -> String {
    let mut text = String::new();
    for capture in &report.captures {
        let _ = writeln!(text, "{}: {}, {} records", capture.name, capture.format, capture.records);
        if let Some(damage) = &capture.damage {
            let _ = writeln!(text, "  damaged at {damage}");
        }
    }
    let _ = writeln!(text, "{:#?}", report.totals);
    for finding in &report.findings {
        let (code, subject) = (finding.rule.code(), finding.subject);
        let _ = writeln!(text, "{code} {subject} x{}: {}", finding.count, finding.detail);
    }
    text
}
