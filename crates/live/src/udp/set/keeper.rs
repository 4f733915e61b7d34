//! Who serves an address's name: hands the sockets to those that join, and lets the others know, by
//! the end of a connection, that the name is to be had. One thread of the process does this for all
//! of its addresses; it sleeps until somebody joins or a keeper goes.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use super::{JOIN, MAGIC, RETRY, SETS, STAY, Set, name};
use crate::eventfd::EventFd;
use crate::{rights, sys};

/// What a process is to the others that share an address.
pub(super) enum Role {
    /// It has the name; the connections are those of the others.
    Keeper(UnixListener, Vec<UnixStream>),
    /// It is connected to who has.
    Member(UnixStream),
    /// Nobody has, as far as it knows.
    Vacant,
}

/// The thread: of which generation of forks, and its bell.
static THREAD: Mutex<Option<(u32, Arc<EventFd>)>> = Mutex::new(None);

const STACK: usize = 256 << 10;

/// A set has come, or one has gone: the thread is to look, and there is to be one.
pub(super) fn watch(_: &Arc<Set>) -> std::io::Result<()> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let generation = sys::fork_generation();
    if let Some((_, bell)) = thread.as_ref().filter(|(of, _)| *of == generation) {
        bell.signal();
        return Ok(());
    }
    let bell = Arc::new(EventFd::doorbell()?);
    let rung = Arc::clone(&bell);
    sys::with_signals_blocked(|| {
        let builder = Builder::new().name("crocevia-share".to_owned()).stack_size(STACK);
        builder.spawn(move || run(&rung))
    })?;
    *thread = Some((generation, bell));
    Ok(())
}

/// One has gone.
pub(super) fn unwatch() {
    // Who holds it is about to look.
    let Ok(thread) = THREAD.try_lock() else { return };
    if let Some((_, bell)) = thread.as_ref().filter(|(of, _)| *of == sys::fork_generation()) {
        bell.signal();
    }
}

fn sets() -> Vec<Arc<Set>> {
    let sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    sets.iter().filter_map(Weak::upgrade).collect()
}

fn run(bell: &EventFd) {
    let mut fds = Vec::new();
    loop {
        let mut timeout = None;
        fds.clear();
        fds.push(sys::interest(bell.as_fd(), libc::POLLIN));
        for set in sets() {
            if set.serve() {
                timeout = Some(RETRY);
            }
            set.interests(&mut fds);
        }
        if fds.len() == 1 {
            let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
            if sets().is_empty() {
                *thread = None;
                return;
            }
            continue;
        }
        // A descriptor that is closed meanwhile wakes nobody; the bell does.
        if sys::poll(&mut fds, timeout).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = bell.read();
    }
}

impl Set {
    fn interests(&self, out: &mut Vec<libc::pollfd>) {
        let mut add = |fd| out.push(sys::interest(fd, libc::POLLIN));
        match &*self.role.lock().unwrap_or_else(PoisonError::into_inner) {
            Role::Keeper(listener, members) => {
                add(listener.as_fd());
                members.iter().for_each(|member| add(member.as_fd()));
            }
            Role::Member(keeper) => add(keeper.as_fd()),
            Role::Vacant => {}
        }
    }

    /// Does what there is to do, without waiting; whether to come again soon.
    fn serve(&self) -> bool {
        let mut role = self.role.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *role {
            Role::Keeper(listener, members) => {
                while let Ok((stream, _)) = listener.accept() {
                    let user = rights::peer(stream.as_fd()).map(|(user, _)| user);
                    if user.is_ok_and(|user| user == rights::own_user())
                        && stream.set_nonblocking(true).is_ok()
                    {
                        members.push(stream);
                    }
                }
                members.retain_mut(|member| self.hear(member));
                return false;
            }
            Role::Member(keeper) => {
                if is_there(keeper) {
                    return false;
                }
            }
            Role::Vacant => {}
        }
        *role = Role::Vacant;
        if let Some(new) = self.succeed() {
            *role = new;
        }
        matches!(*role, Role::Vacant)
    }

    /// Answers a member; false if it has gone.
    fn hear(&self, member: &mut UnixStream) -> bool {
        let mut byte = [0];
        match member.read(&mut byte) {
            Ok(1) if byte[0] == JOIN => {
                let sockets = self.sockets.iter().map(AsFd::as_fd);
                let fds: Vec<_> = sockets.chain([self.slots.as_fd()]).collect();
                rights::send(member.as_fd(), &MAGIC, &fds).is_ok()
            }
            Ok(1) => byte[0] == STAY,
            Ok(_) => false,
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Takes the name, or finds out who has.
    fn succeed(&self) -> Option<Role> {
        let name = name(self.ip, self.scope).ok()?;
        if let Ok(listener) = UnixListener::bind_addr(&name) {
            listener.set_nonblocking(true).ok()?;
            return Some(Role::Keeper(listener, Vec::new()));
        }
        let keeper = UnixStream::connect_addr(&name).ok()?;
        let (user, _) = rights::peer(keeper.as_fd()).ok()?;
        if user != rights::own_user() {
            return None;
        }
        keeper.set_nonblocking(true).ok()?;
        rights::send(keeper.as_fd(), &[STAY], &[]).ok()?;
        Some(Role::Member(keeper))
    }
}

/// Whether the other end still stands; it never says anything.
fn is_there(keeper: &mut UnixStream) -> bool {
    let mut byte = [0];
    keeper
        .read(&mut byte)
        .is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
}
