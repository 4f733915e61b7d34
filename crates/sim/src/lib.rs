//! The world as a value: hosts whose NIC is the [`engine`], switches, cables with faults,
//! workloads, and one seed; simulated time only. What a queue pair does is the engine's alone, what
//! a switch does the switch's: here are time, cables, programs and records.
//!
//! [`Network`] and [`Plan`] say what there is and what it does; [`World::new`] builds it,
//! [`World::run`] runs it, on any number of threads with the same result, bit for bit.
#![forbid(unsafe_code)]

mod app;
mod cable;
pub mod deadlock;
pub mod draw;
mod event;
mod exchange;
pub mod frame;
mod host;
pub mod hpcc;
mod memory;
pub mod network;
pub mod outcome;
pub mod plan;
pub mod profile;
pub mod routes;
pub mod scenario;
pub mod summary;
mod switching;
pub mod topology;
pub mod units;
mod worker;
pub mod workload;
pub mod world;

pub use frame::{Body, Framing};
pub use network::{Cable, HostSpec, Network, NicSpec, NodeId, Route, SwitchSpec};
pub use outcome::{FlowRecord, Outcome, PauseRecord};
pub use plan::{Connection, Flow, Plan, Verb};
pub use world::{BuildError, Limits, World};
