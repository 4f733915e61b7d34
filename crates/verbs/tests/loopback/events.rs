//! Completion channels, asynchronous events, acknowledging them.

use std::io::ErrorKind::WouldBlock;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::sync::mpsc;
use std::time::Duration;

use crocevia::{
    AsyncEvent, CompChannel, ConnectOptions, Context, Cq, CqId, ErrorKind, Moderation, Qp,
    QpOptions, QpType, SendFlags, SendOp, Span, WcStatus,
};

use super::support::*;

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(54), open(55)));
    OPEN.clone()
}

/// Sets `O_NONBLOCK`, which belongs to the open file, not to the descriptor.
fn nonblocking(fd: BorrowedFd<'_>) {
    UnixStream::from(fd.try_clone_to_owned().unwrap()).set_nonblocking(true).unwrap();
}

/// A connection whose second end completes receives into a queue on a channel.
fn pair_with(cq: &Cq) -> (End, Qp) {
    let (a, _) = contexts();
    let end = End::new(&a, QpType::Rc);
    let pd = cq.context().alloc_pd().unwrap();
    let own = cq.context().create_cq(64, None).unwrap();
    let options = QpOptions { send_cq: &own, ..QpOptions::rc(cq) };
    let qp = pd.create_qp(&options).unwrap();
    Qp::pair(&end.qp, &qp, &ConnectOptions::default()).unwrap();
    for wr_id in 0..32 {
        qp.post_recv(&crocevia::RecvRequest { wr_id, sges: &[] }).unwrap();
    }
    (end, qp)
}

