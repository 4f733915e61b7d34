//! The send queue: work requests in order, their scatter-gather entries and inline bytes beside
//! them, so that posting allocates nothing once the queue has been used.

use std::collections::VecDeque;

use wire::{Operation, SrqNum};

use crate::attr::QpCap;
use crate::error::PostError;
use crate::limits;
use crate::pieces::Pieces;
use crate::qp::facts::Facts;
use crate::work::{Datagram, SendData, SendFlags, SendOp, SendRequest, Sge, WcOpcode, WcStatus};

/// A posted send request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
    pub(crate) inline: bool,
    slot: u32,
    sge_count: u32,
    pub(crate) length: u32,
    datagram: bool,
    /// The peer's shared receive queue that it is for (XRC).
    pub(crate) srq: Option<SrqNum>,
    /// Sequences that it takes, once started: `start..end`, empty for local operations.
    pub(crate) started: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number of the message among those started (local operations have that of the one before).
    pub(crate) message: u64,
    /// It has failed at this side and completes so when its turn comes.
    pub(crate) failed: Option<WcStatus>,
}

impl Wqe {
    /// Packets that it takes on the wire (a READ: those of its response).
    pub(crate) fn packets(&self, mtu: u32) -> u32 {
        match self.op {
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => 0,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => 1,
            _ => self.length.div_ceil(mtu).max(1),
        }
    }

    /// Whether responses with data complete it: READ and atomics.
    pub(crate) fn is_fetch(&self) -> bool {
        matches!(self.op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// Whether it consumes a receive request of the peer.
    pub(crate) fn consumes_receive(&self) -> bool {
        matches!(
            self.op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::WriteImm(..)
        )
    }

    /// The opcode of its completion.
    pub(crate) fn wc_opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => WcOpcode::Send,
            SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::RdmaWrite,
            SendOp::Read(_) => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::LocalInvalidate(_) => WcOpcode::LocalInv,
            SendOp::BindWindow(_) => WcOpcode::BindMw,
        }
    }
}

/// Send requests of a queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(crate) wqes: VecDeque<Wqe>,
    sges: Pieces<Sge>,
    inline: Pieces<u8>,
    /// Where datagrams go: beside the requests, which are copied for each packet.
    datagrams: Pieces<Option<Datagram>>,
    cap: QpCap,
    next_slot: u32,
    signal_all: bool,
}

impl SendQueue {
    pub(crate) fn new(cap: QpCap, signal_all: bool) -> Self {
        Self {
            wqes: VecDeque::new(),
            sges: Pieces::new(cap.max_send_wr, cap.max_send_sge),
            inline: Pieces::new(cap.max_send_wr, cap.max_inline_data),
            datagrams: Pieces::new(cap.max_send_wr, 1),
            cap,
            next_slot: 0,
            signal_all,
        }
    }

    /// Requests that still fit.
    pub(crate) fn room(&self) -> usize {
        (self.cap.max_send_wr as usize).saturating_sub(self.wqes.len())
    }

    /// Appends a request, if this service takes it and it fits.
    pub(crate) fn post(
        &mut self,
        q: &Facts,
        wr: &SendRequest<'_>,
        srq: Option<SrqNum>,
    ) -> Result<(), PostError> {
        if self.wqes.len() >= self.cap.max_send_wr as usize {
            return Err(PostError::QueueFull);
        }
        let length = check(q, &self.cap, wr)?;
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % self.cap.max_send_wr.max(1);
        let (inline, sge_count) = match wr.data {
            SendData::Sges(list) => {
                self.sges.put(slot, list);
                (false, list.len() as u32)
            }
            SendData::Inline(bytes) => {
                self.inline.put(slot, bytes);
                (true, 0)
            }
        };
        if wr.datagram.is_some() {
            self.datagrams.put(slot, &[wr.datagram]);
        }
        self.wqes.push_back(Wqe {
            wr_id: wr.wr_id,
            op: wr.op,
            signaled: self.signal_all || wr.flags.contains(SendFlags::SIGNALED),
            fence: wr.flags.contains(SendFlags::FENCE),
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            inline,
            slot,
            sge_count,
            length,
            datagram: wr.datagram.is_some(),
            srq,
            started: false,
            start: 0,
            end: 0,
            message: 0,
            failed: None,
        });
        Ok(())
    }

