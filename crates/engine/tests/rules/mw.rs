//! Memory windows of both types: bind, unbind, invalidate, rebind, and what peers may do through
//! them.

use engine::{
    Access, AsyncEvent, BindWindow, ErrorKind, MwId, PostError, QpState, QpType, RegionKeys,
    SendFlags, SendOp, WindowType,
};
use wire::{LKey, Operation, Qpn, RKey};

use super::memory::ACCESS_NAK;
use crate::pair::bench::{Bench, REGION};

const ALL: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
/// Where the windows of these tests begin, and their length.
const BASE: u64 = REGION + 0x1000;
const LENGTH: u64 = 0x100;

struct Fixture {
    b: Bench,
    mw: MwId,
    rkey: RKey,
    psn: u32,
}

impl Fixture {
    fn new(kind: WindowType) -> Self {
        Self::over(kind, Bench::rc())
    }

    fn over(kind: WindowType, mut b: Bench) -> Self {
        let (mw, rkey) = b.host.device.alloc_mw(b.pd, kind).expect("room");
        Self { b, mw, rkey, psn: 200 }
    }

    /// The bind of these tests, under the next key.
    fn plan(&mut self, access: Access) -> BindWindow {
        let rkey = self.b.host.device.next_mw_rkey(self.mw).expect("a window");
        let lkey = self.b.region.lkey;
        BindWindow { mw: self.mw, rkey, lkey, addr: BASE, length: LENGTH, access }
    }

    /// Posts the bind; its completion.
    fn bind(&mut self, bind: BindWindow) -> Vec<String> {
        self.b.post(7, SendOp::BindWindow(bind), 0);
        self.b.lines();
        let lines = self.b.sends();
        if lines == ["7 BindMw 0B"] {
            self.rkey = bind.rkey;
        }
        lines
    }

    fn bound(&mut self, access: Access) {
        let plan = self.plan(access);
        assert_eq!(self.bind(plan), ["7 BindMw 0B"]);
        assert_eq!(self.b.host.device.mw_rkey(self.mw).expect("a window"), self.rkey);
    }

    fn invalidate(&mut self, key: RKey) -> Vec<String> {
        self.b.post(8, SendOp::LocalInvalidate(key), 0);
        self.b.lines();
        self.b.sends()
    }

    /// A WRITE of the peer's arrives; whether it was executed. A refused one ends the connection.
    fn write(&mut self, addr: u64, length: u32, rkey: RKey) -> bool {
        let made = self.b.packet(Operation::WriteOnly, self.psn).reth(addr, rkey, length).ack();
        self.psn += 1;
        let lines = self.b.answer(made.data(length as usize));
        assert!(lines[0].contains(" ack ") || lines[0].contains("AccessError"), "{lines:?}");
        lines[0].contains(" ack ")
    }
}

const BOTH: [WindowType; 2] = [WindowType::Type1, WindowType::Type2];

#[test]
fn a_window_gives_what_it_was_bound_with() {
    for kind in BOTH {
        for (addr, length, inside) in [
            (BASE, LENGTH as u32, true),
            (BASE + LENGTH - 1, 1, true),
            (BASE, LENGTH as u32 + 1, false),
            (BASE - 1, 1, false),
            (BASE + LENGTH, 1, false),
            (u64::MAX, 2, false),
        ] {
            let mut f = Fixture::new(kind);
            f.bound(ALL);
            let rkey = f.rkey;
            assert_eq!(f.write(addr, length, rkey), inside, "{kind:?} {addr:#x} {length}");
        }
    }
}

#[test]
fn rights_of_a_window_by_operation() {
    for bits in 0..8 {
        let access = Access::from_bits_truncate(bits << 1);
        for (operation, right) in [
            (Operation::WriteOnly, Access::REMOTE_WRITE),
            (Operation::ReadRequest, Access::REMOTE_READ),
            (Operation::CompareSwap, Access::REMOTE_ATOMIC),
        ] {
            let mut f = Fixture::new(WindowType::Type2);
            f.bound(access);
            let made = match operation {
                Operation::WriteOnly => f.b.rdma(operation, 200, BASE, 8).data(8),
                Operation::ReadRequest => f.b.rdma(operation, 200, BASE, 8),
                _ => f.b.atomic(operation, 200, BASE, 5, 0),
            };
            let lines = f.b.answer(made.ack().rkey(f.rkey));
            let refused = lines == [format!("Acknowledge 200 {ACCESS_NAK}")];
            assert_eq!(refused, !access.contains(right), "{operation:?} {access:?}: {lines:?}");
        }
    }
}

