//! Every frame of the captures of a Linux peer: read, written again byte by byte, judged as the
//! manifest and an independent program judge it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Command;

use wire::content::Content;
use wire::flow;
use wire::frame::{Body, Frame, Network, Roce, emit_frame, parse_frame};
use wire::icrc::{self, BEHIND_IDENT};
use wire::ip::Ip;
use wire::mad::{CmMessage, Mad};
use wire::packet::{Bth, Deth};
use wire::transport::{self, MAX_HEADERS};
use wire::{Aeth, AtomicEth, DropReason, Layer, NakCode, Opcode, Qpn, Reth, Syndrome, aeth};

mod support;
use support::{manifest, pcap};

/// Calls `f` with every RoCE packet: file, number in it (from 1), frame, its bytes.
fn each_roce(mut f: impl FnMut(&str, usize, &Frame<'_>, &Roce<'_>, &[u8])) {
    let mut count = 0;
    for name in pcap::names() {
        for (i, bytes) in pcap::frames(&name).iter().enumerate() {
            let frame = parse_frame(bytes).expect("a frame");
            if let Body::Roce(roce) = &frame.body {
                f(&name, i + 1, &frame, roce, bytes);
                count += 1;
            }
        }
    }
    assert!(count > 2400, "only {count} packets");
}

#[test]
fn every_frame_comes_out_as_it_went_in() {
    for name in pcap::names() {
        for (i, bytes) in pcap::frames(&name).iter().enumerate() {
            let frame = parse_frame(bytes).unwrap_or_else(|error| panic!("{name} {i}: {error}"));
            let mut out = [0xA5; 5000];
            let len = emit_frame(&frame, &mut out).expect("room");
            assert_eq!(out[..len], bytes[..], "{name} {i}");
            assert!(out[len..].iter().all(|byte| *byte == 0xA5), "{name} {i}: wrote too far");
        }
    }
}

/// What goes up to an engine and comes down again is the same frame but for the identification and
/// a UDP checksum.
#[test]
fn a_packet_has_the_whole_meaning_of_its_frame() {
    each_roce(|name, i, frame, roce, bytes| {
        let Ok(Some(packet)) = frame.packet() else { return };
        let mut again = Frame::new(frame.ethernet, &packet).expect("a path that was one");
        let Body::Roce(made) = &mut again.body else { panic!("{name} {i}") };
        if let (Network::Udp { ip, udp }, Network::Udp { ip: was, udp: had }) =
            (&mut made.network, &roce.network)
        {
            if let (Ip::V4(ip), Ip::V4(was)) = (ip, was) {
                ip.ident = was.ident;
            }
            udp.checksum = had.checksum;
        }
        again.trailer = &[];
        let mut out = [0xA5; 5000];
        let len = emit_frame(&again, &mut out).expect("room");
        assert_eq!(out[..len], bytes[..], "{name} {i}");
    });
}

#[test]
fn counts_and_verdicts_are_those_of_the_manifest() {
    let lines = manifest::read();
    let mut files: Vec<_> = lines.iter().map(|line| line.file.clone()).collect();
    files.sort();
    assert_eq!(files, pcap::names());
    for line in &lines {
        let (mut opcodes, mut good, mut bad, mut other) = (BTreeMap::new(), 0, 0, 0);
        for bytes in pcap::frames(&line.file) {
            match parse_frame(&bytes).expect("a frame").body {
                Body::Roce(roce) => {
                    *opcodes.entry(opcode_name(opcode(&roce.content))).or_default() += 1;
                    if roce.icrc.is_right() { good += 1 } else { bad += 1 }
                }
                Body::Opaque { .. } => other += 1,
                Body::MacControl(_) => panic!("{}: MAC control", line.file),
            }
        }
        assert_eq!(opcodes, line.opcodes, "{}", line.file);
        assert_eq!((good, bad, other), (line.good, line.bad, line.other), "{}", line.file);
        assert_eq!(line.packets, good + bad, "{}", line.file);
    }
}

