//! Every operation while a twentieth of all packets is lost, others are damaged, doubled and out of
//! order: right bytes, in order, once, and no error.

use crocevia::{
    Access, AddressVector, BindWindow, ConnectOptions, Context, Options, QKey, Qp, QpType,
    RecvRequest, SendData, SendFlags, SendOp, SendRequest, SrqAttr, WcData, WcOpcode, WindowType,
};

use super::support::*;

const FAULTS: &str = "loss=5%,corrupt=1%,reorder=5%,dup=1%";
/// Nothing, a byte, a word, around the path MTU, and many packets.
const LENGTHS: [usize; 7] = [0, 1, 8, 4096, 4097, 20_000, 200_003];

fn faulty(last: u8, seed: u32) -> Context {
    let info = open(last).device().clone();
    let faults = format!("{FAULTS},seed={seed}").parse().expect("a specification");
    let options = Options { faults: Some(faults), ..Options::default() };
    Context::open_with(&info, &options).expect("the device opens")
}

#[test]
fn every_operation_of_a_reliable_connection() {
    let (a, b) = (faulty(130, 1), faulty(131, 2));
    for (round, size) in (0_u8..).zip(LENGTHS.iter().cycle().copied().take(14)) {
        let pair = Pair::rc(&a, &b);
        for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            two_sided(from, to, size, round);
            one_sided(from, to, size, round);
        }
        atomics(&pair);
        windows(&pair, round);
    }
    let injected = a.link_counters().faults_injected + b.link_counters().faults_injected;
    assert!(injected > 50, "only {injected} faults");
    for context in [&a, &b] {
        let counters = context.counters();
        assert_eq!((counters.req_cqe_error, counters.resp_cqe_error), (0, 0));
        assert!(counters.retransmitted_packets > 0, "nothing had to be sent again");
    }
}

/// Eight at once, so that they are under way together.
fn two_sided(from: &End, to: &End, size: usize, salt: u8) {
    let mine: Vec<_> = (0..8).map(|n| from.memory(size, salt ^ n)).collect();
    let theirs: Vec<_> = (0..8).map(|_| to.memory(size.max(1), 0xEE)).collect();
    for (n, memory) in (0..).zip(&theirs) {
        to.post_recv(n, &[memory.sge(..size)]);
    }
    for (n, memory) in (0_u32..).zip(&mine) {
        let op = if n % 2 == 0 { SendOp::Send } else { SendOp::SendImm(n.to_be_bytes()) };
        from.post(n.into(), op, &[memory.sge(..)]);
    }
    for n in 0..8_u32 {
        let (sent, got) = (from.success(), to.success());
        assert_eq!((sent.wr_id, got.wr_id, got.byte_len as usize), (n.into(), n.into(), size));
        let data = if n % 2 == 0 { WcData::None } else { WcData::Imm(n.to_be_bytes()) };
        assert_eq!((got.opcode, got.data), (WcOpcode::Recv, data));
        let place = &theirs[n as usize];
        assert!(bytes(place, 0, size) == pattern(size, salt ^ n as u8), "SEND of {size}");
    }
    // Inline, with the bytes gone after the call.
    to.post_recv(9, &[theirs[0].sge(..size.min(100))]);
    let data = pattern(size.min(100), salt);
    let (op, flags) = (SendOp::Send, SendFlags::SIGNALED);
    let wr = SendRequest { wr_id: 9, op, flags, data: SendData::Inline(&data), datagram: None };
    from.qp.post_send(&wr).expect("the request is taken");
    drop(data);
    assert_eq!((from.success().wr_id, to.success().wr_id), (9, 9));
    let len = size.min(100);
    assert!(bytes(&theirs[0], 0, len) == pattern(len, salt), "inline SEND of {len}");
}

fn one_sided(from: &End, to: &End, size: usize, salt: u8) {
    let (mine, theirs) = (from.memory(size, salt), to.memory(size.max(1), 0));
    from.run(SendOp::Write(theirs.remote(0)), &[mine.sge(..)]);
    assert!(bytes(&theirs, 0, size) == pattern(size, salt), "WRITE of {size}");
    let mine = from.memory(size, !salt);
    to.post_recv(3, &[]);
    from.run(SendOp::WriteImm(theirs.remote(0), *b"done"), &[mine.sge(..)]);
    let got = to.success();
    assert_eq!((got.wr_id, got.byte_len as usize, got.data), (3, size, WcData::Imm(*b"done")));
    assert!(bytes(&theirs, 0, size) == pattern(size, !salt), "WRITE with immediate of {size}");
    let places: Vec<_> = (0..4).map(|_| from.memory(size, 0xAA)).collect();
    for (n, place) in (0..).zip(&places) {
        from.post(n, SendOp::Read(theirs.remote(0)), &[place.sge(..)]);
    }
    for (n, place) in (0..).zip(&places) {
        assert_eq!(from.success().wr_id, n);
        assert!(bytes(place, 0, size) == pattern(size, !salt), "READ of {size}");
    }
}

/// Each is executed once, whatever is repeated.
fn atomics(pair: &Pair) {
    let (word, old) = (pair.b.memory(8, 0), pair.a.memory(8, 0));
    word.region().write(0, &0_u64.to_ne_bytes());
    for n in 0..20_u64 {
        let remote = word.remote(0);
        pair.a.run(SendOp::FetchAdd { remote, add: 3 }, &[old.sge(..)]);
        assert_eq!(bytes(&old, 0, 8), (6 * n).to_ne_bytes());
        let (compare, swap) = (6 * n + 3, 6 * n + 6);
        pair.a.run(SendOp::CompareSwap { remote, compare, swap }, &[old.sge(..)]);
        assert_eq!(bytes(&old, 0, 8), compare.to_ne_bytes());
    }
    assert_eq!(bytes(&word, 0, 8), 120_u64.to_ne_bytes());
}

