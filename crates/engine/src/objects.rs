//! Control calls for what queue pairs are made of: protection domains, regions, windows, completion
//! queues, shared receive queues.

use std::sync::Arc;

use wire::RKey;

use crate::cq::{Cq, CqId, Moderation};
use crate::device::Device;
use crate::error::{Error, ErrorKind, PostError, Result};
use crate::event::{AsyncEvent, Event};
use crate::limits;
use crate::memory::{HostMemory, MrId, MwId, PdId, RegionAttr, RegionKeys, WindowType};
use crate::qp::facts::CqSlot;
use crate::srq::{RecvQueue, Srq, SrqAttr, SrqId};
use crate::work::{Access, RecvRequest};

impl<M: HostMemory> Device<M> {
    /// A protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId> {
        self.shared.regions.alloc_pd()
    }

    /// Frees a protection domain; `Busy` while something is in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<()> {
        self.shared.regions.dealloc_pd(pd)
    }

    /// Registers memory.
    pub fn reg_mr(&mut self, attr: &RegionAttr) -> Result<RegionKeys> {
        self.shared.regions.register(attr, &mut self.keys)
    }

    /// Changes a registration in place (`place`: address, length, iova); `None` keeps what was. New
    /// keys are drawn.
    pub fn rereg_mr(
        &mut self,
        mr: MrId,
        pd: Option<PdId>,
        place: Option<(u64, u64, u64)>,
        access: Option<Access>,
    ) -> Result<RegionKeys> {
        self.shared.regions.reregister(mr, pd, place, access, &mut self.keys)
    }

    /// Ends a registration; `Busy` while windows are bound to it.
    pub fn dereg_mr(&mut self, mr: MrId) -> Result<()> {
        self.shared.regions.deregister(mr)
    }

    /// A memory window, unbound.
    pub fn alloc_mw(&mut self, pd: PdId, kind: WindowType) -> Result<(MwId, RKey)> {
        self.shared.regions.alloc_window(pd, kind, &mut self.keys)
    }

    /// Frees a window, bound or not.
    pub fn dealloc_mw(&mut self, mw: MwId) -> Result<()> {
        self.shared.regions.dealloc_window(mw)
    }

    /// The current key of a window.
    pub fn mw_rkey(&self, mw: MwId) -> Result<RKey> {
        self.shared.regions.window_rkey(mw)
    }

    /// A fresh key for the next bind of a type 1 window.
    pub fn next_mw_rkey(&mut self, mw: MwId) -> Result<RKey> {
        self.shared.regions.next_window_rkey(mw)
    }

    /// A completion queue of at least `capacity` entries.
    pub fn create_cq(&mut self, capacity: u32) -> Result<(CqId, Arc<Cq>)> {
        check_cqe(capacity)?;
        if self.shared.cqs.len() >= limits::MAX_CQ as usize {
            return Err(full("completion queues", limits::MAX_CQ));
        }
        let cq = Cq::new(capacity as usize);
        let id = self.shared.cqs.insert(CqSlot { cq: Arc::clone(&cq), users: 0 });
        Ok((CqId(id), cq))
    }

    pub(crate) fn cq(&mut self, cq: CqId) -> Result<&mut CqSlot> {
        self.shared.cqs.get_mut(cq.0).ok_or_else(|| no_such("completion queue"))
    }

    /// Changes a queue's capacity; `Invalid` if more entries are in it.
    pub fn resize_cq(&mut self, cq: CqId, capacity: u32) -> Result<()> {
        check_cqe(capacity)?;
        let cq = &self.cq(cq)?.cq;
        if cq.resize(capacity as usize) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the completion queue holds {} entries, more than {capacity}: poll them first",
            cq.len()
        )))
    }

    /// Sets event moderation.
    pub fn modify_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<()> {
        if self.cq(cq)?.cq.set_moderation(moderation) {
            self.shared.events.push_back(Event::Completion(cq));
        }
        Ok(())
    }

    /// Destroys a queue; `Busy` while a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<()> {
        let users = self.cq(cq)?.users;
        if users > 0 {
            return Err(busy("completion queue", users));
        }
        self.shared.cqs.remove(cq.0);
        self.shared
            .events
            .retain(|e| *e != Event::Completion(cq) && *e != Event::Async(AsyncEvent::CqErr(cq)));
        Ok(())
    }

    /// A shared receive queue.
    pub fn create_srq(&mut self, pd: PdId, attr: &SrqAttr) -> Result<SrqId> {
        if attr.max_wr == 0 || attr.max_wr > limits::MAX_SRQ_WR || attr.max_sge > limits::MAX_SGE {
            return Err(Error::invalid(format!(
                "max_wr {} and max_sge {}: 1 to {} and at most {}",
                attr.max_wr,
                attr.max_sge,
                limits::MAX_SRQ_WR,
                limits::MAX_SGE
            )));
        }
        if self.shared.srqs.len() >= limits::MAX_SRQ as usize {
            return Err(full("shared receive queues", limits::MAX_SRQ));
        }
        self.shared.regions.use_pd(pd, 1)?;
        let queue = RecvQueue::new(attr.max_wr, attr.max_sge);
        let attr = SrqAttr { limit: 0, ..*attr };
        Ok(SrqId(self.shared.srqs.insert(Srq { pd, attr, queue, users: 0, xrc: None })))
    }

    pub(crate) fn srq(&mut self, srq: SrqId) -> Result<&mut Srq> {
        self.shared.srqs.get_mut(srq.0).ok_or_else(|| no_such("shared receive queue"))
    }

    /// Changes the limit (`Some` arms it) or the size of a shared receive queue.
    pub fn modify_srq(
        &mut self,
        srq: SrqId,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<()> {
        let s = self.srq(srq)?;
        let size = max_wr.unwrap_or(s.attr.max_wr);
        let limit_value = limit.unwrap_or(0);
        if size == 0 || size > limits::MAX_SRQ_WR || limit_value > size {
            return Err(Error::invalid(format!(
                "max_wr {size} and limit {limit_value}: 1 to {}, and the limit at most max_wr",
                limits::MAX_SRQ_WR
            )));
        }
        if max_wr.is_some() && !s.queue.resize(size) {
            return Err(Error::invalid(format!(
                "{} requests are posted, more than {size}",
                s.queue.len()
            )));
        }
        s.attr.max_wr = size;
        if limit.is_some() {
            s.attr.limit = limit_value;
            if s.queue.len() < limit_value as usize {
                s.attr.limit = 0;
                self.shared.raise(AsyncEvent::SrqLimitReached(srq));
            }
        }
        Ok(())
    }

    /// Attributes of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Result<SrqAttr> {
        let found = self.shared.srqs.get(srq.0).map(|s| s.attr);
        found.ok_or_else(|| no_such("shared receive queue"))
    }

    /// Destroys a shared receive queue; `Busy` while a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<()> {
        let s = self.srq(srq)?;
        let (users, pd, xrc) = (s.users, s.pd, s.xrc);
        if users > 0 {
            return Err(busy("shared receive queue", users));
        }
        if let Some((xrcd, cq)) = xrc {
            self.use_xrcd(xrcd, -1)?;
            self.cq(cq)?.users -= 1;
        }
        self.shared.srqs.remove(srq.0);
        self.shared.events.retain(|e| *e != Event::Async(AsyncEvent::SrqLimitReached(srq)));
        self.shared.regions.use_pd(pd, -1)
    }

    /// Appends to a shared receive queue.
    pub fn post_srq_recv(
        &mut self,
        srq: SrqId,
        wr: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        self.shared.srqs.get_mut(srq.0).ok_or(PostError::NoQueuePair)?.queue.post(wr)
    }
}

fn check_cqe(capacity: u32) -> Result<()> {
    if (1..=limits::MAX_CQE).contains(&capacity) {
        return Ok(());
    }
    Err(Error::invalid(format!("{capacity} entries asked for: 1 to {}", limits::MAX_CQE)))
}

pub(crate) fn full(what: &str, limit: u32) -> Error {
    Error::new(ErrorKind::Full, format!("the device has all of its {limit} {what} in use"))
}

pub(crate) fn no_such(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("no such {what}"))
}

fn busy(what: &str, users: u32) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{users} queue pair ends still use the {what}: destroy them first"),
    )
}
