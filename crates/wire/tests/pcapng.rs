//! The capture writer, read back block by block, and by tshark where there is one.

use std::io::Write;
use std::process::{Command, Stdio};

use wire::ethernet::Ethernet;
use wire::frame::{Frame, emit_frame, parse_frame};
use wire::packet::{Encapsulation, Extensions, Packet, Path};
use wire::pcapng::{Description, Direction, Notes, Section, Statistics, Writer};
use wire::{Gid, Mac};

mod support;
use support::pcap;

/// The blocks of a capture: kind and body.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |at: usize, bytes: &[u8]| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let len = word(4, bytes) as usize;
        assert_eq!(len % 4, 0);
        assert_eq!(word(len - 4, bytes) as usize, len);
        blocks.push((word(0, bytes), bytes[8..len - 4].to_vec()));
        bytes = &bytes[len..];
    }
    blocks
}

fn capture(packets: &[Vec<u8>], notes: &Notes<'_>) -> Vec<u8> {
    let section = Section { application: "crocevia", ..Section::default() };
    let mut writer = Writer::new(Vec::new(), &section).expect("a vector");
    let description = Description { name: "lo", ..Description::default() };
    let interface = writer.interface(&description).expect("a vector");
    for (i, packet) in packets.iter().enumerate() {
        let time = 1_700_000_000_123_456_789 + i as u64;
        writer.packet(interface, time, packet, notes).expect("a vector");
    }
    writer.flush().expect("a vector");
    writer.into_inner()
}

