//! The device: object tables, and the doors through which application and driver come in.

use std::sync::Arc;

use wire::{Encapsulation, Gid, Instant, Mtu, Packet, Qpn, RKey, Span};

use crate::attr::{AttrMask, QpAttr, QpCap, QpInit};
use crate::counters::Counters;
use crate::cq::{Cq, CqId, Moderation};
use crate::error::{PostError, Result};
use crate::event::Event;
use crate::memory::{HostMemory, MrId, MwId, Payload, PdId, RegionAttr, RegionKeys, WindowType};
use crate::srq::{SrqAttr, SrqId};
use crate::train::{Priorities, Train, TrainLimits};
use crate::work::{RecvRequest, SendRequest};

/// One entry of the GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// RoCE v1 or v2.
    pub encapsulation: Encapsulation,
}

/// What a device is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceConfig {
    /// Source of every number that must not be guessed.
    pub seed: [u8; 32],
    /// Upper eight bits of every queue pair number.
    pub slot: u8,
    /// GID table of the port; index = GID index.
    pub gids: Vec<GidEntry>,
    /// Active MTU of the port.
    pub mtu: Mtu,
    /// Bytes of receive buffer behind the port, as the kernel counts them (`SO_RCVBUF` read back):
    /// the bound of what may be in flight towards a peer and of READ responses asked for.
    pub receive_buffer: u64,
    /// How long an owed ACK may wait for company.
    pub ack_delay: Span,
    /// Send real end-to-end credits in ACKs of queue pairs without a shared receive queue.
    pub credits: bool,
}

/// State of the port's link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkState {
    /// Packets pass.
    Up,
    /// None do.
    Down,
}

/// The NIC as a value. Four kinds of method: getters; what an application does (`create_*`,
/// `post_*` …); what happens to the device (`receive`, `handle_*`); and `poll_*`, which hands out
/// what it has to say. After any call of the first three kinds, drain in this order:
/// [`poll_transmit`](Self::poll_transmit) until it gives nothing, [`poll_event`](Self::poll_event)
/// until `None`, then sleep until [`poll_timeout`](Self::poll_timeout) at most and call
/// [`handle_timeout`](Self::handle_timeout).
pub struct Device<M> {
    memory: M,
    counters: Counters,
}

