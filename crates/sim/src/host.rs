//! A host: the NIC engine, its cable, and the programs.

use engine::{Device, Event as NicEvent, Priorities, Train, TrainLimits};
use switch::{Content, Frame, Ports};
use wire::mac_control::{MacControl, Pfc, pause_time};
use wire::{Instant, Mac};

use crate::app::App;
use crate::cable::Sender;
use crate::event::{Event, What};
use crate::exchange::Outbox;
use crate::frame::{Body, Boxed, Framing, Pool, pack};
use crate::memory::Lengths;
use crate::outcome::PauseRecord;
use crate::switching::{is_data, note};

/// DSCP of acknowledgements with a class of their own.
const ACKS: u8 = 48;

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) id: u32,
    pub(crate) device: Device<Lengths>,
    pub(crate) app: App,
    pub(crate) sender: Option<Sender>,
    pub(crate) pauses: Vec<PauseRecord>,
    pub(crate) hops: u64,
    pub(crate) macs: (Mac, Mac),
    pub(crate) framing: Framing,
    /// Acknowledgements have a class of their own.
    pub(crate) acks_apart: bool,
    /// When it says the next pause of a storm.
    pub(crate) storm: Option<Instant>,
    train: Train,
    wake: Option<Instant>,
}

impl Host {
    pub(crate) fn new(
        id: u32,
        device: Device<Lengths>,
        app: App,
        sender: Option<Sender>,
        macs: (Mac, Mac),
        framing: Framing,
    ) -> Self {
        let (train, pauses) = (Train::default(), Vec::new());
        Self {
            id,
            device,
            app,
            sender,
            pauses,
            hops: 0,
            macs,
            framing,
            acks_apart: false,
            storm: None,
            train,
            wake: Some(Instant::ZERO),
        }
    }

    pub(crate) fn handle(&mut self, event: Event, out: &mut Outbox<'_>, pool: &mut Pool) {
        let now = event.at;
        match event.what {
            What::Arrive(frame) => {
                note(&mut self.pauses, now, (self.id, 0), &frame);
                self.hops += u64::from(is_data(&frame));
                self.receive(now, &frame);
                pool.put(frame);
            }
            What::Free => {
                if let Some(sender) = &mut self.sender {
                    sender.freed();
                }
            }
            What::Wake => {
                if self.wake != Some(now) {
                    return;
                }
                self.wake = None;
            }
        }
        self.settle(now, out, pool);
    }

    fn receive(&mut self, now: Instant, frame: &Boxed) {
        match &frame.content {
            Content::Data(Body::Roce(roce)) => {
                self.device.receive(now, &roce.unpack(&frame.header));
            }
            Content::Control(control) => self.pause(now, control),
            Content::Lldp(_) => {}
        }
    }

    fn pause(&mut self, now: Instant, control: &MacControl) {
        let Some(sender) = &self.sender else { return };
        let until = |quanta: u16| now + pause_time(quanta, sender.rate);
        for priority in 0..8 {
            let quanta = match control {
                MacControl::Pause { quanta } => Some(*quanta),
                MacControl::Pfc(pfc) => pfc.get(priority),
            };
            if let Some(quanta) = quanta {
                self.device.handle_pause(priority, until(quanta));
            }
        }
    }

    /// After any change: timers, programs, what can be sent, and the next wake-up.
    pub(crate) fn settle(&mut self, now: Instant, out: &mut Outbox<'_>, pool: &mut Pool) {
        if self.device.next_timer().is_some_and(|at| at.is_due(now)) {
            self.device.handle_timeout(now);
        }
        if self.app.next().is_some_and(|at| at.is_due(now)) {
            self.app.run(&mut self.device, now);
        }
        self.listen(now);
        let idle = self.pump(now, out, pool);
        self.listen(now);
        let device = if idle { self.device.poll_timeout(now) } else { self.device.next_timer() };
        let Some(at) =
            [device, self.app.next(), self.storm].into_iter().flatten().reduce(Instant::earlier)
        else {
            return;
        };
        let at = if at.is_before(now) { now } else { at };
        if self.wake.is_none_or(|wake| at.is_before(wake)) {
            self.wake = Some(at);
            out.queue.push(Event::wake(at, self.id));
        }
    }

    /// Takes what the device has to say besides packets.
    fn listen(&mut self, now: Instant) {
        while let Some(event) = self.device.poll_event() {
            if let NicEvent::Completion(_) = event {
                self.app.completed(&mut self.device, now);
            }
        }
    }

    /// Sends while the cable is free; whether it is, and there is nothing to send.
    fn pump(&mut self, now: Instant, out: &mut Outbox<'_>, pool: &mut Pool) -> bool {
        let Some(sender) = &mut self.sender else { return false };
        while sender.is_free(now, (self.id, 0), out.queue) {
            if let Some(at) = self.storm.filter(|at| at.is_due(now)) {
                // Again before the quanta are over.
                self.storm = Some(at + pause_time(u16::MAX / 2, sender.rate));
                let pause = Pfc::one(3, u16::MAX).unwrap_or_default();
                let frame = Frame::control(self.macs.0, MacControl::Pfc(pause));
                sender.send(now, pool.wrap(frame), out);
                continue;
            }
            let one = TrainLimits::SINGLE;
            if !self.device.poll_transmit(now, one, Priorities::ALL, &mut self.train) {
                return true;
            }
            let (Some(path), Some(packet)) = (&self.train.path, self.train.packets.first()) else {
                return true;
            };
            debug_assert!(self.train.packets.len() == 1);
            let mut path = *path;
            let ports = self.app.ports_to(&path, packet.bth.dest_qp);
            if self.acks_apart && !packet.carries_data() {
                path.traffic_class = ACKS << 2 | path.traffic_class & 3;
            }
            let mut frame = pack(self.framing, self.macs, &path, packet, None);
            if let (Some((source, destination)), Some(net)) = (ports, &mut frame.header.net) {
                net.ports = Ports { source, destination };
            }
            sender.send(now, pool.wrap(frame), out);
        }
        false
    }
}
