//! DCBX at the switch's doors: adverts sent and heard, and what was agreed put in force.

use wire::{Instant, Span};

use super::{EXPIRY, HEARD, PortId, SLOTS, Switch, SwitchEvent, TELL};
use crate::config::{Bandwidth, Scheduling};
use crate::dcbx::exchange::Exchange;
use crate::dcbx::{Advert, Algorithm, GROUP};
use crate::frame::{Content, Frame, Header};
use crate::schedule::{Turns, bits};

/// Seconds for which an advert is true, as LLDP recommends.
const LIFE: u16 = 120;
/// How often it is repeated.
const INTERVAL: Span = Span::from_ms(30_000);

impl<B: Clone> Switch<B> {
    /// What a port and its neighbour have told each other; none where DCBX is off.
    pub fn exchange(&self, port: PortId) -> Option<&Exchange> {
        self.ports.get(usize::from(port))?.exchange.as_deref()
    }

    /// Adverts are due from the beginning.
    pub(super) fn begin_exchange(&mut self) {
        for index in 0..self.ports.len() {
            if self.ports[index].exchange.is_some() {
                self.timers.set(index * SLOTS + TELL, Instant::ZERO);
                self.put_in_force(Instant::ZERO, index);
            }
        }
    }

    /// It is time for a port to tell of itself again.
    pub(super) fn owe_advert(&mut self, index: usize) {
        let Some(at) = self.ports.get_mut(index) else { return };
        at.tells = at.exchange.is_some();
        self.announce(index as PortId);
    }

    /// A neighbour has told of itself.
    pub(super) fn hear(&mut self, now: Instant, port: PortId, frame: &Frame<B>) {
        let index = usize::from(port);
        let Content::Lldp(bytes) = &frame.content else { return };
        let Some(at) = self.ports.get_mut(index) else { return };
        let Some(exchange) = &mut at.exchange else { return };
        let Ok(advert) = Advert::parse(bytes) else {
            at.counters.lldp_discards += 1;
            return;
        };
        let before = exchange.advert(self.config.mac, LIFE);
        match exchange.hear(now, frame.header.source, advert) {
            Some(until) => self.timers.set(index * SLOTS + HEARD, until),
            None => self.timers.clear(index * SLOTS + HEARD),
        }
        self.agree(now, index, &before);
    }

    /// A neighbour has been silent for long.
    pub(super) fn miss(&mut self, now: Instant, index: usize) {
        let exchange = self.ports.get_mut(index).and_then(|at| at.exchange.as_mut());
        let Some(exchange) = exchange else { return };
        let before = exchange.advert(self.config.mac, LIFE);
        exchange.expire(now);
        self.agree(now, index, &before);
    }

    /// Puts a change in force and tells of it at once.
    fn agree(&mut self, now: Instant, index: usize, before: &Advert) {
        let exchange = self.ports.get(index).and_then(|at| at.exchange.as_ref());
        let Some(exchange) = exchange else { return };
        if exchange.advert(self.config.mac, LIFE) == *before {
            return;
        }
        let pfc = exchange.pfc();
        self.put_in_force(now, index);
        self.owe_advert(index);
        self.tell(SwitchEvent::Agreed { port: index as PortId, pfc });
    }

    fn put_in_force(&mut self, now: Instant, index: usize) {
        let Some(at) = self.ports.get_mut(index) else { return };
        let Some(exchange) = &at.exchange else { return };
        let (ets, pfc) = (exchange.ets(), exchange.pfc());
        at.class = ets.class.map(|class| class & 7);
        let how = |class: usize| match ets.algorithm[class] {
            Algorithm::Ets => Scheduling::Weighted(Bandwidth(ets.bandwidth[class].max(1))),
            Algorithm::Strict | Algorithm::Cbs | Algorithm::Other(_) => Scheduling::Strict,
        };
        at.turns = Turns::new(&std::array::from_fn(how));
        let mut free = 0;
        for priority in 0..8_u8 {
            let place = usize::from(priority);
            // Lossless is only what has headroom configured.
            let limits = self.config.ports[index].pfc[place].filter(|_| pfc >> priority & 1 == 1);
            self.memory.reclassify(&mut at.ingress[place], limits);
            if limits.is_none() {
                free |= 1 << priority;
                if !at.pauses.link {
                    at.pauses.resume(now, priority, &mut at.counters);
                    self.timers.clear(index * SLOTS + EXPIRY + place);
                }
            }
        }
        at.hold();
        let wanted = at.pauses.wanted & free;
        for priority in bits(wanted) {
            self.want(index as PortId, priority, false);
        }
        self.announce(index as PortId);
    }

    /// The advert that a port owes.
    pub(super) fn advertise(&mut self, now: Instant, port: PortId) -> Option<Box<Frame<B>>> {
        let index = usize::from(port);
        let at = self.ports.get_mut(index)?;
        at.tells = false;
        let bytes = at.exchange.as_ref()?.advert(self.config.mac, LIFE).emit(at.mac);
        self.timers.set(index * SLOTS + TELL, now + INTERVAL);
        let header = Header { destination: GROUP, source: at.mac, tag: None, net: None };
        // Header, EtherType and check sequence.
        let length = (bytes.len() as u32 + 18).max(64);
        Some(Box::new(Frame { header, length, content: Content::Lldp(bytes) }))
    }
}
