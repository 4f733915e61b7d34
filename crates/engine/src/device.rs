//! The device: object tables, and the doors through which application and driver come in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::{Encapsulation, Gid, Instant, Mtu, PKey, Packet, Qpn, RKey, Service, Span};

use crate::attr::{AttrMask, QpAttr, QpCap, QpInit, QpState, QpType};
use crate::counters::Counters;
use crate::cq::{Cq, CqId, Moderation};
use crate::error::{Error, ErrorKind, PostError, Result};
use crate::event::{AsyncEvent, Event};
use crate::keys::Keys;
use crate::limits;
use crate::memory::{HostMemory, MrId, MwId, Payload, PdId, RegionAttr, RegionKeys, WindowType};
use crate::qp::QueuePair;
use crate::qp::facts::{CqSlot, Shared};
use crate::regions::Regions;
use crate::sched::{Owner, Scheduler};
use crate::slots::{Lookup, Slots};
use crate::srq::{RecvQueue, Srq, SrqAttr, SrqId};
use crate::train::{Train, TrainLimits};
use crate::window::Windows;
use crate::work::{Access, RecvRequest, SendRequest};

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
///
/// A train must have been copied out of host memory before the next call of `poll_transmit`, which
/// completes what the unreliable services have sent.
#[derive(Debug)]
pub struct Device<M> {
    pub(crate) shared: Shared<M>,
    pub(crate) qps: Slots<QueuePair>,
    pub(crate) by_qpn: Lookup<u32, u32>,
    pub(crate) sched: Scheduler,
    keys: Keys,
    slot: u8,
    mtu: Mtu,
    link: LinkState,
    groups: BTreeMap<Gid, Vec<Qpn>>,
    /// Last words of destroyed queue pairs.
    pub(crate) farewells: VecDeque<Train>,
    /// Queue pairs whose train the driver has: they settle at the next call.
    pub(crate) unsettled: Vec<u32>,
    pub(crate) paused: [Option<Instant>; 8],
    woken: Vec<u32>,
}

impl<M: HostMemory> Device<M> {
    /// A device with an active port.
    pub fn new(config: DeviceConfig, memory: M) -> Self {
        Self {
            shared: Shared {
                memory,
                regions: Regions::new(),
                cqs: Slots::new(),
                srqs: Slots::new(),
                windows: Windows::new(config.receive_buffer),
                counters: Counters::default(),
                events: VecDeque::new(),
                gids: config.gids,
                ack_delay: config.ack_delay,
                credits: config.credits,
                overrun: Vec::new(),
                cq_wakes: Vec::new(),
            },
            qps: Slots::new(),
            by_qpn: Lookup::default(),
            sched: Scheduler::default(),
            keys: Keys::new(config.seed),
            slot: config.slot,
            mtu: config.mtu,
            link: LinkState::Up,
            groups: BTreeMap::new(),
            farewells: VecDeque::new(),
            unsettled: Vec::new(),
            paused: [None; 8],
            woken: Vec::new(),
        }
    }

    /// The host memory.
    pub fn memory(&mut self) -> &mut M {
        &mut self.shared.memory
    }

    /// Counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// GID table.
    pub fn gids(&self) -> &[GidEntry] {
        &self.shared.gids
    }

    /// Active MTU of the port.
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// State of the link.
    pub fn link(&self) -> LinkState {
        self.link
    }

    /// A protection domain.
    pub fn alloc_pd(&mut self) -> Result<PdId> {
        self.shared.regions.alloc_pd()
    }

