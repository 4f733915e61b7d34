//! Answers, in each process with an open NIC: one thread for all of its NICs, which sleeps until
//! somebody asks. Whoever asks can cost it a little memory for a bounded time, and nothing else.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{BUSY, DENIED, LONGEST_REQUEST, PREFIX, Want, Watched, text};
use crate::eventfd::EventFd;
use crate::process::{Held, PerProcess};
use crate::{rights, sys};

/// Askers answered at once; more are turned away.
const MOST_ASKERS: usize = 16;
/// Connections taken in one turn.
const MOST_ACCEPTED: usize = 16;
/// How long to wait for a request, or for an asker to take more of its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long not to look at a socket for which there is no descriptor.
const RETRY: Duration = Duration::from_millis(100);
/// NICs of one device name that a process can have open.
const MOST_NAMES: u32 = 64;
/// Bytes of an answer that wait to be taken, before more are made.
const ENOUGH: usize = 32 << 10;
const STACK: usize = 256 << 10;

/// The NICs of this process that can be asked about, and the thread that answers.
#[derive(Default)]
struct Server {
    open: Vec<Arc<Entry>>,
    /// Wakes the thread, while there is one.
    bell: Option<Arc<EventFd>>,
}

struct Entry {
    id: u64,
    listener: Held<UnixListener>,
    nic: Weak<dyn Watched>,
}

static SERVER: PerProcess<Mutex<Server>> = PerProcess::new();
static IDS: AtomicU64 = AtomicU64::new(0);

fn server() -> MutexGuard<'static, Server> {
    SERVER.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A NIC can be asked about for as long as this lives.
pub(crate) struct Guard {
    id: u64,
    generation: u32,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.generation != sys::fork_generation() {
            return;
        }
        let mut server = server();
        let gone: Vec<_> = server.open.extract_if(.., |entry| entry.id == self.id).collect();
        if let Some(bell) = &server.bell {
            bell.signal();
        }
        drop(server);
        drop(gone);
    }
}

/// Lets a NIC be asked about.
///
/// # Errors
/// As the system says: names of this kind may be forbidden, or there is no descriptor or thread.
pub(crate) fn serve(nic: Weak<dyn Watched>, device: &str) -> io::Result<Guard> {
    let (user, process) = (rights::own_user(), std::process::id());
    let listen = |n| -> io::Result<UnixListener> {
        let name = format!("{PREFIX}{user}/{process}/{device}/{n}");
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
    };
    // A process of another namespace may have the same number.
    let mut n = 0;
    let listener = loop {
        match listen(n) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && n < MOST_NAMES => n += 1,
            result => break result?,
        }
    };
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from(sys::high(OwnedFd::from(listener)));
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    let mut server = server();
    if server.bell.is_none() {
        server.bell = Some(start()?);
    }
    server.open.push(Arc::new(Entry { id, listener: Held::new(listener), nic }));
    if let Some(bell) = &server.bell {
        bell.signal();
    }
    Ok(Guard { id, generation: sys::fork_generation() })
}

fn start() -> io::Result<Arc<EventFd>> {
    let bell = Arc::new(EventFd::doorbell()?);
    let rung = Arc::clone(&bell);
    sys::spawn("crocevia-stat", STACK, move || run(&rung))?;
    Ok(bell)
}

/// The thread.
fn run(bell: &EventFd) {
    let mut askers: Vec<Asker> = Vec::new();
    let mut fds = Vec::new();
    loop {
        let open = {
            let mut server = server();
            if server.open.is_empty() {
                server.bell = None;
                return;
            }
            server.open.clone()
        };
        let deaf = open.iter().any(|entry| accept(entry, &mut askers).is_err());
        askers.retain_mut(Asker::go_on);
        fds.clear();
        fds.push(sys::interest(bell.as_fd(), libc::POLLIN));
        if !deaf {
            fds.extend(open.iter().map(|e| sys::interest(e.listener.0.as_fd(), libc::POLLIN)));
        }
        fds.extend(askers.iter().map(Asker::interest));
        let left = askers.iter().map(Asker::time_left).chain(deaf.then_some(RETRY)).min();
        // The last owner of a NIC may be this thread otherwise, for as long as it sleeps.
        drop(open);
        // A descriptor that is closed meanwhile wakes nobody; the bell does.
        if sys::poll(&mut fds, left).is_err() {
            std::thread::sleep(RETRY);
        }
        if fds[0].revents & libc::POLLNVAL != 0 {
            // The application has closed what is not its own; there is nothing to wait on.
            return;
        }
        let _ = bell.read();
    }
}

