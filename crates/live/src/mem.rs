//! This process's memory as the device reaches it: through raw pointers only, never as Rust
//! references, because the application reads and writes it at the same time, and may take it away.
//!
//! What an application may rely on: bytes are placed in ascending order and the last one last, so
//! that whoever sees the last byte sees all; an aligned 8-byte word is never torn, in either
//! direction. `memcpy` promises neither, hence the copying by hand (`copy`). Memory that has gone
//! (unmapped, beyond the end of its file, protected) is an error of the access, not the process's
//! end: `fault` catches the signal, `watch` knows when it cannot, `kernel` copies then.

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod ahead;
mod copy;
mod fault;
mod kernel;
#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, test))]
mod plain;
mod signals;
mod watch;

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use engine::{AtomicOp, Error, ErrorKind, HostMemory, MemoryFault, Payload};

#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
use plain as copy;

pub(crate) use fault::OwnThread;
pub use fault::{SignalKind, sigaction, signal};
pub(crate) use watch::Watch;
pub use watch::signals_changed;

/// The memory of this process. Addresses that reach it have been checked by the device against a
/// registration; what has gone since then is a [`MemoryFault`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory(());

impl ProcessMemory {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

impl HostMemory for ProcessMemory {
    fn write(&mut self, addr: u64, data: Payload<'_>) -> Result<(), MemoryFault> {
        match data {
            Payload::Bytes(bytes) => place(addr, bytes),
            Payload::Length(_) => Ok(()),
        }
    }

    fn atomic(&mut self, addr: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
        if !addr.is_multiple_of(8) || (watch::is_careful() && !kernel::word_is_writable(addr)) {
            return Err(MemoryFault);
        }
        let (word, mut old) = (addr as *mut u64, 0);
        // SAFETY: the device gives only addresses inside a live registration, whose maker lets the
        // device touch what is mapped there; the alignment was looked at above; everybody else who
        // touches the word at the same time does so atomically or accepts what comes. A fault is
        // caught.
        let fault = unsafe {
            match op {
                AtomicOp::CompareSwap { compare, swap } => {
                    copy::swap(word, compare, swap, &raw mut old)
                }
                AtomicOp::FetchAdd { add } => copy::add(word, add, &raw mut old),
            }
        };
        if fault == 0 { Ok(old) } else { Err(MemoryFault) }
    }
}

/// Copies host memory at `addr` into `out`; aligned words of the host are read whole.
pub(crate) fn load(addr: u64, out: &mut [u8]) -> Result<(), MemoryFault> {
    if watch::is_careful()
        && let Some(result) = kernel::load(addr, out)
    {
        return result;
    }
    ahead::read_on(addr, out.len());
    // SAFETY: `addr .. addr + len` lies in a live registration (see `ProcessMemory`), `out` is a
    // buffer of the same length that is not part of it. A fault is caught.
    let fault = unsafe { copy::load(addr as *const u8, out.as_mut_ptr(), out.len()) };
    if fault == 0 { Ok(()) } else { Err(MemoryFault) }
}

/// Copies `data` to host memory at `addr`: ascending, aligned words of the host written whole, the
/// last word or byte only when all before it is visible.
pub(crate) fn place(addr: u64, data: &[u8]) -> Result<(), MemoryFault> {
    if watch::is_careful()
        && let Some(result) = kernel::place(addr, data)
    {
        return result;
    }
    ahead::write_on(addr, data.len());
    // SAFETY: as in `load`, with the roles of source and destination exchanged.
    let fault = unsafe { copy::place(addr as *mut u8, data.as_ptr(), data.len()) };
    if fault == 0 { Ok(()) } else { Err(MemoryFault) }
}

/// A range of this process's memory that may be registered with a device.
#[derive(Debug)]
pub struct Region {
    addr: u64,
    len: usize,
    /// Bytes mapped here by [`Region::allocate`]; 0 if the memory is somebody else's.
    mapped: usize,
}

impl Region {
    /// Memory that belongs to the caller: of any kind, mapped from a file, shared, of huge pages,
    /// read-only if the registration gives no right to write.
    ///
    /// # Safety
    /// Until the region is dropped, a device may read all that is mapped at `addr .. addr + len`,
    /// and write what is writable; nobody may hold a Rust reference to it. What is not mapped any
    /// more, cut off from its file or protected gives errors to those who reach for it; but what
    /// has been mapped anew at the same place is reached in its stead.
    pub unsafe fn from_raw(addr: *mut u8, len: usize) -> Self {
        fault::install();
        Self { addr: addr as u64, len, mapped: 0 }
    }

