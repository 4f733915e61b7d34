//! ETS: whether the classes give RoCE its share, and no more than that.

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::parse::mlnx_qos::Tsa;
use crate::reader::Seen;
use crate::rules::Link;

type Schedule = [Option<Tsa>; 8];

pub(super) fn judge(link: &Link<'_>, out: &mut Vec<Finding>) {
    let qos = &link.interface.qos;
    let Some(schedule) = &qos.schedule else { return };
    sum(link, schedule, out);
    let Some(class_of) = &qos.class_of else { return };
    let mut told = Vec::new();
    for priority in link.roce_priorities() {
        let class = class_of.value[usize::from(priority)];
        if !told.contains(&class) {
            told.push(class);
            share(link, schedule, priority, class, out);
        }
    }
}

/// The shares of all classes; `None` if one is not known.
fn shares(schedule: &Schedule) -> Option<Vec<(usize, u32)>> {
    let mut shares = Vec::new();
    for (class, tsa) in schedule.iter().enumerate() {
        if let Some(Tsa::Ets(share)) = tsa {
            shares.push((class, (*share)?));
        }
    }
    Some(shares)
}

/// The class of RoCE's first priority, if it has a share.
fn roce_class(link: &Link<'_>) -> Option<u8> {
    let qos = &link.interface.qos;
    let priority = *link.roce_priorities().first()?;
    let class = qos.class_of.as_ref()?.value[usize::from(priority)];
    let tsa = qos.schedule.as_ref()?.value.get(usize::from(class)).copied().flatten();
    matches!(tsa, Some(Tsa::Ets(_))).then_some(class)
}

fn sum(link: &Link<'_>, schedule: &Seen<Schedule>, out: &mut Vec<Finding>) {
    let Some(shares) = shares(&schedule.value) else { return };
    let total: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
    // All 0 is how drivers show that nobody has set any.
    if total == 0 || total == 100 {
        return;
    }
    let list: Vec<String> = shares.iter().map(|(tc, share)| format!("{tc}:{share}%")).collect();
    out.push(
        Finding::new(Rule::EtsSum, link.subject())
            .with(Evidence::new("shares", list.join(" "), &schedule.from))
            .with(Evidence::new("sum", format!("{total} %"), &schedule.from))
            .mend(set(link, roce_class(link), &schedule.value)),
    );
}

fn share(
    link: &Link<'_>,
    schedule: &Seen<Schedule>,
    priority: u8,
    class: u8,
    out: &mut Vec<Finding>,
) {
    let others = || {
        let others = schedule.value.iter().enumerate().filter(|(tc, _)| *tc != usize::from(class));
        others.filter_map(|(_, tsa)| *tsa)
    };
    let (rule, what) = match schedule.value.get(usize::from(class)) {
        Some(Some(Tsa::Ets(Some(0)))) if others().any(|tsa| matches!(tsa, Tsa::Ets(Some(1..)))) => {
            (Rule::EtsStarved, "ets, 0 %")
        }
        Some(Some(Tsa::Strict)) if others().any(|tsa| matches!(tsa, Tsa::Ets(_))) => {
            (Rule::EtsStrict, "strict")
        }
        _ => return,
    };
    let shown = |tsa: &Option<Tsa>| match tsa {
        Some(Tsa::Strict) => "strict".to_owned(),
        Some(Tsa::Ets(Some(share))) => format!("{share}%"),
        Some(Tsa::Ets(None)) => "ets".to_owned(),
        Some(Tsa::Vendor) => "vendor".to_owned(),
        None => "-".to_owned(),
    };
    let all: Vec<String> =
        schedule.value.iter().enumerate().map(|(tc, tsa)| format!("{tc}:{}", shown(tsa))).collect();
    out.push(
        Finding::new(rule, link.subject())
            .with(Evidence::new(
                format!("class {class} of priority {priority}"),
                what,
                &schedule.from,
            ))
            .with(Evidence::new("classes", all.join(" "), &schedule.from))
            .mend(set(link, Some(class), &schedule.value)),
    );
}

/// The command that gives `class` half, and the rest to the other classes with shares.
fn set(link: &Link<'_>, class: Option<u8>, schedule: &Schedule) -> String {
    let name = &link.interface.name;
    let is_ets = |tc: usize| {
        class == Some(tc as u8) || matches!(schedule[tc], Some(Tsa::Ets(share)) if share != Some(0))
    };
    let count = (0..8).filter(|tc| is_ets(*tc)).count() as u32;
    let rest = count.saturating_sub(u32::from(class.is_some()));
    let half = if class.is_none() { 100 } else { 50 };
    let mut left = if rest == 0 { 0 } else { half };
    let mut others = rest;
    let mut shares = [0u32; 8];
    for (tc, place) in shares.iter_mut().enumerate().filter(|(tc, _)| is_ets(*tc)) {
        if class == Some(tc as u8) {
            *place = if rest == 0 { 100 } else { 50 };
        } else if others > 0 {
            // The last takes what does not divide.
            let share = if others == 1 { left } else { half / rest };
            *place = share;
            left = left.saturating_sub(share);
            others -= 1;
        }
    }
    if link.is_mlx5() {
        let tsa: Vec<&str> = (0..8)
            .map(|tc| match schedule[tc] {
                _ if is_ets(tc) => "ets",
                Some(Tsa::Ets(_)) => "ets",
                Some(Tsa::Strict) => "strict",
                _ => "vendor",
            })
            .collect();
        let list: Vec<String> = shares.iter().map(u32::to_string).collect();
        format!("mlnx_qos -i {name} --tsa {} --tcbw {}", tsa.join(","), list.join(","))
    } else {
        let tsa = class.map(|class| format!(" tc-tsa {class}:ets")).unwrap_or_default();
        let list: Vec<String> =
            (0..8).filter(|tc| is_ets(*tc)).map(|tc| format!("{tc}:{}", shares[tc])).collect();
        format!("dcb ets set dev {name}{tsa} tc-bw {}", list.join(" "))
    }
}
