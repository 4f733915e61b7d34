//! What is wrong with pauses: R080 to R084 and R086. Rings of pauses are in `ring`.

use wire::Gid;

use super::class::{Ended, LONG, On, Over, Storm, WATCHDOG};
use super::link::{End, GLOBAL, Link};
use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::record::{At, Point};
use crate::rule::Rule;

/// Pauses of a priority that make it one that is paused, where it matters that no other one is.
const MANY_PAUSES: u64 = 10;
/// Data packets that make a priority one that is used.
const MANY_PACKETS: u64 = 100;
/// Packets in one pause that are more than those under way.
const IGNORED: u32 = 4;

/// Whose pauses, and of what.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) point: Point,
    pub(super) end: &'a End,
    /// The host whose port it is, where the traffic tells.
    pub(super) host: Option<Gid>,
    /// Priority, or [`GLOBAL`].
    pub(super) class: usize,
    /// Speed of the link, and whether it was given.
    pub(super) bps: u64,
    pub(super) given: bool,
}

impl Whose<'_> {
    fn priority(&self) -> String {
        match self.class {
            GLOBAL => String::from("all priorities"),
            class => format!("priority {class}"),
        }
    }

    fn port(&self) -> String {
        match (self.host, &self.end.name) {
            (Some(host), None) => format!("port {} ({})", self.end.mac, host.to_ip()),
            _ => port(self.end),
        }
    }

    /// The end that pauses.
    fn side(&self) -> Side {
        self.host.map_or(Side::Network, Side::Host)
    }

    fn speed(&self) -> String {
        let gbps = self.bps / 1_000_000_000;
        let how = if self.given { "" } else { ", assumed" };
        format!("({gbps} Gb/s{how})")
    }

    fn add(
        &self,
        findings: &mut Findings,
        (rule, side): (Rule, Side),
        at: &[At],
        numbers: &[Number],
        detail: impl FnOnce() -> String,
    ) {
        let subject = Subject::Link(self.point);
        findings.add(Instance { rule, subject, side, at, numbers }, detail);
    }
}

/// A port in words: its MAC address, and its name where LLDP tells it.
pub(super) fn port(end: &End) -> String {
    match &end.name {
        Some(name) => format!("port {} ({name})", end.mac),
        None => format!("port {}", end.mac),
    }
}

/// Pauses that came to an end.
pub(super) fn ended(whose: Whose<'_>, ended: Ended, findings: &mut Findings) {
    if let Some(over) = ended.over {
        match over.length {
            WATCHDOG.. => held(whose, over, Rule::PauseStorm, findings),
            LONG.. => held(whose, over, Rule::LongPause, findings),
            _ => {}
        }
    }
    if let Some(storm) = ended.storm {
        stormed(whose, storm, findings);
    }
}

fn held(whose: Whose<'_>, over: Over, rule: Rule, findings: &mut Findings) {
    let ms = over.length as f64 / 1e6;
    let numbers = [
        Number::max("longest_ms", ms),
        Number::sum("paused_ms", ms),
        Number::last("priority", whose.class as f64),
    ];
    whose.add(findings, (rule, whose.side()), &[over.first, over.last], &numbers, || {
        format!(
            "{} holds {} for {ms:.3} ms without a break, from {} {}",
            whose.port(),
            whose.priority(),
            over.first,
            whose.speed()
        )
    });
}

fn stormed(whose: Whose<'_>, storm: Storm, findings: &mut Findings) {
    // One pause alone is told by its length.
    let longest = whose.end.classes[whose.class].longest;
    if longest >= storm.paused || longest >= WATCHDOG {
        return;
    }
    let (ms, paused) = (storm.length() as f64 / 1e6, storm.paused as f64 / 1e6);
    let numbers = [
        Number::sum("paused_ms", paused),
        Number::max("longest_storm_ms", ms),
        Number::last("priority", whose.class as f64),
    ];
    whose.add(
        findings,
        (Rule::PauseStorm, whose.side()),
        &[storm.first, storm.last],
        &numbers,
        || {
            format!(
                "{} pauses {} for {paused:.1} of {ms:.0} ms, from {} {}",
                whose.port(),
                whose.priority(),
                storm.first,
                whose.speed()
            )
        },
    );
}

/// A packet that goes on in a pause, of the host `goes_on` if the link is its own. The first few
/// were under way, or are a slow reaction.
pub(super) fn ignored(
    whose: Whose<'_>,
    on: &mut On,
    goes_on: Option<Gid>,
    at: At,
    findings: &mut Findings,
) {
    on.ignored = on.ignored.saturating_add(1);
    if on.ignored == 1 {
        on.ignored_first = at;
    }
    if on.ignored < IGNORED {
        return;
    }
    let side = goes_on.map_or(Side::Network, Side::Host);
    let late = at.time.since(on.sure.0) as f64 / 1e3;
    let numbers =
        [Number::max("us_after_pause", late), Number::last("priority", whose.class as f64)];
    whose.add(
        findings,
        (Rule::PauseIgnored, side),
        &[at, on.ignored_first, on.last],
        &numbers,
        || {
            format!(
                "{} paused {} in {}, but packets towards it go on, {late:.0} µs later {}",
                whose.port(),
                whose.priority(),
                on.first,
                whose.speed()
            )
        },
    );
}

