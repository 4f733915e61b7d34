//! `link`, `gids`, `devinfo`: the shapes that other tools' readers expect. The loopback interface
//! has any 127.x.y.z, so the device is the same on every machine but for its number.

use serde_json::Value;

use super::{crocevia, fail, succeed};

const ADDR: &str = "127.0.9.9";

fn list(command: &str, more: &[&str]) -> String {
    succeed(&mut crocevia(&[&[command, "--addr", ADDR], more].concat()))
}

fn json(command: &str, more: &[&str]) -> Value {
    let text = list(command, &[&["--json"], more].concat());
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let array = value.as_array().expect("an array");
    assert_eq!(array.len(), 1, "{text}");
    array[0].clone()
}

#[test]
fn link_has_the_line_of_rdma_link_show() {
    let text = list("link", &[]);
    let rest = text.strip_prefix("link crocevia").expect("the device's name");
    let (number, rest) = rest.split_once('/').expect("a port");
    assert!(number.parse::<u32>().is_ok(), "{text}");
    assert_eq!(rest, "1 state ACTIVE physical_state LINK_UP netdev lo\n");
    let link = json("link", &[]);
    for (member, value) in [("state", "ACTIVE"), ("physical_state", "LINK_UP"), ("netdev", "lo")] {
        assert_eq!(link[member], value);
    }
    assert_eq!(link["port"], 1);
}

#[test]
fn gids_has_the_table_of_show_gids() {
    let text = list("gids", &[]);
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "DEV"]);
    let gid = "0000:0000:0000:0000:0000:ffff:7f00:0909";
    assert_eq!(lines[2][1..], ["1", "0", gid, ADDR, "v2", "lo"]);
    let count = text.lines().last().and_then(|line| line.strip_prefix("n_gids_found="));
    assert_eq!(count.and_then(|n| n.parse().ok()), Some(lines.len() - 3), "{text}");
}

#[test]
fn devinfo_has_the_lines_of_ibv_devinfo() {
    let text = list("devinfo", &[]);
    let fields: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.trim().split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let field = |name: &str| fields.iter().find(|field| field.0 == name).map(|field| field.1);
    assert!(text.starts_with("hca_id:\tcrocevia"), "{text}");
    assert_eq!(field("transport"), Some("InfiniBand (0)"));
    assert_eq!(field("state"), Some("PORT_ACTIVE (4)"));
    assert_eq!(field("max_mtu"), Some("4096 (5)"));
    assert_eq!(field("link_layer"), Some("Ethernet"));
    assert_eq!(field("port_lmc"), Some("0x00"));
    let guid = field("node_guid").expect("a GUID");
    assert_eq!(guid.len(), 19, "{guid}");
    assert_ne!(guid, "0000:0000:0000:0000");
    assert_eq!(field("max_qp_wr"), None);
}

#[test]
fn devinfo_verbose_has_limits_and_gids() {
    let text = list("devinfo", &["-v"]);
    for part in ["max_qp_wr:", "atomic_cap:", "GID[  0]:", ", RoCE v2", "max_msg_sz:"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let value = json("devinfo", &["-v"]);
    assert_eq!(value["ports"][0]["gids"][0]["type"], "RoCE v2");
    assert_eq!(value["max_sge"], 32);
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    // A documentation address: nobody has it.
    for command in ["link", "gids", "devinfo"] {
        let mut command = crocevia(&[command, "--addr", "203.0.113.77"]);
        fail(&mut command, 1, &["203.0.113.77", "lo", "127.0.0.1"]);
    }
    let mut by_environment = crocevia(&["link"]);
    fail(by_environment.env("CROCEVIA_ADDR", "nosuch0"), 1, &["nosuch0", "lo"]);
}
