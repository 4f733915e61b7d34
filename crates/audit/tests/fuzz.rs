//! Fuzzing in the tree, on stable Rust: kept inputs and what chance makes of them go through
//! reader, peeler, auditor, series and report. Nothing may panic, take long, or much memory.
//!
//! Plain `cargo test` gives each target two seconds; `CROCEVIA_FUZZ_SECONDS` gives another time,
//! `CROCEVIA_FUZZ_SEED` another seed. What fails is written to a file whose name is told, and found
//! again by putting that file into `tests/corpus/TARGET`. `CROCEVIA_FUZZ_KEEP=1` puts inputs with
//! behaviour that no input before them had there.

#[path = "fuzz/mutate.rs"]
mod mutate;

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use audit::capture::{self, Block, Reader};
use audit::peel::Peeler;
use audit::record::Link;
use audit::report::Capture;
use audit::series::Series;
use audit::{At, Auditor, Event, Options, Point, Record, Report, Time};
use mutate::{Chance, mend, transport};

/// Processor time that an input may take, and memory that all of them may.
const MOST_TIME: Duration = Duration::from_secs(1);
const MOST_MEMORY: u64 = 700 << 20;
/// Bytes that an input may grow to.
const MOST_BYTES: usize = 96 << 10;
/// Inputs that are remembered for having done something new.
const MOST_KEPT: usize = 4000;
/// Blocks of a capture that are judged: more is the same again.
const MOST_BLOCKS: usize = 64;

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn folder(path: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.retain(|file| file.is_file() && file.extension().is_none_or(|e| e != "md" && e != "py"));
    files.iter().map(|file| fs::read(file).expect("a file")).collect()
}

/// The captures of a real peer, short ones.
fn captures() -> Vec<Vec<u8>> {
    let mut all = folder(&tests().join("../../wire/tests/captures"));
    all.retain(|bytes| bytes.len() < 24 << 10);
    assert!(all.len() > 60, "{} captures", all.len());
    all
}

/// The frames of a capture in the oldest format.
fn frames(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::open(file, 0).expect("a capture");
    let (mut block, mut frames) = (Block::default(), Vec::new());
    while reader.fill(&mut block).unwrap_or(false) {
        frames.extend(block.records().map(|record| (record.at.time.0, record.bytes.to_vec())));
    }
    frames
}

/// All that is done with events; what came of it as a number.
struct Judged {
    auditor: Auditor,
    series: Series,
    peeler: Peeler,
    events: Vec<Event>,
}

impl Judged {
    fn new() -> Self {
        let options = Options { expect_ecn: true, ..Options::default() };
        let (auditor, series) = (Auditor::new(options), Series::default());
        Self { auditor, series, peeler: Peeler::default(), events: Vec::new() }
    }

    fn take(&mut self, record: &Record<'_>) {
        self.peeler.peel(record, &mut self.events);
        for event in self.events.drain(..) {
            let remark = self.auditor.see(&event);
            self.series.see(&event, remark.as_ref());
        }
    }

    fn end(mut self, captures: Vec<Capture>) -> u64 {
        self.series.finish();
        let report = self.auditor.finish(captures);
        let text = serde_json::to_string(&report).expect("a report is JSON");
        assert!(text.len() < 64 << 20, "the report has {} bytes", text.len());
        let _ = format!("{:?}", self.series);
        signature(&report)
    }
}

/// What an input did, coarsely: which rules, which totals are not 0.
fn signature(report: &Report) -> u64 {
    let mut hasher = DefaultHasher::new();
    let rules: BTreeSet<_> = report.findings.iter().map(|finding| finding.rule).collect();
    rules.hash(&mut hasher);
    let t = &report.totals;
    let counts = [
        t.packets,
        t.icrc_right,
        t.icrc_wrong,
        t.icrc_untold,
        t.trains,
        t.refused,
        t.damaged,
        t.cnp,
        t.ce,
        t.pauses,
        t.lldp,
        t.other,
        t.unread,
    ];
    counts.map(|count| count > 0).hash(&mut hasher);
    report.conversations.len().min(4).hash(&mut hasher);
    let states = report.connections.iter().map(|c| c.state.split([' ', ':']).next());
    states.collect::<BTreeSet<_>>().hash(&mut hasher);
    for capture in &report.captures {
        let damage = capture
            .damage
            .as_deref()
            .map(|text| text.chars().filter(|c| c.is_alphabetic()).collect::<String>());
        (&capture.format, damage).hash(&mut hasher);
    }
    hasher.finish()
}

