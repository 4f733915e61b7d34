//! The programs of a host: they open connections, post what flows ask for when its time has come,
//! and note what ends. What a queue pair does with it is the engine's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use engine::{
    Access, AddressVector, AttrMask, Completion, Cq, CqId, Device, PdId, QpAttr, QpCap, QpInit,
    QpState, QpType, RecvRequest, RegionAttr, Remote, SendData, SendFlags, SendOp, SendRequest,
    Sge, WcData, WcOpcode, WcStatus,
};
use hashbrown::HashMap;
use wire::{Gid, Instant, LKey, Mtu, Path, Psn, QKey, Qpn, RKey};

use crate::memory::Lengths;
use crate::outcome::FlowRecord;
use crate::plan::Verb;

/// Where the memory of every host begins, and how many bytes of it are registered.
const MEMORY: (u64, u64) = (1 << 20, 1 << 40);
/// The longest message.
const LONGEST: u64 = 1 << 30;
/// Receive requests that stand ready at a time.
const RECEIVES: u32 = 128;

/// This host's end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) number: Qpn,
    pub(crate) peer: Qpn,
    pub(crate) peer_host: u32,
    pub(crate) av: AddressVector,
    pub(crate) psn: Psn,
    pub(crate) peer_psn: Psn,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) opens: Instant,
    /// UDP ports, where they are not the NIC's.
    pub(crate) ports: Option<(u16, u16)>,
    /// Send requests at a time, and receive requests in all.
    pub(crate) depth: u32,
    pub(crate) receives: u64,
}

/// A flow that this host asks for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) flow: u32,
    /// Index into the ends.
    pub(crate) end: u32,
    pub(crate) verb: Verb,
    pub(crate) bytes: u64,
    pub(crate) message: u64,
    pub(crate) depth: u32,
    /// The peer is told of its end.
    pub(crate) told: bool,
    pub(crate) start: Instant,
    pub(crate) think: wire::Span,
    /// Flows that have to end before.
    pub(crate) waits: u32,
    posted: u64,
    outstanding: u32,
}

impl Asked {
    pub(crate) fn new(flow: u32, end: u32, spec: &crate::plan::Flow, told: bool) -> Self {
        let message = if spec.message == 0 { LONGEST } else { u64::from(spec.message) };
        Self {
            flow,
            end,
            verb: spec.verb,
            bytes: spec.bytes,
            message: message.min(LONGEST),
            depth: spec.depth.max(1),
            told,
            start: spec.start,
            think: spec.think,
            waits: spec.after.len() as u32,
            posted: 0,
            outstanding: 0,
        }
    }
}

/// The programs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) ends: Vec<End>,
    pub(crate) asked: Vec<Asked>,
    /// Who waits for the end of a flow here: indices into `asked`.
    pub(crate) waiting: BTreeMap<u32, Vec<u32>>,
    pub(crate) records: Vec<FlowRecord>,
    /// Flows that have ended at this host as their asker.
    pub(crate) ended: u64,
    opening: BinaryHeap<Reverse<(u64, u32)>>,
    starting: BinaryHeap<Reverse<(u64, u32)>>,
    by_flow: BTreeMap<u32, u32>,
    by_number: BTreeMap<u32, u32>,
    /// UDP ports by the peer's address and queue pair.
    ports: HashMap<(Gid, u32), (u16, u16)>,
    pd: PdId,
    cq: (CqId, Arc<Cq>),
    lkey: LKey,
    pub(crate) rkey: RKey,
    rkeys: Arc<[RKey]>,
    mtu: Mtu,
}

impl App {
    /// A program on a fresh device.
    pub(crate) fn new(device: &mut Device<Lengths>, mtu: Mtu) -> engine::Result<Self> {
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(1 << 16)?;
        cq.1.req_notify(false);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let (addr, length) = MEMORY;
        let keys = device.reg_mr(&RegionAttr { pd, addr, length, iova: addr, access })?;
        Ok(Self {
            ends: Vec::new(),
            asked: Vec::new(),
            waiting: BTreeMap::new(),
            records: Vec::new(),
            ended: 0,
            opening: BinaryHeap::new(),
            starting: BinaryHeap::new(),
            by_flow: BTreeMap::new(),
            by_number: BTreeMap::new(),
            ports: HashMap::new(),
            pd,
            cq,
            lkey: keys.lkey,
            rkey: keys.rkey,
            rkeys: Arc::new([]),
            mtu,
        })
    }

