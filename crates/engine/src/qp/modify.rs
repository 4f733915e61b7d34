//! Moves of a queue pair's state, and its attributes: checked first, all of them, then applied.

use wire::{Instant, Psn};

use crate::attr::{AttrMask, QpAttr, QpInit, QpState};
use crate::error::{Error, Result};
use crate::limits;
use crate::memory::HostMemory;
use crate::qp::facts::{Facts, Shared};
use crate::qp::requester::{Requester, ack_timeout};
use crate::qp::responder::Responder;
use crate::qp::{QueuePair, path_of, state};
use crate::srq::RecvQueue;
use crate::work::{Access, AddressVector};
use crate::xrc::Xrc;

impl QueuePair {
    pub(crate) fn new(index: u32, qpn: wire::Qpn, init: &QpInit, port_mtu: wire::Mtu) -> Self {
        let cap = init.cap;
        let recv_wr = if init.srq.is_some() { 0 } else { cap.max_recv_wr };
        let attr = fresh_attr(port_mtu);
        Self {
            init: *init,
            attr,
            facts: facts_of(index, qpn, init, &attr),
            requester: Requester::new(cap, init.sq_sig_all),
            responder: Responder::default(),
            recv: RecvQueue::new(recv_wr, cap.max_recv_sge),
            ready: false,
            wake: None,
            wake_later: None,
            joined: false,
            limit: super::limit::Limit::default(),
            not_before: None,
            communicated: false,
            expects_peer: false,
            notify_drained: false,
            unsettled: false,
            xrc: Xrc::default(),
            passed_over: false,
        }
    }

    /// Moves state and attributes; on an error nothing has changed.
    pub(crate) fn modify<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        port_mtu: wire::Mtu,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<()> {
        let from = self.facts.state;
        let to = if mask.contains(AttrMask::STATE) { attr.state } else { from };
        if mask.contains(AttrMask::CUR_STATE) {
            let told = matches!(from, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
            if !told || attr.cur_state != from {
                return Err(Error::invalid(format!(
                    "the current state was given as {:?}, it is {from:?}",
                    attr.cur_state
                )));
            }
        }
        state::check(from, to, self.facts.kind, mask)?;
        check_values(sh, port_mtu, attr, mask)?;
        match to {
            QpState::Reset => self.reset(sh, port_mtu),
            QpState::Err if from == QpState::Err => {}
            QpState::Err => self.fail(sh, now, None),
            _ => {
                // Asked for with each move.
                self.attr.en_sqd_async_notify &= from == QpState::Sqd;
                self.apply(attr, mask);
                let moved = from == QpState::Init || mask.contains(AttrMask::AV);
                self.enter(sh, now, (from, to), moved);
            }
        }
        Ok(())
    }

    fn apply(&mut self, from: &QpAttr, mask: AttrMask) {
        let to = &mut self.attr;
        let psn = |p: Psn| Psn::new(p.get());
        macro_rules! take {
            ($($flag:ident => $field:ident),* $(,)?) => {
                $(if mask.contains(AttrMask::$flag) { to.$field = from.$field; })*
            };
        }
        take! {
            ACCESS_FLAGS => access, PKEY_INDEX => pkey_index, PORT => port, QKEY => qkey, AV => av,
            PATH_MTU => path_mtu, TIMEOUT => timeout, RETRY_CNT => retry_cnt,
            RNR_RETRY => rnr_retry, MAX_QP_RD_ATOMIC => max_rd_atomic, DEST_QPN => dest_qp,
            MAX_DEST_RD_ATOMIC => max_dest_rd_atomic, MIN_RNR_TIMER => min_rnr_timer,
            EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify,
        }
        if mask.contains(AttrMask::RQ_PSN) {
            to.rq_psn = psn(from.rq_psn);
        }
        if mask.contains(AttrMask::SQ_PSN) {
            to.sq_psn = psn(from.sq_psn);
        }
    }

    /// Enters a state with the attributes as they now are.
    fn enter<M: HostMemory>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        (from, to): (QpState, QpState),
        moved: bool,
    ) {
        let mut facts = facts_of(self.facts.index, self.facts.qpn, &self.init, &self.attr);
        (facts.peer, facts.path) = (self.facts.peer, self.facts.path);
        facts.mtu = facts.mtu.min(sh.segment);
        facts.timeout = facts.timeout.map(|timeout| timeout.max(sh.least_timeout));
        self.facts = facts;
        self.set_state(to);
        let connected = facts.kind.is_connected();
        let reaches_peer = !matches!(to, QpState::Reset | QpState::Init);
        if connected && reaches_peer && moved {
            self.join_peer(sh);
            if self.requester.nxt > self.requester.una {
                // What is under way went by the old path.
                let (q, una) = (self.facts, self.requester.una);
                self.requester.go_back(&q, sh, una);
                self.requester.restart_timer(&q, sh, now);
            }
        }
        match (from, to) {
            (QpState::Init, QpState::Rtr) => self.responder.start_at(self.attr.rq_psn),
            (QpState::Rtr, QpState::Rts) => self.requester.start_at(self.attr.sq_psn),
            _ => {}
        }
        if from != QpState::Sqd && to == QpState::Sqd {
            self.requester.draining = true;
            self.notify_drained = self.attr.en_sqd_async_notify;
            self.check_drained(sh);
        }
        if to == QpState::Rts {
            self.requester.draining = false;
            self.notify_drained = false;
            self.requester.retries = self.attr.retry_cnt;
            self.requester.rnr_retries = self.attr.rnr_retry;
            self.requester.restart_timer(&self.facts, sh, now);
        }
    }

