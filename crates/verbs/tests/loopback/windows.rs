//! Memory windows of both types, and keys that are killed.

use std::sync::LazyLock;

use crocevia::{
    Access, BindWindow, Context, ErrorKind, RKey, SendFlags, SendOp, WcData, WcOpcode, WcStatus,
    WindowType,
};

use super::support::*;

const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(44), open(45)));
    OPEN.clone()
}

/// A fresh pair: an access error ends the connection.
fn pair() -> Pair {
    let (a, b) = contexts();
    Pair::rc(&a, &b)
}

fn remote(addr: u64, rkey: RKey) -> crocevia::Remote {
    crocevia::Remote { addr, rkey }
}

#[test]
fn type_1() {
    let pair = pair();
    let (mine, theirs) = (pair.a.memory(16, 1), pair.b.memory(1000, 2));
    let mw = pair.b.pd.alloc_mw(WindowType::Type1).unwrap();
    let binding = mw.binding(&theirs, 100..200, mw.rkey(), RIGHTS);
    let key = pair.b.qp.bind_mw(5, SendFlags::SIGNALED, &mw, binding).unwrap();
    let bound = pair.b.success();
    assert_eq!((bound.wr_id, bound.opcode), (5, WcOpcode::BindMw));
    assert_eq!(mw.rkey(), key);
    let first = theirs.remote(100).addr;
    pair.a.run(SendOp::Write(remote(first, key)), &[mine.sge(..)]);
    pair.a.run(SendOp::Read(remote(first + 84, key)), &[mine.sge(..)]);
    assert_eq!(bytes(&theirs, 100, 16), pattern(16, 1));

    // Bound anew, elsewhere: the old key is dead.
    let binding = mw.binding(&theirs, 300..400, key, RIGHTS);
    let newer = pair.b.qp.bind_mw(6, SendFlags::SIGNALED, &mw, binding).unwrap();
    pair.b.success();
    assert_ne!(newer, key);
    pair.a.run(SendOp::Write(remote(first + 200, newer)), &[mine.sge(..)]);
    pair.a.post(1, SendOp::Write(remote(first, key)), &[mine.sge(..)]);
    pair.a.failure(WcStatus::RemAccessErr);
}

#[test]
fn outside_a_window() {
    for (offset, op) in [(85, 0), (u64::MAX, 0), (0, 1)] {
        let pair = pair();
        let (mine, theirs) = (pair.a.memory(16, 1), pair.b.memory(1000, 2));
        let mw = pair.b.pd.alloc_mw(WindowType::Type1).unwrap();
        let binding = mw.binding(&theirs, 100..200, mw.rkey(), Access::REMOTE_WRITE);
        let key = pair.b.qp.bind_mw(5, SendFlags::SIGNALED, &mw, binding).unwrap();
        pair.b.success();
        let place = remote(theirs.remote(100).addr.wrapping_add(offset), key);
        let op = if op == 0 { SendOp::Write(place) } else { SendOp::Read(place) };
        pair.a.post(1, op, &[mine.sge(..)]);
        pair.a.failure(WcStatus::RemAccessErr);
        assert_eq!(bytes(&theirs, 0, 1000), pattern(1000, 2));
    }
}

#[test]
fn a_region_under_a_window_is_busy() {
    let pair = pair();
    let theirs = pair.b.memory(1000, 2);
    let mw = pair.b.pd.alloc_mw(WindowType::Type1).unwrap();
    let binding = mw.binding(&theirs, 0..1000, mw.rkey(), RIGHTS);
    pair.b.qp.bind_mw(1, SendFlags::SIGNALED, &mw, binding).unwrap();
    pair.b.success();
    let (theirs, error) = theirs.destroy().expect_err("a window is bound to it");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    // Nor may other memory be put under the window's feet.
    let mut theirs = theirs;
    let other = crocevia::Region::allocate(1000).unwrap();
    let error = theirs.rereg(None, Some(other), None).expect_err("a window is bound to it");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    // Unbound by a length of 0, it is free.
    let unbind = BindWindow { length: 0, ..mw.binding(&theirs, 0..0, mw.rkey(), RIGHTS) };
    pair.b.qp.bind_mw(2, SendFlags::SIGNALED, &mw, unbind).unwrap();
    pair.b.success();
    let region = theirs.destroy().map_err(|(_, error)| error).unwrap();
    assert_eq!(region.len(), 1000);
}

