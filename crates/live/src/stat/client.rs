//! Asks the processes of this network namespace, all at once, and does not wait for those that do
//! not answer.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{BUSY, DENIED, DeviceStat, PREFIX, Want, text};
use crate::{rights, sys};

/// Longest answer that is taken.
const MOST_BYTES: usize = 256 << 20;
/// How long to listen to one that goes on and on.
const LONGEST: Duration = Duration::from_secs(30);
/// How often a process that takes no connection just now is tried again.
const RETRY: Duration = Duration::from_millis(5);

/// Whom to ask, and what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// Only this process.
    pub pid: Option<u32>,
    /// Only devices of this name.
    pub device: Option<String>,
    /// Also about every queue pair.
    pub qps: bool,
    /// How long to wait for a process that says nothing.
    pub patience: Duration,
}

impl Default for Query {
    /// All devices, without queue pairs, with a second of patience.
    fn default() -> Self {
        Self { pid: None, device: None, qps: false, patience: Duration::from_secs(1) }
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Those that answered, by process and device.
    pub devices: Vec<DeviceStat>,
    /// Those that did not.
    pub silent: Vec<Silent>,
}

/// A device that did not answer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Silent {
    /// The process.
    pub pid: u32,
    /// The user whose process it is.
    pub uid: u32,
    /// The device.
    pub device: String,
    /// Why not.
    pub why: Silence,
}

/// Why a device did not answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Silence {
    /// Its process is stopped.
    Stopped,
    /// Its process is there and says nothing.
    Slow,
    /// It is another user's.
    Denied,
    /// What it says is not understood: a process of another version.
    Foreign,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, uid, device, .. } = self;
        match self.why {
            Silence::Stopped => write!(f, "process {pid} ({device}) is stopped: let it go on"),
            Silence::Slow => write!(f, "process {pid} ({device}) does not answer"),
            Silence::Denied => write!(
                f,
                "process {pid} ({device}) belongs to user {uid}: it answers that user and root only"
            ),
            Silence::Foreign => write!(
                f,
                "process {pid} ({device}) answers in another way than this version understands"
            ),
        }
    }
}

/// Asks all devices that the query selects.
///
/// # Errors
/// If the system does not list its sockets (`/proc/net/unix`).
pub fn query(query: &Query) -> io::Result<Stats> {
    let mut stats = Stats::default();
    let names = names(&fs::read_to_string("/proc/self/net/unix")?);
    let own = rights::own_user();
    let selected = names.into_iter().filter(|name| {
        // Others' processes are of interest only to who has asked for one of them.
        (own == 0 || name.uid == own || query.pid.is_some())
            && query.device.as_ref().is_none_or(|device| *device == name.device)
    });
    let mut asked: Vec<Asked> = selected.map(Asked::new).collect();
    wait(&mut asked, query);
    for outcome in asked.into_iter().filter_map(Asked::outcome) {
        match outcome {
            Ok(stat) => stats.devices.push(stat),
            Err(silent) => stats.silent.push(silent),
        }
    }
    stats.devices.sort_by(|a, b| (a.pid, &a.device).cmp(&(b.pid, &b.device)));
    stats.silent.sort();
    Ok(stats)
}

/// What a socket's name tells.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Name {
    pub(super) pid: u32,
    pub(super) device: String,
    pub(super) uid: u32,
    pub(super) text: String,
}

/// The sockets that listen under our names, of the kernel's table.
pub(super) fn names(table: &str) -> BTreeSet<Name> {
    let listening = |line: &str| {
        let mut fields = line.split_whitespace();
        // Num RefCount Protocol Flags Type St Inode Path
        let flags = fields.nth(3)?;
        let path = fields.nth(3)?;
        (u32::from_str_radix(flags, 16).ok()? & 0x1_0000 != 0).then(|| path.to_owned())
    };
    let name = |path: String| {
        let text = path.strip_prefix('@')?;
        let mut parts = text.strip_prefix(PREFIX)?.split('/');
        let (uid, pid, device) = (parts.next()?, parts.next()?, parts.next()?);
        let (uid, pid) = (uid.parse().ok()?, pid.parse().ok()?);
        parts.next()?;
        let good = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let known = parts.next().is_none() && device.chars().all(good);
        known.then(|| Name { pid, uid, device: device.to_owned(), text: text.to_owned() })
    };
    table.lines().skip(1).filter_map(listening).filter_map(name).collect()
}

/// Somebody who is asked.
struct Asked {
    name: Name,
    state: State,
    answer: Vec<u8>,
    start: Instant,
    /// When it last said something.
    since: Instant,
}

