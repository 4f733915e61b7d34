//! Properties: what is written is read, what is read is written, and no bytes at all upset anyone.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::checksum::Check;
use wire::content::Content;
use wire::ethernet::{Ethernet, TYPE_CUSTOMER_TAG, TYPE_SERVICE_TAG, Tag};
use wire::frame::{Body, Frame, Network, Roce, emit_frame, parse_frame};
use wire::infiniband::{self, Grh, LinkBody, LinkPacket, Lrh};
use wire::ip::{Ip, Ipv4, Ipv6, Udp};
use wire::mac_control::{MacControl, Pfc};
use wire::packet::{Encapsulation, Packet, Path};
use wire::pretty::{self, Line, Start, Tree};
use wire::transport::{Reserved, pad_len};
use wire::{DropReason, Gid, HeaderSet, Mac, Opcode, vxlan};

mod support;
use support::{any_bth, any_extensions, maybe, pcap};

fn any_tag() -> impl Strategy<Value = Tag> {
    let kind = prop_oneof![Just(TYPE_CUSTOMER_TAG), Just(TYPE_SERVICE_TAG)];
    (kind, any::<u16>()).prop_map(|(kind, control)| Tag { kind, control })
}

prop_compose! {
    fn any_ethernet()(
        destination: [u8; 6],
        source: [u8; 6],
        outer in maybe(any_tag()),
        inner in maybe(any_tag()),
    ) -> Ethernet {
        let inner = inner.filter(|_| outer.is_some());
        Ethernet { destination: Mac(destination), source: Mac(source), tags: [outer, inner] }
    }
}

/// Reserved bits that an opcode with these headers and so long a payload has.
fn any_reserved(opcode: Opcode, payload_len: usize) -> impl Strategy<Value = Reserved> {
    let set = opcode.headers().unwrap_or(HeaderSet::empty());
    let keep = move |header, value: u32| if set.contains(header) { value } else { 0 };
    any::<([u8; 4], u32, [u8; 3])>().prop_map(move |(bytes, feth, mut pad)| {
        pad[pad_len(payload_len)..].fill(0);
        Reserved {
            bth_4: bytes[0] & 0x3F,
            bth_8: bytes[1] & 0x7F,
            deth: keep(HeaderSet::DETH, bytes[2].into()) as u8,
            xrceth: keep(HeaderSet::XRCETH, bytes[3].into()) as u8,
            feth: keep(HeaderSet::FETH, feth & !0x3F),
            pad,
        }
    })
}

fn any_content(payload: &[u8]) -> impl Strategy<Value = Content<'_>> {
    any_bth().prop_flat_map(move |bth| {
        let parts = (any_extensions(bth.opcode), any_reserved(bth.opcode, payload.len()));
        parts.prop_map(move |(ext, reserved)| Content::Transport { bth, ext, reserved, payload })
    })
}

/// A check value that is right or surely wrong: no stored value is the right one but by chance.
fn any_check() -> impl Strategy<Value = Check<u32>> {
    prop_oneof![3 => Just(Check::Right), 1 => any::<u32>().prop_map(Check::Stored)]
}

prop_compose! {
    fn any_ipv4(options: &'static [u8])(
        (tos, ttl) in any::<(u8, u8)>(),
        ident: u16,
        (dont_fragment, reserved_flag) in any::<(bool, bool)>(),
        (source, destination) in any::<([u8; 4], [u8; 4])>(),
    ) -> Ip<'static> {
        Ip::V4(Ipv4 {
            tos,
            ident,
            dont_fragment,
            reserved_flag,
            ttl,
            source: source.into(),
            destination: destination.into(),
            options,
            checksum: Check::Right,
        })
    }
}

prop_compose! {
    fn any_ipv6()(
        (traffic_class, hop_limit) in any::<(u8, u8)>(),
        flow_label in 0u32..1 << 20,
        (source, destination) in any::<([u8; 16], [u8; 16])>(),
    ) -> Ipv6 {
        let (source, destination) = (source.into(), destination.into());
        Ipv6 { traffic_class, flow_label, hop_limit, source, destination }
    }
}

fn any_grh() -> impl Strategy<Value = Grh> {
    any_ipv6().prop_map(|ip| Grh {
        traffic_class: ip.traffic_class,
        flow_label: ip.flow_label,
        hop_limit: ip.hop_limit,
        source: Gid(ip.source.octets()),
        destination: Gid(ip.destination.octets()),
    })
}

