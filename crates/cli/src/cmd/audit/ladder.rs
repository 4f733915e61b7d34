//! `--ladder`: a conversation as a sequence diagram. The captures are judged twice: once to know
//! the conversation and what is wrong with it, once to draw its packets. The drawing is in
//! `ladder/draw.rs`.

pub(super) mod draw;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use audit::event::{Event, Packet, What};
use audit::finding::{Finding, Flow, Subject};
use audit::record::At;
use audit::report::{Conversation, End, Report};
use audit::talk::Remark;
use audit::{Auditor, Rule};
use wire::packet::Syndrome;
use wire::{Gid, Operation, Position};

use super::filter::Filter;
use super::pipeline;
use super::screen::{self, Screen};
use super::watch::{Plain, Watch};
use crate::args::AuditArgs;
use crate::error::{Failure, Result};
use crate::render;

/// Lines that are drawn where there is to be no limit.
const MOST: usize = 1_000_000;
/// Findings noted at their frames.
const NOTES: usize = 100_000;

/// Draws the conversation that `which` names.
pub(super) fn run(args: &AuditArgs, which: &str, filter: Option<Filter>) -> Result<()> {
    // Opened a second time, a pipe waits for somebody to write to it.
    let once = |file: &&PathBuf| {
        **file == *Path::new("-") || std::fs::metadata(file).is_ok_and(|meta| !meta.is_file())
    };
    if let Some(file) = args.files.iter().find(once) {
        let found = screen::harmless(&pipeline::name(file));
        let why = format!("--ladder reads the captures twice: expected files, found {found}");
        return Err(Failure::usage(why));
    }
    let which = Which::parse(which)?;
    let report = super::judge(args, &mut Plain { filter: None })?;
    let talk = which.choose(&report)?;
    let most = if args.limit == 0 { MOST } else { args.limit };
    let mut ladder = Ladder::new(talk, filter, most);
    super::read(args, &mut ladder)?;
    render::text(&draw::text(&ladder, &report, Screen::stdout()))?;
    let about = |finding: &Finding| ladder.way(finding.subject).is_some();
    super::ended(&report, report.findings.iter().any(about))
}

/// How a conversation is named.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Which {
    Number(u32),
    Qp(Option<IpAddr>, u32),
}

impl Which {
    fn parse(text: &str) -> Result<Self> {
        let hex = |text: &str| {
            let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
            u32::from_str_radix(digits, 16).ok().filter(|qp| *qp <= 0xFF_FFFF)
        };
        let wrong = || {
            Failure::usage(format!(
                "invalid value '{}' for '--ladder <WHICH>': expected the number of a conversation \
                 (3), a queue pair (0x11) or ADDR:QP (10.0.0.1:0x11, [fd00::1]:0x11)",
                screen::harmless(text)
            ))
        };
        if let Some(qp) = hex(text) {
            return Ok(Self::Qp(None, qp));
        }
        if let Some((address, qp)) = text.rsplit_once(':') {
            let address = address.trim_start_matches('[').trim_end_matches(']');
            let qp = hex(qp).or_else(|| qp.parse().ok()).filter(|qp| *qp <= 0xFF_FFFF);
            let both = address.parse().ok().zip(qp);
            return both.map(|(ip, qp)| Self::Qp(Some(ip), qp)).ok_or_else(wrong);
        }
        text.parse().ok().filter(|n| *n > 0).map(Self::Number).ok_or_else(wrong)
    }

