//! Two-sided operations of connected services: SEND, with immediate, inline, scattered; lists,
//! signaling, full queues.

use crocevia::{
    ConnectOptions, Context, Mtu, PostError, QpState, QpType, RecvRequest, SendData, SendFlags,
    SendOp, WcData, WcOpcode,
};

use super::support::*;

fn contexts() -> (Context, Context) {
    use std::sync::LazyLock;
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(40), open(41)));
    OPEN.clone()
}

#[test]
fn send_every_size_and_service() {
    let (a, b) = contexts();
    for qp_type in [QpType::Rc, QpType::Uc] {
        let pair = Pair::connected(&a, &b, qp_type, &ConnectOptions::default());
        for (salt, size) in SIZES.into_iter().enumerate() {
            if qp_type == QpType::Uc && size > 8192 {
                continue; // A kernel may drop packets of a long unreliable message.
            }
            let (from, to) = (pair.a.memory(size, salt as u8), pair.b.memory(size + 7, 99));
            pair.b.post_recv(size as u64, &[to.sge(..)]);
            let sent = pair.a.run(SendOp::Send, &[from.sge(..)]);
            assert_eq!((sent.opcode, sent.qp), (WcOpcode::Send, pair.a.qp.qpn()));
            let received = pair.b.success();
            assert_eq!(received.wr_id, size as u64);
            assert_eq!((received.opcode, received.byte_len), (WcOpcode::Recv, size as u32));
            assert_eq!((received.data, received.qp), (WcData::None, pair.b.qp.qpn()));
            assert!(bytes(&to, 0, size) == pattern(size, salt as u8), "{qp_type:?} {size}");
            assert_eq!(bytes(&to, size, 7), pattern(size + 7, 99)[size..], "not a byte beyond");
        }
    }
}

#[test]
fn every_mtu() {
    let (a, b) = contexts();
    for mtu in [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096] {
        let options = ConnectOptions { mtu: Some(mtu), ..Default::default() };
        let pair = Pair::connected(&a, &b, QpType::Rc, &options);
        let size = mtu.bytes() as usize;
        for size in [size - 1, size, size + 1, 10 * size + 3] {
            let (from, to) = (pair.a.memory(size, 1), pair.b.memory(size, 2));
            pair.b.post_recv(1, &[to.sge(..)]);
            pair.a.run(SendOp::Send, &[from.sge(..)]);
            assert_eq!(pair.b.success().byte_len as usize, size);
            assert!(bytes(&to, 0, size) == pattern(size, 1), "{mtu:?} {size}");
            pair.a.run(SendOp::Read(to.remote(0)), &[from.sge(..)]);
            assert!(bytes(&from, 0, size) == pattern(size, 1), "{mtu:?} {size}");
        }
        let (attr, _) = pair.a.qp.query().unwrap();
        assert_eq!((attr.path_mtu, attr.state), (mtu, QpState::Rts));
    }
}

#[test]
fn immediate_data() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let (from, to) = (pair.a.memory(10, 1), pair.b.memory(10, 2));
    pair.b.post_recv(1, &[to.sge(..)]);
    pair.a.run(SendOp::SendImm([1, 2, 3, 4]), &[from.sge(..)]);
    let received = pair.b.success();
    assert_eq!((received.data, received.byte_len), (WcData::Imm([1, 2, 3, 4]), 10));
    pair.b.post_recv(2, &[]);
    pair.a.run(SendOp::SendImm([9, 8, 7, 6]), &[]);
    let received = pair.b.success();
    assert_eq!((received.data, received.byte_len), (WcData::Imm([9, 8, 7, 6]), 0));
}

#[test]
fn inline_bytes_are_copied_at_once() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let max = pair.a.qp.cap().max_inline_data as usize;
    assert!(max >= 512, "what was asked for: {max}");
    let to = pair.b.memory(max, 0);
    for size in [0, 1, 3, 64, max] {
        pair.b.post_recv(1, &[to.sge(..)]);
        let mut data = pattern(size, 7);
        let mut request = request(1, SendOp::Send, &[]);
        request.data = SendData::Inline(&data);
        pair.a.qp.post_send(&request).unwrap();
        data.fill(0xEE);
        pair.a.success();
        assert_eq!(pair.b.success().byte_len as usize, size);
        assert_eq!(bytes(&to, 0, size), pattern(size, 7));
    }
    let data = vec![0; max + 1];
    let mut too_long = request(1, SendOp::Send, &[]);
    too_long.data = SendData::Inline(&data);
    assert_eq!(pair.a.qp.post_send(&too_long), Err(PostError::Inline));
}

#[test]
fn gather_and_scatter() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let (from, to) = (pair.a.memory(20_000, 5), pair.b.memory(20_000, 6));
    let pieces = [from.sge(0..3), from.sge(100..100), from.sge(5000..11_000), from.sge(7..4103)];
    let places = [to.sge(9..10), to.sge(1000..1001), to.sge(2000..7000), to.sge(9000..15_000)];
    pair.b.post_recv(1, &places);
    pair.a.run(SendOp::Send, &pieces);
    let sent = pattern(20_000, 5);
    let whole = [&sent[0..3], &sent[5000..11_000], &sent[7..4103]].concat();
    assert_eq!(pair.b.success().byte_len as usize, whole.len());
    let got = [bytes(&to, 9, 1), bytes(&to, 1000, 1), bytes(&to, 2000, 5000)].concat();
    assert_eq!(got, whole[..5002]);
    assert_eq!(bytes(&to, 9000, whole.len() - 5002), whole[5002..]);
    assert_eq!(bytes(&to, 0, 9), pattern(20_000, 6)[..9]);
    let nine = [from.sge(0..1); 9];
    let refused = pair.a.qp.post_send(&request(1, SendOp::Send, &nine));
    assert_eq!(refused, Err(PostError::TooManySges));
}

