//! Regions: who may touch what under which key, and what happens when a registration changes.

use std::collections::BTreeSet;

use engine::{
    Access, AsyncEvent, ErrorKind, PdId, QpState, RegionAttr, RegionKeys, SendData, SendFlags,
    SendOp, SendRequest, Sge, WindowType, limits,
};
use wire::{LKey, NakCode, Operation, RKey};

use crate::pair::bench::{BUFFERS, Bench, LOCAL, Made, REGION, THERE, pattern};

pub(crate) const ACCESS_NAK: &str = "nak(RemoteAccessError) msn=0";

/// All combinations of the four rights.
fn rights() -> impl Iterator<Item = Access> {
    (0..16).map(Access::from_bits_truncate)
}

fn attr(pd: PdId, addr: u64, length: u64, access: Access) -> RegionAttr {
    RegionAttr { pd, addr, length, iova: addr, access }
}

#[test]
fn remote_rights_of_a_region_by_operation() {
    for access in rights() {
        let attr_of = |b: &Bench| attr(b.pd, REGION, 4096, access);
        let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if writes && !access.contains(Access::LOCAL_WRITE) {
            let mut b = Bench::rc();
            let (pd, id) = (b.pd, b.region.id);
            let error = b.host.device.reg_mr(&attr(pd, REGION, 4096, access)).expect_err("no");
            assert!(error.to_string().contains("LOCAL_WRITE"), "{error}");
            assert_eq!(error.kind(), ErrorKind::Invalid);
            b.host.device.rereg_mr(id, None, None, Some(access)).expect_err("nor later");
            continue;
        }
        for (operation, right, answer) in [
            (Operation::WriteOnly, Access::REMOTE_WRITE, "Acknowledge 200 ack msn=1"),
            (Operation::ReadRequest, Access::REMOTE_READ, "ReadResponseOnly 200 ack msn=1 8B"),
            (Operation::FetchAdd, Access::REMOTE_ATOMIC, "AtomicAcknowledge 200 ack msn=1 old=0"),
            (
                Operation::CompareSwap,
                Access::REMOTE_ATOMIC,
                "AtomicAcknowledge 200 ack msn=1 old=0",
            ),
        ] {
            let mut b = Bench::rc();
            let attr = attr_of(&b);
            let rkey = b.host.device.reg_mr(&attr).expect("legal").rkey;
            let made = request(&b, operation).rkey(rkey);
            let told = format!("{operation:?} under {access:?}");
            let answer = if access.contains(right) {
                answer.to_owned()
            } else {
                format!("Acknowledge 200 {ACCESS_NAK}")
            };
            assert_eq!(b.answer(made), std::slice::from_ref(&answer), "{told}");
            let refused = answer.contains("nak");
            let event = AsyncEvent::QpAccessErr(b.qp);
            assert_eq!(b.events(), [event][..usize::from(refused)], "{told}");
            assert_eq!(b.state() == QpState::Err, refused, "{told}");
            let changed = b.bytes(REGION, 8) != [0; 8];
            assert_eq!(changed, !refused && right != Access::REMOTE_READ, "{told}");
        }
    }
}

/// A request of 8 bytes at the beginning of the region that changes them, if it can.
pub(crate) fn request(b: &Bench, operation: Operation) -> Made {
    match operation {
        Operation::WriteOnly => b.rdma(operation, 200, REGION, 8).data(8).ack(),
        Operation::ReadRequest => b.rdma(operation, 200, REGION, 8).ack(),
        _ => b.atomic(operation, 200, REGION, 5, 0),
    }
}

#[test]
fn rights_of_a_queue_pair_by_operation() {
    for access in rights() {
        for (operation, right) in [
            (Operation::WriteOnly, Access::REMOTE_WRITE),
            (Operation::ReadRequest, Access::REMOTE_READ),
            (Operation::FetchAdd, Access::REMOTE_ATOMIC),
        ] {
            let mut b = Bench::with(|o| o.attr.access = access);
            let lines = b.answer(request(&b, operation));
            let told = format!("{operation:?}, queue pair with {access:?}: {lines:?}");
            if access.contains(right) {
                assert!(!lines[0].contains("nak"), "{told}");
            } else {
                assert_eq!(lines, ["Acknowledge 200 nak(InvalidRequest) msn=0"], "{told}");
                assert_eq!(b.events(), [AsyncEvent::QpReqErr(b.qp)]);
            }
        }
    }
}

