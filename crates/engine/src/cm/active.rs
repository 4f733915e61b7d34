//! The side that asks: REQ out, REP in, RTU out.

use wire::mad::{CmMessage, CmPath, Mad, MadHeader, Mra, Rej, RejectReason, Rep, Req, Rtu};
use wire::mad::{ServiceType, Subject};
use wire::{PKey, Psn, QKey, Qpn};

use super::connection::{Conn, ConnState, Retry, Role};
use super::event::{CmEvent, Response};
use super::plan::Terms;
use super::request::{ConnId, ConnectRequest, MadFrom};
use super::{Cm, private_field, wrong_state};
use crate::attr::QpType;
use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use crate::work::AddressVector;
use wire::Instant;

use rand_core::Rng;

/// Local identifiers mean nothing on Ethernet; this value stands for that.
const NO_LID: u16 = 0xFFFF;

impl Cm {
    /// Asks a peer for a connection. `Response`, `Rejected` or `Failed` follow.
    pub fn connect(&mut self, now: Instant, request: &ConnectRequest<'_>) -> Result<ConnId> {
        self.clock.advance(now);
        let service_type = match request.qp_type {
            QpType::Rc => ServiceType::Rc,
            QpType::Uc => ServiceType::Uc,
            QpType::Ud | QpType::Gsi | QpType::XrcSend | QpType::XrcRecv => {
                return Err(Error::invalid(
                    "only RC and UC queue pairs are connected: resolve a datagram service",
                ));
            }
        };
        if !request.av.is_global {
            return Err(Error::invalid("RoCE needs the GRH: set is_global in the address vector"));
        }
        let private = private_field("REQ", request.ip, request.private)?;
        if self.table.len() >= limits::MAX_CONNECTIONS {
            return Err(Error::new(
                ErrorKind::Full,
                format!("{} connections exist, time-waits included", limits::MAX_CONNECTIONS),
            ));
        }
        let terms = self.active_terms(request);
        let id = ConnId(self.draw_id());
        let req = self.req(id, request, service_type, &terms, private);
        let transaction = self.transaction(id.0);
        let mad = Mad::new(transaction, CmMessage::Req(req));
        self.table.insert(Conn {
            id,
            role: Role::Active,
            state: ConnState::ReqSent,
            detached: false,
            was_established: false,
            peer: terms.av,
            remote_id: None,
            transaction,
            qpn: Some(request.qpn),
            terms,
            last: Box::new(mad.emit()),
            retry: Retry::new(request.response_timeout, request.max_cm_retries),
            deadline: None,
            waiting_at: None,
        });
        self.begin(id, ConnState::ReqSent, mad);
        self.check_invariants();
        Ok(id)
    }

    fn active_terms(&mut self, request: &ConnectRequest<'_>) -> Terms {
        let mut av = request.av;
        if av.flow_label == 0 {
            av.flow_label = (self.rng.next_u32() & 0xF_FFFF).max(1);
        }
        if av.hop_limit == 0 {
            av.hop_limit = limits::DEFAULT_HOP_LIMIT;
        }
        let rc = request.qp_type == QpType::Rc;
        let depth = |n: u8| if rc { n.min(limits::MAX_RD_ATOMIC) } else { 0 };
        Terms {
            qp_type: request.qp_type,
            av,
            mtu: request.mtu,
            remote_qpn: Qpn::new(0),
            rq_psn: self.draw_psn(),
            sq_psn: Psn::new(0),
            ack_timeout: request.ack_timeout & 31,
            retry_count: request.retry_count.min(7),
            rnr_retry: 0,
            min_rnr_timer: request.min_rnr_timer & 31,
            initiator_depth: depth(request.initiator_depth),
            responder_resources: depth(request.responder_resources),
        }
    }

    fn req(
        &self,
        id: ConnId,
        request: &ConnectRequest<'_>,
        service_type: ServiceType,
        terms: &Terms,
        private: [u8; 92],
    ) -> Req {
        let AddressVector { dgid, traffic_class, hop_limit, flow_label, sl, .. } = terms.av;
        Req {
            local_id: id.0,
            service: request.service,
            guid: self.config.guid,
            qkey: QKey::new(0),
            qpn: request.qpn,
            responder_resources: terms.responder_resources,
            eecn: 0,
            initiator_depth: terms.initiator_depth,
            remote_eecn: 0,
            remote_response_timeout: request.response_timeout,
            service_type,
            flow_control: request.flow_control,
            psn: terms.rq_psn,
            local_response_timeout: request.response_timeout,
            retry_count: terms.retry_count,
            pkey: PKey::DEFAULT,
            mtu: Some(request.mtu),
            rdc_exists: false,
            rnr_retry: request.rnr_retry.min(7),
            max_cm_retries: request.max_cm_retries.min(15),
            srq: request.srq,
            extended_type: 0,
            primary: CmPath {
                local_lid: NO_LID,
                remote_lid: NO_LID,
                local_gid: request.local,
                remote_gid: dgid,
                flow_label: flow_label & 0xF_FFFF,
                rate: 0,
                traffic_class,
                hop_limit,
                sl,
                subnet_local: false,
                ack_timeout: terms.ack_timeout,
            },
            alternate: CmPath::default(),
            private,
        }
    }

