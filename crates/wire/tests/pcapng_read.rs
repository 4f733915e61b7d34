//! The capture writer against an independent reader (the crate `pcap-parser`): any captures come
//! back as they were written, also where the file is cut short. And what stands before the BTH of a
//! captured packet against the frame writer.

use std::net::IpAddr;

use pcap_parser::pcapng::{Block, parse_block_le};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Linktype, OptionCode, PcapNGOption};
use proptest::prelude::*;
use wire::ethernet::Ethernet;
use wire::frame::{Body, MAX_UDP_HEAD, Network, emit_frame, emit_udp_head, parse_frame};
use wire::pcapng::{
    Description, Direction, Interface, LinkType, Notes, Section, Statistics, put_interface,
    put_packet, put_section, put_statistics,
};
use wire::{Encapsulation, Gid, Mac, Packet, Path};

mod support;

/// Options of a packet, for which the reader has no names.
const EPB_FLAGS: OptionCode = OptionCode(2);
const EPB_DROP_COUNT: OptionCode = OptionCode(4);

/// A packet to be written.
#[derive(Clone, Debug)]
struct Case {
    time: u64,
    head: Vec<u8>,
    body: Vec<u8>,
    direction: Option<Direction>,
    comment: Option<String>,
    cut: u32,
    dropped: u64,
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

fn case() -> impl Strategy<Value = Case> {
    let direction =
        prop_oneof![Just(None), Just(Some(Direction::Inbound)), Just(Some(Direction::Outbound))];
    let comment = prop::option::of("\\PC{1,40}");
    (any::<u64>(), bytes(), bytes(), direction, comment, 0..9000u32, 0..3u64).prop_map(
        |(time, head, body, direction, comment, cut, dropped)| Case {
            time,
            head,
            body,
            direction,
            comment,
            cut,
            dropped,
        },
    )
}

impl Case {
    fn notes(&self) -> Notes<'_> {
        Notes {
            direction: self.direction,
            comment: self.comment.as_deref(),
            original_len: Some(self.head.len() as u32 + self.body.len() as u32 + self.cut),
            dropped: self.dropped,
        }
    }
}

/// The blocks of a capture, and how many bytes behind them are none.
fn read(mut rest: &[u8]) -> (Vec<Block<'_>>, usize) {
    let mut blocks = Vec::new();
    while let Ok((behind, block)) = parse_block_le(rest) {
        blocks.push(block);
        rest = behind;
    }
    (blocks, rest.len())
}

