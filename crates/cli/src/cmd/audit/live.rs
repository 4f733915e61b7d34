//! `--live`: interfaces listened to and judged as frames arrive. For each interface a thread takes
//! frames from the kernel and peels them (and checks ICRCs); the caller's thread puts them in the
//! order of their times and judges. Signals and keys are in `live/asked.rs`, what is shown
//! meanwhile in `live/view.rs` and `live/lines.rs`.

mod asked;
mod lines;
mod terminal;
mod view;

use std::collections::VecDeque;
use std::io::{self, IsTerminal, PipeReader, PipeWriter, stdout};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use audit::peel::Peeler;
use audit::record::{At, Direction, Link, Point, Record, Time};
use audit::report::{Capture, Report};
use audit::{Auditor, Event, Options};
use live::{Frame, FrameLink, PacketError, PacketSocket};

use super::filter::Filter;
use super::screen::harmless;
use super::watch::{Plain, Watch};
use crate::args::AuditArgs;
use crate::error::{Failure, Result};
use crate::render;

use asked::{Asked, Signals};
use lines::Lines;
pub(super) use view::View;

/// Exit code for an interface that cannot be listened to.
const EXIT_UNREADABLE: u8 = 2;
/// Batches of an interface that are on their way; the kernel keeps what comes while all are.
const BATCHES: usize = 32;
/// Of several interfaces, frames wait so long for earlier ones of another.
const HOLD: Duration = Duration::from_millis(50);
/// Events of an interface that wait, about.
const HELD: usize = 1 << 18;
/// How often the kernel is asked what it had no room for.
const COUNT: Duration = Duration::from_millis(200);
/// Looks at the result take at most one part in so many of the time.
const SHARE: u32 = 20;

/// Judges what arrives, and shows it meanwhile as fits the output.
pub(super) fn watched(args: &AuditArgs, filter: Option<Filter>) -> Result<Report> {
    if args.json {
        super::judge(args, &mut Plain { filter })
    } else if stdout().is_terminal() {
        super::judge(args, &mut View::new(args, filter))
    } else {
        super::judge(args, &mut Lines::new(filter))
    }
}

/// Judges what arrives at the interfaces until a signal, a key, the time given or their end.
///
/// # Errors
/// An interface that cannot be listened to, and what `watch` ends the audit for. One that goes down
/// later is no error: the report tells it.
pub(super) fn run(args: &AuditArgs, options: Options, watch: &mut impl Watch) -> Result<Report> {
    for (i, name) in args.live.iter().enumerate() {
        if args.live[..i].contains(name) {
            return Err(Failure::usage(format!("--live has {} twice", harmless(name))));
        }
    }
    let sockets = args.live.iter().map(|name| open(args, name)).collect::<Result<Vec<_>>>()?;
    let mut auditor = Auditor::new(options);
    watch.begin(&mut auditor);
    let signals = Signals::block().map_err(system)?;
    let keys = match watch.view() {
        Some(view) => view.start()?,
        None => {
            let names = harmless(&args.live.join(", "));
            render::note(&format!("listening on {names}; Ctrl-C ends"));
            false
        }
    };
    let (stop, stopper) = io::pipe().map_err(system)?;
    thread::scope(|scope| {
        // Closed before the threads are waited for, however this ends.
        let stopper = stopper;
        let (news, inbox) = channel();
        let (mut sources, mut workers) = (Vec::new(), Vec::new());
        for (socket, number) in sockets.into_iter().zip(0..) {
            let source = Source::new(&socket);
            let (back, empty) = sync_channel(BATCHES);
            for _ in 0..BATCHES {
                let _ = back.send(Vec::new());
            }
            sources.push(Source { back: Some(back), ..source });
            let listener = Listener {
                link: link_of(&socket),
                socket,
                number,
                peeler: Peeler::default(),
                counts: Counts::default(),
                counted: None,
            };
            let (news, stop) = (news.clone(), stop.try_clone().map_err(system)?);
            let listen = move || {
                let _tells = Death(&news);
                listener.run(&stop, &news, &empty);
            };
            workers.push(thread::Builder::new().spawn_scoped(scope, listen).map_err(system)?);
        }
        let (signals, stop) = (&signals, &stop);
        let listen = move || {
            let _tells = Death(&news);
            asked::listen(signals, keys, stop, |asked| news.send(News::Asked(asked)).is_ok());
        };
        workers.push(thread::Builder::new().spawn_scoped(scope, listen).map_err(system)?);
        let until = args.duration.map(|duration| Instant::now() + duration);
        let mut live = Live { auditor, watch, sources, started: Instant::now(), look: None };
        let went = live.go(&inbox, stopper, until);
        if let Some(view) = live.watch.view() {
            view.end();
        }
        let captures = live.captures();
        // Nobody waits for batches any more when the sources are gone.
        let Live { auditor, sources, .. } = live;
        drop(sources);
        for worker in workers {
            // What it died of has been told.
            let _ = worker.join();
        }
        went.map(|()| auditor.finish(captures))
    })
}

