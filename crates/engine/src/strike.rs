//! One-shot faults as they strike a device: queue pairs, queues, port. When they are due the stage
//! knows (`faults`); a driver that has packets pass through stages hands them on by the two calls
//! here, and has [`Device::strike_due`] called when a stage says so.

use wire::{Instant, Operation, PKey, Packet, Position, Qpn};

use crate::attr::{QpState, QpType};
use crate::counters::pair::Before;
use crate::device::{Device, LinkState};
use crate::event::AsyncEvent;
use crate::faults::{Direction, FaultItem, FaultStage, ShotKind};
use crate::memory::{HostMemory, Payload};
use crate::qp::refusal::Fault;

impl<M: HostMemory> Device<M> {
    /// Takes a packet that a stage of received packets has handed out, its `number` in it: one-shot
    /// faults strike first, then the packet is received, unless a fault took it or the port is
    /// down. Whether it was lost because the port is.
    pub fn receive_from<T: FaultItem>(
        &mut self,
        stage: &mut FaultStage<T>,
        number: u64,
        now: Instant,
        packet: &Packet<Payload<'_>>,
    ) -> bool {
        let mut answered = false;
        if stage.has_shots() {
            stage.strike(Some(number), now, |kind| {
                // One answer for a request.
                if kind.is_answer() && answered {
                    return false;
                }
                let fitted = self.strike(now, kind, Direction::Rx, packet);
                answered |= fitted && kind.is_answer();
                fitted
            });
        }
        let down = self.link == LinkState::Down;
        if down {
            stage.cut();
        } else if !answered {
            self.receive(now, packet);
        }
        down
    }

    /// Whether a packet that a stage of sent packets has handed out may leave: one-shot faults
    /// strike first, and while the port is down none does.
    pub fn lets_out<T: FaultItem>(
        &mut self,
        stage: &mut FaultStage<T>,
        number: u64,
        now: Instant,
        packet: &Packet<Payload<'_>>,
    ) -> bool {
        if stage.has_shots() {
            stage.strike(Some(number), now, |kind| self.strike(now, kind, Direction::Tx, packet));
        }
        self.lets_out_any(stage)
    }

    /// The same for a packet at which no one-shot fault strikes.
    pub fn lets_out_any<T: FaultItem>(&mut self, stage: &mut FaultStage<T>) -> bool {
        let up = self.link == LinkState::Up;
        if !up {
            stage.cut();
        }
        up
    }

    /// Has what is due by the clock alone strike: port up and down, the device.
    pub fn strike_due<T: FaultItem>(&mut self, stage: &mut FaultStage<T>, now: Instant) {
        stage.strike(None, now, |kind| self.strike_port(now, kind));
    }

    /// A fault strikes at a packet; false if it does not fit that one.
    fn strike(
        &mut self,
        now: Instant,
        kind: ShotKind,
        direction: Direction,
        packet: &Packet<Payload<'_>>,
    ) -> bool {
        if kind.is_of_the_port() {
            return self.strike_port(now, kind);
        }
        let Some(index) = self.victim(direction, packet) else { return false };
        match kind {
            ShotKind::QpError => self.strike_qp(now, index),
            ShotKind::CqOverrun => self.strike_cq(now, index, direction, packet),
            _ => self.strike_request(now, index, kind, packet),
        }
    }

    fn strike_port(&mut self, now: Instant, kind: ShotKind) -> bool {
        match kind {
            ShotKind::PortDown => self.handle_link(LinkState::Down),
            ShotKind::PortUp => self.handle_link(LinkState::Up),
            ShotKind::DeviceFatal => self.fail_all(now),
            _ => return false,
        }
        true
    }

    /// The application's queue pair that a packet belongs to, if it is at work.
    fn victim(&self, direction: Direction, packet: &Packet<Payload<'_>>) -> Option<u32> {
        let index = match direction {
            Direction::Rx => *self.by_qpn.get(&packet.bth.dest_qp.get())?,
            Direction::Tx => self.sender_of(packet)?,
        };
        let facts = &self.qps.get(index)?.facts;
        let idle = matches!(facts.state, QpState::Reset | QpState::Init | QpState::Err);
        (facts.kind != QpType::Gsi && !idle).then_some(index)
    }

