//! Damaged packets as the cause of what looks like a loss: their receiver drops them, so that they
//! are sent again. R010 tells of them; here their PSNs wait to explain the repetition.

use super::Talks;
use super::lane::Lane;
use super::op::{self, Op};
use crate::event::{Event, Packet};
use crate::finding::Flow;
use crate::limits;
use crate::record::At;
use crate::rule::Rule;

impl Talks {
    /// A packet that its receiver drops, as its ICRC is wrong. What its headers say may be damaged
    /// itself, so that it makes no half.
    pub fn damaged(&mut self, event: &Event, packet: &Packet) {
        let (source, destination) = (packet.path.source, packet.path.destination);
        let flow = Flow { source, destination, qp: packet.bth.dest_qp.get() };
        let Some(id) = self.find(packet.path.encapsulation, flow) else { return };
        let half = self.get(id);
        let asked = match op::read(packet.bth.opcode.0) {
            Op::Request(..) => Some(id),
            _ => half.peer,
        };
        if let Some(asked) = asked.filter(|_| half.is_home(event)) {
            let damaged = &mut self.get_mut(asked).lane.damaged;
            if damaged.len() == limits::DAMAGED {
                damaged.remove(0);
            }
            damaged.push(packet.bth.psn.get());
        }
    }
}

impl Lane {
    /// How many of some PSNs that seem lost came damaged; each counts once.
    pub(super) fn damaged_within(&mut self, from: u64, to: u64, at: At) -> u64 {
        let mut found = 0;
        self.damaged.retain(|&psn| {
            let ahead = u64::from(psn).wrapping_sub(from) & 0xFF_FFFF;
            let within = ahead < to - from && found < to - from;
            found += u64::from(within);
            !within
        });
        if found > 0 {
            self.befell(Rule::BadIcrc, at);
        }
        found
    }
}
