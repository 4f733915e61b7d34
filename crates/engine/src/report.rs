//! What can be told of a device and its queue pairs from outside: for those who watch, not for the
//! application. Queue pairs come a few at a time, so that nobody holds the device for long.

use wire::{Gid, Msn, Psn, Qpn};

use crate::attr::{QpState, QpType};
use crate::counters::QpCounters;
use crate::cq::CqId;
use crate::device::Device;
use crate::error::Result;
use crate::objects::no_such;
use crate::qp::QueuePair;
use crate::srq::SrqId;

/// Objects of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Objects {
    /// Queue pairs.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Queue pairs that have gone but may still answer their peers.
    pub departed: u32,
}

/// A queue pair as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpReport {
    /// Its number.
    pub qpn: Qpn,
    /// Its service.
    pub qp_type: QpType,
    /// Its state.
    pub state: QpState,
    /// Our GID and the peer's, if it is connected.
    pub path: Option<(Gid, Gid)>,
    /// The peer's number, if it is connected.
    pub dest_qp: Option<Qpn>,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Oldest PSN that is not acknowledged.
    pub unacknowledged: Psn,
    /// Next PSN to send.
    pub next: Psn,
    /// PSN of the request expected next.
    pub expected: Psn,
    /// Messages executed, modulo 2^24.
    pub msn: Msn,
    /// PSNs that are sent and not acknowledged.
    pub in_flight: u32,
    /// Send requests posted and not complete, and how many there may be.
    pub send_queue: (u32, u32),
    /// Receive requests posted and not taken, and how many there may be.
    pub recv_queue: (u32, u32),
    /// Where it takes receive requests from instead.
    pub srq: Option<SrqId>,
    /// Where send requests complete.
    pub send_cq: CqId,
    /// Where receive requests complete.
    pub recv_cq: CqId,
    /// Retries left for ACK timeouts and sequence errors.
    pub retries_left: u8,
    /// The rate that congestion control holds it to; none: it has never been told of congestion.
    pub rate: Option<wire::Rate>,
    /// It waits because its peer was not ready (RNR).
    pub peer_not_ready: bool,
    /// What it has counted.
    pub counters: QpCounters,
}

impl<M> Device<M> {
    /// How many objects there are.
    pub fn objects(&self) -> Objects {
        Objects {
            qps: self.qps.len() as u32,
            cqs: self.shared.cqs.len() as u32,
            srqs: self.shared.srqs.len() as u32,
            departed: self.departed.len() as u32,
        }
    }

    /// Reports on the queue pairs from a place on, looking at no more than `most` places; the place
    /// to go on at, or `None` at the end. Those that come and go meanwhile may be missed.
    pub fn report_qps(&self, from: u32, most: u32, out: &mut Vec<QpReport>) -> Option<u32> {
        let bound = self.qps.bound();
        let end = bound.min(from.saturating_add(most));
        for index in from..end {
            out.extend(self.qps.get(index).map(|qp| self.report(qp)));
        }
        (end < bound).then_some(end)
    }

    /// Reports on one queue pair.
    ///
    /// # Errors
    /// `NotFound` if there is none of this number.
    pub fn report_qp(&self, qp: Qpn) -> Result<QpReport> {
        let found = self.by_qpn.get(&qp.get()).and_then(|&index| self.qps.get(index));
        found.map(|qp| self.report(qp)).ok_or_else(|| no_such("queue pair"))
    }

    fn report(&self, qp: &QueuePair) -> QpReport {
        let (q, requester) = (&qp.facts, &qp.requester);
        let connected = q.path.is_some();
        let tally = self.shared.tallies.get(q.index as usize);
        QpReport {
            qpn: q.qpn,
            qp_type: q.kind,
            state: q.state,
            path: q.path.map(|path| (path.source, path.destination)),
            dest_qp: connected.then_some(q.dest_qp),
            mtu: q.mtu,
            unacknowledged: Psn::from_seq(requester.una),
            next: Psn::from_seq(requester.nxt),
            expected: Psn::from_seq(qp.responder.expected),
            msn: qp.responder.msn,
            in_flight: (requester.max - requester.una) as u32,
            send_queue: (requester.queue.wqes.len() as u32, qp.init.cap.max_send_wr),
            recv_queue: (qp.recv.len() as u32, qp.init.cap.max_recv_wr),
            srq: q.srq,
            send_cq: q.send_cq,
            recv_cq: q.recv_cq,
            retries_left: requester.retries,
            rate: qp.limit.rate(),
            peer_not_ready: requester.rnr.is_some(),
            counters: tally.map(|tally| tally.counters()).unwrap_or_default(),
        }
    }
}
