//! Responder: what is dropped in silence, and the checks of a request in their order, each with its
//! answer.

use engine::{
    Access, AsyncEvent, BindWindow, QpState, RecvRequest, RegionAttr, SendOp, Sge, WindowType,
};
use wire::{LKey, Opcode, Operation, PKey, Qpn, RKey, Service};

use crate::pair::bench::{BUFFERS, Bench, Made, PEER_QP, REGION, REGION_LEN};
use crate::pair::setup;

const NO_KEY: RKey = RKey::new(0x12_3456);

fn send(b: &Bench, psn: u32) -> Made {
    b.packet(Operation::SendOnly, psn).data(16).ack()
}

#[test]
fn what_is_not_for_the_queue_pair_is_dropped_in_silence_under_its_counter() {
    type Change = fn(&mut Made);
    let cases: [(&str, Change); 9] = [
        ("rx_unknown_qp", |m| m.0.bth.dest_qp = Qpn::new(0x3_4567)),
        ("rx_unknown_qp", |m| m.0.bth.dest_qp = Qpn::new(0)),
        ("rx_wrong_address", |m| m.0.path.source = setup::gid(7)),
        ("rx_wrong_address", |m| m.0.path.destination = setup::gid6(0)),
        ("rx_wrong_pkey", |m| m.0.bth.pkey = PKey::new(0x1234)),
        ("rx_wrong_opcode", |m| m.0.bth.opcode = Opcode::new(Service::Uc, Operation::SendOnly)),
        ("rx_wrong_opcode", |m| m.0.bth.opcode = Opcode::new(Service::Ud, Operation::SendOnly)),
        ("rx_wrong_opcode", |m| m.0.bth.opcode = Opcode(0x1F)),
        ("rp_cnp_ignored", |m| m.0.bth.opcode = Opcode(0x81)),
    ];
    for (counter, change) in cases {
        let mut b = Bench::rc();
        b.recv(1, 64);
        let mut made = send(&b, 200);
        change(&mut made);
        assert!(b.answer(made).is_empty(), "{counter}");
        assert_eq!(b.counter(counter), 1, "{counter}");
        assert!(b.events().is_empty());
        // As if it had never come.
        assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    }
}

#[test]
fn a_queue_pair_below_rtr_or_in_error_does_not_answer() {
    for state in [QpState::Reset, QpState::Init] {
        let mut b = Bench::with(|o| o.state = state);
        assert!(b.answer(send(&b, 200)).is_empty());
        assert_eq!(b.counter("rx_wrong_state"), 1);
        assert!(b.events().is_empty());
    }
    let mut b = Bench::rc();
    b.modify(QpState::Err);
    assert!(b.answer(send(&b, 200)).is_empty());
    assert_eq!(b.counter("rx_wrong_state"), 1);
}

#[test]
fn the_source_port_is_not_checked() {
    let mut b = Bench::rc();
    b.recv(1, 64);
    let mut made = send(&b, 200);
    made.0.path.source_port = 17;
    assert_eq!(b.answer(made), ["Acknowledge 200 ack msn=1"]);
}

/// A refusal with its answer and its event, and the queue pair in the error state.
fn refused(b: &mut Bench, made: Made, nak: &str, event: Option<AsyncEvent>, what: &str) {
    let psn = made.0.bth.psn.get();
    let lines = b.answer(made);
    assert_eq!(lines.len(), 1, "{what}: {lines:?}");
    assert!(lines[0].starts_with(&format!("Acknowledge {psn} nak({nak})")), "{what}: {lines:?}");
    let events: Vec<_> = event.into_iter().collect();
    assert_eq!(b.events(), events, "{what}");
    assert_eq!(b.state(), QpState::Err, "{what}");
}

