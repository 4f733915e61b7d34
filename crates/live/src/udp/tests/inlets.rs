//! Slots: several of a link, several links of an address.

use super::*;

/// A link that has as many slots as there may be.
fn spread_link(info: &DeviceInfo) -> UdpLink {
    let small = Options { receive_buffer: Some(65536), ..Options::default() };
    let link = UdpLink::open(info, &small).unwrap().0;
    assert_eq!((link.slots.len(), link.receive_buffer), (8, 131_072));
    link
}

fn info(addr: Ipv4Addr) -> DeviceInfo {
    let mut info = devices(Some(&addr.to_string())).unwrap().remove(0);
    info.gids.truncate(1);
    info
}

/// A train of `sizes` for a queue pair of this slot.
fn train_to(slot: u8, path: Path, region: &Region, sizes: &[u32]) -> Train {
    let mut train = train(path, region, sizes);
    for packet in &mut train.packets {
        packet.bth.dest_qp = Qpn::new(u32::from(slot) << 16 | 0x2345);
    }
    train
}

/// What waits in each socket, without the link's own choice of where to look.
fn waiting(link: &mut UdpLink) -> Vec<isize> {
    let take = |inlet: &inlet::Inlet| {
        let socket = socket2::SockRef::from(inlet);
        socket
            .recv(&mut [const { std::mem::MaybeUninit::uninit() }; 9000])
            .map_or(-1, |n| n as isize)
    };
    link.inlets.all.iter().map(take).collect()
}

#[test]
fn slots_are_as_many_as_the_buffer_is_small() {
    for (bytes, sockets) in
        [(0, 8), (212_992, 8), (425_984, 8), (1 << 20, 8), (2 << 20, 4), (3 << 20, 2), (8 << 20, 1)]
    {
        assert_eq!(Inlets::spread(bytes), sockets, "{bytes}");
    }
    assert_eq!(Inlets::spread(u64::MAX), 1);
}

#[test]
fn the_slot_of_the_destination_queue_pair_chooses_the_socket() {
    let (a, b) = (own(20), own(21));
    let (mut from, mut to) = (link(a, ""), spread_link(&info(b)));
    let region = region(4096);
    assert_eq!(to.slots, [1, 32, 33, 34, 35, 36, 37, 38]);
    for slot in 0..=255 {
        from.push(&train_to(slot, path(a, b), &region, &[40]));
        assert!(from.flush());
        let mut expected = vec![-1; 8];
        if let Some(index) = to.slots.iter().position(|own| *own == slot % set::SLOTS) {
            expected[index] = 12 + 40 + 4;
        }
        assert_eq!(waiting(&mut to), expected, "slot {slot}");
    }
}

#[test]
fn everything_arrives_wherever_the_link_looked_last() {
    let (a, b) = (own(22), own(23));
    let (mut from, mut to) = (link(a, ""), spread_link(&info(b)));
    let region = region(1 << 16);
    for everywhere in [true, false] {
        for slot in (32..=38).chain([1, 35, 1, 1, 38]) {
            from.push(&train_to(slot, path(a, b), &region, &[1000, 1000, 7]));
            assert!(from.flush());
            let mut got = 0;
            // A poller looks elsewhere every eighth time.
            for _ in 0..if everywhere { 1 } else { 8 } {
                to.receive(Instant::ZERO, everywhere, &mut |p: &Packet<Payload<'_>>| {
                    assert_eq!(p.bth.dest_qp.get() >> 16, u32::from(slot));
                    got += 1;
                    None
                });
            }
            assert_eq!(got, 3, "slot {slot}, everywhere: {everywhere}");
        }
    }
    // All at once, more than one look takes.
    for round in 0..4 {
        for slot in [1, 32, 33, 34, 35, 36, 37, 38] {
            from.push(&train_to(slot, path(a, b), &region, &[100 + round; 20]));
            assert!(from.flush());
        }
    }
    assert_eq!(collect(&mut to, 4 * 8 * 20).len(), 640);
    assert_eq!(to.counters.rx_kernel_drops, 0);
}

