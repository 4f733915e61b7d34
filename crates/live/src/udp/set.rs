//! The receiving sockets of an address, shared by all processes of a user: each process holds all
//! of them, so that none moves in the kernel's list when a process ends, however it ends. The upper
//! byte of the destination QP number, its slot, chooses the socket; a process receives for the
//! slots that it has claimed.
//!
//! A process that wants to join connects to a name that belongs to the address (an abstract one:
//! it lives and dies with its holder, and in one network namespace) and is given the sockets and
//! the file whose bytes stand for the slots. Whoever binds the name serves it; see `keeper`.

mod keeper;

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use engine::{Error, ErrorKind};
use socket2::Socket;
use wire::transport::ROCE_PORT;

use super::inlet::{self, Sharing};
use super::stray::Secret;
use crate::process::{Held, PerProcess};
use crate::rights::{self, is_byte_locked, lock_byte};
use crate::sys::{self, set_int};

/// Sockets of an address, and slots: a power of two.
pub(super) const SLOTS: u8 = 64;
/// First bytes of what a joiner is told; the last is the version of all that is agreed on here.
const MAGIC: [u8; 8] = *b"crocev\0\x02";
/// A joiner wants the sockets.
const JOIN: u8 = b'J';
/// A joiner has them already: it only wants to know when the keeper is gone.
const STAY: u8 = b'S';
/// How long to wait for who holds the name, or for the name if the port is held without one.
const PATIENCE: Duration = Duration::from_millis(2000);
/// How long a port may be held by nobody who has the name: a member is about to take it, or a child
/// that this process has just forked is about to give up its copies of the sockets. Either may have
/// to wait for the processor.
const VACANCY: Duration = Duration::from_millis(1500);
const RETRY: Duration = Duration::from_millis(10);

/// An address's sockets, as this process holds them.
pub(super) struct Set {
    ip: IpAddr,
    scope: u32,
    sockets: Vec<Socket>,
    /// A file that begins with the secret. The lock on byte i stands for slot i.
    slots: OwnedFd,
    secret: Secret,
    /// Slots that links of this process have, bit i for slot i: locks of one process do not
    /// conflict.
    claimed: Mutex<u64>,
    generation: u32,
    /// Whose processes share it: this one may become another user's.
    user: libc::uid_t,
    role: Mutex<keeper::Role>,
}

/// The sets of this process, so that it has each only once: closing one descriptor of a file gives
/// up all of the process's locks on it.
static SETS: PerProcess<Mutex<Vec<Weak<Set>>>> = PerProcess::new();
/// One set is opened at a time, which may take long.
static OPENING: PerProcess<Mutex<()>> = PerProcess::new();

impl Set {
    /// The set of an address: this process's own, that of others, or a new one.
    pub(super) fn open(ip: IpAddr, scope: u32) -> engine::Result<Arc<Self>> {
        let scope = if inlet::needs_scope(ip) { scope } else { 0 };
        let _one = OPENING.get().lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |set: &Arc<Self>| (set.ip, set.scope) == (ip, scope);
        if let Some(set) = known().into_iter().find(is_it) {
            return Ok(set);
        }
        let set = Arc::new(join_or_found(ip, scope)?);
        let mut sets = SETS.get().lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|set| set.strong_count() > 0);
        sets.push(Arc::downgrade(&set));
        drop(sets);
        keeper::watch(&set).map_err(|e| system(ip, "no thread to share it with others", &e))?;
        Ok(set)
    }

    /// The socket of a slot.
    pub(super) fn socket(&self, slot: u8) -> &Socket {
        &self.sockets[usize::from(slot % SLOTS)]
    }

    /// What all members know.
    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Whether somebody receives for a slot: a link of this process, or another process.
    pub(super) fn is_claimed(&self, slot: u8) -> bool {
        let claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        *claimed & (1 << slot) != 0 || is_byte_locked(self.slots.as_fd(), slot)
    }

    /// Claims a slot; false if somebody has it.
    fn claim(&self, slot: u8) -> bool {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        let free = *claimed & (1 << slot) == 0 && lock_byte(self.slots.as_fd(), slot, true);
        if free {
            *claimed |= 1 << slot;
        }
        free
    }

    fn release(&self, slot: u8) {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody reads there any more: what comes is not to fill memory.
        let _ = set_int(self.socket(slot).as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 0);
        *claimed &= !(1 << slot);
        lock_byte(self.slots.as_fd(), slot, false);
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        for socket in &self.sockets {
            sys::keep_on_fork(socket.as_fd());
        }
        sys::keep_on_fork(self.slots.as_fd());
        keeper::unwatch();
    }
}

