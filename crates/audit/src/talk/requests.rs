//! The requester as a witness sees it: PSNs in order, opcodes in order, lengths that fit.

use super::case::{Case, Request, low};
use super::lane::{Hole, Lane, Message, Sent, Target};
use super::op::{self, Kind, Place};
use crate::finding::{Findings, Number, Side};
use crate::limits;
use crate::record::Time;
use crate::rule::Rule;

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub psn: u64,
    pub again: bool,
}

/// Where a request stands in its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// PSNs that it takes.
    pub span: u32,
    /// When its message began.
    pub begun: Time,
    /// Bytes of the message as far as this packet.
    pub bytes: u64,
    /// Whether nothing was wrong with it, as far as can be told.
    pub sound: bool,
}

/// Path MTUs that there are.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

impl Lane {
    /// A request packet of a connected service.
    pub(super) fn request(
        &mut self,
        case: &Case<'_>,
        kind: Kind,
        place: Place,
        findings: &mut Findings,
    ) -> Outcome {
        let next = self.next.unwrap_or_else(|| self.begin(case, place));
        let psn = op::unwrap_psn(case.psn(), next);
        if psn.abs_diff(next) > limits::NEW_EPOCH {
            self.finish(case.flow, case.at, findings);
            self.restart();
            self.begin(case, place);
            return self.request(case, kind, place, findings);
        }
        let request = Request { psn, kind, place };
        self.counts.packets += 1;
        self.after_fatal(case, findings);
        let again = if psn >= self.measured_next(psn, place) {
            self.in_order(case, request, findings);
            false
        } else if !case.reliable {
            self.overtaken_datagram(case, request, findings)
        } else {
            self.repeated(case, request, findings)
        };
        self.active = case.at.time;
        self.is_newest(case, request);
        Outcome { psn, again }
    }

    fn begin(&mut self, case: &Case<'_>, place: Place) -> u64 {
        let psn = op::first_psn(case.psn());
        (self.next, self.acked, self.first) = (Some(psn), psn, psn);
        self.message = if place.begins() { Message::Between } else { Message::Unknown };
        self.midstream |= !place.begins();
        self.ghost = None;
        self.active = case.at.time;
        psn
    }

    /// The PSN that comes next. The span of a READ whose MTU nobody has shown yet is learned from
    /// the request behind it.
    fn measured_next(&mut self, psn: u64, place: Place) -> u64 {
        let next = self.next.unwrap_or(psn);
        if self.span_mtu().is_some() || psn <= next || !place.begins() {
            return next;
        }
        let Some(read) = self.targets.back_mut().filter(|target| target.kind == Kind::Read) else {
            return next;
        };
        let span = psn - read.psn;
        let fits = |mtu: &u32| u64::from(read.length.div_ceil(*mtu).max(1)) == span;
        if read.end() != next || !MTUS.iter().any(fits) {
            return next;
        }
        (read.span, read.guessed) = (span as u32, true);
        let end = read.end();
        if let Some(sent) = self.sent.back_mut().filter(|sent| sent.kind == Kind::Read) {
            sent.span = span as u32;
        }
        self.next = Some(end);
        end
    }

    fn after_fatal(&mut self, case: &Case<'_>, findings: &mut Findings) {
        /// What was on its way when the NAK came may still be seen.
        const IN_FLIGHT: u64 = 50_000_000;
        let Some(fatal) = self.fatal else { return };
        if case.at.time.since(fatal.time) > IN_FLIGHT {
            case.blame_requester(findings, Rule::AfterFatal, || {
                format!("sent {:.1} ms after the NAK in frame {fatal}", {
                    case.at.time.since(fatal.time) as f64 / 1e6
                })
            });
        }
    }

