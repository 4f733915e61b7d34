//! DCBX in LLDP frames: what the two ends of a link announce. What the frames say is read by
//! `lldp`; which differences are faults is in `compare`.

mod compare;

use wire::Mac;

use crate::event::Event;
use crate::finding::{Findings, Instance, Side, Subject};
use crate::limits;
use crate::record::{At, Point, Time};
use crate::rule::Rule;

use super::lldp::{self, Lldp, Selector};

/// Nanoseconds in which an end takes over what it has heard and says so.
const REACTION: u64 = 1_000_000_000;

/// What an agent at one end of a link announces.
#[derive(Clone, Debug)]
struct Agent {
    mac: Mac,
    said: Lldp,
    /// First and last frame that says just this.
    since: At,
    last: At,
    /// Counts what it has said: a new number for each change.
    version: u32,
}

impl Agent {
    fn is_alive(&self, now: Time) -> bool {
        self.said.ttl > 0 && now.since(self.last.time) <= u64::from(self.said.ttl) * 1_000_000_000
    }

    fn speaks_dcbx(&self) -> bool {
        self.said.ieee.is_some() || self.said.cee.is_some()
    }
}

/// The agents at a point of capture.
#[derive(Clone, Debug, Default)]
struct Link {
    agents: Vec<Agent>,
    /// More agents than can be told apart.
    crowded: bool,
    /// Versions of both ends that have been judged, at once and settled.
    judged: [(u32, u32); 2],
}

/// Remembers what each port announces.
#[derive(Debug, Default)]
pub struct Judge {
    links: Vec<Link>,
}

/// Who sent an LLDP frame.
#[derive(Clone, Debug)]
pub struct Speaker {
    /// Chassis as on the wire, with its kind in front.
    pub chassis: Vec<u8>,
    /// System, port and management address in words.
    pub name: String,
    /// Which priority it gives to a DSCP: pairs of them.
    pub dscp: Vec<(u8, u8)>,
}

impl Judge {
    /// An LLDP frame, its bytes behind the EtherType.
    pub fn lldp(
        &mut self,
        event: &Event,
        bytes: &[u8],
        findings: &mut Findings,
    ) -> Option<Speaker> {
        let said = lldp::parse(bytes);
        for fault in &said.faults {
            malformed(event.point, event.at, &said, fault, findings);
        }
        let (mac, _) = event.macs?;
        let apps = said.ieee.iter().flat_map(|tables| tables.apps.iter().flatten());
        let dscp = apps
            .filter(|app| app.selector == Selector::Dscp && app.protocol < 64)
            .map(|app| (app.protocol as u8, app.priority))
            .collect();
        let speaker = Speaker { chassis: said.chassis.clone(), name: said.name(), dscp };
        let at = usize::from(event.point.0);
        if at >= limits::LINKS {
            return Some(speaker);
        }
        if at >= self.links.len() {
            self.links.resize_with(at + 1, Link::default);
        }
        let link = self.links.get_mut(at)?;
        link.hear(mac, said, event.at);
        link.judge(event.point, event.at.time, findings);
        Some(speaker)
    }

    /// The end of the captures: everything has been judged when it was heard.
    pub fn finish(&mut self, _findings: &mut Findings) {}
}

impl Link {
    fn hear(&mut self, mac: Mac, said: Lldp, at: At) {
        let same = |agent: &&mut Agent| {
            agent.mac == mac && agent.said.chassis == said.chassis && agent.said.port == said.port
        };
        if let Some(agent) = self.agents.iter_mut().find(same) {
            if !same_tables(&agent.said, &said) {
                agent.since = at;
                agent.version = agent.version.wrapping_add(1);
            }
            (agent.said, agent.last) = (said, at);
            return;
        }
        if self.agents.len() >= limits::AGENTS {
            self.crowded = true;
            return;
        }
        self.agents.push(Agent { mac, said, since: at, last: at, version: 1 });
    }

    /// Compares the two ends, if there are just two that speak DCBX.
    fn judge(&mut self, point: Point, now: Time, findings: &mut Findings) {
        let alive = |agent: &&Agent| agent.is_alive(now) && agent.speaks_dcbx();
        let mut ends = self.agents.iter().filter(alive);
        let (Some(a), Some(b), None) = (ends.next(), ends.next(), ends.next()) else { return };
        if self.crowded || (a.said.chassis == b.said.chassis && a.said.port == b.said.port) {
            return;
        }
        let versions = (a.version, b.version);
        let heard = |one: &Agent, other: &Agent| {
            one.last.time.0 >= other.since.time.0.saturating_add(REACTION)
        };
        let settled = heard(a, b) && heard(b, a);
        let judged = &mut self.judged[usize::from(settled)];
        if *judged == versions {
            return;
        }
        *judged = versions;
        compare::ends(point, a, b, settled, findings);
    }
}

/// Whether two frames announce the same.
fn same_tables(a: &Lldp, b: &Lldp) -> bool {
    a.ieee == b.ieee && a.cee == b.cee
}

/// R096.
fn malformed(point: Point, at: At, said: &Lldp, fault: &str, findings: &mut Findings) {
    let instance = Instance {
        rule: Rule::DcbxMalformed,
        subject: Subject::Link(point),
        side: Side::Network,
        at: &[at],
        numbers: &[],
    };
    findings.add(instance, || format!("{} sends {fault}", said.name()));
}
