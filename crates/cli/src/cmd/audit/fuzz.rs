//! Every form of output on any bytes: kept captures and what chance makes of them, as summary,
//! tables, JSON, frames, ladder, page and decoded. Nothing may panic or steer the terminal, and a
//! page has no script but ours. Readers and judges have targets of their own in the crate `audit`;
//! the settings are theirs: `CROCEVIA_FUZZ_SECONDS`, `CROCEVIA_FUZZ_SEED`.

#[path = "../../../../audit/tests/fuzz/mutate.rs"]
mod mutate;

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use audit::capture::{self, Block};
use audit::peel::Peeler;
use audit::report::Report;
use audit::series::Series;
use audit::{Auditor, Options};
use mutate::Chance;

use super::decode::Decoder;
use super::filter::Filter;
use super::frames::Frames;
use super::html::{Plotted, page};
use super::ladder::{Ladder, draw};
use super::screen::Screen;
use super::summary::{self, Wish};
use super::watch::Watch;
use super::{document, explain, findings};

/// Processor time that an input may take.
const MOST_TIME: Duration = Duration::from_secs(2);
/// Bytes of an input, and of what is said of it.
const MOST_BYTES: usize = 24 << 10;
const MOST_TEXT: usize = 8 << 20;
const ALL: Wish =
    Wish { all_findings: true, qps: true, connections: true, links: true, live: false };

/// Judges a capture while somebody looks on, as the pipeline does.
fn judge(input: &[u8], watch: &mut impl Watch) -> Option<Report> {
    let mut reader = capture::open(Cursor::new(input.to_vec()), 0).ok()?;
    let (mut auditor, mut peeler) = (Auditor::new(Options::default()), Peeler::default());
    watch.begin(&mut auditor);
    let (mut block, mut events) = (Block::default(), Vec::new());
    let mut damage = None;
    loop {
        match reader.fill(&mut block) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                damage = Some(error.to_string());
                break;
            }
        }
        for record in block.records() {
            peeler.peel(&record, &mut events);
        }
        for event in events.drain(..) {
            if watch.wants(&event) {
                let remark = auditor.see(&event);
                watch.seen(&event, remark.as_ref()).expect("nobody ends it");
            }
        }
    }
    let name = "a<b>&\u{1b}[2J\u{202e}.pcap".to_owned();
    let end = audit::report::Capture { name, damage, ..reader.summary() };
    let mut report = auditor.finish(vec![end]);
    if let Some(filter) = watch.filter() {
        filter.narrow(&mut report);
    }
    Some(report)
}

/// Text that only tells.
#[track_caller]
fn plain(text: &str) {
    assert!(text.len() < MOST_TEXT, "{} bytes", text.len());
    let bad = text.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
    assert_eq!(bad, None, "in {}", &text[..text.len().min(4000)]);
}

fn filter(chance: &mut Chance) -> Option<Filter> {
    let exprs = [
        "host 10.77.1.1",
        "not qp 0x52 or frame 3..",
        "conversation 1",
        "time 0.001..0.01 and src 10.77.1.2",
    ];
    (!chance.once_in(2)).then(|| Filter::parse(exprs[chance.below(exprs.len())]).expect("a filter"))
}

