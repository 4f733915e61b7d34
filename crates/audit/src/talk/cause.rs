//! Why an operation took long: what befell its queue pair meanwhile, as other rules tell it, pauses
//! of its link, CNPs. Each of these is judged elsewhere; here only when it was is remembered.

use super::case::{Case, us};
use super::lane::{Lane, Sent};
use super::op::Kind;
use super::{HalfId, Talks};
use crate::event::Event;
use crate::fabric::pause;
use crate::finding::{Cause, Findings, Number, Side, Subject};
use crate::record::{At, Time};
use crate::rule::Rule;

/// An operation that takes as long is asked for its cause: outliers (R111) begin here. Nanoseconds.
pub(super) const LONG: u64 = 10_000_000;
/// Frames of one kind that are remembered.
const NEWEST: usize = 4;

/// What may befall a direction's requests, the one that takes longest first, and its name.
const KINDS: [(Rule, &str); 8] = [
    (Rule::Timeout, "time-out"),
    (Rule::RnrStorm, "RNR NAK"),
    (Rule::ResponseLost, "loss of a response"),
    (Rule::BadIcrc, "damaged packet"),
    (Rule::LostBefore, "loss"),
    (Rule::LostBehind, "loss"),
    (Rule::Reordered, "packets out of order"),
    (Rule::AckLost, "acknowledgement lost or late"),
];

/// The newest frames of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles([[Option<At>; NEWEST]; KINDS.len()]);

impl Troubles {
    /// The first kind that was there since a moment, and its frames.
    fn since(&self, begun: Time) -> Option<Cause> {
        KINDS.iter().zip(&self.0).find_map(|((rule, what), newest)| {
            let at = newest.iter().flatten().filter(|at| at.time >= begun);
            let mut sample: Vec<At> = at.copied().collect();
            sample.sort_by_key(|at| (at.time, at.file, at.frame));
            (!sample.is_empty()).then(|| Cause::new(Some(*rule), what, &sample))
        })
    }
}

/// Operations that were completed after a long time, all by one answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slow {
    /// Last packet of the one that took longest.
    sent: At,
    begun: Time,
    ns: u64,
    kind: Kind,
    /// It took long to be sent, or to be answered by several packets.
    drawn_out: bool,
    /// Whether it took so long that the queue pair stood still.
    stall: bool,
    /// How many of each kind.
    many: [u32; Kind::ALL.len()],
}

impl Lane {
    /// Something happened that costs time.
    pub(super) fn befell(&mut self, rule: Rule, at: At) {
        let Some(kind) = KINDS.iter().position(|(known, _)| *known == rule) else { return };
        let newest = &mut self.troubles.get_or_insert_default().0[kind];
        newest.rotate_right(1);
        newest[0] = Some(at);
    }

    /// A message took long.
    pub(super) fn was_slow(&mut self, sent: Sent, ns: u64, stall: bool) {
        let sending = sent.at.time.since(sent.begun);
        let drawn_out = if sent.kind == Kind::Read { sent.span > 1 } else { sending >= ns / 2 };
        let (at, begun, kind) = (sent.at, sent.begun, sent.kind);
        let many = self.slow.map_or([0; Kind::ALL.len()], |slow| slow.many);
        let new = Slow { sent: at, begun, ns, kind, drawn_out, stall, many };
        let slow = match &mut self.slow {
            Some(slow) if (slow.stall, slow.ns) >= (stall, ns) => slow,
            slow => slow.insert(new),
        };
        slow.many[kind as usize] = slow.many[kind as usize].saturating_add(1);
    }
}

impl Talks {
    /// Operations of half `asked` took long, and `event` of half `by` ends them: why?
    pub(super) fn explain(
        &mut self,
        (asked, slow): (HalfId, Slow),
        (by, event): (HalfId, &Event),
        pauses: &pause::Judge,
        findings: &mut Findings,
    ) {
        let (at, half) = (event.at, self.get(asked));
        let flow = half.flow;
        let congested = || {
            // CNPs go to who sends the data.
            let of = if slow.kind == Kind::Read { half } else { self.get(by) };
            let both = of.cnps.filter(|cnps| cnps.iter().all(|cnp| cnp.time >= slow.begun));
            both.filter(|_| slow.drawn_out).map(|cnps| Cause::new(None, "slow-down by CNPs", &cnps))
        };
        let troubles = half.lane.troubles.as_ref();
        let cause = pauses
            .held(event.point, slow.begun, at.time)
            .or_else(|| troubles.and_then(|troubles| troubles.since(slow.begun)))
            .or_else(congested)
            .unwrap_or_else(Cause::unknown);
        let lane = &mut self.get_mut(asked).lane;
        for (done, many) in lane.done.iter_mut().zip(slow.many).filter(|(_, many)| *many > 0) {
            cause.join(u64::from(many), &mut done.causes);
        }
        if !slow.stall {
            return;
        }
        let (sent, ns) = (slow.sent, slow.ns);
        let side = Side::Responder(flow.destination);
        let numbers = [Number::max("longest_us", us(ns)), Number::sum("stalled_us", us(ns))];
        Case::tell(findings, Rule::Stall, flow, side, &[at, sent], &numbers, || {
            let ms = ns as f64 / 1e6;
            format!("the request in frame {sent} was answered after {ms:.0} ms; {cause}")
        });
        findings.explain(Rule::Stall, Subject::Flow(flow), &cause, 1);
    }
}
