//! Faults in the link: packets as bytes in the stages of `engine::faults`, one for each direction.
//! What becomes of a packet the stage decides, what a fault does to the device the device. Nothing
//! here is reached while no faults are asked for.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;

use engine::faults::{
    Direction, FaultKind, FaultPlan, FaultSet, FaultSide, REORDER_HOLD, ShotKind,
};
use engine::{Counters, Device, FaultCounts, FaultItem, FaultStage, HostMemory, Payload, limits};
use wire::transport::parse;
use wire::{Encapsulation, Gid, Instant, Packet, Path, Psn, Qpn, Span};

use super::receive::{Gate, Origin};
use super::send::Message;
use super::{Port, UdpLink};
use crate::capture::{Outbound, Remark, SentNote};
use crate::clock::Clock;
use crate::faultlog::{Detail, FaultNews};
use crate::icrc::seal;

/// Lines that wait to be told; further ones are only counted.
const MAX_NEWS: usize = 4096;
/// Frame header, check sequence, preamble and gap of Ethernet; the header of UDP.
const AROUND: usize = 14 + 4 + 20 + 8;
/// What has been sent and is held leaves before a process does, if that takes no longer.
const LONGEST_LINGER: Span = Span::from_ms(1000);

/// What a capture says of a packet that did not pass because the port was down.
const CUT: &str = "injected: lost, port down";

/// A received packet that a stage holds.
#[derive(Clone)]
pub(super) struct Arriving {
    pub(super) origin: Origin,
    pub(super) bytes: Vec<u8>,
}

/// A sent packet that a stage holds: a message of its own.
#[derive(Clone)]
pub(super) struct Leaving {
    message: Message,
    bytes: Vec<u8>,
    /// What a capture is to say of it.
    note: SentNote,
}

/// What is to be said of a packet: the faults that it has met, what the device or the link says.
pub(super) struct Said {
    pub(super) faults: FaultSet,
    pub(super) remark: Remark,
}

impl Said {
    /// Whether it is as usual.
    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.remark.is_none()
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.faults.is_empty() { "" } else { "; " };
        if !self.faults.is_empty() {
            write!(f, "injected: {}", self.faults)?;
        }
        match self.remark {
            Some(remark) => write!(f, "{between}{remark}"),
            None => Ok(()),
        }
    }
}

/// A direction of the link with its faults.
pub(super) struct Line<T> {
    direction: Direction,
    stage: FaultStage<T>,
    /// What packets enter and leave by: a thread that drives the NIC may have looked at the clock
    /// long ago.
    clock: Option<Clock>,
    detail: Detail,
    news: Vec<FaultNews>,
    /// Lines that found no room.
    untold: u64,
    /// Packets that are lost and have not been captured, with their numbers: their turn comes when
    /// all that entered before them has left.
    lost: VecDeque<(u64, T, FaultSet)>,
}

/// Bytes of a packet on an Ethernet line.
fn line_len(v4: bool, bytes: usize) -> u64 {
    (AROUND + if v4 { 20 } else { 40 } + bytes) as u64
}

/// Sets CE in a traffic class that says ECT; whether it did.
fn mark(traffic_class: &mut u8) -> bool {
    let capable = *traffic_class & 3 != 0;
    if capable {
        *traffic_class |= 3;
    }
    capable
}

fn damage(bytes: &mut [u8], entropy: u64) -> bool {
    let len = bytes.len() as u64;
    if len == 0 {
        return false;
    }
    // The one byte of the BTH that the ICRC does not cover is no place for damage.
    let place = match entropy / 8 % len {
        4 => 5 % len,
        other => other,
    };
    bytes[place as usize] ^= 1 << (entropy % 8);
    true
}

impl FaultItem for Arriving {
    fn wire_len(&self) -> u64 {
        line_len(self.origin.from.is_ipv4(), self.bytes.len())
    }

