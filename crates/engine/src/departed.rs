//! Queue pairs that are gone, or whose process is about to go. A requester whose last request was
//! executed but whose acknowledgement was lost would try again in vain and report an error for what
//! succeeded. So the last acknowledgement is repeated a few times after a queue pair has gone (or
//! has been moved to the error state, with which programs begin a disconnection), and for a while a
//! repeated SEND or WRITE is acknowledged as if the queue pair still stood. What it had not
//! executed stays unanswered, as do READs and atomics, whose answers went with it.

use std::collections::VecDeque;

use wire::{Aeth, Bth, Extensions, Instant, Msn, Operation, PKey, Packet, Path, Syndrome};

use crate::counters::pair::count;
use crate::device::Device;
use crate::limits::{DEPARTED, LAST_WORDS, LAST_WORDS_WITHIN, MAX_DEPARTED};
use crate::memory::{HostMemory, Payload};
use crate::qp::QueuePair;
use crate::qp::build::Builder;
use crate::qp::facts::{Draft, Facts};
use crate::sched::{Owner, Scheduler};
use crate::slots::Lookup;
use crate::train::{Train, TrainLimits};

/// What is left of a queue pair.
#[derive(Debug)]
pub(crate) struct Memory {
    qpn: u32,
    /// Tells it from another of the same queue pair.
    serial: u64,
    path: Path,
    bth: Bth,
    msn: Msn,
    /// The sequence after the last that was executed.
    expected: u64,
    /// When its peer last asked for something.
    heard: Instant,
    /// When it went, once the device has been told the time.
    left: Option<Instant>,
    /// Repetitions of the last acknowledgement that have been due.
    spoken: usize,
    wake: Option<Instant>,
    /// It stands in [`Departed::speaking`].
    speaks: bool,
}

/// The queue pairs that are gone.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    of: Lookup<u32, Memory>,
    /// In the order in which they went, each with its serial number; some are not there any more.
    order: VecDeque<(u32, u64)>,
    serials: u64,
    /// Not yet given a time.
    fresh: Vec<u32>,
    /// An acknowledgement is to leave.
    speaking: VecDeque<u32>,
    /// Repetitions that are still to come.
    to_come: usize,
}

impl Departed {
    /// Remembers a queue pair as it was; again only if more has been executed since.
    pub(crate) fn remember(&mut self, memory: Option<Memory>) {
        let Some(mut memory) = memory else { return };
        let qpn = memory.qpn;
        if self.of.get(&qpn).is_some_and(|old| old.expected == memory.expected) {
            return;
        }
        self.forget(qpn);
        while self.of.len() >= MAX_DEPARTED {
            let Some(oldest) = self.order.pop_front() else { break };
            self.forget_this(oldest);
        }
        self.serials += 1;
        memory.serial = self.serials;
        self.order.push_back((qpn, memory.serial));
        self.of.insert(qpn, memory);
        if self.order.len() > 2 * MAX_DEPARTED {
            let Self { order, of, .. } = self;
            order.retain(|(qpn, serial)| of.get(qpn).is_some_and(|m| m.serial == *serial));
        }
        self.fresh.push(qpn);
        if self.fresh.len() > 2 * MAX_DEPARTED {
            // The link has been down for long.
            let Self { fresh, of, .. } = self;
            fresh.sort_unstable();
            fresh.dedup();
            fresh.retain(|qpn| of.contains_key(qpn));
        }
        self.to_come += LAST_WORDS.len();
    }

    fn forget(&mut self, qpn: u32) {
        if let Some(memory) = self.of.remove(&qpn) {
            self.to_come -= LAST_WORDS.len() - memory.spoken;
        }
    }

    fn forget_this(&mut self, (qpn, serial): (u32, u64)) {
        if self.of.get(&qpn).is_some_and(|memory| memory.serial == serial) {
            self.forget(qpn);
        }
    }

