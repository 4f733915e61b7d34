//! The probe: when acknowledgements stop coming, the oldest unacknowledged packet is sent once
//! more, long before the ACK timeout. A lost tail has nothing behind it that would raise a NAK; the
//! probe costs one packet, spends no retry, and its answer tells what has arrived.

use wire::{Instant, Operation, Span};

use crate::counters::pair::count;
use crate::memory::HostMemory;
use crate::qp::build::Builder;
use crate::qp::facts::{Facts, Shared, wire_len};
use crate::qp::requester::{Next, Requester};
use crate::qp::send_queue::operation;
use crate::work::SendOp;

/// Probes without progress before only the ACK timeout is left.
const MOST: u32 = 4;
/// Round trips without a sign before the first.
const ROUND_TRIPS: u64 = 2;
/// For so long after a loss more are expected.
const LOSSY: Span = Span::from_ms(1000);

/// How long a device waits for a sign of a peer. On a network that loses nothing, silence says that
/// the peer lacks the processor, and a probe only adds to its work; where packets have been lost of
/// late, silence is a loss.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// The least, where losses are expected; `None`: no probes.
    pub(crate) least: Option<Span>,
    /// The least where they are not.
    pub(crate) calm: Span,
    lossy_until: Option<Instant>,
}

impl Patience {
    /// The least time without a sign before a probe of this queue pair.
    pub(crate) fn span(&self, q: &Facts, now: Instant) -> Option<Span> {
        let least = self.least?;
        if self.lossy_until.is_some_and(|until| now.is_before(until)) {
            return Some(least);
        }
        let third = q.timeout.map_or(self.calm, |t| Span::from_ps(t.as_ps() / 3));
        Some(least.max(self.calm.min(third)))
    }

    /// A packet has been lost, as its receiver says.
    pub(crate) fn lost(&mut self, now: Instant) {
        self.lossy_until = Some(now + LOSSY);
    }
}

/// When to probe, and the round trip from which that follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probe {
    at: Option<Instant>,
    sent: u32,
    due: bool,
    /// The sequence of the last probe, while its answer is awaited.
    of: Option<u64>,
    /// The last probe has been answered, and nothing else been sent again.
    satisfied: bool,
    round_trip: Span,
    /// A packet that asked for an acknowledgement: acknowledged when `una` reaches the sequence.
    sample: Option<(u64, Instant)>,
}

impl Probe {
    /// Counts from now, if something is outstanding (`least` is given) and probes are wanted.
    pub(crate) fn restart(&mut self, least: Option<Span>, q: &Facts, now: Instant) {
        self.sent = 0;
        self.due = false;
        let span = least.map(|least| least.max(self.round_trip.times(ROUND_TRIPS)));
        // Where the ACK timeout is not longer, there is nothing to gain.
        let useful = span.filter(|span| q.timeout.is_none_or(|t| span.times(2) < t));
        self.at = useful.map(|span| now + span);
    }