fn system(error: io::Error) -> Failure {
    Failure::Exit(EXIT_UNREADABLE, format!("listening failed: {error}"))
}

fn open(args: &AuditArgs, name: &str) -> Result<PacketSocket> {
    PacketSocket::open(name, args.promiscuous).map_err(|error| {
        let name = harmless(name);
        let text = match error {
            PacketError::NotPermitted => {
                let program = std::env::current_exe().unwrap_or_else(|_| "crocevia".into());
                format!(
                    "--live {name} needs the right to receive raw packets (CAP_NET_RAW): run \
                     `sudo crocevia audit --live {name}`, or give it to the program once with \
                     `sudo setcap cap_net_raw+ep {}`",
                    program.display()
                )
            }
            PacketError::Down => {
                format!("{name} is down: `ip link set {name} up` brings it up")
            }
            other => format!("{name}: {}", harmless(&other.to_string())),
        };
        Failure::Exit(EXIT_UNREADABLE, text)
    })
}

fn link_of(socket: &PacketSocket) -> Link {
    match socket.link() {
        FrameLink::Ethernet => Link::Ethernet,
        FrameLink::Ip => Link::RawIp,
    }
}

/// What the judging thread is told.
enum News {
    /// Events of an interface, in the order of its frames.
    Events(usize, Vec<Event>, Counts),
    /// An interface is listened to no more; why, if nobody asked for it.
    End(usize, Counts, Option<PacketError>),
    Asked(Asked),
    /// A thread has panicked: what it did is not done any more.
    Died,
}

/// Tells of a thread's death.
struct Death<'a>(&'a Sender<News>);

impl Drop for Death<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(News::Died);
        }
    }
}

/// What an interface has given so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    frames: u64,
    bytes: u64,
    first: Option<Time>,
    last: Option<Time>,
    dropped: u64,
}

/// Takes frames from an interface.
struct Listener {
    socket: PacketSocket,
    number: u16,
    link: Link,
    peeler: Peeler,
    counts: Counts,
    counted: Option<Instant>,
}

impl Listener {
    /// Goes on until it is told to stop, the interface ends, or nobody takes the events.
    fn run(mut self, stop: &PipeReader, news: &Sender<News>, empty: &Receiver<Vec<Event>>) {
        let number = usize::from(self.number);
        let end = loop {
            let Ok(mut batch) = empty.recv() else { return };
            let going = self.receive(Some(stop), &mut batch);
            if !batch.is_empty() && news.send(News::Events(number, batch, self.counts)).is_err() {
                return;
            }
            match going {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
        };
        let mut more = Vec::new();
        if end.is_none() {
            let _ = self.receive(None, &mut more);
        }
        self.counts.dropped = self.socket.dropped();
        let _ = news.send(News::Events(number, more, self.counts));
        let _ = news.send(News::End(number, self.counts, end));
    }

    /// Waits for frames, or without `stop` takes those that are there; whether there may be more.
    fn receive(
        &mut self,
        stop: Option<&PipeReader>,
        events: &mut Vec<Event>,
    ) -> std::result::Result<bool, PacketError> {
        let Self { socket, number, link, peeler, counts, .. } = self;
        let mut take = |frame: Frame<'_>| {
            let record = record(&frame, *number, *link, counts);
            peeler.peel(&record, events);
        };
        let going = match stop {
            Some(stop) => socket.receive(stop.as_fd(), &mut take)?,
            None => socket.rest(&mut take).map(|()| false)?,
        };
        if self.counted.is_none_or(|at| at.elapsed() >= COUNT) {
            self.counts.dropped = self.socket.dropped();
            self.counted = Some(Instant::now());
        }
        Ok(going)
    }
}

