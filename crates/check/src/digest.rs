//! What the bytes of a request were when it was posted: a copy of few, digests by block of many, so
//! that a change is found wherever it is, and told to the block.

/// The memory of the program.
pub trait Memory {
    /// Copies what is at `addr` into `out`; false if it is not all there.
    fn read(&self, addr: u64, out: &mut [u8]) -> bool;
}

/// Messages of up to so many bytes are kept as they are.
const KEPT: u64 = 256;
/// Bytes that one digest stands for.
pub(crate) const BLOCK: usize = 4096;
/// Bytes that are read at once.
const CHUNK: usize = 16 * BLOCK;

/// The bytes of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Digest {
    Bytes(Vec<u8>),
    Blocks(Vec<u64>),
}

/// What became of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// This byte of the message is another now.
    Byte { at: u64, was: u8, is: u8 },
    /// A byte in this range is.
    Within(u64, u64),
    /// They cannot be read any more.
    Gone,
}

/// Reads ranges through a buffer that is kept.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// The digest of these ranges of memory, one after the other; `None` if they are not all there.
    pub(crate) fn digest(&mut self, ranges: &[(u64, u64)], memory: &dyn Memory) -> Option<Digest> {
        let total: u64 = ranges.iter().map(|(_, length)| length).sum();
        if total <= KEPT {
            let mut bytes = vec![0; total as usize];
            let mut at = 0;
            for &(addr, length) in ranges {
                let end = at + length as usize;
                if !memory.read(addr, &mut bytes[at..end]) {
                    return None;
                }
                at = end;
            }
            return Some(Digest::Bytes(bytes));
        }
        let mut blocks = Vec::with_capacity((total as usize).div_ceil(BLOCK));
        self.buffer.resize(CHUNK, 0);
        // Bytes of the message that stand in the buffer and are not digested yet.
        let mut held = 0;
        for &(mut addr, mut left) in ranges {
            while left > 0 {
                let n = left.min((CHUNK - held) as u64) as usize;
                if !memory.read(addr, &mut self.buffer[held..held + n]) {
                    return None;
                }
                (addr, left, held) = (addr + n as u64, left - n as u64, held + n);
                if held == CHUNK {
                    blocks.extend(self.buffer.chunks(BLOCK).map(hash));
                    held = 0;
                }
            }
        }
        blocks.extend(self.buffer[..held].chunks(BLOCK).map(hash));
        Some(Digest::Blocks(blocks))
    }

    /// What has changed since.
    pub(crate) fn change(
        &mut self,
        before: &Digest,
        ranges: &[(u64, u64)],
        memory: &dyn Memory,
    ) -> Option<Change> {
        let Some(now) = self.digest(ranges, memory) else { return Some(Change::Gone) };
        match (before, &now) {
            (Digest::Bytes(was), Digest::Bytes(is)) => {
                let at = was.iter().zip(is).position(|(was, is)| was != is)?;
                Some(Change::Byte { at: at as u64, was: was[at], is: is[at] })
            }
            (Digest::Blocks(was), Digest::Blocks(is)) => {
                let total: u64 = ranges.iter().map(|(_, length)| length).sum();
                let block = was.iter().zip(is).position(|(was, is)| was != is)? as u64;
                let start = block * BLOCK as u64;
                Some(Change::Within(start, total.min(start + BLOCK as u64)))
            }
            // The ranges are the same, so their length is.
            _ => None,
        }
    }
}

/// Odd, with bits evenly spread.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes a word in: a bijection of `state` for each word and of `word` for each state, so that no
/// change of a single word can be lost.
fn mix(state: u64, word: u64) -> u64 {
    ((state ^ word).wrapping_mul(MULTIPLIER)).rotate_left(29)
}

/// A digest of 64 bits, four words at a time. It tells changes apart, not adversaries.
fn hash(block: &[u8]) -> u64 {
    let mut lanes = [1_u64, 2, 3, 4];
    let mut chunks = block.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            *lane = mix(*lane, u64::from_le_bytes(bytes));
        }
    }
    let mut all = lanes.into_iter().fold(block.len() as u64, mix);
    for word in chunks.remainder().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        all = mix(all, u64::from_le_bytes(bytes));
    }
    all ^ (all >> 32)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Memory that begins at some address.
    pub(crate) struct Fake(pub(crate) u64, pub(crate) Vec<u8>);

    impl Memory for Fake {
        fn read(&self, addr: u64, out: &mut [u8]) -> bool {
            let Some(start) = addr.checked_sub(self.0) else { return false };
            let start = start as usize;
            let Some(bytes) = self.1.get(start..start + out.len()) else { return false };
            out.copy_from_slice(bytes);
            true
        }
    }

    #[test]
    fn every_byte_of_every_length_counts() {
        let mut reader = Reader::default();
        for length in [1_usize, 7, 8, 9, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 70_000] {
            let mut memory = Fake(1000, (0..length).map(|i| i as u8).collect());
            let ranges = [(1000, length as u64)];
            let before = reader.digest(&ranges, &memory).unwrap();
            assert_eq!(reader.change(&before, &ranges, &memory), None);
            let step = if length > 300 { 61 } else { 1 };
            for at in (0..length).step_by(step).chain([length - 1]) {
                memory.1[at] ^= 0x40;
                let change = reader.change(&before, &ranges, &memory).unwrap();
                match change {
                    Change::Byte { at: found, .. } => assert_eq!(found, at as u64),
                    Change::Within(from, to) => assert!((from..to).contains(&(at as u64))),
                    Change::Gone => panic!("it is there"),
                }
                memory.1[at] ^= 0x40;
            }
        }
    }

    #[test]
    fn pieces_are_one_message() {
        let mut reader = Reader::default();
        let memory = Fake(0, (0..10_000_u32).map(|i| (i / 7) as u8).collect());
        let whole = reader.digest(&[(0, 9000)], &memory);
        assert_eq!(whole, reader.digest(&[(0, 1), (1, 4999), (5000, 0), (5000, 4000)], &memory));
        assert_ne!(whole, reader.digest(&[(1, 9000)], &memory));
    }

    #[test]
    fn nothing_is_no_change_and_what_has_gone_is_said() {
        let mut reader = Reader::default();
        let memory = Fake(0, vec![0; 300]);
        let empty = reader.digest(&[], &memory).unwrap();
        assert_eq!(reader.change(&empty, &[], &memory), None);
        assert_eq!(reader.digest(&[(0, 301)], &memory), None);
        let before = reader.digest(&[(0, 300)], &memory).unwrap();
        assert_eq!(reader.change(&before, &[(0, 300)], &Fake(0, vec![])), Some(Change::Gone));
    }
}
