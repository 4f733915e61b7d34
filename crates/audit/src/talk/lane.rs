//! What is known of the requests of one direction: those sent and not answered, gaps in their
//! PSNs, refusals, and how a loss is being mended.

use std::collections::VecDeque;

use super::cause::{Slow, Troubles};
use super::histogram::Histogram;
use super::op::{self, Kind, Op, Place};
use crate::finding::Cause;
use crate::limits;
use crate::record::{At, Time};

/// A request packet that was seen and not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Its PSN, unwrapped.
    pub psn: u64,
    /// PSNs that it takes: 1, or one for each packet of a READ's response.
    pub span: u32,
    /// When it was seen first.
    pub at: At,
    /// When the first packet of its message was.
    pub begun: Time,
    /// Payload of its message as far as this packet, as far as was seen.
    pub bytes: u64,
    /// Payload of the packet.
    pub payload: u32,
    pub kind: Kind,
    pub place: Place,
    /// Whether it asks for an acknowledgement.
    pub asks: bool,
    /// Whether opcode order and lengths were right.
    pub sound: bool,
    /// Times it was seen.
    pub times: u8,
}

impl Sent {
    /// The PSN behind it.
    pub(super) fn end(&self) -> u64 {
        self.psn + u64::from(self.span)
    }
}

/// What a WRITE, READ or atomic is about.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub psn: u64,
    pub span: u32,
    pub kind: Kind,
    pub va: u64,
    pub rkey: u32,
    pub length: u32,
    /// When it was seen first.
    pub at: At,
    /// The PSN of the response that comes next.
    pub next: u64,
    /// Requests for a part of its responses, the newest last.
    pub asks: Vec<Ask>,
    /// Whether its span is a guess by the request behind it, before the path MTU was known.
    pub guessed: bool,
    /// Whether the first request's answer began.
    pub begun: bool,
    /// The PSN behind a response from which a responder began though nobody asked there.
    pub restarted: Option<u64>,
}

/// A request for a READ's responses, or for a part of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ask {
    /// PSN of its first response.
    pub from: u64,
    /// Bytes that it asks for.
    pub length: u32,
    /// Whether its answer began.
    pub begun: bool,
}

impl Ask {
    /// The PSN behind its responses.
    pub(super) fn end(&self, mtu: u32) -> u64 {
        self.from + u64::from(self.length.div_ceil(mtu).max(1))
    }
}

impl Target {
    /// The PSN behind its responses.
    pub(super) fn end(&self) -> u64 {
        self.psn + u64::from(self.span)
    }

    /// A request for responses, besides those that there are.
    pub(super) fn ask(&mut self, from: u64, length: u32) {
        if self.asks.len() == limits::ASKS {
            self.asks.remove(0);
        }
        self.asks.push(Ask { from, length, begun: false });
    }

    /// Whether a response begins where only the first request for it did, while a later one that
    /// asks for the rest waits for its answer.
    pub(super) fn answers_anew(&mut self, psn: u64, place: Place) -> bool {
        if !place.begins() {
            return false;
        }
        let mut waiting = false;
        let mut asked = false;
        for ask in &mut self.asks {
            waiting |= ask.from > psn && !ask.begun;
            ask.begun |= ask.from == psn;
            asked |= ask.from == psn;
        }
        let first = core::mem::replace(&mut self.begun, true);
        first && waiting && !asked && psn == self.psn && psn < self.next
    }

    pub(super) fn covers(&self, psn: u64) -> bool {
        (self.psn..self.end()).contains(&psn)
    }
}

/// PSNs that were passed over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub from: u64,
    /// Behind the last of them.
    pub to: u64,
    /// The packet that showed it.
    pub at: At,
    /// IP identification of that packet.
    pub ident: u16,
    /// The packet before was a READ, so that the gap may be a wrong count of its responses.
    pub after_read: bool,
    /// Whether the responder asked for it.
    pub refused: Option<At>,
    /// Whether it has been told as a loss.
    pub told: bool,
    /// Times that the requester went back for it and did not send it.
    pub skipped: u8,
}

