//! Which devices there are: one for each interface that can carry RoCE, with its GID table.

use std::net::IpAddr;

use engine::{Error, ErrorKind, GidEntry};
use wire::{Encapsulation, Gid, Mac, Mtu};

use crate::netdev::{NetDev, netdevs};

/// A device that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// `crocevia0` and so on.
    pub name: String,
    /// Place in the list of devices.
    pub index: usize,
    /// The interface beneath.
    pub netdev: NetDev,
    /// GID table; index = GID index. An empty slot is all zeros.
    pub gids: Vec<GidEntry>,
    /// Node GUID, never 0.
    pub guid: u64,
    /// Active MTU of the port.
    pub mtu: Mtu,
}

/// The devices of this machine: interfaces that are up, have an MTU of at least 352 bytes and a
/// usable address, by index, the loopback interface last. `addr` restricts the list to the
/// interface of that name, or to the one that has that address, which then is GID 0 and the only
/// GID of its family; any address in 127.0.0.0/8 is one of the loopback interface.
///
/// # Errors
/// `NoDevice` if `addr` names nothing, with a list of what there is; `System` if the system does
/// not list its interfaces.
pub fn devices(addr: Option<&str>) -> engine::Result<Vec<DeviceInfo>> {
    select(netdevs()?, addr)
}

fn select(mut devs: Vec<NetDev>, addr: Option<&str>) -> engine::Result<Vec<DeviceInfo>> {
    devs.sort_by_key(|dev| (dev.loopback, dev.index));
    let Some(wanted) = addr.map(str::trim).filter(|wanted| !wanted.is_empty()) else {
        let usable = devs.into_iter().filter_map(|dev| device(dev, None));
        return Ok(number(usable.collect()));
    };
    // A scope such as `fe80::1%eth0` tells which of several interfaces is meant.
    let (text, scope) = wanted.split_once('%').map_or((wanted, None), |(a, s)| (a, Some(s)));
    // Also as GIDs name IPv4 addresses: ::ffff:a.b.c.d.
    let ip = text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let found = devs.iter().find(|dev| match ip {
        None => dev.name == wanted,
        Some(IpAddr::V4(v4)) if v4.is_loopback() => dev.loopback,
        Some(ip) => dev.addrs.contains(&ip) && scope.is_none_or(|s| dev.name == s),
    });
    let Some(dev) = found else {
        return Err(Error::new(
            ErrorKind::NoDevice,
            format!(
                "`{wanted}` is neither an interface nor an address of this machine; there are: {}",
                describe(&devs)
            ),
        ));
    };
    match device(dev.clone(), ip) {
        Some(info) => Ok(number(vec![info])),
        None => Err(Error::new(ErrorKind::NoDevice, unusable(dev))),
    }
}

fn unusable(dev: &NetDev) -> String {
    let why = if !dev.up {
        format!("is down: bring it up (ip link set {} up)", dev.name)
    } else if Mtu::for_interface(dev.mtu).is_none() {
        format!("has an MTU of {} bytes: RoCE needs at least 352", dev.mtu)
    } else {
        "has no IP address: RoCE needs one".to_owned()
    };
    format!("interface {} {why}", dev.name)
}

