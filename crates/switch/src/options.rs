//! What may be set beside a configuration, with defaults that leave everything off. Whether it can
//! work is for `validate`.

use wire::Span;

use crate::config::{Alpha, SwitchConfig};
use crate::dcbx::exchange::Wishes;
use crate::switch::PortId;

/// Further properties of a switch.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Pauses never expire and are not refreshed: only a resume ends one (as in the HPCC
    /// simulator). Both for what the switch sends and for what it obeys.
    pub endless_pauses: bool,
    /// In place of the buffer's alpha at single ports, by index; missing or none: the buffer's.
    pub port_alpha: Vec<Option<Alpha>>,
    /// How long a learned address is kept without a sign of it.
    pub ageing: Span,
    /// VLANs of each port, by index; empty: all ports are one broadcast domain and tags are
    /// carried unchanged.
    pub vlans: Vec<PortVlans>,
    /// A lossless packet that is routed to a neighbour whose MAC is behind no known port (an
    /// incomplete ARP entry) is dropped; otherwise it is flooded like any other.
    pub drop_incomplete: bool,
    /// What each port tells its neighbour by DCBX, by index; missing or none: DCBX is off there.
    /// What is agreed takes the place of the configured turns and classes, and of PFC where a
    /// priority has limits.
    pub dcbx: Vec<Option<Wishes>>,
    /// Looks for queues that a neighbour stops for ever.
    pub watchdog: Option<Watchdog>,
    /// Copies of what leaves at ports.
    pub mirrors: Vec<Mirror>,
}

/// The VLANs of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortVlans {
    /// The VLAN of frames without a tag (or with VLAN 0 in it), which leave without one; none: such
    /// frames may not come in.
    pub untagged: Option<u16>,
    /// VLANs whose frames come and leave with a tag.
    pub tagged: Vec<u16>,
}

/// Copies of the frames that leave at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// Whose frames.
    pub of: PortId,
    /// Where the copies go, in queue 0.
    pub to: PortId,
}

/// A PFC watchdog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// How often it looks.
    pub poll: Span,
    /// So long a queue has to be stopped, with frames and without sending one.
    pub detection: Span,
    /// So long no pause has to come until the storm is over.
    pub restoration: Span,
    /// What happens meanwhile.
    pub action: StormAction,
}

/// What a watchdog does in a storm of pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StormAction {
    /// The queue's frames are dropped, and what comes in by the port at the priority.
    Drop,
    /// Pauses are ignored.
    Forward,
    /// It is told of.
    Alert,
}

impl Watchdog {
    /// The defaults of SONiC.
    pub const SONIC: Self = Self {
        poll: Span::from_ms(200),
        detection: Span::from_ms(200),
        restoration: Span::from_ms(200),
        action: StormAction::Drop,
    };
    /// As deployed by Microsoft (RDMA over Commodity Ethernet at Scale, section 4.3): a port gives
    /// up losslessness after 100 ms of pauses, until 200 ms have passed without one.
    pub const MICROSOFT: Self = Self {
        poll: Span::from_ms(10),
        detection: Span::from_ms(100),
        restoration: Span::from_ms(200),
        action: StormAction::Drop,
    };
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endless_pauses: false,
            port_alpha: Vec::new(),
            ageing: SwitchConfig::AGEING,
            vlans: Vec::new(),
            drop_incomplete: false,
            dcbx: Vec::new(),
            watchdog: None,
            mirrors: Vec::new(),
        }
    }
}