fn option<'a>(options: &'a [PcapNGOption<'_>], code: OptionCode) -> Option<&'a [u8]> {
    let found = options.iter().find(|o| o.code == code)?;
    found.value().get(..usize::from(found.len))
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        cases in prop::collection::vec(case(), 0..8),
        name in "[a-z0-9]{1,15}",
        snap_len in any::<u32>(),
        counts in any::<[u32; 4]>(),
    ) {
        let mut out = Vec::new();
        let section = Section { hardware: "h", os: "o", application: &name, comment: "" };
        put_section(&mut out, &section);
        let description = Description { name: &name, snap_len, ..Description::default() };
        put_interface(&mut out, &description);
        for case in &cases {
            let before = out.len();
            let notes = case.notes();
            put_packet(&mut out, Interface(0), case.time, (&case.head, &case.body), &notes);
            let most = case.head.len() + case.body.len() + notes.overhead();
            prop_assert!(out.len() - before <= most);
        }
        let [received, dropped, os_dropped, delivered] = counts.map(u64::from);
        let counted =
            Statistics { received, dropped, os_dropped, delivered, ..Statistics::default() };
        put_statistics(&mut out, Interface(0), &counted);

        let (blocks, rest) = read(&out);
        prop_assert_eq!((blocks.len(), rest), (cases.len() + 3, 0));
        let Block::SectionHeader(head) = &blocks[0] else { panic!("{:?}", blocks[0]) };
        prop_assert_eq!(option(&head.options, OptionCode::ShbUserAppl), Some(name.as_bytes()));
        let Block::InterfaceDescription(interface) = &blocks[1] else { panic!("no interface") };
        prop_assert_eq!((interface.linktype, interface.snaplen), (Linktype::ETHERNET, snap_len));
        prop_assert_eq!(interface.ts_resolution(), Some(1_000_000_000));
        prop_assert_eq!(option(&interface.options, OptionCode::IfName), Some(name.as_bytes()));
        for (case, block) in cases.iter().zip(&blocks[2..]) {
            let Block::EnhancedPacket(packet) = block else { panic!("no packet") };
            let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            prop_assert_eq!((packet.if_id, time), (0, case.time));
            let whole = [&case.head[..], &case.body].concat();
            prop_assert_eq!(packet.packet_data(), &whole[..]);
            prop_assert_eq!(packet.origlen as usize, whole.len() + case.cut as usize);
            let comment = option(&packet.options, OptionCode::Comment);
            prop_assert_eq!(comment, case.comment.as_deref().map(str::as_bytes));
            let flags = option(&packet.options, EPB_FLAGS);
            let direction = case.direction.map(|d| (d as u32).to_le_bytes());
            prop_assert_eq!(flags, direction.as_ref().map(|f| &f[..]));
            let dropped = option(&packet.options, EPB_DROP_COUNT);
            let expected = (case.dropped > 0).then(|| case.dropped.to_le_bytes());
            prop_assert_eq!(dropped, expected.as_ref().map(|d| &d[..]));
        }
        let Some(Block::InterfaceStatistics(last)) = blocks.last() else { panic!("no statistics") };
        let codes = [
            OptionCode::IsbIfRecv,
            OptionCode::IsbIfDrop,
            OptionCode::IsbOsDrop,
            OptionCode::IsbUsrDeliv,
        ];
        for (code, count) in codes.into_iter().zip(counts) {
            prop_assert_eq!(option(&last.options, code), Some(&u64::from(count).to_le_bytes()[..]));
        }
    }

    #[test]
    fn a_capture_cut_short_is_read_up_to_there(case in case(), part in 0..10_000usize) {
        let mut out = Vec::new();
        put_section(&mut out, &Section::default());
        put_interface(&mut out, &Description::default());
        let start = out.len();
        put_packet(&mut out, Interface(0), case.time, (&case.head, &case.body), &case.notes());
        let cut = start + part * (out.len() - start) / 10_000;
        prop_assert_eq!(read(&out[..cut]).0.len(), 2);
    }

    /// What stands before the BTH is what the frame writer puts there, with the checksum that a
    /// socket's datagram has.
    #[test]
    fn the_head_of_a_captured_packet_is_that_of_its_frame(
        payload in bytes(),
        v6 in any::<bool>(),
        traffic_class in any::<u8>(),
        source_port in 0xC000u16..,
        hop_limit in 1..=255u8,
    ) {
        let addresses =
            if v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
        let [source, destination] =
            addresses.map(|a| Gid::from_ip(a.parse::<IpAddr>().expect("an address")));
        let path = Path {
            encapsulation: Encapsulation::RoceV2,
            source,
            destination,
            traffic_class,
            hop_limit,
            flow_label: 0,
            source_port,
            priority: 0,
        };
        let ethernet = Ethernet::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let packet = Packet {
            path,
            bth: support::plain_bth(),
            ext: wire::Extensions::default(),
            payload: &payload[..],
        };
        let mut frame = wire::frame::Frame::new(ethernet, &packet).expect("a path");
        let Body::Roce(roce) = &mut frame.body else { panic!("no RoCE") };
        let Network::Udp { ip, udp } = &mut roce.network else { panic!("no UDP") };
        if v6 {
            udp.checksum = Some(wire::checksum::Check::Right);
        }
        let ip = *ip;
        let mut whole = vec![0; 600];
        // Without the padding of a short frame.
        let len = emit_frame(&frame, &mut whole).expect("room") - frame.trailer.len();
        let start = 14 + ip.wire_len() + 8;
        let mut head = [0; MAX_UDP_HEAD];
        let transport = &whole[start..len];
        let made = emit_udp_head(&ethernet, &ip, source_port, transport, &mut head);
        prop_assert_eq!(made, Ok(start));
        prop_assert_eq!(&head[..start], &whole[..start]);
        let again = [&head[..start], transport].concat();
        prop_assert_eq!(parse_frame(&again), parse_frame(&whole[..len]));
    }
}

#[test]
fn link_types_are_the_registered_ones() {
    let types = [
        (LinkType::Ethernet, Linktype::ETHERNET),
        (LinkType::RawIp, Linktype::RAW),
        (LinkType::Infiniband, Linktype(247)),
    ];
    for (link, known) in types {
        let mut out = Vec::new();
        put_interface(&mut out, &Description { link, ..Description::default() });
        let (blocks, _) = read(&out);
        let [Block::InterfaceDescription(interface)] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!(interface.linktype, known);
    }
}