/// A file as it is.
fn read_file(input: &[u8]) -> u64 {
    let mut judged = Judged::new();
    let mut reader = match capture::open(Cursor::new(input.to_vec()), 0) {
        Ok(reader) => reader,
        Err(damage) => {
            let mut hasher = DefaultHasher::new();
            assert!(!damage.to_string().is_empty());
            damage.field.hash(&mut hasher);
            return hasher.finish();
        }
    };
    let (mut block, mut damage) = (Block::default(), None);
    for _ in 0..MOST_BLOCKS {
        match reader.fill(&mut block) {
            Ok(true) => block.records().for_each(|record| judged.take(&record)),
            Ok(false) => break,
            Err(error) => {
                damage = Some(error.to_string());
                break;
            }
        }
    }
    judged.end(vec![Capture { damage, ..reader.summary() }])
}

/// A frame behind the number of its link, what was cut, and a segment's length.
fn peel_frame(input: &[u8]) -> u64 {
    let [link, cut, segment, bytes @ ..] = input else { return 0 };
    let links = [Link::Ethernet, Link::RawIp, Link::Cooked, Link::Cooked2, Link::Erf];
    let link = *links.get(usize::from(*link) % 6).unwrap_or(&Link::Infiniband);
    let mut judged = Judged::new();
    for frame in 1..3 {
        judged.take(&Record {
            at: At { time: Time(frame * 1000), file: 0, frame },
            point: Point(0),
            link,
            direction: None,
            original_len: bytes.len() as u32 + u32::from(*cut),
            segment: (*segment > 0).then_some(u16::from(*segment) * 16),
            bytes,
        });
    }
    judged.end(Vec::new())
}

/// Ethernet frames, each behind its length and the microseconds since the one before.
fn judge_frames(input: &[u8]) -> u64 {
    let mut judged = Judged::new();
    let (mut rest, mut time, mut frame) = (input, 1_000_000_000_u64, 0);
    while let Some((&[l0, l1, t0, t1, t2, point], behind)) = rest.split_first_chunk::<6>() {
        let len = usize::from(u16::from_le_bytes([l0, l1])).min(behind.len());
        let (bytes, next) = behind.split_at(len);
        let us = u64::from(u32::from_le_bytes([t0, t1, t2, 0]));
        // Clocks may go back.
        time = if us == 0xFF_FFFF { time / 2 } else { time + us * 1000 };
        frame += 1;
        judged.take(&Record {
            at: At { time: Time(time), file: 0, frame },
            point: Point(u16::from(point)),
            link: Link::Ethernet,
            direction: None,
            original_len: len as u32,
            segment: None,
            bytes,
        });
        rest = next;
    }
    judged.end(Vec::new())
}

/// Frames in the form that `judge_frames` reads.
fn packed(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut last = frames.first().map_or(0, |(time, _)| *time);
    for (time, bytes) in frames.iter().filter(|(_, bytes)| bytes.len() < 1 << 16) {
        packed.extend((bytes.len() as u16).to_le_bytes());
        let us = time.saturating_sub(last) / 1000;
        packed.extend(&(us.min(0xFF_FFFE) as u32).to_le_bytes()[..3]);
        packed.push(0);
        packed.extend(bytes);
        last = *time;
    }
    packed
}

fn unpacked(mut rest: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<6>() {
        let len = usize::from(u16::from_le_bytes([head[0], head[1]])).min(behind.len());
        frames.push((head.to_vec(), behind[..len].to_vec()));
        rest = &behind[len..];
    }
    frames
}

/// Changes whole frames and fields of the transport behind which the ICRC is mended.
fn change_frames(chance: &mut Chance, input: &mut Vec<u8>, other: &[u8]) {
    let mut frames = unpacked(input);
    let others = unpacked(other);
    for _ in 0..=chance.below(8) {
        if frames.is_empty() {
            break;
        }
        let at = chance.below(frames.len());
        match chance.below(8) {
            0 => drop(frames.remove(at)),
            1 => frames.insert(at, frames[chance.below(frames.len())].clone()),
            2 => frames.swap(at, at.saturating_sub(1)),
            3 if !others.is_empty() => {
                frames.insert(at, others[chance.below(others.len())].clone())
            }
            4 => frames[at].0[2 + chance.below(4)] = chance.next() as u8,
            _ => change_transport(chance, &mut frames[at].1),
        }
    }
    input.clear();
    for (mut head, bytes) in frames {
        head[..2].copy_from_slice(&(bytes.len().min(0xFFFF) as u16).to_le_bytes());
        input.extend(head);
        input.extend(&bytes[..bytes.len().min(0xFFFF)]);
    }
}