    /// Frees a protection domain; `Busy` while something is in it.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<()> {
        self.shared.regions.dealloc_pd(pd)
    }

    /// Registers memory.
    pub fn reg_mr(&mut self, attr: &RegionAttr) -> Result<RegionKeys> {
        self.shared.regions.register(attr, &mut self.keys)
    }

    /// Changes a registration in place (`place`: address, length, iova); `None` keeps what was. New
    /// keys are drawn.
    pub fn rereg_mr(
        &mut self,
        mr: MrId,
        pd: Option<PdId>,
        place: Option<(u64, u64, u64)>,
        access: Option<Access>,
    ) -> Result<RegionKeys> {
        self.shared.regions.reregister(mr, pd, place, access, &mut self.keys)
    }

    /// Ends a registration; `Busy` while windows are bound to it.
    pub fn dereg_mr(&mut self, mr: MrId) -> Result<()> {
        self.shared.regions.deregister(mr)
    }

    /// A memory window, unbound.
    pub fn alloc_mw(&mut self, pd: PdId, kind: WindowType) -> Result<(MwId, RKey)> {
        self.shared.regions.alloc_window(pd, kind, &mut self.keys)
    }

    /// Frees a window, bound or not.
    pub fn dealloc_mw(&mut self, mw: MwId) -> Result<()> {
        self.shared.regions.dealloc_window(mw)
    }

    /// The current key of a window.
    pub fn mw_rkey(&self, mw: MwId) -> Result<RKey> {
        self.shared.regions.window_rkey(mw)
    }

    /// A fresh key for the next bind of a type 1 window.
    pub fn next_mw_rkey(&mut self, mw: MwId) -> Result<RKey> {
        self.shared.regions.next_window_rkey(mw)
    }

    /// A completion queue of at least `capacity` entries.
    pub fn create_cq(&mut self, capacity: u32) -> Result<(CqId, Arc<Cq>)> {
        check_cqe(capacity)?;
        if self.shared.cqs.len() >= limits::MAX_CQ as usize {
            return Err(full("completion queues", limits::MAX_CQ));
        }
        let cq = Cq::new(capacity as usize);
        let id = self.shared.cqs.insert(CqSlot { cq: Arc::clone(&cq), users: 0 });
        Ok((CqId(id), cq))
    }

    fn cq(&mut self, cq: CqId) -> Result<&mut CqSlot> {
        self.shared.cqs.get_mut(cq.0).ok_or_else(|| no_such("completion queue"))
    }

    /// Changes a queue's capacity; `Invalid` if more entries are in it.
    pub fn resize_cq(&mut self, cq: CqId, capacity: u32) -> Result<()> {
        check_cqe(capacity)?;
        let cq = &self.cq(cq)?.cq;
        if cq.resize(capacity as usize) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the completion queue holds {} entries, more than {capacity}: poll them first",
            cq.len()
        )))
    }

    /// Sets event moderation.
    pub fn modify_cq(&mut self, cq: CqId, moderation: Moderation) -> Result<()> {
        self.cq(cq)?.cq.set_moderation(moderation);
        Ok(())
    }

    /// Destroys a queue; `Busy` while a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<()> {
        let users = self.cq(cq)?.users;
        if users > 0 {
            return Err(busy("completion queue", users));
        }
        self.shared.cqs.remove(cq.0);
        self.shared
            .events
            .retain(|e| *e != Event::Completion(cq) && *e != Event::Async(AsyncEvent::CqErr(cq)));
        Ok(())
    }

    /// A shared receive queue.
    pub fn create_srq(&mut self, pd: PdId, attr: &SrqAttr) -> Result<SrqId> {
        if attr.max_wr == 0 || attr.max_wr > limits::MAX_SRQ_WR || attr.max_sge > limits::MAX_SGE {
            return Err(Error::invalid(format!(
                "max_wr {} and max_sge {}: 1 to {} and at most {}",
                attr.max_wr,
                attr.max_sge,
                limits::MAX_SRQ_WR,
                limits::MAX_SGE
            )));
        }
        if self.shared.srqs.len() >= limits::MAX_SRQ as usize {
            return Err(full("shared receive queues", limits::MAX_SRQ));
        }
        self.shared.regions.use_pd(pd, 1)?;
        let queue = RecvQueue::new(attr.max_wr, attr.max_sge);
        let attr = SrqAttr { limit: 0, ..*attr };
        Ok(SrqId(self.shared.srqs.insert(Srq { pd, attr, queue, users: 0 })))
    }

    fn srq(&mut self, srq: SrqId) -> Result<&mut Srq> {
        self.shared.srqs.get_mut(srq.0).ok_or_else(|| no_such("shared receive queue"))
    }

    /// Changes the limit (`Some` arms it) or the size of a shared receive queue.
    pub fn modify_srq(
        &mut self,
        srq: SrqId,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<()> {
        let s = self.srq(srq)?;
        let size = max_wr.unwrap_or(s.attr.max_wr);
        let limit_value = limit.unwrap_or(0);
        if size == 0 || size > limits::MAX_SRQ_WR || limit_value > size {
            return Err(Error::invalid(format!(
                "max_wr {size} and limit {limit_value}: 1 to {}, and the limit at most max_wr",
                limits::MAX_SRQ_WR
            )));
        }
        if max_wr.is_some() && !s.queue.resize(size) {
            return Err(Error::invalid(format!(
                "{} requests are posted, more than {size}",
                s.queue.len()
            )));
        }
        s.attr.max_wr = size;
        if limit.is_some() {
            s.attr.limit = limit_value;
            if s.queue.len() < limit_value as usize {
                s.attr.limit = 0;
                self.shared.raise(AsyncEvent::SrqLimitReached(srq));
            }
        }
        Ok(())
    }

    /// Attributes of a shared receive queue.
    pub fn query_srq(&self, srq: SrqId) -> Result<SrqAttr> {
        let found = self.shared.srqs.get(srq.0).map(|s| s.attr);
        found.ok_or_else(|| no_such("shared receive queue"))
    }

    /// Destroys a shared receive queue; `Busy` while a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<()> {
        let s = self.srq(srq)?;
        let (users, pd) = (s.users, s.pd);
        if users > 0 {
            return Err(busy("shared receive queue", users));
        }
        self.shared.srqs.remove(srq.0);
        self.shared.events.retain(|e| *e != Event::Async(AsyncEvent::SrqLimitReached(srq)));
        self.shared.regions.use_pd(pd, -1)
    }

    /// Appends to a shared receive queue.
    pub fn post_srq_recv(
        &mut self,
        srq: SrqId,
        wr: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        self.shared.srqs.get_mut(srq.0).ok_or(PostError::NoQueuePair)?.queue.post(wr)
    }

    /// A queue pair in RESET, with the sizes granted.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<(Qpn, QpCap)> {
        let mut init = *init;
        check_cap(&mut init)?;
        if self.qps.len() >= limits::MAX_QP as usize {
            return Err(full("queue pairs", limits::MAX_QP));
        }
        if let Some(srq) = init.srq
            && matches!(self.srq(srq)?, s if s.pd != init.pd)
        {
            return Err(Error::invalid(
                "the shared receive queue belongs to another protection domain",
            ));
        }
        self.cq(init.send_cq)?;
        self.cq(init.recv_cq)?;
        let qpn = self.draw_qpn(init.qp_type)?;
        self.shared.regions.use_pd(init.pd, 1)?;
        self.use_queues(&init, 1);
        // The index goes into the facts: insert first, then build with the index known.
        let index = self.qps.insert(QueuePair::new(0, qpn, &init, self.mtu));
        if let Some(qp) = self.qps.get_mut(index) {
            qp.facts.index = index;
        }
        self.by_qpn.insert(qpn.get(), index);
        Ok((qpn, init.cap))
    }

    fn use_queues(&mut self, init: &QpInit, change: i32) {
        for cq in [init.send_cq, init.recv_cq] {
            if let Some(slot) = self.shared.cqs.get_mut(cq.0) {
                slot.users = slot.users.saturating_add_signed(change);
            }
        }
        if let Some(srq) = init.srq.and_then(|id| self.shared.srqs.get_mut(id.0)) {
            srq.users = srq.users.saturating_add_signed(change);
        }
    }

    /// A number that does not follow from earlier ones: the slot above, 16 random bits below.
    fn draw_qpn(&mut self, kind: QpType) -> Result<Qpn> {
        if kind == QpType::Gsi {
            if self.by_qpn.contains_key(&Qpn::GSI.get()) {
                return Err(Error::new(ErrorKind::Busy, "QP1 is in use already"));
            }
            return Ok(Qpn::GSI);
        }
        let high = u32::from(self.slot) << 16;
        let taken = &self.by_qpn;
        let low = self.keys.draw_until(|n| {
            let low = n & 0xFFFF;
            (high | low) > 1 && (high | low) != 0xFF_FFFF && !taken.contains_key(&(high | low))
        });
        Ok(Qpn::new(high | (low & 0xFFFF)))
    }

    fn index(&self, qp: Qpn) -> Result<u32> {
        self.by_qpn.get(&qp.get()).copied().ok_or_else(|| no_such("queue pair"))
    }

    /// Moves a queue pair's state and attributes, by the state table of the transport rules.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qp: Qpn,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<()> {
        let index = self.index(qp)?;
        let qp = self.qps.get_mut(index).ok_or_else(|| no_such("queue pair"))?;
        let result = qp.modify(&mut self.shared, now, self.mtu, attr, mask);
        self.touched(index, now);
        result
    }

    /// A queue pair's attributes and what it was made of.
    pub fn query_qp(&self, qp: Qpn) -> Result<(QpAttr, QpInit)> {
        let found = self.by_qpn.get(&qp.get()).and_then(|&i| self.qps.get(i));
        found.map(|qp| (qp.attr, qp.init)).ok_or_else(|| no_such("queue pair"))
    }

    /// Destroys a queue pair. What it owed its peer still leaves; its completions stay in the queues.
    pub fn destroy_qp(&mut self, qp: Qpn) -> Result<()> {
        let index = self.index(qp)?;
        let Some(mut pair) = self.qps.remove(index) else { return Err(no_such("queue pair")) };
        pair.responder.owed.close();
        let mut train = Train::default();
        pair.facts.state = QpState::Err;
        if pair.transmit(&mut self.shared, Instant::ZERO, TrainLimits::SINGLE, &mut train) {
            self.farewells.push_back(train);
        }
        pair.leave_peer(&mut self.shared);
        self.by_qpn.remove(&qp.get());
        self.use_queues(&pair.init, -1);
        for members in self.groups.values_mut() {
            members.retain(|m| *m != qp);
        }
        self.shared.events.retain(|e| !concerns(e, qp));
        self.shared.regions.use_pd(pair.init.pd, -1)
    }

    /// Attaches a datagram queue pair to a multicast group.
    pub fn attach_mcast(&mut self, qp: Qpn, group: Gid) -> Result<()> {
        let (_, init) = self.query_qp(qp)?;
        if init.qp_type != QpType::Ud || !group.is_multicast() {
            return Err(Error::invalid(format!(
                "{group} and a {:?} queue pair: a multicast GID and a Ud queue pair are needed",
                init.qp_type
            )));
        }
        let attached: usize = self.groups.values().map(Vec::len).sum();
        if attached >= limits::MAX_MCAST as usize {
            return Err(full("multicast attachments", limits::MAX_MCAST));
        }
        let members = self.groups.entry(group).or_default();
        if !members.contains(&qp) {
            members.push(qp);
        }
        Ok(())
    }

    /// Detaches it.
    pub fn detach_mcast(&mut self, qp: Qpn, group: Gid) -> Result<()> {
        let members = self.groups.entry(group).or_default();
        let before = members.len();
        members.retain(|m| *m != qp);
        let detached = members.len() < before;
        if members.is_empty() {
            self.groups.remove(&group);
        }
        if detached { Ok(()) } else { Err(Error::invalid("the queue pair is not in the group")) }
    }

    /// Multicast groups with a queue pair attached, in order.
    pub fn groups(&self) -> impl Iterator<Item = Gid> + '_ {
        self.groups.keys().copied()
    }

    /// Checks an address vector as address handles and queue pairs need it.
    pub fn check_av(&self, av: &crate::work::AddressVector) -> Result<()> {
        crate::qp::modify::check_av(&self.shared, av)
    }

    /// Appends a send request. The driver is to call `poll_transmit` soon.
    pub fn post_send(
        &mut self,
        now: Instant,
        qp: Qpn,
        wr: &SendRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        let index = *self.by_qpn.get(&qp.get()).ok_or(PostError::NoQueuePair)?;
        let qp = self.qps.get_mut(index).ok_or(PostError::NoQueuePair)?;
        if matches!(qp.facts.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::State(qp.facts.state));
        }
        if let Some(d) = &wr.datagram
            && crate::qp::path_of(&self.shared.gids, &d.av).is_none()
        {
            return Err(PostError::GidIndex);
        }
        qp.requester.queue.post(&qp.facts, wr)?;
        qp.flush_posted(&mut self.shared, now);
        self.touched(index, now);
        Ok(())
    }

    /// Appends a receive request.
    pub fn post_recv(
        &mut self,
        now: Instant,
        qp: Qpn,
        wr: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        let index = *self.by_qpn.get(&qp.get()).ok_or(PostError::NoQueuePair)?;
        let qp = self.qps.get_mut(index).ok_or(PostError::NoQueuePair)?;
        if qp.facts.state == QpState::Reset {
            return Err(PostError::State(QpState::Reset));
        }
        if qp.init.srq.is_some() {
            return Err(PostError::SharedReceive);
        }
        qp.recv.post(wr)?;
        if qp.facts.state == QpState::Err {
            qp.flush_posted(&mut self.shared, now);
            self.touched(index, now);
        }
        Ok(())
    }

    /// Takes a packet from the link. It never transmits; what is owed is noted.
    pub fn receive(&mut self, now: Instant, packet: &Packet<Payload<'_>>) {
        let counters = &mut self.shared.counters;
        counters.rx_packets += 1;
        if packet.path.traffic_class & 3 == 3 {
            counters.np_ecn_marked_roce_packets += 1;
        }
        if packet.bth.dest_qp == Qpn::MULTICAST {
            let members = self.groups.get(&packet.path.destination).cloned().unwrap_or_default();
            for qp in members {
                self.deliver(now, qp, packet);
            }
            return;
        }
        self.deliver(now, packet.bth.dest_qp, packet);
    }

    fn deliver(&mut self, now: Instant, qpn: Qpn, packet: &Packet<Payload<'_>>) {
        let counters = &mut self.shared.counters;
        let index = self.by_qpn.get(&qpn.get()).copied();
        let Some((index, qp)) = index.and_then(|i| Some((i, self.qps.get_mut(i)?))) else {
            counters.rx_unknown_qp += 1;
            return;
        };
        let q = &qp.facts;
        if packet.bth.opcode.service() == Some(Service::Cnp) {
            counters.rp_cnp_ignored += 1;
            return;
        }
        let Some(operation) = packet.bth.opcode.operation() else {
            counters.rx_wrong_opcode += 1;
            return;
        };
        if packet.bth.opcode.service() != Some(q.service()) {
            counters.rx_wrong_opcode += 1;
            return;
        }
        if let Some(path) = &q.path {
            let from_peer =
                packet.path.source == path.destination && packet.path.destination == path.source;
            if !from_peer {
                counters.rx_wrong_address += 1;
                return;
            }
        }
        if matches!(q.state, QpState::Reset | QpState::Init | QpState::Err) {
            counters.rx_wrong_state += 1;
            return;
        }
        if !packet.bth.pkey.matches(PKey::DEFAULT) {
            counters.rx_wrong_pkey += 1;
            return;
        }
        qp.receive(&mut self.shared, now, operation, packet);
        self.touched(index, now);
    }

    /// After any change: the queue pair takes its place in rotation and timers; what the call set off
    /// elsewhere is followed up.
    pub(crate) fn touched(&mut self, index: u32, now: Instant) {
        self.schedule(index);
        if self.shared.windows.has_woken() {
            let mut woken = std::mem::take(&mut self.woken);
            self.shared.windows.take_woken(&mut woken);
            for qp in woken.drain(..) {
                self.schedule(qp);
            }
            self.woken = woken;
        }
        while let Some((cq, at)) = self.shared.cq_wakes.pop() {
            self.sched.wake_at(Owner::Cq(cq), at);
        }
        if !self.shared.overrun.is_empty() {
            self.fail_overrun(now);
        }
    }

    /// A queue has overrun: its queue pairs fail.
    fn fail_overrun(&mut self, now: Instant) {
        while let Some(cq) = self.shared.overrun.pop() {
            for (_, qp) in self.qps.iter_mut() {
                let uses = qp.init.send_cq == cq || qp.init.recv_cq == cq;
                if uses && !matches!(qp.facts.state, QpState::Err | QpState::Reset) {
                    let qpn = qp.facts.qpn;
                    qp.fail(&mut self.shared, now, None);
                    self.shared.raise(AsyncEvent::QpFatal(qpn));
                }
            }
            // The flushes may have overrun the same queue again; that changes nothing.
            self.shared.overrun.retain(|again| *again != cq);
        }
    }

    fn schedule(&mut self, index: u32) {
        let Some(qp) = self.qps.get_mut(index) else { return };
        if !qp.ready {
            qp.ready = true;
            self.sched.push(index);
        }
        self.arm(index);
    }

    /// Puts the queue pair's earliest deadline into the heap, unless an earlier one stands there.
    pub(crate) fn arm(&mut self, index: u32) {
        let Some(qp) = self.qps.get_mut(index) else { return };
        let Some(at) = qp.deadline() else { return };
        if qp.wake.is_none_or(|wake| at.is_before(wake)) {
            qp.wake = Some(at);
            self.sched.wake_at(Owner::Qp(index), at);
        }
    }

    /// A priority may not transmit before `until`; an `until` in the past resumes it.
    pub fn handle_pause(&mut self, priority: u8, until: Instant) {
        if let Some(slot) = self.paused.get_mut(usize::from(priority)) {
            *slot = Some(until);
        }
    }

    /// The link went up or down.
    pub fn handle_link(&mut self, state: LinkState) {
        if self.link != state {
            self.link = state;
            self.shared.raise(match state {
                LinkState::Up => AsyncEvent::PortActive,
                LinkState::Down => AsyncEvent::PortErr,
            });
        }
    }

    /// The GID table changed; index = GID index. Raises `GID_CHANGE`.
    pub fn handle_gids(&mut self, gids: Vec<GidEntry>) {
        if self.shared.gids != gids {
            self.shared.gids = gids;
            self.shared.raise(AsyncEvent::GidChange);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }
}

