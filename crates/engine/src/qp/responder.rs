//! The responder: admits requests in the order of checks of the transport rules, executes them, and
//! notes what is owed. It never calls the requester and never sends; `replies` does.

mod answer;

use std::collections::VecDeque;

use wire::{Instant, Msn, NakCode, Operation, Packet, Position, RKey, Syndrome};

use crate::attr::{QpState, QpType};
use crate::counters::pair::{count, count_traffic};
use crate::event::AsyncEvent;
use crate::limits;
use crate::memory::{AtomicOp, HostMemory, Payload};
use crate::qp::acks::{ScatterFault, scatter};
use crate::qp::facts::{Facts, Shared};
use crate::qp::refusal::{Broken, Fault};
use crate::qp::replies::{Owed, Reply};
use crate::srq::{RecvQueue, Taken};
use crate::work::{Access, Completion, WcData, WcOpcode, WcStatus};

/// The responder of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// Next sequence to execute.
    pub(crate) expected: u64,
    pub(crate) msn: Msn,
    /// When a SEND or WRITE last came that was executed, then or before; `None` if something else
    /// has been asked for since, or refused.
    pub(crate) heard: Option<Instant>,
    silent: Silent,
    message: Option<Message>,
    pub(crate) taken: Taken,
    pub(crate) holds_receive: bool,
    pub(crate) owed: Owed,
    replay: VecDeque<Replay>,
    /// UC: packets are ignored until a message begins.
    resync: bool,
}

/// Why requests ahead are dropped without a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Silent {
    #[default]
    No,
    /// A sequence NAK has asked for the expected one.
    SequenceNak,
    /// An RNR NAK has asked for it, later.
    RnrNak,
}

/// The message in progress.
#[derive(Clone, Copy, Debug)]
enum Message {
    Send { offset: u64 },
    Write { va: u64, rkey: RKey, length: u64, offset: u64 },
}

/// A READ or atomic executed, kept for duplicates.
#[derive(Clone, Copy, Debug)]
struct Replay {
    start: u64,
    end: u64,
    /// An atomic's result.
    value: Option<u64>,
}

impl Responder {
    /// Begins at a PSN.
    pub(crate) fn start_at(&mut self, psn: wire::Psn) {
        self.expected = (1 << 32) | u64::from(psn.get());
        self.resync = false;
    }

    /// Takes a request of a reliable connection.
    pub(crate) fn request<M: HostMemory>(
        &mut self,
        q: &Facts,
        recv: &mut RecvQueue,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) -> Result<(), Broken> {
        let seq = packet.bth.psn.expand(self.expected);
        if seq < self.expected {
            self.duplicate(q, sh, now, operation, seq, packet);
            return Ok(());
        }
        if seq > self.expected {
            count!(sh, q.index, out_of_sequence);
            count!(sh, q.index, rx_beyond_expected);
            if self.silent == Silent::No {
                self.silent = Silent::SequenceNak;
                self.owed.nak(self.expected, Syndrome::Nak(NakCode::PsnSequenceError));
            } else {
                count!(sh, q.index, rx_after_nak);
            }
            return Ok(());
        }
        match self.execute(q, recv, sh, now, operation, packet) {
            Ok(psns) => {
                sh.counters.rx_accepted += 1;
                self.silent = Silent::No;
                self.expected += psns;
                let replied = operation == Operation::ReadRequest || operation.is_atomic();
                self.heard = (!replied).then_some(now);
                if packet.bth.ack_request && !replied {
                    self.owe_ack(q, sh, now);
                }
                Ok(())
            }
            Err(fault) => self.answer(q, sh, now, fault),
        }
    }