#[test]
fn what_is_refused_is_refused_for_its_own_reason() {
    let mut refused = Vec::new();
    each_roce(|name, i, frame, _, _| {
        if let Err(reason) = frame.packet() {
            refused.push((name.to_owned(), i, reason));
        }
    });
    let expected = [
        ("poke-bad-icrc.pcap", 1, DropReason::Icrc),
        ("poke-bad-opcode.pcap", 1, DropReason::UnknownOpcode(0x1F)),
        ("poke-bad-opcode.pcap", 2, DropReason::UnknownOpcode(0x1E)),
        ("poke-bad-opcode.pcap", 3, DropReason::UnknownOpcode(0x15)),
        ("poke-bad-opcode.pcap", 4, DropReason::UnknownOpcode(0xC0)),
        ("poke-tver-mig.pcap", 1, DropReason::Version(Layer::Transport)),
    ];
    assert_eq!(refused, expected.map(|(name, i, reason)| (name.to_owned(), i, reason)));
}

/// The path of a driver on a UDP socket: it never sees the network headers.
#[test]
fn the_functions_of_a_socket_link_agree() {
    each_roce(|name, i, frame, roce, bytes| {
        let Network::Udp { ip, udp } = &roce.network else { panic!("{name} {i}: not RoCEv2") };
        let transport = &bytes[frame.ethernet.wire_len() + ip.wire_len() + 8..];
        let (covered, stored) = transport.split_last_chunk::<4>().expect("an ICRC");
        let (stored, udp_len) = (u32::from_le_bytes(*stored), transport.len() as u16 + 8);
        let state = match ip {
            Ip::V4(ip) => {
                let state = |ident| {
                    icrc::ipv4_state(
                        ip.source,
                        ip.destination,
                        udp.source_port,
                        udp_len,
                        ident,
                        ip.dont_fragment,
                    )
                };
                let blind = icrc::finish(state(0), covered);
                let solved = icrc::solve_ipv4_ident(blind, stored, BEHIND_IDENT + covered.len());
                let right = roce.icrc.is_right();
                assert_eq!(solved, right.then_some((ip.ident, 0x4000)), "{name} {i}");
                state(ip.ident)
            }
            Ip::V6(ip) => icrc::ipv6_state(ip.source, ip.destination, udp.source_port, udp_len),
        };
        assert_eq!(icrc::finish(state, covered) == stored, roce.icrc.is_right(), "{name} {i}");

        let Ok(read) = transport::parse(transport) else { return };
        let mut out = [0xA5; MAX_HEADERS];
        let len = transport::emit_headers(&read.bth, &read.ext, read.payload.len(), &mut out);
        let len = len.expect("headers of the opcode");
        assert_eq!(out[..len], transport[..len], "{name} {i}");
        assert_eq!(
            icrc::finish_parts(state, &out[..len], &[&covered[len..]]) == stored,
            roce.icrc.is_right(),
        );
    });
}

/// rxe's own packets have the source ports that the formulas give.
#[test]
fn source_ports_are_those_of_linux() {
    let (mut datagrams, mut connected) = (0, 0);
    let set_up_by_hand = |name: &&String| !name.starts_with("poke") && !name.starts_with("cm-");
    for name in pcap::names().iter().filter(set_up_by_hand) {
        let mut ends: BTreeMap<IpAddr, Vec<(Qpn, u16, u32)>> = BTreeMap::new();
        for bytes in pcap::frames(name) {
            let frame = parse_frame(&bytes).expect("a frame");
            let Ok(Some(packet)) = frame.packet() else { continue };
            if let Some(Deth { source_qp, .. }) = packet.ext.deth {
                let port = flow::datagram_source_port(source_qp);
                assert_eq!(packet.path.source_port, port, "{name}");
                datagrams += 1;
            } else {
                let entry = (packet.bth.dest_qp, packet.path.source_port, packet.path.flow_label);
                ends.entry(packet.path.source.to_ip()).or_default().push(entry);
            }
        }
        let two: Vec<_> = ends.into_values().collect();
        let [a, b] = &two[..] else { continue };
        let one_pair = |end: &[(Qpn, u16, u32)]| end.iter().all(|e| e.0 == end[0].0);
        if one_pair(a) && one_pair(b) {
            for (_, port, flow_label) in a.iter().chain(b) {
                let expected = flow::connected_source_port(*flow_label, a[0].0, b[0].0);
                assert_eq!(*port, expected, "{name}");
                connected += 1;
            }
        }
    }
    assert!(datagrams > 30 && connected > 1000, "{datagrams} datagrams, {connected} connected");
}

