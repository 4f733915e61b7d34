//! A worker: some of the nodes, their events, and the loop over windows of time. All workers see
//! the same windows, so what they do does not depend on their number.

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

/// Some of the nodes, and what is to happen at them.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) own: u16,
    /// By node; `None` where another worker has it.
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) queue: Queue,
    pub(crate) events: u64,
    away: Vec<Vec<Event>>,
    pool: Pool,
}

impl Worker {
    pub(crate) fn new(own: u16, workers: usize, nodes: Vec<Option<Node>>) -> Self {
        let away = (0..workers).map(|_| Vec::new()).collect();
        Self { own, nodes, queue: Queue::default(), events: 0, away, pool: Pool::default() }
    }

    /// Handles everything before `until`, or until `flows` have ended; when it stopped.
    pub(crate) fn run(
        &mut self,
        exchange: &mut dyn Exchange,
        worker_of: &[u16],
        window: Span,
        (until, flows): (Instant, u64),
        mut watch: impl FnMut(Instant, u64),
    ) -> Instant {
        let mut end = Instant::ZERO;
        loop {
            let ended = self.ended();
            let word = exchange.meet(&mut self.away, &mut self.queue, ended);
            watch(end, word.ended);
            if word.ended >= flows || word.next >= until.as_ps() {
                return if word.ended >= flows { end } else { until };
            }
            // The windows are multiples of their length, whatever happens in them.
            let length = window.as_ps().max(1);
            let last = (word.next / length + 1).saturating_mul(length);
            end = Instant::from_ps(last.min(until.as_ps()));
            self.window(worker_of, end);
        }
    }

    fn window(&mut self, worker_of: &[u16], end: Instant) {
        while let Some(event) = self.queue.pop_before(end) {
            self.events += 1;
            let node = self.nodes.get_mut(event.node() as usize);
            let Some(Some(node)) = node else { continue };
            let mut out =
                Outbox { queue: &mut self.queue, worker_of, own: self.own, away: &mut self.away };
            match node {
                Node::Host(host) => host.handle(event, &mut out, &mut self.pool),
                Node::Switch(switching) => switching.handle(event, &mut out),
            }
        }
    }

    fn ended(&self) -> u64 {
        let hosts = self.nodes.iter().flatten();
        hosts.map(|node| if let Node::Host(host) = node { host.app.ended } else { 0 }).sum()
    }
}