    fn mark_ce(&mut self) -> bool {
        mark(&mut self.origin.traffic_class)
    }

    fn corrupt(&mut self, entropy: u64) -> bool {
        damage(&mut self.bytes, entropy)
    }
}

impl FaultItem for Leaving {
    fn wire_len(&self) -> u64 {
        line_len(self.message.out.to.is_ipv4(), self.bytes.len())
    }

    fn mark_ce(&mut self) -> bool {
        mark(&mut self.message.out.traffic_class)
    }

    fn corrupt(&mut self, entropy: u64) -> bool {
        damage(&mut self.bytes, entropy)
    }
}

/// Destination queue pair and PSN, as far as the bytes go.
fn names(bytes: &[u8]) -> (Qpn, Psn) {
    let number = |at: usize| {
        let three = bytes.get(at..at + 3).unwrap_or(&[0; 3]);
        three.iter().fold(0, |n, &byte| n << 8 | u32::from(byte))
    };
    (Qpn::new(number(5)), Psn::new(number(9)))
}

impl<T: FaultItem> Line<T> {
    pub(super) fn new(direction: Direction, side: &FaultSide) -> Box<Self> {
        let stage = FaultStage::new(side.spec, direction as u64);
        Box::new(Self {
            direction,
            stage: stage.with_shots(side.shots.clone()),
            clock: None,
            detail: Detail::wanted(),
            news: Vec::new(),
            untold: 0,
            lost: VecDeque::new(),
        })
    }

    /// A lost packet is to be captured in its turn.
    fn mourn(&mut self, item: T, faults: FaultSet) {
        self.lost.push_back((self.stage.counts().offered, item, faults));
    }

    /// A lost packet whose turn to be captured has come.
    fn next_lost(&mut self) -> Option<(T, FaultSet)> {
        let number = self.lost.front()?.0;
        if self.stage.first_number().is_some_and(|first| first < number) {
            return None;
        }
        self.lost.pop_front().map(|(_, item, faults)| (item, faults))
    }

    /// The time, which may have gone on since `now`.
    fn time(&self, now: Instant) -> Instant {
        self.clock.map_or(now, |clock| clock.now())
    }

    fn tell(&mut self, news: FaultNews) {
        if self.news.len() < MAX_NEWS {
            self.news.push(news);
        } else {
            self.untold += 1;
        }
    }

    /// A packet with these names has met faults.
    fn note(&mut self, number: u64, faults: FaultSet, (dest_qp, psn): (Qpn, Psn)) {
        if self.detail == Detail::Each && !faults.is_empty() {
            let direction = self.direction;
            self.tell(FaultNews::Packet { direction, number, faults, dest_qp, psn });
        }
    }

    fn note_cut(&mut self, number: u64, names: (Qpn, Psn)) {
        let mut faults = FaultSet::NONE;
        faults.insert(FaultKind::Cut);
        self.note(number, faults, names);
    }

    fn push(&mut self, now: Instant, item: T, names: (Qpn, Psn)) -> FaultSet {
        let faults = self.stage.push(self.time(now), item);
        self.note(self.stage.counts().offered, faults, names);
        faults
    }

    /// What a capture is to say if a fault of the device has struck at the packet of this number.
    fn struck_at(&self, number: u64) -> Remark {
        self.stage.struck_at(number).map(|kind| match kind {
            ShotKind::QpError => "injected: qp_error",
            ShotKind::CqOverrun => "injected: cq_overrun",
            ShotKind::Rnr => "injected: rnr",
            ShotKind::NakSequence => "injected: nak_sequence",
            ShotKind::NakInvalid => "injected: nak_invalid",
            ShotKind::NakAccess => "injected: nak_access",
            ShotKind::NakOperation => "injected: nak_operation",
            ShotKind::PortDown => "injected: port_down",
            ShotKind::PortUp => "injected: port_up",
            ShotKind::DeviceFatal => "injected: device_fatal",
            ShotKind::Drop | ShotKind::Dup | ShotKind::Reorder | ShotKind::Corrupt => "injected",
        })
    }

