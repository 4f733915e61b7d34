//! What posted requests bring along, their scatter-gather entries or inline bytes: in slots of
//! fixed size, one for each request that fits. The slots come into being as they are first used, so
//! that a queue pair that is never used costs little, and one that is used allocates only until
//! each slot has been.

/// Slots allocated at first.
const FIRST: usize = 8;

/// The slots of a queue.
#[derive(Debug)]
pub(crate) struct Pieces<T> {
    items: Vec<T>,
    /// Items in a slot, at most.
    width: u32,
    slots: u32,
}

impl<T: Copy + Default> Pieces<T> {
    pub(crate) const fn new(slots: u32, width: u32) -> Self {
        Self { items: Vec::new(), width, slots }
    }

    /// Fills the beginning of a slot. What does not fit into all slots together is not taken: the
    /// caller has checked.
    #[inline]
    pub(crate) fn put(&mut self, slot: u32, items: &[T]) {
        let start = slot as usize * self.width as usize;
        let end = start + items.len();
        if end > self.items.len() {
            self.grow(end);
        }
        if let Some(place) = self.items.get_mut(start..end) {
            place.copy_from_slice(items);
        }
    }

    /// The beginning of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32, count: u32) -> &[T] {
        let start = slot as usize * self.width as usize;
        self.items.get(start..start + count as usize).unwrap_or_default()
    }

    /// Makes slots, at least as far as item `end`.
    #[cold]
    fn grow(&mut self, end: usize) {
        let (width, had) = (self.width as usize, self.items.len());
        let want = end.max(2 * had).max(FIRST * width).min(self.slots as usize * width);
        self.items.reserve_exact(want.saturating_sub(had));
        self.items.resize(want.max(had), T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_as_they_are_used_and_stay() {
        let mut pieces = Pieces::new(100, 3);
        assert_eq!((pieces.items.capacity(), pieces.get(5, 2)), (0, &[] as &[u16]));
        for round in 0..3_u16 {
            for slot in 0..100 {
                pieces.put(u32::from(slot), &[slot + round, 7, slot]);
                assert_eq!(pieces.get(u32::from(slot), 3), [slot + round, 7, slot]);
            }
            assert_eq!(pieces.items.capacity(), 300, "all, and no more");
        }
        assert_eq!(pieces.get(0, 2), [2, 7]);
        pieces.put(99, &[]);
        pieces.put(100, &[1]);
        assert_eq!((pieces.items.len(), pieces.get(100, 1)), (300, &[] as &[u16]));
    }

    #[test]
    fn a_single_slot_and_none() {
        let mut one = Pieces::new(1, 32);
        one.put(0, &[9_u8; 32]);
        assert_eq!((one.get(0, 32), one.items.capacity()), (&[9_u8; 32] as &[u8], 32));
        let mut none = Pieces::new(0, 0);
        none.put(0, &[]);
        none.put(0, &[1_u8]);
        assert_eq!((none.get(0, 1), none.items.capacity()), (&[] as &[u8], 0));
    }
}