    /// Owes the NAK of a fault, completes the receive request it struck, says what event follows.
    fn refuse<M>(&mut self, q: &Facts, sh: &mut Shared<M>, now: Instant, fault: Fault) -> Broken {
        let code = match fault {
            Fault::Access => NakCode::RemoteAccessError,
            Fault::Receive | Fault::Operational => NakCode::RemoteOperationalError,
            Fault::Invalid | Fault::TooLong | Fault::NotReady => NakCode::InvalidRequest,
        };
        self.heard = None;
        self.owed.nak(self.expected, Syndrome::Nak(code));
        self.owed.finish();
        sh.count_fault(q, fault);
        let status = match fault {
            Fault::TooLong => Some(WcStatus::LocLenErr),
            Fault::Receive => Some(WcStatus::LocProtErr),
            _ => None,
        };
        if let Some(status) = status
            && self.holds_receive
        {
            self.fail_receive(q, sh, now, status);
            return Broken { event: None };
        }
        let event = match fault {
            Fault::Access | Fault::Operational => AsyncEvent::QpAccessErr(q.qpn),
            _ => AsyncEvent::QpReqErr(q.qpn),
        };
        Broken { event: Some(event) }
    }

    /// Completes the receive request that is held in error.
    pub(crate) fn fail_receive<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        status: WcStatus,
    ) {
        self.holds_receive = false;
        count!(sh, q.index, resp_cqe_error);
        sh.fail(q.recv_cq, now, q.qpn, self.taken.wr_id, status);
    }

    /// Executes the expected request; the number of sequences that it took.
    fn execute<M: HostMemory>(
        &mut self,
        q: &Facts,
        recv: &mut RecvQueue,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) -> Result<u64, Fault> {
        if q.kind == QpType::XrcRecv && q.srq.is_none() {
            return Err(Fault::Invalid);
        }
        self.check_sequence(operation)?;
        match operation {
            Operation::ReadRequest => self.read(q, sh, packet),
            Operation::CompareSwap | Operation::FetchAdd => self.atomic(q, sh, operation, packet),
            _ if operation.is_send() => {
                self.send(q, recv, sh, now, operation, packet)?;
                Ok(1)
            }
            _ if operation.is_write() => {
                self.write(q, recv, sh, now, operation, packet)?;
                Ok(1)
            }
            _ => Err(Fault::Invalid),
        }
    }

    /// First, middle, last and only in their order, and of one kind.
    fn check_sequence(&self, operation: Operation) -> Result<(), Fault> {
        let begins = matches!(operation.position(), Position::First | Position::Only);
        let right = match &self.message {
            None => begins,
            Some(Message::Send { .. }) => operation.is_send() && !begins,
            Some(Message::Write { .. }) => operation.is_write() && !begins,
        };
        if right { Ok(()) } else { Err(Fault::Invalid) }
    }

    fn read<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        packet: &Packet<Payload<'_>>,
    ) -> Result<u64, Fault> {
        let reth = packet.ext.reth.ok_or(Fault::Invalid)?;
        if !q.access.contains(Access::REMOTE_READ)
            || self.owed.replies() >= usize::from(q.max_dest_rd_atomic)
            || reth.length > limits::MAX_MESSAGE
        {
            return Err(Fault::Invalid);
        }
        if reth.length > 0 {
            let whole = u64::from(reth.length);
            sh.regions
                .remote(reth.rkey, (q.pd, q.qpn), reth.va, whole, Access::REMOTE_READ)
                .map_err(|_| Fault::Access)?;
        }
        let packets = u64::from(reth.length.div_ceil(q.mtu).max(1));
        self.msn = self.msn.next();
        count_traffic!(sh, q.index, rx_read_requests);
        self.owed.reply(Reply::read(self.expected, packets, (reth, q.pd), self.msn));
        self.remember(
            q,
            Replay { start: self.expected, end: self.expected + packets, value: None },
        );
        Ok(packets)
    }

    fn atomic<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) -> Result<u64, Fault> {
        let eth = packet.ext.atomic.ok_or(Fault::Invalid)?;
        if !q.access.contains(Access::REMOTE_ATOMIC)
            || self.owed.replies() >= usize::from(q.max_dest_rd_atomic)
        {
            return Err(Fault::Invalid);
        }
        let host = sh
            .regions
            .remote(eth.rkey, (q.pd, q.qpn), eth.va, 8, Access::REMOTE_ATOMIC)
            .map_err(|_| Fault::Access)?;
        if eth.va % 8 != 0 || host % 8 != 0 {
            return Err(Fault::Invalid);
        }
        let op = match operation {
            Operation::FetchAdd => AtomicOp::FetchAdd { add: eth.swap_add },
            _ => AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_add },
        };
        let value = sh.atomic(host, op).map_err(|_| Fault::Operational)?;
        self.msn = self.msn.next();
        count_traffic!(sh, q.index, rx_atomic_requests);
        self.owed.reply(Reply::atomic(self.expected, value, self.msn));
        let (start, end) = (self.expected, self.expected + 1);
        self.remember(q, Replay { start, end, value: Some(value) });
        Ok(1)
    }

    fn remember(&mut self, q: &Facts, replay: Replay) {
        while self.replay.len() >= usize::from(q.max_dest_rd_atomic).max(1) {
            self.replay.pop_front();
        }
        self.replay.push_back(replay);
    }

    /// Takes a receive request, if none is held.
    pub(crate) fn take_receive<M>(
        &mut self,
        q: &Facts,
        recv: &mut RecvQueue,
        sh: &mut Shared<M>,
    ) -> Result<(), Fault> {
        if self.holds_receive {
            return Ok(());
        }
        let taken = match q.srq {
            None => recv.take(&mut self.taken),
            Some(id) => take_shared(id, sh, &mut self.taken),
        };
        self.holds_receive = taken;
        if taken { Ok(()) } else { Err(Fault::NotReady) }
    }

    fn send<M: HostMemory>(
        &mut self,
        q: &Facts,
        recv: &mut RecvQueue,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) -> Result<(), Fault> {
        let offset = match self.message {
            Some(Message::Send { offset }) => offset,
            _ => 0,
        };
        if offset == 0 {
            self.take_receive(q, recv, sh)?;
        }
        check_length(operation, packet.payload.len(), q.mtu)?;
        let end = offset + packet.payload.len() as u64;
        if end > u64::from(limits::MAX_MESSAGE) {
            return Err(Fault::Invalid);
        }
        place_received(q, sh, &self.taken, offset, packet.payload)?;
        if matches!(operation.position(), Position::First | Position::Middle) {
            self.message = Some(Message::Send { offset: end });
            return Ok(());
        }
        if let Some(key) = packet.ext.invalidate {
            sh.regions.invalidate(q.pd, q.qpn, key).map_err(|_| Fault::Access)?;
        }
        self.message = None;
        self.msn = self.msn.next();
        count_traffic!(sh, q.index, rx_send_requests);
        let data = match (packet.ext.imm, packet.ext.invalidate) {
            (Some(imm), _) => WcData::Imm(imm),
            (_, Some(key)) => WcData::Invalidated(key),
            _ => WcData::None,
        };
        self.received(q, sh, now, WcOpcode::Recv, end as u32, data, packet);
        Ok(())
    }

    fn write<M: HostMemory>(
        &mut self,
        q: &Facts,
        recv: &mut RecvQueue,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) -> Result<(), Fault> {
        if !q.access.contains(Access::REMOTE_WRITE) {
            return Err(Fault::Invalid);
        }
        if packet.ext.imm.is_some() {
            self.take_receive(q, recv, sh)?;
        }
        check_length(operation, packet.payload.len(), q.mtu)?;
        let (va, rkey, length, offset) = match (self.message, packet.ext.reth) {
            (Some(Message::Write { va, rkey, length, offset }), _) => (va, rkey, length, offset),
            (_, Some(reth)) => (reth.va, reth.rkey, u64::from(reth.length), 0),
            _ => return Err(Fault::Invalid),
        };
        let bytes = packet.payload.len() as u64;
        let last = matches!(operation.position(), Position::Last | Position::Only);
        let right_length = if last { offset + bytes == length } else { offset + bytes < length };
        if length > u64::from(limits::MAX_MESSAGE) || !right_length {
            return Err(Fault::Invalid);
        }
        if length > 0 {
            // The whole range at the first packet; later ones look again, for the region may go.
            let (at, len) = if offset == 0 { (va, length) } else { (va + offset, bytes) };
            let host = sh
                .regions
                .remote(rkey, (q.pd, q.qpn), at, len, Access::REMOTE_WRITE)
                .map_err(|_| Fault::Access)?;
            sh.write(host, packet.payload).map_err(|_| Fault::Operational)?;
        }
        sh.counters.rx_bytes += bytes;
        if !last {
            self.message = Some(Message::Write { va, rkey, length, offset: offset + bytes });
            return Ok(());
        }
        self.message = None;
        self.msn = self.msn.next();
        count_traffic!(sh, q.index, rx_write_requests);
        if let Some(imm) = packet.ext.imm {
            let opcode = WcOpcode::RecvRdmaWithImm;
            self.received(q, sh, now, opcode, length as u32, WcData::Imm(imm), packet);
        }
        Ok(())
    }

    /// Completes the receive request that is held.
    #[allow(clippy::too_many_arguments)]
    fn received<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        opcode: WcOpcode,
        byte_len: u32,
        data: WcData,
        packet: &Packet<Payload<'_>>,
    ) {
        self.holds_receive = false;
        let entry = Completion {
            wr_id: self.taken.wr_id,
            status: WcStatus::Success,
            opcode,
            byte_len,
            data,
            qp: q.qpn,
            src_qp: q.dest_qp,
            solicited: packet.bth.solicited,
            ..Completion::default()
        };
        sh.complete(q.recv_cq, now, entry);
    }

    /// A request behind the expected one: acknowledged or answered again, never executed twice.
    fn duplicate<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        seq: u64,
        packet: &Packet<Payload<'_>>,
    ) {
        count!(sh, q.index, duplicate_request);
        if operation == Operation::ReadRequest {
            self.read_again(q, sh, seq, packet);
        } else if operation.is_atomic() {
            let stored = self.replay.iter().find(|r| r.start == seq).and_then(|r| r.value);
            if let Some(value) = stored {
                let reply = Reply::atomic(seq, value, self.msn);
                self.owed.reply_again(reply, q.mtu, q.max_dest_rd_atomic);
            }
        } else {
            self.heard = self.heard.map(|_| now);
            // Also after a NAK, which may have been lost.
            self.owe_ack(q, sh, now);
        }
    }

    /// Owes an acknowledgement of all that has been executed.
    fn owe_ack<M>(&mut self, q: &Facts, sh: &mut Shared<M>, now: Instant) {
        let replaces = self.owed.ack(self.expected - 1, now, q.ack_delay(sh));
        count_traffic!(sh, q.index, acks_coalesced, replaces.into());
    }

    fn read_again<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        seq: u64,
        packet: &Packet<Payload<'_>>,
    ) {
        let Some(reth) = packet.ext.reth else { return };
        let packets = u64::from(reth.length.div_ceil(q.mtu).max(1));
        let known = self
            .replay
            .iter()
            .any(|r| r.value.is_none() && r.start <= seq && seq + packets <= r.end);
        let allowed = reth.length == 0
            || sh
                .regions
                .remote(
                    reth.rkey,
                    (q.pd, q.qpn),
                    reth.va,
                    u64::from(reth.length),
                    Access::REMOTE_READ,
                )
                .is_ok();
        if known && allowed {
            let reply = Reply::read(seq, packets, (reth, q.pd), self.msn);
            self.owed.reply_again(reply, q.mtu, q.max_dest_rd_atomic);
        }
    }

    /// Takes a request of an unreliable connection: a gap drops the message in progress, whose
    /// receive request serves the next; the next first or only packet resynchronises. A receive
    /// request whose memory cannot be used ends the queue pair's service.
    pub(crate) fn unreliable<M: HostMemory>(
        &mut self,
        q: &Facts,
        recv: &mut RecvQueue,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) -> Result<(), Broken> {
        debug_assert_eq!(q.kind, QpType::Uc);
        let seq = packet.bth.psn.expand(self.expected);
        let begins = matches!(operation.position(), Position::First | Position::Only);
        if seq < self.expected {
            // Late or repeated: executing it would deliver a message twice or out of order.
            count!(sh, q.index, duplicate_request);
            return Ok(());
        }
        if seq != self.expected || (begins && self.message.is_some()) {
            count!(sh, q.index, out_of_sequence, u64::from(seq != self.expected));
            self.cut(q, sh);
        }
        self.expected = seq + 1;
        if begins {
            self.resync = false;
        } else if self.resync {
            count!(sh, q.index, rx_after_cut);
            return Ok(());
        }
        match self.execute(q, recv, sh, now, operation, packet) {
            Ok(_) => sh.counters.rx_accepted += 1,
            Err(fault) => {
                sh.count_fault(q, fault);
                self.cut(q, sh);
                if fault == Fault::Receive && self.holds_receive {
                    self.fail_receive(q, sh, now, WcStatus::LocProtErr);
                    return Err(Broken { event: None });
                }
            }
        }
        Ok(())
    }

    fn cut<M>(&mut self, q: &Facts, sh: &mut Shared<M>) {
        if self.message.take().is_some() {
            count!(sh, q.index, uc_dropped_messages);
        }
        self.resync = true;
    }

    /// Flushes the receive request that is held, and those queued.
    pub(crate) fn flush<M>(
        &mut self,
        q: &Facts,
        recv: &mut RecvQueue,
        sh: &mut Shared<M>,
        now: Instant,
    ) {
        self.message = None;
        if std::mem::take(&mut self.holds_receive) {
            sh.flush_receive(q, now, self.taken.wr_id);
        }
        while let Some(wr_id) = recv.drop_oldest() {
            sh.flush_receive(q, now, wr_id);
        }
        self.owed.close();
        if q.srq.is_some() && q.state != QpState::Err && q.kind != QpType::XrcRecv {
            sh.raise(AsyncEvent::QpLastWqeReached(q.qpn));
        }
    }
}