fn any_network() -> impl Strategy<Value = Network<'static>> {
    let ip = prop_oneof![
        any_ipv4(&[]),
        any_ipv4(&[1, 1, 1, 0]),
        any_ipv4(&[7; 40]),
        any_ipv6().prop_map(Ip::V6),
    ];
    let checksum = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Check::Right)),
        1 => (1u16..).prop_map(|value| Some(Check::Stored(value))),
    ];
    let udp =
        (any::<u16>(), checksum).prop_map(|(source_port, checksum)| Udp { source_port, checksum });
    prop_oneof![
        4 => (ip, udp).prop_map(|(ip, udp)| Network::Udp { ip, udp }),
        1 => any_grh().prop_map(Network::Grh),
    ]
}

fn any_control() -> impl Strategy<Value = MacControl> {
    prop_oneof![
        any::<u16>().prop_map(|quanta| MacControl::Pause { quanta }),
        any::<(u16, [u16; 8])>()
            .prop_map(|(classes, quanta)| MacControl::Pfc(Pfc { classes, quanta })),
    ]
}

/// Where each stored value happens to be the right one (2^-16 or 2^-32), reading says "right".
fn alike(read: &Frame<'_>, written: &Frame<'_>) -> bool {
    let blank = |frame: &Frame<'_>| match frame.body {
        Body::Roce(Roce { network: Network::Udp { ip, udp }, content, icrc }) => {
            let checksum = udp.checksum.map(|_| ());
            format!("{ip:?} {} {checksum:?} {content:?} {}", udp.source_port, icrc.is_right())
        }
        ref other => format!("{other:?}"),
    };
    read == written
        || (read.ethernet, read.trailer) == (written.ethernet, written.trailer)
            && blank(read) == blank(written)
}

fn emit(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = vec![0xA5; frame.wire_len() + 16];
    let len = emit_frame(frame, &mut out).expect("can be written");
    assert!(out[len..].iter().all(|byte| *byte == 0xA5));
    out.truncate(len);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn roce_frames(
        ethernet in any_ethernet(),
        network in any_network(),
        payload in vec(any::<u8>(), 0..80),
        content_seed in any::<[u8; 32]>(),
        icrc in any_check(),
        trailer in vec(any::<u8>(), 0..20),
    ) {
        let content = sample(any_content(&payload), content_seed);
        let body = Body::Roce(Roce { network, content, icrc });
        let frame = Frame { ethernet, body, trailer: &trailer };
        let bytes = emit(&frame);
        let read = parse_frame(&bytes).expect("a frame");
        prop_assert!(alike(&read, &frame), "{read:?}\n{frame:?}");
        prop_assert_eq!(&emit(&read), &bytes);
        prop_assert_eq!(read.packet().is_ok(), icrc == Check::Right);
    }

    #[test]
    fn packets_go_up_and_down(
        (ethernet, grh) in (any_ethernet(), any_grh()),
        (v1, ipv4) in any::<(bool, bool)>(),
        source_port: u16,
        payload in vec(any::<u8>(), 0..80),
        content_seed in any::<[u8; 32]>(),
    ) {
        let Content::Transport { bth, ext, .. } = sample(any_content(&payload), content_seed) else {
            panic!("not a packet");
        };
        let mapped = |gid: Gid| Gid::from_ip([gid.0[0], gid.0[1], 2, 3].into());
        let address = |gid: Gid| if ipv4 { mapped(gid) } else { gid };
        let path = Path {
            encapsulation: if v1 { Encapsulation::RoceV1 } else { Encapsulation::RoceV2 },
            source: address(grh.source),
            destination: address(grh.destination),
            traffic_class: grh.traffic_class,
            hop_limit: grh.hop_limit,
            flow_label: if ipv4 && !v1 { 0 } else { grh.flow_label },
            source_port: if v1 { 0 } else { source_port },
            priority: ethernet.tags[0].map_or(grh.traffic_class >> 5, Tag::priority),
        };
        let packet = Packet { path, bth, ext, payload: &payload[..] };
        let bytes = emit(&Frame::new(ethernet, &packet).expect("a path"));
        prop_assert!(bytes.len() >= 60);
        prop_assert_eq!(parse_frame(&bytes).expect("a frame").packet(), Ok(Some(packet)));
    }

    #[test]
    fn mac_control_frames(source: [u8; 6], control in any_control()) {
        let frame = Frame::mac_control(Mac(source), control);
        let bytes = emit(&frame);
        prop_assert_eq!(bytes.len(), 60);
        prop_assert_eq!(parse_frame(&bytes), Ok(frame));
    }

    #[test]
    fn infiniband_packets(
        lanes in any::<(u8, u8, u16, u16, u8, u8)>(),
        grh in maybe(any_grh()),
        payload in vec(any::<u8>(), 0..80),
        content_seed in any::<[u8; 32]>(),
        icrc in any_check(),
        trailer in vec(any::<u8>(), 0..9),
    ) {
        let lrh = Lrh {
            virtual_lane: lanes.0 & 15,
            service_level: lanes.1 & 15,
            destination: lanes.2,
            source: lanes.3,
            reserved: (lanes.4 & 3, lanes.5 & 31),
        };
        let content = sample(any_content(&payload), content_seed);
        let body = LinkBody::Transport { grh, content, icrc };
        let packet = LinkPacket { lrh, body, vcrc: Check::Right, trailer: &trailer };
        let mut out = vec![0xA5; packet.wire_len()];
        prop_assert_eq!(infiniband::emit(&packet, &mut out), Ok(out.len()));
        let read = infiniband::parse(&out).expect("a packet");
        prop_assert_eq!(read, packet);
    }

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..200), kind in 0usize..8) {
        let starts: [&[u8]; 8] = [
            &[], &[0x08, 0], &[0x86, 0xDD], &[0x89, 0x15], &[0x88, 8], &[0x81, 0, 0, 1, 8, 0],
            &[8, 0, 0x45], &[0x86, 0xDD, 0x60],
        ];
        let mut bytes = bytes;
        let at = bytes.len().min(12);
        bytes.splice(at..at, starts[kind].iter().copied());
        answer(&bytes);
    }
}

