//! Captures that are cut, damaged or made of noise: what stands before the damage is read, the
//! damage is told with its place, and nothing panics.

#[path = "support/files.rs"]
mod files;
#[path = "support/writer.rs"]
mod writer;

use audit::capture::{Block, Damage, Reader};
use audit::peel::Peeler;
use audit::record::Link;
use audit::{At, Auditor, Options, Point, Record, Time};
use proptest::prelude::*;
use writer::{Ng, Order, pcap};

/// Frames read, and why reading ended early.
fn drain(bytes: &[u8]) -> Result<(u64, Option<Damage>), Damage> {
    let mut reader = Reader::open(bytes, 0)?;
    let (mut block, mut peeler, mut events) = (Block::default(), Peeler::default(), Vec::new());
    let mut auditor = Auditor::new(Options::default());
    let mut frames = 0;
    let damage = loop {
        match reader.fill(&mut block) {
            Ok(true) => {
                frames += block.len() as u64;
                block.records().for_each(|record| peeler.peel(&record, &mut events));
            }
            Ok(false) => break None,
            Err(damage) => break Some(damage),
        }
    };
    for event in &events {
        auditor.see(event);
    }
    auditor.finish(vec![reader.summary()]);
    Ok((frames, damage))
}

fn small_files() -> Vec<(&'static str, Vec<u8>, Vec<usize>)> {
    let frames: Vec<Vec<u8>> = (0..4).map(|i| vec![i as u8; 20 + i * 3]).collect();
    let mut all = Vec::new();
    for order in [Order::Little, Order::Big] {
        let records: Vec<_> = frames.iter().map(|f| (1, 2, f.clone(), 100)).collect();
        let mut ends = vec![24];
        for frame in &frames {
            ends.push(ends[ends.len() - 1] + 16 + frame.len());
        }
        all.push(("pcap", pcap(order, 0xA1B2_C3D4, 1, &records), ends));
        let mut ng = Ng::new(order);
        let mut ends = vec![ng.out.len()];
        ng.interface(1, 0, &[(2, b"eth0")]);
        ends.push(ng.out.len());
        for frame in &frames {
            ng.packet(0, 1_000_000, frame, 100, &[]);
            ends.push(ng.out.len());
        }
        all.push(("pcapng", ng.out, ends));
    }
    all
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_the_cut() {
    for (name, file, ends) in small_files() {
        let head = if name == "pcap" { 24 } else { 16 };
        for len in 0..file.len() {
            let cut = &file[..len];
            if len < head {
                let damage = drain(cut).expect_err("no capture");
                assert!(damage.offset <= len as u64, "{name} {len}: {damage}");
                continue;
            }
            let (frames, damage) = drain(cut).expect("a capture");
            let whole = ends.iter().filter(|end| **end <= len).count();
            let before = if name == "pcap" { 1 } else { 2 };
            assert_eq!(frames, whole.saturating_sub(before) as u64, "{name} cut at {len}");
            match damage {
                None => assert!(ends.contains(&len), "{name} cut at {len}"),
                Some(damage) => {
                    let start = ends.iter().rfind(|end| **end <= len).copied().unwrap_or(0);
                    assert_eq!(damage.offset, start as u64, "{name} {len}: {damage}");
                    assert!(damage.to_string().contains("the end of the file"), "{damage}");
                }
            }
        }
    }
}

#[test]
fn impossible_lengths_are_named_with_their_place() {
    let record = |len: u32| {
        let mut file = pcap(Order::Little, 0xA1B2_C3D4, 1, &[(1, 2, vec![0; 30], 30)]);
        file.extend([9, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(len.to_le_bytes());
        file.extend([0; 40]);
        file
    };
    let (frames, damage) = drain(&record(0xFFFF_FFF0)).expect("a capture");
    let text = damage.expect("damage").to_string();
    assert_eq!(frames, 1);
    let expected =
        "byte 78: captured length: found 4294967280 bytes, expected at most 262144 bytes";
    assert_eq!(text, expected);

    for (what, at, value) in [
        ("block length", 4, 31_u32),
        ("block length", 4, 0),
        ("block length", 4, 16),
        ("interface of a packet", 8, 3),
        ("captured length", 20, 500),
        ("block length behind the block", 60, 7),
    ] {
        let mut ng = Ng::new(Order::Little);
        ng.interface(1, 0, &[]);
        ng.packet(0, 5, &[1; 32], 32, &[]);
        let start = ng.out.len();
        ng.packet(0, 6, &[2; 32], 32, &[]);
        ng.out[start + at..start + at + 4].copy_from_slice(&value.to_le_bytes());
        let (frames, damage) = drain(&ng.out).expect("a capture");
        let damage = damage.expect("damage");
        assert_eq!((frames, damage.field), (1, what), "{damage}");
        assert_eq!(damage.offset, (start + at) as u64, "{damage}");
    }
}

#[test]
fn garbage_in_the_middle_ends_the_reading() {
    let mut file = files::read("rc-all-mtu512.pcap");
    let whole = drain(&file).expect("a capture").0;
    let middle = file.len() / 2;
    for (i, byte) in file[middle..middle + 3000].iter_mut().enumerate() {
        *byte = (i * i * 7 + 0x8F) as u8;
    }
    let (frames, damage) = drain(&file).expect("a capture");
    assert!(frames > 3 && frames < whole, "{frames} of {whole}");
    let offset = damage.expect("damage").offset;
    assert!(offset > 1000 && offset < middle as u64 + 3000, "{offset}");
}

#[test]
fn many_interfaces_and_sections_are_bounded() {
    let mut ng = Ng::new(Order::Little);
    for i in 0..70_000_u32 {
        ng.interface(1, 0, &[(2, &i.to_le_bytes())]);
    }
    let (frames, damage) = drain(&ng.out).expect("a capture");
    assert_eq!(frames, 0);
    assert!(damage.expect("damage").to_string().contains("at most 65536 interfaces"));
    let mut ng = Ng::new(Order::Little);
    for i in 0..20_000_u32 {
        ng.section(Order::Little);
        ng.interface(1, 0, &[(2, &i.to_le_bytes())]);
        ng.packet(0, 1, &[0; 20], 20, &[]);
    }
    assert_eq!(drain(&ng.out), Ok((20_000, None)));
}

fn captures() -> impl Strategy<Value = Vec<u8>> {
    let names = ["rc-atomic.pcap", "v6-ud-uc.pcap", "vlan-rc.pcap", "cm-rping.pcap"];
    prop_oneof![
        proptest::sample::select(names.to_vec()).prop_map(files::read),
        proptest::sample::select(small_files()).prop_map(|(_, file, _)| file),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn flipped_bits_never_panic(
        file in captures(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0_u32..8), 1..20),
    ) {
        let mut file = file;
        for (at, bit) in flips {
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
        }
        if let Ok((_, Some(damage))) = drain(&file) {
            prop_assert!(damage.offset <= file.len() as u64, "{}", damage);
        }
    }

    #[test]
    fn noise_behind_a_magic_number_never_panics(
        magic in proptest::sample::select(vec![
            [0xD4, 0xC3, 0xB2, 0xA1], [0xA1, 0xB2, 0x3C, 0x4D], [0x0A, 0x0D, 0x0D, 0x0A],
            [0x34, 0xCD, 0xB2, 0xA1],
        ]),
        noise in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let mut file = magic.to_vec();
        file.extend(noise);
        let _ = drain(&file);
    }

    #[test]
    fn frames_of_noise_never_panic(
        link in proptest::sample::select(vec![
            Link::Ethernet, Link::RawIp, Link::Cooked, Link::Cooked2, Link::Erf, Link::Infiniband,
        ]),
        start in proptest::sample::select(vec![
            &[][..], &[0x45][..], &[0x60][..],
            &[0; 12][..], b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\x45",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\x89\x15\x60", b"\0\0\0\0\0\0\0\0\0\0\0\0\x88\x47",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\x88\x08", b"\0\0\0\0\0\0\0\0\0\0\0\0\x88\xCC",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\x45\0\0\x50\0\0\0\0\x40\x2F\0\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\x45\0\0\x50\0\0\0\0\x40\x11\0\0\
              \x0A\0\0\x01\x0A\0\0\x02\0\0\x12\xB7\0\x3C\0\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\x45\0\0\x50\0\0\0\0\x40\x11\0\0\
              \x0A\0\0\x01\x0A\0\0\x02\0\0\x12\xB5\0\x3C\0\0\x08\0\0\0",
        ]),
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        original in 0_u32..70_000,
        segment in proptest::option::of(0_u16..2000),
    ) {
        let mut bytes = start.to_vec();
        bytes.extend(noise);
        let record = Record {
            at: At { time: Time(1), file: 0, frame: 1 },
            point: Point(0),
            link,
            direction: None,
            original_len: original.max(bytes.len() as u32),
            segment,
            bytes: &bytes,
        };
        let mut events = Vec::new();
        Peeler::default().peel(&record, &mut events);
        prop_assert!(!events.is_empty());
        let mut auditor = Auditor::new(Options::default());
        for event in &events {
            auditor.see(event);
        }
        auditor.finish(Vec::new());
    }
}
