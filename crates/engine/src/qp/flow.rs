//! Flow control of the unreliable services, which have no acknowledgements: a sender now and then
//! asks its peer, behind the packets sent, and the peer tells that it has come so far and how many
//! receive requests stand ready. What is neither told of nor given up counts as in flight, within
//! the same windows as that of reliable connections. Both messages have an opcode that only this
//! project knows (`wire::Service::Flow`): others drop it, and after a few vain questions a peer is
//! asked no more and sent to without limit, as the specification has it.
//!
//! Nothing is sent again here and nothing waits for a told message to be complete: requests
//! complete when they have been sent. Who sends little is never asked for anything.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use wire::{
    Aeth, Bth, Deth, Extensions, Gid, Instant, Opcode, Operation, Packet, Path, QKey, Qpn, Service,
    Span, Syndrome,
};

use crate::attr::QpType;
use crate::counters::pair::count;
use crate::limits;
use crate::memory::Payload;
use crate::qp::facts::{Draft, Facts, Shared};
use crate::qp::requester::{Next, Requester};
use crate::qp::send_queue::Wqe;
use crate::qp::{QueuePair, path_of};
use crate::window;

/// Messages that may be sent to a peer that has not told how many it can take.
const UNTOLD_MESSAGES: u64 = 256;
/// A sender asks anew when this part of what it was granted is left.
const ASK_AT: u64 = 2;
/// What has been sent without a question is no longer in flight after this time.
const ARRIVED: Span = Span::from_ms(10);
/// The first question that is not answered within this time is repeated, later ones after twice the
/// time each: a peer may not have had the processor.
const ANSWER: Span = Span::from_ms(20);
/// Vain questions after which a peer that has never answered is taken for one that cannot, and one
/// that has for gone.
const TRIES_UNKNOWN: u32 = 4;
const TRIES_KNOWN: u32 = 6;
/// A peer without receive requests is asked again after this time, later after twice the time each.
const HUNGER: Span = Span::from_us(200);
/// After so many times one message goes each time, as it may be waited for in another way.
const HUNGER_TRIES: u32 = 10;
/// The longest of these waits.
const LONGEST: Span = Span::from_ms(640);

/// Whether the peers of an address take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Takes {
    /// None has been asked long enough.
    #[default]
    Unknown,
    Part,
    NoPart,
}

/// Datagram peers that were given up and have not been heard of since, by address and queue pair:
/// they are not waited for anew each time that a queue pair comes back to them.
#[derive(Debug, Default)]
pub(crate) struct Gone(VecDeque<(Gid, Qpn)>);

impl Gone {
    fn add(&mut self, gid: Gid, qpn: Qpn) {
        self.heard(gid, qpn);
        if self.0.len() >= limits::MAX_GONE {
            self.0.pop_front();
        }
        self.0.push_back((gid, qpn));
    }

    fn has(&self, gid: Gid, qpn: Qpn) -> bool {
        self.0.contains(&(gid, qpn))
    }

    /// A queue pair has sent something.
    pub(crate) fn heard(&mut self, gid: Gid, qpn: Qpn) {
        if !self.0.is_empty() {
            self.0.retain(|gone| *gone != (gid, qpn));
        }
    }
}

/// A question or an answer about to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) path: Path,
    pub(crate) draft: Draft,
}

impl Note {
    /// From a queue pair to another; a question if it has a key, that of the datagrams that it is
    /// about.
    fn new(
        path: Path,
        (from, to): (Qpn, Qpn),
        ask: Option<QKey>,
        seq: wire::Psn,
        credits: u8,
    ) -> Self {
        let bth = Bth {
            opcode: Opcode::new(Service::Flow, Operation::Acknowledge),
            solicited: false,
            migration: true,
            pkey: wire::PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: to,
            ack_request: ask.is_some(),
            psn: seq,
        };
        let aeth = Some(Aeth { syndrome: Syndrome::Ack(credits), msn: wire::Msn::default() });
        let deth = Some(Deth { qkey: ask.unwrap_or_default(), source_qp: from });
        let ext = Extensions { aeth, deth, ..Extensions::default() };
        Self { path, draft: Draft { bth, ext, length: 0, again: false } }
    }
}

