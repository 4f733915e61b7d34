//! Telling what a process's NICs have counted, to whoever may know: `stat/server` answers in each
//! process with an open NIC, `stat/client` asks all of them, `stat/text` is what they say.
//!
//! Each NIC has an abstract socket, one network namespace's, whose name tells user, process and
//! device: `crocevia/stat/UID/PID/DEVICE/N`. The asker sends one line, [`Want`]; the answer is
//! lines that begin with [`HELLO`] and end with [`END`], or one line, [`DENIED`] or [`BUSY`].
//! Processes of one user answer each other, and root.

mod client;
mod server;
mod text;

use std::time::Duration;

use engine::{Counters, Objects, QpReport};

use crate::counters::LinkCounters;
use crate::info::DeviceInfo;

pub use client::{Query, Silence, Silent, Stats, query};
pub(crate) use server::{Guard, serve};
pub use text::{DeviceStat, QpStat};

/// How the names of all sockets begin.
const PREFIX: &str = "crocevia/stat/";
/// First line of an answer, with the version of its form.
const HELLO: &str = "crocevia-stat 1";
/// Last line of an answer.
const END: &str = "end";
/// The answer to another user.
const DENIED: &str = "denied";
/// The answer while too many others ask: to be asked again soon.
const BUSY: &str = "busy";
/// Longest request.
const LONGEST_REQUEST: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Want {
    /// The device.
    Device,
    /// The device and its queue pairs.
    Qps,
}

impl Want {
    fn line(self) -> String {
        let what = match self {
            Self::Device => "device",
            Self::Qps => "qps",
        };
        format!("{HELLO} {what}\n")
    }

    /// The request that a line is, its end taken off.
    fn parse(line: &[u8]) -> Option<Self> {
        let is = |want: &Self| want.line().trim_end().as_bytes() == line;
        [Self::Device, Self::Qps].into_iter().find(is)
    }
}

/// A device as it stands.
pub(crate) struct Snapshot {
    pub(crate) uptime: Duration,
    pub(crate) objects: Objects,
    pub(crate) counters: Counters,
    pub(crate) link: LinkCounters,
}

/// A NIC that can be watched. Every call holds its device for some microseconds.
pub(crate) trait Watched: Send + Sync {
    /// What it was made of.
    fn info(&self) -> &DeviceInfo;

    /// What it has counted; `None` in a child of a fork.
    fn snapshot(&self) -> Option<Snapshot>;

    /// Some of its queue pairs, as [`engine::Device::report_qps`].
    fn report_qps(&self, from: u32, out: &mut Vec<QpReport>) -> Option<u32>;
}

#[cfg(test)]
mod tests;