fn describe(devs: &[NetDev]) -> String {
    let one = |dev: &NetDev| {
        let mut facts: Vec<String> = dev.addrs.iter().map(ToString::to_string).collect();
        if facts.is_empty() {
            facts.push("no address".to_owned());
        }
        if !dev.up {
            facts.push("down".to_owned());
        }
        format!("{} ({})", dev.name, facts.join(", "))
    };
    devs.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn number(mut infos: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
    for (index, info) in infos.iter_mut().enumerate() {
        info.index = index;
        info.name = format!("crocevia{index}");
    }
    infos
}

fn device(dev: NetDev, first: Option<IpAddr>) -> Option<DeviceInfo> {
    let mtu = Mtu::for_interface(dev.mtu)?;
    if !dev.up {
        return None;
    }
    let mut addrs: Vec<IpAddr> = dev.addrs.iter().copied().filter(is_usable).collect();
    if let Some(first) = first {
        // The other addresses of loopback would tie all that run on it together.
        let others = !(dev.loopback && first.is_ipv4());
        addrs.retain(|addr| others && addr.is_ipv4() != first.is_ipv4());
        addrs.insert(0, first);
    }
    // The address asked for, IPv4, global IPv6, link-local IPv6.
    addrs.sort_by_key(|addr| match addr {
        own if Some(*own) == first => 0,
        IpAddr::V4(_) => 1,
        IpAddr::V6(v6) if !v6.is_unicast_link_local() => 2,
        IpAddr::V6(_) => 3,
    });
    addrs.dedup();
    addrs.truncate(engine::limits::MAX_GIDS);
    let main = *addrs.first()?;
    let gids = addrs
        .into_iter()
        .map(|ip| GidEntry { gid: Gid::from_ip(ip), encapsulation: Encapsulation::RoceV2 })
        .collect();
    let guid = guid(dev.mac, main);
    Some(DeviceInfo { name: String::new(), index: 0, netdev: dev, gids, guid, mtu })
}

fn is_usable(addr: &IpAddr) -> bool {
    !addr.is_unspecified() && !addr.is_multicast()
}

/// The EUI-64 of the interface's MAC; of one without, a locally administered identifier that
/// differs from address to address.
fn guid(mac: Mac, addr: IpAddr) -> u64 {
    if mac != Mac::default() {
        let [.., a, b, c, d, e, f, g, h] = Gid::link_local(mac).0;
        return u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    }
    let [.., a, b, c, d] = Gid::from_ip(addr).0;
    u64::from_be_bytes([0x02, b'c', b'v', 0xFF, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dev(name: &str, index: u32, mtu: u32, addrs: &[&str]) -> NetDev {
        NetDev {
            name: name.to_owned(),
            index,
            mtu,
            mac: if name == "lo" { Mac::default() } else { Mac([2, 0, 0, 0, 0, index as u8]) },
            up: name != "eth9",
            loopback: name == "lo",
            speed_mbps: None,
            addrs: addrs.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    fn machine() -> Vec<NetDev> {
        vec![
            dev("lo", 1, 65536, &["127.0.0.1", "::1"]),
            dev("eth0", 2, 1500, &["fe80::2", "192.0.2.2", "fd00::2", "192.0.2.3"]),
            dev("tiny", 3, 300, &["192.0.2.9"]),
            dev("bare", 4, 1500, &[]),
            dev("eth9", 5, 1500, &["192.0.2.10"]),
        ]
    }

    fn gids(info: &DeviceInfo) -> Vec<String> {
        info.gids.iter().map(|entry| entry.gid.to_ip().to_string()).collect()
    }

    #[test]
    fn usable_interfaces_loopback_last() {
        let all = select(machine(), None).unwrap();
        let names: Vec<_> = all.iter().map(|d| (&d.name[..], &d.netdev.name[..])).collect();
        assert_eq!(names, [("crocevia0", "eth0"), ("crocevia1", "lo")]);
        assert_eq!(gids(&all[0]), ["192.0.2.2", "192.0.2.3", "fd00::2", "fe80::2"]);
        assert_eq!((all[0].mtu, all[1].mtu), (Mtu::B1024, Mtu::B4096));
        assert_eq!(all[0].guid, 0x0000_00FF_FE00_0002);
        assert_ne!(all[1].guid, 0);
    }

    #[test]
    fn an_address_becomes_the_first_gid_and_the_only_one_of_its_family() {
        let one = |addr| select(machine(), Some(addr)).unwrap().remove(0);
        assert_eq!(gids(&one("192.0.2.3")), ["192.0.2.3", "fd00::2", "fe80::2"]);
        assert_eq!(gids(&one("fd00::2")), ["fd00::2", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(gids(&one("fe80::2%eth0")), ["fe80::2", "192.0.2.2", "192.0.2.3"]);
        let lo = one("127.7.0.9");
        assert_eq!((gids(&lo), &lo.name[..]), (vec!["127.7.0.9".into()], "crocevia0"));
        assert_eq!(gids(&one("::ffff:192.0.2.3"))[0], "192.0.2.3");
        assert_eq!(gids(&one("::ffff:127.7.0.9"))[0], "127.7.0.9");
        assert_eq!(one("eth0").netdev.index, 2);
        assert_ne!(one("127.0.0.2").guid, one("127.0.0.3").guid);
    }

    #[test]
    fn refusals_say_what_there_is() {
        let why = |addr| select(machine(), Some(addr)).unwrap_err();
        assert_eq!(why("203.0.113.1").kind(), ErrorKind::NoDevice);
        assert!(why("mlx5_0").to_string().contains("eth0 (fe80::2, 192.0.2.2"));
        assert!(why("eth9").to_string().contains("is down"));
        assert!(why("tiny").to_string().contains("352"));
        assert!(why("bare").to_string().contains("no IP address"));
    }

    #[test]
    fn this_machine_has_a_loopback_interface() {
        let devs = netdevs().unwrap();
        let lo = devs.iter().find(|dev| dev.loopback).expect("a loopback interface");
        assert!(lo.index > 0 && lo.mtu >= 352);
    }
}
