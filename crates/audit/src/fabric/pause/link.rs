//! A link, as one point of capture shows it: its ends (MAC addresses of frames that no switch
//! forwards: pauses, LLDP), the classes of its traffic, and which way a packet goes.

use wire::{Gid, Mac};

use super::class::{Class, Speeds};
use crate::event::{Event, Packet};
use crate::limits;
use crate::record::{At, Direction, Time};

/// 802.3x pauses count beside the eight priorities.
pub(super) const GLOBAL: usize = 8;
/// Speeds of links, bits per second.
const STANDARD: [u64; 10] = [1, 10, 25, 40, 50, 100, 200, 400, 800, 1600];
const GBPS: u64 = 1_000_000_000;
/// Without a word on the speed: what it is taken for, and what it may be.
const LIKELY: u64 = 100 * GBPS;
const SLOWEST: u64 = 10 * GBPS;
const FASTEST: u64 = 400 * GBPS;
/// Packets over which a rate is taken, and bytes of each that are not in the capture: preamble,
/// frame check sequence, gap.
const BURST: u32 = 256;
const BETWEEN: u64 = 24;

/// An end of a link.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) mac: Mac,
    /// Chassis and name by LLDP.
    pub(super) chassis: Option<Box<[u8]>>,
    pub(super) name: Option<String>,
    /// Which way its pauses went, where the capture says so.
    direction: Option<Direction>,
    /// Pauses by priority, and 802.3x ones.
    pub(super) classes: [Class; 9],
    /// Its first pause of a priority, and of the whole link.
    pub(super) first_pause: Option<At>,
    pub(super) first_global: Option<At>,
    /// Last packet towards it by priority; one whose way cannot be told counts.
    pub(super) last_to: [Time; 8],
    /// Who sends to its address.
    pub(super) neighbour: Neighbour,
    /// Data packets towards it and from it, by priority.
    pub(super) to: [u64; 8],
    pub(super) from: [u64; 8],
    /// Whom packets from it are for, by priority: behind the other end.
    pub(super) beyond: Vec<(u8, Gid)>,
}

impl End {
    fn new(mac: Mac) -> Self {
        Self {
            mac,
            chassis: None,
            name: None,
            direction: None,
            classes: [Class::default(); 9],
            first_pause: None,
            first_global: None,
            last_to: [Time(0); 8],
            neighbour: Neighbour::default(),
            to: [0; 8],
            from: [0; 8],
            beyond: Vec::new(),
        }
    }

    /// Whether it has ever paused anything.
    pub(super) fn pauses(&self) -> bool {
        self.classes.iter().any(|class| class.xoffs > 0)
    }

    /// Whether no packet came towards it in a class since shortly behind the newest pause.
    pub(super) fn is_silent(&self, class: usize, allowance: u64) -> bool {
        let Some(on) = self.classes.get(class).and_then(|class| class.on.as_ref()) else {
            return true;
        };
        let quiet = |last: &Time| last.0 <= on.last.time.0.saturating_add(allowance);
        match self.last_to.get(class) {
            Some(last) => quiet(last),
            None => self.last_to.iter().all(quiet),
        }
    }

    /// Remembers for whom a packet from it is.
    pub(super) fn sends_to(&mut self, priority: u8, gid: Gid) {
        let who = (priority, gid);
        if self.beyond.last() != Some(&who)
            && self.beyond.len() < limits::ADDRESSES_BEHIND
            && !self.beyond.contains(&who)
        {
            self.beyond.push(who);
        }
    }
}

/// Whose packets come to an address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Neighbour {
    mac: Option<Mac>,
    source: Gid,
    several_macs: bool,
    several_from: bool,
}

impl Neighbour {
    /// A packet comes from a MAC address.
    pub(super) fn sends(&mut self, mac: Mac, source: Gid) {
        match self.mac {
            None => (self.mac, self.source) = (Some(mac), source),
            Some(known) => {
                self.several_macs |= known != mac;
                self.several_from |= self.source != source;
            }
        }
    }

    /// The neighbour's MAC address, where its packets have been routed: one MAC address, many
    /// senders behind it.
    pub(super) fn routed(&self) -> Option<Mac> {
        self.mac.filter(|_| self.several_from && !self.several_macs)
    }
}

/// Rate of the packets.
#[derive(Clone, Copy, Debug, Default)]
struct Burst {
    since: Time,
    packets: u32,
    bytes: u64,
    peak_bps: u64,
}

/// Addresses behind one MAC address that make it a router's: hosts have one, or a few.
const ROUTED: usize = 4;

/// A MAC address of packets, and the addresses that it stands for.
#[derive(Clone, Copy, Debug)]
struct Named {
    mac: Mac,
    gids: [Gid; ROUTED],
    count: usize,
}

impl Named {
    fn add(&mut self, gid: Gid) {
        let known = self.gids.iter().take(self.count).any(|known| *known == gid);
        if !known && let Some(free) = self.gids.get_mut(self.count) {
            *free = gid;
            self.count += 1;
        }
    }
}

/// The priority that adapters and switches give to a DSCP unless told otherwise.
const fn usual_priority(dscp: u8) -> u8 {
    dscp >> 3
}

/// A link.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) ends: Vec<End>,
    /// More ends than a link has: a mirror of several links.
    pub(super) mixed: bool,
    /// RoCE packets, and those with data by priority; a packet whose tag and DSCP differ counts
    /// for both.
    pub(super) packets: u64,
    pub(super) data: [u64; 8],
    /// Whose the MAC addresses of its packets are, unless there are too many.
    named: Vec<Named>,
    too_many: bool,
    /// Priorities of DSCPs by DCBX, where they are other ones than usual.
    mapped: Option<Box<[u8; 64]>>,
    /// Tunnels around the pauses: packets with other ones are of other links.
    tunnels: u8,
    burst: Burst,
}

