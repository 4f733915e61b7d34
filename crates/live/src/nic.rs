//! The NIC: a device, its link, its clock, and who drives them. Whoever polls a completion queue
//! drives ([`Nic::progress`]); a thread of the NIC's own (`nic/thread`) sleeps on the link and
//! takes over when nobody has polled for a while. All of it happens under one lock; events are
//! delivered outside it.

mod delivery;
mod groups;
mod interface;
mod pace;
mod parting;
mod remark;
mod state;
mod thread;
mod watch;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::{Device, DeviceConfig, Error, ErrorKind, Event, LinkState};
use wire::{Instant, Span};

use crate::capture;
use crate::clock::{Clock, ns_until};
use crate::counters::LinkCounters;
use crate::eventfd::EventFd;
use crate::faultlog;
use crate::info::DeviceInfo;
use crate::mem::ProcessMemory;
use crate::options::Options;
use crate::process::PerProcess;
use crate::stat;
use crate::sys;
use crate::timerfd::TimerFd;
use crate::udp::{self, UdpLink};

use delivery::Delivery;
use interface::InterfaceNews;
pub use parting::leave_now;
use state::State;

/// Who is told of the device's events, one at a time and in order. Called without any lock of the
/// NIC held, from a thread that calls the NIC or from the NIC's own; it must not block.
pub trait EventSink: Send + Sync {
    /// Something happened.
    fn event(&self, event: Event);
}

/// Somebody who has polled within this time is expected to go on.
const POLLER_NS: u64 = 50_000;
/// Bytes in four trains: what one step of a poller or of the thread sends at most.
const STEP_BATCHES: usize = 1;
/// What a call of the application sends at most before it returns; the thread does the rest.
const CALL_BATCHES: usize = 8;
/// Somebody who polls now and then also drives the device while it makes other calls in between, if
/// the last poll is not longer ago than this.
const CALLS_NS: u64 = 1_000_000;
/// Empty polls before a poller gives way to others, and after so many each it does so again: a
/// packet that arrives while it does is found later.
const EMPTY_POLLS: u32 = 8;
const YIELD_EVERY: u32 = 4;
/// How long [`Nic::close`] and [`flush_all`] try to send what is owed; last words take 7 ms.
const CLOSE: Duration = Duration::from_millis(20);

/// An open device.
pub struct Nic {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// `None`: nobody can ask what it has counted.
    _watched: Option<stat::Guard>,
}

/// What the NIC's thread shares with everybody else.
struct Shared {
    info: DeviceInfo,
    receive_buffer: u64,
    clock: Clock,
    state: Mutex<State>,
    sink: Arc<dyn EventSink>,
    delivery: Delivery,
    doorbell: EventFd,
    /// What the thread sleeps on while somebody polls, who puts it off.
    relief: TimerFd,
    /// When somebody last polled, in nanoseconds of the clock, plus one; 0: never.
    polled: AtomicU64,
    /// The same, calls between polls included.
    driven: AtomicU64,
    /// Polls in a row that found nothing.
    empty_polls: AtomicU32,
    /// When the thread will wake up by itself, in nanoseconds of the clock; 0 while it is awake.
    wakes: AtomicU64,
    stop: AtomicBool,
    /// Faults are to be injected, and whether their sum has been told.
    faulty: bool,
    summed_up: AtomicBool,
    /// News of the interface, where the system gives them.
    interface: Option<InterfaceNews>,
    /// Of the process that opened the NIC.
    generation: u32,
    /// What a child of a fork gets instead of the device.
    orphan: OnceLock<Mutex<Device<ProcessMemory>>>,
}

