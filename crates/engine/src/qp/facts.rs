//! What requester and responder of a queue pair have in common and neither changes: who the queue
//! pair is, whom it talks to; and the tables of the device that both may use.

use std::collections::VecDeque;

use wire::{Bth, Extensions, Instant, Opcode, Operation, PKey, Path, Psn, Qpn, Service, Span};

use crate::attr::{QpState, QpType};
use crate::counters::Counters;
use crate::counters::pair::{Tally, count};
use crate::cq::{Cq, CqId, Pushed};
use crate::device::GidEntry;
use crate::event::{AsyncEvent, Event};
use crate::limits;
use crate::memory::{AtomicOp, HostMemory, MemoryFault, Payload, PdId};
use crate::qp::flow::{Gone, Note};
use crate::qp::probe::Patience;
use crate::regions::Regions;
use crate::slots::Slots;
use crate::srq::{Srq, SrqId};
use crate::window::Windows;
use crate::work::{Access, Completion, Datagram, WcStatus};

/// What both sides of a queue pair know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) index: u32,
    pub(crate) qpn: Qpn,
    pub(crate) kind: QpType,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) srq: Option<SrqId>,
    pub(crate) state: QpState,
    pub(crate) access: Access,
    pub(crate) mtu: u32,
    pub(crate) dest_qp: Qpn,
    pub(crate) qkey: wire::QKey,
    pub(crate) path: Option<Path>,
    pub(crate) peer: u32,
    pub(crate) timeout: Option<Span>,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
}

impl Facts {
    pub(crate) fn service(&self) -> Service {
        match self.kind {
            QpType::Rc => Service::Rc,
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
            QpType::Uc => Service::Uc,
            QpType::Ud | QpType::Gsi => Service::Ud,
        }
    }

    /// How long an owed ACK may wait for company: not at all where none will come.
    pub(crate) fn ack_delay<M>(&self, sh: &Shared<M>) -> Span {
        if self.kind == QpType::XrcRecv { Span::ZERO } else { sh.ack_delay }
    }

    /// The key that a datagram carries: one with its top bit set means the queue pair's own.
    pub(crate) fn key_of(&self, datagram: &Datagram) -> wire::QKey {
        if datagram.qkey.get() >> 31 != 0 { self.qkey } else { datagram.qkey }
    }

    /// A header towards the connected peer.
    pub(crate) fn bth(&self, operation: Operation, seq: u64) -> Bth {
        Bth {
            opcode: Opcode::new(self.service(), operation),
            solicited: false,
            migration: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: self.dest_qp,
            ack_request: false,
            psn: Psn::from_seq(seq),
        }
    }
}

/// Bytes from the BTH through the ICRC of a packet of `operation` with `payload` bytes.
pub(crate) fn wire_len(service: Service, operation: Operation, payload: u32) -> usize {
    wire::transport::wire_len(Opcode::new(service, operation), payload as usize).unwrap_or(0)
}

/// A packet about to be put into a train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    pub(crate) bth: Bth,
    pub(crate) ext: Extensions,
    pub(crate) length: u32,
    /// A repetition.
    pub(crate) again: bool,
}

/// The tables of the device that a queue pair works on.
#[derive(Debug)]
pub(crate) struct Shared<M> {
    pub(crate) memory: M,
    pub(crate) regions: Regions,
    pub(crate) cqs: Slots<CqSlot>,
    pub(crate) srqs: Slots<Srq>,
    pub(crate) windows: Windows,
    pub(crate) counters: Counters,
    /// Those of each queue pair, by its index.
    pub(crate) tallies: Vec<Tally>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) gids: Vec<GidEntry>,
    pub(crate) ack_delay: Span,
    /// Most packets between two that ask for an acknowledgement.
    pub(crate) ack_interval: u64,
    /// Payload of a full packet, where it is less than the path MTU.
    pub(crate) segment: u32,
    /// Congestion control.
    pub(crate) congestion: crate::cc::Congestion,
    pub(crate) credits: bool,
    /// How long queue pairs wait for a sign of the peer before a probe.
    pub(crate) patience: Patience,
    /// The shortest ACK timeout.
    pub(crate) least_timeout: Span,
    /// ACK timeouts in a row grow.
    pub(crate) back_off: bool,
    /// Unreliable services ask how far a peer has come.
    pub(crate) flow: bool,
    /// Questions and answers of that kind, about to leave.
    pub(crate) notes: VecDeque<Note>,
    /// Datagram peers that have been given up.
    pub(crate) gone: Gone,
    /// Queues that overran in this call: their queue pairs are to fail.
    pub(crate) overrun: Vec<CqId>,
    /// Moderation periods that began in this call.
    pub(crate) cq_wakes: Vec<(u32, Instant)>,
}

/// A completion queue with the number of queue pairs that use it.
#[derive(Debug)]
pub(crate) struct CqSlot {
    pub(crate) cq: std::sync::Arc<Cq>,
    pub(crate) users: u32,
}

impl<M: HostMemory> Shared<M> {
    /// Places bytes that a region has been found to allow.
    pub(crate) fn write(&mut self, host: u64, data: Payload<'_>) -> Result<(), MemoryFault> {
        let result = self.memory.write(host, data);
        self.counters.memory_faults += u64::from(result.is_err());
        result
    }

    /// Executes an atomic that a region has been found to allow.
    pub(crate) fn atomic(&mut self, host: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
        let result = self.memory.atomic(host, op);
        self.counters.memory_faults += u64::from(result.is_err());
        result
    }
}

impl<M> Shared<M> {
    /// Appends a completion, and what follows from it.
    pub(crate) fn complete(&mut self, cq: CqId, now: Instant, mut entry: Completion) {
        entry.timestamp = now.as_ps();
        let Some(slot) = self.cqs.get(cq.0) else { return };
        match slot.cq.push(now, entry) {
            Pushed::Quiet => {}
            Pushed::Event => self.events.push_back(Event::Completion(cq)),
            Pushed::EventAt(at) => self.cq_wakes.push((cq.0, at)),
            Pushed::Overrun { first } => {
                if !self.overrun.contains(&cq) {
                    self.overrun.push(cq);
                }
                if first {
                    self.raise(AsyncEvent::CqErr(cq));
                }
            }
        }
    }

    /// Completes a request in error or flushes it.
    pub(crate) fn fail(&mut self, cq: CqId, now: Instant, qp: Qpn, wr_id: u64, status: WcStatus) {
        self.complete(cq, now, Completion { wr_id, status, qp, ..Completion::default() });
    }

    /// Flushes a receive request.
    pub(crate) fn flush_receive(&mut self, q: &Facts, now: Instant, wr_id: u64) {
        count!(self, q.index, resp_cqe_error);
        count!(self, q.index, resp_cqe_flush_error);
        self.fail(q.recv_cq, now, q.qpn, wr_id, WcStatus::WrFlushErr);
    }

    /// Has a note leave before anything else. There are a few for each queue pair at most.
    pub(crate) fn note(&mut self, note: Note) {
        if self.notes.len() < limits::MAX_NOTES {
            self.notes.push_back(note);
        }
    }

    pub(crate) fn raise(&mut self, event: AsyncEvent) {
        self.events.push_back(Event::Async(event));
    }
}
