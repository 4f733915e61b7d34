//! One packet of a real peer under every link header, tag, tunnel and mirror header: it is found,
//! its ICRC judged right, and what is around it told. Trains are split.

#[path = "support/files.rs"]
mod files;
mod wrap;

use audit::event::{Icrc, IcrcCause, Packet, WrongIcrc};
use audit::peel::Peeler;
use audit::record::{Direction, Link};
use audit::{At, Event, Point, Record, Time, What};
use wire::packet::Encapsulation;
use wire::{DropReason, Layer, Mac};
use wrap::*;

fn peel_with(peeler: &mut Peeler, link: Link, bytes: &[u8], original_len: usize) -> Vec<Event> {
    let record = Record {
        at: At { time: Time(1), file: 0, frame: 7 },
        point: Point(0),
        link,
        direction: None,
        original_len: original_len as u32,
        segment: None,
        bytes,
    };
    let mut events = Vec::new();
    peeler.peel(&record, &mut events);
    events
}

fn peel(link: Link, bytes: &[u8]) -> Event {
    let mut events = peel_with(&mut Peeler::default(), link, bytes, bytes.len());
    assert_eq!(events.len(), 1);
    events.remove(0)
}

fn packet(event: &Event) -> &Packet {
    match &event.what {
        What::Packet(packet) => packet,
        other => panic!("no packet: {other:?}"),
    }
}

/// The event of a packet with a right ICRC that carries what `frame()` does.
fn right(link: Link, bytes: &[u8]) -> Event {
    let event = peel(link, bytes);
    let (got, plain) = (packet(&event), peel(Link::Ethernet, &frame()));
    assert_eq!(got.icrc, Icrc::Right);
    assert_eq!((got.bth, got.ext), (packet(&plain).bth, packet(&plain).ext));
    assert_eq!(got.payload_len, packet(&plain).payload_len);
    event
}

#[test]
fn links() {
    let ip = &frame()[14..];
    let plain = right(Link::Ethernet, &frame());
    assert_eq!(plain.len, 14 + ip.len() as u32);
    assert_eq!(plain.macs, Some((Mac([0x02, 0, 0, 0, 0, 0x0A]), Mac([0x02, 0, 0, 0, 0, 0x0B]))));
    let raw = right(Link::RawIp, ip);
    assert_eq!((raw.len, raw.macs), (ip.len() as u32, None));
    for (sort, direction) in [(0, Some(Direction::In)), (3, None), (4, Some(Direction::Out))] {
        assert_eq!(right(Link::Cooked, &cooked(sort, ip)).direction, direction);
        assert_eq!(right(Link::Cooked2, &cooked2(5, sort as u8, ip)).direction, direction);
    }
    let mut peeler = Peeler::default();
    let mut point = |interface| {
        let bytes = cooked2(interface, 0, ip);
        peel_with(&mut peeler, Link::Cooked2, &bytes, bytes.len())[0].point
    };
    let (a, b, again) = (point(1), point(2), point(1));
    assert!(a != b && a == again, "interfaces of the any device are kept apart");
    right(Link::Erf, &erf(2, 0, &[&[0, 0], &frame()[..]].concat(), frame().len()));
    right(Link::Erf, &erf(2, 2, &[&[0, 0], &frame()[..], &[0; 5]].concat(), frame().len()));
    right(Link::Erf, &erf(22, 0, ip, ip.len()));
    assert!(matches!(peel(Link::Erf, &erf(27, 0, &[0; 40], 40)).what, What::Unread));
    assert!(matches!(peel(Link::Other(105), &frame()).what, What::Unread));
}

#[test]
fn infiniband_with_and_without_grh_and_vcrc() {
    for has_grh in [false, true] {
        let bytes = infiniband(has_grh);
        let event = peel(Link::Infiniband, &bytes);
        let got = packet(&event);
        assert_eq!(got.icrc, Icrc::Right, "GRH {has_grh}");
        assert_eq!(got.path.encapsulation, Encapsulation::Infiniband);
        if !has_grh {
            assert_eq!((got.path.source.0[15], got.path.destination.0[15]), (4, 9));
        }
        assert_eq!(event.len as usize, bytes.len() - 2);
        packet(&peel(Link::Infiniband, &bytes[..bytes.len() - 2]));
        packet(&peel(Link::Erf, &erf(21, 1, &bytes, bytes.len())));
        let mut damaged = bytes.clone();
        *damaged.last_mut().expect("a byte") ^= 1;
        assert_eq!(reason(&peel(Link::Infiniband, &damaged)), DropReason::Vcrc);
    }
}

