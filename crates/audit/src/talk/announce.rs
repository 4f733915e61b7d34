//! What the connection manager agreed on for two queue pairs, kept for halves whose packets are
//! still to come. Who reads the datagrams is `connect`; what becomes of it is for the halves.

use std::collections::VecDeque;

use hashbrown::HashMap;
use wire::Gid;
use wire::mad::ServiceType;
use wire::packet::Encapsulation;

use super::{HalfId, Key, Talks};
use crate::connect;
use crate::limits;
use crate::record::At;

/// A connection as a REQ and its REP describe it. `a` sent the REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    /// How the packets will be carried.
    pub encapsulation: Encapsulation,
    /// Service.
    pub service: ServiceType,
    /// The end that asked.
    pub a: Gid,
    /// Its queue pair.
    pub a_qp: u32,
    /// PSN of its first request; the REP names it (starting PSN: where the receiver of a message
    /// begins to send).
    pub a_psn: u32,
    /// READs and atomics that it serves at once, as it said.
    pub a_resources: u8,
    /// READs and atomics that it will have outstanding, as it said.
    pub a_depth: u8,
    /// The end that was asked.
    pub b: Gid,
    /// Its queue pair.
    pub b_qp: u32,
    /// PSN of its first request; the REQ names it.
    pub b_psn: u32,
    /// READs and atomics that it serves at once.
    pub b_resources: u8,
    /// READs and atomics that it will have outstanding.
    pub b_depth: u8,
    /// Path MTU in bytes; `None` if the REQ had a code that means nothing.
    pub mtu: Option<u32>,
    /// Retries after timeouts and sequence errors.
    pub retry_count: u8,
    /// Retries after RNR NAKs that `a` makes; 7 is without limit.
    pub a_rnr_retry: u8,
    /// The same for `b`.
    pub b_rnr_retry: u8,
    /// ACK timeout of the path: 4.096 µs × 2^code; 0 is never.
    pub ack_timeout: u8,
    /// The REP.
    pub at: At,
}

impl Announced {
    /// The keys of its two halves: a to b, b to a.
    pub(super) fn keys(&self) -> [Key; 2] {
        let encapsulation = self.encapsulation as u8;
        [
            Key { source: self.a, destination: self.b, qp: self.b_qp, encapsulation },
            Key { source: self.b, destination: self.a, qp: self.a_qp, encapsulation },
        ]
    }
}

/// Announcements whose halves have not been seen; the oldest makes room.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    by_half: HashMap<Key, (u64, Announced)>,
    order: VecDeque<(u64, Key)>,
    next: u64,
}

impl Announcements {
    /// Remembers an announcement for the half with this key; a newer one takes its place.
    pub(super) fn insert(&mut self, key: Key, announced: Announced) {
        while self.order.len() >= limits::ANNOUNCED {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            if self.by_half.get(&oldest).is_some_and(|(of, _)| *of == number) {
                self.by_half.remove(&oldest);
            }
        }
        self.by_half.insert(key, (self.next, announced));
        self.order.push_back((self.next, key));
        self.next += 1;
    }

    /// Takes the announcement for a half.
    pub(super) fn take(&mut self, key: &Key) -> Option<Announced> {
        if self.by_half.is_empty() {
            return None;
        }
        self.by_half.remove(key).map(|(_, announced)| announced)
    }
}

impl Talks {
    /// Has the two halves of a connection know what was agreed on, now or when their first packets
    /// come.
    pub fn announce(&mut self, announced: Announced) {
        for key in announced.keys() {
            match self.index.get(&key) {
                Some(&id) => self.tell(key, id, announced),
                None => self.announced.insert(key, announced),
            }
        }
    }

    /// Tells a half what was agreed on, and which other one it belongs to once that is there.
    pub(super) fn tell(&mut self, key: Key, id: HalfId, announced: Announced) {
        let [forward, backward] = announced.keys();
        let (is_forward, other) = if key == forward { (true, backward) } else { (false, forward) };
        let (psn, resources) = match is_forward {
            true => (announced.a_psn, announced.b_resources),
            false => (announced.b_psn, announced.a_resources),
        };
        let half = self.get_mut(id);
        half.connect = connect::State::new(&announced, is_forward);
        let before = half.lane.sent.len();
        half.lane.connected(psn, resources);
        let forgotten = before - half.lane.sent.len();
        self.sent = self.sent.saturating_sub(forgotten);
        if let Some(&other) = self.index.get(&other) {
            self.join(id, other);
        }
    }

    /// Forgets what was agreed on: the connection has been closed.
    pub fn withdraw(&mut self, announced: &Announced) {
        for key in announced.keys() {
            match self.index.get(&key) {
                Some(&id) => self.get_mut(id).connect = connect::State::default(),
                None => drop(self.announced.take(&key)),
            }
        }
    }
}
