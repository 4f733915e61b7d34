//! The RDMA NIC as a value: no I/O, no clock, no thread, no `unsafe`. See [`Device`].
#![forbid(unsafe_code)]

pub mod attr;
pub mod cc;
pub mod cm;
pub mod counters;
pub mod cq;
mod departed;
pub mod device;
mod drive;
pub mod error;
pub mod event;
pub mod faults;
mod keys;
pub mod limits;
pub mod memory;
mod objects;
mod pairs;
mod pieces;
mod qp;
mod regions;
mod report;
mod sched;
mod slots;
pub mod srq;
mod strike;
pub mod train;
mod window;
pub mod work;
mod xrc;

pub use attr::{AttrMask, QpAttr, QpCap, QpInit, QpState, QpType};
pub use cc::{Congestion, Control, Dcqcn, Notification};
pub use counters::{Counters, QpCounters};
pub use cq::{Cq, CqId, Moderation};
pub use device::{Device, DeviceConfig, GidEntry, LinkState};
pub use error::{Error, ErrorKind, PostError, Result};
pub use event::{AsyncEvent, Event};
pub use faults::{
    Chance, Delivered, Direction, EcnSpec, FaultCounts, FaultItem, FaultKind, FaultPlan, FaultSet,
    FaultSpec, FaultStage, Shot, ShotKind,
};
pub use memory::{
    AtomicOp, HostMemory, MemoryFault, MrId, MwId, Payload, PdId, RegionAttr, RegionKeys,
    WindowType,
};
pub use report::{Objects, QpReport};
pub use srq::{SrqAttr, SrqId};
pub use train::{Fragment, Priorities, Train, TrainLimits, TxPacket};
pub use work::{
    Access, AddressVector, BindWindow, Completion, Datagram, NetworkHeader, RecvRequest, Remote,
    SendData, SendFlags, SendOp, SendRequest, Sge, WcData, WcOpcode, WcStatus,
};
pub use xrc::XrcdId;