    pub(crate) fn stop(&mut self) {
        (self.at, self.due, self.of) = (None, false, None);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// A packet that ends before `end` and asks for an acknowledgement has been sent.
    pub(crate) fn sample(&mut self, end: u64, now: Instant) {
        if self.sample.is_none() {
            self.sample = Some((end, now));
        }
    }

    /// All before `una` is acknowledged: smooths the round trip (an eighth of each sample, RFC
    /// 6298).
    pub(crate) fn measure(&mut self, una: u64, now: Instant) {
        let Some((end, sent)) = self.sample else { return };
        if end > una {
            return;
        }
        self.sample = None;
        let (old, new) = (self.round_trip.as_ps(), now.since(sent).as_ps());
        self.round_trip = Span::from_ps(if old == 0 { new } else { old - old / 8 + new / 8 });
    }

    /// What is being measured is sent again: its answer could be to either.
    pub(crate) fn forget_sample(&mut self) {
        self.sample = None;
        self.satisfied = false;
    }

    /// An answer is wanted at once.
    pub(crate) fn hurry(&mut self) {
        self.due = true;
    }

    /// The time may have come; the next one waits twice as long.
    pub(crate) fn timeout(&mut self, least: Option<Span>, now: Instant) {
        let Some(at) = self.at.filter(|at| at.is_due(now)) else { return };
        self.due = true;
        self.sent += 1;
        let span = least.unwrap_or_default().max(self.round_trip.times(ROUND_TRIPS));
        self.at = (self.sent < MOST).then(|| at + span.times(1 << self.sent));
        if self.at.is_some_and(|next| next.is_due(now)) {
            self.at = Some(now + span);
        }
    }

    /// What comes is no answer to a probe.
    pub(crate) fn not_alone(&mut self) {
        self.of = None;
    }

    /// Whether the answer to the last probe acknowledges just that packet: then what followed it is
    /// lost.
    pub(crate) fn answered(&mut self, from: u64, to: u64) -> bool {
        let answered = self.of == Some(from) && to == from + 1;
        if self.of.is_some_and(|of| to > of) {
            self.of = None;
            self.satisfied = true;
        }
        answered
    }

    /// A response without effect. One more answer than was needed to a probe says that the first
    /// was only late: nothing had been lost.
    pub(crate) fn stale(&mut self, patience: &mut Patience) {
        if std::mem::take(&mut self.satisfied) {
            patience.lossy_until = None;
        }
    }
}

impl Requester {
    /// Puts a due probe into the empty train.
    pub(crate) fn emit_probe<M: HostMemory>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        b: &mut Builder<'_>,
    ) {
        let due = std::mem::take(&mut self.probe.due) && q.kind.is_reliable();
        if !due || self.rnr.is_some() || self.nxt <= self.una {
            return;
        }
        let Some(wqe) = self.queue.wqes.front().copied() else { return };
        let Some(path) = q.path else { return };
        if !wqe.started || wqe.failed.is_some() || self.una < wqe.start || self.una >= wqe.end {
            return;
        }
        let done = (self.una - wqe.start) as u32;
        let offset = done * q.mtu;
        let rest = wqe.length - offset;
        let next = match wqe.op {
            SendOp::Read(_) => {
                let asked = (1, rest.min(q.mtu));
                Next { operation: Operation::ReadRequest, offset, length: 0, asked, last: true }
            }
            SendOp::CompareSwap { .. } => Next {
                operation: Operation::CompareSwap,
                offset,
                length: 0,
                asked: (1, 8),
                last: true,
            },
            SendOp::FetchAdd { .. } => Next {
                operation: Operation::FetchAdd,
                offset,
                length: 0,
                asked: (1, 8),
                last: true,
            },
            _ => {
                let (length, last) = (rest.min(q.mtu), rest <= q.mtu);
                let operation = operation(&wqe.op, done == 0, last);
                Next { operation, offset, length, asked: (1, 0), last }
            }
        };
        if !b.fits(&path, wire_len(q.service(), next.operation, next.length)) {
            return;
        }
        if next.length == 0 {
            b.pieces();
        } else if self.gather(q, sh, &wqe, offset, next.length, b).is_err() {
            return;
        }
        let ahead = std::mem::replace(&mut self.nxt, self.una);
        let mut draft = self.draft(q, sh, &wqe, &next);
        self.nxt = ahead;
        draft.bth.ack_request = true;
        b.push(&path, &draft);
        self.probe.of = Some(self.una);
        if next.operation == Operation::ReadRequest {
            self.remember_read(self.una + 1);
        }
        self.probe.forget_sample();
        sh.counters.leaves(next.operation, next.length);
        count!(sh, q.index, retransmitted_packets);
        count!(sh, q.index, retransmitted_bytes, next.length.into());
        count!(sh, q.index, tx_probes);
    }
}
