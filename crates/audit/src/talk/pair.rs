//! Which two halves are one connection: an answer's PSN is that of a request in the other
//! direction between the same ends. Where several fit, the UDP source port decides, which is the
//! same in both directions with software RoCE; where it does not, a later answer will.

use hashbrown::HashMap;
use wire::Gid;

use super::case::Case;
use super::op::Op;
use super::{HalfId, Talks};

/// Linux chooses UDP source ports from here on.
const LINUX_PORTS: u16 = 0xC000;
/// Answers of a half after which halves with different ports may belong together.
const PATIENCE: u64 = 16;

/// Requests of halves whose other half is not known, by what an answer to them carries.
#[derive(Debug, Default)]
pub(super) struct Asked {
    by_answer: HashMap<(Gid, Gid, u32), [Option<HalfId>; 4]>,
}

impl Asked {
    /// Requests that are remembered.
    const MOST: usize = 65_536;

    /// A request that will be answered with its PSN.
    pub(super) fn remember(&mut self, case: &Case<'_>, half: HalfId) {
        if !case.packet.bth.ack_request {
            return;
        }
        if self.by_answer.len() >= Self::MOST {
            self.by_answer.clear();
        }
        let key = (case.flow.destination, case.flow.source, case.psn());
        let known = self.by_answer.entry(key).or_default();
        if known.contains(&Some(half)) {
            return;
        }
        if let Some(free) = known.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(half);
        }
    }

    fn of(&self, case: &Case<'_>) -> [Option<HalfId>; 4] {
        let key = (case.flow.source, case.flow.destination, case.psn());
        self.by_answer.get(&key).copied().unwrap_or_default()
    }
}

impl Talks {
    /// Looks for the half that a half without one answers.
    pub(super) fn find_peer(&mut self, case: &Case<'_>, id: HalfId) {
        let half = self.get(id);
        let fits = |other: &HalfId| {
            let other = self.get(*other);
            let of_same_ends = other.flow.source == half.flow.destination
                && other.flow.destination == half.flow.source
                && other.encapsulation == half.encapsulation;
            of_same_ends && other.peer.is_none() && other.lane.next.is_some()
        };
        let all = self.asked.of(case).into_iter().flatten().filter(fits);
        let port = half.source_port;
        let same_port = all.clone().filter(|other| self.get(*other).source_port == port);
        // Senders that choose ports by the Linux rule have the same one in both directions, unless
        // they were given flow labels; then many answers must fit, or there must be no other.
        let ends = (half.flow.destination, half.flow.source);
        let several = self.between.get(&ends).is_some_and(|count| *count > 1);
        let ruled = port >= LINUX_PORTS && several;
        let patient = half.answers.total() > PATIENCE;
        let fits_all =
            |found: &HalfId| !ruled || patient || self.get(*found).source_port < LINUX_PORTS;
        let found = only(same_port).or_else(|| only(all).filter(fits_all));
        if let Some(found) = found {
            self.marry(id, found);
        }
    }

    /// The other half, unless an answer shows that it was taken for it wrongly.
    pub(super) fn trusted_peer(&mut self, case: &Case<'_>, id: HalfId, what: Op) -> Option<HalfId> {
        /// Answers that fit by chance are fewer.
        const ENOUGH: u8 = 8;
        let peer = self.get(id).peer?;
        if self.get(id).trust >= ENOUGH {
            return Some(peer);
        }
        if self.get_mut(peer).lane.fits(case.psn(), what, case.packet.payload_len) {
            let half = self.get_mut(id);
            half.trust = half.trust.saturating_add(1);
            return Some(peer);
        }
        if self.get(peer).trust >= ENOUGH {
            return Some(peer);
        }
        for half in [id, peer] {
            (self.get_mut(half).peer, self.get_mut(half).trust) = (None, 0);
        }
        if self.get(id).conversation == self.get(peer).conversation {
            // The other keeps the number, whichever of them had it first.
            self.numbered += 1;
            let number = self.numbered;
            let half = self.get_mut(id);
            (half.conversation, half.forward) = (number, true);
        }
        None
    }

    /// Joins two halves that the connection manager made, whatever was guessed before.
    pub(super) fn join(&mut self, a: HalfId, b: HalfId) {
        if self.get(a).peer == Some(b) {
            return;
        }
        for id in [a, b] {
            if let Some(other) = self.get_mut(id).peer.take() {
                self.get_mut(other).peer = None;
            }
        }
        self.marry(a, b);
        for id in [a, b] {
            self.get_mut(id).trust = u8::MAX;
        }
    }

    /// Joins two halves as the two directions of one connection.
    pub fn marry(&mut self, a: HalfId, b: HalfId) {
        if a == b || self.get(a).peer.is_some() || self.get(b).peer.is_some() {
            return;
        }
        self.get_mut(a).peer = Some(b);
        self.get_mut(b).peer = Some(a);
        // One number for both: the older one's.
        let numbers = [a, b].map(|id| (self.get(id).conversation, self.get(id).forward));
        let [(first, forward), (second, _)] = numbers;
        match (first, second) {
            (0, _) | (_, 0) => {}
            _ if first <= second => {
                let other = self.get_mut(b);
                (other.conversation, other.forward) = (first, !forward);
            }
            _ => {
                let (number, forward) = numbers[1];
                let other = self.get_mut(a);
                (other.conversation, other.forward) = (number, !forward);
            }
        }
    }
}

fn only(mut halves: impl Iterator<Item = HalfId>) -> Option<HalfId> {
    let first = halves.next()?;
    halves.next().is_none().then_some(first)
}
