//! The objects behind the addresses that C programs hold: the public structure first, then what the
//! library needs. A registry knows every live address, so that the calls off the data path answer
//! EINVAL to an address that is foreign, of another kind, or already destroyed.

use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, offset_of};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use check::Kind;
use crocevia::{
    Ah, CompChannel, Completion, Context, Cq, CqId, DeviceInfo, Error, Mr, Mw, Pd, Qp, QpType, Qpn,
    Srq, SrqId, Xrcd,
};

use crate::abi::*;
use crate::entry::qp_ex::Builder;
use crate::errno::{Done, EINVAL};
use crate::watch;

/// An object with a public face.
///
/// # Safety
/// The type is `repr(C)` and has a `Public` at `OFFSET` bytes from its beginning.
pub(crate) unsafe trait Handle: Sized {
    /// What C programs see.
    type Public;
    /// For the registry.
    const KIND: Kind;
    /// Where the public part lies.
    const OFFSET: usize = 0;
    /// Whether it holds more than a slot does: then it is dropped at its end, even if its memory is
    /// kept.
    const HOLDS: bool = false;
}

/// Locks what stays whole whatever happens to the thread that held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static REGISTRY: LazyLock<Mutex<HashMap<usize, Kind>>> = LazyLock::new(Mutex::default);

/// Gives an object an address that a C program may hold.
pub(crate) fn give<H: Handle>(object: H) -> *mut H::Public {
    let address = Box::into_raw(Box::new(object));
    lock(&REGISTRY).insert(address as usize, H::KIND);
    address.wrapping_byte_add(H::OFFSET).cast()
}

/// Whether a live object of this kind has the address.
pub(crate) fn is_live<H: Handle>(public: *mut H::Public) -> bool {
    let address = (public as usize).wrapping_sub(H::OFFSET);
    lock(&REGISTRY).get(&address) == Some(&H::KIND)
}

/// The object behind an address, if there is one.
///
/// # Errors
/// EINVAL if there is none of this kind.
pub(crate) fn find<'a, H: Handle>(public: *mut H::Public) -> Done<&'a H> {
    let live = is_live::<H>(public);
    watch::looked_up(public, H::KIND, live);
    if !live {
        return Err(EINVAL);
    }
    // SAFETY: the registry says that an object of this kind lives there. A program that destroys it
    // while another of its threads uses it breaks the contract of every verbs library.
    Ok(unsafe { trust(public) })
}

/// The object behind an address, unseen: for the data path.
///
/// # Safety
/// `public` was given for a live object of type `H`.
#[inline]
pub(crate) unsafe fn trust<'a, H: Handle>(public: *mut H::Public) -> &'a H {
    // SAFETY: by contract; `Handle` says where the public part lies within the object.
    unsafe { &*public.wrapping_byte_sub(H::OFFSET).cast::<H>() }
}

/// Takes an address out of use and frees the object. What it held in a [`Slot`] must have been
/// taken out; a slot drops nothing.
pub(crate) fn free<H: Handle>(public: *mut H::Public) {
    let address = public.wrapping_byte_sub(H::OFFSET).cast::<H>();
    if lock(&REGISTRY).remove(&(address as usize)).is_none() {
        return;
    }
    // SAFETY: made by `give` from a box, and only the caller that took it out of the registry comes
    // here; whoever keeps the memory gives it back instead.
    unsafe {
        let give_back = if H::HOLDS {
            address.drop_in_place();
            deallocate::<H>
        } else {
            release::<H>
        };
        if !watch::keep(public, address as usize, give_back) {
            give_back(address as usize);
        }
    }
}

/// Frees an object that is in the registry no more.
///
/// # Safety
/// `address` was made by `give` from an `H`, and is freed once.
unsafe fn release<H>(address: usize) {
    // SAFETY: by contract.
    drop(unsafe { Box::from_raw(address as *mut H) });
}

/// Frees the memory of an object that has been dropped.
///
/// # Safety
/// As for [`release`].
unsafe fn deallocate<H>(address: usize) {
    // SAFETY: by contract; a box that holds nothing to be dropped has the same layout.
    drop(unsafe { Box::from_raw(address as *mut core::mem::MaybeUninit<H>) });
}

/// Holds the object of the layer below, whose end may be refused.
pub(crate) struct Slot<T>(UnsafeCell<ManuallyDrop<T>>);

