//! A host as values, each with the place where it was seen. [`Host::gather`] reads them; what they
//! mean together is said by the rules, not here.

mod counters;
mod device;
mod ecn;
mod interface;
mod machine;
mod qos;

pub use counters::{Counters, Growth, growth};
pub use device::{Device, Gid, Pcie, Port, RoceVersion};
pub use ecn::Ecn;
pub use interface::Interface;
pub use machine::{Cpus, Irq, Process, Sockets};
pub use qos::{Headroom, Qos};

use crate::limits;
use crate::parse::ip;
use crate::reader::{Note, Reader, Seen};
use crate::source::Source;

/// What is asked for; nothing asked for means: judge what is there.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Judge this interface as one for RoCE, device or not.
    pub interface: Option<String>,
    /// Only this RDMA device.
    pub device: Option<String>,
    /// The process whose limits and placement are judged; else that of the reader.
    pub pid: Option<u32>,
}

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Its name.
    pub name: Option<String>,
    /// Seconds since it was started.
    pub uptime: Option<f64>,
    /// RDMA devices with a RoCE port.
    pub devices: Vec<Device>,
    /// Names of other RDMA devices: InfiniBand, iWARP.
    pub others: Vec<String>,
    /// The interfaces that RoCE uses, what stands below them, and those asked for.
    pub interfaces: Vec<Interface>,
    /// The addresses of every interface that was set up.
    pub addresses: Vec<(String, Vec<(std::net::IpAddr, u8)>)>,
    /// Where addresses were seen.
    pub addresses_from: Option<String>,
    /// The process that is judged.
    pub process: Process,
    /// Processors and nodes.
    pub cpus: Cpus,
    /// Socket buffers.
    pub sockets: Sockets,
    /// Whether anything of a host was there at all.
    pub readable: bool,
    /// What was not read, and why.
    pub notes: Vec<Note>,
}

impl Host {
    /// Reads a host.
    pub fn gather(source: &dyn Source, asked: &Asked) -> Self {
        let reader = Reader::new(source);
        let mut host = Self {
            name: reader.word("proc/sys/kernel/hostname").map(|seen| seen.value),
            uptime: uptime(&reader),
            process: Process::read(&reader, asked.pid),
            cpus: Cpus::read(&reader),
            sockets: Sockets::read(&reader),
            ..Self::default()
        };
        let found = ip_entries(&reader);
        host.addresses_from = found.as_ref().map(|seen| seen.from.clone());
        let entries = found.map(|seen| seen.value).unwrap_or_default();
        host.addresses = entries
            .iter()
            .filter(|entry| entry.up)
            .map(|entry| (entry.name.clone(), entry.addresses.clone()))
            .collect();
        for name in reader.names("sys/class/infiniband", "").iter().take(limits::DEVICES) {
            if asked.device.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            match Device::read(&reader, name) {
                device if device.ports.is_empty() => host.others.push(name.clone()),
                device => host.devices.push(device),
            }
        }
        host.read_interfaces(&reader, &entries, asked);
        host.read_bnxt(&reader);
        for device in &mut host.devices {
            device.bind_irqs(&reader, &host.interfaces);
        }
        let net = reader.names("sys/class/net", "");
        host.readable = !net.is_empty() || !host.devices.is_empty() || !host.others.is_empty();
        if let Some(name) = &asked.interface
            && !net.contains(name)
        {
            reader.note(format!("/sys/class/net/{name}"), "no such interface");
        }
        host.notes = reader.notes();
        host
    }

    /// The interface of this name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The device of this name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The interfaces with a link that carry one: itself, or what a VLAN or bond stands on.
    pub fn physical<'a>(&'a self, name: &str) -> Vec<&'a Interface> {
        let mut open = vec![(name.to_owned(), 0)];
        let mut found: Vec<&Interface> = Vec::new();
        while let Some((name, depth)) = open.pop() {
            let Some(interface) = self.interface(&name) else { continue };
            if interface.lowers.is_empty() || depth >= limits::DEPTH {
                if !found.iter().any(|other| other.name == name) {
                    found.push(interface);
                }
            } else {
                open.extend(interface.lowers.iter().rev().map(|lower| (lower.clone(), depth + 1)));
            }
        }
        found
    }

    /// Congestion control that a driver shows by its device and not by the interface.
    fn read_bnxt(&mut self, reader: &Reader<'_>) {
        let own = self.devices.iter().filter(|device| device.is_bnxt());
        let ports = own.flat_map(|device| device.ports.iter().map(move |port| (device, port)));
        let mut found = Vec::new();
        for (device, port) in ports {
            let netdevs = port.netdevs();
            let links = netdevs.iter().flat_map(|name| self.physical(name));
            let names: Vec<String> = links.map(|interface| interface.name.clone()).collect();
            found.push((Ecn::of_bnxt(reader, &device.name, port.number), names));
        }
        for (ecn, names) in found {
            for interface in self.interfaces.iter_mut().filter(|i| names.contains(&i.name)) {
                interface.ecn = ecn.clone();
            }
        }
    }

    fn read_interfaces(&mut self, reader: &Reader<'_>, entries: &[ip::Entry], asked: &Asked) {
        let ports = self.devices.iter().flat_map(|device| &device.ports);
        let mut wanted: Vec<String> = ports.flat_map(Port::netdevs).collect();
        wanted.extend(asked.interface.clone());
        if self.devices.is_empty() && asked.interface.is_none() && asked.device.is_none() {
            // Software RoCE may use any.
            let all = reader.names("sys/class/net", "");
            wanted.extend(all.into_iter().filter(|name| name != "lo"));
        }
        let roce: Vec<String> = wanted.clone();
        let mut at = 0;
        while let Some(name) = wanted.get(at).cloned() {
            at += 1;
            if self.interface(&name).is_some() || self.interfaces.len() >= limits::NAMES {
                continue;
            }
            let hardware = self.devices.iter().any(|device| !device.is_software());
            let tools = hardware || asked.interface.is_some();
            let mut interface = Interface::read(reader, &name, entries, tools);
            interface.carries_roce = roce.contains(&name);
            if interface.exists {
                wanted.extend(interface.lowers.iter().take(limits::LOWERS).cloned());
                self.interfaces.push(interface);
            }
        }
    }
}

fn uptime(reader: &Reader<'_>) -> Option<f64> {
    let seen = reader.word("proc/uptime")?;
    let seconds = seen.value.split_whitespace().next().and_then(|word| word.parse().ok());
    let seconds = seconds.filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
    reader.parsed(&seen, seconds, "seconds since the start").map(|seen| seen.value)
}

fn ip_entries(reader: &Reader<'_>) -> Option<Seen<Vec<ip::Entry>>> {
    let seen =
        reader.output(&["ip", "-d", "address"]).or_else(|| reader.output(&["ip", "-d", "link"]))?;
    let entries = ip::parse(&seen.value);
    Some(seen.map(entries))
}
