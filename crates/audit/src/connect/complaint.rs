//! What is wrong with a handshake: R100 rejected, R101 repeated, R102 unanswered, and R103 where a
//! DREQ names another queue pair than was agreed.

use wire::Gid;
use wire::mad::Rej;

use super::handshake::{End, Handshake, Phase, Sent};
use super::reason;
use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::record::{At, Time};
use crate::rule::Rule;

/// A message that its sender repeats while nobody answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// REQ, SIDR_REQ.
    Ask,
    /// REP.
    Answer,
    /// DREQ of an end.
    Close(End),
}

impl Message {
    const fn word(self, resolution: bool) -> &'static str {
        match self {
            Self::Ask if resolution => "SIDR_REQ",
            Self::Ask => "REQ",
            Self::Answer => "REP",
            Self::Close(_) => "DREQ",
        }
    }

    const fn sender(self) -> End {
        match self {
            Self::Ask => End::Active,
            Self::Answer => End::Passive,
            Self::Close(end) => end,
        }
    }

    fn sent(self, handshake: &mut Handshake) -> &mut Sent {
        match self {
            Self::Ask => &mut handshake.asked,
            Self::Answer => &mut handshake.answered,
            Self::Close(end) => &mut handshake.closed[end as usize],
        }
    }
}

fn hosts(handshake: &Handshake) -> Subject {
    let [a, b] = handshake.ends;
    if a <= b { Subject::Hosts(a, b) } else { Subject::Hosts(b, a) }
}

fn is_resolution(handshake: &Handshake) -> bool {
    handshake.request.as_ref().is_some_and(|request| request.connection.is_none())
}

/// Complains of the repetitions of a message that are still open. Something got lost between the
/// point of capture and `behind`, or that end was slow.
pub(super) fn repeated(
    handshake: &mut Handshake,
    message: Message,
    behind: End,
    findings: &mut Findings,
) {
    let subject = hosts(handshake);
    let word = message.word(is_resolution(handshake));
    let from = handshake.address(message.sender());
    let towards = handshake.address(behind);
    let service = handshake.service();
    let sent = message.sent(handshake);
    let again = core::mem::take(&mut sent.pending);
    let Some(first) = sent.first() else { return };
    for at in again {
        let seconds = at.time.since(first.time) as f64 / 1e9;
        let numbers = [Number::max("seconds_since_first", seconds)];
        let instance = Instance {
            rule: Rule::CmRetry,
            subject,
            side: Side::Behind(towards),
            at: &[at, first],
            numbers: &numbers,
        };
        findings.add(instance, || {
            format!(
                "{} sends the {word} for {service} of {first} again {seconds:.3} s later: it or \
                 its answer was lost between the capture and {}, or that end was too slow",
                from.to_ip(),
                towards.to_ip()
            )
        });
    }
}

/// A REJ of an end.
pub(super) fn rejected(
    handshake: &mut Handshake,
    end: End,
    rej: &Rej,
    at: At,
    findings: &mut Findings,
) {
    let number = rej.reason.0;
    if matches!(handshake.phase, Phase::Rejected(..) | Phase::GaveUp | Phase::Closed) {
        return;
    }
    let open = matches!(handshake.phase, Phase::Asked | Phase::Waiting);
    if number == reason::TIMEOUT && end == End::Active && open {
        handshake.phase = Phase::GaveUp;
        unanswered(handshake, at.time, Some(at), findings);
        return;
    }
    if end == End::Passive && open {
        repeated(handshake, Message::Ask, End::Passive, findings);
    }
    handshake.phase = Phase::Rejected(end, number);
    let info = match rej.info() {
        [] => String::new(),
        info => format!(", detail {}", reason::hex(info)),
    };
    refuse(handshake, end, number, &info, at, findings);
}

/// A SIDR_REP without a queue pair.
pub(super) fn unresolved(handshake: &mut Handshake, status: u8, at: At, findings: &mut Findings) {
    let number = reason::resolution(status);
    handshake.phase = Phase::Rejected(End::Passive, number);
    refuse(handshake, End::Passive, number, "", at, findings);
}

