//! What can only be told once a direction's last packet was seen.

use super::case::{Case, low, us};
use super::cause::LONG;
use super::lane::{Ghost, Lane};
use super::op::Kind;
use crate::finding::{Findings, Flow, Number, Side, Subject};
use crate::record::At;
use crate::rule::Rule;

impl Lane {
    /// The end: of the capture, of the connection, or of what is remembered. `end` is its place.
    pub(super) fn finish(&mut self, flow: Flow, end: At, findings: &mut Findings) {
        // Without a request since, the capture may have lost them.
        let since = |ghost: &Ghost| self.newest.is_some_and(|(_, at)| at.time > ghost.at.time);
        if let Some(ghost) = self.ghost.take().filter(|ghost| !ghost.goes_on || since(ghost)) {
            Self::tell_ghost(flow, ghost, findings);
        }
        self.settle(flow, findings);
        self.gave_up(flow, end, findings);
        self.rnr_exceeded(flow, findings);
        self.unanswered(flow, end, findings);
        self.outliers(flow, findings);
    }

    /// Operations that take far longer than the others of their kind.
    fn outliers(&mut self, flow: Flow, findings: &mut Findings) {
        const MANY: u64 = 1000;
        const TIMES: u64 = 100;
        for (kind, done) in Kind::ALL.iter().zip(&mut self.done) {
            let Some(latency) = done.latency.as_ref().filter(|l| l.count() >= MANY) else {
                continue;
            };
            let (usual, high) = (latency.quantile(0.5), latency.quantile(0.99));
            if high < LONG || high / TIMES < usual {
                continue;
            }
            let numbers = [Number::max("p50_us", us(usual)), Number::max("p99_us", us(high))];
            let side = Side::Unknown;
            let causes = core::mem::take(&mut done.causes);
            let first = causes.iter().find_map(|cause| cause.sample.first().copied());
            Case::tell(findings, Rule::Outliers, flow, side, first.as_slice(), &numbers, || {
                let (usual, high) = (us(usual), us(high));
                let times = format!("median {usual:.1} us, 99th percentile {high:.0} us");
                let causes: Vec<_> = causes.iter().map(|c| format!("{} {c}", c.count)).collect();
                format!("{}: {times}; of the slow ones {}", kind.name(), causes.join(", "))
            });
            for cause in &causes {
                findings.explain(Rule::Outliers, Subject::Flow(flow), cause, cause.count);
            }
        }
    }

    /// Sent again and again, and nobody answered. A capture that ends in the middle of this shows
    /// no end of it, unless it went on for long or as often as a retry count allows: some
    /// requesters ask anew within microseconds when an answer is late.
    fn gave_up(&self, flow: Flow, end: At, findings: &mut Findings) {
        const TRIES: u32 = 2;
        /// The largest retry count there is, 3 bits.
        const MOST: u32 = 7;
        /// So long nobody tries in vain but for want of an answer. Nanoseconds.
        const LONG: u64 = 50_000_000;
        /// A shorter silence at the end tells nothing. Nanoseconds.
        const SILENCE: u64 = 10_000_000;
        let Some(vain) = self.fruitless.filter(|vain| vain.times >= TRIES) else { return };
        let oldest = self.open().next().copied();
        let first = oldest.map_or(vain.from, |sent| sent.at);
        let silence = SILENCE.max(vain.longest.saturating_mul(2));
        let ended = end.time.since(vain.last.time) >= silence;
        if !ended && vain.times < MOST && vain.last.time.since(first.time) < LONG {
            return;
        }
        let (from, tries) = (vain.from, vain.times + 1);
        let numbers = [Number::max("transmissions", f64::from(tries))];
        let side = Side::Responder(flow.destination);
        Case::tell(findings, Rule::RetryExceeded, flow, side, &[first, from], &numbers, || {
            let psn = oldest.map_or(0, |sent| low(sent.psn));
            format!("PSN {psn} was sent {tries} times without an answer")
        });
    }

    /// The last answer is an RNR NAK, after several tries, and no further one was made.
    fn rnr_exceeded(&self, flow: Flow, findings: &mut Findings) {
        let Some(rnr) = self.rnr.filter(|rnr| rnr.times >= 2 && !rnr.tried) else { return };
        let numbers = [Number::max("rnr_naks", f64::from(rnr.times))];
        let side = Side::Responder(flow.destination);
        Case::tell(findings, Rule::RnrExceeded, flow, side, &[rnr.at], &numbers, || {
            format!("PSN {} got {} RNR NAKs and is not tried again", low(rnr.psn), rnr.times)
        });
    }

    /// Asked for an acknowledgement, and neither got one nor asked again.
    fn unanswered(&self, flow: Flow, end: At, findings: &mut Findings) {
        /// An answer later than this, or than so many times the usual, is missing. Nanoseconds.
        const PATIENCE: u64 = 500_000_000;
        const TIMES: u64 = 20;
        let refused = self.nak.is_some() || self.rnr.is_some() || self.fatal.is_some();
        if self.fruitless.is_some() || refused || self.counts.acks == 0 {
            return;
        }
        let usual = self.done.iter().filter_map(|done| done.latency.as_ref());
        let usual = usual.map(|latency| latency.quantile(0.99)).max().unwrap_or_default();
        let patience = PATIENCE.max(usual.saturating_mul(TIMES));
        let waiting = |at: At| end.time.since(at.time) > patience;
        let mut missing = self.open().filter(|sent| sent.asks && waiting(sent.at));
        let requests = missing.clone().count();
        let Some(first) = missing.next() else { return };
        let last = missing.next_back().unwrap_or(first);
        let numbers = [
            Number::max("requests", requests as f64),
            Number::max("longest_us", us(end.time.since(first.at.time))),
        ];
        let side = Side::Responder(flow.destination);
        let frames = [first.at, last.at];
        Case::tell(findings, Rule::MissingAck, flow, side, &frames, &numbers, || {
            let waited = end.time.since(first.at.time) as f64 / 1e6;
            format!("PSN {} had no answer for {waited:.0} ms until the end", low(first.psn))
        });
    }
}