    /// All is known: what opens and starts by itself is put into the agenda.
    pub(crate) fn begin(&mut self, rkeys: Arc<[RKey]>) {
        self.rkeys = rkeys;
        for (index, end) in self.ends.iter().enumerate() {
            self.opening.push(Reverse((end.opens.as_ps(), index as u32)));
            self.by_number.insert(end.number.get(), index as u32);
            if let Some(ports) = end.ports {
                self.ports.insert((end.av.dgid, end.peer.get()), ports);
            }
        }
        for (index, asked) in self.asked.iter().enumerate() {
            self.by_flow.insert(asked.flow, index as u32);
            if asked.waits == 0 {
                self.starting.push(Reverse((asked.start.as_ps(), index as u32)));
            }
        }
    }

    /// The UDP ports of packets to a queue pair, where they are not the NIC's.
    pub(crate) fn ports_to(&self, path: &Path, to: Qpn) -> Option<(u16, u16)> {
        if self.ports.is_empty() {
            return None;
        }
        self.ports.get(&(path.destination, to.get())).copied()
    }

    /// When something opens or starts next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let first = |heap: &BinaryHeap<Reverse<(u64, u32)>>| heap.peek().map(|r| r.0.0);
        let times = [first(&self.opening), first(&self.starting)];
        times.into_iter().flatten().min().map(Instant::from_ps)
    }

    /// Opens and starts what is due.
    pub(crate) fn run(&mut self, device: &mut Device<Lengths>, now: Instant) {
        while let Some(&Reverse((at, index))) = self.opening.peek()
            && at <= now.as_ps()
        {
            self.opening.pop();
            if let Err(error) = self.open(device, now, index) {
                debug_assert!(false, "a connection that was checked before: {error}");
            }
        }
        while let Some(&Reverse((at, index))) = self.starting.peek()
            && at <= now.as_ps()
        {
            self.starting.pop();
            if let Some(asked) = self.asked.get(index as usize) {
                self.records.push(FlowRecord::begun(asked.flow, now));
                self.post(device, now, index);
            }
        }
    }

    fn open(
        &mut self,
        device: &mut Device<Lengths>,
        now: Instant,
        index: u32,
    ) -> engine::Result<()> {
        let Some(end) = self.ends.get(index as usize) else { return Ok(()) };
        let receives = end.receives.min(u64::from(RECEIVES)) as u32;
        let cap = QpCap {
            max_send_wr: end.depth.clamp(1, engine::limits::MAX_QP_WR),
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: self.pd,
            send_cq: self.cq.0,
            recv_cq: self.cq.0,
            srq: None,
            cap,
            sq_sig_all: true,
        };
        device.create_qp_numbered(&init, end.number)?;
        let attr = attributes(end, self.mtu);
        let steps = [
            (QpState::Init, AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS),
            (QpState::Rtr, READY_TO_RECEIVE),
            (QpState::Rts, READY_TO_SEND),
        ];
        for (state, mask) in steps {
            let attr = QpAttr { state, ..attr };
            device.modify_qp(now, end.number, &attr, mask | AttrMask::STATE)?;
        }
        for _ in 0..receives {
            self.receive_one(device, now, index);
        }
        Ok(())
    }

    /// Posts one more receive request, if one is still to come.
    fn receive_one(&mut self, device: &mut Device<Lengths>, now: Instant, end: u32) {
        let Some(at) = self.ends.get_mut(end as usize) else { return };
        if at.receives == 0 {
            return;
        }
        at.receives -= 1;
        let sge = Sge { addr: MEMORY.0, length: LONGEST as u32, lkey: self.lkey };
        let request = RecvRequest { wr_id: u64::from(end), sges: &[sge] };
        let posted = device.post_recv(now, at.number, &request);
        debug_assert!(posted.is_ok(), "a receive request in a queue with room");
    }

    /// Posts as many messages of a flow as it may have outstanding.
    fn post(&mut self, device: &mut Device<Lengths>, now: Instant, index: u32) {
        let Some(asked) = self.asked.get_mut(index as usize) else { return };
        let Some(end) = self.ends.get(asked.end as usize) else { return };
        let Some(&rkey) = self.rkeys.get(end.peer_host as usize) else { return };
        let empty = asked.bytes == 0 && asked.outstanding == 0;
        while (asked.posted < asked.bytes || empty) && asked.outstanding < asked.depth {
            let length = (asked.bytes - asked.posted).min(asked.message);
            let last = asked.posted + length == asked.bytes;
            let remote = Remote { addr: MEMORY.0, rkey };
            let name = asked.flow.to_be_bytes();
            let op = match asked.verb {
                Verb::Write if last && asked.told => SendOp::WriteImm(remote, name),
                Verb::Write => SendOp::Write(remote),
                Verb::Read => SendOp::Read(remote),
                Verb::Send if last && asked.told => SendOp::SendImm(name),
                Verb::Send => SendOp::Send,
            };
            let sge = Sge { addr: MEMORY.0, length: length as u32, lkey: self.lkey };
            let request = SendRequest {
                wr_id: u64::from(index),
                op,
                flags: SendFlags::SIGNALED,
                data: SendData::Sges(&[sge]),
                datagram: None,
            };
            if let Err(error) = device.post_send(now, end.number, &request) {
                // The queue pair has failed: the flow's record says so with the first completion.
                debug_assert!(matches!(error, engine::PostError::State(_)), "{error:?}");
                return;
            }
            asked.posted += length;
            asked.outstanding += 1;
            if empty {
                break;
            }
        }
    }

    /// Takes what has been completed.
    pub(crate) fn completed(&mut self, device: &mut Device<Lengths>, now: Instant) {
        loop {
            self.cq.1.req_notify(false);
            let Some(entry) = self.cq.1.poll_one() else { break };
            self.take(device, now, &entry);
        }
    }

    fn take(&mut self, device: &mut Device<Lengths>, now: Instant, entry: &Completion) {
        if matches!(entry.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
            && entry.status == WcStatus::Success
        {
            if let Some(&end) = self.by_number.get(&entry.qp.get()) {
                self.receive_one(device, now, end);
            }
            if let WcData::Imm(name) = entry.data {
                self.ended_here(device, now, u32::from_be_bytes(name));
            }
            return;
        }
        let index = entry.wr_id as u32;
        let is_receive = entry.status == WcStatus::WrFlushErr && !self.is_asked(entry.qp, index);
        let Some(asked) = self.asked.get_mut(index as usize).filter(|_| !is_receive) else {
            return;
        };
        asked.outstanding = asked.outstanding.saturating_sub(1);
        let flow = asked.flow;
        if entry.status != WcStatus::Success {
            self.failed(flow, now, entry.status);
            return;
        }
        if asked.posted < asked.bytes {
            self.post(device, now, index);
        } else if asked.outstanding == 0 {
            if let Some(record) = self.records.iter_mut().rev().find(|r| r.flow == flow) {
                record.ended = Some(now);
            }
            self.ended += 1;
            self.ended_here(device, now, flow);
        }
    }

    /// Whether a flow of this index is asked for on this queue pair (a flushed receive request may
    /// have the same number).
    fn is_asked(&self, qp: Qpn, index: u32) -> bool {
        let asked = self.asked.get(index as usize);
        let end = asked.filter(|a| a.outstanding > 0).and_then(|a| self.ends.get(a.end as usize));
        end.is_some_and(|end| end.number == qp)
    }

    fn failed(&mut self, flow: u32, now: Instant, status: WcStatus) {
        let record = self.records.iter_mut().rev().find(|r| r.flow == flow);
        if let Some(record) = record.filter(|r| r.failed.is_none()) {
            record.failed = Some((now, status));
            self.ended += 1;
        }
    }

    /// A flow has ended here: who waited for it may start.
    fn ended_here(&mut self, device: &mut Device<Lengths>, now: Instant, flow: u32) {
        let Some(waiting) = self.waiting.remove(&flow) else { return };
        for index in waiting {
            let Some(asked) = self.asked.get_mut(index as usize) else { continue };
            asked.waits -= 1;
            if asked.waits == 0 {
                let at = now + asked.think;
                let at = if at.is_before(asked.start) { asked.start } else { at };
                self.starting.push(Reverse((at.as_ps(), index)));
            }
        }
        self.run(device, now);
    }
}

const READY_TO_RECEIVE: AttrMask = AttrMask::AV
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
const READY_TO_SEND: AttrMask = AttrMask::SQ_PSN
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

fn attributes(end: &End, mtu: Mtu) -> QpAttr {
    QpAttr {
        state: QpState::Reset,
        cur_state: QpState::Reset,
        en_sqd_async_notify: false,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ,
        pkey_index: 0,
        port: 1,
        qkey: QKey::default(),
        av: end.av,
        path_mtu: mtu,
        dest_qp: end.peer,
        rq_psn: end.peer_psn,
        sq_psn: end.psn,
        timeout: end.timeout,
        retry_cnt: end.retries,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
    }
}

/// The address vector of a connection.
pub(crate) fn address(to: Gid, dscp: u8, priority: u8, flow_label: u32) -> AddressVector {
    AddressVector {
        is_global: true,
        dgid: to,
        sgid_index: 0,
        traffic_class: dscp << 2,
        hop_limit: 64,
        flow_label: flow_label & 0xF_FFFF,
        sl: priority & 7,
    }
}