/// First and middle packets are full, last ones not empty, only ones not over the MTU.
fn check_length(operation: Operation, bytes: usize, mtu: u32) -> Result<(), Fault> {
    let mtu = mtu as usize;
    let right = match operation.position() {
        Position::First | Position::Middle => bytes == mtu,
        Position::Last => (1..=mtu).contains(&bytes),
        Position::Only => bytes <= mtu,
    };
    if right { Ok(()) } else { Err(Fault::Invalid) }
}

fn place_received<M: HostMemory>(
    q: &Facts,
    sh: &mut Shared<M>,
    taken: &Taken,
    offset: u64,
    payload: Payload<'_>,
) -> Result<(), Fault> {
    if offset + payload.len() as u64 > taken.room() {
        return Err(Fault::TooLong);
    }
    scatter(q, sh, &taken.sges, offset, payload).map_err(|fault| match fault {
        ScatterFault::Protection => Fault::Receive,
        ScatterFault::Length => Fault::TooLong,
    })?;
    sh.counters.rx_bytes += payload.len() as u64;
    Ok(())
}

/// Takes a request from a shared receive queue and raises its limit event.
pub(crate) fn take_shared<M>(id: crate::srq::SrqId, sh: &mut Shared<M>, taken: &mut Taken) -> bool {
    let Some(srq) = sh.srqs.get_mut(id.0) else { return false };
    if !srq.queue.take(taken) {
        return false;
    }
    if srq.attr.limit > 0 && srq.queue.len() < srq.attr.limit as usize {
        srq.attr.limit = 0;
        sh.raise(AsyncEvent::SrqLimitReached(id));
    }
    true
}
