//! The auditor: takes events in the order of the capture, counts them and hands each to its judges.

use wire::Opcode;

use crate::event::{Event, Icrc, Packet, What};
use crate::finding::Findings;
use crate::report::{Capture, Report, Totals};
use crate::talk::{Remark, Talks};
use crate::{connect, fabric, integrity};

/// What an audit is asked to do.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// ECN is wanted even if nothing in the capture speaks of it.
    pub expect_ecn: bool,
    /// Speed of the links in Gb/s, if it is known: pauses are told in bit times.
    pub link_gbps: Option<u32>,
    /// Conversations that the report lists at most; 0 is all.
    pub conversations: usize,
}

/// An audit that goes on.
#[derive(Debug)]
pub struct Auditor {
    options: Options,
    totals: Totals,
    findings: Findings,
    talks: Talks,
    integrity: integrity::Judge,
    connections: connect::Judge,
    pauses: fabric::pause::Judge,
    dcbx: fabric::dcbx::Judge,
    ecn: fabric::ecn::Judge,
    paths: fabric::path::Judge,
}

impl Auditor {
    /// An audit of nothing yet.
    pub fn new(options: Options) -> Self {
        Self {
            totals: Totals::default(),
            findings: Findings::default(),
            talks: Talks::default(),
            integrity: integrity::Judge::default(),
            connections: connect::Judge::default(),
            pauses: fabric::pause::Judge::new(options.link_gbps),
            dcbx: fabric::dcbx::Judge::default(),
            ecn: fabric::ecn::Judge::new(options.expect_ecn),
            paths: fabric::path::Judge::default(),
            options,
        }
    }

    /// The findings so far; also the place to [listen](Findings::listen).
    pub fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    /// Takes an event and tells what a packet is in its conversation. Events come in the order of
    /// their times.
    pub fn see(&mut self, event: &Event) -> Option<Remark> {
        match &event.what {
            What::Packet(packet) => return self.packet(event, packet),
            What::Refused { .. } => {
                self.totals.refused += 1;
                self.integrity.refused(event, &self.talks, &mut self.findings);
            }
            What::Damaged { .. } => {
                self.totals.damaged += 1;
                self.integrity.damaged(event, &mut self.findings);
            }
            What::Pause(control) => {
                self.totals.pauses += 1;
                self.pauses.pause(event, control, &mut self.findings);
                self.ecn.pause(event, control);
            }
            What::Lldp(bytes) => {
                self.totals.lldp += 1;
                if let Some(speaker) = self.dcbx.lldp(event, bytes, &mut self.findings) {
                    self.pauses.neighbour(event, &speaker);
                }
            }
            What::Other => self.totals.other += 1,
            What::Unread => self.totals.unread += 1,
        }
        None
    }

    fn packet(&mut self, event: &Event, packet: &Packet) -> Option<Remark> {
        self.totals.packets += 1;
        self.totals.bytes += u64::from(event.len);
        self.totals.trains += u64::from(event.part == 1);
        self.totals.cnp += u64::from(packet.bth.opcode == Opcode::CNP);
        self.totals.ce += u64::from(packet.path.traffic_class & 3 == 3);
        let trusted = self.integrity.packet(event, packet, &self.talks, &mut self.findings);
        match packet.icrc {
            Icrc::Right => self.totals.icrc_right += 1,
            Icrc::Wrong(_) if !trusted => self.totals.icrc_wrong += 1,
            Icrc::Wrong(_) | Icrc::Cut => self.totals.icrc_untold += 1,
        }
        if !trusted {
            // Its receiver drops it; its headers cannot be trusted.
            self.talks.damaged(event, packet);
            return None;
        }
        let half = self.talks.half(event, packet);
        if let Some(gone) = self.talks.gone(&mut self.findings) {
            self.paths.forgotten(&gone, &mut self.findings);
            self.ecn.forgotten(&gone, &mut self.findings);
        }
        self.paths.packet(event, packet, half, &mut self.talks, &mut self.findings);
        self.ecn.packet(event, packet, half, &mut self.talks, &mut self.findings);
        self.pauses.packet(event, packet, &mut self.findings);
        self.connections.packet(event, packet, half, &mut self.talks, &mut self.findings);
        Some(self.talks.packet(event, packet, half, &self.pauses, &mut self.findings))
    }

    /// The end of the captures: what can only be told now is added, and the result given.
    pub fn finish(mut self, captures: Vec<Capture>) -> Report {
        self.integrity.finish(&captures, &mut self.findings);
        self.connections.finish(&self.talks, &mut self.findings);
        self.pauses.finish(&self.talks, &mut self.findings);
        self.dcbx.finish(&mut self.findings);
        self.paths.finish(&mut self.talks, &mut self.findings);
        self.ecn.finish(&mut self.talks, &mut self.findings);
        self.talks.finish(&mut self.findings);
        self.report(captures)
    }

    /// The result so far, for a view that refreshes; what only the end can tell is not in it.
    pub fn report(&self, captures: Vec<Capture>) -> Report {
        let (conversations, conversations_seen) = self.talks.report(self.options.conversations);
        Report {
            captures,
            totals: self.totals,
            conversations,
            conversations_seen,
            links: self.pauses.report(),
            connections: self.connections.report(),
            findings: self.findings.sorted(),
        }
    }
}
