//! `crocevia devinfo`: the lines of `ibv_devinfo`. Devices are described, not opened: what they can
//! do is the engine's named bounds, and a listing binds no socket.

use std::fmt::Write;

use crocevia::{DeviceInfo, Encapsulation, Mtu, limits};
use serde_json::{Map, Value, json};

use crate::args::DevinfoArgs;
use crate::error::Result;
use crate::render;

/// Ids of no vendor; the same that programs get from `ibv_query_device`.
const VENDOR_ID: u32 = 0xC2_0CE0;
const VENDOR_PART_ID: u32 = 1;

/// A name, its value, and how the value is written where that is not its number.
struct Field {
    name: &'static str,
    value: Value,
    text: String,
}

fn field(name: &'static str, value: impl Into<Value>) -> Field {
    let value = value.into();
    let text = match &value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Field { name, value, text }
}

fn shown(name: &'static str, value: impl Into<Value>, text: String) -> Field {
    Field { name, value: value.into(), text }
}

/// Shows the devices.
pub(crate) fn run(args: &DevinfoArgs) -> Result<()> {
    let devices = super::devices(args.list.addr.as_deref())?;
    if args.list.json {
        let all: Vec<Value> = devices.iter().map(|device| value(device, args.verbose)).collect();
        return render::json(&all);
    }
    let mut out = String::new();
    for device in &devices {
        text(&mut out, device, args.verbose);
    }
    if devices.is_empty() {
        out.push_str("No RDMA devices found: no interface is up with an address\n");
    }
    render::text(&out)
}

fn head(device: &DeviceInfo) -> Vec<Field> {
    vec![
        shown("transport", "InfiniBand", "InfiniBand (0)".into()),
        field("fw_ver", env!("CARGO_PKG_VERSION")),
        field("node_guid", render::guid(device.guid)),
        field("sys_image_guid", render::guid(device.guid)),
        shown("vendor_id", VENDOR_ID, format!("{VENDOR_ID:#06x}")),
        field("vendor_part_id", VENDOR_PART_ID),
        shown("hw_ver", 0, "0x0".into()),
        field("phys_port_cnt", 1),
    ]
}

fn device_limits() -> Vec<Field> {
    vec![
        shown("max_mr_size", u64::MAX, format!("{:#x}", u64::MAX)),
        field("max_qp", limits::MAX_QP),
        field("max_qp_wr", limits::MAX_QP_WR),
        field("max_sge", limits::MAX_SGE),
        field("max_sge_rd", limits::MAX_SGE),
        field("max_inline_data", limits::MAX_INLINE),
        field("max_cq", limits::MAX_CQ),
        field("max_cqe", limits::MAX_CQE),
        field("max_mr", limits::MAX_MR),
        field("max_pd", limits::MAX_PD),
        field("max_qp_rd_atom", limits::MAX_RD_ATOMIC),
        field("max_qp_init_rd_atom", limits::MAX_RD_ATOMIC),
        shown("atomic_cap", "ATOMIC_GLOB", "ATOMIC_GLOB (2)".into()),
        field("max_mw", limits::MAX_MW),
        field("max_mcast_grp", limits::MAX_GROUPS),
        field("max_mcast_qp_attach", limits::MAX_MEMBERS),
        field("max_srq", limits::MAX_SRQ),
        field("max_srq_wr", limits::MAX_SRQ_WR),
        field("max_srq_sge", limits::MAX_SGE),
        field("max_pkeys", 1),
    ]
}

fn port(device: &DeviceInfo) -> Vec<Field> {
    let (state, code) = if device.netdev.up { ("PORT_ACTIVE", 4) } else { ("PORT_DOWN", 1) };
    let mtu = |mtu: Mtu| format!("{} ({})", mtu.bytes(), mtu.code());
    vec![
        shown("state", state, format!("{state} ({code})")),
        shown("max_mtu", Mtu::B4096.bytes(), mtu(Mtu::B4096)),
        shown("active_mtu", device.mtu.bytes(), mtu(device.mtu)),
        field("sm_lid", 0),
        field("port_lid", 0),
        shown("port_lmc", 0, "0x00".into()),
        field("link_layer", "Ethernet"),
    ]
}

fn port_details(device: &DeviceInfo) -> Vec<Field> {
    let up = device.netdev.up;
    let (phys, code) = if up { ("LINK_UP", 5) } else { ("DISABLED", 3) };
    let mut fields = vec![
        shown("max_msg_sz", limits::MAX_MESSAGE, format!("{:#x}", limits::MAX_MESSAGE)),
        field("pkey_tbl_len", 1),
        field("gid_tbl_len", device.gids.len()),
    ];
    if let Some(mbps) = device.netdev.speed_mbps {
        fields.push(shown("netdev_speed", mbps, format!("{mbps} Mb/s")));
    }
    fields.push(shown("phys_state", phys, format!("{phys} ({code})")));
    fields.push(field("netdev", device.netdev.name.clone()));
    fields.push(field("netdev_mtu", device.netdev.mtu));
    fields
}

/// GIDs in the table: index, GID and type.
fn gids(device: &DeviceInfo) -> impl Iterator<Item = (usize, String, &'static str)> {
    let used = device.gids.iter().enumerate().filter(|(_, entry)| !entry.gid.is_zero());
    used.map(|(index, entry)| {
        let kind = match entry.encapsulation {
            Encapsulation::RoceV2 => "RoCE v2",
            Encapsulation::RoceV1 => "RoCE v1",
            Encapsulation::Infiniband => "IB",
        };
        (index, render::gid_full(entry.gid), kind)
    })
}

/// Lines indented by `depth` tabs, values from one column on, as `ibv_devinfo` does it with tabs.
fn lines(out: &mut String, depth: usize, fields: &[Field]) {
    const VALUE_COLUMN: usize = 40;
    for Field { name, text, .. } in fields {
        let label = format!("{name}:");
        let tabs = (VALUE_COLUMN - 8 * depth).saturating_sub(label.len()).div_ceil(8).max(1);
        let _ = writeln!(out, "{}{label}{}{text}", "\t".repeat(depth), "\t".repeat(tabs));
    }
}

fn text(out: &mut String, device: &DeviceInfo, verbose: bool) {
    let _ = writeln!(out, "hca_id:\t{}", device.name);
    lines(out, 1, &head(device));
    if verbose {
        lines(out, 1, &device_limits());
    }
    let _ = writeln!(out, "\t\tport:\t1");
    lines(out, 3, &port(device));
    if verbose {
        lines(out, 3, &port_details(device));
        for (index, gid, kind) in gids(device) {
            let _ = writeln!(out, "\t\t\tGID[{index:3}]:\t\t{gid}, {kind}");
        }
    }
    out.push('\n');
}

fn members(fields: Vec<Field>) -> Map<String, Value> {
    fields.into_iter().map(|field| (field.name.to_owned(), field.value)).collect()
}

fn value(device: &DeviceInfo, verbose: bool) -> Value {
    let mut all = Map::new();
    all.insert("hca_id".into(), device.name.clone().into());
    all.extend(members(head(device)));
    let mut the_port = Map::new();
    the_port.insert("port".into(), 1.into());
    the_port.extend(members(port(device)));
    if verbose {
        all.extend(members(device_limits()));
        the_port.extend(members(port_details(device)));
        let gids: Vec<Value> = gids(device)
            .map(|(index, gid, kind)| json!({ "index": index, "gid": gid, "type": kind }))
            .collect();
        the_port.insert("gids".into(), gids.into());
    }
    all.insert("ports".into(), Value::Array(vec![the_port.into()]));
    all.into()
}
