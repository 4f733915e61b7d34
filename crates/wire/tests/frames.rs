//! Frames with their odd sides: padding, tags, options, fragments, tunnels, pauses, CNPs, and what
//! is not RoCE at all.

use wire::checksum::Check;
use wire::content::Content;
use wire::ethernet::{Ethernet, MIN_FRAME, TYPE_SERVICE_TAG, Tag};
use wire::frame::{Body, Frame, Network, emit_frame, parse_frame};
use wire::ip::Ip;
use wire::mac_control::{MacControl, Pfc};
use wire::packet::{Bth, Encapsulation, Extensions, Packet, Path};
use wire::{DropReason, EmitError, Gid, Layer, Mac, Opcode, Psn, vxlan};

mod support;
use support::{pcap, plain_bth};

fn path(source: &str, destination: &str) -> Path {
    let gid = |text: &str| Gid::from_ip(text.parse().expect("an address"));
    Path {
        encapsulation: Encapsulation::RoceV2,
        source: gid(source),
        destination: gid(destination),
        traffic_class: 0x6A,
        hop_limit: 64,
        flow_label: 0,
        source_port: 49441,
        priority: 3,
    }
}

fn ethernet() -> Ethernet {
    Ethernet::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]))
}

fn send(path: Path, payload: &[u8]) -> Packet<&[u8]> {
    Packet { path, bth: plain_bth(), ext: Extensions::default(), payload }
}

fn emit(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = [0xA5; 2000];
    let len = emit_frame(frame, &mut out).expect("room");
    assert!(out[len..].iter().all(|byte| *byte == 0xA5));
    out[..len].to_vec()
}

/// A frame of a SEND Only over IPv4, and its bytes.
fn ipv4(payload: &[u8]) -> Vec<u8> {
    let packet = send(path("10.0.0.1", "10.0.0.2"), payload);
    emit(&Frame::new(ethernet(), &packet).expect("a path"))
}

