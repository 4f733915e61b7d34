//! Counters as JSON. Numbers are numbers, names are those of the counters.

use live::{DeviceStat, QpStat, Silence, Stats};
use serde_json::{Map, Value, json};

/// Everything that was answered, and who did not.
pub(super) fn of(stats: &Stats, with_qps: bool) -> Value {
    let devices: Vec<Value> = stats.devices.iter().map(|stat| device(stat, with_qps)).collect();
    let silent = stats.silent.iter().map(|silent| {
        let why = match silent.why {
            Silence::Stopped => "stopped",
            Silence::Slow => "slow",
            Silence::Denied => "denied",
            Silence::Foreign => "foreign",
        };
        json!({ "pid": silent.pid, "uid": silent.uid, "device": silent.device, "why": why })
    });
    json!({ "devices": devices, "silent": silent.collect::<Vec<Value>>() })
}

fn device(stat: &DeviceStat, with_qps: bool) -> Value {
    let mut value = json!({
        "pid": stat.pid,
        "uid": stat.uid,
        "command": stat.command,
        "device": stat.device,
        "netdev": stat.netdev,
        "addresses": stat.addresses,
        "mtu": stat.mtu,
        "uptime_ns": u64::try_from(stat.uptime.as_nanos()).unwrap_or(u64::MAX),
        "objects": numbers(&stat.objects),
        "counters": numbers(&stat.counters),
        "link": numbers(&stat.link),
        "drops": super::drops(stat),
    });
    if with_qps {
        value["qps"] = stat.qps.iter().map(qp).collect();
    }
    value
}

fn qp(qp: &QpStat) -> Value {
    let mut members = Map::new();
    members.insert("qpn".to_owned(), qp.qpn.into());
    members.extend(qp.facts.iter().map(|(name, text)| {
        let value = text.parse::<u64>().map_or_else(|_| text.as_str().into(), Value::from);
        (name.clone(), value)
    }));
    members.insert("counters".to_owned(), numbers(&qp.counters));
    members.into()
}

fn numbers(of: &[(String, u64)]) -> Value {
    of.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect::<Map<_, _>>().into()
}
