//! An open device: where everything else is made.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use engine::{AsyncEvent, Counters, Error, ErrorKind, GidEntry, LinkState, MrId, Result, limits};
use live::{DeviceInfo, LinkCounters, Nic, Options, Region};
use wire::{Gid, Mtu};

use crate::channel::CompChannel;
use crate::cq::Cq;
use crate::hub::{Hub, NextAsyncEvent};
use crate::info::{DeviceLimits, PortInfo, PortState};
use crate::pd::Pd;
use crate::sharing;

/// The devices of this machine: one for each network interface that can carry RoCE. The environment
/// variable `CROCEVIA_ADDR` (an address or an interface) narrows the list to one.
///
/// # Errors
/// `NoDevice` if `CROCEVIA_ADDR` names nothing that exists; the message lists what does.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    live::devices(Options::from_env()?.addr.as_deref())
}

/// An open device. Clones are the same device; it closes when the last clone and the last object
/// made from it are gone.
///
/// ```
/// use crocevia::Context;
///
/// let context = Context::open_addr("127.0.70.3")?;
/// let port = context.port();
/// println!("{} on {}", context.device().name, context.device().netdev.name);
/// println!("GID 0 is {}, packets carry {} bytes", context.gid(0)?, port.active_mtu.bytes());
/// assert_eq!(context.gid(0)?.to_ip().to_string(), "127.0.70.3");
/// # Ok::<(), crocevia::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    nic: Arc<Nic>,
    hub: Arc<Hub>,
    /// Memory whose `Mr` is gone although a window is bound to it; it goes when the window is gone.
    kept: Mutex<Vec<(MrId, Region)>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let kept = std::mem::take(self.kept.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (mr, region) in kept {
            if self.nic.control(|dev, _| dev.dereg_mr(mr)).is_err() {
                // A registration that cannot be ended keeps its memory for ever: another context
                // may keep the NIC going. (Windows hold their context, so none is left; this is for
                // a child of a fork, whose parent's registrations are out of its reach.)
                std::mem::forget(region);
            }
        }
    }
}

impl Context {
    /// Opens a device, with the options that the environment gives (`CROCEVIA_*`). It may be opened
    /// more than once in a process; the contexts share its addresses, and nothing else that shows.
    ///
    /// # Errors
    /// If its addresses cannot be bound; the message says which and why.
    pub fn open(info: &DeviceInfo) -> Result<Self> {
        Self::open_shared(info, &Options::from_env()?)
    }

    fn open_shared(info: &DeviceInfo, options: &Options) -> Result<Self> {
        let hub = Arc::new(Hub::new()?);
        let nic = sharing::open(info, options, &hub)?;
        Ok(Self { inner: Arc::new(Inner { nic, hub, kept: Mutex::default() }) })
    }