impl Nic {
    /// Opens a device: binds its addresses, starts its thread.
    ///
    /// # Errors
    /// `AddressInUse` if somebody receives on the first address who does not share it, or all of
    /// its slots are taken (the message says what to do), `NoDevice` if the address has gone,
    /// `Denied` or `System` as the system says.
    pub fn open(
        info: &DeviceInfo,
        options: &Options,
        sink: Arc<dyn EventSink>,
    ) -> engine::Result<Arc<Self>> {
        let system = |what: &str, e: io::Error| {
            Error::new(ErrorKind::System, format!("{}: {what}: {e}", info.name))
        };
        let (mut link, gids) = UdpLink::open(info, options)?;
        let mut seed = [0; 32];
        sys::random(&mut seed).map_err(|e| system("no random numbers", e))?;
        let (receive_buffer, slots) = (link.receive_buffer(), link.slots().to_vec());
        let config = DeviceConfig {
            seed,
            slots,
            gids: gids.clone(),
            mtu: info.mtu,
            receive_buffer,
            ack_delay: options.ack_delay,
            credits: options.credits,
        };
        let clock = Clock::start();
        link.keep_time(clock);
        let mut device = Device::new(config, ProcessMemory::new());
        device.set_probe(Some(engine::limits::PROBE));
        device.set_calm(engine::limits::PROBE_CALM);
        device.set_flow(true);
        device.set_least_timeout(engine::limits::LEAST_TIMEOUT);
        device.set_back_off(true);
        let shared = Arc::new(Shared {
            info: DeviceInfo { gids, ..info.clone() },
            receive_buffer,
            clock,
            state: Mutex::new(State::new(device, link)),
            sink,
            delivery: Delivery::default(),
            doorbell: EventFd::doorbell().map_err(|e| system("no event descriptor", e))?,
            relief: TimerFd::new().map_err(|e| system("no timer descriptor", e))?,
            polled: AtomicU64::new(0),
            driven: AtomicU64::new(0),
            empty_polls: AtomicU32::new(0),
            wakes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            faulty: options.faults.is_some(),
            summed_up: AtomicBool::new(false),
            // Some sandboxes have no such sockets; the port is then up for ever.
            interface: InterfaceNews::new(info.netdev.index).ok(),
            generation: sys::fork_generation(),
            orphan: OnceLock::new(),
        });
        let linger = options.faults.as_ref().map_or(Span::ZERO, udp::faults::linger);
        parting::opened(linger).map_err(|e| system("no event descriptor", e))?;
        let thread = thread::start(&shared).map_err(|e| {
            parting::closed();
            system("cannot start its thread", e)
        })?;
        register(&shared);
        let watched = watch::serve(&shared);
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)), _watched: watched }))
    }

    /// The device as it was found, its GID table as it could be bound.
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// The present instant of the device's time.
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Bytes of receive buffer behind each receiving socket, as the kernel counts them.
    pub fn receive_buffer(&self) -> u64 {
        self.shared.receive_buffer
    }

    /// What the link has counted.
    pub fn link_counters(&self) -> LinkCounters {
        self.shared.lock().map_or_else(LinkCounters::default, |mut s| *s.link_counters())
    }

    /// Runs `f` on the device, then sends what there is to send and delivers events. `f` must not
    /// call the NIC again. In a child of a fork `f` gets a device without objects or link.
    pub fn with<R>(&self, f: impl FnOnce(&mut Device<ProcessMemory>, Instant) -> R) -> R {
        self.shared.call(f, CALL_BATCHES)
    }

    /// The same, for calls after which nothing is to be sent: queries, creation of objects.
    pub fn control<R>(&self, f: impl FnOnce(&mut Device<ProcessMemory>, Instant) -> R) -> R {
        self.shared.call(f, 0)
    }

    /// One bounded step of receiving, timers and sending, for whoever polls a completion queue and
    /// finds it empty; whether anything was done. Gives way to other threads when there is nothing
    /// to do or another one is at it.
    pub fn progress(&self) -> bool {
        self.shared.progress()
    }

    /// Sends what is owed to peers and ends the thread. Where a peer may have missed the last
    /// acknowledgement, that takes some milliseconds: see [`Device::depart`]. The device stays
    /// usable, but only calls of the application drive it.
    pub fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.shared.is_orphaned() {
            // The thread does not exist in this process and cannot be joined.
            std::mem::forget(thread);
            return;
        }
        if thread.is_some() {
            parting::closed();
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.doorbell.signal();
        // The last owner may be the sink, called from the thread itself: then it just ends.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            // It has nothing to return; a panic in it has been reported when it happened.
            let _ = thread.join();
        }
        Shared::flush(std::iter::once(&*self.shared));
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        self.close();
    }
}

/// The open NICs of this process.
static OPEN: PerProcess<Mutex<Vec<Weak<Shared>>>> = PerProcess::new();

