//! The rules of whole packets (R001, R010 to R018): each with a capture that breaks it and one that
//! nearly does. Frames are changed byte by byte; nothing here knows how the rules are written.

#[path = "support/files.rs"]
mod files;
#[allow(dead_code, reason = "each test binary uses a part")]
mod wrap;
#[path = "support/writer.rs"]
mod writer;

use audit::capture::{Block, Reader};
use audit::finding::Finding;
use audit::peel::Peeler;
use audit::report::Capture;
use audit::{Auditor, Options, Report, Side};
use wire::Gid;
use wrap::*;
use writer::{Order, pcap};

/// An audit of a pcap file of these frames, each captured whole.
fn audit(link: u32, frames: &[Vec<u8>]) -> Report {
    let records: Vec<_> =
        frames.iter().zip(0..).map(|(f, i)| (1, i * 10, f.clone(), f.len() as u32)).collect();
    audit_file(&pcap(Order::Little, 0xA1B2_C3D4, link, &records))
}

fn audit_file(file: &[u8]) -> Report {
    let mut reader = Reader::open(file, 0).expect("a capture");
    let (mut block, mut peeler, mut events) = (Block::default(), Peeler::default(), Vec::new());
    let damage = loop {
        match reader.fill(&mut block) {
            Ok(true) => block.records().for_each(|record| peeler.peel(&record, &mut events)),
            Ok(false) => break None,
            Err(damage) => break Some(damage.to_string()),
        }
    };
    let mut auditor = Auditor::new(Options::default());
    for event in &events {
        auditor.see(event);
    }
    let name = "a.pcap".to_owned();
    auditor.finish(vec![Capture { name, damage, ..reader.summary() }])
}

/// The findings of the rules that this file is about.
fn ours(report: &Report) -> Vec<&Finding> {
    let is_ours = |finding: &&Finding| finding.rule.code() <= "R018";
    report.findings.iter().filter(is_ours).collect()
}

/// The one finding of a report, by its rule's number.
fn only<'a>(report: &'a Report, code: &str) -> &'a Finding {
    let [finding] = ours(report)[..] else { panic!("{:#?}", report.findings) };
    assert_eq!(finding.rule.code(), code, "{finding:#?}");
    finding
}

fn nothing(report: &Report) {
    assert!(ours(report).is_empty(), "{:#?}", report.findings);
}

/// Packets of one flow, one behind the other, of several lengths.
fn flow(many: usize) -> Vec<Vec<u8>> {
    (0..many).map(|i| packet_of(i as u32 + 1, 20 + i % 3 * 40)).collect()
}

fn last_byte_of_payload(frame: &[u8]) -> usize {
    frame.len() - 9
}

#[test]
fn r001_a_file_cut_in_a_record() {
    let file = files::read("rc-atomic.pcap");
    let report = audit_file(&file[..file.len() - 5]);
    let finding = only(&report, "R001");
    assert_eq!(finding.side, Side::Capture);
    assert!(finding.detail.contains("a.pcap, byte "), "{}", finding.detail);
    assert!(report.captures[0].damage.is_some() && report.totals.packets == 11);
    nothing(&audit_file(&file));
    // Cut by a snap length: nothing is damaged.
    let cut: Vec<_> = flow(5).iter().map(|f| (1, 2, f[..60].to_vec(), f.len() as u32)).collect();
    let report = audit_file(&pcap(Order::Little, 0xA1B2_C3D4, 1, &cut));
    nothing(&report);
    assert_eq!(report.totals.icrc_untold, 5);
}

#[test]
fn r010_some_damaged_packets() {
    let mut frames = flow(20);
    for hurt in [3, 9] {
        let at = last_byte_of_payload(&frames[hurt]);
        frames[hurt][at] ^= 0x40;
    }
    let report = audit(1, &frames);
    let finding = only(&report, "R010");
    assert_eq!((finding.count, finding.first.map(|at| at.frame)), (2, Some(4)));
    assert_eq!(finding.side, Side::Before(Gid::from_ip([10, 1, 0, 1].into())));
    let share = finding.numbers.iter().find(|n| n.name == "share_percent").expect("a share");
    assert!((5.0..25.0).contains(&share.value), "{share:?}");
    nothing(&audit(1, &flow(20)));
    // A ping to the port, or an answer of a name server: nothing of RDMA, not even damaged.
    let noise: Vec<u8> = (0..61).map(|i| (i * 37 + 11) as u8).collect();
    nothing(&audit(1, &[udp4(4791, &[&[0x33, 0x1F][..], &noise[..]].concat())]));
}

