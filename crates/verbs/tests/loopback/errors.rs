//! What goes wrong, and how it is told: completion statuses, flushing, refusals with a reason.

use std::sync::LazyLock;

use crocevia::{
    Access, AttrMask, ConnectOptions, Context, Endpoint, ErrorKind, Gid, LKey, Mtu, PostError, Psn,
    QpState, QpType, Qpn, RKey, RecvRequest, Remote, SendOp, Sge, WcStatus,
};

use super::support::*;

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(52), open(53)));
    OPEN.clone()
}

fn pair() -> Pair {
    let (a, b) = contexts();
    Pair::rc(&a, &b)
}

#[test]
fn remote_access_errors() {
    let write = |remote| SendOp::Write(remote);
    let read = |remote| SendOp::Read(remote);
    let add = |remote| SendOp::FetchAdd { remote, add: 1 };
    type Make = fn(Remote) -> SendOp;
    let cases: [(&str, Access, i64, u32, Make); 7] = [
        ("another key", ALL, 0, 0x100, write),
        ("before the region", ALL, -1, 0, write),
        ("over its end", ALL, 57, 0, read),
        ("no right to write", Access::REMOTE_READ, 0, 0, write),
        ("no right to read", Access::REMOTE_WRITE, 0, 0, read),
        ("no right to atomics", Access::REMOTE_WRITE, 0, 0, add),
        ("no remote right", Access::empty(), 0, 0, read),
    ];
    for (what, access, offset, key, make) in cases {
        let pair = pair();
        let mine = pair.a.memory(8, 1);
        let theirs = pair.b.pd.alloc(64, access).unwrap();
        theirs.region().write(0, &pattern(64, 2));
        let place = theirs.remote(0);
        let place = Remote {
            addr: place.addr.wrapping_add_signed(offset),
            rkey: RKey::new(place.rkey.get() ^ key),
        };
        pair.a.post(1, make(place), &[mine.sge(..)]);
        pair.a.post(2, SendOp::Send, &[]);
        pair.b.post_recv(3, &[]);
        assert_eq!(pair.a.failure(WcStatus::RemAccessErr).wr_id, 1, "{what}");
        assert_eq!(pair.a.failure(WcStatus::WrFlushErr).wr_id, 2, "{what}");
        assert_eq!(pair.b.failure(WcStatus::WrFlushErr).wr_id, 3, "{what}");
        assert_eq!(bytes(&theirs, 0, 64), pattern(64, 2), "{what}");
        assert_eq!((pair.a.qp.state(), pair.b.qp.state()), (QpState::Err, QpState::Err), "{what}");
        // Later requests are taken and flushed.
        pair.a.post(4, SendOp::Send, &[]);
        assert_eq!(pair.a.failure(WcStatus::WrFlushErr).wr_id, 4, "{what}");
        pair.a.post_recv(5, &[]);
        assert_eq!(pair.a.failure(WcStatus::WrFlushErr).wr_id, 5, "{what}");
    }
}

#[test]
fn the_queue_pair_must_allow_it_too() {
    let (a, b) = contexts();
    let options = ConnectOptions { access: Access::REMOTE_READ, ..Default::default() };
    let pair = Pair::connected(&a, &b, QpType::Rc, &options);
    let (mine, theirs) = (pair.a.memory(8, 1), pair.b.memory(8, 2));
    pair.a.run(SendOp::Read(theirs.remote(0)), &[mine.sge(..)]);
    pair.a.post(1, SendOp::Write(theirs.remote(0)), &[mine.sge(..)]);
    let completion = pair.a.completion();
    let refused = [WcStatus::RemAccessErr, WcStatus::RemInvReqErr];
    assert!(refused.contains(&completion.status), "{completion:?}");
    assert_eq!(bytes(&theirs, 0, 8), pattern(8, 2));
}

#[test]
fn memory_of_another_domain() {
    let pair = pair();
    let other = pair.b.context.alloc_pd().unwrap();
    let theirs = other.alloc(8, ALL).unwrap();
    let mine = pair.a.memory(8, 1);
    pair.a.post(1, SendOp::Write(theirs.remote(0)), &[mine.sge(..)]);
    pair.a.failure(WcStatus::RemAccessErr);
}

