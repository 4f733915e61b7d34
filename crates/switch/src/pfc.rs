//! Pauses of one port: which priorities the neighbour ought to rest, as it was last told, and which
//! of ours it has stopped until when. When to stop is the buffer's.

use wire::mac_control::{MacControl, Pfc, pause_time};
use wire::{Instant, Rate};

use crate::counters::PortCounters;
use crate::schedule::bits;

/// Pauses of a port, in both directions.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// Priorities that the neighbour ought to rest.
    pub(crate) wanted: u8,
    /// Priorities that it has been told to rest.
    pub(crate) told: u8,
    /// Priorities whose pause has to be said again.
    pub(crate) refresh: u8,
    /// Quanta asked for.
    pub(crate) quanta: [u16; 8],
    /// Of the whole link, 802.3x.
    pub(crate) link: bool,
    /// Priorities of ours that the neighbour has stopped.
    pub(crate) stopped: u8,
    /// When a stopped priority goes on by itself; none: never.
    pub(crate) until: [Option<Instant>; 8],
    /// Since when its stopped time has not been counted.
    since: [Instant; 8],
}

impl Pauses {
    pub(crate) fn new(quanta: [u16; 8], link: bool) -> Self {
        Self {
            wanted: 0,
            told: 0,
            refresh: 0,
            quanta,
            link,
            stopped: 0,
            until: [None; 8],
            since: [Instant::ZERO; 8],
        }
    }

    /// Whether a pause frame has to be sent.
    pub(crate) fn owes(&self) -> bool {
        if self.link {
            return (self.wanted != 0) != (self.told != 0) || self.refresh != 0;
        }
        (self.wanted ^ self.told) | self.refresh != 0
    }

    /// The pause frame that is owed, and the priorities that it stops; it counts as said.
    pub(crate) fn say(&mut self) -> Option<(MacControl, u8)> {
        if !self.owes() {
            return None;
        }
        let speaks = (self.wanted ^ self.told) | (self.refresh & self.wanted);
        self.told = self.wanted;
        self.refresh = 0;
        if self.link {
            let quanta = bits(self.wanted).map(|p| self.quanta[usize::from(p)]).max();
            return Some((MacControl::Pause { quanta: quanta.unwrap_or(0) }, self.wanted));
        }
        let mut pfc = Pfc { classes: u16::from(speaks), quanta: [0; 8] };
        for priority in bits(speaks & self.wanted).map(usize::from) {
            pfc.quanta[priority] = self.quanta[priority];
        }
        Some((MacControl::Pfc(pfc), speaks & self.wanted))
    }

    /// A pause frame from the neighbour about a priority.
    pub(crate) fn obey(
        &mut self,
        now: Instant,
        priority: u8,
        quanta: u16,
        rate: Option<Rate>,
        counters: &mut PortCounters,
    ) {
        let (place, bit) = (usize::from(priority & 7), 1 << (priority & 7));
        if quanta == 0 {
            self.resume(now, priority, counters);
            return;
        }
        self.account(now, place, counters);
        self.until[place] = rate.map(|rate| now + pause_time(quanta, rate));
        if self.stopped & bit == 0 {
            self.stopped |= bit;
            self.since[place] = now;
            counters.priorities[place].rx_pause_transition += 1;
        }
    }

    /// A priority goes on.
    pub(crate) fn resume(&mut self, now: Instant, priority: u8, counters: &mut PortCounters) {
        let place = usize::from(priority & 7);
        self.account(now, place, counters);
        self.stopped &= !(1 << place);
        self.until[place] = None;
    }

    /// Ends the pauses whose time is over.
    pub(crate) fn expire(&mut self, now: Instant, counters: &mut PortCounters) {
        for priority in bits(self.stopped) {
            // Not later than when it was over, even if somebody asks later.
            if let Some(until) = self.until[usize::from(priority)]
                && until.is_due(now)
            {
                self.resume(until, priority, counters);
            }
        }
    }

    /// Counts the time that a priority has been stopped until now.
    fn account(&mut self, now: Instant, place: usize, counters: &mut PortCounters) {
        if self.stopped >> place & 1 == 1 {
            let span = now.since(self.since[place]);
            counters.priorities[place].rx_pause_duration += span.as_ps();
            self.since[place] = now;
        }
    }
}