    /// The queue pair that has sent a packet. Connected ones are looked for: a packet does not say.
    fn sender_of(&self, packet: &Packet<Payload<'_>>) -> Option<u32> {
        if let Some(deth) = &packet.ext.deth {
            return self.by_qpn.get(&deth.source_qp.get()).copied();
        }
        (0..self.qps.bound()).find(|&index| {
            self.qps.get(index).is_some_and(|qp| {
                let path = qp.facts.path.as_ref();
                qp.facts.dest_qp == packet.bth.dest_qp
                    && packet.bth.opcode.service() == Some(qp.facts.service())
                    && path.is_some_and(|path| {
                        (path.source, path.destination)
                            == (packet.path.source, packet.path.destination)
                    })
            })
        })
    }

    fn strike_qp(&mut self, now: Instant, index: u32) -> bool {
        self.fail_one(now, index);
        self.touched(index, now);
        true
    }

    /// Flushes a queue pair and says so; its number.
    fn fail_one(&mut self, now: Instant, index: u32) -> Option<Qpn> {
        let qp = self.qps.get_mut(index)?;
        let qpn = qp.facts.qpn;
        qp.fail(&mut self.shared, now, None);
        self.shared.raise(AsyncEvent::QpFatal(qpn));
        Some(qpn)
    }

    /// The device fails, as adapters do: everything in the queues is flushed, nothing passes.
    fn fail_all(&mut self, now: Instant) {
        if self.fatal {
            return;
        }
        self.shared.raise(AsyncEvent::DeviceFatal);
        for index in 0..self.qps.bound() {
            let Some(qp) = self.qps.get_mut(index) else { continue };
            if !matches!(qp.facts.state, QpState::Reset | QpState::Err) {
                qp.fail(&mut self.shared, now, None);
            }
            self.touched(index, now);
        }
        self.link = LinkState::Down;
        self.fatal = true;
    }

    /// The queue that the packet's work completes into overruns: requests that are sent, and
    /// responses that are received, belong to the send queue's.
    fn strike_cq(
        &mut self,
        now: Instant,
        index: u32,
        direction: Direction,
        packet: &Packet<Payload<'_>>,
    ) -> bool {
        let Some(facts) = self.qps.get(index).map(|qp| qp.facts) else { return false };
        let request = packet.bth.opcode.operation().is_some_and(Operation::is_request);
        let sends = request == (direction == Direction::Tx);
        let cq = if sends { facts.send_cq } else { facts.recv_cq };
        let Some(slot) = self.shared.cqs.get(cq.0) else { return false };
        if slot.cq.overrun() {
            self.shared.raise(AsyncEvent::CqErr(cq));
        }
        if !self.shared.overrun.contains(&cq) {
            self.shared.overrun.push(cq);
        }
        self.touched(index, now);
        true
    }

    /// A request of a reliable connection is answered otherwise than it deserves.
    fn strike_request(
        &mut self,
        now: Instant,
        index: u32,
        kind: ShotKind,
        packet: &Packet<Payload<'_>>,
    ) -> bool {
        let fault = match kind {
            ShotKind::Rnr => Some(Fault::NotReady),
            ShotKind::NakInvalid => Some(Fault::Invalid),
            ShotKind::NakAccess => Some(Fault::Access),
            ShotKind::NakOperation => Some(Fault::Operational),
            ShotKind::NakSequence => None,
            _ => return false,
        };
        let Some(operation) = packet.bth.opcode.operation() else { return false };
        let Some(qp) = self.qps.get_mut(index) else { return false };
        let fits = qp.facts.kind == QpType::Rc
            && operation.is_request()
            && qp.is_of(packet)
            && packet.bth.pkey.matches(PKey::DEFAULT)
            && qp.responder.expects(packet)
            && (fault != Some(Fault::NotReady) || takes_receive(operation));
        if !fits {
            return false;
        }
        // Counted as a packet that deserves the answer.
        let (sh, bytes) = (&mut self.shared, packet.payload.len());
        sh.counters.rx_packets += 1;
        sh.counters.rx_dropped_bytes += bytes as u64;
        sh.counters.came(operation, bytes);
        let before = Before::of(&sh.counters);
        qp.refuse(sh, now, fault);
        sh.book_received(index, before);
        self.touched(index, now);
        true
    }
}

/// Whether the packet is one at which a responder looks for a receive request.
fn takes_receive(operation: Operation) -> bool {
    let begins = matches!(operation.position(), Position::First | Position::Only);
    let writes = matches!(operation, Operation::WriteLastImm | Operation::WriteOnlyImm);
    (operation.is_send() && begins) || writes
}
