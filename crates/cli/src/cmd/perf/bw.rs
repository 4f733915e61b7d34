//! Bandwidth: as many messages in flight as the depth allows. The client drives and measures; the
//! server receives, and with `--check` verifies.
//!
//! Without `--check` a size is one round, its messages share one place a queue pair. With it, a
//! round is as many messages as have places of their own: filled before, verified after, and only
//! the time between is counted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crocevia::{Completion, Remote, SendData, SendFlags, SendOp, SendRequest, WcData};

use super::exchange::{Message, Round, Verdict};
use super::pattern::Pattern;
use super::plan::{Amount, Op};
use super::report::{BwRow, Checked};
use super::session::{Layout, Session, post_failure};
use crate::error::{Failure, Result};

/// Nothing completes for this long: something is wrong.
pub(crate) const STALL: Duration = Duration::from_secs(10);
/// After the sender's end, datagrams may still come for this long.
const QUIET: Duration = Duration::from_millis(100);
/// Bytes that are posted under one lock, and requests.
const BATCH_BYTES: usize = 256 << 10;
const BATCH: usize = 32;
/// Completions taken at once.
const POLL: usize = 64;
/// Salt of what the client sends.
const FORTH: u8 = 1;
/// Salt of what the client reads.
const BACK: u8 = 2;

/// Measures one size.
pub(crate) fn measure(session: &mut Session, size: u32) -> Result<(BwRow, Checked)> {
    let layout = session.layout(size);
    let start = Instant::now();
    let (limit, until) = match session.agreed.amount {
        Amount::Iterations(n) => (Some(n), None),
        Amount::Seconds(s) => (None, Some(start + Duration::from_secs_f64(s))),
    };
    let mut meter = Meter::new(session, limit);
    let (mut sent, mut arrived, mut checked) = (0, 0, Checked::default());
    loop {
        let left = limit.map(|limit| limit - sent);
        let count = if session.agreed.check {
            Some(left.unwrap_or(u64::MAX).min(layout.slots as u64))
        } else {
            left
        };
        let round = Round { size, first: sent, count };
        let (n, verdict) = play(session, layout, round, until, &mut meter)?;
        sent += n;
        let came = verdict.received.unwrap_or(n);
        arrived += came;
        if session.agreed.check {
            checked.messages += came;
            checked.bytes += verdict.checked;
        }
        let over = until.is_some_and(|until| Instant::now() >= until);
        if !session.agreed.check || over || limit == Some(sent) {
            break;
        }
    }
    let row = BwRow::new(size, sent, arrived, meter.seconds, meter.peak);
    Ok((row, checked))
}

/// One round: tells the server, sends, hears what came of it. The number of messages sent.
fn play(
    session: &mut Session,
    layout: Layout,
    round: Round,
    until: Option<Instant>,
    meter: &mut Meter,
) -> Result<(u64, Verdict)> {
    let op = session.agreed.test.op();
    if session.agreed.check && matches!(op, Op::Write | Op::Send) {
        for n in round.first..round.first + round.count.unwrap_or(0) {
            let pattern = Pattern::new(FORTH, round.size, n);
            pattern.fill(session.region(), layout.source(n), layout.size);
        }
    }
    session.control.send(&Message::Begin(round))?;
    session.await_ready()?;
    let until = if round.count.is_some() { None } else { until };
    let sent = pump(session, layout, round, until, meter)?;
    session.control.send(&Message::End { sent })?;
    let mut verdict = match session.control.recv()? {
        Message::Verdict(verdict) => verdict,
        other => return Err(session.control.unexpected(&other, "the server's verdict")),
    };
    if let Some(wrong) = &verdict.wrong {
        return Err(Failure::failed(format!("wrong data at the server: {wrong}")));
    }
    if session.agreed.check && matches!(op, Op::Read | Op::Atomic) {
        let result = match op {
            Op::Read => verify_reads(session, layout, round, sent),
            _ => verify_atomics(session, layout, round, sent),
        };
        verdict.checked += result
            .map_err(|wrong| Failure::failed(format!("wrong data at the client: {wrong}")))?;
    }
    Ok((sent, verdict))
}