/// A frame as the auditor takes it, counted.
fn record<'a>(frame: &Frame<'a>, number: u16, link: Link, counts: &mut Counts) -> Record<'a> {
    let time = Time(frame.time_ns);
    counts.frames += 1;
    counts.bytes += frame.bytes.len() as u64;
    counts.first.get_or_insert(time);
    counts.last = Some(time);
    Record {
        at: At { time, file: number, frame: counts.frames },
        point: Point(number),
        link,
        direction: Some(if frame.outgoing { Direction::Out } else { Direction::In }),
        original_len: frame.original_len,
        segment: frame.segment,
        bytes: frame.bytes,
    }
}

/// An interface as the judging thread knows it.
struct Source {
    name: String,
    format: String,
    counts: Counts,
    damage: Option<String>,
    /// Where empty batches go back to; none once it has ended.
    back: Option<SyncSender<Vec<Event>>>,
    waiting: VecDeque<Event>,
}

impl Source {
    fn new(socket: &PacketSocket) -> Self {
        Self {
            name: socket.interface().to_owned(),
            format: format!("live, {}", link_of(socket)),
            counts: Counts::default(),
            damage: None,
            back: None,
            waiting: VecDeque::new(),
        }
    }

    fn capture(&self) -> Capture {
        Capture {
            name: self.name.clone(),
            format: self.format.clone(),
            records: self.counts.frames,
            bytes: self.counts.bytes,
            first: self.counts.first,
            last: self.counts.last,
            dropped: Some(self.counts.dropped),
            damage: self.damage.clone(),
        }
    }
}

/// The judging thread.
struct Live<'a, W> {
    auditor: Auditor,
    watch: &'a mut W,
    sources: Vec<Source>,
    started: Instant,
    /// When the result is to be looked at next.
    look: Option<Instant>,
}

impl<W: Watch> Live<'_, W> {
    /// Judges until all interfaces have ended, which `stopper` closed makes them do.
    fn go(
        &mut self,
        news: &Receiver<News>,
        stopper: PipeWriter,
        mut until: Option<Instant>,
    ) -> Result<()> {
        let mut stopper = Some(stopper);
        self.look = self.watch.view().map(|_| Instant::now());
        while self.sources.iter().any(|source| source.back.is_some()) {
            if until.is_some_and(|until| until <= Instant::now()) {
                (stopper, until) = (None, None);
            }
            let held = self.sources.iter().any(|source| !source.waiting.is_empty());
            let flush = held.then(|| Instant::now() + HOLD);
            match next(news, [until, self.look, flush].into_iter().flatten().min())? {
                Some(News::Asked(Asked::End)) => stopper = None,
                Some(News::Asked(Asked::Suspend)) => self.suspend()?,
                Some(News::Asked(Asked::Redraw)) => self.look = self.look.map(|_| Instant::now()),
                Some(News::Events(number, events, counts)) => self.keep(number, events, counts),
                Some(News::End(number, counts, why)) => {
                    let Some(source) = self.sources.get_mut(number) else { continue };
                    (source.counts, source.back) = (counts, None);
                    source.damage = why.map(|why| why.to_string());
                }
                Some(News::Died) => return Err(lost()),
                None => {}
            }
            self.judge(self.due())?;
            self.watch.so_far()?;
            self.show()?;
        }
        drop(stopper);
        self.judge(u64::MAX)?;
        self.watch.so_far()
    }

    /// Up to when events can be judged.
    fn due(&self) -> u64 {
        // A clock that was set back lets nobody wait for its old time: it costs order, not memory.
        let many = self.sources.iter().any(|source| source.waiting.len() > HELD);
        if self.sources.len() == 1 || many { u64::MAX } else { settled() }
    }

    fn keep(&mut self, number: usize, mut events: Vec<Event>, counts: Counts) {
        let Some(source) = self.sources.get_mut(number) else { return };
        source.counts = counts;
        source.waiting.extend(events.drain(..));
        if let Some(back) = &source.back {
            let _ = back.try_send(events);
        }
    }

    /// Judges what was captured up to a time, in the order of times.
    fn judge(&mut self, until: u64) -> Result<()> {
        loop {
            let times = self
                .sources
                .iter_mut()
                .enumerate()
                .filter_map(|(i, source)| Some((source.waiting.front()?.at.time.0, i)));
            let Some((_, first)) = times.min().filter(|(time, _)| *time <= until) else {
                return Ok(());
            };
            let Some(event) = self.sources[first].waiting.pop_front() else { return Ok(()) };
            if self.watch.wants(&event) {
                let remark = self.auditor.see(&event);
                self.watch.seen(&event, remark.as_ref())?;
            }
        }
    }

    /// Shows the result so far if it is time.
    fn show(&mut self) -> Result<()> {
        let start = Instant::now();
        if self.look.is_none_or(|look| look > start) {
            return Ok(());
        }
        let report = self.auditor.report(self.captures());
        if let Some(view) = self.watch.view() {
            view.look(report, self.started.elapsed())?;
        }
        self.look = Some(start + view::EVERY.max(start.elapsed() * SHARE));
        Ok(())
    }

    /// Stops the process until it is continued.
    fn suspend(&mut self) -> Result<()> {
        if let Some(view) = self.watch.view() {
            view.end();
        }
        asked::stop_process();
        if let Some(view) = self.watch.view() {
            view.start()?;
            self.look = Some(Instant::now());
        }
        Ok(())
    }

    fn captures(&self) -> Vec<Capture> {
        self.sources.iter().map(Source::capture).collect()
    }
}

