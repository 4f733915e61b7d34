//! A simulation's outcome as CSV files.

use std::path::Path;

use serde::Serialize;
use sim::Outcome;
use sim::scenario::Scenario;

use crate::error::{Failure, Result};

/// A pause, as a line.
#[derive(Serialize)]
struct PauseLine<'a> {
    time_ns: f64,
    node: &'a str,
    port: u16,
    priority: u8,
    stops: bool,
}

/// A port's priority, as a line.
#[derive(Serialize)]
struct PortLine<'a> {
    switch: &'a str,
    port: usize,
    priority: usize,
    rx_frames: u64,
    rx_bytes: u64,
    tx_frames: u64,
    tx_bytes: u64,
    rx_pause: u64,
    tx_pause: u64,
    rx_pause_duration_ns: f64,
    ecn_marked: u64,
    buf_discard: u64,
    cong_discard: u64,
    egress_watermark: u64,
}

/// Writes all files into a directory, which is made if it is missing.
pub(super) fn write(dir: &Path, scenario: &Scenario, outcome: &Outcome) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::failed(format!("{}: {e}", dir.display())))?;
    let (network, plan) = (&scenario.network, &scenario.plan);
    let flows = sim::summary::flows(network, plan, &scenario.groups, outcome);
    lines(&dir.join("flows.csv"), flows.iter())?;
    let pauses = outcome.pauses.iter().map(|pause| PauseLine {
        time_ns: pause.at as f64 / 1e3,
        node: network.name(pause.node),
        port: pause.port,
        priority: pause.priority,
        stops: pause.stops,
    });
    lines(&dir.join("pauses.csv"), pauses)?;
    let mut ports = Vec::new();
    for (switch, counters) in network.switches.iter().zip(&outcome.switches) {
        for (port, counted) in counters.iter().enumerate() {
            for (priority, c) in counted.priorities.iter().enumerate() {
                if c.rx_frames + c.tx_frames + c.rx_pause + c.tx_pause > 0 {
                    ports.push(PortLine {
                        switch: &switch.name,
                        port,
                        priority,
                        rx_frames: c.rx_frames,
                        rx_bytes: c.rx_bytes,
                        tx_frames: c.tx_frames,
                        tx_bytes: c.tx_bytes,
                        rx_pause: c.rx_pause,
                        tx_pause: c.tx_pause,
                        rx_pause_duration_ns: c.rx_pause_duration as f64 / 1e3,
                        ecn_marked: c.ecn_marked,
                        buf_discard: c.rx_buf_discard,
                        cong_discard: c.rx_cong_discard,
                        egress_watermark: c.egress_watermark,
                    });
                }
            }
        }
    }
    lines(&dir.join("ports.csv"), ports.iter())
}

fn lines(path: &Path, lines: impl Iterator<Item = impl Serialize>) -> Result<()> {
    let failed = |e: csv::Error| Failure::failed(format!("{}: {e}", path.display()));
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    for line in lines {
        writer.serialize(line).map_err(failed)?;
    }
    writer.flush().map_err(|e| failed(e.into()))
}