fn reason(event: &Event) -> DropReason {
    match &event.what {
        What::Damaged { reason, .. } | What::Refused { reason, .. } => *reason,
        other => panic!("not damaged: {other:?}"),
    }
}

#[test]
fn tags() {
    let tagged = right(Link::Ethernet, &tag(&frame(), 0x8100, 3 << 13 | 100));
    assert_eq!((tagged.tag, tagged.len), (Some((3, 100)), frame().len() as u32 + 4));
    for outer in [0x88A8, 0x9100, 0x8100] {
        let both = tag(&tag(&frame(), 0x8100, 100), outer, 5 << 13 | 7);
        assert_eq!(right(Link::Ethernet, &both).tag, Some((5, 7)));
    }
    let ip = &frame()[14..];
    let mut inner = vec![0x60, 100, 0x08, 0];
    inner.extend(ip);
    let mut header = cooked(0, &inner);
    header[14..16].copy_from_slice(&0x8100_u16.to_be_bytes());
    assert_eq!(right(Link::Cooked, &header).tag, Some((3, 100)));
}

#[test]
fn tunnels_and_mirrors() {
    let (frame, ip) = (frame(), frame()[14..].to_vec());
    let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0], &frame[..]].concat();
    let geneve = [&[2, 0, 0x65, 0x58, 0, 0, 5, 0], &[1, 2, 3, 4, 5, 6, 7, 8], &frame[..]].concat();
    let erspan1 = [&[0, 0, 0x88, 0xBE], &frame[..]].concat();
    let erspan2 = [&[0x10, 0, 0x88, 0xBE, 0, 0, 0, 9, 0x10, 1, 0, 1, 0, 0, 0, 0], &frame[..]];
    let erspan3 = |hw: u8, more: &[u8], inner: &[u8]| {
        let head = [0x10, 0, 0x22, 0xEB, 0, 0, 0, 9, 0x20, 1, 0, 1, 0, 0, 0, 0, 0, 0, hw, 0];
        let mut head = head.to_vec();
        head[19] = u8::from(!more.is_empty());
        [&head[..], more, inner].concat()
    };
    let keyed = [&[0x30, 0, 0x65, 0x58, 0, 0, 0, 1, 0, 0, 0, 2], &frame[..]].concat();
    let cases: [(&str, Vec<u8>, u8); 12] = [
        ("VXLAN", udp4(4789, &vxlan), 1),
        ("VXLAN over IPv6", udp6(4789, &vxlan), 1),
        ("VXLAN in VXLAN", udp4(4789, &[&vxlan[..8], &udp4(8472, &vxlan)].concat()), 2),
        ("Geneve", udp4(6081, &geneve), 1),
        ("GRE", ipv4(47, &[&[0, 0, 0x65, 0x58], &frame[..]].concat()), 1),
        ("GRE with key and sequence", ipv4(47, &keyed), 1),
        ("IP in GRE", ipv4(47, &[&[0, 0, 8, 0], &ip[..]].concat()), 1),
        ("ERSPAN I", ipv4(47, &erspan1), 1),
        ("ERSPAN II", ipv4(47, &erspan2.concat()), 1),
        ("ERSPAN III", ipv4(47, &erspan3(0, &[], &frame)), 1),
        ("ERSPAN III with more, IP", ipv4(47, &erspan3(2 << 2, &[0; 8], &ip)), 1),
        ("IP in IP", ipv4(4, &ip), 1),
    ];
    for (name, bytes, tunnels) in cases {
        let event = right(Link::Ethernet, &bytes);
        assert_eq!(event.tunnels, tunnels, "{name}");
        let inner = if event.macs.is_some() { frame.len() } else { ip.len() };
        assert_eq!(event.len as usize, inner, "{name}");
    }
    let labels = [0, 1, 0x10, 64, 0, 2, 0x11, 64];
    right(Link::Ethernet, &ethernet(0x8847, &[&labels, &ip[..]].concat()));
    right(Link::Ethernet, &ethernet(0x8847, &[&labels[..], &[0; 4], &frame[..]].concat()));
    let mut deep = frame;
    for _ in 0..20 {
        deep = udp4(4789, &[&vxlan[..8], &deep[..]].concat());
    }
    assert!(matches!(peel(Link::Ethernet, &deep).what, What::Other), "tunnels without end");
}

