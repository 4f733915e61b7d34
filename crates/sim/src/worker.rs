//! A worker: some of the nodes, their events, and the loop over windows of time. No window is
//! longer than the shortest cable, so what a node does in one reaches no other node before its end:
//! each node goes through a whole window at once, its own state in the processor's cache. All
//! workers see the same windows, so what they do does not depend on their number.

use std::collections::BTreeMap;

use wire::{Instant, Span};

use crate::event::{Event, Queue};
use crate::exchange::{Exchange, Outbox};
use crate::frame::Pool;
use crate::host::Host;
use crate::switching::Switching;

/// A node.
#[derive(Debug)]
pub(crate) enum Node {
    Host(Box<Host>),
    Switch(Box<Switching>),
}

/// A node with what is to happen there.
#[derive(Debug)]
struct Slot {
    node: Node,
    queue: Queue,
    /// The window for which it is on the agenda.
    due: u64,
}

/// Windows that the agenda holds in a ring; later ones are kept in order.
const RING: u64 = 1 << 12;

/// Which nodes have something to do in which window.
#[derive(Debug)]
struct Agenda {
    length: u64,
    /// The window now, or the next.
    now: u64,
    ring: Vec<Vec<u32>>,
    later: BTreeMap<u64, Vec<u32>>,
    /// Nodes in the ring, those that have been moved forward included.
    held: usize,
}

impl Agenda {
    fn new(window: Span) -> Self {
        let ring = (0..RING).map(|_| Vec::new()).collect();
        Self { length: window.as_ps().max(1), now: 0, ring, later: BTreeMap::new(), held: 0 }
    }

    fn window_of(&self, at: Instant) -> u64 {
        at.as_ps() / self.length
    }

    fn add(&mut self, window: u64, node: u32) {
        if window < self.now + RING {
            self.ring[(window % RING) as usize].push(node);
            self.held += 1;
        } else {
            self.later.entry(window).or_default().push(node);
        }
    }

    /// The nodes of a window, which is the next one that has any, or an empty one before.
    fn take(&mut self, window: u64) -> Vec<u32> {
        self.now = window;
        while let Some(entry) = self.later.first_entry()
            && *entry.key() < window + RING
        {
            let at = *entry.key();
            let nodes = entry.remove();
            self.held += nodes.len();
            self.ring[(at % RING) as usize].extend(nodes);
        }
        let nodes = std::mem::take(&mut self.ring[(window % RING) as usize]);
        self.held -= nodes.len();
        nodes
    }

    /// Gives a list back to be filled again.
    fn reuse(&mut self, window: u64, mut nodes: Vec<u32>) {
        nodes.clear();
        let place = &mut self.ring[(window % RING) as usize];
        if place.is_empty() && nodes.capacity() > place.capacity() {
            *place = nodes;
        }
    }

    /// The next window that has nodes.
    fn next(&self) -> Option<u64> {
        if self.held > 0 {
            let ahead = self.now..self.now + RING;
            let found = ahead.into_iter().find(|w| !self.ring[(w % RING) as usize].is_empty());
            if found.is_some() {
                return found;
            }
        }
        self.later.first_key_value().map(|(window, _)| *window)
    }
}

/// Some of the nodes, and what is to happen at them.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) own: u16,
    /// By node; `None` where another worker has it.
    slots: Vec<Option<Box<Slot>>>,
    agenda: Agenda,
    pub(crate) events: u64,
    /// Flows that have ended at their askers.
    ended: u64,
    sent: Vec<Event>,
    away: Vec<Vec<Event>>,
    pool: Pool,
}

impl Worker {
    pub(crate) fn new(own: u16, workers: usize, nodes: Vec<Option<Node>>, window: Span) -> Self {
        let slot = |node| Box::new(Slot { node, queue: Queue::default(), due: u64::MAX });
        let slots: Vec<_> = nodes.into_iter().map(|node| node.map(slot)).collect();
        let mut worker = Self {
            own,
            slots,
            agenda: Agenda::new(window),
            events: 0,
            ended: 0,
            sent: Vec::new(),
            away: (0..workers).map(|_| Vec::new()).collect(),
            pool: Pool::default(),
        };
        for index in 0..worker.slots.len() as u32 {
            worker.accept(Event::wake(Instant::ZERO, index));
        }
        worker
    }

    /// Takes an event for one of the nodes here.
    fn accept(&mut self, event: Event) {
        let node = event.node();
        let Some(Some(slot)) = self.slots.get_mut(node as usize) else { return };
        let window = self.agenda.window_of(event.at);
        slot.queue.push(event);
        if window < slot.due {
            slot.due = window;
            self.agenda.add(window, node);
        }
    }

    /// Handles everything before `until`, or until `flows` have ended; when it stopped.
    pub(crate) fn run(
        &mut self,
        exchange: &mut dyn Exchange,
        worker_of: &[u16],
        (until, flows): (Instant, u64),
        mut watch: impl FnMut(Instant, u64),
    ) -> Instant {
        let length = self.agenda.length;
        let mut end = Instant::ZERO;
        loop {
            let mut away = std::mem::take(&mut self.away);
            let mut came = std::mem::take(&mut self.sent);
            exchange.deliver(&mut away, &mut came);
            for event in came.drain(..) {
                self.accept(event);
            }
            (self.away, self.sent) = (away, came);
            let word = exchange.agree(self.agenda.next().unwrap_or(u64::MAX), self.ended);
            watch(end, word.ended);
            let begins = word.next.checked_mul(length);
            let until_ps = until.as_ps();
            let over = begins.is_none_or(|at| at >= until_ps) || end.as_ps() >= until_ps;
            if word.ended >= flows || over {
                return if word.ended >= flows { end } else { until };
            }
            end = Instant::from_ps((word.next + 1).saturating_mul(length).min(until.as_ps()));
            self.window(worker_of, word.next, end);
        }
    }

    fn window(&mut self, worker_of: &[u16], window: u64, end: Instant) {
        let nodes = self.agenda.take(window);
        for &index in &nodes {
            let Some(Some(slot)) = self.slots.get_mut(index as usize) else { continue };
            if slot.due != window {
                // It had something earlier to do, and has been here.
                continue;
            }
            let Slot { node, queue, due } = &mut **slot;
            while let Some(event) = queue.pop_before(end) {
                self.events += 1;
                let mut out = Outbox { queue, sent: &mut self.sent };
                match node {
                    Node::Host(host) => {
                        let before = host.app.ended;
                        host.handle(event, &mut out, &mut self.pool);
                        self.ended += host.app.ended - before;
                    }
                    Node::Switch(switching) => switching.handle(event, &mut out),
                }
            }
            if let Node::Switch(switching) = node {
                switching.sample(end);
            }
            *due = u64::MAX;
            if let Some(at) = queue.next() {
                *due = self.agenda.window_of(at);
                self.agenda.add(*due, index);
            }
            self.distribute(worker_of);
        }
        self.agenda.reuse(window, nodes);
    }

    /// Gives what a node has sent to whom it is for.
    fn distribute(&mut self, worker_of: &[u16]) {
        let mut sent = std::mem::take(&mut self.sent);
        for event in sent.drain(..) {
            let worker = worker_of[event.node() as usize];
            if worker == self.own {
                self.accept(event);
            } else {
                self.away[usize::from(worker)].push(event);
            }
        }
        self.sent = sent;
    }

    /// The nodes, when all is over.
    pub(crate) fn into_nodes(self) -> impl Iterator<Item = (usize, Node)> {
        let slots = self.slots.into_iter().enumerate();
        slots.filter_map(|(index, slot)| Some((index, slot?.node)))
    }
}
