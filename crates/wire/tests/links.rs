//! RoCEv1 and InfiniBand links: known answers of both CRCs, worked here a bit at a time from their
//! definition, and one that the InfiniBand architecture publishes.

use wire::checksum::Check;
use wire::content::Content;
use wire::ethernet::Ethernet;
use wire::frame::{Body, Frame, Network, emit_frame, parse_frame};
use wire::infiniband::{self, Grh, LinkBody, LinkPacket, Lrh};
use wire::packet::{Bth, Encapsulation, Extensions, Packet, Path, Reth};
use wire::{DropReason, EmitError, Gid, Layer, Mac, Opcode, PKey, Psn, Qpn, RKey, icrc};

mod support;
use support::plain_bth;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("hex"), 16);
    digits.chunks(2).map(|pair| byte(pair).expect("hex")).collect()
}

/// A CRC as hardware does it: the bits in the order of the wire (each byte's lowest first), the
/// polynomial as written, all ones at first, complemented at last. The bits of the result go on the
/// wire highest coefficient first.
fn crc(width: u32, polynomial: u32, covered: &[u8]) -> Vec<u8> {
    let (mask, top) = (u32::MAX >> (32 - width), 1u32 << (width - 1));
    let mut register = mask;
    for bit in covered.iter().flat_map(|byte| (0..8).map(move |i| byte >> i & 1 == 1)) {
        let feedback = (register & top != 0) != bit;
        register = register << 1 & mask;
        if feedback {
            register ^= polynomial;
        }
    }
    register ^= mask;
    let mut wire = vec![0; (width / 8) as usize];
    for i in 0..width {
        if register >> (width - 1 - i) & 1 == 1 {
            wire[(i / 8) as usize] |= 1 << (i % 8);
        }
    }
    wire
}

fn icrc_of(covered: &[u8]) -> Vec<u8> {
    crc(32, 0x04C1_1DB7, covered)
}

fn vcrc_of(covered: &[u8]) -> Vec<u8> {
    crc(16, 0x100B, covered)
}

/// What the ICRC covers of a packet with a GRH.
fn masked_global(grh_and_on: &[u8]) -> Vec<u8> {
    let mut covered = vec![0xFF; 8];
    covered.extend_from_slice(grh_and_on);
    covered[8] |= 0x0F;
    covered[9..12].fill(0xFF);
    covered[15] = 0xFF;
    covered[8 + 40 + 4] = 0xFF;
    covered
}

/// What the ICRC covers of a packet without one.
fn masked_local(lrh_and_on: &[u8]) -> Vec<u8> {
    let mut covered = lrh_and_on.to_vec();
    covered[0] |= 0xF0;
    covered[8 + 4] = 0xFF;
    covered
}

/// The sample packet of the InfiniBand architecture's chapter on CRCs (local, WRITE Only).
const SAMPLE: &str = "7012375c000e17d2 0a20248700 87b1b3000dec2a 01710a1c015d400238f27a050000000e \
                      bb884d85fd5cfba4728bc0690ed40000";
const SAMPLE_ICRC: &str = "9625b75a";

#[test]
fn the_published_sample() {
    let mut packet = bytes(SAMPLE);
    assert_eq!(icrc_of(&masked_local(&packet)), bytes(SAMPLE_ICRC));
    packet.extend(bytes(SAMPLE_ICRC));
    packet.extend(vcrc_of(&packet));
    let read = infiniband::parse(&packet).expect("a packet");
    assert_eq!(read.vcrc, Check::Right);
    let lrh = Lrh {
        virtual_lane: 7,
        service_level: 1,
        destination: 0x375C,
        source: 0x17D2,
        reserved: (0, 0),
    };
    assert_eq!(read.lrh, lrh);
    let LinkBody::Transport { grh: None, content, icrc: Check::Right } = read.body else {
        panic!("{read:?}");
    };
    let bth = Bth {
        opcode: Opcode(0x0A),
        solicited: false,
        migration: false,
        pkey: PKey::new(0x2487),
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x87_B1B3),
        ack_request: false,
        psn: Psn::new(0x0D_EC2A),
    };
    let reth = Reth { va: 0x0171_0A1C_015D_4002, rkey: RKey::new(0x38F2_7A05), length: 14 };
    let ext = Extensions { reth: Some(reth), ..Extensions::default() };
    assert_eq!(content, Content::new(bth, ext, &packet[36..50]));
    assert_emits(&read, &packet);
}

fn assert_emits(packet: &LinkPacket<'_>, bytes: &[u8]) {
    let mut out = [0xA5; 500];
    let len = infiniband::emit(packet, &mut out).expect("room");
    assert_eq!(out[..len], *bytes);
    assert!(out[len..].iter().all(|byte| *byte == 0xA5));
    let needed = EmitError::NoRoom(len);
    assert_eq!(infiniband::emit(packet, &mut out[..len - 1]), Err(needed));
}

