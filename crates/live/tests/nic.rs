//! Two NICs of one process exchange data over the loopback interface.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::{Event, SendOp, WcOpcode};
use support::{PATIENCE, Side, bytes, own, pair, pattern};

const MIB: usize = 1 << 20;

/// Ends another thread's loop, also when this one fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn send_write_read_and_atomics() {
    let (a, b) = pair(own(1), own(2), "", MIB);
    for (round, len) in [1, 8, 4096, 4097, 100_000, 300_000].into_iter().enumerate() {
        let round = round as u8;
        a.region.write(0, &pattern(len, round));
        b.receive(1, b.sge(0, MIB / 2));
        a.post(2, SendOp::SendImm([1, 2, 3, round]), a.sge(0, len));
        let got = b.success(1);
        assert_eq!((got.opcode, got.byte_len), (WcOpcode::Recv, len as u32));
        a.success(2);
        assert_eq!(bytes(&b.region, 0, len), pattern(len, round), "SEND of {len}");

        a.region.write(0, &pattern(len, round ^ 0x55));
        a.post(3, SendOp::Write(b.remote(MIB / 2)), a.sge(0, len));
        a.success(3);
        assert_eq!(bytes(&b.region, MIB / 2, len), pattern(len, round ^ 0x55), "WRITE of {len}");

        a.post(4, SendOp::Read(b.remote(0)), a.sge(MIB / 2, len));
        a.success(4);
        assert_eq!(bytes(&a.region, MIB / 2, len), pattern(len, round), "READ of {len}");
    }
    b.region.store_u64(64, 40);
    a.post(5, SendOp::FetchAdd { remote: b.remote(64), add: 2 }, a.sge(8, 8));
    a.success(5);
    assert_eq!((a.region.load_u64(8), b.region.load_u64(64)), (40, 42));
    for side in [&a, &b] {
        side.assert_calm();
        let link = side.nic.link_counters();
        assert!(link.rx_packets > 0 && link.rx_icrc_ok == link.rx_packets);
    }
}

#[test]
fn the_target_of_one_sided_operations_needs_no_help() {
    let (a, b) = pair(own(3), own(4), "", MIB);
    a.region.write(0, &pattern(MIB, 9));
    for round in 0..20 {
        a.post(round, SendOp::Write(b.remote(0)), a.sge(0, MIB));
        // Neither side polls: both threads do it all.
        assert_eq!(a.completion_without_polling().wr_id, round);
    }
    assert_eq!(bytes(&b.region, 0, MIB), pattern(MIB, 9));
    assert_eq!(b.events.take(), []);
}

#[test]
fn an_armed_queue_raises_its_event_without_a_poller() {
    let (a, b) = pair(own(5), own(6), "", 4096);
    b.cq.req_notify(false);
    b.receive(1, b.sge(0, 64));
    a.post(1, SendOp::Send, a.sge(0, 64));
    let start = Instant::now();
    let events = loop {
        let events = b.events.take();
        if events.contains(&Event::Completion(b.cq_id)) {
            break events;
        }
        assert!(start.elapsed() < PATIENCE, "no event");
        std::thread::sleep(Duration::from_micros(100));
    };
    assert_eq!(events.iter().filter(|e| matches!(e, Event::Completion(_))).count(), 1);
    assert_eq!(b.cq.poll_one().map(|c| c.wr_id), Some(1));
}

#[test]
fn memory_that_is_written_without_pause_can_be_read_and_sent() {
    let (a, b) = pair(own(7), own(8), "", MIB);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0_u8;
            while !stop.load(Ordering::Relaxed) {
                byte = byte.wrapping_add(1);
                for word in 0..MIB / 8 {
                    b.region.store_u64(word * 8, u64::from_ne_bytes([byte; 8]));
                }
            }
        });
        let _stop = SetOnDrop(&stop);
        for round in 0..40 {
            a.post(round, SendOp::Read(b.remote(0)), a.sge(0, MIB));
            a.success(round);
            for word in 0..MIB / 8 {
                let bytes = a.region.load_u64(word * 8).to_ne_bytes();
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn word: {bytes:x?}");
            }
        }
    });
    a.assert_calm();
    b.assert_calm();
}

