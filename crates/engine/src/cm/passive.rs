//! The side that is asked: REQ in, REP or REJ out, RTU in.

use wire::mad::{CmMessage, CmPath, Mad, MadHeader, Mra, Rej, RejectReason, Rep, Req, Rtu};
use wire::mad::{MAD_LEN, ServiceType, Subject};
use wire::{Instant, Mtu, QKey};

use super::connection::{Conn, ConnState, Retry, Role};
use super::event::{CmEvent, Incoming};
use super::plan::{QpPlan, Terms};
use super::request::{Accept, ConnId, ListenId, MadFrom};
use super::{Cm, private_field, split_private, wrong_state};
use crate::attr::QpType;
use crate::error::Result;
use crate::limits;
use crate::work::AddressVector;

impl Cm {
    pub(super) fn on_req(&mut self, from: &MadFrom, header: MadHeader, req: &Req) {
        if let Some(id) = self.table.passive(from.av.dgid, req.local_id).map(|conn| conn.id) {
            return self.on_req_again(from, header, req, id);
        }
        let qp_type = match req.service_type {
            ServiceType::Rc => QpType::Rc,
            ServiceType::Uc => QpType::Uc,
            ServiceType::Rd | ServiceType::Extended => {
                return self.refuse_req(from, header, req, RejectReason::INVALID_TRANSPORT, &[]);
            }
        };
        if self.is_stale(from, req) {
            return self.refuse_req(from, header, req, RejectReason::STALE_CONNECTION, &[]);
        }
        let Some(listener) = self.listeners.find(req.service, from.local) else {
            return self.refuse_req(from, header, req, RejectReason::INVALID_SERVICE_ID, &[]);
        };
        let Some(mtu) = req.mtu.filter(|mtu| *mtu <= self.config.mtu) else {
            // The detail names what would do.
            let ours = [self.config.mtu.code()];
            return self.refuse_req(from, header, req, RejectReason::INVALID_MTU, &ours);
        };
        if self.table.len() >= limits::MAX_CONNECTIONS {
            return self.refuse_req(from, header, req, RejectReason::NO_RESOURCES, &[]);
        }
        if self.events.len() >= limits::MAX_CM_EVENTS || !self.listeners.admit(listener) {
            // Not refused: the peer asks again, and there may be room then.
            self.counters.rx_no_room += 1;
            return;
        }
        self.requested(from, header, req, listener, qp_type, mtu);
    }

    /// A connection that waits for the application to accept or refuse it.
    fn requested(
        &mut self,
        from: &MadFrom,
        header: MadHeader,
        req: &Req,
        listener: ListenId,
        qp_type: QpType,
        mtu: Mtu,
    ) {
        let id = ConnId(self.draw_id());
        let terms = Terms {
            qp_type,
            av: data_path(from, &req.primary),
            mtu,
            remote_qpn: req.qpn,
            rq_psn: self.draw_psn(),
            sq_psn: req.psn,
            ack_timeout: req.primary.ack_timeout,
            retry_count: req.retry_count,
            rnr_retry: req.rnr_retry,
            min_rnr_timer: limits::CM_MIN_RNR_TIMER,
            initiator_depth: req.responder_resources.min(limits::MAX_RD_ATOMIC),
            responder_resources: req.initiator_depth.min(limits::MAX_RD_ATOMIC),
        };
        let (least, greatest) = limits::CM_RESPONSE_TIMEOUTS;
        let timeout = req.local_response_timeout.clamp(least, greatest);
        self.table.insert(Conn {
            id,
            role: Role::Passive,
            state: ConnState::ReqReceived,
            detached: false,
            was_established: false,
            peer: AddressVector { traffic_class: req.primary.traffic_class, ..from.av },
            remote_id: Some(req.local_id),
            transaction: header.transaction,
            qpn: None,
            terms,
            last: Box::new([0; MAD_LEN]),
            retry: Retry::new(timeout, req.max_cm_retries),
            deadline: None,
            waiting_at: Some(listener),
        });
        self.set_timer(id, Some(limits::CM_REQUEST_LIFETIME));
        let (ip, private) = split_private(req.service, &req.private);
        let incoming = Incoming {
            id,
            listener,
            service: req.service,
            ip,
            av: terms.av,
            local: from.local,
            qp_type,
            remote_qpn: req.qpn,
            mtu,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry: req.rnr_retry,
            flow_control: req.flow_control,
            srq: req.srq,
            ack_timeout: req.primary.ack_timeout,
            private,
        };
        self.tell(id, CmEvent::Incoming(Box::new(incoming)));
    }

