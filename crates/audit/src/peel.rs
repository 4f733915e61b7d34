//! Records to events: links, tags, tunnels and trains taken off, ICRCs judged.

use crate::event::Event;
use crate::record::Record;

/// Peels records; keeps what it learns of them (sizes of packets in trains).
#[derive(Debug, Default)]
pub struct Peeler {}

impl Peeler {
    /// The events of a record, added to `events`: one, or one for each packet of a train.
    pub fn peel(&mut self, _record: &Record<'_>, _events: &mut Vec<Event>) {}
}
