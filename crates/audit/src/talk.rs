//! Conversations: packets gathered by direction (a *half*: source, destination, destination queue
//! pair), halves paired, and the transport's rules judged by an independent model of requester and
//! responder.
//!
//! A packet names its destination's queue pair only. Which two halves belong together is learned
//! from the connection manager, else from answers that fit what was asked (`pair`).

use hashbrown::HashMap;
use wire::packet::Encapsulation;
use wire::{Gid, Service};

use crate::connect;
use crate::event::{Event, Icrc, Packet};
use crate::fabric;
use crate::finding::{Findings, Flow, Number, Side};
use crate::limits;
use crate::record::{At, Direction, Point};
use crate::rule::Rule;

mod again;
mod announce;
mod answers;
mod case;
mod cause;
mod damaged;
mod finish;
mod forget;
mod histogram;
mod lane;
mod late;
mod op;
mod pair;
mod requests;
mod table;
mod twin;

pub use announce::Announced;
pub use forget::Gone;

use announce::Announcements;
use case::Case;
use lane::Lane;
use op::Op;

/// Names a half as long as it is remembered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HalfId(u32);

/// What a packet is in its conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remark {
    /// Number of the conversation, as the report has it.
    pub conversation: u32,
    /// Whether it goes from the report's end a to b.
    pub forward: bool,
    /// Whether it was sent before.
    pub again: bool,
    /// The PSN unwrapped: it goes on rising where 24 bits begin anew.
    pub psn: u64,
}

/// What makes a half.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Key {
    source: Gid,
    destination: Gid,
    qp: u32,
    encapsulation: u8,
}

/// Answers that a half carries.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    acks: u64,
    sequence_naks: u64,
    rnr_naks: u64,
    other_naks: u64,
    response_bytes: u64,
    again: u64,
    first: Option<At>,
    last: At,
}

/// One direction of a conversation.
#[derive(Debug)]
pub struct Half {
    /// Who sends, to whom, to which queue pair.
    pub flow: Flow,
    /// How it is carried.
    pub encapsulation: Encapsulation,
    /// The service of its packets; CNPs do not say.
    pub service: Option<Service>,
    /// The other direction, once it is known: packets for the queue pair that sends this one.
    pub peer: Option<HalfId>,
    /// Point of its first packet. Packets seen elsewhere are copies.
    pub home: Point,
    /// First packet.
    pub first: At,
    /// Last packet.
    pub last: At,
    /// Packets.
    pub packets: u64,
    /// Those of them whose ICRC was seen to be right.
    pub right: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Of the judge of ECN.
    pub ecn: fabric::ecn::State,
    /// Of the judge of paths.
    pub path: fabric::path::State,
    /// UDP source port of its first packet.
    source_port: u16,
    direction: Option<Direction>,
    /// Number and direction in the report; 0 until the first packet was judged.
    conversation: u32,
    forward: bool,
    /// Answers that fitted the other half, until they are enough to trust that it is.
    trust: u8,
    /// Seen since the hand of the clock passed.
    touched: bool,
    ce: u64,
    cnp: u64,
    /// The newest two CNPs, once there are two.
    cnps: Option<[At; 2]>,
    last_cnp: Option<At>,
    answers: Answers,
    lane: Lane,
    /// Of the judge of connections.
    pub connect: connect::State,
}

impl Half {
    /// Whether a packet is seen where the half's first one was, and going the same way there: at
    /// other points, and on loopback both out and in, packets are seen again.
    pub fn is_home(&self, event: &Event) -> bool {
        event.point == self.home && (event.direction.is_none() || event.direction == self.direction)
    }
}

/// All conversations.
#[derive(Debug, Default)]
pub struct Talks {
    halves: Vec<Half>,
    index: HashMap<Key, HalfId>,
    recent: Option<(Key, HalfId)>,
    asked: pair::Asked,
    /// Halves from one address to another, those of the general services left out.
    between: HashMap<(Gid, Gid), u32>,
    /// Conversations so far.
    numbered: u32,
    /// Where the search for a half to forget goes on.
    hand: usize,
    start: Option<At>,
    end: At,
    /// Requests remembered in all lanes.
    sent: usize,
    announced: Announcements,
    /// The newest that were forgotten, until they are judged.
    gone: Option<Box<Gone>>,
}

