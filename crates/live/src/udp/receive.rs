//! Receiving: messages from the kernel, cut into packets, past the fault stage, parsed, their ICRC
//! checked, handed on as meaning with the payload still in the receive buffer.

use std::fmt::Display;
use std::net::IpAddr;
use std::os::fd::AsFd;

use engine::Payload;
use engine::faults::{Direction, FaultKind, FaultPlan, FaultSet};
use wire::error::{DropReason, Layer};
use wire::transport::parse;
use wire::{Encapsulation, Gid, Instant, Packet, Path};

use super::faults::{Arriving, Line, Said};
use super::inlet::{Inlet, Whose};
use super::{Port, UdpLink, send};
use crate::capture::{Envelope, Inbound, Remark};
use crate::counters::LinkCounters;
use crate::icrc::{Checker, DONT_FRAGMENT, Flow, Verdict};
use crate::mmsg::{self, Inbox, Incoming};

pub(super) struct Receiver {
    inbox: Inbox,
    pub(super) gate: Gate,
    /// Where packets go first if there are to be faults.
    pub(super) faults: Option<Box<Line<Arriving>>>,
}

/// What a packet has with it besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    pub(super) from: IpAddr,
    pub(super) source_port: u16,
    pub(super) to: Gid,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    /// Of IPv6.
    pub(super) flow_label: u32,
    /// Number in its message.
    pub(super) index: u16,
}

impl Receiver {
    pub(super) fn new(faults: Option<&FaultPlan>, tap: Option<Inbound>) -> Self {
        Self {
            inbox: Inbox::new(),
            gate: Gate { checker: Checker::new(), tap },
            faults: faults.map(|plan| Line::new(Direction::Rx, &plan.rx)),
        }
    }

    pub(super) fn is_captured(&self) -> bool {
        self.gate.tap.is_some()
    }
}

impl UdpLink {
    /// What has been counted. The kernel tells of its drops with the next message that it could
    /// take; who asks is told of those since then too.
    pub(crate) fn count(&mut self) -> &LinkCounters {
        for inlet in &mut self.inlets.all {
            let more = inlet.look_for_drops();
            self.counters.rx_kernel_drops += more;
            if let Some(tap) = self.receiver.gate.tap.as_mut().filter(|_| more > 0) {
                tap.kernel_dropped(more);
            }
        }
        &self.counters
    }

    /// Takes what has arrived, at most one batch from each socket, and hands the packets to `sink`;
    /// how many messages there were. With `everywhere` unset, sockets that have long been quiet
    /// are looked at only now and then. Where there are to be faults packets wait for
    /// [`release`](Self::release) instead.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        everywhere: bool,
        sink: &mut impl FnMut(&Packet<Payload<'_>>) -> Remark,
    ) -> usize {
        let look = self.inlets.look(everywhere);
        let mut total = 0;
        for &number in look.numbers() {
            total += self.take(now, number, sink);
        }
        if total == 0 {
            for &number in self.inlets.elsewhere(&look).numbers() {
                total += self.take(now, number, sink);
            }
        }
        total
    }

