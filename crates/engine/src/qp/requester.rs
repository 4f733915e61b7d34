//! The requester: send queue to packets. What comes back is handled in `acks`. It never calls the
//! responder. Retransmission is moving `nxt` back; no packet is kept.

use wire::{Instant, Operation, Span};

use crate::attr::{QpCap, QpState, QpType};
use crate::counters::pair::count;
use crate::limits;
use crate::memory::HostMemory;
use crate::qp::build::Builder;
use crate::qp::facts::{Facts, Shared, wire_len};
use crate::qp::flow::FlowPlace;
use crate::qp::inflight::InFlight;
use crate::qp::probe::Probe;
use crate::qp::send_queue::{SendQueue, Wqe, operation};
use crate::regions::AccessFault;
use crate::window;
use crate::work::{Completion, SendOp, WcStatus};

/// The requester of a queue pair. Sequences are PSNs expanded to 64 bits.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    /// Oldest unacknowledged; next to send; one past the highest ever sent.
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) max: u64,
    /// Work request that holds `nxt` (or follows all that have been sent).
    pub(crate) cursor: usize,
    /// First sequence of the next request to start.
    next_start: u64,
    pub(crate) flight: InFlight,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) ack_deadline: Option<Instant>,
    /// ACK timeouts in a row, without progress between them.
    pub(crate) timeouts: u8,
    /// Oldest unacknowledged when something was last found lost, and the window's cut of then.
    lost: (u64, u64),
    /// Nothing is sent before this, after an RNR NAK for that sequence.
    pub(crate) rnr: Option<(Instant, u64)>,
    /// The gap in responses that has been asked for again.
    pub(crate) implied_for: Option<u64>,
    /// Messages started, and acknowledged.
    pub(crate) messages: u64,
    pub(crate) acked_messages: u64,
    /// End-to-end credits: the last message that may go.
    pub(crate) credit_limit: Option<u64>,
    pub(crate) since_ack_request: u64,
    /// One past the last packet in flight that asked for an acknowledgement.
    pub(crate) asked: u64,
    /// It has waited for the window long enough for one packet.
    pub(crate) patient: bool,
    /// How far the peer had come when the wait began.
    waited_from: u64,
    /// Ends of the READ requests asked for, in order: a repetition must not reach across one of
    /// them, for it must lie within one that the peer has executed.
    read_ends: std::collections::VecDeque<u64>,
    /// Finish messages begun, begin no other (SQD).
    pub(crate) draining: bool,
    pub(crate) probe: Probe,
    /// Of an unreliable service.
    pub(crate) flow: FlowPlace,
}

/// A work request that ends the queue pair's service, by its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fatal {
    pub(crate) wr_id: u64,
    pub(crate) status: WcStatus,
}

/// What the next request packet is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) operation: Operation,
    /// Bytes into the message, and in the packet.
    pub(crate) offset: u32,
    pub(crate) length: u32,
    /// For a READ request: response packets and bytes asked for.
    pub(crate) asked: (u32, u32),
    pub(crate) last: bool,
}

impl Requester {
    pub(crate) fn new(cap: QpCap, signal_all: bool) -> Self {
        Self {
            queue: SendQueue::new(cap, signal_all),
            una: 0,
            nxt: 0,
            max: 0,
            cursor: 0,
            next_start: 0,
            flight: InFlight::default(),
            retries: 0,
            rnr_retries: 0,
            ack_deadline: None,
            timeouts: 0,
            lost: (0, 0),
            rnr: None,
            implied_for: None,
            messages: 0,
            acked_messages: 0,
            credit_limit: None,
            since_ack_request: 0,
            asked: 0,
            patient: false,
            waited_from: 0,
            read_ends: std::collections::VecDeque::new(),
            draining: false,
            probe: Probe::default(),
            flow: FlowPlace::default(),
        }
    }

