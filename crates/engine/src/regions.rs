//! The tables of protection domains, regions and windows, and the one place where a key, a range
//! and a right are checked.

use wire::{LKey, Qpn, RKey};

use crate::error::{Error, ErrorKind, Result};
use crate::keys::Keys;
use crate::limits;
use crate::memory::{MrId, MwId, PdId, RegionAttr, RegionKeys, WindowType};
use crate::slots::{Lookup, Slots};
use crate::work::{Access, BindWindow};

#[derive(Debug)]
struct Region {
    attr: RegionAttr,
    lkey: LKey,
    rkey: RKey,
    windows: u32,
}

#[derive(Debug)]
struct Window {
    pd: PdId,
    kind: WindowType,
    rkey: RKey,
    bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    mr: u32,
    addr: u64,
    length: u64,
    access: Access,
    /// The queue pair that bound a type 2 window.
    qp: Qpn,
}

#[derive(Clone, Copy, Debug)]
enum Named {
    Region(u32),
    Window(u32),
}

/// Protection domains, regions and windows.
#[derive(Debug)]
pub(crate) struct Regions {
    /// Number of objects in each protection domain.
    pds: Slots<u32>,
    regions: Slots<Region>,
    windows: Slots<Window>,
    by_lkey: Lookup<u32, u32>,
    /// By the upper 24 bits: the low byte of a window's key is its owner's to choose.
    by_rkey: Lookup<u32, Named>,
}

/// A key, range or right that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AccessFault;

impl Regions {
    pub(crate) fn new() -> Self {
        Self {
            pds: Slots::new(),
            regions: Slots::new(),
            windows: Slots::new(),
            by_lkey: Lookup::default(),
            by_rkey: Lookup::default(),
        }
    }

    pub(crate) fn alloc_pd(&mut self) -> Result<PdId> {
        if self.pds.len() >= limits::MAX_PD as usize {
            return Err(full("protection domains", limits::MAX_PD));
        }
        Ok(PdId(self.pds.insert(0)))
    }

    pub(crate) fn dealloc_pd(&mut self, pd: PdId) -> Result<()> {
        match self.pds.get(pd.0) {
            None => Err(no_such("protection domain")),
            Some(0) => {
                self.pds.remove(pd.0);
                Ok(())
            }
            Some(n) => Err(Error::new(
                ErrorKind::Busy,
                format!("{n} objects are still in the protection domain: destroy them first"),
            )),
        }
    }

    /// Notes that an object was made in (or left) a protection domain.
    pub(crate) fn use_pd(&mut self, pd: PdId, change: i32) -> Result<()> {
        let users = self.pds.get_mut(pd.0).ok_or_else(|| no_such("protection domain"))?;
        *users = users.saturating_add_signed(change);
        Ok(())
    }

    pub(crate) fn register(&mut self, attr: &RegionAttr, keys: &mut Keys) -> Result<RegionKeys> {
        check_region(attr)?;
        if self.regions.len() >= limits::MAX_MR as usize {
            return Err(full("memory regions", limits::MAX_MR));
        }
        self.use_pd(attr.pd, 1)?;
        let (lkey, rkey) = self.draw(keys);
        let id = self.regions.insert(Region { attr: *attr, lkey, rkey, windows: 0 });
        self.by_lkey.insert(lkey.get(), id);
        self.by_rkey.insert(rkey.get() >> 8, Named::Region(id));
        Ok(RegionKeys { id: MrId(id), lkey, rkey })
    }

    fn draw(&mut self, keys: &mut Keys) -> (LKey, RKey) {
        let lkey = keys.draw_until(|n| n != 0 && !self.by_lkey.contains_key(&n));
        (LKey::new(lkey), self.draw_rkey(keys))
    }

    fn draw_rkey(&mut self, keys: &mut Keys) -> RKey {
        RKey::new(keys.draw_until(|n| n >> 8 != 0 && !self.by_rkey.contains_key(&(n >> 8))))
    }

    pub(crate) fn reregister(
        &mut self,
        mr: MrId,
        pd: Option<PdId>,
        place: Option<(u64, u64, u64)>,
        access: Option<Access>,
        keys: &mut Keys,
    ) -> Result<RegionKeys> {
        let region = self.regions.get(mr.0).ok_or_else(|| no_such("memory region"))?;
        if region.windows != 0 {
            return Err(busy_windows(region.windows));
        }
        let mut attr = region.attr;
        if let Some((addr, length, iova)) = place {
            (attr.addr, attr.length, attr.iova) = (addr, length, iova);
        }
        attr.pd = pd.unwrap_or(attr.pd);
        attr.access = access.unwrap_or(attr.access);
        check_region(&attr)?;
        let old = region.attr.pd;
        self.use_pd(attr.pd, 1)?;
        self.use_pd(old, -1)?;
        self.forget_keys(mr.0);
        let (lkey, rkey) = self.draw(keys);
        self.by_lkey.insert(lkey.get(), mr.0);
        self.by_rkey.insert(rkey.get() >> 8, Named::Region(mr.0));
        if let Some(region) = self.regions.get_mut(mr.0) {
            region.attr = attr;
            (region.lkey, region.rkey) = (lkey, rkey);
        }
        Ok(RegionKeys { id: mr, lkey, rkey })
    }