#[test]
fn opcodes_out_of_sequence_are_invalid_requests() {
    use Operation::*;
    let begun = [None, Some(SendFirst), Some(WriteFirst)];
    for first in begun {
        for operation in [
            SendFirst,
            SendMiddle,
            SendLast,
            SendOnly,
            SendLastImm,
            WriteFirst,
            WriteMiddle,
            WriteLast,
            WriteOnly,
            WriteOnlyImm,
            ReadRequest,
            FetchAdd,
            CompareSwap,
        ] {
            let begins =
                matches!(operation.position(), wire::Position::First | wire::Position::Only);
            let right = match first {
                None => begins,
                Some(SendFirst) => operation.is_send() && !begins,
                _ => operation.is_write() && !begins,
            };
            if right {
                continue;
            }
            let mut b = Bench::rc();
            b.recv(1, 8192);
            let mut psn = 200;
            if let Some(first) = first {
                let mut made = b.packet(first, psn).data(1024);
                if first == WriteFirst {
                    made = made.reth(REGION, b.region.rkey, 4096);
                }
                assert!(b.answer(made).is_empty());
                psn += 1;
            }
            let mut made = match operation {
                FetchAdd | CompareSwap => b.atomic(operation, psn, REGION, 1, 0),
                ReadRequest => b.rdma(operation, psn, REGION, 1024),
                WriteFirst => b.rdma(operation, psn, REGION, 4096),
                WriteOnly | WriteOnlyImm => b.rdma(operation, psn, REGION, 1024),
                _ => b.packet(operation, psn),
            };
            if operation.is_send() || operation.is_write() {
                made = made.data(1024);
            }
            if matches!(operation, SendLastImm | WriteOnlyImm) {
                made = made.imm(1);
            }
            let what = format!("{operation:?} after {first:?}");
            let event = Some(AsyncEvent::QpReqErr(b.qp));
            refused(&mut b, made.ack(), "InvalidRequest", event, &what);
            assert_eq!(b.host.device.memory().atomics.len(), 0);
        }
    }
}

#[test]
fn operations_need_the_right_of_the_queue_pair() {
    for (operation, right) in [
        (Operation::WriteOnly, Access::REMOTE_WRITE),
        (Operation::WriteOnlyImm, Access::REMOTE_WRITE),
        (Operation::ReadRequest, Access::REMOTE_READ),
        (Operation::FetchAdd, Access::REMOTE_ATOMIC),
        (Operation::CompareSwap, Access::REMOTE_ATOMIC),
    ] {
        for allowed in [true, false] {
            let access = if allowed { right } else { setup::REMOTE.difference(right) };
            let mut b = Bench::with(|o| o.attr.access = access);
            b.recv(1, 64);
            let mut made = match operation {
                Operation::FetchAdd | Operation::CompareSwap => {
                    b.atomic(operation, 200, REGION, 0, 0)
                }
                _ => b.rdma(operation, 200, REGION, 8).ack(),
            };
            if operation.is_write() {
                made = made.data(8);
            }
            if operation == Operation::WriteOnlyImm {
                made = made.imm(1);
            }
            if allowed {
                let lines = b.answer(made);
                assert!(lines[0].contains(" ack "), "{operation:?}: {lines:?}");
            } else {
                let event = Some(AsyncEvent::QpReqErr(b.qp));
                refused(&mut b, made, "InvalidRequest", event, &format!("{operation:?}"));
                assert_eq!(b.receives(), ["1 WrFlushErr"]);
            }
        }
    }
}

#[test]
fn more_reads_and_atomics_at_once_than_agreed_are_an_invalid_request() {
    let mut b = Bench::with(|o| o.attr.max_dest_rd_atomic = 2);
    for psn in [200, 201] {
        b.inject(b.rdma(Operation::ReadRequest, psn, REGION, 8).ack());
    }
    b.inject(b.rdma(Operation::ReadRequest, 202, REGION, 8).ack());
    assert_eq!(b.state(), QpState::Err);
    assert_eq!(b.events(), [AsyncEvent::QpReqErr(b.qp)]);
    let lines = b.lines();
    assert_eq!(lines.last().map(String::as_str), Some("Acknowledge 202 nak(InvalidRequest) msn=2"));

    // One after the other there may be any number.
    let mut b = Bench::with(|o| o.attr.max_dest_rd_atomic = 1);
    for psn in 200..220 {
        let made = if psn % 2 == 0 {
            b.rdma(Operation::ReadRequest, psn, REGION, 8).ack()
        } else {
            b.atomic(Operation::FetchAdd, psn, REGION, 1, 0)
        };
        assert_eq!(b.answer(made).len(), 1);
    }
    // And where none are agreed, none.
    let mut b = Bench::with(|o| o.attr.max_dest_rd_atomic = 0);
    let made = b.rdma(Operation::ReadRequest, 200, REGION, 8).ack();
    let event = Some(AsyncEvent::QpReqErr(b.qp));
    refused(&mut b, made, "InvalidRequest", event, "depth 0");
}

