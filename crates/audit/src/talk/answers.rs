//! The responder as a witness sees it: acknowledgements, NAKs and responses against the requests
//! that were seen.

use wire::packet::{NakCode, Syndrome};

use super::case::{Case, low, us};
use super::cause::LONG;
use super::lane::{Ghost, Hole, Lane, Refusal, Sent, Target};
use super::op::{self, Kind, Op, Place};
use crate::finding::{Findings, Flow, Number, Side};
use crate::limits;
use crate::record::At;
use crate::rule::Rule;

/// An answer beyond what was asked may have overtaken its request on the way to the capture's
/// file by this much. Nanoseconds.
const CAPTURE_ORDER: u64 = 10_000_000;

/// A second answer comes within this time of the repetition, if there is one. Nanoseconds.
const SECOND_ANSWER: u64 = 50_000_000;

/// PSNs that one answer may pass over: an ACK for many requests, or answers that were missed.
const AHEAD: u64 = 1024;

impl Lane {
    /// An answer to these requests, `asked` being their half and `case` the other one's packet;
    /// tells its unwrapped PSN.
    pub(super) fn answer(
        &mut self,
        case: &Case<'_>,
        asked: Flow,
        what: Op,
        findings: &mut Findings,
    ) -> u64 {
        let Some(next) = self.next else { return op::first_psn(case.psn()) };
        let psn = op::unwrap_psn(case.psn(), next);
        if self.silent.is_some_and(|s| case.at.time.since(s.again.time) > SECOND_ANSWER) {
            self.settle(asked, findings);
        }
        match (what, case.packet.ext.aeth.map(|aeth| aeth.syndrome)) {
            (Op::Acknowledge, Some(Syndrome::Ack(_))) => self.ack(case, asked, psn, findings),
            (Op::Acknowledge, Some(Syndrome::RnrNak(code))) => {
                self.rnr_nak(case, asked, psn, code, findings);
            }
            (Op::Acknowledge, Some(Syndrome::Nak(NakCode::PsnSequenceError))) => {
                self.sequence_nak(case, asked, psn, findings);
            }
            (Op::Acknowledge, Some(syndrome)) => {
                self.fatal_nak(case, asked, psn, syndrome, findings);
            }
            (Op::ReadResponse(place), _) => self.response(case, asked, psn, place, findings),
            (Op::AtomicAcknowledge, _) => self.atomic(case, asked, psn, findings),
            _ => {}
        }
        self.twin_answered(asked, findings);
        self.active = case.at.time;
        psn
    }

    fn ack(&mut self, case: &Case<'_>, asked: Flow, psn: u64, findings: &mut Findings) {
        self.counts.acks += 1;
        if self.is_ghost(case, asked, psn, findings) {
            return;
        }
        if psn < self.acked {
            self.answered_twice(asked, psn, case.at, findings);
            return;
        }
        self.acknowledge(psn + 1, case.at);
        let Some(aeth) = case.packet.ext.aeth else { return };
        self.count_msn(case, asked, psn, aeth.msn.get(), findings);
    }

    /// The MSN of an ACK, less the messages that its PSN completes, is the same for all, but that
    /// messages behind that PSN may have been counted already.
    fn count_msn(
        &mut self,
        case: &Case<'_>,
        asked: Flow,
        psn: u64,
        msn: u32,
        findings: &mut Findings,
    ) {
        if self.blocked.is_some() || !self.holes.is_empty() {
            return;
        }
        let pending = self.counts.messages.saturating_sub(self.ended) as u32;
        let base = msn.wrapping_sub(self.completed as u32) & 0xFF_FFFF;
        let Some((known, slack)) = self.msn_base else {
            self.msn_base = Some((base, pending));
            return;
        };
        // Both are the highest of a range that goes down: `known - slack ..= known`.
        let above = (base.wrapping_sub(known) << 8) as i32 >> 8;
        let high = if above < 0 { base } else { known };
        let room = i64::from(slack.saturating_add_signed(above.min(0)));
        let room = room.min(i64::from(pending) - i64::from(above.max(0)));
        if room >= 0 && above >= -(slack as i32) {
            self.msn_base = Some((high, room as u32));
            return;
        }
        self.msn_base = Some((base, pending));
        self.msn_wrong += 1;
        if self.msn_wrong < 4 {
            return;
        }
        let expected = (u64::from(known) + self.completed) & 0xFF_FFFF;
        let side = Side::Responder(case.flow.source);
        let numbers = [Number::last("expected_msn", expected as f64)];
        Case::tell(findings, Rule::BadMsn, asked, side, &[case.at], &numbers, || {
            format!("MSN {msn} for PSN {}, expected {expected}", low(psn))
        });
    }