    /// Where the next datagram goes, at or behind `cursor`, with something to send at `nxt`.
    pub(crate) fn next_datagram(&self, cursor: usize, nxt: u64) -> Option<&Datagram> {
        let mut ahead = self.wqes.iter().skip(cursor);
        let next = ahead.find(|w| !w.started || w.end > nxt)?;
        self.datagram(next)
    }

    /// Where a datagram goes; `None` of a connected service.
    pub(crate) fn datagram(&self, wqe: &Wqe) -> Option<&Datagram> {
        self.datagrams.get(wqe.slot, u32::from(wqe.datagram)).first()?.as_ref()
    }

    pub(crate) fn sges(&self, wqe: &Wqe) -> &[Sge] {
        self.sges.get(wqe.slot, wqe.sge_count)
    }

    pub(crate) fn inline(&self, wqe: &Wqe) -> &[u8] {
        self.inline.get(wqe.slot, wqe.length)
    }
}

/// The operation of a SEND or WRITE packet by its place in the message.
pub(crate) fn operation(op: &SendOp, first: bool, last: bool) -> Operation {
    use Operation::*;
    match (op, first, last) {
        (SendOp::Write(_) | SendOp::WriteImm(..), true, false) => WriteFirst,
        (SendOp::Write(_) | SendOp::WriteImm(..), false, false) => WriteMiddle,
        (SendOp::Write(_), false, true) => WriteLast,
        (SendOp::WriteImm(..), false, true) => WriteLastImm,
        (SendOp::Write(_), true, true) => WriteOnly,
        (SendOp::WriteImm(..), true, true) => WriteOnlyImm,
        (_, true, false) => SendFirst,
        (_, false, false) => SendMiddle,
        (SendOp::SendImm(_), false, true) => SendLastImm,
        (SendOp::SendImm(_), true, true) => SendOnlyImm,
        (SendOp::SendInvalidate(_), false, true) => SendLastInvalidate,
        (SendOp::SendInvalidate(_), true, true) => SendOnlyInvalidate,
        (_, false, true) => SendLast,
        (_, true, true) => SendOnly,
    }
}

/// Checks a request against service, state and sizes; the length of its data.
fn check(q: &Facts, cap: &QpCap, wr: &SendRequest<'_>) -> Result<u32, PostError> {
    use crate::attr::QpType;
    let reliable = q.kind.requests_reliably();
    let connected = reliable || q.kind == QpType::Uc;
    let offered = match wr.op {
        SendOp::Send | SendOp::SendImm(_) => q.kind != QpType::XrcRecv,
        SendOp::Write(_) | SendOp::WriteImm(..) => connected,
        SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => connected,
        SendOp::SendInvalidate(_)
        | SendOp::Read(_)
        | SendOp::CompareSwap { .. }
        | SendOp::FetchAdd { .. } => reliable,
    };
    if !offered || (wr.flags.contains(SendFlags::FENCE) && !reliable) {
        return Err(PostError::Operation);
    }
    if connected == wr.datagram.is_some() {
        return Err(PostError::Destination);
    }
    let length = match wr.data {
        SendData::Inline(bytes) => {
            let fits = bytes.len() <= cap.max_inline_data as usize;
            let sends = matches!(
                wr.op,
                SendOp::Send
                    | SendOp::SendImm(_)
                    | SendOp::SendInvalidate(_)
                    | SendOp::Write(_)
                    | SendOp::WriteImm(..)
            );
            if !fits || !sends {
                return Err(PostError::Inline);
            }
            bytes.len() as u64
        }
        SendData::Sges(list) => {
            if list.len() > cap.max_send_sge as usize {
                return Err(PostError::TooManySges);
            }
            list.iter().map(|s| u64::from(s.length)).sum()
        }
    };
    if length > u64::from(limits::MAX_MESSAGE) {
        return Err(PostError::TooLong);
    }
    if let SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } = wr.op {
        let one = matches!(wr.data, SendData::Sges(list) if list.len() == 1 && length == 8);
        if !one || remote.addr % 8 != 0 {
            return Err(PostError::Atomic);
        }
    }
    Ok(length as u32)
}
