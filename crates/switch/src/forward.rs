//! Routes: which next hops an address has, by its longest prefix. Which of them a frame takes is
//! `balance`'s.

use wire::{Gid, Mac};

use crate::hash::Table;
use crate::limits::CACHED;
use crate::switch::NextHop;

/// No way.
const NONE: u32 = u32::MAX;

/// Next hops that routes share.
#[derive(Debug)]
pub(crate) struct Way {
    /// In place of hops: the MAC of a neighbour, whose port the bridge knows, and its VLAN.
    pub(crate) bridged: Option<(Mac, u16)>,
    pub(crate) hops: Vec<NextHop>,
    /// Sum of the weights.
    pub(crate) total: u64,
    /// All weights are equal.
    pub(crate) even: bool,
    /// Frames that have gone this way in turn.
    pub(crate) turn: u64,
}

/// Routes of one prefix length.
#[derive(Debug)]
struct Length {
    mask: u128,
    routes: Table<u128, u32>,
}

/// The routing table.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Longest first.
    lengths: Vec<Length>,
    ways: Vec<Way>,
    known: Table<Vec<NextHop>, u32>,
    known_bridged: Table<(Mac, u16), u32>,
    cache: Vec<(u128, u32)>,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self {
            lengths: Vec::new(),
            ways: Vec::new(),
            known: Table::default(),
            known_bridged: Table::default(),
            cache: Vec::new(),
        }
    }

    /// Sets a route, or with no hops takes it away.
    pub(crate) fn set(&mut self, prefix: Gid, bits: u8, hops: Vec<NextHop>) {
        let way = if hops.is_empty() { None } else { Some(self.way(hops)) };
        self.place(prefix, bits, way);
    }

    /// Sets a route to a neighbour of the bridge.
    pub(crate) fn set_bridged(&mut self, prefix: Gid, bits: u8, mac: Mac, vlan: u16) {
        let number = self.ways.len() as u32;
        let way = *self.known_bridged.entry((mac, vlan)).or_insert(number);
        if way == number {
            let bridged = Some((mac, vlan));
            self.ways.push(Way { bridged, hops: Vec::new(), total: 0, even: true, turn: 0 });
        }
        self.place(prefix, bits, Some(way));
    }

    fn place(&mut self, prefix: Gid, bits: u8, way: Option<u32>) {
        let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
        let prefix = u128::from_be_bytes(prefix.0) & mask;
        self.cache.clear();
        // The more bits, the greater the mask.
        let place = self.lengths.binary_search_by(|length| mask.cmp(&length.mask));
        let Some(way) = way else {
            if let Ok(place) = place {
                self.lengths[place].routes.remove(&prefix);
            }
            return;
        };
        let place = place.unwrap_or_else(|place| {
            self.lengths.insert(place, Length { mask, routes: Table::default() });
            place
        });
        self.lengths[place].routes.insert(prefix, way);
    }

    /// The number of a set of next hops; equal ones share one.
    fn way(&mut self, mut hops: Vec<NextHop>) -> u32 {
        for hop in &mut hops {
            hop.weight = hop.weight.max(1);
        }
        if let Some(&way) = self.known.get(&hops) {
            return way;
        }
        let number = self.ways.len() as u32;
        let total = hops.iter().map(|hop| u64::from(hop.weight)).sum();
        let even = hops.iter().all(|hop| hop.weight == hops[0].weight);
        self.known.insert(hops.clone(), number);
        self.ways.push(Way { bridged: None, hops, total, even, turn: 0 });
        number
    }

    /// The way to an address.
    pub(crate) fn find(&mut self, destination: Gid) -> Option<&mut Way> {
        let address = u128::from_be_bytes(destination.0);
        if self.cache.is_empty() {
            self.cache.resize(CACHED, (0, NONE));
        }
        let spread = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        let place = &mut self.cache[spread as usize % CACHED];
        if place.0 != address || place.1 == NONE {
            let find = |length: &Length| length.routes.get(&(address & length.mask)).copied();
            *place = (address, self.lengths.iter().find_map(find)?);
        }
        self.ways.get_mut(place.1 as usize)
    }
}
