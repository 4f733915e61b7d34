//! Addresses with several receiving sockets.

use super::*;

/// A link whose addresses have as many sockets as there may be.
fn spread_link(info: &DeviceInfo) -> UdpLink {
    let small = Options { receive_buffer: Some(65536), ..Options::default() };
    let link = UdpLink::open(info, &small).unwrap().0;
    assert_eq!((link.slots, link.receive_buffer), (inlet::MOST, 131_072));
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
fn waiting(link: &mut UdpLink) -> Vec<usize> {
    let sockets = link.inlets.all.iter();
    sockets
        .map(|i| i.socket.recv(&mut [const { std::mem::MaybeUninit::uninit() }; 9000]))
        .map(|got| got.unwrap_or(0))
        .collect()
}

#[test]
fn sockets_are_as_many_as_the_buffer_is_small() {
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
    for slot in 0..=255 {
        from.push(&train_to(slot, path(a, b), &region, &[40]));
        assert!(from.flush());
        let mut expected = vec![0; 8];
        expected[usize::from(slot % 8)] = 12 + 40 + 4;
        assert_eq!(waiting(&mut to), expected, "slot {slot}");
    }
}

#[test]
fn everything_arrives_wherever_the_link_looked_last() {
    let (a, b) = (own(22), own(23));
    let (mut from, mut to) = (link(a, ""), spread_link(&info(b)));
    let region = region(1 << 16);
    for everywhere in [true, false] {
        for slot in (1..=8).chain([1, 5, 1, 1, 8]) {
            from.push(&train_to(slot, path(a, b), &region, &[1000, 1000, 7]));
            assert!(from.flush());
            let mut got = 0;
            // A poller looks elsewhere every eighth time.
            for _ in 0..if everywhere { 1 } else { 8 } {
                to.receive(Instant::ZERO, everywhere, &mut |p: &Packet<Payload<'_>>| {
                    assert_eq!(p.bth.dest_qp.get() >> 16, u32::from(slot));
                    got += 1;
                });
            }
            assert_eq!(got, 3, "slot {slot}, everywhere: {everywhere}");
        }
    }
    // All at once, more than one look takes.
    for round in 0..4 {
        for slot in 1..=8 {
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
    for slot in 2..=8 {
        from.push(&train_to(slot, path(a, b), &region, &[4096]));
        assert!(from.flush());
    }
    let mut slots = [0; 9];
    for _ in 0..100 {
        to.receive(Instant::ZERO, true, &mut |p: &Packet<Payload<'_>>| {
            slots[(p.bth.dest_qp.get() >> 16) as usize] += 1;
        });
    }
    assert_eq!(slots[2..], [1; 7]);
    assert!(slots[1] > 0 && slots[1] < 1500, "{slots:?}");
    // The kernel tells of what it dropped with the next message.
    from.push(&train_to(1, path(a, b), &region, &[64]));
    assert!(from.flush());
    assert_eq!(collect(&mut to, 1).len(), 1);
    assert!(to.counters.rx_kernel_drops > 0);
}

#[test]
fn an_address_that_is_shared_out_is_still_of_one_link() {
    let address = info(own(26));
    let first = spread_link(&address);
    for buffer in [Some(65536), None] {
        let options = Options { receive_buffer: buffer, ..Options::default() };
        let Err(why) = UdpLink::open(&address, &options).map(drop) else {
            panic!("bound twice");
        };
        assert_eq!(why.kind(), ErrorKind::AddressInUse);
    }
    drop(first);
    drop(spread_link(&address));
    drop(link(own(26), ""));
}

#[test]
fn many_addresses_take_few_descriptors_each() {
    let mut address = info(own(30));
    let entry = address.gids[0];
    let gid = |last| GidEntry { gid: Gid::from_ip(own(last).into()), ..entry };
    address.gids = (30..60).map(gid).collect();
    let mut link = spread_link(&address);
    assert_eq!(link.inlets.all.len(), 30 + 4 * 7);
    let (mut from, region) = (self::link(own(60), ""), region(4096));
    for last in 30..60 {
        from.push(&train_to(3, path(own(60), own(last)), &region, &[40]));
        assert!(from.flush());
        let got = collect(&mut link, 1);
        assert_eq!(got[0].0.destination, Gid::from_ip(own(last).into()));
    }
}
