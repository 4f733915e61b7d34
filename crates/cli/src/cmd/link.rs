//! `crocevia link`: the lines of `rdma link show` (iproute2), and its JSON members.

use crocevia::DeviceInfo;
use serde::Serialize;

use crate::args::ListArgs;
use crate::error::Result;
use crate::render;

#[derive(Serialize)]
struct Link {
    ifindex: usize,
    ifname: String,
    port: u8,
    state: &'static str,
    physical_state: &'static str,
    netdev: String,
    netdev_index: u32,
}

impl Link {
    fn of(device: &DeviceInfo) -> Self {
        let (state, physical_state) =
            if device.netdev.up { ("ACTIVE", "LINK_UP") } else { ("DOWN", "DISABLED") };
        Self {
            ifindex: device.index,
            ifname: device.name.clone(),
            port: 1,
            state,
            physical_state,
            netdev: device.netdev.name.clone(),
            netdev_index: device.netdev.index,
        }
    }
}

/// The line of one device, without its end.
pub(crate) fn line(device: &DeviceInfo) -> String {
    let Link { ifname, port, state, physical_state, netdev, .. } = Link::of(device);
    format!("link {ifname}/{port} state {state} physical_state {physical_state} netdev {netdev}")
}

/// Lists the links.
pub(crate) fn run(args: &ListArgs) -> Result<()> {
    let devices = super::devices(args.addr.as_deref())?;
    if args.json {
        return render::json(&devices.iter().map(Link::of).collect::<Vec<_>>());
    }
    let lines: String = devices.iter().map(|device| line(device) + "\n").collect();
    render::text(&lines)
}