enum State {
    /// It takes no connection just now.
    Unconnected,
    /// It has the request.
    Waiting(UnixStream),
    /// Nothing more will come.
    Ended,
    /// It is another user's.
    Denied,
    /// It is not who was asked for.
    Other,
}

/// Asks them, and takes what they say until all are done or have been silent for long.
fn wait(asked: &mut [Asked], query: &Query) {
    loop {
        let mut fds: Vec<libc::pollfd> = Vec::new();
        let mut nap = None;
        for one in asked.iter_mut() {
            one.go_on(query);
            let left = one.time_left(query.patience);
            if left.is_zero() {
                continue;
            }
            let left = match &one.state {
                State::Waiting(stream) => {
                    fds.push(sys::interest(stream.as_fd(), libc::POLLIN));
                    left
                }
                State::Unconnected => left.min(RETRY),
                State::Ended | State::Denied | State::Other => continue,
            };
            nap = Some(nap.map_or(left, |nap: Duration| nap.min(left)));
        }
        if nap.is_none() || sys::poll(&mut fds, nap).is_err() {
            return;
        }
    }
}

impl Asked {
    fn new(name: Name) -> Self {
        let now = Instant::now();
        Self { name, state: State::Unconnected, answer: Vec::new(), start: now, since: now }
    }

    /// How long to go on waiting for it.
    fn time_left(&self, patience: Duration) -> Duration {
        let in_all = LONGEST.saturating_sub(self.start.elapsed());
        patience.saturating_sub(self.since.elapsed()).min(in_all)
    }

    /// Does what can be done without waiting.
    fn go_on(&mut self, query: &Query) {
        match &mut self.state {
            State::Ended | State::Denied | State::Other => {}
            State::Unconnected => match rights::connect(&self.name.text) {
                Ok(stream) => self.state = self.ask(stream, query),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.state = State::Ended,
            },
            State::Waiting(stream) => {
                let mut bytes = [0; 64 << 10];
                match stream.read(&mut bytes) {
                    Ok(n) if n > 0 && self.answer.len() < MOST_BYTES => {
                        self.answer.extend_from_slice(&bytes[..n]);
                        self.since = Instant::now();
                    }
                    Err(e) if again(&e) => {}
                    Ok(_) | Err(_) if self.answer == format!("{BUSY}\n").as_bytes() => {
                        self.answer.clear();
                        self.since = self.start;
                        self.state = State::Unconnected;
                    }
                    Ok(_) | Err(_) => self.state = State::Ended,
                }
            }
        }
    }

    /// Names can be taken by anybody: only who may be believed is asked.
    fn ask(&mut self, stream: UnixStream, query: &Query) -> State {
        let Ok((user, process)) = rights::peer(stream.as_fd()) else { return State::Ended };
        self.name.uid = user;
        // In another namespace of processes it has another number.
        if let Some(pid) = u32::try_from(process).ok().filter(|&pid| pid != 0) {
            self.name.pid = pid;
        }
        if query.pid.is_some_and(|pid| pid != self.name.pid) {
            return State::Other;
        }
        if ![0, user].contains(&rights::own_user()) {
            return State::Denied;
        }
        let want = if query.qps { Want::Qps } else { Want::Device };
        // One that does not take it may have said why.
        let _ = rights::send(stream.as_fd(), want.line().as_bytes(), &[]);
        State::Waiting(stream)
    }

    /// What came of it; `None` if the process has gone.
    fn outcome(self) -> Option<Result<DeviceStat, Silent>> {
        let Name { pid, uid, device, .. } = self.name;
        let why = match self.state {
            State::Other => return None,
            State::Denied => Silence::Denied,
            State::Unconnected | State::Waiting(_) => match process_state(pid) {
                Some('T' | 't') => Silence::Stopped,
                Some('Z' | 'X') | None => return None,
                Some(_) => Silence::Slow,
            },
            State::Ended if self.answer == format!("{DENIED}\n").as_bytes() => Silence::Denied,
            State::Ended => match text::parse(&self.answer) {
                Ok(stat) => return Some(Ok(DeviceStat { pid, uid, ..stat })),
                Err(text::NotAnAnswer::Foreign) => Silence::Foreign,
                // The process or its device has gone meanwhile.
                Err(text::NotAnAnswer::Cut) => return None,
            },
        };
        Some(Err(Silent { pid, uid, device, why }))
    }
}

fn again(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The state of a process, as the system's letter; `None` if there is none.
fn process_state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
