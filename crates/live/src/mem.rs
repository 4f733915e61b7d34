//! This process's memory as the device reaches it: through raw pointers only, never as Rust
//! references, because the application reads and writes it at the same time.
//!
//! What an application may rely on: bytes are placed in ascending order and the last one last, so
//! that whoever sees the last byte sees all; an aligned 8-byte word is never torn, in either
//! direction. `memcpy` promises neither, hence the copying by hand.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use engine::{AtomicOp, Error, ErrorKind, HostMemory, MemoryFault, Payload};

/// The memory of this process. Addresses that reach it have been checked by the device against a
/// registration, and who registered promised that the memory stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory(());

impl ProcessMemory {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

impl HostMemory for ProcessMemory {
    fn write(&mut self, addr: u64, data: Payload<'_>) -> Result<(), MemoryFault> {
        if let Payload::Bytes(bytes) = data {
            place(addr, bytes);
        }
        Ok(())
    }

    fn atomic(&mut self, addr: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
        if !addr.is_multiple_of(8) {
            return Err(MemoryFault);
        }
        // SAFETY: the device gives only addresses inside a live registration, whose maker keeps the
        // memory mapped; the alignment was looked at above; everybody else who touches the word at
        // the same time does so atomically or accepts what comes.
        let word = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
        Ok(match op {
            AtomicOp::CompareSwap { compare, swap } => {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => old,
                }
            }
            AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
        })
    }
}

/// Copies host memory at `addr` into `out`; aligned words of the host are read whole.
pub(crate) fn load(addr: u64, out: &mut [u8]) {
    let (src, len) = (addr as *const u8, out.len());
    let head = src.align_offset(8).min(len);
    let words = (len - head) / 8;
    let dst = out.as_mut_ptr();
    // SAFETY: `addr .. addr + len` lies in a live registration (see `ProcessMemory`), `out` is a
    // buffer of the same length that is not part of it; behind `head` bytes the source is aligned.
    unsafe {
        load_bytes(src, dst, head);
        copy_blocks(src.add(head), dst.add(head), words / BLOCK_WORDS);
        for i in words / BLOCK_WORDS * BLOCK_WORDS..words {
            let at = head + i * 8;
            let word = AtomicU64::from_ptr(src.add(at).cast_mut().cast()).load(Ordering::Relaxed);
            dst.add(at).cast::<u64>().write_unaligned(word);
        }
        let done = head + words * 8;
        load_bytes(src.add(done), dst.add(done), len - done);
    }
}

/// Copies `data` to host memory at `addr`: ascending, aligned words of the host written whole, the
/// last word or byte only when all before it is visible.
pub(crate) fn place(addr: u64, data: &[u8]) {
    let (dst, len) = (addr as *mut u8, data.len());
    let Some(&last) = data.last() else { return };
    let head = dst.align_offset(8).min(len);
    let words = (len - head) / 8;
    let tail = (len - head) % 8;
    // The last unit: a whole word where the data end at a word's end, else one byte.
    let last_word = words > 0 && tail == 0;
    let body_words = words - usize::from(last_word);
    let src = data.as_ptr();
    // SAFETY: as in `load`, with the roles of source and destination exchanged.
    unsafe {
        store_bytes(src, dst, if words == 0 && tail == 0 { head - 1 } else { head });
        copy_blocks(src.add(head), dst.add(head), body_words / BLOCK_WORDS);
        for i in body_words / BLOCK_WORDS * BLOCK_WORDS..body_words {
            store_word(src, dst, head + i * 8);
        }
        let done = head + words * 8;
        if last_word {
            fence(Ordering::Release);
            store_word(src, dst, done - 8);
            return;
        }
        store_bytes(src.add(done), dst.add(done), tail.saturating_sub(1));
        fence(Ordering::Release);
        AtomicU8::from_ptr(dst.add(len - 1)).store(last, Ordering::Relaxed);
    }
}

/// # Safety
/// `src + at` is readable, `dst + at` is writable host memory and a multiple of 8.
unsafe fn store_word(src: *const u8, dst: *mut u8, at: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        let word = src.add(at).cast::<u64>().read_unaligned();
        AtomicU64::from_ptr(dst.add(at).cast()).store(word, Ordering::Relaxed);
    }
}

/// # Safety
/// `src` is readable host memory and `dst` a writable buffer, both of `n` bytes.
unsafe fn load_bytes(src: *const u8, dst: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: by this function's contract.
        unsafe {
            let byte = AtomicU8::from_ptr(src.add(i).cast_mut()).load(Ordering::Relaxed);
            dst.add(i).write(byte);
        }
    }
}

/// # Safety
/// `src` is a readable buffer and `dst` writable host memory, both of `n` bytes.
unsafe fn store_bytes(src: *const u8, dst: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: by this function's contract.
        unsafe {
            AtomicU8::from_ptr(dst.add(i)).store(src.add(i).read(), Ordering::Relaxed);
        }
    }
}

/// Words in a block of [`copy_blocks`].
const BLOCK_WORDS: usize = 8;

/// Copies blocks of eight words in ascending order, each word whole where the host's side is
/// aligned to 8: the processor does 16 bytes at a time and splits them, if at all, where a cache
/// line ends, which is the end of a word. Stores of one thread become visible in their order.
///
/// # Safety
/// `src` is readable and `dst` writable for `blocks` × 64 bytes; one side is host memory, aligned
/// to 8, the other a buffer.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_blocks(src: *const u8, dst: *mut u8, blocks: usize) {
    if blocks == 0 {
        return;
    }
    // SAFETY: by this function's contract; the loop runs `blocks` times and moves both pointers by
    // 64 each time. Written out so that no compiler turns it into a call of memcpy.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqu {a}, [{src}]",
            "movdqu {b}, [{src} + 16]",
            "movdqu {c}, [{src} + 32]",
            "movdqu {d}, [{src} + 48]",
            "movdqu [{dst}], {a}",
            "movdqu [{dst} + 16], {b}",
            "movdqu [{dst} + 32], {c}",
            "movdqu [{dst} + 48], {d}",
            "add {src}, 64",
            "add {dst}, 64",
            "dec {n}",
            "jnz 2b",
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            n = inout(reg) blocks => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// As above, for processors on which words are moved one by one.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_blocks(src: *const u8, dst: *mut u8, blocks: usize) {
    let from_host = src.align_offset(8) == 0;
    for i in 0..blocks * BLOCK_WORDS {
        // SAFETY: by this function's contract.
        unsafe {
            if from_host {
                let at = AtomicU64::from_ptr(src.add(i * 8).cast_mut().cast());
                dst.add(i * 8).cast::<u64>().write_unaligned(at.load(Ordering::Relaxed));
            } else {
                store_word(src, dst, i * 8);
            }
        }
    }
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
    /// Memory that belongs to the caller.
    ///
    /// # Safety
    /// `addr .. addr + len` must stay mapped, readable and writable until the region is dropped,
    /// and nobody may hold a Rust reference to it while a device may reach it.
    pub unsafe fn from_raw(addr: *mut u8, len: usize) -> Self {
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
    /// If they are not all inside the region.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        load(self.at(offset, out.len()), out);
    }

    /// Copies `data` to `offset`, ascending, the last byte last.
    ///
    /// # Panics
    /// If they are not all inside the region.
    pub fn write(&self, offset: usize, data: &[u8]) {
        place(self.at(offset, data.len()), data);
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
mod tests;
