//! The messages that make and end a connection: REQ with its paths, REP, RTU, DREQ, DREP.

use super::fields::{Reader, Writer};
use super::{Attribute, ServiceId};
use crate::ids::{Gid, Mtu, PKey, Psn, QKey, Qpn};

/// The service that a connection shall have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum ServiceType {
    /// Reliable connection.
    #[default]
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram.
    Rd = 2,
    /// Named by the extended type of the request (XRC).
    Extended = 3,
}

impl ServiceType {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }
}

/// A path of a request, seen from the requesting side: local is the sender of the REQ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CmPath {
    /// Local identifier of the requesting port; 0xFFFF on Ethernet.
    pub local_lid: u16,
    /// Local identifier of the answering port; 0xFFFF on Ethernet.
    pub remote_lid: u16,
    /// GID of the requesting port.
    pub local_gid: Gid,
    /// GID of the answering port.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Packet rate, 6 bits.
    pub rate: u8,
    /// TOS or traffic class byte.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// The path does not leave the subnet.
    pub subnet_local: bool,
    /// ACK timeout of the connection, 5 bits: 4.096 µs × 2^code.
    pub ack_timeout: u8,
}

impl CmPath {
    pub(super) const LEN: usize = 44;

    fn read(r: Reader<'_>) -> Self {
        let (label, flags, timeout) = (r.u32(36), r.u8(42), r.u8(43));
        Self {
            local_lid: r.u16(0),
            remote_lid: r.u16(2),
            local_gid: r.gid(4),
            remote_gid: r.gid(20),
            flow_label: label >> 12,
            rate: (label & 0x3F) as u8,
            traffic_class: r.u8(40),
            hop_limit: r.u8(41),
            sl: flags >> 4,
            subnet_local: flags & 0x08 != 0,
            ack_timeout: timeout >> 3,
        }
    }

    fn write(&self, mut w: Writer<'_>) {
        w.u16(0, self.local_lid);
        w.u16(2, self.remote_lid);
        w.gid(4, self.local_gid);
        w.gid(20, self.remote_gid);
        w.u32(36, self.flow_label << 12 | u32::from(self.rate & 0x3F));
        w.u8(40, self.traffic_class);
        w.u8(41, self.hop_limit);
        w.u8(42, self.sl << 4 | u8::from(self.subnet_local) << 3);
        w.u8(43, self.ack_timeout << 3);
    }
}

/// Request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// What is asked for.
    pub service: ServiceId,
    /// GUID of the sender's adapter.
    pub guid: u64,
    /// Q_Key; 0 for connections.
    pub qkey: QKey,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the sender serves at once.
    pub responder_resources: u8,
    /// End-to-end context of the sender, 24 bits; 0.
    pub eecn: u32,
    /// READs and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// End-to-end context of the receiver, 24 bits; 0.
    pub remote_eecn: u32,
    /// How soon the receiver must answer, 5 bits: 4.096 µs × 2^code.
    pub remote_response_timeout: u8,
    /// Service.
    pub service_type: ServiceType,
    /// The sender's adapter gives end-to-end credits.
    pub flow_control: bool,
    /// First PSN that the receiver of this message shall send (InfiniBand architecture 12.7.31).
    pub psn: Psn,
    /// How soon the sender answers, 5 bits: 4.096 µs × 2^code.
    pub local_response_timeout: u8,
    /// Retries after timeouts and sequence errors, 3 bits.
    pub retry_count: u8,
    /// Partition.
    pub pkey: PKey,
    /// Payload of a full packet; `None` for a code that means nothing (written as 0).
    pub mtu: Option<Mtu>,
    /// The reliable domain exists already.
    pub rdc_exists: bool,
    /// Retries after RNR NAKs, 3 bits; 7 is without limit.
    pub rnr_retry: u8,
    /// Times that a connection management message is repeated, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// Extended service type, 3 bits; counts with [`ServiceType::Extended`].
    pub extended_type: u8,
    /// The path.
    pub primary: CmPath,
    /// A second path; all zero if there is none.
    pub alternate: CmPath,
    /// For the application. An RDMA-CM service has its address header in front.
    pub private: [u8; 92],
}

impl Attribute for Req {
    const ID: u16 = 0x0010;

