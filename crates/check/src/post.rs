//! Posting: what is wrong with a request at once, and what has to be remembered of it.

use crate::checker::Checker;
use crate::digest::Memory;
use crate::finding::{Call, Finding};
use crate::modify::State;
use crate::object::{Handle, Qp, Service};
use crate::queue::{InFlight, Pair};
use crate::ranges::{Meets, User};
use crate::rule::Rule;
use crate::work::{Operation, Piece, ReceiveWork, SendWork};

/// `ENOMEM`: the queue is full.
const QUEUE_FULL: i32 = 12;

/// Requests that are about to be handed to the device.
#[derive(Debug)]
#[must_use = "Checker::posted wants to know what became of them"]
pub struct Pending {
    call: Call,
    queue: Handle,
    requests: Vec<(InFlight, Vec<(Rule, String)>)>,
}

/// What a queue's requests are measured against.
struct Limits {
    context: Handle,
    pd: Handle,
    depth: u32,
    pieces: u32,
}

impl Checker {
    /// Send requests are about to be posted. Their bytes are read, so that a later change is seen.
    pub fn sending(
        &mut self,
        call: Call,
        qp: Handle,
        list: &[SendWork],
        memory: &dyn Memory,
    ) -> Pending {
        let mut requests = Vec::with_capacity(list.len());
        if let Some(pair) = self.pairs.get(&qp) {
            let (facts, state) = (pair.facts, pair.state);
            self.list_fits(call, qp, list.len(), facts.caps.sends);
            for work in list {
                requests.push(self.send(call, &facts, state, work, memory));
            }
        }
        Pending { call, queue: qp, requests }
    }

    fn send(
        &mut self,
        call: Call,
        facts: &Qp,
        state: State,
        work: &SendWork,
        memory: &dyn Memory,
    ) -> (InFlight, Vec<(Rule, String)>) {
        let caps = facts.caps;
        let mut wrong = Vec::new();
        if matches!(state, State::Reset | State::Init | State::Rtr) {
            wrong.push((Rule::EarlySend, format!("the queue pair is in {}", state_name(state))));
        }
        wrong.extend(unoffered(facts.service, work));
        let count = work.pieces.len();
        if count > caps.send_pieces as usize && !work.inline {
            let found = format!("{count} entries, max_send_sge is {}", caps.send_pieces);
            wrong.push((Rule::TooManyPieces, found));
        }
        let length = work.inline_length
            + work.pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
        if work.inline && length > u64::from(caps.inline) {
            let found = format!("{length} bytes, max_inline_data is {}", caps.inline);
            wrong.push((Rule::InlineTooLong, found));
        }
        if let Operation::Atomic(remote) = work.operation {
            wrong.extend(operand(remote, &work.pieces));
        }
        let fetches = work.operation.fetches();
        let mut request = InFlight {
            wr_id: work.wr_id,
            operation: Some(work.operation),
            signaled: work.signaled || facts.signal_all,
            lkeys: Vec::new(),
            ranges: Vec::new(),
            noted: Vec::new(),
            digest: None,
            posted: call,
        };
        if !work.inline {
            let found = self.pieces(facts.context, facts.pd, &work.pieces, fetches, &mut request);
            let whole = found.is_empty();
            wrong.extend(found);
            // What will be refused is not read.
            if whole && !fetches && wrong.is_empty() && !request.ranges.is_empty() {
                request.digest = self.reader.digest(&request.ranges, memory);
            }
        }
        (request, wrong)
    }

    /// Receive requests are about to be posted to a queue pair or to a shared queue.
    pub fn receiving(&mut self, call: Call, queue: Handle, list: &[ReceiveWork]) -> Pending {
        let mut requests = Vec::with_capacity(list.len());
        let state = self.state(queue);
        if let Some(limits) = self.receive_limits(queue) {
            self.list_fits(call, queue, list.len(), limits.depth);
            for work in list {
                let mut wrong = Vec::new();
                if state == Some(State::Reset) {
                    wrong.push((Rule::EarlyReceive, "the queue pair is in RESET".to_owned()));
                }
                let count = work.pieces.len();
                if count > limits.pieces as usize {
                    let found = format!("{count} entries, max_recv_sge is {}", limits.pieces);
                    wrong.push((Rule::TooManyPieces, found));
                }
                let mut request = InFlight {
                    wr_id: work.wr_id,
                    operation: None,
                    signaled: true,
                    lkeys: Vec::new(),
                    ranges: Vec::new(),
                    noted: Vec::new(),
                    digest: None,
                    posted: call,
                };
                wrong.extend(self.pieces(
                    limits.context,
                    limits.pd,
                    &work.pieces,
                    true,
                    &mut request,
                ));
                requests.push((request, wrong));
            }
        }
        Pending { call, queue, requests }
    }

