//! States of a queue pair: every move with every attribute against `transitions.txt`, what may be
//! posted in which state, and the sentences of refusals.

use std::collections::BTreeMap;

use engine::{
    AttrMask, CqId, ErrorKind, PdId, PostError, QpAttr, QpInit, QpState, QpType, RecvRequest,
    SendData, SendFlags, SendOp, SendRequest, Sge, TrainLimits,
};
use wire::{Gid, Instant, LKey, Mtu, Psn, QKey, Qpn, Span};

use super::datagram::to_peer;
use crate::pair::bench::{PEER_QP, REGION};
use crate::pair::host::Host;
use crate::pair::memory::TestMemory;
use crate::pair::setup;

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

/// Required and optional attributes by service, from, to.
type Table = BTreeMap<(usize, u32, u32), (AttrMask, AttrMask)>;

fn flag(name: &str) -> AttrMask {
    match name {
        "PKEY" => AttrMask::PKEY_INDEX,
        "PORT" => AttrMask::PORT,
        "ACC" => AttrMask::ACCESS_FLAGS,
        "QKEY" => AttrMask::QKEY,
        "AV" => AttrMask::AV,
        "MTU" => AttrMask::PATH_MTU,
        "DQPN" => AttrMask::DEST_QPN,
        "RQPSN" => AttrMask::RQ_PSN,
        "DRDA" => AttrMask::MAX_DEST_RD_ATOMIC,
        "RNRT" => AttrMask::MIN_RNR_TIMER,
        "ALT" => AttrMask::ALT_PATH,
        "SQPSN" => AttrMask::SQ_PSN,
        "TMO" => AttrMask::TIMEOUT,
        "RTRY" => AttrMask::RETRY_CNT,
        "RNR" => AttrMask::RNR_RETRY,
        "QRDA" => AttrMask::MAX_QP_RD_ATOMIC,
        "CUR" => AttrMask::CUR_STATE,
        "MIG" => AttrMask::PATH_MIG_STATE,
        "SQDN" => AttrMask::EN_SQD_ASYNC_NOTIFY,
        _ => panic!("no attribute {name}"),
    }
}

fn state(name: &str) -> QpState {
    *STATES.iter().find(|s| format!("{s:?}") == name).unwrap_or_else(|| panic!("no state {name}"))
}

fn table() -> Table {
    let mut table = Table::new();
    let lines = include_str!("transitions.txt").lines();
    for line in lines.filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let parts: Vec<&str> = line.split('|').collect();
        let mask = |i: usize| parts[i].split_whitespace().map(flag).collect::<AttrMask>();
        let words: Vec<&str> = parts[0].split_whitespace().collect();
        let (services, move_) = words.split_at(words.len() - 2);
        for service in services {
            let index = SERVICES
                .iter()
                .position(|s| format!("{s:?}").to_uppercase() == *service)
                .unwrap_or_else(|| panic!("no service {service}"));
            let key = (index, state(move_[0]) as u32, state(move_[1]) as u32);
            assert!(table.insert(key, (mask(1), mask(2))).is_none(), "twice: {line}");
        }
    }
    table
}

/// A device that makes queue pairs in any state.
struct Factory {
    host: Host,
    pd: PdId,
    cq: CqId,
    now: Instant,
}

impl Factory {
    fn new() -> Self {
        let memory = TestMemory::new(REGION, 4096);
        let mut host = Host::new(setup::config(0, 1), memory, TrainLimits::SINGLE);
        let pd = host.device.alloc_pd().expect("a domain");
        let cq = host.create_cq(4096);
        Self { host, pd, cq, now: Instant::ZERO + Span::from_ms(1) }
    }

    fn attr(&self) -> QpAttr {
        setup::attr(setup::gid(9), PEER_QP)
    }

