//! Which priority a frame has, and which queue that priority uses.

use crate::config::{SwitchConfig, Trust};
use crate::frame::Header;

/// Maps from headers to priorities and queues, cut to 0..=7 once.
#[derive(Debug)]
pub(crate) struct Classifier {
    trust: Trust,
    dscp: [u8; 64],
    class: [u8; 8],
}

impl Classifier {
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        Self {
            trust: config.trust,
            dscp: config.dscp_map.map(|p| p & 7),
            class: config.class_of.map(|c| c & 7),
        }
    }

    /// The priority of a frame.
    pub(crate) fn priority(&self, header: &Header) -> u8 {
        let tagged = header.tag.map_or(0, |(_, pcp)| pcp & 7);
        match (self.trust, &header.net) {
            (Trust::Dscp, Some(net)) => self.dscp[usize::from(net.traffic_class >> 2)],
            _ => tagged,
        }
    }

    /// The queue of a priority.
    pub(crate) fn queue(&self, priority: u8) -> u8 {
        self.class[usize::from(priority & 7)]
    }

    /// The queues of a set of priorities, as bits.
    pub(crate) fn queues(&self, priorities: u8) -> u8 {
        let of = |p: u8| (priorities >> p & 1) << self.class[usize::from(p)];
        (0..8).map(of).fold(0, |all, bit| all | bit)
    }
}