#[test]
fn r010_not_of_packets_captured_before_the_adapter_filled_them() {
    let zero = |frame: &mut Vec<u8>| {
        let end = frame.len();
        frame[end - 4..].fill(0);
    };
    let mut frames = flow(20);
    frames.iter_mut().for_each(zero);
    let report = audit(1, &frames);
    nothing(&report);
    assert_eq!((report.totals.icrc_wrong, report.totals.icrc_untold), (0, 20));
    assert_eq!(report.conversations.len(), 1, "they are judged as others");
    // Nor where the snap length cuts the longer ones.
    let mut frames = flow(20);
    frames.iter_mut().for_each(zero);
    let cut = |f: &Vec<u8>| (1, 2, f[..f.len().min(100)].to_vec(), f.len() as u32);
    let records: Vec<_> = frames.iter().map(cut).collect();
    assert!(records.iter().any(|(_, _, kept, len)| kept.len() < *len as usize));
    nothing(&audit_file(&pcap(Order::Little, 0xA1B2_C3D4, 1, &records)));
    // Among right ones, a zero is damage.
    let mut frames = flow(20);
    zero(&mut frames[7]);
    assert_eq!(only(&audit(1, &frames), "R010").sample[0].frame, 8);
}

/// A device that gives the sender another address and port, and mends the checksums that it knows.
fn translated(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let translate = |mut frame: Vec<u8>| {
        frame[26..30].copy_from_slice(&[192, 0, 2, 9]);
        frame[34..36].copy_from_slice(&[0x70, 0x11]);
        fix_ip(&mut frame);
        frame
    };
    frames.into_iter().map(translate).collect()
}

#[test]
fn r011_a_device_that_rewrites_addresses() {
    let report = audit(1, &translated(flow(12)));
    let finding = only(&report, "R011");
    assert_eq!(finding.count, 12, "all, whatever their length");
    assert_eq!(finding.first.map(|at| at.frame), Some(1));
    // As many damaged packets, each in its own way.
    let mut frames = flow(12);
    for (i, frame) in frames.iter_mut().enumerate() {
        let at = last_byte_of_payload(frame);
        frame[at - i % 4] ^= 1 << (i % 8) | 0x11;
    }
    assert_eq!(only(&audit(1, &frames), "R010").count, 12);
    // Two alike may be damage.
    assert_eq!(only(&audit(1, &translated(flow(2))), "R010").count, 2);
    assert_eq!(only(&audit(1, &translated(flow(3))), "R011").count, 3);
    // The same damage in a few packets of a flow whose others are right.
    let mut frames = flow(30);
    for hurt in [12, 15, 18, 21] {
        frames[hurt][50] ^= 1;
    }
    assert_eq!(only(&audit(1, &frames), "R010").count, 4);
}

#[test]
fn r012_a_sender_that_masks_too_little() {
    for (plain, lrh, says) in [
        (&[22][..], true, "TTL"),
        (&[15], true, "TOS"),
        (&[24, 25], true, "IP checksum"),
        (&[], false, "eight bytes of ones"),
    ] {
        let frames: Vec<_> = flow(6).iter().map(|frame| with_icrc(frame, plain, lrh)).collect();
        let report = audit(1, &frames);
        let finding = only(&report, "R012");
        assert_eq!(finding.count, 6);
        assert!(finding.detail.contains(says), "{}", finding.detail);
        assert_eq!(finding.side, Side::Host(Gid::from_ip([10, 1, 0, 1].into())));
    }
    // A router that takes one from the TTL of a right packet harms nothing.
    let routed = |mut frame: Vec<u8>| {
        frame[22] -= 1;
        fix_ip(&mut frame);
        frame
    };
    nothing(&audit(1, &flow(6).into_iter().map(routed).collect::<Vec<_>>()));
}