    /// Notes which one-shot faults have struck.
    fn settle(&mut self) {
        for struck in self.stage.take_struck() {
            if self.detail != Detail::Nothing {
                self.tell(FaultNews::Struck { direction: self.direction, struck });
            }
        }
    }

    fn take_news(&mut self, out: &mut Vec<FaultNews>) {
        out.append(&mut self.news);
        let untold = std::mem::take(&mut self.untold);
        if untold > 0 {
            out.push(FaultNews::Untold { direction: self.direction, count: untold });
        }
    }
}

impl Line<Arriving> {
    /// A packet has come in. If it goes no further it is captured in its turn.
    pub(super) fn arrives(&mut self, now: Instant, origin: Origin, bytes: &[u8], gate: &mut Gate) {
        let arriving = Arriving { origin, bytes: bytes.to_vec() };
        let faults = self.push(now, arriving, names(bytes));
        if is_lost(faults) && gate.tap.is_some() {
            self.mourn(Arriving { origin, bytes: bytes.to_vec() }, faults);
        }
    }
}

/// Whether a packet that met these faults has vanished, its duplicate too.
fn is_lost(faults: FaultSet) -> bool {
    faults.contains(FaultKind::Loss)
        || faults.contains(FaultKind::Overflow) && !faults.contains(FaultKind::Dup)
}

/// Captures a packet that did not leave.
fn capture(
    tap: &mut Option<Outbound>,
    ports: &[Port],
    message: &Message,
    bytes: &[u8],
    note: SentNote,
) {
    if let Some(tap) = tap
        && let Some(port) = ports.get(message.port)
        && let Some((_, source_port)) = &port.flows[message.flow]
    {
        tap.leaving();
        tap.packet((port.ip, *source_port), &message.out, 0, bytes, note);
    }
}

/// How long a process that leaves has to wait for what it has sent.
pub(crate) fn linger(plan: &FaultPlan) -> Span {
    let spec = &plan.tx.spec;
    let queue = spec.rate.map_or(Span::ZERO, |rate| {
        rate.time_for(spec.queue.unwrap_or(engine::faults::DEFAULT_QUEUE))
    });
    let hold = if spec.reorder.ppb() > 0 { REORDER_HOLD } else { Span::ZERO };
    [spec.delay, spec.jitter, queue, hold].into_iter().fold(Span::ZERO, |sum, span| {
        Span::from_ps(sum.as_ps().saturating_add(span.as_ps())).min(LONGEST_LINGER)
    })
}

