//! Connections: the connection manager's datagrams joined to handshakes, and those to
//! conversations. What a handshake is, is in `handshake`; what is wrong with one, in `complaint`;
//! whether traffic keeps to it, in `parameters`.

mod complaint;
mod handshake;
mod parameters;
mod reason;
mod table;

pub use parameters::State;

use hashbrown::HashSet;
use wire::mad::{CmMessage, Dreq, Mad, Rej, Rep, Req, SidrRep, SidrReq, SidrStatus, Subject};
use wire::{Gid, Qpn};

use crate::event::{Event, Packet, Path};
use crate::finding::{Findings, Flow};
use crate::record::Time;
use crate::report::Connection;
use crate::talk::{HalfId, Talks};

use handshake::{Answer, End, Handshake, Phase, Request, Sending, USUAL_PATIENCE};
use table::{Name, Table};

/// Watches handshakes.
#[derive(Debug, Default)]
pub struct Judge {
    table: Table,
    last: Time,
}

/// A datagram with where it was seen.
#[derive(Clone, Copy)]
struct Seen<'a> {
    event: &'a Event,
    path: &'a Path,
    transaction: u64,
}

impl Seen<'_> {
    /// The name `id` given by the sender.
    fn sender(&self, id: u32) -> Name {
        let (owner, peer) = (self.path.source, self.path.destination);
        Name { owner, peer, id, resolution: false }
    }

    /// The name `id` given by the receiver.
    fn receiver(&self, id: u32) -> Name {
        let (peer, owner) = (self.path.source, self.path.destination);
        Name { owner, peer, id, resolution: false }
    }

    /// A handshake that this datagram is the first of, asked by its sender or by its receiver.
    fn begin(&self, by_sender: bool) -> Handshake {
        let (source, destination) = (self.path.source, self.path.destination);
        let ends = if by_sender { [source, destination] } else { [destination, source] };
        Handshake::new(self.path.encapsulation, ends, self.transaction)
    }
}

impl Judge {
    /// A packet of a half: a management datagram, or traffic that should keep to what was agreed.
    pub fn packet(
        &mut self,
        event: &Event,
        packet: &Packet,
        half: HalfId,
        talks: &mut Talks,
        findings: &mut Findings,
    ) {
        self.last = self.last.max(event.at.time);
        match &packet.mad {
            Some(mad) if packet.bth.dest_qp == Qpn::GSI => {
                self.datagram(event, packet, mad, talks, findings);
            }
            _ => parameters::judge(talks.get_mut(half), event, packet, findings),
        }
    }

    fn datagram(
        &mut self,
        event: &Event,
        packet: &Packet,
        mad: &Mad,
        talks: &mut Talks,
        findings: &mut Findings,
    ) {
        let seen = Seen { event, path: &packet.path, transaction: mad.header.transaction };
        match &mad.message {
            CmMessage::Req(req) => self.req(seen, req, talks, findings),
            CmMessage::Rep(rep) => self.rep(seen, rep, talks, findings),
            CmMessage::Rtu(rtu) => self.rtu(seen, rtu.local_id, rtu.remote_id, talks, findings),
            CmMessage::Rej(rej) => self.rej(seen, rej, talks, findings),
            CmMessage::Mra(mra) => self.mra(seen, mra.local_id, mra.remote_id, findings),
            CmMessage::Dreq(dreq) => self.dreq(seen, dreq, talks, findings),
            CmMessage::Drep(drep) => self.drep(seen, drep.local_id, drep.remote_id, findings),
            CmMessage::SidrReq(req) => self.sidr_req(seen, req, talks, findings),
            CmMessage::SidrRep(rep) => self.sidr_rep(seen, rep, findings),
            CmMessage::Lap(lap) => self.alternate(seen, lap.local_id, lap.remote_id),
            CmMessage::Apr(apr) => self.alternate(seen, apr.local_id, apr.remote_id),
        }
    }

    /// The handshake of a message that names both ends, and which end sent it.
    fn either(&mut self, seen: Seen<'_>, local: u32, remote: u32) -> Option<(&mut Handshake, End)> {
        let (own, others) = (seen.sender(local), seen.receiver(remote));
        // Asked twice for the borrow checker's sake.
        if local != 0 && self.table.find(own).is_some() {
            return self.table.find(own);
        }
        let (handshake, end) = self.table.find(others)?;
        Some((handshake, end.other()))
    }

