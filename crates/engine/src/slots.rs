//! A table of objects named by small numbers, reused lowest-last; iterated in the order of the
//! numbers, so that nothing depends on a hash. Also the hash that lookup tables use.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Objects by number.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = Some(item);
                index
            }
            None => {
                self.items.push(Some(item));
                (self.items.len() - 1) as u32
            }
        }
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.items.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.items.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let item = self.items.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(item)
    }

    /// One past the highest number in use.
    pub(crate) fn bound(&self) -> u32 {
        self.items.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().enumerate().filter_map(|(i, item)| Some((i as u32, item.as_ref()?)))
    }
}

/// A lookup table with a fixed hash. It is looked into, never iterated. Its keys are either drawn
/// by this device or bounded in number by objects of this device, so a peer cannot crowd it.
pub(crate) type Lookup<K, V> = HashMap<K, V, BuildHasherDefault<FixedHasher>>;

/// Multiply-and-fold over whole words.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
