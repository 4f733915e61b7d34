//! RDMA verbs in safe Rust, on a software RoCE NIC that needs no hardware, no kernel module and no
//! privilege. What lives here is the API and its guide; the NIC is `engine`, its links are `live`.
//!
//! # What RDMA is
//!
//! Remote direct memory access moves data between the memories of two programs without either
//! operating system on the path. A program *registers* memory with its network adapter, *posts*
//! work requests to it, and *polls* completions from it; the adapters do the rest: they cut
//! messages into packets, acknowledge, retry, and place every byte where it belongs. The peer's
//! program need not even be awake when its memory is read or written.
//!
//! RoCE (RDMA over converged Ethernet) carries this in UDP packets to port 4791. This crate speaks
//! the same packets as hardware adapters and as the Linux kernel's software RoCE; here the adapter
//! is a part of your program.
//!
//! # A first program
//!
//! Both ends are in one program here, on two loopback addresses; [`Endpoint`] is what two programs
//! would tell each other.
//!
//! ```
//! use crocevia::{
//!     Access, ConnectOptions, Context, Qp, QpOptions, SendData, SendFlags, SendOp, SendRequest,
//!     WcStatus,
//! };
//!
//! // An open device, a protection domain, a completion queue, a queue pair: once for each end.
//! let (here, there) = (Context::open_addr("127.0.70.1")?, Context::open_addr("127.0.70.2")?);
//! let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
//! let (cq, peer_cq) = (here.create_cq(16, None)?, there.create_cq(16, None)?);
//! let qp = pd.create_qp(&QpOptions::rc(&cq))?;
//! let peer_qp = peer_pd.create_qp(&QpOptions::rc(&peer_cq))?;
//! Qp::pair(&qp, &peer_qp, &ConnectOptions::default())?;
//!
//! // Memory: the peer's may be written from afar.
//! let mine = pd.alloc(4096, Access::empty())?;
//! let theirs = peer_pd.alloc(4096, Access::REMOTE_WRITE)?;
//!
//! // WRITE five bytes into the peer's memory. Its program does nothing for that.
//! mine.region().write(0, b"hello");
//! qp.post_send(&SendRequest {
//!     wr_id: 1,
//!     op: SendOp::Write(theirs.remote(100)),
//!     flags: SendFlags::SIGNALED,
//!     data: SendData::Sges(&[mine.sge(0..5)]),
//!     datagram: None,
//! })?;
//! let completion = cq.wait(None).expect("without a timeout it waits for ever");
//! assert_eq!((completion.wr_id, completion.status), (1, WcStatus::Success));
//!
//! let mut seen = [0; 5];
//! theirs.region().read(100, &mut seen);
//! assert_eq!(&seen, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The objects
//!
//! | object | what it is |
//! | --- | --- |
//! | [`Context`] | an open device; everything else is made from it |
//! | [`Pd`] | a protection domain: queue pairs reach only regions of their own domain |
//! | [`Mr`] | a memory region: what the device may touch, with a local and a remote key |
//! | [`Mw`] | a memory window: a revocable remote key over a part of a region |
//! | [`Cq`] | a completion queue: where finished work is reported |
//! | [`CompChannel`] | a descriptor to sleep on for completion queues |
//! | [`Qp`] | a queue pair: a send queue and a receive queue, one end of a connection |
//! | [`Srq`] | a shared receive queue for many queue pairs |
//! | [`Ah`] | an address handle: a destination of datagrams |
//!
//! Objects hold what they are made from: a queue pair keeps its domain and its queues alive, in
//! whatever order the variables are dropped. `destroy` ends an object early and says why not if
//! something still uses it ([`ErrorKind::Busy`], the object comes back in the error).
//!
//! # The life of a queue pair
//!
//! A queue pair begins in RESET. In INIT receives can be posted; in RTR (ready to receive) it
//! answers its peer; in RTS (ready to send) it also sends. An error moves it to ERR, where
//! everything that is posted comes back as [`WcStatus::WrFlushErr`]. [`Qp::connect`] does the steps
//! of a connection, [`Qp::activate_datagram`] those of datagrams, and [`Qp::modify`] each step by
//! itself.
//!
//! Connecting sends nothing. The ends tell each other their [`Endpoint`]s by any means (a TCP
//! connection, a file), then each connects. A peer that has not connected yet drops what comes; a
//! reliable connection tries again, but it is quicker to agree on "ready" first, as the examples
//! do.
//!
//! Services: *RC*, the reliable connection, has every operation, in order, exactly once, or an
//! error. *UC* has SENDs and WRITEs, and loses messages with the packets it loses. *UD* has
//! datagrams up to the path MTU to any peer, and multicast.
//!
//! # One-sided and two-sided
//!
//! | operation | what the peer's program does | where the bytes go |
//! | --- | --- | --- |
//! | [`SendOp::Send`] and its kin | posts a receive, gets a completion | into that receive |
//! | [`SendOp::Write`] | nothing | where this side says |
//! | [`SendOp::WriteImm`] | posts a receive, gets a completion | where this side says |
//! | [`SendOp::Read`] | nothing | from there to here |
//! | [`SendOp::CompareSwap`], [`SendOp::FetchAdd`] | nothing | the old 8 bytes come here |
//!
//! One-sided operations need two permissions: the region's rights and key ([`Mr::remote`] is what
//! the peer has to be told), and the queue pair's ([`ConnectOptions::access`]).
//!
//! # Completions
//!
//! A request's buffers belong to the device from posting to completion (inline data are copied at
//! once). Send requests complete in the order they were posted. A request without
//! [`SendFlags::SIGNALED`] gives no completion of its own unless it fails, and its place in the
//! send queue is free again when a later one has completed: so signal at least one in every queue's
//! length. Receives always complete.
//!
//! A completion queue must be large enough for everything outstanding that leads to it. When it
//! overflows, nothing is lost unnoticed: [`AsyncEvent::CqErr`] is raised and its queue pairs fail.
//!
//! There are four ways to wait: [`Cq::poll`] (never sleeps: the shortest delay), [`Cq::wait`]
//! (polls a little, then sleeps), [`Cq::next`] (a future, for any executor), and [`CompChannel`] (a
//! descriptor, for event loops).
//!
//! # Memory ordering
//!
//! On one reliable connection requests are executed at the peer in the order of posting: a WRITE of
//! data and then a WRITE of a flag let nobody see the flag without the data. The bytes of a message
//! become visible in ascending order, the last one last, with release ordering: a program may spin
//! on it with [`Region::load_u8`], an acquire. Exceptions: a request posted after a READ or an
//! atomic may be executed before its data are *here*, so a request that needs them takes
//! [`SendFlags::FENCE`]; and nothing is ordered between connections but by completions. Aligned
//! 8-byte words are never torn; atomics are atomic against the host's processors too.
//!
//! Registered memory may change under a program's feet, so [`Region`] copies in and out and never
//! lends a reference: that is how this API stays free of data races without `unsafe`.
//!
//! # When the receiver is slow
//!
//! RDMA has no buffering in the middle: a SEND that finds no receive posted is refused with
//! *receiver not ready*. The sender waits as long as the receiver asked
//! ([`ConnectOptions::min_rnr_timer`]) and tries again, [`ConnectOptions::rnr_retry`] times (7: for
//! ever); then the request fails with [`WcStatus::RnrRetryExcErr`]. Programs that want speed do not
//! let it come to that: they post enough receives, and have the peer count (a *credit* for each
//! receive posted again). An [`Srq`] lets many connections share one store of receives, and warns
//! when it runs low.
//!
//! # When it goes wrong
//!
//! A call that is refused gives an [`Error`] or a [`PostError`], whose text says what was expected,
//! what was found, and what to do. Work that fails later gives a completion whose status is not
//! `Success`, and ends the connection:
//!
//! | status | what to look for |
//! | --- | --- |
//! | `LocProtErr`, `LocLenErr` | own keys, ranges and sizes; a receive shorter than the message |
//! | `RemAccessErr` | remote key and range; the rights of region and [`ConnectOptions::access`] |
//! | `RemInvReqErr` | a message longer than the peer's receive; more READs than the peer takes |
//! | `RetryExcErr` | no answer: the peer is not connected, gone, elsewhere; firewall; MTU |
//! | `RnrRetryExcErr` | the peer posts no receives |
//! | `WrFlushErr` | nothing by itself: look at the completion before it |
//!
//! What happens to no request in particular is an [`AsyncEvent`] ([`Context::async_event`]), and
//! everything is counted ([`Context::counters`]).
//!
//! # Why it is safe
//!
//! The device touches memory of live registrations only, and every check is made again for each
//! packet. An [`Mr`] owns its memory; when it is dropped, the registration ends first. (A program
//! that registers memory of its own by [`Region::from_raw`] makes the promise itself, in `unsafe`.)
//!
//! Memory that is not there any more when the device reaches for it is an error of the request.
//! From the first region on the process has a handler of SIGSEGV and SIGBUS, which takes the faults
//! of the device's copies and passes on all others.
//!
//! When a [`Qp`] is dropped, nothing is touched on its behalf any more, though what it owed its
//! peer (an acknowledgement) still leaves. A closed device has sent what it owed and its thread has
//! ended.
#![forbid(unsafe_code)]

mod ah;
mod channel;
mod connect;
mod context;
mod cq;
mod debug;
mod hub;
mod info;
mod mr;
mod mw;
mod notify;
mod pd;
mod qp;
mod sharing;
mod srq;
mod xrc;

pub use engine::faults::FaultPlan;
pub use engine::{
    Access, AddressVector, AsyncEvent, AttrMask, BindWindow, Completion, Counters, CqId, Datagram,
    Error, ErrorKind, GidEntry, Moderation, MrId, MwId, NetworkHeader, PdId, PostError, QpAttr,
    QpCap, QpCounters, QpInit, QpReport, QpState, QpType, RecvRequest, Remote, Result, SendData,
    SendFlags, SendOp, SendRequest, Sge, SrqAttr, SrqId, WcData, WcOpcode, WcStatus, WindowType,
    XrcdId, limits,
};
pub use live::{
    DeviceInfo, FaultNews, LinkCounters, NetDev, Options, Region, SignalKind, flush_all, leave_now,
    sigaction, signal, signals_changed, threads_are_starting, watch_faults,
};
pub use wire::{Encapsulation, Gid, LKey, Mac, Mtu, PKey, Psn, QKey, Qpn, RKey, Span, SrqNum};

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
pub use xrc::Xrcd;
