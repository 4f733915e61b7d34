//! The rules: facts to findings. Each file judges one matter; here is what they look at: a port
//! with its interfaces, a link, two readings. What a finding says in general is in the catalogue.

mod classes;
mod ecn;
mod gids;
mod headroom;
mod lossless;
mod machine;
mod mtu;
mod pauses;
mod port;
mod traffic;

use std::net::IpAddr;

use crate::finding::Finding;
use crate::host::{Asked, Counters, Device, Growth, Host, Interface, Port, growth};
use crate::reader::Seen;

/// One reading of a host, or two.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// The later one, or the only one.
    pub now: &'a Host,
    /// The earlier one.
    pub before: Option<&'a Host>,
    /// Seconds between them, if known.
    pub seconds: Option<f64>,
}

impl<'a> Samples<'a> {
    /// One reading.
    pub fn one(now: &'a Host) -> Self {
        Self { now, before: None, seconds: None }
    }

    /// Two readings, `seconds` apart; without that, by the hosts' uptimes. An earlier reading of
    /// another run of the host is left out: all its counters began anew.
    pub fn two(before: &'a Host, now: &'a Host, seconds: Option<f64>) -> Self {
        let uptimes = before.uptime.zip(now.uptime);
        let by_uptime = uptimes.map(|(before, now)| now - before).filter(|seconds| *seconds > 0.0);
        let same_run = uptimes.is_none_or(|(before, now)| now >= before);
        Self { now, before: same_run.then_some(before), seconds: seconds.or(by_uptime) }
    }
}

/// Everything that is wrong, most severe first.
pub fn judge(samples: Samples<'_>, asked: &Asked) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut ports = ports(samples);
    if let Some(name) = &asked.interface {
        let own = |case: &PortCase<'_>| {
            case.logical.iter().chain(&case.physical).any(|i| i.name == *name)
        };
        ports.retain(own);
    }
    for port in &ports {
        port::judge(port, ports.len(), asked, &mut out);
        gids::judge(port, &mut out);
        traffic::judge_port(port, &mut out);
    }
    for link in links(&ports, samples, asked) {
        lossless::judge(&link, &mut out);
        headroom::judge(&link, &mut out);
        classes::judge(&link, &mut out);
        ecn::judge(&link, &mut out);
        traffic::judge_link(&link, &mut out);
        pauses::judge(&link, &mut out);
    }
    mtu::judge(samples.now, asked, &mut out);
    gids::judge_subnets(samples.now, asked, &mut out);
    machine::judge(samples.now, asked, &mut out);
    out.sort_by(|a, b| {
        let key = |f: &Finding| (std::cmp::Reverse(f.severity), f.rule, f.subject.clone());
        key(a).cmp(&key(b))
    });
    out.dedup_by(|a, b| a.rule == b.rule && a.subject == b.subject && a.found == b.found);
    out
}

/// A RoCE port and its interfaces.
pub(crate) struct PortCase<'a> {
    pub(crate) samples: Samples<'a>,
    pub(crate) device: &'a Device,
    pub(crate) port: &'a Port,
    /// The interfaces that its GIDs name.
    pub(crate) logical: Vec<&'a Interface>,
    /// Those with a link below them.
    pub(crate) physical: Vec<&'a Interface>,
}

impl PortCase<'_> {
    /// `mlx5_0/1 (ens1f0)`.
    pub(crate) fn subject(&self) -> String {
        let names: Vec<&str> = self.logical.iter().map(|i| i.name.as_str()).collect();
        let port = format!("{}/{}", self.device.name, self.port.number);
        if names.is_empty() { port } else { format!("{port} ({})", names.join(", ")) }
    }

    /// The first interface's name, or `IF`.
    pub(crate) fn interface(&self) -> &str {
        let interfaces = self.physical.iter().chain(&self.logical);
        interfaces.map(|interface| interface.name.as_str()).next().unwrap_or("IF")
    }

    /// The same port in the earlier reading.
    pub(crate) fn before(&self) -> Option<&Port> {
        let device = self.samples.before?.device(&self.device.name)?;
        device.ports.iter().find(|port| port.number == self.port.number)
    }

    /// The lossless priority of its first link, where that is one; else the one that its ToS leads
    /// to.
    pub(crate) fn roce_priority(&self) -> Option<u8> {
        let qos = &self.physical.first()?.qos;
        let lossless =
            qos.pfc.as_ref().map(|seen| seen.value).filter(|mask| mask.count_ones() == 1);
        let by_tos = || qos.priority_of(self.port.tos()?.value >> 2).map(|seen| seen.value);
        lossless.map(|mask| mask.trailing_zeros() as u8).or_else(by_tos)
    }

    /// Whether an interface of it has an address that is not link-local.
    pub(crate) fn has_address(&self) -> bool {
        let routable = |address: &IpAddr| match address {
            IpAddr::V4(v4) => !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        };
        let interfaces = self.logical.iter().chain(&self.physical);
        interfaces.flat_map(|i| &i.addresses).any(|(address, _)| routable(address))
    }

    /// Whether an interface of it was set up, or that is not known.
    pub(crate) fn is_wanted(&self) -> bool {
        let known = self.physical.iter().filter_map(|interface| interface.admin_up.as_ref());
        let states: Vec<bool> = known.map(|seen| seen.value).collect();
        states.is_empty() || states.contains(&true)
    }
}