/// Sends the round's messages, or until it is time to stop.
fn pump(
    session: &mut Session,
    layout: Layout,
    round: Round,
    until: Option<Instant>,
    meter: &mut Meter,
) -> Result<u64> {
    let lanes = session.qps.len();
    let depth = session.agreed.depth as usize;
    let batch = (BATCH_BYTES / layout.size.max(1)).clamp(1, BATCH).min(depth.div_ceil(2));
    let end = round.count.map_or(u64::MAX, |count| round.first + count);
    let mut free = vec![depth; lanes];
    let mut next: Vec<u64> = (0..lanes as u64).map(|lane| round.first + lane).collect();
    let (mut posted, mut done) = (0, 0);
    let mut completions = [Completion::default(); POLL];
    let mut open = true;
    let mut progress = Instant::now();
    meter.start();
    while open || done < posted {
        open = open && until.is_none_or(|until| Instant::now() < until);
        for lane in (0..lanes).filter(|_| open) {
            let left = end.saturating_sub(next[lane]).div_ceil(lanes as u64);
            let n = batch.min(usize::try_from(left).unwrap_or(batch));
            while n > 0 && free[lane] >= n && next[lane] < end {
                let n = n.min((end - next[lane]).div_ceil(lanes as u64) as usize);
                post(session, layout, lane, next[lane], n)?;
                next[lane] = next[lane].saturating_add((n * lanes) as u64);
                free[lane] -= n;
                posted += n as u64;
            }
        }
        open = open && next.iter().any(|&next| next < end);
        let n = session.send_cq.poll(&mut completions);
        for completion in &completions[..n] {
            let (lane, count) = unpack(completion.wr_id);
            if let Some(failure) = session.failure(completion) {
                return Err(failure);
            }
            free[lane] += count;
            done += count as u64;
        }
        session.control.alive()?;
        if n > 0 {
            progress = Instant::now();
            meter.at(progress, done);
        } else if progress.elapsed() > STALL {
            return Err(Failure::failed(format!("nothing completed for {STALL:?}")));
        }
    }
    meter.stop(done);
    Ok(done)
}

/// Posts `count` messages on `lane`, the first of number `first`; the last gives the completion.
fn post(session: &Session, layout: Layout, lane: usize, first: u64, count: usize) -> Result<()> {
    let lanes = session.qps.len() as u64;
    session.qps[lane]
        .send_batch(|batch| {
            (0..count).try_for_each(|i| {
                let number = first + i as u64 * lanes;
                let last = i + 1 == count;
                let sges = [session.sge(local_place(session, layout, number), layout.size)];
                batch.push(&SendRequest {
                    wr_id: pack(lane, count),
                    op: operation(session, layout, number),
                    flags: if last { SendFlags::SIGNALED } else { SendFlags::empty() },
                    data: SendData::Sges(&sges),
                    datagram: session.datagram(lane),
                })
            })
        })
        .map_err(post_failure)
}

/// Where the own bytes of a message are: what comes back goes to the target.
fn local_place(session: &Session, layout: Layout, number: u64) -> usize {
    match session.agreed.test.op() {
        Op::Write | Op::Send => layout.source(number),
        Op::Read | Op::Atomic => layout.target(number),
    }
}

fn operation(session: &Session, layout: Layout, number: u64) -> SendOp {
    // Where messages may be lost, the receiver can only check those that say which they are.
    let numbered = session.agreed.check && session.unreliable();
    let imm = (number as u32).to_be_bytes();
    match session.agreed.test.op() {
        Op::Write if numbered => SendOp::WriteImm(session.remote(layout.target(number)), imm),
        Op::Write => SendOp::Write(session.remote(layout.target(number))),
        Op::Read => SendOp::Read(session.remote(layout.source(number))),
        Op::Send if numbered => SendOp::SendImm(imm),
        Op::Send => SendOp::Send,
        Op::Atomic => SendOp::FetchAdd { remote: counter(session), add: 1 },
    }
}

/// The server's counter: its first target.
fn counter(session: &Session) -> Remote {
    session.remote(session.layout(super::plan::ATOMIC_BYTES).target(0))
}

fn pack(lane: usize, count: usize) -> u64 {
    (lane as u64) << 32 | count as u64
}

fn unpack(wr_id: u64) -> (usize, usize) {
    ((wr_id >> 32) as usize, (wr_id & 0xFFFF_FFFF) as usize)
}