    /// New memory, zeroed and page aligned; freed on drop.
    ///
    /// # Errors
    /// `Full` if the system has no such amount.
    pub fn allocate(len: usize) -> engine::Result<Self> {
        if len == 0 {
            return Ok(Self { addr: 4096, len: 0, mapped: 0 });
        }
        // SAFETY: a new private mapping at an address of the system's choice touches nothing.
        let addr = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if addr == libc::MAP_FAILED {
            let why = io::Error::last_os_error();
            return Err(Error::new(ErrorKind::Full, format!("cannot map {len} bytes: {why}")));
        }
        fault::install();
        Ok(Self { addr: addr as u64, len, mapped: len })
    }

    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn at(&self, offset: usize, len: usize) -> u64 {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at offset {offset} of a region of {} bytes",
            self.len
        );
        self.addr + offset as u64
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let addr = self.at(offset, 8);
        assert!(addr.is_multiple_of(8), "offset {offset} is not that of an aligned word");
        // SAFETY: inside the region, which is mapped and outlives the reference; aligned; an atomic
        // may be shared with whoever else writes the word, devices included.
        unsafe { AtomicU64::from_ptr(addr as *mut u64) }
    }

    /// Copies bytes at `offset` into `out`.
    ///
    /// # Panics
    /// If they are not all inside the region, or their memory has gone.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let loaded = load(self.at(offset, out.len()), out);
        loaded.expect("the region's memory is there");
    }

    /// The same, for memory that may have gone (see [`from_raw`](Self::from_raw)).
    ///
    /// # Errors
    /// `System` if it has; `out` then holds a part, or nothing.
    ///
    /// # Panics
    /// If the bytes are not all inside the region.
    pub fn try_read(&self, offset: usize, out: &mut [u8]) -> engine::Result<()> {
        let (addr, len) = (self.at(offset, out.len()), out.len());
        load(addr, out).map_err(|MemoryFault| gone(addr, len, "read"))
    }

    /// Copies `data` to `offset`, ascending, the last byte last.
    ///
    /// # Panics
    /// If they are not all inside the region, or their memory has gone or is read-only.
    pub fn write(&self, offset: usize, data: &[u8]) {
        let placed = place(self.at(offset, data.len()), data);
        placed.expect("the region's memory is there");
    }

    /// The same, for memory that may have gone (see [`from_raw`](Self::from_raw)).
    ///
    /// # Errors
    /// `System` if it has, or is read-only; a part may have been written.
    ///
    /// # Panics
    /// If the bytes are not all inside the region.
    pub fn try_write(&self, offset: usize, data: &[u8]) -> engine::Result<()> {
        let addr = self.at(offset, data.len());
        place(addr, data).map_err(|MemoryFault| gone(addr, data.len(), "written"))
    }

    /// The byte at `offset`, to spin on: who sees a message's last byte sees all of it.
    ///
    /// # Panics
    /// If it is not inside the region.
    pub fn load_u8(&self, offset: usize) -> u8 {
        // SAFETY: inside the region, which is mapped.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1) as *mut u8) }.load(Ordering::Acquire)
    }

    /// The word at `offset`, in the host's byte order (acquire).
    ///
    /// # Panics
    /// If it is not inside the region, or not at an address that is a multiple of 8.
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Writes the word at `offset` (release).
    ///
    /// # Panics
    /// As [`load_u64`](Self::load_u64).
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }
}

fn gone(addr: u64, len: usize, how: &str) -> Error {
    let sentence = format!("the {len} bytes at {addr:#x} cannot be {how}: unmapped or protected");
    Error::new(ErrorKind::System, sentence)
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: the mapping was made by `allocate`, is unmapped only here, and registrations
            // own their region, so that no device reaches it any more.
            unsafe { libc::munmap(self.addr as *mut libc::c_void, self.mapped) };
        }
    }
}

#[cfg(test)]
#[path = "mem_tests.rs"]
mod placement_tests;
#[cfg(all(test, not(miri)))]
mod tests;