    /// Resolves the address vector and takes a place in the peer's window.
    fn join_peer<M>(&mut self, sh: &mut Shared<M>) {
        let q = &mut self.facts;
        q.path = path_of(&sh.gids, &self.attr.av);
        if let Some(path) = &mut q.path {
            let label = self.attr.av.flow_label;
            path.source_port = wire::flow::connected_source_port(label, q.qpn, q.dest_qp);
            if sh.congestion.marks() && path.traffic_class & 3 == 0 {
                // ECT(0).
                path.traffic_class |= 2;
            }
        }
        let peer = sh.windows.join(self.attr.av.dgid);
        self.leave_peer(sh);
        let q = &mut self.facts;
        q.peer = peer;
        self.joined = true;
    }

    pub(crate) fn leave_peer<M>(&mut self, sh: &mut Shared<M>) {
        if std::mem::take(&mut self.joined) {
            self.requester.flight.recalled(&mut sh.windows, self.facts.peer, 0);
            sh.windows.leave(self.facts.peer, self.facts.index);
        }
    }

    /// Back to RESET: all requests are dropped, unpolled completions taken out of the queues.
    pub(crate) fn reset<M>(&mut self, sh: &mut Shared<M>, port_mtu: wire::Mtu) {
        self.leave_peer(sh);
        for id in [self.facts.send_cq, self.facts.recv_cq] {
            if let Some(slot) = sh.cqs.get(id.0) {
                slot.cq.purge(self.facts.qpn);
            }
        }
        let fresh = Self::new(self.facts.index, self.facts.qpn, &self.init, port_mtu);
        let (ready, wake, wake_later) = (self.ready, self.wake, self.wake_later);
        *self = Self { ready, wake, wake_later, xrc: self.xrc, ..fresh };
    }
}

