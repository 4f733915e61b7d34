//! One end of a connection (or a datagram queue pair): its queue pair, its areas of memory, what it
//! has posted, and what must arrive at it.

use std::collections::VecDeque;
use std::ops::Range;

use engine::{
    Access, CqId, Datagram, QpAttr, QpCap, QpInit, QpState, QpType, RecvRequest, Sge, WcData,
    WcOpcode,
};
use wire::{LKey, Psn, Qpn, RKey};

use crate::arena::Arena;
use crate::pair::setup;
use crate::run::{BIG, Run, Unfinished};
use crate::scenario::Link;
use crate::windows::Window;

/// Registered memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Area {
    /// Where it lies.
    pub(crate) addr: u64,
    pub(crate) length: u64,
    /// The address by which requests name it.
    pub(crate) iova: u64,
    pub(crate) lkey: LKey,
    pub(crate) rkey: RKey,
}

impl Area {
    /// The piece at host address `addr`, as requests name it.
    pub(crate) fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge { addr: self.named(addr), length, lkey: self.lkey }
    }

    /// The address by which requests name host address `addr`.
    pub(crate) fn named(&self, addr: u64) -> u64 {
        self.iova.wrapping_add(addr - self.addr)
    }
}

/// Pieces of host memory: address, length.
pub(crate) type Pieces = Vec<(u64, u32)>;

/// A posted receive request.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) pieces: Pieces,
    /// The end whose arena the pieces are taken from, and the start of the taking.
    pub(crate) owner: usize,
    pub(crate) taken: u64,
    /// Posted to the shared receive queue.
    pub(crate) shared: bool,
}

/// A posted send request.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) signaled: bool,
    pub(crate) effect: Effect,
    /// The peer's window through which it goes.
    pub(crate) through: Option<usize>,
}

/// What must be found when a request is done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Nothing here.
    None,
    /// Bytes that came back by a READ.
    Read { pieces: Pieces, taken: u64, expected: Vec<u8>, range: Range<u64> },
    /// An old value that came back by an atomic.
    Atomic { at: u64, word: u64, op: engine::AtomicOp },
    /// A window of our own is bound.
    Bound { window: usize },
    /// A window of our own is unbound.
    Unbound { window: usize },
}

/// A message that must arrive.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) opcode: WcOpcode,
    pub(crate) bytes: Vec<u8>,
    /// Host address of the bytes of a WRITE with immediate.
    pub(crate) written_at: Option<u64>,
    /// A later WRITE may have changed them already.
    pub(crate) overwritten: bool,
    pub(crate) data: WcData,
    pub(crate) solicited: bool,
    pub(crate) from: Qpn,
    /// Delivered (unreliable services, where a duplicate may follow).
    pub(crate) seen: bool,
}

/// One end.
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) peer: usize,
    pub(crate) link: usize,
    pub(crate) side: usize,
    pub(crate) service: QpType,
    pub(crate) qpn: Qpn,
    pub(crate) cap: QpCap,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) mtu: u32,
    /// The longest message that this end sends or receives.
    pub(crate) longest: u32,
    /// Requests still to be made.
    pub(crate) left: u32,
    /// What the peer writes and reads.
    pub(crate) target: Area,
    /// Where unreliable WRITEs of the peer go, each to a place of its own.
    pub(crate) places: Arena,
    /// Where results come back to.
    pub(crate) sink: Area,
    pub(crate) sink_arena: Arena,
    /// Receive buffers.
    pub(crate) buffers: Area,
    pub(crate) buffer_arena: Arena,
    pub(crate) posted: Unfinished,
    pub(crate) next_wr: u64,
    pub(crate) unsignaled: u32,
    /// Ranges of the peer's memory that are being READ, without a fence since.
    pub(crate) open_reads: Vec<Range<u64>>,
    /// Messages on the way here, oldest first.
    pub(crate) incoming: VecDeque<Message>,
    /// How many receive requests were posted for it, and how many messages were sent to it.
    pub(crate) receives_made: u64,
    pub(crate) messages_made: u64,
    /// Receive requests of its own queue, oldest first.
    pub(crate) receives_posted: VecDeque<u64>,
    pub(crate) windows: Vec<Window>,
    /// WRITEs of an unreliable peer: place and bytes.
    pub(crate) perhaps: Vec<(u64, Vec<u8>)>,
    /// Where it sends datagrams.
    pub(crate) datagram: Option<Datagram>,
}

