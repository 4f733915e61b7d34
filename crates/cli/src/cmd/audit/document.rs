//! The audit as JSON. The names are stable and told in `docs/audit.md`.

use audit::finding::Finding;
use audit::report::{Conversation, Report, Traffic};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::findings::Writer;
use super::screen::Screen;
use super::tables::goodput;
use crate::error::{Failure, Result};

/// Changes where a name goes away or means something else.
const VERSION: u32 = 1;

/// The whole document.
pub(super) fn of(report: &Report, filter: Option<&str>) -> Result<Value> {
    let writer = Writer::new(report, Screen::stdout());
    let findings: Vec<Value> =
        report.findings.iter().map(|found| finding(found, &writer)).collect::<Result<_>>()?;
    let conversations: Vec<Value> =
        report.conversations.iter().map(conversation).collect::<Result<_>>()?;
    Ok(json!({
        "version": VERSION,
        "filter": filter,
        "clean": report.is_clean(),
        "captures": value(&report.captures)?,
        "totals": value(&report.totals)?,
        "findings": findings,
        "conversations_seen": report.conversations_seen,
        "conversations": conversations,
        "connections": value(&report.connections)?,
        "links": value(&report.links)?,
    }))
}

fn value(of: &impl Serialize) -> Result<Value> {
    serde_json::to_value(of)
        .map_err(|error| Failure::failed(format!("the result has no JSON form: {error}")))
}

/// A finding with the texts of its rule.
fn finding(finding: &Finding, writer: &Writer<'_>) -> Result<Value> {
    let numbers: Map<String, Value> =
        finding.numbers.iter().map(|n| (n.name.to_owned(), n.value.into())).collect();
    let mut out = value(finding)?;
    out["word"] = finding.rule.word().into();
    out["title"] = finding.rule.title().into();
    out["remedy"] = finding.rule.remedy().into();
    out["conversation"] = writer.conversation(finding.subject).into();
    out["numbers"] = numbers.into();
    Ok(out)
}

/// A conversation with the goodput of each direction.
fn conversation(talk: &Conversation) -> Result<Value> {
    let mut out = value(talk)?;
    out["duration_ns"] = talk.last.time.since(talk.first.time).into();
    let rate = |traffic: &Traffic| goodput(talk, traffic).into();
    out["forward"]["goodput_gbps"] = rate(&talk.forward);
    out["backward"]["goodput_gbps"] = rate(&talk.backward);
    Ok(out)
}
