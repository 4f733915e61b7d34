//! Sent packets past the fault stage, as a peer sees them on the wire; received ones as the device
//! does.

use engine::{Device, DeviceConfig, LinkState, limits};
use wire::Span;

use super::*;
use crate::mem::ProcessMemory;

/// A device that nobody uses: it counts what it is given.
pub(super) fn device() -> Device<ProcessMemory> {
    let config = DeviceConfig {
        seed: [7; 32],
        slots: Vec::new(),
        gids: Vec::new(),
        mtu: Mtu::B1024,
        receive_buffer: 1 << 20,
        ack_delay: limits::ACK_DELAY,
        credits: false,
    };
    Device::new(config, ProcessMemory::new())
}

fn us(n: u64) -> Instant {
    Instant::ZERO + Span::from_us(n)
}

/// Pushes a train into the stage at `now`; whether the kernel has taken what was due.
fn send(link: &mut UdpLink, now: Instant, train: &Train) -> bool {
    link.push(train);
    link.hold(now);
    link.let_out(now, &mut device())
}

/// What a plain peer receives until nothing comes any more: body and whether its ICRC is right.
fn received(peer: &UdpSocket, from: Ipv4Addr, to: Ipv4Addr) -> Vec<(Vec<u8>, bool)> {
    peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut out = Vec::new();
    let mut buffer = [0; 9000];
    while let Ok((len, sender)) = peer.recv_from(&mut buffer) {
        let (body, icrc) = body_of(&buffer[..len]);
        let right = icrc_v4(from, to, sender.port(), 0, 0x4000, body) == icrc;
        out.push((body.to_vec(), right));
    }
    out
}

fn psns(got: &[(Vec<u8>, bool)]) -> Vec<u8> {
    got.iter().map(|(body, _)| body[11]).collect()
}

#[test]
fn sent_packets_leave_one_by_one_with_an_icrc_of_their_own() {
    let (a, b) = (own(70), own(71));
    let (mut link, peer) = (link(a, "tx.fail=drop@3,tx.fail=corrupt@5,tx.fail=dup@6"), plain(b));
    let region = region(1 << 16);
    assert!(send(&mut link, us(1), &train(path(a, b), &region, &[1000; 7])));
    let got = received(&peer, a, b);
    assert_eq!(psns(&got), [0, 1, 3, 4, 5, 5, 6]);
    let right: Vec<bool> = got.iter().map(|(_, right)| *right).collect();
    assert_eq!(right, [true, true, true, false, true, true, true], "damage comes after the ICRC");
    // One bit of the packet is another one.
    let mut expected = vec![0; 1000];
    region.read(4000, &mut expected);
    let (body, flipped) = (&got[3].0, |x: &u8, y: &u8| (x ^ y).count_ones());
    let bits: u32 = body[12..].iter().zip(&expected).map(|(x, y)| flipped(x, y)).sum();
    assert!(bits <= 1, "{bits}");
    let c = link.counters;
    assert_eq!((c.faults_tx_lost, c.faults_tx_corrupted, c.faults_tx_duplicated), (1, 1, 1));
    assert_eq!((c.faults_struck, c.faults_injected, c.tx_packets), (3, 3, 7));
}

#[test]
fn what_is_delayed_leaves_when_it_is_due() {
    let (a, b) = (own(72), own(73));
    let (mut link, peer) = (link(a, "tx.delay=200us,tx.rate=1gbit"), plain(b));
    let region = region(4096);
    assert_eq!(link.next_due(), None);
    assert!(send(&mut link, us(1), &train(path(a, b), &region, &[1000; 2])));
    assert!(link.is_holding() && received(&peer, a, b).is_empty());
    // 1000 bytes, BTH and ICRC, UDP, IP, and what Ethernet puts around: 1082 bytes, 8656 ns.
    let first = us(201) + Span::from_ns(8656);
    assert_eq!(link.next_due(), Some(first));
    assert!(link.let_out(us(201), &mut device()) && received(&peer, a, b).is_empty());
    link.let_out(first, &mut device());
    assert_eq!(psns(&received(&peer, a, b)), [0]);
    let second = first + Span::from_ns(8656);
    assert_eq!(link.next_due(), Some(second));
    link.let_out(second, &mut device());
    assert_eq!(psns(&received(&peer, a, b)), [1]);
    assert!(!link.is_holding() && link.next_due().is_none());
}

