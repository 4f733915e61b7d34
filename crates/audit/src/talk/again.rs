//! Requests that were sent before: what was lost where, what it cost, and who noticed.

use super::case::{Case, Request, low, span, us};
use super::lane::{Fruitless, Hole, Lane, Late, Message, Recovery, Sent, Silent, Target};
use super::op::{self, Kind};
use super::requests::Standing;
use crate::finding::{Findings, Flow, Number, Side};
use crate::limits;
use crate::record::At;
use crate::rule::Rule;

/// A requester that repeats after at least this idle time was woken by its timer: the shortest
/// timeout in use is longer, and a network's reordering is shorter. Nanoseconds.
pub(super) const TIMER: u64 = 4_000_000;

/// A silence before a repetition that may be an ACK timeout: 4.096 us × 2^6. The codes 1 to 5 are
/// shorter (131 us and less) than what one full switch buffer takes, so that nobody sets them, and
/// no known device keeps them: repetitions so soon are a sender's probe, or copies. Nanoseconds.
pub(super) const SHORTEST: u64 = 262_144;

impl Lane {
    /// A request before the expected PSN; tells whether it was sent before.
    pub(super) fn repeated(
        &mut self,
        case: &Case<'_>,
        request: Request,
        findings: &mut Findings,
    ) -> bool {
        let psn = request.psn;
        self.take_back_guess(case, request);
        if let Some(hole) = self.hole(psn) {
            return self.fills(case, request, hole, findings);
        }
        if self.inside_read(case, request, findings) {
            return false;
        }
        self.counts.again += 1;
        if request.kind == Kind::Read
            && let (Some(reth), Some(read)) = (case.packet.ext.reth, self.target(psn))
        {
            read.ask(psn, reth.length);
            self.parts += 1;
        }
        if psn < self.first {
            // Sent first before the capture began; whether it was lost, a NAK has said.
            return true;
        }
        if self.is_twin(case, request, findings) {
            return true;
        }
        let asked_for = self.nak.is_some_and(|nak| nak.psn == psn);
        if let Some(recovery) = self.recovery
            && recovery.next == psn
            && psn < recovery.until
            && !asked_for
        {
            self.goes_on(case, request, recovery, findings);
            return true;
        }
        self.goes_back(case, request, findings);
        true
    }

    /// A PSN that was passed over comes now.
    fn fills(
        &mut self,
        case: &Case<'_>,
        request: Request,
        hole: usize,
        findings: &mut Findings,
    ) -> bool {
        let found = self.holes[hole];
        let idle = case.at.time.since(self.active);
        let late = !found.told && self.was_overtaken(case, found, idle);
        if late {
            self.overtaken(case, request.psn, found, findings);
        } else {
            if !found.told {
                self.lost_before(case, hole, idle, findings);
            }
            self.counts.again += 1;
        }
        let until = self.next.unwrap_or(request.psn);
        self.insert(case, request);
        self.fill(hole, request.psn);
        let next = self.find(request.psn).map_or(request.psn + 1, |at| self.sent[at].end());
        self.recovery = (!late).then_some(Recovery { next, until, lost: request.psn });
        self.nak = self.nak.filter(|nak| nak.psn != request.psn);
        !late
    }

    /// A packet of an unreliable connection before the expected PSN: nobody sends those again, so
    /// the network has changed their order, or copied it.
    pub(super) fn overtaken_datagram(
        &mut self,
        case: &Case<'_>,
        request: Request,
        findings: &mut Findings,
    ) -> bool {
        let psn = request.psn;
        match self.hole(psn) {
            Some(hole) => {
                let found = self.holes[hole];
                self.overtaken(case, psn, found, findings);
                self.fill(hole, psn);
                false
            }
            None => {
                if psn >= self.first {
                    case.copied(findings);
                }
                true
            }
        }
    }

