//! Handing events to the sink: outside the device's lock, one at a time, in the order in which the
//! device raised them, whichever threads they come from.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::Event;

/// Events on their way.
#[derive(Default)]
pub(super) struct Delivery(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// A thread is at it; others leave theirs to it.
    busy: bool,
}

impl Delivery {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes events over. The caller holds the device's lock, so that they stay in order.
    pub(super) fn add(&self, events: impl Iterator<Item = Event>) {
        self.queue().events.extend(events);
    }

    /// Tells `sink` of all of them, unless another thread is doing so, or this one further up its
    /// stack: that one then goes on with what has been added.
    pub(super) fn run(&self, sink: impl Fn(Event)) {
        {
            let mut queue = self.queue();
            if queue.busy {
                return;
            }
            queue.busy = true;
        }
        // Also if the sink panics.
        let _done = Done(self);
        loop {
            let mut queue = self.queue();
            let Some(event) = queue.events.pop_front() else {
                // Under the same lock: what is added from now on has somebody to deliver it.
                queue.busy = false;
                return;
            };
            drop(queue);
            sink(event);
        }
    }
}

struct Done<'a>(&'a Delivery);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue().busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Barrier};

    use engine::CqId;

    use super::*;

    #[test]
    fn events_of_many_threads_come_in_the_order_in_which_they_were_added() {
        let delivery = Delivery::default();
        let (next, last, seen) = (Mutex::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..5000 {
                        {
                            // As the device's lock does.
                            let mut next = next.lock().unwrap();
                            *next += 1;
                            delivery.add(std::iter::once(Event::Completion(CqId(*next))));
                        }
                        delivery.run(|event| {
                            let Event::Completion(CqId(id)) = event else { unreachable!() };
                            assert_eq!(last.swap(id, Ordering::SeqCst) + 1, id, "out of order");
                            seen.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert_eq!(seen.into_inner(), 20_000, "all delivered, none twice");
    }

    #[test]
    fn a_sink_that_causes_events_does_not_wait_for_itself() {
        let delivery = Arc::new(Delivery::default());
        let seen = Mutex::new(Vec::new());
        delivery.add([1].map(|id| Event::Completion(CqId(id))).into_iter());
        delivery.run(|event| {
            seen.lock().unwrap().push(event);
            if event == Event::Completion(CqId(1)) {
                delivery.add([2, 3].map(|id| Event::Completion(CqId(id))).into_iter());
                delivery.run(|_| panic!("delivered further down the stack"));
            }
        });
        let expected = [1, 2, 3].map(|id| Event::Completion(CqId(id)));
        assert_eq!(*seen.lock().unwrap(), expected);
    }

    #[test]
    fn after_a_panic_of_the_sink_others_are_delivered() {
        let delivery = Delivery::default();
        delivery.add([1, 2].map(|id| Event::Completion(CqId(id))).into_iter());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            delivery.run(|_| panic!("the sink's own fault"));
        }));
        assert!(panicked.is_err());
        let count = AtomicU32::new(0);
        delivery.run(|_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(count.into_inner(), 1);
    }
}
