//! Memory regions: memory that the NIC may touch.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use engine::{Access, Error, MrId, RegionAttr, RegionKeys, Remote, Result, Sge};
use live::Region;
use wire::{LKey, RKey};

use crate::context::Context;
use crate::pd::{Pd, PdInner};

/// A memory region: memory that the device may read and, by its rights, write; that peers may reach
/// if its rights and its remote key let them.
///
/// The region owns its memory, or was promised it ([`Region::from_raw`]): while the device may
/// touch the memory, it exists. It is read and written through [`region`](Self::region), which
/// copies, because a peer may change it at any time.
///
/// ```
/// use crocevia::{Access, Context};
///
/// let context = Context::open_addr("127.0.70.5")?;
/// let pd = context.alloc_pd()?;
/// let mr = pd.alloc(1 << 20, Access::REMOTE_READ | Access::REMOTE_WRITE)?;
///
/// // For own work requests: a piece by address, length and local key.
/// let piece = mr.sge(100..200);
/// assert_eq!((piece.length, piece.lkey), (100, mr.lkey()));
/// // For the peer, by whatever means it is told: an address and the remote key.
/// let place = mr.remote(100);
/// assert_eq!((place.addr, place.rkey), (mr.addr() + 100, mr.rkey()));
///
/// // The memory comes back when the registration ends.
/// let region = mr.destroy().map_err(|(_, error)| error)?;
/// assert_eq!(region.len(), 1 << 20);
/// # Ok::<(), crocevia::Error>(())
/// ```
pub struct Mr {
    pd: Arc<PdInner>,
    /// `None` only when the registration has ended.
    region: Option<Region>,
    keys: RegionKeys,
    iova: u64,
    len: usize,
    access: Access,
}

impl Mr {
    pub(crate) fn new(
        pd: &Arc<PdInner>,
        region: Region,
        iova: u64,
        access: Access,
    ) -> Result<Self> {
        let len = region.len();
        let attr =
            RegionAttr { pd: pd.id(), addr: region.addr(), length: len as u64, iova, access };
        let keys = pd.context().nic().control(|dev, _| dev.reg_mr(&attr))?;
        Ok(Self { pd: Arc::clone(pd), region: Some(region), keys, iova, len, access })
    }

    /// The device.
    pub fn context(&self) -> &Context {
        self.pd.context()
    }

    /// The region's name within its device.
    pub fn id(&self) -> MrId {
        self.keys.id
    }

    /// The key by which own work requests name the region.
    pub fn lkey(&self) -> LKey {
        self.keys.lkey
    }

    /// The key by which peers name the region; of no use to them without remote rights.
    pub fn rkey(&self) -> RKey {
        self.keys.rkey
    }

    /// Rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Where the memory lies in this process.
    pub fn addr(&self) -> u64 {
        self.region().addr()
    }

    /// The address by which work requests and peers name the first byte.
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        self.region.as_ref().expect("the memory is there until the registration ends")
    }

    /// A part of the region, for a work request.
    ///
    /// # Panics
    /// If the range lies outside the region, or is longer than 2^32 - 1 bytes.
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Sge {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last + 1,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        assert!(
            start <= end && end <= self.len,
            "{start}..{end} lies outside a region of {} bytes",
            self.len
        );
        let length = u32::try_from(end - start).expect("a piece of less than 4 GiB");
        Sge { addr: self.iova.wrapping_add(start as u64), length, lkey: self.keys.lkey }
    }

    /// A place in the region as peers name it; to be sent to them.
    ///
    /// # Panics
    /// If `offset` lies behind the end of the region.
    pub fn remote(&self, offset: usize) -> Remote {
        assert!(offset <= self.len, "offset {offset} in a region of {} bytes", self.len);
        Remote { addr: self.iova.wrapping_add(offset as u64), rkey: self.keys.rkey }
    }

    /// Changes the registration: the domain, the memory (named by its address in this process) or
    /// the rights; `None` keeps what was. The keys change. The old memory is handed back.
    ///
    /// # Errors
    /// As for registering, and `Busy` while a memory window is bound to it; the registration is
    /// then what it was, and the new memory is dropped.
    pub fn rereg(
        &mut self,
        pd: Option<&Pd>,
        region: Option<Region>,
        access: Option<Access>,
    ) -> Result<Option<Region>> {
        let access_then = access.unwrap_or(self.access);
        let place = region.as_ref().map(|region| {
            let zero_based = access_then.contains(Access::ZERO_BASED);
            (region.addr(), region.len() as u64, if zero_based { 0 } else { region.addr() })
        });
        let pd_id = pd.map(Pd::id);
        if pd.is_some_and(|pd| !pd.context().is_same(self.context())) {
            return Err(Error::invalid("the protection domain belongs to another device"));
        }
        self.keys = self
            .context()
            .nic()
            .control(|dev, _| dev.rereg_mr(self.keys.id, pd_id, place, access))?;
        self.access = access_then;
        if let Some(pd) = pd {
            self.pd = Arc::clone(pd.shared());
        }
        if let Some((_, len, iova)) = place {
            self.len = len as usize;
            self.iova = iova;
        }
        Ok(region.and_then(|new| self.region.replace(new)))
    }

    /// Ends the registration and hands the memory back: the device and its peers touch it no more.
    /// Dropping the region does the same.
    ///
    /// # Errors
    /// `Busy` while a memory window is bound to it; the region is handed back.
    pub fn destroy(mut self) -> std::result::Result<Region, (Self, Error)> {
        match self.context().nic().control(|dev, _| dev.dereg_mr(self.keys.id)) {
            Ok(()) => Ok(self.region.take().expect("destroyed once")),
            Err(error) => Err((self, error)),
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let Some(region) = self.region.take() else { return };
        let ended = self.context().nic().control(|dev, _| dev.dereg_mr(self.keys.id));
        if ended.is_err() {
            // A window is bound to it, so peers can still reach the memory: it stays as long as the
            // device is open.
            self.context().keep(self.keys.id, region);
        }
    }
}
