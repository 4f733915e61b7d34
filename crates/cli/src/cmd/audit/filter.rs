//! What `--filter` keeps. An expression is asked about packets before they are judged, when the
//! other queue pair and the conversation are not known yet, and about conversations and findings
//! afterwards. So there are three answers: yes, no, and perhaps; only what is certainly not wanted
//! is left out. The grammar is in `filter/parse.rs`.

mod parse;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use audit::event::{Event, What};
use audit::finding::{Finding, Subject};
use audit::record::{At, Time};
use audit::report::{Connection, Conversation, Report};
use audit::talk::Remark;
use wire::Gid;

use crate::error::{Failure, Result};

/// An expression.
#[derive(Clone, PartialEq, Debug)]
enum Expr {
    /// One of the two ends.
    Host(Gid),
    Source(Gid),
    Destination(Gid),
    Qp(u32),
    Conversation(u32),
    Frame(RangeInclusive<u64>),
    Time(Moment, Moment),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
}

/// A moment as written, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// From the first packet.
    FromStart(u64),
    /// Of the day in UTC.
    OfDay(u64),
    /// None: the range is open there.
    Open,
}

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Truth {
    No,
    Perhaps,
    Yes,
}

use Truth::{No, Perhaps, Yes};

impl From<bool> for Truth {
    fn from(yes: bool) -> Self {
        if yes { Yes } else { No }
    }
}

/// A filter, and when the captures begin, once that is known.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Filter {
    text: String,
    expr: Expr,
    start: Option<Time>,
}

/// What an expression is asked about. What is not known is `None`.
#[derive(Clone, Copy, Debug, Default)]
struct Thing<'a> {
    /// Source and destination.
    way: Option<(Gid, Gid)>,
    /// Whether both directions are meant, so that each end is source and destination.
    both_ways: bool,
    /// Queue pairs that it certainly has; whether these are all.
    qps: &'a [u32],
    all_qps: bool,
    conversation: Option<u32>,
    /// First and last moment, first and last frame.
    times: Option<(Time, Time)>,
    frames: Option<(u64, u64)>,
}

