//! What comes back to a requester: acknowledgements, NAKs, READ and atomic responses, time-outs.
//! Rules: transport rules, "Requester (RC)".

use wire::{Aeth, Instant, NakCode, Operation, Packet, Syndrome};

use crate::counters::pair::count;
use crate::memory::{HostMemory, Payload};
use crate::qp::facts::{Facts, Shared};
use crate::qp::requester::{Fatal, Requester};
use crate::work::{SendOp, WcStatus};

type Outcome = Result<(), Fatal>;

impl Requester {
    /// Takes a response. An error ends the queue pair's service.
    pub(crate) fn response<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        packet: &Packet<Payload<'_>>,
    ) -> Outcome {
        let seq = packet.bth.psn.expand(self.una);
        if seq < self.una || seq >= self.max {
            self.probe.stale(&mut sh.patience);
            count!(sh, q.index, rx_stale_ack);
            return Ok(());
        }
        match (operation, packet.ext.aeth) {
            (Operation::Acknowledge, Some(aeth)) => self.acknowledge(q, sh, now, seq, aeth),
            (Operation::AtomicAcknowledge, aeth) => {
                let value = packet.ext.atomic_ack.unwrap_or_default();
                self.atomic_response(q, sh, now, (seq, aeth), value)?;
                self.granted_behind(seq, aeth);
                Ok(())
            }
            (_, aeth) if operation.is_read_response() => {
                if operation != Operation::ReadResponseOnly {
                    // Only the answer to a probe stands alone within a READ.
                    self.probe.not_alone();
                }
                self.read_response(q, sh, now, (seq, aeth), packet.payload)?;
                self.granted_behind(seq, aeth);
                Ok(())
            }
            _ => {
                count!(sh, q.index, rx_wrong_opcode);
                Ok(())
            }
        }
    }

    /// A READ or atomic response was taken (or thrown away, if it stood beyond a gap): its AETH
    /// grants credits like any other.
    fn granted_behind(&mut self, seq: u64, aeth: Option<Aeth>) {
        if self.una == seq + 1
            && let Some(Aeth { syndrome: Syndrome::Ack(credits), .. }) = aeth
        {
            self.granted(credits);
        }
    }

    fn acknowledge<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        seq: u64,
        aeth: Aeth,
    ) -> Outcome {
        match aeth.syndrome {
            Syndrome::Ack(credits) => {
                let before = self.una;
                let stopped = self.advance(q, sh, now, seq + 1)?;
                if self.una > before {
                    self.granted(credits);
                }
                if stopped {
                    return self.implied_nak(q, sh, now);
                }
                sh.counters.rx_accepted += 1;
                Ok(())
            }
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                if self.rnr.is_some_and(|(_, of)| of == seq) {
                    count!(sh, q.index, rx_stale_ack);
                    return Ok(());
                }
                count!(sh, q.index, packet_seq_err);
                if self.advance(q, sh, now, seq)? {
                    return self.implied_nak(q, sh, now);
                }
                sh.counters.rx_accepted += 1;
                if self.nxt == self.una {
                    // A copy: nothing has been sent since the one that led here.
                    return Ok(());
                }
                self.spend_retry(q, sh)?;
                sh.patience.lost(now);
                self.lose(q, sh, false);
                self.go_back(q, sh, self.una);
                self.restart_timer(q, sh, now);
                Ok(())
            }
            Syndrome::RnrNak(code) => self.not_ready(q, sh, now, seq, code),
            Syndrome::Nak(code) => {
                if self.advance(q, sh, now, seq)? {
                    return self.implied_nak(q, sh, now);
                }
                sh.counters.rx_accepted += 1;
                Err(self.fatal(refusal(code, q, sh)))
            }
            Syndrome::Reserved(_) => {
                if self.advance(q, sh, now, seq)? {
                    return self.implied_nak(q, sh, now);
                }
                Err(self.bad_response(q, sh, WcStatus::BadRespErr))
            }
        }
    }

    /// An RNR NAK for `seq`: nothing from there on is sent before the time it names.
    fn not_ready<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        seq: u64,
        code: u8,
    ) -> Outcome {
        count!(sh, q.index, rnr_nak_retry_err);
        let behind_fetch = self.advance(q, sh, now, seq)?;
        sh.counters.rx_accepted += u64::from(!behind_fetch);
        let copy = self.rnr.is_some_and(|(_, of)| of == seq) || self.nxt <= seq;
        if !copy {
            if q.rnr_retry != 7 {
                // An unfinished READ or atomic before it is not what fails: it comes first.
                if self.rnr_retries == 0 && !behind_fetch {
                    count!(sh, q.index, req_rnr_retries_exceeded);
                    return Err(self.fatal(WcStatus::RnrRetryExcErr));
                }
                self.rnr_retries = self.rnr_retries.saturating_sub(1);
            }
            self.rnr = Some((now + wire::aeth::rnr_timer(code), seq));
        }
        if behind_fetch {
            self.implied_nak(q, sh, now)?;
        }
        if !copy && self.nxt > seq {
            self.go_back(q, sh, seq);
        }
        Ok(())
    }

    /// A response that acknowledged something came with this credit code.
    fn granted(&mut self, credits: u8) {
        self.credit_limit = wire::aeth::credit_count(credits).map(|count| {
            let limit = self.acked_messages + u64::from(count);
            self.credit_limit.unwrap_or(0).max(limit)
        });
    }

    /// All before `seq` has arrived at the peer. True if an unfinished READ or atomic stands in the
    /// way: then only what is before that is acknowledged.
    fn advance<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        seq: u64,
    ) -> Result<bool, Fatal> {
        let fetch = self
            .queue
            .wqes
            .iter()
            .take_while(|w| w.started && w.start < seq)
            .find(|w| w.is_fetch() && w.end > self.una && w.start.max(self.una) < seq)
            .map(|w| w.start.max(self.una));
        let arrived = self.arrived(q, sh, now, fetch.unwrap_or(seq));
        // A request that failed at this side has had its turn; what led to it is good.
        sh.counters.rx_accepted += u64::from(arrived.is_err());
        arrived.map(|()| fetch.is_some())
    }

    /// Moves `una` to `to` and completes what is done.
    fn arrived<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        to: u64,
    ) -> Outcome {
        if to <= self.una {
            return Ok(());
        }
        let alone = self.probe.answered(self.una, to);
        if alone {
            sh.patience.lost(now);
        }
        self.una = to;
        self.probe.measure(to, now);
        self.forget_reads();
        self.retries = q.retry_cnt;
        self.timeouts = 0;
        self.rnr_retries = q.rnr_retry;
        self.rnr = self.rnr.filter(|&(_, of)| of >= to);
        self.implied_for = None;
        self.flight.acknowledged(&mut sh.windows, q.peer, to);
        self.retire(q, sh, now)?;
        if self.nxt < to {
            self.go_back(q, sh, to);
        } else if alone && self.nxt > to {
            self.lose(q, sh, false);
            self.go_back(q, sh, to);
        }
        self.restart_timer(q, sh, now);
        Ok(())
    }

    /// A response beyond the one expected: ask again from the first missing, once per gap.
    fn implied_nak<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
    ) -> Outcome {
        count!(sh, q.index, rx_beyond_gap);
        if self.implied_for == Some(self.una) {
            return Ok(());
        }
        count!(sh, q.index, implied_nak_seq_err);
        self.spend_retry(q, sh)?;
        self.implied_for = Some(self.una);
        sh.patience.lost(now);
        self.lose(q, sh, false);
        self.go_back(q, sh, self.una);
        self.restart_timer(q, sh, now);
        Ok(())
    }

    fn read_response<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        (seq, aeth): (u64, Option<Aeth>),
        payload: Payload<'_>,
    ) -> Outcome {
        if self.advance(q, sh, now, seq)? {
            return self.implied_nak(q, sh, now);
        }
        let Some(wqe) = self.queue.wqes.front().copied() else {
            count!(sh, q.index, rx_stale_ack);
            return Ok(());
        };
        if !matches!(wqe.op, SendOp::Read(_)) || seq < wqe.start || !grants(aeth) {
            return Err(self.bad_response(q, sh, WcStatus::BadRespErr));
        }
        let offset = (seq - wqe.start) as u32 * q.mtu;
        if payload.len() as u64 != u64::from((wqe.length - offset).min(q.mtu)) {
            return Err(self.bad_response(q, sh, WcStatus::LocLenErr));
        }
        let sges = self.queue.sges(&wqe);
        if scatter(q, sh, sges, u64::from(offset), payload).is_err() {
            return Err(self.bad_response(q, sh, WcStatus::LocProtErr));
        }
        sh.counters.rx_bytes += payload.len() as u64;
        sh.counters.rx_accepted += 1;
        self.arrived(q, sh, now, seq + 1)
    }

    fn atomic_response<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        now: Instant,
        (seq, aeth): (u64, Option<Aeth>),
        value: u64,
    ) -> Outcome {
        if self.advance(q, sh, now, seq)? {
            return self.implied_nak(q, sh, now);
        }
        let Some(wqe) = self.queue.wqes.front().copied() else {
            count!(sh, q.index, rx_stale_ack);
            return Ok(());
        };
        let atomic = matches!(wqe.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        if !atomic || !grants(aeth) {
            return Err(self.bad_response(q, sh, WcStatus::BadRespErr));
        }
        let bytes = value.to_ne_bytes();
        if scatter(q, sh, self.queue.sges(&wqe), 0, Payload::Bytes(&bytes)).is_err() {
            return Err(self.bad_response(q, sh, WcStatus::LocProtErr));
        }
        sh.counters.rx_accepted += 1;
        self.arrived(q, sh, now, seq + 1)
    }

    /// Costs one of the retries that progress restores.
    fn spend_retry<M>(&mut self, q: &Facts, sh: &mut Shared<M>) -> Outcome {
        if self.retries == 0 {
            count!(sh, q.index, req_transport_retries_exceeded);
            return Err(self.fatal(WcStatus::RetryExcErr));
        }
        self.retries -= 1;
        Ok(())
    }

    /// The failure of the oldest request that is not complete.
    fn fatal(&self, status: WcStatus) -> Fatal {
        Fatal { wr_id: self.queue.wqes.front().map_or(0, |w| w.wr_id), status }
    }

    /// A response that cannot be used: the same failure.
    fn bad_response<M>(&self, q: &Facts, sh: &mut Shared<M>, status: WcStatus) -> Fatal {
        count!(sh, q.index, rx_bad_response);
        self.fatal(status)
    }

    /// The earliest of the requester's deadlines: those that [`timeout`](Self::timeout) would act
    /// on.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let probe = self.probe.deadline().filter(|_| self.rnr.is_none());
        [self.ack_deadline, self.rnr.map(|(at, _)| at), probe, self.flow.deadline()]
            .into_iter()
            .flatten()
            .reduce(Instant::earlier)
    }

    /// Runs the deadlines that are due.
    pub(crate) fn timeout<M>(&mut self, q: &Facts, sh: &mut Shared<M>, now: Instant) -> Outcome {
        if self.rnr.is_some_and(|(until, _)| until.is_due(now)) {
            self.rnr = None;
            self.restart_timer(q, sh, now);
        }
        if self.flight.is_empty() {
            self.probe.stop();
        } else if self.rnr.is_none() {
            self.probe.timeout(sh.patience.span(q, now), now);
        }
        if !self.ack_deadline.is_some_and(|at| at.is_due(now)) {
            return Ok(());
        }
        if self.flight.is_empty() {
            // What ran out was the patience with the window.
            self.end_patience(q, sh, now);
            return Ok(());
        }
        count!(sh, q.index, local_ack_timeout_err);
        self.timeouts = self.timeouts.saturating_add(1);
        self.spend_retry(q, sh)?;
        self.implied_for = None;
        self.lose(q, sh, true);
        self.go_back(q, sh, self.una);
        self.restart_timer(q, sh, now);
        Ok(())
    }
}