    /// The request has made a connection before.
    fn on_req_again(&mut self, from: &MadFrom, header: MadHeader, req: &Req, id: ConnId) {
        self.counters.rx_duplicates += 1;
        match self.table.get(id).map(|conn| conn.state) {
            // The application takes its time; the peer shall not give up meanwhile.
            Some(ConnState::ReqReceived) => {
                self.set_timer(id, Some(limits::CM_REQUEST_LIFETIME));
                let mra = Mra {
                    local_id: id.0,
                    remote_id: req.local_id,
                    subject: Subject::Req,
                    service_timeout: limits::CM_SERVICE_TIMEOUT,
                    private: [0; 222],
                };
                self.answer_to(from, header, CmMessage::Mra(mra));
            }
            Some(ConnState::RepSent | ConnState::Refused) => self.repeat(id),
            Some(ConnState::TimeWait) => {
                self.refuse_req(from, header, req, RejectReason::STALE_CONNECTION, &[]);
            }
            // Late: the exchange has gone on.
            _ => {}
        }
    }

    /// Whether the peer's queue pair belongs to an older connection here. That one is ended: the
    /// peer cannot know it any more.
    fn is_stale(&mut self, from: &MadFrom, req: &Req) -> bool {
        let Some(old) = self.table.with_remote_qpn(from.av.dgid, req.qpn) else { return false };
        let id = old.id;
        match old.state {
            // Nothing has been answered yet: the new request takes the place of the old.
            ConnState::ReqReceived => {
                self.withdrawn(id, CmEvent::Failed(id));
                return false;
            }
            ConnState::RepSent | ConnState::Established => self.ask_disconnect(id),
            _ => {}
        }
        true
    }

    fn refuse_req(
        &mut self,
        from: &MadFrom,
        header: MadHeader,
        req: &Req,
        reason: RejectReason,
        info: &[u8],
    ) {
        let rej = rej(0, req.local_id, Subject::Req, reason, info, [0; 148]);
        self.answer_to(from, header, CmMessage::Rej(rej));
    }

    /// How the queue pair will have to be moved if a request is accepted on these terms.
    pub fn accept_plan(&self, id: ConnId, accept: &Accept<'_>) -> Result<QpPlan> {
        self.accepted_terms(id, accept).map(|terms| terms.plan())
    }

    fn accepted_terms(&self, id: ConnId, accept: &Accept<'_>) -> Result<Terms> {
        let conn = self.conn(id)?;
        if conn.state != ConnState::ReqReceived {
            return Err(wrong_state(conn, "accept answers an Incoming"));
        }
        let mut terms = conn.terms;
        terms.ack_timeout = accept.ack_timeout.unwrap_or(terms.ack_timeout) & 31;
        terms.min_rnr_timer = accept.min_rnr_timer & 31;
        if terms.qp_type == QpType::Rc {
            terms.initiator_depth = terms.initiator_depth.min(accept.initiator_depth);
            terms.responder_resources = accept.responder_resources.min(limits::MAX_RD_ATOMIC);
        } else {
            (terms.initiator_depth, terms.responder_resources) = (0, 0);
        }
        Ok(terms)
    }

