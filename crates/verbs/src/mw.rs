//! Memory windows: revocable rights over a part of a region.

use std::sync::Arc;

use engine::{Access, BindWindow, Error, MwId, Result, WindowType};
use wire::RKey;

use crate::context::Context;
use crate::mr::Mr;
use crate::pd::PdInner;

/// A memory window: a remote key of its own over a part of a region, which can be given and taken
/// away without registering anew. Binding is a work request; a region cannot be deregistered while
/// a window is bound to it ([`Mr::destroy`] says busy, and a dropped region leaves its memory in
/// place until the window has gone).
///
/// Type 1 windows are bound with [`Qp::bind_mw`](crate::Qp::bind_mw), which draws the key. Type 2
/// windows are bound with [`SendOp::BindWindow`](crate::SendOp::BindWindow) under a key whose low 8
/// bits the program chooses; they belong to one queue pair, and die with
/// [`SendOp::LocalInvalidate`](crate::SendOp::LocalInvalidate) or a peer's
/// [`SendOp::SendInvalidate`](crate::SendOp::SendInvalidate).
///
/// ```
/// use crocevia::{Access, Remote, SendData, SendFlags, SendOp, SendRequest, WcStatus, WindowType};
/// # use crocevia::{ConnectOptions, Context, Qp, QpOptions};
/// # let context = Context::open_addr("127.0.70.6")?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
/// # let peer_cq = context.create_cq(16, None)?;
/// # let qp = pd.create_qp(&QpOptions::rc(&cq))?;
/// # let peer = pd.create_qp(&QpOptions::rc(&peer_cq))?;
/// # Qp::pair(&qp, &peer, &ConnectOptions::default())?;
///
/// let mr = pd.alloc(4096, Access::MW_BIND)?;
/// let mw = pd.alloc_mw(WindowType::Type1)?;
/// let binding = mw.binding(&mr, 1024..2048, mw.rkey(), Access::REMOTE_READ);
/// let rkey = qp.bind_mw(1, SendFlags::SIGNALED, &mw, binding)?;
/// assert_eq!(cq.wait(None).unwrap().status, WcStatus::Success);
///
/// // The peer may read the second KiB, and nothing else.
/// let into = pd.alloc(16, Access::empty())?;
/// peer.post_send(&SendRequest {
///     wr_id: 2,
///     op: SendOp::Read(Remote { addr: mr.addr() + 1024, rkey }),
///     flags: SendFlags::SIGNALED,
///     data: SendData::Sges(&[into.sge(..)]),
///     datagram: None,
/// })?;
/// assert_eq!(peer_cq.wait(None).unwrap().status, WcStatus::Success);
/// drop(mw); // Its key is dead now.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mw {
    pd: Arc<PdInner>,
    id: MwId,
    kind: WindowType,
    first_rkey: RKey,
    freed: bool,
}

impl Mw {
    pub(crate) fn new(pd: &Arc<PdInner>, kind: WindowType) -> Result<Self> {
        let (id, first_rkey) = pd.context().nic().control(|dev, _| dev.alloc_mw(pd.id(), kind))?;
        Ok(Self { pd: Arc::clone(pd), id, kind, first_rkey, freed: false })
    }

    /// The device.
    pub fn context(&self) -> &Context {
        self.pd.context()
    }

    /// The window's name within its device.
    pub fn id(&self) -> MwId {
        self.id
    }

    /// Type 1 or type 2.
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The current key.
    pub fn rkey(&self) -> RKey {
        self.context().nic().control(|dev, _| dev.mw_rkey(self.id)).unwrap_or(self.first_rkey)
    }

    /// A fresh key for the next bind of a type 1 window.
    ///
    /// # Errors
    /// `Invalid` for a type 2 window: the application chooses the low 8 bits of its key itself.
    pub fn next_rkey(&self) -> Result<RKey> {
        self.context().nic().control(|dev, _| dev.next_mw_rkey(self.id))
    }

    /// The request that binds the window to a part of `mr`, for
    /// [`SendOp::BindWindow`](crate::SendOp::BindWindow).
    ///
    /// # Panics
    /// If the range lies outside the region.
    pub fn binding(
        &self,
        mr: &Mr,
        range: std::ops::Range<usize>,
        rkey: RKey,
        access: Access,
    ) -> BindWindow {
        let length = (range.end - range.start) as u64;
        let addr = mr.remote(range.start).addr;
        assert!(range.end <= mr.len(), "{range:?} lies outside a region of {} bytes", mr.len());
        BindWindow { mw: self.id, rkey, lkey: mr.lkey(), addr, length, access }
    }

    /// Frees the window, bound or not: its key is dead when this returns. Dropping it does the
    /// same.
    ///
    /// # Errors
    /// If the device refuses; the window is handed back.
    pub fn destroy(mut self) -> std::result::Result<(), (Self, Error)> {
        match self.free() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    fn free(&mut self) -> Result<()> {
        self.context().nic().control(|dev, _| dev.dealloc_mw(self.id))?;
        self.freed = true;
        self.context().release_kept();
        Ok(())
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if !self.freed {
            let _ = self.free();
        }
    }
}
