//! The auditor: a passive witness of RDMA traffic. Captured bytes go in, conversations and numbered
//! findings come out: what is wrong, where, on whose side, with the frames that show it and what to
//! do about it.
//!
//! The way of a frame: [`capture`] takes a [`record::Record`] out of a file, [`peel`] takes links,
//! tags, tunnels and trains off it and leaves [`event::Event`]s, one for each packet, its ICRC
//! judged; an [`Auditor`] hands each event to its judges in the order of the capture. The judges
//! write [`finding::Findings`]. Nothing here opens a file, looks at a clock or starts a thread: a
//! driver does, and may read, peel and judge on different ones.
//!
//! The rules of the transport are written anew here, on the wire formats alone, so that they judge
//! crocevia's own NIC too.
#![forbid(unsafe_code)]

pub mod auditor;
pub mod capture;
pub mod connect;
pub mod event;
pub mod fabric;
pub mod finding;
pub mod integrity;
pub mod limits;
pub mod peel;
pub mod record;
pub mod report;
pub mod rule;
pub mod series;
pub mod talk;

pub use auditor::{Auditor, Options};
pub use event::{Event, What};
pub use finding::{Finding, Findings, Side, Subject};
pub use record::{At, Point, Record, Time};
pub use report::Report;
pub use rule::{Rule, Severity};
