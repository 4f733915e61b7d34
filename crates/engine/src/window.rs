//! How much may be in flight towards a peer, over all queue pairs: bounded by our own receive
//! buffer as the estimate of the peer's, halved on loss, grown again on progress.

use std::collections::VecDeque;

use wire::Gid;

use crate::qp::flow::Takes;
use crate::slots::Lookup;

/// What a datagram of `wire_len` bytes (BTH through ICRC) costs in a receiver's socket buffer: the
/// kernel charges the power of two that holds data and metadata, and the descriptor.
pub(crate) fn cost(wire_len: usize) -> u64 {
    const HEADROOM: usize = 14 + 28 + 320;
    const DESCRIPTOR: u64 = 256;
    (wire_len + HEADROOM).next_power_of_two() as u64 + DESCRIPTOR
}

/// What a full packet of the usual size costs.
const FULL: u64 = 8192 + 256;
/// The smallest window: two full packets, so that loss of one is noticed by the other.
const FLOOR: u64 = 2 * FULL;
/// Down to here it halves while losses are noticed by what follows, then it shrinks less: with
/// fewer packets in flight it is too often the last that is lost.
const NOTICED_FLOOR: u64 = 4 * FULL;
/// Full packets for which there is to be room when somebody who waits is called.
const TURN: u64 = 16;
/// A READ is not asked for in pieces smaller than this many packets if it is longer and the windows
/// hold several such pieces: each piece costs a request, and comes as a train of its own.
const READ_PIECE: u64 = 15;

/// One peer's window.
#[derive(Debug)]
struct Peer {
    gid: Gid,
    users: u32,
    /// What may be in flight, in bytes of buffer cost.
    window: u64,
    /// Up to here the window doubles each round trip.
    threshold: u64,
    /// The window at the last loss: the closer to it, the slower the window grows.
    peak: u64,
    in_flight: u64,
    /// READ responses asked for and not arrived, in bytes of our own buffer.
    reads: u64,
    /// Cost acknowledged since the peer was known, and the mark before which another loss belongs
    /// to the same event.
    acked: u64,
    cut_until: u64,
    /// Times that the window was cut.
    cuts: u64,
    /// Who waits to send.
    line: Line,
    /// Somebody has been called and has not had a turn since.
    called: Option<u32>,
    /// It stands in [`Windows::opened`].
    opened: bool,
    /// Whether it tells senders of unreliable services how far it has come.
    takes: Takes,
}

impl Peer {
    fn has_room(&self, cost: u64) -> bool {
        self.in_flight == 0 || self.in_flight + cost <= self.window
    }

    /// Whether somebody waits who could go: where several do, nobody is called for less than a good
    /// train, else they would send a packet each in turn. A full packet costs no more than
    /// [`FULL`]: who is called is admitted.
    fn can_admit(&self) -> bool {
        let turn = if self.line.len() > 1 { TURN * FULL } else { FULL };
        let turn = turn.min(self.window / 4).max(FULL);
        !self.line.is_empty() && self.called.is_none() && self.has_room(turn)
    }
}

/// Queue pairs that wait for room, with their tickets in ascending order.
type Line = VecDeque<(u64, u32)>;

/// Where each queue pair stands with respect to its line, by its index. Who has been called may
/// take room while others wait, until there is none; everybody else has to get in line. A ticket
/// is good until something has been sent on it.
#[derive(Debug, Default)]
struct Places {
    of: Vec<Place>,
    tickets: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    #[default]
    Outside,
    Waiting,
    Called(u64),
    Served,
}