impl UdpLink {
    /// When a stage has something to hand on, or a one-shot fault is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let rx = self.receiver.faults.as_ref().and_then(|line| line.stage.next_due());
        // While the kernel can take no more, the link waits for that.
        let tx = self.leaving.as_ref().filter(|_| !self.is_blocked());
        let tx = tx.and_then(|line| line.stage.next_due());
        [rx, tx].into_iter().flatten().reduce(Instant::earlier)
    }

    /// Gives the device what the stage of received packets lets go; how many there were.
    /// `said` tells from the device's counters before and after a packet what it says of it.
    pub(crate) fn release<M: HostMemory>(
        &mut self,
        now: Instant,
        device: &mut Device<M>,
        said: fn(&Counters, &Counters) -> Remark,
    ) -> usize {
        if self.receiver.faults.is_none() { 0 } else { self.release_held(now, device, said) }
    }

    fn release_held<M: HostMemory>(
        &mut self,
        now: Instant,
        device: &mut Device<M>,
        said: fn(&Counters, &Counters) -> Remark,
    ) -> usize {
        let captured = self.is_captured();
        let Self { receiver, counters, .. } = self;
        let (Some(line), gate) = (&mut receiver.faults, &mut receiver.gate) else { return 0 };
        device.strike_due(&mut line.stage, now);
        let (mut count, time) = (0, line.time(now));
        if let Some(tap) = gate.tap.as_mut().filter(|_| !line.lost.is_empty()) {
            tap.arrived();
        }
        loop {
            while let Some((lost, faults)) = line.next_lost() {
                gate.capture(&lost.origin, &lost.bytes, faults, None);
            }
            let Some(out) = line.stage.pop(time) else { break };
            if let Some(tap) = gate.tap.as_mut().filter(|_| count == 0) {
                tap.arrived();
            }
            count += 1;
            let Arriving { origin, bytes } = &out.item;
            let mut cut = false;
            gate.pass(origin, bytes, out.faults, counters, &mut |packet| {
                let before = captured.then(|| *device.counters());
                cut = device.receive_from(&mut line.stage, out.number, now, packet);
                match before {
                    None => None,
                    Some(_) if cut => Some(CUT),
                    Some(before) => {
                        line.struck_at(out.number).or_else(|| said(&before, device.counters()))
                    }
                }
            });
            if cut {
                line.note_cut(out.number, names(bytes));
            }
        }
        line.settle();
        self.count_faults();
        count
    }

    /// Has packets enter and leave the stages by this clock, not by when a step began.
    pub(crate) fn keep_time(&mut self, clock: Clock) {
        if let Some(line) = &mut self.receiver.faults {
            line.clock = Some(clock);
        }
        if let Some(line) = &mut self.leaving {
            line.clock = Some(clock);
        }
    }

    /// Whether sent packets pass through a stage: then [`hold`](Self::hold) and
    /// [`let_out`](Self::let_out) have to be called around what is pushed.
    pub(crate) fn holds(&self) -> bool {
        self.leaving.is_some()
    }

    /// Moves what has been pushed into the stage, packet by packet.
    pub(crate) fn hold(&mut self, now: Instant) {
        let Self { sender, leaving: Some(line), .. } = self else { return };
        for index in sender.sent..sender.messages.len() {
            let whole = sender.messages[index];
            let range = whole.out.start..whole.out.start + whole.out.len;
            let step = usize::from(whole.out.segment).max(1);
            let mut start = range.start;
            for bytes in sender.buffer[range].chunks_mut(step) {
                if whole.packets > 1 {
                    // It is the first of its datagrams now, and the only one.
                    seal(&mut sender.states, whole.icrc, 0, bytes);
                }
                let note = sender.tap.as_mut().map(|tap| tap.take_note(start)).unwrap_or_default();
                start += step;
                let message = Message { packets: 1, ..whole };
                let leaving = Leaving { message, bytes: bytes.to_vec(), note };
                let faults = line.push(now, leaving, names(bytes));
                if is_lost(faults) && sender.tap.is_some() {
                    line.mourn(Leaving { message, bytes: bytes.to_vec(), note }, faults);
                }
            }
        }
        sender.clear();
    }

    /// Gives the kernel what the stage lets go; false if it could not take everything.
    pub(crate) fn let_out<M: HostMemory>(&mut self, now: Instant, device: &mut Device<M>) -> bool {
        let mut time = now;
        if let Some(line) = &mut self.leaving {
            device.strike_due(&mut line.stage, now);
            time = line.time(now);
        }
        let mut more = true;
        while more {
            if !self.flush() {
                break;
            }
            more = self.refill(now, time, device);
        }
        let sent = !more && self.flush();
        if let Some(line) = &mut self.leaving {
            line.settle();
        }
        self.count_faults();
        sent
    }

    /// Moves packets from the stage into the empty buffer; whether there may be more.
    fn refill<M: HostMemory>(
        &mut self,
        now: Instant,
        time: Instant,
        device: &mut Device<M>,
    ) -> bool {
        while self.has_room() {
            let Self { sender, leaving: Some(line), ports, .. } = self else { return false };
            while !line.lost.is_empty() {
                if sender.used > 0 {
                    // What is in the buffer is captured when it leaves, before the lost ones.
                    return true;
                }
                let Some((lost, faults)) = line.next_lost() else { break };
                let note = SentNote { faults, ..lost.note };
                capture(&mut sender.tap, ports, &lost.message, &lost.bytes, note);
            }
            let Some(out) = line.stage.pop(time) else { return false };
            let Leaving { message, bytes, note } = &out.item;
            let source = ports.get(message.port).map(|port| port.gid).unwrap_or_default();
            let seen = line.stage.has_shots() && !out.is_corrupted();
            let packet = seen.then(|| packet(source, message, bytes)).flatten();
            let passes = match packet {
                Some(packet) => device.lets_out(&mut line.stage, out.number, now, &packet),
                // Nothing to strike, or damaged: it names no queue pair any more.
                None => device.lets_out_any(&mut line.stage),
            };
            if passes {
                if let Some(tap) = &mut sender.tap {
                    let mut note = *note;
                    note.faults.extend(out.faults);
                    note.remark = line.struck_at(out.number);
                    tap.note(sender.used, note);
                }
                sender.append(message, bytes);
            } else {
                line.note_cut(out.number, names(bytes));
                let note = SentNote { remark: Some(CUT), ..*note };
                capture(&mut sender.tap, ports, message, bytes, note);
            }
        }
        true
    }

    fn count_faults(&mut self) {
        let (rx, tx) = self.fault_counts();
        self.counters.count_faults(&rx, &tx);
    }

    /// What has been done to packets, received and sent.
    fn fault_counts(&self) -> (FaultCounts, FaultCounts) {
        let rx = self.receiver.faults.as_ref().map(|line| line.stage.counts());
        let tx = self.leaving.as_ref().map(|line| line.stage.counts());
        (rx.unwrap_or_default(), tx.unwrap_or_default())
    }

    /// Whether packets are held that have been sent.
    pub(crate) fn is_holding(&self) -> bool {
        self.leaving.as_ref().is_some_and(|line| !line.stage.is_empty())
    }

    /// What there is to tell of faults since the last call.
    pub(crate) fn take_fault_news(&mut self) -> Vec<FaultNews> {
        let mut news = Vec::new();
        if let Some(line) = &mut self.receiver.faults {
            line.take_news(&mut news);
        }
        if let Some(line) = &mut self.leaving {
            line.take_news(&mut news);
        }
        news
    }

    /// All of it in a line; `None` without faults.
    pub(crate) fn fault_summary(&self) -> Option<FaultNews> {
        let rx = self.receiver.faults.as_ref()?;
        let (counts, tx) = self.fault_counts();
        let mut waiting: Vec<String> = rx.stage.shots().iter().map(ToString::to_string).collect();
        if let Some(line) = &self.leaving {
            waiting.extend(line.stage.shots().iter().map(|shot| format!("tx.{shot}")));
        }
        Some(FaultNews::Summary { rx: counts, tx: self.holds().then_some(tx), waiting })
    }
}

/// The meaning of a packet that is about to be sent; `None` if it has none any more.
fn packet<'a>(source: Gid, message: &Message, bytes: &'a [u8]) -> Option<Packet<Payload<'a>>> {
    let transport = parse(bytes).ok()?;
    let to: IpAddr = message.out.to.ip();
    Some(Packet {
        path: Path {
            encapsulation: Encapsulation::RoceV2,
            source,
            destination: Gid::from_ip(to),
            traffic_class: message.out.traffic_class,
            hop_limit: limits::DEFAULT_HOP_LIMIT,
            flow_label: 0,
            source_port: 0,
            priority: message.out.traffic_class >> 5,
        },
        bth: transport.bth,
        ext: transport.ext,
        payload: Payload::Bytes(transport.payload),
    })
}