#[test]
fn padding_and_snap_lengths() {
    let whole = frame();
    right(Link::Ethernet, &[&whole[..], &[0; 13]].concat());
    for kept in 14 + 20 + 8 + 12..whole.len() {
        let events = peel_with(&mut Peeler::default(), Link::Ethernet, &whole[..kept], whole.len());
        match &events[0].what {
            What::Packet(packet) => {
                assert_eq!(packet.icrc, Icrc::Cut, "{kept} bytes");
                assert_eq!(packet.bth.dest_qp.get(), 0x17);
                assert_eq!((packet.payload_len, events[0].len), (37, whole.len() as u32));
            }
            other => panic!("{kept} bytes: {other:?}"),
        }
    }
    for kept in 0..14 + 20 + 8 + 12 {
        let events = peel_with(&mut Peeler::default(), Link::Ethernet, &whole[..kept], whole.len());
        assert!(matches!(events[0].what, What::Unread), "{kept} bytes: {:?}", events[0]);
    }
    // Cut without a word of it: the packet is short.
    let event = peel(Link::Ethernet, &whole[..whole.len() - 9]);
    assert_eq!(reason(&event), DropReason::Truncated(Layer::Ipv4));
}

#[test]
fn fragments_belong_to_their_first() {
    let mut first = frame();
    first[20] = 0x20;
    fix_ip(&mut first);
    let mut later = ethernet(0x0800, &first[14..34]);
    later.extend([7; 64]);
    later[20..22].copy_from_slice(&[0, 8]);
    later[16..18].copy_from_slice(&84_u16.to_be_bytes());
    fix_ip(&mut later);
    let mut peeler = Peeler::default();
    let mut what =
        |bytes: &[u8]| peel_with(&mut peeler, Link::Ethernet, bytes, bytes.len()).remove(0).what;
    assert!(matches!(what(&later), What::Other), "of nothing known");
    let fragment = |what| matches!(what, What::Damaged { reason: DropReason::Fragment, .. });
    assert!(fragment(what(&first)));
    assert!(fragment(what(&later)));
    later[18] ^= 1;
    fix_ip(&mut later);
    assert!(matches!(what(&later), What::Other), "of another datagram");
}

#[test]
fn checksums() {
    let mut bytes = frame();
    bytes[24] ^= 1;
    assert_eq!(reason(&peel(Link::Ethernet, &bytes)), DropReason::Ipv4Checksum);
    bytes[24..26].fill(0);
    right(Link::Ethernet, &bytes);
    let udp = |value: u16| {
        let mut bytes = frame();
        bytes[40..42].copy_from_slice(&value.to_be_bytes());
        packet(&right(Link::Ethernet, &bytes)).path.udp_checksum
    };
    let (whole, half) = udp_sums(&frame());
    assert_eq!(udp(0), Some(true));
    assert_eq!(udp(whole), Some(true));
    assert_eq!(udp(half), None, "what the adapter was to complete");
    assert_eq!(udp(whole ^ 0x0100), Some(false));
}

