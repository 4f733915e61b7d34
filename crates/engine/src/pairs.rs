//! Control calls for queue pairs, multicast attachment, and the posting of work.

use wire::{Gid, Instant, Qpn, SrqNum};

use crate::attr::{AttrMask, QpAttr, QpCap, QpInit, QpState, QpType};
use crate::departed::Memory;
use crate::device::Device;
use crate::error::{Error, ErrorKind, PostError, Result};
use crate::event::{AsyncEvent, Event};
use crate::limits;
use crate::memory::HostMemory;
use crate::objects::{full, no_such};
use crate::qp::QueuePair;
use crate::train::{Train, TrainLimits};
use crate::work::{RecvRequest, SendRequest};
use crate::xrc::is_silent;

impl<M: HostMemory> Device<M> {
    /// A queue pair in RESET, with the sizes granted.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<(Qpn, QpCap)> {
        let mut init = *init;
        check_cap(&mut init)?;
        if init.qp_type == QpType::XrcRecv {
            return Err(Error::invalid("a receiving XRC queue pair is created in an XRC domain"));
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
        self.shared.regions.use_pd(init.pd, 1)?;
        match self.insert_qp(&init) {
            Ok(qpn) => {
                self.use_queues(&init, 1);
                Ok((qpn, init.cap))
            }
            Err(error) => self.shared.regions.use_pd(init.pd, -1).and(Err(error)),
        }
    }

    /// [`create_qp`](Self::create_qp) with a number that the caller has chosen: where both ends of
    /// a connection are made by one plan, as in a simulation. It must be free and not reserved.
    pub fn create_qp_numbered(&mut self, init: &QpInit, number: Qpn) -> Result<(Qpn, QpCap)> {
        let n = number.get();
        if n <= 1 || n == 0xFF_FFFF || self.by_qpn.contains_key(&n) || self.departed.contains(n) {
            return Err(Error::invalid(format!("queue pair number {n:#x}: reserved or in use")));
        }
        self.numbered = Some(number);
        let created = self.create_qp(init);
        self.numbered = None;
        created
    }