/// One value of a strategy that borrows, which `proptest!` cannot hold itself.
fn sample<S: Strategy>(strategy: S, seed: [u8; 32]) -> S::Value {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy.new_tree(&mut runner).expect("a value").current()
}

/// Reads bytes in every way there is, and writes again what could be read.
fn answer(bytes: &[u8]) {
    if let Ok(frame) = parse_frame(bytes) {
        assert_eq!(emit(&frame), bytes);
        assert!(!format!("{}{}", Line(&frame), Tree(&frame)).is_empty());
    }
    if let Ok(packet) = infiniband::parse(bytes) {
        let mut out = vec![0xA5; bytes.len()];
        assert_eq!(infiniband::emit(&packet, &mut out), Ok(bytes.len()));
        assert_eq!(out, bytes);
        assert!(!format!("{}{}", Line(&packet), Tree(&packet)).is_empty());
    }
    if let Ok(Some(tunnelled)) = vxlan::decapsulate(bytes) {
        assert!(bytes.ends_with(tunnelled.frame) || tunnelled.frame.len() < bytes.len());
    }
    assert!(!pretty::describe(Start::Ethernet, bytes).is_empty());
    assert!(!pretty::describe(Start::Infiniband, bytes).is_empty());
}

/// Every capture, each frame with one byte changed and cut short, at places that differ from frame
/// to frame. A changed RoCE packet is never taken for a right one, except where the change is of
/// what may change on the way.
#[test]
fn changed_captures_are_answered() {
    let mut state = 1u32;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % bound
    };
    let (mut changed, mut accepted) = (0, 0);
    for name in pcap::names() {
        for bytes in pcap::frames(&name) {
            for _ in 0..4 {
                let mut other = bytes.clone();
                let at = random(other.len());
                other[at] ^= 1 << random(8);
                answer(&other);
                answer(&other[..random(other.len())]);
                let Ok(frame) = parse_frame(&other) else { continue };
                changed += 1;
                if !matches!(frame.packet(), Ok(Some(_))) {
                    continue;
                }
                accepted += 1;
                assert!(may_change(&frame, at), "{name}: byte {at}");
            }
        }
    }
    assert!(changed > 5000 && accepted > 100, "{changed} changed, {accepted} accepted");
}

/// Whether a byte of a frame may change without hurting the packet: Ethernet addresses and tags,
/// what the ICRC masks, the UDP checksum. (An IPv4 header with a changed byte fails its checksum.)
fn may_change(frame: &Frame<'_>, at: usize) -> bool {
    let Body::Roce(Roce { network: Network::Udp { ip, .. }, .. }) = frame.body else {
        return false;
    };
    let Some(at) = at.checked_sub(frame.ethernet.wire_len()) else { return true };
    let (masked, header_len): (&[usize], usize) = match ip {
        Ip::V4(_) => (&[], 20),
        Ip::V6(_) => (&[0, 1, 2, 3, 7], 40),
    };
    masked.contains(&at) || [6, 7, 12].contains(&at.wrapping_sub(header_len))
}

#[test]
fn reasons_read_as_sentences() {
    assert_eq!(DropReason::UnknownOpcode(0x1F).to_string(), "unknown opcode 0x1f");
    assert_eq!(DropReason::Fragment.to_string(), "IP fragment");
}