    fn receive_limits(&self, queue: Handle) -> Option<Limits> {
        if let Some(Pair { facts, .. }) = self.pairs.get(&queue) {
            let (depth, pieces) = (facts.caps.receives, facts.caps.receive_pieces);
            return Some(Limits { context: facts.context, pd: facts.pd, depth, pieces });
        }
        self.srqs.get(&queue).map(|srq| {
            let facts = srq.facts;
            let (depth, pieces) = (facts.depth, facts.pieces);
            Limits { context: facts.context, pd: facts.pd, depth, pieces }
        })
    }

    fn list_fits(&mut self, call: Call, queue: Handle, length: usize, depth: u32) {
        if length > depth as usize {
            let finding = Finding {
                rule: Rule::ListTooLong,
                call,
                object: self.name(queue),
                wr_id: None,
                found: format!("more than the {depth} requests that the queue holds"),
                origin: self.objects.get(&queue).map(|tracked| tracked.made),
            };
            self.report(finding);
        }
    }

    /// Looks up the regions of a request's pieces, and where they lie in the process.
    fn pieces(
        &self,
        context: Handle,
        pd: Handle,
        pieces: &[Piece],
        device_writes: bool,
        request: &mut InFlight,
    ) -> Vec<(Rule, String)> {
        let mut wrong = Vec::new();
        for piece in pieces.iter().filter(|piece| piece.length > 0) {
            let Piece { addr, length, lkey } = *piece;
            let Some(mr) = self.regions.get(&(context, lkey)) else {
                let ended = self.stale.get(&(context, lkey));
                let ended = ended.map_or("", |_| ", whose region has been deregistered");
                let found = format!("lkey {lkey:#x}{ended}, for {length} bytes at {addr:#x}");
                wrong.push((Rule::UnknownLkey, found));
                continue;
            };
            let offset = addr.wrapping_sub(mr.iova);
            if offset > mr.length || mr.length - offset < u64::from(length) {
                let found = format!(
                    "{length} bytes at {addr:#x}, the region has {} bytes from {:#x} on",
                    mr.length, mr.iova
                );
                wrong.push((Rule::OutsideMr, found));
                continue;
            }
            if mr.pd != pd {
                let found = format!(
                    "lkey {lkey:#x} belongs to {}, not to the queue's domain",
                    self.name(mr.pd)
                );
                wrong.push((Rule::MrRights, found));
            } else if device_writes && !mr.local_write {
                let found = format!("lkey {lkey:#x} lacks IBV_ACCESS_LOCAL_WRITE");
                wrong.push((Rule::MrRights, found));
            }
            if !request.lkeys.contains(&lkey) {
                request.lkeys.push(lkey);
            }
            request.ranges.push((mr.addr.wrapping_add(offset), u64::from(length)));
        }
        wrong
    }

    /// The device took the first `accepted` requests, and refused the next with `errno`, if not 0.
    pub fn posted(&mut self, pending: Pending, accepted: usize, errno: i32) {
        let Pending { call, queue, requests } = pending;
        for (i, (request, wrong)) in requests.into_iter().enumerate() {
            let taken = i < accepted;
            if !taken && (i > accepted || errno == 0) {
                return;
            }
            for (rule, found) in wrong {
                let object = self.name(queue);
                let wr_id = Some(request.wr_id);
                self.report(Finding { rule, call, object, wr_id, found, origin: None });
            }
            let is_send = request.operation.is_some();
            if is_send && (taken || errno == QUEUE_FULL) {
                self.unsignaled(call, queue, request.wr_id);
            }
            if taken {
                self.note(call, queue, request);
            }
        }
    }

    /// Whether a send queue holds nothing but unsignaled requests, as many as fit.
    fn unsignaled(&mut self, call: Call, queue: Handle, wr_id: u64) {
        let Some(pair) = self.pairs.get_mut(&queue) else { return };
        let depth = pair.facts.caps.sends as usize;
        if pair.sends.len() < depth || pair.sends.iter().any(|request| request.signaled) {
            return;
        }
        let ended = std::mem::take(&mut pair.sends);
        let origin = ended.front().map(|request| request.posted);
        ended.iter().for_each(|request| self.forget_ranges(request));
        let finding = Finding {
            rule: Rule::Unsignaled,
            call,
            object: self.name(queue),
            wr_id: Some(wr_id),
            found: format!(
                "the {depth} requests before it are unsignaled, as many as the queue holds"
            ),
            origin,
        };
        self.report(finding);
    }