    /// Gives a queue pair a number and a place.
    pub(crate) fn insert_qp(&mut self, init: &QpInit) -> Result<Qpn> {
        if self.qps.len() >= limits::MAX_QP as usize {
            return Err(full("queue pairs", limits::MAX_QP));
        }
        let qpn = self.draw_qpn(init.qp_type)?;
        // The index goes into the facts: insert first, then build with the index known.
        let index = self.qps.insert(QueuePair::new(0, qpn, init, self.mtu));
        if let Some(qp) = self.qps.get_mut(index) {
            qp.facts.index = index;
        }
        self.shared.begin_tally(index);
        self.by_qpn.insert(qpn.get(), index);
        Ok(qpn)
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

    /// A number that does not follow from earlier ones: a slot above, 16 random bits below.
    fn draw_qpn(&mut self, kind: QpType) -> Result<Qpn> {
        if kind == QpType::Gsi {
            if self.by_qpn.contains_key(&Qpn::GSI.get()) {
                return Err(Error::new(ErrorKind::Busy, "QP1 is in use already"));
            }
            return Ok(Qpn::GSI);
        }
        if let Some(number) = self.numbered.take() {
            return Ok(number);
        }
        let high = u32::from(self.slots.get(self.turn).copied().unwrap_or(0)) << 16;
        self.turn = (self.turn + 1) % self.slots.len().max(1);
        let (taken, departed) = (&self.by_qpn, &self.departed);
        let low = self.keys.draw_until(|n| {
            let low = n & 0xFFFF;
            let qpn = high | low;
            let free = !taken.contains_key(&qpn) && !departed.contains(qpn);
            qpn > 1 && qpn != 0xFF_FFFF && free
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
        let (from, memory) = (qp.facts.state, Memory::of(qp));
        let result = qp.modify(&mut self.shared, now, self.mtu, attr, mask);
        match qp.facts.state {
            to if to == from => {}
            QpState::Err => self.departed.remember(memory),
            QpState::Rtr => self.departed.connects(&qp.facts),
            _ => {}
        }
        self.touched(index, now);
        result
    }

    /// A queue pair's attributes and what it was made of.
    pub fn query_qp(&self, qp: Qpn) -> Result<(QpAttr, QpInit)> {
        let found = self.by_qpn.get(&qp.get()).and_then(|&i| self.qps.get(i));
        found.map(|qp| (qp.attr, qp.init)).ok_or_else(|| no_such("queue pair"))
    }

    /// Destroys a queue pair. What it owed its peer still leaves; its completions stay in the
    /// queues.
    pub fn destroy_qp(&mut self, qp: Qpn) -> Result<()> {
        if self.closes_xrc_receiver(qp) {
            return Ok(());
        }
        let index = self.index(qp)?;
        let Some(mut pair) = self.qps.remove(index) else { return Err(no_such("queue pair")) };
        self.departed.remember(Memory::of(&pair));
        pair.responder.owed.abandon();
        let mut train = Train::default();
        pair.facts.state = QpState::Err;
        self.sched.remove(index);
        if self.link() == crate::device::LinkState::Up
            && pair.transmit(&mut self.shared, Instant::ZERO, TrainLimits::SINGLE, &mut train)
        {
            self.farewells.push_back(train);
        }
        pair.leave_peer(&mut self.shared);
        self.shared.end_tally(index);
        self.by_qpn.remove(&qp.get());
        self.use_queues(&pair.init, -1);
        self.groups.retain(|_, members| {
            members.retain(|m| *m != qp);
            !members.is_empty()
        });
        self.shared.events.retain(|e| !concerns(e, qp));
        match pair.xrc.domain {
            Some(xrcd) => self.use_xrcd(xrcd, -1),
            None => self.shared.regions.use_pd(pair.init.pd, -1),
        }
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
        let known = self.groups.len();
        match self.groups.get_mut(&group) {
            Some(members) if members.contains(&qp) => {}
            Some(members) if members.len() >= limits::MAX_MEMBERS as usize => {
                return Err(full("queue pairs in a multicast group", limits::MAX_MEMBERS));
            }
            Some(members) => members.push(qp),
            None if known >= limits::MAX_GROUPS as usize => {
                return Err(full("multicast groups", limits::MAX_GROUPS));
            }
            None => drop(self.groups.insert(group, vec![qp])),
        }
        Ok(())
    }

    /// Detaches it.
    pub fn detach_mcast(&mut self, qp: Qpn, group: Gid) -> Result<()> {
        let members = self.groups.get_mut(&group);
        let place = members.as_ref().and_then(|list| list.iter().position(|m| *m == qp));
        let (Some(members), Some(place)) = (members, place) else {
            return Err(Error::invalid(format!("the queue pair is not in the group {group}")));
        };
        members.remove(place);
        if members.is_empty() {
            self.groups.remove(&group);
        }
        Ok(())
    }

    /// Whether this queue pair is attached to the multicast group.
    pub fn is_member(&self, qp: Qpn, group: Gid) -> bool {
        self.groups.get(&group).is_some_and(|members| members.contains(&qp))
    }

    /// Whether a queue pair is attached to the multicast group.
    pub fn has_group(&self, group: Gid) -> bool {
        self.groups.contains_key(&group)
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
        self.post_send_for(now, qp, wr, None)
    }

    /// The same, for a shared receive queue of the peer's if the service wants that.
    pub(crate) fn post_send_for(
        &mut self,
        now: Instant,
        qp: Qpn,
        wr: &SendRequest<'_>,
        srq: Option<SrqNum>,
    ) -> std::result::Result<(), PostError> {
        let index = *self.by_qpn.get(&qp.get()).ok_or(PostError::NoQueuePair)?;
        let qp = self.qps.get_mut(index).ok_or(PostError::NoQueuePair)?;
        if is_silent(qp.facts.state) {
            return Err(PostError::State(qp.facts.state));
        }
        if srq.is_some() != (qp.facts.kind == QpType::XrcSend) {
            return Err(PostError::Destination);
        }
        if let Some(d) = &wr.datagram
            && crate::qp::path_of(&self.shared.gids, &d.av).is_none()
        {
            return Err(PostError::GidIndex);
        }
        qp.requester.queue.post(&qp.facts, wr, srq)?;
        qp.flush_posted(&mut self.shared, now);
        self.touched(index, now);
        Ok(())
    }

    /// Send requests that still fit: for callers that post several or none.
    pub fn send_room(&self, qp: Qpn) -> usize {
        let qp = self.by_qpn.get(&qp.get()).and_then(|&index| self.qps.get(index));
        qp.map_or(0, |qp| qp.requester.queue.room())
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
}

fn concerns(event: &Event, qp: Qpn) -> bool {
    use AsyncEvent::*;
    matches!(event, Event::Async(
        CommEst(n) | SqDrained(n) | QpFatal(n) | QpReqErr(n) | QpAccessErr(n) | QpLastWqeReached(n)
    ) if *n == qp)
}

fn check_cap(init: &mut QpInit) -> Result<()> {
    let cap = &mut init.cap;
    if init.srq.is_some() || init.qp_type == QpType::XrcSend {
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
    if init.srq.is_some() && matches!(init.qp_type, QpType::Gsi | QpType::XrcSend) {
        return Err(Error::invalid("this queue pair takes no shared receive queue"));
    }
    Ok(())
}
