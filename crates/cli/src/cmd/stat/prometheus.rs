//! Counters in Prometheus's text form, version 0.0.4: what its server scrapes, and what the node
//! exporter reads from a file. The newer OpenMetrics form names counters in a way that the latter
//! takes for untyped values.

use std::fmt::Write;

use engine::counters::{CounterInfo, QpExceptions, QpTraffic};
use live::{DeviceStat, QpStat, Stats};

/// Samples of one name: labels and values.
struct Family {
    name: String,
    help: String,
    kind: &'static str,
    samples: Vec<(String, String)>,
}

/// All families, each once, in the order in which they are met.
#[derive(Default)]
struct Families(Vec<Family>);

impl Families {
    fn add(
        &mut self,
        name: &str,
        (kind, help): (&'static str, &str),
        labels: &Labels,
        value: impl ToString,
    ) {
        let family = match self.0.iter().position(|family| family.name == name) {
            Some(at) => &mut self.0[at],
            None => {
                let (name, help) = (name.to_owned(), help.to_owned());
                self.0.push(Family { name, help, kind, samples: Vec::new() });
                let last = self.0.len() - 1;
                &mut self.0[last]
            }
        };
        family.samples.push((labels.0.clone(), value.to_string()));
    }

    fn counters(
        &mut self,
        prefix: &str,
        tables: &[&[CounterInfo]],
        counters: &[(String, u64)],
        labels: &Labels,
    ) {
        for (name, value) in counters {
            let known = tables.iter().flat_map(|table| table.iter()).find(|i| i.name == name);
            let help = known.map_or("A counter of another version.", |info| info.help.trim());
            let name = format!("crocevia_{prefix}{name}_total");
            self.add(&name, ("counter", help), labels, value);
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for Family { name, help, kind, samples } in &self.0 {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(out, "{name}{{{labels}}} {value}");
            }
        }
        out
    }
}

/// Labels of a sample, written out.
#[derive(Clone, Default)]
struct Labels(String);

impl Labels {
    fn with(&self, name: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if self.0.is_empty() { "" } else { "," };
        Self(format!("{}{comma}{name}=\"{value}\"", self.0))
    }
}

/// The text.
pub(super) fn of(stats: &Stats) -> String {
    let mut families = Families::default();
    let answers = ("gauge", "Whether the device of a running process has answered.");
    for stat in &stats.devices {
        let labels = labels(stat.pid, &stat.device)
            .with("command", &stat.command)
            .with("address", stat.addresses.first().map_or("", |address| address));
        families.add("crocevia_answers", answers, &labels, 1);
        device(&mut families, stat, &labels);
        for pair in &stat.qps {
            qp(&mut families, pair, &labels);
        }
    }
    for silent in &stats.silent {
        let labels = labels(silent.pid, &silent.device);
        families.add("crocevia_answers", answers, &labels, 0);
    }
    families.text()
}

fn labels(pid: u32, device: &str) -> Labels {
    Labels::default().with("pid", pid).with("device", device)
}

fn device(families: &mut Families, stat: &DeviceStat, labels: &Labels) {
    let uptime = ("gauge", "Seconds since the device was opened.");
    families.add("crocevia_uptime_seconds", uptime, labels, stat.uptime.as_secs_f64());
    for (kind, value) in &stat.objects {
        let help = ("gauge", "Objects of the device.");
        families.add("crocevia_objects", help, &labels.with("kind", kind), value);
    }
    for (cause, value) in super::drops(stat) {
        let help = ("counter", "Packets lost, by the counter of their cause.");
        families.add("crocevia_drops_total", help, &labels.with("cause", cause), value);
    }
    families.counters("", &[engine::Counters::INFO], &stat.counters, labels);
    families.counters("link_", &[live::LinkCounters::INFO], &stat.link, labels);
}

fn qp(families: &mut Families, qp: &QpStat, labels: &Labels) {
    let labels = labels.with("qpn", format!("{:#08x}", qp.qpn));
    let mut info = labels.clone();
    for name in ["type", "state", "peer", "peer_qpn"] {
        info = info.with(name, qp.fact(name).unwrap_or(""));
    }
    families.add("crocevia_qp_info", ("gauge", "A queue pair."), &info, 1);
    let gauges = [
        ("in_flight", "PSNs sent and not acknowledged."),
        ("send_queue", "Send requests posted and not complete."),
        ("recv_queue", "Receive requests posted and not taken."),
    ];
    for (name, help) in gauges {
        if let Some(value) = qp.fact(name).and_then(|value| value.parse::<u64>().ok()) {
            families.add(&format!("crocevia_qp_{name}"), ("gauge", help), &labels, value);
        }
    }
    families.counters("qp_", &[QpTraffic::INFO, QpExceptions::INFO], &qp.counters, &labels);
}