#[test]
fn local_rights_by_operation() {
    let region = |access: Access| Bench::with(|o| o.access = access);
    // Sending reads: no right is needed.
    let mut b = region(Access::empty());
    b.post(1, SendOp::Send, 8);
    assert_eq!(b.lines(), ["SendOnly 100 A 8B"]);
    // What writes needs local write.
    for op in [SendOp::Read(THERE), SendOp::FetchAdd { remote: THERE, add: 1 }] {
        let mut b = region(Access::REMOTE_READ);
        b.post(1, op, 8);
        assert!(b.lines().is_empty());
        assert_eq!(b.sends(), ["1 LocProtErr"], "{op:?}");
        assert_eq!(b.state(), QpState::Err);
    }
    let mut b = region(Access::REMOTE_READ);
    b.recv(1, 8);
    let lines = b.answer(b.packet(Operation::SendOnly, 200).data(8));
    assert_eq!(lines, ["Acknowledge 200 nak(RemoteOperationalError) msn=0"]);
    assert_eq!(b.receives(), ["1 LocProtErr"]);
    assert_eq!((b.events(), b.bytes(BUFFERS, 8)), (vec![], vec![0; 8]));
}

fn post_sge(b: &mut Bench, op: SendOp, sge: Sge) {
    let (flags, data) = (SendFlags::SIGNALED, SendData::Sges(&[sge]));
    b.post_raw(&SendRequest { wr_id: 1, op, flags, data, datagram: None }).expect("good");
}

/// Outcome of an 8-byte SEND from this place.
fn send_from(b: &mut Bench, addr: u64, length: u32, lkey: LKey) -> Vec<String> {
    post_sge(b, SendOp::Send, Sge { addr, length, lkey });
    let mut out = b.lines();
    out.extend(b.sends());
    out
}

#[test]
fn protection_domains_separate_regions() {
    let mut b = Bench::rc();
    let elsewhere = b.host.device.alloc_pd().expect("a domain");
    let all = b.attr.access | Access::LOCAL_WRITE;
    let keys = b.host.register(elsewhere, REGION, 4096, all);
    assert_eq!(send_from(&mut b, REGION, 8, keys.lkey), ["1 LocProtErr"]);
    for operation in [Operation::WriteOnly, Operation::ReadRequest, Operation::FetchAdd] {
        let mut b = Bench::rc();
        let elsewhere = b.host.device.alloc_pd().expect("a domain");
        let keys = b.host.register(elsewhere, REGION, 4096, all);
        let made = request(&b, operation).rkey(keys.rkey);
        assert_eq!(b.answer(made), [format!("Acknowledge 200 {ACCESS_NAK}")]);
    }
    let mut b = Bench::with(|o| {
        o.srq = Some(engine::SrqAttr { max_wr: 4, max_sge: 1, limit: 0 });
    });
    let pd = b.host.device.alloc_pd().expect("a domain");
    let init = engine::QpInit { pd, ..b.init };
    let error = b.host.device.create_qp(&init).expect_err("an SRQ of another domain");
    assert!(error.to_string().contains("protection domain"), "{error}");
}

#[test]
fn local_and_remote_keys_are_two_things() {
    let mut b = Bench::rc();
    let (lkey, rkey) = (b.region.lkey.get(), b.region.rkey.get());
    assert_eq!(send_from(&mut b, LOCAL, 8, LKey::new(rkey)), ["1 LocProtErr"]);
    let mut b = Bench::rc();
    let made = request(&b, Operation::WriteOnly).rkey(RKey::new(lkey));
    assert_eq!(b.answer(made), [format!("Acknowledge 200 {ACCESS_NAK}")]);
}

#[test]
fn keys_do_not_follow_from_one_another() {
    let mut b = Bench::rc();
    let attr = attr(b.pd, REGION, 4096, Access::empty());
    let keys: Vec<RegionKeys> =
        (0..4096).map(|_| b.host.device.reg_mr(&attr).expect("room")).collect();
    assert!(keys.iter().all(|k| k.lkey.get() != k.rkey.get()));
    let all: Vec<u32> = keys.iter().flat_map(|k| [k.lkey.get(), k.rkey.get()]).collect();
    let distinct: BTreeSet<u32> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "a key twice");
    let steps: BTreeSet<u32> = all.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!(steps.len() > all.len() - 8, "the same step again and again");
    let near = all.windows(2).filter(|w| w[0].abs_diff(w[1]) < 4096).count();
    assert!(near < 4, "{near} keys lie close to the one before");
    for bit in 0..32 {
        let set = all.iter().filter(|k| *k >> bit & 1 == 1).count();
        assert!((3500..4700).contains(&set), "bit {bit} is set in {set} of {}", all.len());
    }
    // Queue pair numbers likewise, below the slot.
    let qps: Vec<u32> =
        (0..64).map(|_| b.another(wire::Qpn::new(5), |_, _| {}).get() & 0xFFFF).collect();
    let near = qps.windows(2).filter(|w| w[0].abs_diff(w[1]) < 8).count();
    assert!(near < 3, "{near} queue pair numbers lie close to the one before");
}