/// What a sender knows of its flow.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Whom a datagram queue pair sends to, as long as it is one and the same, and with which key.
    target: Option<(Path, Qpn, QKey)>,
    /// Questions that wait for an answer: the sequence behind which, and the messages before it.
    asks: VecDeque<(u64, u64)>,
    /// Cost, and messages, sent since the last question.
    unasked: u64,
    since: u64,
    /// Messages sent that take a receive request, and how many may be.
    messages: u64,
    limit: Option<u64>,
    granted: u64,
    told: bool,
    deadline: Option<Instant>,
    /// Questions in vain since the last answer.
    tries: u32,
    /// A message waits for the peer to have receive requests, and how often it had none.
    hungry: bool,
    hunger: u32,
    /// The peer is gone, or cannot tell.
    free: bool,
}

/// A flow that comes into being when it is first changed: most queue pairs never have one.
#[derive(Debug, Default)]
pub(crate) struct FlowPlace(Option<Box<Flow>>);

impl Deref for FlowPlace {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        static NONE: Flow = Flow::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for FlowPlace {
    fn deref_mut(&mut self) -> &mut Flow {
        self.0.get_or_insert_with(|| Box::new(Flow::new()))
    }
}

impl Flow {
    const fn new() -> Self {
        Self {
            target: None,
            asks: VecDeque::new(),
            unasked: 0,
            since: 0,
            messages: 0,
            limit: None,
            granted: 0,
            told: false,
            deadline: None,
            tries: 0,
            hungry: false,
            hunger: 0,
            free: false,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How many messages may go before the peer has said that it takes more.
    fn limit(&self) -> Option<u64> {
        if self.told { self.limit } else { Some(UNTOLD_MESSAGES) }
    }

    fn wants_answer(&self, window: u64) -> bool {
        let granted = if self.told { self.granted } else { UNTOLD_MESSAGES };
        let few = self.limit().is_some() && self.since >= (granted / ASK_AT).max(1);
        few || self.unasked >= window / ASK_AT
    }
}

impl Requester {
    /// Whether a packet of an unreliable service may go: the peer's window has room, and at the
    /// start of a message the peer a receive request.
    pub(crate) fn flow_admits<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        wire_len: usize,
    ) -> bool {
        if !sh.flow || self.flow.free || sh.windows.takes(q.peer) == Takes::NoPart {
            return true;
        }
        let wqe = self.queue.wqes.get(self.cursor);
        let begins = wqe.is_some_and(|w| w.start == self.nxt && w.consumes_receive());
        if begins && self.flow.limit().is_some_and(|limit| self.flow.messages >= limit) {
            if !std::mem::replace(&mut self.flow.hungry, true) && self.flow.asks.is_empty() {
                self.ask(q, sh);
                self.flow.deadline = Some(now + ANSWER);
            }
            return false;
        }
        let admitted = sh.windows.admits(q.peer, q.index, window::cost(wire_len));
        if !admitted && self.flow.asks.is_empty() && self.flow.unasked > 0 {
            self.ask(q, sh);
            self.flow.deadline = Some(now + ANSWER);
        }
        admitted
    }

    /// A packet of an unreliable service has been put into the train.
    pub(crate) fn flow_sent<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        next: &Next,
        wire_len: usize,
    ) {
        if !sh.flow || self.flow.free || sh.windows.takes(q.peer) == Takes::NoPart {
            return;
        }
        let takes = |w: &Wqe| w.start == self.nxt && w.consumes_receive();
        let message = u64::from(self.queue.wqes.get(self.cursor).is_some_and(takes));
        let (start, end) = (self.nxt, self.nxt + u64::from(next.asked.0));
        let cost = window::cost(wire_len);
        self.flight.sent(&mut sh.windows, q.peer, start, end, cost);
        self.flow.messages += message;
        self.flow.since += message;
        self.flow.unasked += cost;
        if self.flow.wants_answer(sh.windows.window(q.peer)) {
            self.ask_behind(q, sh, end);
            if self.flow.asks.len() == 1 {
                self.flow.deadline = Some(now + ANSWER);
            }
        } else if self.flow.deadline.is_none() {
            self.flow.deadline = Some(now + ARRIVED);
        }
    }