#[test]
fn lengths_must_fit_the_mtu_and_the_reth() {
    use Operation::*;
    // Operation, length in the RETH (WRITEs), bytes in the packet.
    for (operation, length, bytes) in [
        (SendFirst, 0, 1023),
        (SendFirst, 0, 0),
        (SendOnly, 0, 1025),
        (WriteOnly, 8, 7),
        (WriteOnly, 8, 9),
        (WriteOnly, 0, 1),
        (WriteOnly, 1, 0),
        (WriteFirst, 1024, 1024),
        (WriteFirst, 500, 1024),
        (WriteFirst, 4096, 1000),
        (WriteFirst, (1 << 31) + 1, 1024),
        (WriteFirst, u32::MAX, 1024),
        (ReadRequest, (1 << 31) + 1, 0),
        (ReadRequest, u32::MAX, 0),
    ] {
        let mut b = Bench::rc();
        b.recv(1, 4096);
        let mut made = b.packet(operation, 200).data(bytes).ack();
        if !operation.is_send() {
            made = made.reth(REGION, b.region.rkey, length);
        }
        let event = Some(AsyncEvent::QpReqErr(b.qp));
        let what = format!("{operation:?} {length} {bytes}");
        refused(&mut b, made, "InvalidRequest", event, &what);
        assert_eq!(b.host.device.memory().written, 0, "{what}");
    }
}

#[test]
fn middle_and_last_packets_must_fit_the_message() {
    use Operation::*;
    for (operation, bytes) in [
        (WriteMiddle, 1023),
        (WriteMiddle, 1025),
        (WriteLast, 0),
        (WriteLast, 975),
        (WriteLast, 977),
        (SendMiddle, 1000),
        (SendLast, 0),
        (SendLast, 1025),
    ] {
        let mut b = Bench::rc();
        b.recv(1, 8192);
        let first = if operation.is_send() {
            b.packet(SendFirst, 200)
        } else {
            b.rdma(WriteFirst, 200, REGION, 2000)
        };
        b.inject(first.data(1024));
        let made = b.packet(operation, 201).data(bytes).ack();
        let event = Some(AsyncEvent::QpReqErr(b.qp));
        refused(&mut b, made, "InvalidRequest", event, &format!("{operation:?} {bytes}"));
    }
    // A WRITE that goes on beyond what it has announced.
    let mut b = Bench::rc();
    b.inject(b.rdma(WriteFirst, 200, REGION, 2048).data(1024));
    let made = b.packet(WriteMiddle, 201).data(1024).ack();
    let event = Some(AsyncEvent::QpReqErr(b.qp));
    refused(&mut b, made, "InvalidRequest", event, "a middle packet in the last one's place");
}

