//! What tests of the auditor share: captures of a real peer as events, and audits of events.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod connection;
pub(crate) mod exchange;

use std::path::Path;

use audit::event::{self, Event, Icrc, IcrcCause, Packet, What, WrongIcrc};
use audit::{At, Auditor, Options, Report, Time};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError};
use wire::checksum::Check;
use wire::content::Content;
use wire::frame::{Body, Network, parse_frame};
use wire::ip::Ip;
use wire::mad::Mad;

/// The frames of a capture beside the tests of `wire`, with their times in nanoseconds.
pub(crate) fn frames(name: &str) -> Vec<(u64, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut reader = LegacyPcapReader::new(1 << 20, file).expect("a capture");
    let mut frames = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::Legacy(packet) = block {
                    let us = u64::from(packet.ts_sec) * 1_000_000 + u64::from(packet.ts_usec);
                    frames.push((us * 1000, packet.data.to_vec()));
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return frames,
            Err(PcapError::Incomplete(_)) => reader.refill().expect("more of the capture"),
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    }
}

/// The event of a frame as `wire` reads it.
pub(crate) fn event(number: u64, time: u64, bytes: &[u8]) -> Event {
    let what = match parse_frame(bytes) {
        Ok(frame) => match frame.body {
            Body::Roce(roce) => {
                let path = path(&roce.network, &frame);
                let icrc = match roce.icrc {
                    Check::Right => Icrc::Right,
                    Check::Stored(_) => {
                        Icrc::Wrong(WrongIcrc { difference: 1, cause: IcrcCause::Unknown })
                    }
                };
                match roce.content {
                    Content::Transport { bth, ext, payload, .. } => What::Packet(Packet {
                        path,
                        bth,
                        ext,
                        payload_len: payload.len() as u32,
                        icrc,
                        mad: (bth.dest_qp.get() == 1)
                            .then(|| Mad::parse(payload).ok().map(Box::new))
                            .flatten(),
                    }),
                    Content::Refused { reason, bytes } => {
                        What::Refused { path, reason, head: Some((bytes[0], 0)), icrc }
                    }
                }
            }
            Body::MacControl(control) => What::Pause(control),
            Body::Opaque { .. } => What::Other,
        },
        Err(reason) => What::Damaged { path: None, reason },
    };
    Event {
        at: At { time: Time(time), file: 0, frame: number },
        part: 0,
        point: audit::Point(0),
        direction: None,
        len: bytes.len() as u32,
        macs: None,
        tag: None,
        tunnels: 0,
        what,
    }
}

fn path(network: &Network<'_>, frame: &wire::frame::Frame<'_>) -> event::Path {
    let path = network.path(&frame.ethernet);
    let (ident, dont_fragment) = match network {
        Network::Udp { ip: Ip::V4(ip), .. } => (ip.ident, ip.dont_fragment),
        _ => (0, true),
    };
    event::Path {
        encapsulation: path.encapsulation,
        source: path.source,
        destination: path.destination,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        source_port: path.source_port,
        ident,
        dont_fragment,
        udp_checksum: None,
    }
}

/// The events of a capture.
pub(crate) fn capture(name: &str) -> Vec<Event> {
    let frames = frames(name);
    frames.iter().zip(1..).map(|((time, bytes), number)| event(number, *time, bytes)).collect()
}

/// An audit of events.
pub(crate) fn audit(events: &[Event]) -> Report {
    let mut auditor = Auditor::new(Options::default());
    for event in events {
        auditor.see(event);
    }
    auditor.finish(Vec::new())
}

/// The rules that a report names, in the order of their numbers, with their counts.
pub(crate) fn codes(report: &Report) -> Vec<(&'static str, u64)> {
    let mut codes = std::collections::BTreeMap::new();
    for finding in &report.findings {
        *codes.entry(finding.rule.code()).or_insert(0) += finding.count;
    }
    codes.into_iter().collect()
}
