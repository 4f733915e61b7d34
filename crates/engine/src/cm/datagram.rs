//! Service resolution: SIDR_REQ and SIDR_REP, both sides. One question, one answer, no connection.

use std::collections::BTreeMap;

use wire::mad::{
    CmMessage, MAD_LEN, Mad, MadHeader, ServiceId, SidrRep, SidrReq, SidrStatus, timeout_span,
};
use wire::{Gid, Instant, PKey, QKey, Qpn, Span};

use super::connection::Retry;
use super::event::{CmEvent, Question, Resolved};
use super::request::{ListenId, MadFrom, ResolveAnswer, ResolveId, ResolveRequest};
use super::timers::Tick;
use super::{Cm, Due, private_field, split_private};
use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use crate::work::AddressVector;

/// The resolutions of a connection manager.
#[derive(Debug)]
pub(super) struct Resolutions {
    /// Questions of this side.
    asked: BTreeMap<ResolveId, Asked>,
    /// Questions of peers.
    questions: BTreeMap<ResolveId, Waiting>,
    /// The same, by the peer's GID and request id.
    by_peer: BTreeMap<(Gid, u32), ResolveId>,
}

#[derive(Debug)]
struct Asked {
    peer: AddressVector,
    payload: Box<[u8; MAD_LEN]>,
    retry: Retry,
    deadline: Option<Tick>,
}

#[derive(Debug)]
struct Waiting {
    peer: AddressVector,
    request_id: u32,
    transaction: u64,
    service: ServiceId,
    /// Whose backlog it fills, until it is answered.
    waiting_at: Option<ListenId>,
    /// Once answered: kept for repeated questions.
    answer: Option<Box<[u8; MAD_LEN]>>,
    deadline: Option<Tick>,
}

impl Resolutions {
    pub(super) fn new() -> Self {
        Self { asked: BTreeMap::new(), questions: BTreeMap::new(), by_peer: BTreeMap::new() }
    }

    pub(super) fn contains(&self, id: ResolveId) -> bool {
        self.asked.contains_key(&id) || self.questions.contains_key(&id)
    }

    pub(super) fn ids(&self) -> Vec<ResolveId> {
        self.asked.keys().chain(self.questions.keys()).copied().collect()
    }

    #[cfg(debug_assertions)]
    pub(super) fn timed(&self) -> usize {
        assert_eq!(self.by_peer.len(), self.questions.len());
        self.asked.len() + self.questions.len()
    }
}

impl Cm {
    /// Asks a peer for the queue pair of a datagram service. `Resolved` or `Unresolved` follow.
    pub fn resolve(&mut self, now: Instant, request: &ResolveRequest<'_>) -> Result<ResolveId> {
        self.clock.advance(now);
        let private = private_field("SIDR_REQ", request.ip, request.private)?;
        if !request.av.is_global {
            return Err(Error::invalid("RoCE needs the GRH: set is_global in the address vector"));
        }
        if self.resolutions.asked.len() >= limits::MAX_RESOLUTIONS {
            return Err(Error::new(
                ErrorKind::Full,
                format!("{} service resolutions are under way", limits::MAX_RESOLUTIONS),
            ));
        }
        let id = ResolveId(self.draw_id());
        let req =
            SidrReq { request_id: id.0, pkey: PKey::DEFAULT, service: request.service, private };
        let payload = Mad::new(self.transaction(id.0), CmMessage::SidrReq(req)).emit();
        let retry = Retry::new(request.response_timeout, request.max_cm_retries);
        let asked = Asked { peer: request.av, payload: Box::new(payload), retry, deadline: None };
        self.resolutions.asked.insert(id, asked);
        self.set_asked_timer(id, Some(retry.wait()));
        self.send(request.av, payload);
        self.check_invariants();
        Ok(id)
    }

    /// Lets go of a question: one of this side is forgotten, one of a peer is refused. No event of
    /// it comes any more, not even a queued one.
    pub fn cancel(&mut self, now: Instant, id: ResolveId) -> Result<()> {
        self.clock.advance(now);
        self.events.retain(|event| event.resolution() != Some(id));
        if self.resolutions.asked.contains_key(&id) {
            self.forget_asked(id);
        } else {
            let refusal = ResolveAnswer {
                status: SidrStatus::REJECTED,
                qpn: Qpn::new(0),
                qkey: QKey::new(0),
                private: &[],
            };
            self.answer(now, id, &refusal)?;
        }
        self.check_invariants();
        Ok(())
    }

