//! What two neighbours make of each other's adverts: which ETS and which PFC are in force at a port
//! (802.1Q, clause 38.4). Putting them in force is the switch's.

use wire::{Instant, Mac, Span};

use super::{Advert, Application, Ets, EtsTable, PfcSetting};

/// What a port wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wishes {
    /// Its own ETS; willing: it takes a peer's recommendation in place of it.
    pub ets: Ets,
    /// What it recommends to the peer.
    pub recommendation: Option<EtsTable>,
    /// Its own PFC; willing: it takes the peer's in place of it.
    pub pfc: PfcSetting,
    /// Priorities for applications, told and not acted upon.
    pub applications: Vec<Application>,
}

/// The exchange of a port with its neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    mac: Mac,
    wishes: Wishes,
    peer: Option<Peer>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Peer {
    mac: Mac,
    advert: Advert,
    until: Instant,
}

impl Exchange {
    /// Of a port that has heard of nobody.
    pub fn new(mac: Mac, wishes: Wishes) -> Self {
        Self { mac, wishes, peer: None }
    }

    /// A neighbour has told of itself; until when that is true.
    pub fn hear(&mut self, now: Instant, from: Mac, advert: Advert) -> Option<Instant> {
        let until = now + Span::from_ms(1000).times(u64::from(advert.life));
        self.peer = (advert.life > 0).then_some(Peer { mac: from, advert, until });
        self.peer.as_ref().map(|peer| peer.until)
    }

    /// Forgets a neighbour that has been silent for as long as it said.
    pub fn expire(&mut self, now: Instant) {
        self.peer = self.peer.take().filter(|peer| !peer.until.is_due(now));
    }

    /// What the neighbour has told.
    pub fn peer(&self) -> Option<&Advert> {
        self.peer.as_ref().map(|peer| &peer.advert)
    }

    /// The ETS in force (asymmetric): the peer's recommendation, if we are willing and there is
    /// one; ours otherwise.
    pub fn ets(&self) -> EtsTable {
        let own = &self.wishes.ets;
        let recommended = self.peer.as_ref().and_then(|peer| peer.advert.recommendation);
        recommended.filter(|_| own.willing).unwrap_or(own.table)
    }

    /// Priorities with PFC in force, as bits (symmetric): the peer's, if we are willing and it is
    /// not; if both are, the one with the lower MAC takes the other's; ours otherwise.
    pub fn pfc(&self) -> u8 {
        let own = self.wishes.pfc;
        let peer = self.peer.as_ref().and_then(|peer| Some((peer.mac, peer.advert.pfc?)));
        match peer {
            Some((mac, theirs)) if own.willing && (!theirs.willing || self.mac.0 <= mac.0) => {
                theirs.enabled
            }
            _ => own.enabled,
        }
    }

    /// Whether the two sides pause different priorities and neither gives way.
    pub fn mismatch(&self) -> bool {
        let theirs = self.peer.as_ref().and_then(|peer| peer.advert.pfc);
        theirs.is_some_and(|theirs| theirs.enabled != self.pfc() && !theirs.willing)
    }

    /// What the port tells: what is in force, and how willing it was from the beginning.
    pub fn advert(&self, chassis: Mac, life: u16) -> Advert {
        Advert {
            chassis: Some(chassis),
            life,
            ets: Some(Ets { table: self.ets(), ..self.wishes.ets }),
            recommendation: self.wishes.recommendation,
            pfc: Some(PfcSetting { enabled: self.pfc(), ..self.wishes.pfc }),
            applications: self.wishes.applications.clone(),
        }
    }
}
