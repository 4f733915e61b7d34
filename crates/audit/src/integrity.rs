//! Whether packets are whole: ICRCs and what explains wrong ones, headers that receivers refuse,
//! checksums, fragments, damaged captures.

use hashbrown::HashMap;
use wire::packet::Encapsulation;
use wire::{DropReason, Layer, transport};

use crate::event::{Event, Icrc, IcrcCause, Packet, Path, What, WrongIcrc};
use crate::finding::{Findings, Flow, Instance, Number, Side, Subject};
use crate::limits;
use crate::record::At;
use crate::report::Capture;
use crate::rule::Rule;
use crate::talk::Talks;

mod likeness;

/// Wrong packets alike that make a rewriting device of damage.
const ALIKE: usize = 3;

/// Judges packets one by one.
#[derive(Debug, Default)]
pub struct Judge {
    wrong: HashMap<Flow, Wrong>,
    short: Short,
    /// Bytes of the longest frame so far.
    longest: u32,
}

/// Wrong ICRCs of a flow.
#[derive(Debug, Default)]
struct Wrong {
    count: u64,
    /// The first ones without an explanation, while it is open whether they are alike: where, how
    /// far off, and that as of a packet of no length.
    open: Vec<(At, u32, u32)>,
    /// What the wrong ones have in common, once enough of them have.
    alike: Option<u32>,
}

/// Truncated packets, while it is open whether the capture was cut without saying so: all of one
/// length, and nothing longer seen.
#[derive(Debug, Default)]
struct Short {
    open: Vec<(Subject, At, u32, DropReason)>,
    is_sure: bool,
}

impl Judge {
    /// A packet whose headers make sense. Whether it is to be believed: its receiver takes it, or
    /// nobody can tell.
    pub fn packet(
        &mut self,
        event: &Event,
        packet: &Packet,
        talks: &Talks,
        findings: &mut Findings,
    ) -> bool {
        self.longest = self.longest.max(event.len);
        if packet.path.udp_checksum == Some(false) && packet.icrc == Icrc::Right {
            let flow = flow(&packet.path, packet.bth.dest_qp.get());
            add(
                findings,
                Rule::UdpChecksum,
                Subject::Flow(flow),
                host(&packet.path),
                event.at,
                || "UDP checksum neither 0 nor right, though the ICRC is".to_owned(),
            );
        }
        let Icrc::Wrong(wrong) = packet.icrc else { return true };
        let covered = transport::wire_len(packet.bth.opcode, packet.payload_len as usize);
        let seen = Seen {
            at: event.at,
            flow: flow(&packet.path, packet.bth.dest_qp.get()),
            encapsulation: packet.path.encapsulation,
            wrong,
            covered: covered.unwrap_or(0).saturating_sub(transport::ICRC_LEN),
        };
        self.wrong(&seen, talks, findings)
    }

    fn wrong(&mut self, seen: &Seen, talks: &Talks, findings: &mut Findings) -> bool {
        let right = talks.find(seen.encapsulation, seen.flow).map_or(0, |id| talks.get(id).right);
        if self.wrong.len() >= limits::WRONG_FLOWS && !self.wrong.contains_key(&seen.flow) {
            let shares = Shares { wrong: 1, right };
            seen.damage(seen.at, seen.wrong.difference, shares, findings);
            return false;
        }
        let kept = self.wrong.entry(seen.flow).or_default();
        if seen.wrong.cause == IcrcCause::Zero && right == 0 {
            // No packet of the flow has one: the adapter that fills it in stands behind the
            // capture.
            return true;
        }
        kept.count += 1;
        let shares = Shares { wrong: kept.count, right };
        match seen.wrong.cause {
            IcrcCause::Unknown | IcrcCause::Zero => kept.unexplained(seen, shares, findings),
            cause => {
                let flow = seen.flow;
                let (subject, side) = (Subject::Flow(flow), Side::Host(flow.source));
                add(findings, Rule::IcrcUnmasked, subject, side, seen.at, || match cause {
                    IcrcCause::Unmasked(field) => {
                        format!("the ICRC is right if {field} counts as it stands, not as ones")
                    }
                    IcrcCause::NoLrhBytes => {
                        "the ICRC is right without the eight bytes of ones before the IP header"
                            .to_owned()
                    }
                    _ => "the ICRC is right, but stored most significant byte first".to_owned(),
                });
            }
        }
        false
    }

