//! Captures read, peeled and judged on threads of their own: for each file one reads ahead and one
//! peels (and checks ICRCs); the caller's thread merges the files by time and judges. Blocks and
//! batches are used again and again; there are only so many, so that nobody runs away. The result
//! does not depend on who is faster.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use audit::capture::{self, Block, Damage, Input, Reader};
use audit::peel::Peeler;
use audit::report::Capture;
use audit::{Auditor, Event, Options, Point, Report};
use indicatif::ProgressBar;

use super::progress;
use super::screen::harmless;
use super::watch::Watch;
use crate::error::{Failure, Result};

/// Exit code for a file that cannot be read.
const EXIT_UNREADABLE: u8 = 2;
/// Blocks of a file that are on their way, at most and at least.
const BLOCKS: [usize; 2] = [4, 2];
/// Bytes of all blocks of all files, about.
const AHEAD: usize = 16 << 20;
/// Batches of a file that are on their way, at most and at least, and events that a batch has, but
/// for a last train.
const BATCHES: [usize; 2] = [8, 2];
const BATCH: usize = 512;
/// Files at once: each has two threads.
const FILES: usize = 128;

/// Audits files, several of them merged by time, while somebody looks on.
///
/// # Errors
/// A file that cannot be opened or is no capture, and what `watch` ends the audit for. A file that
/// is damaged further on is no error: the report tells it.
pub(super) fn run(files: &[PathBuf], options: Options, watch: &mut impl Watch) -> Result<Report> {
    let mut auditor = Auditor::new(options);
    watch.begin(&mut auditor);
    if files.len() > FILES {
        let many = files.len();
        let why = format!("{many} captures at once, at most {FILES}; join some with mergecap");
        return Err(Failure::usage(why));
    }
    let bar = if watch.streams() { ProgressBar::hidden() } else { progress::bar(files) };
    let open = |(path, file): (&PathBuf, u16)| open(path, file, &bar);
    let readers = files.iter().zip(0..).map(open).collect::<Result<Vec<_>>>()?;
    let sources = readers.into_iter().map(|reader| Source::begin(reader, files.len()));
    let ends = judge(&mut sources.collect::<Result<Vec<_>>>()?, &mut auditor, watch);
    bar.finish_and_clear();
    let captures = files.iter().zip(ends?).map(|(path, end)| Capture { name: name(path), ..end });
    Ok(auditor.finish(captures.collect()))
}

/// Judges the events of all sources in the order of their times; gives what the sources were.
fn judge(
    sources: &mut [Source],
    auditor: &mut Auditor,
    watch: &mut impl Watch,
) -> Result<Vec<Capture>> {
    for source in &mut *sources {
        source.advance();
    }
    let mut points = 0;
    let mut see = |event: &mut Event, seen: &mut Vec<Option<Point>>| {
        if !watch.wants(event) {
            return Ok(());
        }
        event.point = global(event.point, seen, &mut points);
        let remark = auditor.see(event);
        watch.seen(event, remark.as_ref())
    };
    while let Some((source, until)) = next(sources) {
        source.run(until, &mut see)?;
    }
    sources.iter_mut().map(Source::ended).collect()
}

/// Opens a capture; `-` is standard input. What is read of a file moves `bar`.
///
/// # Errors
/// It cannot be opened, or is none.
pub(super) fn open(path: &Path, file: u16, bar: &ProgressBar) -> Result<Reader<Input>> {
    let shown = harmless(&name(path));
    let unreadable = |why: String| Failure::Exit(EXIT_UNREADABLE, format!("{shown}: {why}"));
    let reader = if path == Path::new("-") {
        capture::open(io::stdin(), file)
    } else {
        let input = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        capture::open(progress::read(input, bar), file)
    };
    reader.map_err(|damage| unreadable(damage.to_string()))
}

/// A capture's name as it is shown.
pub(super) fn name(path: &Path) -> String {
    match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    }
}

/// The number of a point over all files, in the order of first sight.
fn global(local: Point, seen: &mut Vec<Option<Point>>, points: &mut u16) -> Point {
    let at = usize::from(local.0);
    if seen.len() <= at {
        seen.resize(at + 1, None);
    }
    *seen[at].get_or_insert_with(|| {
        let point = Point(*points);
        *points = points.saturating_add(1);
        point
    })
}

/// One end of a pair of channels: what is full goes one way, and comes back empty.
struct Giver<T, E> {
    full: SyncSender<std::result::Result<T, E>>,
    empty: Receiver<T>,
}

struct Taker<T, E> {
    full: Receiver<std::result::Result<T, E>>,
    empty: SyncSender<T>,
}

fn channel<T: Default, E>(many: usize) -> (Giver<T, E>, Taker<T, E>) {
    let (full, taken) = sync_channel(many + 1);
    let (back, empty) = sync_channel(many);
    for _ in 0..many {
        let _ = back.send(T::default());
    }
    (Giver { full, empty }, Taker { full: taken, empty: back })
}

