//! A shared-buffer Ethernet switch as a value: frames go in at a port and come out at others, or do
//! not, for a counted reason. No I/O, no clock, no thread, no randomness of its own. The same switch
//! stands in simulations and, later, in live networks. See [`Switch`].
//!
//! The way of a frame: [`Switch::receive`] classifies it (`classify`), finds where it goes
//! (`forward`, `hash`), asks the buffer for room (`buffer`), which may make it owe a pause (`pfc`),
//! marks it (`ecn`) and puts it into the queue of its egress port and priority (`port`).
//! [`Switch::poll_transmit`] picks a queue (`schedule`) and releases the buffer.
#![forbid(unsafe_code)]

mod balance;
mod bridge;
mod buffer;
mod classify;
pub mod config;
pub mod counters;
pub mod ecn;
mod forward;
pub mod frame;
pub mod hash;
mod limits;
pub mod options;
mod pfc;
mod port;
mod schedule;
pub mod switch;
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