#[allow(unused_variables)]
impl<M: HostMemory> Device<M> {
    /// A device with an active port.
    pub fn new(config: DeviceConfig, memory: M) -> Self {
        Self { memory, counters: Counters::default() }
    }
    /// The host memory.
    pub fn memory(&mut self) -> &mut M {
        &mut self.memory
    }
    /// A protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId> {
        no()
    }
    /// Frees a protection domain; `Busy` while something is in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<()> {
        no()
    }
    /// Registers memory.
    pub fn reg_mr(&mut self, attr: &RegionAttr) -> Result<RegionKeys> {
        no()
    }
    /// Changes a registration in place; `None` keeps what was. New keys are drawn.
    pub fn rereg_mr(
        &mut self,
        mr: MrId,
        pd: Option<PdId>,
        place: Option<(u64, u64, u64)>,
        access: Option<crate::work::Access>,
    ) -> Result<RegionKeys> {
        no()
    }
    /// Ends a registration; `Busy` while windows are bound to it.
    pub fn dereg_mr(&mut self, mr: MrId) -> Result<()> {
        no()
    }
    /// A memory window, unbound.
    pub fn alloc_mw(&mut self, pd: PdId, kind: WindowType) -> Result<(MwId, RKey)> {
        no()
    }
    /// Frees a window, bound or not.
    pub fn dealloc_mw(&mut self, mw: MwId) -> Result<()> {
        no()
    }
    /// The current key of a window.
    pub fn mw_rkey(&self, mw: MwId) -> Result<RKey> {
        no()
    }
    /// A fresh key for the next bind of a type 1 window.
    pub fn next_mw_rkey(&mut self, mw: MwId) -> Result<RKey> {
        no()
    }
    /// A completion queue of at least `capacity` entries.
    pub fn create_cq(&mut self, capacity: u32) -> Result<(CqId, Arc<Cq>)> {
        no()
    }
    /// Changes a queue's capacity.
    pub fn resize_cq(&mut self, cq: CqId, capacity: u32) -> Result<()> {
        no()
    }
    /// Sets event moderation.
    pub fn modify_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<()> {
        no()
    }
    /// Destroys a queue; `Busy` while a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<()> {
        no()
    }
    /// A shared receive queue.
    pub fn create_srq(&mut self, pd: PdId, attr: &SrqAttr) -> Result<SrqId> {
        no()
    }
    /// Changes the limit (`Some` arms it) or the size of a shared receive queue.
    pub fn modify_srq(
        &mut self,
        srq: SrqId,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<()> {
        no()
    }
    /// Attributes of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Result<SrqAttr> {
        no()
    }
    /// Destroys a shared receive queue; `Busy` while a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<()> {
        no()
    }
    /// Appends to a shared receive queue.
    pub fn post_srq_recv(
        &mut self,
        srq: SrqId,
        wr: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        Err(PostError::NoQueuePair)
    }
    /// A queue pair in RESET, with the sizes granted.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<(Qpn, QpCap)> {
        no()
    }
    /// Moves a queue pair's state and attributes, by the state table of the transport rules.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qp: Qpn,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<()> {
        no()
    }
    /// A queue pair's attributes and what it was made of.
    pub fn query_qp(&self, qp: Qpn) -> Result<(QpAttr, QpInit)> {
        no()
    }
    /// Destroys a queue pair. What it owed its peer still leaves.
    pub fn destroy_qp(&mut self, qp: Qpn) -> Result<()> {
        no()
    }
    /// Attaches a datagram queue pair to a multicast group.
    pub fn attach_mcast(&mut self, qp: Qpn, group: Gid) -> Result<()> {
        no()
    }
    /// Detaches it.
    pub fn detach_mcast(&mut self, qp: Qpn, group: Gid) -> Result<()> {
        no()
    }
    /// Appends a send request. The driver is to call `poll_transmit` soon.
    pub fn post_send(
        &mut self,
        now: Instant,
        qp: Qpn,
        wr: &SendRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        Err(PostError::NoQueuePair)
    }
    /// Appends a receive request.
    pub fn post_recv(
        &mut self,
        now: Instant,
        qp: Qpn,
        wr: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        Err(PostError::NoQueuePair)
    }
    /// Takes a packet from the link. It never transmits; what is owed is noted.
    pub fn receive(&mut self, now: Instant, packet: &Packet<Payload<'_>>) {}
    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {}
    /// A priority may not transmit before `until`.
    pub fn handle_pause(&mut self, priority: u8, until: Instant) {}
    /// The link went up or down.
    pub fn handle_link(&mut self, state: LinkState) {}
    /// The GID table changed; index = GID index. Raises `GID_CHANGE`.
    pub fn handle_gids(&mut self, gids: Vec<GidEntry>) {}
    /// What is owed leaves at the next `poll_transmit`, without waiting for company.
    pub fn hasten(&mut self) {}
    /// Fills `train` with the next packets to send; false, and an empty train, if there are none now.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        limits: TrainLimits,
        allowed: Priorities,
        train: &mut Train,
    ) -> bool {
        train.clear();
        false
    }
    /// When `handle_timeout` or `poll_transmit` has to be called next, if nothing else happens.
    pub fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        None
    }
    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    /// Counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// GID table.
    pub fn gids(&self) -> &[GidEntry] {
        &[]
    }
    /// Active MTU of the port.
    pub fn mtu(&self) -> Mtu {
        Mtu::B4096
    }
}

fn no<T>() -> Result<T> {
    Err(crate::error::Error::new(crate::error::ErrorKind::Unsupported, "not yet"))
}
