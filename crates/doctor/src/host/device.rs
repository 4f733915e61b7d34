//! RDMA devices as sysfs shows them: ports, GIDs, PCI Express, counters, RDMA CM's defaults.

use std::net::Ipv6Addr;

use crate::host::{Counters, Interface, Irq};
use crate::limits;
use crate::parse::cpus::CpuSet;
use crate::parse::{leading_number, proc};
use crate::reader::{Reader, Seen};

/// Which RoCE a GID, or RDMA CM, stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoceVersion {
    /// Ethernet with a GRH.
    V1,
    /// UDP over IP.
    V2,
}

impl RoceVersion {
    fn of(text: &str) -> Option<Self> {
        match text.trim() {
            "RoCE v2" => Some(Self::V2),
            "IB/RoCE v1" | "RoCE v1" => Some(Self::V1),
            _ => None,
        }
    }
}

/// An entry of a GID table that is not empty.
#[derive(Clone, Debug)]
pub struct Gid {
    /// Its index.
    pub index: usize,
    /// The GID.
    pub gid: Ipv6Addr,
    /// v1 or v2, if told.
    pub version: Option<RoceVersion>,
    /// Its interface, if told.
    pub netdev: Option<String>,
}

/// A RoCE port.
#[derive(Clone, Debug, Default)]
pub struct Port {
    /// From 1.
    pub number: u32,
    /// `4: ACTIVE`.
    pub state: Option<Seen<String>>,
    /// `5: LinkUp`.
    pub phys_state: Option<Seen<String>>,
    /// Mb/s.
    pub rate: Option<Seen<u64>>,
    /// Its GIDs.
    pub gids: Vec<Gid>,
    /// Where they were seen.
    pub gids_from: String,
    /// What RDMA CM connects by.
    pub roce_mode: Option<Seen<RoceVersion>>,
    /// The ToS that RDMA CM gives to connections.
    pub roce_tos: Option<Seen<u8>>,
    /// The traffic class that the driver gives to every queue pair, if it is set.
    pub traffic_class: Option<Seen<u8>>,
    /// The active MTU that verbs tell, bytes.
    pub active_mtu: Option<Seen<u32>>,
    /// `counters`.
    pub counters: Counters,
    /// `hw_counters`.
    pub hw_counters: Counters,
}

/// The device's place on PCI Express.
#[derive(Clone, Debug, Default)]
pub struct Pcie {
    /// GT/s now.
    pub speed: Option<Seen<f64>>,
    /// GT/s at best.
    pub max_speed: Option<Seen<f64>>,
    /// Lanes now.
    pub width: Option<Seen<u32>>,
    /// Lanes at best.
    pub max_width: Option<Seen<u32>>,
}

impl Pcie {
    /// Bits that the link carries each second, Gb/s, after line coding.
    pub fn gbps(&self) -> Option<f64> {
        let (speed, width) = (self.speed.as_ref()?.value, self.width.as_ref()?.value);
        // 8b/10b to 5 GT/s, 128b/130b from 8, flits of 256 bytes with 236 of packets from 64.
        let share = if speed <= 5.0 {
            0.8
        } else if speed < 64.0 {
            128.0 / 130.0
        } else {
            236.0 / 256.0
        };
        Some(speed * share * f64::from(width))
    }

    fn read(reader: &Reader<'_>, dir: &str) -> Self {
        let speed = |file: &str| {
            let seen = reader.word(&format!("{dir}/{file}"))?;
            if seen.value.starts_with("Unknown") {
                return None;
            }
            let value = leading_number(&seen.value).map(|(value, _)| value);
            let value = value.filter(|value| (1.0..=256.0).contains(value));
            reader.parsed(&seen, value, "a speed such as 8.0 GT/s")
        };
        let width = |file: &str| {
            let seen: Seen<u32> = reader.number(&format!("{dir}/{file}"), "a number of lanes")?;
            // Virtual machines show widths that no link has.
            Some(seen).filter(|seen| (1..=32).contains(&seen.value))
        };
        Self {
            speed: speed("current_link_speed"),
            max_speed: speed("max_link_speed"),
            width: width("current_link_width"),
            max_width: width("max_link_width"),
        }
    }
}

/// An RDMA device with at least one RoCE port.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// `mlx5_0`.
    pub name: String,
    /// Its PCI driver; none of a software device.
    pub driver: Option<String>,
    /// Its PCI address.
    pub pci: Option<String>,
    /// Firmware.
    pub firmware: Option<String>,
    /// The GUID of the node.
    pub node_guid: Option<String>,
    /// NUMA node; none where there is only one.
    pub numa_node: Option<Seen<u32>>,
    /// The processors of its node.
    pub local_cpus: Option<Seen<CpuSet>>,
    /// Its link to the processor.
    pub pcie: Pcie,
    /// Its RoCE ports.
    pub ports: Vec<Port>,
    /// Its completion interrupts.
    pub irqs: Vec<Irq>,
}