    /// Remembers a handshake; the one that makes room is judged by what is known of it.
    fn add(&mut self, name: Name, new: Handshake, talks: &Talks, findings: &mut Findings) {
        let Some(mut oldest) = self.table.add(name, new) else { return };
        let [active, passive] = oldest.ends;
        let answers = Flow { source: passive, destination: active, qp: Qpn::GSI.get() };
        let both_ways = talks.find(oldest.encapsulation, answers).is_some();
        complaint::conclude(&mut oldest, both_ways, self.last, findings);
    }

    fn req(&mut self, seen: Seen<'_>, req: &Req, talks: &Talks, findings: &mut Findings) {
        let name = seen.sender(req.local_id);
        let qp = req.qpn.get();
        let known = self.table.find(name).is_some_and(|(handshake, _)| {
            handshake.transaction == seen.transaction
                && handshake.request.as_ref().is_none_or(|request| request.qp == Some(qp))
        });
        if !known {
            self.add(name, seen.begin(true), talks, findings);
        }
        let Some((handshake, _)) = self.table.find(name) else { return };
        if handshake.request.is_none() {
            handshake.request = Some(Request::connect(req));
        }
        Self::asked(seen, handshake, findings);
    }

    fn sidr_req(&mut self, seen: Seen<'_>, req: &SidrReq, talks: &Talks, findings: &mut Findings) {
        let name = Name { resolution: true, ..seen.sender(req.request_id) };
        let known = self.table.find(name).is_some_and(|(handshake, _)| {
            handshake.transaction == seen.transaction
                && handshake.request.as_ref().is_some_and(|r| r.service == req.service)
        });
        if !known {
            let mut new = seen.begin(true);
            new.request = Some(Request::resolve(req.service, &req.private));
            self.add(name, new, talks, findings);
        }
        if let Some((handshake, _)) = self.table.find(name) {
            Self::asked(seen, handshake, findings);
        }
    }

    /// A REQ or SIDR_REQ, first or again.
    fn asked(seen: Seen<'_>, handshake: &mut Handshake, findings: &mut Findings) {
        if !handshake.is_home(End::Active, seen.event.point) {
            return;
        }
        let at = seen.event.at;
        handshake.frame(at);
        let patience = handshake.request.as_ref().map_or(USUAL_PATIENCE, |r| r.patience);
        let again = handshake.asked.see(at, patience) == Sending::Again;
        if again && !matches!(handshake.phase, Phase::Asked | Phase::Waiting) {
            // It had been answered: the answer did not arrive.
            complaint::repeated(handshake, complaint::Message::Ask, End::Active, findings);
        }
    }

    fn rep(&mut self, seen: Seen<'_>, rep: &Rep, talks: &mut Talks, findings: &mut Findings) {
        let name = seen.receiver(rep.remote_id);
        if self.table.find(name).is_none() {
            self.add(name, seen.begin(false), talks, findings);
        }
        let at = seen.event.at;
        let Some((handshake, _)) = self.table.find(name) else { return };
        if !handshake.is_home(End::Passive, seen.event.point) {
            return;
        }
        handshake.frame(at);
        let patience = handshake.request.as_ref().map_or(USUAL_PATIENCE, |r| r.answer_patience);
        match handshake.answered.see(at, patience) {
            Sending::Copy => {}
            Sending::Again if handshake.phase == Phase::Established => {
                complaint::repeated(handshake, complaint::Message::Answer, End::Passive, findings);
            }
            Sending::Again => {}
            Sending::First if matches!(handshake.phase, Phase::Asked | Phase::Waiting) => {
                complaint::repeated(handshake, complaint::Message::Ask, End::Passive, findings);
                handshake.phase = Phase::Answered;
                handshake.answer = Some(Answer::new(rep, at));
                if let Some(announced) = handshake.announced() {
                    talks.announce(announced);
                }
                self.table.name_passive(name, rep.local_id);
            }
            Sending::First => {}
        }
    }

    fn rtu(
        &mut self,
        seen: Seen<'_>,
        local: u32,
        remote: u32,
        talks: &Talks,
        findings: &mut Findings,
    ) {
        let name = seen.sender(local);
        if self.table.find(name).is_none() {
            self.add(name, seen.begin(true), talks, findings);
            self.table.name_passive(name, remote);
        }
        let Some((handshake, _)) = self.table.find(name) else { return };
        if !handshake.is_home(End::Active, seen.event.point) {
            return;
        }
        handshake.frame(seen.event.at);
        complaint::repeated(handshake, complaint::Message::Answer, End::Active, findings);
        if matches!(handshake.phase, Phase::Asked | Phase::Waiting | Phase::Answered) {
            handshake.phase = Phase::Established;
        }
    }

