//! Multicast between local members: who gets a copy, of which group, and until when.

use crocevia::{AddressVector, Context, Datagram, Gid, QKey, QpType, Qpn, SendOp};

use super::support::*;

const QKEY: QKey = QKey::new(0x5EED);
/// Bytes before a received datagram.
const GRH: usize = 40;

fn end(context: &Context) -> End {
    let end = End::new(context, QpType::Ud);
    end.qp.activate_datagram(QKEY).expect("it receives");
    end
}

fn group(text: &str) -> Gid {
    Gid::from_ip(text.parse().expect("an address"))
}

fn send_to(from: &End, group: Gid, qkey: QKey, salt: u8, len: usize) {
    let av = AddressVector {
        is_global: true,
        dgid: group,
        sgid_index: 0,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        sl: 0,
    };
    let ah = from.pd.create_ah(&av).expect("an address handle");
    let memory = from.memory(len, salt);
    let sges = [memory.sge(..)];
    let mut wr = request(1, SendOp::Send, &sges);
    let to: Datagram = ah.to(Qpn::MULTICAST, qkey);
    wr.datagram = Some(to);
    from.qp.post_send(&wr).expect("the request is taken");
    assert_eq!(from.success().wr_id, 1);
}

/// Receives one datagram of `len` bytes into a fresh buffer.
struct Waiting(crocevia::Mr);

fn waits(end: &End, wr_id: u64) -> Waiting {
    let memory = end.memory(GRH + 4096, 0);
    end.post_recv(wr_id, &[memory.sge(..)]);
    Waiting(memory)
}

impl Waiting {
    fn gets(self, end: &End, wr_id: u64, from: &End, salt: u8, len: usize) -> Vec<u8> {
        let completion = end.success();
        assert_eq!((completion.wr_id, completion.src_qp), (wr_id, from.qp.qpn()));
        assert_eq!(completion.byte_len as usize, GRH + len);
        assert!(bytes(&self.0, GRH, len) == pattern(len, salt), "{len} bytes");
        bytes(&self.0, 0, GRH)
    }
}

#[test]
fn every_member_gets_a_copy_and_nobody_else() {
    let (a, b) = (open(110), open(111));
    let sender = end(&a);
    let (first, second, other) = (end(&b), end(&b), end(&b));
    let (ours, theirs) = (group("239.110.111.1"), group("239.110.111.2"));
    // The sender is a member itself, and one is in both groups.
    for member in [&sender, &first, &second] {
        member.qp.attach_mcast(ours).expect("a group");
    }
    first.qp.attach_mcast(ours).expect("twice is once");
    for member in [&other, &first] {
        member.qp.attach_mcast(theirs).expect("another group");
    }
    for len in [0, 1, 1000, 4096] {
        let waiting = [&sender, &first, &second].map(|member| (member, waits(member, 7)));
        send_to(&sender, ours, QKEY, len as u8, len);
        for (member, memory) in waiting {
            let grh = memory.gets(member, 7, &sender, len as u8, len);
            // The IPv4 header in its second half: from whom, and the group.
            assert_eq!(grh[32..], [127, 0, 0, 110, 239, 110, 111, 1]);
        }
    }
    let unused = waits(&other, 8);
    send_to(&sender, ours, QKEY, 1, 100);
    other.nothing();
    let (both, alone) = (waits(&first, 9), unused);
    send_to(&sender, theirs, QKEY, 2, 100);
    both.gets(&first, 9, &sender, 2, 100);
    alone.gets(&other, 8, &sender, 2, 100);
}

#[test]
fn who_leaves_gets_nothing_more() {
    let (a, b) = (open(112), open(113));
    let (sender, stays, leaves, goes) = (end(&a), end(&b), end(&b), end(&b));
    let ours = group("239.112.113.1");
    for member in [&stays, &leaves, &goes] {
        member.qp.attach_mcast(ours).expect("a group");
    }
    leaves.qp.detach_mcast(ours).expect("it was attached");
    leaves.qp.detach_mcast(ours).expect_err("it is not any more");
    drop(goes.qp);
    let _unused = waits(&leaves, 1);
    let memory = waits(&stays, 2);
    send_to(&sender, ours, QKEY, 3, 64);
    memory.gets(&stays, 2, &sender, 3, 64);
    leaves.nothing();
    // With the last one the device leaves the group: nothing arrives that would be counted.
    stays.qp.detach_mcast(ours).expect("it was attached");
    let before = b.link_counters().rx_packets;
    send_to(&sender, ours, QKEY, 4, 64);
    stays.nothing();
    assert_eq!(b.link_counters().rx_packets, before);
    // And joins it anew.
    stays.qp.attach_mcast(ours).expect("a group");
    let memory = waits(&stays, 3);
    send_to(&sender, ours, QKEY, 5, 64);
    memory.gets(&stays, 3, &sender, 5, 64);
}

#[test]
fn groups_of_the_other_family_are_carried_by_a_stand_in() {
    let (a, b) = (open(114), open(115));
    let (sender, member) = (end(&a), end(&b));
    // As connection managers write 239.114.115.1, and one that no IPv4 address is in.
    for name in ["ff0e::ffff:239.114.115.1", "ff01::2c9:8500:0:57"] {
        let name = Gid(name.parse::<std::net::Ipv6Addr>().expect("an address").octets());
        member.qp.attach_mcast(name).expect("a group");
        let memory = waits(&member, 1);
        send_to(&sender, name, QKEY, 6, 256);
        memory.gets(&member, 1, &sender, 6, 256);
        member.qp.detach_mcast(name).expect("it was attached");
    }
}

#[test]
fn a_wrong_key_is_dropped_by_each_member_for_itself() {
    let (a, b) = (open(116), open(117));
    let (sender, right, wrong) = (end(&a), end(&b), End::new(&b, QpType::Ud));
    wrong.qp.activate_datagram(QKey::new(1)).expect("it receives");
    let ours = group("239.116.117.1");
    for member in [&right, &wrong] {
        member.qp.attach_mcast(ours).expect("a group");
    }
    let before = b.counters().rx_wrong_qkey;
    let (memory, _unused) = (waits(&right, 1), waits(&wrong, 2));
    send_to(&sender, ours, QKEY, 7, 10);
    memory.gets(&right, 1, &sender, 7, 10);
    wrong.nothing();
    assert_eq!(b.counters().rx_wrong_qkey - before, 1);
}

#[test]
fn groups_and_members_have_limits_that_are_told() {
    let context = open(118);
    let member = end(&context);
    let most = context.limits().max_groups;
    let nth = |n: u32| group(&format!("239.118.{}.{}", n / 256, n % 256));
    let full = (0..=most).find_map(|n| member.qp.attach_mcast(nth(n)).err());
    let full = full.expect("some limit is reached").to_string();
    // Where a process may have few descriptors, these are the limit.
    assert!(full.contains(&most.to_string()) || full.contains("ulimit"), "{full}");
    member.qp.detach_mcast(nth(0)).expect("it was attached");
    member.qp.attach_mcast(nth(most)).expect("there is room again");
}