impl Places {
    fn of(&self, qp: u32) -> Place {
        self.of.get(qp as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, qp: u32, place: Place) {
        let index = qp as usize;
        if index >= self.of.len() {
            self.of.resize(index + 1, Place::Outside);
        }
        self.of[index] = place;
    }

    /// Whether it may take room now, which there is.
    fn serve(&mut self, line: &Line, qp: u32) -> bool {
        match self.of(qp) {
            Place::Called(_) => self.set(qp, Place::Served),
            Place::Served => {}
            Place::Outside | Place::Waiting => return line.is_empty(),
        }
        true
    }

    fn join(&mut self, line: &mut Line, qp: u32) {
        let ticket = match self.of(qp) {
            Place::Waiting => return,
            Place::Called(ticket) => ticket,
            Place::Outside | Place::Served => {
                self.tickets += 1;
                self.tickets
            }
        };
        self.set(qp, Place::Waiting);
        let at = line.partition_point(|&(other, _)| other < ticket);
        line.insert(at, (ticket, qp));
    }

    fn call(&mut self, line: &mut Line) -> Option<u32> {
        let (ticket, qp) = line.pop_front()?;
        self.set(qp, Place::Called(ticket));
        Some(qp)
    }

    fn leave(&mut self, line: &mut Line, qp: u32) {
        match self.of(qp) {
            Place::Outside => return,
            Place::Waiting => line.retain(|&(_, other)| other != qp),
            Place::Called(_) | Place::Served => {}
        }
        self.set(qp, Place::Outside);
    }
}

/// The windows of all peers.
#[derive(Debug)]
pub(crate) struct Windows {
    peers: crate::slots::Slots<Peer>,
    by_gid: Lookup<Gid, u32>,
    ceiling: u64,
    /// The receive buffer has no end: nothing bounds what is in flight, and loss changes nothing.
    unbounded: bool,
    /// READ responses asked for and not arrived, over all peers, in bytes of our own buffer.
    reads: u64,
    /// Places in the lines of the peers.
    places: Places,
    /// Who waits to ask for READ responses.
    read_line: Line,
    read_places: Places,
    /// Peers whose window has opened while queue pairs wait for it.
    opened: VecDeque<u32>,
    woken: Vec<u32>,
}

impl Windows {
    pub(crate) fn new(receive_buffer: u64) -> Self {
        Self {
            peers: crate::slots::Slots::new(),
            by_gid: Lookup::default(),
            // A margin stays for what is not counted: acknowledgements, datagrams, other peers.
            ceiling: (receive_buffer - receive_buffer / 8).max(FLOOR),
            unbounded: receive_buffer == u64::MAX,
            reads: 0,
            places: Places::default(),
            read_line: Line::default(),
            read_places: Places::default(),
            opened: VecDeque::new(),
            woken: Vec::new(),
        }
    }

    /// The peer's index; it lives until as many `leave` as `join` have been called.
    pub(crate) fn join(&mut self, gid: Gid) -> u32 {
        if let Some(&peer) = self.by_gid.get(&gid) {
            if let Some(p) = self.peers.get_mut(peer) {
                p.users += 1;
            }
            return peer;
        }
        let peer = self.peers.insert(Peer {
            gid,
            users: 1,
            window: self.ceiling,
            threshold: self.ceiling,
            peak: self.ceiling,
            in_flight: 0,
            reads: 0,
            acked: 0,
            cut_until: 0,
            cuts: 0,
            line: Line::default(),
            called: None,
            opened: false,
            takes: Takes::Unknown,
        });
        self.by_gid.insert(gid, peer);
        peer
    }

    /// The queue pair has no more to do with the peer.
    pub(crate) fn leave(&mut self, peer: u32, qp: u32) {
        self.read_places.leave(&mut self.read_line, qp);
        let Some(p) = self.peers.get_mut(peer) else { return };
        p.called = p.called.filter(|&called| called != qp);
        self.places.leave(&mut p.line, qp);
        p.users -= 1;
        if p.users == 0 {
            self.by_gid.remove(&p.gid);
            self.peers.remove(peer);
        } else {
            self.opens(peer);
        }
    }

    /// Whether `cost` more may be sent to the peer; otherwise `qp` is woken when it may. A peer
    /// with nothing in flight always gets a packet.
    pub(crate) fn admits(&mut self, peer: u32, qp: u32, cost: u64) -> bool {
        let Some(p) = self.peers.get_mut(peer) else { return true };
        if p.has_room(cost) && self.places.serve(&p.line, qp) {
            return true;
        }
        p.called = p.called.filter(|&called| called != qp);
        self.places.join(&mut p.line, qp);
        self.opens(peer);
        false
    }