    /// An answer to a PSN that was never sent, as far as was seen.
    fn is_ghost(
        &mut self,
        case: &Case<'_>,
        asked: Flow,
        psn: u64,
        findings: &mut Findings,
    ) -> bool {
        if self.next.is_some_and(|next| psn < next) {
            return false;
        }
        // Answers that go on where the requests end, or where the answers before did: the capture
        // has missed the requests.
        let next = self.next.unwrap_or(psn);
        let old = self.ghost.filter(|old| old.goes_on);
        let goes_on = psn < old.map_or(next, |old| old.psn + 1) + AHEAD;
        let kept = old.filter(|_| goes_on).map_or(psn, |old| old.psn.max(psn));
        let new = Ghost { psn: kept, at: case.at, goes_on };
        if let Some(old) = self.ghost.replace(new).filter(|old| !(old.goes_on && goes_on)) {
            Self::tell_ghost(asked, old, findings);
        }
        if goes_on {
            self.acknowledge(next, case.at);
        }
        true
    }

    pub(super) fn tell_ghost(asked: Flow, ghost: Ghost, findings: &mut Findings) {
        let side = Side::Responder(asked.destination);
        Case::tell(findings, Rule::GhostAck, asked, side, &[ghost.at], &[], || {
            format!("an answer to PSN {}, which was not sent", low(ghost.psn))
        });
    }

    /// A request came for which an answer was seen before: the capture's order, unless it is late.
    pub(super) fn ghost_explained(&mut self, case: &Case<'_>, psn: u64, findings: &mut Findings) {
        let Some(ghost) = self.ghost.filter(|ghost| ghost.psn <= psn) else { return };
        self.ghost = None;
        let late = case.at.time.since(ghost.at.time) > CAPTURE_ORDER;
        if late && ghost.psn == psn {
            Self::tell_ghost(case.flow, ghost, findings);
        }
    }

    /// All requests before `until` are answered, but for READs and atomics whose responses are
    /// missing.
    pub(super) fn acknowledge(&mut self, until: u64, at: At) {
        if until <= self.acked {
            return;
        }
        (self.acked, self.acked_at) = (until, at.time);
        self.blocked = None;
        while let Some(&sent) = self.sent.front().filter(|sent| sent.end() <= until) {
            if sent.kind.has_response() && !self.is_served(sent.psn, until) {
                self.blocked = Some(sent.psn);
                break;
            }
            self.sent.pop_front();
            if sent.kind == Kind::Send {
                self.longest_send = self.longest_send.max(Some(sent.bytes));
            }
            if sent.place.ends() {
                self.completed += 1;
                self.ended += 1;
                self.completed_after(sent, at);
            }
        }
        let keep = self.blocked.unwrap_or(until);
        while self.targets.front().is_some_and(|target| target.end() <= keep) {
            self.served = self.targets.pop_front().filter(|target| target.span > 1);
        }
        self.holes.retain(|hole| hole.from >= until || hole.to > until);
        if self.sent.is_empty() && self.sent.capacity() > 1024 {
            self.sent.shrink_to(64);
        }
        self.nak = self.nak.filter(|nak| nak.psn >= until);
        self.rnr = self.rnr.filter(|rnr| rnr.psn >= until);
        self.fruitless = None;
    }

    /// A message is complete: its time from the first packet to the answer.
    fn completed_after(&mut self, sent: Sent, at: At) {
        /// A time in which a queue pair stands still, and by how much it must exceed the usual one.
        const STILL: u64 = 200_000_000;
        const TIMES: u64 = 1000;
        let ns = at.time.since(sent.begun);
        let latency = self.done[sent.kind as usize].latency.get_or_insert_default();
        latency.add(ns);
        if ns >= LONG {
            let usual = || latency.quantile(0.5);
            let stall = ns >= STILL && latency.count() >= 100 && ns / TIMES >= usual();
            self.was_slow(sent, ns, stall);
        }
    }

