//! Completions: which requests end with one, and whether their buffers are what they were.

use std::collections::VecDeque;

use crate::checker::Checker;
use crate::digest::{Change, Memory};
use crate::finding::{Call, Finding};
use crate::object::Handle;
use crate::queue::InFlight;
use crate::rule::Rule;

/// How a request ended, as far as the checker cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Well.
    Success,
    /// The peer had no receive, too often.
    RnrExceeded,
    /// In another way.
    Failed,
}

/// A completion that was polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The request's name.
    pub wr_id: u64,
    /// The queue pair's number.
    pub qp: u32,
    /// How it ended.
    pub status: Status,
    /// Whether it is a receive; counts only on success.
    pub receive: bool,
}

impl Checker {
    /// Completions have been polled from a queue, in this order.
    pub fn polled(&mut self, call: Call, cq: Handle, done: &[Done], memory: &dyn Memory) {
        let Some(context) = self.cqs.get(&cq).map(|cq| cq.facts.context) else { return };
        for done in done {
            self.watched.completions += 1;
            if let Some(&qp) = self.by_number.get(&(context, done.qp)) {
                self.completed(call, cq, qp, done, memory);
            }
        }
    }

    fn completed(&mut self, call: Call, cq: Handle, qp: Handle, done: &Done, memory: &dyn Memory) {
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        let facts = pair.facts;
        let success = done.status == Status::Success;
        pair.failed |= !success;
        let receive = match success {
            true => done.receive,
            // A failed completion does not say what it was.
            false if facts.send_cq != facts.receive_cq => cq == facts.receive_cq,
            false => !pair.sends.iter().any(|request| request.wr_id == done.wr_id),
        };
        if receive {
            return self.received(qp, done);
        }
        let sends = &mut pair.sends;
        let Some(last) = position(sends, done, success) else { return };
        let ended: Vec<InFlight> = sends.drain(..=last).collect();
        for request in ended {
            self.forget_ranges(&request);
            if request.signaled {
                self.complete_one(facts.send_cq);
            }
            if success {
                self.compare(call, qp, request, memory);
            } else if done.status == Status::RnrExceeded && request.wr_id == done.wr_id {
                self.no_receive(call, qp, &request);
            }
        }
    }

    fn received(&mut self, qp: Handle, done: &Done) {
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        let facts = pair.facts;
        let receives = match facts.srq {
            None => &mut pair.receives,
            Some(srq) => match self.srqs.get_mut(&srq) {
                Some(srq) => &mut srq.receives,
                None => return,
            },
        };
        let found = receives.iter().position(|request| request.wr_id == done.wr_id);
        let Some(request) = found.and_then(|at| receives.remove(at)) else { return };
        self.forget_ranges(&request);
        if facts.srq.is_none() {
            self.complete_one(facts.receive_cq);
        }
    }

    /// Whether the bytes of a request are still those that were posted.
    fn compare(&mut self, call: Call, qp: Handle, request: InFlight, memory: &dyn Memory) {
        let Some(before) = &request.digest else { return };
        let Some(change) = self.reader.change(before, &request.ranges, memory) else { return };
        let found = match change {
            Change::Byte { at, was, is } => {
                format!("byte {at} of the message was {was:#04x} and is {is:#04x}")
            }
            Change::Within(from, to) => {
                format!("the first change is in bytes {from} to {} of the message", to - 1)
            }
            Change::Gone => "its memory cannot be read any more".to_owned(),
        };
        let total: u64 = request.ranges.iter().map(|(_, length)| length).sum();
        let addr = request.ranges.first().map_or(0, |(addr, _)| *addr);
        let what = request.operation.map_or("request", |operation| operation.name());
        let finding = Finding {
            rule: Rule::BufferChanged,
            call,
            object: self.name(qp),
            wr_id: Some(request.wr_id),
            found: format!("{what} of {total} bytes at {addr:#x}: {found}"),
            origin: Some(request.posted),
        };
        self.report(finding);
    }

    fn no_receive(&mut self, call: Call, qp: Handle, request: &InFlight) {
        let finding = Finding {
            rule: Rule::NoReceive,
            call,
            object: self.name(qp),
            wr_id: Some(request.wr_id),
            found: "the request failed with IBV_WC_RNR_RETRY_EXC_ERR".to_owned(),
            origin: Some(request.posted),
        };
        self.report(finding);
    }
}

/// Which request of a send queue a completion is of: those before it have ended too.
fn position(sends: &VecDeque<InFlight>, done: &Done, success: bool) -> Option<usize> {
    let named = |request: &InFlight| request.wr_id == done.wr_id;
    if success {
        let first = sends.iter().position(|request| request.signaled)?;
        if sends.get(first).is_some_and(named) {
            return Some(first);
        }
        // Another thread polled the one before, and has not told of it yet.
        return sends.iter().position(|request| request.signaled && named(request));
    }
    sends.iter().position(named)
}
