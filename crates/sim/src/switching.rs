//! A switch in the world: its cables, its timer, and what it is seen to receive.

use switch::{Content, Switch};
use wire::Instant;
use wire::mac_control::MacControl;

use crate::cable::Sender;
use crate::event::{Event, What};
use crate::exchange::Outbox;
use crate::frame::{Body, Boxed};
use crate::network::NodeId;
use crate::outcome::PauseRecord;

/// A switch with its cables.
#[derive(Debug)]
pub(crate) struct Switching {
    pub(crate) id: u32,
    pub(crate) switch: Switch<Body>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) pauses: Vec<PauseRecord>,
    pub(crate) hops: u64,
    /// Mean lengths of queues, where they are wanted.
    pub(crate) means: Option<Means>,
    wake: Option<Instant>,
}

impl Switching {
    pub(crate) fn new(id: u32, switch: Switch<Body>, senders: Vec<Sender>) -> Self {
        Self {
            id,
            switch,
            senders,
            pauses: Vec::new(),
            hops: 0,
            means: None,
            wake: Some(Instant::ZERO),
        }
    }

    pub(crate) fn handle(&mut self, event: Event, out: &mut Outbox<'_>) {
        let (now, port) = (event.at, event.port());
        match event.what {
            What::Arrive(frame) => {
                note(&mut self.pauses, now, (self.id, port), &frame);
                self.hops += u64::from(is_data(&frame));
                self.switch.receive(now, port, frame);
            }
            What::Free => {
                if let Some(sender) = self.senders.get_mut(usize::from(port)) {
                    sender.freed();
                }
                self.pump(now, port, out);
            }
            What::Wake => {
                if self.wake != Some(now) {
                    return;
                }
                self.wake = None;
                self.switch.handle_timeout(now);
            }
        }
        self.settle(now, out);
    }

    /// After any change: sends what can be sent and sets the timer.
    pub(crate) fn settle(&mut self, now: Instant, out: &mut Outbox<'_>) {
        while let Some(port) = self.switch.poll_port() {
            self.pump(now, port, out);
        }
        while self.switch.poll_event().is_some() {}
        if let Some(at) = self.switch.poll_timeout() {
            let at = if at.is_before(now) { now } else { at };
            if self.wake.is_none_or(|wake| at.is_before(wake)) {
                self.wake = Some(at);
                out.queue.push(Event::wake(at, self.id));
            }
        }
    }

    /// Notes how long the queues are at the end of a window.
    pub(crate) fn sample(&mut self, end: Instant) {
        let Some(means) = &mut self.means else { return };
        let switch = &self.switch;
        means.note(end, |port| (0..8).map(|q| switch.egress_bytes(port, q)).sum());
    }

    fn pump(&mut self, now: Instant, port: u16, out: &mut Outbox<'_>) {
        let Some(sender) = self.senders.get_mut(usize::from(port)) else { return };
        while sender.is_free(now, (self.id, port), out.queue) {
            let Some(frame) = self.switch.poll_transmit(now, port) else { return };
            sender.send(now, frame, out);
        }
    }
}

/// Mean lengths of the queues of each port, from samples at the ends of windows.
#[derive(Debug)]
pub(crate) struct Means {
    from: Instant,
    last: Instant,
    /// Bytes at the last sample, and byte-picoseconds up to then.
    ports: Vec<(u64, u128)>,
}

impl Means {
    pub(crate) fn new(from: Instant, ports: usize) -> Self {
        Self { from, last: Instant::ZERO, ports: vec![(0, 0); ports] }
    }

    fn note(&mut self, now: Instant, bytes: impl Fn(u16) -> u64) {
        let begin = if self.last.is_before(self.from) { self.from } else { self.last };
        let span = now.since(begin).as_ps();
        for (port, (held, area)) in self.ports.iter_mut().enumerate() {
            *area += u128::from(*held) * u128::from(span);
            *held = bytes(port as u16);
        }
        self.last = now;
    }

    /// The means at the end, in bytes.
    pub(crate) fn finish(&mut self, now: Instant) -> Vec<u64> {
        let held: Vec<u64> = self.ports.iter().map(|(held, _)| *held).collect();
        self.note(now, |port| held.get(usize::from(port)).copied().unwrap_or_default());
        let span = u128::from(now.since(self.from).as_ps()).max(1);
        self.ports.iter().map(|(_, area)| (area / span) as u64).collect()
    }
}

/// Whether a frame counts among data packets: it carries a message's data.
pub(crate) fn is_data(frame: &Boxed) -> bool {
    matches!(&frame.content, Content::Data(Body::Roce(roce)) if roce.data)
}

/// Records a pause that has been received.
pub(crate) fn note(log: &mut Vec<PauseRecord>, now: Instant, at: (u32, u16), frame: &Boxed) {
    let Content::Control(control) = &frame.content else { return };
    let record = |priority: u8, quanta: u16| PauseRecord {
        at: now.as_ps(),
        node: NodeId(at.0),
        port: at.1,
        priority,
        stops: quanta > 0,
    };
    match control {
        MacControl::Pause { quanta } => log.push(record(0, *quanta)),
        MacControl::Pfc(pfc) => {
            let all = (0..8).filter_map(|p| Some(record(p, pfc.get(p)?)));
            log.extend(all);
        }
    }
}
