//! WRITE, READ and atomics.

use std::sync::LazyLock;

use crocevia::{
    Access, ConnectOptions, Context, Qp, QpType, SendData, SendFlags, SendOp, WcData, WcOpcode,
};

use super::support::*;

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(42), open(43)));
    OPEN.clone()
}

#[test]
fn write_and_read_every_size() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    for (salt, size) in SIZES.into_iter().enumerate() {
        let salt = salt as u8;
        let (mine, theirs) = (pair.a.memory(size, salt), pair.b.memory(size + 20, 77));
        let written = pair.a.run(SendOp::Write(theirs.remote(13)), &[mine.sge(..)]);
        assert_eq!(written.opcode, WcOpcode::RdmaWrite);
        assert!(bytes(&theirs, 13, size) == pattern(size, salt), "{size}");
        let untouched = pattern(size + 20, 77);
        assert_eq!(bytes(&theirs, 0, 13), untouched[..13]);
        assert_eq!(bytes(&theirs, 13 + size, 7), untouched[13 + size..]);

        let back = pair.a.memory(size, 0x55);
        let read = pair.a.run(SendOp::Read(theirs.remote(13)), &[back.sge(..)]);
        assert_eq!((read.opcode, read.byte_len as usize), (WcOpcode::RdmaRead, size));
        assert!(bytes(&back, 0, size) == pattern(size, salt), "{size}");
    }
    pair.b.nothing();
}

#[test]
fn write_with_immediate_uses_a_receive() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    for size in SIZES {
        let (mine, theirs) = (pair.a.memory(size, 3), pair.b.memory(size, 4));
        let unused = pair.b.memory(16, 5);
        pair.b.post_recv(8, &[unused.sge(..)]);
        pair.a.run(SendOp::WriteImm(theirs.remote(0), *b"imm!"), &[mine.sge(..)]);
        let received = pair.b.success();
        assert_eq!(received.opcode, WcOpcode::RecvRdmaWithImm);
        assert_eq!((received.wr_id, received.byte_len as usize), (8, size));
        assert_eq!(received.data, WcData::Imm(*b"imm!"));
        assert!(bytes(&theirs, 0, size) == pattern(size, 3), "{size}");
        assert_eq!(bytes(&unused, 0, 16), pattern(16, 5), "no byte goes into the receive");
    }
}

#[test]
fn inline_write() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let theirs = pair.b.memory(64, 0);
    let mut wr = request(1, SendOp::Write(theirs.remote(8)), &[]);
    wr.data = SendData::Inline(b"inline");
    pair.a.qp.post_send(&wr).unwrap();
    pair.a.success();
    assert_eq!(bytes(&theirs, 8, 6), b"inline");
}

#[test]
fn many_reads_outstanding_complete_in_order() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let size = 60 * 10_000;
    let (mine, theirs) = (pair.a.memory(size, 0), pair.b.memory(size, 9));
    for i in 0..60usize {
        let (start, end) = (i * 10_000, (i + 1) * 10_000);
        pair.a.post(i as u64, SendOp::Read(theirs.remote(start)), &[mine.sge(start..end)]);
    }
    for i in 0..60 {
        assert_eq!(pair.a.success().wr_id, i);
    }
    assert!(bytes(&mine, 0, size) == pattern(size, 9));
}

#[test]
fn a_fence_waits_for_the_read_before_it() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let size = 1 << 20;
    let (mine, source) = (pair.a.memory(size, 0), pair.b.memory(size, 9));
    for round in 0..10u8 {
        source.region().write(0, &pattern(size, round));
        let target = pair.b.memory(size, 0xFF);
        pair.a.post(1, SendOp::Read(source.remote(0)), &[mine.sge(..)]);
        let sges = [mine.sge(..)];
        let mut write = request(2, SendOp::Write(target.remote(0)), &sges);
        write.flags |= SendFlags::FENCE;
        pair.a.qp.post_send(&write).unwrap();
        assert_eq!([pair.a.success().wr_id, pair.a.success().wr_id], [1, 2]);
        assert!(bytes(&target, 0, size) == pattern(size, round), "what the READ brought");
    }
}

#[test]
fn atomics() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let (old, word) = (pair.a.memory(8, 0), pair.b.memory(16, 0));
    word.region().store_u64(8, 41);
    let remote = word.remote(8);

    let done = pair.a.run(SendOp::FetchAdd { remote, add: 1 }, &[old.sge(..)]);
    assert_eq!((done.opcode, done.byte_len), (WcOpcode::FetchAdd, 8));
    assert_eq!((old.region().load_u64(0), word.region().load_u64(8)), (41, 42));

    let wrong = SendOp::CompareSwap { remote, compare: 41, swap: 7 };
    assert_eq!(pair.a.run(wrong, &[old.sge(..)]).opcode, WcOpcode::CompSwap);
    assert_eq!((old.region().load_u64(0), word.region().load_u64(8)), (42, 42));

    pair.a.run(SendOp::CompareSwap { remote, compare: 42, swap: u64::MAX }, &[old.sge(..)]);
    assert_eq!((old.region().load_u64(0), word.region().load_u64(8)), (42, u64::MAX));

    pair.a.run(SendOp::FetchAdd { remote, add: 3 }, &[old.sge(..)]);
    assert_eq!((old.region().load_u64(0), word.region().load_u64(8)), (u64::MAX, 2), "modulo 2^64");
}