    /// The conversation of a report that is meant.
    fn choose<'a>(&self, report: &'a Report) -> Result<&'a Conversation> {
        let is_end = |end: &End, address: Option<IpAddr>, qp: u32| {
            let is_at =
                |ip| end.address.parse().is_ok_and(|at| Gid::from_ip(at) == Gid::from_ip(ip));
            end.qp == Some(qp) && address.is_none_or(is_at)
        };
        let fits = |talk: &Conversation| match *self {
            Self::Number(id) => talk.id == id,
            Self::Qp(address, qp) => is_end(&talk.a, address, qp) || is_end(&talk.b, address, qp),
        };
        let found: Vec<&Conversation> =
            report.conversations.iter().filter(|talk| fits(talk)).collect();
        match found[..] {
            [talk] => Ok(talk),
            [] => Err(Failure::usage(match self {
                Self::Number(id) => format!(
                    "there is no conversation {id}: expected one of the {} that --qps lists",
                    report.conversations.len()
                ),
                Self::Qp(_, qp) => {
                    format!("no conversation has queue pair {qp:#x} there: --qps lists all")
                }
            })),
            _ => {
                let ids: Vec<String> =
                    found.iter().take(8).map(|talk| talk.id.to_string()).collect();
                let (ids, all) = (ids.join(", "), found.len());
                let text = format!(
                    "that queue pair is in {all} conversations ({ids}{}): expected the number of \
                     one",
                    if all > 8 { ", ..." } else { "" }
                );
                Err(Failure::usage(text))
            }
        }
    }
}

/// What a packet is in the drawing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Request(Operation),
    Response(Operation),
    Ack,
    Nak,
    Rnr,
    Cnp,
}

/// A packet of the conversation.
#[derive(Clone, Debug)]
struct Row {
    at: At,
    forward: bool,
    kind: Kind,
    psn: u32,
    len: u32,
    again: bool,
    ce: bool,
    ack_request: bool,
    /// What it is, in words.
    name: String,
    /// What it says beyond that.
    more: String,
    /// READs: bytes asked for.
    asked: u32,
}

impl Row {
    fn of(event: &Event, packet: &Packet, remark: &Remark, forward: bool) -> Option<Self> {
        let operation = packet.bth.opcode.operation()?;
        let kind = match (operation, packet.ext.aeth) {
            (Operation::Cnp, _) => Kind::Cnp,
            (Operation::Acknowledge, Some(aeth)) => match aeth.syndrome {
                Syndrome::Ack(_) => Kind::Ack,
                Syndrome::RnrNak(_) => Kind::Rnr,
                Syndrome::Nak(_) | Syndrome::Reserved(_) => Kind::Nak,
            },
            (operation, _) if operation.is_request() => Kind::Request(operation),
            (operation, _) => Kind::Response(operation),
        };
        let mut name = operation.name().trim_start_matches("RDMA ").to_owned();
        let mut more = Vec::new();
        if let Some(aeth) = packet.ext.aeth {
            match kind {
                Kind::Ack => name = "ACK".to_owned(),
                Kind::Nak | Kind::Rnr => name = aeth.syndrome.to_string(),
                _ => {}
            }
            more.push(format!("msn {}", aeth.msn.get()));
        }
        if let Some(reth) = packet.ext.reth {
            more.push(format!("dmalen {}", reth.length));
        }
        Some(Self {
            at: event.at,
            forward,
            kind,
            psn: packet.bth.psn.get(),
            len: packet.payload_len,
            again: remark.again,
            ce: packet.path.traffic_class & 3 == 3,
            ack_request: packet.bth.ack_request,
            name,
            more: more.join(" "),
            asked: packet.ext.reth.map_or(0, |reth| reth.length),
        })
    }

    /// Whether it is one of many alike inside a message.
    fn is_middle(&self) -> bool {
        match self.kind {
            Kind::Request(operation) | Kind::Response(operation) => {
                operation.position() == Position::Middle
            }
            _ => false,
        }
    }

    /// Whether its PSN is of the other end's requests.
    fn answers(&self) -> bool {
        !matches!(self.kind, Kind::Request(_))
    }
}

/// An instance of a finding about the conversation.
#[derive(Clone, Debug)]
struct Note {
    rule: Rule,
    text: String,
    /// File and number of its frames.
    at: Vec<(u16, u64)>,
}

