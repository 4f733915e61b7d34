//! Shared receive queues and their limit event.

/// Names a shared receive queue of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub u32);

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SrqAttr {
    /// Receive requests that fit.
    pub max_wr: u32,
    /// Scatter-gather entries of a request.
    pub max_sge: u32,
    /// Raise `SRQ_LIMIT_REACHED` once when fewer requests than this are left; 0 is off.
    pub limit: u32,
}

use std::collections::VecDeque;

use crate::error::PostError;
use crate::memory::PdId;
use crate::pieces::Pieces;
use crate::work::{RecvRequest, Sge};

/// Receive requests in order, of a queue pair or shared; posting allocates nothing once the queue
/// has been used.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    entries: VecDeque<Entry>,
    sges: Pieces<Sge>,
    max_sge: u32,
    capacity: u32,
    next_slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    wr_id: u64,
    slot: u32,
    count: u32,
}

/// A receive request taken for a message.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) wr_id: u64,
    pub(crate) sges: Vec<Sge>,
}

impl Taken {
    /// Bytes that fit.
    pub(crate) fn room(&self) -> u64 {
        self.sges.iter().map(|s| u64::from(s.length)).sum()
    }
}

impl RecvQueue {
    pub(crate) fn new(capacity: u32, max_sge: u32) -> Self {
        Self {
            entries: VecDeque::new(),
            sges: Pieces::new(capacity, max_sge),
            max_sge,
            capacity,
            next_slot: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn post(&mut self, wr: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.entries.len() >= self.capacity as usize {
            return Err(PostError::QueueFull);
        }
        if wr.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % self.capacity;
        self.sges.put(slot, wr.sges);
        self.entries.push_back(Entry { wr_id: wr.wr_id, slot, count: wr.sges.len() as u32 });
        Ok(())
    }

    /// Takes the oldest request; false if there is none.
    pub(crate) fn take(&mut self, into: &mut Taken) -> bool {
        let Some(entry) = self.entries.pop_front() else { return false };
        into.wr_id = entry.wr_id;
        into.sges.clear();
        into.sges.extend_from_slice(self.sges.get(entry.slot, entry.count));
        true
    }

    /// Bytes that fit into the oldest request.
    pub(crate) fn front_room(&self) -> Option<u64> {
        let entry = self.entries.front()?;
        let sges = self.sges.get(entry.slot, entry.count);
        Some(sges.iter().map(|s| u64::from(s.length)).sum())
    }

    /// Drops the oldest request; its `wr_id`.
    pub(crate) fn drop_oldest(&mut self) -> Option<u64> {
        self.entries.pop_front().map(|e| e.wr_id)
    }

    /// Changes the capacity; false if more requests are in the queue.
    pub(crate) fn resize(&mut self, capacity: u32) -> bool {
        if self.entries.len() > capacity as usize {
            return false;
        }
        let mut bigger = Self::new(capacity, self.max_sge);
        let mut taken = Taken::default();
        while self.take(&mut taken) {
            // Cannot be full: the entries fit, as checked above.
            let _ = bigger.post(&RecvRequest { wr_id: taken.wr_id, sges: &taken.sges });
        }
        *self = bigger;
        true
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    pub(crate) attr: SrqAttr,
    pub(crate) queue: RecvQueue,
    pub(crate) users: u32,
    /// The domain whose requests it takes and where they complete, if it is one for XRC.
    pub(crate) xrc: Option<(crate::xrc::XrcdId, crate::cq::CqId)>,
}
