//! The checker: what it knows, what it has found, objects and their ends. Posting is in `post`,
//! completions in `poll`, moves of queue pairs in `modify`, events in `events`.

use std::collections::BTreeMap;

use crate::digest::Reader;
use crate::finding::{Call, Finding};
use crate::modify::State;
use crate::object::{Gone, Handle, Kind, Mr, Object, Tracked};
use crate::queue::{Completions, InFlight, Pair, Shared};
use crate::ranges::{Ranges, User};
use crate::rule::Rule;

/// Rules, objects and places that are told apart; beyond that many, findings are only counted.
const MAX_DISTINCT: usize = 1000;
/// Findings of one rule at one object from one place that are told; more are only counted.
const REPEATED: u64 = 5;

/// What has been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watched {
    /// Objects created.
    pub objects: u64,
    /// Send requests posted.
    pub sends: u64,
    /// Receive requests posted.
    pub receives: u64,
    /// Completions polled.
    pub completions: u64,
}

/// The state of all objects of a process, as its calls say.
#[derive(Debug, Default)]
pub struct Checker {
    pub(crate) strict: bool,
    findings: Vec<Finding>,
    /// How often each was found: by rule, object and place.
    distinct: BTreeMap<(Rule, String, Call), u64>,
    counts: BTreeMap<Rule, u64>,
    pub(crate) watched: Watched,
    pub(crate) objects: BTreeMap<Handle, Tracked>,
    gone: BTreeMap<Handle, Gone>,
    pub(crate) pairs: BTreeMap<Handle, Pair>,
    pub(crate) by_number: BTreeMap<(Handle, u32), Handle>,
    pub(crate) cqs: BTreeMap<Handle, Completions>,
    pub(crate) srqs: BTreeMap<Handle, Shared>,
    pub(crate) regions: BTreeMap<(Handle, u32), Mr>,
    /// Keys of regions that are no more, with the call that ended them.
    pub(crate) stale: BTreeMap<(Handle, u32), Call>,
    pub(crate) events: BTreeMap<Handle, (u64, Call)>,
    pub(crate) written: Ranges,
    pub(crate) sources: Ranges,
    pub(crate) reader: Reader,
}