    fn forget_keys(&mut self, mr: u32) {
        if let Some(region) = self.regions.get(mr) {
            self.by_lkey.remove(&region.lkey.get());
            self.by_rkey.remove(&(region.rkey.get() >> 8));
        }
    }

    pub(crate) fn deregister(&mut self, mr: MrId) -> Result<()> {
        let region = self.regions.get(mr.0).ok_or_else(|| no_such("memory region"))?;
        if region.windows != 0 {
            return Err(busy_windows(region.windows));
        }
        let pd = region.attr.pd;
        self.forget_keys(mr.0);
        self.regions.remove(mr.0);
        self.use_pd(pd, -1)
    }

    pub(crate) fn alloc_window(
        &mut self,
        pd: PdId,
        kind: WindowType,
        keys: &mut Keys,
    ) -> Result<(MwId, RKey)> {
        if self.windows.len() >= limits::MAX_MW as usize {
            return Err(full("memory windows", limits::MAX_MW));
        }
        self.use_pd(pd, 1)?;
        let rkey = self.draw_rkey(keys);
        let id = self.windows.insert(Window { pd, kind, rkey, bound: None });
        self.by_rkey.insert(rkey.get() >> 8, Named::Window(id));
        Ok((MwId(id), rkey))
    }

    pub(crate) fn dealloc_window(&mut self, mw: MwId) -> Result<()> {
        self.unbind(mw.0);
        let window = self.windows.remove(mw.0).ok_or_else(|| no_such("memory window"))?;
        self.by_rkey.remove(&(window.rkey.get() >> 8));
        self.use_pd(window.pd, -1)
    }

    pub(crate) fn window_rkey(&self, mw: MwId) -> Result<RKey> {
        self.windows.get(mw.0).map(|w| w.rkey).ok_or_else(|| no_such("memory window"))
    }

    /// The key after the current one, as `ibv_inc_rkey` makes it: the low byte counts.
    pub(crate) fn next_window_rkey(&self, mw: MwId) -> Result<RKey> {
        let key = self.window_rkey(mw)?.get();
        Ok(RKey::new(key & !0xFF | (key.wrapping_add(1) & 0xFF)))
    }

    fn unbind(&mut self, mw: u32) {
        let Some(bound) = self.windows.get_mut(mw).and_then(|w| w.bound.take()) else { return };
        if let Some(region) = self.regions.get_mut(bound.mr) {
            region.windows -= 1;
        }
    }

    /// Binds a window on behalf of a queue pair.
    pub(crate) fn bind(
        &mut self,
        pd: PdId,
        qp: Qpn,
        bind: &BindWindow,
    ) -> std::result::Result<(), AccessFault> {
        let window = self.windows.get(bind.mw.0).ok_or(AccessFault)?;
        let own_key = window.rkey.get() >> 8 == bind.rkey.get() >> 8;
        let rebind_of_type2 = window.kind == WindowType::Type2 && window.bound.is_some();
        if window.pd != pd || !own_key || rebind_of_type2 {
            return Err(AccessFault);
        }
        let kind = window.kind;
        if bind.length == 0 && kind == WindowType::Type1 {
            self.unbind(bind.mw.0);
        } else {
            let bound = self.check_bind(pd, qp, bind)?;
            self.unbind(bind.mw.0);
            if let Some(region) = self.regions.get_mut(bound.mr) {
                region.windows += 1;
            }
            if let Some(window) = self.windows.get_mut(bind.mw.0) {
                window.bound = Some(bound);
            }
        }
        if let Some(window) = self.windows.get_mut(bind.mw.0) {
            window.rkey = bind.rkey;
        }
        Ok(())
    }

    fn check_bind(
        &self,
        pd: PdId,
        qp: Qpn,
        bind: &BindWindow,
    ) -> std::result::Result<Bound, AccessFault> {
        let mr = *self.by_lkey.get(&bind.lkey.get()).ok_or(AccessFault)?;
        let region = self.regions.get(mr).ok_or(AccessFault)?;
        let needs_local_write =
            bind.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if region.attr.pd != pd
            || !region.attr.access.contains(Access::MW_BIND)
            || (needs_local_write && !region.attr.access.contains(Access::LOCAL_WRITE))
        {
            return Err(AccessFault);
        }
        inside(&region.attr, bind.addr, bind.length)?;
        Ok(Bound { mr, addr: bind.addr, length: bind.length, access: bind.access, qp })
    }

