//! What must hold for every packet and every train that a device gives out, whatever it is doing;
//! and a packet in one line, for transcripts.

use std::fmt::Write;

use engine::{Train, TrainLimits};
use wire::{Operation, Packet, Position, Service, Syndrome};

/// Panics if a train breaks the contract of `poll_transmit`.
pub fn train(train: &Train, limits: TrainLimits) {
    let path = train.path.as_ref().expect("a train has a path");
    assert!(!train.packets.is_empty(), "an empty train");
    assert!(train.packets.len() <= limits.segments, "more packets than the link takes");
    let bytes: usize = train.packets.iter().map(engine::TxPacket::wire_len).sum();
    assert!(
        bytes <= limits.bytes || train.packets.len() == 1,
        "{bytes} bytes in a train, {} allowed",
        limits.bytes
    );
    let first = train.packets[0].wire_len();
    let (last, body) = train.packets.split_last().expect("not empty");
    assert!(body.iter().all(|p| p.wire_len() == first), "a train of unequal packets");
    assert!(last.wire_len() <= first, "the last packet of a train is longer than the first");
    assert!(train.packets.iter().all(|p| p.bth.dest_qp == last.bth.dest_qp));
    assert!(path.hop_limit > 0, "hop limit 0");
    for packet in &train.packets {
        let length: u64 = train
            .payload(packet)
            .iter()
            .map(|fragment| match *fragment {
                engine::Fragment::Memory { length, .. }
                | engine::Fragment::Inline { length, .. } => u64::from(length),
            })
            .sum();
        assert_eq!(length, u64::from(packet.length), "the fragments are not the payload");
    }
}

/// Panics if a packet could not have been sent by a correct device.
pub fn packet(packet: &Packet<Vec<u8>>, port_mtu: u32) {
    let (bth, ext) = (&packet.bth, &packet.ext);
    let headers = bth.opcode.headers().expect("a known opcode");
    let operation = bth.opcode.operation().expect("a known operation");
    assert_eq!(ext.header_set(), headers, "extension headers of {operation:?}");
    assert!(packet.payload.len() <= port_mtu as usize, "longer than the port's MTU");
    assert_eq!(bth.pkey, wire::PKey::DEFAULT);
    let service = bth.opcode.service().expect("a known service");
    let reliable = matches!(service, Service::Rc | Service::Xrc);
    if bth.ack_request {
        assert!(
            service == Service::Flow || (reliable && operation.is_request()),
            "AckReq on {service:?} {operation:?}"
        );
    }
    if reliable && (operation == Operation::ReadRequest || operation.is_atomic()) {
        let asks = bth.ack_request || !operation.is_request();
        assert!(asks, "no AckReq on {operation:?}");
    }
    if bth.solicited {
        assert!(
            (operation.is_send() || headers.contains(wire::HeaderSet::IMM)) && ends(operation),
            "solicited on {operation:?}"
        );
    }
    if let Some(reth) = ext.reth
        && operation.position() == Position::Only
        && operation.is_write()
    {
        assert_eq!(reth.length as usize, packet.payload.len(), "RETH length of {operation:?}");
    }
    assert!(packet.path.flow_label < 1 << 20 && packet.path.priority < 8);
}

fn ends(operation: Operation) -> bool {
    matches!(operation.position(), Position::Last | Position::Only)
}

/// A packet in one line: operation, PSN in decimal, then what differs from the plain case.
pub fn line(packet: &Packet<Vec<u8>>) -> String {
    let (bth, ext) = (&packet.bth, &packet.ext);
    let mut out = match bth.opcode.operation() {
        Some(operation) => format!("{operation:?} {}", bth.psn.get()),
        None => format!("{:?} {}", bth.opcode, bth.psn.get()),
    };
    let mut add = |text: String| write!(out, " {text}").expect("a string takes it");
    if bth.ack_request {
        add("A".into());
    }
    if bth.solicited {
        add("S".into());
    }
    if let Some(deth) = ext.deth {
        add(format!("qkey={:#x}", deth.qkey.get()));
    }
    if let Some(srq) = ext.xrc_srq {
        add(format!("srq={}", srq.get()));
    }
    if let Some(reth) = ext.reth {
        add(format!("va={:#x} len={}", reth.va, reth.length));
    }
    if let Some(atomic) = ext.atomic {
        add(format!("va={:#x} {}/{}", atomic.va, atomic.swap_add, atomic.compare));
    }
    if let Some(aeth) = ext.aeth {
        add(match aeth.syndrome {
            Syndrome::Ack(31) => "ack".into(),
            Syndrome::Ack(credits) => format!("ack/{credits}"),
            Syndrome::RnrNak(timer) => format!("rnr({timer})"),
            Syndrome::Nak(code) => format!("nak({code:?})"),
            Syndrome::Reserved(value) => format!("reserved({value})"),
        });
        add(format!("msn={}", aeth.msn.get()));
    }
    if let Some(original) = ext.atomic_ack {
        add(format!("old={original}"));
    }
    if let Some(imm) = ext.imm {
        add(format!("imm={}", u32::from_be_bytes(imm)));
    }
    if let Some(rkey) = ext.invalidate {
        add(format!("inv={rkey}"));
    }
    if !packet.payload.is_empty() {
        add(format!("{}B", packet.payload.len()));
    }
    out
}
