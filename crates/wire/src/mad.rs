//! Management datagrams of the connection manager: 256 bytes between the general services queue
//! pairs of two ports. Bytes to meaning and back, total in both directions: reserved bits are not
//! looked at and written as zero. What the messages lead to is the business of the connection
//! manager in the engine. Layouts: InfiniBand architecture 1.4, chapters 12 and 13; the RDMA-CM
//! service ids and address header: annex A11.

use core::fmt;

use crate::units::Span;

mod connect;
mod datagram;
mod fields;
mod migrate;
mod reject;
mod service;

pub use connect::{CmPath, Drep, Dreq, Rep, Req, Rtu, ServiceType};
pub use datagram::{SidrRep, SidrReq, SidrStatus};
pub use migrate::{Apr, Lap};
pub use reject::{Mra, Rej, RejectReason, Subject};
pub use service::{IpCmHeader, PortSpace, ServiceId};

use fields::{Reader, Writer};

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;
/// Bytes of the header that all management datagrams share.
pub const MAD_HEADER_LEN: usize = 24;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;

/// The time that a 5-bit code of connection management stands for: 4.096 µs × 2^code (response
/// timeouts, ACK timeouts, service timeouts). Codes are cut to 5 bits.
pub const fn timeout_span(code: u8) -> Span {
    Span::from_ns(4096 << (code & 31))
}

/// The part of the common header that varies. Base version, class, class version, method and
/// attribute follow from what the datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MadHeader {
    /// Status; 0 in connection management.
    pub status: u16,
    /// Class-specific field; 0 in connection management.
    pub class_specific: u16,
    /// Transaction: an answer carries the number of what it answers.
    pub transaction: u64,
    /// Attribute modifier; 0 in connection management.
    pub modifier: u32,
}

impl MadHeader {
    /// The header of a message that belongs to this transaction.
    pub const fn new(transaction: u64) -> Self {
        Self { status: 0, class_specific: 0, transaction, modifier: 0 }
    }
}

/// A management datagram of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad {
    /// Common header.
    pub header: MadHeader,
    /// The message.
    pub message: CmMessage,
}

/// Why bytes are not a datagram of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MadError {
    /// Not 256 bytes long.
    Length(usize),
    /// The base version is not 1.
    BaseVersion(u8),
    /// The management class is not 7.
    Class(u8),
    /// The class version is not 2.
    ClassVersion(u8),
    /// The method is not Send (3).
    Method(u8),
    /// No message has this attribute id.
    Attribute(u16),
}

impl fmt::Display for MadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(n) => write!(f, "a management datagram has 256 bytes, not {n}"),
            Self::BaseVersion(v) => write!(f, "management base version {v}, expected 1"),
            Self::Class(c) => write!(f, "management class {c:#04x}, expected 0x07 (connections)"),
            Self::ClassVersion(v) => write!(f, "connection management version {v}, expected 2"),
            Self::Method(m) => write!(f, "management method {m:#04x}, expected 0x03 (Send)"),
            Self::Attribute(a) => write!(f, "no connection management message {a:#06x}"),
        }
    }
}

impl core::error::Error for MadError {}

/// What one message looks like after the common header.
trait Attribute: Sized {
    const ID: u16;
    fn read(from: Reader<'_>) -> Self;
    fn write(&self, to: &mut Writer<'_>);
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident($ty:ty) $label:literal,)*) => {
        /// The messages of the connection manager.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(clippy::large_enum_variant)] // All are read and written whole, one at a time.
        pub enum CmMessage { $($(#[$doc])* $name($ty),)* }

        impl CmMessage {
            fn read(attribute: u16, body: Reader<'_>) -> Option<Self> {
                match attribute {
                    $(<$ty as Attribute>::ID => Some(Self::$name(<$ty as Attribute>::read(body))),)*
                    _ => None,
                }
            }

            fn write(&self, body: &mut Writer<'_>) {
                match self { $(Self::$name(message) => message.write(body),)* }
            }

            /// The attribute id.
            pub const fn attribute(&self) -> u16 {
                match self { $(Self::$name(_) => <$ty as Attribute>::ID,)* }
            }

            /// The message's short name, as the architecture has it.
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => $label,)* }
            }
        }
    };
}

