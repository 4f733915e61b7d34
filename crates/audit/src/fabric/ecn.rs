//! The ECN chain: ECT set, CE marked, CNP sent, sender slower.

use crate::event::{Event, Packet};
use crate::finding::Findings;
use crate::talk::{HalfId, Talks};

/// What is remembered of a half.
#[derive(Debug, Default)]
pub struct State {}

/// Watches the chain of each flow.
#[derive(Debug)]
pub struct Judge {
    expected: bool,
}

impl Judge {
    /// With `expected`, ECN is wanted even if nothing in the capture speaks of it.
    pub fn new(expected: bool) -> Self {
        Self { expected }
    }

    /// A packet of a half.
    pub fn packet(
        &mut self,
        _event: &Event,
        _packet: &Packet,
        _half: HalfId,
        _talks: &mut Talks,
        _findings: &mut Findings,
    ) {
        let _ = self.expected;
    }

    /// The end of the captures.
    pub fn finish(&mut self, _talks: &mut Talks, _findings: &mut Findings) {}
}
