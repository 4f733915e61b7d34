//! The ways to wait inside this crate: sleeping, futures.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crocevia::{AsyncEvent, Completion, Context, SendOp};

use super::support::*;

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(60), open(61)));
    OPEN.clone()
}

/// Wakes a thread, and counts.
struct Alarm(std::thread::Thread, AtomicUsize);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// An executor for one future, which sleeps between polls.
fn block_on<T>(future: impl Future<Output = T>) -> (T, usize) {
    let alarm = Arc::new(Alarm(std::thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&alarm));
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            Poll::Ready(value) => return (value, alarm.1.load(Ordering::SeqCst)),
            Poll::Pending => std::thread::park_timeout(SOON),
        }
        assert!(start.elapsed() < SOON, "nobody wakes the future");
    }
}

#[test]
fn a_timeout_is_kept() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    for timeout in [0, 1, 30] {
        let start = Instant::now();
        assert_eq!(pair.a.cq.wait(Some(Duration::from_millis(timeout))), None);
        let took = start.elapsed().as_millis() as u64;
        assert!((timeout..timeout + 5000).contains(&took), "{took} ms instead of {timeout}");
    }
}

#[test]
fn sleepers_are_woken() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let cq = pair.b.cq.clone();
    // Several sleepers on one queue: each completion wakes one that takes it.
    let sleepers: Vec<_> = (0..3)
        .map(|_| {
            let cq = cq.clone();
            std::thread::spawn(move || cq.wait(Some(SOON)).map(|completion| completion.wr_id))
        })
        .collect();
    for i in 0..3 {
        pair.b.post_recv(i, &[]);
    }
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(10));
        pair.a.run(SendOp::Send, &[]);
    }
    let mut got: Vec<_> = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, [Some(0), Some(1), Some(2)]);
}

#[test]
fn a_future_is_woken() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    pair.b.post_recv(5, &[]);
    let (received, wakes) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| block_on(pair.b.cq.next()));
        std::thread::sleep(Duration::from_millis(20));
        pair.a.post(1, SendOp::Send, &[]);
        let (sent, _) = block_on(pair.a.cq.next());
        assert_eq!(sent.wr_id, 1);
        receiver.join().unwrap()
    });
    assert_eq!(received.wr_id, 5);
    assert!(wakes > 0, "it slept");
}

#[test]
fn futures_share_a_queue() {
    const EACH: usize = 50;
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let (ids, got) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (completion, _): (Completion, _) = block_on(pair.b.cq.next());
                    ids.fetch_add(completion.wr_id as usize, Ordering::SeqCst);
                    got.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for i in 0..3 * EACH {
            pair.b.post_recv(i as u64, &[]);
            pair.a.run(SendOp::Send, &[]);
        }
    });
    let all = 3 * EACH;
    assert_eq!((got.into_inner(), ids.into_inner()), (all, all * (all - 1) / 2));
}

#[test]
fn a_dropped_future_takes_nothing() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    pair.b.post_recv(5, &[]);
    {
        let mut abandoned = pin!(pair.b.cq.next());
        let waker = Waker::from(Arc::new(Alarm(std::thread::current(), AtomicUsize::new(0))));
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(abandoned.as_mut().poll(&mut cx).is_pending());
    }
    pair.a.run(SendOp::Send, &[]);
    assert_eq!(block_on(pair.b.cq.next()).0.wr_id, 5);
}

#[test]
fn an_asynchronous_event_is_awaited() {
    let (a, b) = (open(62), open(63));
    let pair = Pair::rc(&a, &b);
    let qpn = pair.b.qp.qpn();
    let waiting = b.clone();
    let waiter = std::thread::spawn(move || block_on(waiting.next_async_event()).0);
    std::thread::sleep(Duration::from_millis(20));
    let (mine, theirs) = (pair.a.memory(8, 0), pair.b.pd.alloc(8, crocevia::Access::empty()));
    pair.a.post(1, SendOp::Read(theirs.unwrap().remote(0)), &[mine.sge(..)]);
    assert_eq!(waiter.join().unwrap(), AsyncEvent::QpAccessErr(qpn));
}