/// Takes some connections. An error: there is no descriptor for another one.
fn accept(entry: &Entry, askers: &mut Vec<Asker>) -> io::Result<()> {
    for _ in 0..MOST_ACCEPTED {
        let stream = match entry.listener.0.accept() {
            Ok((stream, _)) => stream,
            Err(e) if again(&e) || e.kind() == io::ErrorKind::ConnectionAborted => break,
            Err(e) => return Err(e),
        };
        let stream = UnixStream::from(sys::high(OwnedFd::from(stream)));
        let may_know = |user| user == 0 || user == rights::own_user();
        if !rights::peer(stream.as_fd()).is_ok_and(|(user, _)| may_know(user)) {
            let _ = send(&stream, format!("{DENIED}\n").as_bytes());
            continue;
        }
        if askers.len() >= MOST_ASKERS {
            let _ = send(&stream, format!("{BUSY}\n").as_bytes());
        } else if stream.set_nonblocking(true).is_ok() {
            askers.push(Asker::new(stream, Weak::clone(&entry.nic)));
        }
    }
    Ok(())
}

/// Somebody who asks.
struct Asker {
    stream: Held<UnixStream>,
    nic: Weak<dyn Watched>,
    request: Vec<u8>,
    /// Bytes to be taken, and how many have been.
    answer: String,
    taken: usize,
    next: Next,
    /// When it last did something.
    since: Instant,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Head(Want),
    Qps(u32),
    End,
}

impl Asker {
    fn new(stream: UnixStream, nic: Weak<dyn Watched>) -> Self {
        Self {
            stream: Held::new(stream),
            nic,
            request: Vec::new(),
            answer: String::new(),
            taken: 0,
            next: Next::Request,
            since: Instant::now(),
        }
    }

    fn interest(&self) -> libc::pollfd {
        let reads = self.next == Next::Request;
        sys::interest(self.stream.0.as_fd(), if reads { libc::POLLIN } else { libc::POLLOUT })
    }

    fn time_left(&self) -> Duration {
        PATIENCE.saturating_sub(self.since.elapsed())
    }

    /// Does what can be done without waiting; false when there is nothing more to do for it.
    fn go_on(&mut self) -> bool {
        let goes_on = if self.next == Next::Request { self.read() } else { self.write() };
        goes_on && !self.time_left().is_zero()
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; LONGEST_REQUEST];
        match self.stream.0.read(&mut bytes) {
            Ok(0) => return false,
            Ok(n) => self.request.extend_from_slice(&bytes[..n]),
            Err(e) => return again(&e),
        }
        match self.request.iter().position(|&byte| byte == b'\n') {
            Some(end) => match Want::parse(&self.request[..end]) {
                Some(want) => {
                    self.next = Next::Head(want);
                    self.since = Instant::now();
                    self.write()
                }
                None => false,
            },
            None => self.request.len() < LONGEST_REQUEST,
        }
    }

    /// One piece of the answer, so that others have a turn.
    fn write(&mut self) -> bool {
        if self.taken == self.answer.len() {
            self.answer.clear();
            self.taken = 0;
            if !self.make() {
                return false;
            }
        }
        match send(&self.stream.0, &self.answer.as_bytes()[self.taken..]) {
            Ok(n) => {
                self.taken += n;
                if n > 0 {
                    self.since = Instant::now();
                }
                self.taken < self.answer.len() || self.next != Next::End
            }
            Err(e) => again(&e),
        }
    }

    /// Makes more of the answer; false if there is no more, or the NIC has gone.
    fn make(&mut self) -> bool {
        let Some(nic) = self.nic.upgrade() else { return false };
        match self.next {
            Next::Request | Next::End => return false,
            Next::Head(want) => {
                let Some(snapshot) = nic.snapshot() else { return false };
                text::head(&mut self.answer, &command(), nic.info(), &snapshot);
                self.next = if want == Want::Qps { Next::Qps(0) } else { Next::End };
            }
            Next::Qps(from) => {
                let mut from = Some(from);
                let mut reports = Vec::new();
                while let Some(place) = from.filter(|_| self.answer.len() < ENOUGH) {
                    reports.clear();
                    from = nic.report_qps(place, &mut reports);
                    reports.iter().for_each(|qp| text::qp(&mut self.answer, qp));
                }
                self.next = from.map_or(Next::End, Next::Qps);
            }
        }
        if self.next == Next::End {
            text::end(&mut self.answer);
        }
        true
    }
}

/// Name of this process's program, which it may change.
fn command() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.strip_suffix('\n').unwrap_or(&name).to_owned()
}

/// Gives the kernel what it takes. An asker that has gone is no reason for a signal.
fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(stream).send_with_flags(bytes, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
}

fn again(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
