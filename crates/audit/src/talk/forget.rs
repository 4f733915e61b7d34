//! Room for new halves: what is forgotten, and that it is judged first as at the end of the
//! captures.

use wire::packet::Encapsulation;

use super::lane::Lane;
use super::{Answers, Half, HalfId, Key, Talks};
use crate::finding::{Findings, Flow};
use crate::record::{At, Direction, Point};
use crate::{connect, fabric};

/// A half that has been forgotten, and the other direction of its conversation with it.
#[derive(Debug)]
pub struct Gone {
    /// The half.
    pub half: Half,
    /// The other one, if it was known.
    pub peer: Option<Half>,
}

impl Gone {
    /// Both, each with the other.
    pub fn pairs(&self) -> impl Iterator<Item = (&Half, Option<&Half>)> {
        let peer = self.peer.as_ref();
        core::iter::once((&self.half, peer)).chain(peer.map(|peer| (peer, Some(&self.half))))
    }
}

impl Half {
    /// A half before its first packet, seen first at a point and time.
    pub(super) fn empty(
        (flow, encapsulation): (Flow, Encapsulation),
        (home, at): (Point, At),
        (source_port, direction): (u16, Option<Direction>),
    ) -> Self {
        Self {
            flow,
            encapsulation,
            service: None,
            peer: None,
            home,
            first: at,
            last: at,
            packets: 0,
            right: 0,
            bytes: 0,
            ecn: fabric::ecn::State::default(),
            path: fabric::path::State::default(),
            source_port,
            direction,
            conversation: 0,
            forward: true,
            trust: 0,
            touched: true,
            ce: 0,
            cnp: 0,
            cnps: None,
            last_cnp: None,
            answers: Answers::default(),
            lane: Lane::default(),
            connect: connect::State::default(),
        }
    }

    /// Takes what was seen, and begins anew.
    fn take(&mut self) -> Self {
        let empty = Self::empty(
            (self.flow, self.encapsulation),
            (self.home, self.last),
            (self.source_port, self.direction),
        );
        core::mem::replace(self, empty)
    }

    fn key(&self) -> Key {
        Key {
            source: self.flow.source,
            destination: self.flow.destination,
            qp: self.flow.qp,
            encapsulation: self.encapsulation as u8,
        }
    }
}

impl Talks {
    /// Makes room: forgets a conversation of which both directions were quiet since the hand passed
    /// them last. The place of the other direction stays taken, with nothing seen.
    pub(super) fn forget(&mut self) -> HalfId {
        loop {
            self.hand = (self.hand + 1) % self.halves.len();
            let half = &mut self.halves[self.hand];
            let peer = half.peer;
            if core::mem::take(&mut half.touched) || peer.is_some_and(|peer| self.get(peer).touched)
            {
                continue;
            }
            let half = self.halves[self.hand].take();
            let peer = peer.map(|peer| self.get_mut(peer).take());
            let mut sent = half.lane.sent.len();
            self.index.remove(&half.key());
            self.one_less_between(&half.key());
            sent += peer.as_ref().map_or(0, |peer| peer.lane.sent.len());
            self.sent = self.sent.saturating_sub(sent);
            if half.packets > 0 {
                self.gone = Some(Box::new(Gone { half, peer }));
            }
            return HalfId(self.hand as u32);
        }
    }

    /// What was forgotten to make room for the newest half, judged by the transport's rules: others
    /// may have to say something too.
    pub fn gone(&mut self, findings: &mut Findings) -> Option<Box<Gone>> {
        let mut gone = self.gone.take()?;
        let end = self.end;
        for half in [Some(&mut gone.half), gone.peer.as_mut()].into_iter().flatten() {
            half.lane.finish(half.flow, end, findings);
        }
        for (half, peer) in gone.pairs() {
            self.conclude(half, peer, findings);
        }
        Some(gone)
    }

    fn one_less_between(&mut self, key: &Key) {
        let ends = (key.source, key.destination);
        let Some(count) = self.between.get_mut(&ends).filter(|_| key.qp != 1) else { return };
        *count -= 1;
        if *count == 0 {
            self.between.remove(&ends);
        }
    }
}