    fn rej(&mut self, seen: Seen<'_>, rej: &Rej, talks: &Talks, findings: &mut Findings) {
        if self.either(seen, rej.local_id, rej.remote_id).is_none() {
            // Only the answer was captured: it says enough if it says what it refuses.
            let (name, by_sender) = match rej.subject {
                Subject::Req => (seen.receiver(rej.remote_id), false),
                Subject::Rep => (seen.sender(rej.local_id), true),
                Subject::Other | Subject::Reserved => return,
            };
            self.add(name, seen.begin(by_sender), talks, findings);
        }
        let Some((handshake, end)) = self.either(seen, rej.local_id, rej.remote_id) else { return };
        if !handshake.is_home(end, seen.event.point) {
            return;
        }
        handshake.frame(seen.event.at);
        complaint::rejected(handshake, end, rej, seen.event.at, findings);
    }

    fn mra(&mut self, seen: Seen<'_>, local: u32, remote: u32, findings: &mut Findings) {
        let Some((handshake, end)) = self.either(seen, local, remote) else { return };
        if !handshake.is_home(end, seen.event.point) {
            return;
        }
        handshake.frame(seen.event.at);
        if end == End::Passive && handshake.phase == Phase::Asked {
            complaint::repeated(handshake, complaint::Message::Ask, End::Passive, findings);
            handshake.phase = Phase::Waiting;
        }
    }

    fn dreq(&mut self, seen: Seen<'_>, dreq: &Dreq, talks: &mut Talks, findings: &mut Findings) {
        let Some((handshake, end)) = self.either(seen, dreq.local_id, dreq.remote_id) else {
            return;
        };
        if !handshake.is_home(end, seen.event.point) {
            return;
        }
        let at = seen.event.at;
        handshake.frame(at);
        let patience = handshake.request.as_ref().map_or(USUAL_PATIENCE, |r| match end {
            End::Active => r.patience,
            End::Passive => r.answer_patience,
        });
        let sending = handshake.closed[end as usize].see(at, patience);
        if sending == Sending::First {
            complaint::queue_pair(handshake, end, dreq.remote_qpn.get(), at, findings);
            if let Some(announced) = handshake.announced() {
                talks.withdraw(&announced);
            }
        }
        match handshake.phase {
            Phase::Closed if sending == Sending::Again => {
                complaint::repeated(handshake, complaint::Message::Close(end), end, findings);
            }
            Phase::Closed | Phase::Rejected(..) | Phase::GaveUp => {}
            _ => handshake.phase = Phase::Closing,
        }
    }

    fn drep(&mut self, seen: Seen<'_>, local: u32, remote: u32, findings: &mut Findings) {
        let Some((handshake, end)) = self.either(seen, local, remote) else { return };
        if !handshake.is_home(end, seen.event.point) {
            return;
        }
        handshake.frame(seen.event.at);
        complaint::repeated(handshake, complaint::Message::Close(end.other()), end, findings);
        if !matches!(handshake.phase, Phase::Rejected(..) | Phase::GaveUp) {
            handshake.phase = Phase::Closed;
        }
    }

    fn sidr_rep(&mut self, seen: Seen<'_>, rep: &SidrRep, findings: &mut Findings) {
        let name = Name { resolution: true, ..seen.receiver(rep.request_id) };
        let Some((handshake, _)) = self.table.find(name) else { return };
        if !handshake.is_home(End::Passive, seen.event.point) {
            return;
        }
        handshake.frame(seen.event.at);
        if !matches!(handshake.phase, Phase::Asked | Phase::Waiting) {
            return;
        }
        complaint::repeated(handshake, complaint::Message::Ask, End::Passive, findings);
        if rep.status == SidrStatus::VALID {
            handshake.phase = Phase::Resolved;
            handshake.answer = Some(Answer::resolved(rep, seen.event.at));
        } else {
            complaint::unresolved(handshake, rep.status.0, seen.event.at, findings);
        }
    }

    fn alternate(&mut self, seen: Seen<'_>, local: u32, remote: u32) {
        if let Some((handshake, _)) = self.either(seen, local, remote) {
            handshake.frame(seen.event.at);
        }
    }

    /// The end of the captures: what was never answered.
    pub fn finish(&mut self, talks: &Talks, findings: &mut Findings) {
        let ways: HashSet<(Gid, Gid)> =
            talks.iter().map(|(_, half)| (half.flow.source, half.flow.destination)).collect();
        for handshake in self.table.iter_mut() {
            let [active, passive] = handshake.ends;
            let both_ways = ways.contains(&(passive, active));
            complaint::conclude(handshake, both_ways, self.last, findings);
        }
    }

    /// The connections, in the order of their first messages.
    pub fn report(&self) -> Vec<Connection> {
        self.table.iter().map(Handshake::report).collect()
    }
}
