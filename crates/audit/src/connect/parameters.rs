//! R103: whether traffic keeps to what REQ and REP agreed on. One small state in each half; a half
//! of which nothing is known costs one comparison.

use crate::event::{Event, Packet};
use crate::finding::{Findings, Instance, Number, Side, Subject};
use crate::record::At;
use crate::rule::Rule;
use crate::talk::{Announced, Half};

/// Packets per microsecond that no queue pair sends faster: adapters make some ten of one.
const PACKETS_PER_US: u64 = 50;
/// How far the first request seen may be ahead of the agreed PSN at least (packets that the capture
/// lost).
const SLACK: u64 = 4096;

/// What a half should look like by the connection manager's word.
#[derive(Clone, Copy, Debug, Default)]
pub struct State(Option<Expected>);

#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Payload of full packets; 0 if it is not known or has been judged.
    mtu: u32,
    /// PSN of the first request, until it has been seen.
    psn: Option<u32>,
    /// The REP.
    agreed: At,
}

impl State {
    /// Of the half from a to b (`forward`) or from b to a.
    pub(crate) fn new(announced: &Announced, forward: bool) -> Self {
        let psn = if forward { announced.a_psn } else { announced.b_psn };
        let mtu = announced.mtu.unwrap_or(0);
        Self(Some(Expected { mtu, psn: Some(psn), agreed: announced.at }))
    }
}

/// What matters of an opcode here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A request that carries exactly the MTU.
    FullRequest,
    /// Another request.
    Request,
    /// A response that carries exactly the MTU.
    FullResponse,
    /// Another response, or what has no PSN of a connection.
    Other,
}

/// The shape of an opcode, from the opcode table of the architecture.
const fn shape(opcode: u8) -> Shape {
    match (opcode >> 5, opcode & 0x1F) {
        (0 | 1 | 5, 0x00 | 0x01 | 0x06 | 0x07) => Shape::FullRequest,
        (0 | 1 | 5, 0x02..=0x05 | 0x08..=0x0C | 0x13 | 0x14 | 0x16 | 0x17 | 0x1C | 0x1D) => {
            Shape::Request
        }
        (0 | 5, 0x0D | 0x0E) => Shape::FullResponse,
        _ => Shape::Other,
    }
}

/// Judges a packet of a half.
pub(super) fn judge(half: &mut Half, event: &Event, packet: &Packet, findings: &mut Findings) {
    let Some(expected) = &mut half.connect.0 else { return };
    if event.point != half.home {
        return;
    }
    let shape = shape(packet.bth.opcode.0);
    let subject = Subject::Flow(half.flow);
    let side = Side::Host(half.flow.source);
    if matches!(shape, Shape::FullRequest | Shape::Request)
        && let Some(agreed) = expected.psn.take()
    {
        let psn = packet.bth.psn.get();
        let ahead = u64::from(psn.wrapping_sub(agreed) & 0xFF_FFFF);
        let elapsed_us = event.at.time.since(expected.agreed.time) / 1000;
        let possible = SLACK.saturating_add(elapsed_us.saturating_mul(PACKETS_PER_US));
        if ahead > possible {
            let at = [event.at, expected.agreed];
            let numbers = [
                Number::last("agreed_psn", f64::from(agreed)),
                Number::last("first_psn", f64::from(psn)),
            ];
            let rule = Rule::CmParameters;
            findings.add(Instance { rule, subject, side, at: &at, numbers: &numbers }, || {
                format!(
                    "the first request has PSN {psn:#08x}, but {agreed:#08x} was agreed in {}",
                    expected.agreed
                )
            });
        }
    }
    let full = matches!(shape, Shape::FullRequest | Shape::FullResponse);
    if full && expected.mtu != 0 && packet.payload_len != expected.mtu {
        let at = [event.at, expected.agreed];
        let numbers = [
            Number::last("agreed_mtu_bytes", f64::from(expected.mtu)),
            Number::max("packet_payload_bytes", f64::from(packet.payload_len)),
        ];
        let rule = Rule::CmParameters;
        findings.add(Instance { rule, subject, side, at: &at, numbers: &numbers }, || {
            format!(
                "full packets carry {} bytes, but a path MTU of {} was agreed in {}",
                packet.payload_len, expected.mtu, expected.agreed
            )
        });
    }
}
