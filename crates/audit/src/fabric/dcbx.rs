//! DCBX in LLDP frames: what the two ends of a link announce.

use crate::event::Event;
use crate::finding::Findings;

/// Remembers what each port announces.
#[derive(Debug, Default)]
pub struct Judge {}

impl Judge {
    /// An LLDP frame, its bytes behind the EtherType.
    pub fn lldp(&mut self, _event: &Event, _bytes: &[u8], _findings: &mut Findings) {}

    /// The end of the captures: compares the ends of each link.
    pub fn finish(&mut self, _findings: &mut Findings) {}
}