/// What the end of the captures shows of a link.
pub(super) fn conclude(point: Point, link: &Link, findings: &mut Findings) {
    global(point, link, findings);
    class(point, link, findings);
    if !link.mixed {
        for at in 0..link.ends.len() {
            one_way(point, link, at, findings);
        }
    }
}

/// R086.
fn global(point: Point, link: &Link, findings: &mut Findings) {
    if link.packets == 0 {
        return;
    }
    for end in link.ends.iter().filter(|end| end.classes[GLOBAL].xoffs > 0) {
        let class = &end.classes[GLOBAL];
        let numbers = [
            Number::sum("pauses", class.xoffs as f64),
            Number::sum("paused_ms", class.total as f64 / 1e6),
        ];
        let instance = Instance {
            rule: Rule::GlobalPause,
            subject: Subject::Link(point),
            side: Side::Network,
            at: end.first_global.as_slice(),
            numbers: &numbers,
        };
        findings
            .add(instance, || format!("{} sends 802.3x pauses: {} so far", port(end), class.xoffs));
    }
}

/// R083.
fn class(point: Point, link: &Link, findings: &mut Findings) {
    let xoffs =
        |priority: usize| -> u64 { link.ends.iter().map(|end| end.classes[priority].xoffs).sum() };
    let any_global = link.ends.iter().any(|end| end.classes[GLOBAL].xoffs > 0);
    let paused: Vec<_> = (0..8).filter(|p| xoffs(*p) >= MANY_PAUSES).collect();
    let used: Vec<_> = (0..8).filter(|p| link.data[*p] >= MANY_PACKETS).collect();
    let meet = (0..8).any(|p| xoffs(p) > 0 && link.data[p] > 0);
    if any_global || paused.is_empty() || used.is_empty() || meet {
        return;
    }
    let numbers = [
        Number::sum("pauses", paused.iter().map(|p| xoffs(*p) as f64).sum()),
        Number::sum("packets", used.iter().map(|p| link.data[*p] as f64).sum()),
    ];
    let at: Vec<_> = link.ends.iter().filter_map(|end| end.first_pause).collect();
    let instance = Instance {
        rule: Rule::PauseClass,
        subject: Subject::Link(point),
        side: Side::Network,
        at: &at,
        numbers: &numbers,
    };
    findings.add(instance, || {
        format!(
            "pauses are for {}, but RoCE data is in {} (by the tag, else DSCP / 8)",
            list(&paused),
            list(&used)
        )
    });
}

fn list(priorities: &[usize]) -> String {
    let word = if priorities.len() == 1 { "priority" } else { "priorities" };
    let all: Vec<_> = priorities.iter().map(usize::to_string).collect();
    format!("{word} {}", all.join(", "))
}

/// R082: an end pauses a priority, data of that priority goes both ways, and what goes to the other
/// end is lost there, though that end never says stop.
fn one_way(point: Point, link: &Link, at: usize, findings: &mut Findings) {
    let Some(end) = link.ends.get(at) else { return };
    let others_pause = link.ends.iter().any(|other| other.mac != end.mac && other.pauses());
    if others_pause {
        return;
    }
    for priority in 0..8_u8 {
        let class = usize::from(priority);
        let both = end.to[class] >= MANY_PACKETS && end.from[class] >= MANY_PACKETS;
        if end.classes[class].xoffs < MANY_PAUSES || !both {
            continue;
        }
        let lost = |gid| end.beyond.contains(&(priority, gid));
        let losses: Vec<_> = findings
            .of(Rule::LostBehind)
            .filter(|finding| match finding.subject {
                Subject::Flow(flow) => lost(flow.destination),
                _ => false,
            })
            .filter_map(|finding| Some((finding.first?, finding.count)))
            .collect();
        let Some((first, _)) = losses.first() else { continue };
        let count: u64 = losses.iter().map(|(_, count)| count).sum();
        let mut at = vec![*first];
        at.extend(end.first_pause);
        let numbers = [
            Number::sum("pauses", end.classes[class].xoffs as f64),
            Number::sum("lost_towards_the_silent_end", count as f64),
        ];
        let instance = Instance {
            rule: Rule::OneWayPause,
            subject: Subject::Link(point),
            side: Side::Network,
            at: &at,
            numbers: &numbers,
        };
        findings.add(instance, || {
            format!(
                "only {} ever pauses priority {priority}; the other end never does, though {count} \
                 losses are seen towards it",
                port(end)
            )
        });
    }
}
