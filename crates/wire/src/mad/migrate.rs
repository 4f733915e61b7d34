//! LAP and APR: an alternate path for a connection that exists. RoCE has none; the messages are
//! understood so that they can be refused.

use super::Attribute;
use super::fields::{Reader, Writer};
use crate::ids::{Gid, Qpn};

/// Request for an alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lap {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's name for it.
    pub remote_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// How soon the receiver must answer, 5 bits: 4.096 µs × 2^code.
    pub remote_response_timeout: u8,
    /// Local identifier of the sender's port.
    pub local_lid: u16,
    /// Local identifier of the receiver's port.
    pub remote_lid: u16,
    /// GID of the sender's port.
    pub local_gid: Gid,
    /// GID of the receiver's port.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// TOS or traffic class byte.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Packet rate, 6 bits.
    pub rate: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// The path does not leave the subnet.
    pub subnet_local: bool,
    /// ACK timeout, 5 bits: 4.096 µs × 2^code.
    pub ack_timeout: u8,
    /// For the application.
    pub private: [u8; 168],
}

impl Attribute for Lap {
    const ID: u16 = 0x0019;

    fn read(r: Reader<'_>) -> Self {
        let (label, flags) = (r.u32(56), r.u8(62));
        Self {
            local_id: r.u32(0),
            remote_id: r.u32(4),
            remote_qpn: Qpn::new(r.u24(12)),
            remote_response_timeout: r.u8(15) >> 3,
            local_lid: r.u16(20),
            remote_lid: r.u16(22),
            local_gid: r.gid(24),
            remote_gid: r.gid(40),
            flow_label: label >> 12,
            traffic_class: (label & 0xFF) as u8,
            hop_limit: r.u8(60),
            rate: r.u8(61) & 0x3F,
            sl: flags >> 4,
            subnet_local: flags & 0x08 != 0,
            ack_timeout: r.u8(63) >> 3,
            private: r.array(64),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.u24(12, self.remote_qpn.get());
        w.u8(15, self.remote_response_timeout << 3);
        w.u16(20, self.local_lid);
        w.u16(22, self.remote_lid);
        w.gid(24, self.local_gid);
        w.gid(40, self.remote_gid);
        w.u32(56, self.flow_label << 12 | u32::from(self.traffic_class));
        w.u8(60, self.hop_limit);
        w.u8(61, self.rate & 0x3F);
        w.u8(62, self.sl << 4 | u8::from(self.subnet_local) << 3);
        w.u8(63, self.ack_timeout << 3);
        w.bytes(64, &self.private);
    }
}

/// Answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apr {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's name for it.
    pub remote_id: u32,
    /// Bytes of `info` that count; at most 72 make sense.
    pub info_len: u8,
    /// 0: loaded; 2: alternate paths are not supported.
    pub status: u8,
    /// Detail of a refusal.
    pub info: [u8; 72],
    /// For the application.
    pub private: [u8; 148],
}

impl Apr {
    /// The status that refuses because there are no alternate paths.
    pub const UNSUPPORTED: u8 = 2;
}

impl Attribute for Apr {
    const ID: u16 = 0x001A;

    fn read(r: Reader<'_>) -> Self {
        Self {
            local_id: r.u32(0),
            remote_id: r.u32(4),
            info_len: r.u8(8),
            status: r.u8(9),
            info: r.array(12),
            private: r.array(84),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.u8(8, self.info_len);
        w.u8(9, self.status);
        w.bytes(12, &self.info);
        w.bytes(84, &self.private);
    }
}