/// Whether the AETH of a response with data, if it has one, is a positive one: a NAK comes without
/// data.
fn grants(aeth: Option<Aeth>) -> bool {
    aeth.is_none_or(|aeth| matches!(aeth.syndrome, Syndrome::Ack(_)))
}

fn refusal<M>(code: NakCode, q: &Facts, sh: &mut Shared<M>) -> WcStatus {
    match code {
        NakCode::InvalidRequest => {
            count!(sh, q.index, req_remote_invalid_request);
            WcStatus::RemInvReqErr
        }
        NakCode::RemoteAccessError => {
            count!(sh, q.index, req_remote_access_errors);
            WcStatus::RemAccessErr
        }
        NakCode::RemoteOperationalError => {
            count!(sh, q.index, req_remote_operational_errors);
            WcStatus::RemOpErr
        }
        NakCode::PsnSequenceError | NakCode::InvalidRdRequest => WcStatus::BadRespErr,
    }
}

/// Why bytes could not be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScatterFault {
    /// Key, range or right of an entry.
    Protection,
    /// More bytes than the entries hold.
    Length,
}

/// Places bytes at `offset` into a list of entries, in ascending order.
pub(crate) fn scatter<M: HostMemory>(
    q: &Facts,
    sh: &mut Shared<M>,
    sges: &[crate::work::Sge],
    offset: u64,
    payload: Payload<'_>,
) -> Result<(), ScatterFault> {
    let (mut skip, mut rest) = (offset, payload);
    for sge in sges {
        if rest.is_empty() {
            return Ok(());
        }
        let length = u64::from(sge.length);
        if skip >= length {
            skip -= length;
            continue;
        }
        let (now, later) = rest.split((length - skip) as usize);
        let at = sge.addr.checked_add(skip).ok_or(ScatterFault::Protection)?;
        let host = sh
            .regions
            .local(sge.lkey, q.pd, at, now.len() as u64, true)
            .map_err(|_| ScatterFault::Protection)?;
        sh.write(host, now).map_err(|_| ScatterFault::Protection)?;
        (skip, rest) = (0, later);
    }
    if rest.is_empty() { Ok(()) } else { Err(ScatterFault::Length) }
}