impl Talks {
    /// The half of a packet, made if it is new; its counts are brought up to date.
    pub fn half(&mut self, event: &Event, packet: &Packet) -> HalfId {
        let key = Key {
            source: packet.path.source,
            destination: packet.path.destination,
            qp: packet.bth.dest_qp.get(),
            encapsulation: packet.path.encapsulation as u8,
        };
        let id = match self.recent {
            Some((recent, id)) if recent == key => id,
            _ => match self.index.get(&key) {
                Some(&id) => id,
                None => self.begin(key, event, packet),
            },
        };
        self.recent = Some((key, id));
        self.start.get_or_insert(event.at);
        self.end = event.at;
        let half = &mut self.halves[id.0 as usize];
        half.last = event.at;
        half.touched = true;
        half.packets += 1;
        half.right += u64::from(packet.icrc == Icrc::Right);
        half.bytes += u64::from(event.len);
        if half.service.is_none() {
            half.service = packet.bth.opcode.service().filter(|service| *service != Service::Cnp);
        }
        id
    }

    fn begin(&mut self, key: Key, event: &Event, packet: &Packet) -> HalfId {
        let half = Half::empty(
            (
                Flow { source: key.source, destination: key.destination, qp: key.qp },
                packet.path.encapsulation,
            ),
            (event.point, event.at),
            (packet.path.source_port, event.direction),
        );
        let id = if self.halves.len() < limits::HALVES {
            self.halves.push(half);
            HalfId((self.halves.len() - 1) as u32)
        } else {
            let id = self.forget();
            self.halves[id.0 as usize] = half;
            id
        };
        self.index.insert(key, id);
        if key.qp != 1 {
            *self.between.entry((key.source, key.destination)).or_default() += 1;
        }
        if let Some(announced) = self.announced.take(&key) {
            self.tell(key, id, announced);
        }
        id
    }

    /// A half.
    pub fn get(&self, id: HalfId) -> &Half {
        &self.halves[id.0 as usize]
    }

    /// A half to change.
    pub fn get_mut(&mut self, id: HalfId) -> &mut Half {
        &mut self.halves[id.0 as usize]
    }

    /// All halves, in the order of their first packets.
    pub fn iter(&self) -> impl Iterator<Item = (HalfId, &Half)> {
        self.halves.iter().enumerate().map(|(at, half)| (HalfId(at as u32), half))
    }

    /// The half from `source` to queue pair `qp` of `destination`.
    pub fn find(&self, encapsulation: Encapsulation, flow: Flow) -> Option<HalfId> {
        let key = Key {
            source: flow.source,
            destination: flow.destination,
            qp: flow.qp,
            encapsulation: encapsulation as u8,
        };
        self.index.get(&key).copied()
    }

    /// Judges a packet of a half by the transport's rules.
    pub fn packet(
        &mut self,
        event: &Event,
        packet: &Packet,
        id: HalfId,
        pauses: &fabric::pause::Judge,
        findings: &mut Findings,
    ) -> Remark {
        let opcode = packet.bth.opcode.0;
        let what = op::read(opcode);
        let service = op::service(opcode);
        let half = &mut self.halves[id.0 as usize];
        half.ce += u64::from(packet.path.traffic_class & 3 == 3);
        if service == 4 {
            half.cnp += 1;
            half.cnps = half.last_cnp.replace(event.at).map(|before| [before, event.at]);
        }
        let flow = half.flow;
        let case = Case { at: event.at, flow, packet, reliable: op::is_reliable(service) };
        let (mut psn, mut again) = (u64::from(case.psn()), false);
        if half.is_home(event) && what != Op::Other && service != op::UD {
            if half.lane.is_copy(u32::from(opcode) << 24 | case.psn(), packet.path.ident) {
                again = true;
                case.copied(findings);
            } else if self.is_of_service(&case, id, findings) {
                (psn, again) = self.connected((event, &case), id, what, pauses, findings);
            }
        }
        self.number(id);
        let half = &self.halves[id.0 as usize];
        let (conversation, forward) = (half.conversation, half.forward);
        Remark { conversation, forward, again, psn }
    }

