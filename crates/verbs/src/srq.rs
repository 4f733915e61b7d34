//! Shared receive queues: one store of receive requests for many queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Error, PostError, RecvRequest, Result, SrqAttr, SrqId};
use wire::SrqNum;

use crate::context::Context;
use crate::cq::Cq;
use crate::hub::Subject;
use crate::pd::PdInner;
use crate::qp::RecvBatch;
use crate::xrc::XrcdInner;

/// A shared receive queue: receive requests that any of its queue pairs takes as messages come. A
/// server of a thousand clients needs receives for the messages under way, not for a thousand times
/// the most that one client may send.
///
/// ```
/// use crocevia::{AsyncEvent, ConnectOptions, Qp, QpOptions, RecvRequest, SrqAttr};
/// # use crocevia::{Access, Context, SendData, SendFlags, SendOp, SendRequest};
/// # let context = Context::open_addr("127.0.70.9")?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
/// # let server_cq = context.create_cq(16, None)?;
///
/// let srq = pd.create_srq(&SrqAttr { max_wr: 64, max_sge: 1, limit: 0 })?;
/// let memory = pd.alloc(64 * 256, Access::empty())?;
/// for place in 0..64 {
///     let sges = [memory.sge(place * 256..(place + 1) * 256)];
///     srq.post_recv(&RecvRequest { wr_id: place as u64, sges: &sges })?;
/// }
/// // Tell when fewer than 63 are left.
/// srq.modify(None, Some(63))?;
///
/// let clients = [pd.create_qp(&QpOptions::rc(&cq))?, pd.create_qp(&QpOptions::rc(&cq))?];
/// let mut served = Vec::new();
/// for client in &clients {
///     let options = QpOptions { srq: Some(&srq), ..QpOptions::rc(&server_cq) };
///     let qp = pd.create_qp(&options)?;
///     Qp::pair(client, &qp, &ConnectOptions::default())?;
///     served.push(qp);
/// #   let (op, flags, data) = (SendOp::Send, SendFlags::empty(), SendData::Inline(b"hello"));
/// #   client.post_send(&SendRequest { wr_id: 1, op, flags, data, datagram: None })?;
///     // ... the client sends ...
///     let received = server_cq.wait(None).unwrap();
///     assert_eq!(received.qp, served.last().unwrap().qpn());
/// }
/// assert_eq!(context.async_event()?, AsyncEvent::SrqLimitReached(srq.id()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Srq {
    inner: Arc<SrqInner>,
}

pub(crate) struct SrqInner {
    pd: Arc<PdInner>,
    id: SrqId,
    destroyed: AtomicBool,
    /// The domain whose requests it takes and where they complete, if it is one for XRC.
    _xrc: Option<(Arc<XrcdInner>, Cq)>,
}

impl SrqInner {
    pub(crate) fn id(&self) -> SrqId {
        self.id
    }

    fn destroy(&self) -> Result<()> {
        let context = self.pd.context();
        context.nic().control(|dev, _| {
            dev.destroy_srq(self.id)?;
            context.hub().remove(Subject::Srq(self.id));
            self.destroyed.store(true, Ordering::Release);
            Ok(())
        })
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if !self.destroyed.load(Ordering::Acquire) {
            // Queue pairs hold their shared receive queue, so it cannot be busy.
            let _ = self.destroy();
        }
    }
}

impl Srq {
    pub(crate) fn new(pd: &Arc<PdInner>, attr: &SrqAttr) -> Result<Self> {
        Self::make(pd, attr, None)
    }

    pub(crate) fn for_xrc(
        pd: &Arc<PdInner>,
        attr: &SrqAttr,
        xrcd: &Arc<XrcdInner>,
        cq: &Cq,
    ) -> Result<Self> {
        if [xrcd.context(), cq.context()].iter().any(|other| !other.is_same(pd.context())) {
            return Err(Error::invalid(
                "protection domain, XRC domain and completion queue must belong to one device: \
                 make them from the same Context",
            ));
        }
        Self::make(pd, attr, Some((Arc::clone(xrcd), cq.clone())))
    }

    fn make(pd: &Arc<PdInner>, attr: &SrqAttr, xrc: Option<(Arc<XrcdInner>, Cq)>) -> Result<Self> {
        let context = pd.context();
        let id = context.nic().control(|dev, _| {
            let id = match &xrc {
                None => dev.create_srq(pd.id(), attr)?,
                Some((xrcd, cq)) => dev.create_xrc_srq(pd.id(), (xrcd.id(), cq.id()), attr)?,
            };
            context.hub().add(Subject::Srq(id));
            Result::Ok(id)
        })?;
        let destroyed = AtomicBool::new(false);
        Ok(Self { inner: Arc::new(SrqInner { pd: Arc::clone(pd), id, destroyed, _xrc: xrc }) })
    }

    pub(crate) fn shared(&self) -> &Arc<SrqInner> {
        &self.inner
    }

    /// The device.
    pub fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    /// The queue's name within its device, as events give it.
    pub fn id(&self) -> SrqId {
        self.inner.id
    }

    /// The number by which XRC requests name the queue.
    pub fn number(&self) -> SrqNum {
        self.inner.id.number()
    }

    /// Appends a receive request.
    ///
    /// # Errors
    /// Why it was refused; nothing has been posted then.
    pub fn post_recv(&self, wr: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        self.context().nic().control(|dev, _| dev.post_srq_recv(self.inner.id, wr))
    }

    /// Appends receive requests under one lock.
    ///
    /// # Errors
    /// The index of the first one that was refused, and why; those before it are posted.
    pub fn post_recv_list<'a>(
        &self,
        wrs: impl IntoIterator<Item = RecvRequest<'a>>,
    ) -> std::result::Result<(), (usize, PostError)> {
        self.batch(|batch| {
            wrs.into_iter().enumerate().try_for_each(|(i, wr)| batch.push(&wr).map_err(|e| (i, e)))
        })
    }

    /// Appends receive requests one by one under one lock, for callers that make them as they go.
    /// The closure must not call the device in any other way.
    pub fn batch<R>(&self, f: impl FnOnce(&mut RecvBatch<'_>) -> R) -> R {
        let id = self.inner.id;
        self.context().nic().control(|dev, now| f(&mut RecvBatch::shared(dev, now, id)))
    }

    /// Changes the size, or arms the limit: `SrqLimitReached` is raised once when fewer than
    /// `limit` requests are left.
    ///
    /// # Errors
    /// `Invalid` if the size is beyond the device's limits or below what is queued, or the limit
    /// beyond the size.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<()> {
        self.context().nic().control(|dev, _| dev.modify_srq(self.inner.id, max_wr, limit))
    }

    /// The attributes.
    ///
    /// # Errors
    /// None while the queue exists.
    pub fn query(&self) -> Result<SrqAttr> {
        self.context().nic().control(|dev, _| dev.query_srq(self.inner.id))
    }

    /// Destroys the queue now, and waits until the events taken about it are acknowledged.
    ///
    /// # Errors
    /// `Busy` while a queue pair uses it; the queue is handed back.
    pub fn destroy(self) -> std::result::Result<(), (Self, Error)> {
        match self.inner.destroy() {
            Ok(()) => {
                self.context().hub().wait_acknowledged(Subject::Srq(self.inner.id));
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }
}