impl Filter {
    /// Reads an expression.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let expr = parse::expression(text).map_err(|error| Failure::usage(error.in_text(text)))?;
        Ok(Self { text: text.to_owned(), expr, start: None })
    }

    /// The expression as it was given.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it names conversations, which exist only where packets are judged.
    pub(super) fn names_conversations(&self) -> bool {
        self.expr.any(&|expr| matches!(expr, Expr::Conversation(_)))
    }

    /// Whether an event is to be judged. The first one that is asked about is where times begin.
    pub(super) fn wants(&mut self, event: &Event) -> bool {
        self.packet(event, None) != No
    }

    /// Whether an event is to be shown, with what its conversation has said of it.
    pub(super) fn shows(&mut self, event: &Event, remark: Option<&Remark>) -> bool {
        self.packet(event, remark) != No
    }

    /// Whether an event that nobody judges is to be shown. What is not known of it is not there.
    pub(super) fn shows_record(&mut self, event: &Event) -> bool {
        let has_way = match &event.what {
            What::Packet(_) | What::Refused { .. } => true,
            What::Damaged { path, .. } => path.is_some(),
            _ => false,
        };
        let known = has_way || !self.expr.any(&Expr::is_of_packets);
        known && self.ask_of(event, None, true) != No
    }

    fn packet(&mut self, event: &Event, remark: Option<&Remark>) -> Truth {
        self.ask_of(event, remark, false)
    }

    fn ask_of(&mut self, event: &Event, remark: Option<&Remark>, all_qps: bool) -> Truth {
        self.start.get_or_insert(event.at.time);
        let mut qps = [0; 2];
        let (way, count) = match &event.what {
            What::Packet(packet) => {
                qps[0] = packet.bth.dest_qp.get();
                let source = packet.ext.deth.map(|deth| deth.source_qp.get());
                qps[1] = source.unwrap_or(qps[0]);
                (Some((packet.path.source, packet.path.destination)), 2)
            }
            What::Refused { path, head, .. } => {
                qps[0] = head.map_or(0, |(_, qp)| qp);
                (Some((path.source, path.destination)), usize::from(head.is_some()))
            }
            What::Damaged { path, .. } => (path.map(|p| (p.source, p.destination)), 0),
            _ => (None, 0),
        };
        let thing = Thing {
            way,
            qps: &qps[..count],
            all_qps,
            conversation: remark.map(|remark| remark.conversation),
            times: Some((event.at.time, event.at.time)),
            frames: Some((event.at.frame, event.at.frame)),
            ..Thing::default()
        };
        self.ask(&thing)
    }

    /// Leaves in a report what fits.
    pub(super) fn narrow(&self, report: &mut Report) {
        let mut talks = BTreeMap::new();
        for talk in &report.conversations {
            let qps: Vec<u32> = talk.a.qp.into_iter().chain(talk.b.qp).collect();
            talks.extend(ways(talk).map(|way| (way, (talk.id, qps.clone()))));
        }
        let find = |finding: &Finding| {
            let Subject::Flow(flow) = finding.subject else { return None };
            let [from, to] = [flow.source, flow.destination].map(|g| g.to_ip().to_string());
            talks.get(&(from, to, Some(flow.qp))).cloned()
        };
        report.findings.retain(|finding| self.keeps(finding, find(finding)));
        report.conversations.retain(|talk| self.conversation(talk) != No);
        report.conversations_seen = report.conversations.len() as u64;
        report.connections.retain(|connection| self.connection(connection) != No);
    }

    fn conversation(&self, talk: &Conversation) -> Truth {
        let qps: Vec<u32> = talk.a.qp.into_iter().chain(talk.b.qp).collect();
        let address = |text: &str| text.parse::<IpAddr>().ok().map(Gid::from_ip);
        let thing = Thing {
            way: address(&talk.a.address).zip(address(&talk.b.address)),
            both_ways: true,
            qps: &qps,
            all_qps: true,
            conversation: Some(talk.id),
            // Its packets have been asked already.
            ..Thing::default()
        };
        self.ask(&thing)
    }

    fn connection(&self, connection: &Connection) -> Truth {
        let qps: Vec<u32> = connection.active_qp.into_iter().chain(connection.passive_qp).collect();
        let address = |text: &str| text.parse::<IpAddr>().ok().map(Gid::from_ip);
        let thing = Thing {
            way: address(&connection.active).zip(address(&connection.passive)),
            both_ways: true,
            all_qps: qps.len() == 2,
            qps: &qps,
            ..Thing::default()
        };
        self.ask(&thing)
    }

    /// Whether an instance fits, as far as it tells at once: its conversation is not known.
    pub(super) fn fits(&self, subject: Subject, at: &[At]) -> bool {
        let own = queue_pair(subject);
        self.ask(&Thing { qps: own.as_slice(), ..about(subject, at) }) != No
    }

    /// Whether an instance fits; `talk` is the conversation that it is about, with the queue pairs
    /// that are known of it by now.
    pub(super) fn fits_of(&self, subject: Subject, at: &[At], talk: Option<(u32, &[u32])>) -> bool {
        let own = queue_pair(subject);
        let more = talk.iter().flat_map(|(_, qps)| qps.iter().copied());
        let qps: Vec<u32> = own.into_iter().chain(more).collect();
        let thing = Thing {
            qps: &qps,
            all_qps: own.is_some(),
            // No conversation has the number 0.
            conversation: talk.map(|(id, _)| id).or(own.map(|_| 0)),
            ..about(subject, at)
        };
        self.ask(&thing) != No
    }

    /// Whether it asks for what only conversations tell.
    pub(super) fn needs_conversations(&self) -> bool {
        self.expr.any(&|expr| matches!(expr, Expr::Conversation(_) | Expr::Qp(_)))
    }

    /// Whether a finding fits; `talk` is the conversation that it is about, with its queue pairs.
    fn keeps(&self, finding: &Finding, talk: Option<(u32, Vec<u32>)>) -> bool {
        let is_sum = finding.subject == Subject::Others;
        if is_sum && (self.names_conversations() || self.expr.any(&Expr::is_of_packets)) {
            // Of whom it speaks is not known.
            return false;
        }
        let times = finding.first.zip(finding.last);
        let (way, both_ways) = ends(finding.subject);
        let qp = queue_pair(finding.subject);
        let (conversation, qps) = match talk {
            Some((id, qps)) => (Some(id), qps),
            // No conversation has the number 0.
            None => (qp.map(|_| 0), qp.into_iter().collect()),
        };
        let thing = Thing {
            way,
            both_ways,
            qps: &qps,
            all_qps: qp.is_some(),
            conversation,
            times: times.map(|(first, last)| (first.time, last.time)),
            frames: times.map(|(first, last)| (first.frame, last.frame)),
        };
        self.ask(&thing) != No
    }

    fn ask(&self, thing: &Thing<'_>) -> Truth {
        self.expr.ask(thing, self.start.unwrap_or_default())
    }
}

/// The queue pair to which a direction goes.
fn queue_pair(subject: Subject) -> Option<u32> {
    match subject {
        Subject::Flow(flow) => Some(flow.qp),
        _ => None,
    }
}

/// What an instance tells by itself, its queue pairs left out.
fn about(subject: Subject, at: &[At]) -> Thing<'static> {
    let (way, both_ways) = ends(subject);
    Thing {
        way,
        both_ways,
        times: at.first().map(|at| (at.time, at.time)),
        frames: at.first().map(|at| (at.frame, at.frame)),
        ..Thing::default()
    }
}