impl Device {
    /// Whether it is software: rxe, or anything else that is on no bus.
    pub fn is_software(&self) -> bool {
        self.driver.is_none() && self.pci.is_none()
    }

    /// Whether mlnx_qos and the sysfs files of mlx5 are for it.
    pub fn is_mlx5(&self) -> bool {
        self.driver.as_deref() == Some("mlx5_core") || self.name.starts_with("mlx5_")
    }

    /// Whether the configfs files of bnxt_re are for it.
    pub fn is_bnxt(&self) -> bool {
        self.driver.as_deref() == Some("bnxt_en") || self.name.starts_with("bnxt_re")
    }

    pub(crate) fn read(reader: &Reader<'_>, name: &str) -> Self {
        let dir = format!("sys/class/infiniband/{name}");
        let uevent = reader.file(&format!("{dir}/device/uevent")).map(|seen| seen.value);
        let uevent = uevent.unwrap_or_default();
        let field = |key: &str| {
            let line = uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let node = reader.number::<i64>(&format!("{dir}/device/numa_node"), "a NUMA node");
        let mut device = Self {
            name: name.to_owned(),
            driver: field("DRIVER"),
            pci: field("PCI_SLOT_NAME"),
            firmware: reader.word(&format!("{dir}/fw_ver")).map(|seen| seen.value),
            node_guid: reader.word(&format!("{dir}/node_guid")).map(|seen| seen.value),
            numa_node: node
                .and_then(|seen| u32::try_from(seen.value).ok().map(|node| seen.map(node))),
            local_cpus: cpu_set(reader, &format!("{dir}/device/local_cpulist")),
            pcie: Pcie::read(reader, &format!("{dir}/device")),
            ..Self::default()
        };
        let iwarp =
            reader.word(&format!("{dir}/node_type")).is_some_and(|n| n.value.contains("RNIC"));
        let mut ports: Vec<u32> = reader
            .names(&format!("{dir}/ports"), "")
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        ports.sort_unstable();
        for number in ports.into_iter().take(limits::DEVICES) {
            let layer = reader.word(&format!("{dir}/ports/{number}/link_layer"));
            if !iwarp && layer.is_some_and(|layer| layer.value == "Ethernet") {
                device.ports.push(Port::read(reader, name, number));
            }
        }
        let told = |port: &Port| port.roce_mode.is_some() || port.roce_tos.is_some();
        if !device.is_software() && !device.ports.is_empty() && !device.ports.iter().any(told) {
            let why = "no defaults of RDMA CM there: `mkdir` of the device's name shows them";
            reader.note(format!("/sys/kernel/config/rdma_cm/{name}"), why);
        }
        device
    }

    /// Finds the device's interrupts by its PCI address, or by the names of its interfaces.
    pub(crate) fn bind_irqs(&mut self, reader: &Reader<'_>, interfaces: &[Interface]) {
        if self.is_software() {
            return;
        }
        let Some(seen) = reader.long("proc/interrupts", limits::OUTPUT) else { return };
        let lines = proc::interrupts(&seen.value);
        let mut words: Vec<String> = self.pci.iter().cloned().collect();
        words.extend(self.ports.iter().flat_map(Port::netdevs));
        for word in words.clone() {
            let lowers = interfaces.iter().filter(|interface| interface.name == word);
            words.extend(lowers.flat_map(|interface| interface.lowers.clone()));
        }
        let own = lines.iter().filter(|irq| words.iter().any(|word| irq.names(word)));
        let own = own.filter(|irq| !irq.is_control()).take(limits::IRQS);
        self.irqs = own.map(|irq| Irq::read(reader, irq)).collect();
    }
}

pub(crate) fn cpu_set(reader: &Reader<'_>, path: &str) -> Option<Seen<CpuSet>> {
    let seen = reader.word(path)?;
    reader.parsed(&seen, seen.value.parse().ok(), "a list of processors such as 0-3,8")
}

impl Port {
    /// The interfaces of its GIDs, each once.
    pub fn netdevs(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for netdev in self.gids.iter().filter_map(|gid| gid.netdev.clone()) {
            if !names.contains(&netdev) {
                names.push(netdev);
            }
        }
        names
    }

    /// The ToS that its traffic leaves with by default: what the driver forces, else what RDMA CM
    /// gives.
    pub fn tos(&self) -> Option<&Seen<u8>> {
        let forced = self.traffic_class.as_ref().filter(|seen| seen.value != 0);
        forced.or(self.roce_tos.as_ref())
    }