#[test]
fn causes_of_wrong_icrcs() {
    let cause = |bytes: &[u8]| match packet(&peel(Link::Ethernet, bytes)).icrc {
        Icrc::Wrong(WrongIcrc { cause, .. }) => cause,
        other => panic!("{other:?}"),
    };
    for (field, places) in [
        ("TOS", &[15][..]),
        ("TTL", &[22]),
        ("IP checksum", &[24, 25]),
        ("UDP checksum", &[40, 41]),
        ("fifth BTH byte", &[46]),
        ("several fields", &[15, 22, 24, 25]),
        ("several fields", &[15, 22, 24, 25, 40, 41, 46]),
    ] {
        assert_eq!(cause(&with_icrc(&frame(), places, true)), IcrcCause::Unmasked(field));
    }
    assert_eq!(cause(&with_icrc(&frame(), &[], false)), IcrcCause::NoLrhBytes);
    let mut swapped = frame();
    let end = swapped.len();
    swapped[end - 4..].reverse();
    assert_eq!(cause(&swapped), IcrcCause::ByteOrder);
    swapped[end - 4..].fill(0);
    assert_eq!(cause(&swapped), IcrcCause::Zero);
    let mut damaged = frame();
    damaged[60] ^= 0x10;
    assert_eq!(cause(&damaged), IcrcCause::Unknown);
    assert_eq!(with_icrc(&frame(), &[], true), frame(), "the bitwise CRC agrees");
}

#[test]
fn trains_of_a_real_loopback() {
    let bytes =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/loopback-trains.pcap"));
    let (events, capture) = files::events(&bytes.expect("a capture"));
    assert_eq!(capture.records, 3);
    let parts: Vec<_> = events.iter().map(|event| (event.at.frame, event.part)).collect();
    let expected: Vec<_> = (0..2).map(|i| (1, i)).chain((0..14).map(|i| (2, i))).collect();
    assert_eq!(parts[..16], expected);
    assert_eq!(parts[16..], [(3, 0)]);
    for (event, i) in events[..16].iter().zip(0..) {
        let packet = packet(event);
        assert_eq!((packet.icrc, packet.payload_len), (Icrc::Right, 4096));
        assert_eq!(packet.bth.psn.get(), packet_psn(&events[0]) + i);
        assert_eq!(packet.path.ident, event.part);
    }
    assert_eq!((events[0].len, events[1].len), (42 + 4128, 42 + 4112));
}

fn packet_psn(event: &Event) -> u32 {
    packet(event).bth.psn.get()
}

#[test]
fn trains_of_any_size_are_told_from_damage() {
    for (payload, many, last) in
        [(64, 40, 64), (64, 40, 8), (200, 3, 4), (4096, 15, 100), (1, 2, 1)]
    {
        let bytes = train(payload, many, last);
        let mut peeler = Peeler::default();
        for round in 0..2 {
            let events = peel_with(&mut peeler, Link::Ethernet, &bytes, bytes.len());
            assert_eq!(events.len(), many, "{payload} bytes, round {round}");
            for (event, part) in events.iter().zip(0..) {
                assert_eq!((packet(event).icrc, event.part), (Icrc::Right, part));
            }
            assert_eq!(packet(&events[many - 1]).payload_len, last as u32);
        }
        // A packet of it damaged: the others are right, it alone is wrong.
        for hurt in 0..many {
            let mut bytes = bytes.clone();
            let size = 16 + payload.next_multiple_of(4);
            bytes[42 + hurt * size + 12] ^= 4;
            let events = peel_with(&mut Peeler::default(), Link::Ethernet, &bytes, bytes.len());
            let wrong: Vec<_> =
                events.iter().filter(|e| packet(e).icrc != Icrc::Right).map(|e| e.part).collect();
            assert_eq!((events.len(), wrong), (many, vec![hurt as u16]), "{payload} {hurt}");
        }
    }
    // Damage that is no train stays one packet.
    let mut single = train(1000, 1, 1000);
    single[300] ^= 1;
    let events = peel_with(&mut Peeler::default(), Link::Ethernet, &single, single.len());
    assert_eq!(events.len(), 1);
    assert!(matches!(packet(&events[0]).icrc, Icrc::Wrong(_)));
}

#[test]
fn a_train_is_split_by_the_size_that_the_capture_says() {
    let bytes = train(512, 5, 20);
    let record = Record {
        at: At::default(),
        point: Point(3),
        link: Link::Ethernet,
        direction: Some(Direction::Out),
        original_len: bytes.len() as u32,
        segment: Some(528),
        bytes: &bytes,
    };
    let mut events = Vec::new();
    Peeler::default().peel(&record, &mut events);
    assert_eq!(events.len(), 5);
    assert!(events.iter().all(|event| packet(event).icrc == Icrc::Right));
}
