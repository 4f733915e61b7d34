//! SIDR: which queue pair serves a datagram service.

use core::fmt;

use super::fields::{Reader, Writer};
use super::{Attribute, ServiceId};
use crate::ids::{PKey, QKey, Qpn};

/// How a service resolution ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair is valid.
    pub const VALID: Self = Self(0);
    /// Nobody listens.
    pub const UNSUPPORTED: Self = Self(1);
    /// The application refused.
    pub const REJECTED: Self = Self(2);
    /// No queue pair left.
    pub const NO_QP: Self = Self(3);
    /// Ask somewhere else.
    pub const REDIRECT: Self = Self(4);
    /// The version is not supported.
    pub const VERSION: Self = Self(5);
}

impl fmt::Debug for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = match *self {
            Self::VALID => "valid",
            Self::UNSUPPORTED => "nobody listens on this service",
            Self::REJECTED => "rejected by the application",
            Self::NO_QP => "no queue pair available",
            Self::REDIRECT => "redirected",
            Self::VERSION => "version not supported",
            _ => "unknown",
        };
        write!(f, "{} ({meaning})", self.0)
    }
}

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Question for the queue pair of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// The sender's name for the question.
    pub request_id: u32,
    /// Partition.
    pub pkey: PKey,
    /// What is asked for.
    pub service: ServiceId,
    /// For the application. An RDMA-CM service has its address header in front.
    pub private: [u8; 216],
}

impl Attribute for SidrReq {
    const ID: u16 = 0x0017;

    fn read(r: Reader<'_>) -> Self {
        Self {
            request_id: r.u32(0),
            pkey: PKey::new(r.u16(4)),
            service: ServiceId(r.u64(8)),
            private: r.array(16),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.request_id);
        w.u16(4, self.pkey.get());
        w.u64(8, self.service.0);
        w.bytes(16, &self.private);
    }
}

/// Answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The name of the question.
    pub request_id: u32,
    /// How it ended.
    pub status: SidrStatus,
    /// Bytes of `info` that count; at most 72 make sense.
    pub info_len: u8,
    /// The queue pair.
    pub qpn: Qpn,
    /// What was asked for.
    pub service: ServiceId,
    /// Q_Key of the queue pair.
    pub qkey: QKey,
    /// Detail of a refusal.
    pub info: [u8; 72],
    /// For the application.
    pub private: [u8; 136],
}

impl Attribute for SidrRep {
    const ID: u16 = 0x0018;

    fn read(r: Reader<'_>) -> Self {
        Self {
            request_id: r.u32(0),
            status: SidrStatus(r.u8(4)),
            info_len: r.u8(5),
            qpn: Qpn::new(r.u24(8)),
            service: ServiceId(r.u64(12)),
            qkey: QKey::new(r.u32(20)),
            info: r.array(24),
            private: r.array(96),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.request_id);
        w.u8(4, self.status.0);
        w.u8(5, self.info_len);
        w.u24(8, self.qpn.get());
        w.u64(12, self.service.0);
        w.u32(20, self.qkey.get());
        w.bytes(24, &self.info);
        w.bytes(96, &self.private);
    }
}