    /// The queue pair has had its turn: if it was called and did not take room, it needs none, and
    /// if it left some, another one is called.
    pub(crate) fn turn_over(&mut self, peer: u32, qp: u32) {
        let place = self.places.of(qp);
        if !matches!(place, Place::Called(_) | Place::Served) {
            return;
        }
        let Some(p) = self.peers.get_mut(peer) else { return };
        p.called = p.called.filter(|&called| called != qp);
        if let Place::Called(_) = place {
            self.places.set(qp, Place::Outside);
        }
        self.opens(peer);
    }

    /// Whether a packet of `cost` would be the last that the peer's window admits.
    pub(crate) fn is_last(&self, peer: u32, cost: u64) -> bool {
        self.peers.get(peer).is_some_and(|p| p.in_flight + 2 * cost > p.window)
    }

    pub(crate) fn sent(&mut self, peer: u32, cost: u64) {
        if let Some(p) = self.peers.get_mut(peer) {
            p.in_flight += cost;
        }
    }

    /// `cost` has been acknowledged.
    pub(crate) fn acked(&mut self, peer: u32, cost: u64) {
        if cost == 0 {
            return;
        }
        self.grow(peer, cost);
        self.released(peer, cost);
    }

    /// Data of this cost has come through, either way.
    fn grow(&mut self, peer: u32, cost: u64) {
        let ceiling = self.ceiling;
        let Some(p) = self.peers.get_mut(peer) else { return };
        p.acked += cost;
        if p.window < p.threshold {
            p.window = (p.window + cost).min(ceiling);
        } else if p.window < ceiling {
            // Each round trip a part of the way to where the last loss was, and beyond it at first
            // as slowly as it came near: a buffer that others share is overrun seldom.
            let step = (p.peak.abs_diff(p.window) / 4).clamp(FULL / 8, FULL);
            p.window = (p.window + (step * cost).div_ceil(p.window)).min(ceiling);
        }
    }

    /// READ responses of this cost have arrived.
    pub(crate) fn reads_arrived(&mut self, peer: u32, cost: u64) {
        if cost != 0 {
            self.grow(peer, cost);
            self.reads_done(peer, cost);
        }
    }

    /// `cost` is no longer in flight (it will be sent again, or never).
    pub(crate) fn released(&mut self, peer: u32, cost: u64) {
        let Some(p) = self.peers.get_mut(peer) else { return };
        p.in_flight -= cost.min(p.in_flight);
        self.opens(peer);
    }

    /// Notes a peer that can admit somebody who waits.
    fn opens(&mut self, peer: u32) {
        let Some(p) = self.peers.get_mut(peer) else { return };
        if !p.opened && p.can_admit() {
            p.opened = true;
            self.opened.push_back(peer);
        }
    }

    /// Something was lost: halve, but once for all that was in flight then; after a timeout start
    /// from the floor. `since` is the number of the cut after which what is lost now was sent, as
    /// an earlier call gave it: then it is not what was in flight then, but what has been sent
    /// instead, and the window is still too large. Gives the number of the last cut.
    pub(crate) fn lost(&mut self, peer: u32, timeout: bool, since: u64) -> u64 {
        let Some(p) = self.peers.get_mut(peer) else { return 0 };
        if self.unbounded {
            return p.cuts;
        }
        if p.acked < p.cut_until && since < p.cuts && !timeout {
            return p.cuts;
        }
        // Lower than last time: others have come, who need room too.
        p.peak = if p.window < p.peak { p.window / 4 * 3 } else { p.window };
        p.threshold = (p.window / 2).max(FLOOR);
        let least = NOTICED_FLOOR.min(p.window / 4 * 3);
        p.window = if timeout { FLOOR } else { p.threshold.max(least) };
        p.cut_until = p.acked + p.in_flight;
        p.cuts += 1;
        p.cuts
    }

    /// Cost that the peer has acknowledged so far, over all queue pairs.
    pub(crate) fn progress(&self, peer: u32) -> u64 {
        self.peers.get(peer).map_or(0, |p| p.acked)
    }

    /// What may be in flight to the peer, in bytes of buffer cost.
    pub(crate) fn window(&self, peer: u32) -> u64 {
        self.peers.get(peer).map_or(u64::MAX, |p| p.window)
    }