/// A connection that the kernel's rdma_cm makes has the flow label of its REQ, which IPv4 headers
/// do not show but the source port does.
#[test]
fn a_connection_has_the_source_port_of_its_request() {
    for (name, connections) in [("cm-rping.pcap", 1), ("cm-ucmatose-tos.pcap", 2)] {
        let (mut from_requests, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for bytes in pcap::frames(name) {
            let frame = parse_frame(&bytes).expect("a frame");
            let packet = frame.packet().expect("right").expect("RoCE");
            if packet.ext.deth.is_none() {
                ports.insert(packet.path.source_port);
            } else if let Ok(Mad { message: CmMessage::Req(req), .. }) = Mad::parse(packet.payload)
            {
                assert_ne!(req.primary.flow_label, 0);
                let zero = Qpn::default();
                let port = flow::connected_source_port(req.primary.flow_label, zero, zero);
                from_requests.insert(port);
            }
        }
        assert_eq!(ports, from_requests, "{name}");
        assert_eq!(ports.len(), connections, "{name}");
    }
}

/// An independent program reads every packet as we do: each header field, the payload's length and
/// the verdict on the ICRC.
#[test]
fn an_independent_program_agrees_on_every_field() {
    let script = pcap::directory().join("check_icrc.py");
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED an_independent_program_agrees_on_every_field: no python3");
        return;
    }
    let files = pcap::names().into_iter().map(|name| pcap::directory().join(name));
    let output = Command::new("python3")
        .arg(&script)
        .arg("-v")
        .args(files)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3");
    let text = String::from_utf8(output.stdout).expect("text");
    let frames: Vec<_> = pcap::names().iter().flat_map(|name| pcap::frames(name)).collect();
    assert_eq!(text.lines().count(), frames.len());
    for (line, bytes) in text.lines().zip(&frames) {
        let frame = parse_frame(bytes).expect("a frame");
        let Body::Roce(roce) = &frame.body else {
            assert!(line.contains("not RoCEv2"), "{line}");
            continue;
        };
        // Number and time in front are the file's, not the packet's.
        let theirs = line.splitn(3, ' ').nth(2).expect("three parts");
        if let Some(ours) = describe(&frame, roce) {
            assert_eq!(ours, theirs);
        }
    }
}

/// The same line that the independent program writes; `None` for a packet that we do not read.
fn describe(frame: &Frame<'_>, roce: &Roce<'_>) -> Option<String> {
    let Content::Transport { bth, payload, .. } = roce.content else { return None };
    let Network::Udp { ip, udp } = &roce.network else { return None };
    let path = roce.network.path(&frame.ethernet);
    let (source, destination, network) = match ip {
        Ip::V4(ip) => {
            let network = format!("id={} df={}", ip.ident, u8::from(ip.dont_fragment));
            (ip.source.to_string(), ip.destination.to_string(), network)
        }
        Ip::V6(ip) => {
            let groups = |segments: [u16; 8]| segments.map(|s| format!("{s:x}")).join(":");
            let network = format!("flow={:#x}", ip.flow_label);
            (groups(ip.source.segments()), groups(ip.destination.segments()), network)
        }
    };
    let vlan = frame.ethernet.tags[0].map_or(String::new(), |tag| format!("vlan={} ", tag.vlan()));
    let checksum = udp.checksum.map_or(0, |check| check.value(0));
    let mark = |set: bool, text: &'static str| if set { text } else { "" };
    let Bth { opcode, dest_qp, psn, pkey, .. } = bth;
    Some(format!(
        "{source}:{}>{destination} tos={:#x} ttl={} {network} {vlan}uck={checksum:#06x} {} \
         qp={:#x} psn={:#08x}{}{} mig={} pad={} pkey={:#x} resv8a={:#x} len={} {} icrc={}",
        path.source_port,
        path.traffic_class,
        path.hop_limit,
        opcode_name(opcode.0),
        dest_qp.get(),
        psn.get(),
        mark(bth.ack_request, " A"),
        mark(bth.solicited, " SE"),
        u8::from(bth.migration),
        transport::pad_len(payload.len()),
        pkey.get(),
        u8::from(bth.fecn) << 7 | u8::from(bth.becn) << 6,
        payload.len() + unread_by_the_program(opcode),
        extensions(&roce.content),
        if roce.icrc.is_right() { "ok" } else { "BAD" },
    ))
}