    /// A queue pair connects. An acknowledgement does not say of which queue pair it is: those to
    /// the same one must not speak any more, nor what the queue pair itself was before.
    pub(crate) fn connects(&mut self, q: &Facts) {
        self.forget(q.qpn.get());
        let Some(path) = q.path else { return };
        for at in 0..self.order.len() {
            let Some(&(qpn, serial)) = self.order.get(at) else { break };
            let same = self.of.get(&qpn).is_some_and(|m| {
                let peer = (m.path.source, m.path.destination) == (path.source, path.destination);
                peer && m.bth.dest_qp == q.dest_qp && m.serial == serial
            });
            if same {
                self.forget(qpn);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    pub(crate) fn contains(&self, qpn: u32) -> bool {
        self.of.contains_key(&qpn)
    }

    /// Whether somebody waits for the time of day, or to speak.
    pub(crate) fn has_work(&self) -> bool {
        !self.fresh.is_empty() || !self.speaking.is_empty()
    }

    /// Whether the wake-up at `at` is awaited.
    pub(crate) fn awaits(&self, qpn: u32, at: Instant) -> bool {
        self.of.get(&qpn).is_some_and(|memory| memory.wake == Some(at))
    }

    /// Gives a time to those that have none, and their next wake-up.
    fn settle(&mut self, sched: &mut Scheduler, now: Instant) {
        while let Some(&oldest) = self.order.front() {
            let memory = self.of.get(&oldest.0).filter(|memory| memory.serial == oldest.1);
            let left = memory.map(|memory| memory.left);
            // Those behind it went later.
            if left.is_some_and(|left| left.is_none_or(|left| now.since(left) <= DEPARTED)) {
                break;
            }
            self.order.pop_front();
            self.forget_this(oldest);
        }
        while let Some(qpn) = self.fresh.pop() {
            let Some(memory) = self.of.get_mut(&qpn).filter(|m| m.left.is_none()) else { continue };
            memory.left = Some(now);
            if now.since(memory.heard) > LAST_WORDS_WITHIN {
                // Its peer has had time to try again while the queue pair stood.
                self.to_come -= LAST_WORDS.len();
                memory.spoken = LAST_WORDS.len();
                continue;
            }
            memory.plan(sched, qpn, now);
        }
    }

    /// The wake-up at `at` has come.
    pub(crate) fn timeout(&mut self, sched: &mut Scheduler, qpn: u32, at: Instant, now: Instant) {
        let Some(memory) = self.of.get_mut(&qpn).filter(|m| m.wake == Some(at)) else { return };
        memory.spoken += 1;
        self.to_come -= 1;
        memory.plan(sched, qpn, now);
        if !std::mem::replace(&mut memory.speaks, true) {
            self.speaking.push_back(qpn);
        }
    }

    /// Takes a packet for a queue pair that is not there: what it says.
    pub(crate) fn receive(&mut self, now: Instant, packet: &Packet<Payload<'_>>) -> Heard {
        let qpn = packet.bth.dest_qp.get();
        let Some(memory) = self.of.get_mut(&qpn) else { return Heard::Unknown };
        if memory.left.is_some_and(|left| now.since(left) > DEPARTED) {
            self.forget(qpn);
            return Heard::Unknown;
        }
        let path = &packet.path;
        if path.source != memory.path.destination || path.destination != memory.path.source {
            return Heard::Unknown;
        }
        let opcode = packet.bth.opcode;
        let Some(operation) = opcode.operation() else { return Heard::Unknown };
        if opcode.service() != memory.bth.opcode.service()
            || !packet.bth.pkey.matches(PKey::DEFAULT)
        {
            return Heard::Unknown;
        }
        if !operation.is_request() {
            return Heard::Response;
        }
        let executed = packet.bth.psn.expand(memory.expected) < memory.expected;
        if !executed || !(operation.is_send() || operation.is_write()) {
            return Heard::Unknown;
        }
        if !std::mem::replace(&mut memory.speaks, true) {
            self.speaking.push_back(qpn);
        }
        Heard::Again
    }

    /// Fills the train with the next acknowledgement; false if there is none.
    fn emit<'a>(
        &mut self,
        living: impl Fn(u32) -> Option<&'a QueuePair>,
        train: &mut Train,
    ) -> bool {
        while let Some(qpn) = self.speaking.pop_front() {
            let Some(memory) = self.of.get_mut(&qpn) else { continue };
            if !std::mem::take(&mut memory.speaks) {
                continue;
            }
            if let Some(qp) = living(qpn) {
                memory.catch_up(qp);
            }
            let syndrome = Syndrome::Ack(wire::aeth::NO_CREDITS);
            let aeth = Some(Aeth { syndrome, msn: memory.msn });
            let ext = Extensions { aeth, ..Extensions::default() };
            let mut b = Builder::new(train, TrainLimits::SINGLE);
            b.push(&memory.path, &Draft { bth: memory.bth, ext, length: 0, again: true });
            return true;
        }
        false
    }
}

impl Memory {
    /// What is to be remembered of a queue pair, if its peer may still wait for an acknowledgement.
    pub(crate) fn of(qp: &QueuePair) -> Option<Self> {
        let (q, responder) = (&qp.facts, &qp.responder);
        let (path, heard) = (q.path?, responder.heard?);
        q.kind.is_reliable().then(|| Self {
            qpn: q.qpn.get(),
            serial: 0,
            path,
            bth: q.bth(Operation::Acknowledge, responder.expected - 1),
            msn: responder.msn,
            expected: responder.expected,
            heard,
            left: None,
            spoken: 0,
            wake: None,
            speaks: false,
        })
    }

    /// As much has been executed now.
    fn catch_up(&mut self, qp: &QueuePair) {
        let Some(now) = Self::of(qp).filter(|now| now.expected > self.expected) else { return };
        (self.bth, self.msn, self.expected) = (now.bth, now.msn, now.expected);
    }

    fn plan(&mut self, sched: &mut Scheduler, qpn: u32, now: Instant) {
        let left = self.left.unwrap_or(now);
        self.wake = LAST_WORDS.get(self.spoken).map(|&after| left + after);
        if let Some(at) = self.wake {
            sched.wake_at(Owner::Departed(qpn), at);
        }
    }
}

/// What a packet for a queue pair that is gone says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Nothing that could be answered.
    Unknown,
    /// A request again that had been executed: it is acknowledged.
    Again,
    /// A response: nobody waits for it.
    Response,
}

impl<M: HostMemory> Device<M> {
    /// The application is about to go: what is owed leaves at the next `poll_transmit`, and the
    /// last acknowledgement of every queue pair is repeated a few times as if it had been
    /// destroyed. See [`is_departing`](Self::is_departing).
    pub fn depart(&mut self) {
        self.hasten();
        for (_, qp) in self.qps.iter() {
            self.departed.remember(Memory::of(qp));
        }
    }