    /// Whom the flow is towards.
    fn flow_target(&self, q: &Facts) -> Option<(Path, Qpn, QKey)> {
        q.path.map(|path| (path, q.dest_qp, QKey::default())).or(self.flow.target)
    }

    /// Asks behind all that has been sent.
    fn ask<M>(&mut self, q: &Facts, sh: &mut Shared<M>) {
        self.ask_behind(q, sh, self.nxt);
    }

    fn ask_behind<M>(&mut self, q: &Facts, sh: &mut Shared<M>, end: u64) {
        let Some((path, dest, key)) = self.flow_target(q) else { return };
        let psn = wire::Psn::from_seq(end - 1);
        let flow = &mut *self.flow;
        flow.asks.push_back((end, flow.messages));
        (flow.unasked, flow.since) = (0, 0);
        sh.counters.tx_flow_asks += 1;
        sh.note(Note::new(path, (q.qpn, dest), Some(key), psn, wire::aeth::NO_CREDITS));
    }

    /// The peer has told how far it has come.
    fn flow_told<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        from: Qpn,
        packet: &Packet<Payload<'_>>,
    ) {
        let Some(Aeth { syndrome: Syndrome::Ack(credits), .. }) = packet.ext.aeth else {
            return count!(sh, q.index, rx_stale_ack);
        };
        let known = self
            .flow_target(q)
            .is_some_and(|(path, dest, _)| path.destination == packet.path.source && dest == from);
        let end = packet.bth.psn.expand(self.nxt) + 1;
        let place = self.flow.asks.iter().position(|&(of, _)| of == end).filter(|_| known);
        let Some(place) = place else {
            return count!(sh, q.index, rx_stale_ack);
        };
        sh.counters.rx_accepted += 1;
        sh.counters.rx_flow_answers += 1;
        sh.windows.set_takes(q.peer, Takes::Part);
        let messages = self.flow.asks.drain(..=place).next_back().map_or(0, |(_, n)| n);
        self.flight.acknowledged(&mut sh.windows, q.peer, end);
        let credits = wire::aeth::credit_count(credits).map(u64::from);
        self.flow.told = true;
        self.flow.granted = credits.unwrap_or(0);
        self.flow.limit = credits.map(|credits| messages + credits);
        self.flow.tries = 0;
        if credits != Some(0) {
            (self.flow.hungry, self.flow.hunger) = (false, 0);
        } else if self.flow.hungry {
            self.flow.hunger += 1;
            if self.flow.hunger > HUNGER_TRIES {
                self.flow.limit = Some(messages + 1);
            }
        }
        self.flow.deadline = if !self.flow.asks.is_empty() {
            Some(now + ANSWER)
        } else if self.flow.hungry {
            Some(now + wait(HUNGER, self.flow.hunger))
        } else {
            (!self.flight.is_empty()).then(|| now + ARRIVED)
        };
    }

