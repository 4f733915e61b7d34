//! Completion channels: one descriptor to sleep on for any number of completion queues.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{CqId, Error, ErrorKind, Result};
use live::EventFd;

use crate::context::Context;
use crate::hub::event_fd;
use crate::notify::CqNotify;

/// A completion channel: where the events of armed completion queues arrive, with a descriptor for
/// `poll`, `epoll` or `select`.
///
/// An event says only that a queue has something; what it has is polled from the queue. One event
/// comes for each [`Cq::req_notify`](crate::Cq::req_notify). The loop is: arm, poll until nothing
/// is left, sleep, and again; what came between the last poll and the arming is polled or notified.
///
/// ```
/// use crocevia::Completion;
/// # use crocevia::{ConnectOptions, Context, Qp, QpOptions, RecvRequest, SendData, SendFlags};
/// # use crocevia::{SendOp, SendRequest};
/// # let context = Context::open_addr("127.0.70.8")?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(16, None)?);
/// let channel = context.create_comp_channel()?;
/// let peer_cq = context.create_cq(16, Some(&channel))?;
/// # let qp = pd.create_qp(&QpOptions::rc(&cq))?;
/// # let peer = pd.create_qp(&QpOptions::rc(&peer_cq))?;
/// # Qp::pair(&qp, &peer, &ConnectOptions::default())?;
/// # peer.post_recv(&RecvRequest { wr_id: 7, sges: &[] })?;
/// # let (op, flags, data) = (SendOp::Send, SendFlags::empty(), SendData::Sges(&[]));
/// # qp.post_send(&SendRequest { wr_id: 1, op, flags, data, datagram: None })?;
///
/// let mut completions = [Completion::default(); 8];
/// let received = loop {
///     peer_cq.req_notify(false);
///     let n = peer_cq.poll(&mut completions);
///     if n > 0 {
///         break n;
///     }
///     // Or put `channel.fd()` into an event loop.
///     let id = channel.next_event()?;
///     assert_eq!(id, peer_cq.id());
/// };
/// assert_eq!(received, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CompChannel {
    context: Context,
    channel: Arc<Channel>,
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.fd.as_fd()
    }
}

/// The channel without the device: what the delivery of events may hold.
pub(crate) struct Channel {
    fd: EventFd,
    queue: Mutex<VecDeque<Arc<CqNotify>>>,
    /// Completion queues that refer to the channel.
    users: AtomicUsize,
}

impl Channel {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<CqNotify>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, notify: Arc<CqNotify>) {
        let mut queue = self.queue();
        queue.push_back(notify);
        // Under the lock: the descriptor's count and the queue's length differ only by what readers
        // have read and not yet taken.
        self.fd.signal();
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// A queue goes away: its events are dropped, with their counts.
    pub(crate) fn remove_user(&self, id: CqId) {
        let mut queue = self.queue();
        let before = queue.len();
        queue.retain(|notify| notify.id() != id);
        for _ in queue.len()..before {
            // If there is no count, a reader has it already; it finds nothing and reads again.
            let _ = self.fd.try_read();
        }
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    fn take(&self) -> Option<CqId> {
        let mut queue = self.queue();
        let notify = queue.pop_front()?;
        // Under the lock: a queue that is being destroyed either drops this event or waits for it.
        notify.taken();
        Some(notify.id())
    }
}

impl CompChannel {
    pub(crate) fn new(context: &Context) -> Result<Self> {
        let channel =
            Channel { fd: event_fd()?, queue: Mutex::default(), users: AtomicUsize::new(0) };
        Ok(Self { context: context.clone(), channel: Arc::new(channel) })
    }

    pub(crate) fn shared(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The descriptor: readable while an event waits. It may be made non-blocking by `fcntl`; it is
    /// not to be read by anybody else.
    pub fn fd(&self) -> RawFd {
        self.channel.fd.fd()
    }

    /// The next event: the queue that raised it. Blocks, in a read of the descriptor, until there
    /// is one; if the descriptor has been made non-blocking, the error is `WouldBlock` instead. The
    /// event counts as acknowledged.
    pub fn next_event(&self) -> io::Result<CqId> {
        loop {
            self.channel.fd.read()?;
            let mut queue = self.channel.queue();
            if let Some(notify) = queue.pop_front() {
                return Ok(notify.id());
            }
        }
    }

    /// The second half of [`next_event`](Self::next_event), for callers that read the 8 bytes of
    /// the descriptor themselves: takes the event that the read announced. It must be acknowledged
    /// with [`Cq::ack_events`](crate::Cq::ack_events) before the queue can be destroyed. `None` if
    /// the event's queue has been destroyed in between; then read again.
    pub fn take_event(&self) -> Option<CqId> {
        self.channel.take()
    }

    /// Closes the channel; `Busy` while a completion queue refers to it.
    pub fn destroy(self) -> std::result::Result<(), (Self, Error)> {
        let users = self.channel.users.load(Ordering::Relaxed);
        if users == 0 {
            return Ok(());
        }
        let message =
            format!("{users} completion queue(s) still use the channel: destroy them first");
        Err((self, Error::new(ErrorKind::Busy, message)))
    }
}
