//! What people see of frames around RoCE: LLDP with DCBX, cooked and ERF headers, tunnels,
//! management datagrams; and that any bytes give a text.

use wire::frame::parse_frame;
use wire::pretty::{Line, Lldp, Start, describe};

mod support;
use support::pcap;

const STARTS: [Start; 6] =
    [Start::Ethernet, Start::Infiniband, Start::RawIp, Start::Cooked, Start::Cooked2, Start::Erf];

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line:?} is not a line of\n{text}");
    }
}

/// A TLV.
fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let len = value.len() as u16;
    let head = u16::from(kind) << 9 | len;
    [&head.to_be_bytes()[..], value].concat()
}

fn lldp() -> Vec<u8> {
    let ieee = |subtype: u8, body: &[u8]| tlv(127, &[&[0, 0x80, 0xC2, subtype], body].concat());
    let ets = [0x84, 0x00, 0x01, 0x22, 0x34, 0, 50, 50, 0, 0, 0, 0, 0, 0, 2, 2, 255, 1, 0, 0, 7];
    let cee = [
        tlv(1, &[0, 0, 0, 0, 0, 9, 0, 0, 0, 7]),
        tlv(3, &[0, 0, 0xC0, 0, 0b1000, 8]),
        tlv(4, &[0, 0, 0x20, 0, 1, 2]),
    ];
    [
        tlv(1, &[4, 2, 0, 0, 0, 0, 1]),
        tlv(2, b"\x05eth\x1b1"),
        tlv(3, &[0, 120]),
        tlv(5, b"leaf-1"),
        tlv(7, &[0, 4, 0, 4]),
        ieee(9, &ets),
        ieee(11, &[0x88, 0b1000]),
        ieee(12, &[0, 0x63, 0x12, 0xB7, 0x6D, 0, 26]),
        tlv(127, &[&[0, 0x1B, 0x21, 2][..], &cee.concat()].concat()),
        tlv(9, &[1, 2]),
        tlv(0, &[]),
    ]
    .concat()
}

#[test]
fn lldp_has_the_fields_of_dcbx() {
    let bytes = lldp();
    assert_eq!(
        Lldp(&bytes).to_string(),
        "LLDP port eth\u{fffd}1 (subtype 5) system leaf-1 ETS PFC on 3, willing APP CEE-DCBX"
    );
    let frame = [&[1, 0x80, 0xC2, 0, 0, 0x0E, 2, 0, 0, 0, 0, 1, 0x88, 0xCC][..], &bytes].concat();
    let line = Line(&parse_frame(&frame).expect("a frame")).to_string();
    assert!(line.starts_with("02:00:00:00:00:01 LLDP port "), "{line}");
    has(
        &describe(Start::Ethernet, &frame),
        &[
            "LLDP, 10 TLVs",
            "    Chassis: 02:00:00:00:00:01",
            "    Time to live: 120 s",
            "    System name: leaf-1",
            "    Capabilities: 0x0004, enabled 0x0004",
            "    ETS configuration: willing",
            "      Traffic classes: 4",
            "      Priority to class: 0:0 1:0 2:0 3:1 4:2 5:2 6:3 7:4",
            "      Bandwidth: 0% 50% 50% 0% 0% 0% 0% 0%",
            "      Selection: strict ETS ETS vendor shaper strict strict 7",
            "    PFC configuration: willing",
            "      Capable classes: 8",
            "      Enabled priorities: 3",
            "      Priority: 3 for UDP or DCCP port 4791",
            "      Priority: 3 for DSCP 26",
            "    CEE DCBX: subtype 2",
            "      Control: version 0, at most 0, sequence 9, acknowledged 7",
            "      PFC: willing, enabled",
            "        On: 3",
            "      Application: not willing, error",
            "        Data: 2 bytes: 01 02",
            "    TLV 9: 2 bytes: 01 02",
        ],
    );
    for len in 0..bytes.len() {
        assert!(format!("{:#}", Lldp(&bytes[..len])).starts_with("LLDP, "));
    }
}

