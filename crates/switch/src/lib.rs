//! A shared-buffer Ethernet switch as a value: frames go in at a port and come out at others, or
//! do not, for a counted reason. No I/O, no clock, no thread, no randomness of its own: the same
//! switch stands in simulations and in live networks. A frame is classified, finds its way
//! (`switch/path`), asks the buffer for room, which may make the switch owe a pause, and waits in a
//! queue (`switch/store`) until [`Switch::poll_transmit`] picks it.
#![forbid(unsafe_code)]

mod balance;
mod bridge;
mod buffer;
mod classify;
pub mod config;
pub mod counters;
pub mod dcbx;
pub mod ecn;
mod forward;
pub mod frame;
pub mod hash;
mod limits;
pub mod names;
pub mod options;
mod pfc;
mod port;
pub mod profiles;
mod schedule;
pub mod switch;
pub mod thresholds;
mod timers;
mod validate;
mod watchdog;

pub use config::{
    Alpha, Bandwidth, Buffer, EcnAt, EcnProfile, PfcPriority, PortConfig, Scheduling, SwitchConfig,
    Trust,
};
pub use counters::{DropCause, PortCounters, PriorityCounters};
pub use frame::{Content, Frame, Header, Net, Ports};
pub use options::{Mirror, Options, PortVlans, StormAction, Watchdog};
pub use switch::{Balance, NextHop, PortId, Switch, SwitchEvent};
pub use watchdog::StormCounters;