/// Makes the IPv4 header checksum right again.
fn repair(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = wire::checksum::ipv4_header(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn the_length_fields_say_where_a_packet_ends() {
    let bytes = ipv4(&[]);
    assert_eq!(bytes.len(), MIN_FRAME);
    let frame = parse_frame(&bytes).expect("a frame");
    assert_eq!(frame.trailer, [0, 0]);
    assert_eq!(frame.packet().expect("right").expect("RoCE").payload, []);

    let mut longer = bytes.clone();
    longer.extend([1, 2, 3, 4, 5]);
    let frame = parse_frame(&longer).expect("a frame");
    assert_eq!(frame.trailer, [0, 0, 1, 2, 3, 4, 5]);
    assert_eq!(emit(&frame), longer);
    let short = Err(DropReason::Truncated(Layer::Ipv4));
    assert_eq!(parse_frame(&bytes[..57]), short);
    assert!(parse_frame(&bytes[..58]).is_ok());
}

#[test]
fn tags_one_and_two() {
    let packet = send(path("10.0.0.1", "10.0.0.2"), &[1, 2, 3]);
    let mut header = ethernet().tagged(5, 100);
    let one = emit(&Frame::new(header, &packet).expect("a path"));
    assert_eq!(one[12..18], [0x81, 0x00, 0xA0, 0x64, 0x08, 0x00]);
    let read = parse_frame(&one).expect("a frame");
    assert_eq!(read.ethernet, header);
    assert_eq!(read.packet().expect("right").expect("RoCE").path.priority, 5);

    header.tags = [Some(Tag { kind: TYPE_SERVICE_TAG, control: 0x7FFF }), Some(Tag::new(1, 7))];
    let two = emit(&Frame::new(header, &packet).expect("a path"));
    let read = parse_frame(&two).expect("a frame");
    assert_eq!(read.ethernet, header);
    assert_eq!(emit(&read), two);
    let outer = read.ethernet.tags[0].expect("a tag");
    assert_eq!((outer.priority(), outer.drop_eligible(), outer.vlan()), (3, true, 4095));

    header.tags = [None, Some(Tag::new(1, 7))];
    let frame = Frame::new(header, &packet).expect("a path");
    assert!(matches!(emit_frame(&frame, &mut [0; 200]), Err(EmitError::Field(_))));
    for len in 0..14 + 8 {
        assert_eq!(
            parse_frame(&two[..len]),
            Err(if len < 22 {
                DropReason::Truncated(Layer::Ethernet)
            } else {
                DropReason::Truncated(Layer::Ipv4)
            }),
            "{len} bytes"
        );
    }
}

#[test]
fn a_third_tag_is_not_looked_behind() {
    let mut bytes = ipv4(&[]);
    for _ in 0..3 {
        bytes.splice(12..12, [0x81, 0x00, 0x00, 0x01]);
    }
    let frame = parse_frame(&bytes).expect("a frame");
    assert!(matches!(frame.body, Body::Opaque { ether_type: 0x8100, .. }));
    assert_eq!(emit(&frame), bytes);
}

#[test]
fn options_are_kept_and_covered() {
    let packet = send(path("10.0.0.1", "10.0.0.2"), &[9; 40]);
    let mut frame = Frame::new(ethernet(), &packet).expect("a path");
    set_options(&mut frame, &[0x94, 4, 0, 0, 1, 1, 1, 0]);
    let mut bytes = emit(&frame);
    assert_eq!(bytes[14], 0x47);
    let read = parse_frame(&bytes).expect("a frame");
    assert_eq!(read, frame);
    assert_eq!(read.packet(), Ok(Some(packet)));
    bytes[38] = 0;
    assert_eq!(parse_frame(&bytes), Err(DropReason::Ipv4Checksum));

    for options in [&[0; 3][..], &[0; 44]] {
        set_options(&mut frame, options);
        let error = Err(EmitError::Field("IPv4 options"));
        assert_eq!(emit_frame(&frame, &mut [0; 500]), error);
    }
}

fn set_options<'a>(frame: &mut Frame<'a>, options: &'a [u8]) {
    let Body::Roce(roce) = &mut frame.body else { panic!("not RoCE") };
    let Network::Udp { ip: Ip::V4(ip), .. } = &mut roce.network else { panic!("not IPv4") };
    ip.options = options;
}

#[test]
fn fragments_are_dropped() {
    for (high, low) in [(0x20, 0), (0x00, 1), (0x20, 5), (0x1F, 0xFF)] {
        let mut bytes = ipv4(&[1; 20]);
        bytes[20] = high;
        bytes[21] = low;
        repair(&mut bytes);
        assert_eq!(parse_frame(&bytes), Err(DropReason::Fragment));
    }
    let packet = send(path("fd00::1", "fd00::2"), &[1; 20]);
    let mut bytes = emit(&Frame::new(ethernet(), &packet).expect("a path"));
    bytes[20] = 44;
    bytes.splice(54..54, [17, 0, 0, 1, 0, 0, 0, 9]);
    assert_eq!(parse_frame(&bytes), Err(DropReason::Fragment));
    bytes[54] = 6;
    assert!(matches!(parse_frame(&bytes).expect("a frame").body, Body::Opaque { .. }));
}

#[test]
fn contradictions_have_a_reason() {
    let good = ipv4(&[1; 20]);
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        parse_frame(&bytes).map(|frame| frame.packet().map(|_| ()))
    };
    let expect = [
        (broken(&|b| b[14] = 0x55), DropReason::Version(Layer::Ipv4)),
        (broken(&|b| b[14] = 0x44), DropReason::Length(Layer::Ipv4)),
        (broken(&|b| b[25] ^= 1), DropReason::Ipv4Checksum),
        (broken(&|b| b[39] ^= 4), DropReason::Length(Layer::Udp)),
        (broken(&|b| b.truncate(36)), DropReason::Truncated(Layer::Udp)),
        (broken(&|b| b.truncate(40)), DropReason::Truncated(Layer::Ipv4)),
        (
            broken(&|b| {
                b[17] = 27;
                repair(b);
            }),
            DropReason::Length(Layer::Ipv4),
        ),
        (
            broken(&|b| {
                b[17] = 28 + 15;
                b[39] = 8 + 15;
                repair(b);
            }),
            DropReason::Truncated(Layer::Transport),
        ),
    ];
    for (result, reason) in expect {
        assert_eq!(result, Err(reason));
    }
    let refused =
        [(broken(&|b| b[45] ^= 1), DropReason::Icrc), (broken(&|b| b[61] ^= 1), DropReason::Icrc)];
    for (result, reason) in refused {
        assert_eq!(result, Ok(Err(reason)));
    }
}

#[test]
fn what_changes_on_the_way_does_not_break_a_packet() {
    let mut bytes = ipv4(&[1; 20]);
    bytes[15] = 0x6B; // A switch marks congestion
    bytes[22] = 61; // and routers count down.
    repair(&mut bytes);
    let packet = parse_frame(&bytes).expect("a frame").packet().expect("right").expect("RoCE");
    assert_eq!((packet.path.traffic_class, packet.path.hop_limit), (0x6B, 61));
}