/// The sets that this process has.
fn known() -> Vec<Arc<Set>> {
    let sets = SETS.get().lock().unwrap_or_else(PoisonError::into_inner);
    sets.iter().filter_map(Weak::upgrade).collect()
}

/// Slots that a link has in all of its sets.
pub(super) struct Claim {
    sets: Vec<Arc<Set>>,
    slots: Vec<u8>,
}

impl Claim {
    /// Claims the first slot that is free in all sets; none if there is none.
    pub(super) fn new(sets: &[Arc<Set>]) -> Self {
        let mut claim = Self { sets: sets.to_vec(), slots: Vec::new() };
        // Slot 0 is that of the well-known queue pair numbers 0 and 1.
        claim.add(1, 1);
        claim
    }

    /// Claims more, up to `want` in all: of the upper half, so that other processes find some.
    pub(super) fn extend(&mut self, want: u8) {
        self.add(SLOTS / 2, want);
    }

    fn add(&mut self, from: u8, want: u8) {
        for slot in from..SLOTS {
            if self.slots.len() >= usize::from(want) {
                return;
            }
            if self.take(slot) {
                self.slots.push(slot);
            }
        }
    }

    fn take(&self, slot: u8) -> bool {
        let taken = self.sets.iter().take_while(|set| set.claim(slot)).count();
        if taken < self.sets.len() {
            self.sets[..taken].iter().for_each(|set| set.release(slot));
        }
        taken == self.sets.len()
    }

    pub(super) fn slots(&self) -> &[u8] {
        &self.slots
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child of a fork has no claims, and its descriptors are no sockets any more.
        let own = |set: &&Arc<Set>| set.generation == sys::fork_generation();
        for set in self.sets.iter().filter(own) {
            self.slots.iter().for_each(|&slot| set.release(slot));
        }
    }
}

fn name(ip: IpAddr, scope: u32) -> String {
    format!("crocevia/{ROCE_PORT}/{ip}/{scope}")
}

/// Takes the name, if nobody has it.
fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn system(ip: IpAddr, what: &str, why: &io::Error) -> Error {
    Error::new(ErrorKind::System, format!("{ip}: {what}: {why}"))
}

/// What came of one attempt.
enum Attempt {
    Done(Set),
    /// Somebody has just gone, or come.
    Again,
    /// The port is held, and nobody has the name.
    Held(io::Error),
}

fn join_or_found(ip: IpAddr, scope: u32) -> engine::Result<Set> {
    let start = Instant::now();
    let name = name(ip, scope);
    loop {
        let attempt = match rights::connect(&name) {
            Ok(stream) => join(ip, scope, stream)?,
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => found(ip, scope, &name)?,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Attempt::Again,
            Err(e) => return Err(system(ip, "cannot ask for its sockets", &e)),
        };
        match attempt {
            Attempt::Done(set) => return Ok(set),
            Attempt::Held(why) if start.elapsed() > VACANCY => {
                return Err(super::bind_error(ip, &why));
            }
            Attempt::Again if start.elapsed() > PATIENCE => {
                return Err(Error::new(
                    ErrorKind::AddressInUse,
                    format!(
                        "the process that shares UDP {ip} port {ROCE_PORT} with others takes no \
                         more, or processes come and go too fast: try again, or use another address"
                    ),
                ));
            }
            Attempt::Held(_) | Attempt::Again => std::thread::sleep(RETRY),
        }
    }
}