    /// `None` if the service has no such state.
    fn make(&mut self, qp_type: QpType, state: QpState) -> Option<Qpn> {
        if qp_type == QpType::Rc && state == QpState::Sqe {
            return None;
        }
        let (pd, cq) = (self.pd, self.cq);
        let init = QpInit {
            qp_type,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            cap: setup::CAP,
            sq_sig_all: false,
        };
        let (qp, _) = self.host.device.create_qp(&init).expect("a queue pair");
        let below = match state {
            QpState::Reset => return Some(qp),
            QpState::Init | QpState::Rtr => state,
            QpState::Err => QpState::Init,
            _ => QpState::Rts,
        };
        let attr = self.attr();
        setup::raise(&mut self.host.device, self.now, qp, &init, &attr, below);
        match state {
            QpState::Sqd | QpState::Err => self.modify(qp, state, AttrMask::STATE).expect("legal"),
            QpState::Sqe => self.fail_send(qp, qp_type),
            _ => {}
        }
        assert_eq!(self.query(qp).state, state);
        Some(qp)
    }

    fn fail_send(&mut self, qp: Qpn, service: QpType) {
        let sges = [Sge { addr: 0, length: 8, lkey: LKey::new(1) }];
        let wr = self.request(service, SendData::Sges(&sges));
        self.host.device.post_send(self.now, qp, &wr).expect("a good request");
        self.host.drain(self.now, |_| panic!("no packet"));
        self.host.poll_all(self.cq);
    }

    fn request<'a>(&self, service: QpType, data: SendData<'a>) -> SendRequest<'a> {
        let datagram = matches!(service, QpType::Ud | QpType::Gsi).then(|| to_peer(setup::gid(9)));
        SendRequest { wr_id: 1, op: SendOp::Send, flags: SendFlags::SIGNALED, data, datagram }
    }

    fn query(&self, qp: Qpn) -> QpAttr {
        self.host.device.query_qp(qp).expect("a queue pair").0
    }

    /// Tries a move with attributes that all differ from those set before.
    fn modify(&mut self, qp: Qpn, to: QpState, mask: AttrMask) -> engine::Result<()> {
        let cur_state = self.query(qp).state;
        let attr = QpAttr {
            state: to,
            cur_state,
            en_sqd_async_notify: true,
            access: engine::Access::LOCAL_WRITE,
            qkey: QKey::new(0x55),
            av: setup::av(setup::gid(8), 0),
            path_mtu: Mtu::B512,
            dest_qp: Qpn::new(0x66),
            rq_psn: Psn::new(77),
            sq_psn: Psn::new(88),
            timeout: 13,
            retry_cnt: 2,
            rnr_retry: 3,
            min_rnr_timer: 17,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 2,
            ..self.attr()
        };
        self.host.device.modify_qp(self.now, qp, &attr, mask)
    }

    /// Makes a queue pair, tries the move, looks whether it agrees, destroys the queue pair.
    fn try_move(&mut self, what: (QpType, QpState, QpState), mask: AttrMask, legal: bool) {
        let (service, from, to) = what;
        let Some(qp) = self.make(service, from) else { return };
        let before = self.query(qp);
        let result = self.modify(qp, to, mask);
        let after = self.query(qp);
        let told = format!("{service:?} {from:?} to {to:?} with {mask:?}: {result:?}");
        assert_eq!(result.is_ok(), legal, "{told}");
        match result {
            Ok(()) => assert_eq!(after.state, to, "{told}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{told}");
                assert_eq!(before, after, "a refused move has changed something: {told}");
            }
        }
        self.host.device.destroy_qp(qp).expect("it exists");
        self.host.poll_all(self.cq);
        self.host.drain_events();
    }
}