/// A NAK, or what else stands in the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub psn: u64,
    pub at: At,
    /// Of an RNR NAK: the time to wait, nanoseconds.
    pub wait: u64,
    /// How often it came without an attempt in between.
    pub times: u32,
    /// Of an RNR NAK: whether the requester has sent it again since.
    pub tried: bool,
}

/// Where a message stands between its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Message {
    /// Packets were missed: anything may follow.
    #[default]
    Unknown,
    /// A message ended.
    Between,
    /// In the middle of one.
    Inside {
        kind: Kind,
        /// Payload so far.
        bytes: u64,
        /// RETH length of a WRITE whose first packet was seen.
        total: Option<u32>,
        begun: Time,
    },
}

/// Packets being sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// The PSN that comes next if it goes on.
    pub next: u64,
    /// What had been sent when it began: behind it all is new.
    pub until: u64,
    /// The packet that was lost.
    pub lost: u64,
}

/// Repetitions by timeout since the last progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fruitless {
    pub times: u32,
    /// The first and the last of them.
    pub from: At,
    pub last: At,
    /// The longest silence before one of them, nanoseconds.
    pub longest: u64,
}

impl Fruitless {
    /// One more, after `idle` nanoseconds.
    pub(super) fn and(before: Option<Self>, at: At, idle: u64) -> Self {
        let Self { times, from, longest, .. } =
            before.unwrap_or(Self { times: 0, from: at, last: at, longest: 0 });
        Self { times: times.saturating_add(1), from, last: at, longest: longest.max(idle) }
    }
}

/// A request that was sent again after a silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silent {
    pub psn: u64,
    /// A second answer before this PSN is one to it.
    pub until: u64,
    pub first: At,
    pub again: At,
    /// How long there was nothing, nanoseconds.
    pub idle: u64,
    /// What was missing is a READ's response.
    pub response: bool,
}

/// A packet that later ones have overtaken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub psn: u64,
    /// Behind the newest of those that overtook it: its receiver dropped them all.
    pub until: u64,
    pub overtaken_by: At,
    pub at: At,
    pub told: bool,
}

/// The newest request packet, to know one that comes twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Newest {
    pub psn: u64,
    pub kind: Kind,
    pub place: Place,
    /// Payload, or what a READ asks for.
    pub bytes: u32,
}

/// A request that came twice in so short a time that no timer can have repeated it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    pub psn: u64,
    pub first: At,
    pub at: At,
}

/// A gap of answers: an acknowledgement for something that was not seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ghost {
    pub psn: u64,
    pub at: At,
    /// It goes on where the requests that were seen end.
    pub goes_on: bool,
}

/// Counts of one direction's requests and of their answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub packets: u64,
    pub goodput: u64,
    pub again: u64,
    pub sequence_naks: u64,
    pub rnr_naks: u64,
    pub other_naks: u64,
    pub acks: u64,
    pub missed: u64,
    pub messages: u64,
}

/// Operations of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub begun: u64,
    pub bytes: u64,
    pub latency: Option<Histogram>,
    /// Why those took long that did.
    pub causes: Vec<Cause>,
}

