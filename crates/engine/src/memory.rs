//! Registered memory: protection domains, regions, windows, keys; who may touch what. The bytes
//! themselves are moved by the driver, through [`HostMemory`].

use wire::{LKey, RKey};

use crate::work::Access;

/// Names a protection domain of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PdId(pub u32);

/// Names a memory region of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MrId(pub u32);

/// Names a memory window of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MwId(pub u32);

/// The payload of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// Only their number (simulations that carry no data).
    Length(u32),
}

impl<'a> Payload<'a> {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(b) => b.len(),
            Self::Length(n) => *n as usize,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload in two: the first `at` bytes (all, if there are fewer) and the rest.
    pub fn split(self, at: usize) -> (Self, Self) {
        let at = at.min(self.len());
        match self {
            Self::Bytes(b) => (Self::Bytes(&b[..at]), Self::Bytes(&b[at..])),
            Self::Length(n) => (Self::Length(at as u32), Self::Length(n - at as u32)),
        }
    }
}

/// The host refused to move bytes (the memory behind a registration has gone).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFault;

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Store `swap` if the word equals `compare`.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add, modulo 2^64.
    FetchAdd {
        /// Value to add.
        add: u64,
    },
}

/// The host's memory. Addresses are the host's own; permission has been checked by the device.
pub trait HostMemory {
    /// Places bytes at `addr` in ascending order, the last byte last (release); aligned 8-byte
    /// words are never torn.
    fn write(&mut self, addr: u64, data: Payload<'_>) -> Result<(), MemoryFault>;

    /// Executes an atomic on the native 64-bit word at `addr` (a multiple of 8), atomic against the
    /// host's CPUs too; the old value.
    fn atomic(&mut self, addr: u64, op: AtomicOp) -> Result<u64, MemoryFault>;
}

/// A region to be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionAttr {
    /// Protection domain.
    pub pd: PdId,
    /// Where the region lies in host memory.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// The address by which work requests and peers name its first byte.
    pub iova: u64,
    /// Rights.
    pub access: Access,
}

/// What registration gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionKeys {
    /// The region.
    pub id: MrId,
    /// Its local key.
    pub lkey: LKey,
    /// Its remote key; not usable by anybody unless remote rights were given.
    pub rkey: RKey,
}

/// The two kinds of memory window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowType {
    /// Bound with a call; belongs to the protection domain.
    Type1,
    /// Bound with a work request; belongs to the queue pair that bound it.
    Type2,
}