    /// A packet whose transport headers a receiver refuses.
    pub fn refused(&mut self, event: &Event, talks: &Talks, findings: &mut Findings) {
        let What::Refused { path, reason, head, icrc } = &event.what else { return };
        let flow = head.map(|(_, qp)| flow(path, qp));
        if let Icrc::Wrong(wrong) = *icrc {
            // Damage, if the queue pair has other packets; else the port serves something else.
            if let Some(flow) = flow.filter(|flow| talks.find(path.encapsulation, *flow).is_some())
            {
                let encapsulation = path.encapsulation;
                let seen = Seen { at: event.at, flow, encapsulation, wrong, covered: 0 };
                let right = talks.find(encapsulation, flow).map_or(0, |id| talks.get(id).right);
                seen.damage(event.at, wrong.difference, Shares { wrong: 1, right }, findings);
            }
            return;
        }
        let subject = flow.map_or_else(|| hosts(path), Subject::Flow);
        let rule = match reason {
            DropReason::Truncated(_) => Rule::Truncated,
            _ => Rule::Malformed,
        };
        add(findings, rule, subject, host(path), event.at, || reason.to_string());
    }

    /// RoCE that is damaged below the transport.
    pub fn damaged(&mut self, event: &Event, findings: &mut Findings) {
        let What::Damaged { path, reason } = &event.what else { return };
        let (subject, side) = match path {
            Some(path) => (hosts(path), Side::Before(path.source)),
            None => (Subject::Link(event.point), Side::Unknown),
        };
        let rule = match reason {
            DropReason::Truncated(Layer::Transport) => Rule::Truncated,
            DropReason::Truncated(_) => {
                self.short(event, subject, *reason, findings);
                return;
            }
            DropReason::Vcrc => Rule::BadVcrc,
            DropReason::Ipv4Checksum => Rule::IpChecksum,
            DropReason::Fragment => Rule::Fragmented,
            _ => Rule::Malformed,
        };
        self.longest = self.longest.max(event.len);
        add(findings, rule, subject, side, event.at, || reason.to_string());
    }

    /// A truncated packet. A capture that was cut without saying so has all long frames at one
    /// length.
    fn short(
        &mut self,
        event: &Event,
        subject: Subject,
        reason: DropReason,
        findings: &mut Findings,
    ) {
        let is_odd = self.longest > event.len
            || self.short.open.first().is_some_and(|(_, _, len, _)| *len != event.len);
        if is_odd {
            self.short.settle(findings);
        }
        let short = (subject, event.at, event.len, reason);
        if self.short.is_sure {
            Short::report(&short, findings);
        } else if self.short.open.len() < limits::SHORT_OPEN {
            self.short.open.push(short);
        }
    }

    /// The end of the captures.
    pub fn finish(&mut self, captures: &[Capture], findings: &mut Findings) {
        if self.short.open.first().is_some_and(|(_, _, len, _)| *len < self.longest) {
            self.short.settle(findings);
        }
        let mut open: Vec<_> = self.wrong.iter_mut().collect();
        open.sort_by_key(|(flow, _)| **flow);
        for (flow, wrong) in open {
            wrong.settle(*flow, Shares { wrong: wrong.count, right: 0 }, findings);
        }
        for (capture, file) in captures.iter().zip(0..) {
            let Some(damage) = &capture.damage else { continue };
            let last = At { time: capture.last.unwrap_or_default(), file, frame: capture.records };
            let at = if capture.records == 0 { &[][..] } else { &[last] };
            let instance = Instance {
                rule: Rule::CaptureCut,
                subject: Subject::Capture,
                side: Side::Capture,
                at,
                numbers: &[Number::sum("records_read", capture.records as f64)],
            };
            findings.add(instance, || format!("{}, {damage}", capture.name));
        }
    }
}

