//! Network interfaces: MTU, link, addresses, pause, statistics, what they stand on.

use std::net::IpAddr;

use crate::host::{Counters, Ecn, Qos};
use crate::limits;
use crate::parse::ethtool::{self, LinkModes, Pause};
use crate::parse::ip;
use crate::reader::{Reader, Seen};

/// An interface.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether sysfs has it.
    pub exists: bool,
    /// Whether a RoCE port, or the question, names it; not only what stands on it.
    pub carries_roce: bool,
    /// The interfaces below it: a VLAN's parent, a bond's members.
    pub lowers: Vec<String>,
    /// Whether it is a VLAN.
    pub is_vlan: bool,
    /// Whether it stands on hardware of its own.
    pub has_device: bool,
    /// Its driver.
    pub driver: Option<String>,
    /// MTU in bytes.
    pub mtu: Option<Seen<u32>>,
    /// `up`, `down`, `unknown`.
    pub operstate: Option<Seen<String>>,
    /// Whether it was set up.
    pub admin_up: Option<Seen<bool>>,
    /// Mb/s.
    pub speed: Option<Seen<u64>>,
    /// The speeds that both sides offer.
    pub modes: Option<Seen<LinkModes>>,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Global pause.
    pub pause: Option<Seen<Pause>>,
    /// Priorities, classes, buffers.
    pub qos: Qos,
    /// DCQCN.
    pub ecn: Ecn,
    /// `ethtool -S`.
    pub statistics: Counters,
    /// `net.ipv4.conf.IF.arp_ignore`, and the larger of it and that of `all`.
    pub arp_ignore: Option<Seen<u32>>,
    /// As `arp_ignore`.
    pub arp_announce: Option<Seen<u32>>,
    /// As `arp_ignore`.
    pub rp_filter: Option<Seen<u32>>,
}

impl Interface {
    /// Whether mlnx_qos is for it.
    pub fn is_mlx5(&self) -> bool {
        self.driver.as_deref() == Some("mlx5_core")
    }

    /// Reads one. `tools`: also what ethtool, mlnx_qos, dcb and lldptool say.
    pub(crate) fn read(
        reader: &Reader<'_>,
        name: &str,
        entries: &[ip::Entry],
        tools: bool,
    ) -> Self {
        let dir = format!("sys/class/net/{name}");
        let flags = reader.word(&format!("{dir}/flags")).and_then(|seen| {
            let value = seen.value.strip_prefix("0x");
            let value = value.and_then(|hex| u32::from_str_radix(hex, 16).ok());
            reader.parsed(&seen, value, "flags such as 0x1003")
        });
        let uevent =
            reader.file(&format!("{dir}/uevent")).map(|seen| seen.value).unwrap_or_default();
        let device = reader.file(&format!("{dir}/device/uevent")).map(|seen| seen.value);
        let field = |key: &str| {
            let device = device.as_deref().unwrap_or_default();
            let line = device.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.map(str::to_owned)
        };
        let entry = entries.iter().find(|entry| entry.name == name);
        let mtu = reader.number(&format!("{dir}/mtu"), "an MTU in bytes");
        let operstate = reader.word(&format!("{dir}/operstate"));
        let mut interface = Self {
            name: name.to_owned(),
            exists: mtu.is_some() || operstate.is_some() || flags.is_some(),
            is_vlan: uevent.lines().any(|line| line == "DEVTYPE=vlan"),
            has_device: device.is_some(),
            driver: field("DRIVER"),
            mtu,
            operstate,
            admin_up: flags.map(|seen| seen.map(seen.value & 1 != 0)),
            speed: speed(reader, &dir),
            addresses: entry.map(|entry| entry.addresses.clone()).unwrap_or_default(),
            arp_ignore: conf(reader, name, "arp_ignore"),
            arp_announce: conf(reader, name, "arp_announce"),
            rp_filter: conf(reader, name, "rp_filter"),
            ..Self::default()
        };
        interface.lowers = interface.find_lowers(reader, &dir, entries);
        if interface.exists && tools && interface.lowers.is_empty() {
            interface.ask_tools(reader, field("PCI_SLOT_NAME").as_deref());
        }
        interface
    }

    fn find_lowers(&self, reader: &Reader<'_>, dir: &str, entries: &[ip::Entry]) -> Vec<String> {
        let own = |name: &String| *name != self.name && crate::source::is_name(name);
        if let Some(members) = reader.word(&format!("{dir}/bonding/slaves")) {
            let members = members.value.split_whitespace().map(str::to_owned).filter(own);
            return members.take(limits::LOWERS).collect();
        }
        if self.is_vlan {
            let below = entries.iter().find(|entry| entry.name == self.name);
            return below.and_then(|entry| entry.below.clone()).filter(own).into_iter().collect();
        }
        Vec::new()
    }

    fn ask_tools(&mut self, reader: &Reader<'_>, pci: Option<&str>) {
        let name = self.name.clone();
        if let Some(seen) = reader.output(&["ethtool", "-S", &name]) {
            self.statistics = Counters::output(seen.from, ethtool::statistics(&seen.value));
        }
        if !self.has_device {
            return;
        }
        if self.driver.is_none() {
            let seen = reader.output(&["ethtool", "-i", &name]);
            self.driver = seen.and_then(|seen| ethtool::driver(&seen.value));
        }
        self.pause = reader.output(&["ethtool", "-a", &name]).and_then(|seen| {
            let pause = ethtool::pause(&seen.value);
            reader.parsed(&seen, pause, "lines RX and TX, on or off")
        });
        let modes = reader.output(&["ethtool", &name]);
        self.modes = modes.map(|seen| seen.map(ethtool::link_modes(&seen.value)));
        self.qos = Qos::read(reader, &name, self.is_mlx5());
        if self.is_mlx5() {
            self.ecn = Ecn::read(reader, &name, pci);
        }
    }
}

/// Mb/s. The file cannot be read while the link is down, and is -1 where there is none.
fn speed(reader: &Reader<'_>, dir: &str) -> Option<Seen<u64>> {
    let seen = reader.quiet(&format!("{dir}/speed"), limits::VALUE).ok()?;
    let speed = seen.value.trim().parse::<i64>().ok()?;
    u64::try_from(speed)
        .ok()
        .filter(|speed| (1..u64::from(u32::MAX)).contains(speed))
        .map(|speed| seen.map(speed))
}

/// A setting of `net.ipv4.conf`: the kernel takes the larger of the interface's and that of `all`.
fn conf(reader: &Reader<'_>, interface: &str, name: &str) -> Option<Seen<u32>> {
    // A dot in an interface's name stays a dot under /proc/sys.
    let of = |who: &str| {
        let path = format!("proc/sys/net/ipv4/conf/{who}/{name}");
        reader.number(&path, "a small number")
    };
    match (of("all"), of(interface)) {
        (Some(all), Some(own)) => Some(if all.value > own.value { all } else { own }),
        (_, own) => own,
    }
}
