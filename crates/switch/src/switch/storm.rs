//! The watchdog at work: it looks at stopped queues from time to time, and acts in storms.

use wire::Instant;

use super::{PortId, Switch, SwitchEvent};
use crate::counters::DropCause;
use crate::limits::EVENTS;
use crate::options::StormAction;
use crate::watchdog::StormCounters;

impl<B: Clone> Switch<B> {
    /// What the watchdog has counted; none without one, or for another port or priority.
    pub fn storms(&self, port: PortId, priority: u8) -> Option<StormCounters> {
        let watches = self.ports.get(usize::from(port))?.watches.as_ref()?;
        Some(watches.get(usize::from(priority))?.counters)
    }

    /// The slot of the watchdog's timer.
    pub(super) fn watch_slot(&self) -> usize {
        self.ports.len() * super::SLOTS
    }

    /// A priority has been stopped: the watchdog has something to look at.
    pub(super) fn watch(&mut self, now: Instant) {
        if let Some(watchdog) = &self.options.watchdog
            && !self.watching
        {
            self.watching = true;
            let slot = self.ports.len() * super::SLOTS;
            self.timers.set(slot, now + watchdog.poll);
        }
    }

    /// The watchdog looks at all ports.
    pub(super) fn look(&mut self, now: Instant) {
        let Some(watchdog) = self.options.watchdog else { return };
        let mut again = false;
        for index in 0..self.ports.len() {
            for priority in 0..8_u8 {
                let port = &mut self.ports[index];
                let place = usize::from(priority);
                let stopped = port.pauses.stopped >> priority & 1 == 1;
                let Some(watch) = port.watches.as_mut().map(|all| &mut all[place]) else { break };
                if watch.storm {
                    if watch.ends(now, watchdog.restoration) {
                        self.calm(index as PortId, priority);
                    } else {
                        again = true;
                    }
                } else if stopped {
                    again = true;
                    let queue = usize::from(port.class[place]);
                    let stuck = port.filled >> queue & 1 == 1;
                    let sent = port.counters.priorities[queue].tx_frames;
                    if watch.begins(now, stuck, sent, watchdog.detection) {
                        self.storm(now, index as PortId, priority, watchdog.action);
                    }
                }
            }
        }
        self.watching = again;
        if again {
            self.timers.set(self.watch_slot(), now + watchdog.poll);
        }
    }

    /// A storm has begun.
    fn storm(&mut self, now: Instant, port: PortId, priority: u8, action: StormAction) {
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        let queue = at.queue_of(priority);
        if let Some(watch) = at.watches.as_mut().map(|all| &mut all[usize::from(priority)]) {
            watch.storm = true;
            watch.counters.detected += 1;
        }
        at.counters.storms.0 += 1;
        at.storming |= 1 << queue;
        if action != StormAction::Alert {
            at.ignored |= 1 << priority;
            at.pauses.resume(now, priority, &mut at.counters);
            at.hold();
        }
        if action == StormAction::Drop {
            at.barred |= 1 << queue;
            at.deaf |= 1 << priority;
            let frames = at.queues[usize::from(queue)].entries.len() as u64;
            if let Some(watch) = at.watches.as_mut().map(|all| &mut all[usize::from(priority)]) {
                watch.counters.tx_drop += frames;
            }
            self.flush(port, queue, DropCause::Watchdog);
        }
        self.tell(SwitchEvent::Storm { port, priority, began: true });
        self.announce(port);
    }

    /// A storm is over.
    fn calm(&mut self, port: PortId, priority: u8) {
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        at.ignored &= !(1 << priority);
        at.deaf &= !(1 << priority);
        let mut storms = 0;
        if let Some(watches) = &mut at.watches {
            let watch = &mut watches[usize::from(priority)];
            watch.storm = false;
            watch.counters.restored += 1;
            for (other, watch) in (0..8).zip(watches.iter()) {
                storms |= u8::from(watch.storm) << other;
            }
        }
        // A queue may have the storm of another priority as well.
        at.storming = at.queues_of(storms);
        at.barred &= at.storming;
        at.counters.storms.1 += 1;
        self.tell(SwitchEvent::Storm { port, priority, began: false });
    }

    /// Counts a frame that meets a storm: it came in by the priority, or it is for or from the
    /// queue.
    pub(super) fn count_storm(
        &mut self,
        port: PortId,
        priority: u8,
        count: impl Fn(&mut StormCounters),
    ) {
        let at = self.ports.get_mut(usize::from(port));
        if let Some(watches) = at.and_then(|at| at.watches.as_mut()) {
            let watch = &mut watches[usize::from(priority & 7)];
            if watch.storm {
                count(&mut watch.counters);
            }
        }
    }

    pub(super) fn tell(&mut self, event: SwitchEvent) {
        if self.events.len() < EVENTS {
            self.events.push_back(event);
        }
    }
}
