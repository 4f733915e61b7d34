//! Whose turn it is among the queues of a port: strict ones from the highest down, then weighted
//! ones by deficit round robin (Shreedhar, Varghese 1995).

use crate::config::Scheduling;

/// Bytes that the queue with the smallest weight may send in a round: about one frame.
const QUANTUM: u64 = 1600;

/// The turns of a port.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Bits of the strict queues.
    strict: u8,
    quantum: [u64; 8],
    deficit: [u64; 8],
    /// The weighted queue that is being served; it has had its quantum of this round.
    current: u8,
}

impl Turns {
    pub(crate) fn new(scheduling: &[Scheduling; 8]) -> Self {
        let weight = |s: &Scheduling| match s {
            Scheduling::Strict => None,
            Scheduling::Weighted(weight) => Some(u64::from(weight.0.max(1))),
        };
        let least = scheduling.iter().filter_map(weight).min().unwrap_or(1);
        let unit = QUANTUM.div_ceil(least);
        let mut turns = Self { strict: 0, quantum: [0; 8], deficit: [0; 8], current: 0 };
        for (queue, how) in scheduling.iter().enumerate() {
            match weight(how) {
                None => turns.strict |= 1 << queue,
                Some(weight) => turns.quantum[queue] = weight * unit,
            }
        }
        turns
    }

    /// The queue to serve among `ready` ones, whose first frame has `length(queue)` bytes; the
    /// frame is then sent.
    pub(crate) fn pick(&mut self, ready: u8, length: impl Fn(u8) -> u32) -> Option<u8> {
        let strict = ready & self.strict;
        if strict != 0 {
            return Some(7 - strict.leading_zeros() as u8);
        }
        if ready == 0 {
            return None;
        }
        if ready.is_power_of_two() {
            // Alone: no turns, and no credit kept for later.
            let queue = ready.trailing_zeros() as u8;
            self.current = queue;
            self.deficit[usize::from(queue)] = 0;
            return Some(queue);
        }
        let current = self.current;
        if ready >> current & 1 == 1 && self.spend(current, length(current)) {
            return Some(current);
        }
        if let Some(queue) = self.round(ready, &length) {
            return Some(queue);
        }
        // Frames longer than all quanta: so many whole rounds pass at once that one can be sent in
        // the next.
        let rounds = |q: u8| {
            let lacks = u64::from(length(q)).saturating_sub(self.deficit[usize::from(q)]);
            lacks.div_ceil(self.quantum[usize::from(q)].max(1))
        };
        let least = bits(ready).map(rounds).min().unwrap_or(0).saturating_sub(1);
        for queue in bits(ready).map(usize::from) {
            self.deficit[queue] += least * self.quantum[queue];
        }
        self.round(ready, &length)
    }

    /// One round from the queue behind the current one on.
    fn round(&mut self, ready: u8, length: &impl Fn(u8) -> u32) -> Option<u8> {
        for step in 1..=8 {
            let queue = (self.current + step) & 7;
            if ready >> queue & 1 == 0 {
                continue;
            }
            let place = usize::from(queue);
            self.deficit[place] += self.quantum[place];
            if self.spend(queue, length(queue)) {
                self.current = queue;
                return Some(queue);
            }
        }
        None
    }

    fn spend(&mut self, queue: u8, length: u32) -> bool {
        let deficit = &mut self.deficit[usize::from(queue)];
        let enough = *deficit >= u64::from(length);
        if enough {
            *deficit -= u64::from(length);
        }
        enough
    }

    /// A queue has run empty: what it did not use is lost.
    pub(crate) fn emptied(&mut self, queue: u8) {
        self.deficit[usize::from(queue & 7)] = 0;
    }
}

/// The bits that are set, ascending.
pub(crate) fn bits(set: u8) -> impl Iterator<Item = u8> {
    (0..8).filter(move |bit| set >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Bandwidth;

    fn weighted(weights: [u8; 8]) -> Turns {
        Turns::new(&weights.map(|w| Scheduling::Weighted(Bandwidth(w))))
    }

    #[test]
    fn strict_before_weighted_and_high_before_low() {
        let mut how = [Scheduling::Weighted(Bandwidth(1)); 8];
        how[0] = Scheduling::Strict;
        how[2] = Scheduling::Strict;
        let mut turns = Turns::new(&how);
        assert_eq!(turns.pick(0b1111_1111, |_| 64), Some(2));
        assert_eq!(turns.pick(0b1111_1011, |_| 64), Some(0));
        assert_eq!(turns.pick(0b1000_0000, |_| 64), Some(7));
        assert_eq!(turns.pick(0, |_| 64), None);
    }

    #[test]
    fn shares_are_those_of_the_weights_within_a_quantum() {
        let mut turns = weighted([10, 20, 30, 40, 1, 1, 1, 1]);
        let mut sent = [0_u64; 8];
        let lengths = [1500, 64, 9000, 700];
        for _ in 0..100_000 {
            let queue = turns.pick(0b1111, |q| lengths[usize::from(q)]).expect("a queue");
            sent[usize::from(queue)] += u64::from(lengths[usize::from(queue)]);
        }
        for queue in 0..4 {
            // Bytes in units of weight: equal but for a quantum and a frame of each.
            let own = sent[queue] / turns.quantum[queue];
            let first = sent[0] / turns.quantum[0];
            assert!(own.abs_diff(first) <= 2, "queue {queue}: {own} rounds, {first} expected");
        }
    }

    #[test]
    fn a_frame_longer_than_any_quantum_waits_for_its_rounds() {
        let mut turns = weighted([1; 8]);
        assert_eq!(turns.pick(0b11, |_| u32::MAX), Some(1));
        assert_eq!(turns.pick(0b11, |_| u32::MAX), Some(0));
        assert_eq!(turns.pick(0b11, |_| u32::MAX), Some(1));
    }
}