#[test]
fn an_unbound_window_gives_nothing() {
    for kind in BOTH {
        let mut f = Fixture::new(kind);
        let rkey = f.rkey;
        assert!(!f.write(BASE, 8, rkey), "{kind:?}");
    }
}

#[test]
fn only_the_exact_key_opens_a_window() {
    for wrong in [1, 0x80, 0x100, 0x8000_0000] {
        let mut f = Fixture::new(WindowType::Type2);
        f.bound(ALL);
        let key = RKey::new(f.rkey.get() ^ wrong);
        assert!(!f.write(BASE, 8, key), "{wrong:#x}");
    }
}

#[test]
fn a_bind_executes_in_order_with_what_is_around_it() {
    let mut f = Fixture::new(WindowType::Type2);
    let plan = f.plan(ALL);
    f.b.post(1, SendOp::Send, 8);
    f.b.post(2, SendOp::BindWindow(plan), 0);
    f.b.post(3, SendOp::Send, 8);
    assert_eq!(f.b.lines(), ["SendOnly 100 A 8B", "SendOnly 101 A 8B"], "a bind has no packet");
    f.b.inject(f.b.acknowledge(100, 1));
    assert_eq!(f.b.sends(), ["1 Send 8B", "2 BindMw 0B"]);
    assert!(f.write(BASE, 8, plan.rkey));
}

#[test]
fn a_type_1_window_is_bound_anew_and_unbound_with_length_0() {
    let mut f = Fixture::new(WindowType::Type1);
    f.bound(ALL);
    let first = f.rkey;
    let plan = BindWindow { addr: BASE + 0x1000, ..f.plan(ALL) };
    assert_eq!(f.bind(plan), ["7 BindMw 0B"]);
    let second = f.rkey;
    assert_ne!(first, second);
    assert!(f.write(BASE + 0x1000, 8, second));
    let unbind = BindWindow { length: 0, ..f.plan(Access::empty()) };
    assert_eq!(f.bind(unbind), ["7 BindMw 0B"]);
    let id = f.b.region.id;
    assert!(!f.write(BASE + 0x1000, 8, second));
    f.b.host.device.dereg_mr(id).expect("no window is bound to it any more");

    let mut f = Fixture::new(WindowType::Type1);
    f.bound(ALL);
    let first = f.rkey;
    f.bound(ALL);
    assert!(!f.write(BASE, 8, first), "the key before the last bind has died");
}

#[test]
fn a_type_2_window_is_bound_once_until_invalidated() {
    let mut f = Fixture::new(WindowType::Type2);
    f.bound(ALL);
    let key = f.rkey;
    assert_eq!(f.invalidate(key), ["8 LocalInv 0B"]);
    f.bound(ALL);
    let new = f.rkey;
    assert_ne!(key, new);
    assert!(f.write(BASE, 8, new));
    assert!(!f.write(BASE, 8, key), "the old key stays dead");

    let mut f = Fixture::new(WindowType::Type2);
    f.bound(ALL);
    let plan = f.plan(ALL);
    assert_eq!(f.bind(plan), ["7 MwBindErr"], "bound already");
    assert_eq!(f.b.state(), QpState::Err);
}

#[test]
fn an_invalidated_window_gives_nothing() {
    let mut f = Fixture::new(WindowType::Type2);
    f.bound(ALL);
    let key = f.rkey;
    assert_eq!(f.invalidate(key), ["8 LocalInv 0B"]);
    assert!(!f.write(BASE, 8, key));
}

