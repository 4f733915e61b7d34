//! RDMA verbs in safe Rust, on a software RoCE NIC.
#![forbid(unsafe_code)]

mod ah;
mod channel;
mod connect;
mod context;
mod cq;
mod hub;
mod info;
mod mr;
mod mw;
mod notify;
mod pd;
mod qp;
mod srq;

pub use engine::{
    Access, AddressVector, AsyncEvent, AttrMask, BindWindow, Completion, Counters, CqId, Datagram,
    Error, ErrorKind, GidEntry, Moderation, MrId, MwId, PdId, PostError, QpAttr, QpCap, QpInit,
    QpState, QpType, RecvRequest, Remote, Result, SendData, SendFlags, SendOp, SendRequest, Sge,
    SrqAttr, SrqId, WcData, WcOpcode, WcStatus, WindowType, limits,
};
pub use live::{DeviceInfo, NetDev, Options, Region};
pub use wire::{Encapsulation, Gid, LKey, Mac, Mtu, PKey, Psn, QKey, Qpn, RKey, Span};

pub use ah::Ah;
pub use channel::CompChannel;
pub use connect::{ConnectOptions, Endpoint};
pub use context::{Context, devices};
pub use cq::{Cq, NextCompletion};
pub use hub::NextAsyncEvent;
pub use info::{DeviceLimits, PortInfo, PortState};
pub use mr::Mr;
pub use mw::Mw;
pub use pd::Pd;
pub use qp::{Qp, QpOptions, RecvBatch, SendBatch};
pub use srq::Srq;