#[test]
fn a_spinner_on_the_last_byte_sees_the_whole_message() {
    let (a, b) = pair(own(9), own(10), "", 1 << 14);
    // Every size would take minutes beside other work; these cover all alignments of the end.
    for (round, len) in (1..64).chain((64..=8192).step_by(61)).enumerate() {
        let mark = round as u8 | 1;
        b.region.write(0, &vec![0; len]);
        a.region.write(0, &vec![mark; len]);
        a.post(round as u64, SendOp::Write(b.remote(0)), a.sge(0, len));
        let start = Instant::now();
        while b.region.load_u8(len - 1) != mark {
            assert!(start.elapsed() < PATIENCE, "the last byte never comes");
            std::thread::yield_now();
        }
        assert!(bytes(&b.region, 0, len).iter().all(|byte| *byte == mark), "{len} bytes");
        a.success(round as u64);
    }
}

#[test]
fn faults_change_time_but_no_data() {
    let faults = "loss=2%,dup=1%,reorder=2%,corrupt=1%,seed=11";
    let (a, b) = pair(own(11), own(12), faults, MIB);
    for round in 0..20_u8 {
        let len = 1 + usize::from(round) * 15_013;
        a.region.write(0, &pattern(len, round));
        b.receive(1, b.sge(0, MIB / 2));
        a.post(2, SendOp::Send, a.sge(0, len));
        a.post(3, SendOp::Write(b.remote(MIB / 2)), a.sge(0, len));
        a.post(4, SendOp::Read(b.remote(MIB / 2)), a.sge(MIB / 2, len));
        b.success(1);
        for wr_id in 2..5 {
            a.success(wr_id);
        }
        assert_eq!(bytes(&b.region, 0, len), pattern(len, round));
        assert_eq!(bytes(&a.region, MIB / 2, len), pattern(len, round));
    }
    let (x, y) = (a.nic.link_counters(), b.nic.link_counters());
    assert!(x.faults_injected + y.faults_injected > 0);
    assert!(x.rx_icrc_encapsulated + y.rx_icrc_encapsulated > 0);
    assert!(a.counters().retransmitted_packets > 0);
}

#[test]
fn closing_sends_what_is_owed_and_opening_again_works() {
    let a = Side::open(own(13), "", 4096);
    for _ in 0..3 {
        let b = Side::open(own(14), "", 4096);
        let other = Side::open(own(15), "", 4096);
        b.connect(&other, 18);
        other.connect(&b, 18);
        b.receive(1, b.sge(0, 64));
        other.post(1, SendOp::Send, other.sge(0, 64));
        b.success(1);
        // The receiver goes at once; its acknowledgement must not be lost with it.
        drop(b);
        other.success(1);
        assert_eq!(other.counters().local_ack_timeout_err, 0);
    }
    drop(a);
}

#[test]
fn a_poller_that_stops_leaves_nothing_behind() {
    let (a, b) = pair(own(18), own(19), "", 4096);
    for _ in 0..2 {
        // Long enough for the threads to sleep without limit.
        std::thread::sleep(Duration::from_millis(700));
        b.receive(1, b.sge(0, 64));
        a.post(1, SendOp::Send, a.sge(0, 64));
        b.success(1);
        // Nobody polls b now; its acknowledgement is still to leave.
        assert_eq!(a.completion_without_polling().wr_id, 1);
    }
    assert_eq!(a.counters().local_ack_timeout_err, 0);
}

#[test]
fn the_sink_may_be_the_last_owner() {
    let (a, b) = pair(own(20), own(21), "", 4096);
    b.cq.req_notify(false);
    b.receive(1, b.sge(0, 64));
    // Nobody polls b: the event comes from its own thread, and the sink lets the NIC go there.
    let Side { nic, events, region, .. } = b;
    let weak = Arc::downgrade(&nic);
    *events.keeper.lock().unwrap() = Some(nic);
    a.post(1, SendOp::Send, a.sge(0, 64));
    assert_eq!(a.completion_without_polling().wr_id, 1);
    let start = Instant::now();
    while weak.strong_count() > 0 {
        assert!(start.elapsed() < PATIENCE, "the NIC stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(region);
    // Its address is free again once its thread has ended.
    while !Side::is_free(own(21)) {
        assert!(start.elapsed() < PATIENCE, "its sockets stay");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_threads_post_and_poll() {
    let (a, b) = pair(own(16), own(17), "", MIB);
    const EACH: u64 = 300;
    let done = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (a, b, done) = (&a, &b, &done);
            scope.spawn(move || {
                for n in 0..EACH {
                    let place = (thread * 65_536) as usize;
                    a.post(thread << 32 | n, SendOp::Write(b.remote(place)), a.sge(place, 5000));
                    // Keep the queue from filling up: take as many as posted, anybody's.
                    let _ = a.completion();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 3 * EACH);
    assert!(a.cq.is_empty());
}
