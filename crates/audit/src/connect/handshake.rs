//! One handshake of the connection manager: its messages, its state, and the words for them. What a
//! message changes in the table of all handshakes is for `connect`.

use wire::Gid;
use wire::mad::{IpCmHeader, Rep, Req, ServiceId, ServiceType, SidrRep};
use wire::packet::Encapsulation;

use super::reason;
use crate::limits;
use crate::record::{At, Point, Time};
use crate::report::Connection;
use crate::talk::Announced;

/// The end that asks, and the end that is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Active = 0,
    Passive = 1,
}

impl End {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }
}

/// How far a handshake has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// REQ or SIDR_REQ.
    Asked,
    /// The other end said that its answer takes longer (MRA).
    Waiting,
    /// REP.
    Answered,
    /// RTU.
    Established,
    /// SIDR_REP with a queue pair.
    Resolved,
    /// REJ or SIDR_REP without one.
    Rejected(End, u16),
    /// The requester gave up.
    GaveUp,
    /// DREQ.
    Closing,
    /// DREP.
    Closed,
}

/// What a repeatable message has done so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    first: Option<At>,
    last: Option<At>,
    /// Times that it was sent again.
    pub(super) again: u32,
    /// Repetitions that nobody has answered yet.
    pub(super) pending: Vec<At>,
}

/// What sending a message means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    /// For the first time.
    First,
    /// Again, after the sender's time was up.
    Again,
    /// A copy: so soon that the network or the capture made it.
    Copy,
}

impl Sent {
    /// A message is seen; its sender repeats it after `patience` nanoseconds or later.
    pub(super) fn see(&mut self, at: At, patience: u64) -> Sending {
        let Some(last) = self.last else {
            (self.first, self.last) = (Some(at), Some(at));
            return Sending::First;
        };
        if at.time.since(last.time) < patience / 2 {
            return Sending::Copy;
        }
        self.last = Some(at);
        self.again += 1;
        if self.pending.len() < limits::CM_RETRIES {
            self.pending.push(at);
        }
        Sending::Again
    }

    pub(super) fn first(&self) -> Option<At> {
        self.first
    }

    pub(super) fn last(&self) -> Option<At> {
        self.last
    }

    /// From the first sending to `time`, seconds.
    pub(super) fn seconds_until(&self, time: Time) -> f64 {
        self.first.map_or(0.0, |first| time.since(first.time) as f64 / 1e9)
    }
}

/// What a REQ or SIDR_REQ asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) service: ServiceId,
    pub(super) service_type: Option<ServiceType>,
    pub(super) qp: Option<u32>,
    /// Nanoseconds until the requester repeats.
    pub(super) patience: u64,
    /// Nanoseconds until the answering end repeats a REP.
    pub(super) answer_patience: u64,
    pub(super) max_retries: u8,
    /// What a connection needs; a resolution has none of it.
    pub(super) connection: Option<Wanted>,
    header: Option<IpCmHeader>,
    private: Box<[u8]>,
}

/// The parameters of a REQ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// First PSN that the other end shall send.
    psn: u32,
    mtu: Option<u32>,
    resources: u8,
    depth: u8,
    retry_count: u8,
    rnr_retry: u8,
    ack_timeout: u8,
    extended: u8,
    local_gid: Gid,
    remote_gid: Gid,
}

/// What a REP offered.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) qp: u32,
    /// First PSN that the other end shall send.
    psn: Option<u32>,
    resources: u8,
    depth: u8,
    rnr_retry: u8,
    at: At,
    private: Box<[u8]>,
}

impl Answer {
    pub(super) fn new(rep: &Rep, at: At) -> Self {
        Self {
            qp: rep.qpn.get(),
            psn: Some(rep.psn.get()),
            resources: rep.responder_resources,
            depth: rep.initiator_depth,
            rnr_retry: rep.rnr_retry,
            at,
            private: trimmed(&rep.private),
        }
    }