fn verify_reads(
    session: &Session,
    layout: Layout,
    round: Round,
    sent: u64,
) -> std::result::Result<u64, String> {
    for n in round.first..round.first + sent {
        Pattern::new(BACK, round.size, n)
            .verify(session.region(), layout.arrived(n), layout.size)
            .map_err(|wrong| format!("message {n}, {wrong}"))?;
    }
    Ok(sent * layout.size as u64)
}

/// Each fetch-and-add must have found a value that no other found.
fn verify_atomics(
    session: &Session,
    layout: Layout,
    round: Round,
    sent: u64,
) -> std::result::Result<u64, String> {
    let mut seen = vec![false; sent as usize];
    for n in round.first..round.first + sent {
        let old = session.region().load_u64(layout.target(n));
        let place = old.checked_sub(round.first).and_then(|i| seen.get_mut(i as usize));
        match place {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(format!("two atomics found the value {old}")),
            None => {
                return Err(format!(
                    "an atomic found the value {old}, expected {} to {}",
                    round.first,
                    round.first + sent - 1
                ));
            }
        }
    }
    Ok(sent * 8)
}

/// The server's part of a round.
pub(crate) fn serve(session: &mut Session, round: Round) -> Result<()> {
    let layout = session.layout(round.size);
    let op = session.agreed.test.op();
    let check = session.agreed.check;
    match op {
        Op::Read if check => {
            for n in round.first..round.first + round.count.unwrap_or(0) {
                let pattern = Pattern::new(BACK, round.size, n);
                pattern.fill(session.region(), layout.source(n), layout.size);
            }
        }
        Op::Atomic if round.first == 0 => session.region().store_u64(layout.target(0), 0),
        _ => {}
    }
    let receives = op == Op::Send || (op == Op::Write && check && session.unreliable());
    if !receives {
        session.control.send(&Message::Ready)?;
        let sent = await_end(session)?;
        let verdict = verify_passive(session, layout, round, sent);
        return session.control.send(&Message::Verdict(verdict));
    }
    provide(session, layout, round)?;
    session.control.send(&Message::Ready)?;
    let (received, log) = receive(session, round)?;
    let verdict = verify_received(session, layout, round, received, &log);
    if check && session.unreliable() {
        for &(slot, _) in &log {
            session.post_receive(layout, slot)?;
        }
    }
    session.control.send(&Message::Verdict(verdict))
}

/// Receive requests for the round. On an unreliable service a checked round takes what the one
/// before has left over; without check they are kept up all the time.
fn provide(session: &mut Session, layout: Layout, round: Round) -> Result<()> {
    let first = !std::mem::replace(&mut session.stocked, true);
    match (session.agreed.check, session.unreliable()) {
        (true, false) => session.post_receives(layout, round.first, round.count.unwrap_or(0)),
        (true, true) if first => session.post_receives(layout, 0, layout.slots as u64),
        (false, _) if first => {
            let layout = session.layout(session.agreed.max_size());
            let count = u64::from(session.receives) * session.qps.len() as u64;
            session.post_receives(layout, 0, count)
        }
        _ => Ok(()),
    }
}

fn await_end(session: &mut Session) -> Result<u64> {
    match session.control.recv()? {
        Message::End { sent } => Ok(sent),
        other => Err(session.control.unexpected(&other, "the end of the round")),
    }
}

/// Receives until the client has ended and its messages have come; how many, and, with check, the
/// place and the number of each.
fn receive(session: &mut Session, round: Round) -> Result<(u64, Vec<(u64, u64)>)> {
    let keep_up = !session.agreed.check;
    let largest = session.layout(session.agreed.max_size());
    let mut completions = [Completion::default(); POLL];
    let (mut received, mut log, mut sent) = (0, Vec::new(), None);
    let mut progress = Instant::now();
    while sent.is_none_or(|sent| received < sent) {
        let n = session.recv_cq.poll(&mut completions);
        if round.count == Some(received) {
            session.control.hurry();
        }
        if let Some(message) = session.control.tick()? {
            let Message::End { sent: n } = message else {
                return Err(session.control.unexpected(&message, "the end of the round"));
            };
            (sent, progress) = (Some(n), Instant::now());
        }
        if n == 0 {
            match sent {
                Some(_) if session.unreliable() && progress.elapsed() > QUIET => break,
                Some(sent) if progress.elapsed() > STALL => {
                    return Err(Failure::failed(format!(
                        "{received} of {sent} messages arrived, and nothing more for {STALL:?}"
                    )));
                }
                _ => continue,
            }
        }
        progress = Instant::now();
        let completions = &completions[..n];
        if let Some(failure) = completions.iter().find_map(|c| session.failure(c)) {
            return Err(failure);
        }
        received += n as u64;
        if keep_up {
            session.repost(largest, completions)?;
        } else {
            log.extend(completions.iter().map(|c| (c.wr_id, number_of(c))));
        }
    }
    Ok((received, log))
}