#[test]
fn a_full_buffer_is_of_its_slot_alone() {
    let (a, b) = (own(24), own(25));
    let (mut from, mut to) = (link(a, ""), spread_link(&info(b)));
    let region = region(1 << 16);
    for _ in 0..100 {
        from.push(&train_to(1, path(a, b), &region, &[4096; 15]));
        assert!(from.flush());
    }
    for slot in 32..=38 {
        from.push(&train_to(slot, path(a, b), &region, &[4096]));
        assert!(from.flush());
    }
    let mut slots = [0; 64];
    for _ in 0..100 {
        to.receive(Instant::ZERO, true, &mut |p: &Packet<Payload<'_>>| {
            slots[(p.bth.dest_qp.get() >> 16) as usize] += 1;
            None
        });
    }
    assert_eq!(slots[32..39], [1; 7]);
    assert!(slots[1] > 0 && slots[1] < 1500, "{slots:?}");
    // The kernel tells of what it dropped with the next message.
    from.push(&train_to(1, path(a, b), &region, &[64]));
    assert!(from.flush());
    assert_eq!(collect(&mut to, 1).len(), 1);
    assert!(to.counters.rx_kernel_drops > 0);
}

#[test]
fn links_of_an_address_get_what_is_for_their_slots() {
    let (a, b) = (own(26), own(27));
    let (mut from, region) = (link(a, ""), region(4096));
    let mut links: Vec<UdpLink> = (0..3).map(|_| link(b, "")).collect();
    let slots: Vec<Vec<u8>> = links.iter().map(|link| link.slots.clone()).collect();
    assert_eq!(slots, [[1], [2], [3]]);
    let mut arrives = |links: &mut [UdpLink], slot: u8, at: usize| {
        from.push(&train_to(slot, path(a, b), &region, &[40]));
        assert!(from.flush());
        for (i, link) in links.iter_mut().enumerate() {
            let mut got = 0;
            link.receive(Instant::ZERO, true, &mut |_: &Packet<Payload<'_>>| {
                got += 1;
                None
            });
            assert_eq!(got, usize::from(i == at), "slot {slot} at link {i}");
        }
    };
    for (slot, at) in [(1, 0), (2, 1), (3, 2)] {
        arrives(&mut links, slot, at);
    }
    // One goes, and what still comes for it is nobody's, not even its successor's.
    drop(links.remove(0));
    arrives(&mut links, 1, 99);
    arrives(&mut links, 3, 1);
    links.push(link(b, ""));
    assert_eq!(links[2].slots, [1]);
    links[2].receive(Instant::ZERO, true, &mut |_: &Packet<Payload<'_>>| panic!("stale"));
    arrives(&mut links, 1, 2);
    links.push(spread_link(&info(b)));
    assert_eq!(links[3].slots, [4, 32, 33, 34, 35, 36, 37, 38]);
    arrives(&mut links, 36, 3);
    assert_eq!(links.iter().map(|link| link.counters.rx_kernel_drops).sum::<u64>(), 0);
}

#[test]
fn what_came_merged_with_packets_for_another_link_is_sent_on() {
    let (a, b) = (own(61), own(62));
    let (mut from, region) = (link(a, ""), region(4096));
    let mut links: Vec<UdpLink> = (0..3).map(|_| link(b, "")).collect();
    let mut mixed = train(path(a, b), &region, &[100; 6]);
    for (packet, slot) in mixed.packets.iter_mut().zip([2, 1, 3, 2, 1, 1]) {
        packet.bth.dest_qp = Qpn::new(slot << 16 | 7);
    }
    from.push(&mixed);
    assert!(from.flush());
    // All of it is the second's at first.
    let psns = |link: &mut UdpLink, packets| -> Vec<u32> {
        let got = collect(link, packets);
        assert!(got.iter().all(|(path, ..)| path.source == Gid::from_ip(a.into())));
        got.iter().map(|(_, bth, _)| bth.psn.get()).collect()
    };
    assert_eq!(psns(&mut links[1], 2), [0, 3]);
    assert_eq!(psns(&mut links[0], 3), [1, 4, 5]);
    assert_eq!(psns(&mut links[2], 1), [2]);
    let strays: Vec<u64> = links.iter().map(|link| link.counters.rx_strays).collect();
    assert_eq!(strays, [0, 4, 0]);
    let right: Vec<u64> = links.iter().map(|link| link.counters.rx_icrc_ok).collect();
    assert_eq!(right, [3, 2, 1]);
}

