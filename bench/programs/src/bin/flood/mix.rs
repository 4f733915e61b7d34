//! What the flood is made of: kinds of datagram, each written into a place of a given size. Which
//! kinds may come from a peer's own address is decided here: only what the rules have dropped, or
//! answered without harm to the connection.

use std::net::IpAddr;

use crate::packet::{
    BTH, CNP, FLOW, Flow, ICRC, RC_ACK, Rng, UD_SEND_ONLY, has_q_key, header_len, is_reliable,
    seal, set_u24, u24,
};
use crate::seen::{Seen, Traffic};

/// A kind of datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Any bytes.
    Noise,
    /// Any bytes behind a transport version of 0, with the right ICRC.
    Sealed,
    /// The newest packet of a connection as it was, with the right ICRC for its new sender.
    Copy,
    /// The same with a field changed, and the right ICRC for that.
    Changed,
    /// The same, damaged behind its ICRC's back.
    Damaged,
    /// A management datagram for queue pair 1: a header that may be right, any contents.
    Management,
    /// A question or answer of flow control, for a queue pair that exists.
    Question,
    /// With the right ICRC, and a field by which the rules have it dropped.
    Refused,
    /// As a process that shares the NIC's address hands on what came merged with its own packets:
    /// a copy that says it is the peer's, behind any secret.
    HandedOn,
    /// With the right ICRC and a PSN far behind or ahead: an acknowledgement is dropped, a request
    /// answered as a duplicate or with one NAK, which goes to the peer.
    Far,
}

pub(crate) const KINDS: [Kind; 10] = [
    Kind::Noise,
    Kind::Sealed,
    Kind::Copy,
    Kind::Changed,
    Kind::Damaged,
    Kind::Management,
    Kind::Question,
    Kind::Refused,
    Kind::HandedOn,
    Kind::Far,
];

/// Who the flood says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// An address that no connection knows.
    Stranger,
    /// The address of the connection's peer.
    Peer,
    /// The NIC's own address.
    Own,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Noise => "noise",
            Self::Sealed => "sealed",
            Self::Copy => "copy",
            Self::Changed => "changed",
            Self::Damaged => "damaged",
            Self::Management => "management",
            Self::Question => "question",
            Self::Refused => "refused",
            Self::HandedOn => "handed_on",
            Self::Far => "far",
        }
    }

    /// One of those that a sender may have, as likely as its weight.
    pub(crate) fn draw(rng: &mut Rng, origin: Origin) -> Self {
        const STRANGER: [(Kind, usize); 8] = [
            (Kind::Noise, 20),
            (Kind::Sealed, 15),
            (Kind::Copy, 25),
            (Kind::Changed, 20),
            (Kind::Damaged, 10),
            (Kind::Management, 5),
            (Kind::Question, 3),
            (Kind::Refused, 2),
        ];
        const PEER: [(Kind, usize); 4] =
            [(Kind::Noise, 25), (Kind::Damaged, 40), (Kind::Refused, 33), (Kind::Far, 2)];
        let of: &[(Self, usize)] = match origin {
            Origin::Stranger => &STRANGER,
            Origin::Peer => &PEER,
            Origin::Own => &[(Self::HandedOn, 1)],
        };
        let mut at = rng.below(of.iter().map(|(_, weight)| weight).sum());
        for &(kind, weight) in of {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        Self::Noise
    }
}

/// Writes datagrams.
pub(crate) struct Mixer {
    pub(crate) rng: Rng,
    /// Random bytes to be copied from any place.
    pool: Vec<u8>,
}

