//! The device's driver side: timers, and handing out trains.

use wire::{Instant, Operation};

use crate::counters::pair::Before;
use crate::device::{Device, LinkState};
use crate::event::Event;
use crate::memory::HostMemory;
use crate::qp::build::Builder;
use crate::sched::Owner;
use crate::train::{Fragment, Priorities, Train, TrainLimits};

impl<M: HostMemory> Device<M> {
    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        // Bounded: a wake-up that a step sets for now waits for the next call.
        for _ in 0..self.sched.wakes_len() {
            let Some((owner, at)) = self.sched.pop_due(now) else { break };
            match owner {
                Owner::Qp(index) => {
                    let Some(qp) = self.qps.get_mut(index) else { continue };
                    if qp.wake != Some(at) {
                        continue;
                    }
                    qp.wake = qp.wake_later.take();
                    qp.timeout(&mut self.shared, now);
                    self.touched(index, now);
                }
                Owner::Cq(index) => {
                    let due = self.shared.cqs.get(index).is_some_and(|s| s.cq.moderation_due(now));
                    if due {
                        self.shared.events.push_back(Event::Completion(crate::cq::CqId(index)));
                    }
                }
                Owner::Departed(qpn) => self.departed.timeout(&mut self.sched, qpn, at, now),
            }
        }
    }

    /// What is owed leaves at the next `poll_transmit`, without waiting for company.
    pub fn hasten(&mut self) {
        for index in 0..self.qps.bound() {
            if let Some(qp) = self.qps.get_mut(index)
                && !qp.responder.owed.is_empty()
            {
                qp.responder.owed.hasten();
                if !std::mem::replace(&mut qp.ready, true) {
                    self.sched.push(index);
                }
            }
        }
    }

    /// Fills `train` with the next packets to send; false, and an empty train, if there are none
    /// now. The train handed out before must have been copied.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        limits: TrainLimits,
        allowed: Priorities,
        train: &mut Train,
    ) -> bool {
        train.clear();
        self.spoke = None;
        self.follow_up(now);
        self.settle(now);
        if self.link() == LinkState::Down {
            return false;
        }
        if let Some(last_words) = self.farewells.pop_front() {
            *train = last_words;
            return true;
        }
        let allowed = self.unpaused(now, allowed);
        if self.transmit_note(allowed, train) {
            return true;
        }
        // In turn with the others, for a peer may ask again and again.
        if !std::mem::take(&mut self.departed_spoke) && self.transmit_departed(now, train) {
            self.departed_spoke = true;
            return true;
        }
        let mut turns = self.sched.ready_len();
        while turns > 0 {
            turns -= 1;
            let Some(index) = self.sched.pop() else { break };
            let Some(qp) = self.qps.get_mut(index) else { continue };
            if !allowed.allows(qp.priority()) {
                self.sched.push(index);
                self.shared.windows.turn_over(qp.facts.peer, index);
                continue;
            }
            let before = Before::of(&self.shared.counters);
            let sent = qp.transmit(&mut self.shared, now, limits, train);
            self.shared.book_sent(index, before);
            if std::mem::take(&mut qp.unsettled) {
                self.unsettled.push(index);
            }
            if sent {
                self.sched.push(index);
            } else {
                qp.ready = false;
            }
            self.shared.windows.turn_over(qp.facts.peer, index);
            self.arm(index);
            let ready = self.sched.ready_len();
            self.follow_up(now);
            if sent {
                self.spoke = Some(index);
                return true;
            }
            // Who has been called instead has a turn too.
            turns += self.sched.ready_len() - ready;
        }
        if !self.unsettled.is_empty() {
            self.settle(now);
        }
        self.transmit_departed(now, train)
    }

    /// Puts the oldest note into the train, if its priority may transmit.
    fn transmit_note(&mut self, allowed: Priorities, train: &mut Train) -> bool {
        let Some(note) = self.shared.notes.front().filter(|n| allowed.allows(n.path.priority))
        else {
            return false;
        };
        let mut b = Builder::new(train, TrainLimits::SINGLE);
        if note.draft.length > 0 {
            // A CNP's reserved bytes.
            let (fragments, inline) = b.pieces();
            inline.resize(note.draft.length as usize, 0);
            fragments.push(Fragment::Inline { start: 0, length: note.draft.length });
        } else {
            self.shared.counters.leaves(Operation::Acknowledge, 0);
        }
        b.push(&note.path, &note.draft);
        self.shared.notes.pop_front();
        self.shared.counters.tx_packets += 1;
        true
    }

    /// Completes what the driver has taken.
    fn settle(&mut self, now: Instant) {
        while let Some(index) = self.unsettled.pop() {
            if let Some(qp) = self.qps.get_mut(index) {
                qp.settle(&mut self.shared, now);
                self.touched(index, now);
            }
        }
    }

    fn unpaused(&mut self, now: Instant, allowed: Priorities) -> Priorities {
        let mut set = allowed.0;
        for (priority, until) in self.paused.iter_mut().enumerate() {
            if let Some(at) = *until {
                if at.is_due(now) {
                    *until = None;
                } else {
                    set &= !(1 << priority);
                }
            }
        }
        Priorities(set)
    }

    /// When a timer ends, whatever waits to be sent: for a driver that calls `poll_transmit` each
    /// time that its link is free. A wake-up that nobody needs any more may be among them.
    pub fn next_timer(&self) -> Option<Instant> {
        self.sched.next_wake()
    }

    /// When `handle_timeout` or `poll_transmit` has to be called next, if nothing else happens.
    pub fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let mut next = self.sched.next_wake();
        let mut consider = |at: Instant| {
            next = Some(next.map_or(at, |n| n.earlier(at)));
        };
        if !self.unsettled.is_empty() || self.shared.windows.has_woken() {
            consider(now);
        }
        if self.link() == LinkState::Up {
            if !self.farewells.is_empty() || self.departed.has_work() {
                consider(now);
            }
            if let Some(note) = self.shared.notes.front() {
                let paused = self.paused.get(usize::from(note.path.priority & 7));
                consider(paused.copied().flatten().unwrap_or(now));
            }
            for index in self.sched.ready() {
                let Some(qp) = self.qps.get(index) else { continue };
                match self.paused.get(usize::from(qp.priority())).copied().flatten() {
                    Some(until) => consider(until),
                    None => consider(now),
                }
            }
        }
        next
    }
}
