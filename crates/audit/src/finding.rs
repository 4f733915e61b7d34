//! Findings: what a judge says, gathered by rule and subject, with first, last, count, a bounded
//! sample of frames and numbers. The texts of the rules are in `rule`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};
use wire::Gid;

use crate::limits;
use crate::record::{At, Point};
use crate::rule::{Rule, Severity};

mod cause;

pub use cause::Cause;

/// A direction between two ends: packets from `source` to queue pair `qp` of `destination`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// Who sent.
    pub source: Gid,
    /// To whom.
    pub destination: Gid,
    /// To which queue pair.
    pub qp: u32,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source.to_ip(), self.destination.to_ip());
        write!(f, "{source} > {destination} qp {:#x}", self.qp)
    }
}

impl Serialize for Flow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// The captures as such.
    Capture,
    /// A link: a point of capture.
    Link(Point),
    /// A pair of ends, the lower address first.
    Hosts(Gid, Gid),
    /// One direction of a conversation.
    Flow(Flow),
    /// What was too much to list singly.
    Others,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capture => f.write_str("the capture"),
            Self::Link(point) => write!(f, "link {}", point.0 + 1),
            Self::Hosts(a, b) => write!(f, "{} and {}", a.to_ip(), b.to_ip()),
            Self::Flow(flow) => flow.fmt(f),
            Self::Others => f.write_str("others"),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// On whose side the fault is, as far as a witness can tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The end with this address, as the one that asks (sends requests).
    Requester(Gid),
    /// The end with this address, as the one that answers.
    Responder(Gid),
    /// The end with this address, whatever it does.
    Host(Gid),
    /// The network between this sender and the point of capture.
    Before(Gid),
    /// The network between the point of capture and this receiver, or that receiver's own input.
    Behind(Gid),
    /// The network, somewhere.
    Network,
    /// How the capture was taken.
    Capture,
    /// It cannot be told.
    Unknown,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requester(gid) => write!(f, "requester {}", gid.to_ip()),
            Self::Responder(gid) => write!(f, "responder {}", gid.to_ip()),
            Self::Host(gid) => write!(f, "host {}", gid.to_ip()),
            Self::Before(gid) => write!(f, "network between {} and the capture", gid.to_ip()),
            Self::Behind(gid) => write!(f, "behind the capture, towards {}", gid.to_ip()),
            Self::Network => f.write_str("network"),
            Self::Capture => f.write_str("capture"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Serialize for Side {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How a number of further instances joins the one that a finding has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// Added.
    Sum,
    /// The larger one stays.
    Max,
    /// The smaller one stays.
    Min,
    /// The newer one stays.
    Last,
}

/// A number of a finding: its name with the unit in it (`wasted_bytes`, `longest_us`).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Number {
    /// Name, snake case, unit at the end.
    pub name: &'static str,
    /// Value.
    pub value: f64,
    #[serde(skip)]
    join: Join,
}

impl Number {
    /// A number that instances add to.
    pub const fn sum(name: &'static str, value: f64) -> Self {
        Self { name, value, join: Join::Sum }
    }
    /// A number of which the largest counts.
    pub const fn max(name: &'static str, value: f64) -> Self {
        Self { name, value, join: Join::Max }
    }
    /// A number of which the smallest counts.
    pub const fn min(name: &'static str, value: f64) -> Self {
        Self { name, value, join: Join::Min }
    }
    /// A number of which the newest counts.
    pub const fn last(name: &'static str, value: f64) -> Self {
        Self { name, value, join: Join::Last }
    }
}

/// One instance of a finding, as a judge reports it. `at` are its frames, the telling one first.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'a> {
    /// Which rule is broken.
    pub rule: Rule,
    /// By whom or where.
    pub subject: Subject,
    /// On whose side.
    pub side: Side,
    /// Frames that show it; at least one where the finding has any.
    pub at: &'a [At],
    /// Its numbers.
    pub numbers: &'a [Number],
}

/// A finding: all instances of one rule about one subject.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// How bad.
    pub severity: Severity,
    /// About what.
    pub subject: Subject,
    /// On whose side, by the first instance.
    pub side: Side,
    /// What is wrong in a sentence with this finding's values, from the first instance.
    pub detail: String,
    /// Instances.
    pub count: u64,
    /// The first one's telling frame.
    pub first: Option<At>,
    /// The last one's.
    pub last: Option<At>,
    /// Some frames.
    pub sample: Vec<At>,
    /// Numbers, joined over the instances.
    pub numbers: Vec<Number>,
    /// Of stalls and outliers: why, as far as other findings tell.
    pub causes: Vec<Cause>,
}

