//! A queue pair under congestion control: CNPs that it owes for marks, its rate under those that it
//! gets. How the rate moves is in `cc`.

use wire::{Bth, Encapsulation, Extensions, Instant, Opcode, PKey, Packet, Path, Psn, Span};

use crate::attr::QpState;
use crate::cc::dcqcn::Limiter;
use crate::cc::{Congestion, Control};
use crate::counters::pair::count;
use crate::memory::Payload;
use crate::qp::QueuePair;
use crate::qp::facts::{Draft, Shared};
use crate::qp::flow::Note;
use crate::train::{Train, TrainLimits, TxPacket};

/// Reserved bytes behind the BTH of a CNP.
pub(crate) const CNP_RESERVED: u32 = 16;
/// A paced train lasts no longer than this at the queue pair's rate.
const LONGEST_TRAIN: Span = Span::from_us(20);

/// What a queue pair has to do with congestion; most have nothing.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    limiter: Option<Box<Limiter>>,
    /// When it last sent a CNP, and when it owes the next one.
    told: Option<Instant>,
    owes: Option<Instant>,
}

impl Limit {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let limiter = self.limiter.as_ref().and_then(|l| l.deadline());
        [limiter, self.owes].into_iter().flatten().reduce(Instant::earlier)
    }

    /// The rate, once it has one.
    pub(crate) fn rate(&self) -> Option<wire::Rate> {
        self.limiter.as_ref().map(|limiter| limiter.rate())
    }

    /// Train limits of a queue pair that is paced.
    pub(crate) fn shorten(&self, limits: TrainLimits) -> TrainLimits {
        let Some(limiter) = self.limiter.as_ref().filter(|l| l.is_limited()) else { return limits };
        let bits = u128::from(limiter.rate().as_bps()) * u128::from(LONGEST_TRAIN.as_ps());
        let bytes = (bits / 8_000_000_000_000) as usize;
        TrainLimits { bytes: limits.bytes.min(bytes), ..limits }
    }

    /// A train has been filled: when the next one may leave, if it is paced.
    pub(crate) fn charge(
        &mut self,
        congestion: &Congestion,
        now: Instant,
        not_before: Option<Instant>,
        train: &Train,
    ) -> Option<Instant> {
        let (Control::Dcqcn(p), Some(limiter)) = (&congestion.control, &mut self.limiter) else {
            return not_before;
        };
        let bytes = link_bytes(train, congestion.overhead);
        limiter.sent(p, bytes);
        if !limiter.is_limited() || bytes == 0 {
            return None;
        }
        let from = not_before.filter(|at| now.is_before(*at)).unwrap_or(now);
        Some(from + limiter.rate().time_for(bytes))
    }
}

/// Bytes of the packets of a train that carry data, as frames.
fn link_bytes(train: &Train, overhead: Option<u32>) -> u64 {
    let Some(path) = &train.path else { return 0 };
    let network = match path.encapsulation {
        Encapsulation::RoceV2 if path.destination.is_ipv4() => 20 + 8,
        Encapsulation::RoceV2 => 40 + 8,
        Encapsulation::RoceV1 | Encapsulation::Infiniband => 40,
    };
    let data = train.packets.iter().filter(|packet| packet.carries_data());
    let bytes = |packet: &TxPacket| match overhead {
        Some(overhead) => u64::from(packet.length) + u64::from(overhead),
        None => (packet.wire_len() + network + 18) as u64,
    };
    data.map(bytes).sum()
}

impl QueuePair {
    /// A packet with the CE mark has come for it.
    pub(crate) fn marked<M>(
        &mut self,
        sh: &mut Shared<M>,
        now: Instant,
        packet: &Packet<Payload<'_>>,
    ) {
        if !sh.congestion.marks() || packet.payload.is_empty() || self.facts.path.is_none() {
            return;
        }
        let notification = sh.congestion.notification;
        match self.limit.told.map(|told| told + notification.spacing) {
            Some(next) if now.is_before(next) => {
                if notification.at_end {
                    self.limit.owes.get_or_insert(next);
                }
            }
            _ => self.notify(sh, now),
        }
    }

    /// Sends a CNP.
    fn notify<M>(&mut self, sh: &mut Shared<M>, now: Instant) {
        let Some(path) = self.facts.path else { return };
        self.limit.told = Some(now);
        self.limit.owes = None;
        let notification = sh.congestion.notification;
        let path = Path {
            traffic_class: notification.dscp << 2 | path.traffic_class & 3,
            priority: notification.priority & 7,
            ..path
        };
        let bth = Bth {
            opcode: Opcode::CNP,
            solicited: false,
            migration: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: true,
            dest_qp: self.facts.dest_qp,
            ack_request: false,
            psn: Psn::default(),
        };
        let draft = Draft { bth, ext: Extensions::default(), length: CNP_RESERVED, again: false };
        count!(sh, self.facts.index, np_cnp_sent);
        sh.note(Note { path, draft });
    }

    /// A CNP has come for it; false if it does not obey any.
    pub(crate) fn notified<M>(&mut self, sh: &mut Shared<M>, now: Instant) -> bool {
        let Control::Dcqcn(p) = &sh.congestion.control else { return false };
        if !matches!(self.facts.state, QpState::Rts | QpState::Sqd) {
            return false;
        }
        match &mut self.limit.limiter {
            Some(limiter) => limiter.notified(p, now),
            place @ None => {
                *place = Some(Box::new(Limiter::new(p, sh.congestion.line, now)));
            }
        }
        true
    }

    /// Runs what is due of it.
    pub(crate) fn limit_timeout<M>(&mut self, sh: &mut Shared<M>, now: Instant) {
        if self.limit.owes.is_some_and(|at| at.is_due(now)) {
            self.notify(sh, now);
        }
        if let (Control::Dcqcn(p), Some(limiter)) =
            (&sh.congestion.control, &mut self.limit.limiter)
        {
            limiter.timeout(p, now);
        }
    }
}
