//! The one opcode table: service × operation gives headers, position and direction. Nothing else
//! in the project restates it.

use core::fmt;

use bitflags::bitflags;

/// The transport service in the top three bits of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification; its only operation is [`Operation::Cnp`].
    Cnp = 4,
    /// Extended reliable connection.
    Xrc = 5,
    /// Of the manufacturer's range: flow control of unreliable services between devices of this
    /// project; its only operation is [`Operation::Acknowledge`]. Others drop it as unknown.
    Flow = 7,
}

/// The operation in the low five bits of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0A,
    WriteOnlyImm = 0x0B,
    ReadRequest = 0x0C,
    ReadResponseFirst = 0x0D,
    ReadResponseMiddle = 0x0E,
    ReadResponseLast = 0x0F,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    Flush = 0x1C,
    AtomicWrite = 0x1D,
    /// Congestion notification packet (not a five-bit value; see [`Opcode::CNP`]).
    Cnp = 0x81,
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

bitflags! {
    /// The extension headers of an opcode, in the order in which they follow the BTH.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct HeaderSet: u16 {
        /// Datagram extended transport header.
        const DETH = 1 << 0;
        /// XRC extended transport header.
        const XRCETH = 1 << 1;
        /// Flush extended transport header.
        const FETH = 1 << 2;
        /// RDMA extended transport header.
        const RETH = 1 << 3;
        /// Atomic extended transport header.
        const ATOMIC_ETH = 1 << 4;
        /// ACK extended transport header.
        const AETH = 1 << 5;
        /// Atomic ACK extended transport header.
        const ATOMIC_ACK_ETH = 1 << 6;
        /// Immediate data.
        const IMM = 1 << 7;
        /// Invalidate extended transport header.
        const IETH = 1 << 8;
    }
}

impl HeaderSet {
    /// Bytes that the headers take on the wire.
    pub const fn byte_len(self) -> usize {
        const SIZES: [usize; 9] = [8, 4, 4, 16, 28, 4, 8, 4, 4];
        let (mut sum, mut i) = (0, 0);
        while i < SIZES.len() {
            if self.bits() & (1 << i) != 0 {
                sum += SIZES[i];
            }
            i += 1;
        }
        sum
    }
}

/// An opcode as it stands in the first byte of a BTH; any value, known or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Congestion notification packet of RoCEv2.
    pub const CNP: Self = Self(0x81);
    /// Flow control of unreliable services: a question if it asks for an acknowledgement, else an
    /// answer. The DETH has the number of the queue pair that speaks, and in a question the Q_Key
    /// of the datagrams that it is about.
    pub const FLOW: Self = Self(0xF1);

    /// The opcode of an operation on a service.
    pub const fn new(service: Service, operation: Operation) -> Self {
        match operation {
            Operation::Cnp => Self::CNP,
            op => Self((service as u8) << 5 | op as u8),
        }
    }

    /// The service, if it is one that is known here (reliable datagram and the rest of the
    /// manufacturers' range are not).
    pub const fn service(self) -> Option<Service> {
        match self.0 >> 5 {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            3 => Some(Service::Ud),
            4 => Some(Service::Cnp),
            5 => Some(Service::Xrc),
            7 if self.0 == Self::FLOW.0 => Some(Service::Flow),
            _ => None,
        }
    }

    /// The operation, if this service has it.
    pub const fn operation(self) -> Option<Operation> {
        let Some(service) = self.service() else { return None };
        let Some(op) = Operation::from_low_bits(self.0 & 0x1F) else { return None };
        match service {
            Service::Rc | Service::Xrc => Some(op),
            Service::Uc if (op as u8) <= Operation::WriteOnlyImm as u8 => Some(op),
            Service::Ud if matches!(op, Operation::SendOnly | Operation::SendOnlyImm) => Some(op),
            Service::Cnp if self.0 == Self::CNP.0 => Some(Operation::Cnp),
            Service::Flow => Some(op),
            _ => None,
        }
    }

    /// The extension headers that follow the BTH; `None` for an opcode that does not exist.
    pub const fn headers(self) -> Option<HeaderSet> {
        let Some(op) = self.operation() else { return None };
        let own = op.headers();
        Some(match self.service() {
            Some(Service::Ud | Service::Flow) => own.union(HeaderSet::DETH),
            Some(Service::Xrc) if op.is_request() => own.union(HeaderSet::XRCETH),
            _ => own,
        })
    }
}