    /// Takes a batch from a socket; how many messages it was.
    fn take(
        &mut self,
        now: Instant,
        number: u16,
        sink: &mut impl FnMut(&Packet<Payload<'_>>) -> Remark,
    ) -> usize {
        let Self { counters, inlets, receiver, ports, .. } = self;
        let Some(inlet) = inlets.all.get_mut(usize::from(number)) else { return 0 };
        let inbox = &mut receiver.inbox;
        // Nothing there, or an error that the next look clears.
        let count = inbox.receive(inlet.as_fd(), inlet.appetite).unwrap_or(0);
        inlet.quiet = if count == 0 { inlet.quiet.saturating_add(1) } else { 0 };
        // A single message is the cheapest to ask for; ask for more while more come.
        inlet.appetite = if count < inlet.appetite { 1 } else { 2 * count };
        inlet.appetite = inlet.appetite.min(mmsg::MAX_RECEIVE);
        if let Some(tap) = receiver.gate.tap.as_mut().filter(|_| count > 0) {
            tap.arrived();
        }
        for index in 0..count {
            receiver.message(now, index, (inlet, ports), counters, sink);
        }
        count
    }
}

impl Receiver {
    /// Cuts a message into packets.
    fn message(
        &mut self,
        now: Instant,
        index: usize,
        (inlet, ports): (&mut Inlet, &mut [Port]),
        counters: &mut LinkCounters,
        sink: &mut impl FnMut(&Packet<Payload<'_>>) -> Remark,
    ) {
        let (message, bytes) = self.inbox.message(index);
        counters.rx_messages += 1;
        if let Some(dropped) = message.dropped {
            let more = inlet.dropped(dropped);
            counters.rx_kernel_drops += more;
            if let Some(tap) = self.gate.tap.as_mut().filter(|_| more > 0) {
                tap.kernel_dropped(more);
            }
        }
        if message.truncated || bytes.is_empty() {
            counters.rx_packets += 1;
            counters.rx_truncated += 1;
            return;
        }
        let mut origin = origin(message, inlet.gid);
        for (i, packet) in bytes.chunks(message.segment).enumerate() {
            counters.rx_packets += 1;
            origin.index = i as u16;
            let (origin, packet) = match inlet.whose(&origin, packet) {
                Whose::Ours => (origin, packet),
                Whose::SentOn(origin, packet) => (origin, packet),
                Whose::Nobodys => {
                    counters.rx_nobodys += 1;
                    continue;
                }
                Whose::Another(wrapped) => {
                    match send::send_on(ports, origin.to, &wrapped) {
                        true => counters.rx_strays += 1,
                        false => counters.rx_strays_lost += 1,
                    }
                    continue;
                }
            };
            match &mut self.faults {
                None => self.gate.pass(&origin, packet, FaultSet::NONE, counters, sink),
                Some(line) => line.arrives(now, origin, packet, &mut self.gate),
            }
        }
    }
}

impl Origin {
    /// What the IP header says; the identification is what the kernel does not tell, `solved` if it
    /// was found from the ICRC, with the flags.
    fn envelope(&self, solved: Option<(u16, u16)>) -> Envelope {
        let (ident, flags) = solved.unwrap_or((self.index, DONT_FRAGMENT));
        Envelope {
            from: self.from,
            to: self.to.to_ip(),
            source_port: self.source_port,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
            ident,
            flags,
        }
    }
}

fn origin(message: &Incoming, to: Gid) -> Origin {
    Origin {
        from: message.from,
        source_port: message.source_port,
        to,
        traffic_class: message.traffic_class,
        hop_limit: message.hop_limit,
        flow_label: message.flow_label,
        index: 0,
    }
}

/// The last check before the device.
pub(super) struct Gate {
    checker: Checker,
    pub(super) tap: Option<Inbound>,
}

impl Gate {
    /// Hands a packet on if it is in order; captures it in any case, with the faults that it has
    /// met. Of damaged ones no lucky identification is looked for.
    pub(super) fn pass(
        &mut self,
        origin: &Origin,
        bytes: &[u8],
        faults: FaultSet,
        counters: &mut LinkCounters,
        sink: &mut impl FnMut(&Packet<Payload<'_>>) -> Remark,
    ) {
        let damaged = faults.contains(FaultKind::Corrupt);
        let remark = self.judge(origin, bytes, damaged, counters, sink);
        if self.tap.is_some() {
            self.capture(origin, bytes, faults, remark);
        }
    }

    /// Captures a packet, if that is wanted.
    pub(super) fn capture(
        &mut self,
        origin: &Origin,
        bytes: &[u8],
        faults: FaultSet,
        remark: Remark,
    ) {
        let Some(tap) = &mut self.tap else { return };
        let envelope = origin.envelope(self.checker.take_solved());
        let said = Said { faults, remark };
        let remark = (!said.is_empty()).then_some(&said as &dyn Display);
        tap.packet(&envelope, bytes, remark);
    }

    /// Parses a packet, checks its ICRC and hands it on; what is to be said of it.
    fn judge(
        &mut self,
        origin: &Origin,
        bytes: &[u8],
        damaged: bool,
        counters: &mut LinkCounters,
        sink: &mut impl FnMut(&Packet<Payload<'_>>) -> Remark,
    ) -> Remark {
        let transport = match parse(bytes) {
            Ok(transport) => transport,
            Err(reason) => return count(reason, counters),
        };
        let Some(flow) = Flow::new(origin.from, origin.to.to_ip(), origin.source_port) else {
            counters.rx_malformed += 1;
            return Some("dropped, malformed");
        };
        match self.checker.check(flow, bytes, origin.index, damaged) {
            Verdict::Right => counters.rx_icrc_ok += 1,
            Verdict::Solved => counters.rx_icrc_solved += 1,
            wrong => {
                counters.rx_icrc_encapsulated += 1;
                counters.rx_icrc_refused += u64::from(wrong == Verdict::Refused);
                return Some("dropped, wrong ICRC");
            }
        }
        sink(&Packet {
            path: Path {
                encapsulation: Encapsulation::RoceV2,
                source: Gid::from_ip(origin.from),
                destination: origin.to,
                traffic_class: origin.traffic_class,
                hop_limit: origin.hop_limit,
                flow_label: origin.flow_label,
                source_port: origin.source_port,
                priority: origin.traffic_class >> 5,
            },
            bth: transport.bth,
            ext: transport.ext,
            payload: Payload::Bytes(transport.payload),
        })
    }
}

fn count(reason: DropReason, counters: &mut LinkCounters) -> Remark {
    let (counter, remark) = match reason {
        DropReason::Truncated(_) => (&mut counters.rx_truncated, "dropped, too short"),
        DropReason::Version(Layer::Transport) => {
            (&mut counters.rx_wrong_version, "dropped, unknown transport version")
        }
        DropReason::UnknownOpcode(_) => {
            (&mut counters.rx_unknown_opcode, "dropped, unknown opcode")
        }
        DropReason::Pad => (&mut counters.rx_wrong_pad, "dropped, wrong pad count"),
        _ => (&mut counters.rx_malformed, "dropped, malformed"),
    };
    *counter += 1;
    Some(remark)
}