fn change_transport(chance: &mut Chance, frame: &mut Vec<u8>) {
    let Some(bth) = transport(frame) else { return };
    let end = frame.len();
    match chance.below(8) {
        // Opcode; PSN near; fields of BTH and what follows; a datagram's content; length; class.
        0 => frame[bth] = [0x00, 0x20, 0x60, 0x80][chance.below(4)] | chance.below(0x1B) as u8,
        1 => frame[bth + 11] = frame[bth + 11].wrapping_add(chance.below(5) as u8).wrapping_sub(2),
        2 => frame[bth + chance.below(12)] = chance.next() as u8,
        3 | 4 => frame[bth + 12 + chance.below(end - bth - 12)] = chance.next() as u8,
        5 => {
            let mut payload = frame.split_off((bth + 12).min(end - 4));
            mutate::bytes(chance, &mut payload, &frame[bth..]);
            payload.resize(payload.len().clamp(4, 9000).next_multiple_of(4), 0);
            frame.extend(payload);
        }
        6 => frame[15] = chance.next() as u8,
        _ => frame[bth + 8] ^= 0x80,
    }
    mend(frame);
}

/// A target: how inputs are tried, and changed.
struct Target {
    name: &'static str,
    run: fn(&[u8]) -> u64,
    change: fn(&mut Chance, &mut Vec<u8>, &[u8]),
    corpus: Vec<Vec<u8>>,
}

