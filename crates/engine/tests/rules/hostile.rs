//! Whatever arrives: no panic, no byte outside what is registered, every packet counted once;
//! P_Keys and addresses of a packet.

use engine::{Access, QpState, QpType, SendFlags, SendOp, SrqAttr, WindowType};
use proptest::prelude::*;
use wire::{
    Aeth, AtomicEth, Deth, Extensions, Msn, NakCode, Opcode, Operation, PKey, Psn, QKey, Qpn, RKey,
    Reth, Span, Syndrome,
};

use super::{counting, datagram};
use crate::pair::bench::{BUFFERS, Bench, LOCAL, Made, REGION, REGION_LEN, THERE};
use crate::pair::cable::Flying;
use crate::pair::setup::{self, QKEY};

/// Bytes before and behind the region, which nobody registers.
const GUARD: u64 = 0x1000;
const FILLING: u8 = 0xA5;

const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];
const SERVICES: [QpType; 4] = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::Gsi];

/// Counters of which a packet that is not delivered raises exactly one.
const GATES: [&str; 6] = [
    "rx_unknown_qp",
    "rx_wrong_opcode",
    "rx_wrong_address",
    "rx_wrong_state",
    "rx_wrong_pkey",
    "rp_cnp_ignored",
];

/// A bench in a state, with work of every kind under way where the state has any.
fn bench(service: QpType, state: QpState, shared: bool) -> Bench {
    let before_rts = matches!(state, QpState::Reset | QpState::Init | QpState::Rtr);
    let mut b = Bench::with(|o| {
        o.service = service;
        o.state = if before_rts { state } else { QpState::Rts };
        o.attr.timeout = 14;
        o.srq = (shared && service != QpType::Gsi).then_some(SrqAttr {
            max_wr: 64,
            max_sge: 2,
            limit: 0,
        });
    });
    for at in [REGION - GUARD, REGION + REGION_LEN] {
        b.host.device.memory().slice_mut(at, GUARD as usize).fill(FILLING);
    }
    b.host.device.alloc_mw(b.pd, WindowType::Type2).expect("room");
    if state != QpState::Reset || b.srq.is_some() {
        for wr_id in 1..6 {
            b.recv(wr_id, 3000);
        }
    }
    if !before_rts {
        work(&mut b, service);
        b.lines();
    }
    match state {
        QpState::Sqd | QpState::Err => b.modify(state),
        QpState::Sqe if service != QpType::Rc => fail_send(&mut b, service),
        _ => {}
    }
    b
}

fn work(b: &mut Bench, service: QpType) {
    let to = datagram::to_peer(b.peer);
    let ops = [
        (SendOp::Send, 3000),
        (SendOp::Read(THERE), 5000),
        (SendOp::FetchAdd { remote: THERE, add: 1 }, 8),
        (SendOp::WriteImm(THERE, [1; 4]), 2000),
        (SendOp::Read(THERE), 0),
    ];
    for (wr_id, (op, length)) in ops.into_iter().enumerate() {
        let _ = match service {
            QpType::Ud | QpType::Gsi => datagram::post(b, wr_id as u64, op, length, to),
            _ => b.post_with(wr_id as u64, op, length, SendFlags::SIGNALED),
        };
    }
}

fn fail_send(b: &mut Bench, service: QpType) {
    let region = std::mem::replace(&mut b.region.lkey, wire::LKey::new(1));
    let to = datagram::to_peer(b.peer);
    let posted = match service {
        QpType::Uc => b.post_with(9, SendOp::Send, 8, SendFlags::SIGNALED),
        _ => datagram::post(b, 9, SendOp::Send, 8, to),
    };
    posted.expect("keys are looked at later");
    b.lines();
    b.region.lkey = region;
    assert_eq!(b.state(), QpState::Sqe);
}

fn guards_hold(b: &mut Bench) {
    for at in [REGION - GUARD, REGION + REGION_LEN] {
        let bytes = b.bytes(at, GUARD as usize);
        assert!(bytes.iter().all(|byte| *byte == FILLING), "a byte beyond the region has changed");
    }
}

fn gates(b: &Bench) -> u64 {
    GATES.iter().map(|name| b.counter(name)).sum()
}

/// A field: often a value that means something, at times any.
fn near(values: Vec<u32>) -> impl Strategy<Value = u32> {
    prop_oneof![4 => prop::sample::select(values), 1 => any::<u32>()]
}