#[test]
fn udp_checksums_right_and_wrong_are_kept() {
    for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let packet = send(path(source, destination), &[1, 2, 3, 4, 5]);
        let mut frame = Frame::new(ethernet(), &packet).expect("a path");
        for check in [Check::Right, Check::Stored(0x14CA)] {
            let Body::Roce(roce) = &mut frame.body else { panic!("not RoCE") };
            let Network::Udp { udp, .. } = &mut roce.network else { panic!("not UDP") };
            udp.checksum = Some(check);
            let bytes = emit(&frame);
            let read = parse_frame(&bytes).expect("a frame");
            assert_eq!(read, frame);
            assert_eq!(read.packet(), Ok(Some(packet)));
            let at = bytes.len() - frame.trailer.len() - (8 + 12 + 8 + 4) + 6;
            let stored = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            // The receiver's check: pseudo-header and datagram sum to all ones.
            let Body::Roce(roce) = &read.body else { panic!("not RoCE") };
            let Network::Udp { ip, .. } = roce.network else { panic!("not UDP") };
            let datagram = &bytes[at - 6..at + 26];
            let right = wire::checksum::udp_of_written(ip.source(), ip.destination(), datagram);
            assert_eq!(stored == right, check == Check::Right);
            let mut blank = datagram.to_vec();
            blank[6..8].fill(0);
            assert_eq!(right, wire::checksum::udp(ip.source(), ip.destination(), &blank));
        }
    }
}

#[test]
fn a_cnp_is_74_bytes() {
    let bth = Bth {
        opcode: Opcode::CNP,
        migration: false,
        becn: true,
        ack_request: false,
        psn: Psn::default(),
        ..plain_bth()
    };
    let path = Path { traffic_class: 48 << 2, ..path("10.0.0.2", "10.0.0.1") };
    let packet = Packet { path, bth, ext: Extensions::default(), payload: &[0; 16][..] };
    let bytes = emit(&Frame::new(ethernet(), &packet).expect("a path"));
    assert_eq!(bytes.len(), 74);
    assert_eq!(bytes[42..54], [0x81, 0, 0xFF, 0xFF, 0x40, 0, 0, 0x11, 0, 0, 0, 0]);
    let read = parse_frame(&bytes).expect("a frame").packet().expect("right").expect("RoCE");
    assert_eq!((read.bth, read.payload), (bth, &[0; 16][..]));
    assert_eq!(read.path.priority, 6);
}

#[test]
fn pauses() {
    let source = Mac([2, 0, 0, 0, 0, 9]);
    let mut pfc = Pfc::one(3, 0xFFFF).expect("a priority");
    pfc.classes |= 1 << 5;
    let bytes = emit(&Frame::mac_control(source, MacControl::Pfc(pfc)));
    assert_eq!(bytes.len(), MIN_FRAME);
    let expected = [
        0x01, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0x08, 0x01, 0x01, 0, 0x28, 0, 0, 0, 0,
        0, 0, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes[..34], expected);
    assert!(bytes[34..].iter().all(|byte| *byte == 0));
    let read = parse_frame(&bytes).expect("a frame");
    assert_eq!(read.body, Body::MacControl(MacControl::Pfc(pfc)));
    assert_eq!((pfc.get(3), pfc.get(5), pfc.get(0)), (Some(0xFFFF), Some(0), None));
    assert_eq!(emit(&read), bytes);

    let pause = MacControl::Pause { quanta: 0x1234 };
    let mut bytes = emit(&Frame::mac_control(source, pause));
    assert_eq!(bytes[14..18], [0, 1, 0x12, 0x34]);
    assert_eq!(bytes.len(), MIN_FRAME);
    assert_eq!(parse_frame(&bytes).expect("a frame").body, Body::MacControl(pause));
    let short = Err(DropReason::Truncated(Layer::MacControl));
    assert_eq!(parse_frame(&bytes[..17]), short);
    bytes[15] = 2;
    assert_eq!(parse_frame(&bytes), Err(DropReason::UnknownMacControl(2)));
    assert_eq!(
        parse_frame(&bytes).expect_err("unknown").to_string(),
        "unknown MAC control opcode 0x0002"
    );
}