    /// Whether a READ or atomic has all its responses; one that is far behind what is acknowledged
    /// was served without the capture seeing it.
    fn is_served(&mut self, psn: u64, until: u64) -> bool {
        const FAR: u64 = 256;
        let Some(target) = self.target(psn) else { return true };
        if target.next >= target.end() {
            return true;
        }
        let far = target.end() + FAR < until;
        if far {
            self.counts.missed += 1;
            self.msn_base = None;
        }
        far
    }

    fn rnr_nak(
        &mut self,
        case: &Case<'_>,
        asked: Flow,
        psn: u64,
        code: u8,
        findings: &mut Findings,
    ) {
        self.counts.rnr_naks += 1;
        if self.is_ghost(case, asked, psn, findings) {
            return;
        }
        self.acknowledge(psn, case.at);
        let times = self.rnr.filter(|rnr| rnr.psn == psn).map_or(0, |rnr| rnr.times) + 1;
        let wait = wire::aeth::rnr_timer(code).as_ps() / 1000;
        self.befell(Rule::RnrStorm, case.at);
        self.rnr = Some(Refusal { psn, at: case.at, wait, times, tried: false });
        self.rnr_told(case, asked, findings);
    }

    /// RNR NAKs are worth a word once they are more than an accident.
    fn rnr_told(&mut self, case: &Case<'_>, asked: Flow, findings: &mut Findings) {
        const ACCIDENTS: u64 = 2;
        let rnr_naks = self.counts.rnr_naks;
        if rnr_naks <= ACCIDENTS || rnr_naks * 1000 < self.counts.messages {
            return;
        }
        let wait = self.rnr.map_or(0, |rnr| rnr.wait);
        let numbers = [
            Number::last("rnr_naks", rnr_naks as f64),
            Number::sum("waited_at_least_us", us(wait)),
            Number::max("longest_timer_us", us(wait)),
        ];
        let side = Side::Responder(case.flow.source);
        Case::tell(findings, Rule::RnrStorm, asked, side, &[case.at], &numbers, || {
            format!("each makes the sender wait {:.0} us at least", us(wait))
        });
    }

    fn sequence_nak(&mut self, case: &Case<'_>, asked: Flow, psn: u64, findings: &mut Findings) {
        self.counts.sequence_naks += 1;
        if self.is_ghost(case, asked, psn, findings) {
            return;
        }
        if psn < self.first {
            self.lost_early(case, asked, psn, findings);
        }
        if psn < self.acked {
            return;
        }
        self.acknowledge(psn, case.at);
        let after_rnr = self.rnr.is_some_and(|rnr| rnr.psn == psn);
        let beyond = self.next.is_some_and(|next| next > psn + 1) && self.sent_beyond(psn);
        let repeated = self.nak.is_some_and(|nak| nak.psn == psn);
        if let Some(hole) = self.hole(psn) {
            self.holes[hole].refused.get_or_insert(case.at);
        } else if !self.reordered(asked, psn, case.at, findings)
            && !after_rnr
            && (repeated || !beyond)
            && self.is_habit()
        {
            let side = Side::Responder(case.flow.source);
            Case::tell(findings, Rule::SpuriousNak, asked, side, &[case.at], &[], || {
                let why = if repeated { "asked for before" } else { "nothing was sent behind it" };
                format!("sequence NAK for PSN {}: {why}", low(psn))
            });
        }
        self.nak = Some(Refusal { psn, at: case.at, wait: 0, times: 1, tried: false });
    }

    /// The network may copy a NAK, or change the order of two packets behind the capture: a NAK
    /// without reason counts once there are more.
    fn is_habit(&mut self) -> bool {
        const ACCIDENTS: u32 = 2;
        self.spurious += 1;
        self.spurious > ACCIDENTS
    }

    /// A NAK for what was sent, or lost, before the first request that was seen.
    fn lost_early(&self, case: &Case<'_>, asked: Flow, psn: u64, findings: &mut Findings) {
        let numbers = [Number::sum("lost_packets", 1.0)];
        Case::tell(findings, Rule::LostBefore, asked, Side::Unknown, &[case.at], &numbers, || {
            format!(
                "the receiver asks for PSN {}, which comes before the first that was seen, {}",
                low(psn),
                low(self.first)
            )
        });
    }

    fn sent_beyond(&self, psn: u64) -> bool {
        self.sent.back().is_some_and(|sent| sent.psn > psn)
    }