/// The next news, or nothing when it is time for something else.
fn next(news: &Receiver<News>, wake: Option<Instant>) -> Result<Option<News>> {
    let Some(wake) = wake else { return news.recv().map(Some).map_err(|_| lost()) };
    match news.recv_timeout(wake.saturating_duration_since(Instant::now())) {
        Ok(news) => Ok(Some(news)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(lost()),
    }
}

fn lost() -> Failure {
    let why = "the audit's own listener has ended; nothing can be said";
    Failure::Exit(EXIT_UNREADABLE, why.to_owned())
}

/// Up to when frames of all interfaces have arrived, nanoseconds since 1970.
fn settled() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.saturating_sub(HOLD).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An audit of one interface that has not ended.
    fn live(watch: &mut Plain) -> Live<'_, Plain> {
        let (auditor, started) = (Auditor::new(Options::default()), Instant::now());
        Live { auditor, watch, sources: vec![empty()], started, look: None }
    }

    fn empty() -> Source {
        let (back, _) = sync_channel(1);
        Source {
            name: "lo".into(),
            format: "live".into(),
            counts: Counts::default(),
            damage: None,
            back: Some(back),
            waiting: VecDeque::new(),
        }
    }

    #[test]
    fn a_listener_that_dies_ends_the_audit() {
        let (news, inbox) = channel();
        let (_stop, stopper) = io::pipe().expect("a pipe");
        let listener = thread::spawn({
            let news = news.clone();
            move || {
                let _tells = Death(&news);
                panic!("as the test wants");
            }
        });
        assert!(listener.join().is_err());
        let mut plain = Plain { filter: None };
        let went = live(&mut plain).go(&inbox, stopper, None);
        assert!(
            matches!(&went, Err(Failure::Exit(2, why)) if why.contains("has ended")),
            "{went:?}"
        );
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nothing_up() {
        let mut plain = Plain { filter: None };
        let mut live = live(&mut plain);
        assert_eq!(live.due(), u64::MAX, "one interface waits for nobody");
        live.sources.push(empty());
        let (now, later) = (settled(), SystemTime::now() + Duration::from_secs(3600));
        assert!((now..now + 60_000_000_000).contains(&live.due()));
        let ns = later.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let event = Event {
            at: At { time: Time(ns), file: 1, frame: 1 },
            part: 0,
            point: Point(1),
            direction: None,
            len: 60,
            macs: None,
            tag: None,
            tunnels: 0,
            what: audit::What::Other,
        };
        live.keep(1, vec![event; HELD + 1], Counts::default());
        live.judge(live.due()).expect("judged");
        assert!(live.sources[1].waiting.is_empty());
    }

    #[test]
    fn nobody_waits_for_threads_that_are_gone() {
        for until in [None, Some(Instant::now() + Duration::from_secs(60))] {
            let (news, inbox) = channel();
            drop(news);
            let (_stop, stopper) = io::pipe().expect("a pipe");
            let mut plain = Plain { filter: None };
            assert!(live(&mut plain).go(&inbox, stopper, until).is_err());
        }
    }
}