/// A window is bound, written through, and killed by the peer's SEND with invalidate.
fn windows(pair: &Pair, salt: u8) {
    let (mine, theirs) = (pair.a.memory(64, salt), pair.b.memory(1000, 0));
    let mw = pair.b.pd.alloc_mw(WindowType::Type2).expect("a window");
    let key = mw.rkey();
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let bind: BindWindow = mw.binding(&theirs, 100..200, key, rights);
    pair.b.run(SendOp::BindWindow(bind), &[]);
    let remote = crocevia::Remote { addr: theirs.remote(100).addr, rkey: key };
    pair.a.run(SendOp::Write(remote), &[mine.sge(..)]);
    assert_eq!(bytes(&theirs, 100, 64), pattern(64, salt));
    pair.b.post_recv(4, &[]);
    pair.a.run(SendOp::SendInvalidate(key), &[]);
    let got = pair.b.success();
    assert_eq!((got.wr_id, got.data), (4, WcData::Invalidated(key)));
}

#[test]
fn extended_reliable_connections() {
    let (a, b) = (faulty(132, 3), faulty(133, 4));
    let (pd, xrcd) = (b.alloc_pd().expect("a domain"), b.open_xrcd().expect("a domain"));
    let cq = b.create_cq(256, None).expect("a completion queue");
    let attr = SrqAttr { max_wr: 64, max_sge: 1, limit: 0 };
    let queues = [0; 2].map(|_| pd.create_xrc_srq(&attr, &xrcd, &cq).expect("a queue"));
    let receiver = xrcd.create_qp().expect("a queue pair");
    let from = End::with(&a, QpType::XrcSend, |_| {});
    Qp::pair(&from.qp, &receiver, &ConnectOptions::default()).expect("they connect");
    for (salt, size) in (0_u8..).zip(LENGTHS.iter().cycle().copied().take(21)) {
        let srq = &queues[usize::from(salt) % 2];
        let mine = from.memory(size, salt);
        let theirs = pd.alloc(size.max(1), ALL).expect("memory");
        srq.post_recv(&RecvRequest { wr_id: 5, sges: &[theirs.sge(..size)] }).expect("taken");
        let ops = [SendOp::Send, SendOp::Write(theirs.remote(0)), SendOp::Read(theirs.remote(0))];
        for op in ops {
            let sges = [mine.sge(..)];
            from.qp.post_send_xrc(&request(1, op, &sges), srq.number()).expect("taken");
            from.success();
            assert!(bytes(&theirs, 0, size) == pattern(size, salt), "{op:?} of {size}");
            assert!(bytes(&mine, 0, size) == pattern(size, salt), "{op:?} of {size}");
        }
        let got = cq.wait(Some(SOON)).expect("a completion");
        assert_eq!((got.wr_id, got.qp, got.byte_len as usize), (5, receiver.qpn(), size));
    }
}

#[test]
fn what_unreliable_services_deliver_is_whole_and_in_order() {
    let (a, b) = (faulty(134, 5), faulty(135, 6));
    let uc = Pair::connected(&a, &b, QpType::Uc, &ConnectOptions::default());
    let ud = Pair { a: End::new(&a, QpType::Ud), b: End::new(&b, QpType::Ud) };
    for end in [&ud.a, &ud.b] {
        end.qp.activate_datagram(QKey::new(7)).expect("it receives");
    }
    let av = AddressVector {
        is_global: true,
        dgid: b.gid(0).expect("it has one"),
        sgid_index: 0,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        sl: 0,
    };
    let to = ud.a.pd.create_ah(&av).expect("an address handle").to(ud.b.qp.qpn(), QKey::new(7));
    for (pair, datagram, head, size) in [(&uc, None, 0, 9000), (&ud, Some(to), 40, 3000)] {
        let theirs: Vec<_> = (0..60).map(|_| pair.b.memory(head + size, 0)).collect();
        for (n, memory) in (0..).zip(&theirs) {
            pair.b.post_recv(n, &[memory.sge(..)]);
        }
        for n in 0..60_u8 {
            let mine = pair.a.memory(size, n);
            let sges = [mine.sge(..)];
            let mut wr = request(n.into(), SendOp::SendImm([n; 4]), &sges);
            wr.datagram = datagram;
            pair.a.qp.post_send(&wr).expect("the request is taken");
            assert_eq!(pair.a.success().wr_id, u64::from(n));
        }
        let mut last = None;
        let mut arrived = 0;
        while let Some(got) = pair.b.cq.wait(Some(NEVER)) {
            let WcData::Imm([n, ..]) = got.data else { panic!("without its number: {got:?}") };
            let place = &theirs[got.wr_id as usize];
            assert!(bytes(place, head, size) == pattern(size, n), "message {n}");
            // Datagrams may be repeated and out of order; a connection is neither.
            assert!(datagram.is_some() || last < Some(n), "{n} after {last:?}");
            last = Some(n);
            arrived += 1;
        }
        assert!((20..=60).contains(&arrived) || datagram.is_some(), "{arrived} of 60");
    }
}