    fn fatal_nak(
        &mut self,
        case: &Case<'_>,
        asked: Flow,
        psn: u64,
        syndrome: Syndrome,
        findings: &mut Findings,
    ) {
        self.counts.other_naks += 1;
        if self.is_ghost(case, asked, psn, findings) {
            return;
        }
        let request = self.find(psn).map(|at| self.sent[at]);
        let sends = request.filter(|sent| sent.kind == Kind::Send && sent.sound);
        let too_long = sends.is_some_and(|s| self.longest_send.is_some_and(|most| s.bytes > most));
        let requester = Side::Requester(asked.source);
        let (rule, side) = match syndrome {
            Syndrome::Nak(NakCode::RemoteAccessError) => (Rule::RemoteAccess, requester),
            Syndrome::Nak(NakCode::InvalidRequest | NakCode::RemoteOperationalError)
                if too_long =>
            {
                (Rule::TooLongForBuffer, Side::Unknown)
            }
            Syndrome::Nak(NakCode::InvalidRequest) => (Rule::InvalidRequest, requester),
            Syndrome::Nak(NakCode::RemoteOperationalError) => {
                (Rule::RemoteOperation, Side::Responder(asked.destination))
            }
            _ => (Rule::ReservedNak, Side::Responder(asked.destination)),
        };
        let frames = [case.at, request.map_or(case.at, |sent| sent.at)];
        let target = self.target(psn).cloned();
        Case::tell(findings, rule, asked, side, &frames, &[], || {
            let text = describe(psn, request.map(|s| (s.kind, s.place, s.payload)), target);
            match sends {
                Some(_) if !too_long => text + "; it may be longer than the path MTU or its buffer",
                _ => text,
            }
        });
        if rule != Rule::ReservedNak {
            self.acknowledge(psn, case.at);
            self.fatal = Some(case.at);
        }
    }

    fn response(
        &mut self,
        case: &Case<'_>,
        asked: Flow,
        psn: u64,
        place: Place,
        findings: &mut Findings,
    ) {
        let payload = case.packet.payload_len;
        if self.response_mtu.is_none() && matches!(place, Place::First | Place::Middle) {
            self.learn_span(payload);
        }
        if self.is_of_newest(psn) || self.is_ghost(case, asked, psn, findings) {
            return;
        }
        let mtu = self.span_mtu();
        let served = self.acked;
        let Some(read) = self.target(psn).filter(|target| target.kind != Kind::Write) else {
            if psn < served {
                self.answered_twice(asked, psn, case.at, findings);
            } else if self.hole(psn).is_none() {
                self.bad_response(case, asked, findings, || {
                    format!("a READ response at PSN {}, where no READ is", low(psn))
                });
            }
            return;
        };
        let fits = response_fits(read, psn, place, payload, mtu);
        let unasked = read.answers_anew(psn, place);
        let replayed = read.restarted.take() == Some(psn);
        read.restarted = unasked.then_some(psn + 1);
        let (first, length) = (read.at, read.length);
        if psn == read.next {
            read.next += 1;
        }
        let (start, done) = (read.psn, read.next >= read.end());
        self.replayed += u32::from(replayed);
        // Once, the network may have copied the READ behind the capture.
        if replayed && self.replayed > 1 && self.replayed * 2 >= self.parts {
            let side = Side::Responder(case.flow.source);
            Case::tell(findings, Rule::WrongReplay, asked, side, &[case.at, first], &[], || {
                format!("answered from PSN {} on, where nobody asked again", low(psn - 1))
            });
        } else if !fits && !replayed {
            self.bad_response(case, asked, findings, || {
                let psn = low(psn);
                format!("{place:?} of {payload} bytes at PSN {psn} of a READ of {length} ({first})")
            });
        }
        self.counts.acks += u64::from(done);
        self.acknowledge(if done { psn + 1 } else { start }, case.at);
    }

    /// A response beyond what was asked, while it is unknown how many the newest READ has.
    fn is_of_newest(&self, psn: u64) -> bool {
        let Some(read) = self.targets.back().filter(|read| read.kind == Kind::Read) else {
            return false;
        };
        let most = read.psn + u64::from(read.length.div_ceil(256));
        self.span_mtu().is_none()
            && self.next == Some(read.end())
            && (read.end()..most).contains(&psn)
    }

    fn bad_response(
        &self,
        case: &Case<'_>,
        asked: Flow,
        findings: &mut Findings,
        detail: impl FnOnce() -> String,
    ) {
        let side = Side::Responder(case.flow.source);
        Case::tell(findings, Rule::BadReadResponse, asked, side, &[case.at], &[], detail);
    }