impl Mixer {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let pool = (0..1 << 15).flat_map(|_| rng.next().to_le_bytes()).collect();
        Self { rng, pool }
    }

    /// The size of the datagrams of a message: often that of a packet which was seen, else any.
    pub(crate) fn size(&mut self, seen: &Seen) -> usize {
        match self.rng.below(1000) {
            0 => self.rng.below(65_508),
            1..=3 => self.rng.below(16),
            4..=399 => exact_len(seen),
            400..=599 => 4 * self.rng.below(375),
            _ => self.rng.below(1500),
        }
    }

    fn noise(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(self.pool.len() / 2) {
            let at = self.rng.below(self.pool.len() - part.len());
            part.copy_from_slice(&self.pool[at..at + part.len()]);
        }
    }

    /// The headers of a packet that was seen, and any payload.
    fn copy(&mut self, seen: &Seen, out: &mut [u8]) {
        self.noise(out);
        let n = header_len(seen.opcode()).min(seen.head.len()).min(out.len());
        out[..n].copy_from_slice(&seen.head[..n]);
    }

    /// Writes a datagram of this kind.
    pub(crate) fn fill(
        &mut self,
        (kind, origin): (Kind, Origin),
        (seen, traffic): (&Seen, &Traffic),
        (flow, ident): (Flow, u16),
        out: &mut [u8],
    ) {
        match kind {
            Kind::Noise => {
                self.noise(out);
                if let Some(slot) = out.get_mut(5).filter(|_| self.rng.below(2) == 0) {
                    *slot = seen.head[5];
                }
                return;
            }
            Kind::Sealed => self.random_headers(seen, out),
            Kind::Copy => self.copy(seen, out),
            Kind::Changed => {
                self.copy(seen, out);
                self.change(out);
            }
            Kind::Damaged => {
                self.copy(seen, out);
                seal(flow, ident, out);
                return self.damage(out);
            }
            Kind::Management => self.management(out),
            Kind::Question => self.question(seen, out),
            Kind::Refused => {
                self.copy(seen, out);
                self.refuse(traffic, out);
            }
            Kind::HandedOn => self.hand_on(seen, out),
            Kind::Far => {
                self.copy(seen, out);
                self.far(out);
            }
        }
        if origin != Origin::Peer {
            lose_q_key(seen, out);
        }
        seal(flow, ident, out);
    }

    /// Changes at least one bit of `len` bytes from `at` on.
    fn flip(&mut self, out: &mut [u8], at: usize, len: usize) {
        let at = at + self.rng.below(len);
        if let Some(byte) = out.get_mut(at) {
            *byte ^= self.rng.change();
        }
    }

    fn random_headers(&mut self, seen: &Seen, out: &mut [u8]) {
        self.noise(out);
        if out.len() < BTH || self.rng.below(8) == 0 {
            return;
        }
        out[1] &= 0xF0;
        if self.rng.below(2) == 0 {
            out[2..4].fill(0xFF);
        }
        if self.rng.below(2) == 0 {
            set_u24(out, 5, seen.qpn());
        }
        if out[0] == FLOW {
            out[0] = RC_ACK;
        }
    }

    /// Changes one field: of the BTH each, or a byte of what follows.
    fn change(&mut self, out: &mut [u8]) {
        // Opcode, flags, P_Key, congestion marks, queue pair, acknowledge request, PSN, the rest.
        const FIELDS: [(usize, usize); 7] =
            [(0, 1), (1, 1), (2, 2), (4, 1), (5, 3), (8, 1), (9, 3)];
        match FIELDS.get(self.rng.below(FIELDS.len() + 3)) {
            Some(&(at, len)) => self.flip(out, at, len),
            None => self.flip(out, BTH, 28),
        }
        if out.first() == Some(&FLOW) {
            out[0] = RC_ACK;
        }
    }

    /// Changes a few bytes, none of which the ICRC does not cover.
    fn damage(&mut self, out: &mut [u8]) {
        if out.len() < BTH + ICRC {
            return;
        }
        // Most in the headers, where it matters more.
        let within = if self.rng.below(4) > 0 { 44.min(out.len()) } else { out.len() };
        let at = self.rng.below(within);
        let at = if at == 4 { 5 } else { at };
        for byte in out.iter_mut().skip(at).take(1 + self.rng.below(4)) {
            *byte ^= self.rng.change();
        }
    }

    fn management(&mut self, out: &mut [u8]) {
        self.noise(out);
        if out.len() < BTH + 8 + 24 + ICRC {
            return;
        }
        out[..5].copy_from_slice(&[UD_SEND_ONLY, 0x40, 0xFF, 0xFF, 0]);
        set_u24(out, 5, 1);
        out[12..16].copy_from_slice(&0x8001_0000_u32.to_be_bytes());
        set_u24(out, 17, 1);
        // Base version, class, class version, method, status; the attribute: REQ to APR.
        out[20..26].copy_from_slice(&[1, 7, 2, 3, 0, 0]);
        out[36..38].copy_from_slice(&(0x10 + self.rng.below(12) as u16).to_be_bytes());
        if self.rng.below(2) == 0 {
            self.flip(out, 0, 44);
        }
    }

    fn question(&mut self, seen: &Seen, out: &mut [u8]) {
        self.copy(seen, out);
        if out.len() > BTH {
            out[0] = FLOW;
            out[8] ^= if self.rng.below(2) == 0 { 0x80 } else { 0 };
        }
    }

    fn refuse(&mut self, traffic: &Traffic, out: &mut [u8]) {
        if out.len() < BTH + ICRC {
            return;
        }
        match self.rng.below(6) {
            0 => out[1] = out[1] & 0xF0 | (1 + self.rng.below(15) as u8),
            1 => out[0] = [0x1F, 0x15, 0xC3, 0xE5, 0xFF, CNP][self.rng.below(6)],
            2 => {
                // Of another service.
                let wrong = [0x04, 0x24, 0x64];
                let own = usize::from(out[0] >> 5);
                let others = wrong.into_iter().filter(|op| usize::from(op >> 5) != own);
                let others: Vec<u8> = others.collect();
                out[0] = others[self.rng.below(others.len())];
                if has_q_key(out[0]) {
                    self.flip(out, BTH, 4);
                }
            }
            3 if has_q_key(out[0]) => self.flip(out, BTH, 4),
            4 => loop {
                let any = self.rng.next() as u32 & 0xFF_FFFF;
                let near = any & 0xFFFF | u24(out, 5) & 0xFF_0000;
                let qpn = if any & 1 == 0 { any } else { near };
                if qpn != 0xFF_FFFF && !traffic.qpns.contains(&qpn) {
                    break set_u24(out, 5, qpn);
                }
            },
            _ => out[3] ^= self.rng.change(),
        }
    }

    fn hand_on(&mut self, seen: &Seen, out: &mut [u8]) {
        const SECRET: usize = 16;
        self.noise(out);
        let Some((head, rest)) = out.split_at_mut_checked(BTH + SECRET) else { return };
        (head[0], head[1]) = (0xFF, 0);
        set_u24(head, 5, seen.qpn());
        let Some((origin, packet)) = rest.split_at_mut_checked(22) else { return };
        let ip = match seen.flow.source {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        origin[..16].copy_from_slice(&ip.octets());
        origin[16..18].copy_from_slice(&seen.flow.source_port.to_be_bytes());
        origin[18..].copy_from_slice(&[0, 64, 0, 0]);
        let n = header_len(seen.opcode()).min(seen.head.len()).min(packet.len());
        packet[..n].copy_from_slice(&seen.head[..n]);
        seal(seen.flow, 0, packet);
    }

    fn far(&mut self, out: &mut [u8]) {
        if out.len() < BTH || !is_reliable(out[0]) {
            return self.noise(out);
        }
        let by = (1 << 22) + self.rng.below(1 << 16) as u32;
        let by = if self.rng.below(2) == 0 { by } else { by.wrapping_neg() };
        set_u24(out, 9, u24(out, 9).wrapping_add(by));
    }
}

