//! The same request twice within so short a time that no timer can have repeated it: a copy that
//! the network made, or a sender that asks before its timer runs out. Copies that IP
//! identifications show are told in `talk`.

use super::again::SHORTEST;
use super::case::{Case, Request, low, span, us};
use super::lane::{Lane, Newest, Recovery, Twin};
use super::op::Kind;
use crate::finding::{Findings, Flow, Number, Side};
use crate::rule::Rule;

impl Lane {
    /// Remembers a request packet as the newest.
    pub(super) fn is_newest(&mut self, case: &Case<'_>, request: Request) {
        self.newest = Some((newest(case, request), case.at));
    }

    /// Whether a repetition is a copy of what was just seen, and nobody asked for it. It is told
    /// at once if the first was acknowledged by then, else when an answer comes: before, it may
    /// yet turn out to be a sender's first try to mend a loss.
    pub(super) fn is_twin(
        &mut self,
        case: &Case<'_>,
        request: Request,
        findings: &mut Findings,
    ) -> bool {
        let psn = request.psn;
        if self.nak.is_some() || self.rnr.is_some() {
            return false;
        }
        let adjacent = self.newest.filter(|(known, _)| *known == newest(case, request));
        let first = match adjacent {
            Some((_, at)) => at,
            None if request.kind == Kind::Read => return false,
            None => {
                let known = self.find(psn).map(|at| self.sent[at]).filter(|sent| {
                    let (kind, place) = (sent.kind, sent.place);
                    sent.times == 1
                        && (kind, place, sent.payload)
                            == (request.kind, request.place, case.packet.payload_len)
                });
                let Some(sent) = known else { return false };
                sent.at
            }
        };
        // A READ that is asked for again has had a part of its answer.
        let answered = request.kind == Kind::Read && self.active != first.time;
        if case.at.time.since(first.time) >= SHORTEST || answered {
            return false;
        }
        let going_on = self.recovery.is_some_and(|recovery| recovery.next == psn);
        if going_on {
            return false;
        }
        let twin = Twin { psn, first, at: case.at };
        let until = self.next.unwrap_or(psn);
        if adjacent.is_none() && psn + 1 < until {
            // If it goes on from here, it goes back.
            self.recovery = Some(Recovery { next: psn + 1, until, lost: psn });
        }
        if psn < self.acked {
            twin.tell(case.flow, findings);
        } else {
            self.twin = Some(twin);
            self.in_vain(case, case.at.time.since(self.active));
        }
        true
    }

    /// An answer has come: a request that was seen twice has arrived.
    pub(super) fn twin_answered(&mut self, asked: Flow, findings: &mut Findings) {
        if let Some(twin) = self.twin.take_if(|twin| twin.psn < self.acked) {
            twin.tell(asked, findings);
        }
    }
}

impl Twin {
    fn tell(self, flow: Flow, findings: &mut Findings) {
        let Self { psn, first, at } = self;
        let apart = at.time.since(first.time);
        let numbers = [Number::max("longest_apart_us", us(apart))];
        let side = Side::Before(flow.source);
        Case::tell(findings, Rule::NetworkDuplicate, flow, side, &[at, first], &numbers, || {
            let (psn, apart) = (low(psn), span(apart));
            format!(
                "PSN {psn} came in frame {first} and {apart} later again, too soon for a timer: \
                 a copy, or its sender is impatient"
            )
        });
    }
}

fn newest(case: &Case<'_>, request: Request) -> Newest {
    let Request { psn, kind, place } = request;
    let asked = case.packet.ext.reth.filter(|_| kind == Kind::Read).map(|reth| reth.length);
    Newest { psn, kind, place, bytes: asked.unwrap_or(case.packet.payload_len) }
}