fn concerns(event: &Event, qp: Qpn) -> bool {
    use AsyncEvent::*;
    matches!(event, Event::Async(
        CommEst(n) | SqDrained(n) | QpFatal(n) | QpReqErr(n) | QpAccessErr(n) | QpLastWqeReached(n)
    ) if *n == qp)
}

fn check_cqe(capacity: u32) -> Result<()> {
    if (1..=limits::MAX_CQE).contains(&capacity) {
        return Ok(());
    }
    Err(Error::invalid(format!("{capacity} entries asked for: 1 to {}", limits::MAX_CQE)))
}

fn check_cap(init: &mut QpInit) -> Result<()> {
    let cap = &mut init.cap;
    if init.srq.is_some() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let bounds = [
        ("max_send_wr", cap.max_send_wr, limits::MAX_QP_WR),
        ("max_recv_wr", cap.max_recv_wr, limits::MAX_QP_WR),
        ("max_send_sge", cap.max_send_sge, limits::MAX_SGE),
        ("max_recv_sge", cap.max_recv_sge, limits::MAX_SGE),
        ("max_inline_data", cap.max_inline_data, limits::MAX_INLINE),
    ];
    for (name, value, most) in bounds {
        if value > most {
            return Err(Error::invalid(format!("{name} is {value}: at most {most}")));
        }
    }
    if init.srq.is_some() && init.qp_type == QpType::Gsi {
        return Err(Error::invalid("QP1 takes no shared receive queue"));
    }
    Ok(())
}

fn full(what: &str, limit: u32) -> Error {
    Error::new(ErrorKind::Full, format!("the device has all of its {limit} {what} in use"))
}

fn no_such(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("no such {what}"))
}

fn busy(what: &str, users: u32) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{users} queue pair ends still use the {what}: destroy them first"),
    )
}
