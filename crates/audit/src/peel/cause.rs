//! What explains a wrong ICRC: which field the sender counted as it stands, and other ways to
//! compute it wrongly that were seen. CRC is linear, so that the differences which single fields
//! make add up to that of any set of them.

use crc32fast::Hasher;

use super::transport::Carrier;
use crate::event::{IcrcCause, WrongIcrc};

/// A field that the ICRC counts as ones: its name, and the bits of bytes that it takes.
type Field = (&'static str, &'static [(usize, u8)]);

/// Such a field in a packet: its name, and the bits of bytes from the first one covered.
type Place = (&'static str, [(usize, u8); 3]);

const IPV4: [Field; 3] =
    [("TOS", &[(1, 0xFF)]), ("TTL", &[(8, 0xFF)]), ("IP checksum", &[(10, 0xFF), (11, 0xFF)])];
const IPV6: [Field; 3] = [
    ("traffic class", &[(0, 0x0F), (1, 0xF0)]),
    ("flow label", &[(1, 0x0F), (2, 0xFF), (3, 0xFF)]),
    ("hop limit", &[(7, 0xFF)]),
];
const UDP: Field = ("UDP checksum", &[(6, 0xFF), (7, 0xFF)]);
const BTH: Field = ("fifth BTH byte", &[(4, 0xFF)]);
const LRH: Field = ("virtual lane", &[(0, 0xF0)]);

/// What stands for the LRH of a packet that has none.
const NO_LRH: [u8; 8] = [0xFF; 8];
/// The most bytes before a BTH: the bytes for the LRH, an IPv4 header with all options, UDP.
const MOST: usize = 8 + 60 + 8;

/// What the ICRC covers up to the BTH's end, as it stands and with what may change as ones.
struct Head {
    plain: [u8; MOST + 12],
    masked: [u8; MOST + 12],
    len: usize,
    /// Names and places of what may change.
    fields: [Option<Place>; 6],
}

impl Head {
    fn new(carrier: &Carrier<'_>, bth: &[u8]) -> Self {
        let (none, head) = ([0; MOST + 12], [0; MOST + 12]);
        let mut made = Self { plain: none, masked: head, len: 0, fields: [None; 6] };
        match carrier {
            Carrier::Udp { ip, udp } => {
                made.add(&NO_LRH, &[]);
                let is_ipv4 = ip.first().is_some_and(|first| first >> 4 == 4);
                made.add(&ip[..ip.len().min(60)], if is_ipv4 { &IPV4 } else { &IPV6 });
                made.add(*udp, &[UDP]);
            }
            Carrier::Grh { grh } => {
                made.add(&NO_LRH, &[]);
                made.add(*grh, &IPV6);
            }
            Carrier::Lrh { lrh } => made.add(*lrh, &[LRH]),
        }
        made.add(bth, &[BTH]);
        made
    }

    fn add(&mut self, bytes: &[u8], fields: &[Field]) {
        let (start, end) = (self.len, self.len + bytes.len());
        self.plain[start..end].copy_from_slice(bytes);
        self.masked[start..end].copy_from_slice(bytes);
        for (name, bits) in fields {
            let mut places = [(0, 0); 3];
            for ((at, mask), place) in bits.iter().zip(&mut places) {
                if let Some(byte) = self.masked[start..end].get_mut(*at) {
                    *byte |= mask;
                    *place = (start + at, *mask);
                }
            }
            if let Some(free) = self.fields.iter_mut().find(|field| field.is_none()) {
                *free = Some((name, places));
            }
        }
        self.len = end;
    }

    fn crc(&self, head: &[u8], rest: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&head[..self.len]);
        hasher.update(rest);
        hasher.finalize()
    }
}

/// Looks for what the sender did instead of the right thing. `body` is from the BTH through the
/// pad.
pub(super) fn explain(carrier: &Carrier<'_>, body: &[u8], stored: u32, right: u32) -> WrongIcrc {
    let difference = right ^ stored;
    let cause = if stored == 0 {
        IcrcCause::Zero
    } else if stored.swap_bytes() == right {
        IcrcCause::ByteOrder
    } else {
        search(carrier, body, difference, right)
    };
    WrongIcrc { difference, cause }
}

fn search(carrier: &Carrier<'_>, body: &[u8], difference: u32, right: u32) -> IcrcCause {
    let (bth, rest) = body.split_at(body.len().min(12));
    let head = Head::new(carrier, bth);
    if !matches!(carrier, Carrier::Lrh { .. }) {
        let mut hasher = Hasher::new();
        hasher.update(&head.masked[NO_LRH.len()..head.len]);
        hasher.update(rest);
        if hasher.finalize() ^ right == difference {
            return IcrcCause::NoLrhBytes;
        }
    }
    let mut effects = [("", 0); 6];
    let mut many = 0;
    for (name, places) in head.fields.iter().flatten() {
        let mut unmasked = head.masked;
        for (at, mask) in places {
            unmasked[*at] = unmasked[*at] & !mask | head.plain[*at] & mask;
        }
        let effect = head.crc(&unmasked, rest) ^ right;
        if effect != 0 {
            effects[many] = (name, effect);
            many += 1;
        }
    }
    let effects = &effects[..many];
    let sum = |set: usize| {
        let taken = effects.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
        taken.fold(0, |sum, (_, (_, effect))| sum ^ effect)
    };
    let found = (1..1usize << many).filter(|set| sum(*set) == difference);
    match found.min_by_key(|set| set.count_ones()) {
        None => IcrcCause::Unknown,
        Some(set) if set.count_ones() == 1 => {
            IcrcCause::Unmasked(effects[set.trailing_zeros() as usize].0)
        }
        Some(_) => IcrcCause::Unmasked("several fields"),
    }
}