impl Finding {
    /// The numbers of several findings of one rule, joined as those of their instances are.
    pub fn numbers_of<'a>(findings: impl Iterator<Item = &'a Self>) -> Vec<Number> {
        let mut joined = Vec::new();
        for number in findings.flat_map(|finding| &finding.numbers) {
            join_number(&mut joined, *number);
        }
        joined
    }
}

/// What hears of each instance as it is found.
pub type Listener = Box<dyn FnMut(&Instance<'_>, &str) + Send>;

/// All findings so far.
#[derive(Default)]
pub struct Findings {
    by_subject: BTreeMap<(Rule, Subject), Finding>,
    subjects: BTreeMap<Rule, usize>,
    told: u64,
    listener: Option<Listener>,
}

impl fmt::Debug for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_subject.values()).finish()
    }
}

impl Findings {
    /// Has `listener` hear of each instance from now on.
    pub fn listen(&mut self, listener: Listener) {
        self.listener = Some(listener);
    }

    /// Instances so far.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Adds an instance; `detail` is asked for its sentence only where it is needed.
    pub fn add(&mut self, instance: Instance<'_>, detail: impl FnOnce() -> String) {
        self.told += 1;
        let mut detail = Some(detail);
        if let Some(listener) = &mut self.listener {
            let text = detail.take().map(|detail| detail()).unwrap_or_default();
            listener(&instance, &text);
            self.join(&instance, || text);
        } else if let Some(detail) = detail.take() {
            self.join(&instance, detail);
        }
    }

    fn join(&mut self, instance: &Instance<'_>, detail: impl FnOnce() -> String) {
        let subject = self.subject(instance);
        let key = (instance.rule, subject);
        let finding = self.by_subject.entry(key).or_insert_with(|| Finding {
            rule: instance.rule,
            severity: instance.rule.severity(),
            subject,
            side: instance.side,
            detail: detail(),
            count: 0,
            first: None,
            last: None,
            sample: Vec::new(),
            numbers: Vec::new(),
            causes: Vec::new(),
        });
        finding.count += 1;
        if let Some(&at) = instance.at.first() {
            finding.first.get_or_insert(at);
            finding.last = Some(at);
        }
        for &at in instance.at {
            if finding.sample.len() < limits::SAMPLE && !finding.sample.contains(&at) {
                finding.sample.push(at);
            }
        }
        for number in instance.numbers {
            join_number(&mut finding.numbers, *number);
        }
    }

    /// Tells why `count` instances about a subject came about.
    pub fn explain(&mut self, rule: Rule, subject: Subject, cause: &Cause, count: u64) {
        let others = (rule, Subject::Others);
        let key = (rule, subject);
        let key = if self.by_subject.contains_key(&key) { key } else { others };
        if let Some(finding) = self.by_subject.get_mut(&key) {
            cause.join(count, &mut finding.causes);
        }
    }

    /// The subject under which an instance is kept: its own while there is room.
    fn subject(&mut self, instance: &Instance<'_>) -> Subject {
        if self.by_subject.contains_key(&(instance.rule, instance.subject)) {
            return instance.subject;
        }
        let subjects = self.subjects.entry(instance.rule).or_default();
        if *subjects == limits::SUBJECTS {
            return Subject::Others;
        }
        *subjects += 1;
        instance.subject
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_subject.is_empty()
    }

    /// How often a rule was broken.
    pub fn count(&self, rule: Rule) -> u64 {
        self.of(rule).map(|finding| finding.count).sum()
    }

    /// The findings of one rule.
    pub fn of(&self, rule: Rule) -> impl Iterator<Item = &Finding> {
        self.by_subject
            .range((rule, Subject::Capture)..)
            .take_while(move |((of, _), _)| *of == rule)
            .map(|(_, finding)| finding)
    }

    /// All findings, most severe first, then the most frequent, then by rule and subject.
    pub fn sorted(&self) -> Vec<Finding> {
        let mut all: Vec<_> = self.by_subject.values().cloned().collect();
        all.sort_by_key(|f| (core::cmp::Reverse(f.severity), core::cmp::Reverse(f.count)));
        all
    }
}

fn join_number(numbers: &mut Vec<Number>, new: Number) {
    let Some(old) = numbers.iter_mut().find(|old| old.name == new.name) else {
        if numbers.len() < limits::NUMBERS {
            numbers.push(new);
        }
        return;
    };
    old.value = match new.join {
        Join::Sum => old.value + new.value,
        Join::Max => old.value.max(new.value),
        Join::Min => old.value.min(new.value),
        Join::Last => new.value,
    };
}