/// Requests of one direction.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The PSN behind the newest request; `None` before the first.
    pub next: Option<u64>,
    /// All before it is acknowledged.
    pub acked: u64,
    /// When the answer came that says so.
    pub acked_at: Time,
    /// The first PSN that was seen.
    pub first: u64,
    /// The first packet was in the middle of a message.
    pub midstream: bool,
    pub sent: VecDeque<Sent>,
    pub targets: VecDeque<Target>,
    /// The newest READ that was served, if it had several responses.
    pub served: Option<Target>,
    pub holes: Vec<Hole>,
    pub message: Message,
    /// Bytes of the longest SEND that was acknowledged.
    pub longest_send: Option<u64>,
    /// Payload of FIRST and MIDDLE requests.
    pub mtu: Option<u32>,
    /// Payload of FIRST and MIDDLE responses.
    pub response_mtu: Option<u32>,
    pub nak: Option<Refusal>,
    pub rnr: Option<Refusal>,
    /// Repetitions after an RNR NAK that waited as long as asked, and those that did not.
    pub rnr_kept: u32,
    pub rnr_early: u32,
    /// READs and atomics that the responder offered to serve at once, and those that wait.
    pub resources: Option<u8>,
    /// NAKs without reason.
    pub spurious: u32,
    /// READs that were answered from their beginning though asked for from the middle.
    pub replayed: u32,
    /// Requests for a part of a READ's responses.
    pub parts: u32,
    /// A NAK that ends the queue pair.
    pub fatal: Option<At>,
    pub recovery: Option<Recovery>,
    pub ghost: Option<Ghost>,
    /// The newest of them.
    pub lates: Vec<Late>,
    /// PSNs that were damaged on their way, requests and answers, until the loss is explained.
    pub damaged: Vec<u32>,
    pub silent: Option<Silent>,
    pub newest: Option<(Newest, At)>,
    pub twin: Option<Twin>,
    /// Last request or answer.
    pub active: Time,
    /// Packets sent again by timeout since the last progress.
    pub fruitless: Option<Fruitless>,
    /// MSN less completed messages, once an ACK has told it, and by how much it may be less; how
    /// often it did not fit since.
    pub msn_base: Option<(u32, u32)>,
    pub msn_wrong: u32,
    /// A READ or atomic whose responses were not seen though later requests are acknowledged.
    pub blocked: Option<u64>,
    /// Messages that the newest answer completed after a long time.
    pub slow: Option<Slow>,
    /// What befell the requests, of all that costs time.
    pub troubles: Option<Box<Troubles>>,
    /// Messages of `counts` that are acknowledged or forgotten.
    pub ended: u64,
    /// Messages completed as far as `acked`.
    pub completed: u64,
    /// Answers of atomics: PSN and value, the newest last.
    pub atomics: VecDeque<(u64, u64)>,
    /// IP identifications of the newest packets, to know a copy from a repetition.
    pub idents: [(u32, u16); 8],
    pub ident_at: usize,
    /// How often the identification was lower than the one before.
    pub ident_falls: u8,
    /// The sender does not count its packets: identifications tell nothing.
    pub uncounted: bool,
    pub counts: Counts,
    pub done: [Done; 6],
}

impl Lane {
    /// The place of a PSN among the packets sent.
    pub(super) fn find(&self, psn: u64) -> Option<usize> {
        let at = self.sent.partition_point(|sent| sent.end() <= psn);
        self.sent.get(at).filter(|sent| sent.psn <= psn).map(|_| at)
    }

    /// Requests that no acknowledgement covers. Before them `sent` may have READs that the capture
    /// missed the responses of.
    pub(super) fn open(&self) -> impl DoubleEndedIterator<Item = &Sent> + Clone {
        let at = self.sent.partition_point(|sent| sent.end() <= self.acked);
        self.sent.range(at..)
    }

    /// Whether an answer belongs to what was asked.
    pub(super) fn fits(&mut self, psn: u32, what: Op, payload: u32) -> bool {
        let Some(next) = self.next else { return false };
        let psn = op::unwrap_psn(psn, next);
        let asked = psn < next && next - psn < limits::NEW_EPOCH;
        asked
            && match what {
                Op::ReadResponse(Place::Only) => {
                    let whole = |t: &mut Target| match t.kind {
                        Kind::Read => t.span > 1 || !t.asks.is_empty() || t.length == payload,
                        kind => kind.has_response(),
                    };
                    psn < self.acked || self.target(psn).is_some_and(whole)
                }
                Op::ReadResponse(_) | Op::AtomicAcknowledge => {
                    psn < self.acked || self.target(psn).is_some_and(|t| t.kind.has_response())
                }
                _ => true,
            }
    }