    /// A request is in flight.
    fn note(&mut self, call: Call, queue: Handle, mut request: InFlight) {
        self.overlaps(call, queue, &mut request);
        let is_send = request.operation.is_some();
        let signaled = request.signaled;
        let (wr_id, counted) = (request.wr_id, if is_send { "sends" } else { "receives" });
        if is_send {
            self.watched.sends += 1;
        } else {
            self.watched.receives += 1;
        }
        let cq = if let Some(pair) = self.pairs.get_mut(&queue) {
            let facts = pair.facts;
            let (list, cq) = match is_send {
                true => (&mut pair.sends, facts.send_cq),
                false => (&mut pair.receives, facts.receive_cq),
            };
            list.push_back(request);
            cq
        } else {
            if let Some(srq) = self.srqs.get_mut(&queue) {
                srq.receives.push_back(request);
            }
            return;
        };
        if !signaled {
            return;
        }
        let Some(completions) = self.cqs.get_mut(&cq) else { return };
        completions.outstanding += 1;
        let (outstanding, depth) = (completions.outstanding, completions.facts.depth);
        if outstanding > u64::from(depth) {
            let finding = Finding {
                rule: Rule::CqOverflow,
                call,
                object: self.name(cq),
                wr_id: Some(wr_id),
                found: format!(
                    "{outstanding} requests will complete into it, the last one of the {counted} \
                     of {}; it holds {depth}",
                    self.name(queue)
                ),
                origin: self.objects.get(&cq).map(|tracked| tracked.made),
            };
            self.report(finding);
        }
    }

    /// Compares the ranges of a request with those in flight, and notes them.
    fn overlaps(&mut self, call: Call, queue: Handle, request: &mut InFlight) {
        let writes = request.writes();
        let user = User { queue: queue.0, wr_id: request.wr_id };
        for at in 0..request.ranges.len() {
            let (start, length) = request.ranges[at];
            let end = start.saturating_add(length);
            let own = request.ranges[..at].iter().find(|(s, l)| *s < end && start < s + l);
            let table = if writes { &mut self.written } else { &mut self.sources };
            let meets = match own {
                Some(&(s, l)) if writes => Meets::Part(user, s, s + l),
                _ => table.add(start, end, user),
            };
            let met = match meets {
                Meets::Part(other, from, to) if writes => Some((Rule::Overlap, other, from, to)),
                Meets::Same(other) if writes => Some((Rule::SharedBuffer, other, start, end)),
                _ => None,
            };
            if !matches!(meets, Meets::Part(..)) {
                request.noted.push(start);
            }
            let crossing = if writes { &self.sources } else { &self.written };
            let met = met.or_else(|| {
                let (other, from, to) = crossing.find(start, end)?;
                Some((Rule::SharedBuffer, other, from, to))
            });
            if let Some((rule, other, from, to)) = met {
                let other = self.user(other);
                let found = format!(
                    "bytes {start:#x} to {:#x}, and {from:#x} to {:#x} of {other}",
                    end - 1,
                    to - 1
                );
                let object = self.name(queue);
                let wr_id = Some(request.wr_id);
                self.report(Finding { rule, call, object, wr_id, found, origin: None });
            }
        }
    }
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Reset => "RESET",
        State::Init => "INIT",
        _ => "RTR",
    }
}

/// What the service does not have.
fn unoffered(service: Service, work: &SendWork) -> Option<(Rule, String)> {
    let name = work.operation.name();
    let found = match (service, work.operation) {
        (_, Operation::Other(code)) => format!("opcode {code}"),
        (Service::Uc, Operation::Read | Operation::Atomic(_))
        | (Service::Ud, Operation::Read | Operation::Atomic(_) | Operation::Write) => {
            format!("{name} on {}", service.name())
        }
        (Service::Ud, Operation::Send) if !work.addressed => {
            "a datagram without address handle".to_owned()
        }
        (_, Operation::Read | Operation::Atomic(_)) if work.inline => format!("{name} inline"),
        _ => return None,
    };
    Some((Rule::WrongOperation, found))
}

/// What is wrong with the operands of an atomic.
fn operand(remote: u64, pieces: &[Piece]) -> Option<(Rule, String)> {
    if !remote.is_multiple_of(8) {
        return Some((Rule::AtomicOperand, format!("remote address {remote:#x}")));
    }
    match pieces {
        [Piece { length: 8, addr, .. }] if !addr.is_multiple_of(8) => {
            Some((Rule::ResultUnaligned, format!("result at {addr:#x}")))
        }
        [Piece { length: 8, .. }] => None,
        [one] => Some((Rule::AtomicOperand, format!("a result of {} bytes", one.length))),
        many => Some((Rule::AtomicOperand, format!("{} entries for the result", many.len()))),
    }
}
