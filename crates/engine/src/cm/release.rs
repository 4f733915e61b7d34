//! How connections end: REJ and MRA in, DREQ and DREP both ways, timeouts, letting go, time-wait.

use wire::Instant;
use wire::mad::timeout_span;
use wire::mad::{Apr, CmMessage, Drep, Dreq, Lap, Mad, MadHeader, Mra, Rej, RejectReason, Subject};

use super::connection::{Conn, ConnState};
use super::event::{CmEvent, Rejected};
use super::passive::rej;
use super::request::{ConnId, MadFrom};
use super::{Cm, wrong_state};
use crate::error::Result;
use crate::limits;

impl Cm {
    /// Ends a connection that was accepted or established. `Disconnected` follows when the peer has
    /// agreed or does not answer, then `TimeWaitExit`. The queue pair is to go to ERR. Nothing
    /// happens if the connection is ending already.
    pub fn disconnect(&mut self, now: Instant, id: ConnId) -> Result<()> {
        self.clock.advance(now);
        let conn = self.conn(id)?;
        match conn.state {
            ConnState::RepSent | ConnState::Established => self.ask_disconnect(id),
            ConnState::DreqSent | ConnState::TimeWait => {}
            ConnState::ReqSent
            | ConnState::RepReceived
            | ConnState::ReqReceived
            | ConnState::Refused => {
                return Err(wrong_state(conn, "there is no connection to end yet"));
            }
        }
        self.check_invariants();
        Ok(())
    }

    pub(super) fn ask_disconnect(&mut self, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        let dreq = Dreq {
            local_id: id.0,
            remote_id: conn.remote_id.unwrap_or(0),
            remote_qpn: conn.terms.remote_qpn,
            private: [0; 220],
        };
        let transaction = self.transaction(id.0);
        self.begin(id, ConnState::DreqSent, Mad::new(transaction, CmMessage::Dreq(dreq)));
    }

    /// Lets go of a connection in whatever state: the peer is told, and no more events come, not
    /// even queued ones. The queue pair number rests like any other
    /// ([`in_time_wait`](Self::in_time_wait)).
    pub fn destroy(&mut self, now: Instant, id: ConnId) -> Result<()> {
        self.clock.advance(now);
        let conn = self.conn(id)?;
        let (state, remote_id, to, transaction) =
            (conn.state, conn.remote_id.unwrap_or(0), conn.peer, conn.transaction);
        if let Some(conn) = self.table.get_mut(id) {
            conn.detached = true;
        }
        self.events.retain(|event| event.connection() != Some(id));
        let refusal = |subject| {
            let rej = rej(id.0, remote_id, subject, RejectReason::CONSUMER, &[], [0; 148]);
            Mad::new(transaction, CmMessage::Rej(rej))
        };
        match state {
            ConnState::ReqSent => {
                self.give_up_request(id);
                self.enter_time_wait(id);
            }
            ConnState::RepReceived => {
                self.send(to, refusal(Subject::Rep).emit());
                self.enter_time_wait(id);
            }
            ConnState::ReqReceived => self.refused(id, refusal(Subject::Req)),
            ConnState::RepSent | ConnState::Established => self.ask_disconnect(id),
            ConnState::DreqSent | ConnState::TimeWait | ConnState::Refused => {}
        }
        self.check_invariants();
        Ok(())
    }

    /// Lets go of every connection and refuses every question: for the end of the process. Drain
    /// [`poll_mad`](Self::poll_mad) once more; repeating is over.
    pub fn shutdown(&mut self, now: Instant) {
        for id in self.table.ids() {
            let _ = self.destroy(now, id);
        }
        for id in self.resolutions.ids() {
            let _ = self.cancel(now, id);
        }
    }

    /// Tells the peer that nobody waits for its answer any more. It may not have told its id yet:
    /// the detail carries this adapter's GUID, by which, with the id, it finds the request.
    fn give_up_request(&mut self, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        let guid = self.config.guid.to_be_bytes();
        let rej = rej(id.0, 0, Subject::Req, RejectReason::TIMEOUT, &guid, [0; 148]);
        let (to, mad) = (conn.peer, Mad::new(conn.transaction, CmMessage::Rej(rej)));
        self.send(to, mad.emit());
    }