    fn read(r: Reader<'_>) -> Self {
        let (service, psn, mtu, cm) = (r.u8(43), r.u8(47), r.u8(50), r.u8(51));
        Self {
            local_id: r.u32(0),
            service: ServiceId(r.u64(8)),
            guid: r.u64(16),
            qkey: QKey::new(r.u32(28)),
            qpn: Qpn::new(r.u24(32)),
            responder_resources: r.u8(35),
            eecn: r.u24(36),
            initiator_depth: r.u8(39),
            remote_eecn: r.u24(40),
            remote_response_timeout: service >> 3,
            service_type: ServiceType::from_bits(service >> 1),
            flow_control: service & 1 != 0,
            psn: Psn::new(r.u24(44)),
            local_response_timeout: psn >> 3,
            retry_count: psn & 7,
            pkey: PKey::new(r.u16(48)),
            mtu: Mtu::from_code(mtu >> 4),
            rdc_exists: mtu & 8 != 0,
            rnr_retry: mtu & 7,
            max_cm_retries: cm >> 4,
            srq: cm & 8 != 0,
            extended_type: cm & 7,
            primary: CmPath::read(r.from(52)),
            alternate: CmPath::read(r.from(52 + CmPath::LEN)),
            private: r.array(140),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u64(8, self.service.0);
        w.u64(16, self.guid);
        w.u32(28, self.qkey.get());
        w.u24(32, self.qpn.get());
        w.u8(35, self.responder_resources);
        w.u24(36, self.eecn);
        w.u8(39, self.initiator_depth);
        w.u24(40, self.remote_eecn);
        let service = (self.service_type as u8) << 1 | u8::from(self.flow_control);
        w.u8(43, self.remote_response_timeout << 3 | service);
        w.u24(44, self.psn.get());
        w.u8(47, self.local_response_timeout << 3 | self.retry_count & 7);
        w.u16(48, self.pkey.get());
        let mtu = self.mtu.map_or(0, Mtu::code);
        w.u8(50, mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry & 7);
        let extended = u8::from(self.srq) << 3 | self.extended_type & 7;
        w.u8(51, self.max_cm_retries << 4 | extended);
        self.primary.write(w.from(52));
        self.alternate.write(w.from(52 + CmPath::LEN));
        w.bytes(140, &self.private);
    }
}

/// Acceptance of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's name for it.
    pub remote_id: u32,
    /// Q_Key; 0 for connections.
    pub qkey: QKey,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// End-to-end context of the sender, 24 bits; 0.
    pub eecn: u32,
    /// First PSN that the receiver of this message shall send (InfiniBand architecture 12.7.31).
    pub psn: Psn,
    /// READs and atomics that the sender serves at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// How long the sender's adapter takes to acknowledge, 5 bits: 4.096 µs × 2^code.
    pub ack_delay: u8,
    /// What became of the alternate path, 2 bits: 0 accepted, 1 not supported, 2 refused.
    pub failover: u8,
    /// The sender's adapter gives end-to-end credits.
    pub flow_control: bool,
    /// Retries after RNR NAKs that the receiver shall make, 3 bits; 7 is without limit.
    pub rnr_retry: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's adapter.
    pub guid: u64,
    /// For the application.
    pub private: [u8; 196],
}

impl Attribute for Rep {
    const ID: u16 = 0x0013;

    fn read(r: Reader<'_>) -> Self {
        let (delay, rnr) = (r.u8(26), r.u8(27));
        Self {
            local_id: r.u32(0),
            remote_id: r.u32(4),
            qkey: QKey::new(r.u32(8)),
            qpn: Qpn::new(r.u24(12)),
            eecn: r.u24(16),
            psn: Psn::new(r.u24(20)),
            responder_resources: r.u8(24),
            initiator_depth: r.u8(25),
            ack_delay: delay >> 3,
            failover: delay >> 1 & 3,
            flow_control: delay & 1 != 0,
            rnr_retry: rnr >> 5,
            srq: rnr & 0x10 != 0,
            guid: r.u64(28),
            private: r.array(36),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.u32(8, self.qkey.get());
        w.u24(12, self.qpn.get());
        w.u24(16, self.eecn);
        w.u24(20, self.psn.get());
        w.u8(24, self.responder_resources);
        w.u8(25, self.initiator_depth);
        let flags = (self.failover & 3) << 1 | u8::from(self.flow_control);
        w.u8(26, self.ack_delay << 3 | flags);
        w.u8(27, self.rnr_retry << 5 | u8::from(self.srq) << 4);
        w.u64(28, self.guid);
        w.bytes(36, &self.private);
    }
}

/// Ready to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's name for it.
    pub remote_id: u32,
    /// For the application.
    pub private: [u8; 224],
}

impl Attribute for Rtu {
    const ID: u16 = 0x0014;

    fn read(r: Reader<'_>) -> Self {
        Self { local_id: r.u32(0), remote_id: r.u32(4), private: r.array(8) }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.bytes(8, &self.private);
    }
}

/// Request for disconnection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's name for it.
    pub remote_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// For the application.
    pub private: [u8; 220],
}

impl Attribute for Dreq {
    const ID: u16 = 0x0015;

    fn read(r: Reader<'_>) -> Self {
        Self {
            local_id: r.u32(0),
            remote_id: r.u32(4),
            remote_qpn: Qpn::new(r.u24(8)),
            private: r.array(12),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.u24(8, self.remote_qpn.get());
        w.bytes(12, &self.private);
    }
}

/// Answer to a request for disconnection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's name for it.
    pub remote_id: u32,
    /// For the application.
    pub private: [u8; 224],
}

impl Attribute for Drep {
    const ID: u16 = 0x0016;

    fn read(r: Reader<'_>) -> Self {
        Self { local_id: r.u32(0), remote_id: r.u32(4), private: r.array(8) }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.bytes(8, &self.private);
    }
}