    /// Accepts a request; the queue pair must be in RTS by [`accept_plan`](Self::accept_plan)
    /// already. `Established` or `Failed` follow. The plan, once more.
    pub fn accept(&mut self, now: Instant, id: ConnId, accept: &Accept<'_>) -> Result<QpPlan> {
        self.clock.advance(now);
        let terms = self.accepted_terms(id, accept)?;
        let private = private_field("REP", None, accept.private)?;
        self.table.set_qpn(id, accept.qpn);
        self.leave_backlog(id);
        let guid = self.config.guid;
        let Some(conn) = self.table.get_mut(id) else { return Ok(terms.plan()) };
        conn.terms = terms;
        let rep = Rep {
            local_id: id.0,
            remote_id: conn.remote_id.unwrap_or(0),
            qkey: QKey::new(0),
            qpn: accept.qpn,
            eecn: 0,
            psn: terms.rq_psn,
            responder_resources: terms.responder_resources,
            initiator_depth: terms.initiator_depth,
            ack_delay: limits::CM_ACK_DELAY,
            failover: 0,
            flow_control: accept.flow_control,
            rnr_retry: accept.rnr_retry.min(7),
            srq: accept.srq,
            guid,
            private,
        };
        let mad = Mad::new(conn.transaction, CmMessage::Rep(rep));
        self.begin(id, ConnState::RepSent, mad);
        self.check_invariants();
        Ok(terms.plan())
    }

    /// Refuses a request, or a `Response`. No event but a `TimeWaitExit` (of a `Response`) follows.
    /// Applications give the reason `CONSUMER` and 148 bytes of private data.
    pub fn reject(
        &mut self,
        now: Instant,
        id: ConnId,
        reason: RejectReason,
        private: &[u8],
    ) -> Result<()> {
        self.clock.advance(now);
        let private = private_field("REJ", None, private)?;
        let conn = self.conn(id)?;
        let remote_id = conn.remote_id.unwrap_or(0);
        let transaction = conn.transaction;
        let mad = |subject| {
            let rej = rej(id.0, remote_id, subject, reason, &[], private);
            Mad::new(transaction, CmMessage::Rej(rej))
        };
        match conn.state {
            ConnState::ReqReceived => self.refused(id, mad(Subject::Req)),
            ConnState::RepReceived => {
                let to = conn.peer;
                self.send(to, mad(Subject::Rep).emit());
                self.enter_time_wait(id);
            }
            _ => return Err(wrong_state(conn, "only a request or a response is refused")),
        }
        self.check_invariants();
        Ok(())
    }

    /// The REJ leaves now and again for every repeated REQ, as long as the peer may repeat it.
    pub(super) fn refused(&mut self, id: ConnId, mad: Mad) {
        self.leave_backlog(id);
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.state = ConnState::Refused;
        conn.detached = true;
        *conn.last = mad.emit();
        let kept = conn.retry.full().times(2);
        self.set_timer(id, Some(kept));
        self.repeat(id);
    }

    pub(super) fn on_rtu(&mut self, from: &MadFrom, rtu: &Rtu) {
        match self.of_peer(from, ConnId(rtu.remote_id), rtu.local_id).map(|conn| conn.state) {
            Some(ConnState::RepSent) => self.established(ConnId(rtu.remote_id)),
            Some(_) => self.counters.rx_duplicates += 1,
            None => self.counters.rx_unexpected += 1,
        }
    }

    /// The connection that a message names, if it comes from its peer.
    pub(super) fn of_peer(&self, from: &MadFrom, id: ConnId, remote_id: u32) -> Option<&Conn> {
        let peer =
            |conn: &&Conn| conn.peer_gid() == from.av.dgid && conn.remote_id == Some(remote_id);
        self.table.get(id).filter(peer)
    }
}

/// How the own queue pair addresses the peer's: by the path of the request.
fn data_path(from: &MadFrom, path: &CmPath) -> AddressVector {
    AddressVector {
        is_global: true,
        dgid: if path.local_gid.is_zero() { from.av.dgid } else { path.local_gid },
        sgid_index: from.av.sgid_index,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        sl: path.sl,
    }
}

/// A REJ.
pub(super) fn rej(
    local_id: u32,
    remote_id: u32,
    subject: Subject,
    reason: RejectReason,
    info: &[u8],
    private: [u8; 148],
) -> Rej {
    let mut field = [0; 72];
    let length = info.len().min(field.len());
    field[..length].copy_from_slice(&info[..length]);
    Rej { local_id, remote_id, subject, info_len: length as u8, reason, info: field, private }
}