    /// The first response of several shows the path MTU, and with it the PSNs of all READs.
    fn learn_span(&mut self, payload: u32) {
        if !payload.is_power_of_two() || !(256..=4096).contains(&payload) {
            return;
        }
        self.response_mtu = Some(payload);
        let mut next = self.next.unwrap_or_default();
        let mut freed = None;
        for read in self.targets.iter_mut().filter(|read| read.kind == Kind::Read) {
            let newest = read.end() == next;
            let span = read.length.div_ceil(payload).max(1);
            let (old, end) = (read.end(), read.psn + u64::from(span));
            if span == read.span || (end > next && !newest) || (end < old && !read.guessed) {
                continue;
            }
            (read.span, read.guessed) = (span, false);
            next = next.max(end);
            freed = (end < old).then_some((end, old)).or(freed);
            let at = self.sent.partition_point(|sent| sent.psn < read.psn);
            if let Some(sent) = self.sent.get_mut(at).filter(|sent| sent.psn == read.psn) {
                sent.span = span;
            }
            for hole in self.holes.iter_mut().filter(|hole| hole.from > read.psn) {
                hole.from = hole.from.max(end);
            }
        }
        if let Some((from, to)) = freed {
            let (at, told) = (At::default(), true);
            let (after_read, refused, skipped, ident) = (true, None, 0, 0);
            self.add_hole(Hole { from, to, at, ident, after_read, refused, told, skipped });
        }
        self.holes.retain(|hole| hole.from < hole.to);
        self.next = Some(next);
    }

    fn atomic(&mut self, case: &Case<'_>, asked: Flow, psn: u64, findings: &mut Findings) {
        if self.is_ghost(case, asked, psn, findings) {
            return;
        }
        let value = case.packet.ext.atomic_ack.unwrap_or_default();
        match self.atomics.iter().find(|(of, _)| *of == psn) {
            Some(&(_, first)) if first != value => {
                let side = Side::Responder(case.flow.source);
                Case::tell(findings, Rule::AtomicTwice, asked, side, &[case.at], &[], || {
                    format!("PSN {}: {first:#x} at first, then {value:#x}", low(psn))
                });
            }
            Some(_) => self.answered_twice(asked, psn, case.at, findings),
            None => {
                if self.atomics.len() == limits::ATOMICS {
                    self.atomics.pop_front();
                }
                self.atomics.push_back((psn, value));
            }
        }
        if let Some(atomic) = self.target(psn) {
            atomic.next = atomic.end();
        }
        self.counts.acks += 1;
        self.acknowledge(psn + 1, case.at);
    }
}

/// Whether a READ response has the place and length that its PSN asks for. After the READ was asked
/// for again from the middle, a responder may begin anew there, or go on with its first numbering.
fn response_fits(read: &Target, psn: u64, place: Place, payload: u32, mtu: Option<u32>) -> bool {
    if read.kind != Kind::Read {
        return place == Place::Only && payload == 0;
    }
    let Some(mtu) = mtu else {
        // Whatever the path MTU is, this READ has one response.
        let fits = place == Place::Only && payload == read.length;
        return read.length > 256 || fits;
    };
    let asks = || read.asks.iter();
    let may_begin = asks().any(|ask| ask.from == psn) && psn != read.psn;
    let may_end = asks().any(|ask| ask.end(mtu) == psn + 1) && psn + 1 != read.end();
    let before = (psn - read.psn) * u64::from(mtu);
    let due = u64::from(read.length).saturating_sub(before).min(u64::from(mtu));
    (may_begin || place.begins() == (psn == read.psn))
        && (may_end || place.ends() == (psn + 1 == read.end()))
        && u64::from(payload) == due
}

fn describe(psn: u64, request: Option<(Kind, Place, u32)>, target: Option<Target>) -> String {
    let psn = low(psn);
    match (request, target) {
        (Some((kind, ..)), Some(t)) => format!(
            "{} at PSN {psn}: va {:#x}, rkey {:#010x}, {} bytes",
            kind.name(),
            t.va,
            t.rkey,
            t.length
        ),
        (Some((kind, place, payload)), None) => {
            format!("{} {place:?} of {payload} bytes at PSN {psn}", kind.name())
        }
        _ => format!("the request at PSN {psn}, which was not seen"),
    }
}
