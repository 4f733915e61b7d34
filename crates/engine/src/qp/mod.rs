//! A queue pair: a requester, a responder, what both know, and the timers. What leaves next is
//! decided here: answers, then resends and new requests, with the acknowledgement behind them.

pub(crate) mod acks;
pub(crate) mod build;
pub(crate) mod datagram;
pub(crate) mod draft;
pub(crate) mod facts;
pub(crate) mod flow;
pub(crate) mod inflight;
pub(crate) mod limit;
pub(crate) mod modify;
pub(crate) mod probe;
pub(crate) mod refusal;
pub(crate) mod replies;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod send_queue;
pub(crate) mod state;
pub(crate) mod unreadable;

use wire::{Encapsulation, Instant, Operation, Packet, Path};

use crate::attr::{QpAttr, QpInit, QpState, QpType};
use crate::counters::pair::count;
use crate::device::GidEntry;
use crate::event::AsyncEvent;
use crate::limits;
use crate::memory::{HostMemory, Payload};
use crate::qp::build::Builder;
use crate::qp::facts::{Facts, Shared};
use crate::qp::refusal::{Broken, Fault};
use crate::qp::requester::{Fatal, Requester};
use crate::qp::responder::Responder;
use crate::srq::RecvQueue;
use crate::train::{Train, TrainLimits};
use crate::work::AddressVector;
use crate::xrc::Xrc;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) init: QpInit,
    pub(crate) attr: QpAttr,
    pub(crate) facts: Facts,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) recv: RecvQueue,
    /// It is in the scheduler's rotation.
    pub(crate) ready: bool,
    /// Its wake-up in the scheduler's heap, if one stands there.
    pub(crate) wake: Option<Instant>,
    /// Another one there, later.
    pub(crate) wake_later: Option<Instant>,
    /// It has a place in the peer windows.
    pub(crate) joined: bool,
    /// Congestion: what it owes others, and its own rate.
    pub(crate) limit: limit::Limit,
    /// Pacing: no train leaves before this.
    pub(crate) not_before: Option<Instant>,
    communicated: bool,
    /// The first request raises COMM_EST in RTS too.
    pub(crate) expects_peer: bool,
    /// Raise SQ_DRAINED when the send queue has drained.
    pub(crate) notify_drained: bool,
    /// Unreliable services: sent, and to be completed once the driver has taken the train.
    pub(crate) unsettled: bool,
    pub(crate) xrc: Xrc,
    /// An acknowledgement found no room in the last train.
    passed_over: bool,
}

/// Where packets to an address go; `None` if the GID index names no entry.
pub(crate) fn path_of(gids: &[GidEntry], av: &AddressVector) -> Option<Path> {
    let entry = gids.get(usize::from(av.sgid_index)).filter(|e| !e.gid.is_zero())?;
    let v4 = av.dgid.is_ipv4() && entry.encapsulation == Encapsulation::RoceV2;
    Some(Path {
        encapsulation: entry.encapsulation,
        source: entry.gid,
        destination: av.dgid,
        traffic_class: av.traffic_class,
        hop_limit: if av.hop_limit == 0 { limits::DEFAULT_HOP_LIMIT } else { av.hop_limit },
        flow_label: if v4 { 0 } else { av.flow_label & 0xF_FFFF },
        source_port: 0,
        priority: priority_of(av),
    })
}

/// The priority that packets to an address have.
fn priority_of(av: &AddressVector) -> u8 {
    if av.sl & 7 != 0 { av.sl & 7 } else { av.traffic_class >> 5 }
}