    /// A packet comes that later ones have overtaken. Whether it did harm, the receiver's NAK says.
    fn overtaken(&mut self, case: &Case<'_>, psn: u64, hole: Hole, findings: &mut Findings) {
        if self.lates.len() == limits::LATES {
            self.lates.remove(0);
        }
        let until = self.next.unwrap_or(psn).max(psn + 1);
        self.lates.push(Late { psn, until, overtaken_by: hole.at, at: case.at, told: false });
        if let Some(nak) = hole.refused {
            self.reordered(case.flow, psn, nak, findings);
        } else if !case.reliable {
            self.reordered(case.flow, psn, case.at, findings);
        }
    }

    /// Tells that a NAK for `psn`, or a message lost by a service without NAKs, was due to packets
    /// out of order; false if that PSN was in order.
    pub(super) fn reordered(
        &mut self,
        flow: Flow,
        psn: u64,
        nak: At,
        findings: &mut Findings,
    ) -> bool {
        let mut lates = self.lates.iter_mut().rev();
        let covers = |late: &&mut Late| (late.psn..late.until).contains(&psn);
        let Some(late) = lates.find(covers) else { return false };
        if core::mem::replace(&mut late.told, true) {
            return true;
        }
        let late = *late;
        self.befell(Rule::Reordered, late.at);
        let delay = late.at.time.since(late.overtaken_by.time);
        let numbers = [Number::max("longest_delay_us", us(delay))];
        let frames = [late.at, late.overtaken_by, nak];
        let side = Side::Before(flow.source);
        Case::tell(findings, Rule::Reordered, flow, side, &frames, &numbers, || {
            let Late { psn, at, overtaken_by: by, .. } = late;
            format!("PSN {} in frame {at} comes {:.0} us after frame {by}", low(psn), us(delay))
        });
        true
    }

    fn lost_before(&mut self, case: &Case<'_>, hole: usize, idle: u64, findings: &mut Findings) {
        let found = &mut self.holes[hole];
        found.told = true;
        let found = *found;
        let lost = found.to - found.from - self.damaged_within(found.from, found.to, case.at);
        if lost == 0 {
            return;
        }
        self.befell(Rule::LostBefore, case.at);
        let at: &[At] = &[found.at, found.refused.unwrap_or(case.at), case.at];
        let numbers = [Number::sum("lost_packets", lost as f64)];
        let side = Side::Before(case.flow.source);
        Case::tell(findings, Rule::LostBefore, case.flow, side, at, &numbers, || {
            let how = match found.refused {
                Some(nak) => format!("the receiver asked for it in frame {nak}"),
                None => format!("sent after {} of silence", span(idle)),
            };
            format!(
                "PSN {} is missing before frame {}; {how}, sent again in frame {}",
                low(found.from),
                found.at,
                case.at
            )
        });
        if found.refused.is_none() {
            self.woken(case, idle, findings);
        }
    }

    /// Keeps the request that fills a hole, in its place.
    fn insert(&mut self, case: &Case<'_>, request: Request) {
        let (begun, bytes) = (case.at.time, u64::from(case.packet.payload_len));
        let span = self.span(case, request);
        let (back, targets) = (self.sent.len(), self.targets.len());
        self.remember(case, request, Standing { span, begun, bytes, sound: false });
        // `remember` puts it last; its place is by its PSN.
        if self.sent.len() > back
            && let Some(sent) = self.sent.pop_back()
        {
            let at = self.sent.partition_point(|other| other.psn < sent.psn);
            self.sent.insert(at, sent);
        }
        if self.targets.len() > targets
            && let Some(target) = self.targets.pop_back()
        {
            let at = self.targets.partition_point(|other| other.psn < target.psn);
            self.targets.insert(at, target);
        }
    }

    /// A request within the PSNs that a READ was guessed to take: they were not the READ's, but a
    /// gap.
    fn take_back_guess(&mut self, case: &Case<'_>, request: Request) {
        let psn = request.psn;
        let Some(read) = self.target(psn).filter(|read| read.guessed && read.psn < psn) else {
            return;
        };
        if request.kind == Kind::Read && is_part(case, read, psn) {
            return;
        }
        let (first, to) = (read.psn, read.end());
        (read.span, read.guessed) = (1, false);
        if let Some(at) = self.find(first) {
            self.sent[at].span = 1;
        }
        self.add_hole(Hole {
            from: first + 1,
            to,
            at: case.at,
            ident: 0,
            after_read: true,
            refused: None,
            told: true,
            skipped: 0,
        });
    }

