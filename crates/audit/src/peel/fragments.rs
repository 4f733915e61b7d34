//! Fragments of RoCE datagrams: only the first has ports, by which the others are known again.

use wire::Gid;

/// Datagrams that are remembered.
const KEPT: usize = 64;

/// What the fragments of a datagram share: source, destination, identification.
type Name = (Gid, Gid, u32);

/// The newest datagrams of which a first fragment was seen.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    seen: Vec<Name>,
    next: usize,
}

impl Fragments {
    /// The first fragment of a RoCE datagram.
    pub(super) fn begin(&mut self, name: Name) {
        if self.seen.contains(&name) {
            return;
        }
        if self.seen.len() < KEPT {
            self.seen.push(name);
            return;
        }
        self.seen[self.next] = name;
        self.next = (self.next + 1) % KEPT;
    }

    /// Whether a later fragment belongs to one of them.
    pub(super) fn knows(&self, name: &Name) -> bool {
        self.seen.contains(name)
    }
}