/// Bytes of the packet that was seen, if it was one; of the longest of its kind, if it was a train.
pub(crate) fn exact_len(seen: &Seen) -> usize {
    seen.len.min(header_len(seen.opcode()) + 4096 + ICRC)
}

/// Who knows the Q_Key of a datagram queue pair may send to it from anywhere: nobody here does,
/// whatever has been changed before.
fn lose_q_key(seen: &Seen, out: &mut [u8]) {
    const KEY: std::ops::Range<usize> = BTH..BTH + 4;
    if !out.first().is_some_and(|&opcode| has_q_key(opcode)) || u24(out, 5) <= 1 {
        return;
    }
    let known = seen.head.get(KEY).filter(|_| has_q_key(seen.opcode()));
    if let (Some(key), Some(known)) = (out.get_mut(KEY), known) {
        key.iter_mut().zip(known).for_each(|(byte, known)| *byte = !known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(opcode: u8) -> Seen {
        let flow = Flow {
            source: [127, 0, 0, 3].into(),
            target: [127, 0, 0, 2].into(),
            source_port: 0xC001,
        };
        let mut head = vec![0; 64];
        (head[0], head[2], head[3]) = (opcode, 0xFF, 0xFF);
        set_u24(&mut head, 5, 0x1_2345);
        Seen { flow, head, len: 100 }
    }

    #[test]
    fn no_kind_from_a_peer_can_be_taken_for_its_own() {
        let mut mixer = Mixer::new(3);
        let mut traffic = Traffic::default();
        traffic.qpns.insert(0x1_2345);
        for turn in 0..20_000 {
            let seen = seen([0x04, 0x0A, 0x11, 0x24, 0x64][turn % 5]);
            let kind = Kind::draw(&mut mixer.rng, Origin::Peer);
            let mut out = vec![0; 16 + 4 * mixer.rng.below(60)];
            mixer.fill((kind, Origin::Peer), (&seen, &traffic), (seen.flow, 0), &mut out);
            let mut sealed = out.clone();
            seal(seen.flow, 0, &mut sealed);
            if sealed != out {
                continue;
            }
            // Its ICRC is right: then something else is wrong.
            let same_headers = out[0] == seen.opcode()
                && out[1] & 15 == 0
                && out[2..4] == [0xFF, 0xFF]
                && u24(&out, 5) == 0x1_2345;
            let q_key = has_q_key(out[0]) && out[12..16] != [0; 4];
            let far = is_reliable(out[0]) && (1 << 21..0xE0_0000).contains(&u24(&out, 9));
            assert!(!same_headers || q_key || far, "{kind:?} {out:x?}");
        }
    }

    #[test]
    fn no_stranger_knows_the_key_of_a_datagram_queue_pair() {
        let (mut mixer, traffic) = (Mixer::new(4), Traffic::default());
        let (seen, mut keyed) = (seen(0x64), 0);
        for _ in 0..50_000 {
            let who = (Kind::draw(&mut mixer.rng, Origin::Stranger), Origin::Stranger);
            let mut out = vec![0; 60];
            mixer.fill(who, (&seen, &traffic), (seen.flow, 0), &mut out);
            let mut sealed = out.clone();
            seal(seen.flow, 0, &mut sealed);
            if sealed == out && has_q_key(out[0]) && u24(&out, 5) > 1 {
                assert_ne!(out[12..16], [0; 4], "{who:?}");
                keyed += 1;
            }
        }
        assert!(keyed > 10_000, "{keyed}");
    }

    #[test]
    fn the_same_seed_makes_the_same_flood() {
        let made = |seed| {
            let (mut mixer, traffic) = (Mixer::new(seed), Traffic::default());
            let mut all = Vec::new();
            for _ in 0..500 {
                let seen = seen(0x0A);
                let kind = Kind::draw(&mut mixer.rng, Origin::Stranger);
                let size = mixer.size(&seen);
                let mut out = vec![0; size];
                let who = (kind, Origin::Stranger);
                mixer.fill(who, (&seen, &traffic), (seen.flow, 0), &mut out);
                all.push(out);
            }
            all
        };
        assert!(made(5) == made(5));
        assert!(made(5) != made(6));
    }
}