    /// Of a resolution.
    pub(super) fn resolved(rep: &SidrRep, at: At) -> Self {
        Self {
            qp: rep.qpn.get(),
            psn: None,
            resources: 0,
            depth: 0,
            rnr_retry: 0,
            at,
            private: trimmed(&rep.private),
        }
    }
}

/// Bytes without the zeros behind them.
fn trimmed(bytes: &[u8]) -> Box<[u8]> {
    let filled = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..filled).unwrap_or_default().into()
}

/// Nanoseconds of a 5-bit time code; at least what no network takes to copy a packet.
fn patience(code: u8) -> u64 {
    const LEAST: u64 = 2_000_000;
    (4096_u64 << (code & 31)).max(LEAST)
}

/// Where nothing says how patient an end is: what Linux's library of connections asks for.
pub(super) const USUAL_PATIENCE: u64 = 4096 << 20;

impl Request {
    pub(super) fn connect(req: &Req) -> Self {
        let (header, private) = reason::split_private(req.service, &req.private);
        Self {
            service: req.service,
            service_type: Some(req.service_type),
            qp: Some(req.qpn.get()),
            patience: patience(req.remote_response_timeout),
            answer_patience: patience(req.local_response_timeout),
            max_retries: req.max_cm_retries,
            connection: Some(Wanted {
                psn: req.psn.get(),
                mtu: req.mtu.map(|mtu| mtu.bytes()),
                resources: req.responder_resources,
                depth: req.initiator_depth,
                retry_count: req.retry_count,
                rnr_retry: req.rnr_retry,
                ack_timeout: req.primary.ack_timeout,
                extended: req.extended_type,
                local_gid: req.primary.local_gid,
                remote_gid: req.primary.remote_gid,
            }),
            header,
            private: trimmed(private),
        }
    }

    pub(super) fn resolve(service: ServiceId, private: &[u8]) -> Self {
        let (header, private) = reason::split_private(service, private);
        Self {
            service,
            service_type: None,
            qp: None,
            patience: USUAL_PATIENCE,
            answer_patience: USUAL_PATIENCE,
            max_retries: limits::CM_RETRIES as u8,
            connection: None,
            header,
            private: trimmed(private),
        }
    }
}

/// A handshake.
#[derive(Clone, Debug)]
pub(super) struct Handshake {
    pub(super) encapsulation: Encapsulation,
    /// Addresses of the datagrams: who asked, who was asked.
    pub(super) ends: [Gid; 2],
    /// Their names for it.
    pub(super) ids: [Option<u32>; 2],
    pub(super) transaction: u64,
    pub(super) phase: Phase,
    pub(super) request: Option<Request>,
    pub(super) answer: Option<Answer>,
    /// REQ or SIDR_REQ; REP; DREQ of each end.
    pub(super) asked: Sent,
    pub(super) answered: Sent,
    pub(super) closed: [Sent; 2],
    /// The point at which the datagrams of each end are counted; elsewhere they are copies.
    pub(super) homes: [Option<Point>; 2],
    pub(super) frames: Vec<At>,
    /// Whether no answer has been complained of.
    pub(super) judged: bool,
}

impl Handshake {
    pub(super) fn new(encapsulation: Encapsulation, ends: [Gid; 2], transaction: u64) -> Self {
        Self {
            encapsulation,
            ends,
            ids: [None, None],
            transaction,
            phase: Phase::Asked,
            request: None,
            answer: None,
            asked: Sent::default(),
            answered: Sent::default(),
            closed: [Sent::default(), Sent::default()],
            homes: [None, None],
            frames: Vec::new(),
            judged: false,
        }
    }

    pub(super) fn address(&self, end: End) -> Gid {
        self.ends[end as usize]
    }

    /// Remembers a frame.
    pub(super) fn frame(&mut self, at: At) {
        if self.frames.len() < limits::HANDSHAKE_FRAMES && self.frames.last() != Some(&at) {
            self.frames.push(at);
        }
    }

    /// Whether a message of an end at this point counts; elsewhere it is a copy.
    pub(super) fn is_home(&mut self, end: End, point: Point) -> bool {
        *self.homes[end as usize].get_or_insert(point) == point
    }