    /// A request at or beyond the expected PSN.
    pub(super) fn in_order(&mut self, case: &Case<'_>, request: Request, findings: &mut Findings) {
        let next = self.next.unwrap_or(request.psn);
        if request.psn > next {
            self.gap(case, next, request.psn, findings);
        }
        self.ghost_explained(case, request.psn, findings);
        let before = findings.told();
        let unknown = self.message == Message::Unknown && !request.place.begins();
        let (begun, bytes) = self.order(case, request, findings);
        self.lengths(case, request, findings);
        let sound = findings.told() == before && !unknown;
        let span = self.span(case, request);
        self.remember(case, request, Standing { span, begun, bytes, sound });
        self.resources(case, request, findings);
        self.next = Some(request.psn + u64::from(span));
        self.recovery = self.recovery.filter(|recovery| recovery.next < recovery.until);
    }

    /// PSNs between `from` and `to` were not seen.
    fn gap(&mut self, case: &Case<'_>, from: u64, to: u64, findings: &mut Findings) {
        let after_read =
            self.targets.back().is_some_and(|t| t.kind == Kind::Read && t.end() == from);
        self.message = Message::Unknown;
        self.msn_base = None;
        self.add_hole(Hole {
            from,
            to,
            at: case.at,
            ident: case.packet.path.ident,
            after_read,
            refused: None,
            told: !case.reliable,
            skipped: 0,
        });
        if case.reliable {
            return;
        }
        let side = Side::Before(case.flow.source);
        let numbers = [Number::sum("lost_packets", (to - from) as f64)];
        Case::tell(findings, Rule::LostBefore, case.flow, side, &[case.at], &numbers, || {
            match to - from {
                1 => format!("PSN {} was not seen and is never sent again", low(from)),
                n => format!("{n} PSNs from {} were not seen and are never sent again", low(from)),
            }
        });
    }

    /// FIRST, MIDDLE, LAST and ONLY in their order; when the message began and its bytes so far.
    fn order(&mut self, case: &Case<'_>, request: Request, findings: &mut Findings) -> (Time, u64) {
        let Request { kind, place, psn } = request;
        let fits = match self.message {
            Message::Unknown => true,
            Message::Between => place.begins(),
            Message::Inside { kind: inside, .. } => !place.begins() && inside == kind,
        };
        if !fits {
            let before = self.message;
            case.blame_requester(findings, Rule::OpcodeOrder, || {
                let expected = match before {
                    Message::Inside { kind, .. } => format!("MIDDLE or LAST of a {}", kind.name()),
                    _ => "FIRST or ONLY".to_owned(),
                };
                format!("{} {place:?} at PSN {}, expected {expected}", kind.name(), low(psn))
            });
        }
        let payload = u64::from(case.packet.payload_len);
        let (begun, bytes, total) = match self.message {
            Message::Inside { begun, bytes, total, .. } if fits => (begun, bytes + payload, total),
            _ => {
                let total = case.packet.ext.reth.map(|reth| reth.length);
                (case.at.time, payload, total.filter(|_| place.begins()))
            }
        };
        let unknown = self.message == Message::Unknown && !place.begins();
        self.reth(case, request, bytes, total.filter(|_| fits && !unknown), findings);
        self.message = match place.ends() {
            true => Message::Between,
            false if unknown => Message::Unknown,
            false => Message::Inside { kind, bytes, total, begun },
        };
        (begun, bytes)
    }

    /// The bytes of a WRITE against the length in its RETH.
    fn reth(
        &self,
        case: &Case<'_>,
        request: Request,
        bytes: u64,
        total: Option<u32>,
        findings: &mut Findings,
    ) {
        let Some(total) = total.filter(|_| request.kind == Kind::Write) else { return };
        let total = u64::from(total);
        if bytes > total || (request.place.ends() && bytes != total) {
            case.blame_requester(findings, Rule::BadLength, || {
                format!("WRITE of {total} bytes by its RETH, {bytes} carried at {}", case.at)
            });
        }
    }

