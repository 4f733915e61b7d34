//! MTU: what the interface leaves to RoCE, and whether the port's active MTU fits.

use wire::Mtu;

use crate::catalogue::Rule;
use crate::finding::{Evidence, Finding};
use crate::host::{Asked, Host, Interface};
use crate::reader::Seen;

/// Headers that rxe reserves; the kernel's RDMA CM and other drivers reserve [`Mtu::OVERHEAD`].
const RXE_OVERHEAD: u32 = 80;
/// Bytes of headers that a full packet needs at least: IPv4 20, UDP 8, BTH 12, ICRC 4.
const LEAST_HEADERS: u32 = 44;

pub(super) fn judge(host: &Host, asked: &Asked, out: &mut Vec<Finding>) {
    let roce = host.interfaces.iter().filter(|interface| interface.carries_roce);
    for interface in roce {
        if asked.interface.as_ref().is_some_and(|name| *name != interface.name) {
            continue;
        }
        let Some(mtu) = &interface.mtu else { continue };
        let devices: Vec<_> = host
            .devices
            .iter()
            .filter(|device| {
                device.ports.iter().any(|port| port.netdevs().contains(&interface.name))
            })
            .collect();
        let hardware = devices.iter().any(|device| !device.is_software());
        let in_use = interface.admin_up.as_ref().is_none_or(|up| up.value)
            && (!devices.is_empty()
                || asked.interface.is_some()
                || interface.addresses.iter().any(|(address, _)| !address.is_loopback()));
        if !in_use {
            continue;
        }
        let overhead = if devices.iter().all(|device| device.is_software()) && !devices.is_empty() {
            RXE_OVERHEAD
        } else {
            Mtu::OVERHEAD
        };
        size(interface, mtu, overhead, hardware, out);
        active(host, interface, mtu, out);
    }
}

/// The RoCE MTU that fits.
fn fitting(mtu: u32, overhead: u32) -> Option<u32> {
    let sizes = [4096, 2048, 1024, 512, 256];
    sizes.into_iter().find(|size| mtu >= size + overhead)
}

fn size(
    interface: &Interface,
    mtu: &Seen<u32>,
    overhead: u32,
    hardware: bool,
    out: &mut Vec<Finding>,
) {
    let fits = fitting(mtu.value, overhead);
    let (rule, wanted) = match fits {
        Some(4096) => return,
        Some(1024 | 2048) if hardware => (Rule::MtuNotLargest, 4200),
        Some(1024 | 2048) => return,
        _ => (Rule::MtuTooSmall, 1500),
    };
    let left = fits.map_or_else(|| "none".to_owned(), |size| size.to_string());
    let name = &interface.name;
    out.push(
        Finding::new(rule, name)
            .with(Evidence::of("MTU", mtu))
            .with(Evidence::new("RoCE MTU", left, format!("MTU less {overhead}")))
            .mend(raise(interface, wanted)),
    );
}

/// The commands that set an MTU: a VLAN's cannot be larger than that of what it stands on.
fn raise(interface: &Interface, mtu: u32) -> String {
    let below = interface.lowers.iter().filter(|_| interface.is_vlan);
    let names = below.chain([&interface.name]);
    let commands: Vec<String> =
        names.map(|name| format!("ip link set dev {name} mtu {mtu}")).collect();
    commands.join("; ")
}

fn active(host: &Host, interface: &Interface, mtu: &Seen<u32>, out: &mut Vec<Finding>) {
    for device in &host.devices {
        for port in device.ports.iter().filter(|port| port.netdevs().contains(&interface.name)) {
            let Some(active) = &port.active_mtu else { continue };
            if mtu.value >= active.value.saturating_add(LEAST_HEADERS) {
                continue;
            }
            let name = &interface.name;
            let wanted = active.value.saturating_add(Mtu::OVERHEAD);
            out.push(
                Finding::new(
                    Rule::MtuBelowActive,
                    format!("{}/{} ({name})", device.name, port.number),
                )
                .with(Evidence::of("active MTU", active))
                .with(Evidence::of("interface MTU", mtu))
                .mend(raise(interface, wanted)),
            );
        }
    }
}