fn path(encapsulation: Encapsulation) -> Path {
    Path {
        encapsulation,
        source: Gid::link_local(Mac([0x02, 0, 0, 0x11, 0x22, 0x33])),
        destination: Gid::from_ip([10, 0, 0, 2].into()),
        traffic_class: 0xA9,
        hop_limit: 63,
        flow_label: 0xF_1234,
        source_port: 0,
        priority: 5,
    }
}

fn packet(encapsulation: Encapsulation, payload: &[u8]) -> Packet<&[u8]> {
    let bth = Bth { fecn: true, ..plain_bth() };
    Packet { path: path(encapsulation), bth, ext: Extensions::default(), payload }
}

#[test]
fn roce_v1_frames() {
    for len in [0, 1, 2, 3, 4, 255, 256] {
        let payload: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5A).collect();
        let ethernet = Ethernet::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        for ethernet in [ethernet, ethernet.tagged(2, 100)] {
            let packet = packet(Encapsulation::RoceV1, &payload);
            let frame = Frame::new(ethernet, &packet).expect("a path");
            let mut out = [0xA5; 400];
            let len = emit_frame(&frame, &mut out).expect("room");
            let written = &out[..len];
            let grh_and_on = &written[ethernet.wire_len()..];
            let end = 40 + usize::from(u16::from_be_bytes([grh_and_on[4], grh_and_on[5]]));
            let expected = icrc_of(&masked_global(&grh_and_on[..end - 4]));
            assert_eq!(grh_and_on[end - 4..end], expected);
            assert_eq!(written[ethernet.wire_len() - 2..ethernet.wire_len()], [0x89, 0x15]);
            assert_eq!(grh_and_on[..4], [0x6A, 0x9F, 0x12, 0x34]);
            assert_eq!(grh_and_on[6..8], [0x1B, 63]);

            let read = parse_frame(written).expect("a frame");
            assert_eq!(read, frame);
            let priority = if ethernet.tags[0].is_some() { 2 } else { 0xA9 >> 5 };
            let mut expected = packet;
            expected.path.priority = priority;
            assert_eq!(read.packet(), Ok(Some(expected)));
        }
    }
}

#[test]
fn a_grh_with_another_version_or_next_header_is_dropped() {
    let ethernet = Ethernet::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let frame = Frame::new(ethernet, &packet(Encapsulation::RoceV1, &[1; 8])).expect("a path");
    let mut out = [0; 400];
    let len = emit_frame(&frame, &mut out).expect("room");
    out[14] = 0x4A;
    assert_eq!(parse_frame(&out[..len]), Err(DropReason::Version(Layer::Grh)));
    out[14] = 0x6A;
    out[20] = 17;
    assert_eq!(parse_frame(&out[..len]), Err(DropReason::NextHeader(Layer::Grh)));
    out[20] = 0x1B;
    assert_eq!(parse_frame(&out[..len - 1]), Err(DropReason::Truncated(Layer::Grh)));
    out[60] ^= 1;
    assert_eq!(parse_frame(&out[..len]).expect("a frame").packet(), Err(DropReason::Icrc));
}

#[test]
fn infiniband_packets_with_and_without_a_grh() {
    let lrh = Lrh {
        virtual_lane: 3,
        service_level: 5,
        destination: 0x1234,
        source: 0xFEDC,
        reserved: (0, 0),
    };
    for len in [0, 1, 2, 3, 4, 200] {
        let payload: Vec<u8> = (0..len).map(|i| i as u8 ^ 0xA5).collect();
        for global in [false, true] {
            let mut packet = packet(Encapsulation::Infiniband, &payload);
            if !global {
                packet.path = Path {
                    source: Gid::default(),
                    destination: Gid::default(),
                    traffic_class: 0,
                    hop_limit: 0,
                    flow_label: 0,
                    ..packet.path
                };
            }
            let link = LinkPacket::new(lrh, &packet);
            let mut out = [0xA5; 400];
            let len = infiniband::emit(&link, &mut out).expect("room");
            let (covered, vcrc) = out[..len].split_at(len - 2);
            assert_eq!(vcrc, vcrc_of(covered));
            let (covered, icrc) = covered.split_at(covered.len() - 4);
            let masked = if global { masked_global(&covered[8..]) } else { masked_local(covered) };
            assert_eq!(icrc, icrc_of(&masked));
            assert_eq!(usize::from(u16::from_be_bytes([out[4], out[5]])), (len - 2) / 4);
            assert_eq!(out[1], 0x50 | if global { 3 } else { 2 });

            let read = infiniband::parse(&out[..len]).expect("a packet");
            assert_eq!(read, link);
            assert_eq!(read.packet(), Ok(Some(packet)));
            assert_emits(&read, &out[..len]);
        }
    }
}