    /// A packet of a connected service.
    fn connected(
        &mut self,
        (event, case): (&Event, &Case<'_>),
        id: HalfId,
        what: Op,
        pauses: &fabric::pause::Judge,
        findings: &mut Findings,
    ) -> (u64, bool) {
        let half = &mut self.halves[id.0 as usize];
        if let Op::Request(kind, place) = what {
            let before = half.lane.sent.len();
            let outcome = half.lane.request(case, kind, place, findings);
            self.sent = (self.sent + half.lane.sent.len()).saturating_sub(before);
            if self.sent > limits::SENT {
                let before = half.lane.sent.len();
                half.lane.forget_half();
                self.sent = self.sent.saturating_sub(before - half.lane.sent.len());
            }
            if half.peer.is_none() && case.reliable {
                self.asked.remember(case, id);
            }
            return (outcome.psn, outcome.again);
        }
        half.answers.count(case, what);
        if half.peer.is_none() {
            self.find_peer(case, id);
        }
        let Some(peer) = self.trusted_peer(case, id, what) else {
            return (op::first_psn(case.psn()), false);
        };
        let asked = &mut self.halves[peer.0 as usize];
        let again = matches!(what, Op::ReadResponse(_)) && asked.lane.has_response(case.psn());
        let before = asked.lane.sent.len();
        let psn = asked.lane.answer(case, asked.flow, what, findings);
        self.sent = self.sent.saturating_sub(before.saturating_sub(asked.lane.sent.len()));
        let slow = asked.lane.slow.take();
        self.halves[id.0 as usize].answers.again += u64::from(again);
        if let Some(slow) = slow {
            self.explain((peer, slow), (id, event), pauses, findings);
        }
        (psn, again)
    }

    /// One queue pair has one service.
    fn is_of_service(&self, case: &Case<'_>, id: HalfId, findings: &mut Findings) -> bool {
        let known = self.halves[id.0 as usize].service;
        let service = case.packet.bth.opcode.service();
        if let (Some(known), Some(service)) = (known, service)
            && service != known
        {
            case.blame_requester(findings, Rule::ServiceMixed, || {
                format!("{} to a queue pair that had {known:?} before", case.packet.bth.opcode)
            });
        }
        known == service
    }

    /// Gives a half its number once it is known whether it belongs to another.
    fn number(&mut self, id: HalfId) {
        let half = &self.halves[id.0 as usize];
        if half.conversation != 0 {
            return;
        }
        let number = match half.peer.map(|peer| &self.halves[peer.0 as usize]) {
            Some(peer) if peer.conversation != 0 => (peer.conversation, !peer.forward),
            _ => {
                self.numbered += 1;
                (self.numbered, true)
            }
        };
        let half = &mut self.halves[id.0 as usize];
        (half.conversation, half.forward) = number;
    }

    /// The end of the captures.
    pub fn finish(&mut self, findings: &mut Findings) {
        for at in 0..self.halves.len() {
            let half = &mut self.halves[at];
            half.lane.finish(half.flow, self.end, findings);
            let half = &self.halves[at];
            let peer = half.peer.map(|peer| self.get(peer));
            self.conclude(half, peer, findings);
        }
    }

    /// The end of a half, `peer` being the other direction.
    fn conclude(&self, half: &Half, peer: Option<&Half>, findings: &mut Findings) {
        mtus(half, peer, findings);
        self.stray(half, peer, findings);
    }

    /// Answers to a queue pair that was seen, but never asked anything. Early in a capture they
    /// may answer what came before it.
    fn stray(&self, half: &Half, peer: Option<&Half>, findings: &mut Findings) {
        const BEFORE: u64 = 500_000_000;
        let Some(peer) = peer else { return };
        let (Some(first), Some(start)) = (half.answers.first, self.start) else { return };
        let late = half.answers.last.time.since(start.time) > BEFORE;
        if peer.lane.next.is_some() || !late {
            return;
        }
        let side = Side::Responder(half.flow.source);
        let frames = [half.answers.last, first];
        Case::tell(findings, Rule::GhostAck, peer.flow, side, &frames, &[], || {
            "answers to a queue pair that sent no request".to_owned()
        });
    }
}

/// The path MTUs of the two directions, and of a direction's requests and their responses.
fn mtus(half: &Half, peer: Option<&Half>, findings: &mut Findings) {
    let (Some(mtu), side) = (half.lane.mtu, Side::Unknown) else { return };
    let back = peer.and_then(|peer| peer.lane.mtu).filter(|_| half.forward);
    let Some(other) = half.lane.response_mtu.or(back).filter(|other| *other != mtu) else {
        return;
    };
    let numbers = [Number::last("mtu", f64::from(mtu)), Number::last("other", f64::from(other))];
    let frames = [half.first];
    Case::tell(findings, Rule::MtuMismatch, half.flow, side, &frames, &numbers, || {
        let (a, b) = (half.flow.source.to_ip(), half.flow.destination.to_ip());
        format!("{a} sends packets of {mtu} bytes, {b} of {other}")
    });
}