#[test]
fn ce_is_set_on_packets_that_say_ect_and_on_no_others() {
    let (a, b) = (own(74), own(75));
    let mut from = link(a, "tx.rate=1gbit,tx.ecn=1:2:100%");
    let mut to = link(b, "");
    let region = region(4096);
    let mut start = us(1);
    for (class, expected) in
        [(2, [2, 3, 3]), (1, [1, 3, 3]), (0, [0, 0, 0]), (0x6A, [0x6A, 0x6B, 0x6B])]
    {
        let path = Path { traffic_class: class, ..path(a, b) };
        start = start + Span::from_ms(10);
        send(&mut from, start, &train(path, &region, &[64; 3]));
        from.let_out(start + Span::from_ms(1), &mut device());
        let classes: Vec<u8> =
            collect(&mut to, 3).iter().map(|(path, ..)| path.traffic_class).collect();
        assert_eq!(classes, expected, "{class:#x}");
    }
    assert_eq!(from.counters.faults_tx_marked, 6);
    assert_eq!(to.counters.rx_icrc_ok, 12, "the mark is not covered by the ICRC");
}

#[test]
fn a_port_that_is_down_loses_what_is_under_way() {
    let (a, b) = (own(76), own(77));
    let mut from = link(a, "tx.delay=10us,tx.fail=port_down@3/100us");
    let peer = plain(b);
    let region = region(4096);
    let mut device = device();
    from.push(&train(path(a, b), &region, &[64; 5]));
    from.hold(us(1));
    from.let_out(us(11), &mut device);
    assert_eq!(psns(&received(&peer, a, b)), [0, 1]);
    assert_eq!((device.link(), from.next_due()), (LinkState::Down, Some(us(111))));
    assert_eq!(from.counters.faults_tx_cut, 3);
    from.let_out(us(111), &mut device);
    assert_eq!(device.link(), LinkState::Up);
    from.push(&train(path(a, b), &region, &[64; 1]));
    from.hold(us(112));
    from.let_out(us(122), &mut device);
    assert_eq!(psns(&received(&peer, a, b)), [0]);
}

#[test]
fn the_same_packets_meet_the_same_faults_in_every_run() {
    let (a, b) = (own(78), own(79));
    let plan = "loss=10%,dup=5%,reorder=5%,corrupt=5%,seed=9,tx.loss=10%,tx.dup=5%,tx.corrupt=5%";
    let region = region(1 << 16);
    let run = || {
        let (mut from, mut to) = (link(a, plan), link(b, plan));
        let mut device = device();
        for round in 0..20 {
            send(&mut from, us(round), &train(path(a, b), &region, &[64; 30]));
            while to.receive(us(round), true, &mut |_: &Packet<Payload<'_>>| None) > 0 {}
        }
        from.let_out(us(1000), &mut device);
        to.release(us(1000), &mut device, |_, _| None);
        let (x, y) = (from.counters, to.counters);
        let sent = (x.faults_tx_lost, x.faults_tx_duplicated, x.faults_tx_corrupted);
        let got = (y.faults_rx_lost, y.faults_rx_duplicated, y.faults_rx_corrupted);
        (sent, got, y.faults_rx_reordered, device.counters().rx_packets)
    };
    let first = run();
    assert!(first.0.0 > 20 && first.1.0 > 20, "{first:?}");
    assert_eq!(run(), first);
}

#[test]
fn a_long_queue_is_bounded_by_the_link_s_memory() {
    let (a, b) = (own(80), own(81));
    let mut from = link(a, "tx.delay=1s,tx.rate=1gbit,tx.queue=10k");
    let region = region(1 << 16);
    send(&mut from, us(1), &train(path(a, b), &region, &[1000; 60]));
    assert_eq!(from.counters.faults_tx_overflowed, 60 - 10_240 / 1082);
}