#[test]
fn another_seed_gives_other_keys() {
    let one = Bench::rc().region;
    let same = Bench::rc().region;
    let other = Bench::with(|o| o.config = crate::pair::setup::config(0, 2)).region;
    assert_eq!((one.lkey, one.rkey), (same.lkey, same.rkey));
    assert_ne!(one.lkey, other.lkey);
    assert_ne!(one.rkey, other.rkey);
}

#[test]
fn bounds_are_exact() {
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let base = REGION + 0x1000;
    for (addr, length, inside) in [
        (base, 100, true),
        (base, 101, false),
        (base - 1, 8, false),
        (base + 99, 1, true),
        (base + 99, 2, false),
        (base + 100, 1, false),
        (u64::MAX - 3, 8, false),
        (u64::MAX, 1, false),
        (0, 8, false),
    ] {
        let mut b = Bench::rc();
        let keys = b.host.register(b.pd, base, 100, all);
        let lines = send_from(&mut b, addr, length, keys.lkey);
        assert_eq!(lines == ["1 LocProtErr"], !inside, "{addr:#x} {length}: {lines:?}");
        for operation in [Operation::WriteOnly, Operation::ReadRequest] {
            let mut b = Bench::rc();
            let keys = b.host.register(b.pd, base, 100, all);
            let made = b.packet(operation, 200).reth(addr, keys.rkey, length).ack();
            let bytes = if operation == Operation::WriteOnly { length as usize } else { 0 };
            let lines = b.answer(made.data(bytes));
            assert_eq!(lines[0].contains("nak"), !inside, "{operation:?} {addr:#x} {length}");
        }
    }
    // No length at all: no key and no range is looked at.
    let mut b = Bench::rc();
    let nowhere = b.packet(Operation::WriteOnly, 200).reth(u64::MAX, RKey::new(1), 0).ack();
    assert_eq!(b.answer(nowhere), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(send_from(&mut b, u64::MAX, 0, LKey::new(1)), ["SendOnly 100 A"]);
}

#[test]
fn a_region_may_have_other_addresses_than_the_host_s() {
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let top = u64::MAX - 4095;
    for (access, iova, first) in [
        (all, 0x7000_0000_0000, 0x7000_0000_0000),
        (all | Access::ZERO_BASED, REGION, 0),
        (all | Access::ZERO_BASED, 0x1234, 0),
        (all, 0, 0),
        (all, top, top),
    ] {
        let mut b = Bench::rc();
        let attr = RegionAttr { pd: b.pd, addr: LOCAL, length: 4096, iova, access };
        let keys = b.host.device.reg_mr(&attr).expect("legal");
        b.fill(LOCAL, 4096);
        let sge = Sge { addr: first + 8, length: 16, lkey: keys.lkey };
        post_sge(&mut b, SendOp::Send, sge);
        assert_eq!(b.sent()[0].payload, pattern(24)[8..], "{first:#x}");
        let made = b.packet(Operation::WriteOnly, 200).reth(first + 4090, keys.rkey, 6);
        assert!(b.answer(made.bytes(&[9; 6])).is_empty());
        assert_eq!(b.bytes(LOCAL + 4090, 6), [9; 6]);
        let beyond = (first + 4090).wrapping_add(1);
        let made = b.packet(Operation::WriteOnly, 201).reth(beyond, keys.rkey, 6).data(6);
        assert_eq!(b.answer(made), ["Acknowledge 201 nak(RemoteAccessError) msn=1"]);
    }
}

#[test]
fn a_region_must_not_wrap() {
    let mut b = Bench::rc();
    let pd = b.pd;
    let mut register = |addr, iova, length| {
        let attr = RegionAttr { pd, addr, length, iova, access: Access::empty() };
        b.host.device.reg_mr(&attr).map(|_| ()).map_err(|e| e.kind())
    };
    assert_eq!(register(u64::MAX - 9, 0, 10), Ok(()));
    assert_eq!(register(u64::MAX - 9, 0, 11), Err(ErrorKind::Invalid));
    assert_eq!(register(0, u64::MAX, 1), Ok(()));
    assert_eq!(register(0, u64::MAX, 2), Err(ErrorKind::Invalid));
    assert_eq!(register(0, 0, u64::MAX), Ok(()));
}

#[test]
fn registering_again_draws_new_keys_and_the_old_ones_die() {
    let mut b = Bench::rc();
    let old = b.region;
    let place = Some((LOCAL, 0x1000, LOCAL));
    let new = b.host.device.rereg_mr(old.id, None, place, None).expect("legal");
    assert_ne!((new.lkey, new.rkey), (old.lkey, old.rkey));
    assert_eq!(send_from(&mut b, LOCAL, 8, new.lkey)[0], "SendOnly 100 A 8B");
    assert_eq!(send_from(&mut b, LOCAL, 8, old.lkey), Vec::<String>::new());
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B", "1 LocProtErr"], "the old key has died");
    let mut b = Bench::rc();
    let old = b.region;
    let elsewhere = b.host.device.alloc_pd().expect("a domain");
    b.host.device.rereg_mr(old.id, Some(elsewhere), None, None).expect("legal");
    let made = request(&b, Operation::WriteOnly);
    assert_eq!(b.answer(made), [format!("Acknowledge 200 {ACCESS_NAK}")]);
    let busy = b.host.device.dealloc_pd(elsewhere).expect_err("the region is in it");
    assert_eq!(busy.kind(), ErrorKind::Busy);
}

#[test]
fn a_refused_registration_changes_nothing() {
    let mut b = Bench::rc();
    let keys = b.region;
    let device = &mut b.host.device;
    device.rereg_mr(keys.id, Some(PdId(77)), None, None).expect_err("no such domain");
    device.rereg_mr(keys.id, None, Some((u64::MAX, 2, 0)), None).expect_err("wraps");
    device.rereg_mr(keys.id, None, None, Some(Access::REMOTE_WRITE)).expect_err("no local write");
    assert_eq!(send_from(&mut b, LOCAL, 8, keys.lkey), ["SendOnly 100 A 8B"]);
    let made = request(&b, Operation::WriteOnly);
    assert_eq!(b.answer(made), ["Acknowledge 200 ack msn=1"]);
}

#[test]
fn a_region_that_goes_away_under_traffic() {
    // A WRITE in the middle of its message.
    let mut b = Bench::rc();
    b.inject(b.rdma(Operation::WriteFirst, 200, REGION, 2048).data(1024));
    let id = b.region.id;
    b.host.device.dereg_mr(id).expect("no windows");
    let before = b.bytes(REGION, 4096);
    let made = b.packet(Operation::WriteLast, 201).data(1024).ack();
    assert_eq!(b.answer(made), ["Acknowledge 201 nak(RemoteAccessError) msn=0"]);
    assert_eq!(b.bytes(REGION, 4096), before);
    // A READ in the middle of its response.
    let mut b = Bench::with(|o| o.limits = engine::TrainLimits::SINGLE);
    b.inject(b.rdma(Operation::ReadRequest, 200, REGION, 3000).ack());
    let now = b.now;
    assert!(b.host.drain_one(now, |_| {}));
    let id = b.region.id;
    b.host.device.dereg_mr(id).expect("no windows");
    assert_eq!(b.lines(), ["Acknowledge 201 nak(RemoteAccessError) msn=1"]);
    assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.qp)]);
    // A SEND in the middle of its message: what was sent before it succeeds.
    let mut b = Bench::with(|o| o.limits = engine::TrainLimits::SINGLE);
    b.post(1, SendOp::Send, 8);
    b.post(2, SendOp::Send, 3000);
    let now = b.now;
    assert!(b.host.drain_one(now, |_| {}) && b.host.drain_one(now, |_| {}));
    let id = b.region.id;
    b.host.device.dereg_mr(id).expect("no windows");
    assert!(b.lines().is_empty());
    assert_eq!(b.sends(), Vec::<String>::new());
    b.inject(b.acknowledge(100, 1));
    assert_eq!(b.sends(), ["1 Send 8B", "2 LocProtErr"]);
    // A READ whose buffer goes while it is asked for.
    let mut b = Bench::rc();
    b.post(1, SendOp::Read(THERE), 8);
    assert_eq!(b.lines().len(), 1);
    let id = b.region.id;
    b.host.device.dereg_mr(id).expect("no windows");
    let answer = b.packet(Operation::ReadResponseOnly, 100).data(8);
    b.inject(answer.aeth(wire::Syndrome::Ack(31), 1));
    assert_eq!(b.sends(), ["1 LocProtErr"]);
    assert_eq!(b.bytes(LOCAL, 8), [0; 8]);
}

