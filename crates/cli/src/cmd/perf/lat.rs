//! Latency: one message in flight. WRITE and SEND go to and fro, and half of the round trip counts;
//! READ and atomics are answered by the peer's NIC, and the whole counts.
//!
//! On UC and UD a message may be lost: each end sends its last one again after [`RESEND`] of
//! silence, and such a round trip is left out of the times.

use std::time::{Duration, Instant};

use crocevia::{Completion, SendData, SendFlags, SendOp, SendRequest, WcData};
use hdrhistogram::Histogram;

use super::bw::STALL;
use super::exchange::{Message, Round, Verdict};
use super::pattern::{Pattern, clear};
use super::plan::{Amount, Op};
use super::report::{Checked, LatRow};
use super::session::{INLINE, Layout, Session, post_failure};
use crate::error::{Failure, Result};

/// Round trips before the first that counts.
const WARM_UP: u64 = 10;
/// After so long without an answer an unreliable message is sent again.
const RESEND: Duration = Duration::from_millis(100);
/// Receive requests that each end keeps posted.
const RECEIVES: u64 = 8;
/// Salt of what the client sends, and of what the server has or sends.
const PING: u8 = 3;
const PONG: u8 = 4;
/// Longest time that is told apart, in ns.
const LONGEST: u64 = 60_000_000_000;

/// Measures one size.
pub(crate) fn measure(session: &mut Session, size: u32) -> Result<(LatRow, Checked)> {
    let mut times = Histogram::<u64>::new_with_bounds(1, LONGEST, 3)
        .map_err(|error| Failure::failed(format!("no histogram: {error}")))?;
    let (limit, until) = match session.agreed.amount {
        Amount::Iterations(n) => (n + WARM_UP, None),
        Amount::Seconds(s) => (u64::MAX, Some(Instant::now() + Duration::from_secs_f64(s))),
    };
    let mut end = End::new(session, size, PING)?;
    let round = Round { size, first: 0, count: None };
    session.control.send(&Message::Begin(round))?;
    session.await_ready()?;
    let halves = if end.two_way { 2 } else { 1 };
    let (mut n, mut lost) = (0, 0);
    while n < limit && until.is_none_or(|until| n <= WARM_UP || Instant::now() < until) {
        n += 1;
        end.prepare(session, n);
        // The waits below may find what they wait for at once, every time.
        session.control.alive()?;
        let begin = Instant::now();
        end.post(session, n)?;
        let resent =
            if end.two_way { end.await_peer(session, n)? } else { end.await_own(session)? };
        let time = begin.elapsed();
        if resent {
            lost += 1;
        } else if n > WARM_UP {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(LONGEST) / halves;
            times.saturating_record(ns.max(1));
        }
        if session.agreed.check {
            end.verify(session, n)
                .map_err(|wrong| Failure::failed(format!("wrong data at the client: {wrong}")))?;
        }
    }
    end.drain(session)?;
    session.control.send(&Message::End { sent: n })?;
    let verdict = match session.control.recv()? {
        Message::Verdict(verdict) => verdict,
        other => return Err(session.control.unexpected(&other, "the server's verdict")),
    };
    if let Some(wrong) = verdict.wrong {
        return Err(Failure::failed(format!("wrong data at the server: {wrong}")));
    }
    let checked = if session.agreed.check {
        let own = n * u64::from(size);
        Checked { messages: n * halves, bytes: own + verdict.checked }
    } else {
        Checked::default()
    };
    Ok((LatRow::new(size, &times, lost), checked))
}

/// The server's part of one size: answers until the client has ended.
pub(crate) fn serve(session: &mut Session, round: Round) -> Result<()> {
    let mut end = End::new(session, round.size, PONG)?;
    if session.agreed.test.op() == Op::Read {
        // Every READ finds the same, whichever its number.
        for n in 0..2 {
            let pattern = Pattern::new(PONG, round.size, n);
            pattern.fill(session.region(), end.layout.source(n), end.layout.size);
        }
    } else if session.agreed.test.op() == Op::Atomic {
        session.region().store_u64(end.layout.target(0), 0);
    }
    session.control.send(&Message::Ready)?;
    let mut verdict = Verdict::default();
    let mut n = 0;
    let sent = loop {
        if !end.two_way {
            break await_end(session)?;
        }
        end.prepare(session, n + 1);
        match end.await_ping(session, n + 1)? {
            Some(sent) => break sent,
            None => n += 1,
        }
        end.post(session, n)?;
        if session.agreed.check {
            verdict.checked += u64::from(round.size);
            if let Err(wrong) = end.verify(session, n) {
                verdict.wrong.get_or_insert(wrong);
            }
        }
    };
    if session.agreed.test.op() == Op::Atomic {
        let found = session.region().load_u64(end.layout.target(0));
        if found != sent {
            verdict.wrong = Some(format!("the counter is {found}, expected {sent}"));
        }
    }
    end.drain(session)?;
    session.control.send(&Message::Verdict(verdict))
}