    pub(super) fn on_rep(&mut self, from: &MadFrom, header: MadHeader, rep: &Rep) {
        let id = ConnId(rep.remote_id);
        let conn = self
            .table
            .get(id)
            .filter(|conn| conn.role == Role::Active && conn.peer_gid() == from.av.dgid);
        let Some(conn) = conn else {
            self.counters.rx_unexpected += 1;
            return self.refuse_rep(from, header, rep, RejectReason::INVALID_COMM_ID);
        };
        if conn.state == ConnState::ReqSent {
            return self.replied(id, rep);
        }
        if conn.remote_id.is_some_and(|known| known != rep.local_id) {
            self.counters.rx_unexpected += 1;
            return self.refuse_rep(from, header, rep, RejectReason::INVALID_COMM_INSTANCE);
        }
        self.counters.rx_duplicates += 1;
        match (conn.state, conn.was_established) {
            // The driver takes its time; the peer shall not give up meanwhile.
            (ConnState::RepReceived, _) => {
                let mra = Mra {
                    local_id: id.0,
                    remote_id: rep.local_id,
                    subject: Subject::Rep,
                    service_timeout: limits::CM_SERVICE_TIMEOUT,
                    private: [0; 222],
                };
                self.answer_to(from, header, CmMessage::Mra(mra));
            }
            (ConnState::Established, _) => self.repeat(id),
            // This side gave up before; the peer does not know.
            (ConnState::TimeWait, false) => {
                self.refuse_rep(from, header, rep, RejectReason::TIMEOUT);
            }
            _ => {}
        }
    }

    fn refuse_rep(&mut self, from: &MadFrom, header: MadHeader, rep: &Rep, reason: RejectReason) {
        let rej = Rej {
            local_id: rep.remote_id,
            remote_id: rep.local_id,
            subject: Subject::Rep,
            info_len: 0,
            reason,
            info: [0; 72],
            private: [0; 148],
        };
        self.answer_to(from, header, CmMessage::Rej(rej));
    }

    /// The peer accepted.
    fn replied(&mut self, id: ConnId, rep: &Rep) {
        self.table.set_remote(id, rep.local_id, rep.qpn);
        self.set_timer(id, None);
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.state = ConnState::RepReceived;
        let terms = &mut conn.terms;
        terms.sq_psn = rep.psn;
        terms.rnr_retry = rep.rnr_retry;
        if terms.qp_type == QpType::Rc {
            terms.initiator_depth = terms.initiator_depth.min(rep.responder_resources);
            let theirs = rep.initiator_depth.min(limits::MAX_RD_ATOMIC);
            terms.responder_resources = terms.responder_resources.max(theirs);
        }
        let response = Response {
            id,
            plan: terms.plan(),
            remote_qpn: rep.qpn,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            rnr_retry: rep.rnr_retry,
            flow_control: rep.flow_control,
            srq: rep.srq,
            private: rep.private.to_vec(),
        };
        self.tell(id, CmEvent::Response(Box::new(response)));
    }

    /// The queue pair has been moved by the `Response`'s plan: the RTU leaves, data may follow at
    /// once. `Established` follows. An error if the peer has ended the connection meanwhile (its
    /// event is queued).
    pub fn establish(&mut self, now: Instant, id: ConnId) -> Result<()> {
        self.clock.advance(now);
        let conn = self.conn(id)?;
        let (ConnState::RepReceived, Some(remote_id)) = (conn.state, conn.remote_id) else {
            return Err(wrong_state(conn, "establish answers a Response"));
        };
        let rtu = Rtu { local_id: id.0, remote_id, private: [0; 224] };
        let mad = Mad::new(conn.transaction, CmMessage::Rtu(rtu));
        if let Some(conn) = self.table.get_mut(id) {
            *conn.last = mad.emit();
        }
        self.repeat(id);
        self.established(id);
        self.check_invariants();
        Ok(())
    }

    /// Both sides are ready.
    pub(super) fn established(&mut self, id: ConnId) {
        self.set_timer(id, None);
        if let Some(conn) = self.table.get_mut(id) {
            conn.state = ConnState::Established;
            conn.was_established = true;
        }
        self.tell(id, CmEvent::Established(id));
    }
}