#[test]
fn keys_domains_rights_and_bounds_are_checked_for_the_whole_length_at_the_first_packet() {
    type Make = fn(&mut Bench) -> Made;
    let read_only: Make = |b| {
        let pd = b.pd;
        let keys = b.host.register(pd, REGION, 4096, Access::REMOTE_READ);
        b.rdma(Operation::WriteOnly, 200, REGION, 8).rkey(keys.rkey).data(8)
    };
    let other_domain: Make = |b| {
        let pd = b.host.device.alloc_pd().expect("a domain");
        let access = Access::LOCAL_WRITE | setup::REMOTE;
        let keys = b.host.register(pd, REGION, 4096, access);
        b.rdma(Operation::WriteOnly, 200, REGION, 8).rkey(keys.rkey).data(8)
    };
    let write_only: Make = |b| {
        let pd = b.pd;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let keys = b.host.register(pd, REGION, 4096, access);
        b.rdma(Operation::ReadRequest, 200, REGION, 8).rkey(keys.rkey)
    };
    let no_atomic: Make = |b| {
        let pd = b.pd;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let keys = b.host.register(pd, REGION, 4096, access);
        b.atomic(Operation::FetchAdd, 200, REGION, 1, 0).rkey(keys.rkey)
    };
    let gone: Make = |b| {
        b.host.device.dereg_mr(b.region.id).expect("a region");
        b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8)
    };
    let low_bits: Make = |b| {
        let key = RKey::new(b.region.rkey.get() ^ 1);
        b.rdma(Operation::WriteOnly, 200, REGION, 8).rkey(key).data(8)
    };
    let local_key: Make = |b| {
        let key = RKey::new(b.region.lkey.get());
        b.rdma(Operation::WriteOnly, 200, REGION, 8).rkey(key).data(8)
    };
    let makes: [Make; 14] = [
        |b| b.rdma(Operation::WriteOnly, 200, REGION, 8).rkey(NO_KEY).data(8),
        |b| b.rdma(Operation::WriteOnly, 200, REGION - 1, 8).data(8),
        |b| b.rdma(Operation::WriteOnly, 200, REGION + REGION_LEN - 7, 8).data(8),
        |b| b.rdma(Operation::WriteOnly, 200, 0, 8).data(8),
        // The first packet alone would fit.
        |b| b.rdma(Operation::WriteFirst, 200, REGION + REGION_LEN - 2048, 2049).data(1024),
        |b| b.rdma(Operation::ReadRequest, 200, REGION + REGION_LEN - 2048, 2049),
        |b| b.atomic(Operation::FetchAdd, 200, REGION + REGION_LEN, 1, 0),
        read_only,
        other_domain,
        write_only,
        no_atomic,
        gone,
        low_bits,
        local_key,
    ];
    for (index, make) in makes.into_iter().enumerate() {
        let mut b = Bench::rc();
        let made = make(&mut b).ack();
        let event = Some(AsyncEvent::QpAccessErr(b.qp));
        refused(&mut b, made, "RemoteAccessError", event, &format!("case {index}"));
        assert_eq!(b.counter("resp_remote_access_errors"), 1);
        assert_eq!(b.host.device.memory().written, 0);
    }
}

#[test]
fn ranges_up_to_the_last_byte_are_granted() {
    let mut b = Bench::rc();
    let made = b.rdma(Operation::WriteOnly, 200, REGION + REGION_LEN - 8, 8).data(8).ack();
    assert_eq!(b.answer(made), ["Acknowledge 200 ack msn=1"]);
    let made = b.rdma(Operation::ReadRequest, 201, REGION + REGION_LEN - 1, 1).ack();
    assert_eq!(b.answer(made), ["ReadResponseOnly 201 ack msn=2 1B"]);
    let made = b.atomic(Operation::FetchAdd, 202, REGION, 1, 0);
    assert_eq!(b.answer(made), ["AtomicAcknowledge 202 ack msn=3 old=0"]);
}

#[test]
fn an_atomic_not_on_eight_bytes_is_an_invalid_request() {
    for (offset, iova) in [(1, REGION), (4, REGION), (4, REGION + 4), (0, REGION + 4)] {
        let mut b = Bench::rc();
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let attr = RegionAttr { pd: b.pd, addr: REGION, length: 4096, iova, access };
        let keys = b.host.device.reg_mr(&attr).expect("a registration");
        // Either the address named or the memory behind it is not aligned.
        let va = iova + offset;
        let made = b.atomic(Operation::FetchAdd, 200, va, 1, 0).rkey(keys.rkey);
        let event = Some(AsyncEvent::QpReqErr(b.qp));
        refused(&mut b, made, "InvalidRequest", event, &format!("{offset} {iova:#x}"));
        assert!(b.host.device.memory().atomics.is_empty());
    }
}

