//! What a responder owes its peer, in request order: READ responses and atomic results, then one
//! acknowledgement or NAK that covers the rest. Sent here, when the device is polled.

use std::collections::VecDeque;

use wire::{Aeth, Extensions, Instant, Msn, NakCode, Operation, Reth, Span, Syndrome};

use crate::counters::pair::count_traffic;
use crate::memory::PdId;
use crate::qp::build::Builder;
use crate::qp::facts::{Draft, Facts, Shared, wire_len};
use crate::train::Fragment;
use crate::work::Access;

/// A READ or an atomic to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    start: u64,
    end: u64,
    next: u64,
    msn: Msn,
    what: What,
    /// It repeats an answer given before.
    again: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// With the protection domain of who is asked.
    Read(Reth, PdId),
    Atomic(u64),
}

impl Reply {
    pub(crate) fn read(start: u64, packets: u64, (reth, pd): (Reth, PdId), msn: Msn) -> Self {
        let what = What::Read(reth, pd);
        Self { start, end: start + packets, next: start, msn, what, again: false }
    }

    /// What of a READ's answer begins at `from`.
    fn rest(&self, from: u64, mtu: u32) -> Option<Self> {
        let What::Read(mut reth, pd) = self.what else { return None };
        if from >= self.end || from < self.start {
            return None;
        }
        let done = (from - self.start) as u32 * mtu;
        reth.va += u64::from(done);
        reth.length -= done;
        Some(Self { start: from, next: from, what: What::Read(reth, pd), ..*self })
    }

    pub(crate) fn atomic(start: u64, value: u64, msn: Msn) -> Self {
        Self { start, end: start + 1, next: start, msn, what: What::Atomic(value), again: false }
    }
}

/// An acknowledgement or NAK.
#[derive(Clone, Copy, Debug)]
struct Tail {
    seq: u64,
    /// `None`: a plain acknowledgement, whose credits are filled in when it leaves.
    syndrome: Option<Syndrome>,
    /// It waits for company until then; `None`: it leaves at once.
    leave: Option<Instant>,
}

/// Everything owed.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    replies: VecDeque<Reply>,
    tail: Option<Tail>,
    ride: Ride,
    /// The queue pair has failed, but these answers were owed before the request that failed it.
    finishing: bool,
    /// Behind the last response that has left; the same before the last train.
    said: u64,
    said_before: u64,
}

/// Whether acknowledgements of this queue pair tend to find company. Where they did of late, some
/// may wait in vain before the next leave at once; where they did not, one in vain is enough.
#[derive(Clone, Copy, Debug, Default)]
struct Ride {
    /// Acknowledgements that still leave at once.
    skip: u8,
    /// Waits in vain that are forgiven.
    trust: u8,
}

/// Most waits in vain that are forgiven.
const RIDE_TRUST: u8 = 8;
/// Acknowledgements that leave at once after too many waited in vain.
const RIDE_BACK_OFF: u8 = 64;

impl Owed {
    /// READs and atomics not yet answered in full; repetitions do not count, for their requester
    /// may have had the answer in the meantime.
    pub(crate) fn replies(&self) -> usize {
        self.replies.iter().filter(|r| !r.again).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.tail.is_none()
    }

    /// Owes an acknowledgement of all up to `seq`; whether one was owed before, which it replaces.
    /// A NAK that has not left yet says as much.
    pub(crate) fn ack(&mut self, seq: u64, now: Instant, delay: Span) -> bool {
        let replaces = self.tail.is_some_and(|tail| tail.syndrome.is_none());
        let leave = match self.tail {
            Some(Tail { syndrome: Some(_), seq: of, .. }) if of > seq => return false,
            Some(Tail { syndrome: None, leave, .. }) => leave,
            _ if self.ride.skip > 0 => {
                self.ride.skip -= 1;
                None
            }
            _ => Some(now + delay),
        };
        self.tail = Some(Tail { seq, syndrome: None, leave });
        replaces
    }

