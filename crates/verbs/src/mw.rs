//! Memory windows: revocable rights over a part of a region.

use std::sync::Arc;

use engine::{Access, BindWindow, Error, MwId, Result, WindowType};
use wire::RKey;

use crate::context::Context;
use crate::mr::Mr;
use crate::pd::PdInner;

/// A memory window: a remote key of its own over a part of a region, which can be given and taken
/// away without registering anew.
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