impl QueuePair {
    /// Takes a packet that the device has found to be for this queue pair.
    pub(crate) fn receive<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) {
        let kind = self.facts.kind;
        if matches!(kind, QpType::Ud | QpType::Gsi) {
            let (responder, recv) = (&mut self.responder, &mut self.recv);
            let outcome = datagram::receive(responder, &self.facts, recv, sh, now, packet);
            return self.break_off(sh, now, outcome);
        }
        if let QpType::XrcSend | QpType::XrcRecv = kind {
            if operation.is_request() != (kind == QpType::XrcRecv) {
                return count!(sh, self.facts.index, rx_wrong_opcode);
            }
            if operation.is_request() {
                self.choose_srq(sh, operation, packet);
            }
        }
        let silent = match self.facts.state {
            QpState::Rtr => true,
            QpState::Rts => self.expects_peer,
            _ => false,
        };
        if silent && !self.communicated && operation.is_request() {
            self.communicated = true;
            sh.raise(AsyncEvent::CommEst(self.facts.qpn));
        }
        let (q, recv) = (&self.facts, &mut self.recv);
        if kind == QpType::Uc {
            let outcome = self.responder.unreliable(q, recv, sh, now, operation, packet);
            self.break_off(sh, now, outcome);
        } else if operation.is_request() {
            let outcome = self.responder.request(q, recv, sh, now, operation, packet);
            self.break_off(sh, now, outcome);
        } else {
            if !requester::sends(q.state) {
                count!(sh, self.facts.index, rx_stale_ack);
                return;
            }
            let outcome = self.requester.response(q, sh, now, operation, packet);
            self.settle_outcome(sh, now, outcome);
        }
    }

    /// Deals with a request of the peer's that ends the queue pair's service.
    fn break_off<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        outcome: Result<(), Broken>,
    ) {
        let Err(broken) = outcome else { return };
        self.fail(sh, now, None);
        if let Some(event) = broken.event {
            sh.raise(event);
        }
    }

    /// Whether a packet comes from the connected peer.
    pub(crate) fn is_of(&self, packet: &Packet<Payload<'_>>) -> bool {
        self.facts.path.is_some_and(|path| {
            (path.destination, path.source) == (packet.path.source, packet.path.destination)
        })
    }

    /// Answers the expected request with the NAK of `fault`, or, without one, as if it were ahead.
    pub(crate) fn refuse<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        fault: Option<Fault>,
    ) {
        match fault {
            Some(fault) => {
                let outcome = self.responder.answer(&self.facts, sh, now, fault);
                self.break_off(sh, now, outcome);
            }
            None => self.responder.miss(&self.facts, sh),
        }
    }

    /// Priority of what leaves next: that of the connection, or of the next datagram's address.
    pub(crate) fn priority(&self) -> u8 {
        match &self.facts.path {
            Some(path) => path.priority,
            None => {
                let (cursor, nxt) = (self.requester.cursor, self.requester.nxt);
                let next = self.requester.queue.next_datagram(cursor, nxt);
                next.map_or(0, |d| priority_of(&d.av))
            }
        }
    }

    /// Deals with the end of a request's service, and with a drained queue.
    fn settle_outcome<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        outcome: Result<(), Fatal>,
    ) {
        match outcome {
            Ok(()) => self.check_drained(sh),
            Err(fatal) if self.facts.kind.is_reliable() => self.fail(sh, now, Some(fatal)),
            Err(fatal) => {
                self.requester.flush(&self.facts, sh, now, Some(fatal));
                self.set_state(QpState::Sqe);
            }
        }
    }

    pub(crate) fn check_drained<M>(&mut self, sh: &mut Shared<M>) {
        if self.requester.draining && self.notify_drained && self.requester.is_drained() {
            self.notify_drained = false;
            sh.raise(AsyncEvent::SqDrained(self.facts.qpn));
        }
    }

    /// Moves to the error state and flushes everything.
    pub(crate) fn fail<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        first: Option<Fatal>,
    ) {
        // A retired prefix that was complete stays complete; what is left flushes in order.
        self.requester.flush(&self.facts, sh, now, first);
        self.responder.flush(&self.facts, &mut self.recv, sh, now);
        self.set_state(QpState::Err);
    }

    pub(crate) fn set_state(&mut self, state: QpState) {
        self.facts.state = state;
        self.attr.state = state;
        self.attr.cur_state = state;
    }

    /// Completes at once what was posted in the error states.
    pub(crate) fn flush_posted<M: HostMemory>(&mut self, sh: &mut Shared<M>, now: Instant) {
        match self.facts.state {
            QpState::Err => {
                self.requester.flush(&self.facts, sh, now, None);
                while let Some(wr_id) = self.recv.drop_oldest() {
                    sh.flush_receive(&self.facts, now, wr_id);
                }
            }
            QpState::Sqe => self.requester.flush(&self.facts, sh, now, None),
            _ => {}
        }
    }

    /// Fills a train with what is to leave now; false if there is nothing.
    pub(crate) fn transmit<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        limits: TrainLimits,
        train: &mut Train,
    ) -> bool {
        if self.not_before.is_some_and(|at| !at.is_due(now)) {
            return self.acknowledge(sh, now, train);
        }
        self.aim(sh);
        let mut b = Builder::new(train, self.limit.shorten(limits));
        let credits = self.credits(sh);
        let msn = self.responder.msn;
        if self.passed_over && self.responder.owed.tail_is_due(now) {
            // It has waited long enough behind the queue pair's own packets.
            self.responder.owed.emit_tail(&self.facts, sh, (credits, msn), &mut b);
            self.passed_over = false;
            sh.counters.tx_packets += 1;
            return true;
        }
        if (self.facts.state != QpState::Err || self.responder.owed.is_finishing())
            && self.responder.owed.emit_replies(&self.facts, sh, credits, &mut b).is_err()
        {
            self.responder.owed.revoke();
            if self.facts.state != QpState::Err {
                self.fail(sh, now, None);
                sh.raise(AsyncEvent::QpAccessErr(self.facts.qpn));
            }
        }
        if b.is_empty() && requester::sends(self.facts.state) {
            self.requester.emit_probe(&self.facts, sh, &mut b);
            if b.is_empty() {
                self.requester.emit(&self.facts, sh, now, &mut b);
            }
            if b.is_empty() {
                self.requester.emit_probe(&self.facts, sh, &mut b);
            }
            let unreliable = !self.facts.kind.is_reliable() && !b.is_empty();
            self.unsettled |= unreliable || self.requester.front_is_done();
        }
        let owed = &mut self.responder.owed;
        if owed.has_tail() && (!b.is_empty() || owed.tail_is_due(now)) {
            owed.emit_tail(&self.facts, sh, (credits, msn), &mut b);
        }
        self.passed_over = owed.has_tail() && !b.is_empty();
        let sent = b.packets() as u64;
        sh.counters.tx_packets += sent;
        self.not_before = self.limit.charge(&sh.congestion, now, self.not_before, train);
        sent > 0
    }

    /// What a queue pair says whose rate does not let it send data yet.
    fn acknowledge<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        train: &mut Train,
    ) -> bool {
        if !self.responder.owed.tail_is_due(now) {
            return false;
        }
        let said = (self.credits(sh), self.responder.msn);
        let mut b = Builder::new(train, TrainLimits::SINGLE);
        self.responder.owed.emit_tail(&self.facts, sh, said, &mut b);
        self.passed_over = false;
        let sent = b.packets() as u64;
        sh.counters.tx_packets += sent;
        sent > 0
    }

    /// After the driver has taken the train: unreliable services complete what has been sent, and a
    /// request that could not be sent fails when its turn comes.
    pub(crate) fn settle<M: HostMemory>(&mut self, sh: &mut Shared<M>, now: Instant) {
        if !self.facts.kind.is_reliable() {
            self.requester.una = self.requester.nxt;
        }
        if requester::sends(self.facts.state) {
            let outcome = self.requester.retire(&self.facts, sh, now);
            self.settle_outcome(sh, now, outcome);
        }
    }

    /// The credit code for an acknowledgement: receive requests posted, or 31 where they are not
    /// counted.
    fn credits<M>(&self, sh: &Shared<M>) -> u8 {
        if sh.credits && self.facts.srq.is_none() && self.facts.kind == QpType::Rc {
            wire::aeth::credit_code(self.recv.len() as u32)
        } else {
            wire::aeth::NO_CREDITS
        }
    }

    /// The earliest time at which something happens by itself.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // In the rotation it is asked what it owes anyway, and its deadlines are looked at after
        // that.
        let owed = if self.ready { None } else { self.responder.owed.deadline() };
        let sends = requester::sends(self.facts.state);
        let requester = if sends { self.requester.deadline() } else { None };
        let limit = self.limit.deadline();
        [requester, owed, self.not_before, limit].into_iter().flatten().reduce(Instant::earlier)
    }

    /// Runs the timers that are due.
    pub(crate) fn timeout<M: HostMemory>(&mut self, sh: &mut Shared<M>, now: Instant) {
        if self.not_before.is_some_and(|at| at.is_due(now)) {
            self.not_before = None;
        }
        if self.limit.deadline().is_some_and(|at| at.is_due(now)) {
            self.limit_timeout(sh, now);
        }
        if requester::sends(self.facts.state) {
            self.requester.flow_timeout(&self.facts, sh, now);
            let outcome = self.requester.timeout(&self.facts, sh, now);
            self.settle_outcome(sh, now, outcome);
        }
    }
}
