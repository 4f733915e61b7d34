//! Frames made byte by byte around one RoCEv2 packet, and a CRC that goes bit by bit.

use wire::infiniband::{LinkPacket, Lrh, emit};
use wire::packet::{Bth, Encapsulation, Extensions, Packet, Path};
use wire::{Gid, Opcode, PKey, Psn, Qpn};

/// The reflected CRC-32 of Ethernet, a bit at a time.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut register = !0_u32;
    for byte in bytes {
        for bit in 0..8 {
            let out = (register ^ u32::from(byte >> bit)) & 1;
            register = register >> 1 ^ if out == 1 { 0xEDB8_8320 } else { 0 };
        }
    }
    !register
}

/// The ones' complement sum of big endian words, not complemented.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

pub(crate) fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 0x0B, 2, 0, 0, 0, 0, 0x0A];
    out.extend(kind.to_be_bytes());
    out.extend(payload);
    out
}

/// The IPv4 checksum of an Ethernet frame made right.
pub(crate) fn fix_ip(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0xB8, 0, 0, 0x12, 0x34, 0x40, 0, 61, protocol, 0, 0];
    ip.extend([10, 1, 0, 1, 10, 1, 0, 2]);
    ip[2..4].copy_from_slice(&((20 + payload.len()) as u16).to_be_bytes());
    ip.extend(payload);
    let mut frame = ethernet(0x0800, &ip);
    fix_ip(&mut frame);
    frame
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = 0xC055_u16.to_be_bytes().to_vec();
    out.extend(port.to_be_bytes());
    out.extend(((8 + payload.len()) as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    out
}

pub(crate) fn udp4(port: u16, payload: &[u8]) -> Vec<u8> {
    ipv4(17, &udp(port, payload))
}

pub(crate) fn udp6(port: u16, payload: &[u8]) -> Vec<u8> {
    let datagram = udp(port, payload);
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((datagram.len() as u16).to_be_bytes());
    ip.extend([17, 64]);
    ip.extend([0xFD; 32]);
    ip.extend(datagram);
    ethernet(0x86DD, &ip)
}

/// SEND Only of a reliable connection to queue pair 0x17 without its ICRC.
fn send(psn: u32, payload: usize) -> Vec<u8> {
    let pad = payload.wrapping_neg() & 3;
    let mut out = vec![4, 0x40 | (pad as u8) << 4, 0xFF, 0xFF, 0, 0, 0, 0x17, 0x80];
    out.extend(&psn.to_be_bytes()[1..]);
    out.extend((0..payload).map(|i| (i * 5 + 1) as u8));
    out.extend(vec![0; pad]);
    out
}

/// The places of an Ethernet frame (IPv4 without options, UDP, BTH) that the ICRC counts as ones.
const MASKED: [usize; 7] = [15, 22, 24, 25, 40, 41, 46];

/// A frame with the ICRC that counts the bytes at `plain` as they stand, the others that change on
/// the way as ones, and before them eight bytes of ones, or none.
pub(crate) fn with_icrc(frame: &[u8], plain: &[usize], lrh: bool) -> Vec<u8> {
    let end = frame.len() - 4;
    let mut covered = if lrh { vec![0xFF; 8] } else { Vec::new() };
    covered.extend(
        (14..end).map(
            |at| {
                if MASKED.contains(&at) && !plain.contains(&at) { 0xFF } else { frame[at] }
            },
        ),
    );
    let mut out = frame[..end].to_vec();
    out.extend(crc(&covered).to_le_bytes());
    out
}

/// A RoCEv2 packet with 37 bytes of payload.
pub(crate) fn frame() -> Vec<u8> {
    packet_of(0x1234, 37)
}

/// A RoCEv2 packet.
pub(crate) fn packet_of(psn: u32, payload: usize) -> Vec<u8> {
    let mut transport = send(psn, payload);
    transport.extend([0; 4]);
    with_icrc(&udp4(4791, &transport), &[], true)
}

/// What a UDP checksum should be, and its part that covers addresses, protocol and length.
pub(crate) fn udp_sums(frame: &[u8]) -> (u16, u16) {
    let len = (frame.len() - 34) as u16;
    let pseudo = [&frame[26..34], &[0, 17], &len.to_be_bytes()[..]].concat();
    let mut all = pseudo.clone();
    all.extend(&frame[34..40]);
    all.extend([0, 0]);
    all.extend(&frame[42..]);
    (!sum(&all), sum(&pseudo))
}

/// A datagram as it was before segmentation: so many packets, the last with `last` bytes.
pub(crate) fn train(payload: usize, many: usize, last: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for part in 0..many {
        let mut transport = send(part as u32, if part + 1 == many { last } else { payload });
        transport.extend([0; 4]);
        let mut frame = udp4(4791, &transport);
        let ident = 0x1234 + part as u16;
        frame[18..20].copy_from_slice(&ident.to_be_bytes());
        fix_ip(&mut frame);
        all.extend(&with_icrc(&frame, &[], true)[42..]);
    }
    udp4(4791, &all)
}

pub(crate) fn tag(frame: &[u8], kind: u16, control: u16) -> Vec<u8> {
    let mut out = frame[..12].to_vec();
    out.extend(kind.to_be_bytes());
    out.extend(control.to_be_bytes());
    out.extend(&frame[12..]);
    out
}

pub(crate) fn cooked(sort: u16, ip: &[u8]) -> Vec<u8> {
    let mut out = sort.to_be_bytes().to_vec();
    out.extend([0, 1, 0, 6, 2, 0, 0, 0, 0, 0x0A, 0, 0, 8, 0]);
    out.extend(ip);
    out
}

pub(crate) fn cooked2(interface: u32, sort: u8, ip: &[u8]) -> Vec<u8> {
    let mut out = vec![8, 0, 0, 0];
    out.extend(interface.to_be_bytes());
    out.extend([0, 1, sort, 6, 2, 0, 0, 0, 0, 0x0A, 0, 0]);
    out.extend(ip);
    out
}

/// An ERF record with so many extension headers.
pub(crate) fn erf(kind: u8, extensions: usize, payload: &[u8], wire_len: usize) -> Vec<u8> {
    let more = |left: usize| if left > 0 { 0x80 } else { 0 };
    let mut out = vec![0; 8];
    out.extend([kind | more(extensions), 4, 0, 0, 0, 0]);
    out.extend((wire_len as u16).to_be_bytes());
    for i in (0..extensions).rev() {
        out.extend([3 | more(i), 0, 0, 0, 0, 0, 0, 0]);
    }
    out.extend(payload);
    out
}

/// A packet of an InfiniBand link.
pub(crate) fn infiniband(has_grh: bool) -> Vec<u8> {
    let gid = |last| if has_grh { Gid([last; 16]) } else { Gid::default() };
    let path = Path {
        encapsulation: Encapsulation::Infiniband,
        source: gid(1),
        destination: gid(2),
        traffic_class: 0,
        hop_limit: 9,
        flow_label: 0,
        source_port: 0,
        priority: 0,
    };
    let bth = Bth {
        opcode: Opcode(4),
        solicited: false,
        migration: true,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x17),
        ack_request: true,
        psn: Psn::new(5),
    };
    let payload = [9; 30];
    let packet = Packet { path, bth, ext: Extensions::default(), payload: &payload[..] };
    let lrh =
        Lrh { virtual_lane: 1, service_level: 2, destination: 9, source: 4, reserved: (0, 0) };
    let mut out = vec![0; 400];
    let len = emit(&LinkPacket::new(lrh, &packet), &mut out).expect("a packet");
    out.truncate(len);
    out
}