fn await_end(session: &mut Session) -> Result<u64> {
    match session.control.recv()? {
        Message::End { sent } => Ok(sent),
        other => Err(session.control.unexpected(&other, "the end")),
    }
}

/// Keeps receive requests posted. Their places alternate as the messages' do, and are the same for
/// all sizes.
fn provide(session: &mut Session, layout: Layout) -> Result<()> {
    while session.ring.posted < session.ring.received + RECEIVES {
        session.ring.posted += 1;
        session.post_receive(layout, session.ring.posted)?;
    }
    Ok(())
}

/// One end of the ping-pong.
struct End {
    layout: Layout,
    salt: u8,
    /// Whether the peer's application answers (WRITE, SEND), or its NIC alone.
    two_way: bool,
    op: Op,
    /// Send requests posted and not yet completed.
    outstanding: u64,
}

impl End {
    fn new(session: &mut Session, size: u32, salt: u8) -> Result<Self> {
        let layout = session.layout(size);
        let op = session.agreed.test.op();
        let two_way = matches!(op, Op::Write | Op::Send);
        for n in 0..2 {
            clear(session.region(), layout.arrived(n), layout.size);
        }
        if op == Op::Send {
            // Messages of the size before that were sent again and came late.
            while session.recv_cq.poll(&mut [Completion::default()]) > 0 {
                session.ring.received += 1;
            }
            provide(session, layout)?;
        }
        Ok(Self { layout, salt, two_way, op, outstanding: 0 })
    }

    /// Makes message `n` ready, outside of what is timed.
    fn prepare(&self, session: &Session, n: u64) {
        let at = self.layout.source(n);
        if session.agreed.check {
            match self.op {
                Op::Write | Op::Send => {
                    let pattern = Pattern::new(self.salt, self.layout.size as u32, n);
                    pattern.fill(session.region(), at, self.layout.size);
                }
                Op::Read => clear(session.region(), self.layout.target(n), self.layout.size),
                Op::Atomic => {}
            }
        }
        if self.op == Op::Write {
            session.region().write(at + self.layout.size - 1, &[mark(n)]);
        }
    }

