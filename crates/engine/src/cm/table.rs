//! The connections, by every name under which a message may ask for them.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Gid, Qpn};

use super::connection::{Conn, ConnState, Role};
use super::request::ConnId;

/// All connections of a connection manager.
#[derive(Debug)]
pub(super) struct Table {
    conns: BTreeMap<ConnId, Conn>,
    /// Passive connections by the peer's GID and communication id: finds repeated requests.
    by_remote_id: BTreeSet<(Gid, u32, ConnId)>,
    /// By the peer's GID and queue pair: finds stale connections.
    by_remote_qpn: BTreeSet<(Gid, Qpn, ConnId)>,
    /// By the own queue pair.
    by_qpn: BTreeSet<(Qpn, ConnId)>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            conns: BTreeMap::new(),
            by_remote_id: BTreeSet::new(),
            by_remote_qpn: BTreeSet::new(),
            by_qpn: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.conns.len()
    }

    pub(super) fn contains(&self, id: ConnId) -> bool {
        self.conns.contains_key(&id)
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.conns.keys().copied().collect()
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(&id)
    }

    pub(super) fn insert(&mut self, conn: Conn) {
        if let (Role::Passive, Some(remote)) = (conn.role, conn.remote_id) {
            self.by_remote_id.insert((conn.peer_gid(), remote, conn.id));
            self.by_remote_qpn.insert((conn.peer_gid(), conn.terms.remote_qpn, conn.id));
        }
        if let Some(qpn) = conn.qpn {
            self.by_qpn.insert((qpn, conn.id));
        }
        self.conns.insert(conn.id, conn);
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let conn = self.conns.remove(&id)?;
        if let Some(remote) = conn.remote_id {
            self.by_remote_id.remove(&(conn.peer_gid(), remote, id));
        }
        self.by_remote_qpn.remove(&(conn.peer_gid(), conn.terms.remote_qpn, id));
        if let Some(qpn) = conn.qpn {
            self.by_qpn.remove(&(qpn, id));
        }
        Some(conn)
    }

    /// The own queue pair is known from now on (passive side).
    pub(super) fn set_qpn(&mut self, id: ConnId, qpn: Qpn) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.qpn = Some(qpn);
            self.by_qpn.insert((qpn, id));
        }
    }

    /// The peer's names are known from now on (active side).
    pub(super) fn set_remote(&mut self, id: ConnId, remote_id: u32, remote_qpn: Qpn) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.remote_id = Some(remote_id);
            conn.terms.remote_qpn = remote_qpn;
            self.by_remote_qpn.insert((conn.peer.dgid, remote_qpn, id));
        }
    }

    /// The passive connection that a request of this peer and communication id made.
    pub(super) fn passive(&self, peer: Gid, remote_id: u32) -> Option<&Conn> {
        let from = (peer, remote_id, ConnId(0));
        let to = (peer, remote_id, ConnId(u32::MAX));
        self.by_remote_id.range(from..=to).next().and_then(|(_, _, id)| self.conns.get(id))
    }

    /// A connection with this queue pair of this peer, other than refused ones.
    pub(super) fn with_remote_qpn(&self, peer: Gid, qpn: Qpn) -> Option<&Conn> {
        let from = (peer, qpn, ConnId(0));
        let to = (peer, qpn, ConnId(u32::MAX));
        self.by_remote_qpn
            .range(from..=to)
            .filter_map(|(_, _, id)| self.conns.get(id))
            .find(|conn| conn.state != ConnState::Refused)
    }

    /// The connections of an own queue pair.
    pub(super) fn with_qpn(&self, qpn: Qpn) -> impl Iterator<Item = &Conn> {
        self.by_qpn
            .range((qpn, ConnId(0))..=(qpn, ConnId(u32::MAX)))
            .filter_map(|(_, id)| self.conns.get(id))
    }

    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        let with = |has: fn(&Conn) -> bool| self.conns.values().filter(|c| has(c)).count();
        assert_eq!(self.by_qpn.len(), with(|c| c.qpn.is_some()));
        assert_eq!(self.by_remote_qpn.len(), with(|c| c.remote_id.is_some()));
        assert_eq!(
            self.by_remote_id.len(),
            with(|c| c.role == Role::Passive && c.remote_id.is_some())
        );
    }

    #[cfg(debug_assertions)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.conns.values()
    }
}