    /// A request at a PSN that a READ took: the requester counts the READ's responses wrongly,
    /// unless it asks for the READ again.
    fn inside_read(&mut self, case: &Case<'_>, request: Request, findings: &mut Findings) -> bool {
        let next = self.next;
        let served = self.served.clone().filter(|served| served.covers(request.psn));
        let Some(read) = self.target(request.psn).cloned().or(served) else { return false };
        let part = request.kind == Kind::Read && is_part(case, &read, request.psn);
        if read.kind != Kind::Read || part || request.psn == read.psn || next != Some(read.end()) {
            return false;
        }
        let (span, asked, at, first) = (read.span, read.length, read.at, read.psn);
        if let Some(known) = self.target(request.psn) {
            known.span = (request.psn - first) as u32;
        }
        self.acked = self.acked.min(request.psn);
        self.served = None;
        let numbers = [Number::last("psns_needed", f64::from(span))];
        let side = Side::Requester(case.flow.source);
        let frames = [case.at, at];
        Case::tell(findings, Rule::PsnAfterRead, case.flow, side, &frames, &numbers, || {
            format!(
                "the READ of {asked} bytes in frame {at} takes {span} PSNs from {}, but the next \
                 request has PSN {}",
                low(first),
                low(request.psn)
            )
        });
        self.next = Some(request.psn);
        self.request_in_order(case, request, findings);
        true
    }

    /// The packets behind one that was sent again.
    fn goes_on(
        &mut self,
        case: &Case<'_>,
        request: Request,
        recovery: Recovery,
        findings: &mut Findings,
    ) {
        let psn = request.psn;
        let known = self.find(psn);
        let next = known.map_or(psn + 1, |at| self.sent[at].end());
        self.recovery = Some(Recovery { next, ..recovery });
        self.twin = None;
        let Some(sent) = known.map(|at| &mut self.sent[at]) else { return };
        sent.times = sent.times.saturating_add(1);
        let sent = *sent;
        self.differs(case, request, sent, findings);
        if psn <= recovery.lost {
            return;
        }
        let bytes = f64::from(case.packet.payload_len);
        let numbers = [Number::sum("wasted_packets", 1.0), Number::sum("wasted_bytes", bytes)];
        let side = Side::Requester(case.flow.source);
        Case::tell(findings, Rule::GoBackN, case.flow, side, &[case.at, sent.at], &numbers, || {
            format!("PSN {} was seen in frame {} already", low(psn), sent.at)
        });
    }

    /// The requester goes back to a PSN.
    fn goes_back(&mut self, case: &Case<'_>, request: Request, findings: &mut Findings) {
        let psn = request.psn;
        let idle = case.at.time.since(self.active);
        let until = self.next.unwrap_or(psn);
        let known = self.find(psn);
        let next = known.map_or(psn + 1, |at| self.sent[at].end());
        let mut recovery = Recovery { next, until, lost: psn };
        if let Some(sent) = known.map(|at| &mut self.sent[at]) {
            sent.times = sent.times.saturating_add(1);
            let sent = *sent;
            self.differs(case, request, sent, findings);
        }
        if let Some(rnr) = self.rnr.as_mut().filter(|rnr| rnr.psn == psn) {
            rnr.tried = true;
            let rnr = *rnr;
            recovery.lost = u64::MAX;
            self.rnr_waited(case, rnr.at, rnr.wait, findings);
        } else if let Some(nak) = self.nak.filter(|nak| nak.psn == psn) {
            self.nak = None;
            self.lost_behind(case, known.map(|at| self.sent[at]), Some(nak.at), idle, findings);
        } else if self.skipped(case, psn, findings)
            || self.read_again(case, request, idle, findings)
        {
            recovery.lost = u64::MAX;
        } else if psn < self.acked {
            self.answered_before(case, request, idle, findings);
        } else {
            self.lost_behind(case, known.map(|at| self.sent[at]), None, idle, findings);
            self.woken(case, idle, findings);
        }
        self.recovery = Some(recovery);
    }