impl Link {
    /// The end with a MAC address, noted if it is new.
    pub(super) fn end(&mut self, mac: Mac) -> Option<&mut End> {
        let known = self.ends.iter().position(|end| end.mac == mac);
        let at = match known {
            Some(at) => at,
            None => {
                self.mixed |= self.ends.len() >= 2;
                if self.ends.len() >= limits::ENDS {
                    return None;
                }
                self.ends.push(End::new(mac));
                self.ends.len() - 1
            }
        };
        self.ends.get_mut(at)
    }

    /// Notes which priorities an end gives to DSCPs.
    pub(super) fn maps(&mut self, dscp: &[(u8, u8)]) {
        for (dscp, priority) in dscp {
            let map = self.mapped.get_or_insert_with(|| {
                Box::new(core::array::from_fn(|dscp| usual_priority(dscp as u8)))
            });
            if let Some(place) = map.get_mut(usize::from(*dscp)) {
                *place = priority & 7;
            }
        }
    }

    /// The priority of a DSCP.
    pub(super) fn priority(&self, dscp: u8) -> usize {
        let mapped = self.mapped.as_ref().and_then(|map| map.get(usize::from(dscp)));
        usize::from(mapped.copied().unwrap_or(usual_priority(dscp)) & 7)
    }

    /// Notes that a pause of an end was captured.
    pub(super) fn paused_by(&mut self, event: &Event, mac: Mac) -> Option<&mut End> {
        self.tunnels = event.tunnels;
        let end = self.end(mac)?;
        if event.direction.is_some() {
            end.direction = event.direction;
        }
        Some(end)
    }

    /// Whether an end is a port of a switch: no packet names its address, or it routes for several
    /// receivers.
    pub(super) fn is_switch(&self, end: &End) -> bool {
        match self.named.iter().find(|named| named.mac == end.mac) {
            Some(named) => named.count == ROUTED,
            None => self.packets > 0 && !self.too_many,
        }
    }

    /// The host whose address a MAC address is.
    pub(super) fn host(&self, mac: Mac) -> Option<Gid> {
        let named = self.named.iter().find(|named| named.mac == mac)?;
        (named.count == 1).then_some(named.gids[0])
    }

    /// Notes the addresses of a packet.
    fn name(&mut self, mac: Mac, gid: Gid) {
        if let Some(named) = self.named.iter_mut().find(|named| named.mac == mac) {
            named.add(gid);
        } else if self.named.len() >= limits::NAMED {
            self.too_many = true;
        } else {
            let mut named = Named { mac, gids: [Gid::default(); ROUTED], count: 0 };
            named.add(gid);
            self.named.push(named);
        }
    }

    /// Whether addresses are looked at: of the first packets, then of some. A prime step, so that
    /// packets that take turns are all looked at.
    pub(super) fn is_sample(&self) -> bool {
        const FIRST: u64 = 256;
        const STEP: u64 = 17;
        self.packets <= FIRST || self.packets.is_multiple_of(STEP)
    }

    #[cold]
    fn names(&mut self, event: &Event, packet: &Packet) {
        if let Some((source, destination)) = event.macs.filter(|_| !self.too_many) {
            self.name(source, packet.path.source);
            self.name(destination, packet.path.destination);
        }
    }

    /// Counts a RoCE packet.
    pub(super) fn count(&mut self, event: &Event, packet: &Packet) {
        self.packets += 1;
        if self.is_sample() {
            self.names(event, packet);
        }
        let burst = &mut self.burst;
        burst.packets += 1;
        burst.bytes += u64::from(event.len) + BETWEEN;
        if burst.packets == BURST {
            let elapsed = event.at.time.since(burst.since);
            if burst.since != Time(0) && elapsed > 0 {
                let bps = (burst.bytes * 8).saturating_mul(GBPS) / elapsed;
                burst.peak_bps = burst.peak_bps.max(bps);
            }
            let peak_bps = burst.peak_bps;
            *burst = Burst { since: event.at.time, peak_bps, ..Burst::default() };
        }
    }

    /// The link's speeds: as given, or as far as the traffic tells.
    pub(super) fn speeds(&self, given: Option<u64>) -> Speeds {
        if let Some(bps) = given {
            return Speeds { likely: bps, slowest: bps, fastest: bps };
        }
        let peak = self.burst.peak_bps;
        let standard = STANDARD.map(|gbps| gbps * GBPS).into_iter().find(|bps| *bps >= peak);
        let seen = standard.unwrap_or(FASTEST);
        Speeds {
            likely: seen.max(LIKELY),
            slowest: seen.clamp(SLOWEST, LIKELY),
            fastest: seen.max(FASTEST),
        }
    }

    /// Whether a packet travels towards an end; `None` if that cannot be told.
    pub(super) fn is_towards(&self, at: usize, event: &Event) -> Option<bool> {
        let end = self.ends.get(at)?;
        if self.mixed || event.tunnels != self.tunnels {
            return None;
        }
        if let (Some(pause), Some(packet)) = (end.direction, event.direction) {
            return Some(pause != packet);
        }
        let (source, destination) = event.macs?;
        if destination == end.mac || source == end.mac {
            return Some(destination == end.mac);
        }
        let other = self.ends.get(1 - at.min(1)).filter(|other| other.mac != end.mac)?;
        if source == other.mac || destination == other.mac {
            return Some(source == other.mac);
        }
        None
    }
}