#[test]
fn what_cannot_be_invalidated() {
    let unbound = |f: &mut Fixture| f.rkey;
    let bound = |f: &mut Fixture| {
        f.bound(ALL);
        f.rkey
    };
    let mut f = Fixture::new(WindowType::Type1);
    let key = bound(&mut f);
    assert_eq!(f.invalidate(key), ["8 MwBindErr"], "type 1 is unbound by a bind");
    let mut f = Fixture::new(WindowType::Type2);
    let key = unbound(&mut f);
    assert_eq!(f.invalidate(key), ["8 MwBindErr"], "not bound");
    let mut f = Fixture::new(WindowType::Type2);
    let key = RKey::new(bound(&mut f).get() ^ 1);
    assert_eq!(f.invalidate(key), ["8 MwBindErr"], "not this key");
    let mut f = Fixture::new(WindowType::Type2);
    assert_eq!(f.invalidate(RKey::new(0x1234_5678)), ["8 MwBindErr"], "no such key");
}

/// Tries a bind that is wrong in one respect.
fn refused(kind: WindowType, change: impl FnOnce(&mut Fixture, &mut BindWindow)) {
    let mut f = Fixture::new(kind);
    let mut plan = f.plan(ALL);
    change(&mut f, &mut plan);
    assert_eq!(f.bind(plan), ["7 MwBindErr"], "{kind:?} {plan:?}");
    assert_eq!(f.b.state(), QpState::Err);
    assert!(!f.b.host.device.dereg_mr(f.b.region.id).is_err_and(|e| e.kind() == ErrorKind::Busy));
}

/// A region of its own with these rights.
fn region(f: &mut Fixture, access: Access) -> RegionKeys {
    let pd = f.b.pd;
    f.b.host.register(pd, REGION, 0x10_0000, access)
}

#[test]
fn binds_that_are_refused() {
    for kind in BOTH {
        refused(kind, |_, plan| plan.lkey = LKey::new(1));
        refused(kind, |_, plan| plan.addr = REGION - 1);
        refused(kind, |_, plan| plan.length = 1 << 40);
        refused(kind, |_, plan| (plan.addr, plan.length) = (u64::MAX, 2));
        refused(kind, |_, plan| plan.rkey = RKey::new(plan.rkey.get() ^ 0x100));
        refused(kind, |_, plan| plan.mw = MwId(99));
        refused(kind, |f, plan| plan.lkey = region(f, Access::LOCAL_WRITE | ALL).lkey);
        refused(kind, |f, plan| plan.lkey = region(f, Access::MW_BIND).lkey);
        refused(kind, |f, plan| {
            let elsewhere = f.b.host.device.alloc_pd().expect("a domain");
            plan.mw = f.b.host.device.alloc_mw(elsewhere, kind).expect("room").0;
        });
        refused(kind, |f, plan| {
            let elsewhere = f.b.host.device.alloc_pd().expect("a domain");
            let access = Access::LOCAL_WRITE | Access::MW_BIND;
            plan.lkey = f.b.host.register(elsewhere, REGION, 0x10_0000, access).lkey;
        });
    }
}

#[test]
fn a_window_gives_rights_that_its_region_does_not() {
    // Remote rights are the window's alone; local write is the region's to have.
    for (of_region, of_window, executed) in [
        (Access::LOCAL_WRITE | Access::MW_BIND, Access::REMOTE_WRITE, true),
        (Access::LOCAL_WRITE | Access::MW_BIND | Access::REMOTE_WRITE, Access::REMOTE_READ, false),
    ] {
        let mut f = Fixture::new(WindowType::Type2);
        let lkey = region(&mut f, of_region).lkey;
        let plan = BindWindow { lkey, ..f.plan(of_window) };
        assert_eq!(f.bind(plan), ["7 BindMw 0B"]);
        assert_eq!(f.write(BASE, 8, plan.rkey), executed);
    }
    let mut f = Fixture::new(WindowType::Type2);
    let lkey = region(&mut f, Access::MW_BIND).lkey;
    let plan = BindWindow { lkey, ..f.plan(Access::REMOTE_READ) };
    assert_eq!(f.bind(plan), ["7 BindMw 0B"], "reading needs no local write");
}