impl End {
    /// The longest message on a link.
    fn longest(link: &Link) -> u32 {
        let mtu = link.mtu.bytes();
        match link.service {
            QpType::Ud => mtu,
            _ if link.big => BIG,
            _ => 4 * mtu,
        }
    }

    /// Bytes of each of the three areas of an end.
    fn area_len(link: &Link) -> u64 {
        let longest = u64::from(Self::longest(link));
        if link.big { 3 * longest + 65_536 } else { 6 * longest + 8192 }
    }

    /// Bytes of memory that an end takes.
    pub(crate) fn footprint(link: &Link) -> u64 {
        3 * (Self::area_len(link) + 1024)
    }

    /// Whether receive requests come from the host's shared queue.
    pub(crate) fn shared(&self, run: &Run) -> bool {
        run.plan.hosts[self.host].srq && !run.plan.links[self.link].big
    }
}

impl Run {
    /// Makes both ends of a link and connects them.
    pub(crate) fn build_link(&mut self, index: usize) {
        let first = self.ends.len();
        for side in 0..2 {
            let end = self.build_end(index, side, first + 1 - side);
            self.ends.push(end);
        }
        for side in 0..2 {
            self.connect(first + side, first + 1 - side);
        }
        for side in 0..2 {
            self.build_windows(first + side);
        }
    }

    fn build_end(&mut self, index: usize, side: usize, peer: usize) -> End {
        let link = &self.plan.links[index];
        let (host, length, service) = (link.host[side], End::area_len(link), link.service);
        let (mtu, longest, big) = (link.mtu.bytes(), End::longest(link), link.big);
        let plan = &link.side[side];
        let (budget, sq_sig_all) = (plan.budget, plan.sq_sig_all);
        let cap = QpCap {
            max_send_wr: plan.max_send_wr,
            max_recv_wr: plan.receives,
            max_send_sge: plan.max_send_sge,
            max_recv_sge: 4,
            max_inline_data: plan.inline,
        };
        let remote = Access::LOCAL_WRITE | setup::REMOTE | Access::MW_BIND;
        let target = self.area(host, length, remote);
        let sink = self.area(host, length, Access::LOCAL_WRITE);
        let buffers = self.area(host, length, Access::LOCAL_WRITE);
        let site = &self.sites[host];
        let send_cq = self.dice.pick(&site.cqs);
        let recv_cq = self.dice.pick(&site.cqs);
        let srq = site.srq.filter(|_| !big);
        let init = QpInit { qp_type: service, pd: site.pd, send_cq, recv_cq, srq, cap, sq_sig_all };
        let (qpn, _) = self.world.hosts[host].device.create_qp(&init).expect("a queue pair");
        End {
            host,
            peer,
            link: index,
            side,
            service,
            qpn,
            cap,
            send_cq,
            recv_cq,
            mtu,
            longest,
            left: budget,
            target,
            places: Arena::new(target.addr, target.length),
            sink,
            sink_arena: Arena::new(sink.addr, sink.length),
            buffers,
            buffer_arena: Arena::new(buffers.addr, buffers.length),
            posted: VecDeque::new(),
            next_wr: (self.ends.len() as u64) << 32,
            unsignaled: 0,
            open_reads: Vec::new(),
            incoming: VecDeque::new(),
            receives_made: 0,
            messages_made: 0,
            receives_posted: VecDeque::new(),
            windows: Vec::new(),
            perhaps: Vec::new(),
            datagram: None,
        }
    }

    fn connect(&mut self, own: usize, peer: usize) {
        let (end, other) = (&self.ends[own], &self.ends[peer]);
        let link = &self.plan.links[end.link];
        let (mine, theirs) = (&link.side[end.side], &link.side[other.side]);
        let dgid = match link.gid_index {
            0 => setup::gid(other.host),
            _ => setup::gid6(other.host),
        };
        let base = setup::attr(dgid, other.qpn);
        let av = setup::av(dgid, link.gid_index);
        // Congestion marks need packets that say they can carry them.
        let av = engine::AddressVector { traffic_class: 2, ..av };
        let attr = QpAttr {
            av,
            path_mtu: link.mtu,
            rq_psn: Psn::new(theirs.first_psn),
            sq_psn: Psn::new(mine.first_psn),
            timeout: mine.timeout,
            min_rnr_timer: mine.min_rnr_timer,
            max_rd_atomic: mine.rd_atomic,
            max_dest_rd_atomic: theirs.rd_atomic,
            ..base
        };
        let init = QpInit {
            qp_type: end.service,
            pd: self.sites[end.host].pd,
            send_cq: end.send_cq,
            recv_cq: end.recv_cq,
            srq: None,
            cap: end.cap,
            sq_sig_all: mine.sq_sig_all,
        };
        let (host, qpn, dest_qp) = (end.host, end.qpn, other.qpn);
        let now = self.world.now;
        let device = &mut self.world.hosts[host].device;
        setup::raise(device, now, qpn, &init, &attr, QpState::Rts);
        if self.ends[own].service == QpType::Ud {
            self.ends[own].datagram = Some(Datagram { av, dest_qp, qkey: setup::QKEY });
        }
    }