    /// Owes a NAK for `seq`.
    pub(crate) fn nak(&mut self, seq: u64, syndrome: Syndrome) {
        self.tail = Some(Tail { seq, syndrome: Some(syndrome), leave: None });
    }

    /// Owes an answer; it acknowledges all before it.
    pub(crate) fn reply(&mut self, reply: Reply) {
        self.tail = None;
        self.replies.push_back(reply);
    }

    /// Owes an answer again: in the place of the one it repeats, or before those that follow it.
    pub(crate) fn reply_again(&mut self, reply: Reply, mtu: u32, depth: u8) {
        let covers = |r: &Reply| r.start <= reply.start && reply.start < r.end;
        if let Some(at) = self.replies.iter().position(covers) {
            let Some(same) = self.replies.get_mut(at) else { return };
            // What has not been sent yet will be, unless more is asked for.
            if same.next <= reply.start && reply.end <= same.end {
                return;
            }
            let rest = same.rest(same.next.max(reply.end), mtu);
            *same = Reply { again: same.again, ..reply };
            if let Some(rest) = rest {
                self.replies.insert(at + 1, rest);
            }
            return;
        }
        if self.replies.len() > 2 * usize::from(depth) {
            return;
        }
        let at = self.replies.partition_point(|r| r.start < reply.start);
        self.replies.insert(at, Reply { again: true, ..reply });
    }

    /// The queue pair has failed: only the last acknowledgement or NAK still leaves.
    pub(crate) fn close(&mut self) {
        if !self.finishing {
            self.replies.clear();
        }
        self.hasten();
    }

    /// The queue pair ends: only the last acknowledgement or NAK still leaves.
    pub(crate) fn abandon(&mut self) {
        self.finishing = false;
        self.close();
    }

    /// A request has been refused: what is owed to those before it leaves before the NAK.
    pub(crate) fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether answers leave although the queue pair has failed.
    pub(crate) fn is_finishing(&self) -> bool {
        self.finishing
    }

    /// Nothing waits for company any more.
    pub(crate) fn hasten(&mut self) {
        if let Some(tail) = &mut self.tail {
            tail.leave = None;
        }
    }

