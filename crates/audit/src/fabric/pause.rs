//! Pauses: PFC and 802.3x, who pauses whom, how long, and whether it has an effect. The arithmetic
//! of a pause is in `class`, the ends and directions of a link in `link`, the rules in `complaint`,
//! deadlocks in `ring`.

mod class;
mod complaint;
mod link;
mod ring;

use wire::Opcode;
use wire::mac_control::MacControl;

use crate::event::{Event, Packet};
use crate::fabric::dcbx::Speaker;
use crate::finding::{Cause, Findings};
use crate::limits;
use crate::record::{Point, Time};
use crate::report::LinkReport;
use crate::rule::Rule;
use crate::talk::Talks;

use class::Ended;
use complaint::Whose;
use link::{GLOBAL, Link};

/// Nanoseconds after a pause in which packets may still come: those under way, the time that 802.3
/// gives a port to react, and the clocks of captures.
const ALLOWANCE: u64 = 50_000;

/// Watches pauses, and the traffic that they should stop.
#[derive(Debug, Default)]
pub struct Judge {
    links: Vec<Link>,
    rings: ring::Rings,
    /// Bits per second, where told.
    given: Option<u64>,
    last: Time,
}

impl Judge {
    /// With the links' speed in Gb/s, if it is known: a pause is told in bit times.
    pub fn new(link_gbps: Option<u32>) -> Self {
        let given = link_gbps.filter(|gbps| *gbps > 0);
        Self { given: given.map(|gbps| u64::from(gbps) * 1_000_000_000), ..Self::default() }
    }

    /// The link at a point of capture, while there is room for it.
    fn link(&mut self, point: Point) -> Option<&mut Link> {
        let at = usize::from(point.0);
        if at >= limits::LINKS {
            return None;
        }
        if at >= self.links.len() {
            self.links.resize_with(at + 1, Link::default);
        }
        self.links.get_mut(at)
    }

    /// A pause frame.
    pub fn pause(&mut self, event: &Event, control: &MacControl, findings: &mut Findings) {
        self.last = self.last.max(event.at.time);
        let given = self.given;
        let Some((mac, _)) = event.macs else { return };
        let Some(link) = self.link(event.point) else { return };
        let (speeds, host) = (link.speeds(given), link.host(mac));
        let Some(end) = link.paused_by(event, mac) else { return };
        end.first_pause.get_or_insert(event.at);
        let mut held = false;
        for class in 0..=GLOBAL {
            let quanta = match control {
                MacControl::Pause { quanta } if class == GLOBAL => Some(*quanta),
                MacControl::Pfc(pfc) if class != GLOBAL => pfc.get(class as u8),
                _ => None,
            };
            let Some(quanta) = quanta else { continue };
            if class == GLOBAL && quanta > 0 {
                end.first_global.get_or_insert(event.at);
            }
            let silent = end.is_silent(class, ALLOWANCE);
            let ended = match quanta {
                0 => end.classes[class].xon(event.at.time, speeds, silent),
                quanta => {
                    held = true;
                    end.classes[class].xoff(event.at, quanta, speeds, silent)
                }
            };
            let (bps, given) = (speeds.likely, given.is_some());
            let whose = Whose { point: event.point, end, host, class, bps, given };
            complaint::ended(whose, ended, findings);
        }
        if held {
            self.rings.search(event.at.time, &self.links, given, findings);
        }
    }

    /// An LLDP frame: its sender is an end of the link.
    pub fn neighbour(&mut self, event: &Event, speaker: &Speaker) {
        let Some((mac, _)) = event.macs else { return };
        let Some(link) = self.link(event.point) else { return };
        link.maps(&speaker.dscp);
        let Some(end) = link.end(mac) else { return };
        if end.chassis.as_deref() != Some(&speaker.chassis) {
            end.chassis = Some(speaker.chassis.as_slice().into());
        }
        if end.name.as_ref() != Some(&speaker.name) {
            end.name = Some(speaker.name.clone());
        }
    }

    /// Pauses that held the traffic of a link for half of the time between two moments or more.
    pub fn held(&self, point: Point, from: Time, to: Time) -> Option<Cause> {
        let link = self.links.get(usize::from(point.0)).filter(|link| !link.mixed)?;
        let used = |class: &usize| *class == GLOBAL || link.data[*class] > 0;
        let classes = link.ends.iter().flat_map(|end| end.classes.iter().enumerate());
        let held = classes.filter(|(class, _)| used(class)).filter_map(|(_, c)| c.held(from, to));
        let (ns, frames) = held.max_by_key(|(ns, _)| *ns)?;
        let half = to.since(from) / 2;
        (ns >= half.max(1)).then(|| {
            let rule = match ns {
                class::WATCHDOG.. => Some(Rule::PauseStorm),
                class::LONG.. => Some(Rule::LongPause),
                _ => None,
            };
            let several = if frames[0] == frames[1] { 1 } else { 2 };
            Cause::new(rule, "pauses", &frames[..several])
        })
    }

