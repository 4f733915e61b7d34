//! Completion queues: polling, blocking, awaiting.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use engine::{Completion, CqId, Error, ErrorKind, Moderation, Result};

use crate::channel::CompChannel;
use crate::context::Context;
use crate::hub::Subject;
use crate::notify::CqNotify;

/// How long [`Cq::wait`] polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Whoever finds something at so many polls drives the device too: one who never finds the queue
/// empty would else leave that to the device's own thread, and wait for its lock when he posts.
const DRIVE_EVERY: u32 = 8;

/// A completion queue: where finished work requests are reported. Clones are the same queue.
///
/// Polling never waits for the device's lock while something is ready; any number of threads may
/// poll one queue. [`wait`](Self::wait) and [`next`](Self::next) arm the queue for themselves: on a
/// queue whose events a program takes from a [`CompChannel`] they may bring such an event early.
///
/// ```
/// use std::time::Duration;
/// use crocevia::{Completion, WcOpcode, WcStatus};
/// # use crocevia::{ConnectOptions, Context, Qp, QpOptions, RecvRequest, SendData, SendFlags};
/// # use crocevia::{SendOp, SendRequest};
/// # let context = Context::open_addr("127.0.70.7")?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
/// # let peer_cq = context.create_cq(16, None)?;
/// # let qp = pd.create_qp(&QpOptions::rc(&cq))?;
/// # let peer = pd.create_qp(&QpOptions::rc(&peer_cq))?;
/// # Qp::pair(&qp, &peer, &ConnectOptions::default())?;
/// # let send = || {
/// #     peer.post_recv(&RecvRequest { wr_id: 7, sges: &[] })?;
/// #     let (op, flags, data) = (SendOp::Send, SendFlags::empty(), SendData::Sges(&[]));
/// #     qp.post_send(&SendRequest { wr_id: 1, op, flags, data, datagram: None })
/// # };
/// # send()?;
/// // Poll: as many as are ready, at once.
/// let mut completions = [Completion::default(); 8];
/// while peer_cq.poll(&mut completions) == 0 {}
/// assert_eq!((completions[0].wr_id, completions[0].opcode), (7, WcOpcode::Recv));
/// # send()?;
///
/// // Wait: sleep until there is one.
/// let completion = peer_cq.wait(Some(Duration::from_secs(5))).expect("one within 5 s");
/// assert_eq!(completion.status, WcStatus::Success);
/// # send()?;
///
/// // Await: in any executor.
/// # struct Unpark(std::thread::Thread);
/// # impl std::task::Wake for Unpark {
/// #     fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
/// # }
/// # fn block_on<T>(future: impl Future<Output = T>) -> T {
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let mut future = std::pin::pin!(future);
/// #     loop {
/// #         match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
/// #             std::task::Poll::Ready(value) => return value,
/// #             std::task::Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
/// let completion = block_on(async { peer_cq.next().await });
/// assert_eq!(completion.wr_id, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cq {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    id: CqId,
    ring: Arc<engine::Cq>,
    notify: Arc<CqNotify>,
    destroyed: AtomicBool,
    /// Polls that found something.
    found: AtomicU32,
}

impl Cq {
    pub(crate) fn new(context: &Context, cqe: u32, channel: Option<&CompChannel>) -> Result<Self> {
        let channel = channel.map(|channel| Arc::clone(channel.shared()));
        let (id, ring, notify) = context.nic().control(|dev, _| {
            let (id, ring) = dev.create_cq(cqe)?;
            let notify = CqNotify::new(id, channel);
            context.hub().add_cq(Arc::clone(&notify));
            Result::Ok((id, ring, notify))
        })?;
        if let Some(channel) = notify.channel() {
            channel.add_user();
        }
        let destroyed = AtomicBool::new(false);
        Ok(Self {
            inner: Arc::new(Inner {
                context: context.clone(),
                id,
                ring,
                notify,
                destroyed,
                found: AtomicU32::new(0),
            }),
        })
    }

