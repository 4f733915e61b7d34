//! Pieces of a memory area, taken and given back; first fit from a moving start, so that places are
//! not used again at once.

use std::collections::BTreeMap;

/// Bytes left free behind each piece.
const GAP: u64 = 16;

/// An area of which pieces are taken.
#[derive(Debug)]
pub(crate) struct Arena {
    base: u64,
    length: u64,
    /// Start and end of what is taken.
    taken: BTreeMap<u64, u64>,
    cursor: u64,
}

impl Arena {
    pub(crate) fn new(base: u64, length: u64) -> Self {
        Self { base, length, taken: BTreeMap::new(), cursor: base }
    }

    /// Takes `length` bytes, if there are that many in one piece.
    pub(crate) fn take(&mut self, length: u64) -> Option<u64> {
        let need = length + GAP;
        let found = self.search(self.cursor, need).or_else(|| self.search(self.base, need))?;
        self.taken.insert(found, found + need);
        self.cursor = found + need;
        Some(found)
    }

    fn search(&self, from: u64, need: u64) -> Option<u64> {
        let mut start = from;
        if let Some((_, &end)) = self.taken.range(..=from).next_back() {
            start = start.max(end);
        }
        for (&begin, &end) in self.taken.range(from..) {
            if begin >= start + need {
                break;
            }
            start = start.max(end);
        }
        (start + need <= self.base + self.length).then_some(start)
    }

    /// Gives a piece back.
    pub(crate) fn give(&mut self, start: u64) {
        self.taken.remove(&start).expect("a piece that was taken");
    }
}
