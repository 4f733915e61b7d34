//! The rows of the summary: ports and interfaces at a glance.

use serde::Serialize;

use crate::host::{Ecn, Host, Port};
use crate::parse::mlnx_qos::Trust;
use crate::rules::{Samples, priorities};

/// A RoCE port.
#[derive(Clone, Debug, Serialize)]
pub struct PortRow {
    /// `mlx5_0/1`.
    pub port: String,
    /// Its driver; `software` without one.
    pub driver: String,
    /// `ACTIVE`.
    pub state: Option<String>,
    /// Gb/s.
    pub gbps: Option<f64>,
    /// Its interfaces.
    pub netdevs: Vec<String>,
    /// RoCEv2 GIDs.
    pub v2_gids: usize,
    /// The ToS of its traffic.
    pub tos: Option<u8>,
    /// NUMA node.
    pub node: Option<u32>,
    /// GT/s and lanes.
    pub pcie: Option<String>,
    /// Firmware.
    pub firmware: Option<String>,
    /// The GUID of the device's node, as sysfs has it.
    pub node_guid: Option<String>,
    /// Gb/s received between two readings.
    pub rx_gbps: Option<f64>,
    /// Gb/s sent between two readings.
    pub tx_gbps: Option<f64>,
}

/// An interface.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceRow {
    /// Its name.
    pub name: String,
    /// `up`.
    pub state: Option<String>,
    /// MTU.
    pub mtu: Option<u32>,
    /// Gb/s.
    pub gbps: Option<f64>,
    /// `dscp`, `pcp`.
    pub trust: Option<&'static str>,
    /// Priorities with PFC.
    pub pfc: Option<Vec<u8>>,
    /// Priorities for which CNPs are sent.
    pub ecn: Option<Vec<u8>>,
    /// Global pause, `rx`, `tx`, `rx tx` or `off`.
    pub pause: Option<&'static str>,
    /// Addresses.
    pub addresses: Vec<String>,
}

fn after_colon(text: &str) -> String {
    text.split_once(": ").map_or(text, |(_, name)| name).to_owned()
}

pub(super) fn ports(samples: Samples<'_>) -> Vec<PortRow> {
    let host = samples.now;
    let mut rows = Vec::new();
    for device in &host.devices {
        let before = samples.before.and_then(|before| before.device(&device.name));
        for port in &device.ports {
            let earlier = before.and_then(|device| {
                device.ports.iter().find(|earlier| earlier.number == port.number)
            });
            let flow = |name| gbps(port, earlier?, name, samples.seconds?);
            let pcie = device.pcie.speed.as_ref().zip(device.pcie.width.as_ref());
            rows.push(PortRow {
                port: format!("{}/{}", device.name, port.number),
                driver: device.driver.clone().unwrap_or_else(|| "software".to_owned()),
                state: port.state.as_ref().map(|seen| after_colon(&seen.value)),
                gbps: port.rate.as_ref().map(|seen| seen.value as f64 / 1000.0),
                netdevs: port.netdevs(),
                v2_gids: port
                    .gids
                    .iter()
                    .filter(|gid| gid.version == Some(crate::host::RoceVersion::V2))
                    .count(),
                tos: port.tos().map(|seen| seen.value),
                node: device.numa_node.as_ref().map(|seen| seen.value),
                pcie: pcie.map(|(speed, width)| format!("{} x{}", speed.value, width.value)),
                firmware: device.firmware.clone(),
                node_guid: device.node_guid.clone(),
                rx_gbps: flow("port_rcv_data"),
                tx_gbps: flow("port_xmit_data"),
            });
        }
    }
    rows
}

/// Gb/s of a counter of 4-byte words.
fn gbps(port: &Port, before: &Port, name: &str, seconds: f64) -> Option<f64> {
    let words = crate::rules::grown(name, &before.counters, &port.counters)?;
    match words {
        crate::host::Growth::By(words) if seconds > 0.0 => {
            Some(words as f64 * 32.0 / seconds / 1e9)
        }
        _ => None,
    }
}

/// The priorities with congestion control, as a mask.
fn ecn(ecn: &Ecn) -> Option<u8> {
    let whole = || ecn.enabled.as_ref().map(|on| if on.value { u8::MAX } else { 0 });
    ecn.np_enabled.as_ref().map(|seen| seen.value).or_else(whole)
}

pub(super) fn interfaces(host: &Host) -> Vec<InterfaceRow> {
    let row = |interface: &crate::host::Interface| InterfaceRow {
        name: interface.name.clone(),
        state: interface.operstate.as_ref().map(|seen| seen.value.clone()),
        mtu: interface.mtu.as_ref().map(|seen| seen.value),
        gbps: interface.speed.as_ref().map(|seen| seen.value as f64 / 1000.0),
        trust: interface.qos.trust.as_ref().map(|seen| match seen.value {
            Trust::Dscp => "dscp",
            Trust::Pcp => "pcp",
            Trust::Both => "dscp pcp",
        }),
        pfc: interface.qos.pfc.as_ref().map(|seen| priorities(seen.value)),
        ecn: ecn(&interface.ecn).map(priorities),
        pause: interface.pause.as_ref().map(|seen| match (seen.value.rx, seen.value.tx) {
            (true, true) => "rx tx",
            (true, false) => "rx",
            (false, true) => "tx",
            (false, false) => "off",
        }),
        addresses: interface.addresses.iter().map(|(a, length)| format!("{a}/{length}")).collect(),
    };
    host.interfaces.iter().map(row).collect()
}
