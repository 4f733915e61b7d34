//! What happens when an armed completion queue has something: an event on its channel, if the
//! application armed it; a wake-up of everybody who waits inside this crate.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use engine::CqId;

use crate::channel::Channel;

/// The waiting side of a completion queue.
pub(crate) struct CqNotify {
    id: CqId,
    channel: Option<Arc<Channel>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The application asked for an event on the channel.
    armed: bool,
    /// Events raised so far: what a sleeper compares with to see that it missed none.
    raised: u64,
    /// Channel events taken and not yet acknowledged.
    unacknowledged: u32,
    wakers: Vec<(u64, Waker)>,
    next_waker: u64,
}

impl CqNotify {
    pub(crate) fn new(id: CqId, channel: Option<Arc<Channel>>) -> Arc<Self> {
        Arc::new(Self { id, channel, state: Mutex::default(), changed: Condvar::new() })
    }

    pub(crate) fn id(&self) -> CqId {
        self.id
    }

    pub(crate) fn channel(&self) -> Option<&Arc<Channel>> {
        self.channel.as_ref()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application is about to arm the queue.
    pub(crate) fn arm(&self) {
        if self.channel.is_some() {
            self.state().armed = true;
        }
    }

    /// The armed queue has something.
    pub(crate) fn fire(self: &Arc<Self>) {
        let (armed, wakers) = {
            let mut state = self.state();
            state.raised += 1;
            (std::mem::take(&mut state.armed), std::mem::take(&mut state.wakers))
        };
        if let (true, Some(channel)) = (armed, &self.channel) {
            channel.push(Arc::clone(self));
        }
        self.changed.notify_all();
        for (_, waker) in wakers {
            waker.wake();
        }
    }

    /// To be taken before arming, and given to [`sleep`](Self::sleep).
    pub(crate) fn ticket(&self) -> u64 {
        self.state().raised
    }

    /// Sleeps until an event has been raised after `ticket` was taken; false at the deadline.
    pub(crate) fn sleep(&self, ticket: u64, deadline: Option<Instant>) -> bool {
        let mut state = self.state();
        while state.raised == ticket {
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    /// Keeps `waker` for the next event, replacing the one kept under `key`; the key.
    pub(crate) fn register(&self, key: Option<u64>, waker: &Waker) -> u64 {
        let mut state = self.state();
        let kept = state.wakers.iter_mut().find(|(k, _)| Some(*k) == key);
        if let Some((key, kept)) = kept {
            kept.clone_from(waker);
            return *key;
        }
        let key = state.next_waker;
        state.next_waker += 1;
        state.wakers.push((key, waker.clone()));
        key
    }

    /// Forgets the waker kept under `key`.
    pub(crate) fn unregister(&self, key: u64) {
        self.state().wakers.retain(|(k, _)| *k != key);
    }

    /// A channel event of this queue has been taken.
    pub(crate) fn taken(&self) {
        self.state().unacknowledged += 1;
    }

    /// `n` of them have been acknowledged.
    pub(crate) fn acknowledge(&self, n: u32) {
        let mut state = self.state();
        state.unacknowledged = state.unacknowledged.saturating_sub(n);
        drop(state);
        self.changed.notify_all();
    }

    /// Returns when all taken events have been acknowledged.
    pub(crate) fn wait_acknowledged(&self) {
        let mut state = self.state();
        while state.unacknowledged > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
