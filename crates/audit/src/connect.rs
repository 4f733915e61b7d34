//! Connections: the connection manager's datagrams joined to handshakes, and those to
//! conversations.

use crate::event::{Event, Packet};
use crate::finding::Findings;
use crate::report::Connection;
use crate::talk::Talks;

/// Watches handshakes.
#[derive(Debug, Default)]
pub struct Judge {}

impl Judge {
    /// A packet; only management datagrams matter.
    pub fn packet(
        &mut self,
        _event: &Event,
        _packet: &Packet,
        _talks: &mut Talks,
        _findings: &mut Findings,
    ) {
    }

    /// The end of the captures.
    pub fn finish(&mut self, _findings: &mut Findings) {}

    /// The connections.
    pub fn report(&self) -> Vec<Connection> {
        Vec::new()
    }
}