#[test]
fn local_protection_errors() {
    type Spoil = fn(Sge) -> Sge;
    let bad: [(&str, Spoil); 3] = [
        ("unknown key", |sge: Sge| Sge { lkey: LKey::new(sge.lkey.get() ^ 0x4000), ..sge }),
        ("over the end", |sge: Sge| Sge { length: 65, ..sge }),
        ("before the start", |sge: Sge| Sge { addr: sge.addr - 1, ..sge }),
    ];
    for (what, spoil) in bad {
        let pair = pair();
        let (mine, theirs) = (pair.a.memory(64, 1), pair.b.memory(64, 2));
        pair.a.post(1, SendOp::Write(theirs.remote(0)), &[spoil(mine.sge(..))]);
        assert_eq!(pair.a.failure(WcStatus::LocProtErr).wr_id, 1, "{what}");
        assert_eq!(bytes(&theirs, 0, 64), pattern(64, 2), "{what}");
    }
    // A receive: the receiver's fault, and the sender learns that it was.
    let pair = pair();
    let (mine, theirs) = (pair.a.memory(64, 1), pair.b.memory(64, 2));
    let unknown = LKey::new(theirs.lkey().get() ^ 0x4000);
    pair.b.post_recv(2, &[Sge { lkey: unknown, ..theirs.sge(..) }]);
    pair.a.post(1, SendOp::Send, &[mine.sge(..)]);
    assert_eq!(pair.a.failure(WcStatus::RemOpErr).wr_id, 1);
    assert_eq!(pair.b.failure(WcStatus::LocProtErr).wr_id, 2);
}

#[test]
fn a_receive_too_short() {
    let pair = pair();
    let (mine, theirs) = (pair.a.memory(64, 1), pair.b.memory(64, 2));
    pair.b.post_recv(2, &[theirs.sge(..63)]);
    pair.a.post(1, SendOp::Send, &[mine.sge(..)]);
    assert_eq!(pair.a.failure(WcStatus::RemInvReqErr).wr_id, 1);
    assert_eq!(pair.b.failure(WcStatus::LocLenErr).wr_id, 2);
    assert_eq!(bytes(&theirs, 63, 1), pattern(64, 2)[63..]);
}

#[test]
fn nobody_answers() {
    let (a, _) = contexts();
    let end = End::new(&a, QpType::Rc);
    // A port of loopback where nobody listens.
    let peer = Endpoint {
        gid: Gid::from_ip("127.0.0.39".parse().unwrap()),
        qpn: Qpn::new(0x33),
        psn: Psn::new(1),
        mtu: Mtu::B1024,
    };
    let options = ConnectOptions { timeout: 8, retry_cnt: 2, ..Default::default() };
    end.qp.connect(&peer, &options).unwrap();
    end.post(1, SendOp::Send, &[]);
    end.post(2, SendOp::Send, &[]);
    assert_eq!(end.failure(WcStatus::RetryExcErr).wr_id, 1);
    assert_eq!(end.failure(WcStatus::WrFlushErr).wr_id, 2);
    assert!(a.counters().req_transport_retries_exceeded > 0);
}

#[test]
fn nobody_receives() {
    let (a, b) = contexts();
    let options = ConnectOptions { rnr_retry: 2, min_rnr_timer: 1, ..Default::default() };
    let pair = Pair::connected(&a, &b, QpType::Rc, &options);
    pair.a.post(1, SendOp::Send, &[]);
    assert_eq!(pair.a.failure(WcStatus::RnrRetryExcErr).wr_id, 1);
    assert!(a.counters().req_rnr_retries_exceeded > 0);
}

#[test]
fn states_refuse_with_a_reason() {
    let (a, _) = contexts();
    let end = End::new(&a, QpType::Rc);
    let recv = RecvRequest { wr_id: 1, sges: &[] };
    assert_eq!(end.qp.post_recv(&recv), Err(PostError::State(QpState::Reset)));
    end.qp.init(Access::empty()).unwrap();
    assert_eq!(end.qp.state(), QpState::Init);
    assert_eq!(end.qp.post_recv(&recv), Ok(()));
    let send = request(1, SendOp::Send, &[]);
    assert_eq!(end.qp.post_send(&send), Err(PostError::State(QpState::Init)));
    let (attr, _) = end.qp.query().unwrap();
    let leap = end.qp.modify(&crocevia::QpAttr { state: QpState::Rts, ..attr }, AttrMask::STATE);
    assert_eq!(leap.expect_err("INIT to RTS").kind(), ErrorKind::Invalid);
    assert_eq!(end.qp.state(), QpState::Init, "nothing has changed");
}