#[test]
fn a_zero_based_window_counts_from_its_own_beginning() {
    let mut f = Fixture::new(WindowType::Type2);
    f.bound(ALL | Access::ZERO_BASED);
    let rkey = f.rkey;
    assert!(f.write(8, 8, rkey));
    let expected = crate::pair::bench::pattern(8);
    assert_eq!(f.b.bytes(BASE + 8, 8), expected);
    assert!(f.write(LENGTH - 8, 8, rkey));
    assert!(!f.write(LENGTH - 7, 8, rkey));
    let mut f = Fixture::new(WindowType::Type2);
    f.bound(ALL | Access::ZERO_BASED);
    let rkey = f.rkey;
    assert!(!f.write(BASE, 8, rkey), "not the region's address");
}

#[test]
fn a_window_over_a_zero_based_region_is_named_by_its_offset() {
    let mut f = Fixture::new(WindowType::Type2);
    let access = Access::LOCAL_WRITE | Access::MW_BIND | Access::ZERO_BASED;
    let lkey = region(&mut f, access).lkey;
    let plan = BindWindow { lkey, addr: 0x1000, ..f.plan(ALL) };
    assert_eq!(f.bind(plan), ["7 BindMw 0B"]);
    assert!(f.write(0x1000, 8, plan.rkey));
    assert_eq!(f.b.bytes(BASE, 8), crate::pair::bench::pattern(8));
    assert!(!f.write(0xFFF, 8, plan.rkey));
}

#[test]
fn a_type_2_window_belongs_to_the_queue_pair_that_bound_it() {
    for kind in BOTH {
        let mut f = Fixture::new(kind);
        let other = f.b.another(Qpn::new(0x88), |_, _| {});
        f.bound(ALL);
        let made = f.b.rdma(Operation::WriteOnly, 200, BASE, 8).data(8).ack().rkey(f.rkey);
        let lines = f.b.answer(made.to(other));
        let refused = lines == [format!("Acknowledge 200 {ACCESS_NAK}")];
        assert_eq!(refused, kind == WindowType::Type2, "{lines:?}");
    }
}

#[test]
fn another_queue_pair_cannot_invalidate_a_type_2_window() {
    let mut f = Fixture::new(WindowType::Type2);
    let other = f.b.another(Qpn::new(0x88), |_, _| {});
    f.bound(ALL);
    let first = std::mem::replace(&mut f.b.qp, other);
    let key = f.rkey;
    assert_eq!(f.invalidate(key), ["8 MwBindErr"]);
    f.b.qp = first;
    assert!(f.write(BASE, 8, key), "it is still bound");
}