fn address() -> impl Strategy<Value = u64> {
    let end = REGION + REGION_LEN;
    let known =
        vec![REGION, REGION + 8, end - 7, end - 8, end - 1023, REGION - 1, LOCAL, BUFFERS, 0];
    let ends = vec![u64::MAX, u64::MAX - 7, 1 << 63];
    prop_oneof![
        4 => prop::sample::select(known),
        1 => prop::sample::select(ends),
        1 => any::<u64>(),
    ]
}

/// What a hostile packet consists of; keys and numbers of the device are put in when it is made.
#[derive(Clone, Debug)]
struct Hostile {
    opcode: u8,
    psn: u32,
    bits: u8,
    address: u64,
    length: u32,
    key: u32,
    own_key: bool,
    syndrome: u8,
    value: u64,
    payload: usize,
    /// Headers as the opcode has them, or any.
    headers: Option<u16>,
    /// 0: to somebody else, 1: to the group, else to the queue pair.
    dest: u8,
    pkey: u16,
    stranger: bool,
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let opcode =
        prop_oneof![8 => 0u8..0x18, 2 => 0x20u8..0x2C, 2 => 0x64u8..0x66, 1 => any::<u8>()];
    let around = |n: u32| (n - 2..n + 12).collect::<Vec<u32>>();
    let psns = [around(100), around(200), vec![0, 0xFF_FFFF, 100 + (1 << 23)]].concat();
    let lengths = vec![0, 1, 7, 8, 1023, 1024, 1025, 2048, 1 << 31, (1 << 31) + 1, u32::MAX];
    let payloads = vec![0, 1, 4, 8, 1023, 1024, 1025, 4096];
    let syndromes = vec![0x1F, 0, 5, 0x20, 0x2C, 0x40, 0x60, 0x61, 0x62, 0x63, 0x64, 0x7F];
    (
        (opcode, near(psns), any::<u8>(), address(), near(lengths), any::<u32>()),
        (any::<bool>(), prop::sample::select(syndromes), any::<u64>()),
        (
            prop::sample::select(payloads),
            prop_oneof![4 => Just(None), 1 => any::<u16>().prop_map(Some)],
            0u8..20,
            prop_oneof![9 => Just(0xFFFF), 1 => any::<u16>()],
            prop::bool::weighted(0.05),
        ),
    )
        .prop_map(|(a, b, c)| Hostile {
            opcode: a.0,
            psn: a.1,
            bits: a.2,
            address: a.3,
            length: a.4,
            key: a.5,
            own_key: b.0,
            syndrome: b.1,
            value: b.2,
            payload: c.0,
            headers: c.1,
            dest: c.2,
            pkey: c.3,
            stranger: c.4,
        })
}

impl Hostile {
    fn make(&self, b: &Bench) -> Made {
        let mut made = b.packet(Operation::SendOnly, 0);
        let p = &mut made.0;
        p.bth.opcode = Opcode(self.opcode);
        p.bth.psn = Psn::new(self.psn);
        p.bth.ack_request = self.bits & 1 != 0;
        p.bth.solicited = self.bits & 2 != 0;
        p.bth.pkey = PKey::new(self.pkey);
        p.path.traffic_class = self.bits >> 2;
        p.bth.dest_qp = match self.dest {
            0 => Qpn::new(self.key),
            1 => Qpn::MULTICAST,
            _ => b.qp,
        };
        if self.stranger {
            p.path.source = setup::gid(5);
        }
        p.ext = self.extensions(b);
        p.payload = vec![self.bits; self.payload];
        made
    }