#[test]
fn unsignaled_requests_complete_silently() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let to = pair.b.memory(64, 0);
    // Many times the length of the queues: places become free as signaled requests complete.
    for round in 0..40u64 {
        for i in 0..16 {
            pair.b.post_recv(i, &[to.sge(..)]);
        }
        for i in 0..16 {
            let mut wr = request(i, SendOp::Send, &[]);
            wr.flags = if i == 15 { SendFlags::SIGNALED } else { SendFlags::empty() };
            pair.a.qp.post_send(&wr).unwrap_or_else(|e| panic!("round {round}, {i}: {e}"));
        }
        assert_eq!(pair.a.success().wr_id, 15);
        for i in 0..16 {
            assert_eq!(pair.b.success().wr_id, i, "in order");
        }
    }
    pair.a.nothing();
}

#[test]
fn all_signaled_by_the_queue_pair() {
    let (a, b) = contexts();
    let end = End::with(&a, QpType::Rc, |options| options.sq_sig_all = true);
    let pair = Pair { a: end, b: End::new(&b, QpType::Rc) };
    crocevia::Qp::pair(&pair.a.qp, &pair.b.qp, &ConnectOptions::default()).unwrap();
    pair.b.post_recv(1, &[]);
    let mut wr = request(77, SendOp::Send, &[]);
    wr.flags = SendFlags::empty();
    pair.a.qp.post_send(&wr).unwrap();
    assert_eq!(pair.a.success().wr_id, 77);
}

#[test]
fn lists_stop_at_the_first_bad_request() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let memory = pair.a.memory(8, 0);
    let odd = SendOp::FetchAdd { remote: memory.remote(0), add: 1 };
    let four = [memory.sge(0..4)];
    let list = [
        request(0, SendOp::Send, &[]),
        request(1, SendOp::Send, &[]),
        request(2, odd, &four),
        request(3, SendOp::Send, &[]),
    ];
    assert_eq!(pair.a.qp.post_send_list(list), Err((2, PostError::Atomic)));
    let recv = |wr_id| RecvRequest { wr_id, sges: &[] };
    assert_eq!(pair.b.qp.post_recv_list([recv(0), recv(1), recv(2)]), Ok(()));
    assert_eq!([pair.a.success().wr_id, pair.a.success().wr_id], [0, 1]);
    assert_eq!([pair.b.success().wr_id, pair.b.success().wr_id], [0, 1]);
    pair.a.nothing();
    let too_many = vec![recv(9); 100];
    let granted = pair.b.qp.cap().max_recv_wr as usize;
    let refused = pair.b.qp.post_recv_list(too_many);
    assert_eq!(refused, Err((granted - 1, PostError::QueueFull)), "one is still there");
}

#[test]
fn a_full_send_queue_is_refused_and_empties() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let granted = u64::from(pair.a.qp.cap().max_send_wr);
    // No receive is posted: everything stays in the queue.
    for i in 0..granted {
        pair.a.post(i, SendOp::Send, &[]);
    }
    let one_more = request(granted, SendOp::Send, &[]);
    assert_eq!(pair.a.qp.post_send(&one_more), Err(PostError::QueueFull));
    for i in 0..granted {
        pair.b.post_recv(i, &[]);
    }
    for i in 0..granted {
        assert_eq!(pair.a.success().wr_id, i);
        assert_eq!(pair.b.success().wr_id, i);
    }
    pair.b.post_recv(0, &[]);
    pair.a.run(SendOp::Send, &[]);
}

#[test]
fn both_ways_at_once() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let size = 300_000;
    let memory = [(&pair.a, 1u8), (&pair.b, 2)]
        .map(|(end, salt)| (end.memory(size, salt), end.memory(size, 0)));
    for round in 0..20 {
        for (end, (out, into)) in [&pair.a, &pair.b].into_iter().zip(&memory) {
            end.post_recv(round, &[into.sge(..)]);
            end.post(100 + round, SendOp::Send, &[out.sge(..)]);
        }
        for end in [&pair.a, &pair.b] {
            let mut ids = [end.success().wr_id, end.success().wr_id];
            ids.sort_unstable();
            assert_eq!(ids, [round, 100 + round]);
        }
        assert!(bytes(&memory[0].1, 0, size) == pattern(size, 2));
        assert!(bytes(&memory[1].1, 0, size) == pattern(size, 1));
    }
}

#[test]
fn to_itself() {
    let (a, _) = contexts();
    // Both ends on one device, and one queue pair connected to itself.
    let pair = Pair::rc(&a, &a);
    pair.b.post_recv(5, &[]);
    pair.a.run(SendOp::Send, &[]);
    assert_eq!(pair.b.success().wr_id, 5);
    let end = End::new(&a, QpType::Rc);
    end.qp.connect(&end.qp.endpoint().unwrap(), &ConnectOptions::default()).unwrap();
    end.post_recv(6, &[]);
    end.post(7, SendOp::Send, &[]);
    let mut ids = [end.success().wr_id, end.success().wr_id];
    ids.sort_unstable();
    assert_eq!(ids, [6, 7]);
}