/// The event of a non-blocking channel that must come: it may come a little later than what it
/// tells of.
fn event(channel: &CompChannel) -> CqId {
    let start = std::time::Instant::now();
    loop {
        match channel.next_event() {
            Ok(id) => return id,
            Err(error) => assert!(error.kind() == WouldBlock && start.elapsed() < SOON, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn send_solicited(end: &End) {
    let mut wr = request(1, SendOp::Send, &[]);
    wr.flags |= SendFlags::SOLICITED;
    end.qp.post_send(&wr).unwrap();
    end.success();
}

#[test]
fn one_event_for_one_arm() {
    let (_, b) = contexts();
    let channel = b.create_comp_channel().unwrap();
    nonblocking(channel.as_fd());
    let cq = b.create_cq(64, Some(&channel)).unwrap();
    let (end, _qp) = pair_with(&cq);
    assert_eq!(channel.next_event().unwrap_err().kind(), WouldBlock);

    end.run(SendOp::Send, &[]);
    assert_eq!(cq.wait(Some(SOON)).unwrap().status, WcStatus::Success);
    assert_eq!(channel.next_event().unwrap_err().kind(), WouldBlock, "it was not armed");

    cq.req_notify(false);
    end.run(SendOp::Send, &[]);
    end.run(SendOp::Send, &[]);
    let mut got = 0;
    while got < 2 {
        got += usize::from(cq.wait(Some(SOON)).is_some());
    }
    assert_eq!(event(&channel), cq.id());
    assert_eq!(channel.next_event().unwrap_err().kind(), WouldBlock, "one arm, one event");
}

#[test]
fn blocking_and_solicited() {
    let (_, b) = contexts();
    let channel = b.create_comp_channel().unwrap();
    let cq = b.create_cq(64, Some(&channel)).unwrap();
    let (end, _qp) = pair_with(&cq);
    cq.req_notify(true);
    let waiter = std::thread::spawn(move || channel.next_event().map(|id| (id, channel)));
    end.run(SendOp::Send, &[]);
    std::thread::sleep(NEVER);
    assert!(!waiter.is_finished(), "not solicited");
    send_solicited(&end);
    let (id, channel) = waiter.join().unwrap().unwrap();
    assert_eq!(id, cq.id());
    assert_eq!(cq.poll(&mut [Default::default(); 8]), 2);

    // A failure counts as solicited.
    cq.req_notify(true);
    drop(_qp);
    let (end, qp) = pair_with(&cq);
    let attr = crocevia::QpAttr { state: crocevia::QpState::Err, ..qp.query().unwrap().0 };
    qp.modify(&attr, crocevia::AttrMask::STATE).unwrap();
    assert_eq!(channel.next_event().unwrap(), cq.id());
    drop(end);
}

#[test]
fn many_queues_on_one_channel() {
    let (_, b) = contexts();
    let channel = b.create_comp_channel().unwrap();
    let queues: Vec<Cq> = (0..5).map(|_| b.create_cq(64, Some(&channel)).unwrap()).collect();
    let ends: Vec<_> = queues.iter().map(pair_with).collect();
    for cq in &queues {
        cq.req_notify(false);
    }
    let mut expected = Vec::new();
    for i in [3, 0, 4] {
        ends[i].0.run(SendOp::Send, &[]);
        expected.push(queues[i].id());
    }
    let mut got: Vec<_> = (0..3).map(|_| channel.next_event().unwrap()).collect();
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected);
}

#[test]
fn moderation_collects() {
    let (_, b) = contexts();
    let channel = b.create_comp_channel().unwrap();
    nonblocking(channel.as_fd());
    let cq = b.create_cq(64, Some(&channel)).unwrap();
    let (end, _qp) = pair_with(&cq);
    cq.modify(Moderation { count: 4, period: Span::ZERO }).unwrap();
    cq.req_notify(false);
    for i in 0..4 {
        assert_eq!(channel.next_event().unwrap_err().kind(), WouldBlock, "after {i}");
        end.run(SendOp::Send, &[]);
    }
    assert_eq!(event(&channel), cq.id());
    assert_eq!(cq.poll(&mut [Default::default(); 8]), 4);

    // Or when the time is over.
    cq.modify(Moderation { count: 100, period: Span::from_ms(20) }).unwrap();
    cq.req_notify(false);
    end.run(SendOp::Send, &[]);
    assert_eq!(event(&channel), cq.id());
}

#[test]
fn a_destroyed_queue_leaves_no_event() {
    let (_, b) = contexts();
    let channel = b.create_comp_channel().unwrap();
    nonblocking(channel.as_fd());
    let (gone, stays) =
        (b.create_cq(64, Some(&channel)).unwrap(), b.create_cq(64, Some(&channel)).unwrap());
    let ends = [pair_with(&gone), pair_with(&stays)];
    gone.req_notify(false);
    stays.req_notify(false);
    ends[0].0.run(SendOp::Send, &[]);
    ends[1].0.run(SendOp::Send, &[]);
    let [(_, first), second] = ends;
    drop(first);
    gone.destroy().map_err(|(_, error)| error).unwrap();
    assert_eq!(event(&channel), stays.id());
    assert_eq!(channel.next_event().unwrap_err().kind(), WouldBlock);

    let (channel, error) = channel.destroy().expect_err("a queue uses it");
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop((second, stays));
    channel.destroy().map_err(|(_, error)| error).unwrap();
}

#[test]
fn destroying_waits_for_acknowledgement() {
    let (_, b) = contexts();
    let channel = b.create_comp_channel().unwrap();
    let cq = b.create_cq(64, Some(&channel)).unwrap();
    let (end, qp) = pair_with(&cq);
    cq.req_notify(false);
    end.run(SendOp::Send, &[]);
    // As a C program does: the read, then the event, then the acknowledgement, at leisure.
    let start = std::time::Instant::now();
    let id = loop {
        if let Some(id) = channel.take_event() {
            break id;
        }
        assert!(start.elapsed() < SOON);
    };
    assert_eq!(id, cq.id());
    assert!(cq.poll_one().is_some());
    drop(qp);
    let keep = cq.clone();
    let (done, finished) = mpsc::channel();
    let destroyer = std::thread::spawn(move || {
        cq.destroy().map_err(|(_, error)| error).unwrap();
        done.send(()).unwrap();
    });
    assert!(finished.recv_timeout(NEVER).is_err(), "an event is not acknowledged");
    keep.ack_events(1);
    finished.recv_timeout(SOON).expect("now it is");
    destroyer.join().unwrap();
    assert_eq!(keep.resize(10).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(keep.poll_one(), None);
}

/// Makes the peer's queue pair raise an access error.
fn offend(pair: &Pair) {
    let (mine, theirs) = (pair.a.memory(8, 0), pair.b.pd.alloc(8, crocevia::Access::empty()));
    pair.a.post(1, SendOp::Write(theirs.unwrap().remote(0)), &[mine.sge(..)]);
    pair.a.failure(WcStatus::RemAccessErr);
}

#[test]
fn asynchronous_events() {
    let (a, b) = (open(56), open(57));
    let pair = Pair::rc(&a, &b);
    assert_eq!(b.try_async_event(), None);
    offend(&pair);
    assert_eq!(b.async_event().unwrap(), AsyncEvent::QpAccessErr(pair.b.qp.qpn()));
    nonblocking(b.borrow_async_fd());
    assert_eq!(b.async_event().unwrap_err().kind(), WouldBlock);

    // Taken without reading the descriptor: its count goes, too.
    let pair = Pair::rc(&a, &b);
    offend(&pair);
    let start = std::time::Instant::now();
    while b.try_async_event().is_none() {
        assert!(start.elapsed() < SOON);
    }
    assert_eq!(b.async_event().unwrap_err().kind(), WouldBlock);

    // Destroying drops what nobody took, and waits for what somebody has.
    let pair = Pair::rc(&a, &b);
    offend(&pair);
    std::thread::sleep(NEVER);
    drop(pair);
    assert_eq!(b.try_async_event(), None);

    let pair = Pair::rc(&a, &b);
    offend(&pair);
    let start = std::time::Instant::now();
    let event = loop {
        match b.take_async_event() {
            Some(event) => break event,
            None => assert!(start.elapsed() < SOON),
        }
    };
    let (done, finished) = mpsc::channel();
    let qp = pair.b.qp;
    let destroyer = std::thread::spawn(move || {
        qp.destroy().map_err(|(_, error)| error).unwrap();
        done.send(()).unwrap();
    });
    assert!(finished.recv_timeout(NEVER).is_err(), "the event is not acknowledged");
    b.ack_async_event(&event);
    finished.recv_timeout(SOON).expect("now it is");
    destroyer.join().unwrap();
}

#[test]
fn an_overrun_queue_fails_loudly() {
    let (a, b) = (open(58), open(59));
    let end = End::new(&a, QpType::Rc);
    let pd = b.alloc_pd().unwrap();
    let small = b.create_cq(1, None).unwrap();
    let qp = pd.create_qp(&QpOptions::rc(&small)).unwrap();
    Qp::pair(&end.qp, &qp, &ConnectOptions::default()).unwrap();
    let room = u64::from(small.capacity()) + 1;
    for wr_id in 0..room {
        qp.post_recv(&crocevia::RecvRequest { wr_id, sges: &[] }).unwrap();
    }
    for i in 0..room {
        end.post(i, SendOp::Send, &[]);
    }
    let mut events = vec![b.async_event().unwrap()];
    events.push(b.async_event().unwrap());
    assert!(events.contains(&AsyncEvent::CqErr(small.id())), "{events:?}");
    assert!(events.contains(&AsyncEvent::QpFatal(qp.qpn())), "{events:?}");
    assert!(small.is_overrun());
    assert_eq!(qp.state(), crocevia::QpState::Err);
}