    /// A loss behind the point of capture: the request was seen here, a NAK asks for it, and it is
    /// sent again. Without a NAK it may yet turn out to have arrived.
    fn lost_behind(
        &mut self,
        case: &Case<'_>,
        first: Option<Sent>,
        nak: Option<At>,
        idle: u64,
        findings: &mut Findings,
    ) {
        let Some(first) = first else { return };
        let Some(nak) = nak else {
            self.settle(case.flow, findings);
            // Within a shorter time the answer may only be late.
            self.silent = (idle >= TIMER).then_some(Silent {
                psn: first.psn,
                until: u64::MAX,
                first: first.at,
                again: case.at,
                idle,
                response: false,
            });
            return;
        };
        if self.reordered(case.flow, first.psn, nak, findings)
            || self.damaged_within(first.psn, first.end(), case.at) > 0
        {
            return;
        }
        self.befell(Rule::LostBehind, case.at);
        let side = Side::Behind(case.flow.destination);
        let frames = [first.at, nak, case.at];
        let numbers = [Number::sum("lost_packets", 1.0)];
        Case::tell(findings, Rule::LostBehind, case.flow, side, &frames, &numbers, || {
            let (psn, first, again) = (low(first.psn), first.at, case.at);
            format!(
                "PSN {psn} was seen in frame {first}; the receiver asked for it in frame {nak}, \
                 sent again in {again}"
            )
        });
    }

    /// A repetition that no answer asked for: the requester's timer ran out.
    pub(super) fn woken(&mut self, case: &Case<'_>, idle: u64, findings: &mut Findings) {
        self.in_vain(case, idle);
        self.twin = None;
        if idle < SHORTEST {
            return;
        }
        self.befell(Rule::Timeout, case.at);
        let numbers = [Number::max("longest_wait_us", us(idle)), Number::sum("idle_us", us(idle))];
        let side = Side::Requester(case.flow.source);
        Case::tell(findings, Rule::Timeout, case.flow, side, &[case.at], &numbers, || {
            format!("PSN {} again after {}", low(u64::from(case.psn())), span(idle))
        });
    }

    /// A repetition after which nothing came yet, however soon it was.
    pub(super) fn in_vain(&mut self, case: &Case<'_>, idle: u64) {
        /// A shorter silence is none: what is sent again may have been on its way. Nanoseconds.
        const SILENCE: u64 = 8_192;
        if idle >= SILENCE && op::unwrap_psn(case.psn(), self.acked) >= self.acked {
            self.fruitless = Some(Fruitless::and(self.fruitless, case.at, idle));
        }
    }

    fn rnr_waited(&mut self, case: &Case<'_>, nak: At, wait: u64, findings: &mut Findings) {
        let waited = case.at.time.since(nak.time);
        // A twentieth and 10 us are the capture's own.
        if waited.saturating_add(wait / 20 + 10_000) >= wait {
            self.rnr_kept += 1;
            return;
        }
        // The repetition may have been on its way, or the NAK have got lost behind the capture.
        let usual = self.done.iter().filter_map(|done| done.latency.as_ref());
        let Some(usual) = usual.map(|latency| latency.quantile(0.5)).max() else { return };
        if waited < usual.saturating_mul(2) {
            return;
        }
        self.rnr_early += 1;
        if self.rnr_early < 3 || self.rnr_early <= self.rnr_kept {
            return;
        }
        let numbers = [Number::last("asked_us", us(wait)), Number::min("waited_us", us(waited))];
        let side = Side::Requester(case.flow.source);
        Case::tell(findings, Rule::RnrIgnored, case.flow, side, &[case.at, nak], &numbers, || {
            format!(
                "sent again {:.0} us after an RNR NAK that asks for {:.0}",
                us(waited),
                us(wait)
            )
        });
    }

