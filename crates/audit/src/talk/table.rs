//! Conversations as a report lists them.

use core::cmp::Reverse;

use wire::Service;
use wire::packet::{Encapsulation, NakCode, Syndrome};

use super::case::Case;
use super::lane::Lane;
use super::op::{self, Kind, Op};
use super::{Answers, Half, Talks};
use crate::report::{Conversation, End, Operations, Traffic};

impl Answers {
    pub(super) fn count(&mut self, case: &Case<'_>, what: Op) {
        self.first.get_or_insert(case.at);
        self.last = case.at;
        match what {
            Op::ReadResponse(_) => self.response_bytes += u64::from(case.packet.payload_len),
            Op::AtomicAcknowledge => self.acks += 1,
            _ => match case.packet.ext.aeth.map(|aeth| aeth.syndrome) {
                Some(Syndrome::Ack(_)) => self.acks += 1,
                Some(Syndrome::RnrNak(_)) => self.rnr_naks += 1,
                Some(Syndrome::Nak(NakCode::PsnSequenceError)) => self.sequence_naks += 1,
                Some(_) => self.other_naks += 1,
                None => {}
            },
        }
    }
}

impl Answers {
    /// All of them, those with payload left out.
    pub(super) fn total(&self) -> u64 {
        self.acks + self.sequence_naks + self.rnr_naks + self.other_naks
    }
}

impl Lane {
    /// Whether the response with a PSN was seen before.
    pub(super) fn has_response(&mut self, psn: u32) -> bool {
        let Some(next) = self.next else { return false };
        let psn = op::unwrap_psn(psn, next);
        self.target(psn).is_some_and(|target| psn < target.next)
    }
}

impl Talks {
    /// Up to `most` conversations (0: all), the busiest first, and how many there were.
    pub fn report(&self, most: usize) -> (Vec<Conversation>, u64) {
        let mut heads: Vec<&Half> = self.halves.iter().filter(|half| self.leads(half)).collect();
        heads.sort_by_key(|half| (Reverse(self.bytes(half)), half.conversation));
        if most > 0 {
            heads.truncate(most);
        }
        let conversations = heads.into_iter().map(|half| self.conversation(half)).collect();
        (conversations, u64::from(self.numbered))
    }

    /// Whether a half stands for its conversation.
    fn leads(&self, half: &Half) -> bool {
        half.packets > 0 && (half.forward || half.peer.is_none())
    }

    fn bytes(&self, half: &Half) -> u64 {
        half.bytes + half.peer.map_or(0, |peer| self.get(peer).bytes)
    }

    fn conversation(&self, half: &Half) -> Conversation {
        let peer = half.peer.map(|peer| self.get(peer));
        let (source, destination) = (half.flow.source, half.flow.destination);
        let mtu = half.lane.mtu.or(half.lane.response_mtu);
        Conversation {
            id: half.conversation,
            a: End { address: source.to_ip().to_string(), qp: peer.map(|peer| peer.flow.qp) },
            b: End { address: destination.to_ip().to_string(), qp: Some(half.flow.qp) },
            encapsulation: match half.encapsulation {
                Encapsulation::RoceV1 => "RoCEv1",
                Encapsulation::RoceV2 => "RoCEv2",
                Encapsulation::Infiniband => "InfiniBand",
            },
            service: service(half.service.or(peer.and_then(|peer| peer.service))),
            mtu: mtu.or(peer.and_then(|peer| peer.lane.mtu.or(peer.lane.response_mtu))),
            first: peer.map_or(half.first, |peer| half.first.min(peer.first)),
            last: peer.map_or(half.last, |peer| half.last.max(peer.last)),
            midstream: half.lane.midstream || peer.is_some_and(|peer| peer.lane.midstream),
            forward: traffic(half),
            backward: peer.map(traffic).unwrap_or_default(),
        }
    }
}

fn service(service: Option<Service>) -> &'static str {
    match service {
        Some(Service::Rc) => "RC",
        Some(Service::Uc) => "UC",
        Some(Service::Ud) => "UD",
        Some(Service::Xrc) => "XRC",
        Some(Service::Flow) => "flow control",
        Some(Service::Cnp) | None => "unknown",
    }
}

fn traffic(half: &Half) -> Traffic {
    let (lane, answers) = (&half.lane, &half.answers);
    Traffic {
        packets: half.packets,
        bytes: half.bytes,
        goodput_bytes: lane.counts.goodput + answers.response_bytes,
        retransmitted: lane.counts.again + answers.again,
        sequence_naks: answers.sequence_naks,
        rnr_naks: answers.rnr_naks,
        other_naks: answers.other_naks,
        acks: answers.acks,
        ce: half.ce,
        cnp: half.cnp,
        operations: Kind::ALL
            .into_iter()
            .zip(&lane.done)
            .filter(|(_, done)| done.begun > 0)
            .map(|(kind, done)| Operations {
                kind: kind.name(),
                count: done.begun,
                bytes: done.bytes,
                latency_us: done.latency.as_ref().and_then(|latency| latency.summary_us()),
            })
            .collect(),
    }
}