#[test]
fn dropping_a_region_under_a_window_keeps_its_memory() {
    let pair = pair();
    let mine = pair.a.memory(16, 1);
    let theirs = pair.b.memory(1000, 2);
    let place = theirs.remote(0).addr;
    let mw = pair.b.pd.alloc_mw(WindowType::Type1).unwrap();
    let binding = mw.binding(&theirs, 0..1000, mw.rkey(), RIGHTS);
    let key = pair.b.qp.bind_mw(1, SendFlags::SIGNALED, &mw, binding).unwrap();
    pair.b.success();
    drop(theirs);
    // The window still works: the memory has not gone.
    pair.a.run(SendOp::Read(remote(place, key)), &[mine.sge(..)]);
    assert_eq!(bytes(&mine, 0, 16), pattern(1000, 2)[..16]);
    drop(mw);
    pair.a.post(1, SendOp::Read(remote(place, key)), &[mine.sge(..)]);
    pair.a.failure(WcStatus::RemAccessErr);
}

/// Binds a type 2 window over the whole of a region; its key.
fn bind_type_2(end: &End, mw: &crocevia::Mw, mr: &crocevia::Mr, low: u32) -> RKey {
    // The application chooses the low 8 bits.
    let key = RKey::new(mw.rkey().get() & !0xFF | low);
    let binding = mw.binding(mr, 0..mr.len(), key, RIGHTS);
    assert_eq!(end.run(SendOp::BindWindow(binding), &[]).opcode, WcOpcode::BindMw);
    key
}

#[test]
fn type_2_and_local_invalidate() {
    let pair = pair();
    let (mine, theirs) = (pair.a.memory(16, 1), pair.b.memory(1000, 2));
    let mw = pair.b.pd.alloc_mw(WindowType::Type2).unwrap();
    assert_eq!(mw.kind(), WindowType::Type2);
    let key = bind_type_2(&pair.b, &mw, &theirs, 0x5A);
    pair.a.run(SendOp::Write(remote(theirs.remote(0).addr, key)), &[mine.sge(..)]);
    assert_eq!(bytes(&theirs, 0, 16), pattern(16, 1));
    assert_eq!(pair.b.run(SendOp::LocalInvalidate(key), &[]).opcode, WcOpcode::LocalInv);
    // It can be bound again, under another key.
    let key = bind_type_2(&pair.b, &mw, &theirs, 0x5B);
    pair.a.run(SendOp::Write(remote(theirs.remote(0).addr, key)), &[mine.sge(..)]);
}

#[test]
fn send_with_invalidate() {
    let pair = pair();
    let (mine, theirs) = (pair.a.memory(16, 1), pair.b.memory(1000, 2));
    let mw = pair.b.pd.alloc_mw(WindowType::Type2).unwrap();
    let key = bind_type_2(&pair.b, &mw, &theirs, 0x11);
    let place = remote(theirs.remote(0).addr, key);
    pair.a.run(SendOp::Read(place), &[mine.sge(..)]);
    let into = pair.b.memory(16, 0);
    pair.b.post_recv(3, &[into.sge(..)]);
    pair.a.run(SendOp::SendInvalidate(key), &[mine.sge(..)]);
    let received = pair.b.success();
    assert_eq!((received.wr_id, received.data), (3, WcData::Invalidated(key)));
    pair.a.post(1, SendOp::Read(place), &[mine.sge(..)]);
    pair.a.failure(WcStatus::RemAccessErr);
}

#[test]
fn a_type_2_window_belongs_to_its_queue_pair() {
    let (pair, other) = (pair(), pair());
    // Another connection to the same domain as the window's.
    let options = crocevia::QpOptions::rc(&pair.b.cq);
    let beside = pair.b.pd.create_qp(&options).unwrap();
    let end = End::new(&other.a.context, crocevia::QpType::Rc);
    crocevia::Qp::pair(&end.qp, &beside, &Default::default()).unwrap();
    let (mine, theirs) = (end.memory(16, 1), pair.b.memory(1000, 2));
    let mw = pair.b.pd.alloc_mw(WindowType::Type2).unwrap();
    let key = bind_type_2(&pair.b, &mw, &theirs, 0x22);
    end.post(1, SendOp::Write(remote(theirs.remote(0).addr, key)), &[mine.sge(..)]);
    end.failure(WcStatus::RemAccessErr);
    assert_eq!(bytes(&theirs, 0, 1000), pattern(1000, 2));
}
