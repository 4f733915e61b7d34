//! What the NIC's lock guards, and the steps that drive it: receive, timers, transmit. Who takes
//! the steps when is not decided here.

use engine::{Device, Event, Payload, Priorities, Train};
use wire::{Instant, Packet, Span};

use crate::counters::LinkCounters;
use crate::mem::ProcessMemory;
use crate::udp::UdpLink;

/// When the kernel can take no more, it is asked again after this time.
const RETRY: Span = Span::from_us(50);

/// Device and link.
pub(super) struct State {
    device: Device<ProcessMemory>,
    link: UdpLink,
    train: Train,
    /// When the next step is due if nothing arrives and nobody calls.
    deadline: Option<Instant>,
}

impl State {
    pub(super) fn new(device: Device<ProcessMemory>, link: UdpLink) -> Self {
        Self { device, link, train: Train::default(), deadline: None }
    }

    pub(super) fn device(&mut self) -> &mut Device<ProcessMemory> {
        &mut self.device
    }

    pub(super) fn link_counters(&self) -> &LinkCounters {
        &self.link.counters
    }

    /// When the next step is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Appends what the link has to wait for.
    pub(super) fn interests(&self, out: &mut Vec<libc::pollfd>) {
        self.link.interests(out);
    }

    /// One bounded step; whether anything was done. `everywhere`: look at every address.
    pub(super) fn step(&mut self, now: Instant, everywhere: bool, batches: usize) -> bool {
        let Self { device, link, .. } = self;
        let mut sink = |packet: &Packet<Payload<'_>>| device.receive(now, packet);
        let arrived = link.receive(now, everywhere, &mut sink);
        let due = self.deadline.is_some_and(|deadline| deadline.is_due(now));
        if arrived == 0 && !due {
            return false;
        }
        if due {
            self.device.handle_timeout(now);
        }
        self.transmit(now, batches);
        self.replan(now);
        true
    }

    /// Hands what there is to send to the kernel, at most `batches` full buffers of it; whether
    /// everything has gone.
    pub(super) fn transmit(&mut self, now: Instant, batches: usize) -> bool {
        let Self { device, link, train, .. } = self;
        for _ in 0..batches {
            if !link.flush() {
                return false;
            }
            while link.has_room() {
                if !device.poll_transmit(now, link.train_limits(), Priorities::ALL, train) {
                    return link.flush();
                }
                link.push(train);
            }
        }
        link.flush();
        false
    }

    /// Works out when the next step is due.
    pub(super) fn replan(&mut self, now: Instant) {
        let mut deadline = self.device.poll_timeout(now);
        let retry = self.link.is_blocked().then(|| now + RETRY);
        for other in [self.link.next_due(), retry].into_iter().flatten() {
            deadline = Some(deadline.map_or(other, |d| d.earlier(other)));
        }
        self.deadline = deadline;
    }

    /// Takes events from the device, as many as fit.
    pub(super) fn take_events(&mut self) -> Events {
        let mut events = Events::default();
        while !events.is_full() {
            match self.device.poll_event() {
                Some(event) => events.push(event),
                None => break,
            }
        }
        events
    }
}

/// A few events, on the stack.
#[derive(Default)]
pub(super) struct Events {
    list: [Option<Event>; 16],
    len: usize,
}

impl Events {
    fn push(&mut self, event: Event) {
        self.list[self.len] = Some(event);
        self.len += 1;
    }

    /// Whether no more fit: there may be others in the device.
    pub(super) fn is_full(&self) -> bool {
        self.len == self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Event> {
        self.list[..self.len].iter().copied().flatten()
    }
}