    /// Posts receive requests up to the depth that the end wants; whether there were any.
    pub(crate) fn post_receives(&mut self, e: usize) -> bool {
        let mut any = false;
        loop {
            let end = &self.ends[e];
            let shared = end.shared(self);
            let depth = self.plan.links[end.link].side[end.side].receives;
            let site = &self.sites[end.host];
            let posted = if shared { site.srq_posted } else { end.receives_posted.len() as u32 };
            if posted >= depth || !self.post_receive(e, shared) {
                return any;
            }
            any = true;
        }
    }

    fn post_receive(&mut self, e: usize, shared: bool) -> bool {
        let extra = if self.ends[e].service == QpType::Ud { 40 } else { 0 };
        let length = match self.exact_length(e, shared) {
            Some(length) => length,
            None if shared => self.longest_at(self.ends[e].host),
            None => self.ends[e].longest + extra,
        };
        let pieces = 1 + self.dice.below(4) as usize;
        let end = &mut self.ends[e];
        let Some((taken, pieces)) = scatter(&mut self.dice, &mut end.buffer_arena, length, pieces)
        else {
            return false;
        };
        let host = end.host;
        let wr_id = self.sites[host].next_wr;
        self.sites[host].next_wr += 1;
        let sges: Vec<Sge> = pieces.iter().map(|&(addr, len)| end.buffers.sge(addr, len)).collect();
        let wr = RecvRequest { wr_id, sges: &sges };
        let device = &mut self.world.hosts[host].device;
        if shared {
            let srq = self.sites[host].srq.expect("a shared queue");
            device.post_srq_recv(srq, &wr).expect("room in the shared queue");
            self.sites[host].srq_posted += 1;
        } else {
            device.post_recv(self.world.now, end.qpn, &wr).expect("room in the receive queue");
            end.receives_posted.push_back(wr_id);
        }
        end.receives_made += 1;
        let slot = Slot { pieces, owner: e, taken, shared };
        self.sites[host].slots.insert(wr_id, slot);
        true
    }

    /// At times a receive buffer is exactly as long as the message that must come into it, where
    /// that is known.
    fn exact_length(&mut self, e: usize, shared: bool) -> Option<u32> {
        let end = &self.ends[e];
        if shared || end.service != QpType::Rc || self.dice.percent(50) {
            return None;
        }
        let delivered = end.messages_made - end.incoming.len() as u64;
        let message = end.incoming.get((end.receives_made - delivered) as usize)?;
        Some(if message.opcode == WcOpcode::Recv { message.bytes.len() as u32 } else { 0 })
    }

    /// The longest message that may come into the shared receive queue of a host.
    fn longest_at(&self, host: usize) -> u32 {
        let ends = self.ends.iter().filter(|end| end.host == host && end.shared(self));
        ends.map(|end| end.longest + 40).max().unwrap_or(0)
    }
}

/// Takes `length` bytes of an arena, in up to `count` pieces with gaps.
pub(crate) fn scatter(
    dice: &mut crate::pair::dice::Dice,
    arena: &mut Arena,
    length: u32,
    count: usize,
) -> Option<(u64, Pieces)> {
    let lengths = split(dice, length, count);
    let gaps: Vec<u64> = lengths.iter().map(|_| dice.below(9)).collect();
    let taken = arena.take(u64::from(length) + gaps.iter().sum::<u64>())?;
    let mut addr = taken;
    let mut pieces = Vec::new();
    for (piece, gap) in lengths.into_iter().zip(gaps) {
        pieces.push((addr + gap, piece));
        addr += gap + u64::from(piece);
    }
    Some((taken, pieces))
}

/// `length` in `count` parts, some of which may be empty.
pub(crate) fn split(dice: &mut crate::pair::dice::Dice, length: u32, count: usize) -> Vec<u32> {
    let mut cuts: Vec<u32> = (1..count).map(|_| dice.below(u64::from(length) + 1) as u32).collect();
    cuts.extend([0, length]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}