    /// Answers a peer's question. Repeated questions get the same answer.
    pub fn answer(
        &mut self,
        now: Instant,
        id: ResolveId,
        answer: &ResolveAnswer<'_>,
    ) -> Result<()> {
        self.clock.advance(now);
        let private = private_field("SIDR_REP", None, answer.private)?;
        let waiting = self.resolutions.questions.get_mut(&id).filter(|w| w.answer.is_none());
        let waiting = waiting.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no unanswered question {:#010x}", id.0))
        })?;
        let rep = SidrRep {
            request_id: waiting.request_id,
            status: answer.status,
            info_len: 0,
            qpn: answer.qpn,
            service: waiting.service,
            qkey: answer.qkey,
            info: [0; 72],
            private,
        };
        let payload = Mad::new(waiting.transaction, CmMessage::SidrRep(rep)).emit();
        waiting.answer = Some(Box::new(payload));
        let (to, listener) = (waiting.peer, waiting.waiting_at.take());
        if let Some(listener) = listener {
            self.listeners.release(listener);
        }
        self.set_question_timer(id, Some(timeout_span(limits::CM_RESPONSE_TIMEOUT).times(2)));
        self.send(to, payload);
        self.check_invariants();
        Ok(())
    }

    pub(super) fn on_question(&mut self, from: &MadFrom, header: MadHeader, req: &SidrReq) {
        if let Some(&id) = self.resolutions.by_peer.get(&(from.av.dgid, req.request_id)) {
            self.counters.rx_duplicates += 1;
            let known = self.resolutions.questions.get(&id);
            if let Some(answer) = known.and_then(|waiting| waiting.answer.as_deref()).copied() {
                self.send(from.av, answer);
            }
            return;
        }
        let Some(listener) = self.listeners.find(req.service, from.local) else {
            let rep = SidrRep {
                request_id: req.request_id,
                status: SidrStatus::UNSUPPORTED,
                info_len: 0,
                qpn: Qpn::new(0),
                service: req.service,
                qkey: QKey::new(0),
                info: [0; 72],
                private: [0; 136],
            };
            return self.answer_to(from, header, CmMessage::SidrRep(rep));
        };
        let full = self.resolutions.questions.len() >= limits::MAX_RESOLUTIONS
            || self.events.len() >= limits::MAX_CM_EVENTS;
        if full || !self.listeners.admit(listener) {
            self.counters.rx_no_room += 1;
            return;
        }
        let id = ResolveId(self.draw_id());
        let waiting = Waiting {
            peer: from.av,
            request_id: req.request_id,
            transaction: header.transaction,
            service: req.service,
            waiting_at: Some(listener),
            answer: None,
            deadline: None,
        };
        self.resolutions.questions.insert(id, waiting);
        self.resolutions.by_peer.insert((from.av.dgid, req.request_id), id);
        self.set_question_timer(id, Some(limits::CM_REQUEST_LIFETIME));
        let (ip, private) = split_private(req.service, &req.private);
        let (service, av, local) = (req.service, from.av, from.local);
        let question = Question { id, listener, service, ip, av, local, private };
        self.events.push_back(CmEvent::Question(Box::new(question)));
    }

    pub(super) fn on_resolved(&mut self, from: &MadFrom, rep: &SidrRep) {
        let id = ResolveId(rep.request_id);
        let asked = self.resolutions.asked.get(&id);
        let Some(asked) = asked.filter(|asked| asked.peer.dgid == from.av.dgid) else {
            self.counters.rx_unexpected += 1;
            return;
        };
        let av = asked.peer;
        self.forget_asked(id);
        self.events.push_back(match rep.status {
            SidrStatus::VALID => CmEvent::Resolved(Box::new(Resolved {
                id,
                av,
                qpn: rep.qpn,
                qkey: rep.qkey,
                private: rep.private.to_vec(),
            })),
            status => CmEvent::Unresolved(id, Some(status)),
        });
    }

    /// No answer has come to a question of this side.
    pub(super) fn asked_due(&mut self, id: ResolveId) {
        let Some(asked) = self.resolutions.asked.get_mut(&id) else { return };
        asked.deadline = None;
        if asked.retry.again() {
            let (to, payload, wait) = (asked.peer, *asked.payload, asked.retry.wait());
            self.counters.tx_retries += 1;
            self.set_asked_timer(id, Some(wait));
            self.send(to, payload);
        } else {
            self.forget_asked(id);
            self.events.push_back(CmEvent::Unresolved(id, None));
        }
    }

    /// A peer's question was never answered, or its answer has been kept long enough.
    pub(super) fn question_due(&mut self, id: ResolveId) {
        let Some(waiting) = self.resolutions.questions.remove(&id) else { return };
        self.resolutions.by_peer.remove(&(waiting.peer.dgid, waiting.request_id));
        if let Some(listener) = waiting.waiting_at {
            self.listeners.release(listener);
        }
        self.events.retain(|event| event.resolution() != Some(id));
    }

    fn forget_asked(&mut self, id: ResolveId) {
        self.set_asked_timer(id, None);
        self.resolutions.asked.remove(&id);
    }

    fn set_asked_timer(&mut self, id: ResolveId, wait: Option<Span>) {
        let tick = wait.map(|span| self.clock.after(span));
        if let Some(asked) = self.resolutions.asked.get_mut(&id) {
            self.timers.set(&mut asked.deadline, Due::Asked(id), tick);
        }
    }

    fn set_question_timer(&mut self, id: ResolveId, wait: Option<Span>) {
        let tick = wait.map(|span| self.clock.after(span));
        if let Some(waiting) = self.resolutions.questions.get_mut(&id) {
            self.timers.set(&mut waiting.deadline, Due::Question(id), tick);
        }
    }
}
