//! Congestion control as it is set: on for RoCE's priority, parameters in range, CNPs in a class of
//! their own.

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::reader::Seen;
use crate::rules::{Link, list, priorities};

pub(super) fn judge(link: &Link<'_>, out: &mut Vec<Finding>) {
    off(link, out);
    parameters(link, out);
    cnp(link, out);
}

fn off(link: &Link<'_>, out: &mut Vec<Finding>) {
    let ecn = &link.interface.ecn;
    let wanted = link.roce_priorities();
    let halves = [("roce_np", &ecn.np_enabled), ("roce_rp", &ecn.rp_enabled)];
    let mut evidence = Vec::new();
    let mut commands = Vec::new();
    for (part, mask) in halves {
        let Some(mask) = mask else { continue };
        for priority in wanted.iter().filter(|priority| mask.value & 1 << **priority == 0) {
            evidence.push(Evidence::new(
                format!("{part} of priority {priority}"),
                "0",
                format!("{}/{priority}", mask.from),
            ));
            commands.push(format!("echo 1 > {}/{priority}", mask.from));
        }
    }
    if let Some(on) = ecn.enabled.as_ref().filter(|on| !on.value && !wanted.is_empty()) {
        evidence.push(Evidence::new("ecn_enable", "0", &on.from));
        commands.push(format!("echo 1 > {}", on.from));
    }
    if evidence.is_empty() {
        return;
    }
    commands.extend(apply(link));
    let mut finding = Finding::new(Rule::EcnOff, link.subject());
    finding.found = evidence;
    if let Some(pfc) = link.pfc() {
        let lossless = list(&priorities(pfc.value));
        finding = finding.with(Evidence::new("PFC on priorities", lossless, &pfc.from));
    }
    out.push(finding.mend(commands.join("; ")));
}

/// The command that makes what was written take effect.
fn apply(link: &Link<'_>) -> Option<String> {
    Some(format!("echo 1 > {}", link.interface.ecn.apply.as_ref()?))
}

/// A parameter's useful range. Rates are in Mb/s and are measured by the line's rate.
enum Range {
    /// From, to.
    Fixed(u64, u64),
    /// From, to this part of the line's rate (a divisor).
    Rate(u64, u64),
    /// 0 (off), or at least this part of the line's rate (a divisor).
    OffOrAtLeast(u64),
}

/// The parameters, the vendor's default, and the range: what the default and the published settings
/// (10 µs to 10 ms of timer, 1/1024 to 1 of gain, …) lie in.
const RANGES: &[(&str, u64, Range)] = &[
    ("dce_tcp_g", 1019, Range::Fixed(1, 1023)),
    ("dce_tcp_rtt", 1, Range::Fixed(1, 10_000)),
    ("initial_alpha_value", 1023, Range::Fixed(1, 1023)),
    ("rate_reduce_monitor_period", 4, Range::Fixed(1, 1000)),
    ("rpg_gd", 11, Range::Fixed(6, 15)),
    ("rpg_min_dec_fac", 50, Range::Fixed(1, 99)),
    ("rpg_time_reset", 300, Range::Fixed(10, 10_000)),
    ("rpg_byte_reset", 32_767, Range::Fixed(1, u64::MAX)),
    ("rpg_threshold", 1, Range::Fixed(1, 31)),
    ("rpg_ai_rate", 5, Range::Rate(1, 20)),
    ("rpg_hai_rate", 50, Range::Rate(1, 4)),
    ("rpg_min_rate", 1, Range::Rate(1, 10)),
    ("rpg_max_rate", 0, Range::OffOrAtLeast(10)),
    ("rate_to_set_on_first_cnp", 0, Range::OffOrAtLeast(1000)),
    ("min_time_between_cnps", 4, Range::Fixed(0, 1000)),
    ("cnp_dscp", 48, Range::Fixed(0, 63)),
    ("cnp_802p_prio", 6, Range::Fixed(0, 7)),
];

fn parameters(link: &Link<'_>, out: &mut Vec<Finding>) {
    let ecn = &link.interface.ecn;
    let rate = link.rate().map(|seen| seen.value);
    for (name, default, range) in RANGES {
        let Some(seen) = ecn.get(name) else { continue };
        let (low, high) = match (range, rate) {
            (Range::Fixed(low, high), _) => (*low, *high),
            (Range::Rate(low, part), Some(rate)) => (*low, (rate / part).max(1)),
            (Range::OffOrAtLeast(_), _) if seen.value == 0 => continue,
            (Range::OffOrAtLeast(part), Some(rate)) => (rate / part, u64::MAX),
            (_, None) => continue,
        };
        if (low..=high).contains(&seen.value) {
            continue;
        }
        let high = if high == u64::MAX { "more".to_owned() } else { high.to_string() };
        out.push(
            Finding::new(Rule::EcnParameter, link.subject())
                .with(Evidence::of(*name, seen))
                .with(Evidence::new("expected", format!("{low} to {high}"), "fabric practice"))
                .mend(
                    [Some(format!("echo {default} > {}", seen.from)), apply(link)]
                        .into_iter()
                        .flatten()
                        .collect::<Vec<_>>()
                        .join("; "),
                ),
        );
    }
}

fn cnp(link: &Link<'_>, out: &mut Vec<Finding>) {
    let ecn = &link.interface.ecn;
    let qos = &link.interface.qos;
    let Some(pfc) = link.pfc() else { return };
    if pfc.value.count_ones() > 2 {
        // That PFC is on too many is told, and this follows from it.
        return;
    }
    let roce = link.roce_priority().map(|seen| seen.value);
    let shares = |priority: u8| pfc.value & 1 << priority != 0 || roce == Some(priority);
    let small = |seen: &Seen<u64>, most: u64| {
        Some(seen.value).filter(|value| *value <= most).and_then(|value| u8::try_from(value).ok())
    };
    let mut evidence = Vec::new();
    let mut commands = Vec::new();
    if let Some(seen) = ecn.get("cnp_802p_prio")
        && small(seen, 7).is_some_and(shares)
    {
        evidence.push(Evidence::of("cnp_802p_prio", seen));
        commands.push(format!("echo 6 > {}", seen.from));
    }
    if let Some(seen) = ecn.get("cnp_dscp")
        && let Some(priority) = small(seen, 63).and_then(|dscp| qos.priority_of(dscp))
        && shares(priority.value)
    {
        evidence.push(Evidence::of("cnp_dscp", seen));
        let what = format!("priority of DSCP {}", seen.value);
        evidence.push(Evidence::of(what, &priority));
        commands.push(format!("echo 48 > {}", seen.from));
    }
    if evidence.is_empty() {
        return;
    }
    commands.extend(apply(link));
    let mut finding = Finding::new(Rule::CnpClass, link.subject());
    finding.found = evidence;
    let lossless = list(&priorities(pfc.value));
    finding = finding.with(Evidence::new("PFC on priorities", lossless, &pfc.from));
    if let Some(roce) = roce {
        let from = link.tos().map(|tos| tos.from.clone()).unwrap_or_default();
        finding = finding.with(Evidence::new("RoCE's priority", roce.to_string(), from));
    }
    out.push(finding.mend(commands.join("; ")));
}