impl Checker {
    /// A checker that knows of nothing yet; `strict` also looks at the rules from C101 on.
    pub fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// What was found since the last time, in order. The same thing at the same object from the
    /// same place comes five times at most.
    pub fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// How often each rule was broken, repetitions included.
    pub fn counts(&self) -> impl Iterator<Item = (Rule, u64)> + '_ {
        self.counts.iter().map(|(rule, count)| (*rule, *count))
    }

    /// What has been looked at.
    pub fn watched(&self) -> Watched {
        self.watched
    }

    pub(crate) fn report(&mut self, finding: Finding) {
        if finding.rule.is_strict() && !self.strict {
            return;
        }
        *self.counts.entry(finding.rule).or_default() += 1;
        let key = (finding.rule, finding.object.clone(), finding.call);
        if self.distinct.len() >= MAX_DISTINCT && !self.distinct.contains_key(&key) {
            return;
        }
        let count = self.distinct.entry(key).or_default();
        *count += 1;
        if *count <= REPEATED {
            self.findings.push(finding);
        }
    }

    /// The name of an object that exists.
    pub(crate) fn name(&self, handle: Handle) -> String {
        match self.objects.get(&handle) {
            Some(tracked) => tracked.object.name(),
            None => format!("object {:#x}", handle.0),
        }
    }

    /// An object has been made, in a call that succeeded.
    pub fn created(&mut self, call: Call, handle: Handle, object: Object) {
        self.watched.objects += 1;
        let serial = self.watched.objects;
        self.gone.remove(&handle);
        self.objects.insert(handle, Tracked { object, made: call, serial });
        match object {
            Object::Qp(facts) => {
                self.by_number.insert((facts.context, facts.number), handle);
                self.pairs.insert(handle, Pair::new(facts));
            }
            Object::Cq(facts) => {
                let fresh = Completions { facts, outstanding: 0, armed: 0, events: (0, None) };
                self.cqs.insert(handle, fresh);
            }
            Object::Srq(facts) => {
                self.srqs.insert(handle, Shared { facts, receives: Default::default() });
            }
            Object::Mr(facts) => self.add_region(facts),
            _ => {}
        }
    }

    fn add_region(&mut self, facts: Mr) {
        self.stale.remove(&(facts.context, facts.lkey));
        self.regions.insert((facts.context, facts.lkey), facts);
    }

    /// A region has been registered anew under the same handle.
    pub fn reregistered(&mut self, call: Call, handle: Handle, facts: Mr) {
        self.forget_region(call, handle);
        self.add_region(facts);
        if let Some(tracked) = self.objects.get_mut(&handle) {
            tracked.object = Object::Mr(facts);
        }
    }

    fn forget_region(&mut self, call: Call, handle: Handle) {
        let Some(Object::Mr(facts)) = self.objects.get(&handle).map(|tracked| tracked.object)
        else {
            return;
        };
        let key = (facts.context, facts.lkey);
        self.regions.remove(&key);
        if self.stale.len() < MAX_DISTINCT {
            self.stale.insert(key, call);
        }
    }

    /// A queue has other sizes now.
    pub fn resized(&mut self, handle: Handle, depth: u32) {
        if let Some(cq) = self.cqs.get_mut(&handle) {
            cq.facts.depth = depth;
        }
        if let Some(srq) = self.srqs.get_mut(&handle) {
            srq.facts.depth = depth;
        }
    }

    /// A region is about to end (or to change), if the device lets it: are requests in flight that
    /// name it?
    pub fn region_ending(&mut self, call: Call, handle: Handle) {
        let Some(Object::Mr(mr)) = self.objects.get(&handle).map(|tracked| tracked.object) else {
            return;
        };
        let of_device = |pair: &&Pair| pair.facts.context == mr.context && pair.works();
        let in_pairs = self.pairs.values().filter(of_device).flat_map(|pair| {
            let number = pair.facts.number;
            let requests = pair.sends.iter().chain(&pair.receives);
            requests.map(move |request| (format!("QP {number}"), request))
        });
        let srqs = self.srqs.values().filter(|srq| srq.facts.context == mr.context);
        let in_srqs = srqs.flat_map(|srq| {
            let number = srq.facts.number;
            srq.receives.iter().map(move |request| (format!("SRQ {number}"), request))
        });
        let mut users = in_pairs.chain(in_srqs).filter(|(_, r)| r.lkeys.contains(&mr.lkey));
        let Some((queue, first)) = users.next() else { return };
        let others = users.count();
        let what = first.operation.map_or("receive", |operation| operation.name());
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        let finding = Finding {
            rule: Rule::MrInUse,
            call,
            object: Object::Mr(mr).name(),
            wr_id: Some(first.wr_id),
            found: format!("a {what} of {queue} names it{more}, and no completion was polled"),
            origin: Some(first.posted),
        };
        self.report(finding);
    }

    /// An object has been destroyed.
    pub fn destroyed(&mut self, call: Call, handle: Handle) {
        self.forget_region(call, handle);
        let Some(tracked) = self.objects.remove(&handle) else { return };
        let (kind, name) = (tracked.object.kind(), tracked.object.name());
        self.gone.insert(handle, Gone { kind, name, ended: call });
        self.events.remove(&handle);
        self.cqs.remove(&handle);
        if let Some(pair) = self.pairs.remove(&handle) {
            let number = (pair.facts.context, pair.facts.number);
            if self.by_number.get(&number) == Some(&handle) {
                self.by_number.remove(&number);
            }
            self.drop_requests(&pair.facts, pair.sends, pair.receives);
        }
        if let Some(srq) = self.srqs.remove(&handle) {
            srq.receives.iter().for_each(|request| self.forget_ranges(request));
        }
    }

    /// The requests of a queue pair have gone without completions.
    pub(crate) fn drop_requests(
        &mut self,
        facts: &crate::object::Qp,
        sends: impl IntoIterator<Item = InFlight>,
        receives: impl IntoIterator<Item = InFlight>,
    ) {
        for request in sends {
            self.forget_ranges(&request);
            if request.signaled {
                self.complete_one(facts.send_cq);
            }
        }
        for request in receives {
            self.forget_ranges(&request);
            self.complete_one(facts.receive_cq);
        }
    }

    pub(crate) fn complete_one(&mut self, cq: Handle) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.outstanding = cq.outstanding.saturating_sub(1);
        }
    }

    pub(crate) fn forget_ranges(&mut self, request: &InFlight) {
        let table = if request.writes() { &mut self.written } else { &mut self.sources };
        request.noted.iter().for_each(|&start| table.remove(start));
    }

    /// How people name the user of a range.
    pub(crate) fn user(&self, user: User) -> String {
        format!("wr_id {:#x} of {}", user.wr_id, self.name(Handle(user.queue)))
    }

    /// A call was given a handle that names nothing. True if it once did, which is a finding.
    pub fn dead(&mut self, call: Call, handle: Handle, kind: Kind) -> bool {
        let Some(gone) = self.gone.get(&handle).filter(|gone| gone.kind == kind) else {
            return false;
        };
        let again = gone.ended.name == call.name;
        let what = if again { "destroyed once more" } else { "used" };
        let finding = Finding {
            rule: Rule::DeadHandle,
            call,
            object: gone.name.clone(),
            wr_id: None,
            found: format!("the handle {:#x} was {what} after its end", handle.0),
            origin: Some(gone.ended),
        };
        self.report(finding);
        true
    }

    /// The address of an object that is no more may be given anew from now on.
    pub fn forget(&mut self, handle: Handle) {
        self.gone.remove(&handle);
    }

    /// A call that was to destroy an object failed because others use it.
    pub fn busy(&mut self, call: Call, handle: Handle) {
        let Some(tracked) = self.objects.get(&handle) else { return };
        let finding = Finding {
            rule: Rule::Busy,
            call,
            object: tracked.object.name(),
            wr_id: None,
            found: "the call failed with EBUSY".to_owned(),
            origin: Some(tracked.made),
        };
        self.report(finding);
    }

    /// Whether nothing is left of a queue pair's trust: it failed, or was moved to ERR.
    pub(crate) fn state(&self, qp: Handle) -> Option<State> {
        self.pairs.get(&qp).map(|pair| pair.state)
    }

    /// The process ends by its own will: what was created and not destroyed, and which events were
    /// taken and not acknowledged. The number of objects left.
    pub fn exit(&mut self, call: Call) -> usize {
        let mut left: Vec<_> = self.objects.iter().map(|(h, t)| (*h, *t)).collect();
        left.sort_by_key(|(_, tracked)| tracked.serial);
        for (handle, _) in &left {
            self.unacknowledged(call, *handle);
        }
        for (_, tracked) in &left {
            let finding = Finding {
                rule: Rule::Leak,
                call,
                object: tracked.object.name(),
                wr_id: None,
                found: "it is still there at the end of the process".to_owned(),
                origin: Some(tracked.made),
            };
            self.report(finding);
        }
        left.len()
    }

    /// Objects that exist.
    pub fn alive(&self) -> usize {
        self.objects.len()
    }
}
