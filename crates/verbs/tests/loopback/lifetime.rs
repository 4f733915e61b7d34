//! Objects end in any order, or say why they cannot; memory outlives what reaches it.

use std::sync::LazyLock;

use crocevia::{
    Access, ConnectOptions, Context, ErrorKind, Qp, QpOptions, QpType, SendOp, WcStatus,
};

use super::support::*;

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(64), open(65)));
    OPEN.clone()
}

/// All orders of five things.
fn orders() -> Vec<Vec<usize>> {
    fn extend(prefix: &mut Vec<usize>, out: &mut Vec<Vec<usize>>) {
        if prefix.len() == 5 {
            out.push(prefix.clone());
        }
        for next in 0..5 {
            if !prefix.contains(&next) {
                prefix.push(next);
                extend(prefix, out);
                prefix.pop();
            }
        }
    }
    let mut out = Vec::new();
    extend(&mut Vec::new(), &mut out);
    out
}

#[test]
fn any_order_of_dropping() {
    let (a, b) = contexts();
    let orders = orders();
    assert_eq!(orders.len(), 120);
    for order in orders {
        let pair = Pair::rc(&a, &b);
        let mr = pair.b.memory(100_000, 1);
        let source = pair.a.memory(100_000, 2);
        // Work is under way while things go.
        pair.a.post(1, SendOp::Write(mr.remote(0)), &[source.sge(..)]);
        let End { qp, cq, pd, context } = pair.b;
        let mut things: [Option<Box<dyn std::any::Any>>; 5] = [
            Some(Box::new(qp)),
            Some(Box::new(cq)),
            Some(Box::new(pd)),
            Some(Box::new(context)),
            Some(Box::new(mr)),
        ];
        for i in order {
            things[i] = None;
        }
    }
    // The device is as good as new.
    let pair = Pair::rc(&a, &b);
    pair.b.post_recv(1, &[]);
    pair.a.run(SendOp::Send, &[]);
    pair.b.success();
}

#[test]
fn busy_things_say_so() {
    let (a, b) = contexts();
    let Pair { a: end, b: peer } = Pair::rc(&a, &b);
    let mr = end.memory(8, 0);
    let End { qp, cq, pd, context } = end;
    let (cq, error) = cq.destroy().expect_err("a queue pair uses it");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let (pd, error) = pd.destroy().expect_err("things are in it");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    qp.destroy().map_err(|(_, error)| error).unwrap();
    cq.destroy().map_err(|(_, error)| error).unwrap();
    let (pd, error) = pd.destroy().expect_err("a region is in it");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    mr.destroy().map_err(|(_, error)| error).unwrap();
    pd.destroy().map_err(|(_, error)| error).unwrap();
    assert!(context.is_same(&a));
    drop(peer);
}

#[test]
fn a_hundred_queue_pairs() {
    let (a, b) = contexts();
    let (here, there) = (End::new(&a, QpType::Rc), End::new(&b, QpType::Rc));
    let mr = there.memory(100 * 64, 0);
    let mine = here.memory(100 * 64, 5);
    let pairs: Vec<(Qp, Qp)> = (0..100)
        .map(|_| {
            let qp = here.pd.create_qp(&QpOptions::rc(&here.cq)).unwrap();
            let peer = there.pd.create_qp(&QpOptions::rc(&there.cq)).unwrap();
            Qp::pair(&qp, &peer, &ConnectOptions::default()).unwrap();
            (qp, peer)
        })
        .collect();
    let mut numbers: Vec<_> = pairs.iter().flat_map(|(a, b)| [a.qpn(), b.qpn()]).collect();
    numbers[..].sort_unstable();
    for round in 0..2 {
        for (i, (qp, _)) in pairs.iter().enumerate() {
            let range = i * 64..(i + 1) * 64;
            let op = SendOp::Write(mr.remote(range.start));
            qp.post_send(&request(i as u64, op, &[mine.sge(range)])).unwrap();
        }
        let mut done: Vec<_> = (0..100).map(|_| here.success().wr_id).collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>(), "round {round}");
    }
    assert!(bytes(&mr, 0, 6400) == pattern(6400, 5));
    // Half go; the others work on.
    let rest: Vec<_> = pairs.into_iter().enumerate().filter(|(i, _)| i % 2 == 0).collect();
    for (i, (qp, _)) in &rest {
        qp.post_send(&request(*i as u64, SendOp::Write(mr.remote(0)), &[mine.sge(0..64)])).unwrap();
        assert_eq!(here.success().wr_id, *i as u64);
    }
}

#[test]
fn deregistered_memory_is_not_touched() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let size = 1 << 20;
    let (source, target) = (pair.a.memory(size, 1), pair.b.memory(size, 2));
    let remote = target.remote(0);
    for i in 0..10 {
        pair.a.post(i, SendOp::Write(remote), &[source.sge(..)]);
    }
    let region = target.destroy().map_err(|(_, error)| error).unwrap();
    // Ours again, in the midst of the transfer: from now on nobody else writes it.
    region.write(0, &vec![0xAB; size]);
    let failed = loop {
        let completion = pair.a.completion();
        if completion.status != WcStatus::Success {
            break completion.status;
        }
        // It was through before the registration ended: more are on their way.
        pair.a.post(completion.wr_id, SendOp::Write(remote), &[source.sge(..)]);
    };
    assert_eq!(failed, WcStatus::RemAccessErr);
    std::thread::sleep(NEVER);
    let mut now = vec![0; size];
    region.read(0, &mut now);
    assert!(now.iter().all(|&byte| byte == 0xAB));
}

