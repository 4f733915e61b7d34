//! How much may be in flight towards a peer, over all queue pairs: bounded by our own receive
//! buffer as the estimate of the peer's, halved on loss, grown again on progress.

use wire::Gid;

use crate::slots::Lookup;

/// What a datagram of `wire_len` bytes (BTH through ICRC) costs in a receiver's socket buffer: the
/// kernel charges the power of two that holds data and metadata, and the descriptor.
pub(crate) fn cost(wire_len: usize) -> u64 {
    const HEADROOM: usize = 14 + 28 + 320;
    const DESCRIPTOR: u64 = 256;
    (wire_len + HEADROOM).next_power_of_two() as u64 + DESCRIPTOR
}

/// One peer's window.
#[derive(Debug)]
struct Peer {
    gid: Gid,
    users: u32,
    /// What may be in flight, and its ceiling, in bytes of buffer cost.
    window: u64,
    threshold: u64,
    in_flight: u64,
    /// READ responses asked for and not arrived, in bytes of our own buffer.
    reads: u64,
    /// Cost acknowledged since the peer was known, and the mark before which another loss belongs
    /// to the same event.
    acked: u64,
    cut_until: u64,
    /// Queue pairs that wait for room.
    waiting: Vec<u32>,
}

/// The windows of all peers.
#[derive(Debug)]
pub(crate) struct Windows {
    peers: crate::slots::Slots<Peer>,
    by_gid: Lookup<Gid, u32>,
    ceiling: u64,
    /// READ responses asked for and not arrived, over all peers, in bytes of our own buffer.
    reads: u64,
    read_ceiling: u64,
    read_waiting: Vec<u32>,
    woken: Vec<u32>,
}

/// The smallest window: two full packets, so that loss of one is noticed by the other.
const FLOOR: u64 = 2 * (8192 + 256);

impl Windows {
    pub(crate) fn new(receive_buffer: u64) -> Self {
        // A margin stays for what is not counted: acknowledgements, datagrams, other peers.
        let ceiling = (receive_buffer - receive_buffer / 8).max(FLOOR);
        Self {
            peers: crate::slots::Slots::new(),
            by_gid: Lookup::default(),
            ceiling,
            reads: 0,
            read_ceiling: ceiling,
            read_waiting: Vec::new(),
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
            in_flight: 0,
            reads: 0,
            acked: 0,
            cut_until: 0,
            waiting: Vec::new(),
        });
        self.by_gid.insert(gid, peer);
        peer
    }

    pub(crate) fn leave(&mut self, peer: u32) {
        let Some(p) = self.peers.get_mut(peer) else { return };
        p.users -= 1;
        if p.users == 0 {
            self.by_gid.remove(&p.gid);
            self.peers.remove(peer);
        }
    }

    /// Whether `cost` more may be sent to the peer; otherwise `qp` is woken when it may. A peer
    /// with nothing in flight always gets a packet.
    pub(crate) fn admits(&mut self, peer: u32, qp: u32, cost: u64) -> bool {
        let Some(p) = self.peers.get_mut(peer) else { return true };
        if p.in_flight == 0 || p.in_flight + cost <= p.window {
            return true;
        }
        if !p.waiting.contains(&qp) {
            p.waiting.push(qp);
        }
        false
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
            // One full packet more each round trip.
            p.window = (p.window + (8448 * cost).div_ceil(p.window)).min(ceiling);
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
        if p.in_flight < p.window {
            self.woken.append(&mut p.waiting);
        }
    }

    /// Something was lost: halve once per window of data. After a timeout start from the floor.
    pub(crate) fn lost(&mut self, peer: u32, timeout: bool) {
        let Some(p) = self.peers.get_mut(peer) else { return };
        if p.acked < p.cut_until && !timeout {
            return;
        }
        p.threshold = (p.window / 2).max(FLOOR);
        p.window = if timeout { FLOOR } else { p.threshold };
        p.cut_until = p.acked + p.in_flight;
    }

    /// Full packets of `packet_cost` that the peer's window holds.
    pub(crate) fn packets(&self, peer: u32, packet_cost: u64) -> u64 {
        self.peers.get(peer).map_or(1, |p| (p.window / packet_cost).max(1))
    }

    /// READ response packets of `packet_cost` that may be asked for now: at least one if nothing is
    /// outstanding; otherwise `qp` is woken when there is room.
    pub(crate) fn read_room(&mut self, qp: u32, peer: u32, packet_cost: u64) -> u64 {
        let own = self.peers.get(peer).map_or(0, |p| p.window.saturating_sub(p.reads));
        let room = self.read_ceiling.saturating_sub(self.reads).min(own) / packet_cost;
        if room == 0 && self.reads == 0 {
            return 1;
        }
        if room == 0 && !self.read_waiting.contains(&qp) {
            self.read_waiting.push(qp);
        }
        room
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
            self.woken.append(&mut self.read_waiting);
        }
    }

    /// Queue pairs that have room again.
    pub(crate) fn take_woken(&mut self, out: &mut Vec<u32>) {
        out.append(&mut self.woken);
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }
}