    /// A packet's payload against its place.
    fn lengths(&mut self, case: &Case<'_>, request: Request, findings: &mut Findings) {
        let payload = case.packet.payload_len;
        let Request { kind, place, .. } = request;
        if !matches!(kind, Kind::Send | Kind::Write) {
            return;
        }
        let fits = match (place, self.mtu) {
            (Place::First | Place::Middle, Some(mtu)) => payload == mtu,
            (Place::First | Place::Middle, None) => {
                let is_mtu = MTUS.contains(&payload);
                self.mtu = is_mtu.then_some(payload);
                is_mtu
            }
            (Place::Last, mtu) => payload > 0 && payload <= mtu.unwrap_or(4096),
            (Place::Only, mtu) => payload <= mtu.unwrap_or(4096),
        };
        if !fits {
            let mtu = self.mtu;
            case.blame_requester(findings, Rule::BadLength, || {
                let mtu = mtu.map_or("unknown".to_owned(), |mtu| mtu.to_string());
                format!("{} {place:?} carries {payload} bytes, path MTU {mtu}", kind.name())
            });
        }
    }

    /// READs and atomics that wait for their answers against what the responder offered.
    fn resources(&self, case: &Case<'_>, request: Request, findings: &mut Findings) {
        let Some(offered) = self.resources.filter(|_| request.kind.has_response()) else { return };
        // A later answer says that the capture missed the responses of those before.
        let answered = self.targets.partition_point(|target| target.end() <= self.acked);
        let waits = |target: &&Target| target.kind.has_response() && target.next < target.end();
        let waiting = self.targets.range(answered..).filter(waits).count();
        if waiting <= usize::from(offered) || !self.holes.is_empty() {
            return;
        }
        let numbers = [
            Number::last("offered", f64::from(offered)),
            Number::max("outstanding", waiting as f64),
        ];
        let side = Side::Requester(case.flow.source);
        Case::tell(findings, Rule::TooManyReads, case.flow, side, &[case.at], &numbers, || {
            format!("{waiting} READs and atomics wait for answers, the responder offered {offered}")
        });
    }

    /// PSNs that a request takes.
    pub(super) fn span(&self, case: &Case<'_>, request: Request) -> u32 {
        match (request.kind, case.packet.ext.reth, self.span_mtu()) {
            (Kind::Read, Some(reth), Some(mtu)) => reth.length.div_ceil(mtu).max(1),
            _ => 1,
        }
    }

    /// Keeps a request until it is acknowledged.
    pub(super) fn remember(&mut self, case: &Case<'_>, request: Request, standing: Standing) {
        let Standing { span, begun, bytes, sound } = standing;
        let Request { psn, kind, place } = request;
        let done = &mut self.done[kind as usize];
        let payload = case.packet.payload_len;
        if place.begins() {
            done.begun += 1;
        }
        let reth = case.packet.ext.reth;
        let asked = reth.filter(|_| kind == Kind::Read).map_or(payload, |reth| reth.length);
        done.bytes += u64::from(asked);
        self.counts.goodput += u64::from(payload);
        self.counts.messages += u64::from(place.ends());
        if !case.reliable {
            return;
        }
        let target = match (reth, case.packet.ext.atomic) {
            (Some(reth), _) => Some((reth.va, reth.rkey, reth.length)),
            (None, Some(atomic)) => Some((atomic.va, atomic.rkey, 8)),
            _ => None,
        };
        if let Some((va, rkey, length)) = target {
            if self.targets.len() == limits::TARGETS {
                self.targets.pop_front();
            }
            self.targets.push_back(Target {
                psn,
                span,
                kind,
                va,
                rkey: rkey.get(),
                length,
                at: case.at,
                next: psn,
                asks: Vec::new(),
                begun: false,
                guessed: false,
                restarted: None,
            });
        }
        if self.sent.len() == limits::OUTSTANDING {
            let old = self.sent.pop_front();
            self.ended += u64::from(old.is_some_and(|sent| sent.place.ends()));
        }
        self.sent.push_back(Sent {
            psn,
            span,
            at: case.at,
            begun,
            payload,
            kind,
            place,
            asks: case.packet.bth.ack_request,
            sound,
            bytes,
            times: 1,
        });
    }
}