impl fmt::Display for Opcode {
    /// Service and operation, such as "RC SEND Only"; the number of an opcode that does not exist.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = match self.service() {
            Some(Service::Rc) => "RC ",
            Some(Service::Uc) => "UC ",
            Some(Service::Ud) => "UD ",
            Some(Service::Xrc) => "XRC ",
            Some(Service::Flow) => "Flow ",
            Some(Service::Cnp) | None => "",
        };
        match self.operation() {
            Some(operation) => write!(f, "{service}{}", operation.name()),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

impl Operation {
    /// The operation's name as people write it.
    pub const fn name(self) -> &'static str {
        use Operation::*;
        match self {
            SendFirst => "SEND First",
            SendMiddle => "SEND Middle",
            SendLast => "SEND Last",
            SendLastImm => "SEND Last with Immediate",
            SendOnly => "SEND Only",
            SendOnlyImm => "SEND Only with Immediate",
            WriteFirst => "RDMA WRITE First",
            WriteMiddle => "RDMA WRITE Middle",
            WriteLast => "RDMA WRITE Last",
            WriteLastImm => "RDMA WRITE Last with Immediate",
            WriteOnly => "RDMA WRITE Only",
            WriteOnlyImm => "RDMA WRITE Only with Immediate",
            ReadRequest => "RDMA READ Request",
            ReadResponseFirst => "RDMA READ Response First",
            ReadResponseMiddle => "RDMA READ Response Middle",
            ReadResponseLast => "RDMA READ Response Last",
            ReadResponseOnly => "RDMA READ Response Only",
            Acknowledge => "Acknowledge",
            AtomicAcknowledge => "ATOMIC Acknowledge",
            CompareSwap => "CmpSwap",
            FetchAdd => "FetchAdd",
            SendLastInvalidate => "SEND Last with Invalidate",
            SendOnlyInvalidate => "SEND Only with Invalidate",
            Flush => "FLUSH",
            AtomicWrite => "ATOMIC WRITE",
            Cnp => "CNP",
        }
    }

    const fn from_low_bits(bits: u8) -> Option<Self> {
        use Operation::*;
        Some(match bits {
            0x00 => SendFirst,
            0x01 => SendMiddle,
            0x02 => SendLast,
            0x03 => SendLastImm,
            0x04 => SendOnly,
            0x05 => SendOnlyImm,
            0x06 => WriteFirst,
            0x07 => WriteMiddle,
            0x08 => WriteLast,
            0x09 => WriteLastImm,
            0x0A => WriteOnly,
            0x0B => WriteOnlyImm,
            0x0C => ReadRequest,
            0x0D => ReadResponseFirst,
            0x0E => ReadResponseMiddle,
            0x0F => ReadResponseLast,
            0x10 => ReadResponseOnly,
            0x11 => Acknowledge,
            0x12 => AtomicAcknowledge,
            0x13 => CompareSwap,
            0x14 => FetchAdd,
            0x16 => SendLastInvalidate,
            0x17 => SendOnlyInvalidate,
            0x1C => Flush,
            0x1D => AtomicWrite,
            _ => return None,
        })
    }

    /// The extension headers of the operation itself (a datagram's DETH and an XRC request's
    /// XRCETH come on top).
    pub const fn headers(self) -> HeaderSet {
        use Operation::*;
        match self {
            SendFirst | SendMiddle | SendLast | SendOnly | WriteMiddle | WriteLast
            | ReadResponseMiddle | Cnp => HeaderSet::empty(),
            SendLastImm | SendOnlyImm | WriteLastImm => HeaderSet::IMM,
            SendLastInvalidate | SendOnlyInvalidate => HeaderSet::IETH,
            WriteFirst | WriteOnly | ReadRequest | AtomicWrite => HeaderSet::RETH,
            WriteOnlyImm => HeaderSet::RETH.union(HeaderSet::IMM),
            ReadResponseFirst | ReadResponseLast | ReadResponseOnly | Acknowledge => {
                HeaderSet::AETH
            }
            AtomicAcknowledge => HeaderSet::AETH.union(HeaderSet::ATOMIC_ACK_ETH),
            CompareSwap | FetchAdd => HeaderSet::ATOMIC_ETH,
            Flush => HeaderSet::FETH.union(HeaderSet::RETH),
        }
    }

    /// Where the packet stands in its message.
    pub const fn position(self) -> Position {
        use Operation::*;
        match self {
            SendFirst | WriteFirst | ReadResponseFirst => Position::First,
            SendMiddle | WriteMiddle | ReadResponseMiddle => Position::Middle,
            SendLast | SendLastImm | SendLastInvalidate | WriteLast | WriteLastImm
            | ReadResponseLast => Position::Last,
            _ => Position::Only,
        }
    }

    /// Whether the packet goes from requester to responder.
    pub const fn is_request(self) -> bool {
        use Operation::*;
        !matches!(
            self,
            ReadResponseFirst
                | ReadResponseMiddle
                | ReadResponseLast
                | ReadResponseOnly
                | Acknowledge
                | AtomicAcknowledge
                | Cnp
        )
    }

    /// Whether the packet is part of a SEND.
    pub const fn is_send(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastImm
                | SendOnly
                | SendOnlyImm
                | SendLastInvalidate
                | SendOnlyInvalidate
        )
    }

    /// Whether the packet is part of a WRITE.
    pub const fn is_write(self) -> bool {
        (self as u8) >= Operation::WriteFirst as u8 && (self as u8) <= Operation::WriteOnlyImm as u8
    }

    /// Whether the packet is part of a READ response.
    pub const fn is_read_response(self) -> bool {
        (self as u8) >= Operation::ReadResponseFirst as u8
            && (self as u8) <= Operation::ReadResponseOnly as u8
    }

    /// Whether the operation is a compare-and-swap or a fetch-and-add.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Operation::CompareSwap | Operation::FetchAdd)
    }
}
