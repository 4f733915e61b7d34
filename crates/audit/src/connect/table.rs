//! All handshakes that are remembered, found by the names that the two ends gave them.

use std::collections::VecDeque;

use hashbrown::HashMap;
use wire::Gid;

use super::handshake::{End, Handshake};
use crate::limits;

/// A name that an end gave: a communication id, or the id of a resolution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub(super) owner: Gid,
    pub(super) peer: Gid,
    pub(super) id: u32,
    pub(super) resolution: bool,
}

/// The handshakes in the order of their first messages.
#[derive(Debug, Default)]
pub(super) struct Table {
    handshakes: VecDeque<Handshake>,
    /// Number of the handshake in front.
    base: u64,
    names: HashMap<Name, u64>,
}

impl Table {
    /// The handshake with a name, and which of its ends gave the name.
    pub(super) fn find(&mut self, name: Name) -> Option<(&mut Handshake, End)> {
        let number = *self.names.get(&name)?;
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let handshake = self.handshakes.get_mut(at)?;
        let is_active = handshake.ends[0] == name.owner && handshake.ids[0] == Some(name.id);
        let end = if is_active { End::Active } else { End::Passive };
        Some((handshake, end))
    }

    /// Adds a handshake under the name of its active end; gives the one that had to make room.
    pub(super) fn add(&mut self, name: Name, mut handshake: Handshake) -> Option<Handshake> {
        handshake.ids[0] = Some(name.id);
        let oldest = match self.handshakes.len() < limits::HANDSHAKES {
            true => None,
            false => self.forget_oldest(),
        };
        let number = self.base.saturating_add(self.handshakes.len() as u64);
        self.names.insert(name, number);
        self.handshakes.push_back(handshake);
        oldest
    }

    /// Notes the name that the passive end gave to the handshake that is known as `active`.
    pub(super) fn name_passive(&mut self, active: Name, id: u32) {
        let Some(&number) = self.names.get(&active) else { return };
        if let Some((handshake, _)) = self.find(active) {
            handshake.ids[1] = Some(id);
        }
        let name = Name { owner: active.peer, peer: active.owner, id, resolution: false };
        self.names.insert(name, number);
    }

    fn forget_oldest(&mut self) -> Option<Handshake> {
        let handshake = self.handshakes.pop_front()?;
        let number = self.base;
        self.base += 1;
        for (end, id) in handshake.ids.iter().enumerate() {
            let Some(id) = *id else { continue };
            let (owner, peer) = (handshake.ends[end], handshake.ends[1 - end]);
            for resolution in [false, true] {
                let name = Name { owner, peer, id, resolution };
                if self.names.get(&name) == Some(&number) {
                    self.names.remove(&name);
                }
            }
        }
        Some(handshake)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Handshake> {
        self.handshakes.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Handshake> {
        self.handshakes.iter_mut()
    }
}
