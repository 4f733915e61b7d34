//! Capture files as records: pcap and pcapng in both byte orders, in blocks of bounded size.
//!
//! A [`Block`] owns the bytes of whole records, so that it can be read on one thread and peeled on
//! another. It is used again and again.

use crate::record::Record;

/// Whole records of a capture.
#[derive(Debug, Default)]
pub struct Block {}

impl Block {
    /// Its records, in the order of the file.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        core::iter::empty()
    }
}