#[test]
fn r013_packets_shorter_than_they_say() {
    let mut frames = flow(9);
    frames[1].truncate(70);
    frames[4].truncate(80);
    assert_eq!(only(&audit(1, &frames), "R013").count, 2);
    // A capture that was cut to 64 bytes a frame without saying so.
    let cut = |mut frame: Vec<u8>| {
        frame.truncate(64);
        frame
    };
    nothing(&audit(1, &flow(9).into_iter().map(cut).collect::<Vec<_>>()));
    // All of one length, but among longer ones: before them, and behind.
    let short: Vec<_> = flow(100).into_iter().map(cut).collect();
    let behind = [flow(9), short].concat();
    assert_eq!(only(&audit(1, &behind), "R013").count, 100);
    let before = [behind[9..12].to_vec(), flow(9)].concat();
    assert_eq!(only(&audit(1, &before), "R013").count, 3);
    // A WRITE whose datagram ends in its extension header.
    let mut write = packet_of(3, 8);
    write[42] = 0x0A;
    let write = with_icrc(&write, &[], true);
    assert_eq!(only(&audit(1, &[write]), "R013").count, 1);
}

#[test]
fn r014_a_link_that_damages() {
    let whole = infiniband(false);
    let mut damaged = whole.clone();
    *damaged.last_mut().expect("a byte") ^= 4;
    assert_eq!(only(&audit(247, &[whole.clone(), damaged]), "R014").count, 1);
    let mut absent = whole.clone();
    let end = absent.len();
    absent[end - 2..].fill(0);
    nothing(&audit(247, &[whole.clone(), whole[..end - 2].to_vec(), absent]));
}

#[test]
fn r015_headers_that_a_receiver_refuses() {
    let changed = |at: usize, value: u8| {
        let mut frame = packet_of(3, 20);
        frame[at] = value;
        with_icrc(&frame, &[], true)
    };
    for (at, value) in [(42, 0x3F), (43, 0x41)] {
        assert_eq!(only(&audit(1, &[changed(at, value)]), "R015").count, 1);
    }
    // Solicited, and the most pad that a packet can have.
    nothing(&audit(1, &[changed(43, 0xC0), changed(43, 0x70)]));
    // The type of pauses has other uses.
    nothing(&audit(1, &[ethernet(0x8808, &[0, 3, 0, 0, 0, 0])]));
}

#[test]
fn r016_udp_checksums() {
    let with_sum = |value: u16| {
        let mut frame = packet_of(3, 20);
        frame[40..42].copy_from_slice(&value.to_be_bytes());
        frame
    };
    let (whole, half) = udp_sums(&packet_of(3, 20));
    assert_eq!(only(&audit(1, &[with_sum(whole ^ 1)]), "R016").count, 1);
    nothing(&audit(1, &[with_sum(whole), with_sum(0)]));
    nothing(&audit(1, &[with_sum(half)]));
    // Of a packet whose ICRC is wrong too, the damage is told alone.
    let mut damaged = with_sum(whole);
    let at = last_byte_of_payload(&damaged);
    damaged[at] ^= 1;
    assert_eq!(only(&audit(1, &[damaged]), "R010").count, 1);
}

#[test]
fn r017_ip_checksums() {
    let with_sum = |value: [u8; 2]| {
        let mut frame = packet_of(3, 20);
        frame[24..26].copy_from_slice(&value);
        frame
    };
    assert_eq!(only(&audit(1, &[with_sum([1, 2])]), "R017").count, 1);
    // Left to the adapter.
    nothing(&audit(1, &[with_sum([0, 0])]));
}

#[test]
fn r018_fragments() {
    let mut first = packet_of(3, 200);
    first[20] = 0x20;
    fix_ip(&mut first);
    assert_eq!(only(&audit(1, &[first.clone()]), "R018").count, 1);
    // Of a tunnel around it.
    let mut outer = udp4(4789, &[&[8, 0, 0, 0, 0, 0, 5, 0][..], &packet_of(3, 200)].concat());
    outer.truncate(14 + 20 + 8 + 8 + 14 + 20 + 8 + 40);
    let len = outer.len() as u16 - 14;
    outer[16..18].copy_from_slice(&len.to_be_bytes());
    outer[20] = 0x20;
    fix_ip(&mut outer);
    assert_eq!(only(&audit(1, &[outer]), "R018").count, 1);
    // Of another protocol's datagram.
    let mut other = udp4(53, &[7; 100]);
    other[20] = 0x20;
    fix_ip(&mut other);
    nothing(&audit(1, &[other]));
    let mut dont = packet_of(3, 20);
    dont[20] = 0;
    fix_ip(&mut dont);
    nothing(&audit(1, &[with_icrc(&dont, &[], true)]));
}

#[test]
fn trains_are_nothing_bad() {
    let report = audit(1, &[train(64, 30, 8), train(4096, 14, 4096), train(1, 2, 1)]);
    nothing(&report);
    assert_eq!((report.totals.trains, report.totals.icrc_right), (3, 46));
}