    fn post(&mut self, session: &Session, n: u64) -> Result<()> {
        let layout = self.layout;
        let (at, op) = match self.op {
            Op::Write => (layout.source(n), SendOp::Write(session.remote(layout.target(n)))),
            Op::Send if session.unreliable() => {
                (layout.source(n), SendOp::SendImm((n as u32).to_be_bytes()))
            }
            Op::Send => (layout.source(n), SendOp::Send),
            Op::Read => (layout.target(n), SendOp::Read(session.remote(layout.source(n)))),
            Op::Atomic => {
                let remote = session.remote(layout.target(0));
                (layout.target(n), SendOp::FetchAdd { remote, add: 1 })
            }
        };
        let sges = [session.sge(at, layout.size)];
        let mut bytes = [0; INLINE as usize];
        let inline = self.two_way && layout.size <= bytes.len();
        let data = if inline {
            session.region().read(at, &mut bytes[..layout.size]);
            SendData::Inline(&bytes[..layout.size])
        } else {
            SendData::Sges(&sges)
        };
        let flags = SendFlags::SIGNALED;
        let datagram = session.datagram(0);
        session.qps[0]
            .post_send(&SendRequest { wr_id: n, op, flags, data, datagram })
            .map_err(post_failure)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Takes the completions of what was sent; polling is also what drives the NIC.
    fn reap(&mut self, session: &Session) -> Result<bool> {
        let mut completions = [Completion::default(); 8];
        let n = session.send_cq.poll(&mut completions);
        for completion in &completions[..n] {
            if let Some(failure) = session.failure(completion) {
                return Err(failure);
            }
            self.outstanding -= 1;
        }
        Ok(n > 0)
    }

    /// Waits for the completion of a READ or an atomic.
    fn await_own(&mut self, session: &mut Session) -> Result<bool> {
        let begin = Instant::now();
        while !self.reap(session)? {
            session.control.alive()?;
            stalled(begin)?;
        }
        Ok(false)
    }

    /// Waits for the peer's message `n`; whether the own one had to be sent again.
    fn await_peer(&mut self, session: &mut Session, n: u64) -> Result<bool> {
        let begin = Instant::now();
        let (mut sent, mut resent) = (begin, false);
        while !self.arrived(session, n)? {
            session.control.alive()?;
            stalled(begin)?;
            if session.unreliable() && sent.elapsed() > RESEND {
                self.post(session, n)?;
                (sent, resent) = (Instant::now(), true);
            }
        }
        Ok(resent)
    }

    /// Waits for the client's message `n`, or its end: the number of messages it sent.
    fn await_ping(&mut self, session: &mut Session, n: u64) -> Result<Option<u64>> {
        let mut sent = Instant::now();
        loop {
            match session.control.tick()? {
                Some(Message::End { sent }) => return Ok(Some(sent)),
                Some(other) => return Err(session.control.unexpected(&other, "the end")),
                None => {}
            }
            if self.arrived(session, n)? {
                return Ok(None);
            }
            if session.unreliable() && n > 1 && sent.elapsed() > RESEND {
                self.post(session, n - 1)?;
                sent = Instant::now();
            }
        }
    }

    /// Whether the peer's message `n` is here.
    fn arrived(&mut self, session: &mut Session, n: u64) -> Result<bool> {
        self.reap(session)?;
        if self.op == Op::Write {
            let last = self.layout.arrived(n) + self.layout.size - 1;
            return Ok(session.region().load_u8(last) == mark(n));
        }
        let mut completion = [Completion::default()];
        if session.recv_cq.poll(&mut completion) == 0 {
            return Ok(false);
        }
        let [completion] = completion;
        if let Some(failure) = session.failure(&completion) {
            return Err(failure);
        }
        let number = match completion.data {
            WcData::Imm(imm) => u64::from(u32::from_be_bytes(imm)),
            _ => n,
        };
        session.ring.received += 1;
        provide(session, self.layout)?;
        // Anything else is a message sent again that had come after all.
        Ok(number == n & 0xFFFF_FFFF)
    }

    /// Compares what came for message `n`.
    fn verify(&self, session: &Session, n: u64) -> std::result::Result<(), String> {
        let (layout, size) = (self.layout, self.layout.size as u32);
        let region = session.region();
        let name = |wrong: String| format!("message {n} of {size} bytes, {wrong}");
        match self.op {
            Op::Atomic => match region.load_u64(layout.target(n)) {
                old if old == n - 1 => Ok(()),
                old => Err(format!("atomic {n} found the value {old}, expected {}", n - 1)),
            },
            Op::Read => Pattern::new(PONG, size, n % 2)
                .verify(region, layout.arrived(n), layout.size)
                .map_err(name),
            Op::Write | Op::Send => {
                let theirs = if self.salt == PING { PONG } else { PING };
                // The last byte of a WRITE is the mark that was waited for.
                let len = layout.size - usize::from(self.op == Op::Write);
                let at = if self.op == Op::Send {
                    // The receive requests' places alternate by the order of arrival.
                    layout.arrived(session.ring.received)
                } else {
                    layout.arrived(n)
                };
                Pattern::new(theirs, size, n).verify(region, at, len).map_err(name)
            }
        }
    }

    /// Waits for what is still outstanding, so that the next size starts with nothing in flight.
    fn drain(&mut self, session: &mut Session) -> Result<()> {
        let begin = Instant::now();
        while self.outstanding > 0 {
            self.reap(session)?;
            stalled(begin)?;
        }
        Ok(())
    }
}

fn stalled(begin: Instant) -> Result<()> {
    if begin.elapsed() > STALL {
        return Err(Failure::failed(format!("nothing came back for {STALL:?}")));
    }
    Ok(())
}

/// The last byte of WRITE number `n`: never 0, and never that of the last two.
fn mark(n: u64) -> u8 {
    (n % 255) as u8 + 1
}