impl<T> Slot<T> {
    pub(crate) fn new(object: T) -> Self {
        Self(UnsafeCell::new(ManuallyDrop::new(object)))
    }

    #[inline]
    pub(crate) fn get(&self) -> &T {
        // SAFETY: written only by `end` and `get_mut`, whose contracts exclude other users.
        unsafe { &*self.0.get() }
    }

    /// The object for a call that changes it.
    ///
    /// # Safety
    /// Nobody else uses the slot meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn get_mut(&self) -> &mut T {
        // SAFETY: by contract.
        unsafe { &mut *self.0.get() }
    }

    /// Ends the object with `f`, which hands it back if it refuses.
    ///
    /// # Safety
    /// Nobody else uses the slot meanwhile, and if `f` succeeds nobody uses it any more.
    pub(crate) unsafe fn end<R>(
        &self,
        f: impl FnOnce(T) -> Result<R, (T, Error)>,
    ) -> Result<R, Error> {
        // SAFETY: by contract nobody looks at the slot while it is empty.
        let object = unsafe { core::ptr::read(self.0.get().cast::<T>()) };
        f(object).map_err(|(object, error)| {
            // SAFETY: as above; the value read before is now owned by nobody else.
            unsafe { core::ptr::write(self.0.get().cast::<T>(), object) };
            error
        })
    }
}

/// A device of the list. It is never freed: programs keep the address.
#[repr(C)]
pub(crate) struct DeviceHandle {
    pub public: ibv_device,
    /// The system's provider libraries look here for a table of theirs and must find none.
    pub tail: [usize; 16],
    pub info: Mutex<DeviceInfo>,
}

/// Finds the C object that an event is about.
pub(crate) struct Table<K>(Mutex<HashMap<K, usize>>);

impl<K: Eq + Hash> Table<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }
    pub(crate) fn insert<P>(&self, key: K, public: *mut P) {
        lock(&self.0).insert(key, public as usize);
    }
    /// Forgets an object, unless its number already belongs to another.
    pub(crate) fn remove<P>(&self, key: &K, public: *mut P) {
        let mut table = lock(&self.0);
        if table.get(key) == Some(&(public as usize)) {
            table.remove(key);
        }
    }
    pub(crate) fn get<P>(&self, key: &K) -> Option<*mut P> {
        lock(&self.0).get(key).map(|&address| address as *mut P)
    }
}

/// Device and number of a file, which names an XRC domain for all that open it by the file.
pub(crate) type File = (u64, u64);

/// An open device.
#[repr(C)]
pub(crate) struct ContextHandle {
    pub verbs: verbs_context,
    pub context: Context,
    pub cqs: Table<CqId>,
    pub qps: Table<Qpn>,
    pub srqs: Table<SrqId>,
    /// Open XRC domains with the files that name them, if one does.
    pub xrcds: Mutex<Vec<(Option<File>, usize)>>,
    /// Objects that refer to this one, and the program itself until it closes the device.
    pub users: AtomicUsize,
    pub closed: AtomicBool,
    /// Device clock to wall clock, in nanoseconds: to be added.
    pub wallclock_offset: i128,
}

impl ContextHandle {
    /// An object has been made.
    pub(crate) fn adopt(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }
}

/// A user of a context has gone: an object made from it, or the program. With the last one the
/// device closes.
pub(crate) fn disown(context: *mut ibv_context) {
    let Ok(handle) = find::<ContextHandle>(context) else { return };
    if handle.users.fetch_sub(1, Ordering::AcqRel) == 1 {
        free::<ContextHandle>(context);
    }
}

/// A protection domain, or a parent domain over one.
#[repr(C)]
pub(crate) struct PdHandle {
    pub public: UnsafeCell<ibv_pd>,
    pub pd: PdKind,
    /// Parent domains over this one.
    pub children: AtomicUsize,
}

/// See [`PdHandle`].
pub(crate) enum PdKind {
    Own(Slot<Pd>),
    Parent(*mut ibv_pd),
}

impl PdHandle {
    /// The domain itself.
    pub(crate) fn pd(&self) -> Done<&Pd> {
        match &self.pd {
            PdKind::Own(slot) => Ok(slot.get()),
            PdKind::Parent(below) => find::<PdHandle>(*below)?.pd(),
        }
    }
}

/// A thread domain; the library needs no such hint.
#[repr(C)]
pub(crate) struct TdHandle {
    pub public: UnsafeCell<ibv_td>,
}

