//! Pauses between two readings: how much of the time the network stopped this host, or this host
//! the network.

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::rules::{Link, grouped, grown};

/// The share of time that is too much.
const SHARE: f64 = 0.05;
/// Pause frames in a second that are too many, where no durations are counted.
const PER_SECOND: f64 = 1000.0;

pub(super) fn judge(link: &Link<'_>, out: &mut Vec<Finding>) {
    let Some(seconds) = link.samples.seconds.filter(|seconds| *seconds > 0.0) else { return };
    if link.before().is_none() {
        return;
    }
    let name = &link.interface.name;
    let look = format!("ethtool -S {name} | grep -E 'pause|pci_stalled|out_of_buffer'");
    let ecn = format!("cat /sys/class/net/{name}/ecn/roce_rp/enable/*; the congested port's ECN");
    for (rule, side, remedy) in [(Rule::Paused, "rx", ecn), (Rule::Pausing, "tx", look)] {
        let mut finding = Finding::new(rule, link.subject());
        finding.found.extend(global(link, side, seconds));
        for priority in 0..8 {
            finding.found.extend(of_priority(link, side, priority, seconds));
        }
        if !finding.found.is_empty() {
            out.push(finding.mend(remedy));
        }
    }
}

fn global(link: &Link<'_>, side: &str, seconds: f64) -> Option<Evidence> {
    duration(link, &format!("{side}_global_pause_duration"), seconds)
}

fn of_priority(link: &Link<'_>, side: &str, priority: u8, seconds: f64) -> Option<Evidence> {
    let counted = format!("{side}_prio{priority}_pause_duration");
    if link.interface.statistics.get(&counted).is_some() {
        return duration(link, &counted, seconds);
    }
    let names =
        [format!("{side}_prio{priority}_pause"), format!("{side}_pfc_ena_frames_pri{priority}")];
    names.iter().find_map(|name| {
        let frames = grow(link, name)?;
        let rate = frames as f64 / seconds;
        (rate > PER_SECOND).then(|| {
            let told = format!("+{} in {seconds:.1} s ({rate:.0}/s)", grouped(frames));
            Evidence::new(name, told, from(link, name))
        })
    })
}

/// A duration in µs.
fn duration(link: &Link<'_>, name: &str, seconds: f64) -> Option<Evidence> {
    let micros = grow(link, name)?;
    let share = micros as f64 / 1e6 / seconds;
    (share > SHARE).then(|| {
        let told = format!("{:.0} % of {seconds:.1} s", (share * 100.0).min(100.0));
        Evidence::new(name, told, from(link, name))
    })
}

fn grow(link: &Link<'_>, name: &str) -> Option<u64> {
    let before = link.before()?;
    Some(grown(name, &before.statistics, &link.interface.statistics)?.sure())
}

fn from(link: &Link<'_>, name: &str) -> String {
    link.interface.statistics.get(name).map(|seen| seen.from).unwrap_or_default()
}