    /// When an acknowledgement that waits for company leaves without.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.tail.filter(|_| self.replies.is_empty()).and_then(|t| t.leave)
    }

    /// Puts READ responses and atomic results into a train. An error: the region of a READ has
    /// gone.
    pub(crate) fn emit_replies<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        credits: u8,
        b: &mut Builder<'_>,
    ) -> Result<(), ()> {
        let Some(path) = q.path else { return Ok(()) };
        self.said_before = self.said;
        while let Some(reply) = self.replies.front_mut() {
            let again = reply.again;
            let (operation, offset, length) = shape(reply, q.mtu);
            if !b.fits(&path, wire_len(q.service(), operation, length)) {
                return Ok(());
            }
            let mut ext = Extensions::default();
            if operation != Operation::ReadResponseMiddle {
                ext.aeth = Some(Aeth { syndrome: Syndrome::Ack(credits), msn: reply.msn });
            }
            match reply.what {
                What::Atomic(value) => {
                    b.pieces();
                    ext.atomic_ack = Some(value);
                }
                What::Read(reth, pd) => {
                    let (pieces, _) = b.pieces();
                    if length > 0 {
                        let va = reth.va + u64::from(offset);
                        let right = Access::REMOTE_READ;
                        let found =
                            sh.regions.remote(reth.rkey, (pd, q.qpn), va, length.into(), right);
                        match found {
                            Ok(addr) => pieces.push(Fragment::Memory { addr, length }),
                            // Its requester has had the answer, or has lost its right to it.
                            Err(_) if again => {
                                self.replies.pop_front();
                                continue;
                            }
                            Err(_) => return Err(()),
                        }
                    }
                }
            }
            b.push(&path, &Draft { bth: q.bth(operation, reply.next), ext, length, again });
            sh.counters.leaves(operation, length);
            reply.next += 1;
            self.said = self.said.max(reply.next);
            if reply.next == reply.end {
                self.replies.pop_front();
            }
        }
        Ok(())
    }

    /// The responses from `seq` on, of the last train, have not left; no other answers are owed any
    /// more. Whether that one was to leave for the first time, and of a queue pair that stands.
    pub(crate) fn take_back(&mut self, seq: u64) -> bool {
        self.replies.clear();
        let first_time = seq >= self.said_before;
        self.said = self.said.min(seq.max(self.said_before));
        !std::mem::take(&mut self.finishing) && first_time
    }

    /// The region of the READ being answered has gone: a NAK takes its place.
    pub(crate) fn revoke(&mut self) {
        let seq = self.replies.front().map_or(0, |r| r.next);
        self.replies.clear();
        // The NAK of a later request may be owed already: its requester would take it for a sign
        // that the answers before it were lost, and ask for them in vain.
        self.finishing = false;
        self.nak(seq, Syndrome::Nak(NakCode::RemoteAccessError));
    }

    /// Whether the acknowledgement or NAK is to leave now, company or not.
    pub(crate) fn tail_is_due(&self, now: Instant) -> bool {
        self.replies.is_empty()
            && self.tail.is_some_and(|t| t.leave.is_none_or(|at| at.is_due(now)))
    }

    /// Whether one is owed and nothing must leave before it.
    pub(crate) fn has_tail(&self) -> bool {
        self.replies.is_empty() && self.tail.is_some()
    }

    /// Puts the acknowledgement or NAK into the train, if it fits.
    pub(crate) fn emit_tail<M>(
        &mut self,
        q: &Facts,
        sh: &mut Shared<M>,
        (credits, msn): (u8, Msn),
        b: &mut Builder<'_>,
    ) {
        let (Some(path), Some(tail)) = (q.path, self.tail) else { return };
        if !self.replies.is_empty() || !b.fits(&path, ACK_LEN) {
            return;
        }
        let rides = !b.is_empty();
        if tail.syndrome.is_none() {
            count_traffic!(sh, q.index, tx_acks);
            sh.counters.tx_acks_riding += u64::from(rides);
            if rides {
                self.ride.skip = 0;
                self.ride.trust = RIDE_TRUST.min(self.ride.trust + 1);
            } else if tail.leave.is_some() {
                match self.ride.trust.checked_sub(1) {
                    Some(left) => self.ride.trust = left,
                    None => self.ride.skip = RIDE_BACK_OFF,
                }
            }
        }
        if let Some(nak) = tail.syndrome {
            sh.count_nak(q.index, nak);
        }
        sh.counters.leaves(Operation::Acknowledge, 0);
        let syndrome = tail.syndrome.unwrap_or(Syndrome::Ack(credits));
        let ext = Extensions { aeth: Some(Aeth { syndrome, msn }), ..Extensions::default() };
        b.pieces();
        let bth = q.bth(Operation::Acknowledge, tail.seq);
        b.push(&path, &Draft { bth, ext, length: 0, again: false });
        self.tail = None;
    }
}

/// Bytes of an acknowledgement from the BTH through the ICRC.
const ACK_LEN: usize = 12 + 4 + 4;

/// Operation, offset and bytes of the next packet of a reply.
fn shape(reply: &Reply, mtu: u32) -> (Operation, u32, u32) {
    let What::Read(reth, _) = reply.what else { return (Operation::AtomicAcknowledge, 0, 0) };
    let offset = (reply.next - reply.start) as u32 * mtu;
    let length = (reth.length - offset).min(mtu);
    let operation = match (reply.next == reply.start, reply.next + 1 == reply.end) {
        (true, true) => Operation::ReadResponseOnly,
        (true, false) => Operation::ReadResponseFirst,
        (false, false) => Operation::ReadResponseMiddle,
        (false, true) => Operation::ReadResponseLast,
    };
    (operation, offset, length)
}
