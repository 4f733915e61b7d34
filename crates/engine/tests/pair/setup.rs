//! Attributes with plain values, and the way of a queue pair from RESET to RTS.

use engine::{
    Access, AddressVector, AttrMask, Device, DeviceConfig, GidEntry, HostMemory, QpAttr, QpCap,
    QpInit, QpState, QpType,
};
use wire::{Encapsulation, Gid, Instant, Mtu, Psn, QKey, Qpn, Span};

/// The Q_Key of test datagrams.
pub const QKEY: QKey = QKey::new(0x1111_2222);

/// GID of host `index`.
pub fn gid(index: usize) -> Gid {
    Gid::from_ip(std::net::Ipv4Addr::new(10, 0, 0, 1 + index as u8).into())
}

/// IPv6 GID of host `index`.
pub fn gid6(index: usize) -> Gid {
    Gid::from_ip(std::net::Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 1 + index as u16).into())
}

/// Host `index`, with an IPv4 GID 0 and an IPv6 GID 1.
pub fn config(index: usize, seed: u64) -> DeviceConfig {
    let mut bytes = [index as u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let entry = |gid| GidEntry { gid, encapsulation: Encapsulation::RoceV2 };
    DeviceConfig {
        seed: bytes,
        slots: vec![index as u8 + 1],
        gids: vec![entry(gid(index)), entry(gid6(index))],
        mtu: Mtu::B4096,
        receive_buffer: 4 << 20,
        ack_delay: Span::ZERO,
        credits: false,
    }
}

/// The address of a peer, from GID `sgid_index` of our own.
pub fn av(dgid: Gid, sgid_index: u8) -> AddressVector {
    AddressVector {
        is_global: true,
        dgid,
        sgid_index,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        sl: 0,
    }
}

/// Everything that peers may do.
pub const REMOTE: Access =
    Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Attributes of a connection to `peer`, with plain values: PSNs 100 out and 200 in, no timeout.
pub fn attr(peer: Gid, dest_qp: Qpn) -> QpAttr {
    QpAttr {
        state: QpState::Reset,
        cur_state: QpState::Reset,
        en_sqd_async_notify: false,
        access: REMOTE,
        pkey_index: 0,
        port: 1,
        qkey: QKEY,
        av: av(peer, 0),
        path_mtu: Mtu::B1024,
        dest_qp,
        rq_psn: Psn::new(200),
        sq_psn: Psn::new(100),
        timeout: 0,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
    }
}

/// Sizes that suit most tests.
pub const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 128,
};

/// The attributes that a move to `to` requires, the state included.
pub fn required(service: QpType, to: QpState) -> AttrMask {
    use AttrMask as M;
    let own = match (to, service) {
        (QpState::Init, QpType::Ud) => M::PKEY_INDEX | M::PORT | M::QKEY,
        (QpState::Init, QpType::Gsi) => M::PKEY_INDEX | M::QKEY,
        (QpState::Init, _) => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        (QpState::Rtr, QpType::Uc | QpType::XrcSend) => {
            M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN
        }
        (QpState::Rtr, QpType::Rc | QpType::XrcRecv) => {
            M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER
        }
        (QpState::Rts, QpType::XrcRecv) => M::SQ_PSN | M::TIMEOUT,
        (QpState::Rts, QpType::Rc | QpType::XrcSend) => {
            M::SQ_PSN | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC
        }
        (QpState::Rts, _) => M::SQ_PSN,
        _ => M::empty(),
    };
    own | M::STATE
}

/// Takes a queue pair from RESET up to `target`, by way of INIT and RTR.
pub fn raise<H: HostMemory>(
    device: &mut Device<H>,
    now: Instant,
    qp: Qpn,
    init: &QpInit,
    attr: &QpAttr,
    target: QpState,
) {
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let attr = QpAttr { state, ..*attr };
        device
            .modify_qp(now, qp, &attr, required(init.qp_type, state))
            .unwrap_or_else(|error| panic!("to {state:?}: {error}"));
        if state == target {
            return;
        }
    }
}
