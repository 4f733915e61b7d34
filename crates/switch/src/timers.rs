//! The switch's deadlines: one for each of a fixed number of slots, and the earliest of all at
//! once. What a slot stands for its users know.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use wire::Instant;

/// A time at which a slot has to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Alarm {
    at: Instant,
    slot: u32,
}

impl Ord for Alarm {
    /// The earliest is the greatest; time wraps, all alarms lie within half of it.
    fn cmp(&self, other: &Self) -> Ordering {
        let ahead = other.at.as_ps().wrapping_sub(self.at.as_ps()) as i64;
        ahead.cmp(&0).then(other.slot.cmp(&self.slot))
    }
}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// When it is due, if it is set.
    due: Option<Instant>,
    /// The time of its alarm in the heap, which may be earlier.
    alarm: Option<Instant>,
}

/// Deadlines.
#[derive(Debug)]
pub(crate) struct Timers {
    slots: Vec<Slot>,
    heap: BinaryHeap<Alarm>,
}

impl Timers {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![Slot::default(); slots], heap: BinaryHeap::new() }
    }

    /// Sets a slot's deadline in place of the one it had.
    pub(crate) fn set(&mut self, slot: usize, at: Instant) {
        let Some(place) = self.slots.get_mut(slot) else { return };
        place.due = Some(at);
        // An alarm that is too early is moved when it goes off: a neighbour that repeats its pause
        // with every frame does not fill the heap.
        if place.alarm.is_none_or(|alarm| at.is_before(alarm)) {
            place.alarm = Some(at);
            self.heap.push(Alarm { at, slot: slot as u32 });
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            place.due = None;
        }
    }

    /// When the next slot may be due; not later than it is.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|alarm| alarm.at)
    }

    /// A slot that is due, which is thereby cleared; the earliest first.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<usize> {
        while let Some(&Alarm { at, slot }) = self.heap.peek() {
            if !at.is_due(now) {
                return None;
            }
            self.heap.pop();
            let Some(place) = self.slots.get_mut(slot as usize) else { continue };
            if place.alarm != Some(at) {
                continue;
            }
            place.alarm = None;
            match place.due {
                Some(due) if due.is_due(now) => {
                    place.due = None;
                    return Some(slot as usize);
                }
                Some(due) => {
                    place.alarm = Some(due);
                    self.heap.push(Alarm { at: due, slot });
                }
                None => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_first_and_the_latest_word_counts() {
        let at = Instant::from_ns;
        let mut timers = Timers::new(3);
        timers.set(0, at(30));
        timers.set(1, at(10));
        timers.set(2, at(20));
        timers.set(1, at(25));
        timers.clear(2);
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.pop(at(24)), None);
        assert_eq!(timers.next(), Some(at(25)));
        assert_eq!(timers.pop(at(40)), Some(1));
        assert_eq!(timers.pop(at(40)), Some(0));
        assert_eq!((timers.pop(at(40)), timers.next()), (None, None));
        timers.set(7, at(1));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn repeated_settings_leave_one_alarm() {
        let mut timers = Timers::new(1);
        for ns in 1..1000 {
            timers.set(0, Instant::from_ns(ns));
        }
        assert_eq!(timers.heap.len(), 1);
        timers.set(0, Instant::ZERO);
        assert_eq!(timers.pop(Instant::ZERO), Some(0));
        assert_eq!(timers.pop(Instant::from_ns(5000)), None);
    }

    #[test]
    fn over_the_wrap_of_time() {
        let mut timers = Timers::new(2);
        timers.set(0, Instant::from_ps(5));
        timers.set(1, Instant::from_ps(u64::MAX - 5));
        assert_eq!(timers.pop(Instant::from_ps(6)), Some(1));
        assert_eq!(timers.pop(Instant::from_ps(6)), Some(0));
    }
}
