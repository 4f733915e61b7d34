//! Bytes that tell where they belong: each depends on the message's number and on its place in the
//! message, so that a byte lost, repeated, misplaced or changed is a wrong byte.

use crocevia::Region;

/// Bytes handled at once, a multiple of 8.
const CHUNK: usize = 4096;
/// Odd, so that distinct words stay distinct (the golden ratio's bits).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The pattern of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pattern {
    base: u64,
}

impl Pattern {
    /// The pattern of message `number` of `size` bytes in direction or role `salt`.
    pub(crate) fn new(salt: u8, size: u32, number: u64) -> Self {
        let mixed = number.wrapping_mul(SPREAD) ^ (u64::from(size) << 32) ^ u64::from(salt);
        // One round of a 64-bit finaliser: neighbours share no run of words.
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Self { base: mixed ^ (mixed >> 32) }
    }

    /// The bytes from `offset`, a multiple of 8.
    fn generate(self, offset: usize, out: &mut [u8]) {
        let first = self.base.wrapping_add((offset / 8) as u64);
        for (i, word) in out.chunks_mut(8).enumerate() {
            let value = first.wrapping_add(i as u64).wrapping_mul(SPREAD);
            word.copy_from_slice(&value.to_be_bytes()[..word.len()]);
        }
    }

    /// Writes the whole message to `region` at `at`.
    pub(crate) fn fill(self, region: &Region, at: usize, len: usize) {
        let mut chunk = [0; CHUNK];
        for offset in (0..len).step_by(CHUNK) {
            let part = &mut chunk[..CHUNK.min(len - offset)];
            self.generate(offset, part);
            region.write(at + offset, part);
        }
    }

    /// Compares the message in `region` at `at`; the first difference, as a sentence.
    pub(crate) fn verify(self, region: &Region, at: usize, len: usize) -> Result<(), String> {
        let (mut expected, mut found) = ([0; CHUNK], [0; CHUNK]);
        for offset in (0..len).step_by(CHUNK) {
            let n = CHUNK.min(len - offset);
            self.generate(offset, &mut expected[..n]);
            region.read(at + offset, &mut found[..n]);
            if expected[..n] != found[..n] {
                let i = (0..n).find(|&i| expected[i] != found[i]).unwrap_or(0);
                return Err(format!(
                    "byte {} of {len} is {:#04x}, expected {:#04x}",
                    offset + i,
                    found[i],
                    expected[i]
                ));
            }
        }
        Ok(())
    }
}

/// Sets `len` bytes of `region` at `at` to zero.
pub(crate) fn clear(region: &Region, at: usize, len: usize) {
    let zeros = [0; CHUNK];
    for offset in (0..len).step_by(CHUNK) {
        region.write(at + offset, &zeros[..CHUNK.min(len - offset)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_wrong_byte_is_found() {
        let Ok(region) = Region::allocate(20_000) else { panic!("no memory") };
        let pattern = Pattern::new(1, 9000, 7);
        pattern.fill(&region, 8, 9000);
        assert_eq!(pattern.verify(&region, 8, 9000), Ok(()));
        // Another message, another place, another direction.
        assert!(Pattern::new(1, 9000, 8).verify(&region, 8, 9000).is_err());
        assert!(pattern.verify(&region, 16, 8000).is_err());
        assert!(Pattern::new(2, 9000, 7).verify(&region, 8, 9000).is_err());
        // The last byte.
        let mut last = [0];
        region.read(8 + 8999, &mut last);
        region.write(8 + 8999, &[last[0] ^ 1]);
        let error = pattern.verify(&region, 8, 9000).unwrap_err();
        assert!(error.starts_with("byte 8999 of 9000"), "{error}");
    }

    #[test]
    fn clear_reaches_every_byte() {
        let Ok(region) = Region::allocate(10_000) else { panic!("no memory") };
        region.write(0, &[0xFF; 10_000]);
        clear(&region, 1, 9_998);
        let mut found = [1; 10_000];
        region.read(0, &mut found);
        assert_eq!((found[0], found[9_999]), (0xFF, 0xFF));
        assert!(found[1..9_999].iter().all(|&byte| byte == 0));
    }
}