    /// Whether last acknowledgements are still to be repeated. A driver that closes goes on until
    /// this is false, which takes [`limits::LAST_WORDS`](crate::limits::LAST_WORDS).
    pub fn is_departing(&self) -> bool {
        self.departed.to_come > 0 || self.departed.has_work()
    }

    /// What destroyed queue pairs have to say.
    pub(crate) fn transmit_departed(&mut self, now: Instant, train: &mut Train) -> bool {
        if !self.departed.has_work() {
            return false;
        }
        self.departed.settle(&mut self.sched, now);
        let (qps, by_qpn) = (&self.qps, &self.by_qpn);
        let sent = self.departed.emit(|qpn| qps.get(*by_qpn.get(&qpn)?), train);
        self.shared.counters.tx_packets += u64::from(sent);
        self.shared.counters.tx_acks += u64::from(sent);
        self.shared.counters.tx_ack_packets += u64::from(sent);
        sent
    }

    /// A packet for a queue pair that does not exist, or that `stands` (its index) but is not ready
    /// to receive.
    pub(crate) fn receive_departed(
        &mut self,
        now: Instant,
        packet: &Packet<Payload<'_>>,
        stands: Option<u32>,
    ) {
        let heard = self.departed.receive(now, packet);
        let sh = &mut self.shared;
        match (heard, stands) {
            (Heard::Unknown, Some(index)) => count!(sh, index, rx_wrong_state),
            (Heard::Again, Some(index)) => count!(sh, index, duplicate_request),
            (Heard::Response, Some(index)) => count!(sh, index, rx_stale_ack),
            (Heard::Unknown, None) => sh.counters.rx_unknown_qp += 1,
            (Heard::Again, None) => sh.counters.duplicate_request += 1,
            (Heard::Response, None) => sh.counters.rx_stale_ack += 1,
        }
    }
}