    pub(super) fn on_mra(&mut self, from: &MadFrom, mra: &Mra) {
        let id = ConnId(mra.remote_id);
        let conn = self.table.get(id).filter(|conn| conn.peer_gid() == from.av.dgid);
        let waits = conn.is_some_and(|conn| match (conn.state, mra.subject) {
            (ConnState::ReqSent, Subject::Req) => true,
            (ConnState::RepSent, Subject::Rep) => conn.remote_id == Some(mra.local_id),
            _ => false,
        });
        let Some(conn) = conn.filter(|_| waits) else {
            self.counters.rx_unexpected += 1;
            return;
        };
        let service = timeout_span(mra.service_timeout.min(limits::CM_SERVICE_TIMEOUT));
        let wait = conn.retry.full() + service;
        self.set_timer(id, Some(wait));
    }

    pub(super) fn on_rej(&mut self, from: &MadFrom, rej: &Rej) {
        let peer = from.av.dgid;
        let conn = if rej.remote_id == 0 {
            // The peer gave up a request before it was answered.
            self.table.passive(peer, rej.local_id)
        } else {
            self.table.get(ConnId(rej.remote_id)).filter(|conn| conn.peer_gid() == peer)
        };
        let known = |conn: &&Conn| match conn.remote_id {
            Some(remote_id) => remote_id == rej.local_id,
            None => conn.state == ConnState::ReqSent,
        };
        let Some((id, state)) = conn.filter(known).map(|conn| (conn.id, conn.state)) else {
            self.counters.rx_unexpected += 1;
            return;
        };
        let rejected = || {
            CmEvent::Rejected(Box::new(Rejected {
                id,
                reason: rej.reason,
                info: rej.info().to_vec(),
                private: rej.private.to_vec(),
            }))
        };
        match state {
            ConnState::ReqSent => {
                self.tell(id, rejected());
                // Stale: the number is still known over there, so it rests here too.
                match rej.reason {
                    RejectReason::STALE_CONNECTION => self.enter_time_wait(id),
                    _ => self.forget(id),
                }
            }
            ConnState::ReqReceived => self.withdrawn(id, rejected()),
            ConnState::RepReceived | ConnState::RepSent => {
                self.tell(id, rejected());
                self.enter_time_wait(id);
            }
            ConnState::Established | ConnState::DreqSent => self.disconnected(id),
            ConnState::TimeWait | ConnState::Refused => self.counters.rx_duplicates += 1,
        }
    }

    /// A request that the application has not answered is void. If it has not even seen it, it
    /// need not.
    pub(super) fn withdrawn(&mut self, id: ConnId, event: CmEvent) {
        let unseen = |e: &CmEvent| matches!(e, CmEvent::Incoming(incoming) if incoming.id == id);
        if self.events.iter().any(unseen) {
            self.events.retain(|e| !unseen(e));
        } else {
            self.tell(id, event);
        }
        self.forget(id);
    }

    pub(super) fn on_dreq(&mut self, from: &MadFrom, header: MadHeader, dreq: &Dreq) {
        let id = ConnId(dreq.remote_id);
        let drep = Drep { local_id: dreq.remote_id, remote_id: dreq.local_id, private: [0; 224] };
        let Some(conn) = self.of_peer(from, id, dreq.local_id) else {
            // It has ended here long ago: the peer shall know.
            self.counters.rx_unexpected += 1;
            return self.answer_to(from, header, CmMessage::Drep(drep));
        };
        if conn.qpn != Some(dreq.remote_qpn) {
            self.counters.rx_unexpected += 1;
            return;
        }
        match conn.state {
            ConnState::RepReceived | ConnState::Established | ConnState::DreqSent => {}
            // The peer was ready, only its RTU is lost.
            ConnState::RepSent => self.established(id),
            ConnState::TimeWait => {
                self.counters.rx_duplicates += 1;
                return self.answer_to(from, header, CmMessage::Drep(drep));
            }
            ConnState::ReqSent | ConnState::ReqReceived | ConnState::Refused => {
                self.counters.rx_unexpected += 1;
                return;
            }
        }
        self.answer_to(from, header, CmMessage::Drep(drep));
        self.disconnected(id);
    }

