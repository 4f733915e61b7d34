//! Paths: DSCP by direction and on the way, RoCE versions, UDP source ports, TTL.

use crate::event::{Event, Packet};
use crate::finding::Findings;
use crate::talk::{HalfId, Talks};

/// What is remembered of a half.
#[derive(Debug, Default)]
pub struct State {}

/// Watches the network layer of each flow.
#[derive(Debug, Default)]
pub struct Judge {}

impl Judge {
    /// A packet of a half.
    pub fn packet(
        &mut self,
        _event: &Event,
        _packet: &Packet,
        _half: HalfId,
        _talks: &mut Talks,
        _findings: &mut Findings,
    ) {
    }

    /// The end of the captures.
    pub fn finish(&mut self, _talks: &mut Talks, _findings: &mut Findings) {}
}