    /// The requester goes back, but to the packet behind the gap: what the receiver asks for is
    /// never sent.
    fn skipped(&mut self, case: &Case<'_>, psn: u64, findings: &mut Findings) -> bool {
        let Some(hole) = self.holes.iter_mut().find(|hole| hole.to == psn) else { return false };
        if hole.refused.is_none() {
            return false;
        }
        hole.skipped = hole.skipped.saturating_add(1);
        let hole = *hole;
        if hole.skipped < 3 && !(hole.after_read && hole.skipped == 2) {
            return true;
        }
        let rule = if hole.after_read { Rule::PsnAfterRead } else { Rule::PsnSkipped };
        let side = Side::Requester(case.flow.source);
        let numbers = [Number::last("skipped_psns", (hole.to - hole.from) as f64)];
        Case::tell(findings, rule, case.flow, side, &[hole.at, case.at], &numbers, || {
            format!(
                "the receiver asks for PSN {}, the requester goes on from {} again and again",
                low(hole.from),
                low(hole.to)
            )
        });
        true
    }

    /// A READ asked for again, whole or from the first missing response.
    fn read_again(
        &mut self,
        case: &Case<'_>,
        request: Request,
        idle: u64,
        findings: &mut Findings,
    ) -> bool {
        if request.kind != Kind::Read {
            return false;
        }
        let psn = request.psn;
        let Some(read) = self.target(psn).filter(|target| target.kind == Kind::Read) else {
            return false;
        };
        let seen = psn < read.next;
        let (first, end) = (read.at, read.end());
        let answered = read.next > read.psn;
        if !answered && !seen {
            // Nothing of it came: whether request or response was lost cannot be told.
            let sent = self.find(psn).map(|at| self.sent[at]);
            self.lost_behind(case, sent, None, idle, findings);
            self.woken(case, idle, findings);
            return true;
        }
        self.befell(Rule::ResponseLost, case.at);
        self.settle(case.flow, findings);
        if !seen {
            // It may yet come, and come again.
            let again = case.at;
            self.silent = Some(Silent { psn, until: end, first, again, idle, response: true });
        } else if idle < self.on_its_way() {
            self.came_late(case, psn, idle, findings);
        } else {
            self.response_lost((case.flow, true), psn, [case.at, first], idle, findings);
        }
        if idle >= TIMER {
            self.woken(case, idle, findings);
        }
        true
    }

    /// A repetition that is not what was sent first.
    fn differs(&self, case: &Case<'_>, request: Request, sent: Sent, findings: &mut Findings) {
        let same = sent.kind == request.kind
            && (sent.kind == Kind::Read || sent.payload == case.packet.payload_len)
            && (sent.place == request.place || sent.kind == Kind::Read);
        if !same && sent.psn == request.psn {
            case.blame_requester(findings, Rule::ChangedOnRetry, || {
                format!(
                    "PSN {} was {} {:?} of {} bytes in frame {}, is {} {:?} of {} now",
                    low(sent.psn),
                    sent.kind.name(),
                    sent.place,
                    sent.payload,
                    sent.at,
                    request.kind.name(),
                    request.place,
                    case.packet.payload_len
                )
            });
        }
    }

    /// Whether a packet that fills a hole was sent before those that overtook it: by the IP
    /// identification where the sender counts it, else by the time that passed.
    fn was_overtaken(&self, case: &Case<'_>, hole: Hole, idle: u64) -> bool {
        let ident = case.packet.path.ident;
        if !self.uncounted && ident != 0 && hole.ident != 0 && ident != hole.ident {
            return hole.ident.wrapping_sub(ident) < 0x8000;
        }
        hole.refused.is_none() && idle < TIMER
    }

    fn request_in_order(&mut self, case: &Case<'_>, request: Request, findings: &mut Findings) {
        self.message = Message::Unknown;
        self.in_order(case, request, findings);
    }
}

/// Whether a READ asks for a part of an earlier one, or for it all.
fn is_part(case: &Case<'_>, read: &Target, psn: u64) -> bool {
    case.packet.ext.reth.is_some_and(|reth| {
        let ahead = reth.va.wrapping_sub(read.va);
        let within = ahead.saturating_add(u64::from(reth.length)) <= u64::from(read.length);
        reth.rkey.get() == read.rkey
            && ahead <= u64::from(read.length)
            && within
            && (ahead > 0) == (psn > read.psn)
    })
}