messages! {
    /// Request for a connection.
    Req(Req) "REQ",
    /// The message has come, the answer takes longer.
    Mra(Mra) "MRA",
    /// Refusal.
    Rej(Rej) "REJ",
    /// Acceptance of a request.
    Rep(Rep) "REP",
    /// Ready to use: the last step of connecting.
    Rtu(Rtu) "RTU",
    /// Request for disconnection.
    Dreq(Dreq) "DREQ",
    /// Answer to it.
    Drep(Drep) "DREP",
    /// Question for the queue pair of a datagram service.
    SidrReq(SidrReq) "SIDR_REQ",
    /// Answer to it.
    SidrRep(SidrRep) "SIDR_REP",
    /// Request for an alternate path.
    Lap(Lap) "LAP",
    /// Answer to it.
    Apr(Apr) "APR",
}

/// To whom on a port a message goes: what a port shared by several processes routes by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addressee {
    /// To whoever listens on a service.
    Service(ServiceId),
    /// To the owner of a communication id.
    Connection(u32),
    /// To the owner of a service resolution.
    Resolution(u32),
}

impl CmMessage {
    /// To whom the message goes. A REJ that gives up a request before it was answered (reason 4)
    /// names no receiver: its communication id is 0.
    pub const fn addressee(&self) -> Addressee {
        match self {
            Self::Req(m) => Addressee::Service(m.service),
            Self::SidrReq(m) => Addressee::Service(m.service),
            Self::SidrRep(m) => Addressee::Resolution(m.request_id),
            Self::Mra(m) => Addressee::Connection(m.remote_id),
            Self::Rej(m) => Addressee::Connection(m.remote_id),
            Self::Rep(m) => Addressee::Connection(m.remote_id),
            Self::Rtu(m) => Addressee::Connection(m.remote_id),
            Self::Dreq(m) => Addressee::Connection(m.remote_id),
            Self::Drep(m) => Addressee::Connection(m.remote_id),
            Self::Lap(m) => Addressee::Connection(m.remote_id),
            Self::Apr(m) => Addressee::Connection(m.remote_id),
        }
    }
}

impl Mad {
    /// A message within a transaction.
    pub const fn new(transaction: u64, message: CmMessage) -> Self {
        Self { header: MadHeader::new(transaction), message }
    }

    /// Reads a datagram.
    pub fn parse(bytes: &[u8]) -> Result<Self, MadError> {
        let whole: &[u8; MAD_LEN] = bytes.try_into().map_err(|_| MadError::Length(bytes.len()))?;
        let Some((head, body)) = whole.split_first_chunk::<MAD_HEADER_LEN>() else {
            return Err(MadError::Length(bytes.len()));
        };
        let head = Reader::new(head);
        match (head.u8(0), head.u8(1), head.u8(2), head.u8(3)) {
            (BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND) => {}
            (BASE_VERSION, CLASS_CM, CLASS_VERSION, method) => {
                return Err(MadError::Method(method));
            }
            (BASE_VERSION, CLASS_CM, version, _) => return Err(MadError::ClassVersion(version)),
            (BASE_VERSION, class, _, _) => return Err(MadError::Class(class)),
            (version, _, _, _) => return Err(MadError::BaseVersion(version)),
        }
        let header = MadHeader {
            status: head.u16(4),
            class_specific: head.u16(6),
            transaction: head.u64(8),
            modifier: head.u32(20),
        };
        let attribute = head.u16(16);
        let message =
            CmMessage::read(attribute, Reader::new(body)).ok_or(MadError::Attribute(attribute))?;
        Ok(Self { header, message })
    }

    /// The datagram as bytes.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        let (head, body) = bytes.split_at_mut(MAD_HEADER_LEN);
        let mut head = Writer::new(head);
        head.bytes(0, &[BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND]);
        head.u16(4, self.header.status);
        head.u16(6, self.header.class_specific);
        head.u64(8, self.header.transaction);
        head.u16(16, self.message.attribute());
        head.u32(20, self.header.modifier);
        self.message.write(&mut Writer::new(body));
        bytes
    }
}

#[cfg(test)]
mod tests;
