//! Which priority a frame has. Which queue a priority uses is the port's.

use crate::config::{SwitchConfig, Trust};
use crate::frame::Header;

/// Maps from headers to priorities, cut to 0..=7 once.
#[derive(Debug)]
pub(crate) struct Classifier {
    trust: Trust,
    dscp: [u8; 64],
}

impl Classifier {
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        Self { trust: config.trust, dscp: config.dscp_map.map(|p| p & 7) }
    }

    /// The priority of a frame.
    pub(crate) fn priority(&self, header: &Header) -> u8 {
        let tagged = header.tag.map_or(0, |(_, pcp)| pcp & 7);
        match (self.trust, &header.net) {
            (Trust::Dscp, Some(net)) => self.dscp[usize::from(net.traffic_class >> 2)],
            _ => tagged,
        }
    }
}