    /// The service in words.
    pub(super) fn service(&self) -> String {
        self.request.as_ref().map_or_else(
            || String::from("a service that was not captured"),
            |request| reason::service(request.service),
        )
    }

    /// What the two ends agreed on, once both have spoken.
    pub(super) fn announced(&self) -> Option<Announced> {
        let (request, answer) = (self.request.as_ref()?, self.answer.as_ref()?);
        let wanted = request.connection?;
        let roce = self.encapsulation != Encapsulation::Infiniband;
        let address = |gid: Gid, seen: Gid| if roce && !gid.is_zero() { gid } else { seen };
        Some(Announced {
            encapsulation: self.encapsulation,
            service: request.service_type?,
            a: address(wanted.local_gid, self.ends[0]),
            a_qp: request.qp?,
            a_psn: answer.psn?,
            a_resources: wanted.resources,
            a_depth: wanted.depth,
            b: address(wanted.remote_gid, self.ends[1]),
            b_qp: answer.qp,
            b_psn: wanted.psn,
            b_resources: answer.resources,
            b_depth: answer.depth,
            mtu: wanted.mtu,
            retry_count: wanted.retry_count,
            a_rnr_retry: answer.rnr_retry,
            b_rnr_retry: wanted.rnr_retry,
            ack_timeout: wanted.ack_timeout,
            at: answer.at,
        })
    }

    /// The state in words.
    fn state(&self) -> String {
        match self.phase {
            Phase::Asked if self.judged => String::from("no answer"),
            Phase::Asked => String::from("answer not captured"),
            Phase::Waiting => String::from("answer announced (MRA), not captured"),
            Phase::Answered => String::from("accepted"),
            Phase::Established => String::from("established"),
            Phase::Resolved => String::from("resolved"),
            Phase::Rejected(End::Passive, number) => {
                format!("rejected: {}", reason::rejection(number))
            }
            Phase::Rejected(End::Active, number) => {
                format!("rejected by the asking end: {}", reason::rejection(number))
            }
            Phase::GaveUp => String::from("timed out"),
            Phase::Closing => String::from("closing"),
            Phase::Closed => String::from("closed"),
        }
    }

    /// For the report.
    pub(super) fn report(&self) -> Connection {
        let request = self.request.as_ref();
        let wanted = request.and_then(|request| request.connection);
        let answer = self.answer.as_ref();
        let header = request.and_then(|request| request.header);
        let transport = request.map_or("", |request| match request.service_type {
            Some(kind) => reason::transport(kind, wanted.map_or(0, |wanted| wanted.extended)),
            None => "UD",
        });
        Connection {
            active: self.ends[0].to_ip().to_string(),
            passive: self.ends[1].to_ip().to_string(),
            service: request.map(|request| reason::service(request.service)).unwrap_or_default(),
            active_qp: request.and_then(|request| request.qp),
            passive_qp: answer.map(|answer| answer.qp),
            state: self.state(),
            mtu: wanted.and_then(|wanted| wanted.mtu),
            private: request.map(|request| reason::hex(&request.private)).unwrap_or_default(),
            frames: self.frames.clone(),
            transport,
            transaction: self.transaction,
            from: header.map(|header| (header.source, header.source_port).into()),
            to: header.map(|header| header.destination),
            active_psn: answer.and_then(|answer| answer.psn),
            passive_psn: wanted.map(|wanted| wanted.psn),
            responder_resources: wanted.map(|wanted| wanted.resources),
            initiator_depth: wanted.map(|wanted| wanted.depth),
            retry_count: wanted.map(|wanted| wanted.retry_count),
            rnr_retry: wanted.map(|wanted| wanted.rnr_retry),
            ack_timeout: wanted.map(|wanted| wanted.ack_timeout),
            passive_private: answer.map(|answer| reason::hex(&answer.private)).unwrap_or_default(),
            repeated: self.asked.again
                + self.answered.again
                + self.closed[0].again
                + self.closed[1].again,
        }
    }
}
