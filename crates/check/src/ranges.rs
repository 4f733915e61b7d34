//! Ranges of the program's memory that the device may write, or reads, on behalf of requests in
//! flight; and which of them overlap. Ranges that are exactly the same are one with a count.

use std::collections::BTreeMap;

/// Who uses a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) queue: u64,
    pub(crate) wr_id: u64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    end: u64,
    count: u32,
    first: User,
}

/// What a new range meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meets {
    /// Nothing: it stands in the table now.
    Nobody,
    /// The very same range; it stands in the table once more.
    Same(User),
    /// A part of another range, which begins and ends there. It does not stand in the table.
    Part(User, u64, u64),
}

/// Ranges of one sort.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, Span>);

impl Ranges {
    /// A range that the given one overlaps.
    pub(crate) fn find(&self, start: u64, end: u64) -> Option<(User, u64, u64)> {
        // The ranges in the table are apart from each other, so the last one that begins before
        // `end` is the only one to look at.
        let (&at, span) = self.0.range(..end).next_back()?;
        (span.end > start).then_some((span.first, at, span.end))
    }

    /// Adds a range that is not empty.
    pub(crate) fn add(&mut self, start: u64, end: u64, user: User) -> Meets {
        if let Some(span) = self.0.get_mut(&start).filter(|span| span.end == end) {
            span.count += 1;
            return Meets::Same(span.first);
        }
        if let Some((first, at, to)) = self.find(start, end) {
            return Meets::Part(first, at, to);
        }
        self.0.insert(start, Span { end, count: 1, first: user });
        Meets::Nobody
    }

    /// Takes a range out that was added.
    pub(crate) fn remove(&mut self, start: u64) {
        if let Some(span) = self.0.get_mut(&start) {
            span.count -= 1;
            if span.count == 0 {
                self.0.remove(&start);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: User = User { queue: 1, wr_id: 1 };
    const B: User = User { queue: 1, wr_id: 2 };

    #[test]
    fn neighbours_are_apart_and_parts_overlap() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.add(100, 200, A), Meets::Nobody);
        assert_eq!(ranges.add(200, 300, B), Meets::Nobody);
        assert_eq!(ranges.add(50, 100, B), Meets::Nobody);
        for (start, end) in [(199, 200), (150, 250), (0, 1000), (100, 199), (299, 400)] {
            assert!(matches!(ranges.add(start, end, B), Meets::Part(..)), "{start}..{end}");
        }
        assert_eq!(ranges.find(0, 50), None);
        assert_eq!(ranges.find(300, 301), None);
    }

    #[test]
    fn the_same_range_is_counted() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.add(100, 200, A), Meets::Nobody);
        assert_eq!(ranges.add(100, 200, B), Meets::Same(A));
        ranges.remove(100);
        assert_eq!(ranges.find(150, 160), Some((A, 100, 200)));
        ranges.remove(100);
        assert!(ranges.is_empty());
    }
}
