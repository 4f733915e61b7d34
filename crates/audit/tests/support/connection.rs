//! The made-up connection of hosts 1 and 2: addresses, queue pairs, opcodes by their numbers, and
//! what the connection manager says of it. Packets are made by those who use this.
#![allow(dead_code, reason = "each test binary uses a part")]

use wire::mad::{CmPath, PortSpace, Rep, Req, ServiceId, ServiceType};
use wire::{Gid, Mtu, PKey, Psn, QKey, Qpn};

/// Queue pair of host 1, which asks.
pub(crate) const QP_A: u32 = 0xA1;
/// Queue pair of host 2, which answers.
pub(crate) const QP_B: u32 = 0xB2;

/// Opcodes by their numbers.
pub(crate) mod op {
    pub(crate) const SEND_FIRST: u8 = 0x00;
    pub(crate) const SEND_MIDDLE: u8 = 0x01;
    pub(crate) const SEND_LAST: u8 = 0x02;
    pub(crate) const SEND_ONLY: u8 = 0x04;
    pub(crate) const WRITE_FIRST: u8 = 0x06;
    pub(crate) const WRITE_MIDDLE: u8 = 0x07;
    pub(crate) const WRITE_LAST: u8 = 0x08;
    pub(crate) const WRITE_ONLY: u8 = 0x0A;
    pub(crate) const READ: u8 = 0x0C;
    pub(crate) const RESPONSE_FIRST: u8 = 0x0D;
    pub(crate) const RESPONSE_MIDDLE: u8 = 0x0E;
    pub(crate) const RESPONSE_LAST: u8 = 0x0F;
    pub(crate) const RESPONSE_ONLY: u8 = 0x10;
    pub(crate) const ACK: u8 = 0x11;
    pub(crate) const ATOMIC_ACK: u8 = 0x12;
    pub(crate) const FETCH_ADD: u8 = 0x14;
    pub(crate) const UC_SEND_ONLY: u8 = 0x24;
    pub(crate) const CNP: u8 = 0x81;
}

/// The address of a host, 10.0.0.`host`.
pub(crate) fn gid(host: u8) -> Gid {
    Gid::from_ip([10, 0, 0, host].into())
}

/// What host 1 asks host 2 for, under its name `id`: host 2 is to begin with PSN 2000.
pub(crate) fn req(id: u32) -> Req {
    Req {
        local_id: id,
        service: ServiceId::rdma_cm(PortSpace::Tcp, 7471),
        guid: 1,
        qkey: QKey::new(0),
        qpn: Qpn::new(QP_A),
        responder_resources: 4,
        eecn: 0,
        initiator_depth: 4,
        remote_eecn: 0,
        remote_response_timeout: 20,
        service_type: ServiceType::Rc,
        flow_control: false,
        psn: Psn::new(2000),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: PKey::DEFAULT,
        mtu: Some(Mtu::B1024),
        rdc_exists: false,
        rnr_retry: 7,
        max_cm_retries: 15,
        srq: false,
        extended_type: 0,
        primary: CmPath { local_gid: gid(1), remote_gid: gid(2), ..CmPath::default() },
        alternate: CmPath::default(),
        private: [0; 92],
    }
}

/// Host 2's answer, with its own name `id`: host 1 is to begin with PSN 1000.
pub(crate) fn rep(active: u32, id: u32) -> Rep {
    Rep {
        local_id: id,
        remote_id: active,
        qkey: QKey::new(0),
        qpn: Qpn::new(QP_B),
        eecn: 0,
        psn: Psn::new(1000),
        responder_resources: 4,
        initiator_depth: 4,
        ack_delay: 0,
        failover: 0,
        flow_control: false,
        rnr_retry: 7,
        srq: false,
        guid: 2,
        private: [0; 196],
    }
}
