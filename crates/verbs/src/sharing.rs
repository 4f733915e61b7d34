//! One NIC for the contexts of a process that are opened on the same addresses. Programs open a
//! device more than once (a library for itself, another for its own use), and a NIC takes a place
//! on each address. Each context keeps its objects and its events to itself.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::Duration;

use engine::{ErrorKind, Event, Result};
use live::{DeviceInfo, EventSink, Nic, Options};
use wire::Gid;

use crate::hub::Hub;

/// Hands a NIC's events to the hubs of its contexts. Events about an object are kept by the hub
/// that knows it, events about the port by all.
#[derive(Default)]
struct Fanout {
    hubs: Mutex<Vec<Weak<Hub>>>,
}

impl Fanout {
    fn add(&self, hub: &Arc<Hub>) {
        let mut hubs = lock(&self.hubs);
        hubs.retain(|hub| hub.strong_count() > 0);
        hubs.push(Arc::downgrade(hub));
    }
}

impl EventSink for Fanout {
    fn event(&self, event: Event) {
        // Not under the lock: a hub wakes tasks, which may run anything.
        let hubs: Vec<_> = lock(&self.hubs).iter().filter_map(Weak::upgrade).collect();
        for hub in hubs {
            hub.event(event);
        }
    }
}

/// A NIC of this process that others may join.
struct Open {
    /// A child of a fork must not join its parent's.
    process: u32,
    gids: Vec<Gid>,
    nic: Weak<Nic>,
    fanout: Arc<Fanout>,
}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// How often and how long an address is waited for that a NIC of this process is just giving up.
const CLOSING: (u32, Duration) = (25, Duration::from_millis(10));

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Joins the NIC that this process has on the addresses of `info`, or opens one.
pub(crate) fn open(info: &DeviceInfo, options: &Options, hub: &Arc<Hub>) -> Result<Arc<Nic>> {
    let process = process::id();
    let gids: Vec<Gid> = info.gids.iter().map(|entry| entry.gid).collect();
    let mut open = lock(&OPEN);
    let mine = |o: &Open| o.process == process && o.gids == gids;
    if let Some((nic, fanout)) =
        open.iter().filter(|o| mine(o)).find_map(|o| Some((o.nic.upgrade()?, &o.fanout)))
    {
        fanout.add(hub);
        return Ok(nic);
    }
    let was_open = open.iter().any(mine);
    open.retain(|o| o.nic.strong_count() > 0);
    let fanout = Arc::new(Fanout::default());
    fanout.add(hub);
    let mut tries = if was_open { CLOSING.0 } else { 0 };
    let nic = loop {
        match Nic::open(info, options, Arc::clone(&fanout) as Arc<dyn EventSink>) {
            Err(error) if tries > 0 && error.kind() == ErrorKind::AddressInUse => {
                tries -= 1;
                sleep(CLOSING.1);
            }
            opened => break opened?,
        }
    };
    open.push(Open { process, gids, nic: Arc::downgrade(&nic), fanout });
    Ok(nic)
}