#[test]
fn connecting_refuses_with_a_reason() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let there = pair.b.qp.endpoint().unwrap();
    let options = ConnectOptions::default();
    let twice = pair.a.qp.connect(&there, &options).unwrap_err();
    assert!(twice.to_string().contains("RESET"), "{twice}");

    let end = End::new(&a, QpType::Rc);
    let six = Endpoint { gid: Gid::from_ip("2001:db8::1".parse().unwrap()), ..there };
    // The loopback interface may have ::1 or not.
    if a.gids().iter().all(|entry| entry.gid.is_ipv4()) {
        let text = end.qp.connect(&six, &options).unwrap_err().to_string();
        assert!(text.contains("2001:db8::1") && text.contains("127.0.0.52"), "{text}");
    }
    end.qp.connect(&there, &options).expect("the failure before left nothing behind");

    let ud = End::new(&a, QpType::Ud);
    let service = ud.qp.connect(&there, &options).unwrap_err();
    assert!(service.to_string().contains("activate_datagram"), "{service}");
    let service = End::new(&a, QpType::Rc).qp.activate_datagram(crocevia::QKey::new(1));
    assert!(service.unwrap_err().to_string().contains("connect"));
    let index = a.gid(99).unwrap_err();
    assert!(index.kind() == ErrorKind::NotFound && index.to_string().contains("127.0.0.52"));
    let unknown = Context::open_addr("nosuchinterface").expect_err("there is none");
    assert!(unknown.to_string().contains("lo"), "it lists what there is: {unknown}");
}

#[test]
fn sizes_beyond_the_limits() {
    let (a, b) = contexts();
    let end = End::new(&a, QpType::Rc);
    assert_eq!(a.create_cq(0, None).err().map(|e| e.kind()), Some(ErrorKind::Invalid));
    let too_many = a.limits().max_cqe + 1;
    assert_eq!(a.create_cq(too_many, None).err().map(|e| e.kind()), Some(ErrorKind::Invalid));
    let mut options = crocevia::QpOptions::rc(&end.cq);
    options.cap.max_send_wr = a.limits().max_qp_wr + 1;
    assert_eq!(end.pd.create_qp(&options).err().map(|e| e.kind()), Some(ErrorKind::Invalid));
    // Objects of two devices do not mix.
    let elsewhere = b.create_cq(4, None).unwrap();
    let options = crocevia::QpOptions::rc(&elsewhere);
    assert_eq!(end.pd.create_qp(&options).err().map(|e| e.kind()), Some(ErrorKind::Invalid));
    // Remote writes need the local right.
    let region = crocevia::Region::allocate(8).unwrap();
    let refused = end.pd.register(region, Access::REMOTE_WRITE).expect_err("it needs LOCAL_WRITE");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

#[test]
fn reset_takes_everything_back() {
    let pair = pair();
    pair.a.post_recv(1, &[]);
    pair.a.post(2, SendOp::Send, &[]);
    let (attr, _) = pair.a.qp.query().unwrap();
    pair.a.qp.modify(&crocevia::QpAttr { state: QpState::Reset, ..attr }, AttrMask::STATE).unwrap();
    pair.a.nothing();
    // It can be connected anew, if the peer is, too.
    let (attr, _) = pair.b.qp.query().unwrap();
    pair.b.qp.modify(&crocevia::QpAttr { state: QpState::Reset, ..attr }, AttrMask::STATE).unwrap();
    crocevia::Qp::pair(&pair.a.qp, &pair.b.qp, &ConnectOptions::default()).unwrap();
    pair.b.post_recv(3, &[]);
    pair.a.run(SendOp::Send, &[]);
    assert_eq!(pair.b.success().wr_id, 3);
}