#[test]
fn a_peer_invalidates_with_its_send() {
    let mut f = Fixture::new(WindowType::Type2);
    f.bound(ALL);
    let key = f.rkey;
    f.b.recv(1, 8);
    let made = f.b.packet(Operation::SendOnlyInvalidate, 200).data(8).invalidate(key).ack();
    assert_eq!(f.b.answer(made), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(f.b.receives(), [format!("1 Recv 8B inv={key}")]);
    f.psn = 201;
    assert!(!f.write(BASE, 8, key));
    assert!(f.b.host.device.dereg_mr(f.b.region.id).is_ok(), "the window is no longer bound");
}

#[test]
fn a_region_cannot_be_invalidated() {
    let mut b = Bench::rc();
    let keys = b.region;
    b.recv(1, 8);
    let made = b.packet(Operation::SendOnlyInvalidate, 200).data(8).invalidate(keys.rkey);
    assert_eq!(b.answer(made), [format!("Acknowledge 200 {ACCESS_NAK}")]);
    assert_eq!(b.receives(), ["1 WrFlushErr"]);
    let mut b = Bench::rc();
    let key = b.region.rkey;
    b.post(1, SendOp::LocalInvalidate(key), 0);
    assert!(b.lines().is_empty());
    assert_eq!(b.sends(), ["1 MwBindErr"]);
}

#[test]
fn a_peer_that_invalidates_what_it_may_not_is_refused() {
    type Key = fn(&mut Fixture) -> RKey;
    let keys: [(&str, Key); 4] = [
        ("no such key", |_| RKey::new(0x1234_5678)),
        ("unbound", |f| f.rkey),
        ("another domain's region", |f| {
            let elsewhere = f.b.host.device.alloc_pd().expect("a domain");
            f.b.host.register(elsewhere, REGION, 64, Access::LOCAL_WRITE).rkey
        }),
        ("another low byte", |f| {
            f.bound(ALL);
            RKey::new(f.rkey.get() ^ 1)
        }),
    ];
    for (what, key) in keys {
        let mut f = Fixture::new(WindowType::Type2);
        let key = key(&mut f);
        f.b.recv(1, 8);
        let made = f.b.packet(Operation::SendOnlyInvalidate, 200).data(8).invalidate(key);
        assert_eq!(f.b.answer(made), [format!("Acknowledge 200 {ACCESS_NAK}")], "{what}");
        assert_eq!(f.b.receives(), ["1 WrFlushErr"], "{what}");
        assert_eq!(f.b.events(), [AsyncEvent::QpAccessErr(f.b.qp)], "{what}");
    }
}

#[test]
fn a_region_with_windows_is_busy() {
    for kind in BOTH {
        let mut f = Fixture::new(kind);
        f.bound(ALL);
        let (id, mw, pd) = (f.b.region.id, f.mw, f.b.pd);
        let device = &mut f.b.host.device;
        let error = device.dereg_mr(id).expect_err("a window is bound to it");
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("1 memory window"), "{error}");
        let again = device.rereg_mr(id, Some(pd), None, None).expect_err("a window is bound");
        assert_eq!(again.kind(), ErrorKind::Busy);
        device.dealloc_mw(mw).expect("bound or not");
        device.dereg_mr(id).expect("free");
        let key = f.rkey;
        assert!(!f.write(BASE, 8, key), "the window is gone");
    }
}

#[test]
fn the_next_key_differs_in_its_low_byte_only() {
    let mut f = Fixture::new(WindowType::Type1);
    for _ in 0..300 {
        let before = f.rkey.get();
        f.bound(ALL);
        assert_eq!(f.rkey.get() >> 8, before >> 8);
        assert_eq!(f.rkey.get() & 0xFF, (before + 1) & 0xFF);
    }
    let gone = f.b.host.device.next_mw_rkey(MwId(99));
    assert_eq!(gone.expect_err("no such window").kind(), ErrorKind::NotFound);
}

#[test]
fn datagrams_bind_nothing_and_uc_does() {
    let mut f = Fixture::over(WindowType::Type2, Bench::of(QpType::Uc));
    f.bound(ALL);
    let key = f.rkey;
    let made = f.b.rdma(Operation::WriteOnly, 200, BASE, 8).data(8).rkey(key);
    assert!(f.b.answer(made).is_empty());
    assert_eq!(f.b.bytes(BASE, 8), crate::pair::bench::pattern(8));
    assert_eq!(f.invalidate(key), ["8 LocalInv 0B"]);
    let plan = BindWindow { length: 1 << 40, ..f.plan(ALL) };
    assert_eq!(f.bind(plan), ["7 MwBindErr"]);
    assert_eq!(f.b.state(), QpState::Sqe);
    let mut f = Fixture::over(WindowType::Type2, Bench::of(QpType::Ud));
    let plan = f.plan(ALL);
    let refused = f.b.post_with(1, SendOp::BindWindow(plan), 0, SendFlags::SIGNALED);
    assert_eq!(refused, Err(PostError::Operation));
}

#[test]
fn a_queue_pair_that_goes_takes_nothing_of_its_windows_along() {
    let mut f = Fixture::new(WindowType::Type2);
    f.bound(ALL);
    let (id, mw) = (f.b.region.id, f.mw);
    f.b.host.device.destroy_qp(f.b.qp).expect("it exists");
    let busy = f.b.host.device.dereg_mr(id).expect_err("still bound");
    assert_eq!(busy.kind(), ErrorKind::Busy);
    f.b.host.device.dealloc_mw(mw).expect("bound or not");
    f.b.host.device.dereg_mr(id).expect("free");
}