#[test]
fn cooked_and_bare_packets_are_read_behind_their_headers() {
    let frame = &pcap::frames("rc-send-only-mtu256.pcap")[2];
    let packet = &frame[14..];
    let whole = describe(Start::Ethernet, frame);
    let (_, behind) = whole.split_once('\n').expect("lines");
    assert_eq!(describe(Start::RawIp, packet), behind);
    let cooked = [&[0, 4, 0, 1, 0, 6, 2, 0x77, 0, 0, 0, 0xA, 0, 0, 8, 0][..], packet].concat();
    let text = describe(Start::Cooked, &cooked);
    has(&text, &["    Packet type: 4 (sent by us)", "    Address: 02:77:00:00:00:0a"]);
    assert!(text.ends_with(behind), "{text}");
    let head = [8, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0, 6, 2, 0x77, 0, 0, 0, 0xA, 0, 0];
    let text = describe(Start::Cooked2, &[&head[..], packet].concat());
    has(&text, &["    Interface: 7", "    Packet type: 0 (to us)", "    Protocol: 0x0800"]);
    assert!(text.ends_with(behind), "{text}");
    // Ethernet in ERF, with one extension header, an offset and a pad byte.
    let mut erf = [0; 16 + 8 + 2];
    erf[8] = 0x82;
    let text = describe(Start::Erf, &[&erf[..], frame].concat());
    has(&text, &["    Type: 2", "    Extension: 0x0000000000000000"]);
    assert!(text.ends_with(&whole), "{text}");
}

#[test]
fn tunnels_are_opened() {
    let frame = &pcap::frames("rc-send-only-mtu256.pcap")[2];
    let whole = describe(Start::Ethernet, frame);
    let ip = |protocol: u8, len: usize| {
        let len = (20 + len) as u16;
        let mut head = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        head[2..4].copy_from_slice(&len.to_be_bytes());
        let sum = head.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
        let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16;
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        head
    };
    let outer = [&[0; 12][..], &[8, 0]].concat();
    let erspan = [&[0x10, 0, 0x88, 0xBE, 0, 0, 0, 5, 0x10, 100, 0x60, 9, 0, 0, 0, 0][..], frame];
    let erspan = erspan.concat();
    let text = describe(Start::Ethernet, &[&outer[..], &ip(47, erspan.len()), &erspan].concat());
    has(&text, &["GRE, carries 0x88be", "    Sequence: 0x00000005", "ERSPAN II"]);
    has(&text, &["    VLAN: 100", "    Session: 9", "    Protocol: 47 (GRE)"]);
    assert!(text.ends_with(&whole), "{text}");
    let vxlan = [&[0; 8][..], &[8, 0, 0, 0, 0, 0x12, 0x34, 0], frame].concat();
    let mut vxlan = vxlan;
    vxlan[..4].copy_from_slice(&[0xC0, 0, 0x12, 0xB5]);
    let len = vxlan.len() as u16;
    vxlan[4..6].copy_from_slice(&len.to_be_bytes());
    let text = describe(Start::Ethernet, &[&outer[..], &ip(17, vxlan.len()), &vxlan].concat());
    has(&text, &["    Network identifier: 4660", "UDP, port 49152 to 4789"]);
    assert!(text.ends_with(&whole), "{text}");
}

#[test]
fn management_datagrams_have_their_fields() {
    let frames = pcap::frames("cm-rping.pcap");
    let text = describe(Start::Ethernet, &frames[0]);
    has(
        &text,
        &[
            "Communication management, REQ",
            "    Service: Tcp:7174",
            "    Path MTU: 4096",
            "    Primary path: 10.77.1.1 to 10.77.1.2",
            "    RDMA-CM address header: 10.77.1.1 port 48099 to 10.77.1.2",
        ],
    );
    let reject = describe(Start::Ethernet, &pcap::frames("cm-reject-closed-port.pcap")[1]);
    has(&reject, &["    Message rejected: Req", "Communication management, REJ"]);
    assert!(reject.contains("    Reason: 8 ("), "{reject}");
}

#[test]
fn any_bytes_give_a_text() {
    let lldp = [&[0; 12][..], &[0x88, 0xCC], &lldp()].concat();
    let mut samples = vec![lldp];
    for file in ["cm-rping.pcap", "vlan-rc.pcap", "v6-rc.pcap", "rc-atomic.pcap"] {
        samples.extend(pcap::frames(file).into_iter().take(6));
    }
    for bytes in &samples {
        for start in STARTS {
            for len in 0..=bytes.len().min(120) {
                assert!(!describe(start, &bytes[..len]).is_empty());
            }
            let mut bent = bytes.clone();
            for at in 0..bent.len().min(80) {
                bent[at] ^= 0xFF;
                assert!(!describe(start, &bent).is_empty());
                bent[at] ^= 0xFF;
            }
        }
    }
}