impl Target {
    fn setting(name: &str, default: u64) -> u64 {
        env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    #[allow(clippy::print_stdout, reason = "what was tried is part of a test's output")]
    fn fuzz(mut self) {
        let kept = tests().join("corpus").join(self.name);
        self.corpus.extend(folder(&kept));
        let seed = Self::setting("CROCEVIA_FUZZ_SEED", 1);
        let until = Instant::now() + Duration::from_secs(Self::setting("CROCEVIA_FUZZ_SECONDS", 2));
        let keep = env::var("CROCEVIA_FUZZ_KEEP").is_ok();
        let mut seen = HashSet::new();
        for input in &self.corpus {
            seen.insert(self.tried(input, seed));
        }
        let (first, mut tries) = (seen.len(), 0_u64);
        let mut chance = Chance::new(seed);
        while Instant::now() < until {
            let newest = self.corpus.len().min(32);
            let from = match chance.below(2) {
                0 => self.corpus.len() - 1 - chance.below(newest),
                _ => chance.below(self.corpus.len()),
            };
            let mut input = self.corpus[from].clone();
            let other = chance.below(self.corpus.len());
            (self.change)(&mut chance, &mut input, &self.corpus[other]);
            input.truncate(MOST_BYTES);
            tries += 1;
            if seen.insert(self.tried(&input, seed)) {
                if keep && input.len() < 4096 {
                    fs::create_dir_all(&kept).expect("a folder for what is kept");
                    let name = format!("{:016x}", hash(&input));
                    fs::write(kept.join(name), &input).expect("it is written");
                }
                if self.corpus.len() < MOST_KEPT {
                    self.corpus.push(input);
                }
            }
        }
        let memory = peak_memory();
        println!(
            "{}: seed {seed}, {tries} inputs, {first} behaviours of the corpus, {} in all, {} MB",
            self.name,
            seen.len(),
            memory >> 20
        );
        assert!(memory < MOST_MEMORY, "{} MB", memory >> 20);
    }

    /// Tries an input; what fails goes to a file.
    fn tried(&self, input: &[u8], seed: u64) -> u64 {
        let start = processor_time();
        let result = catch_unwind(AssertUnwindSafe(|| (self.run)(input)));
        let took = processor_time().saturating_sub(start);
        let fault = match &result {
            Ok(_) if took < MOST_TIME => return result.unwrap_or(0),
            Ok(_) => format!("it took {took:?}"),
            Err(_) => "it panicked".to_owned(),
        };
        let file = env::temp_dir().join(format!("crocevia-fuzz-{}-{:x}", self.name, hash(input)));
        fs::write(&file, input).expect("the input is written");
        panic!("{}, seed {seed}: {fault}; the input: {}", self.name, file.display());
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Time that this thread has run; 0 where the system does not say.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// The most memory that this process has had; 0 where the system does not say.
fn peak_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kb.unwrap_or(0) << 10
}

#[test]
fn files() {
    let mut corpus = captures();
    corpus.extend(folder(&tests().join("corpus")));
    Target { name: "files", run: read_file, change: mutate::bytes, corpus }.fuzz();
}

#[test]
fn peel() {
    let frames = captures().into_iter().flat_map(|file| frames(&file).into_iter().take(3));
    let mut corpus: Vec<_> = frames.map(|(_, bytes)| [&[0, 0, 0], &bytes[..]].concat()).collect();
    // Of the other links: the frames of kept files behind the numbers of all links.
    for file in folder(&tests().join("corpus")) {
        let Ok(mut reader) = capture::open(Cursor::new(file), 0) else { continue };
        let mut block = Block::default();
        if reader.fill(&mut block).unwrap_or(false) {
            for (record, link) in block.records().take(6).zip((0..6).cycle()) {
                corpus.push([&[link, 0, 0], record.bytes].concat());
            }
        }
    }
    Target { name: "peel", run: peel_frame, change: mutate::bytes, corpus }.fuzz();
}

#[test]
fn datagrams() {
    let handshakes = captures().into_iter().flat_map(|file| frames(&file));
    let mut corpus: Vec<_> = handshakes
        .filter(|(_, bytes)| transport(bytes).is_some_and(|bth| bytes[bth] == 0x64))
        .map(|frame| packed(&[frame]))
        .collect();
    corpus.truncate(40);
    let tlvs = [
        &[0x02, 0x07, 0x04, 2, 0, 0, 0, 0, 1, 0x04, 0x05, 5, b'e', b't', b'h', b'1'][..],
        &[0x06, 0x02, 0, 120, 0x0A, 0x05, b'n', b'o', b'd', b'e', b'1'],
        &[0xFE, 0x06, 0x00, 0x80, 0xC2, 11, 0x88, 0x08],
        &[0xFE, 0x19, 0x00, 0x80, 0xC2, 9, 0, 0, 1, 0, 0, 50, 50, 0, 0, 0, 0, 0, 0],
        &[2, 2, 0, 0, 0, 0, 0, 0, 0xFE, 0x08, 0x00, 0x80, 0xC2, 12, 0, 0x63, 0x12, 0xB7],
        &[0xFE, 0x14, 0x00, 0x1B, 0x21, 2, 0x02, 0x08, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
        &[0x06, 0x06, 0, 0, 0x80, 0, 8, 8, 0, 0],
    ];
    let mut agents = Vec::new();
    for (time, mac) in [(0, 1), (2_000_000, 9), (40_000_000, 1), (42_000_000, 9)] {
        let mut frame = vec![0x01, 0x80, 0xC2, 0, 0, 0x0E, 2, 0, 0, 0, 0, mac, 0x88, 0xCC];
        frame.extend(tlvs.concat());
        agents.push((time, frame));
    }
    corpus.push(packed(&agents));
    let change = |chance: &mut Chance, input: &mut Vec<u8>, other: &[u8]| {
        if input.get(18..20) == Some(&[0x88, 0xCC]) {
            let mut frames = unpacked(input);
            for (head, bytes) in &mut frames {
                let mut body = bytes.split_off(14.min(bytes.len()));
                mutate::bytes(chance, &mut body, other);
                bytes.extend(body);
                bytes.truncate(2000);
                head[..2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
            }
            *input = frames.into_iter().flat_map(|(head, bytes)| [head, bytes].concat()).collect();
        } else {
            change_frames(chance, input, other);
        }
    };
    Target { name: "datagrams", run: judge_frames, change, corpus }.fuzz();
}

#[test]
fn conversations() {
    let corpus = captures().iter().map(|file| packed(&frames(file))).collect();
    Target { name: "conversations", run: judge_frames, change: change_frames, corpus }.fuzz();
}

#[test]
fn a_mended_frame_is_right() {
    for file in captures().iter().take(20) {
        for (_, mut bytes) in frames(file) {
            let Some(bth) = transport(&bytes) else { continue };
            bytes[bth + 11] ^= 0x55;
            mend(&mut bytes);
            let read = wire::frame::parse_frame(&bytes).expect("a frame");
            let wire::frame::Body::Roce(roce) = read.body else { panic!("no RoCE") };
            assert!(roce.icrc.is_right());
        }
    }
}