fn ports(samples: Samples<'_>) -> Vec<PortCase<'_>> {
    let host = samples.now;
    let all = host.devices.iter().flat_map(|device| device.ports.iter().map(move |p| (device, p)));
    all.map(|(device, port)| {
        let names = port.netdevs();
        let mut physical: Vec<&Interface> = Vec::new();
        for interface in names.iter().flat_map(|name| host.physical(name)) {
            if !physical.iter().any(|other| other.name == interface.name) {
                physical.push(interface);
            }
        }
        let logical = names.iter().filter_map(|name| host.interface(name)).collect();
        PortCase { samples, device, port, logical, physical }
    })
    .collect()
}

/// An Ethernet link that carries RoCE, or is asked to.
pub(crate) struct Link<'a> {
    pub(crate) samples: Samples<'a>,
    pub(crate) interface: &'a Interface,
    /// The RoCE port on it; none if only the interface was asked for.
    pub(crate) port: Option<(&'a Device, &'a Port)>,
    /// Whether a GID of the port is on a VLAN.
    pub(crate) has_vlan: bool,
}

impl Link<'_> {
    /// `ens1f0 (mlx5_0/1)`.
    pub(crate) fn subject(&self) -> String {
        match self.port {
            Some((device, port)) => {
                format!("{} ({}/{})", self.interface.name, device.name, port.number)
            }
            None => self.interface.name.clone(),
        }
    }

    /// The same interface in the earlier reading.
    pub(crate) fn before(&self) -> Option<&Interface> {
        self.samples.before?.interface(&self.interface.name)
    }

    /// Priorities with PFC.
    pub(crate) fn pfc(&self) -> Option<&Seen<u8>> {
        self.interface.qos.pfc.as_ref()
    }

    /// The ToS that the port gives to RoCE, if it is set.
    pub(crate) fn tos(&self) -> Option<&Seen<u8>> {
        self.port.and_then(|(_, port)| port.tos()).filter(|tos| tos.value != 0)
    }

    /// The priority that this ToS leads to.
    pub(crate) fn roce_priority(&self) -> Option<Seen<u8>> {
        self.interface.qos.priority_of(self.tos()?.value >> 2)
    }

    /// The priorities that RoCE is meant to have: those with PFC, where these are few; else the one
    /// that its ToS leads to.
    pub(crate) fn roce_priorities(&self) -> Vec<u8> {
        let mask = self.pfc().map_or(0, |pfc| pfc.value);
        match mask.count_ones() {
            1 | 2 => priorities(mask),
            _ => self.roce_priority().map(|seen| seen.value).into_iter().collect(),
        }
    }

    /// The rate in Mb/s.
    pub(crate) fn rate(&self) -> Option<&Seen<u64>> {
        let of_port = || self.port.and_then(|(_, port)| port.rate.as_ref());
        self.interface.speed.as_ref().or_else(of_port)
    }

    /// Whether mlnx_qos sets it.
    pub(crate) fn is_mlx5(&self) -> bool {
        self.interface.is_mlx5() || self.port.is_some_and(|(device, _)| device.is_mlx5())
    }
}

fn links<'a>(ports: &[PortCase<'a>], samples: Samples<'a>, asked: &Asked) -> Vec<Link<'a>> {
    let mut links: Vec<Link<'a>> = Vec::new();
    for case in ports.iter().filter(|case| !case.device.is_software()) {
        let has_vlan = case.logical.iter().any(|interface| interface.is_vlan);
        for interface in &case.physical {
            let port = Some((case.device, case.port));
            links.push(Link { samples, interface, port, has_vlan });
        }
    }
    for interface in asked.interface.iter().flat_map(|name| samples.now.physical(name)) {
        if !links.iter().any(|link| link.interface.name == interface.name) {
            let has_vlan = asked.interface.as_ref() != Some(&interface.name);
            links.push(Link { samples, interface, port: None, has_vlan });
        }
    }
    if let Some(name) = &asked.interface {
        let below: Vec<&str> =
            samples.now.physical(name).iter().map(|interface| interface.name.as_str()).collect();
        links.retain(|link| below.contains(&link.interface.name.as_str()));
    }
    links
}

/// The priorities of a mask.
pub(crate) fn priorities(mask: u8) -> Vec<u8> {
    (0..8).filter(|priority| mask & 1 << priority != 0).collect()
}

/// `3`, `3, 4`, `none`.
pub(crate) fn list(priorities: &[u8]) -> String {
    if priorities.is_empty() {
        return "none".to_owned();
    }
    priorities.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

/// `0,0,0,1,0,0,0,0`.
pub(crate) fn mask_list(mask: u8) -> String {
    let bits: Vec<&str> = (0..8).map(|p| if mask & 1 << p == 0 { "0" } else { "1" }).collect();
    bits.join(",")
}

/// The command that gives PFC to just these priorities.
pub(crate) fn set_pfc(link: &Link<'_>, mask: u8) -> String {
    let name = &link.interface.name;
    if link.is_mlx5() {
        return format!("mlnx_qos -i {name} --pfc {}", mask_list(mask));
    }
    let on: Vec<String> = priorities(mask).iter().map(|p| format!(" {p}:on")).collect();
    format!("dcb pfc set dev {name} prio-pfc all:off{}", on.concat())
}

/// The growth of a counter, if both readings have it.
pub(crate) fn grown(name: &str, before: &Counters, now: &Counters) -> Option<Growth> {
    Some(growth(name, before.get(name)?.value, now.get(name)?.value))
}

/// A number in groups of three digits: `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_masks() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(mask_list(8), "0,0,0,1,0,0,0,0");
        assert_eq!(list(&priorities(0b11000)), "3, 4");
        assert_eq!(list(&[]), "none");
    }
}