/// A VXLAN tunnel around a frame, built by hand.
fn tunnel(inner: &[u8]) -> Vec<u8> {
    let mut outer = ipv4(&[]);
    outer.truncate(42);
    let udp_len = (16 + inner.len()) as u16;
    outer[16..18].copy_from_slice(&(udp_len + 20).to_be_bytes());
    outer[36..38].copy_from_slice(&4789u16.to_be_bytes());
    outer[38..40].copy_from_slice(&udp_len.to_be_bytes());
    repair(&mut outer);
    outer.extend([0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
    outer.extend(inner);
    outer
}

#[test]
fn a_tunnel_gives_back_the_whole_inner_frame() {
    let inner = ipv4(&[1, 2, 3, 4, 5]);
    let mut outer = tunnel(&inner);
    let read = vxlan::decapsulate(&outer).expect("a frame").expect("a tunnel");
    assert_eq!(read.frame, inner);
    assert_eq!(read.network, 0x12_3456);
    assert_eq!(
        (read.source.to_string(), read.destination.to_string()),
        ("10.0.0.1".into(), "10.0.0.2".into())
    );
    let packet = parse_frame(read.frame).expect("a frame").packet();
    assert_eq!(packet.expect("right").expect("RoCE").payload, [1, 2, 3, 4, 5]);
    assert!(matches!(parse_frame(&outer).expect("a frame").body, Body::Opaque { .. }));
    assert_eq!(vxlan::decapsulate(&inner), Ok(None));
    outer[42] = 0;
    assert_eq!(vxlan::decapsulate(&outer), Err(DropReason::Version(Layer::Vxlan)));
    let empty = tunnel(&[]);
    assert_eq!(vxlan::decapsulate(&empty).expect("a frame").expect("a tunnel").frame, []);
}

#[test]
fn what_is_not_roce_passes() {
    let mut other_port = ipv4(&[1; 20]);
    other_port[37] ^= 1;
    let mut tcp = ipv4(&[1; 20]);
    tcp[23] = 6;
    let lldp =
        [&[1, 0x80, 0xC2, 0, 0, 0x0E, 2, 0, 0, 0, 0, 1, 0x88, 0xCC][..], &[2, 7, 4]].concat();
    let arp = [&[0xFF; 12][..], &[0x08, 0x06], &[0; 28]].concat();
    let llc = [&[0xFF; 12][..], &[0x00, 0x03], &[0x42, 0x42, 3]].concat();
    for bytes in [other_port, tcp, lldp, arp, llc] {
        let frame = parse_frame(&bytes).expect("a frame");
        assert!(matches!(frame.body, Body::Opaque { .. }));
        assert_eq!(frame.packet(), Ok(None));
        assert_eq!(emit(&frame), bytes);
    }
}

#[test]
fn refused_content_is_kept_with_its_reason() {
    for bytes in pcap::frames("poke-bad-opcode.pcap").iter().take(4) {
        let frame = parse_frame(bytes).expect("a frame");
        let Body::Roce(roce) = &frame.body else { panic!("not RoCE") };
        let Content::Refused { reason: DropReason::UnknownOpcode(opcode), bytes: content } =
            roce.content
        else {
            panic!("{:?}", roce.content);
        };
        assert_eq!(opcode, content[0]);
        assert!(roce.icrc.is_right());
        assert_eq!(frame.packet(), Err(DropReason::UnknownOpcode(opcode)));
        assert_eq!(emit(&frame), *bytes);
    }
}

#[test]
fn what_a_frame_cannot_say_is_refused() {
    let packet = send(path("10.0.0.1", "fd00::1"), &[]);
    assert!(matches!(Frame::new(ethernet(), &packet), Err(EmitError::Path(_))));
    let long = vec![0; 65_500];
    let packet = send(path("10.0.0.1", "10.0.0.2"), &long);
    let frame = Frame::new(ethernet(), &packet).expect("a path");
    let mut out = vec![0; 70_000];
    assert_eq!(emit_frame(&frame, &mut out), Err(EmitError::TooLong(Layer::Ipv4)));
    let bth = Bth { opcode: Opcode(0x1F), ..plain_bth() };
    let packet = Packet { bth, ..send(path("10.0.0.1", "10.0.0.2"), &[]) };
    let frame = Frame::new(ethernet(), &packet).expect("a path");
    assert_eq!(emit_frame(&frame, &mut out), Err(EmitError::UnknownOpcode(0x1F)));
    let frame = Frame::new(ethernet(), &send(path("10.0.0.1", "10.0.0.2"), &[])).expect("a path");
    assert_eq!(emit_frame(&frame, &mut out[..59]), Err(EmitError::NoRoom(60)));
}

#[test]
fn multicast_addresses() {
    let mac = |text: &str| Mac::multicast(Gid::from_ip(text.parse().expect("an address")));
    assert_eq!(mac("239.129.2.3"), Some(Mac([0x01, 0, 0x5E, 0x01, 2, 3])));
    assert_eq!(mac("ff02::1:abcd"), Some(Mac([0x33, 0x33, 0, 1, 0xAB, 0xCD])));
    assert_eq!(mac("10.0.0.1"), None);
    assert_eq!(mac("fe80::1"), None);
}