    /// Opens a device with options of the program's own, shared with no other context.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(info: &DeviceInfo, options: &Options) -> Result<Self> {
        let hub = Arc::new(Hub::new()?);
        let nic = Nic::open(info, options, Arc::clone(&hub) as Arc<dyn live::EventSink>)?;
        Ok(Self { inner: Arc::new(Inner { nic, hub, kept: Mutex::default() }) })
    }

    /// Opens the first device of [`devices`].
    ///
    /// # Errors
    /// `NoDevice` if there is none, otherwise as [`open`](Self::open).
    pub fn open_default() -> Result<Self> {
        Self::open_first(&Options::from_env()?)
    }

    /// Opens the device that has an address (`"192.0.2.1"`, `"2001:db8::1"`, any `"127.x.y.z"`) or
    /// lies on an interface (`"eth0"`). The address is then GID 0.
    ///
    /// # Errors
    /// `NoDevice` if there is none; the message lists what there is.
    pub fn open_addr(addr: &str) -> Result<Self> {
        let mut options = Options::from_env()?;
        options.addr = Some(addr.to_owned());
        Self::open_first(&options)
    }

    fn open_first(options: &Options) -> Result<Self> {
        let devices = live::devices(options.addr.as_deref())?;
        let first = devices.first().ok_or_else(|| {
            Error::new(
                ErrorKind::NoDevice,
                "no network interface can carry RoCE: one that is up, has an IP address and an MTU \
                 of at least 352 bytes is needed",
            )
        })?;
        Self::open_shared(first, options)
    }

    pub(crate) fn nic(&self) -> &Nic {
        &self.inner.nic
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// Keeps the memory of a region that could not be deregistered.
    pub(crate) fn keep(&self, mr: MrId, region: Region) {
        self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner).push((mr, region));
    }

    /// Tries again to deregister what is kept; called when a window has gone.
    pub(crate) fn release_kept(&self) {
        let mut kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(mr, _)| self.nic().control(|dev, _| dev.dereg_mr(*mr)).is_err());
    }

    /// Whether `other` is the same open device.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The device, with the GIDs it is bound to.
    pub fn device(&self) -> &DeviceInfo {
        self.nic().info()
    }

    /// The port.
    pub fn port(&self) -> PortInfo {
        let info = self.device();
        let (active_mtu, gid_table_len, link) =
            self.nic().control(|dev, _| (dev.mtu(), dev.gids().len(), dev.link()));
        PortInfo {
            state: if link == LinkState::Up { PortState::Active } else { PortState::Down },
            active_mtu,
            max_mtu: Mtu::B4096,
            max_msg_sz: limits::MAX_MESSAGE,
            gid_table_len,
            pkey_table_len: 1,
            speed_mbps: info.netdev.speed_mbps,
        }
    }

    /// How large and how many the device's objects may be.
    pub fn limits(&self) -> DeviceLimits {
        DeviceLimits::of_engine()
    }

    /// The GID table: the addresses by which peers reach this device.
    pub fn gids(&self) -> Vec<GidEntry> {
        self.nic().control(|dev, _| dev.gids().to_vec())
    }

    /// A GID by its index.
    ///
    /// # Errors
    /// `NotFound` if the table has no such index; the message lists the table.
    pub fn gid(&self, index: u8) -> Result<Gid> {
        let gids = self.gids();
        gids.get(usize::from(index)).map(|entry| entry.gid).ok_or_else(|| {
            let table: Vec<String> =
                gids.iter().enumerate().map(|(i, entry)| format!("{i}: {}", entry.gid)).collect();
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "GID index {index} is empty; the table of {} is {{{}}}",
                    self.device().name,
                    table.join(", ")
                ),
            )
        })
    }

    /// What the device has counted since it was opened.
    pub fn counters(&self) -> Counters {
        self.nic().control(|dev, _| *dev.counters())
    }

    /// What the device's link has counted: datagrams, trains, drops by cause.
    pub fn link_counters(&self) -> LinkCounters {
        self.nic().link_counters()
    }

    /// The device's clock now, in picoseconds: what [`Completion::timestamp`](crate::Completion)
    /// counts in.
    pub fn clock_ps(&self) -> u64 {
        self.nic().now().as_ps()
    }

    /// Lets the device take what has arrived and send what is due, once, without waiting. Polling a
    /// completion queue does this by itself, and so does the device's own thread while nobody
    /// polls. True if there was something to do.
    pub fn progress(&self) -> bool {
        self.nic().progress()
    }

    /// A protection domain.
    ///
    /// # Errors
    /// `Full` if the device has no room for another.
    pub fn alloc_pd(&self) -> Result<Pd> {
        Pd::new(self)
    }

    /// A completion channel.
    ///
    /// # Errors
    /// `System` if the process has no descriptor left.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        CompChannel::new(self)
    }

    /// A completion queue of at least `cqe` entries. Events that are asked for with
    /// [`Cq::req_notify`] arrive on `channel`.
    ///
    /// # Errors
    /// `Invalid` if `cqe` is 0 or beyond `limits().max_cqe`; `Full` if the device has no room.
    pub fn create_cq(&self, cqe: u32, channel: Option<&CompChannel>) -> Result<Cq> {
        Cq::new(self, cqe, channel)
    }

    /// The descriptor of the asynchronous events: readable while one waits. It may be made
    /// non-blocking by `fcntl`; it is not to be read by anybody else.
    pub fn async_fd(&self) -> RawFd {
        self.hub().fd().as_raw_fd()
    }

    /// The same descriptor, borrowed.
    pub fn borrow_async_fd(&self) -> BorrowedFd<'_> {
        self.hub().fd()
    }

    /// The next asynchronous event. Blocks, in a read of the descriptor, until there is one; if the
    /// descriptor has been made non-blocking, the error is `WouldBlock` instead. The event counts
    /// as acknowledged.
    pub fn async_event(&self) -> io::Result<AsyncEvent> {
        self.hub().next()
    }

    /// The next asynchronous event, if there is one. It counts as acknowledged.
    pub fn try_async_event(&self) -> Option<AsyncEvent> {
        self.hub().try_next()
    }

    /// The next asynchronous event, as a future for any executor. It counts as acknowledged.
    pub fn next_async_event(&self) -> NextAsyncEvent {
        NextAsyncEvent { hub: Arc::clone(&self.inner.hub) }
    }

    /// The second half of [`async_event`](Self::async_event), for callers that read the 8 bytes of
    /// the descriptor themselves: takes the event that the read announced. It must be acknowledged
    /// with [`ack_async_event`](Self::ack_async_event) before its object can be destroyed. `None`
    /// if the object has been destroyed in between; then read again.
    pub fn take_async_event(&self) -> Option<AsyncEvent> {
        self.hub().take()
    }

    /// Acknowledges an event of [`take_async_event`](Self::take_async_event).
    pub fn ack_async_event(&self, event: &AsyncEvent) {
        self.hub().ack(event);
    }
}