    pub(super) fn on_drep(&mut self, from: &MadFrom, drep: &Drep) {
        let id = ConnId(drep.remote_id);
        match self.of_peer(from, id, drep.local_id).map(|conn| conn.state) {
            Some(ConnState::DreqSent) => self.disconnected(id),
            Some(_) => self.counters.rx_duplicates += 1,
            None => self.counters.rx_unexpected += 1,
        }
    }

    /// RoCE has no alternate paths.
    pub(super) fn on_lap(&mut self, from: &MadFrom, header: MadHeader, lap: &Lap) {
        if self.of_peer(from, ConnId(lap.remote_id), lap.local_id).is_none() {
            self.counters.rx_unexpected += 1;
            return;
        }
        let apr = Apr {
            local_id: lap.remote_id,
            remote_id: lap.local_id,
            info_len: 0,
            status: Apr::UNSUPPORTED,
            info: [0; 72],
            private: [0; 148],
        };
        self.answer_to(from, header, CmMessage::Apr(apr));
    }

    fn disconnected(&mut self, id: ConnId) {
        self.tell(id, CmEvent::Disconnected(id));
        self.enter_time_wait(id);
    }

    pub(super) fn enter_time_wait(&mut self, id: ConnId) {
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.state = ConnState::TimeWait;
        let wait = conn.time_wait();
        self.set_timer(id, Some(wait));
    }

    fn forget(&mut self, id: ConnId) {
        self.set_timer(id, None);
        self.leave_backlog(id);
        self.table.remove(id);
    }

    /// A connection's deadline has been reached.
    pub(super) fn conn_due(&mut self, id: ConnId) {
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.deadline = None;
        match conn.state {
            ConnState::ReqSent | ConnState::RepSent | ConnState::DreqSent => {
                if conn.retry.again() {
                    let wait = conn.retry.wait();
                    self.counters.tx_retries += 1;
                    self.set_timer(id, Some(wait));
                    self.repeat(id);
                } else {
                    self.given_up(id);
                }
            }
            ConnState::ReqReceived => {
                let remote_id = conn.remote_id.unwrap_or(0);
                let rej = rej(id.0, remote_id, Subject::Req, RejectReason::TIMEOUT, &[], [0; 148]);
                let (to, mad) = (conn.peer, Mad::new(conn.transaction, CmMessage::Rej(rej)));
                self.send(to, mad.emit());
                self.withdrawn(id, CmEvent::Failed(id));
            }
            ConnState::TimeWait => {
                if let Some(qpn) = conn.qpn {
                    self.tell(id, CmEvent::TimeWaitExit(id, qpn));
                }
                self.forget(id);
            }
            ConnState::Refused => self.forget(id),
            ConnState::RepReceived | ConnState::Established => {}
        }
    }

    /// The peer has not answered the last repeat either.
    fn given_up(&mut self, id: ConnId) {
        let Some(conn) = self.table.get(id) else { return };
        match conn.state {
            ConnState::ReqSent => {
                self.give_up_request(id);
                self.tell(id, CmEvent::Failed(id));
                self.enter_time_wait(id);
            }
            ConnState::RepSent => {
                let remote_id = conn.remote_id.unwrap_or(0);
                let rej = rej(id.0, remote_id, Subject::Rep, RejectReason::TIMEOUT, &[], [0; 148]);
                let (to, mad) = (conn.peer, Mad::new(conn.transaction, CmMessage::Rej(rej)));
                self.send(to, mad.emit());
                self.tell(id, CmEvent::Failed(id));
                self.enter_time_wait(id);
            }
            _ => self.disconnected(id),
        }
    }
}