fn check_values<M>(
    sh: &Shared<M>,
    port_mtu: wire::Mtu,
    attr: &QpAttr,
    mask: AttrMask,
) -> Result<()> {
    let wrong = |flag: AttrMask, bad: bool| mask.contains(flag) && bad;
    if wrong(AttrMask::PORT, attr.port != 1) {
        return Err(Error::invalid(format!("port {}: the device has port 1 only", attr.port)));
    }
    if wrong(AttrMask::PKEY_INDEX, attr.pkey_index != 0) {
        return Err(Error::invalid(format!(
            "P_Key index {}: the table has index 0 only",
            attr.pkey_index
        )));
    }
    if mask.contains(AttrMask::ALT_PATH) {
        return Err(Error::invalid("RoCE has no alternate path (IBV_QP_ALT_PATH)"));
    }
    if mask.contains(AttrMask::AV) {
        check_av(sh, &attr.av)?;
    }
    if wrong(AttrMask::PATH_MTU, attr.path_mtu > port_mtu) {
        return Err(Error::invalid(format!(
            "path MTU {} is above the port's active MTU {}: use at most that, or raise the \
             interface's MTU to {}",
            attr.path_mtu.bytes(),
            port_mtu.bytes(),
            attr.path_mtu.bytes() + wire::Mtu::OVERHEAD
        )));
    }
    let bounds = [
        (AttrMask::TIMEOUT, attr.timeout, 31, "timeout"),
        (AttrMask::RETRY_CNT, attr.retry_cnt, 7, "retry_cnt"),
        (AttrMask::RNR_RETRY, attr.rnr_retry, 7, "rnr_retry"),
        (AttrMask::MIN_RNR_TIMER, attr.min_rnr_timer, 31, "min_rnr_timer"),
        (AttrMask::MAX_QP_RD_ATOMIC, attr.max_rd_atomic, limits::MAX_RD_ATOMIC, "max_rd_atomic"),
        (
            AttrMask::MAX_DEST_RD_ATOMIC,
            attr.max_dest_rd_atomic,
            limits::MAX_RD_ATOMIC,
            "max_dest_rd_atomic",
        ),
    ];
    for (flag, value, most, name) in bounds {
        if wrong(flag, value > most) {
            return Err(Error::invalid(format!("{name} is {value}: at most {most}")));
        }
    }
    Ok(())
}

/// An address vector that RoCE can use: a GRH, a GID of the table, a destination of the same
/// family.
pub(crate) fn check_av<M>(sh: &Shared<M>, av: &AddressVector) -> Result<()> {
    if !av.is_global {
        return Err(Error::invalid(
            "the address vector has no GRH (is_global is 0): RoCE always needs one; set \
             is_global = 1 and grh.dgid, or give the program its GID index option (-x, -g)",
        ));
    }
    let own = sh.gids.get(usize::from(av.sgid_index)).filter(|e| !e.gid.is_zero());
    let Some(own) = own else {
        let used: Vec<_> = (0..sh.gids.len())
            .filter(|&i| sh.gids.get(i).is_some_and(|e| !e.gid.is_zero()))
            .map(|i| i.to_string())
            .collect();
        return Err(Error::invalid(format!(
            "GID index {} names no entry of the GID table: valid are {} (see `crocevia gids`)",
            av.sgid_index,
            used.join(", ")
        )));
    };
    if av.dgid.is_zero() {
        return Err(Error::invalid("the destination GID is zero: exchange GIDs with the peer"));
    }
    if own.gid.is_ipv4() != av.dgid.is_ipv4() && !av.dgid.is_multicast() {
        return Err(Error::invalid(format!(
            "own GID {} (index {}) and the peer's {} are of different address families: choose \
             the GID index of the other family on one side",
            own.gid, av.sgid_index, av.dgid
        )));
    }
    Ok(())
}

fn fresh_attr(port_mtu: wire::Mtu) -> QpAttr {
    QpAttr {
        state: QpState::Reset,
        cur_state: QpState::Reset,
        en_sqd_async_notify: false,
        access: Access::empty(),
        pkey_index: 0,
        port: 1,
        qkey: wire::QKey::default(),
        av: AddressVector {
            is_global: false,
            dgid: wire::Gid::default(),
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            sl: 0,
        },
        path_mtu: port_mtu,
        dest_qp: wire::Qpn::default(),
        rq_psn: Psn::default(),
        sq_psn: Psn::default(),
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        min_rnr_timer: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
    }
}

fn facts_of(index: u32, qpn: wire::Qpn, init: &QpInit, attr: &QpAttr) -> Facts {
    Facts {
        index,
        qpn,
        kind: init.qp_type,
        pd: init.pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        state: attr.state,
        access: attr.access,
        mtu: attr.path_mtu.bytes(),
        dest_qp: attr.dest_qp,
        qkey: attr.qkey,
        path: None,
        peer: u32::MAX,
        timeout: ack_timeout(attr.timeout),
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        min_rnr_timer: attr.min_rnr_timer,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
    }
}
