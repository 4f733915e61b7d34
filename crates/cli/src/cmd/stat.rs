//! `crocevia stat`: what the devices of running processes have counted. Asking is `live::query`;
//! here is what is asked for and in which form it is shown.

mod document;
mod prometheus;
mod table;
mod watch;

use std::collections::BTreeMap;

use engine::counters::{CounterInfo, CounterKind};
use live::{DeviceStat, QpStat, Query, Stats};

use crate::args::{StatArgs, StatForm};
use crate::error::{Failure, Result};
use crate::render;

/// Shows counters, once or again and again.
pub(crate) fn run(args: &StatArgs) -> Result<()> {
    if let Some(interval) = args.watch {
        return watch::run(args, interval);
    }
    let stats = ask(args)?;
    match args.form() {
        StatForm::Json => render::json(&document::of(&stats, args.qp))?,
        StatForm::Prometheus => render::text(&prometheus::of(&stats))?,
        StatForm::Table => {
            let mut out = table::devices(&stats.devices);
            out.push_str(&table::drops(&stats.devices));
            if args.qp {
                out.push_str(&table::qps(&stats.devices));
            }
            if args.all {
                out.push_str(&table::everything(&stats.devices));
            }
            if stats.devices.is_empty() {
                out.clear();
            }
            render::text(&out)?;
        }
    }
    let bare = args.form() == StatForm::Table;
    if bare && stats.devices.is_empty() && stats.silent.is_empty() {
        return Err(nothing(args));
    }
    unanswered(&stats)
}

fn ask(args: &StatArgs) -> Result<Stats> {
    let query =
        Query { pid: args.pid, device: args.device.clone(), qps: args.qp, patience: args.timeout };
    live::query(&query).map_err(|error| {
        Failure::failed(format!("the sockets of running devices cannot be listed: {error}"))
    })
}

/// Nobody has a device open.
fn nothing(args: &StatArgs) -> Failure {
    let which = match (args.pid, &args.device) {
        (None, None) => "no crocevia device is open".to_owned(),
        (Some(pid), None) => format!("process {pid} has no crocevia device open"),
        (None, Some(device)) => format!("no process has {device} open"),
        (Some(pid), Some(device)) => format!("process {pid} does not have {device} open"),
    };
    Failure::failed(format!(
        "{which}: expected a running program, such as one of `crocevia run`, of this user and in \
         this network namespace"
    ))
}

/// Those that did not answer are a failure, whatever the others have said.
fn unanswered(stats: &Stats) -> Result<()> {
    let told: Vec<String> = stats.silent.iter().map(ToString::to_string).collect();
    if told.is_empty() { Ok(()) } else { Err(Failure::failed(told.join("; "))) }
}

/// Causes for which packets were lost, at the device and its link, with how many; those of which
/// there were any.
fn drops(stat: &DeviceStat) -> BTreeMap<&str, u64> {
    let device = lost(&stat.counters, engine::Counters::INFO);
    let link = lost(&stat.link, live::LinkCounters::INFO);
    device.chain(link).collect()
}

/// The same for a queue pair.
fn qp_drops(qp: &QpStat) -> u64 {
    lost(&qp.counters, engine::counters::QpExceptions::INFO).map(|(_, value)| value).sum()
}

fn lost<'a>(
    counters: &'a [(String, u64)],
    table: &'static [CounterInfo],
) -> impl Iterator<Item = (&'a str, u64)> {
    let is_lost =
        |name: &str| table.iter().any(|info| info.name == name && info.kind != CounterKind::Count);
    counters
        .iter()
        .filter(move |(name, value)| *value > 0 && is_lost(name))
        .map(|(name, value)| (name.as_str(), *value))
}

#[cfg(test)]
mod tests;
