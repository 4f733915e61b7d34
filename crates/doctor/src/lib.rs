//! The doctor: what is misconfigured on a RoCE host, by the rules of RoCE practice. A [`Source`]
//! gives files and tools' output, [`Host::gather`] makes facts of them, [`judge`] findings of the
//! facts, [`Report`] text and JSON of the findings. No file is opened and no tool run here.
//!
//! # The contract
//!
//! * **Evidence**: a finding names the values that it rests on and where they were seen. What was
//!   not read is a remark, never a finding; what a host has no use for is not judged.
//! * **Any bytes**: files may be missing, truncated, enormous or nonsense. That is remarked, with
//!   the file, what was found and what was expected; it never panics, and all is bounded.
//! * **Two readings** give growth: counters are then judged by what happened in between, not by
//!   what was counted since the host started.
#![forbid(unsafe_code)]

mod catalogue;
mod finding;
mod host;
pub mod limits;
mod parse;
mod reader;
mod report;
mod rules;
mod source;
mod tree;

pub use catalogue::{Rule, Severity};
pub use finding::{Evidence, Finding};
pub use host::{
    Asked, Counters, Cpus, Device, Ecn, Gid, Growth, Headroom, Host, Interface, Irq, Pcie, Port,
    Process, Qos, RoceVersion, Sockets, growth,
};
pub use parse::cpus::CpuSet;
pub use parse::ethtool::{LinkModes, Pause};
pub use parse::lldptool::Neighbour;
pub use parse::mlnx_qos::{DcbxMode, Trust, Tsa};
pub use reader::{Note, Seen};
pub use report::Report;
pub use rules::{Samples, judge};
pub use source::{Source, Unread, command_file, is_name};
pub use tree::{NOT_READ, Recorder, Tree, reasons};