    /// Whether its state is ACTIVE.
    pub fn is_active(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.value.starts_with("4:"))
    }

    fn read(reader: &Reader<'_>, device: &str, number: u32) -> Self {
        let dir = format!("sys/class/infiniband/{device}/ports/{number}");
        let cm = format!("sys/kernel/config/rdma_cm/{device}/ports/{number}");
        let mode = reader.word(&format!("{cm}/default_roce_mode"));
        let rate = reader.word(&format!("{dir}/rate"));
        let mut port = Self {
            number,
            state: reader.word(&format!("{dir}/state")),
            phys_state: reader.word(&format!("{dir}/phys_state")),
            rate: rate.and_then(|seen| {
                let rate = leading_number(&seen.value).map(|(gbps, _)| (gbps * 1000.0) as u64);
                reader.parsed(&seen, rate, "a rate such as 100 Gb/sec (4X EDR)")
            }),
            roce_mode: mode.and_then(|seen| {
                let expected = "`RoCE v2` or `IB/RoCE v1`";
                reader.parsed(&seen, RoceVersion::of(&seen.value), expected)
            }),
            roce_tos: reader.number(&format!("{cm}/default_roce_tos"), "a ToS from 0 to 255"),
            traffic_class: traffic_class(reader, device, number),
            active_mtu: active_mtu(reader, device, number),
            counters: Counters::directory(reader, &format!("{dir}/counters")),
            hw_counters: Counters::directory(reader, &format!("{dir}/hw_counters")),
            gids_from: format!("/{dir}/gids"),
            gids: Vec::new(),
        };
        port.read_gids(reader, &dir);
        if port.gids.is_empty() {
            port.gids.extend(netdev_of_link(reader, device, number));
        }
        port
    }

    fn read_gids(&mut self, reader: &Reader<'_>, dir: &str) {
        let mut empty = 0;
        for index in 0..limits::GIDS {
            let Ok(seen) = reader.quiet(&format!("{dir}/gids/{index}"), limits::VALUE) else {
                break;
            };
            let gid: Option<Ipv6Addr> = seen.value.trim().parse().ok();
            let Some(gid) = reader.parsed(&seen, gid, "a GID of eight groups of four digits")
            else {
                continue;
            };
            if gid.value.is_unspecified() {
                empty += 1;
                if empty >= limits::EMPTY_GIDS {
                    break;
                }
                continue;
            }
            empty = 0;
            let attribute = |kind: &str| {
                let path = format!("{dir}/gid_attrs/{kind}/{index}");
                Some(reader.quiet(&path, limits::VALUE).ok()?.value.trim().to_owned())
            };
            let netdev = attribute("ndevs").filter(|name| crate::source::is_name(name));
            let version = attribute("types").and_then(|kind| RoceVersion::of(&kind));
            self.gids.push(Gid { index, gid: gid.value, version, netdev });
        }
    }
}

/// A port without GIDs is bound to an interface by `rdma link`; no GID of its own.
fn netdev_of_link(reader: &Reader<'_>, device: &str, number: u32) -> Option<Gid> {
    let seen = reader.output(&["rdma", "link"])?;
    let own = format!("link {device}/{number} ");
    let line = seen.value.lines().find(|line| line.starts_with(&own))?;
    let mut words = line.split_whitespace().skip_while(|word| *word != "netdev").skip(1);
    let netdev = words.next().filter(|name| crate::source::is_name(name))?.to_owned();
    Some(Gid { index: 0, gid: Ipv6Addr::UNSPECIFIED, version: None, netdev: Some(netdev) })
}

/// `Global tclass=106` of the mlx5 driver; empty if it is not set.
fn traffic_class(reader: &Reader<'_>, device: &str, number: u32) -> Option<Seen<u8>> {
    let seen = reader.word(&format!("sys/class/infiniband/{device}/tc/{number}/traffic_class"))?;
    let value = seen.value.rsplit(['=', ' ']).next().and_then(|word| word.parse().ok());
    reader.parsed(&seen, value, "a line such as `Global tclass=106`")
}

/// `active_mtu: 1024 (3)` of the port's part of `ibv_devinfo -d DEVICE`.
fn active_mtu(reader: &Reader<'_>, device: &str, number: u32) -> Option<Seen<u32>> {
    let seen = reader.output(&["ibv_devinfo", "-d", device])?;
    let own = number.to_string();
    let mut lines =
        seen.value.lines().map(str::trim).skip_while(|line| {
            line.strip_prefix("port:").is_none_or(|number| number.trim() != own)
        });
    let mtu = lines.find_map(|line| line.strip_prefix("active_mtu:"))?;
    let mtu = mtu.split_whitespace().next()?.parse().ok()?;
    Some(seen.map(mtu))
}
