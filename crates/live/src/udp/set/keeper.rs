//! Who serves an address's name: hands the sockets to those that join, and lets the others know, by
//! the end of a connection, that the name is to be had. One thread of the process does this for all
//! of its addresses; it sleeps until somebody joins or a keeper goes.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{JOIN, MAGIC, PATIENCE, RETRY, STAY, Set, known, listen, name};
use crate::eventfd::EventFd;
use crate::process::{Held, PerProcess};
use crate::{rights, sys};

/// Members that are served at most.
const MOST_MEMBERS: usize = 256;
/// Connections taken in one turn.
const MOST_ACCEPTED: usize = 16;

/// What a process is to the others that share an address.
pub(super) enum Role {
    /// It has the name, and these are the others.
    Keeper(Held<UnixListener>, Vec<Member>),
    /// It is connected to who has.
    Member(Held<UnixStream>),
    /// Nobody has, as far as it knows.
    Vacant,
}

/// One of the others.
pub(super) struct Member {
    stream: Held<UnixStream>,
    since: Instant,
    wants: Wants,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// It has not said yet.
    Unknown,
    /// The sockets.
    Sockets,
    /// To be told when the keeper goes, by the end of the connection.
    Nothing,
}

/// The bell of the thread, while there is one.
static THREAD: PerProcess<Mutex<Option<Arc<EventFd>>>> = PerProcess::new();

const STACK: usize = 256 << 10;

/// A set has come, or one has gone: the thread is to look, and there is to be one.
pub(super) fn watch(_: &Arc<Set>) -> io::Result<()> {
    let mut thread = THREAD.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bell) = thread.as_ref() {
        bell.signal();
        return Ok(());
    }
    let bell = Arc::new(EventFd::doorbell()?);
    let rung = Arc::clone(&bell);
    sys::spawn("crocevia-share", STACK, move || run(&rung))?;
    *thread = Some(bell);
    Ok(())
}

/// One has gone.
pub(super) fn unwatch() {
    // Who holds it is about to look.
    let Ok(thread) = THREAD.get().try_lock() else { return };
    if let Some(bell) = thread.as_ref() {
        bell.signal();
    }
}

fn run(bell: &EventFd) {
    let mut fds = Vec::new();
    loop {
        let mut timeout = None;
        fds.clear();
        fds.push(sys::interest(bell.as_fd(), libc::POLLIN));
        let sets = known();
        for set in &sets {
            if set.serve(&mut fds) {
                timeout = Some(RETRY);
            }
        }
        if sets.is_empty() {
            let mut thread = THREAD.get().lock().unwrap_or_else(PoisonError::into_inner);
            if known().is_empty() {
                *thread = None;
                return;
            }
            continue;
        }
        drop(sets);
        // A descriptor that is closed meanwhile wakes nobody; the bell does.
        if sys::poll(&mut fds, timeout).is_err() {
            std::thread::sleep(RETRY);
        }
        let _ = bell.read();
    }
}

impl Set {
    /// Does what there is to do, without waiting, and appends what to wait for; whether to come
    /// again soon.
    fn serve(&self, out: &mut Vec<libc::pollfd>) -> bool {
        let mut add = |fd| out.push(sys::interest(fd, libc::POLLIN));
        let mut role = self.role.lock().unwrap_or_else(PoisonError::into_inner);
        let there = match &mut *role {
            Role::Keeper(..) => true,
            Role::Member(keeper) => is_there(&mut keeper.0),
            Role::Vacant => false,
        };
        if !there {
            *role = self.succeed().unwrap_or(Role::Vacant);
        }
        match &mut *role {
            Role::Keeper(listener, members) => {
                let deaf = self.accept(&listener.0, members).is_err();
                members.retain_mut(|member| self.hear(member));
                if !deaf {
                    add(listener.0.as_fd());
                }
                members.iter().for_each(|member| add(member.stream.0.as_fd()));
                deaf || members.iter().any(|member| member.wants != Wants::Nothing)
            }
            Role::Member(keeper) => {
                add(keeper.0.as_fd());
                false
            }
            Role::Vacant => true,
        }
    }

    /// Takes some connections. An error: there is no descriptor for another one.
    fn accept(&self, listener: &UnixListener, members: &mut Vec<Member>) -> io::Result<()> {
        for _ in 0..MOST_ACCEPTED {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if again(&e) || e.kind() == io::ErrorKind::ConnectionAborted => break,
                Err(e) => return Err(e),
            };
            let user = rights::peer(stream.as_fd()).map(|(user, _)| user);
            if user.is_ok_and(|user| user == self.user)
                && members.len() < MOST_MEMBERS
                && stream.set_nonblocking(true).is_ok()
            {
                let (stream, since) = (Held::new(stream), Instant::now());
                members.push(Member { stream, since, wants: Wants::Unknown });
            }
        }
        Ok(())
    }

    /// Answers a member; false if it has gone, or does not say or take what it is to.
    fn hear(&self, member: &mut Member) -> bool {
        let mut byte = [0];
        match member.stream.0.read(&mut byte) {
            Ok(1) if byte[0] == JOIN => member.wants = Wants::Sockets,
            Ok(1) if byte[0] == STAY => member.wants = Wants::Nothing,
            Ok(_) => return false,
            Err(e) if again(&e) => {}
            Err(_) => return false,
        }
        if member.wants == Wants::Sockets {
            let sockets = self.sockets.iter().map(AsFd::as_fd);
            let fds: Vec<_> = sockets.chain([self.slots.as_fd()]).collect();
            match rights::send(member.stream.0.as_fd(), &MAGIC, &fds) {
                Ok(()) => member.wants = Wants::Nothing,
                // So many are under way that the kernel takes no more for now.
                Err(e) if again(&e) || e.raw_os_error() == Some(libc::ETOOMANYREFS) => {}
                Err(_) => return false,
            }
        }
        member.wants == Wants::Nothing || member.since.elapsed() < PATIENCE
    }

    /// Takes the name, or finds out who has.
    fn succeed(&self) -> Option<Role> {
        let name = name(self.ip, self.scope);
        if let Ok(listener) = listen(&name) {
            return Some(Role::Keeper(Held::new(listener), Vec::new()));
        }
        let keeper = rights::connect(&name).ok()?;
        let (user, _) = rights::peer(keeper.as_fd()).ok()?;
        if user != self.user {
            return None;
        }
        rights::send(keeper.as_fd(), &[STAY], &[]).ok()?;
        Some(Role::Member(Held::new(keeper)))
    }
}

fn again(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Whether the other end still stands; it never says anything.
fn is_there(keeper: &mut UnixStream) -> bool {
    keeper.read(&mut [0]).is_err_and(|e| again(&e))
}