    fn extensions(&self, b: &Bench) -> Extensions {
        use wire::HeaderSet as H;
        let set = match self.headers {
            None => Opcode(self.opcode).headers().unwrap_or(H::empty()),
            Some(bits) => H::from_bits_truncate(bits),
        };
        let rkey = if self.own_key { b.region.rkey } else { RKey::new(self.key) };
        let qkey = if self.own_key { QKEY } else { QKey::new(self.key) };
        let (va, value) = (self.address, self.value);
        let mut ext = Extensions::default();
        if set.contains(H::DETH) {
            ext.deth = Some(Deth { qkey, source_qp: Qpn::new(self.key) });
        }
        if set.contains(H::RETH) {
            ext.reth = Some(Reth { va, rkey, length: self.length });
        }
        if set.contains(H::ATOMIC_ETH) {
            ext.atomic = Some(AtomicEth { va, rkey, swap_add: value, compare: self.key.into() });
        }
        if set.contains(H::AETH) {
            let syndrome = match self.syndrome >> 5 {
                0 => Syndrome::Ack(self.syndrome & 31),
                1 => Syndrome::RnrNak(self.syndrome & 31),
                3 => match self.syndrome & 31 {
                    0 => Syndrome::Nak(NakCode::PsnSequenceError),
                    1 => Syndrome::Nak(NakCode::InvalidRequest),
                    2 => Syndrome::Nak(NakCode::RemoteAccessError),
                    3 => Syndrome::Nak(NakCode::RemoteOperationalError),
                    _ => Syndrome::Reserved(self.syndrome),
                },
                _ => Syndrome::Reserved(self.syndrome),
            };
            ext.aeth = Some(Aeth { syndrome, msn: Msn::new(self.key) });
        }
        ext.atomic_ack = set.contains(H::ATOMIC_ACK_ETH).then_some(value);
        ext.imm = set.contains(H::IMM).then_some([7; 4]);
        ext.invalidate = set.contains(H::IETH).then_some(rkey);
        ext
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn any_packets_in_any_state(
        service in prop::sample::select(SERVICES.to_vec()),
        state in prop::sample::select(STATES.to_vec()),
        shared in any::<bool>(),
        packets in prop::collection::vec(hostile(), 1..24),
    ) {
        let mut b = bench(service, state, shared);
        let mut offered = b.counter("rx_bytes") + b.counter("rx_dropped_bytes");
        for hostile in &packets {
            let (seen, turned_away) = (b.counter("rx_packets"), gates(&b));
            // Memory notices at once what is read or written beyond the region.
            let made = hostile.make(&b);
            offered += made.0.payload.len() as u64;
            b.inject(made);
            prop_assert_eq!(b.counter("rx_packets"), seen + 1);
            counting::adds_up(&b, offered);
            prop_assert!(gates(&b) - turned_away <= 1, "counted twice: {:?}", hostile);
            b.lines();
        }
        guards_hold(&mut b);
        b.advance(Span::from_ms(20_000));
        guards_hold(&mut b);
        // What it went through does not keep it from being used again.
        b.modify(QpState::Reset);
        let (attr, init) = (b.attr, b.init);
        setup::raise(&mut b.host.device, b.now, b.qp, &init, &attr, QpState::Rts);
    }

    #[test]
    fn a_dialogue_with_changed_bytes(
        service in prop::sample::select(SERVICES.to_vec()),
        shared in any::<bool>(),
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut b = bench(service, QpState::Rts, shared);
        let packets = dialogue(&b);
        let mut offered = b.counter("rx_bytes") + b.counter("rx_dropped_bytes");
        for (index, (pick, whole)) in order.iter().enumerate() {
            // In order as long as it lasts, then anything again.
            let made = packets.get(index).unwrap_or_else(|| pick.get(&packets));
            let made = if *whole { Some(made.clone()) } else { mutate(made, &changes) };
            if let Some(made) = made {
                offered += made.0.payload.len() as u64;
                b.inject(made);
            }
            b.lines();
            counting::adds_up(&b, offered);
        }
        b.advance(Span::from_ms(20_000));
        guards_hold(&mut b);
    }
}

/// What a correct peer might send next, one after the other.
fn dialogue(b: &Bench) -> Vec<Made> {
    if matches!(b.init.qp_type, QpType::Ud | QpType::Gsi) {
        return (0..8).map(|psn| b.packet(Operation::SendOnly, psn).data(64)).collect();
    }
    let mut all = vec![
        b.packet(Operation::SendFirst, 200).data(1024),
        b.packet(Operation::SendLastImm, 201).data(8).imm(1).ack(),
        b.rdma(Operation::WriteFirst, 202, REGION, 2000).data(1024),
        b.packet(Operation::WriteLast, 203).data(976).ack(),
    ];
    if b.init.qp_type == QpType::Rc {
        all.extend([
            b.rdma(Operation::ReadRequest, 204, REGION, 3000).ack(),
            b.atomic(Operation::CompareSwap, 207, REGION, 1, 2),
            b.packet(Operation::SendOnlyInvalidate, 208).data(4).invalidate(b.region.rkey).ack(),
            b.acknowledge(101, 1),
            b.packet(Operation::ReadResponseFirst, 103).data(1024).aeth(Syndrome::Ack(31), 1),
            b.nak(102, NakCode::PsnSequenceError),
            b.packet(Operation::Acknowledge, 102).aeth(Syndrome::RnrNak(1), 1),
            b.packet(Operation::AtomicAcknowledge, 108).aeth(Syndrome::Ack(31), 2).original(3),
        ]);
    }
    all
}

/// The packet as bytes, some of them changed; `None` if it is none any more.
fn mutate(made: &Made, changes: &[(prop::sample::Index, u8)]) -> Option<Made> {
    let Flying::Bytes(path, mut bytes) = Flying::emit(&made.0) else { return None };
    for (at, value) in changes {
        // Headers more often than payload.
        let end = bytes.len().min(48);
        bytes[at.index(end)] ^= value;
    }
    let parsed = wire::transport::parse(&bytes).ok()?;
    let (bth, ext, payload) = (parsed.bth, parsed.ext, parsed.payload.to_vec());
    Some(Made(wire::Packet { path, bth, ext, payload }))
}

/// A good packet of each service, with all that it needs.
fn good(b: &Bench, service: QpType) -> Made {
    match service {
        QpType::Rc => b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8).ack(),
        QpType::Uc => b.rdma(Operation::WriteOnly, 200, REGION, 8).data(8),
        _ => b.packet(Operation::SendOnly, 0).data(8),
    }
}