#[test]
fn every_move_takes_exactly_the_attributes_of_the_table() {
    let table = table();
    let mut factory = Factory::new();
    for (index, &service) in SERVICES.iter().enumerate() {
        for from in STATES {
            for to in STATES {
                let what = (service, from, to);
                let Some(&(required, optional)) = table.get(&(index, from as u32, to as u32))
                else {
                    factory.try_move(what, AttrMask::STATE, false);
                    factory.try_move(what, setup::required(service, to), false);
                    factory.try_move(what, AttrMask::all(), false);
                    continue;
                };
                let full = required | AttrMask::STATE;
                factory.try_move(what, full, true);
                for missing in required.iter() {
                    factory.try_move(what, full - missing, false);
                }
                for bit in (0..32).map(|n| AttrMask::from_bits_retain(1 << n)) {
                    if !full.contains(bit) {
                        let legal = optional.contains(bit) && bit != AttrMask::ALT_PATH;
                        factory.try_move(what, full | bit, legal);
                    }
                }
                factory.try_move(what, full | (optional - AttrMask::ALT_PATH), true);
            }
        }
    }
}

#[test]
fn a_mask_without_the_state_stays_in_the_state() {
    let mut f = Factory::new();
    for service in SERVICES {
        for from in STATES {
            let Some(qp) = f.make(service, from) else { continue };
            let stays = !matches!(from, QpState::Rtr | QpState::Sqe);
            let mask = if from == QpState::Rts { AttrMask::CUR_STATE } else { AttrMask::empty() };
            // The state given does not count.
            let result = f.modify(qp, QpState::Err, mask);
            assert_eq!(result.is_ok(), stays, "{service:?} {from:?}: {result:?}");
            assert_eq!(f.query(qp).state, from);
            f.host.device.destroy_qp(qp).expect("it exists");
        }
    }
}

#[test]
fn attributes_are_taken_with_a_legal_move_and_only_those_of_the_mask() {
    let mut f = Factory::new();
    let qp = f.make(QpType::Rc, QpState::Sqd).expect("a state of RC");
    f.modify(qp, QpState::Sqd, AttrMask::TIMEOUT | AttrMask::AV).expect("legal");
    let attr = f.query(qp);
    assert_eq!((attr.timeout, attr.av.dgid), (13, setup::gid(8)));
    assert_eq!((attr.retry_cnt, attr.min_rnr_timer), (7, 12), "not in the mask");
}

#[test]
fn the_current_state_must_be_told_right() {
    let mut f = Factory::new();
    for service in SERVICES {
        for from in STATES {
            for told in STATES {
                let Some(qp) = f.make(service, from) else { continue };
                let attr = QpAttr { state: QpState::Rts, cur_state: told, ..f.attr() };
                let mask = match from {
                    QpState::Rtr => setup::required(service, QpState::Rts),
                    _ => AttrMask::STATE,
                };
                let mask = mask | AttrMask::CUR_STATE;
                let result = f.host.device.modify_qp(f.now, qp, &attr, mask);
                let sending = [QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe];
                let legal = sending.contains(&from) && told == from;
                assert_eq!(result.is_ok(), legal, "{service:?} {from:?} told {told:?}: {result:?}");
                f.host.device.destroy_qp(qp).expect("it exists");
            }
        }
    }
}

#[test]
fn posting_by_state() {
    let mut f = Factory::new();
    for service in SERVICES {
        for state in STATES {
            let Some(qp) = f.make(service, state) else { continue };
            let recv = f.host.device.post_recv(f.now, qp, &RecvRequest { wr_id: 2, sges: &[] });
            let wr = f.request(service, SendData::Sges(&[]));
            let send = f.host.device.post_send(f.now, qp, &wr);
            let refused = Err(PostError::State(state));
            let at_reset = if state == QpState::Reset { refused } else { Ok(()) };
            assert_eq!(recv, at_reset, "{service:?} {state:?}");
            let before_rts = matches!(state, QpState::Reset | QpState::Init | QpState::Rtr);
            assert_eq!(send, if before_rts { refused } else { Ok(()) }, "{service:?} {state:?}");
            assert_eq!(PostError::State(state).errno(), 22);
            f.host.device.destroy_qp(qp).expect("it exists");
        }
    }
    assert_eq!(PostError::QueueFull.errno(), 12);
}