/// All that can be said of a capture.
fn say(input: &[u8], chance: &mut Chance) {
    let filter = filter(chance);
    let mut plotted = Plotted { filter: filter.clone(), series: Series::default() };
    let Some(report) = judge(input, &mut plotted) else { return };
    for (width, lines) in [(60, 8), (100, 40), (160, 200)] {
        let screen = Screen::plain(width, lines);
        plain(&summary::text(&report, ALL, screen));
        let usual = Wish { all_findings: false, qps: false, connections: false, ..ALL };
        plain(&summary::text(&report, usual, screen));
    }
    let json = document::of(&report, filter.as_ref().map(Filter::text)).expect("a document");
    assert_eq!(json["clean"], findings::groups(&report).is_empty());
    plotted.series.finish();
    let page = page(&report, &plotted.series, filter.as_ref().map(Filter::text));
    plain(&page);
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("<b>").count(), page.matches("<h3>").count());
    assert!(!page.contains("NaN") && !page.contains("inf "), "a number that is none");

    let rules = explain::rules("all").expect("all");
    let mut frames = Frames::new(&rules, filter.clone(), Vec::new());
    let shown = judge(input, &mut frames).expect("the same capture");
    plain(&String::from_utf8(frames.end().expect("text")).expect("UTF-8"));
    assert_eq!(shown.totals, report.totals);

    if let Some(talk) = report.conversations.get(chance.below(report.conversations.len())) {
        let mut ladder = Ladder::new(talk, filter.clone(), [1, 200, 100_000][chance.below(3)]);
        judge(input, &mut ladder);
        for width in [60, 160] {
            plain(&draw::text(&ladder, &report, Screen::plain(width, 40)));
        }
    }
    for tree in [false, true] {
        let filter = filter.clone().filter(|filter| !filter.names_conversations());
        let mut decoder = Decoder::new(filter, tree, Vec::new());
        let mut reader = capture::open(Cursor::new(input.to_vec()), 0).expect("as before");
        let mut block = Block::default();
        while reader.fill(&mut block).unwrap_or(false) {
            block.records().try_for_each(|record| decoder.record(&record)).expect("text");
        }
        plain(&String::from_utf8(decoder.end().expect("text")).expect("UTF-8"));
    }
}

/// Changes the bytes of a file, or those of a frame in it, whose ICRC is mended.
fn change(chance: &mut Chance, file: &mut Vec<u8>, other: &[u8]) {
    if chance.once_in(2) {
        return mutate::bytes(chance, file, other);
    }
    let mut at = 24;
    let mut frames = Vec::new();
    while let Some(len) = file.get(at + 8..at + 12).and_then(<[u8]>::first_chunk) {
        let len = u32::from_le_bytes(*len) as usize;
        let Some(frame) = (at + 16).checked_add(len).and_then(|end| file.get(at + 16..end)) else {
            break;
        };
        if let Some(bth) = mutate::transport(frame) {
            frames.push((at + 16, len, bth));
        }
        at += 16 + len;
    }
    for _ in 0..=chance.below(6) {
        let Some(&(at, len, bth)) = frames.get(chance.below(frames.len())) else { return };
        let mut frame = file[at..at + len].to_vec();
        if bth + 4 < len {
            frame[bth + chance.below(len - bth - 4)] = chance.next() as u8;
        }
        mutate::mend(&mut frame);
        if frame.len() == len {
            file[at..at + len].copy_from_slice(&frame);
        }
    }
}

/// Time that this thread has run; 0 where the system does not say.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// The kept captures.
fn corpus() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for folder in ["../wire/tests/captures", "../audit/tests/corpus", "../audit/tests/captures"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in std::fs::read_dir(folder).expect("a folder of the repository").flatten() {
            if entry.path().is_file() {
                all.push((entry.path(), std::fs::read(entry.path()).expect("a file")));
            }
        }
    }
    all.retain(|(_, bytes)| bytes.len() <= MOST_BYTES);
    all.sort();
    assert!(all.len() > 60, "{} captures", all.len());
    all.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
#[allow(clippy::print_stdout, reason = "what was tried is part of a test's output")]
fn any_capture_is_told_in_every_form() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let seed = setting("CROCEVIA_FUZZ_SEED", 1);
    let until = Instant::now() + Duration::from_secs(setting("CROCEVIA_FUZZ_SECONDS", 2));
    let (corpus, mut chance, mut tries) = (corpus(), Chance::new(seed), 0_u64);
    let mut kept = corpus.iter();
    while Instant::now() < until {
        let input = kept.next().cloned().unwrap_or_else(|| {
            let mut input = corpus[chance.below(corpus.len())].clone();
            let other = chance.below(corpus.len());
            change(&mut chance, &mut input, &corpus[other]);
            input.truncate(MOST_BYTES);
            input
        });
        let start = processor_time();
        let said = catch_unwind(AssertUnwindSafe(|| say(&input, &mut chance)));
        let took = processor_time().saturating_sub(start);
        if said.is_err() || took > MOST_TIME {
            let file = std::env::temp_dir().join(format!("crocevia-fuzz-forms-{seed}-{tries}"));
            std::fs::write(&file, &input).expect("the input is written");
            panic!("forms, seed {seed}, {took:?}: the input: {}", file.display());
        }
        tries += 1;
    }
    println!("forms: seed {seed}, {tries} inputs");
    assert!(tries > 0);
}
