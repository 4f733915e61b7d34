//! GIDs and addresses: RoCE's names on the network.

use std::net::IpAddr;

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::host::{Asked, Gid, Host, Interface, RoceVersion};
use crate::parse::ip::same_subnet;
use crate::reader::Seen;
use crate::rules::PortCase;

pub(super) fn judge(case: &PortCase<'_>, out: &mut Vec<Finding>) {
    mode(case, out);
    if !case.port.is_active() {
        // Tables empty themselves with the link; that it is down is told already.
        return;
    }
    let known: Vec<&Gid> = case.port.gids.iter().filter(|gid| gid.version.is_some()).collect();
    let v2: Vec<&Gid> =
        known.iter().copied().filter(|gid| gid.version == Some(RoceVersion::V2)).collect();
    if known.is_empty() {
        return;
    }
    let address = case.logical.iter().flat_map(|interface| &interface.addresses).next();
    let add = match address {
        Some((address, length)) => format!(
            "ip address del {address}/{length} dev {0}; ip address add {address}/{length} dev {0}",
            case.interface()
        ),
        None => format!("ip address add ADDRESS/LENGTH dev {}", case.interface()),
    };
    if v2.is_empty() {
        let seen = format!("{}, none of type RoCE v2", known.len());
        out.push(
            Finding::new(Rule::NoV2Gid, case.subject())
                .with(Evidence::new("GIDs", seen, &case.port.gids_from))
                .mend(add),
        );
        return;
    }
    if v2.iter().all(|gid| gid.gid.is_unicast_link_local()) {
        let seen = format!("{}, all link-local, such as {}", v2.len(), v2[0].gid);
        out.push(
            Finding::new(Rule::NoIpGid, case.subject())
                .with(Evidence::new("RoCEv2 GIDs", seen, &case.port.gids_from))
                .mend(add),
        );
    }
    missing(case, &v2, out);
}

fn mode(case: &PortCase<'_>, out: &mut Vec<Finding>) {
    let Some(mode) = &case.port.roce_mode else { return };
    let v2 = case.port.gids.iter().find(|gid| gid.version == Some(RoceVersion::V2));
    if let (RoceVersion::V1, Some(gid)) = (mode.value, v2) {
        out.push(
            Finding::new(Rule::RoceV1Default, case.subject())
                .with(Evidence::new("default_roce_mode", "IB/RoCE v1", &mode.from))
                .with(Evidence::new(
                    "a v2 GID",
                    format!("{} at index {}", gid.gid, gid.index),
                    &case.port.gids_from,
                ))
                .mend(format!("echo 'RoCE v2' > {}", mode.from)),
        );
    }
}

fn missing(case: &PortCase<'_>, v2: &[&Gid], out: &mut Vec<Finding>) {
    let from = case.samples.now.addresses_from.clone().unwrap_or_default();
    for interface in &case.logical {
        let gids: Vec<_> =
            v2.iter().filter(|gid| gid.netdev.as_ref() == Some(&interface.name)).collect();
        let v4 = interface.addresses.iter().filter(|(address, _)| address.is_ipv4());
        for (address, length) in v4 {
            let IpAddr::V4(v4) = address else { continue };
            if gids.iter().any(|gid| gid.gid == v4.to_ipv6_mapped()) || v4.is_loopback() {
                continue;
            }
            let name = &interface.name;
            let index: Vec<String> = gids.iter().map(|gid| gid.gid.to_string()).collect();
            out.push(
                Finding::new(Rule::GidMissing, case.subject())
                    .with(Evidence::new("address", format!("{address}/{length}"), &from))
                    .with(Evidence::new("RoCEv2 GIDs", index.join(", "), &case.port.gids_from))
                    .mend(format!(
                        "ip address del {address}/{length} dev {name}; \
                         ip address add {address}/{length} dev {name}"
                    )),
            );
        }
    }
}

/// Interfaces in one subnet: of each that carries RoCE, whether ARP and routing keep it apart.
pub(super) fn judge_subnets(host: &Host, asked: &Asked, out: &mut Vec<Finding>) {
    if host.devices.is_empty() {
        return;
    }
    let from = host.addresses_from.clone().unwrap_or_default();
    let wanted = |interface: &&Interface| {
        let only = asked.interface.as_ref();
        interface.carries_roce && only.is_none_or(|name| *name == interface.name)
    };
    for interface in host.interfaces.iter().filter(wanted) {
        let neighbour = host
            .addresses
            .iter()
            .filter(|(name, _)| *name != interface.name && name != "lo")
            .find_map(|(name, others)| Some((name, shared(interface, others)?)));
        let Some((other, (own, theirs))) = neighbour else { continue };
        let settings = mixing(interface);
        if settings.is_empty() {
            continue;
        }
        let mut finding = Finding::new(Rule::SameSubnet, &interface.name)
            .with(Evidence::new("address", own, &from))
            .with(Evidence::new(format!("beside {other}"), theirs, &from));
        let mut commands = Vec::new();
        for (what, seen, wanted) in settings {
            finding = finding.with(Evidence::of(what, seen));
            commands
                .push(format!("net.ipv4.conf.{}.{what}={wanted}", sysctl_name(&interface.name)));
            if seen.from.contains("/all/") && what == "rp_filter" {
                commands.push("net.ipv4.conf.all.rp_filter=2".to_owned());
            }
        }
        out.push(finding.mend(format!("sysctl -w {}", commands.join(" "))));
    }
}

/// sysctl takes a dot for a slash, so that one in a name is written as a slash.
fn sysctl_name(interface: &str) -> String {
    interface.replace('.', "/")
}

fn shared(interface: &Interface, others: &[(IpAddr, u8)]) -> Option<(String, String)> {
    let v4 =
        interface.addresses.iter().filter(|(address, length)| address.is_ipv4() && *length < 32);
    for own in v4 {
        if let Some(other) = others.iter().find(|other| same_subnet(own, other) && other.1 < 32) {
            return Some((format!("{}/{}", own.0, own.1), format!("{}/{}", other.0, other.1)));
        }
    }
    None
}

/// The settings that mix interfaces of one subnet, with what they should be.
fn mixing(interface: &Interface) -> Vec<(&'static str, &Seen<u32>, u32)> {
    let mut found = Vec::new();
    if let Some(seen) = &interface.arp_ignore
        && seen.value == 0
    {
        found.push(("arp_ignore", seen, 1));
    }
    if let Some(seen) = &interface.arp_announce
        && seen.value < 2
    {
        found.push(("arp_announce", seen, 2));
    }
    if let Some(seen) = &interface.rp_filter
        && seen.value == 1
    {
        found.push(("rp_filter", seen, 2));
    }
    found
}
