//! Extended reliable connections: one queue pair, many shared receive queues, all operations.

use crocevia::{
    ConnectOptions, Context, Cq, ErrorKind, Pd, PostError, Qp, QpOptions, QpType, RecvRequest,
    SendOp, Sge, Srq, SrqAttr, WcData, WcOpcode, Xrcd,
};

use super::support::*;

/// An end that receives: its domain, and queues in it with what they receive into.
struct Services {
    qp: Qp,
    xrcd: Xrcd,
    queues: Vec<(Srq, Cq)>,
    pd: Pd,
}

fn services(context: &Context, count: usize) -> Services {
    let (pd, xrcd) = (context.alloc_pd().expect("a domain"), context.open_xrcd().expect("another"));
    let attr = SrqAttr { max_wr: 64, max_sge: 2, limit: 0 };
    let queues = (0..count).map(|_| {
        let cq = context.create_cq(256, None).expect("a completion queue");
        (pd.create_xrc_srq(&attr, &xrcd, &cq).expect("a queue"), cq)
    });
    Services { qp: xrcd.create_qp().expect("a queue pair"), queues: queues.collect(), xrcd, pd }
}

fn sender(context: &Context, peer: &Qp) -> End {
    let end = End::with(context, QpType::XrcSend, |_| {});
    Qp::pair(&end.qp, peer, &ConnectOptions::default()).expect("they connect");
    end
}

fn run(from: &End, op: SendOp, sges: &[Sge], to: &Srq) {
    from.qp.post_send_xrc(&request(1, op, sges), to.number()).expect("the request is taken");
    assert_eq!(from.success().wr_id, 1);
}

#[test]
fn all_operations_of_every_size() {
    let (a, b) = (open(120), open(121));
    let s = services(&b, 2);
    let from = sender(&a, &s.qp);
    for size in SIZES {
        for (salt, (srq, cq)) in (0_u8..).zip(&s.queues) {
            let mine = from.memory(size, salt);
            let theirs = s.pd.alloc(size.max(1), ALL).expect("memory");
            srq.post_recv(&RecvRequest { wr_id: 7, sges: &[theirs.sge(..size)] }).expect("taken");
            run(&from, SendOp::SendImm(*b"data"), &[mine.sge(..)], srq);
            let got = cq.wait(Some(SOON)).expect("a completion");
            assert_eq!((got.wr_id, got.qp, got.byte_len as usize), (7, s.qp.qpn(), size));
            assert_eq!((got.opcode, got.data), (WcOpcode::Recv, WcData::Imm(*b"data")));
            assert!(bytes(&theirs, 0, size) == pattern(size, salt), "SEND of {size}");

            let mine = from.memory(size, salt + 8);
            run(&from, SendOp::Write(theirs.remote(0)), &[mine.sge(..)], srq);
            assert!(bytes(&theirs, 0, size) == pattern(size, salt + 8), "WRITE of {size}");

            let back = from.memory(size, 99);
            run(&from, SendOp::Read(theirs.remote(0)), &[back.sge(..)], srq);
            assert!(bytes(&back, 0, size) == pattern(size, salt + 8), "READ of {size}");
        }
    }
    let (srq, _) = &s.queues[0];
    let (word, old) = (s.pd.alloc(8, ALL).expect("memory"), from.memory(8, 0));
    run(&from, SendOp::FetchAdd { remote: word.remote(0), add: 5 }, &[old.sge(..)], srq);
    let swap = SendOp::CompareSwap { remote: word.remote(0), compare: 5, swap: 1 << 40 };
    run(&from, swap, &[old.sge(..)], srq);
    assert_eq!(bytes(&old, 0, 8), 5_u64.to_ne_bytes());
    assert_eq!(bytes(&word, 0, 8), (1_u64 << 40).to_ne_bytes());
}

#[test]
fn many_senders_share_the_queues() {
    let (a, b) = (open(122), open(123));
    let s = services(&b, 3);
    let receivers: Vec<Qp> = (0..4).map(|_| s.xrcd.create_qp().expect("a queue pair")).collect();
    let senders: Vec<End> = receivers.iter().map(|qp| sender(&a, qp)).collect();
    for (srq, _) in &s.queues {
        for wr_id in 0..40 {
            srq.post_recv(&RecvRequest { wr_id, sges: &[] }).expect("taken");
        }
    }
    for _ in 0..10 {
        for from in &senders {
            for (srq, _) in &s.queues {
                run(from, SendOp::Send, &[], srq);
            }
        }
    }
    for (_, cq) in &s.queues {
        for wr_id in 0..40 {
            let got = cq.wait(Some(SOON)).expect("a completion");
            assert_eq!(got.wr_id, wr_id);
            assert!(receivers.iter().any(|qp| qp.qpn() == got.qp));
        }
    }
}

#[test]
fn what_is_refused() {
    let (a, b) = (open(124), open(125));
    let s = services(&b, 1);
    let from = sender(&a, &s.qp);
    let plain = request(1, SendOp::Send, &[]);
    assert_eq!(from.qp.post_send(&plain), Err(PostError::Destination));
    let number = s.queues[0].0.number();
    assert_eq!(s.qp.post_send_xrc(&plain, number), Err(PostError::Destination));
    let pd = b.alloc_pd().expect("a domain");
    let by_pd = pd.create_qp(&QpOptions::new(QpType::XrcRecv, &s.queues[0].1));
    assert_eq!(by_pd.expect_err("it needs an XRC domain").kind(), ErrorKind::Invalid);
    let foreign = a.open_xrcd().expect("a domain");
    let attr = SrqAttr { max_wr: 1, max_sge: 1, limit: 0 };
    let error = pd.create_xrc_srq(&attr, &foreign, &s.queues[0].1).expect_err("another device");
    assert!(error.to_string().contains("one device"), "{error}");
    assert!(foreign.open_qp(s.qp.qpn()).is_err(), "it is of another domain");
}

#[test]
fn a_domain_closes_with_its_last_handle() {
    let context = open(126);
    let s = services(&context, 1);
    let again = s.xrcd.open_qp(s.qp.qpn()).expect("it is there");
    let qpn = s.qp.qpn();
    drop(s.qp);
    let third = s.xrcd.open_qp(qpn).expect("it is open still");
    drop((again, third));
    assert!(s.xrcd.open_qp(qpn).is_err(), "it went with its last handle");
    let second = s.xrcd.clone();
    s.xrcd.destroy().expect("there is another handle");
    let (second, error) = second.destroy().expect_err("a queue is in it");
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(s.queues);
    second.destroy().expect("empty");
}