/// Source and destination of what a finding is about, and whether either may be both.
fn ends(subject: Subject) -> (Option<(Gid, Gid)>, bool) {
    match subject {
        Subject::Flow(flow) => (Some((flow.source, flow.destination)), false),
        Subject::Hosts(a, b) => (Some((a, b)), true),
        Subject::Capture | Subject::Link(_) | Subject::Others => (None, true),
    }
}

/// A direction: from, to, to which queue pair.
type Way = (String, String, Option<u32>);

/// The two directions of a conversation.
fn ways(talk: &Conversation) -> [Way; 2] {
    let (a, b) = (&talk.a, &talk.b);
    [(a.address.clone(), b.address.clone(), b.qp), (b.address.clone(), a.address.clone(), a.qp)]
}

impl Expr {
    fn ask(&self, thing: &Thing<'_>, start: Time) -> Truth {
        match self {
            Self::Not(inner) => match inner.ask(thing, start) {
                No => Yes,
                Perhaps => Perhaps,
                Yes => No,
            },
            Self::And(a, b) => a.ask(thing, start).min(b.ask(thing, start)),
            Self::Or(a, b) => a.ask(thing, start).max(b.ask(thing, start)),
            Self::Host(gid) => thing.end(|from, to| from == *gid || to == *gid),
            Self::Source(gid) => {
                thing.end(|from, to| from == *gid || thing.both_ways && to == *gid)
            }
            Self::Destination(gid) => {
                thing.end(|from, to| to == *gid || thing.both_ways && from == *gid)
            }
            Self::Qp(qp) if thing.qps.contains(qp) => Yes,
            Self::Qp(_) => {
                if thing.all_qps {
                    No
                } else {
                    Perhaps
                }
            }
            Self::Conversation(id) => {
                thing.conversation.map_or(Perhaps, |conversation| (conversation == *id).into())
            }
            Self::Frame(range) => thing.frames.map_or(Perhaps, |(first, last)| {
                overlap((first, last), (*range.start(), *range.end()))
            }),
            Self::Time(from, to) => thing.times.map_or(Perhaps, |(first, last)| {
                let range = (from.or(start, 0), to.or(start, u64::MAX));
                overlap((first.0, last.0), range)
            }),
        }
    }

    /// Whether it or a part of it is such.
    fn any(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        is(self)
            || match self {
                Self::Not(inner) => inner.any(is),
                Self::And(a, b) | Self::Or(a, b) => a.any(is) || b.any(is),
                _ => false,
            }
    }

    /// Whether it asks for what only packets have.
    fn is_of_packets(&self) -> bool {
        matches!(self, Self::Host(_) | Self::Source(_) | Self::Destination(_) | Self::Qp(_))
    }
}

/// Whether a stretch lies in a range: wholly, partly, not.
fn overlap((first, last): (u64, u64), (from, to): (u64, u64)) -> Truth {
    if first >= from && last <= to {
        Yes
    } else if last < from || first > to {
        No
    } else {
        Perhaps
    }
}

impl Thing<'_> {
    fn end(&self, is: impl Fn(Gid, Gid) -> bool) -> Truth {
        self.way.map_or(Perhaps, |(from, to)| is(from, to).into())
    }
}

/// Nanoseconds of a day.
const DAY: u64 = 86_400_000_000_000;

impl Moment {
    /// The moment as nanoseconds since 1970; `open` where it is open. A time of day is the first
    /// such from the day on which the captures begin, on the next day if it is long past by then.
    fn or(self, start: Time, open: u64) -> u64 {
        match self {
            Self::Open => open,
            Self::FromStart(ns) => start.0.saturating_add(ns),
            Self::OfDay(ns) => {
                let today = start.0 / DAY * DAY + ns;
                // Twelve hours before the beginning is rather meant as twelve hours after it.
                if today + DAY / 2 < start.0 { today.saturating_add(DAY) } else { today }
            }
        }
    }
}

/// A range of frames as `--frame` has it, as a filter's term.
pub(super) fn with_frames(filter: Option<Filter>, range: &str) -> Result<Filter> {
    let frames = parse::frames(range).ok_or_else(|| {
        Failure::usage(format!(
            "invalid value '{}' for '--frame <RANGE>': expected 12, 12..20, 12.. or ..20",
            super::screen::harmless(range)
        ))
    })?;
    let term = Expr::Frame(frames);
    Ok(match filter {
        Some(filter) => {
            Filter { expr: Expr::And(Box::new(filter.expr.clone()), Box::new(term)), ..filter }
        }
        None => Filter { text: format!("frame {range}"), expr: term, start: None },
    })
}

#[cfg(test)]
mod tests;