/// Whether the good packet, changed so, is executed; if not, which of the gates counts it.
fn arrives(service: QpType, change: impl FnOnce(&mut Made)) -> Result<(), Vec<&'static str>> {
    let mut b = Bench::with(|o| {
        o.service = service;
        o.access = Access::LOCAL_WRITE | setup::REMOTE;
    });
    b.recv(1, 48);
    let mut made = good(&b, service);
    change(&mut made);
    let lines = b.answer(made);
    let executed = b.counter("rx_write_requests") + b.counter("rx_send_requests") == 1;
    if executed {
        assert_eq!(gates(&b), 0);
        return Ok(());
    }
    assert!(lines.is_empty(), "dropped silently: {lines:?}");
    assert_eq!((b.bytes(REGION, 8), b.receives().len()), (vec![0; 8], 0));
    Err(GATES.into_iter().filter(|name| b.counter(name) == 1).collect())
}

#[test]
fn partition_keys() {
    for service in SERVICES {
        for (pkey, good) in
            [(0xFFFF, true), (0x7FFF, true), (0x1234, false), (0, false), (0x8000, false)]
        {
            let result = arrives(service, |made| made.0.bth.pkey = PKey::new(pkey));
            let expected = if good { Ok(()) } else { Err(vec!["rx_wrong_pkey"]) };
            assert_eq!(result, expected, "{service:?} {pkey:#x}");
        }
    }
}

#[test]
fn addresses_of_connected_packets() {
    for service in [QpType::Rc, QpType::Uc] {
        let wrong = Err(vec!["rx_wrong_address"]);
        let source = arrives(service, |made| made.0.path.source = setup::gid(8));
        assert_eq!(source, wrong, "{service:?} from a stranger");
        let destination = arrives(service, |made| made.0.path.destination = setup::gid6(0));
        assert_eq!(destination, wrong, "{service:?} to the other GID of this device");
        let port = arrives(service, |made| made.0.path.source_port = 1);
        assert_eq!(port, Ok(()), "the UDP source port is not looked at");
    }
    let anybody = arrives(QpType::Ud, |made| made.0.path.source = setup::gid(8));
    assert_eq!(anybody, Ok(()), "datagrams come from anybody");
}

#[test]
fn unknown_queue_pairs_and_foreign_opcodes() {
    for service in SERVICES {
        let nobody = arrives(service, |made| made.0.bth.dest_qp = Qpn::new(0x12_3456));
        assert_eq!(nobody, Err(vec!["rx_unknown_qp"]), "{service:?}");
        for opcode in [0x15, 0x1C, 0x1D, 0x1F, 0x40, 0xA4, 0xC0, 0xFF] {
            let foreign = arrives(service, |made| made.0.bth.opcode = Opcode(opcode));
            assert_eq!(foreign, Err(vec!["rx_wrong_opcode"]), "{service:?} {opcode:#x}");
        }
        let cnp = arrives(service, |made| made.0.bth.opcode = Opcode::CNP);
        assert_eq!(cnp, Err(vec!["rp_cnp_ignored"]), "{service:?}");
    }
    let other = arrives(QpType::Rc, |made| made.0.bth.opcode = Opcode(0x2A));
    assert_eq!(other, Err(vec!["rx_wrong_opcode"]), "a WRITE of UC for an RC queue pair");
}

#[test]
fn states_that_do_not_receive_drop_and_count() {
    for service in SERVICES {
        for state in [QpState::Reset, QpState::Init, QpState::Err] {
            let mut b = bench(service, state, false);
            b.lines();
            let before = b.counter("rx_wrong_state");
            let made = good(&b, service);
            assert!(b.answer(made).is_empty(), "{service:?} {state:?}");
            assert_eq!(b.counter("rx_wrong_state"), before + 1, "{service:?} {state:?}");
            assert_eq!(b.bytes(REGION, 8), [0; 8]);
        }
    }
}
