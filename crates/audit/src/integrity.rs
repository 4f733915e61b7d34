//! Whether packets are whole: ICRCs and what explains wrong ones, headers that receivers refuse,
//! checksums, fragments, damaged captures.

use crate::event::{Event, Icrc, Packet};
use crate::finding::{Findings, Flow, Instance, Side, Subject};
use crate::report::Capture;
use crate::rule::Rule;

/// Judges packets one by one.
#[derive(Debug, Default)]
pub struct Judge {}

impl Judge {
    /// A packet whose headers make sense.
    pub fn packet(&mut self, event: &Event, packet: &Packet, findings: &mut Findings) {
        let Icrc::Wrong(wrong) = packet.icrc else { return };
        let flow = Flow {
            source: packet.path.source,
            destination: packet.path.destination,
            qp: packet.bth.dest_qp.get(),
        };
        let instance = Instance {
            rule: Rule::BadIcrc,
            subject: Subject::Flow(flow),
            side: Side::Unknown,
            at: &[event.at],
            numbers: &[],
        };
        findings.add(instance, || format!("off by {:#010x}", wrong.difference));
    }

    /// A packet whose transport headers a receiver refuses.
    pub fn refused(&mut self, _event: &Event, _findings: &mut Findings) {}

    /// RoCE that is damaged below the transport.
    pub fn damaged(&mut self, _event: &Event, _findings: &mut Findings) {}

    /// The end of the captures.
    pub fn finish(&mut self, _captures: &[Capture], _findings: &mut Findings) {}
}