    /// Begins at a sequence whose low 24 bits are the starting PSN.
    pub(crate) fn start_at(&mut self, psn: wire::Psn) {
        // High enough that no sequence of a stale response falls below zero.
        let seq = (1 << 32) | u64::from(psn.get());
        (self.una, self.nxt, self.max, self.next_start) = (seq, seq, seq, seq);
    }

    /// Whether no message has been begun and not finished.
    pub(crate) fn is_drained(&self) -> bool {
        !self.queue.wqes.front().is_some_and(|w| w.started)
    }

    /// Whether the oldest request is complete, or has failed at this side.
    pub(crate) fn front_is_done(&self) -> bool {
        let done = |w: &Wqe| w.failed.is_some() || (w.started && w.end <= self.una);
        self.queue.wqes.front().is_some_and(done)
    }

    /// Puts request packets into a train.
    pub(crate) fn emit<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        b: &mut Builder<'_>,
    ) {
        while let Some((wqe, next)) = self.peek(q, sh, now) {
            let Some(path) = self.path(q, sh, &wqe) else {
                return self.set_failed(WcStatus::LocQpOpErr);
            };
            let len = wire_len(q.service(), next.operation, next.length);
            let same_target = self
                .queue
                .datagram(&wqe)
                .is_none_or(|d| b.dest_qp().is_none_or(|qpn| qpn == d.dest_qp));
            if !same_target || !b.fits(&path, len) {
                return;
            }
            if next.length > 0
                && let Err(AccessFault) = self.gather(q, sh, &wqe, next.offset, next.length, b)
            {
                // Those before it may still succeed; it fails when its turn comes.
                return self.set_failed(WcStatus::LocProtErr);
            }
            if next.length == 0 {
                b.pieces();
            }
            let draft = self.draft(q, sh, &wqe, &next);
            self.commit(q, sh, now, &next, (len, draft.bth.ack_request));
            b.push(&path, &draft);
            sh.counters.leaves(next.operation, next.length);
        }
    }

    /// Finds the next request packet, executing local operations on the way. `None` if there is
    /// nothing to send, or something must come first; whatever ends the wait wakes the queue pair.
    fn peek<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
    ) -> Option<(Wqe, Next)> {
        if self.rnr.is_some_and(|(until, of)| !until.is_due(now) && self.nxt >= of) {
            return None;
        }
        loop {
            let wqe = *self.queue.wqes.get(self.cursor)?;
            if wqe.failed.is_some() {
                return None;
            }
            if !wqe.started {
                if self.draining || !self.may_start(q, sh, &wqe) {
                    return None;
                }
                self.start(q, sh, &wqe);
                continue;
            }
            if self.nxt >= wqe.end {
                self.cursor += 1;
                continue;
            }
            let next = self.next_of(q, sh, now, &wqe)?;
            return Some((wqe, next));
        }
    }

    /// Whether a request may begin now.
    fn may_start<M>(&mut self, q: &Facts, sh: &mut Shared<M>, wqe: &Wqe) -> bool {
        if !q.kind.is_reliable() {
            return true;
        }
        if wqe.fence && self.flight.fetches() > 0 {
            return false;
        }
        let packets = u64::from(wqe.packets(q.mtu));
        if self.next_start + packets - self.una > limits::MAX_PSN_OUTSTANDING
            && self.una != self.next_start
        {
            return false;
        }
        if wqe.consumes_receive()
            && let Some(limit) = self.credit_limit
            // One message beyond the limit may go as a probe, and one whenever nothing is out.
            && self.messages > limit
            && self.una != self.next_start
        {
            return false;
        }
        // A READ is checked against its own buffer before it is asked for.
        if wqe.is_fetch() {
            if q.max_rd_atomic == 0 {
                self.set_failed(WcStatus::LocQpOpErr);
                return false;
            }
            let mut sges = self.queue.sges(wqe).iter().filter(|s| s.length > 0);
            let usable = sges
                .all(|s| sh.regions.local(s.lkey, q.pd, s.addr, u64::from(s.length), true).is_ok());
            if !usable {
                self.set_failed(WcStatus::LocProtErr);
                return false;
            }
        }
        true
    }

    /// The request at the cursor fails once all before it have been acknowledged: what has left it
    /// to this one to ask for that is asked for by a probe.
    fn set_failed(&mut self, status: WcStatus) {
        if self.since_ack_request > 0 {
            self.probe.hurry();
        }
        if let Some(w) = self.queue.wqes.get_mut(self.cursor) {
            w.failed = Some(status);
        }
    }

    /// Gives a request its sequences; executes a local one.
    fn start<M>(&mut self, q: &Facts, sh: &mut Shared<M>, wqe: &Wqe) {
        let failed = match wqe.op {
            SendOp::LocalInvalidate(key) => {
                sh.regions.invalidate(q.pd, q.qpn, key).err().map(|_| WcStatus::MwBindErr)
            }
            SendOp::BindWindow(bind) => {
                sh.regions.bind(q.pd, q.qpn, &bind).err().map(|_| WcStatus::MwBindErr)
            }
            _ => None,
        };
        let mut packets = u64::from(wqe.packets(q.mtu));
        if matches!(q.kind, QpType::Ud | QpType::Gsi) && wqe.length > q.mtu {
            // The specification has it so: nothing leaves, and it completes with success.
            count!(sh, q.index, tx_datagram_too_long);
            packets = 0;
        }
        if packets > 0 {
            self.messages += 1;
            sh.count_begun(q.index, &wqe.op);
        }
        let (start, message) = (self.next_start, self.messages);
        self.next_start += packets;
        if let Some(w) = self.queue.wqes.get_mut(self.cursor) {
            w.started = true;
            w.start = start;
            w.end = start + packets;
            w.message = message;
            w.failed = failed;
        }
    }

    /// The packet at `nxt`, if it may go now.
    fn next_of<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        wqe: &Wqe,
    ) -> Option<Next> {
        let done = (self.nxt - wqe.start) as u32;
        let offset = done * q.mtu;
        let rest = wqe.length - offset;
        match wqe.op {
            SendOp::Read(_) => {
                if self.flight.fetches() >= u32::from(q.max_rd_atomic) {
                    return None;
                }
                let patient = self.patient;
                if !self.window_admits(q, sh, now, wire_len(q.service(), Operation::ReadRequest, 0))
                {
                    return None;
                }
                let packet = window::cost(q.mtu as usize + 20);
                let until = self.read_ends.iter().find(|&&end| end > self.nxt);
                let wanted = *until.unwrap_or(&wqe.end) - self.nxt;
                let mut room = sh.windows.read_room(q.index, q.peer, packet, wanted);
                if room == 0 && self.flight.is_empty() {
                    // Others hold our own buffer: as with the peer's window, not for ever.
                    self.be_patient(q, sh, now);
                    room = u64::from(patient);
                    self.patient = false;
                }
                let left = wanted.min(room) as u32;
                if left == 0 {
                    return None;
                }
                let bytes = rest.min(left.saturating_mul(q.mtu));
                let asked = (left, bytes);
                Some(Next {
                    operation: Operation::ReadRequest,
                    offset,
                    length: 0,
                    asked,
                    last: true,
                })
            }
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                if self.flight.fetches() >= u32::from(q.max_rd_atomic) {
                    return None;
                }
                let operation = match wqe.op {
                    SendOp::FetchAdd { .. } => Operation::FetchAdd,
                    _ => Operation::CompareSwap,
                };
                if !self.window_admits(q, sh, now, wire_len(q.service(), operation, 0)) {
                    return None;
                }
                Some(Next { operation, offset: 0, length: 0, asked: (1, 8), last: true })
            }
            _ => {
                let length = rest.min(q.mtu);
                let last = rest <= q.mtu;
                let operation = operation(&wqe.op, done == 0, last);
                if !self.window_admits(q, sh, now, wire_len(q.service(), operation, length)) {
                    return None;
                }
                Some(Next { operation, offset, length, asked: (1, 0), last })
            }
        }
    }

    /// Whether the peer's window has room. Where it has none, one packet that asks for an answer
    /// goes beyond it behind packets that did not ask, and one after a patient wait with nothing in
    /// flight: other queue pairs may hold the window for long.
    fn window_admits<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        wire_len: usize,
    ) -> bool {
        if !q.kind.is_reliable() {
            return self.flow_admits(q, sh, now, wire_len);
        }
        if sh.windows.admits(q.peer, q.index, window::cost(wire_len)) {
            return true;
        }
        if !self.flight.is_empty() {
            return self.since_ack_request > 0 && !self.awaits_ack();
        }
        self.be_patient(q, sh, now);
        std::mem::take(&mut self.patient)
    }

    /// Whether an acknowledgement that has been asked for is still to come.
    pub(crate) fn awaits_ack(&self) -> bool {
        self.asked > self.una
    }

    /// With nothing in flight: after this time one packet goes beyond what has room.
    fn be_patient<M>(&mut self, q: &Facts, sh: &Shared<M>, now: Instant) {
        if self.ack_deadline.is_none() {
            self.ack_deadline = Some(now + limits::WINDOW_PATIENCE);
            self.waited_from = sh.windows.progress(q.peer);
        }
    }

    /// Patience has run out. While the peer takes what others send, waiting goes on: the turn
    /// comes, and a packet of each of a thousand that wait would be far more than it has room for.
    pub(crate) fn end_patience<M>(&mut self, q: &Facts, sh: &Shared<M>, now: Instant) {
        self.ack_deadline = None;
        if self.waited_from == sh.windows.progress(q.peer) {
            self.patient = true;
        } else {
            self.be_patient(q, sh, now);
        }
    }

    /// The packet has been put into the train.
    fn commit<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        next: &Next,
        (wire_len, asks): (usize, bool),
    ) {
        let (start, end) = (self.nxt, self.nxt + u64::from(next.asked.0));
        if q.kind.is_reliable() {
            if self.flight.is_empty() || self.ack_deadline.is_none() {
                self.ack_deadline = self.times_out(q, sh, now);
                self.probe.restart(sh.patience.span(q, now), q, now);
            }
            let cost = window::cost(wire_len);
            let fetch = next.asked.1 > 0 || next.operation == Operation::ReadRequest;
            if fetch {
                let full = window::cost(q.mtu as usize + 20);
                let read = if next.asked.1 > q.mtu {
                    full * u64::from(next.asked.0)
                } else {
                    window::cost(next.asked.1 as usize + 20)
                };
                if next.operation == Operation::ReadRequest {
                    self.remember_read(end);
                }
                self.flight.asked(&mut sh.windows, q.peer, start..end, (cost, read));
            } else {
                self.flight.sent(&mut sh.windows, q.peer, start, end, cost);
            }
            if start < self.max {
                count!(sh, q.index, retransmitted_packets);
                count!(sh, q.index, retransmitted_bytes, next.length.into());
            }
        } else {
            self.flow_sent(q, sh, now, next, wire_len);
        }
        if asks && q.kind.is_reliable() {
            self.probe.sample(end, now);
            self.asked = end;
        }
        self.since_ack_request = if asks { 0 } else { self.since_ack_request + 1 };
        self.nxt = end;
        self.max = self.max.max(end);
    }

    /// Something from `una` on is lost. The peer takes nothing behind a gap, so all from there on
    /// has been sent after it was found: a gap further on is another loss.
    pub(crate) fn lose<M>(&mut self, q: &Facts, sh: &mut Shared<M>, timeout: bool) {
        let since = if self.una > self.lost.0 { self.lost.1 } else { 0 };
        self.lost = (self.una, sh.windows.lost(q.peer, timeout, since));
    }

    /// Moves back to `seq`, an unacknowledged sequence.
    pub(crate) fn go_back<M>(&mut self, q: &Facts, sh: &mut Shared<M>, seq: u64) {
        self.flight.recalled(&mut sh.windows, q.peer, seq);
        self.nxt = seq;
        if self.flight.is_empty() {
            self.ack_deadline = None;
            self.probe.stop();
        }
        self.probe.forget_sample();
        self.since_ack_request = 0;
        self.asked = seq;
        self.cursor = self.queue.wqes.partition_point(|w| w.started && w.end <= seq);
    }

    /// Notes the end of a READ request, of a repetition too: it may be the first that the peer
    /// sees.
    pub(crate) fn remember_read(&mut self, end: u64) {
        let at = self.read_ends.partition_point(|&other| other < end);
        if self.read_ends.get(at) != Some(&end) {
            self.read_ends.insert(at, end);
        }
    }

    /// Forgets the READ requests that have been answered in full.
    pub(crate) fn forget_reads(&mut self) {
        while self.read_ends.front().is_some_and(|&end| end <= self.una) {
            self.read_ends.pop_front();
        }
    }

    /// Completes what is done, in order. The first that has failed is returned.
    pub(crate) fn retire<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
    ) -> Result<(), Fatal> {
        while let Some(w) = self.queue.wqes.front() {
            if let Some(status) = w.failed {
                return Err(Fatal { wr_id: w.wr_id, status });
            }
            if !w.started || w.end > self.una {
                break;
            }
            self.acked_messages = w.message;
            let entry = Completion {
                wr_id: w.wr_id,
                status: WcStatus::Success,
                opcode: w.wc_opcode(),
                byte_len: w.length,
                qp: q.qpn,
                ..Completion::default()
            };
            let signaled = w.signaled;
            self.queue.wqes.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
            if signaled {
                sh.complete(q.send_cq, now, entry);
            }
        }
        Ok(())
    }

    /// Completes every request left as flushed; the first of them with `first`, if given.
    pub(crate) fn flush<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        first: Option<Fatal>,
    ) {
        let mut status = first.map(|f| f.status);
        let una = self.una;
        self.flight.acknowledged(&mut sh.windows, q.peer, una);
        self.flight.recalled(&mut sh.windows, q.peer, 0);
        while let Some(w) = self.queue.wqes.pop_front() {
            let status = status.take().unwrap_or(WcStatus::WrFlushErr);
            sh.fail(q.send_cq, now, q.qpn, w.wr_id, status);
            count!(sh, q.index, req_cqe_error);
            count!(sh, q.index, req_cqe_flush_error, u64::from(status == WcStatus::WrFlushErr));
        }
        self.cursor = 0;
        self.nxt = self.una;
        self.next_start = self.max;
        self.ack_deadline = None;
        self.probe.stop();
        self.rnr = None;
    }

    /// The span to the next ACK timeout is counted from now; with nothing in flight, from the next
    /// packet.
    pub(crate) fn restart_timer<M>(&mut self, q: &Facts, sh: &Shared<M>, now: Instant) {
        let waits = q.kind.is_reliable() && !self.flight.is_empty();
        self.ack_deadline = if waits { self.times_out(q, sh, now) } else { None };
        self.probe.restart(sh.patience.span(q, now).filter(|_| waits), q, now);
    }

    /// When the next ACK timeout ends that begins now: after once the time, or up to four times
    /// (which devices may take) where the last ones give a peer more that is only slow. With seven
    /// retries all of it is twice what it would be.
    fn times_out<M>(&self, q: &Facts, sh: &Shared<M>, now: Instant) -> Option<Instant> {
        let late = if sh.back_off { self.timeouts / 2 } else { 0 };
        q.timeout.map(|t| now + t.times(1 << late.saturating_sub(1).min(2)))
    }
}

/// The ACK timeout of a code.
pub(crate) fn ack_timeout(code: u8) -> Option<Span> {
    wire::aeth::ack_timeout(code)
}

/// Whether the state lets the requester send.
pub(crate) fn sends(state: QpState) -> bool {
    matches!(state, QpState::Rts | QpState::Sqd)
}
