//! A witness at the port of a host: the auditor sees what the host sends and what reaches it, and
//! judges it by its own rules. Faults on the cables happen behind it.

use std::fmt;

use audit::event::{self, Icrc, What};
use audit::{At, Auditor, Event, Options, Point, Report, Time};
use wire::Instant;
use wire::packet::{Bth, Extensions, Path};

/// Rules that only say what the network did, that receives were posted late, or (R062) that the
/// engine is no notification point of congestion.
pub const OF_THE_NETWORK: &[&str] = &[
    "R020", "R021", "R022", "R023", "R024", "R025", "R026", "R027", "R028", "R050", "R051", "R062",
    "R110", "R111",
];

/// The auditor at a host's port.
pub struct Witness {
    auditor: Auditor,
    frames: u64,
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("frames", &self.frames).finish_non_exhaustive()
    }
}

impl Default for Witness {
    fn default() -> Self {
        Self { auditor: Auditor::new(Options::default()), frames: 0 }
    }
}

impl Witness {
    /// A packet that is sent or arrives.
    pub fn see(
        &mut self,
        now: Instant,
        path: &Path,
        bth: &Bth,
        ext: &Extensions,
        payload_len: usize,
    ) {
        self.frames += 1;
        let path = event::Path {
            encapsulation: path.encapsulation,
            source: path.source,
            destination: path.destination,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
            source_port: path.source_port,
            ident: 0,
            dont_fragment: true,
            udp_checksum: Some(true),
        };
        let packet = event::Packet {
            path,
            bth: *bth,
            ext: *ext,
            payload_len: payload_len as u32,
            icrc: Icrc::Right,
            mad: None,
        };
        self.auditor.see(&Event {
            at: At { time: Time(now.as_ps() / 1000), file: 0, frame: self.frames },
            part: 0,
            point: Point(0),
            direction: None,
            len: payload_len as u32 + 62,
            macs: None,
            tag: None,
            tunnels: 0,
            what: What::Packet(packet),
        });
    }

    /// What it says.
    pub fn finish(self) -> Report {
        self.auditor.finish(Vec::new())
    }
}

/// Numbers of the findings.
pub fn codes(report: &Report) -> Vec<&'static str> {
    let mut codes: Vec<_> = report.findings.iter().map(|f| f.rule.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// For a report of a failure: each finding with its frames.
pub fn tell(report: &Report) -> String {
    let lines = report.findings.iter().map(|f| {
        let frames: Vec<_> = f.sample.iter().map(|at| at.frame).collect();
        format!("{} x{} {} {frames:?}: {}\n", f.rule.code(), f.count, f.subject, f.detail)
    });
    lines.collect()
}
