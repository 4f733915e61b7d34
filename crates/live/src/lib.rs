//! The RDMA NIC on this machine: links, clock, threads, process memory. What the device does is in
//! `engine`, what bytes mean in `wire`; here is everything that touches the operating system.
//!
//! [`devices`] lists what can be opened, [`Nic::open`] opens it, [`Nic::with`] reaches the device
//! inside, [`Nic::progress`] is what a poller of completion queues calls.

mod capture;
mod clock;
mod counters;
mod epoll;
mod eventfd;
mod faultlog;
mod icrc;
mod info;
#[allow(unsafe_code)] // The application's memory.
mod mem;
#[allow(unsafe_code)] // System calls.
mod mmsg;
#[allow(unsafe_code)] // System calls.
mod netdev;
mod nic;
mod options;
#[allow(unsafe_code)] // System calls.
mod packet;
#[allow(unsafe_code)] // Values that live as long as the process.
mod process;
#[allow(unsafe_code)] // System calls.
mod rights;
mod stat;
#[allow(unsafe_code)] // System calls.
mod sys;
mod timerfd;
mod udp;

#[cfg(test)]
#[allow(unsafe_code)] // System calls.
mod testing;

pub use capture::prepare as prepare_capture;
pub use counters::LinkCounters;
pub use eventfd::EventFd;
pub use faultlog::{FaultNews, watch_faults};
pub use info::{DeviceInfo, devices};
pub use mem::{ProcessMemory, Region, SignalKind, sigaction, signal, signals_changed};
pub use netdev::{NetDev, netdevs};
pub use nic::{EventSink, Nic, flush_all, leave_now};
pub use options::Options;
pub use packet::{Frame, FrameLink, PacketError, PacketSocket};
pub use stat::{DeviceStat, QpStat, Query, Silence, Silent, Stats, query};
pub use sys::threads_are_starting;