/// Reads a file to its end, or until nobody takes its blocks any more.
fn read(mut reader: Reader<Input>, blocks: &Giver<Block, Capture>) {
    let mut damage: Option<Damage> = None;
    while let Ok(mut block) = blocks.empty.recv() {
        match reader.fill(&mut block) {
            Ok(true) => {
                if blocks.full.send(Ok(block)).is_err() {
                    return;
                }
                continue;
            }
            Ok(false) => {}
            Err(error) => damage = Some(error),
        }
        let damage = damage.map(|damage| damage.to_string());
        let _ = blocks.full.send(Err(Capture { damage, ..reader.summary() }));
        return;
    }
}

/// Peels a file's blocks in their order.
fn peel(blocks: &Taker<Block, Capture>, batches: &Giver<Vec<Event>, Capture>) {
    let mut peeler = Peeler::default();
    while let Ok(block) = blocks.full.recv() {
        let block = match block {
            Ok(block) => block,
            Err(end) => {
                let _ = batches.full.send(Err(end));
                return;
            }
        };
        let mut records = block.records().peekable();
        while records.peek().is_some() {
            let Ok(mut batch) = batches.empty.recv() else { return };
            batch.clear();
            while batch.len() < BATCH {
                let Some(record) = records.next() else { break };
                peeler.peel(&record, &mut batch);
            }
            if batches.full.send(Ok(batch)).is_err() {
                return;
            }
        }
        drop(records);
        let _ = blocks.empty.send(block);
    }
}

/// The events of a file.
struct Source {
    batches: Taker<Vec<Event>, Capture>,
    batch: Vec<Event>,
    at: usize,
    points: Vec<Option<Point>>,
    /// What the file was, once it has ended; nothing if its threads ended before.
    end: Option<Option<Capture>>,
}

impl Source {
    /// Begins to read and to peel a file, one of so many. The threads end with the file, or when
    /// nobody takes what they give; nobody waits for them, since one may wait for a pipe.
    ///
    /// # Errors
    /// The system lets nobody start a thread.
    fn begin(mut reader: Reader<Input>, files: usize) -> Result<Self> {
        let share = |[most, least]: [usize; 2]| (most * 4 / (files + 3)).max(least);
        reader.set_ahead(AHEAD / share(BLOCKS) / files);
        let (blocks, peel_blocks) = channel::<Block, Capture>(share(BLOCKS));
        let (batches, judge_batches) = channel::<Vec<Event>, Capture>(share(BATCHES));
        let refused = |error| {
            Failure::Exit(
                EXIT_UNREADABLE,
                format!("the system gives no thread to read by: {error}"),
            )
        };
        let begin = || thread::Builder::new();
        begin().spawn(move || read(reader, &blocks)).map_err(refused)?;
        begin().spawn(move || peel(&peel_blocks, &batches)).map_err(refused)?;
        let (batch, points) = (Vec::new(), Vec::new());
        Ok(Self { batches: judge_batches, batch, at: 0, points, end: None })
    }

    /// What the file was.
    fn ended(&mut self) -> Result<Capture> {
        let why = "the audit's own reader has ended; nothing can be said";
        self.end.take().flatten().ok_or_else(|| Failure::Exit(EXIT_UNREADABLE, why.to_owned()))
    }

    /// Goes on to the next batch that has something.
    fn advance(&mut self) {
        while self.at == self.batch.len() && self.end.is_none() {
            match self.batches.full.recv() {
                Ok(Ok(batch)) => {
                    let done = std::mem::replace(&mut self.batch, batch);
                    self.at = 0;
                    let _ = self.batches.empty.try_send(done);
                }
                Ok(Err(end)) => self.end = Some(Some(end)),
                Err(_) => self.end = Some(None),
            }
        }
    }

    /// The time of the next event.
    fn time(&self) -> Option<u64> {
        self.batch.get(self.at).map(|event| event.at.time.0)
    }

    /// Judges the next event and those behind it up to a time.
    fn run(
        &mut self,
        until: u64,
        judge: &mut impl FnMut(&mut Event, &mut Vec<Option<Point>>) -> Result<()>,
    ) -> Result<()> {
        loop {
            for event in &mut self.batch[self.at..] {
                if event.at.time.0 > until {
                    return Ok(());
                }
                judge(event, &mut self.points)?;
                self.at += 1;
            }
            self.advance();
            if self.at == self.batch.len() {
                return Ok(());
            }
        }
    }
}

/// The source whose next event is the earliest (the first of them), and until when it stays so.
fn next(sources: &mut [Source]) -> Option<(&mut Source, u64)> {
    let times = || sources.iter().enumerate().filter_map(|(i, s)| Some((s.time()?, i)));
    let (_, first) = times().min()?;
    let until = times().filter(|(_, i)| *i != first).min().map_or(u64::MAX, |(time, other)| {
        // Of two at the same time, the earlier file's goes first.
        if other < first { time.saturating_sub(1) } else { time }
    });
    Some((&mut sources[first], until))
}
