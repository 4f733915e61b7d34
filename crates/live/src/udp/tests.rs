//! The link against plain sockets, with ICRCs made bit by bit here, and against another link.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use engine::{Fragment, Payload, Train, TxPacket};
use wire::{
    Aeth, Bth, Encapsulation, Extensions, Instant, Msn, Mtu, Opcode, Operation, PKey, Packet, Path,
    Psn, Qpn, RKey, Reth, Service, Syndrome,
};

mod faulty;
mod inlets;

use super::*;
use crate::info::devices;
use crate::mem::Region;
use crate::netdev::NetDev;

/// An address of this test process only.
fn own(last: u8) -> Ipv4Addr {
    let pid = std::process::id();
    Ipv4Addr::new(127, 64 + (pid >> 8) as u8 % 64, pid as u8, last)
}

fn link(addr: Ipv4Addr, faults: &str) -> UdpLink {
    let mut info = devices(Some(&addr.to_string())).unwrap().remove(0);
    info.gids.truncate(1);
    let faults = (!faults.is_empty()).then(|| faults.parse().unwrap());
    UdpLink::open(&info, &Options { faults, ..Options::default() }).unwrap().0
}

fn path(from: Ipv4Addr, to: Ipv4Addr) -> Path {
    Path {
        encapsulation: Encapsulation::RoceV2,
        source: Gid::from_ip(from.into()),
        destination: Gid::from_ip(to.into()),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xC765,
        priority: 0,
    }
}

fn bth(operation: Operation, psn: u32) -> Bth {
    Bth {
        opcode: Opcode::new(Service::Rc, operation),
        solicited: false,
        migration: true,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x01_2345),
        ack_request: false,
        psn: Psn::new(psn),
    }
}

/// A train of SEND Middle packets of `sizes` bytes, taken one behind the other from a region.
fn train(path: Path, region: &Region, sizes: &[u32]) -> Train {
    let mut train = Train { path: Some(path), ..Train::default() };
    let mut offset = 0;
    for (i, &length) in sizes.iter().enumerate() {
        let first = train.fragments.len() as u32;
        // The second half of the first packet lies in the train itself.
        let outside = if i == 0 { length / 2 } else { length };
        train.fragments.push(Fragment::Memory { addr: region.addr() + offset, length: outside });
        if outside < length {
            let mut inline = vec![0; (length - outside) as usize];
            region.read((offset + u64::from(outside)) as usize, &mut inline);
            train.fragments.push(Fragment::Inline { start: 0, length: length - outside });
            train.inline = inline;
        }
        train.packets.push(TxPacket {
            bth: bth(Operation::SendMiddle, i as u32),
            ext: Extensions::default(),
            length,
            fragments: first..train.fragments.len() as u32,
            again: false,
        });
        offset += u64::from(length);
    }
    train
}

fn region(len: usize) -> Region {
    let region = Region::allocate(len).unwrap();
    let bytes: Vec<u8> = (0..len).map(|i| (i * 131 / 7) as u8).collect();
    region.write(0, &bytes);
    region
}

/// CRC-32 bit by bit.
fn crc(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| (c >> 1) ^ (0xEDB8_8320 & (c & 1).wrapping_neg()))
    })
}

/// The ICRC of a RoCEv2 packet over IPv4, from the description in the specification.
fn icrc_v4(from: Ipv4Addr, to: Ipv4Addr, port: u16, ident: u16, flags: u16, body: &[u8]) -> u32 {
    let udp_len = (8 + body.len() + 4) as u16;
    let mut all = vec![0xFF; 8];
    all.extend([0x45, 0xFF]);
    all.extend((udp_len + 20).to_be_bytes());
    all.extend(ident.to_be_bytes());
    all.extend(flags.to_be_bytes());
    all.extend([0xFF, 17, 0xFF, 0xFF]);
    all.extend(from.octets());
    all.extend(to.octets());
    all.extend(port.to_be_bytes());
    all.extend(4791_u16.to_be_bytes());
    all.extend(udp_len.to_be_bytes());
    all.extend([0xFF, 0xFF]);
    let at = all.len();
    all.extend(body);
    all[at + 4] = 0xFF;
    crc(all.into_iter())
}

