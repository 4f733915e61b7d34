//! Late or lost: a request comes again though its answer was seen, or before it was.

use super::again::TIMER;
use super::case::{Case, Request, low, span, us};
use super::lane::{Lane, Silent};
use super::op::Kind;
use crate::finding::{Findings, Flow, Number, Side};
use crate::record::At;
use crate::rule::Rule;

impl Lane {
    /// A request whose answer was seen here is sent again: the answer got lost behind this point,
    /// or came too late.
    pub(super) fn answered_before(
        &mut self,
        case: &Case<'_>,
        request: Request,
        idle: u64,
        findings: &mut Findings,
    ) {
        let (rule, what) = match request.kind {
            Kind::Read => (Rule::ResponseLost, "READ response"),
            Kind::Atomic => (Rule::ResponseLost, "answer to the atomic"),
            _ => (Rule::AckLost, "acknowledgement"),
        };
        let since = case.at.time.since(self.acked_at);
        if since < self.on_its_way() {
            self.came_late(case, request.psn, since, findings);
            return;
        }
        let side = Side::Behind(case.flow.source);
        self.befell(rule, case.at);
        let name = if rule == Rule::AckLost { "lost_packets" } else { "asked_again" };
        let numbers = [Number::sum(name, 1.0)];
        Case::tell(findings, rule, case.flow, side, &[case.at], &numbers, || {
            format!("PSN {} is asked for again though the {what} was seen", low(request.psn))
        });
        if idle >= TIMER {
            self.woken(case, idle, findings);
        }
    }

    /// A repetition so soon behind the answer was sent before the answer had arrived. Nanoseconds.
    pub(super) fn on_its_way(&self) -> u64 {
        /// What a packet takes to a capture at the requester itself.
        const LEAST: u64 = 8_192;
        const MOST: u64 = TIMER / 2;
        let usual = self.done.iter().filter_map(|done| done.latency.as_ref());
        let usual = usual.filter(|latency| latency.count() >= 16);
        let usual = usual.map(|latency| latency.quantile(0.5)).min().unwrap_or_default();
        (usual / 2).clamp(LEAST, MOST)
    }

    /// The answer came by here when the repetition was on its way.
    pub(super) fn came_late(
        &mut self,
        case: &Case<'_>,
        psn: u64,
        ns: u64,
        findings: &mut Findings,
    ) {
        self.befell(Rule::AckLost, case.at);
        let side = Side::Responder(case.flow.destination);
        Case::tell(findings, Rule::AckLost, case.flow, side, &[case.at], &[], || {
            let (psn, ns) = (low(psn), span(ns));
            format!("PSN {psn} is asked for again {ns} behind its answer, which was late, not lost")
        });
    }

    /// A READ's response did not reach the requester. With `seen` it came by here before.
    pub(super) fn response_lost(
        &self,
        (flow, seen): (Flow, bool),
        psn: u64,
        frames: [At; 2],
        idle: u64,
        findings: &mut Findings,
    ) {
        let side = match seen {
            true => Side::Behind(flow.source),
            false => Side::Before(flow.destination),
        };
        let first = frames[1];
        // How many of them were lost, nobody tells: those behind the first are asked for as well.
        let numbers = [Number::sum("asked_again", 1.0), Number::max("longest_wait_us", us(idle))];
        Case::tell(findings, Rule::ResponseLost, flow, side, &frames, &numbers, || {
            let how = if seen { "was seen" } else { "was not seen" };
            format!("the response at PSN {} of the READ in frame {first} {how}", low(psn))
        });
    }

    /// A repetition after a silence whose first copy shows no sign of having arrived: it was lost.
    pub(super) fn settle(&mut self, flow: Flow, findings: &mut Findings) {
        let Some(silent) = self.silent.take() else { return };
        let Silent { psn, first, again, idle, .. } = silent;
        if self.damaged_within(psn, psn + 1, again) > 0 {
            return;
        }
        if silent.response {
            self.response_lost((flow, false), psn, [again, first], idle, findings);
            return;
        }
        let side = Side::Behind(flow.destination);
        let numbers = [Number::sum("lost_packets", 1.0)];
        Case::tell(findings, Rule::LostBehind, flow, side, &[first, again], &numbers, || {
            let (psn, idle) = (low(psn), idle as f64 / 1e6);
            format!(
                "PSN {psn} was seen in frame {first}; nobody answered for {idle:.1} ms, sent \
                 again in {again}"
            )
        });
    }

    /// A second answer for a PSN: if it was repeated after a silence, both copies had arrived.
    pub(super) fn answered_twice(
        &mut self,
        asked: Flow,
        psn: u64,
        at: At,
        findings: &mut Findings,
    ) {
        let Some(silent) = self.silent.filter(|s| (s.psn..s.until).contains(&psn)) else { return };
        self.silent = None;
        let side = Side::Responder(asked.destination);
        let frames = [silent.again, at];
        Case::tell(findings, Rule::AckLost, asked, side, &frames, &[], || {
            let psn = low(silent.psn);
            format!("PSN {psn} had arrived: frame {at} is its second answer; the first was late")
        });
    }
}
