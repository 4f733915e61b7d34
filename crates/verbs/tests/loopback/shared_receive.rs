//! Shared receive queues.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crocevia::{
    AsyncEvent, AttrMask, ConnectOptions, Context, ErrorKind, PostError, Qp, QpOptions, QpState,
    QpType, RecvRequest, SendOp, SrqAttr, WcStatus,
};

use super::support::*;

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(46), open(47)));
    OPEN.clone()
}

const ATTR: SrqAttr = SrqAttr { max_wr: 32, max_sge: 2, limit: 0 };

#[test]
fn one_store_for_many_connections() {
    let (a, b) = contexts();
    let home = End::new(&b, QpType::Rc);
    let srq = home.pd.create_srq(&ATTR).unwrap();
    let memory = home.memory(32 * 64, 0);
    let post = |place: u64| {
        let sges = [memory.sge(place as usize * 64..(place as usize + 1) * 64)];
        srq.post_recv(&RecvRequest { wr_id: place, sges: &sges }).unwrap();
    };
    (0..32).for_each(post);
    let options = QpOptions { srq: Some(&srq), cap: CAP, ..QpOptions::rc(&home.cq) };
    let pairs: Vec<(End, Qp)> = (0..4)
        .map(|_| {
            let (end, qp) = (End::new(&a, QpType::Rc), home.pd.create_qp(&options).unwrap());
            Qp::pair(&end.qp, &qp, &ConnectOptions::default()).unwrap();
            (end, qp)
        })
        .collect();
    assert_eq!(
        pairs[0].1.post_recv(&RecvRequest { wr_id: 0, sges: &[] }),
        Err(PostError::SharedReceive)
    );
    let mut counts = BTreeMap::new();
    for round in 0..50u8 {
        for (i, (end, _)) in pairs.iter().enumerate() {
            let mine = end.memory(60, round ^ i as u8);
            end.run(SendOp::Send, &[mine.sge(..)]);
            let received = home.success();
            assert_eq!((received.qp, received.byte_len), (pairs[i].1.qpn(), 60));
            let place = received.wr_id as usize * 64;
            assert_eq!(bytes(&memory, place, 60), pattern(60, round ^ i as u8));
            post(received.wr_id);
            *counts.entry(received.qp).or_insert(0) += 1;
        }
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [50; 4]);
    let (srq, error) = srq.destroy().expect_err("queue pairs use it");
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(pairs);
    srq.destroy().map_err(|(_, error)| error).unwrap();
}

#[test]
fn attributes_and_sizes() {
    let (_, b) = contexts();
    let pd = b.alloc_pd().unwrap();
    let srq = pd.create_srq(&ATTR).unwrap();
    let granted = srq.query().unwrap();
    assert!(granted.max_wr >= 32 && granted.max_sge >= 2, "{granted:?}");
    let recv = |wr_id| RecvRequest { wr_id, sges: &[] };
    let full = granted.max_wr as usize;
    let list = (0..100_000).map(recv);
    assert_eq!(srq.post_recv_list(list), Err((full, PostError::QueueFull)));
    srq.modify(Some(granted.max_wr * 2), None).unwrap();
    assert_eq!(srq.query().unwrap().max_wr, granted.max_wr * 2);
    assert_eq!(srq.post_recv(&recv(1)), Ok(()));
    let too_small = srq.modify(Some(1), None).expect_err("more are queued");
    assert_eq!(too_small.kind(), ErrorKind::Invalid, "{too_small}");
}

#[test]
fn the_limit_is_told_once() {
    let (a, b) = (open(48), open(49));
    let home = End::new(&b, QpType::Rc);
    let srq = home.pd.create_srq(&ATTR).unwrap();
    for i in 0..8 {
        srq.post_recv(&RecvRequest { wr_id: i, sges: &[] }).unwrap();
    }
    srq.modify(None, Some(6)).unwrap();
    assert_eq!(srq.query().unwrap().limit, 6);
    let options = QpOptions { srq: Some(&srq), cap: CAP, ..QpOptions::rc(&home.cq) };
    let (end, qp) = (End::new(&a, QpType::Rc), home.pd.create_qp(&options).unwrap());
    Qp::pair(&end.qp, &qp, &ConnectOptions::default()).unwrap();
    let send = || {
        end.run(SendOp::Send, &[]);
        home.success();
    };
    send();
    send();
    assert_eq!(b.try_async_event(), None, "6 are left, not fewer");
    send();
    assert_eq!(b.async_event().unwrap(), AsyncEvent::SrqLimitReached(srq.id()));
    assert_eq!(srq.query().unwrap().limit, 0);
    send();
    assert_eq!(b.try_async_event(), None);

    // In error, the queue pair gives back nothing of the shared store, and says when it is done.
    let attr = crocevia::QpAttr { state: QpState::Err, ..qp.query().unwrap().0 };
    qp.modify(&attr, AttrMask::STATE).unwrap();
    assert_eq!(b.async_event().unwrap(), AsyncEvent::QpLastWqeReached(qp.qpn()));
    assert_eq!(home.cq.poll_one(), None, "the four left stay in the store");
}

#[test]
fn an_empty_store_is_waited_for() {
    let (a, b) = contexts();
    let home = End::new(&b, QpType::Rc);
    let srq = home.pd.create_srq(&ATTR).unwrap();
    let options = QpOptions { srq: Some(&srq), cap: CAP, ..QpOptions::rc(&home.cq) };
    let (end, qp) = (End::new(&a, QpType::Rc), home.pd.create_qp(&options).unwrap());
    Qp::pair(&end.qp, &qp, &ConnectOptions::default()).unwrap();
    end.post(1, SendOp::Send, &[]);
    end.nothing();
    srq.post_recv(&RecvRequest { wr_id: 4, sges: &[] }).unwrap();
    assert_eq!((end.success().wr_id, home.success().wr_id), (1, 4));
    assert!(a.counters().rnr_nak_retry_err > 0);
    // Too short a receive is this queue pair's end, not the store's.
    srq.post_recv(&RecvRequest { wr_id: 5, sges: &[] }).unwrap();
    let mine = end.memory(1, 0);
    end.post(2, SendOp::Send, &[mine.sge(..)]);
    end.failure(WcStatus::RemInvReqErr);
    assert_eq!(home.failure(WcStatus::LocLenErr).wr_id, 5);
}