fn refuse(
    handshake: &Handshake,
    end: End,
    number: u16,
    info: &str,
    at: At,
    findings: &mut Findings,
) {
    if reason::REDIRECTIONS.contains(&number) {
        return;
    }
    let (who, whom) = (handshake.address(end), handshake.address(end.other()));
    let mut frames = vec![at];
    frames.extend(handshake.asked.first());
    let instance = Instance {
        rule: Rule::CmReject,
        subject: hosts(handshake),
        side: Side::Host(who),
        at: &frames,
        numbers: &[Number::sum(reason::counter(number), 1.0)],
    };
    findings.add(instance, || {
        let service = handshake.service();
        let what = if end == End::Passive { "request" } else { "answer" };
        let advice = match reason::advice(number) {
            "" => String::new(),
            advice => format!(": {advice}"),
        };
        format!(
            "{} rejects the {what} of {} for {service}, reason {number}, {}{info}{advice}",
            who.to_ip(),
            whom.to_ip(),
            reason::rejection(number)
        )
    });
}

/// A DREQ names the queue pair of its receiver: it should be the one that was agreed.
pub(super) fn queue_pair(
    handshake: &Handshake,
    end: End,
    named: u32,
    at: At,
    findings: &mut Findings,
) {
    let Some(announced) = handshake.announced() else { return };
    let agreed = match end {
        End::Active => announced.b_qp,
        End::Passive => announced.a_qp,
    };
    if named == agreed || named == 0 {
        return;
    }
    let who = handshake.address(end);
    let numbers =
        [Number::last("agreed_qp", f64::from(agreed)), Number::last("named_qp", f64::from(named))];
    let instance = Instance {
        rule: Rule::CmParameters,
        subject: hosts(handshake),
        side: Side::Host(who),
        at: &[at, announced.at],
        numbers: &numbers,
    };
    findings.add(instance, || {
        format!(
            "{} closes the connection to queue pair {named:#x}, but {agreed:#x} was agreed in {}",
            who.to_ip(),
            announced.at
        )
    });
}

/// The end of the captures, or of the handshake's time in memory. `both_ways`: packets from the end
/// that was asked to the one that asks were captured, so an answer would have been seen.
pub(super) fn conclude(
    handshake: &mut Handshake,
    both_ways: bool,
    now: Time,
    findings: &mut Findings,
) {
    if handshake.phase == Phase::Asked {
        let again = handshake.asked.again;
        let Some(request) = &handshake.request else { return };
        let Some(last) = handshake.asked.last() else { return };
        let (patience, most) = (request.patience, u32::from(request.max_retries));
        let quiet = now.since(last.time) > patience.saturating_mul(2).saturating_add(100_000_000);
        // Repetitions show by themselves that nobody answered until then; what came after the last
        // one is seen only where answers are.
        let told = match again {
            0 | 1 => quiet && both_ways,
            _ => !quiet || both_ways || again >= most,
        };
        if told {
            unanswered(handshake, now, None, findings);
        }
    }
    if handshake.phase == Phase::Asked && !handshake.judged {
        repeated(handshake, Message::Ask, End::Passive, findings);
    }
    repeated(handshake, Message::Answer, End::Active, findings);
    repeated(handshake, Message::Close(End::Active), End::Passive, findings);
    repeated(handshake, Message::Close(End::Passive), End::Active, findings);
}

/// R102. `given_up` is the REJ with which the requester says so itself.
fn unanswered(handshake: &mut Handshake, now: Time, given_up: Option<At>, findings: &mut Findings) {
    handshake.judged = true;
    let mut frames: Vec<At> = given_up.into_iter().collect();
    frames.extend(handshake.asked.first());
    frames.append(&mut handshake.asked.pending);
    let [active, passive]: [Gid; 2] = handshake.ends;
    let requests = handshake.asked.again.saturating_add(1);
    let seconds = handshake.asked.seconds_until(now);
    let numbers =
        [Number::sum("requests", f64::from(requests)), Number::max("waited_seconds", seconds)];
    let instance = Instance {
        rule: Rule::CmNoAnswer,
        subject: hosts(handshake),
        side: Side::Behind(passive),
        at: &frames,
        numbers: &numbers,
    };
    findings.add(instance, || {
        let times = if requests == 1 { "once" } else { "repeatedly" };
        let end = match given_up {
            Some(at) => format!(", and gives up in {at}"),
            None => String::new(),
        };
        format!(
            "{} asks {} {times} for {} ({requests} sent in {seconds:.1} s); no answer is \
             seen{end}",
            active.to_ip(),
            passive.to_ip(),
            handshake.service()
        )
    });
}
