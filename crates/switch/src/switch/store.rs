//! Frames into the queues and out of the buffer: room asked for and given back, drops counted.

use super::{PortId, Switch};
use crate::config::EcnAt;
use crate::counters::DropCause;
use crate::frame::Frame;
use crate::port::{Entry, Port};

/// In place of an ingress port: the room belongs to the mirrors.
const MIRRORED: PortId = PortId::MAX;

impl<B: Clone> Switch<B> {
    /// Asks for room and puts a frame into its queue.
    pub(super) fn enqueue(
        &mut self,
        (port, priority): (PortId, u8),
        to: PortId,
        mut frame: Box<Frame<B>>,
    ) {
        let Some(egress) = self.ports.get(usize::from(to)).filter(|egress| egress.up) else {
            return self.drop_frame(port, priority, DropCause::LinkDown);
        };
        let queue = egress.queue_of(priority);
        if egress.barred >> queue & 1 == 1 {
            self.count_storm(to, priority, |storm| storm.tx_drop += 1);
            return self.drop_frame(port, priority, DropCause::Watchdog);
        }
        let queued = egress.queues[usize::from(queue)].bytes;
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        let ingress = &mut at.ingress[usize::from(priority)];
        let Some(charge) = self.memory.charge(frame.length) else {
            return self.drop_frame(port, priority, DropCause::Buffer);
        };
        if let Err(cause) = self.memory.admit(ingress, queued, u64::from(charge)) {
            return self.drop_frame(port, priority, cause);
        }
        let watermark = &mut at.counters.priorities[usize::from(priority)].ingress_watermark;
        *watermark = ingress.bytes().max(*watermark);
        let bit = 1 << priority;
        if at.pauses.wanted & bit == 0 && self.memory.must_stop(ingress) {
            self.want(port, priority, true);
        }
        let egress = &mut self.ports[usize::from(to)];
        if let Some(red) = &mut egress.queues[usize::from(queue)].red
            && red.profile.at == EcnAt::Enqueue
            && red.marks(queued, &mut self.drawn)
            && frame.mark_ce()
        {
            egress.counters.priorities[usize::from(queue)].ecn_marked += 1;
        }
        egress.push(queue, Entry { frame, charge, ingress: port, priority });
        if egress.idle {
            self.announce(to);
        }
    }

    /// Counts a frame that does not go on.
    pub(super) fn drop_frame(&mut self, port: PortId, priority: u8, cause: DropCause) {
        let Some(at) = self.ports.get_mut(usize::from(port)) else { return };
        *at.counters.dropped.entry(cause).or_default() += 1;
        let counters = &mut at.counters.priorities[usize::from(priority & 7)];
        match cause {
            DropCause::Headroom => counters.rx_buf_discard += 1,
            DropCause::Buffer => counters.rx_cong_discard += 1,
            _ => {}
        }
    }

    /// Puts a copy of a frame that leaves into the lowest queue of a mirror's port.
    pub(super) fn mirror(&mut self, of: PortId, to: PortId, frame: &Frame<B>) {
        let lost =
            |at: &mut Port<B>| *at.counters.dropped.entry(DropCause::Mirror).or_default() += 1;
        let Some(queued) = self.ports.get(usize::from(to)).filter(|at| at.up) else {
            return self.ports.get_mut(usize::from(of)).map_or((), lost);
        };
        let queued = queued.queues[0].bytes;
        let charge = self.memory.charge(frame.length);
        let admitted = charge.filter(|&charge| {
            self.memory.admit(&mut self.mirrored, queued, u64::from(charge)).is_ok()
        });
        let Some(charge) = admitted else {
            return self.ports.get_mut(usize::from(of)).map_or((), lost);
        };
        let frame = Box::new(frame.clone());
        self.ports[usize::from(to)]
            .push(0, Entry { frame, charge, ingress: MIRRORED, priority: 0 });
        self.announce(to);
    }

    /// Drops all frames of a queue.
    pub(super) fn flush(&mut self, port: PortId, queue: u8, cause: DropCause) {
        let pop = |ports: &mut [Port<B>]| ports.get_mut(usize::from(port))?.pop(queue);
        while let Some(entry) = pop(&mut self.ports) {
            self.release(&entry);
            self.drop_frame(entry.ingress, entry.priority, cause);
        }
    }

    /// Gives back the room of a frame that has left.
    pub(super) fn release(&mut self, entry: &Entry<B>) {
        let Some(at) = self.ports.get_mut(usize::from(entry.ingress)) else {
            return self.memory.release(&mut self.mirrored, u64::from(entry.charge));
        };
        let ingress = &mut at.ingress[usize::from(entry.priority)];
        self.memory.release(ingress, u64::from(entry.charge));
        let wanted = at.pauses.wanted >> entry.priority & 1 == 1;
        if wanted && self.memory.may_resume(ingress) {
            self.want(entry.ingress, entry.priority, false);
        }
    }
}
