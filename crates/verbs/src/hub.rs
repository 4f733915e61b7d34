//! Where the device's events arrive: completion events go to their queue's `CqNotify`, asynchronous
//! events into one queue behind one descriptor. Nothing here holds the NIC, so that an event that
//! is delivered by the NIC's own thread can never be what closes the NIC.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use engine::{AsyncEvent, CqId, Error, ErrorKind, Event, Result, SrqId};
use live::{EventFd, EventSink};
use wire::Qpn;

use crate::notify::CqNotify;

/// A new descriptor for events.
pub(crate) fn event_fd() -> Result<EventFd> {
    EventFd::new().map_err(|error| {
        Error::new(ErrorKind::System, format!("no event descriptor to be had: {error}"))
    })
}

/// The object that an asynchronous event is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Subject {
    Qp(Qpn),
    Cq(CqId),
    Srq(SrqId),
}

impl Subject {
    /// The subject of `event`; `None` if it is about the port or the device.
    pub(crate) fn of(event: &AsyncEvent) -> Option<Self> {
        match *event {
            AsyncEvent::CommEst(qp)
            | AsyncEvent::SqDrained(qp)
            | AsyncEvent::QpFatal(qp)
            | AsyncEvent::QpReqErr(qp)
            | AsyncEvent::QpAccessErr(qp)
            | AsyncEvent::QpLastWqeReached(qp) => Some(Self::Qp(qp)),
            AsyncEvent::SrqLimitReached(srq) | AsyncEvent::SrqErr(srq) => Some(Self::Srq(srq)),
            AsyncEvent::CqErr(cq) => Some(Self::Cq(cq)),
            AsyncEvent::PortActive
            | AsyncEvent::PortErr
            | AsyncEvent::GidChange
            | AsyncEvent::DeviceFatal => None,
        }
    }
}

/// Takes the device's events and keeps them until somebody asks.
pub(crate) struct Hub {
    cqs: Mutex<HashMap<CqId, Arc<CqNotify>>>,
    events: Mutex<AsyncQueue>,
    acknowledged: Condvar,
    fd: EventFd,
}

#[derive(Default)]
struct AsyncQueue {
    events: VecDeque<AsyncEvent>,
    /// Objects that exist, each with the events taken and not yet acknowledged.
    subjects: HashMap<Subject, u32>,
    /// Objects that exist no more, whose taken events are not all acknowledged.
    closing: HashMap<Subject, u32>,
    wakers: Vec<Waker>,
}

impl Hub {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            cqs: Mutex::default(),
            events: Mutex::default(),
            acknowledged: Condvar::new(),
            fd: event_fd()?,
        })
    }

    fn queue(&self) -> MutexGuard<'_, AsyncQueue> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cqs(&self) -> MutexGuard<'_, HashMap<CqId, Arc<CqNotify>>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completion events of this queue are passed on from now on. Called, like [`add`](Self::add)
    /// and the two removals, under the device's lock, so that a number cannot be given anew between
    /// an object's end and its removal here.
    pub(crate) fn add_cq(&self, notify: Arc<CqNotify>) {
        self.add(Subject::Cq(notify.id()));
        self.cqs().insert(notify.id(), notify);
    }

    pub(crate) fn remove_cq(&self, id: CqId) {
        self.cqs().remove(&id);
        self.remove(Subject::Cq(id));
    }

    /// Events about `subject` are kept from now on.
    pub(crate) fn add(&self, subject: Subject) {
        self.queue().subjects.insert(subject, 0);
    }

    /// Drops the untaken events of a destroyed object.
    pub(crate) fn remove(&self, subject: Subject) {
        let mut queue = self.queue();
        let before = queue.events.len();
        queue.events.retain(|event| Subject::of(event) != Some(subject));
        for _ in queue.events.len()..before {
            // If there is no count, a reader has it already; it finds nothing and reads again.
            let _ = self.fd.try_read();
        }
        if let Some(unacknowledged @ 1..) = queue.subjects.remove(&subject) {
            *queue.closing.entry(subject).or_default() += unacknowledged;
        }
    }

    /// Returns when all events that were taken of a removed object have been acknowledged.
    pub(crate) fn wait_acknowledged(&self, subject: Subject) {
        let mut queue = self.queue();
        while queue.closing.contains_key(&subject) {
            queue = self.acknowledged.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn push(&self, event: AsyncEvent) {
        let wakers = {
            let mut queue = self.queue();
            if Subject::of(&event).is_some_and(|subject| !queue.subjects.contains_key(&subject)) {
                return;
            }
            queue.events.push_back(event);
            // Under the lock: the descriptor's count and the queue's length differ only by what
            // readers have read and not yet taken.
            self.fd.signal();
            std::mem::take(&mut queue.wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes the next event after the descriptor has been read; it is to be acknowledged.
    pub(crate) fn take(&self) -> Option<AsyncEvent> {
        let mut queue = self.queue();
        let event = queue.events.pop_front()?;
        let subject = Subject::of(&event);
        if let Some(unacked) = subject.and_then(|subject| queue.subjects.get_mut(&subject)) {
            *unacked += 1;
        }
        Some(event)
    }

    pub(crate) fn ack(&self, event: &AsyncEvent) {
        let Some(subject) = Subject::of(event) else { return };
        let mut queue = self.queue();
        if let Some(left) = queue.closing.get_mut(&subject) {
            *left -= 1;
            if *left == 0 {
                queue.closing.remove(&subject);
                self.acknowledged.notify_all();
            }
        } else if let Some(unacknowledged) = queue.subjects.get_mut(&subject) {
            *unacknowledged = unacknowledged.saturating_sub(1);
        }
    }

    /// Blocks in a read of the descriptor, holding nothing.
    pub(crate) fn next(&self) -> io::Result<AsyncEvent> {
        loop {
            self.fd.read()?;
            if let Some(event) = self.queue().events.pop_front() {
                return Ok(event);
            }
        }
    }

    pub(crate) fn try_next(&self) -> Option<AsyncEvent> {
        let mut queue = self.queue();
        let event = queue.events.pop_front()?;
        // If there is no count, a reader has it already; it finds the queue empty and reads again.
        let _ = self.fd.try_read();
        Some(event)
    }
}

impl EventSink for Hub {
    fn event(&self, event: Event) {
        match event {
            Event::Completion(id) => {
                let notify = self.cqs().get(&id).cloned();
                if let Some(notify) = notify {
                    notify.fire();
                }
            }
            Event::Async(event) => self.push(event),
        }
    }
}

/// The next asynchronous event, as a future; made by
/// [`Context::next_async_event`](crate::Context::next_async_event).
#[must_use = "futures do nothing unless polled"]
pub struct NextAsyncEvent {
    pub(crate) hub: Arc<Hub>,
}

impl Future for NextAsyncEvent {
    type Output = AsyncEvent;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<AsyncEvent> {
        let mut queue = self.hub.queue();
        match queue.events.pop_front() {
            Some(event) => {
                let _ = self.hub.fd.try_read();
                Poll::Ready(event)
            }
            None => {
                if !queue.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    queue.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
