//! Who listens on which service.

use std::collections::BTreeMap;

use wire::Gid;
use wire::mad::ServiceId;

use super::request::{Listen, ListenId};
use crate::error::{Error, ErrorKind, Result};
use crate::limits;

/// The listeners of a connection manager.
#[derive(Debug)]
pub(super) struct Listeners {
    by_service: BTreeMap<(ServiceId, Option<Gid>), ListenId>,
    by_id: BTreeMap<ListenId, Listener>,
    next: u32,
}

#[derive(Debug)]
struct Listener {
    listen: Listen,
    /// Requests that wait for the application.
    waiting: u32,
}

impl Listeners {
    pub(super) fn new() -> Self {
        Self { by_service: BTreeMap::new(), by_id: BTreeMap::new(), next: 1 }
    }

    pub(super) fn add(&mut self, listen: Listen) -> Result<ListenId> {
        let key = (listen.service, listen.address);
        if self.by_service.contains_key(&key) {
            return Err(Error::new(
                ErrorKind::AddressInUse,
                format!("somebody listens on service {} already", listen.service),
            ));
        }
        if self.by_id.len() >= limits::MAX_LISTENERS {
            return Err(Error::new(
                ErrorKind::Full,
                format!("{} listeners exist already", limits::MAX_LISTENERS),
            ));
        }
        let id = ListenId(self.next);
        self.next = self.next.wrapping_add(1).max(1);
        self.by_service.insert(key, id);
        self.by_id.insert(id, Listener { listen, waiting: 0 });
        Ok(id)
    }

    pub(super) fn remove(&mut self, id: ListenId) -> Result<()> {
        let listener = self
            .by_id
            .remove(&id)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no listener {}", id.0)))?;
        self.by_service.remove(&(listener.listen.service, listener.listen.address));
        Ok(())
    }

    /// Who takes requests for a service that come to an own GID.
    pub(super) fn find(&self, service: ServiceId, local: Gid) -> Option<ListenId> {
        let exact = self.by_service.get(&(service, Some(local)));
        exact.or_else(|| self.by_service.get(&(service, None))).copied()
    }

    /// Takes a place in the backlog; false if there is none.
    pub(super) fn admit(&mut self, id: ListenId) -> bool {
        let Some(listener) = self.by_id.get_mut(&id) else { return false };
        let room = listener.waiting < listener.listen.backlog.max(1);
        listener.waiting += u32::from(room);
        room
    }

    /// Gives the place back.
    pub(super) fn release(&mut self, id: ListenId) {
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }
}