/// Asks who holds the name for the sockets.
fn join(ip: IpAddr, scope: u32, stream: UnixStream) -> engine::Result<Attempt> {
    let fail = |e: io::Error| system(ip, "cannot ask for its sockets", &e);
    let (user, process) = rights::peer(stream.as_fd()).map_err(fail)?;
    if user != rights::own_user() {
        return Err(Error::new(
            ErrorKind::AddressInUse,
            format!(
                "process {process} of user {user} has the name by which crocevia processes share \
                 UDP {ip} port {ROCE_PORT}, and this one runs as user {}: a user's processes share \
                 an address, others need one of their own, such as --addr 127.0.0.2 or \
                 CROCEVIA_ADDR=127.0.0.2",
                rights::own_user()
            ),
        ));
    }
    stream.set_nonblocking(false).map_err(fail)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    if rights::send(stream.as_fd(), &[JOIN], &[]).is_err() {
        return Ok(Attempt::Again);
    }
    let mut told = [0; MAGIC.len()];
    let (n, mut fds) = match rights::receive(stream.as_fd(), &mut told) {
        Ok(got) => got,
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            return Err(Error::new(
                ErrorKind::AddressInUse,
                format!(
                    "process {process} shares UDP {ip} port {ROCE_PORT} but does not answer: is it \
                     stopped? Let it go on, end it, or use another address"
                ),
            ));
        }
        Err(_) => return Ok(Attempt::Again),
    };
    if n == 0 || stream.set_nonblocking(true).is_err() {
        return Ok(Attempt::Again);
    }
    if told[..n] == MAGIC && fds.len() < usize::from(SLOTS) + 1 {
        let why = io::Error::from_raw_os_error(libc::EMFILE);
        return Err(system(ip, "cannot take its sockets (ulimit -n)", &why));
    }
    let slots = fds.pop().filter(|_| told[..n] == MAGIC && fds.len() == usize::from(SLOTS));
    let Some(slots) = slots else {
        return Err(Error::new(
            ErrorKind::AddressInUse,
            format!(
                "process {process} shares UDP {ip} port {ROCE_PORT} in another way than this \
                 version of crocevia: end it, or use another address"
            ),
        ));
    };
    let sockets = fds.into_iter().map(|fd| Socket::from(sys::high(fd))).collect();
    let role = keeper::Role::Member(Held::new(stream));
    let set = Set::new(ip, scope, sockets, sys::high(slots), role);
    Ok(Attempt::Done(set.map_err(|e| system(ip, "cannot take its sockets", &e))?))
}

/// Takes the name and makes the sockets.
fn found(ip: IpAddr, scope: u32, name: &str) -> engine::Result<Attempt> {
    let fail = |e: io::Error| system(ip, "cannot make its sockets", &e);
    let listener = match listen(name).map(Held::new) {
        Ok(listener) => listener,
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Ok(Attempt::Again),
        // Such names may be forbidden here.
        Err(e) => return Err(fail(e)),
    };
    // The first is bound without the right to share: only one process can.
    let first = match inlet::open_socket(ip, scope, 0, Sharing::Alone) {
        Ok(first) => first,
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Ok(Attempt::Held(e)),
        Err(e) => return Err(super::bind_error(ip, &e)),
    };
    let make = || -> io::Result<Vec<Socket>> {
        set_int(first.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        let mut sockets = vec![first];
        while sockets.len() < usize::from(SLOTS) {
            sockets.push(inlet::open_socket(ip, scope, 0, Sharing::Slots)?);
            if sockets.len() == 2 {
                // Early: nobody else is to find a place among them.
                sys::attach_reuseport_filter(sockets[0].as_fd(), &by_slot())?;
            }
        }
        Ok(sockets)
    };
    let sockets = make().map_err(fail)?;
    let make = || -> io::Result<OwnedFd> {
        let mut secret = Secret::default();
        sys::random(&mut secret)?;
        let mut file = File::from(sys::high(rights::memfd()?));
        file.write_all(&secret)?;
        Ok(file.into())
    };
    let role = keeper::Role::Keeper(listener, Vec::new());
    let set = make().and_then(|slots| Set::new(ip, scope, sockets, slots, role));
    Ok(Attempt::Done(set.map_err(fail)?))
}

impl Set {
    fn new(
        ip: IpAddr,
        scope: u32,
        sockets: Vec<Socket>,
        slots: OwnedFd,
        role: keeper::Role,
    ) -> io::Result<Self> {
        let (mut secret, file) = (Secret::default(), File::from(slots));
        file.read_exact_at(&mut secret, 0)?;
        let slots = OwnedFd::from(file);
        for socket in &sockets {
            sys::release_on_fork(socket.as_fd());
        }
        sys::release_on_fork(slots.as_fd());
        let generation = sys::fork_generation();
        let (claimed, role) = (Mutex::new(0), Mutex::new(role));
        let user = rights::own_user();
        Ok(Self { ip, scope, sockets, slots, secret, claimed, generation, user, role })
    }
}

/// Chooses the socket by the upper byte of the destination QP number. Offsets count from the
/// payload of the datagram, the BTH.
fn by_slot() -> [libc::sock_filter; 5] {
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xFF_FFFF),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, u32::from(SLOTS) - 1),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ]
}
