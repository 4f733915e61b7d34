//! Whether the results of atomics are those of some order of execution: every old value follows
//! from the operations before it, and the last value is what memory holds.

use std::collections::BTreeMap;

use engine::AtomicOp;

use crate::end::Area;

/// The words of a host that its peers work on: even ones by additions, odd ones by
/// compare-and-swaps whose new values are all different.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) area: Area,
    pub(crate) count: u64,
    pub(crate) initial: Vec<u64>,
    /// Finished operations: word, end, operation, old value; in the order in which each end saw
    /// them finished.
    pub(crate) done: Vec<(u64, usize, AtomicOp, u64)>,
    /// The last value seen of each word.
    pub(crate) seen: BTreeMap<u64, u64>,
}

impl Words {
    /// Panics unless the operations on each word have an order; `last` are the values in memory.
    pub(crate) fn check(&self, last: &[u64]) {
        for word in 0..self.count {
            let ops: Vec<_> = self.done.iter().filter(|op| op.0 == word).collect();
            let order = self.walk(word, last[word as usize], &ops);
            // Operations of one end are executed in the order in which they were posted.
            let mut at: BTreeMap<usize, usize> = BTreeMap::new();
            for (_, end, op, old) in ops {
                let place = order[old];
                let before = at.entry(*end).or_default();
                assert!(place >= *before, "word {word}: end {end} saw {old:#x} too late");
                *before = match op {
                    AtomicOp::CompareSwap { compare, .. } if compare != old => place,
                    _ => place + 1,
                };
            }
        }
    }

    /// The values that the word had, each with its place in time.
    fn walk(
        &self,
        word: u64,
        last: u64,
        ops: &[&(u64, usize, AtomicOp, u64)],
    ) -> BTreeMap<u64, usize> {
        let mut changes: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, _, op, old) in ops {
            let new = match *op {
                AtomicOp::FetchAdd { add } => old.wrapping_add(add),
                AtomicOp::CompareSwap { compare, swap } if compare == *old => swap,
                AtomicOp::CompareSwap { .. } => continue,
            };
            let other = changes.insert(*old, new);
            assert_eq!(other, None, "word {word}: two operations changed the value {old:#x}");
        }
        let mut value = self.initial[word as usize];
        let mut order = BTreeMap::from([(value, 0)]);
        while let Some(next) = changes.remove(&value) {
            value = next;
            order.insert(value, order.len());
        }
        assert!(changes.is_empty(), "word {word}: results {changes:x?} follow from nothing");
        assert_eq!(value, last, "word {word}: memory holds what no operation left");
        for (_, _, _, old) in ops {
            assert!(order.contains_key(old), "word {word}: {old:#x} was never its value");
        }
        order
    }
}