    /// Kills a key on behalf of a queue pair: a bound type 2 window.
    pub(crate) fn invalidate(
        &mut self,
        pd: PdId,
        qp: Qpn,
        key: RKey,
    ) -> std::result::Result<(), AccessFault> {
        match self.by_rkey.get(&(key.get() >> 8)).copied().ok_or(AccessFault)? {
            Named::Window(mw) => {
                let window = self.windows.get(mw).ok_or(AccessFault)?;
                let own = window.bound.is_some_and(|b| b.qp == qp);
                if window.rkey != key || window.kind != WindowType::Type2 || window.pd != pd || !own
                {
                    return Err(AccessFault);
                }
                self.unbind(mw);
            }
            // An application's region lives until it is deregistered; only a kernel's
            // fast-registered ones may be killed by a peer.
            Named::Region(_) => return Err(AccessFault),
        }
        Ok(())
    }

    /// The host address of `length` bytes that the own device may read (or write).
    pub(crate) fn local(
        &self,
        lkey: LKey,
        pd: PdId,
        addr: u64,
        length: u64,
        write: bool,
    ) -> std::result::Result<u64, AccessFault> {
        let mr = *self.by_lkey.get(&lkey.get()).ok_or(AccessFault)?;
        let region = self.regions.get(mr).ok_or(AccessFault)?;
        if region.attr.pd != pd || (write && !region.attr.access.contains(Access::LOCAL_WRITE)) {
            return Err(AccessFault);
        }
        inside(&region.attr, addr, length)
    }

    /// The host address of `length` bytes that a peer of queue pair `qp` may use with `right`.
    pub(crate) fn remote(
        &self,
        rkey: RKey,
        (pd, qp): (PdId, Qpn),
        addr: u64,
        length: u64,
        right: Access,
    ) -> std::result::Result<u64, AccessFault> {
        match self.by_rkey.get(&(rkey.get() >> 8)).copied().ok_or(AccessFault)? {
            Named::Region(mr) => {
                let region = self.regions.get(mr).ok_or(AccessFault)?;
                let attr = &region.attr;
                if region.rkey != rkey || attr.pd != pd || !attr.access.contains(right) {
                    return Err(AccessFault);
                }
                inside(attr, addr, length)
            }
            Named::Window(mw) => {
                let window = self.windows.get(mw).ok_or(AccessFault)?;
                let bound = window.bound.ok_or(AccessFault)?;
                let foreign = window.kind == WindowType::Type2 && bound.qp != qp;
                if window.rkey != rkey || window.pd != pd || foreign {
                    return Err(AccessFault);
                }
                if !bound.access.contains(right) {
                    return Err(AccessFault);
                }
                let zero_based = bound.access.contains(Access::ZERO_BASED);
                let start = if zero_based { 0 } else { bound.addr };
                let offset = addr.checked_sub(start).ok_or(AccessFault)?;
                let end = offset.checked_add(length).ok_or(AccessFault)?;
                if end > bound.length {
                    return Err(AccessFault);
                }
                let region = self.regions.get(bound.mr).ok_or(AccessFault)?;
                inside(&region.attr, bound.addr.wrapping_add(offset), length)
            }
        }
    }
}

/// The host address of a range named by the region's own addresses.
fn inside(attr: &RegionAttr, addr: u64, length: u64) -> std::result::Result<u64, AccessFault> {
    let base = if attr.access.contains(Access::ZERO_BASED) { 0 } else { attr.iova };
    let offset = addr.checked_sub(base).ok_or(AccessFault)?;
    let end = offset.checked_add(length).ok_or(AccessFault)?;
    if end > attr.length { Err(AccessFault) } else { Ok(attr.addr.wrapping_add(offset)) }
}

fn check_region(attr: &RegionAttr) -> Result<()> {
    let writes = attr.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !attr.access.contains(Access::LOCAL_WRITE) {
        return Err(Error::invalid(
            "a region with remote write or remote atomic access needs local write access too: \
             add IBV_ACCESS_LOCAL_WRITE",
        ));
    }
    let last = attr.length.saturating_sub(1);
    if attr.addr.checked_add(last).is_none() || attr.iova.checked_add(last).is_none() {
        return Err(Error::invalid(format!(
            "the region wraps past the end of the address space: address {:#x}, iova {:#x}, \
             length {:#x}",
            attr.addr, attr.iova, attr.length
        )));
    }
    Ok(())
}

fn full(what: &str, limit: u32) -> Error {
    Error::new(ErrorKind::Full, format!("the device has all of its {limit} {what} in use"))
}

fn no_such(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("no such {what}"))
}

fn busy_windows(n: u32) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{n} memory windows are bound to the region: unbind or free them first"),
    )
}