#[test]
fn blocks_are_as_the_format_says() {
    let notes = Notes {
        direction: Some(Direction::Outbound),
        comment: Some("lost here"),
        original_len: Some(99),
        dropped: 7,
    };
    let blocks = blocks(&capture(&[vec![1, 2, 3, 4, 5]], &notes));
    assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [0x0A0D_0D0A, 1, 6]);
    let section = &blocks[0].1;
    assert_eq!(section[..8], [0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0]);
    assert_eq!(section[8..16], [0xFF; 8]);
    assert_eq!(section[16..], [&[4, 0, 8, 0][..], b"crocevia", &[0; 4]].concat());
    let interface = &blocks[1].1;
    assert_eq!(interface[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(interface[8..16], [2, 0, 2, 0, b'l', b'o', 0, 0]);
    assert_eq!(interface[16..], [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let packet = &blocks[2].1;
    let time = 1_700_000_000_123_456_789u64;
    assert_eq!(packet[..4], [0; 4]);
    assert_eq!(packet[4..8], ((time >> 32) as u32).to_le_bytes());
    assert_eq!(packet[8..12], (time as u32).to_le_bytes());
    assert_eq!(packet[12..20], [5, 0, 0, 0, 99, 0, 0, 0]);
    assert_eq!(packet[20..28], [1, 2, 3, 4, 5, 0, 0, 0]);
    let comment = [&[1, 0, 9, 0][..], b"lost here", &[0; 3]].concat();
    let flags = [2, 0, 4, 0, 2, 0, 0, 0];
    let dropped = [4, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(packet[28..], [&comment[..], &flags, &dropped, &[0; 4]].concat());
}

#[test]
fn interfaces_and_statistics_are_as_the_format_says() {
    let mut writer = Writer::new(Vec::new(), &Section::default()).expect("a vector");
    let addresses = ["192.0.2.7", "2001:db8::7"].map(|a| a.parse().expect("an address"));
    let description = Description {
        snap_len: 128,
        description: "d",
        addresses: &addresses,
        mac: Some(Mac([2, 0, 0, 0, 0, 9])),
        speed: Some(10_000_000_000),
        ..Description::default()
    };
    writer.interface(&Description::default()).expect("a vector");
    let second = writer.interface(&description).expect("a vector");
    let counted = Statistics {
        time: 1 << 32 | 5,
        start: 2 << 32 | 6,
        end: 3 << 32 | 7,
        received: 11,
        dropped: 12,
        os_dropped: 13,
        delivered: 14,
        comment: "",
    };
    writer.statistics(second, &counted).expect("a vector");
    let blocks = blocks(&writer.into_inner());
    assert_eq!(blocks.iter().map(|b| b.0).collect::<Vec<_>>(), [0x0A0D_0D0A, 1, 1, 5]);
    let expected = [
        &[1, 0, 0, 0, 128, 0, 0, 0][..],
        &[3, 0, 1, 0, b'd', 0, 0, 0],
        &[4, 0, 8, 0, 192, 0, 2, 7, 255, 255, 255, 255],
        &[5, 0, 17, 0, 0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 128, 0, 0, 0],
        &[6, 0, 6, 0, 2, 0, 0, 0, 0, 9, 0, 0],
        &[8, 0, 8, 0, 0, 0xE4, 0x0B, 0x54, 2, 0, 0, 0],
        &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(blocks[2].1, expected.concat());
    let expected = [
        &[1, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0][..],
        &[2, 0, 8, 0, 2, 0, 0, 0, 6, 0, 0, 0],
        &[3, 0, 8, 0, 3, 0, 0, 0, 7, 0, 0, 0],
        &[4, 0, 8, 0, 11, 0, 0, 0, 0, 0, 0, 0],
        &[5, 0, 8, 0, 12, 0, 0, 0, 0, 0, 0, 0],
        &[7, 0, 8, 0, 13, 0, 0, 0, 0, 0, 0, 0],
        &[8, 0, 8, 0, 14, 0, 0, 0, 0, 0, 0, 0],
        &[0; 4],
    ];
    assert_eq!(blocks[3].1, expected.concat());
}

#[test]
fn a_long_comment_is_cut_between_characters() {
    let text = "\u{e9}".repeat(40_000);
    let notes = Notes { comment: Some(&text), ..Notes::default() };
    let blocks = blocks(&capture(&[vec![0; 4]], &notes));
    let packet = &blocks[2].1;
    assert_eq!(packet[24..28], [1, 0, 0xFE, 0xFF]);
    assert!(str::from_utf8(&packet[28..28 + 0xFFFE]).is_ok());
}

#[test]
fn without_notes_there_are_no_options() {
    let blocks = blocks(&capture(&[vec![9; 60]], &Notes::default()));
    assert_eq!(blocks[2].1.len(), 20 + 60);
}

/// The fields that tshark finds in the packets of a capture; `None` where there is no tshark.
fn tshark(capture: &[u8], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if Command::new("tshark").arg("--version").output().is_err() {
        return None;
    }
    let mut child = Command::new("tshark")
        .args(["-r", "-", "-T", "fields", "-E", "separator=,"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(capture).expect("tshark reads");
    drop(input);
    let output = child.wait_with_output().expect("tshark ends");
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

/// A number as tshark prints it, decimal or hexadecimal.
fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("hexadecimal"),
        None => text.parse().unwrap_or_else(|_| panic!("a number: {text}")),
    }
}

/// tshark reads what we write, and finds the opcodes, PSNs and queue pairs that we find.
#[test]
fn tshark_reads_it() {
    let frames = [pcap::frames("rc-imm.pcap"), pcap::frames("v6-rc.pcap")].concat();
    let notes = Notes { comment: Some("a note"), ..Notes::default() };
    let fields = [
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.destqp",
        "frame.time_epoch",
        "frame.comment",
    ];
    let Some(lines) = tshark(&capture(&frames, &notes), &fields) else {
        eprintln!("SKIPPED tshark_reads_it: no tshark");
        return;
    };
    assert_eq!(lines.len(), frames.len());
    for (i, (line, bytes)) in lines.iter().zip(&frames).enumerate() {
        let Ok(Some(packet)) = parse_frame(bytes).expect("a frame").packet() else { continue };
        let bth = packet.bth;
        assert_eq!(number(&line[0]), u64::from(bth.opcode.0));
        assert_eq!(number(&line[1]), u64::from(bth.psn.get()));
        assert_eq!(number(&line[2]), u64::from(bth.dest_qp.get()));
        assert_eq!(line[3], format!("1700000000.{:09}", 123_456_789 + i));
        assert_eq!(line[4], "a note");
    }
}

/// tshark reads a RoCEv1 frame that we make as we meant it.
#[test]
fn tshark_reads_roce_v1() {
    let path = Path {
        encapsulation: Encapsulation::RoceV1,
        source: Gid::link_local(Mac([2, 0, 0, 0, 0, 1])),
        destination: Gid::link_local(Mac([2, 0, 0, 0, 0, 2])),
        traffic_class: 0x68,
        hop_limit: 63,
        flow_label: 0x12345,
        source_port: 0,
        priority: 3,
    };
    let bth = support::plain_bth();
    let packet = Packet { path, bth, ext: Extensions::default(), payload: &[1, 2, 3, 4, 5][..] };
    let ethernet = Ethernet::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).tagged(3, 100);
    let mut out = vec![0; 300];
    let len = emit_frame(&Frame::new(ethernet, &packet).expect("a path"), &mut out).expect("room");
    out.truncate(len);
    let fields = [
        "vlan.id",
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.bth.padcnt",
        "infiniband.grh.hoplmt",
        "infiniband.grh.flowlabel",
        "infiniband.grh.paylen",
        "infiniband.grh.sgid",
    ];
    let Some(lines) = tshark(&capture(&[out], &Notes::default()), &fields) else {
        eprintln!("SKIPPED tshark_reads_roce_v1: no tshark");
        return;
    };
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let numbers: Vec<u64> = line[..7].iter().map(|field| number(field)).collect();
    assert_eq!(numbers, [100, 4, 0x12_3456, 3, 63, 0x12345, 12 + 8 + 4]);
    assert_eq!(line[7], "fe80::ff:fe00:1");
}