#[test]
fn each_crc_sees_what_it_covers() {
    let lrh = Lrh { virtual_lane: 3, service_level: 5, ..Lrh::default() };
    let packet = packet(Encapsulation::Infiniband, &[7; 20]);
    let mut out = [0; 200];
    let len = infiniband::emit(&LinkPacket::new(lrh, &packet), &mut out).expect("room");
    for at in 0..len - 6 {
        out[at] ^= 0x10;
        if let Ok(read) = infiniband::parse(&out[..len]) {
            assert_eq!(read.packet(), Err(DropReason::Vcrc), "byte {at}");
            let LinkBody::Transport { icrc, .. } = read.body else { panic!("byte {at}") };
            let masked = at < 8 || (9..12).contains(&at) || at == 15 || at == 52;
            assert_eq!(icrc.is_right(), masked, "byte {at}");
        }
        out[at] ^= 0x10;
    }
    // A switch that moves the packet to another lane makes the VCRC anew and leaves the ICRC.
    out[0] = 0xB0;
    let vcrc = vcrc_of(&out[..len - 2]);
    out[len - 2..len].copy_from_slice(&vcrc);
    assert_eq!(infiniband::parse(&out[..len]).expect("a packet").packet(), Ok(Some(packet)));
}

#[test]
fn raw_packets_pass_and_what_is_broken_has_a_reason() {
    let mut raw = bytes("0000 0001 0004 0002 0102030405060708");
    raw.extend(vcrc_of(&raw));
    let read = infiniband::parse(&raw).expect("a packet");
    assert_eq!(read.body, LinkBody::Raw { next: 0, bytes: &raw[8..16] });
    assert_eq!(read.packet(), Ok(None));
    assert_emits(&read, &raw);

    let short = DropReason::Truncated(Layer::Lrh);
    for len in 0..raw.len() {
        assert_eq!(infiniband::parse(&raw[..len]), Err(short), "{len} bytes");
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = raw.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(infiniband::parse(&changed(0, 1)), Err(DropReason::Version(Layer::Lrh)));
    assert_eq!(infiniband::parse(&changed(5, 1)), Err(DropReason::Length(Layer::Lrh)));
    let short = Err(DropReason::Truncated(Layer::Transport));
    assert_eq!(infiniband::parse(&changed(1, 2)), short);
    assert_eq!(infiniband::parse(&changed(1, 3)), Err(DropReason::Truncated(Layer::Grh)));
}

#[test]
fn what_a_link_cannot_say_is_refused() {
    let packet = packet(Encapsulation::Infiniband, &[]);
    let mut out = vec![0; 20_000];
    let good = LinkPacket::new(Lrh::default(), &packet);
    assert!(infiniband::emit(&good, &mut out).is_ok());
    let lrh = Lrh { virtual_lane: 16, ..Lrh::default() };
    assert_eq!(
        infiniband::emit(&LinkPacket { lrh, ..good }, &mut out),
        Err(EmitError::Field("LRH"))
    );
    let long = vec![0; 8180];
    let long = Packet { payload: &long[..], ..packet };
    let result = infiniband::emit(&LinkPacket::new(Lrh::default(), &long), &mut out);
    assert_eq!(result, Err(EmitError::TooLong(Layer::Lrh)));
    let ethernet = Ethernet::default();
    assert!(matches!(Frame::new(ethernet, &packet), Err(EmitError::Path(_))));
}

/// The states that drivers use are those that whole packets are judged by.
#[test]
fn states_of_headers_agree_with_the_definition() {
    let grh: [u8; 40] = core::array::from_fn(|i| i as u8 ^ 0x60);
    let transport: Vec<u8> = (0..32).collect();
    let mut whole = grh.to_vec();
    whole.extend(&transport);
    let expected = icrc_of(&masked_global(&whole));
    assert_eq!(icrc::finish(icrc::grh_state(&grh), &transport).to_le_bytes(), expected[..]);

    let lrh: [u8; 8] = core::array::from_fn(|i| i as u8 + 3);
    let mut whole = lrh.to_vec();
    whole.extend(&transport);
    let expected = icrc_of(&masked_local(&whole));
    assert_eq!(icrc::finish(icrc::lrh_state(&lrh), &transport).to_le_bytes(), expected[..]);
}

#[test]
fn a_grh_of_a_path_is_that_path() {
    let path = path(Encapsulation::RoceV1);
    let network = Network::Grh(Grh::of(&path));
    let tagged = Ethernet::default().tagged(path.priority, 0);
    assert_eq!(network.path(&tagged), path);
    let frame = Frame::new(tagged, &packet(Encapsulation::RoceV1, &[])).expect("a path");
    assert!(matches!(frame.body, Body::Roce(roce) if roce.network == network));
}