#[test]
fn zero_length_reads_and_writes_need_no_key() {
    let mut b = Bench::rc();
    b.recv(1, 0);
    let write = b.rdma(Operation::WriteOnly, 200, 0, 0).rkey(RKey::new(0)).ack();
    assert_eq!(b.answer(write), ["Acknowledge 200 ack msn=1"]);
    let read = b.rdma(Operation::ReadRequest, 201, u64::MAX, 0).rkey(NO_KEY).ack();
    assert_eq!(b.answer(read), ["ReadResponseOnly 201 ack msn=2"]);
    let imm = b.rdma(Operation::WriteOnlyImm, 202, 1, 0).rkey(NO_KEY).imm(7).ack();
    assert_eq!(b.answer(imm), ["Acknowledge 202 ack msn=3"]);
    assert_eq!(b.receives(), ["1 RecvRdmaWithImm 0B imm=7"]);
    // But the right of the queue pair.
    let mut b = Bench::with(|o| o.attr.access = Access::REMOTE_WRITE);
    let read = b.rdma(Operation::ReadRequest, 200, 0, 0).ack();
    assert_eq!(b.answer(read), ["Acknowledge 200 nak(InvalidRequest) msn=0"]);
}

#[test]
fn a_message_longer_than_its_receive_request_ends_the_connection() {
    let mut b = Bench::rc();
    b.recv(1, 15);
    b.recv(2, 64);
    let made = send(&b, 200);
    // The completion tells it; no event.
    refused(&mut b, made, "InvalidRequest", None, "a SEND of one packet");
    assert_eq!(b.receives(), ["1 LocLenErr", "2 WrFlushErr"]);
    assert_eq!(b.counter("resp_local_length_error"), 1);

    let mut b = Bench::rc();
    b.recv(1, 1500);
    b.inject(b.packet(Operation::SendFirst, 200).data(1024));
    let made = b.packet(Operation::SendLast, 201).data(477).ack();
    refused(&mut b, made, "InvalidRequest", None, "a SEND of two packets");
    assert_eq!(b.receives(), ["1 LocLenErr"]);

    let mut b = Bench::rc();
    b.recv(1, 16);
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 ack msn=1"]);
    assert_eq!(b.receives(), ["1 Recv 16B"]);
}

#[test]
fn an_unusable_receive_entry_ends_the_connection() {
    let read_only = |b: &mut Bench| {
        let pd = b.pd;
        b.host.register(pd, REGION, 4096, Access::REMOTE_READ).lkey
    };
    for case in 0..3 {
        let mut b = Bench::rc();
        let lkey = if case == 0 { read_only(&mut b) } else { b.region.lkey };
        let bad = match case {
            0 => Sge { addr: REGION, length: 8, lkey },
            1 => Sge { addr: REGION, length: 8, lkey: LKey::new(lkey.get() ^ 1) },
            _ => Sge { addr: REGION + REGION_LEN - 7, length: 8, lkey },
        };
        let good = Sge { addr: BUFFERS, length: 8, lkey: b.region.lkey };
        let (now, qp) = (b.now, b.qp);
        let sges = [good, bad];
        b.host.device.post_recv(now, qp, &RecvRequest { wr_id: 1, sges: &sges }).expect("posted");
        let made = send(&b, 200);
        refused(&mut b, made, "RemoteOperationalError", None, &format!("case {case}"));
        assert_eq!(b.receives(), ["1 LocProtErr"]);
    }
    // An entry that no byte reaches is not looked at.
    let mut b = Bench::rc();
    let good = Sge { addr: BUFFERS, length: 16, lkey: b.region.lkey };
    let bad = Sge { addr: 0, length: 16, lkey: LKey::new(5) };
    let (now, qp) = (b.now, b.qp);
    let sges = [good, bad];
    b.host.device.post_recv(now, qp, &RecvRequest { wr_id: 1, sges: &sges }).expect("posted");
    assert_eq!(b.answer(send(&b, 200)), ["Acknowledge 200 ack msn=1"]);
}

