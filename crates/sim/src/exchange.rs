//! How workers meet: at the end of each window of simulated time they hand each other the frames
//! that cross between their nodes, and agree on the next window. One trait serves threads and, in
//! later, ranks of a cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::event::{Event, Queue};

/// Where the events of a node go: to itself, or to others, which take them when it is done.
#[derive(Debug)]
pub(crate) struct Outbox<'a> {
    pub(crate) queue: &'a mut Queue,
    pub(crate) sent: &'a mut Vec<Event>,
}

impl Outbox<'_> {
    pub(crate) fn send(&mut self, event: Event) {
        self.sent.push(event);
    }
}

/// What a worker says at the end of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    /// The next window in which it has something to do (`u64::MAX`: none).
    pub(crate) next: u64,
    /// Flows that have ended at their askers so far.
    pub(crate) ended: u64,
}

impl Word {
    fn join(self, other: Self) -> Self {
        Self { next: self.next.min(other.next), ended: self.ended + other.ended }
    }
}

/// The meeting of all workers. All call both, in turn, equally often.
pub(crate) trait Exchange {
    /// Gives `away[i]` to worker `i`; what is for this one is put into `came`.
    fn deliver(&mut self, away: &mut [Vec<Event>], came: &mut Vec<Event>);

    /// Joins what all workers say.
    fn agree(&mut self, next: u64, ended: u64) -> Word;
}

/// One worker alone.
#[derive(Debug)]
pub(crate) struct Alone;

impl Exchange for Alone {
    fn deliver(&mut self, _: &mut [Vec<Event>], _: &mut Vec<Event>) {}

    fn agree(&mut self, next: u64, ended: u64) -> Word {
        Word { next, ended }
    }
}

/// Threads of one process meet here.
#[derive(Debug)]
pub(crate) struct Hall {
    workers: usize,
    /// What is on its way from worker `i` to worker `j`, at `i * workers + j`.
    mail: Vec<Mutex<Vec<Event>>>,
    words: Vec<Mutex<Word>>,
    arrived: AtomicUsize,
    round: AtomicUsize,
}

impl Hall {
    pub(crate) fn new(workers: usize) -> Self {
        let word = Word { next: u64::MAX, ended: 0 };
        Self {
            workers,
            mail: (0..workers * workers).map(|_| Mutex::new(Vec::new())).collect(),
            words: (0..workers).map(|_| Mutex::new(word)).collect(),
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
        }
    }

    /// Waits until all workers have come.
    fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.workers {
            self.arrived.store(0, Ordering::Release);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0_u32;
        while self.round.load(Ordering::Acquire) == round {
            spins += 1;
            // Windows are short: the others come within microseconds, if they have a processor.
            if spins < 2000 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// A worker's place in the hall.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) hall: &'a Hall,
    pub(crate) own: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange for Place<'_> {
    fn deliver(&mut self, away: &mut [Vec<Event>], came: &mut Vec<Event>) {
        let (hall, n) = (self.hall, self.hall.workers);
        for (other, events) in away.iter_mut().enumerate() {
            if !events.is_empty() {
                lock(&hall.mail[self.own * n + other]).append(events);
            }
        }
        hall.wait();
        for other in 0..n {
            came.append(&mut lock(&hall.mail[other * n + self.own]));
        }
    }

    fn agree(&mut self, next: u64, ended: u64) -> Word {
        let hall = self.hall;
        *lock(&hall.words[self.own]) = Word { next, ended };
        hall.wait();
        let words = hall.words.iter().map(|word| *lock(word));
        words.reduce(Word::join).unwrap_or(Word { next: u64::MAX, ended: 0 })
    }
}