/// A plain receiver on the RoCE port.
fn plain(addr: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((addr, ROCE_PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn body_of(datagram: &[u8]) -> (&[u8], u32) {
    let (body, icrc) = datagram.split_last_chunk::<4>().unwrap();
    (body, u32::from_le_bytes(*icrc))
}

#[test]
fn a_train_leaves_as_packets_whose_icrcs_count_the_identification() {
    let (a, b) = (own(1), own(2));
    let (mut link, peer) = (link(a, ""), plain(b));
    let region = region(1 << 16);
    let sizes = [1000, 1000, 1000, 1000, 333];
    link.push(&train(path(a, b), &region, &sizes));
    link.push(&train(path(a, b), &region, &[64]));
    assert!(link.flush());
    let mut offset = 0;
    for (i, size) in sizes.iter().map(|s| *s as usize).chain([64]).enumerate() {
        let mut datagram = [0; 2048];
        let (n, from) = peer.recv_from(&mut datagram).unwrap();
        assert_eq!(from, SocketAddr::from((a, 0xC765)), "the port wished for was free");
        let (body, icrc) = body_of(&datagram[..n]);
        let (ident, offset_now) = if i == 5 { (0, 0) } else { (i as u16, offset) };
        assert_eq!(icrc, icrc_v4(a, b, from.port(), ident, 0x4000, body), "packet {i}");
        let parsed = wire::transport::parse(&datagram[..n]).unwrap();
        assert_eq!(parsed.bth, bth(Operation::SendMiddle, ident.into()));
        let mut expected = vec![0; size];
        region.read(offset_now, &mut expected);
        assert_eq!(parsed.payload, expected, "packet {i}");
        offset += size;
    }
    let counters = link.counters;
    assert_eq!((counters.tx_packets, counters.tx_messages, counters.tx_calls), (6, 2, 1));
    assert_eq!(counters.tx_train_refused, 0);
}

#[test]
fn a_train_that_the_kernel_does_not_cut_goes_packet_by_packet() {
    let (a, b) = (own(3), own(4));
    let (mut link, peer) = (link(a, ""), plain(b));
    let region = region(1 << 14);
    link.push(&train(path(a, b), &region, &[500, 500, 200]));
    let limits = link.train_limits();
    link.sender.split();
    assert_eq!(link.train_limits(), limits, "trains to other destinations may go");
    assert!(link.flush());
    for size in [500, 500, 200] {
        let mut datagram = [0; 2048];
        let (n, from) = peer.recv_from(&mut datagram).unwrap();
        assert_eq!(n, 12 + size + 4);
        let (body, icrc) = body_of(&datagram[..n]);
        assert_eq!(icrc, icrc_v4(a, b, from.port(), 0, 0x4000, body), "each is number 0 now");
    }
    // Packets of unequal size are never one message, whatever the train says.
    link.push(&train(path(a, b), &region, &[100, 300, 100]));
    assert!(link.flush());
    let mut datagram = [0; 2048];
    let sizes: Vec<usize> = (0..3).map(|_| peer.recv_from(&mut datagram).unwrap().0).collect();
    assert_eq!(sizes, [116, 316, 116]);
}

/// Receives until `packets` have come; source, traffic class, header and payload of each.
fn collect(link: &mut UdpLink, packets: usize) -> Vec<(Path, Bth, Vec<u8>)> {
    let mut all = Vec::new();
    let start = std::time::Instant::now();
    while all.len() < packets {
        assert!(start.elapsed() < Duration::from_secs(10), "{} of {packets} came", all.len());
        let now = Instant::from_ns(start.elapsed().as_nanos() as u64);
        link.receive(now, true, &mut |packet: &Packet<Payload<'_>>| {
            let Payload::Bytes(bytes) = packet.payload else { unreachable!() };
            all.push((packet.path, packet.bth, bytes.to_vec()));
            None
        });
    }
    all
}

#[test]
fn long_trains_between_two_links_are_checked_with_all_32_bits() {
    let (a, b) = (own(5), own(6));
    let (mut from, mut to) = (link(a, ""), link(b, ""));
    let region = region(1 << 17);
    let limits = from.train_limits();
    let whole = [4096; 15];
    let many = vec![64; limits.segments];
    let path = Path { traffic_class: 0x6A, hop_limit: 17, ..path(a, b) };
    let mut sent = 0;
    for sizes in [&whole[..], &many[..], &[1][..], &[0][..], &[4096, 4096, 5][..]] {
        from.push(&train(path, &region, sizes));
        assert!(from.flush());
        sent += sizes.len();
        let got = collect(&mut to, sizes.len());
        let mut offset = 0;
        for (i, (path, bth, payload)) in got.iter().enumerate() {
            let mut expected = vec![0; sizes[i] as usize];
            region.read(offset, &mut expected);
            offset += expected.len();
            assert_eq!((bth.psn, payload), (Psn::new(i as u32), &expected));
            assert_eq!(path.source, Gid::from_ip(a.into()));
            assert_eq!(path.destination, Gid::from_ip(b.into()));
            assert_eq!((path.traffic_class, path.hop_limit, path.priority), (0x6A, 17, 3));
        }
    }
    assert_eq!(to.counters.rx_icrc_ok, sent as u64);
    assert_eq!(to.counters.rx_icrc_solved + to.counters.rx_icrc_encapsulated, 0);
    assert_eq!((from.counters.tx_messages, from.counters.tx_packets), (5, sent as u64));
}

/// A whole packet from a sender of its own kind: SEND Only with `payload`.
fn foreign(
    from: Ipv4Addr,
    to: Ipv4Addr,
    port: u16,
    ident: u16,
    flags: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0x04, 0x40, 0xFF, 0xFF, 0, 1, 0x23, 0x45, 0, 0, 0, 9];
    bytes.extend(payload);
    let icrc = icrc_v4(from, to, port, ident, flags, &bytes);
    bytes.extend(icrc.to_le_bytes());
    bytes
}

#[test]
fn a_peer_with_its_own_identifications_is_understood_and_damage_is_not() {
    let (a, b) = (own(7), own(8));
    let mut link = link(b, "");
    let peer = UdpSocket::bind((a, 0)).unwrap();
    let port = peer.local_addr().unwrap().port();
    let send = |bytes: &[u8]| peer.send_to(bytes, (b, ROCE_PORT)).unwrap();
    for (ident, flags) in [(0xBEEF, 0x4000), (0xBEF0, 0x4000), (7, 0), (0, 0x4000)] {
        send(&foreign(a, b, port, ident, flags, b"twelve bytes"));
        let got = collect(&mut link, 1);
        assert_eq!(got[0].2, b"twelve bytes");
        assert_eq!(got[0].1.psn, Psn::new(9));
    }
    assert_eq!((link.counters.rx_icrc_solved, link.counters.rx_icrc_ok), (2, 2));

    let good = foreign(a, b, port, 0, 0x4000, b"twelve bytes");
    let mut flipped = good.clone();
    flipped[20] ^= 4;
    let mut version = good.clone();
    version[1] |= 1;
    let mut opcode = good.clone();
    opcode[0] = 0xE0;
    let mut pad = good.clone();
    pad.pop();
    for bad in [&flipped[..], &version, &opcode, &pad, &good[..10], &[]] {
        send(bad);
    }
    send(&good);
    assert_eq!(collect(&mut link, 1).len(), 1, "only the last one gets through");
    let c = link.counters;
    assert_eq!((c.rx_icrc_encapsulated, c.rx_wrong_version), (1, 1));
    // The empty one, which names no queue pair, is given to nobody.
    assert_eq!((c.rx_unknown_opcode, c.rx_wrong_pad, c.rx_truncated), (1, 1, 1));
}

/// Packets that the link gives to a device at `now`, past the fault stage.
fn arrivals(link: &mut UdpLink, now: Instant) -> u64 {
    let mut device = faulty::device();
    link.receive(now, true, &mut |_: &Packet<Payload<'_>>| panic!("past the stage"));
    link.release(now, &mut device, |_, _| None);
    device.counters().rx_packets
}

#[test]
fn injected_damage_never_passes_and_loss_is_loss() {
    let (a, b) = (own(9), own(10));
    let mut from = link(a, "");
    let region = region(1 << 17);
    let sizes = vec![64; 64];
    {
        let mut to = link(b, "corrupt=100%,seed=3");
        for _ in 0..100 {
            from.push(&train(path(a, b), &region, &sizes));
            assert!(from.flush());
            assert_eq!(arrivals(&mut to, Instant::ZERO), 0, "damaged");
        }
        assert_eq!(to.counters.rx_packets, 6400);
        assert_eq!(to.counters.faults_injected, 6400);
        assert!(to.counters.rx_icrc_encapsulated > 4000);
    }
    let mut to = link(b, "loss=50%,dup=10%,delay=1ms,seed=3");
    from.push(&train(path(a, b), &region, &sizes));
    assert!(from.flush());
    assert_eq!(arrivals(&mut to, Instant::ZERO), 0, "too early");
    let due = to.next_due().expect("something is under way");
    let count = arrivals(&mut to, due);
    assert!((20..55).contains(&count), "{count}");
    assert_eq!(to.next_due(), None);
}

#[test]
fn what_cannot_be_sent_is_counted_and_holds_nothing_up() {
    let (a, b) = (own(11), own(12));
    let (mut from, mut to) = (link(a, ""), link(b, ""));
    let region = region(4096);
    let good = path(a, b);
    let elsewhere = Path { source: Gid::from_ip(own(99).into()), ..good };
    let other_family = Path { destination: Gid([0xFD; 16]), ..good };
    let refused = Path { destination: Gid::from_ip(Ipv4Addr::BROADCAST.into()), ..good };
    for path in [elsewhere, other_family, refused, good] {
        from.push(&train(path, &region, &[40, 40]));
    }
    // Extension headers that the opcode does not have.
    let mut odd = train(good, &region, &[40]);
    odd.packets[0].ext.aeth = Some(Aeth { syndrome: Syndrome::Ack(31), msn: Msn::new(1) });
    from.push(&odd);
    // A payload that is not as long as it says.
    let mut short = train(good, &region, &[40]);
    short.packets[0].length = 80;
    from.push(&short);
    assert!(from.flush());
    assert_eq!(collect(&mut to, 2).len(), 2);
    let c = from.counters;
    assert_eq!((c.tx_no_path, c.tx_refused, c.tx_not_emitted), (4, 2, 2));
    assert_eq!(c.tx_packets, 2);
}

#[test]
fn a_write_and_an_ack_are_a_legal_train() {
    let (a, b) = (own(13), own(14));
    let (mut from, mut to) = (link(a, ""), link(b, ""));
    let region = region(64);
    let mut both = train(path(a, b), &region, &[8, 0]);
    both.packets[0].bth = bth(Operation::WriteOnly, 5);
    both.packets[0].ext.reth = Some(Reth { va: 16, rkey: RKey::new(7), length: 8 });
    both.packets[1].bth = bth(Operation::Acknowledge, 6);
    both.packets[1].ext.aeth = Some(Aeth { syndrome: Syndrome::Ack(31), msn: Msn::new(1) });
    from.push(&both);
    assert!(from.flush());
    let got = collect(&mut to, 2);
    assert_eq!(got[0].1, bth(Operation::WriteOnly, 5));
    assert_eq!(got[1].1, bth(Operation::Acknowledge, 6));
    assert_eq!(from.counters.tx_messages, 1);
}

#[test]
fn an_address_in_use_is_explained() {
    let a = own(15);
    let first = plain(a);
    let mut info = devices(Some(&a.to_string())).unwrap().remove(0);
    let Err(why) = UdpLink::open(&info, &Options::default()).map(drop) else {
        panic!("a port that others have");
    };
    assert_eq!(why.kind(), ErrorKind::AddressInUse);
    assert!(why.to_string().contains("CROCEVIA_ADDR"), "{why}");
    assert!(why.to_string().contains("rdma link delete"), "{why}");
    // Not the first: the slot stays empty, those behind it keep their index.
    let ours = |last: u8| GidEntry {
        gid: Gid::from_ip(own(last).into()),
        encapsulation: Encapsulation::RoceV2,
    };
    info.gids = vec![ours(16), ours(15), ours(17), ours(15)];
    let (_, gids) = UdpLink::open(&info, &Options::default()).unwrap();
    assert_eq!(gids.len(), 3);
    assert!(gids[1].gid.is_zero());
    assert_eq!((gids[0], gids[2]), (ours(16), ours(17)));
    drop(first);
    let small = Options { receive_buffer: Some(65536), ..Options::default() };
    info.gids = vec![ours(15)];
    assert_eq!(UdpLink::open(&info, &small).unwrap().0.receive_buffer(), 131_072);
}

#[test]
fn ipv6_with_and_without_udp_checksum() {
    for receive_buffer in [None, Some(65536)] {
        ipv6(Options { receive_buffer, ..Options::default() });
    }
}

fn ipv6(options: Options) {
    // In a network of this test's own if that is permitted, else on the machine's ::1.
    std::thread::spawn(move || {
        if !crate::testing::own_network() {
            eprintln!("no network namespace permitted: using the machine's loopback interface");
        }
        let lo = std::net::Ipv6Addr::LOCALHOST;
        let gid = Gid::from_ip(lo.into());
        let netdev = NetDev {
            name: "lo".into(),
            index: 1,
            mtu: 65536,
            mac: wire::Mac::default(),
            up: true,
            loopback: true,
            speed_mbps: None,
            addrs: vec![lo.into()],
        };
        let gids = vec![GidEntry { gid, encapsulation: Encapsulation::RoceV2 }];
        let name = "crocevia0".into();
        let info = DeviceInfo { name, index: 0, netdev, gids, guid: 1, mtu: Mtu::B4096 };
        let mut link = match UdpLink::open(&info, &options) {
            Ok((link, _)) => link,
            Err(why) => return eprintln!("skipped, ::1 cannot be had: {why}"),
        };
        let region = region(1 << 16);
        let path =
            Path { source: gid, destination: gid, traffic_class: 0x69, ..path(own(1), own(1)) };
        link.push(&train(path, &region, &[2048, 2048, 100]));
        assert!(link.flush());
        let got = collect(&mut link, 3);
        assert_eq!((got[2].2.len(), got[2].0.traffic_class), (100, 0x69));

        let peer = UdpSocket::bind((lo, 0)).unwrap();
        set_int(peer.as_fd(), libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1).unwrap();
        let mut bytes = vec![0x04, 0x40, 0xFF, 0xFF, 0, 1, 0x23, 0x45, 0, 0, 0, 9, 1, 2, 3, 4];
        let mut all = vec![0xFF; 8];
        all.extend([0x6F, 0xFF, 0xFF, 0xFF, 0, 28, 17, 0xFF]);
        all.extend(lo.octets());
        all.extend(lo.octets());
        all.extend(peer.local_addr().unwrap().port().to_be_bytes());
        all.extend([0x12, 0xB7, 0, 28, 0xFF, 0xFF]);
        all.extend(&bytes);
        all[8 + 40 + 8 + 4] = 0xFF;
        bytes.extend(crc(all.into_iter()).to_le_bytes());
        peer.send_to(&bytes, (lo, ROCE_PORT)).unwrap();
        assert_eq!(collect(&mut link, 1)[0].2, [1, 2, 3, 4]);
        assert_eq!(link.counters.rx_icrc_ok, 4);
    })
    .join()
    .unwrap();
}