/// A memory region.
#[repr(C)]
pub(crate) struct MrHandle {
    pub public: UnsafeCell<ibv_mr>,
    pub mr: Slot<Mr>,
    /// A mapping of the library's own (a dma-buf), to be unmapped at the end.
    pub mapping: Option<(usize, usize)>,
}

/// A memory window.
#[repr(C)]
pub(crate) struct MwHandle {
    pub public: UnsafeCell<ibv_mw>,
    pub mw: Slot<Mw>,
}

/// An address handle.
#[repr(C)]
pub(crate) struct AhHandle {
    pub public: UnsafeCell<ibv_ah>,
    pub ah: Slot<Ah>,
}

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelHandle {
    pub public: UnsafeCell<ibv_comp_channel>,
    pub channel: Slot<CompChannel>,
}

/// A completion queue, extended or not.
#[repr(C)]
pub(crate) struct CqHandle {
    pub public: UnsafeCell<ibv_cq_ex>,
    pub cq: Slot<Cq>,
    /// What the extended interface is looking at, between `start_poll` and `end_poll`.
    pub current: UnsafeCell<Completion>,
    /// The program promised that only one thread polls at a time.
    pub single_threaded: bool,
}

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SrqHandle {
    pub public: UnsafeCell<ibv_srq>,
    pub srq: Slot<Srq>,
}

/// An XRC domain.
#[repr(C)]
pub(crate) struct XrcdHandle {
    pub public: UnsafeCell<ibv_xrcd>,
    pub xrcd: Slot<Xrcd>,
}

/// A queue pair.
#[repr(C)]
pub(crate) struct QpHandle {
    pub public: UnsafeCell<ibv_qp_ex>,
    pub qp: Slot<Qp>,
    pub qp_type: QpType,
    /// Present if it was made with `send_ops_flags`; belongs to the thread between `wr_start` and
    /// `wr_complete`, which holds the public mutex.
    pub builder: Option<Box<UnsafeCell<Builder>>>,
}

macro_rules! handles {
    ($($name:ident($public:ty) = $kind:ident;)*) => { $(
        // SAFETY: `repr(C)`, and the public part is the first field.
        unsafe impl Handle for $name {
            type Public = $public;
            const KIND: Kind = Kind::$kind;
        }
        const _: () = assert!(offset_of!($name, public) == 0);
    )* };
}

handles! {
    PdHandle(ibv_pd) = Pd;
    TdHandle(ibv_td) = Td;
    MrHandle(ibv_mr) = Mr;
    MwHandle(ibv_mw) = Mw;
    AhHandle(ibv_ah) = Ah;
    ChannelHandle(ibv_comp_channel) = Channel;
    CqHandle(ibv_cq) = Cq;
    SrqHandle(ibv_srq) = Srq;
    QpHandle(ibv_qp) = Qp;
    XrcdHandle(ibv_xrcd) = Xrcd;
}

// SAFETY: `repr(C)`; the public context is the last field of `verbs_context`, the first field here.
unsafe impl Handle for ContextHandle {
    type Public = ibv_context;
    const KIND: Kind = Kind::Context;
    const OFFSET: usize = offset_of!(verbs_context, context);
    const HOLDS: bool = true;
}

const _: () = assert!(offset_of!(ContextHandle, verbs) == 0);
const _: () = assert!(offset_of!(DeviceHandle, public) == 0);
const _: () = assert!(offset_of!(DeviceHandle, tail) == 664);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_only_while_they_live() {
        let context = core::ptr::null_mut();
        let td = give(TdHandle { public: UnsafeCell::new(ibv_td { context }) });
        assert!(find::<TdHandle>(td).is_ok());
        assert!(find::<PdHandle>(td.cast()).is_err(), "another kind");
        free::<TdHandle>(td);
        assert!(find::<TdHandle>(td).is_err());
        free::<TdHandle>(td); // A second time does nothing.
        assert!(find::<TdHandle>(core::ptr::null_mut()).is_err());
    }

    #[test]
    fn a_slot_survives_a_refusal() {
        let slot = Slot::new(String::from("kept"));
        // SAFETY: nobody else has the slot.
        let refused = unsafe { slot.end(|s| Err::<(), _>((s, Error::invalid("no")))) };
        assert!(refused.is_err());
        assert_eq!(slot.get(), "kept");
        // SAFETY: as above, and not used again.
        assert_eq!(unsafe { slot.end(Ok) }.ok().as_deref(), Some("kept"));
    }
}
