//! Big-endian fields at fixed offsets. Offsets are constants of the message layouts, inside the 232
//! bytes after the header; no value from the wire ever becomes an offset.

use crate::ids::Gid;

/// Reads fields.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The part from `at` on.
    pub(super) fn from(self, at: usize) -> Self {
        Self(&self.0[at..])
    }

    pub(super) fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.0[at..at + N]);
        out
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    /// 24 bits; the byte behind them is another field.
    pub(super) fn u24(self, at: usize) -> u32 {
        self.u32(at) >> 8
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    pub(super) fn gid(self, at: usize) -> Gid {
        Gid(self.array(at))
    }
}

/// Writes fields into zeroed bytes.
pub(super) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// The part from `at` on.
    pub(super) fn from(&mut self, at: usize) -> Writer<'_> {
        Writer(&mut self.0[at..])
    }

    pub(super) fn bytes(&mut self, at: usize, value: &[u8]) {
        self.0[at..at + value.len()].copy_from_slice(value);
    }

    pub(super) fn u8(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    pub(super) fn u16(&mut self, at: usize, value: u16) {
        self.bytes(at, &value.to_be_bytes());
    }

    /// 24 bits; the byte behind them stays.
    pub(super) fn u24(&mut self, at: usize, value: u32) {
        self.bytes(at, &value.to_be_bytes()[1..]);
    }

    pub(super) fn u32(&mut self, at: usize, value: u32) {
        self.bytes(at, &value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, at: usize, value: u64) {
        self.bytes(at, &value.to_be_bytes());
    }

    pub(super) fn gid(&mut self, at: usize, value: Gid) {
        self.bytes(at, &value.0);
    }
}
