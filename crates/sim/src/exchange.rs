//! How workers meet: at the end of each window of simulated time they hand each other the frames
//! that cross between their nodes, and agree on the next window. One trait serves threads and, in
//! later, ranks of a cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use wire::Instant;

use crate::event::{Event, Queue};

/// Where events of the present window go: to the worker's own queue, or to another worker's.
#[derive(Debug)]
pub(crate) struct Outbox<'a> {
    pub(crate) queue: &'a mut Queue,
    pub(crate) worker_of: &'a [u16],
    pub(crate) own: u16,
    pub(crate) away: &'a mut [Vec<Event>],
}

impl Outbox<'_> {
    pub(crate) fn send(&mut self, event: Event) {
        let worker = self.worker_of[event.node() as usize];
        if worker == self.own {
            self.queue.push(event);
        } else {
            self.away[usize::from(worker)].push(event);
        }
    }
}

/// What a worker says at the end of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    /// Its next event (`u64::MAX`: none), those just handed over included.
    pub(crate) next: u64,
    /// Flows that have ended at their askers so far.
    pub(crate) ended: u64,
}

impl Word {
    fn join(self, other: Self) -> Self {
        Self { next: self.next.min(other.next), ended: self.ended + other.ended }
    }
}

/// The meeting of all workers.
pub(crate) trait Exchange {
    /// Gives `away[i]` to worker `i` and takes what is for this one into `queue`; then joins what
    /// all say. All workers call it equally often.
    fn meet(&mut self, away: &mut [Vec<Event>], queue: &mut Queue, ended: u64) -> Word;
}

/// One worker alone.
#[derive(Debug)]
pub(crate) struct Alone;

impl Exchange for Alone {
    fn meet(&mut self, _: &mut [Vec<Event>], queue: &mut Queue, ended: u64) -> Word {
        Word { next: next_of(queue), ended }
    }
}

fn next_of(queue: &Queue) -> u64 {
    queue.next().map_or(u64::MAX, Instant::as_ps)
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
    fn meet(&mut self, away: &mut [Vec<Event>], queue: &mut Queue, ended: u64) -> Word {
        let (hall, n) = (self.hall, self.hall.workers);
        for (other, events) in away.iter_mut().enumerate() {
            if !events.is_empty() {
                lock(&hall.mail[self.own * n + other]).append(events);
            }
        }
        hall.wait();
        for other in 0..n {
            for event in lock(&hall.mail[other * n + self.own]).drain(..) {
                queue.push(event);
            }
        }
        *lock(&hall.words[self.own]) = Word { next: next_of(queue), ended };
        hall.wait();
        let words = hall.words.iter().map(|word| *lock(word));
        words.reduce(Word::join).unwrap_or(Word { next: u64::MAX, ended: 0 })
    }
}