#[test]
fn what_came_merged_with_others_for_nobody_goes_nowhere() {
    let (a, b) = (own(63), own(64));
    let (mut from, region) = (link(a, ""), region(4096));
    let mut links: Vec<UdpLink> = (0..2).map(|_| link(b, "")).collect();
    let mut mixed = train(path(a, b), &region, &[100; 8]);
    for (packet, slot) in mixed.packets.iter_mut().zip([1, 2, 3, 63, 0, 1, 2, 40]) {
        packet.bth.dest_qp = Qpn::new(slot << 16 | 7);
    }
    from.push(&mixed);
    assert!(from.flush());
    assert_eq!(collect(&mut links[0], 2).len(), 2);
    assert_eq!(collect(&mut links[1], 2).len(), 2);
    let counters = links[0].count();
    assert_eq!((counters.rx_packets, counters.rx_strays, counters.rx_nobodys), (8, 2, 4));
    assert_eq!(links[1].count().rx_nobodys, 0);
}

#[test]
fn drops_of_the_kernel_are_told_without_another_message() {
    let (a, b) = (own(65), own(66));
    let (mut from, mut to) = (link(a, ""), spread_link(&info(b)));
    let region = region(1 << 16);
    for _ in 0..100 {
        from.push(&train_to(1, path(a, b), &region, &[4096; 15]));
        assert!(from.flush());
    }
    let dropped = to.count().rx_kernel_drops;
    assert!((80..100).contains(&dropped), "{dropped} of 100 messages");
    // With the messages that fit it is not told of again.
    collect(&mut to, 15 * (100 - dropped as usize));
    from.push(&train_to(1, path(a, b), &region, &[40]));
    assert!(from.flush());
    collect(&mut to, 1);
    assert_eq!((to.count().rx_kernel_drops, to.counters.rx_messages), (dropped, 101 - dropped));
}

#[test]
fn there_are_so_many_slots_and_no_more() {
    let address = info(own(28));
    let mut links = vec![spread_link(&address)];
    links.extend((0..55).map(|_| link(own(28), "")));
    let Err(why) = UdpLink::open(&address, &Options::default()).map(drop) else {
        panic!("one too many");
    };
    assert_eq!(why.kind(), ErrorKind::AddressInUse);
    assert!(why.to_string().contains("all 63 places"), "{why}");
    // They are one link's only once, however often they were.
    let mut slots: Vec<u8> = links.iter().flat_map(|link| link.slots.clone()).collect();
    slots.sort_unstable();
    assert_eq!(slots, (1..64).collect::<Vec<u8>>());
    // Where another address of the device has no place, the device does without it.
    let mut two = info(own(29));
    two.gids.push(address.gids[0]);
    let (alone, gids) = UdpLink::open(&two, &Options::default()).unwrap();
    assert_eq!((gids.len(), &alone.slots[..]), (1, &[1][..]));
    drop(links.pop());
    let (_, gids) = UdpLink::open(&two, &Options::default()).unwrap();
    assert_eq!(gids.len(), 2);
    drop(link(own(28), ""));
}

#[test]
fn addresses_are_shared_up_to_a_number() {
    let mut address = info(own(30));
    let entry = address.gids[0];
    let gid = |last| GidEntry { gid: Gid::from_ip(own(last).into()), ..entry };
    address.gids = (30..60).map(gid).collect();
    let mut link = spread_link(&address);
    assert_eq!(link.inlets.all.len(), 26 + 4 * 8);
    let (mut from, region) = (self::link(own(60), ""), region(4096));
    for last in 30..60 {
        from.push(&train_to(1, path(own(60), own(last)), &region, &[40]));
        assert!(from.flush());
        let got = collect(&mut link, 1);
        assert_eq!(got[0].0.destination, Gid::from_ip(own(last).into()));
    }
    // A second link finds the shared ones.
    address.gids = vec![gid(29), gid(30), gid(33), gid(34)];
    let (_, gids) = UdpLink::open(&address, &Options::default()).unwrap();
    assert_eq!(gids, [gid(29), gid(30), gid(33)]);
}
