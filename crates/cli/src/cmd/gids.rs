//! `crocevia gids`: the table of `show_gids`.

use std::fmt::Write;

use crocevia::{DeviceInfo, Encapsulation, GidEntry};
use serde::Serialize;

use crate::args::ListArgs;
use crate::error::Result;
use crate::render;

#[derive(Serialize)]
struct Gid {
    dev: String,
    port: u8,
    index: usize,
    gid: String,
    ipv4: Option<String>,
    ver: &'static str,
    netdev: String,
}

impl Gid {
    fn of(device: &DeviceInfo, index: usize, entry: &GidEntry) -> Self {
        Self {
            dev: device.name.clone(),
            port: 1,
            index,
            gid: render::gid_full(entry.gid),
            ipv4: entry.gid.to_ipv4().map(|address| address.to_string()),
            ver: match entry.encapsulation {
                Encapsulation::RoceV1 => "v1",
                Encapsulation::RoceV2 => "v2",
                Encapsulation::Infiniband => "ib",
            },
            netdev: device.netdev.name.clone(),
        }
    }
}

/// Lists the GIDs.
pub(crate) fn run(args: &ListArgs) -> Result<()> {
    let devices = super::devices(args.addr.as_deref())?;
    let gids: Vec<Gid> = devices
        .iter()
        .flat_map(|device| {
            let used = device.gids.iter().enumerate().filter(|(_, entry)| !entry.gid.is_zero());
            used.map(|(index, entry)| Gid::of(device, index, entry))
        })
        .collect();
    if args.json {
        return render::json(&gids);
    }
    render::text(&table(&gids))
}

fn table(gids: &[Gid]) -> String {
    let dev = gids.iter().map(|gid| gid.dev.len()).max().unwrap_or(0).max(3);
    let mut out = String::new();
    let mut row = |cells: [&str; 7]| {
        let [name, port, index, gid, ipv4, ver, netdev] = cells;
        let _ = writeln!(
            out,
            "{name:dev$}  {port:4}  {index:5}  {gid:39}  {ipv4:15}  {ver:3}  {netdev}"
        );
    };
    row(["DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "DEV"]);
    row(["---", "----", "-----", "---", "------------", "---", "---"]);
    for gid in gids {
        row([
            &gid.dev,
            &gid.port.to_string(),
            &gid.index.to_string(),
            &gid.gid,
            gid.ipv4.as_deref().unwrap_or(""),
            gid.ver,
            &gid.netdev,
        ]);
    }
    let _ = writeln!(out, "n_gids_found={}", gids.len());
    out
}