/// The number of the message that a receive request took: it says so itself where it may be another
/// than the request was posted for.
fn number_of(completion: &Completion) -> u64 {
    match completion.data {
        WcData::Imm(imm) => u64::from(u32::from_be_bytes(imm)),
        _ => completion.wr_id,
    }
}

/// What can be said of memory that was written to without a receive request.
fn verify_passive(session: &Session, layout: Layout, round: Round, sent: u64) -> Verdict {
    let mut verdict = Verdict::default();
    if !session.agreed.check {
        return verdict;
    }
    match session.agreed.test.op() {
        Op::Write => {
            let all = round.first..round.first + sent;
            verdict.checked = sent * layout.size as u64;
            verdict.wrong = all.into_iter().find_map(|n| wrong(session, layout, round, n, n));
        }
        Op::Atomic => {
            let (found, expected) =
                (session.region().load_u64(layout.target(0)), round.first + sent);
            if found != expected {
                verdict.wrong = Some(format!("the counter is {found}, expected {expected}"));
            }
        }
        Op::Read | Op::Send => {}
    }
    verdict
}

fn verify_received(
    session: &Session,
    layout: Layout,
    round: Round,
    received: u64,
    log: &[(u64, u64)],
) -> Verdict {
    let written = session.agreed.test.op() == Op::Write;
    let find = |&(slot, number): &(u64, u64)| {
        // A write lies where its number says, a message where the receive request was.
        let place = if written { number } else { slot };
        wrong(session, layout, round, place, number)
    };
    Verdict {
        received: Some(received),
        checked: log.len() as u64 * layout.size as u64,
        wrong: log.iter().find_map(find),
    }
}

/// What is wrong with message `number`, which lies in the place of `place`.
fn wrong(
    session: &Session,
    layout: Layout,
    round: Round,
    place: u64,
    number: u64,
) -> Option<String> {
    let pattern = Pattern::new(FORTH, round.size, number);
    let result = pattern.verify(session.region(), layout.arrived(place), layout.size);
    result.err().map(|wrong| format!("message {number} of {} bytes, {wrong}", round.size))
}

/// Time and rates of a size, over all its rounds.
struct Meter {
    /// Seconds measured.
    seconds: f64,
    /// Best rate over a window, messages a second.
    peak: f64,
    /// Messages of a window.
    window: u64,
    begun: Instant,
    marks: VecDeque<(Instant, u64)>,
}

impl Meter {
    fn new(session: &Session, limit: Option<u64>) -> Self {
        let in_flight = u64::from(session.agreed.depth) * u64::from(session.agreed.qps);
        Self {
            seconds: 0.0,
            peak: 0.0,
            window: in_flight.max(limit.unwrap_or(0) / 20).max(1),
            begun: Instant::now(),
            marks: VecDeque::new(),
        }
    }

    fn start(&mut self) {
        self.begun = Instant::now();
        self.marks.clear();
        self.marks.push_back((self.begun, 0));
    }

    fn at(&mut self, now: Instant, done: u64) {
        self.marks.push_back((now, done));
        while self.marks.get(1).is_some_and(|second| done - second.1 >= self.window) {
            self.marks.pop_front();
        }
        if let Some(&(then, before)) = self.marks.front()
            && done - before >= self.window
        {
            let seconds = now.duration_since(then).as_secs_f64();
            self.peak = self.peak.max((done - before) as f64 / seconds.max(1e-9));
        }
    }

    fn stop(&mut self, done: u64) {
        if done > 0 {
            let last = self.marks.back().map_or(self.begun, |mark| mark.0);
            self.seconds += last.duration_since(self.begun).as_secs_f64();
        }
    }
}