    /// Traffic.
    pub fn packet(&mut self, event: &Event, packet: &Packet, findings: &mut Findings) {
        self.last = event.at.time;
        let given = self.given;
        let Some(link) = self.link(event.point) else { return };
        link.count(event, packet);
        let dscp = link.priority(packet.path.traffic_class >> 2);
        let tag = event.tag.map(|(priority, _)| usize::from(priority & 7));
        let is_data = packet.payload_len > 0
            && packet.bth.opcode != Opcode::CNP
            && packet.bth.dest_qp.get() > 1;
        if is_data {
            link.data[dscp] += 1;
            if let Some(tag) = tag.filter(|tag| *tag != dscp) {
                link.data[tag] += 1;
            }
        }
        let is_sample = link.is_sample();
        for at in 0..link.ends.len() {
            let towards = link.is_towards(at, event);
            let Some(end) = link.ends.get_mut(at) else { continue };
            let class = tag.unwrap_or(dscp);
            if towards != Some(false) {
                end.last_to[dscp] = event.at.time;
                end.last_to[class] = event.at.time;
            }
            match towards {
                Some(true) => {
                    end.to[class] += u64::from(is_data);
                    if let Some((source, destination)) = event.macs
                        && is_sample
                        && destination == end.mac
                    {
                        end.neighbour.sends(source, packet.path.source);
                    }
                    // Where tag and DSCP differ, only the sender knows which counts.
                    let sure = (class == dscp).then_some(class);
                    for class in sure.into_iter().chain([GLOBAL]) {
                        paused(event, link, at, class, given, findings);
                    }
                }
                Some(false) => {
                    end.from[class] += u64::from(is_data);
                    if is_data && is_sample {
                        end.sends_to(class as u8, packet.path.destination);
                    }
                }
                None => {}
            }
        }
    }

    /// The end of the captures.
    pub fn finish(&mut self, _talks: &Talks, findings: &mut Findings) {
        let (given, last) = (self.given, self.last);
        for (at, link) in self.links.iter_mut().enumerate() {
            let point = Point(at as u16);
            let bps = link.speeds(given).likely;
            let hosts: Vec<_> = link.ends.iter().map(|end| link.host(end.mac)).collect();
            for (end, host) in link.ends.iter_mut().zip(hosts) {
                for class in 0..=GLOBAL {
                    let ended: Ended = end.classes[class].finish(last);
                    let whose = Whose { point, end, host, class, bps, given: given.is_some() };
                    complaint::ended(whose, ended, findings);
                }
            }
            complaint::conclude(point, link, findings);
        }
    }

    /// The links.
    pub fn report(&self) -> Vec<LinkReport> {
        let mut reports = Vec::new();
        for (at, link) in self.links.iter().enumerate() {
            for end in link.ends.iter().filter(|end| end.pauses()) {
                let all = &end.classes[GLOBAL];
                let of = |f: fn(&class::Class) -> u64, join: fn(u64, u64) -> u64| -> [u64; 8] {
                    core::array::from_fn(|p| join(f(&end.classes[p]), f(all)))
                };
                let us = |ns: [u64; 8]| ns.map(|ns| ns as f64 / 1e3);
                reports.push(LinkReport {
                    link: (at + 1).min(usize::from(u16::MAX)) as u16,
                    port: end.mac.to_string(),
                    name: end.name.clone(),
                    pauses: of(|class| class.xoffs, |a, b| a + b),
                    paused_us: us(of(|class| class.total, |a, b| a + b)),
                    longest_us: us(of(|class| class.longest, u64::max)),
                    link_gbps: (link.speeds(self.given).likely / 1_000_000_000) as u32,
                });
            }
        }
        reports
    }
}

/// Judges a packet towards an end by what that end has paused.
fn paused(
    event: &Event,
    link: &mut Link,
    at: usize,
    class: usize,
    given: Option<u64>,
    findings: &mut Findings,
) {
    let Some(mut on) = link.ends.get(at).and_then(|end| end.classes[class].on) else { return };
    let time = event.at.time;
    if time.since(on.sure.0) < ALLOWANCE || time >= on.sure.1 {
        return;
    }
    let (bps, given) = (link.speeds(given).fastest, given.is_some());
    let sender = event.macs.map(|(source, _)| source);
    let is_neighbour = sender.is_some_and(|mac| link.ends.iter().any(|end| end.mac == mac));
    let goes_on = sender.filter(|_| is_neighbour).and_then(|mac| link.host(mac));
    let Some(end) = link.ends.get(at) else { return };
    let whose = Whose { point: event.point, end, host: link.host(end.mac), class, bps, given };
    complaint::ignored(whose, &mut on, goes_on, event.at, findings);
    let Some(end) = link.ends.get_mut(at) else { return };
    end.classes[class].on = Some(on);
}
