//! The bridge: VLANs and their members, and behind which port an address was last seen. Where a
//! frame goes in the end is `switch`'s.

use std::collections::BTreeMap;

use wire::{Instant, Mac, Span};

use crate::hash::Table;
use crate::limits::LEARNED;
use crate::options::PortVlans;
use crate::switch::PortId;

/// A learned address.
#[derive(Clone, Copy, Debug)]
struct Learned {
    port: PortId,
    seen: Instant,
}

/// A port of a VLAN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) port: PortId,
    /// Whether frames leave with a tag; none: as they came.
    pub(crate) tagged: Option<bool>,
}

/// Addresses and VLANs.
#[derive(Debug)]
pub(crate) struct Bridge {
    learned: Table<u64, Learned>,
    ageing: Span,
    swept: Option<Instant>,
    /// Ports without VLANs: one broadcast domain, whatever the tags.
    all: Vec<Member>,
    /// The VLAN of frames without a tag, by port; empty if there are no VLANs.
    untagged: Vec<Option<u16>>,
    vlans: BTreeMap<u16, Vec<Member>>,
}

fn key(vlan: u16, mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    let [x, y] = vlan.to_be_bytes();
    u64::from_be_bytes([x, y, a, b, c, d, e, f])
}

/// Whether an address is that of a group.
pub(crate) fn is_group(mac: Mac) -> bool {
    mac.0[0] & 1 == 1
}

/// Whether bridges keep frames to an address for themselves (802.1Q, table 8-1).
pub(crate) fn is_reserved(mac: Mac) -> bool {
    matches!(mac.0, [0x01, 0x80, 0xC2, 0, 0, 0..=0x0F])
}

impl Bridge {
    pub(crate) fn new(ports: usize, vlans: &[PortVlans], ageing: Span) -> Self {
        let mut bridge = Self {
            learned: Table::default(),
            ageing,
            swept: None,
            all: Vec::new(),
            untagged: Vec::new(),
            vlans: BTreeMap::new(),
        };
        for port in 0..ports as PortId {
            let Some(own) = vlans.get(usize::from(port)) else {
                bridge.all.push(Member { port, tagged: None });
                continue;
            };
            bridge.untagged.push(own.untagged);
            let tagged = own.tagged.iter().map(|&vlan| (vlan, true));
            for (vlan, tagged) in own.untagged.map(|vlan| (vlan, false)).into_iter().chain(tagged) {
                let members = bridge.vlans.entry(vlan).or_default();
                if members.last().is_none_or(|last| last.port != port) {
                    members.push(Member { port, tagged: Some(tagged) });
                }
            }
        }
        bridge
    }

    /// The VLAN of a frame from a port; none if it may not come in.
    pub(crate) fn vlan(&self, port: PortId, tag: Option<(u16, u8)>) -> Option<u16> {
        if self.untagged.is_empty() {
            return Some(0);
        }
        let vlan = match tag {
            Some((vlan, _)) if vlan != 0 => vlan,
            _ => (*self.untagged.get(usize::from(port))?)?,
        };
        self.member(vlan, port).map(|_| vlan)
    }

    /// The ports of a VLAN, ascending.
    pub(crate) fn members(&self, vlan: u16) -> &[Member] {
        if self.untagged.is_empty() {
            return &self.all;
        }
        self.vlans.get(&vlan).map_or(&[], |members| members)
    }

    /// A port as a member of a VLAN.
    pub(crate) fn member(&self, vlan: u16, port: PortId) -> Option<Member> {
        let members = self.members(vlan);
        let place = members.binary_search_by_key(&port, |member| member.port).ok()?;
        Some(members[place])
    }

    /// Whether there are VLANs.
    pub(crate) fn has_vlans(&self) -> bool {
        !self.untagged.is_empty()
    }

    /// An address has been seen behind a port.
    pub(crate) fn learn(&mut self, now: Instant, vlan: u16, mac: Mac, port: PortId) {
        if is_group(mac) || mac.0 == [0; 6] {
            return;
        }
        let learned = Learned { port, seen: now };
        if let Some(known) = self.learned.get_mut(&key(vlan, mac)) {
            *known = learned;
            return;
        }
        if self.learned.len() >= LEARNED {
            // At most one sweep in an ageing time, so that nobody buys one with each frame.
            if self.swept.is_some_and(|swept| !(swept + self.ageing).is_due(now)) {
                return;
            }
            self.swept = Some(now);
            let ageing = self.ageing;
            self.learned.retain(|_, known| !(known.seen + ageing).is_due(now));
            if self.learned.len() >= LEARNED {
                return;
            }
        }
        self.learned.insert(key(vlan, mac), learned);
    }

    /// The port behind which an address is; forgotten if it has not been seen for long.
    pub(crate) fn find(&mut self, now: Instant, vlan: u16, mac: Mac) -> Option<PortId> {
        let known = *self.learned.get(&key(vlan, mac))?;
        if (known.seen + self.ageing).is_due(now) {
            self.learned.remove(&key(vlan, mac));
            return None;
        }
        Some(known.port)
    }

    /// Forgets what was learned at a port.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.learned.retain(|_, known| known.port != port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_addresses_than_the_limit() {
        let mut bridge = Bridge::new(2, &[], Span::from_us(10));
        let mac = |n: usize| {
            let [a, b, c, d] = (n as u32).to_be_bytes();
            Mac([2, 0, a, b, c, d])
        };
        for n in 0..LEARNED + 10 {
            bridge.learn(Instant::from_ns(5), 0, mac(n), 1);
        }
        assert_eq!(bridge.learned.len(), LEARNED);
        assert_eq!(bridge.find(Instant::from_ns(6), 0, mac(LEARNED)), None);
        assert_eq!(bridge.find(Instant::from_ns(6), 0, mac(LEARNED - 1)), Some(1));
        // Those are old by now and make room.
        bridge.learn(Instant::from_ns(20_000), 0, mac(LEARNED), 0);
        assert_eq!(bridge.learned.len(), 1);
        assert_eq!(bridge.find(Instant::from_ns(20_000), 0, mac(LEARNED)), Some(0));
    }

    #[test]
    fn vlans_and_their_members() {
        let own = |untagged, tagged: &[u16]| PortVlans { untagged, tagged: tagged.to_vec() };
        let vlans = [own(Some(10), &[20]), own(Some(10), &[]), own(None, &[20, 10])];
        let bridge = Bridge::new(3, &vlans, Span::from_us(10));
        assert_eq!(bridge.vlan(0, None), Some(10));
        assert_eq!(bridge.vlan(0, Some((0, 3))), Some(10));
        assert_eq!(bridge.vlan(0, Some((20, 3))), Some(20));
        assert_eq!(bridge.vlan(1, Some((20, 3))), None);
        assert_eq!(bridge.vlan(2, None), None);
        let of = |vlan| bridge.members(vlan).iter().map(|m| (m.port, m.tagged)).collect::<Vec<_>>();
        assert_eq!(of(10), [(0, Some(false)), (1, Some(false)), (2, Some(true))]);
        assert_eq!(of(20), [(0, Some(true)), (2, Some(true))]);
        assert_eq!(of(30), []);
    }
}
