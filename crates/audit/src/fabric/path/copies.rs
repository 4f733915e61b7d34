//! The same packet at several points of capture: whether DSCP or ECN changed between them. A table
//! of bounded size holds the last packets of all flows as their first point showed them.

use wire::Encapsulation;

use crate::event::{Event, Packet};
use crate::finding::{Findings, Flow, Instance, Side, Subject};
use crate::limits;
use crate::record::At;
use crate::rule::Rule;

const NOT_ECT: u8 = 0;
const CE: u8 = 3;

/// A packet as its first point showed it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    flow: Flow,
    psn: u32,
    len: u32,
    ident: u16,
    opcode: u8,
    class: u8,
    hop_limit: u8,
    at: At,
}

/// The packets seen last.
#[derive(Debug)]
pub(super) struct Copies {
    table: Vec<Option<Seen>>,
}

impl Default for Copies {
    fn default() -> Self {
        Self { table: vec![None; limits::COPIES] }
    }
}

impl Copies {
    /// A packet: at the first point of its half (`home`) it is kept, elsewhere compared.
    pub(super) fn packet(
        &mut self,
        event: &Event,
        packet: &Packet,
        home: bool,
        flow: Flow,
        findings: &mut Findings,
    ) {
        let seen = Seen {
            flow,
            psn: packet.bth.psn.get(),
            len: packet.payload_len,
            ident: packet.path.ident,
            opcode: packet.bth.opcode.0,
            class: packet.path.traffic_class,
            hop_limit: packet.path.hop_limit,
            at: event.at,
        };
        let Some(place) = self.table.get_mut(seen.place()) else { return };
        if home {
            *place = Some(seen);
        } else if let Some(first) = place
            && first.class != seen.class
            && first.is_same(&seen)
            && packet.path.encapsulation != Encapsulation::Infiniband
        {
            compare(first, &seen, findings);
        }
    }
}

impl Seen {
    /// Where it is kept: a later packet with the same place takes it over.
    fn place(&self) -> usize {
        let low = u64::from(self.psn) | u64::from(self.ident) << 24 | u64::from(self.flow.qp) << 40;
        let mixed = (low ^ u64::from(self.opcode) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 40) as usize % limits::COPIES
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.psn, self.len, self.ident, self.opcode)
            == (other.psn, other.len, other.ident, other.opcode)
            && self.flow == other.flow
    }
}

/// Judges a packet that was seen with two traffic classes.
fn compare(first: &Seen, other: &Seen, findings: &mut Findings) {
    // One file has one clock. Of two files the clocks may differ, but routers lower the TTL.
    let (before, behind, known) = match first.hop_limit.cmp(&other.hop_limit) {
        core::cmp::Ordering::Less => (other, first, true),
        core::cmp::Ordering::Greater => (first, other, true),
        core::cmp::Ordering::Equal => (first, other, first.at.file == other.at.file),
    };
    let at = [behind.at, before.at];
    let instance = |rule| {
        let (subject, side) = (Subject::Flow(first.flow), Side::Network);
        Instance { rule, subject, side, at: &at, numbers: &[] }
    };
    let (a, b) = (before.at, behind.at);
    let further = if known { ", further on the way" } else { " of the same packet" };
    let (was, is) = (before.class >> 2, behind.class >> 2);
    if was != is {
        findings.add(instance(Rule::DscpChanged), || {
            format!("DSCP {was} in frame {a}, {is} in frame {b}{further}")
        });
    }
    let (was, is) = (before.class & 3, behind.class & 3);
    let mark = is == CE && was != NOT_ECT;
    let mark_reversed = !known && was == CE && is != NOT_ECT;
    if was != is && !mark && !mark_reversed {
        let (was, is) = (word(was), word(is));
        findings.add(instance(Rule::EcnErased), || {
            format!("{was} in frame {a}, {is} in frame {b}{further}")
        });
    }
}

/// The ECN field in words.
const fn word(ecn: u8) -> &'static str {
    match ecn & 3 {
        0 => "not ECT",
        1 => "ECT(1)",
        2 => "ECT(0)",
        _ => "CE",
    }
}
