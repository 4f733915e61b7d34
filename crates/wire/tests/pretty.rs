//! What people see of a packet.

use wire::frame::{Frame, parse_frame};
use wire::infiniband::{LinkPacket, Lrh};
use wire::mac_control::{MacControl, Pfc};
use wire::packet::{Encapsulation, Extensions, Packet, Path};
use wire::pretty::{self, Line, Start, Tree};
use wire::{Gid, Mac};

mod support;
use support::{pcap, plain_bth};

fn line(file: &str, number: usize) -> String {
    let frames = pcap::frames(file);
    Line(&parse_frame(&frames[number - 1]).expect("a frame")).to_string()
}

#[test]
fn lines() {
    assert_eq!(
        line("rc-send-only-mtu256.pcap", 3),
        "10.77.1.1:49441 > 10.77.1.2 tc 0x00 id 44631 RC SEND Only qp 0x000011 psn 0x123457 ackreq \
         len 1+3 icrc ok"
    );
    assert_eq!(
        line("rc-send-only-mtu256.pcap", 4),
        "10.77.1.2:49441 > 10.77.1.1 tc 0x00 id 52343 RC Acknowledge qp 0x000011 psn 0x123457 \
         ACK msn 2 len 0 icrc ok"
    );
    assert_eq!(
        line("vlan-rc.pcap", 11),
        "vlan 100 prio 0 10.77.2.1:63672 > 10.77.2.2 tc 0x00 id 33039 RC FetchAdd qp 0x000078 \
         psn 0x12345b ackreq va 0x7fc501360100 rkey 0x0000af4b swap/add 0x102030405060708 compare \
         0x0 len 0 icrc ok"
    );
    assert_eq!(
        line("poke-bad-opcode.pcap", 1),
        "10.77.0.1:49443 > 10.77.0.2 tc 0x00 id 0 refused: unknown opcode 0x1f, len 44 icrc ok"
    );
    assert!(line("poke-bad-icrc.pcap", 1).ends_with("icrc BAD"));
    assert!(
        line("v6-rc.pcap", 3).starts_with("[fd77:1::1]:57988 > fd77:1::2 tc 0x00 RC SEND Only")
    );
    assert_eq!(
        line("vlan-rc.pcap", 1),
        "vlan 100 prio 0 fe80::77:ff:fe00:a > ff02::2 ICMPv6 len 16"
    );
}

#[test]
fn pauses_and_link_packets() {
    let pfc = Pfc { classes: 0b10_1000, quanta: [0, 0, 0, 0xFFFF, 0, 0, 0, 0] };
    let frame = Frame::mac_control(Mac([2, 0, 0, 0, 0, 1]), MacControl::Pfc(pfc));
    assert_eq!(
        Line(&frame).to_string(),
        "02:00:00:00:00:01 PFC prio 3 pause 65535 quanta prio 5 resume"
    );
    let path = Path {
        encapsulation: Encapsulation::Infiniband,
        source: Gid::default(),
        destination: Gid::default(),
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        source_port: 0,
        priority: 0,
    };
    let packet =
        Packet { path, bth: plain_bth(), ext: Extensions::default(), payload: &[1, 2, 3][..] };
    let lrh = Lrh { source: 5, destination: 7, ..Lrh::default() };
    assert_eq!(
        Line(&LinkPacket::new(lrh, &packet)).to_string(),
        "lid 5 > 7 vl 0 sl 0 RC SEND Only qp 0x000011 psn 0x123456 ackreq len 3+1 icrc ok vcrc ok"
    );
}

#[test]
fn a_tree_has_every_field() {
    let frames = pcap::frames("tos-ect1-ce.pcap");
    let text = Tree(&parse_frame(&frames[0]).expect("a frame")).to_string();
    let expected = "\
Ethernet, 02:77:00:00:00:0a to 02:77:00:00:00:0b
IPv4, 10.77.1.1 to 10.77.1.2
    Version: 4
    Header length: 20
    Type of service: 0x69 (DSCP 26, ECT(1))
    Total length: 56
    Identification: 0x58cb (22731)
    Don't fragment: true
    Time to live: 64
    Protocol: 17 (UDP)
    Header checksum: ok
UDP, port 59152 to 4791
    Length: 36
    Checksum: none
Base transport header
    Opcode: RC SEND Only (0x04)
    Solicited event: false
    Migration request: false
    Transport version: 0
    Partition key: 0xffff
    FECN: false
    BECN: false
    Destination queue pair: 0x000064
    Acknowledge request: true
    Packet sequence number: 0x123456 (1193046)
    Pad count: 2
Payload
    Data: 10 bytes: 00 07 0e 15 1c 23 2a 31 38 3f
Invariant CRC
    ICRC: ok
";
    assert_eq!(text, expected);
}

#[test]
fn management_datagrams_are_named() {
    let texts: Vec<String> = pcap::frames("cm-rping.pcap")
        .iter()
        .map(|frame| pretty::describe(Start::Ethernet, frame))
        .filter(|text| text.contains("Management datagram"))
        .collect();
    let named = |name: &str| texts.iter().filter(|text| text.contains(name)).count();
    assert_eq!(texts.len(), 5);
    assert_eq!(named("Management datagram, REQ"), 1);
    assert_eq!(named("Management datagram, DREP"), 1);
}

#[test]
fn what_is_dropped_says_why() {
    assert_eq!(pretty::describe(Start::Ethernet, &[]), "Dropped: Ethernet: truncated (0 bytes)\n");
    assert_eq!(pretty::describe(Start::Infiniband, &[0]), "Dropped: LRH: truncated (1 bytes)\n");
}
