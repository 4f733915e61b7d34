//! Extended reliable connections: domains, and the queue pairs that receive in one. Those that send
//! are made like others; shared receive queues of a domain by [`Pd::create_xrc_srq`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{Error, Result, SrqAttr, XrcdId};
use wire::Qpn;

use crate::context::Context;
use crate::cq::Cq;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::srq::Srq;

/// An XRC domain: queue pairs that receive in it deliver to any shared receive queue of it, so that
/// a process with many services needs one connection to each peer process, not one for each pair of
/// services. A sender names the queue with each request ([`Qp::post_send_xrc`]).
///
/// A domain belongs to the [`Context`] that it was opened in. Handles that are clones of each other
/// are one domain, which closes with the last of them and what was made in it.
///
/// ```
/// use crocevia::{Access, ConnectOptions, Context, Qp, QpOptions, QpType, RecvRequest};
/// use crocevia::{SendData, SendFlags, SendOp, SendRequest, SrqAttr};
///
/// let context = Context::open_addr("127.0.70.19")?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
///
/// // Here two services receive by one queue pair.
/// let domain = context.open_xrcd()?;
/// let attr = SrqAttr { max_wr: 16, max_sge: 1, limit: 0 };
/// let service = || pd.create_xrc_srq(&attr, &domain, &cq);
/// let services = [service()?, service()?];
/// for service in &services {
///     service.post_recv(&RecvRequest { wr_id: service.id().0.into(), sges: &[] })?;
/// }
/// let receiver = domain.create_qp()?;
///
/// // There somebody sends to both.
/// let sender = pd.create_qp(&QpOptions::new(QpType::XrcSend, &cq))?;
/// Qp::pair(&sender, &receiver, &ConnectOptions::default())?;
/// for service in &services {
///     let (op, flags, data) = (SendOp::Send, SendFlags::empty(), SendData::Inline(&[]));
///     let wr = SendRequest { wr_id: 1, op, flags, data, datagram: None };
///     sender.post_send_xrc(&wr, service.number())?;
///     assert_eq!(cq.wait(None).unwrap().wr_id, u64::from(service.id().0));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Xrcd {
    inner: Arc<XrcdInner>,
}

pub(crate) struct XrcdInner {
    context: Context,
    id: XrcdId,
    /// Handles; 0 once it is closed.
    handles: AtomicUsize,
}

impl XrcdInner {
    pub(crate) fn id(&self) -> XrcdId {
        self.id
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for XrcdInner {
    fn drop(&mut self) {
        if self.handles.load(Ordering::Acquire) > 0 {
            // Whatever is in the domain holds it, so it cannot be busy.
            let _ = self.context.nic().control(|dev, _| dev.close_xrcd(self.id));
        }
    }
}

impl Clone for Xrcd {
    fn clone(&self) -> Self {
        self.inner.handles.fetch_add(1, Ordering::AcqRel);
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl Context {
    /// Opens an XRC domain.
    ///
    /// # Errors
    /// `Full` if the device has no room for another.
    pub fn open_xrcd(&self) -> Result<Xrcd> {
        let id = self.nic().control(|dev, _| dev.open_xrcd())?;
        let handles = AtomicUsize::new(1);
        Ok(Xrcd { inner: Arc::new(XrcdInner { context: self.clone(), id, handles }) })
    }
}

impl Xrcd {
    pub(crate) fn shared(&self) -> &Arc<XrcdInner> {
        &self.inner
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The domain's name within its device.
    pub fn id(&self) -> XrcdId {
        self.inner.id
    }

    /// A queue pair that receives for the domain's shared receive queues, in state RESET.
    ///
    /// # Errors
    /// `Full` if the device has no room for another.
    pub fn create_qp(&self) -> Result<Qp> {
        Qp::xrc_receiver(&self.inner, None)
    }

    /// Another handle of a queue pair that receives in this domain. It goes with its last handle.
    ///
    /// # Errors
    /// `NotFound` if the domain has no such queue pair.
    pub fn open_qp(&self, qp: Qpn) -> Result<Qp> {
        Qp::xrc_receiver(&self.inner, Some(qp))
    }

    /// Closes the domain now, or drops this handle if there are clones of it.
    ///
    /// # Errors
    /// `Busy` while something is in it; the domain is handed back.
    pub fn destroy(self) -> std::result::Result<(), (Self, Error)> {
        if self.inner.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        let id = self.inner.id;
        self.inner.context.nic().control(|dev, _| dev.close_xrcd(id)).map_err(|error| {
            self.inner.handles.fetch_add(1, Ordering::AcqRel);
            (self, error)
        })
    }
}

impl Pd {
    /// A shared receive queue for the requests of an XRC domain, which complete into `cq`. What
    /// they may reach is memory of this protection domain.
    ///
    /// # Errors
    /// As for [`create_srq`](Self::create_srq); `Invalid` if domain or queue belong to another
    /// device.
    pub fn create_xrc_srq(&self, attr: &SrqAttr, xrcd: &Xrcd, cq: &Cq) -> Result<Srq> {
        Srq::for_xrc(self.shared(), attr, xrcd.shared(), cq)
    }
}