    /// The READ or atomic whose responses a PSN belongs to, or the WRITE that begins there.
    pub(super) fn target(&mut self, psn: u64) -> Option<&mut Target> {
        let at = self.targets.partition_point(|target| target.end() <= psn);
        self.targets.get_mut(at).filter(|target| target.covers(psn))
    }

    /// The hole that a PSN lies in.
    pub(super) fn hole(&self, psn: u64) -> Option<usize> {
        self.holes.iter().position(|hole| (hole.from..hole.to).contains(&psn))
    }

    /// Takes a PSN out of its hole.
    pub(super) fn fill(&mut self, at: usize, psn: u64) {
        let hole = &mut self.holes[at];
        if psn == hole.from {
            hole.from += 1;
        } else if psn + 1 == hole.to {
            hole.to -= 1;
        } else {
            let behind = Hole { from: psn + 1, ..*hole };
            hole.to = psn;
            if self.holes.len() < limits::HOLES {
                self.holes.push(behind);
            }
        }
        self.holes.retain(|hole| hole.from < hole.to);
    }

    /// Remembers a gap; the oldest is forgotten when there are too many.
    pub(super) fn add_hole(&mut self, hole: Hole) {
        if self.holes.len() == limits::HOLES {
            self.holes.remove(0);
        }
        self.holes.push(hole);
    }

    /// Remembers the identification of a packet; tells whether the same was just seen. `what` is
    /// opcode and PSN. A sender that does not count its packets has no copies that can be told.
    pub(super) fn is_copy(&mut self, what: u32, ident: u16) -> bool {
        let mut copy = false;
        let (before, latest) = self.idents[(self.ident_at + 7) % 8];
        // A sender that counts anew in each train falls back often; a network that changes the
        // order of packets makes it seem so now and then.
        if ident == 0 {
            self.uncounted |= self.ident_falls > 2;
            self.ident_falls = self.ident_falls.saturating_add(u8::from(latest != 0));
            return false;
        }
        if self.uncounted {
            return false;
        }
        for &(other, same) in &self.idents {
            if same == ident && other != what {
                self.uncounted = true;
                return false;
            }
            copy |= (other, same) == (what, ident);
        }
        if copy {
            return self.ident_falls == 0 || (before, latest) == (what, ident);
        }
        if latest > ident && latest - ident < 0x8000 {
            self.ident_falls = self.ident_falls.saturating_add(1);
            self.uncounted = self.ident_falls > 2 + (self.counts.packets / 8).min(64) as u8;
        }
        self.idents[self.ident_at % self.idents.len()] = (what, ident);
        self.ident_at = (self.ident_at + 1) % self.idents.len();
        false
    }

    /// Forgets the older half of what is not acknowledged, to make room for others.
    pub(super) fn forget_half(&mut self) {
        let old = self.sent.drain(..self.sent.len().div_ceil(2));
        self.ended += old.filter(|sent| sent.place.ends()).count() as u64;
        self.sent.shrink_to(self.sent.len() * 2);
        self.msn_base = None;
        self.blocked = None;
    }

    /// The MTU by which a READ's responses are counted.
    pub(super) fn span_mtu(&self) -> Option<u32> {
        self.response_mtu.or(self.mtu)
    }

    /// The connection manager has made a connection whose first request has this PSN. What was
    /// before belongs to another one.
    pub(super) fn connected(&mut self, psn: u32, resources: u8) {
        if self.next.is_some() && self.first & 0xFF_FFFF != u64::from(psn) {
            self.restart();
        }
        self.resources = Some(resources);
    }

    /// Begins anew: another connection uses the queue pair. Counts stay.
    pub(super) fn restart(&mut self) {
        let (counts, done) = (self.counts, core::mem::take(&mut self.done));
        let (ended, uncounted) = (counts.messages, self.uncounted);
        *self = Self { counts, done, ended, uncounted, ..Self::default() };
    }
}
