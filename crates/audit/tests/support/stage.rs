//! A stage for tests: frames made by hand or taken from a capture are read with `wire` alone and
//! shown to an auditor. What the judges should say is for the tests.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use audit::event::{Event, Icrc, Packet, Path, What, WrongIcrc};
use audit::record::{At, Point, Time};
use audit::{Auditor, Finding, Options, Report, Rule};
use wire::checksum::Check;
use wire::content::Content;
use wire::ethernet::{Ethernet, TYPE_LLDP};
use wire::frame::{Body, Frame, Network, Roce};
use wire::ip::Ip;
use wire::mad::{CmMessage, Mad};
use wire::packet::{Bth, Deth, Encapsulation, Extensions};
use wire::{Gid, Mac, Opcode, PKey, Psn, QKey, Qpn};

/// Nanoseconds in a microsecond, millisecond and second.
pub const US: u64 = 1000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// An audit of frames that a test shows.
pub struct Stage {
    auditor: Auditor,
    frame: u64,
}

impl Stage {
    pub fn new() -> Self {
        Self { auditor: Auditor::new(Options::default()), frame: 0 }
    }

    pub fn with(options: Options) -> Self {
        Self { auditor: Auditor::new(options), frame: 0 }
    }

    /// Shows a frame, captured at `time` (nanoseconds) at a point; gives its number.
    pub fn show(&mut self, time: u64, point: u16, bytes: &[u8]) -> u64 {
        self.frame += 1;
        let at = At { time: Time(time), file: point, frame: self.frame };
        self.auditor.see(&event(at, Point(point), bytes));
        self.frame
    }

    /// Shows a capture of `wire`'s tests, each frame as `edit` leaves it.
    pub fn replay(&mut self, name: &str, mut edit: impl FnMut(Taken) -> Option<Taken>) {
        for taken in capture(name) {
            if let Some(taken) = edit(taken) {
                self.show(taken.time, 0, &taken.bytes);
            }
        }
    }

    pub fn finish(self) -> Report {
        self.auditor.finish(Vec::new())
    }
}

/// A frame of a capture: its number, time in nanoseconds, and bytes.
#[derive(Clone)]
pub struct Taken {
    pub number: usize,
    pub time: u64,
    pub bytes: Vec<u8>,
}

impl Taken {
    /// The management datagram in it.
    pub fn mad(&self) -> Option<Mad> {
        let frame = wire::frame::parse_frame(&self.bytes).ok()?;
        let packet = frame.packet().ok()??;
        (packet.bth.dest_qp == Qpn::GSI).then(|| Mad::parse(packet.payload).ok())?
    }

    /// The frame with its packet changed.
    pub fn edit(mut self, change: impl FnOnce(&mut wire::Packet<Vec<u8>>)) -> Self {
        let frame = wire::frame::parse_frame(&self.bytes).expect("a frame");
        let packet = frame.packet().expect("intact").expect("a packet");
        let ethernet = frame.ethernet;
        let mut owned = wire::Packet {
            path: packet.path,
            bth: packet.bth,
            ext: packet.ext,
            payload: packet.payload.to_vec(),
        };
        change(&mut owned);
        self.bytes = encode(ethernet, &owned);
        self
    }

    /// The frame with its management datagram changed.
    pub fn edit_mad(self, change: impl FnOnce(&mut CmMessage)) -> Self {
        let mut mad = self.mad().expect("a management datagram");
        change(&mut mad.message);
        self.edit(|packet| packet.payload = mad.emit().to_vec())
    }
}

/// The frame of a packet.
pub fn encode(ethernet: Ethernet, packet: &wire::Packet<Vec<u8>>) -> Vec<u8> {
    let borrowed = wire::Packet {
        path: packet.path,
        bth: packet.bth,
        ext: packet.ext,
        payload: packet.payload.as_slice(),
    };
    let frame = Frame::new(ethernet, &borrowed).expect("a frame");
    let mut bytes = vec![0; frame.wire_len()];
    wire::frame::emit_frame(&frame, &mut bytes).expect("it is well formed");
    bytes
}

/// The names of all captures of `wire`'s tests.
pub fn capture_names() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/tests/captures");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("the captures are in the repository")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("a plain name"))
        .filter(|name| name.ends_with(".pcap"))
        .collect();
    names.sort();
    names
}

/// The frames of a capture of `wire`'s tests (little endian, microseconds or nanoseconds).
pub fn capture(name: &str) -> Vec<Taken> {
    let path = format!("{}/../wire/tests/captures/{name}", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).expect("the capture is in the repository");
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let unit = match word(0) {
        0xA1B2_C3D4 => US,
        0xA1B2_3C4D => 1,
        other => panic!("{path}: magic {other:#x}"),
    };
    let mut taken = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let time = u64::from(word(at)) * S + u64::from(word(at + 4)) * unit;
        let len = word(at + 8) as usize;
        let bytes = file[at + 16..at + 16 + len].to_vec();
        taken.push(Taken { number: taken.len() + 1, time, bytes });
        at += 16 + len;
    }
    taken
}