/// The sentence with which INIT to RTR of an RC queue pair is refused.
fn refusal(change: impl FnOnce(&mut QpAttr)) -> String {
    let mut f = Factory::new();
    let qp = f.make(QpType::Rc, QpState::Init).expect("a state of RC");
    let mut attr = QpAttr { state: QpState::Rtr, ..f.attr() };
    change(&mut attr);
    let mask = setup::required(QpType::Rc, QpState::Rtr);
    f.host.device.modify_qp(f.now, qp, &attr, mask).expect_err("it is wrong").to_string()
}

#[test]
fn refusals_say_what_was_expected_and_found() {
    let says = |sentence: String, words: &[&str]| {
        for word in words {
            assert!(sentence.contains(word), "no {word:?} in: {sentence}");
        }
    };
    says(refusal(|a| a.av.is_global = false), &["is_global", "GRH"]);
    says(refusal(|a| a.av.sgid_index = 7), &["GID index 7", "0, 1"]);
    says(refusal(|a| a.av.dgid = Gid::default()), &["destination GID is zero"]);
    says(refusal(|a| a.av.dgid = setup::gid6(9)), &["different address families", "10.0.0.1"]);
    says(refusal(|a| a.min_rnr_timer = 32), &["min_rnr_timer is 32", "at most 31"]);
    says(refusal(|a| a.max_dest_rd_atomic = 200), &["max_dest_rd_atomic is 200", "128"]);

    let mut f = Factory::new();
    let qp = f.make(QpType::Rc, QpState::Init).expect("a state of RC");
    let mut refused = |attr: QpAttr, mask| {
        let result = f.host.device.modify_qp(f.now, qp, &attr, mask);
        result.expect_err("it is wrong").to_string()
    };
    let attr = setup::attr(setup::gid(9), PEER_QP);
    let rtr = QpAttr { state: QpState::Rtr, ..attr };
    let mask = setup::required(QpType::Rc, QpState::Rtr);
    says(refused(rtr, mask - AttrMask::AV), &["Init to Rtr", "missing AV"]);
    says(refused(rtr, mask | AttrMask::SQ_PSN), &["does not take SQ_PSN"]);
    says(refused(QpAttr { state: QpState::Rts, ..attr }, mask), &["from Init to Rts"]);
    let port = QpAttr { port: 2, state: QpState::Init, ..attr };
    says(refused(port, AttrMask::PORT), &["port 2", "port 1"]);
    let pkey = QpAttr { pkey_index: 3, state: QpState::Init, ..attr };
    says(refused(pkey, AttrMask::PKEY_INDEX), &["index 3", "index 0"]);
}

#[test]
fn a_path_mtu_above_the_active_one_is_refused_and_told() {
    let mut config = setup::config(0, 1);
    config.mtu = Mtu::B1024;
    let mut host = Host::new(config, TestMemory::new(REGION, 64), TrainLimits::SINGLE);
    let pd = host.device.alloc_pd().expect("a domain");
    let cq = host.create_cq(4);
    let init = QpInit {
        qp_type: QpType::Uc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap: setup::CAP,
        sq_sig_all: false,
    };
    let (qp, _) = host.device.create_qp(&init).expect("a queue pair");
    let attr = setup::attr(setup::gid(9), PEER_QP);
    setup::raise(&mut host.device, Instant::ZERO, qp, &init, &attr, QpState::Init);
    let attr = QpAttr { state: QpState::Rtr, path_mtu: Mtu::B2048, ..attr };
    let mask = setup::required(QpType::Uc, QpState::Rtr);
    let error = host.device.modify_qp(Instant::ZERO, qp, &attr, mask).expect_err("too large");
    assert!(error.to_string().contains("2048"), "{error}");
    assert!(error.to_string().contains("active MTU 1024"), "{error}");
    let attr = QpAttr { path_mtu: Mtu::B1024, ..attr };
    host.device.modify_qp(Instant::ZERO, qp, &attr, mask).expect("equal to the port's");
}