    /// The flow's deadline may be due.
    pub(crate) fn flow_timeout<M>(&mut self, q: &Facts, sh: &mut Shared<M>, now: Instant) {
        if !self.flow.deadline.is_some_and(|at| at.is_due(now)) {
            return;
        }
        self.flow.deadline = None;
        let takes = sh.windows.takes(q.peer);
        if self.flow.asks.is_empty() {
            // Little has been sent for long: it has arrived, or never will.
            self.flight.recalled(&mut sh.windows, q.peer, 0);
            (self.flow.unasked, self.flow.since) = (0, 0);
            if !self.flow.told {
                self.flow.messages = 0;
            }
            if self.flow.hungry && takes != Takes::NoPart {
                self.ask(q, sh);
                self.flow.deadline = Some(now + ANSWER);
            }
            return;
        }
        self.flow.tries += 1;
        // Whoever has not answered may have a full buffer.
        sh.windows.lost(q.peer, true, 0);
        self.flight.recalled(&mut sh.windows, q.peer, 0);
        self.flow.asks.clear();
        let most = if takes == Takes::Part { TRIES_KNOWN } else { TRIES_UNKNOWN };
        if takes == Takes::NoPart || self.flow.tries >= most {
            // Asked in vain: it is gone, or has never known what it was asked.
            self.flow.free = true;
            sh.counters.flow_given_up += 1;
            if takes == Takes::Unknown {
                sh.windows.set_takes(q.peer, Takes::NoPart);
            }
            if let Some((path, dest, _)) = self.flow.target {
                sh.gone.add(path.destination, dest);
            }
            return;
        }
        self.ask(q, sh);
        self.flow.deadline = Some(now + wait(ANSWER, self.flow.tries));
    }
}

/// The wait after so many vain questions.
fn wait(first: Span, tries: u32) -> Span {
    first.times(1 << tries.min(16)).min(LONGEST)
}

impl QueuePair {
    /// A datagram queue pair looks whom its next datagram goes to: the flow is that towards one
    /// queue pair, as long as it stays the same.
    pub(crate) fn aim<M>(&mut self, sh: &mut Shared<M>) {
        if !sh.flow || self.facts.kind != QpType::Ud {
            return;
        }
        let (cursor, nxt) = (self.requester.cursor, self.requester.nxt);
        let next = self.requester.queue.next_datagram(cursor, nxt).copied();
        let Some(next) = next else { return };
        let key = self.facts.key_of(&next);
        let same = self.requester.flow.target.is_some_and(|(path, dest, of)| {
            path.destination == next.av.dgid && (dest, of) == (next.dest_qp, key)
        });
        if same {
            return;
        }
        self.leave_peer(sh);
        self.facts.peer = u32::MAX;
        *self.requester.flow = Flow::new();
        let path = path_of(&sh.gids, &next.av).filter(|_| next.dest_qp != Qpn::MULTICAST);
        let Some(mut path) = path else { return };
        path.source_port = wire::flow::datagram_source_port(self.facts.qpn);
        self.requester.flow.target = Some((path, next.dest_qp, key));
        self.requester.flow.free = sh.gone.has(next.av.dgid, next.dest_qp);
        self.facts.peer = sh.windows.join(next.av.dgid);
        self.joined = true;
    }

    /// Takes a question or an answer.
    pub(crate) fn receive_flow<M>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        packet: &Packet<Payload<'_>>,
    ) {
        let q = &self.facts;
        let unreliable = matches!(q.kind, QpType::Uc | QpType::Ud);
        let Some(deth) = packet.ext.deth.filter(|_| unreliable && sh.flow) else {
            return count!(sh, q.index, rx_wrong_opcode);
        };
        sh.gone.heard(packet.path.source, deth.source_qp);
        if !packet.bth.ack_request {
            return self.requester.flow_told(q, sh, now, deth.source_qp, packet);
        }
        if q.kind == QpType::Ud && deth.qkey != q.qkey {
            // Who may not send to it learns nothing of it either.
            return count!(sh, q.index, rx_wrong_qkey);
        }
        sh.counters.rx_accepted += 1;
        sh.counters.rx_flow_asks += 1;
        let ready = match q.srq.and_then(|id| sh.srqs.get(id.0)) {
            // Others take from it too.
            Some(srq) => srq.queue.len() as u32 / srq.users.max(1),
            None => self.recv.len() as u32,
        };
        let path = q.path.unwrap_or_else(|| Path {
            source: packet.path.destination,
            destination: packet.path.source,
            hop_limit: limits::DEFAULT_HOP_LIMIT,
            source_port: wire::flow::datagram_source_port(q.qpn),
            ..packet.path
        });
        let credits = wire::aeth::credit_code(ready);
        sh.note(Note::new(path, (q.qpn, deth.source_qp), None, packet.bth.psn, credits));
    }
}