#[test]
fn memory_that_vanishes_is_an_operational_error() {
    let mut b = Bench::rc();
    b.host.device.memory().vanish(REGION..REGION + 4096);
    let made = request(&b, Operation::WriteOnly);
    assert_eq!(b.answer(made), ["Acknowledge 200 nak(RemoteOperationalError) msn=0"]);
    let mut b = Bench::rc();
    b.host.device.memory().vanish(BUFFERS..BUFFERS + 4096);
    b.recv(1, 8);
    let made = b.packet(Operation::SendOnly, 200).data(8);
    assert_eq!(b.answer(made), ["Acknowledge 200 nak(RemoteOperationalError) msn=0"]);
    assert_eq!(b.receives(), ["1 LocProtErr"]);
}

#[test]
fn atomics_need_alignment_on_both_sides() {
    let mut b = Bench::rc();
    let made = b.atomic(Operation::FetchAdd, 200, REGION + 4, 1, 0);
    assert_eq!(b.answer(made), ["Acknowledge 200 nak(InvalidRequest) msn=0"]);
    let mut b = Bench::rc();
    let all = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let attr = RegionAttr { pd: b.pd, addr: REGION + 4, length: 64, iova: 0, access: all };
    let keys = b.host.device.reg_mr(&attr).expect("legal");
    let made = b.atomic(Operation::FetchAdd, 200, 8, 1, 0).rkey(keys.rkey);
    let nak = wire::Syndrome::Nak(NakCode::InvalidRequest);
    b.inject(made);
    assert_eq!(b.sent()[0].ext.aeth.expect("a NAK").syndrome, nak);
}