#[test]
fn memory_that_has_gone_is_an_operational_error() {
    let mut b = Bench::rc();
    b.host.device.memory().vanish(REGION..REGION + 4096);
    let made = b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8).ack();
    let event = Some(AsyncEvent::QpAccessErr(b.qp));
    refused(&mut b, made, "RemoteOperationalError", event, "a WRITE");
}

#[test]
fn the_nak_leaves_although_the_queue_pair_is_in_error_and_after_it_nothing() {
    let mut b = Bench::rc();
    b.recv(1, 64);
    b.post(5, SendOp::Send, 8);
    b.inject(b.rdma(Operation::WriteOnly, 200, REGION, 8).rkey(NO_KEY).data(8).ack());
    // Flushed at once; the NAK is still to leave, and the SEND never does.
    assert_eq!(b.sends(), ["5 WrFlushErr"]);
    assert_eq!(b.receives(), ["1 WrFlushErr"]);
    assert_eq!(b.lines(), ["Acknowledge 200 nak(RemoteAccessError) msn=0"]);
    assert!(b.answer(send(&b, 200)).is_empty());
    assert!(b.lines().is_empty());
}

#[test]
fn a_send_with_invalidate_kills_the_key_before_its_completion() {
    let mut b = Bench::rc();
    let (mw, rkey) = b.host.device.alloc_mw(b.pd, WindowType::Type2).expect("a window");
    let (lkey, access) = (b.region.lkey, Access::REMOTE_READ);
    let bind = BindWindow { mw, rkey, lkey, addr: REGION, length: 64, access };
    b.post(9, SendOp::BindWindow(bind), 0);
    assert!(b.lines().is_empty());
    let read = b.rdma(Operation::ReadRequest, 200, REGION, 8).rkey(rkey).ack();
    assert_eq!(b.answer(read).len(), 1);
    b.recv(1, 64);
    b.recv(2, 64);
    b.inject(b.packet(Operation::SendOnlyInvalidate, 201).invalidate(rkey).data(8).ack());
    assert_eq!(b.receives(), [format!("1 Recv 8B inv={rkey}")]);
    b.lines();
    let read = b.rdma(Operation::ReadRequest, 202, REGION, 8).rkey(rkey).ack();
    let event = Some(AsyncEvent::QpAccessErr(b.qp));
    refused(&mut b, read, "RemoteAccessError", event, "a killed key");

    // A region's own key is not a peer's to kill.
    for own in [true, false] {
        let mut b = Bench::rc();
        b.recv(1, 64);
        let key = if own { b.region.rkey } else { NO_KEY };
        let made = b.packet(Operation::SendOnlyInvalidate, 200).invalidate(key).data(8).ack();
        let event = Some(AsyncEvent::QpAccessErr(b.qp));
        refused(&mut b, made, "RemoteAccessError", event, "no such key to kill");
        assert_eq!(b.receives(), ["1 WrFlushErr"]);
    }
}

#[test]
fn the_solicited_bit_and_the_whole_length_reach_the_completion() {
    let mut b = Bench::rc();
    let first = b.recv(1, 64);
    b.recv(2, 0);
    b.inject(b.packet(Operation::SendOnlyImm, 200).imm(77).solicited().data(16));
    b.inject(b.rdma(Operation::WriteFirst, 201, REGION, 2000).data(1024));
    b.inject(b.packet(Operation::WriteLastImm, 202).imm(78).data(976));
    assert_eq!(b.receives(), ["1 Recv 16B imm=77 S", "2 RecvRdmaWithImm 2000B imm=78"]);
    assert_eq!(b.bytes(first, 16), crate::pair::bench::pattern(16));
}

#[test]
fn a_queue_pair_number_of_the_peer_is_not_ours() {
    let mut b = Bench::rc();
    assert!(b.answer(send(&b, 200).to(PEER_QP)).is_empty());
    assert_eq!(b.counter("rx_unknown_qp"), 1);
}