/// Bytes of headers that the independent program counts as payload: it does not read those of
/// FLUSH.
fn unread_by_the_program(opcode: Opcode) -> usize {
    if opcode.0 & 0x1F == 0x1C { 20 } else { 0 }
}

fn extensions(content: &Content<'_>) -> String {
    let Content::Transport { bth, ext, .. } = content else { return String::new() };
    let mut parts = Vec::new();
    if let Some(Deth { qkey, source_qp }) = ext.deth {
        parts.push(format!("DETH qkey={:#x} sqp={:#x}", qkey.get(), source_qp.get()));
    }
    if let Some(Reth { va, rkey, length }) =
        ext.reth.filter(|_| unread_by_the_program(bth.opcode) == 0)
    {
        parts.push(format!("RETH va={va:#x} rkey={:#x} len={length}", rkey.get()));
    }
    if let Some(AtomicEth { va, rkey, swap_add, compare }) = ext.atomic {
        parts.push(format!(
            "AtomicETH va={va:#x} rkey={:#x} swap/add={swap_add:#x} cmp={compare:#x}",
            rkey.get()
        ));
    }
    if let Some(Aeth { syndrome, msn }) = ext.aeth {
        let text = match syndrome {
            Syndrome::Ack(credits) => format!("ack credits={credits}"),
            Syndrome::RnrNak(timer) => {
                let ms = aeth::rnr_timer(timer).as_ps() as f64 / 1e9;
                format!("rnr-nak timer={timer}({ms:.2}ms)")
            }
            Syndrome::Nak(code) => format!("nak {}", nak_name(code)),
            Syndrome::Reserved(_) => "reserved".to_owned(),
        };
        let byte = syndrome.to_byte();
        parts.push(format!("AETH syndrome={byte:#04x} ({text}) msn={}", msn.get()));
    }
    if let Some(original) = ext.atomic_ack {
        parts.push(format!("orig={original:#x}"));
    }
    if let Some(imm) = ext.imm {
        parts.push(format!("Imm={:#010x}", u32::from_be_bytes(imm)));
    }
    if let Some(rkey) = ext.invalidate {
        parts.push(format!("IETH rkey={:#x}", rkey.get()));
    }
    parts.join(" ")
}

fn nak_name(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequenceError => "psn-sequence-error",
        NakCode::InvalidRequest => "invalid-request",
        NakCode::RemoteAccessError => "remote-access-error",
        NakCode::RemoteOperationalError => "remote-operational-error",
        NakCode::InvalidRdRequest => "invalid-rd-request",
    }
}

fn opcode(content: &Content<'_>) -> u8 {
    match content {
        Content::Transport { bth, .. } => bth.opcode.0,
        Content::Refused { bytes, .. } => bytes[0],
    }
}

/// The manifest's name of an opcode, from its own table.
fn opcode_name(opcode: u8) -> String {
    const NAMES: [&str; 24] = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_LAST",
        "SEND_LAST_IMM",
        "SEND_ONLY",
        "SEND_ONLY_IMM",
        "WRITE_FIRST",
        "WRITE_MIDDLE",
        "WRITE_LAST",
        "WRITE_LAST_IMM",
        "WRITE_ONLY",
        "WRITE_ONLY_IMM",
        "READ_REQUEST",
        "READ_RESP_FIRST",
        "READ_RESP_MIDDLE",
        "READ_RESP_LAST",
        "READ_RESP_ONLY",
        "ACK",
        "ATOMIC_ACK",
        "CMP_SWAP",
        "FETCH_ADD",
        "RESYNC",
        "SEND_LAST_INV",
        "SEND_ONLY_INV",
    ];
    let service = match opcode >> 5 {
        0 => "RC",
        1 => "UC",
        3 => "UD",
        5 => "XRC",
        _ => return format!("OP_{opcode:02x}"),
    };
    match opcode & 0x1F {
        0x1C => format!("{service}_FLUSH"),
        0x1D => format!("{service}_ATOMIC_WRITE"),
        low => NAMES.get(usize::from(low)).map_or_else(
            || format!("OP_{opcode:02x}"),
            |operation| format!("{service}_{operation}"),
        ),
    }
}
