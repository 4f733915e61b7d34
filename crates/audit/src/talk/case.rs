//! A packet before its judges: where it was, what it is, and a short way to tell a finding of it.

use super::op::{Kind, Place};
use crate::event::Packet;
use crate::finding::{Findings, Flow, Instance, Number, Side, Subject};
use crate::record::At;
use crate::rule::Rule;

/// A packet of a half.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub at: At,
    /// The half that it belongs to.
    pub flow: Flow,
    pub packet: &'a Packet,
    /// Whether its service is acknowledged.
    pub reliable: bool,
}

impl Case<'_> {
    pub(super) fn psn(&self) -> u32 {
        self.packet.bth.psn.get()
    }

    /// Tells a finding about `flow`.
    pub(super) fn tell(
        findings: &mut Findings,
        rule: Rule,
        flow: Flow,
        side: Side,
        at: &[At],
        numbers: &[Number],
        detail: impl FnOnce() -> String,
    ) {
        let subject = Subject::Flow(flow);
        findings.add(Instance { rule, subject, side, at, numbers }, detail);
    }

    /// Tells that the very same packet was seen before.
    pub(super) fn copied(&self, findings: &mut Findings) {
        let side = Side::Before(self.flow.source);
        Self::tell(findings, Rule::NetworkDuplicate, self.flow, side, &[self.at], &[], || {
            let ident = self.packet.path.ident;
            format!("PSN {} (IP identification {ident}) came before", self.psn())
        });
    }

    /// Tells a finding about the half of this packet, on its requester's side.
    pub(super) fn blame_requester(
        &self,
        findings: &mut Findings,
        rule: Rule,
        detail: impl FnOnce() -> String,
    ) {
        let side = Side::Requester(self.flow.source);
        Self::tell(findings, rule, self.flow, side, &[self.at], &[], detail);
    }
}

/// A request packet, its PSN unwrapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub psn: u64,
    pub kind: Kind,
    pub place: Place,
}

/// 24 bits of an unwrapped PSN, as people know it.
pub(super) fn low(psn: u64) -> u64 {
    psn & 0xFF_FFFF
}

/// Nanoseconds as microseconds.
pub(super) fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// A time in nanoseconds as people read it.
pub(super) fn span(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.0} us", us(ns)),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}