#[test]
fn a_domain_in_use_is_busy() {
    let mut b = Bench::rc();
    let pd = b.host.device.alloc_pd().expect("a domain");
    let attr = attr(pd, REGION, 64, Access::empty());
    let mr = b.host.device.reg_mr(&attr).expect("room").id;
    let (mw, _) = b.host.device.alloc_mw(pd, WindowType::Type1).expect("room");
    let device = &mut b.host.device;
    assert_eq!(device.dealloc_pd(pd).expect_err("two in it").kind(), ErrorKind::Busy);
    device.dereg_mr(mr).expect("free");
    assert!(device.dealloc_pd(pd).expect_err("one in it").to_string().contains("1 object"));
    device.dealloc_mw(mw).expect("free");
    device.dealloc_pd(pd).expect("empty");
    assert_eq!(device.dealloc_pd(pd).expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(device.dereg_mr(mr).expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(device.dealloc_mw(mw).expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(device.reg_mr(&attr).expect_err("no domain").kind(), ErrorKind::NotFound);
}

/// Makes objects until one is refused: their number, and the refusal.
fn exhaust(mut make: impl FnMut() -> engine::Result<()>) -> (u32, engine::Error) {
    let mut n = 0;
    loop {
        match make() {
            Ok(()) => n += 1,
            Err(error) => return (n, error),
        }
    }
}

#[test]
fn a_device_out_of_objects_says_so() {
    let mut b = Bench::rc();
    let (pd, init) = (b.pd, b.init);
    let device = &mut b.host.device;
    let full = |(n, error): (u32, engine::Error), had: u32, limit: u32, what: &str| {
        assert_eq!((n + had, error.kind()), (limit, ErrorKind::Full), "{what}");
        assert!(error.to_string().contains(what), "{error}");
    };
    let small = engine::QpInit { cap: engine::QpCap::default(), ..init };
    full(exhaust(|| device.alloc_pd().map(drop)), 1, limits::MAX_PD, "protection domains");
    full(exhaust(|| device.create_cq(1).map(drop)), 2, limits::MAX_CQ, "completion queues");
    full(exhaust(|| device.create_qp(&small).map(drop)), 1, limits::MAX_QP, "queue pairs");
    let attr = engine::SrqAttr { max_wr: 1, max_sge: 1, limit: 0 };
    let srqs = exhaust(|| device.create_srq(pd, &attr).map(drop));
    full(srqs, 0, limits::MAX_SRQ, "shared receive queues");
    let windows = exhaust(|| device.alloc_mw(pd, WindowType::Type2).map(drop));
    full(windows, 0, limits::MAX_MW, "memory windows");
}

#[test]
fn a_place_given_back_can_be_taken_again() {
    let mut b = Bench::rc();
    let pd = b.pd;
    let attr = attr(pd, REGION, 64, Access::empty());
    let (n, error) = exhaust(|| b.host.device.reg_mr(&attr).map(drop));
    assert_eq!((n + 1, error.kind()), (limits::MAX_MR, ErrorKind::Full));
    let id = b.region.id;
    b.host.device.dereg_mr(id).expect("no windows");
    b.host.device.reg_mr(&attr).expect("one place");
    b.host.device.reg_mr(&attr).expect_err("full again");
}
