//! A child of a fork: its parent's NIC is not its own. A process of its own, because it forks.
#![allow(unsafe_code)] // fork, waitpid.

mod support;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::SendOp;
use support::{PATIENCE, Side, bytes, own, pair, pattern};

/// A fork while another test opens a NIC would leave the child with that test's locks held.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What the child does; the bits of what went wrong.
fn child(side: &Side) -> i32 {
    let mut wrong = 0;
    // The child's device has no objects: not those of the parent, and no packets either.
    let found = side.nic.with(|device, _| device.query_qp(side.qp).is_ok());
    wrong |= i32::from(found);
    wrong |= i32::from(side.nic.progress()) << 1;
    wrong |= i32::from(side.nic.link_counters().rx_packets != 0) << 2;
    live::flush_all();
    side.nic.close();
    // And it can have a NIC of its own, on another address.
    let own = Side::open(own(3), "", 4096);
    let peer = Side::open(support::own(4), "", 4096);
    own.connect(&peer, 18);
    peer.connect(&own, 18);
    own.post(1, SendOp::Write(peer.remote(0)), own.sge(0, 64));
    let start = Instant::now();
    while own.cq.poll_one().is_none() {
        own.nic.progress();
        if start.elapsed() > PATIENCE {
            return wrong | 8;
        }
    }
    wrong
}

#[test]
fn a_child_does_not_touch_its_parents_nic() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (a, b) = pair(own(1), own(2), "", 4096);
    a.post(1, SendOp::Write(b.remote(0)), a.sge(0, 64));
    a.success(1);
    // SAFETY: the child calls only what this library and the allocator support behind a fork, and
    // ends by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child(&a)));
        // SAFETY: ends the child at once, without running anything of the parent's.
        unsafe { libc::_exit(result.unwrap_or(64)) };
    }
    // The parent's goes on meanwhile.
    for round in 0..50 {
        a.region.write(0, &pattern(4096, round));
        a.post(round.into(), SendOp::Write(b.remote(0)), a.sge(0, 4096));
        a.success(round.into());
        assert_eq!(bytes(&b.region, 0, 4096), pattern(4096, round));
    }
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: writes the status of this process's own child.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if start.elapsed() < 2 * PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            0 => {
                // SAFETY: ends this process's own child, which has not been waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                panic!("the child hangs");
            }
            ended => break assert_eq!(ended, pid),
        }
    }
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "what went wrong in the child, in bits");
    a.assert_calm();
}

#[test]
fn a_child_that_lives_on_holds_no_address() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let a = Side::open(own(5), "", 4096);
    // SAFETY: the child only sleeps and ends by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: sleeps, and ends the child without running anything of the parent's.
        unsafe {
            libc::sleep(30);
            libc::_exit(0);
        }
    }
    drop(a);
    let start = Instant::now();
    let free = loop {
        // The thread that serves the address may be about to let go of it.
        if Side::is_free(own(5)) || start.elapsed() > Duration::from_secs(2) {
            break Side::is_free(own(5));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let again = std::panic::catch_unwind(|| drop(Side::open(own(5), "", 4096)));
    // SAFETY: ends and waits for this process's own child.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    assert!(free, "the child holds it");
    assert!(again.is_ok(), "the child keeps others from it");
}
