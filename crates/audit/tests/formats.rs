//! Every form of pcap and pcapng, made byte by byte here, is read as it was meant, as another
//! reader reads it, and as tshark counts and times it.

#[path = "support/writer.rs"]
mod writer;

use std::io::Read;
use std::process::Command;

use audit::capture::{Block, Reader, open};
use audit::record::{Direction, Link};
use audit::report::Capture;
use pcap_parser::{Block as OtherBlock, PcapBlockOwned, PcapError, create_reader};
use writer::{Ng, Order, pcap};

const ORDERS: [Order; 2] = [Order::Little, Order::Big];

/// A record as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Got {
    frame: u64,
    time: u64,
    point: u16,
    link: Link,
    direction: Option<Direction>,
    original_len: u32,
    bytes: Vec<u8>,
}

fn drain<R: Read>(mut reader: Reader<R>) -> (Vec<Got>, Capture) {
    let (mut block, mut all) = (Block::default(), Vec::new());
    let damage = loop {
        match reader.fill(&mut block) {
            Ok(true) => all.extend(block.records().map(|record| Got {
                frame: record.at.frame,
                time: record.at.time.0,
                point: record.point.0,
                link: record.link,
                direction: record.direction,
                original_len: record.original_len,
                bytes: record.bytes.to_vec(),
            })),
            Ok(false) => break None,
            Err(damage) => break Some(damage.to_string()),
        }
    };
    (all, Capture { damage, ..reader.summary() })
}

fn read(bytes: &[u8]) -> (Vec<Got>, Capture) {
    drain(Reader::open(bytes, 0).expect("a capture"))
}

/// Gives so many bytes at a time.
struct Drops<'a>(&'a [u8], usize);

impl Read for Drops<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = out.len().min(self.1).min(self.0.len());
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

