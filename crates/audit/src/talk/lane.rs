//! What is known of the requests of one direction: those sent and not answered, gaps in their
//! PSNs, refusals, and how a loss is being mended.

use std::collections::VecDeque;

use super::histogram::Histogram;
use super::op::{Kind, Place};
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
#[derive(Clone, Copy, Debug)]
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
    /// Where the latest request for its responses began, and how many there were.
    pub asked_from: u64,
    pub asked: u32,
}

impl Target {
    /// The PSN behind its responses.
    pub(super) fn end(&self) -> u64 {
        self.psn + u64::from(self.span)
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

/// A packet that later ones have overtaken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub psn: u64,
    pub overtaken_by: At,
    pub at: At,
    pub told: bool,
}

/// A gap of answers: an acknowledgement for something that was not seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ghost {
    pub psn: u64,
    pub at: At,
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
}

/// Requests of one direction.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The PSN behind the newest request; `None` before the first.
    pub next: Option<u64>,
    /// All before it is acknowledged.
    pub acked: u64,
    /// The first PSN that was seen.
    pub first: u64,
    /// The first packet was in the middle of a message.
    pub midstream: bool,
    pub sent: VecDeque<Sent>,
    pub targets: VecDeque<Target>,
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
    /// A NAK that ends the queue pair.
    pub fatal: Option<At>,
    pub recovery: Option<Recovery>,
    pub ghost: Option<Ghost>,
    pub late: Option<Late>,
    /// Last request or answer.
    pub active: Time,
    /// Packets sent again since the last progress, and the first of them.
    pub fruitless: u32,
    pub fruitless_from: Option<At>,
    /// MSN less completed messages, once an ACK has told it; how often it did not fit since.
    pub msn_base: Option<u32>,
    pub msn_wrong: u32,
    /// A READ or atomic whose responses were not seen though later requests are acknowledged.
    pub blocked: Option<u64>,
    /// A message that was answered very late: its last packet and the time.
    pub slow: Option<(At, u64)>,
    /// Messages completed as far as `acked`.
    pub completed: u64,
    /// Answers of atomics: PSN and value, the newest last.
    pub atomics: VecDeque<(u64, u64)>,
    /// IP identifications of the newest packets, to know a copy from a repetition.
    pub idents: [(u32, u16); 8],
    pub ident_at: usize,
    pub counts: Counts,
    pub done: [Done; 6],
}

impl Lane {
    /// The place of a PSN among the packets sent.
    pub(super) fn find(&self, psn: u64) -> Option<usize> {
        let at = self.sent.partition_point(|sent| sent.end() <= psn);
        self.sent.get(at).filter(|sent| sent.psn <= psn).map(|_| at)
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
        if ident == 0 {
            return false;
        }
        for &(other, same) in &self.idents {
            if same == ident && other != what {
                return false;
            }
            copy |= (other, same) == (what, ident);
        }
        if copy {
            return true;
        }
        self.idents[self.ident_at % self.idents.len()] = (what, ident);
        self.ident_at = (self.ident_at + 1) % self.idents.len();
        false
    }

    /// Forgets the older half of what is not acknowledged, to make room for others.
    pub(super) fn forget_half(&mut self) {
        self.sent.drain(..self.sent.len().div_ceil(2));
        self.sent.shrink_to(self.sent.len() * 2);
        self.msn_base = None;
        self.blocked = None;
    }

    /// The MTU by which a READ's responses are counted.
    pub(super) fn span_mtu(&self) -> Option<u32> {
        self.response_mtu.or(self.mtu)
    }

    /// Begins anew: another connection uses the queue pair. Counts stay.
    pub(super) fn restart(&mut self) {
        let (counts, done) = (self.counts, core::mem::take(&mut self.done));
        *self = Self { counts, done, ..Self::default() };
    }
}