/// Gathers the packets of a conversation.
pub(super) struct Ladder {
    talk: Conversation,
    ways: [Option<Flow>; 2],
    filter: Option<Filter>,
    most: usize,
    rows: Vec<Row>,
    /// Packets that would have been drawn.
    packets: u64,
    notes: Arc<Mutex<Vec<Note>>>,
    /// The first PSN of each end's requests.
    bases: [Option<u32>; 2],
}

impl Ladder {
    /// Of at most so many lines.
    pub(super) fn new(talk: &Conversation, filter: Option<Filter>, most: usize) -> Self {
        let gid = |end: &End| end.address.parse().ok().map(Gid::from_ip);
        let flow = |from: &End, to: &End| {
            Some(Flow { source: gid(from)?, destination: gid(to)?, qp: to.qp? })
        };
        Self {
            ways: [flow(&talk.a, &talk.b), flow(&talk.b, &talk.a)],
            talk: talk.clone(),
            filter,
            most,
            rows: Vec::new(),
            packets: 0,
            notes: Arc::default(),
            bases: [None; 2],
        }
    }

    /// Which direction of the conversation a finding is about: from a to b?
    fn way(&self, subject: Subject) -> Option<bool> {
        let Subject::Flow(flow) = subject else { return None };
        self.direction(flow)
    }

    /// Learns from where an end's PSNs are counted.
    fn base(&mut self, packet: &Packet, forward: bool) {
        let asks = packet.bth.opcode.operation().is_some_and(|operation| operation.is_request());
        let is_cnp = packet.bth.opcode == wire::Opcode::CNP;
        let end = usize::from(forward != asks);
        if !is_cnp {
            self.bases[end].get_or_insert(packet.bth.psn.get());
        }
    }

    fn direction(&self, flow: Flow) -> Option<bool> {
        self.ways.iter().position(|way| *way == Some(flow)).map(|at| at == 0)
    }
}

impl Watch for Ladder {
    fn begin(&mut self, auditor: &mut Auditor) {
        let (ways, notes) = (self.ways, Arc::clone(&self.notes));
        auditor.findings().listen(Box::new(move |instance, detail| {
            let Subject::Flow(flow) = instance.subject else { return };
            if !ways.contains(&Some(flow)) {
                return;
            }
            let Ok(mut notes) = notes.lock() else { return };
            if notes.len() < NOTES {
                let rule = instance.rule;
                let text = format!("{} {}: {detail}", rule.code(), rule.word());
                let at = instance.at.iter().map(|at| (at.file, at.frame)).collect();
                notes.push(Note { rule, text, at });
            }
        }));
    }

    fn seen(&mut self, event: &Event, remark: Option<&Remark>) -> Result<()> {
        let (What::Packet(packet), Some(remark)) = (&event.what, remark) else { return Ok(()) };
        let flow = Flow {
            source: packet.path.source,
            destination: packet.path.destination,
            qp: packet.bth.dest_qp.get(),
        };
        let Some(forward) = self.direction(flow) else { return Ok(()) };
        if self.filter.as_mut().is_some_and(|filter| !filter.shows(event, Some(remark))) {
            return Ok(());
        }
        self.packets += 1;
        self.base(packet, forward);
        if self.rows.len() < self.most
            && let Some(row) = Row::of(event, packet, remark, forward)
        {
            self.rows.push(row);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_named_in_three_ways() {
        let parse = |text: &str| Which::parse(text).ok();
        let ip = |text: &str| text.parse().ok();
        assert_eq!(parse("3"), Some(Which::Number(3)));
        assert_eq!(parse("0x11"), Some(Which::Qp(None, 0x11)));
        assert_eq!(parse("10.0.0.1:17"), Some(Which::Qp(ip("10.0.0.1"), 17)));
        assert_eq!(parse("[fd00::1]:0x11"), Some(Which::Qp(ip("fd00::1"), 0x11)));
        for wrong in ["", "0", "x", "0x1000000", "10.0.0.1:", "10.0.0:1", "[fd00::1]", "-1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