#[test]
fn a_queue_pair_counts_what_it_sends_and_executes() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let (from, to) = (pair.a.memory(10_000, 1), pair.b.memory(10_000, 2));
    let before = pair.a.qp.counters();
    for _ in 0..3 {
        pair.a.run(SendOp::Write(to.remote(0)), &[from.sge(..)]);
    }
    let (after, executed) = (pair.a.qp.counters(), pair.b.qp.counters().traffic);
    let sent = after.traffic;
    assert_eq!(sent.tx_write_requests - before.traffic.tx_write_requests, 3);
    // On a loaded machine some is sent again.
    let again = after.exceptions.retransmitted_bytes;
    assert_eq!(sent.tx_bytes - again - before.traffic.tx_bytes, 30_000);
    assert_eq!((executed.rx_write_requests, executed.rx_bytes), (3, 30_000));
    let report = pair.b.qp.report().unwrap();
    assert_eq!((report.qpn, report.dest_qp), (pair.b.qp.qpn(), Some(pair.a.qp.qpn())));
    assert_eq!(report.counters.exceptions.dropped(), 0, "nothing out of the ordinary");
}

#[test]
fn atomics_of_many_count_right() {
    const CLIENTS: usize = 4;
    const EACH: u64 = 200;
    let (a, b) = contexts();
    let home = End::new(&b, QpType::Rc);
    let word = home.memory(8, 0);
    word.region().store_u64(0, 0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let (a, home, remote) = (&a, &home, word.remote(0));
            scope.spawn(move || {
                let end = End::new(a, QpType::Rc);
                let options = crocevia::QpOptions::rc(&home.cq);
                let peer = home.pd.create_qp(&options).unwrap();
                Qp::pair(&end.qp, &peer, &ConnectOptions::default()).unwrap();
                let old = end.memory(8, 0);
                let mut last = None;
                for _ in 0..EACH {
                    end.run(SendOp::FetchAdd { remote, add: 1 }, &[old.sge(..)]);
                    let value = old.region().load_u64(0);
                    assert!(last.is_none_or(|last| value > last), "{value} after {last:?}");
                    last = Some(value);
                }
            });
        }
    });
    assert_eq!(word.region().load_u64(0), CLIENTS as u64 * EACH);
}

#[test]
fn data_then_flag() {
    // The last byte of a message is seen last, and a WRITE after another: who sees the flag sees
    // all.
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let size = 5000;
    let (mine, theirs) = (pair.a.memory(size, 0), pair.b.memory(size, 0));
    theirs.region().write(0, &vec![0; size]);
    for round in 1..=100u8 {
        mine.region().write(0, &vec![round; size]);
        pair.a.post(1, SendOp::Write(theirs.remote(0)), &[mine.sge(..)]);
        let start = std::time::Instant::now();
        while theirs.region().load_u8(size - 1) != round {
            assert!(start.elapsed() < SOON, "round {round} does not arrive");
            // Nobody polls the receiving device: its own thread does the work.
            std::hint::spin_loop();
        }
        assert!(bytes(&theirs, 0, size) == vec![round; size]);
        pair.a.success();
    }
}

#[test]
fn addresses_of_choice() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let mine = pair.a.memory(100, 1);
    let region = crocevia::Region::allocate(4096).unwrap();
    let zero_based = pair.b.pd.register(region, ALL | Access::ZERO_BASED).unwrap();
    assert_eq!((zero_based.iova(), zero_based.remote(5).addr), (0, 5));
    pair.a.run(SendOp::Write(zero_based.remote(5)), &[mine.sge(..)]);
    assert_eq!(bytes(&zero_based, 5, 100), pattern(100, 1));

    let region = crocevia::Region::allocate(4096).unwrap();
    let chosen = pair.b.pd.register_iova(region, 0x1234_5000_0000, ALL).unwrap();
    assert_eq!(chosen.remote(0x10).addr, 0x1234_5000_0010);
    pair.a.run(SendOp::Write(chosen.remote(0x10)), &[mine.sge(..)]);
    assert_eq!(bytes(&chosen, 0x10, 100), pattern(100, 1));

    // As a source and as the target of a receive, too.
    pair.b.post_recv(1, &[chosen.sge(2000..2100)]);
    pair.a.run(SendOp::Send, &[mine.sge(..)]);
    pair.b.success();
    assert_eq!(bytes(&chosen, 2000, 100), pattern(100, 1));
}

#[test]
fn reregistration() {
    let (a, b) = contexts();
    let pair = Pair::rc(&a, &b);
    let mine = pair.a.memory(64, 1);
    let mut theirs = pair.b.memory(64, 2);
    let before = theirs.remote(0);
    let new = crocevia::Region::allocate(128).unwrap();
    let old = theirs.rereg(None, Some(new), Some(ALL)).unwrap().expect("the old memory comes back");
    assert_eq!((old.len(), theirs.len()), (64, 128));
    pair.a.run(SendOp::Write(theirs.remote(64)), &[mine.sge(..)]);
    assert_eq!(bytes(&theirs, 64, 64), pattern(64, 1));
    let mut untouched = [0; 64];
    old.read(0, &mut untouched);
    assert_eq!(untouched[..], pattern(64, 2));
    // The old key has died.
    pair.a.post(1, SendOp::Write(before), &[mine.sge(..)]);
    pair.a.failure(crocevia::WcStatus::RemAccessErr);
}
