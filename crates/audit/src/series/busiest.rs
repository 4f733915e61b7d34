//! Which conversations are plotted: those that carry most bytes, in memory that does not grow. A
//! place is kept for the busiest of the others by the space-saving rule: a newcomer takes over the
//! least counter, with what it had as the most that it may be wrong by.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::limits;

/// How much busier than the least that is plotted another must be to take its place.
const TIMES: u64 = 2;

/// Bytes of a conversation that is not plotted.
#[derive(Clone, Copy, Debug)]
struct Count {
    most: u64,
    error: u64,
}

/// What a packet's conversation is to the plots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// It is plotted here.
    Plotted(usize),
    /// It is from now on, in place of what was there.
    Taken(usize),
    /// It is not busy enough.
    None,
}

/// Counters of conversations.
#[derive(Clone, Debug, Default)]
pub(super) struct Busiest {
    /// Places of those that are plotted, and their bytes by place.
    places: HashMap<u32, usize>,
    bytes: Vec<(u64, u32)>,
    /// None that is plotted has less.
    floor: u64,
    others: HashMap<u32, Count>,
    by_count: BTreeSet<(u64, u32)>,
}

impl Busiest {
    /// Counts a packet.
    pub(super) fn see(&mut self, conversation: u32, len: u64) -> Place {
        if let Some(&place) = self.places.get(&conversation) {
            self.bytes[place].0 += len;
            return Place::Plotted(place);
        }
        if self.bytes.len() < limits::PLOTTED {
            let place = self.bytes.len();
            self.bytes.push((len, conversation));
            self.places.insert(conversation, place);
            return Place::Taken(place);
        }
        let count = self.count(conversation, len);
        if (count.most - count.error) / TIMES <= self.floor {
            return Place::None;
        }
        self.take(conversation, count)
    }

    /// Counts a packet of one that is not plotted.
    fn count(&mut self, conversation: u32, len: u64) -> Count {
        let old = self.others.remove(&conversation);
        let old = match old {
            Some(old) => {
                self.by_count.remove(&(old.most, conversation));
                old
            }
            None if self.others.len() < limits::PLOTTED => Count { most: 0, error: 0 },
            None => {
                let (least, out) = self.by_count.pop_first().unwrap_or_default();
                self.others.remove(&out);
                Count { most: least, error: least }
            }
        };
        let count = Count { most: old.most + len, ..old };
        self.others.insert(conversation, count);
        self.by_count.insert((count.most, conversation));
        count
    }

    /// Has a conversation take the place of the least that is plotted, if it is busier.
    fn take(&mut self, conversation: u32, count: Count) -> Place {
        let all = self.bytes.iter().enumerate();
        let Some((place, &(least, out))) = all.min_by_key(|(_, (bytes, id))| (*bytes, *id)) else {
            return Place::None;
        };
        self.floor = least;
        let sure = count.most - count.error;
        if sure / TIMES <= least {
            return Place::None;
        }
        self.others.remove(&conversation);
        self.by_count.remove(&(count.most, conversation));
        self.places.remove(&out);
        self.places.insert(conversation, place);
        self.bytes[place] = (sure, conversation);
        self.others.insert(out, Count { most: least, error: 0 });
        self.by_count.insert((least, out));
        Place::Taken(place)
    }
}