#[test]
fn a_dropped_queue_pair_touches_nothing() {
    let (a, b) = contexts();
    for _ in 0..8 {
        let pair = Pair::rc(&a, &b);
        let size = 8 << 20;
        let (target, source) = (pair.a.memory(size, 1), pair.b.memory(size, 2));
        pair.a.post(1, SendOp::Read(source.remote(0)), &[target.sge(..)]);
        pair.a.qp.destroy().map_err(|(_, error)| error).unwrap();
        target.region().write(0, &vec![0xCD; size]);
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(bytes(&target, 0, size).iter().all(|&byte| byte == 0xCD));
        // Nothing completes of what is gone, unless it was complete before.
        let before = pair.a.cq.poll_one();
        assert!(before.is_none_or(|completion| completion.status == WcStatus::Success));
        assert_eq!(pair.a.cq.poll_one(), None);
    }
}

#[test]
fn what_was_owed_still_leaves() {
    // The receiver takes its message and goes at once: the sender is acknowledged all the same.
    let (a, b) = contexts();
    for _ in 0..50 {
        let pair = Pair::rc(&a, &b);
        pair.b.post_recv(1, &[]);
        pair.a.post(1, SendOp::Send, &[]);
        pair.b.success();
        drop(pair.b);
        pair.a.success();
    }
}

#[test]
fn a_device_closes_and_opens_again() {
    let far = open(66);
    for _ in 0..5 {
        let near = open(67);
        let pair = Pair::rc(&near, &far);
        drop(near);
        pair.b.post_recv(1, &[]);
        pair.a.run(SendOp::Send, &[]);
        pair.b.success();
        // The last handle closes it; here that is the end's own.
        drop(pair);
    }
    let near = open(67);
    assert_eq!(near.gid(0).unwrap().to_ip(), "127.0.0.67".parse::<std::net::IpAddr>().unwrap());
}

#[test]
fn a_device_that_closes_at_once_has_answered() {
    let near = open(68);
    for _ in 0..20 {
        let pair = Pair::rc(&near, &open(69));
        pair.b.post_recv(1, &[]);
        pair.a.post(1, SendOp::Send, &[]);
        pair.b.success();
        drop(pair.b);
        pair.a.success();
    }
}

#[test]
fn threads_share_everything() {
    fn shared<T: Send + Sync + std::fmt::Debug>(_: &T) {}
    let (a, _) = contexts();
    let end = End::new(&a, QpType::Rc);
    let srq = end.pd.create_srq(&crocevia::SrqAttr { max_wr: 1, max_sge: 1, limit: 0 }).unwrap();
    shared(&end.context);
    shared(&end.pd);
    shared(&end.cq);
    shared(&end.qp);
    shared(&srq);
    shared(&end.memory(8, 0));
    shared(&end.pd.alloc_mw(crocevia::WindowType::Type1).unwrap());
    shared(&a.create_comp_channel().unwrap());
    assert!(format!("{:?}", end.qp).contains(&end.qp.qpn().to_string()));
}

#[test]
fn what_the_device_tells_of_itself() {
    let (a, _) = contexts();
    let (device, port, limits) = (a.device(), a.port(), a.limits());
    assert!(device.name.starts_with("crocevia") && device.guid != 0, "{device:?}");
    assert_eq!(port.state, crocevia::PortState::Active);
    assert_eq!(port.active_mtu.bytes(), 4096);
    assert_eq!(port.gid_table_len, a.gids().len());
    assert!(limits.max_qp >= 1000 && limits.max_sge >= 16 && limits.max_inline_data >= 64);
    let before = a.counters().tx_packets;
    let pair = Pair::rc(&a, &a);
    let mr = pair.a.memory(8, 0);
    pair.a.run(SendOp::Read(mr.remote(0)), &[pair.a.pd.alloc(0, Access::empty()).unwrap().sge(..)]);
    assert!(a.counters().tx_packets > before);
}

/// A device opened twice in one process: the contexts reach each other over the one address, and
/// each keeps its objects and events to itself.
#[test]
fn two_contexts_on_one_address() {
    let info = Context::open_addr("127.0.31.9").expect("the first").device().clone();
    let (one, two) = (Context::open(&info), Context::open(&info));
    let (one, two) = (one.expect("the first"), two.expect("the second"));
    assert!(!one.is_same(&two));
    let (cq_one, cq_two) = (one.create_cq(16, None).unwrap(), two.create_cq(16, None).unwrap());
    assert_ne!(cq_one.id(), cq_two.id(), "one device below");
    let (pd_one, pd_two) = (one.alloc_pd().unwrap(), two.alloc_pd().unwrap());
    let foreign = pd_one.create_qp(&QpOptions::rc(&cq_two));
    assert!(foreign.is_err(), "objects of two contexts do not mix");
    let a = pd_one.create_qp(&QpOptions::rc(&cq_one)).unwrap();
    let b = pd_two.create_qp(&QpOptions::rc(&cq_two)).unwrap();
    let (to_a, to_b) = (a.endpoint(), b.endpoint());
    a.connect(&to_b.expect("an endpoint"), &ConnectOptions::default()).unwrap();
    b.connect(&to_a.expect("an endpoint"), &ConnectOptions::default()).unwrap();
    drop(one);
    drop((a, cq_one, pd_one));
    assert!(two.create_cq(16, None).is_ok(), "the other goes on");
    drop((b, cq_two, pd_two, two));
    Context::open(&info).expect("closed with the last, and opened again");
}