/// The bytes of packets as the other reader gives them.
fn other(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = create_reader(1 << 21, bytes).expect("a capture for pcap-parser");
    let mut all = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                match block {
                    PcapBlockOwned::Legacy(b) => all.push(b.data.to_vec()),
                    PcapBlockOwned::NG(OtherBlock::EnhancedPacket(b)) => {
                        all.push(b.data[..b.caplen as usize].to_vec());
                    }
                    PcapBlockOwned::NG(OtherBlock::SimplePacket(b)) => {
                        all.push(b.data[..b.origlen.min(b.data.len() as u32) as usize].to_vec());
                    }
                    _ => {}
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return all,
            Err(PcapError::Incomplete(_)) => reader.refill().expect("more"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Numbers, times in nanoseconds, lengths and captured lengths as tshark has them; `None` without
/// tshark.
fn tshark(bytes: &[u8]) -> Option<Vec<(u64, u64, u32, u32)>> {
    let name = format!("crocevia-formats-{}-{:p}.cap", std::process::id(), bytes.as_ptr());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).expect("a file");
    let fields = ["frame.number", "frame.time_epoch", "frame.len", "frame.cap_len"];
    let arguments = fields.iter().flat_map(|field| ["-e", field]);
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-r"]).arg(&path).args(arguments);
    let output = command.output();
    std::fs::remove_file(&path).expect("the file again");
    let Ok(output) = output else {
        eprintln!("skipped: tshark is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).expect("text");
    Some(text.lines().map(shark_line).collect())
}

fn shark_line(line: &str) -> (u64, u64, u32, u32) {
    let cells: Vec<&str> = line.split('\t').collect();
    let (seconds, fraction) = cells[1].split_once('.').unwrap_or(("0", "0"));
    let time = seconds.parse::<u64>().unwrap_or(0) * 1_000_000_000
        + format!("{fraction:0<9}")[..9].parse::<u64>().expect("digits");
    let number = |text: &str| text.parse().expect("a number");
    (cells[0].parse().expect("a number"), time, number(cells[2]), number(cells[3]))
}

fn sample(i: usize) -> Vec<u8> {
    (0..60 + i % 7).map(|byte| (byte * 3 + i) as u8).collect()
}

#[test]
fn pcap_in_both_orders_and_resolutions() {
    for order in ORDERS {
        for (magic, unit) in [(0xA1B2_C3D4, 1000), (0xA1B2_3C4D, 1), (0xA1B2_CD34, 1000)] {
            let records: Vec<_> = (0..5)
                .map(|i| (1_700_000_000 + i as u32, 999_000 + i as u32, sample(i), 1514))
                .collect();
            let file = pcap(order, magic, 1, &records);
            let (got, capture) = read(&file);
            assert_eq!(capture.damage, None);
            assert_eq!(got.len(), 5, "{order:?} {magic:#x}");
            for (got, (i, record)) in got.iter().zip(records.iter().enumerate()) {
                let time = u64::from(record.0) * 1_000_000_000 + u64::from(record.1) * unit;
                assert_eq!((got.frame, got.time), (i as u64 + 1, time));
                assert_eq!((&got.bytes, got.original_len), (&record.2, 1514));
                assert_eq!((got.point, got.link, got.direction), (0, Link::Ethernet, None));
            }
            if magic == 0xA1B2_CD34 {
                continue;
            }
            assert_eq!(got.iter().map(|got| got.bytes.clone()).collect::<Vec<_>>(), other(&file));
            agrees_with_tshark(&file, &got);
        }
    }
}

fn agrees_with_tshark(file: &[u8], got: &[Got]) {
    let Some(shark) = tshark(file) else { return };
    let ours: Vec<_> =
        got.iter().map(|g| (g.frame, g.time, g.original_len, g.bytes.len() as u32)).collect();
    assert_eq!(ours, shark);
}

#[test]
fn link_types() {
    let known = [
        (1, Link::Ethernet),
        (101, Link::RawIp),
        (12, Link::RawIp),
        (14, Link::RawIp),
        (228, Link::RawIp),
        (229, Link::RawIp),
        (113, Link::Cooked),
        (276, Link::Cooked2),
        (197, Link::Erf),
        (247, Link::Infiniband),
        (105, Link::Other(105)),
    ];
    for (number, link) in known {
        let (got, _) = read(&pcap(Order::Little, 0xA1B2_C3D4, number, &[(1, 2, sample(0), 60)]));
        assert_eq!(got[0].link, link);
        // With the bits that say that four bytes of check sequence follow.
        let with_fcs = number | 0x2400_0000;
        let (got, _) = read(&pcap(Order::Little, 0xA1B2_C3D4, with_fcs, &[(1, 2, sample(0), 60)]));
        assert_eq!(got[0].link, link);
    }
}

#[test]
fn pcapng_resolutions_and_offsets() {
    let clocks: [(Option<u8>, u64, u64); 8] = [
        (None, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (Some(0), 1_700_000_000, 1_700_000_000_000_000_000),
        (Some(3), 1_700_000_000_123, 1_700_000_000_123_000_000),
        (Some(6), 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (Some(9), 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (Some(11), 1_700_000_000_123_456, 17_000_000_001_234),
        (Some(0x80 | 10), 1_700_000_000 << 10 | 512, 1_700_000_000_500_000_000),
        (Some(0x80 | 20), 1_700_000_000 << 20 | 1 << 18, 1_700_000_000_250_000_000),
    ];
    for order in ORDERS {
        let (mut ng, mut times) = (Ng::new(order), Vec::new());
        for (resolution, ticks, time) in clocks {
            for offset in [0_i64, 3600, -5] {
                let (tick, seconds) = ([resolution.unwrap_or(0)], order.u64(offset as u64));
                let mut options: Vec<(u16, &[u8])> = vec![(2, b"eth0")];
                if resolution.is_some() {
                    options.push((9, &tick));
                }
                if offset != 0 {
                    options.push((14, &seconds));
                }
                ng.interface(1, 0, &options);
                ng.packet(times.len() as u32, ticks, &sample(times.len()), 99, &[]);
                times.push(time.saturating_add_signed(offset * 1_000_000_000));
            }
        }
        let (got, capture) = read(&ng.out);
        assert_eq!(capture.damage, None);
        assert_eq!(got.iter().map(|got| got.time).collect::<Vec<_>>(), times, "{order:?}");
        assert_eq!(other(&ng.out), (0..times.len()).map(sample).collect::<Vec<_>>());
        agrees_with_tshark(&ng.out, &got);
    }
}

/// A file with everything in it.
fn everything(order: Order) -> Vec<u8> {
    let mut ng = Ng::new(order);
    ng.block(0xBAD, b"nobody knows this", &[]);
    ng.interface(1, 60, &[(2, b"left"), (9, &[9])]);
    ng.interface(113, 64, &[(2, b"right")]);
    ng.packet(0, 1_000_000_000, &sample(0), 1514, &[(1, b"a comment"), (2, &order.u32(1))]);
    ng.packet(1, 2_000_000, &sample(1), 61, &[(2, &order.u32(2)), (4, &order.u64(3))]);
    ng.simple(500, &sample(3)[..60]);
    ng.old_packet(1, 2, 4_000_000, &sample(4));
    ng.block(0xBAD, &vec![0x55; 700_000], &[]);
    ng.block(0x0000_0BAD, b"\0\0\x7d\x8bcustom", &[]);
    ng.statistics(0, &[(4, &order.u64(1000)), (5, &order.u64(40)), (7, &order.u64(2))]);
    ng.statistics(0, &[(5, &order.u64(50)), (7, &order.u64(2))]);
    ng.statistics(1, &[(5, &order.u64(8))]);
    ng.packet(0, 5_000_000_000, &[], 0, &[]);
    ng.out
}

#[test]
fn pcapng_blocks_of_every_kind() {
    for order in ORDERS {
        let file = everything(order);
        let (got, capture) = read(&file);
        assert_eq!(capture.damage, None);
        let heads: Vec<_> = got
            .iter()
            .map(|g| (g.frame, g.time / 1_000_000, g.point, g.direction, g.original_len))
            .collect();
        assert_eq!(
            heads,
            [
                (1, 1000, 0, Some(Direction::In), 1514),
                (2, 2000, 1, Some(Direction::Out), 61),
                (3, 2000, 0, None, 500),
                (4, 4000, 1, None, 64),
                (5, 5000, 0, None, 0),
            ]
        );
        assert_eq!(got[2].bytes, sample(3)[..60]);
        assert_eq!(capture.dropped, Some(60), "the newest of each interface");
        for n in [1, 7, 100, 4096, 1 << 20] {
            let reader = Reader::open(Drops(&file, n), 0).expect("a capture");
            assert_eq!(drain(reader).0, got, "{n} bytes at a time");
        }
    }
}

#[test]
fn sections_of_both_orders_follow_each_other() {
    let mut ng = Ng::new(Order::Little);
    ng.interface(1, 0, &[(2, b"a")]);
    ng.packet(0, 1_000_000, &sample(0), 60, &[]);
    ng.section(Order::Big);
    ng.interface(1, 0, &[(2, b"b"), (9, &[9])]);
    ng.packet(0, 2_000_000_000, &sample(1), 61, &[]);
    ng.section(Order::Little);
    ng.interface(1, 0, &[(2, b"a")]);
    ng.packet(0, 3_000_000, &sample(2), 62, &[]);
    let (got, capture) = read(&ng.out);
    assert_eq!(capture.damage, None);
    let heads: Vec<_> = got.iter().map(|g| (g.frame, g.time / 1_000_000_000, g.point)).collect();
    assert_eq!(heads, [(1, 1, 0), (2, 2, 1), (3, 3, 0)], "an interface is known again by its name");
    assert!(capture.format.contains("3 sections"), "{}", capture.format);
    agrees_with_tshark(&ng.out, &got);
}

#[test]
fn packed_files_are_unpacked() {
    use std::io::Write;
    let records: Vec<_> = (0..2000).map(|i| (i as u32, 5, sample(i), 1514)).collect();
    let file = pcap(Order::Little, 0xA1B2_C3D4, 1, &records);
    let (plain, _) = read(&file);
    // In two members, as `cat` of two packed files gives.
    let mut packed = Vec::new();
    for half in [&file[..file.len() / 2], &file[file.len() / 2..]] {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(half).expect("room");
        packed.extend(encoder.finish().expect("room"));
    }
    let mut frames = Vec::new();
    // A skippable frame stands before and between.
    for half in [&file[..file.len() / 2], &file[file.len() / 2..]] {
        frames.extend([0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        frames.extend(ruzstd::encoding::compress_to_vec(half, level));
    }
    let frames = frames.split_off(11);
    for (name, packed) in [("gzip", packed), ("zstd", frames)] {
        let reader = open(std::io::Cursor::new(packed.clone()), 0).expect("a capture");
        let (got, capture) = drain(reader);
        assert_eq!(capture.damage, None, "{name}");
        assert!(capture.format.starts_with(name), "{}", capture.format);
        assert!(got == plain, "{name}: {} records", got.len());
        let cut = packed[..packed.len() * 3 / 4].to_vec();
        let (got, capture) = drain(open(std::io::Cursor::new(cut), 0).expect("a capture"));
        assert!(capture.damage.is_some() && got.len() < plain.len(), "{name}");
        assert!(plain.starts_with(&got));
    }
}

#[test]
fn what_is_no_capture_is_refused_by_name() {
    let refused = |bytes: &[u8]| Reader::open(bytes, 0).expect_err("no capture").to_string();
    assert!(refused(b"").contains("an empty file"));
    assert!(refused(b"\xFD7zXZ\0").contains("xz -dc FILE | crocevia audit -"));
    assert!(refused(b"snoop\0\0\0").contains("snoop"));
    assert!(refused(b"hello, world").contains("68 65 6c 6c"), "{}", refused(b"hello, world"));
    assert!(refused(&[0xD4, 0xC3, 0xB2, 0xA1, 2]).contains("5 bytes"));
    let mut old = pcap(Order::Little, 0xA1B2_C3D4, 1, &[]);
    old[4] = 3;
    assert!(refused(&old).contains("byte 4: major version: found 3, expected 2"));
    let mut ng = Ng::new(Order::Big).out;
    ng[8] = 0;
    assert!(refused(&ng).contains("byte 8: byte order"), "{}", refused(&ng));
}