fn event(at: At, point: Point, bytes: &[u8]) -> Event {
    let frame = wire::frame::parse_frame(bytes);
    let len = bytes.len() as u32;
    let (macs, tag, what) = match &frame {
        Ok(frame) => {
            let ethernet = &frame.ethernet;
            let tag = ethernet.tags[0].map(|tag| (tag.priority(), tag.vlan()));
            (Some((ethernet.source, ethernet.destination)), tag, what(frame))
        }
        Err(reason) => (None, None, What::Damaged { path: None, reason: *reason }),
    };
    Event { at, part: 0, point, direction: None, len, macs, tag, tunnels: 0, what }
}

fn what(frame: &Frame<'_>) -> What {
    match &frame.body {
        Body::Roce(roce) => match roce.content {
            Content::Transport { bth, ext, payload, .. } => {
                let mad = (bth.dest_qp == Qpn::GSI).then(|| Mad::parse(payload).ok()).flatten();
                What::Packet(Packet {
                    path: path(roce, &frame.ethernet),
                    bth,
                    ext,
                    payload_len: payload.len() as u32,
                    icrc: icrc(roce),
                    mad: mad.map(Box::new),
                })
            }
            Content::Refused { reason, .. } => What::Refused {
                path: path(roce, &frame.ethernet),
                reason,
                head: None,
                icrc: icrc(roce),
            },
        },
        Body::MacControl(control) => What::Pause(*control),
        Body::Opaque { ether_type: TYPE_LLDP, bytes } => What::Lldp((*bytes).into()),
        Body::Opaque { .. } => What::Other,
    }
}

fn icrc(roce: &Roce<'_>) -> Icrc {
    match roce.icrc {
        Check::Right => Icrc::Right,
        Check::Stored(stored) => {
            Icrc::Wrong(WrongIcrc { difference: stored, cause: audit::event::IcrcCause::Unknown })
        }
    }
}

fn path(roce: &Roce<'_>, ethernet: &Ethernet) -> Path {
    let path = roce.network.path(ethernet);
    let ident = match roce.network {
        Network::Udp { ip: Ip::V4(ip), .. } => ip.ident,
        _ => 0,
    };
    Path {
        encapsulation: path.encapsulation,
        source: path.source,
        destination: path.destination,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        source_port: path.source_port,
        ident,
        dont_fragment: true,
        udp_checksum: Some(true),
    }
}

/// The IPv4 address 10.0.0.`host` as a GID.
pub fn gid(host: u8) -> Gid {
    Gid::from_ip([10, 0, 0, host].into())
}

/// The MAC address of the host with [`gid`] `host`.
pub fn mac(host: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, host])
}

/// A packet of RoCEv2 from one host to another.
pub fn packet(
    from: u8,
    to: u8,
    opcode: u8,
    qp: u32,
    psn: u32,
    len: usize,
) -> wire::Packet<Vec<u8>> {
    let opcode = Opcode(opcode);
    let headers = opcode.headers().expect("an opcode that exists");
    let mut ext = Extensions::default();
    let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
    ext.deth = headers.contains(wire::HeaderSet::DETH).then_some(deth);
    let reth = wire::Reth { va: 0, rkey: wire::RKey::new(1), length: len as u32 };
    ext.reth = headers.contains(wire::HeaderSet::RETH).then_some(reth);
    let aeth = wire::Aeth { syndrome: wire::Syndrome::Ack(31), msn: wire::Msn::new(1) };
    ext.aeth = headers.contains(wire::HeaderSet::AETH).then_some(aeth);
    wire::Packet {
        path: wire::Path {
            encapsulation: Encapsulation::RoceV2,
            source: gid(from),
            destination: gid(to),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            source_port: 0xC001,
            priority: 0,
        },
        bth: Bth {
            opcode,
            solicited: false,
            migration: true,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(qp),
            ack_request: false,
            psn: Psn::new(psn),
        },
        ext,
        payload: vec![0; len],
    }
}

/// The frame of a packet between two hosts.
pub fn frame(from: u8, to: u8, packet: &wire::Packet<Vec<u8>>) -> Vec<u8> {
    encode(Ethernet::new(mac(from), mac(to)), packet)
}

/// The frame of a message of the connection manager.
pub fn cm(from: u8, to: u8, transaction: u64, message: CmMessage) -> Vec<u8> {
    let mut packet = packet(from, to, 0x64, 1, 0, 256);
    packet.payload = Mad::new(transaction, message).emit().to_vec();
    frame(from, to, &packet)
}

/// The findings of a rule.
pub fn of(report: &Report, rule: Rule) -> Vec<&Finding> {
    report.findings.iter().filter(|finding| finding.rule == rule).collect()
}

/// How often rules with a code that begins with `family` were broken, as `R101 x2`.
pub fn found(report: &Report, family: &str) -> Vec<String> {
    let mut all: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.rule.code().starts_with(family))
        .map(|finding| format!("{} x{}", finding.rule.code(), finding.count))
        .collect();
    all.sort();
    all
}
