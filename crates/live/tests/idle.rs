//! What an open NIC costs when nothing happens, and when it was busy before. A process of its own,
//! because the time of the whole process is measured.
#![allow(unsafe_code)] // getrusage.

mod support;

use std::mem::zeroed;
use std::time::Duration;

use engine::SendOp;
use support::{own, pair};

/// Processor time of this process.
fn used() -> Duration {
    // SAFETY: plain old data for which all zeros are a value.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: writes the structure given.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
    let time =
        |t: libc::timeval| Duration::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[test]
fn an_idle_nic_uses_no_processor_time() {
    let (a, b) = pair(own(1), own(2), "", 4096);
    let measure = || {
        let before = used();
        std::thread::sleep(Duration::from_millis(300));
        used() - before
    };
    let fresh = measure();
    for round in 0..100 {
        a.post(round, SendOp::Write(b.remote(0)), a.sge(0, 64));
        a.success(round);
    }
    let pid = Some(std::process::id());
    let asked = live::query(&live::Query { pid, ..Default::default() }).unwrap();
    assert_eq!(asked.devices.len(), 2);
    // All threads have been at work and go back to sleep.
    std::thread::sleep(Duration::from_millis(20));
    let after = measure();
    assert!(fresh < Duration::from_millis(3), "never used: {fresh:?} of 300 ms");
    assert!(after < Duration::from_millis(9), "after work: {after:?} of 300 ms");
}
