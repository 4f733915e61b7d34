//! Registered memory that could not be read when a packet was copied out of it: it has been
//! unmapped, cut off or protected since it was registered. The packet has not left, nor has what
//! follows it in its train.

use wire::{Aeth, Instant, NakCode, Operation, Psn, Span, Syndrome};

use crate::device::Device;
use crate::event::AsyncEvent;
use crate::memory::HostMemory;
use crate::qp::QueuePair;
use crate::qp::facts::{Facts, Shared};
use crate::qp::replies::Owed;
use crate::qp::requester::Requester;
use crate::train::{Train, TxPacket};
use crate::work::WcStatus;

impl<M: HostMemory> Device<M> {
    /// The memory of packet `at` of `train`, the last that `poll_transmit` gave, could not be read;
    /// neither that packet nor those behind it have left. A request fails with a local protection
    /// error when its turn comes; a READ is refused.
    pub fn handle_unreadable(&mut self, now: Instant, train: &Train, at: usize) {
        let (Some(index), Some(packet)) = (self.spoke, train.packets.get(at)) else { return };
        let Some(qp) = self.qps.get_mut(index) else { return };
        let Some(operation) = packet.bth.opcode.operation() else { return };
        self.shared.counters.memory_faults += 1;
        qp.owe_again(train.packets.get(at + 1..).unwrap_or_default(), now);
        if qp.unreadable(&mut self.shared, now, operation, packet.bth.psn) {
            self.unsettled.push(index);
        }
        self.touched(index, now);
    }
}

impl QueuePair {
    /// An acknowledgement or NAK that rode behind is owed again.
    fn owe_again(&mut self, behind: &[TxPacket], now: Instant) {
        for packet in behind {
            let seq = packet.bth.psn.expand(self.responder.expected);
            match (packet.bth.opcode.operation(), packet.ext.aeth) {
                (Some(Operation::Acknowledge), Some(Aeth { syndrome: Syndrome::Ack(_), .. })) => {
                    self.responder.owed.ack(seq, now, Span::ZERO);
                }
                (Some(Operation::Acknowledge), Some(aeth)) => {
                    self.responder.owed.nak(seq, aeth.syndrome);
                }
                _ => {}
            }
        }
    }

    /// Whether a request of this side has failed, to be settled.
    fn unreadable<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        operation: Operation,
        psn: Psn,
    ) -> bool {
        if operation.is_request() {
            self.requester.unreadable(&self.facts, sh, psn);
            return true;
        }
        let seq = psn.expand(self.responder.expected);
        if self.responder.owed.unreadable(seq) {
            self.fail(sh, now, None);
            sh.raise(AsyncEvent::QpAccessErr(self.facts.qpn));
        }
        false
    }
}

impl Requester {
    /// The request of this packet fails when those before it have succeeded.
    fn unreadable<M>(&mut self, q: &Facts, sh: &mut Shared<M>, psn: Psn) {
        let seq = psn.expand(self.nxt);
        if seq < self.nxt {
            self.go_back(q, sh, seq.max(self.una));
        }
        let at = self.queue.wqes.partition_point(|w| w.started && w.end <= seq);
        if let Some(w) = self.queue.wqes.get_mut(at).filter(|w| w.started && w.failed.is_none()) {
            w.failed = Some(WcStatus::LocProtErr);
        }
    }
}

impl Owed {
    /// The response with this sequence has not left: a NAK takes its place, and that of those
    /// behind it. Whether the queue pair fails: if it has not yet, and the response does not repeat
    /// one that has left before, which its requester may have had.
    fn unreadable(&mut self, seq: u64) -> bool {
        let fails = self.take_back(seq);
        self.nak(seq, Syndrome::Nak(NakCode::RemoteOperationalError));
        fails
    }
}
