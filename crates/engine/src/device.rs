//! The device: object tables, and the doors through which application and driver come in.

use std::collections::{BTreeMap, VecDeque};

use wire::{Encapsulation, Gid, Instant, Mtu, Operation, PKey, Packet, Qpn, Service, Span};

use crate::attr::QpState;
use crate::counters::Counters;
use crate::counters::pair::{Before, count};
use crate::departed::Departed;
use crate::event::{AsyncEvent, Event};
use crate::keys::Keys;
use crate::memory::{HostMemory, Payload};
use crate::qp::QueuePair;
use crate::qp::facts::Shared;
use crate::regions::Regions;
use crate::sched::{Owner, Scheduler};
use crate::slots::{Lookup, Slots};
use crate::train::Train;
use crate::window::Windows;
use crate::xrc::Domain;

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
    /// Upper bytes of queue pair numbers; queue pairs take turns at them. None: 0.
    pub slots: Vec<u8>,
    /// GID table of the port; index = GID index.
    pub gids: Vec<GidEntry>,
    /// Active MTU of the port.
    pub mtu: Mtu,
    /// Bytes of receive buffer behind the port, as the kernel counts them (`SO_RCVBUF` read back):
    /// the bound of what may be in flight towards a peer and of READ responses asked for.
    /// `u64::MAX`: nothing is bounded, as with adapters, which leave it to the network.
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
    pub(crate) keys: Keys,
    pub(crate) slots: Vec<u8>,
    /// Whose turn it is among the slots.
    pub(crate) turn: usize,
    /// The number that the next queue pair is to have.
    pub(crate) numbered: Option<Qpn>,
    pub(crate) mtu: Mtu,
    pub(crate) link: LinkState,
    /// The device has failed: the link stays down.
    pub(crate) fatal: bool,
    pub(crate) groups: BTreeMap<Gid, Vec<Qpn>>,
    /// Last words of destroyed queue pairs.
    pub(crate) farewells: VecDeque<Train>,
    /// Destroyed queue pairs whose peers may not know yet what was executed.
    pub(crate) departed: Departed,
    /// It was their turn last.
    pub(crate) departed_spoke: bool,
    /// Queue pairs whose train the driver has: they settle at the next call.
    pub(crate) unsettled: Vec<u32>,
    /// Whose the last train was.
    pub(crate) spoke: Option<u32>,
    pub(crate) paused: [Option<Instant>; 8],
    pub(crate) xrcds: Slots<Domain>,
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
                tallies: Vec::new(),
                events: VecDeque::new(),
                gids: config.gids,
                ack_delay: config.ack_delay,
                ack_interval: crate::limits::ACK_INTERVAL,
                segment: u32::MAX,
                congestion: crate::cc::Congestion::OFF,
                credits: config.credits,
                patience: crate::qp::probe::Patience::default(),
                flow: false,
                least_timeout: Span::ZERO,
                back_off: false,
                notes: VecDeque::new(),
                gone: crate::qp::flow::Gone::default(),
                overrun: Vec::new(),
                cq_wakes: Vec::new(),
            },
            qps: Slots::new(),
            by_qpn: Lookup::default(),
            sched: Scheduler::default(),
            keys: Keys::new(config.seed),
            slots: config.slots,
            turn: 0,
            numbered: None,
            mtu: config.mtu,
            link: LinkState::Up,
            fatal: false,
            groups: BTreeMap::new(),
            farewells: VecDeque::new(),
            departed: Departed::default(),
            departed_spoke: false,
            unsettled: Vec::new(),
            spoke: None,
            paused: [None; 8],
            xrcds: Slots::new(),
            woken: Vec::new(),
        }
    }

    /// The host memory.
    pub fn memory(&mut self) -> &mut M {
        &mut self.shared.memory
    }

    /// Probes for lost tails after this time at least without a sign of the peer; `None`, as after
    /// creation: only the ACK timeout finds them.
    pub fn set_probe(&mut self, least: Option<Span>) {
        self.shared.patience.least = least;
    }

    /// While nothing tells that packets get lost, a probe waits so long at least, but no longer
    /// than a third of the ACK timeout: an answer is then rather late than lost. As after
    /// creation: no longer than probes do anyway.
    pub fn set_calm(&mut self, span: Span) {
        self.shared.patience.calm = span;
    }

    /// Unreliable services send no more than a peer that takes part can receive (see `qp/flow`), or
    /// as it comes, as after creation.
    pub fn set_flow(&mut self, on: bool) {
        self.shared.flow = on;
    }

    /// Waits at least so long for an acknowledgement, whatever the ACK timeout of a queue pair; as
    /// after creation: no longer than that says.
    pub fn set_least_timeout(&mut self, least: Span) {
        self.shared.least_timeout = least;
    }

    /// ACK timeouts in a row take the configured time, from the fifth on twice and from the seventh
    /// on four times that, the range that the specification allows; as after creation: always once.
    /// So a peer that lacks the processor for a while is not given up.
    pub fn set_back_off(&mut self, on: bool) {
        self.shared.back_off = on;
    }

    /// Congestion control of connections that are made from now on; as after creation: none.
    pub fn set_congestion(&mut self, congestion: crate::cc::Congestion) {
        self.shared.congestion = congestion;
    }

    /// At least every so many packets one asks for an acknowledgement; as after creation:
    /// [`ACK_INTERVAL`](crate::limits::ACK_INTERVAL).
    pub fn set_ack_interval(&mut self, packets: u64) {
        self.shared.ack_interval = packets.max(1);
    }

    /// Full packets of connections made from now on carry so many bytes where the path MTU is more:
    /// for networks that are compared with models whose packets have another size. Not below 1.
    pub fn set_segment(&mut self, bytes: u32) {
        self.shared.segment = bytes.max(1);
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

    /// Takes a packet from the link. It never transmits; what is owed is noted.
    pub fn receive(&mut self, now: Instant, packet: &Packet<Payload<'_>>) {
        let counters = &mut self.shared.counters;
        counters.rx_packets += 1;
        if packet.path.traffic_class & 3 == 3 {
            counters.np_ecn_marked_roce_packets += 1;
        }
        if packet.bth.dest_qp == Qpn::MULTICAST {
            self.receive_multicast(now, packet);
        } else {
            self.hand_to(now, packet.bth.dest_qp, packet);
        }
        debug_assert!(self.shared.counters.is_balanced(), "a packet that was counted not once");
    }

    /// Delivers a packet; the bytes of it that are not placed count as dropped.
    fn hand_to(&mut self, now: Instant, qpn: Qpn, packet: &Packet<Payload<'_>>) {
        let &Counters { rx_bytes: before, rp_cnp_handled: obeyed, .. } = &self.shared.counters;
        self.deliver(now, qpn, packet);
        let counters = &mut self.shared.counters;
        if counters.rp_cnp_handled > obeyed {
            // Its reserved bytes are nobody's.
            return;
        }
        counters.rx_dropped_bytes += packet.payload.len() as u64 + before - counters.rx_bytes;
    }

    /// Every member of the group gets it; the others do not know of it.
    fn receive_multicast(&mut self, now: Instant, packet: &Packet<Payload<'_>>) {
        let group = packet.path.destination;
        let mut members = 0;
        while let Some(&qp) = self.groups.get(&group).and_then(|list| list.get(members)) {
            self.shared.counters.rx_multicast_copies += u64::from(members > 0);
            members += 1;
            self.hand_to(now, qp, packet);
        }
        if members == 0 {
            self.shared.counters.rx_unknown_qp += 1;
            self.shared.counters.rx_dropped_bytes += packet.payload.len() as u64;
        }
    }

    fn deliver(&mut self, now: Instant, qpn: Qpn, packet: &Packet<Payload<'_>>) {
        let index = self.by_qpn.get(&qpn.get()).copied();
        let Some((index, qp)) = index.and_then(|i| Some((i, self.qps.get_mut(i)?))) else {
            return self.receive_departed(now, packet, None);
        };
        let sh = &mut self.shared;
        let q = &qp.facts;
        if packet.bth.opcode.service() == Some(Service::Cnp) {
            if !qp.is_of(packet) || !qp.notified(sh, now) {
                return count!(sh, index, rp_cnp_ignored);
            }
            count!(sh, index, rp_cnp_handled);
            sh.counters.rx_accepted += 1;
            return self.touched(index, now);
        }
        let Some(operation) = packet.bth.opcode.operation() else {
            return count!(sh, index, rx_wrong_opcode);
        };
        // FLUSH and ATOMIC WRITE are not offered.
        let offered = !matches!(operation, Operation::Flush | Operation::AtomicWrite);
        let service = packet.bth.opcode.service();
        let flow = service == Some(Service::Flow);
        if !offered || !(flow || service == Some(q.service())) {
            return count!(sh, index, rx_wrong_opcode);
        }
        if let Some(path) = &q.path {
            let from_peer =
                packet.path.source == path.destination && packet.path.destination == path.source;
            if !from_peer {
                return count!(sh, index, rx_wrong_address);
            }
        }
        if matches!(q.state, QpState::Reset | QpState::Init | QpState::Err) {
            return self.receive_departed(now, packet, Some(index));
        }
        if !packet.bth.pkey.matches(PKey::DEFAULT) {
            return count!(sh, index, rx_wrong_pkey);
        }
        if packet.path.traffic_class & 3 == 3
            && let Some(tally) = sh.tallies.get_mut(index as usize)
        {
            tally.exceptions().np_ecn_marked_roce_packets += 1;
            qp.marked(sh, now, packet);
        }
        sh.counters.came(operation, packet.payload.len());
        if flow {
            qp.receive_flow(sh, now, packet);
        } else {
            let before = Before::of(&sh.counters);
            qp.receive(sh, now, operation, packet);
            sh.book_received(index, before);
        }
        self.touched(index, now);
    }

    /// After any change: the queue pair takes its place in rotation and timers; what the call set
    /// off elsewhere is followed up.
    pub(crate) fn touched(&mut self, index: u32, now: Instant) {
        self.schedule(index);
        self.follow_up(now);
    }

    /// Wakes whom a call has given room, notes moderation periods, fails the users of a queue that
    /// has overrun.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        if self.shared.windows.has_woken() {
            let mut woken = std::mem::take(&mut self.woken);
            self.shared.windows.take_woken(&mut woken);
            for qp in woken.drain(..) {
                self.schedule(qp);
            }
            self.woken = woken;
        }
        while let Some((cq, at)) = self.shared.cq_wakes.pop() {
            self.wake_at(Owner::Cq(cq), at);
        }
        if !self.shared.overrun.is_empty() {
            self.fail_overrun(now);
        }
    }

    /// A queue has overrun: its queue pairs fail.
    fn fail_overrun(&mut self, now: Instant) {
        while let Some(cq) = self.shared.overrun.pop() {
            for index in 0..self.qps.bound() {
                let Some(qp) = self.qps.get_mut(index) else { continue };
                let uses = qp.init.send_cq == cq || qp.facts.recv_cq == cq;
                if uses && !matches!(qp.facts.state, QpState::Err | QpState::Reset) {
                    let qpn = qp.facts.qpn;
                    qp.fail(&mut self.shared, now, None);
                    self.shared.raise(AsyncEvent::QpFatal(qpn));
                    self.schedule(index);
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
            // The later one stands in the heap and serves when the earlier one has fired.
            qp.wake_later = match (qp.wake, qp.wake_later) {
                (Some(a), Some(b)) => Some(a.earlier(b)),
                (a, b) => a.or(b),
            };
            qp.wake = Some(at);
            self.wake_at(Owner::Qp(index), at);
        }
    }

    /// Puts a wake-up into the heap, which holds a few for each object at most: those that nobody
    /// waits for any more are taken out when there are too many.
    fn wake_at(&mut self, owner: Owner, at: Instant) {
        self.sched.wake_at(owner, at);
        let departed = self.departed.len() as u32;
        let objects = self.qps.bound() + self.shared.cqs.bound() + departed;
        if self.sched.wakes_len() <= 32 + 4 * objects as usize {
            return;
        }
        let (qps, cqs, departed) = (&self.qps, &self.shared.cqs, &self.departed);
        self.sched.prune(|owner, at| match owner {
            Owner::Qp(index) => {
                qps.get(index).is_some_and(|qp| qp.wake == Some(at) || qp.wake_later == Some(at))
            }
            Owner::Cq(index) => cqs.get(index).is_some_and(|s| s.cq.period_ends() == Some(at)),
            Owner::Departed(qpn) => departed.awaits(qpn, at),
        });
    }

    /// A priority may not transmit before `until`; an `until` in the past resumes it.
    pub fn handle_pause(&mut self, priority: u8, until: Instant) {
        if let Some(slot) = self.paused.get_mut(usize::from(priority)) {
            *slot = Some(until);
        }
    }

    /// The link went up or down.
    pub fn handle_link(&mut self, state: LinkState) {
        if self.link != state && !self.fatal {
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