    /// The queue's name within its device, as events give it.
    pub fn id(&self) -> CqId {
        self.inner.id
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Entries that fit.
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.inner.ring.capacity()).unwrap_or(u32::MAX)
    }

    /// Whether completions have been lost because the queue was full; it gives none any more.
    pub fn is_overrun(&self) -> bool {
        self.inner.ring.is_overrun()
    }

    /// Takes up to `out.len()` completions, oldest first; the number taken. If none is ready, the
    /// device makes one step (it receives, sends, runs timers) and the queue is looked at again.
    /// Never blocks.
    pub fn poll(&self, out: &mut [Completion]) -> usize {
        match self.inner.ring.poll(out) {
            0 if !out.is_empty() => {
                self.inner.context.nic().progress();
                self.inner.ring.poll(out)
            }
            0 => 0,
            n => {
                self.inner.found();
                n
            }
        }
    }

    /// Takes one completion, as [`poll`](Self::poll) does.
    pub fn poll_one(&self) -> Option<Completion> {
        if let Some(completion) = self.inner.ring.poll_one() {
            self.inner.found();
            return Some(completion);
        }
        self.inner.context.nic().progress();
        self.inner.ring.poll_one()
    }

    /// Arms the queue: the next completion (with `solicited_only`: the next that its sender marked
    /// solicited, or that failed) raises one event on the queue's channel. What was completed
    /// before may raise none, so poll once more after arming and before sleeping.
    pub fn req_notify(&self, solicited_only: bool) {
        self.inner.notify.arm();
        self.inner.ring.req_notify(solicited_only);
    }

    /// Acknowledges `n` events of [`CompChannel::take_event`].
    pub fn ack_events(&self, n: u32) {
        self.inner.notify.acknowledge(n);
    }

    /// Waits for the next completion: polls for a short while, then sleeps. `None` when `timeout`
    /// has passed without one.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Completion> {
        let start = Instant::now();
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        let spin = deadline.map_or(start + SPIN, |deadline| deadline.min(start + SPIN));
        loop {
            if let Some(completion) = self.poll_one() {
                return Some(completion);
            }
            if Instant::now() >= spin {
                break;
            }
        }
        loop {
            let ticket = self.inner.notify.ticket();
            self.inner.ring.req_notify(false);
            if let Some(completion) = self.poll_one() {
                return Some(completion);
            }
            if !self.inner.notify.sleep(ticket, deadline) {
                return self.poll_one();
            }
        }
    }

    /// The next completion, as a future for any executor: it needs no reactor, the device's own
    /// thread wakes it.
    #[allow(clippy::should_implement_trait)] // It is no iterator: it never ends.
    pub fn next(&self) -> NextCompletion<'_> {
        NextCompletion { cq: self, key: None }
    }

    /// Changes the capacity to at least `cqe`.
    ///
    /// # Errors
    /// `Invalid` if more completions than that wait in the queue, or `cqe` is 0 or beyond the
    /// limit.
    pub fn resize(&self, cqe: u32) -> Result<()> {
        let inner = &*self.inner;
        inner.alive()?;
        inner.context.nic().control(|dev, _| dev.resize_cq(inner.id, cqe))
    }

    /// Sets event moderation: how many completions, or how much time, one event stands for.
    ///
    /// # Errors
    /// `NotFound` if the queue has been destroyed.
    pub fn modify(&self, moderation: Moderation) -> Result<()> {
        let inner = &*self.inner;
        inner.alive()?;
        inner.context.nic().control(|dev, _| dev.modify_cq(inner.id, moderation))
    }

    /// Destroys the queue now, with all its clones, and waits until the events taken from its
    /// channel are acknowledged. Dropping the last clone does the same without waiting.
    ///
    /// # Errors
    /// `Busy` while a queue pair uses it; the queue is handed back.
    pub fn destroy(self) -> std::result::Result<(), (Self, Error)> {
        match self.inner.destroy() {
            Ok(()) => {
                self.inner.notify.wait_acknowledged();
                self.inner.context.hub().wait_acknowledged(Subject::Cq(self.inner.id));
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl Inner {
    /// A poll has found something.
    fn found(&self) {
        if self.found.fetch_add(1, Ordering::Relaxed) % DRIVE_EVERY == DRIVE_EVERY - 1 {
            self.context.nic().progress();
        }
    }

    /// An error if the queue has been destroyed: its number may be another's by now.
    fn alive(&self) -> Result<()> {
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::NotFound, "the completion queue has been destroyed"));
        }
        Ok(())
    }

    fn destroy(&self) -> Result<()> {
        self.alive()?;
        self.context.nic().control(|dev, _| {
            dev.destroy_cq(self.id)?;
            self.context.hub().remove_cq(self.id);
            self.destroyed.store(true, Ordering::Release);
            Ok(())
        })?;
        if let Some(channel) = self.notify.channel() {
            channel.remove_user(self.id);
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Queue pairs hold their queues, so none uses this one and it cannot be busy; the only
        // error left is that it has been destroyed already.
        let _ = self.destroy();
    }
}

/// The next completion of a queue, as a future; made by [`Cq::next`].
#[must_use = "futures do nothing unless polled"]
pub struct NextCompletion<'a> {
    cq: &'a Cq,
    key: Option<u64>,
}

impl Future for NextCompletion<'_> {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Completion> {
        if let Some(completion) = self.cq.poll_one() {
            return Poll::Ready(completion);
        }
        let inner = &*self.cq.inner;
        let key = inner.notify.register(self.key, cx.waker());
        self.key = Some(key);
        inner.ring.req_notify(false);
        match inner.ring.poll_one() {
            Some(completion) => Poll::Ready(completion),
            None => Poll::Pending,
        }
    }
}

impl Drop for NextCompletion<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.cq.inner.notify.unregister(key);
        }
    }
}
