//! REJ and MRA: a message is refused, or its answer takes longer.

use core::fmt;

use super::Attribute;
use super::fields::{Reader, Writer};

/// Which message a REJ or MRA is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Subject {
    /// The request.
    #[default]
    Req = 0,
    /// The reply.
    Rep = 1,
    /// Another message (REJ), or a request for an alternate path (MRA).
    Other = 2,
    /// Means nothing.
    Reserved = 3,
}

impl Subject {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }
}

/// Why a message was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RejectReason(pub u16);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl RejectReason {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// What it means, where the number is known.
            pub const fn meaning(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    /// No queue pair left.
    NO_QP = 1, "no queue pair available";
    /// No end-to-end context left.
    NO_EEC = 2, "no end-to-end context available";
    /// Tables are full.
    NO_RESOURCES = 3, "no resources available";
    /// The sender waited for the answer in vain.
    TIMEOUT = 4, "timed out waiting for the answer";
    /// The request is not supported.
    UNSUPPORTED = 5, "request not supported";
    /// The communication id names no connection.
    INVALID_COMM_ID = 6, "no such communication id";
    /// The communication ids do not belong together.
    INVALID_COMM_INSTANCE = 7, "communication ids do not match";
    /// Nobody listens.
    INVALID_SERVICE_ID = 8, "nobody listens on this service";
    /// The service type is not offered.
    INVALID_TRANSPORT = 9, "transport service not offered";
    /// A connection of the same queue pair is still known here.
    STALE_CONNECTION = 10, "stale connection: the queue pair is still in use here";
    /// The GID of the path is not this port's.
    INVALID_GID = 12, "invalid GID";
    /// The path MTU is larger than the port's.
    INVALID_MTU = 26, "path MTU not supported";
    /// Responder resources do not suffice.
    INSUFFICIENT_RESOURCES = 27, "insufficient responder resources";
    /// The application refused.
    CONSUMER = 28, "rejected by the application";
    /// The RNR retry count is not supported.
    INVALID_RNR_RETRY = 29, "RNR retry count not supported";
    /// The communication id is in use already.
    DUPLICATE_COMM_ID = 30, "communication id in use already";
    /// The class version is not supported.
    INVALID_CLASS_VERSION = 31, "connection management version not supported";
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{} ({meaning})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Refusal of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's name for the connection; 0 if it has none.
    pub local_id: u32,
    /// The receiver's name for it; 0 if the sender does not know it.
    pub remote_id: u32,
    /// What is refused.
    pub subject: Subject,
    /// Bytes of `info` that count, 7 bits; at most 72 make sense.
    pub info_len: u8,
    /// Why.
    pub reason: RejectReason,
    /// Detail, whose meaning depends on the reason.
    pub info: [u8; 72],
    /// For the application.
    pub private: [u8; 148],
}

impl Rej {
    /// The bytes of the detail that count.
    pub fn info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(self.info.len())]
    }
}

impl Attribute for Rej {
    const ID: u16 = 0x0012;

    fn read(r: Reader<'_>) -> Self {
        Self {
            local_id: r.u32(0),
            remote_id: r.u32(4),
            subject: Subject::from_bits(r.u8(8) >> 6),
            info_len: r.u8(9) >> 1,
            reason: RejectReason(r.u16(10)),
            info: r.array(12),
            private: r.array(84),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.u8(8, (self.subject as u8) << 6);
        w.u8(9, self.info_len << 1);
        w.u16(10, self.reason.0);
        w.bytes(12, &self.info);
        w.bytes(84, &self.private);
    }
}

/// The message has come, the answer takes longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's name for the connection.
    pub local_id: u32,
    /// The receiver's name for it.
    pub remote_id: u32,
    /// Which message has come.
    pub subject: Subject,
    /// How long the answer may take, 5 bits: 4.096 µs × 2^code.
    pub service_timeout: u8,
    /// For the application.
    pub private: [u8; 222],
}

impl Attribute for Mra {
    const ID: u16 = 0x0011;

    fn read(r: Reader<'_>) -> Self {
        Self {
            local_id: r.u32(0),
            remote_id: r.u32(4),
            subject: Subject::from_bits(r.u8(8) >> 6),
            service_timeout: r.u8(9) >> 3,
            private: r.array(10),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        w.u32(0, self.local_id);
        w.u32(4, self.remote_id);
        w.u8(8, (self.subject as u8) << 6);
        w.u8(9, self.service_timeout << 3);
        w.bytes(10, &self.private);
    }
}
