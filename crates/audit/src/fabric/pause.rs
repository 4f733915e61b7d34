//! Pauses: PFC and 802.3x, who pauses whom, how long, and whether it has an effect.

use wire::mac_control::MacControl;

use crate::event::{Event, Packet};
use crate::finding::Findings;
use crate::report::LinkReport;
use crate::talk::Talks;

/// Watches pauses, and the traffic that they should stop.
#[derive(Debug, Default)]
pub struct Judge {}

impl Judge {
    /// A pause frame.
    pub fn pause(&mut self, _event: &Event, _control: &MacControl, _findings: &mut Findings) {}

    /// Traffic.
    pub fn packet(&mut self, _event: &Event, _packet: &Packet, _findings: &mut Findings) {}

    /// The end of the captures.
    pub fn finish(&mut self, _talks: &Talks, _findings: &mut Findings) {}

    /// The links.
    pub fn report(&self) -> Vec<LinkReport> {
        Vec::new()
    }
}
