//! A port: its queues, its turns, its pauses, its counters. What the ports share is `buffer`'s.

use std::collections::VecDeque;

use wire::{Mac, Rate};

use crate::buffer::{Ingress, Share};
use crate::config::SwitchConfig;
use crate::counters::PortCounters;
use crate::dcbx::exchange::Exchange;
use crate::ecn::Red;
use crate::frame::Frame;
use crate::options::Options;
use crate::pfc::Pauses;
use crate::schedule::{Turns, bits};
use crate::switch::PortId;
use crate::watchdog::Watch;

/// A frame that waits, and where its room in the buffer has to be given back.
#[derive(Debug)]
pub(crate) struct Entry<B> {
    pub(crate) frame: Box<Frame<B>>,
    pub(crate) charge: u32,
    pub(crate) ingress: u16,
    pub(crate) priority: u8,
}

/// An egress queue.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    pub(crate) entries: VecDeque<Entry<B>>,
    pub(crate) bytes: u64,
    pub(crate) red: Option<Red>,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port<B> {
    pub(crate) mac: Mac,
    pub(crate) rate: Rate,
    pub(crate) up: bool,
    pub(crate) queues: [Queue<B>; 8],
    /// The queue of each priority.
    pub(crate) class: [u8; 8],
    /// What is agreed with the neighbour by DCBX.
    pub(crate) exchange: Option<Box<Exchange>>,
    /// An advert has to be sent.
    pub(crate) tells: bool,
    /// Queues that hold frames.
    pub(crate) filled: u8,
    /// Queues that the neighbour has stopped.
    pub(crate) held: u8,
    /// Bytes in all queues.
    pub(crate) waiting: u64,
    pub(crate) turns: Turns,
    pub(crate) ingress: [Ingress; 8],
    pub(crate) pauses: Pauses,
    pub(crate) counters: PortCounters,
    /// Queues in a storm of pauses.
    pub(crate) storming: u8,
    /// Queues whose frames the watchdog drops.
    pub(crate) barred: u8,
    /// Priorities whose frames from this port the watchdog drops.
    pub(crate) deaf: u8,
    /// Priorities whose pauses the watchdog ignores.
    pub(crate) ignored: u8,
    /// The watchdog's view of each priority.
    pub(crate) watches: Option<Box<[Watch; 8]>>,
    /// Where copies of what leaves go.
    pub(crate) mirror: Option<PortId>,
    /// The driver waits to be told of something to send.
    pub(crate) idle: bool,
}

impl<B> Port<B> {
    pub(crate) fn new(config: &SwitchConfig, options: &Options, index: usize) -> Self {
        let own = &config.ports[index];
        let alpha = options.port_alpha.get(index).copied().flatten();
        let share = Share::new(alpha.unwrap_or(config.buffer.alpha));
        let wishes = options.dcbx.get(index).cloned().flatten();
        let mut mirrors = options.mirrors.iter();
        let queue = |queue: usize| Queue {
            entries: VecDeque::new(),
            bytes: 0,
            red: own.ecn[queue].map(Red::new),
        };
        let quanta = own.pfc.map(|pfc| pfc.map_or(0, |pfc| pfc.quanta));
        Self {
            mac: mac(config.mac, index),
            rate: own.rate,
            up: true,
            queues: std::array::from_fn(queue),
            class: config.class_of.map(|class| class & 7),
            exchange: wishes.map(|wishes| Box::new(Exchange::new(mac(config.mac, index), wishes))),
            tells: false,
            filled: 0,
            held: 0,
            waiting: 0,
            turns: Turns::new(&own.scheduling),
            ingress: own.pfc.map(|pfc| Ingress { used: 0, headroom: 0, pfc, share }),
            pauses: Pauses::new(quanta, own.link_pause),
            counters: PortCounters::default(),
            storming: 0,
            barred: 0,
            deaf: 0,
            ignored: 0,
            watches: options.watchdog.map(|_| Box::new([Watch::new(); 8])),
            mirror: mirrors.find(|mirror| usize::from(mirror.of) == index).map(|m| m.to),
            idle: true,
        }
    }

    /// The queue of a priority.
    pub(crate) fn queue_of(&self, priority: u8) -> u8 {
        self.class[usize::from(priority & 7)]
    }

    /// The queues of a set of priorities, as bits.
    pub(crate) fn queues_of(&self, priorities: u8) -> u8 {
        bits(priorities).fold(0, |all, priority| all | 1 << self.queue_of(priority))
    }

    /// Finds the queues that the neighbour has stopped.
    pub(crate) fn hold(&mut self) {
        self.held = self.queues_of(self.pauses.stopped);
    }

    /// Puts a frame into a queue.
    pub(crate) fn push(&mut self, queue: u8, entry: Entry<B>) {
        let bytes = u64::from(entry.charge);
        let place = &mut self.queues[usize::from(queue)];
        place.bytes += bytes;
        place.entries.push_back(entry);
        let watermark = &mut self.counters.priorities[usize::from(queue)].egress_watermark;
        *watermark = place.bytes.max(*watermark);
        self.waiting += bytes;
        self.filled |= 1 << queue;
    }

    /// The first frame of a queue.
    pub(crate) fn pop(&mut self, queue: u8) -> Option<Entry<B>> {
        let place = &mut self.queues[usize::from(queue)];
        let entry = place.entries.pop_front()?;
        place.bytes -= u64::from(entry.charge);
        self.waiting -= u64::from(entry.charge);
        if place.entries.is_empty() {
            self.filled &= !(1 << queue);
            self.turns.emptied(queue);
        }
        Some(entry)
    }

    /// Whether something could be sent.
    pub(crate) fn can_send(&self) -> bool {
        self.up && (self.filled & !self.held != 0 || self.pauses.owes() || self.tells)
    }

    /// The queue whose turn it is.
    pub(crate) fn turn(&mut self) -> Option<u8> {
        let queues = &self.queues;
        let length = |queue: u8| {
            queues[usize::from(queue)].entries.front().map_or(0, |entry| entry.frame.length)
        };
        self.turns.pick(self.filled & !self.held, length)
    }
}

/// The address of a port: the switch's, its last two bytes increased by the port's number.
fn mac(of: Mac, index: usize) -> Mac {
    let [a, b, c, d, e, f] = of.0;
    let [e, f] = u16::from_be_bytes([e, f]).wrapping_add(index as u16).to_be_bytes();
    Mac([a, b, c, d, e, f])
}