    pub(crate) fn takes(&self, peer: u32) -> Takes {
        self.peers.get(peer).map_or(Takes::NoPart, |p| p.takes)
    }

    pub(crate) fn set_takes(&mut self, peer: u32, takes: Takes) {
        if let Some(p) = self.peers.get_mut(peer) {
            p.takes = takes;
        }
    }

    /// Full packets of `packet_cost` that the peer's window holds.
    pub(crate) fn packets(&self, peer: u32, packet_cost: u64) -> u64 {
        self.peers.get(peer).map_or(1, |p| (p.window / packet_cost).max(1))
    }

    /// How many of `wanted` READ response packets of `packet_cost` may be asked for now. At least
    /// one if none is outstanding; otherwise `qp` is woken when there is room for a good piece.
    pub(crate) fn read_room(&mut self, qp: u32, peer: u32, packet_cost: u64, wanted: u64) -> u64 {
        let (window, asked) = self.peers.get(peer).map_or((0, 0), |p| (p.window, p.reads));
        let own = window.min(self.ceiling).saturating_sub(asked);
        let room = self.ceiling.saturating_sub(self.reads).min(own) / packet_cost;
        if self.reads == 0 {
            self.read_places.leave(&mut self.read_line, qp);
            return room.clamp(1, wanted.max(1));
        }
        let quarter = window.min(self.ceiling) / packet_cost / 4;
        // What would leave less than a piece behind is asked for whole.
        let piece = if wanted < 2 * READ_PIECE { wanted } else { READ_PIECE };
        let piece = piece.min(quarter).max(1);
        if room >= piece && self.read_places.serve(&self.read_line, qp) {
            return room.min(wanted);
        }
        self.read_places.join(&mut self.read_line, qp);
        0
    }

    pub(crate) fn reads_asked(&mut self, peer: u32, cost: u64) {
        self.reads += cost;
        if let Some(p) = self.peers.get_mut(peer) {
            p.reads += cost;
        }
    }

    pub(crate) fn reads_done(&mut self, peer: u32, cost: u64) {
        if cost != 0 {
            self.reads -= cost.min(self.reads);
            if let Some(p) = self.peers.get_mut(peer) {
                p.reads -= cost.min(p.reads);
            }
            // Who is called and cannot use it goes to the back of the line, and the next arrival
            // calls another; with nothing outstanding there is none to come.
            let calls = if self.reads == 0 { u64::MAX } else { (cost / FULL).max(1) };
            let next = || self.read_places.call(&mut self.read_line);
            self.woken.extend(std::iter::from_fn(next).take(calls as usize));
        }
    }

    /// Queue pairs that have room again: one for each peer at a time, for it may take all of it.
    /// [`Self::turn_over`] is to be told when each has had its turn.
    pub(crate) fn take_woken(&mut self, out: &mut Vec<u32>) {
        out.append(&mut self.woken);
        for _ in 0..self.opened.len() {
            let Some(peer) = self.opened.pop_front() else { break };
            let Some(p) = self.peers.get_mut(peer) else { continue };
            p.opened = false;
            if p.can_admit() {
                p.called = self.places.call(&mut p.line);
                out.extend(p.called);
            }
        }
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty() || !self.opened.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_of_several_queue_pairs_shrinks_the_window_once() {
        let mut windows = Windows::new(1 << 20);
        let peer = windows.join(Gid([7; 16]));
        windows.sent(peer, 500_000);
        let full = windows.window(peer);
        let cut = windows.lost(peer, false, 0);
        assert_eq!(windows.window(peer), full / 2);
        // Another queue pair that had packets in that flight.
        assert_eq!(windows.lost(peer, false, 0), cut);
        assert_eq!(windows.window(peer), full / 2);
        // It has sent them again, and some are lost.
        assert!(windows.lost(peer, false, cut) > cut);
        assert_eq!(windows.window(peer), full / 4);
        // What was in flight at the second cut has come through.
        windows.acked(peer, 500_000);
        let before = windows.window(peer);
        assert!(windows.lost(peer, false, 0) > cut + 1);
        assert!(windows.window(peer) < before);
    }
}
