//! Unreliable datagrams.

use std::sync::LazyLock;

use crocevia::{
    AddressVector, Context, Datagram, Gid, PostError, QKey, QpType, Qpn, SendOp, WcData,
};

use super::support::*;

const QKEY: QKey = QKey::new(0x1234);
/// Bytes before a received datagram.
const GRH: usize = 40;

fn contexts() -> (Context, Context) {
    static OPEN: LazyLock<(Context, Context)> = LazyLock::new(|| (open(50), open(51)));
    OPEN.clone()
}

fn ends() -> (End, End) {
    let (a, b) = contexts();
    let ends = (End::new(&a, QpType::Ud), End::new(&b, QpType::Ud));
    ends.0.qp.activate_datagram(QKEY).unwrap();
    ends.1.qp.activate_datagram(QKEY).unwrap();
    ends
}

fn av(dgid: Gid) -> AddressVector {
    AddressVector {
        is_global: true,
        dgid,
        sgid_index: 0,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        sl: 0,
    }
}

fn send(from: &End, op: SendOp, to: Datagram, sges: &[crocevia::Sge]) {
    let mut wr = request(1, op, sges);
    wr.datagram = Some(to);
    from.qp.post_send(&wr).unwrap();
    from.success();
}

#[test]
fn datagrams_of_every_size() {
    let (a, b) = ends();
    let ah = a.pd.create_ah(&av(b.context.gid(0).unwrap())).unwrap();
    let to = ah.to(b.qp.qpn(), QKEY);
    for size in [0, 1, 100, 4095, 4096] {
        let (mine, theirs) = (a.memory(size, 1), b.memory(GRH + 4096, 2));
        b.post_recv(9, &[theirs.sge(..)]);
        send(&a, SendOp::SendImm(*b"data"), to, &[mine.sge(..)]);
        let received = b.success();
        assert_eq!((received.wr_id, received.byte_len as usize), (9, GRH + size));
        assert_eq!((received.src_qp, received.grh), (a.qp.qpn(), true));
        assert_eq!(received.data, WcData::Imm(*b"data"));
        assert!(bytes(&theirs, GRH, size) == pattern(size, 1), "{size}");
        // The second half of the area is the IPv4 header: the sender's address is in it.
        assert_eq!(bytes(&theirs, 20, 1), [0x45]);
        assert_eq!(bytes(&theirs, 32, 8), [127, 0, 0, 50, 127, 0, 0, 51]);
    }
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let (a, b) = ends();
    let to = a.pd.create_ah(&av(b.context.gid(0).unwrap())).unwrap().to(b.qp.qpn(), QKEY);
    let (mine, theirs) = (a.memory(100, 1), b.memory(GRH + 100, 2));
    let before = b.context.counters();
    // The 40 bytes forgotten.
    b.post_recv(1, &[theirs.sge(..100)]);
    send(&a, SendOp::Send, to, &[mine.sge(..)]);
    // Another Q_Key.
    send(&a, SendOp::Send, Datagram { qkey: QKey::new(9), ..to }, &[mine.sge(..1)]);
    b.nothing();
    let after = b.context.counters();
    assert_eq!(after.rx_datagram_too_long - before.rx_datagram_too_long, 1);
    assert_eq!(after.rx_wrong_qkey - before.rx_wrong_qkey, 1);
    // The receive is still there.
    send(&a, SendOp::Send, to, &[mine.sge(..60)]);
    assert_eq!(b.success().byte_len, 100);
    // The Q_Key with the top bit set stands for the sender's own.
    b.post_recv(2, &[theirs.sge(..)]);
    send(&a, SendOp::Send, Datagram { qkey: QKey::new(0x8000_0000), ..to }, &[mine.sge(..)]);
    assert_eq!(b.success().wr_id, 2);
}

#[test]
fn what_is_refused() {
    let (a, b) = ends();
    let mine = a.memory(8, 0);
    let ah = a.pd.create_ah(&av(b.context.gid(0).unwrap())).unwrap();
    let to = Some(ah.to(b.qp.qpn(), QKEY));
    let plain = request(1, SendOp::Send, &[]);
    assert_eq!(a.qp.post_send(&plain), Err(PostError::Destination));
    let sges = [mine.sge(..)];
    let mut write = request(1, SendOp::Write(mine.remote(0)), &sges);
    write.datagram = to;
    assert_eq!(a.qp.post_send(&write), Err(PostError::Operation));

    let no_grh = AddressVector { is_global: false, ..*ah.av() };
    let error = a.pd.create_ah(&no_grh).expect_err("RoCE needs the GRH");
    assert!(error.to_string().contains("GRH"), "{error}");
    let error = a.pd.create_ah(&AddressVector { sgid_index: 200, ..*ah.av() }).err();
    let error = error.expect("there is no such GID");
    assert!(
        error.to_string().contains("200") && error.to_string().contains("127.0.0.50"),
        "{error}"
    );
    let (pd, error) = a.pd.destroy().expect_err("the handle is in it");
    assert!(error.to_string().contains("in"), "{error}");
    drop(pd);
}

#[test]
fn one_sender_many_receivers() {
    let (a, b) = contexts();
    let sender = End::new(&a, QpType::Ud);
    sender.qp.activate_datagram(QKEY).unwrap();
    let ah = sender.pd.create_ah(&av(b.gid(0).unwrap())).unwrap();
    let ends: Vec<End> = (0..8).map(|_| End::new(&b, QpType::Ud)).collect();
    for (i, end) in ends.iter().enumerate() {
        end.qp.activate_datagram(QKEY).unwrap();
        let (mine, theirs) = (sender.memory(50, i as u8), end.memory(GRH + 50, 0));
        end.post_recv(i as u64, &[theirs.sge(..)]);
        send(&sender, SendOp::Send, ah.to(end.qp.qpn(), QKEY), &[mine.sge(..)]);
        assert_eq!(end.success().wr_id, i as u64);
        assert_eq!(bytes(&theirs, GRH, 50), pattern(50, i as u8));
    }
    // Nobody is there: the datagram is gone, the sender does not know.
    send(&sender, SendOp::Send, ah.to(Qpn::new(0x00AB_CDEF), QKEY), &[]);
}

#[test]
fn multicast_groups_have_members() {
    let (a, b) = contexts();
    let group = Gid::from_ip("239.40.50.51".parse().unwrap());
    let member = End::new(&b, QpType::Ud);
    member.qp.activate_datagram(QKEY).unwrap();
    member.qp.attach_mcast(group).unwrap();
    member.qp.detach_mcast(group).unwrap();
    assert!(member.qp.detach_mcast(group).is_err(), "it is no member any more");
    let unicast = member.qp.attach_mcast(a.gid(0).unwrap()).expect_err("no group");
    assert!(unicast.to_string().contains("multicast"), "{unicast}");
    let connected = End::new(&b, QpType::Rc).qp.attach_mcast(group).expect_err("no datagrams");
    assert!(connected.to_string().contains("Ud"), "{connected}");
}