/// A packet with a wrong ICRC.
struct Seen {
    at: At,
    flow: Flow,
    encapsulation: Encapsulation,
    wrong: WrongIcrc,
    /// Bytes from the BTH through the pad.
    covered: usize,
}

/// How many packets of a flow are wrong and right.
#[derive(Clone, Copy)]
struct Shares {
    wrong: u64,
    right: u64,
}

impl Seen {
    fn damage(&self, at: At, difference: u32, shares: Shares, findings: &mut Findings) {
        damage(self.flow, at, difference, shares, findings);
    }
}

impl Wrong {
    fn unexplained(&mut self, seen: &Seen, shares: Shares, findings: &mut Findings) {
        let difference = seen.wrong.difference;
        let alone = likeness::without_length(difference, seen.covered);
        if self.alike == Some(alone) && shares.right == 0 {
            rewritten(seen.flow, seen.at, alone, findings);
            return;
        }
        if self.open.len() == limits::WRONG_OPEN || shares.right > 0 {
            self.settle(seen.flow, shares, findings);
            damage(seen.flow, seen.at, difference, shares, findings);
            return;
        }
        self.open.push((seen.at, difference, alone));
        if self.open.iter().filter(|(_, _, other)| *other == alone).count() >= ALIKE {
            self.alike = Some(alone);
            for (at, _, _) in self.open.extract_if(.., |(_, _, other)| *other == alone) {
                rewritten(seen.flow, at, alone, findings);
            }
        }
    }

    /// What is open was damage.
    fn settle(&mut self, flow: Flow, shares: Shares, findings: &mut Findings) {
        for (at, difference, _) in self.open.drain(..) {
            damage(flow, at, difference, shares, findings);
        }
    }
}

impl Short {
    fn settle(&mut self, findings: &mut Findings) {
        self.is_sure = true;
        for short in self.open.drain(..) {
            Self::report(&short, findings);
        }
    }

    fn report(short: &(Subject, At, u32, DropReason), findings: &mut Findings) {
        let (subject, at, len, reason) = short;
        let side = match subject {
            Subject::Flow(flow) => Side::Before(flow.source),
            _ => Side::Network,
        };
        add(findings, Rule::Truncated, *subject, side, *at, || {
            format!("{reason}: the frame has {len} bytes, its headers say more")
        });
    }
}

fn damage(flow: Flow, at: At, difference: u32, shares: Shares, findings: &mut Findings) {
    let all = shares.wrong + shares.right;
    let instance = Instance {
        rule: Rule::BadIcrc,
        subject: Subject::Flow(flow),
        side: Side::Before(flow.source),
        at: &[at],
        numbers: &[
            Number::last("packets", all as f64),
            Number::last("share_percent", 100.0 * shares.wrong as f64 / all as f64),
        ],
    };
    findings.add(instance, || {
        format!("off by {difference:#010x}; {} of {all} packets so far are wrong", shares.wrong)
    });
}

fn rewritten(flow: Flow, at: At, alone: u32, findings: &mut Findings) {
    let (subject, side) = (Subject::Flow(flow), Side::Before(flow.source));
    add(findings, Rule::IcrcRewritten, subject, side, at, || {
        format!("no packet is right, and all are off by the same header change ({alone:#010x})")
    });
}

fn add(
    findings: &mut Findings,
    rule: Rule,
    subject: Subject,
    side: Side,
    at: At,
    detail: impl FnOnce() -> String,
) {
    findings.add(Instance { rule, subject, side, at: &[at], numbers: &[] }, detail);
}

fn flow(path: &Path, qp: u32) -> Flow {
    Flow { source: path.source, destination: path.destination, qp }
}

fn hosts(path: &Path) -> Subject {
    let (a, b) = (path.source, path.destination);
    Subject::Hosts(a.min(b), a.max(b))
}

fn host(path: &Path) -> Side {
    Side::Host(path.source)
}