fn register(shared: &Arc<Shared>) {
    let mut open = OPEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|nic| nic.strong_count() > 0);
    open.push(Arc::downgrade(shared));
}

/// Sends what all NICs of this process owe to their peers: for the end of the process, so that no
/// peer waits for an acknowledgement that was about to leave, or that was lost; then writes what
/// has been captured. Bounded in time; takes no lock for long.
pub fn flush_all() {
    let open: Vec<_> = match OPEN.get().try_lock() {
        Ok(open) => open.iter().filter_map(Weak::upgrade).collect(),
        Err(_) => return,
    };
    Shared::flush(open.iter().map(|nic| &**nic));
    capture::finish();
}

impl Shared {
    /// Whether this process is a child of the one that opened the NIC.
    fn is_orphaned(&self) -> bool {
        sys::fork_generation() != self.generation
    }

    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        if self.is_orphaned() {
            return None;
        }
        // A caller's closure panicked; the device's own methods do not.
        Some(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        if self.is_orphaned() {
            return None;
        }
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn orphan(&self) -> MutexGuard<'_, Device<ProcessMemory>> {
        let device = self.orphan.get_or_init(|| {
            let config = DeviceConfig {
                seed: [0; 32],
                slots: Vec::new(),
                gids: self.info.gids.clone(),
                mtu: self.info.mtu,
                receive_buffer: self.receive_buffer,
                ack_delay: engine::limits::ACK_DELAY,
                credits: false,
            };
            let mut device = Device::new(config, ProcessMemory::new());
            device.handle_link(LinkState::Down);
            Mutex::new(device)
        });
        device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<R>(
        &self,
        f: impl FnOnce(&mut Device<ProcessMemory>, Instant) -> R,
        batches: usize,
    ) -> R {
        let Some(mut state) = self.lock() else {
            return f(&mut self.orphan(), self.clock.now());
        };
        let now_ns = self.clock.ns();
        let now = Instant::from_ns(now_ns);
        let result = f(state.device(), now);
        if batches > 0 {
            state.transmit(now, batches);
        }
        state.replan(now);
        let polls = now_ns.saturating_sub(self.polled.load(Ordering::Relaxed)) < CALLS_NS;
        let mut now = now;
        if batches > 0 && polls && self.is_polled(now_ns) {
            // Much may have been sent meanwhile.
            now = self.drives_on();
        }
        let ring = self.thread_sleeps_past(state.deadline(), now);
        self.deliver(state);
        if ring {
            self.doorbell.signal();
        }
        result
    }

    fn progress(&self) -> bool {
        let now_ns = self.clock.ns();
        self.polled.store(now_ns + 1, Ordering::Relaxed);
        self.driven.store(now_ns + 1, Ordering::Relaxed);
        let Some(mut state) = self.try_lock() else {
            sys::yield_now();
            return false;
        };
        let now = Instant::from_ns(now_ns);
        if state.step(now, false, STEP_BATCHES) {
            self.empty_polls.store(0, Ordering::Relaxed);
            // A step may take longer than a poller is waited for.
            let ring = self.thread_sleeps_past(state.deadline(), self.drives_on());
            self.deliver(state);
            if ring {
                self.doorbell.signal();
            }
            self.stays(now_ns, thread::URGENT_NS);
            return true;
        }
        drop(state);
        self.stays(now_ns, thread::EARLY_NS);
        let empty = self.empty_polls.fetch_add(1, Ordering::Relaxed);
        if empty >= EMPTY_POLLS && empty.is_multiple_of(YIELD_EVERY) {
            sys::yield_now();
        }
        false
    }

    /// Somebody polls on: if the napping thread would wake up within `margin_ns`, it sleeps on.
    fn stays(&self, now_ns: u64, margin_ns: u64) {
        let (wakes, later) = (self.wakes.load(Ordering::Relaxed), now_ns + thread::NAP_NS);
        // Only one of several pollers; and not while the thread is awake.
        if wakes != 0
            && wakes < now_ns + margin_ns
            && self
                .wakes
                .compare_exchange(wakes, later, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            self.relief.set(Duration::from_nanos(thread::NAP_NS));
        }
    }

    /// The interface may have gone up or down.
    fn look_at_interface(&self) {
        let Some(state) = self.interface.as_ref().and_then(InterfaceNews::look) else { return };
        self.call(|device, _| device.handle_link(state), 1);
    }

    /// Notes that somebody drives the device at present; now.
    fn drives_on(&self) -> Instant {
        let now_ns = self.clock.ns();
        self.driven.store(now_ns + 1, Ordering::Relaxed);
        Instant::from_ns(now_ns)
    }

    /// Whether somebody polls at present, or is between two polls.
    fn is_polled(&self, now_ns: u64) -> bool {
        let driven = self.driven.load(Ordering::Relaxed);
        driven != 0 && now_ns.saturating_sub(driven - 1) < POLLER_NS
    }

    /// Whether the thread has to be woken because it would sleep past `deadline`. A poller may stop
    /// at any time, so while somebody polls the thread is to be napping at least.
    fn thread_sleeps_past(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let Some(deadline) = deadline else { return false };
        let now_ns = now.as_ps() / 1000;
        let slack = if self.is_polled(now_ns) { thread::NAP_NS } else { 0 };
        let latest_ns = now_ns + ns_until(deadline, now) + slack;
        latest_ns < self.wakes.load(Ordering::Acquire)
    }

    /// Unlocks, and tells the sink what has happened.
    fn deliver(&self, mut state: MutexGuard<'_, State>) {
        let news = if self.faulty { state.take_fault_news() } else { Vec::new() };
        let any = {
            let mut events = state.events().peekable();
            let any = events.peek().is_some();
            if any {
                self.delivery.add(events);
            }
            any
        };
        drop(state);
        news.iter().for_each(|news| faultlog::tell(&self.info.name, news));
        if any {
            self.delivery.run(|event| self.sink.event(event));
        }
    }

    /// Tells once what faults have been injected, at the end.
    fn sum_up(&self) {
        if !self.faulty || self.summed_up.swap(true, Ordering::Relaxed) {
            return;
        }
        let summary = self.try_lock().and_then(|state| state.fault_summary());
        if let Some(summary) = summary {
            faultlog::tell(&self.info.name, &summary);
        }
    }

    /// Begins to leave: takes what has arrived, and notes the last words. Whether that is done, or
    /// never will be.
    fn depart(&self) -> bool {
        let Some(mut state) = self.try_lock() else { return self.is_orphaned() };
        state.step(self.clock.now(), true, 0);
        state.device().depart();
        self.deliver(state);
        true
    }

    /// Sends what is owed and answers peers, without waiting. `None` when the device has said its
    /// last words, else the nanoseconds until there is more to do; appends what to wait for.
    fn leave(&self, fds: &mut Vec<libc::pollfd>) -> Option<u64> {
        let Some(mut state) = self.try_lock() else {
            return (!self.is_orphaned()).then_some(0);
        };
        let now = self.clock.now();
        state.step(now, true, 0);
        state.device().hasten();
        let done = state.transmit(now, CALL_BATCHES);
        state.replan(now);
        let more = !done || state.device().is_departing();
        let sleep_ns = state.deadline().map_or(u64::MAX, |at| ns_until(at, now));
        let ring = self.thread_sleeps_past(state.deadline(), now);
        state.interests(fds);
        self.deliver(state);
        if ring {
            self.doorbell.signal();
        }
        more.then_some(sleep_ns)
    }

    /// Lets these devices say their last words, for as long as leaving may take.
    fn flush<'a>(nics: impl Iterator<Item = &'a Self> + Clone) {
        let (start, limit) = (std::time::Instant::now(), parting::longest());
        for nic in nics.clone() {
            while !nic.depart() && start.elapsed() < limit {
                sys::yield_now();
            }
        }
        let mut fds = Vec::new();
        while let Some(left) = limit.checked_sub(start.elapsed()) {
            fds.clear();
            let next = nics.clone().filter_map(|nic| nic.leave(&mut fds)).min();
            match next {
                None => break,
                // Somebody else is at it.
                Some(0) => sys::yield_now(),
                // What comes of it is seen in the next turn.
                Some(ns) => drop(sys::poll(&mut fds, Some(left.min(Duration::from_nanos(ns))))),
            }
        }
        nics.for_each(Self::sum_up);
    }
}
