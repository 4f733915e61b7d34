//! Pauses at the switch's doors: obeying them, saying them, naming ports that may send again.

use wire::Instant;
use wire::mac_control::{MacControl, pause_time};

use super::{EXPIRY, PortId, SLOTS, Switch};
use crate::frame::Frame;
use crate::schedule::bits;

impl<B: Clone> Switch<B> {
    /// The neighbour at a port ought to rest a priority, or may go on.
    pub(super) fn want(&mut self, port: PortId, priority: u8, rest: bool) {
        let index = usize::from(port);
        let Some(at) = self.ports.get_mut(index) else { return };
        let slot = index * SLOTS + usize::from(priority);
        if rest {
            at.pauses.wanted |= 1 << priority;
        } else {
            at.pauses.wanted &= !(1 << priority);
            at.pauses.refresh &= at.pauses.wanted;
            self.timers.clear(slot);
        }
        self.announce(port);
    }

    /// Names a port to the driver.
    pub(super) fn announce(&mut self, port: PortId) {
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        if at.idle && at.can_send() {
            at.idle = false;
            self.ready.push_back(port);
        }
    }

    /// A pause frame has been received.
    pub(super) fn obey(&mut self, now: Instant, port: PortId, control: MacControl) {
        let index = usize::from(port);
        let Some(at) = self.ports.get_mut(index) else { return };
        for priority in 0..8_u8 {
            let quanta = match &control {
                MacControl::Pause { quanta } if at.pauses.link => Some(*quanta),
                MacControl::Pfc(pfc) if !at.pauses.link => pfc.get(priority),
                _ => None,
            };
            let Some(quanta) = quanta else { continue };
            let place = usize::from(priority);
            at.counters.priorities[place].rx_pause += u64::from(quanta > 0);
            if !at.pauses.link && at.ingress[place].pfc.is_none() {
                continue;
            }
            if let Some(watch) = at.watches.as_mut().map(|all| &mut all[place])
                && quanta > 0
            {
                watch.paused = now;
                if at.pauses.stopped >> priority & 1 == 0 {
                    let queue = usize::from(at.class[place]);
                    watch.stopped(now, at.counters.priorities[queue].tx_frames);
                }
            }
            if at.ignored >> priority & 1 == 1 {
                continue;
            }
            let rate = (!self.options.endless_pauses).then_some(at.rate);
            at.pauses.obey(now, priority, quanta, rate, &mut at.counters);
            let slot = index * SLOTS + EXPIRY + place;
            match at.pauses.until[place] {
                Some(until) => self.timers.set(slot, until),
                None => self.timers.clear(slot),
            }
        }
        at.hold();
        if at.pauses.stopped != 0 {
            self.watch(now);
        }
        self.announce(port);
    }

    /// The pause frame that a port owes.
    pub(super) fn say(&mut self, now: Instant, port: PortId) -> Option<Box<Frame<B>>> {
        let index = usize::from(port);
        let at = self.ports.get_mut(index)?;
        let (control, stops) = at.pauses.say()?;
        for priority in bits(stops).map(usize::from) {
            at.counters.priorities[priority].tx_pause += 1;
            if !self.options.endless_pauses {
                let quanta = at.pauses.quanta[priority] / 2;
                let half = pause_time(quanta.max(1), at.rate);
                self.timers.set(index * SLOTS + priority, now + half);
            }
        }
        let frame = Frame::control(at.mac, control);
        Some(match self.spare.pop() {
            Some(mut place) => {
                *place = frame;
                place
            }
            None => Box::new(frame),
        })
    }
}
