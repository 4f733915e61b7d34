//! Protection domains: what belongs together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::{Access, AddressVector, Error, ErrorKind, PdId, Result, SrqAttr, WindowType};
use live::Region;

use crate::ah::Ah;
use crate::context::Context;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::qp::{Qp, QpOptions};
use crate::srq::Srq;

/// A protection domain: queue pairs reach only memory of their own domain.
///
/// Objects made from a domain keep it alive; it is freed when it and all of them are gone.
///
/// ```
/// use crocevia::{Access, Context, ErrorKind};
///
/// let context = Context::open_addr("127.0.70.4")?;
/// let pd = context.alloc_pd()?;
/// let mr = pd.alloc(4096, Access::REMOTE_READ)?;
/// let (pd, error) = pd.destroy().expect_err("a region is in it");
/// assert_eq!(error.kind(), ErrorKind::Busy);
/// drop(pd);
/// // Its handle is gone, the domain is not: the region is in it.
/// mr.region().write(0, b"still here");
/// # Ok::<(), crocevia::Error>(())
/// ```
pub struct Pd {
    inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    context: Context,
    id: PdId,
    /// Address handles, which the device does not know of.
    handles: AtomicUsize,
    freed: AtomicBool,
}

impl PdInner {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn id(&self) -> PdId {
        self.id
    }

    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_handle(&self) {
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if !self.freed.load(Ordering::Acquire) {
            // Whatever is in the domain holds it, so it cannot be busy.
            let _ = self.context.nic().control(|dev, _| dev.dealloc_pd(self.id));
        }
    }
}

impl Pd {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        let id = context.nic().control(|dev, _| dev.alloc_pd())?;
        let context = context.clone();
        let (handles, freed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { inner: Arc::new(PdInner { context, id, handles, freed }) })
    }

    pub(crate) fn shared(&self) -> &Arc<PdInner> {
        &self.inner
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The domain's name within its device.
    pub fn id(&self) -> PdId {
        self.inner.id
    }

    /// Allocates `len` zeroed bytes and registers them. The local device may always write them
    /// (`LOCAL_WRITE` is added to `access`).
    ///
    /// # Errors
    /// `Full` if there is no memory; otherwise as [`register`](Self::register).
    pub fn alloc(&self, len: usize, access: Access) -> Result<Mr> {
        self.register(Region::allocate(len)?, access | Access::LOCAL_WRITE)
    }

    /// Registers memory. Work requests and peers name its bytes by their address in this process,
    /// or counted from zero if `access` has `ZERO_BASED`.
    ///
    /// # Errors
    /// `Invalid` for remote write or atomic rights without `LOCAL_WRITE`; `Full` if the device has
    /// no room for another region.
    pub fn register(&self, region: Region, access: Access) -> Result<Mr> {
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { region.addr() };
        Mr::new(&self.inner, region, iova, access)
    }

    /// Registers memory whose first byte work requests and peers shall name `iova`.
    ///
    /// # Errors
    /// As [`register`](Self::register); `Invalid` if the region would pass the end of the address
    /// space.
    pub fn register_iova(&self, region: Region, iova: u64, access: Access) -> Result<Mr> {
        Mr::new(&self.inner, region, iova, access)
    }

    /// A queue pair, in state RESET.
    ///
    /// # Errors
    /// `Invalid` if a size is beyond the device's limits or a queue belongs to another device;
    /// `Full` if the device has no room for another.
    pub fn create_qp(&self, options: &QpOptions<'_>) -> Result<Qp> {
        Qp::new(&self.inner, options)
    }

    /// A shared receive queue.
    ///
    /// # Errors
    /// `Invalid` if a size is beyond the device's limits; `Full` if the device has no room.
    pub fn create_srq(&self, attr: &SrqAttr) -> Result<Srq> {
        Srq::new(&self.inner, attr)
    }

    /// An address handle: a destination of datagrams.
    ///
    /// # Errors
    /// `Invalid` if the vector has no GRH (`is_global`), which RoCE always needs, or its GID index
    /// names no entry of the table.
    pub fn create_ah(&self, av: &AddressVector) -> Result<Ah> {
        Ah::new(&self.inner, av)
    }

    /// A memory window, not bound to anything yet.
    ///
    /// # Errors
    /// `Full` if the device has no room for another.
    pub fn alloc_mw(&self, kind: WindowType) -> Result<Mw> {
        Mw::new(&self.inner, kind)
    }

    /// Frees the domain now.
    ///
    /// # Errors
    /// `Busy` while something is in it; the domain is handed back.
    pub fn destroy(self) -> std::result::Result<(), (Self, Error)> {
        let handles = self.inner.handles.load(Ordering::Relaxed);
        let freed = if handles > 0 {
            let message = format!("{handles} address handle(s) are still in the protection domain");
            Err(Error::new(ErrorKind::Busy, message))
        } else {
            self.inner.context.nic().control(|dev, _| dev.dealloc_pd(self.inner.id))
        };
        match freed {
            Ok(()) => {
                self.inner.freed.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }
}
