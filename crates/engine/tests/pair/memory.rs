//! Host memory as an owned vector of bytes at a made-up address. It notices at once when the device
//! reads or writes outside what is registered.

use std::ops::Range;

use engine::{AtomicOp, HostMemory, MemoryFault, Payload};

/// An atomic that the device executed: address, operation, the value before it.
pub type Executed = (u64, AtomicOp, u64);

/// Host memory of a test.
pub struct TestMemory {
    base: u64,
    bytes: Vec<u8>,
    /// Where the device may read.
    readable: Vec<Range<u64>>,
    /// Where the device may write.
    writable: Vec<Range<u64>>,
    /// Memory that has gone away under its registration.
    gone: Vec<Range<u64>>,
    /// Atomics in the order of their execution.
    pub atomics: Vec<Executed>,
    /// Bytes written so far.
    pub written: u64,
    /// Keep every write in `writes`.
    pub log_writes: bool,
    /// Address and length of the writes, if they are logged.
    pub writes: Vec<(u64, usize)>,
}

impl TestMemory {
    /// `size` zero bytes, the first of them at `base`.
    pub fn new(base: u64, size: usize) -> Self {
        Self {
            base,
            bytes: vec![0; size],
            readable: Vec::new(),
            writable: Vec::new(),
            gone: Vec::new(),
            atomics: Vec::new(),
            written: 0,
            log_writes: false,
            writes: Vec::new(),
        }
    }

    /// Address of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// All bytes.
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// The application's view of `length` bytes at `addr`.
    pub fn slice(&self, addr: u64, length: usize) -> &[u8] {
        let start = (addr - self.base) as usize;
        &self.bytes[start..start + length]
    }

    /// The same, to be written by the application.
    pub fn slice_mut(&mut self, addr: u64, length: usize) -> &mut [u8] {
        let start = (addr - self.base) as usize;
        &mut self.bytes[start..start + length]
    }

    /// The 64-bit word at `addr`.
    pub fn word(&self, addr: u64) -> u64 {
        u64::from_ne_bytes(self.slice(addr, 8).try_into().expect("eight bytes"))
    }

    /// Sets the 64-bit word at `addr`.
    pub fn set_word(&mut self, addr: u64, value: u64) {
        self.slice_mut(addr, 8).copy_from_slice(&value.to_ne_bytes());
    }

    /// The device may read this range, and write it if `write`.
    pub fn permit(&mut self, range: Range<u64>, write: bool) {
        if write {
            self.writable.push(range.clone());
        }
        self.readable.push(range);
    }

    /// The memory of this range goes away: what the device reads or writes there fails.
    pub fn vanish(&mut self, range: Range<u64>) {
        self.gone.push(range);
    }

    /// What the device copies into a packet; `None` if it has gone away.
    pub fn read_by_device(&self, addr: u64, length: usize) -> Option<&[u8]> {
        assert!(
            within(&self.readable, addr, length),
            "the device reads {length} bytes at {addr:#x}, outside what is registered"
        );
        (!self.is_gone(addr, length)).then(|| self.slice(addr, length))
    }

    fn is_gone(&self, addr: u64, length: usize) -> bool {
        self.gone.iter().any(|gone| addr < gone.end && gone.start < addr + length as u64)
    }
}

impl std::fmt::Debug for TestMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes.len(), self.base)
    }
}

fn within(ranges: &[Range<u64>], addr: u64, length: usize) -> bool {
    let Some(end) = addr.checked_add(length as u64) else { return false };
    length == 0 || ranges.iter().any(|range| range.start <= addr && end <= range.end)
}

impl HostMemory for TestMemory {
    fn write(&mut self, addr: u64, data: Payload<'_>) -> Result<(), MemoryFault> {
        let length = data.len();
        if self.is_gone(addr, length) {
            return Err(MemoryFault);
        }
        assert!(
            within(&self.writable, addr, length),
            "the device writes {length} bytes at {addr:#x}, outside what it may write"
        );
        self.written += length as u64;
        if self.log_writes {
            self.writes.push((addr, length));
        }
        if let Payload::Bytes(bytes) = data {
            self.slice_mut(addr, length).copy_from_slice(bytes);
        }
        Ok(())
    }

    fn atomic(&mut self, addr: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
        if self.is_gone(addr, 8) {
            return Err(MemoryFault);
        }
        assert!(addr.is_multiple_of(8), "an atomic at {addr:#x}");
        assert!(
            within(&self.writable, addr, 8),
            "an atomic at {addr:#x}, outside what the device may write"
        );
        let old = self.word(addr);
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
        };
        self.set_word(addr, new);
        self.atomics.push((addr, op, old));
        Ok(old)
    }
}
