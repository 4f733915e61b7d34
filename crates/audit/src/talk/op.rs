//! What an opcode is to the auditor: service, kind and place in a message, from its eight bits
//! (InfiniBand architecture, volume 1, table 38), not from the table of `wire`.

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Kind {
    /// SEND, with or without immediate or invalidation.
    Send,
    /// RDMA WRITE, with or without immediate.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap, fetch and add.
    Atomic,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE.
    AtomicWrite,
}

impl Kind {
    /// All of them, in the order of a report.
    pub(super) const ALL: [Self; 6] =
        [Self::Send, Self::Write, Self::Read, Self::Atomic, Self::Flush, Self::AtomicWrite];

    /// The name that a report prints.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Atomic => "ATOMIC",
            Self::Flush => "FLUSH",
            Self::AtomicWrite => "ATOMIC WRITE",
        }
    }

    /// Whether it is answered by a response of its own, not by an ACK.
    pub(super) const fn has_response(self) -> bool {
        matches!(self, Self::Read | Self::Atomic | Self::Flush | Self::AtomicWrite)
    }
}

/// Place of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The only one.
    Only,
}

impl Place {
    /// Whether a message begins here.
    pub(super) const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether it ends here.
    pub(super) const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Op {
    /// A request.
    Request(Kind, Place),
    /// A READ response.
    ReadResponse(Place),
    /// ACK, NAK or RNR NAK.
    Acknowledge,
    /// Answer to an atomic.
    AtomicAcknowledge,
    /// Congestion notification, manufacturers' own, undefined.
    Other,
}

/// Service in the top three bits.
pub(super) const RC: u8 = 0;
/// Unreliable connection.
pub(super) const UC: u8 = 1;
/// Unreliable datagram.
pub(super) const UD: u8 = 3;
/// Extended reliable connection.
pub(super) const XRC: u8 = 5;

/// The service bits of an opcode.
pub(super) const fn service(opcode: u8) -> u8 {
    opcode >> 5
}

/// Whether opcodes of a service are acknowledged.
pub(super) const fn is_reliable(service: u8) -> bool {
    matches!(service, RC | XRC)
}

/// What an opcode says.
pub(super) const fn read(opcode: u8) -> Op {
    use Kind::{Atomic, AtomicWrite, Flush, Read, Send, Write};
    use Place::{First, Last, Middle, Only};
    if !matches!(service(opcode), RC | UC | UD | XRC) {
        return Op::Other;
    }
    match opcode & 0x1F {
        0x00 => Op::Request(Send, First),
        0x01 => Op::Request(Send, Middle),
        0x02 | 0x03 | 0x16 => Op::Request(Send, Last),
        0x04 | 0x05 | 0x17 => Op::Request(Send, Only),
        0x06 => Op::Request(Write, First),
        0x07 => Op::Request(Write, Middle),
        0x08 | 0x09 => Op::Request(Write, Last),
        0x0A | 0x0B => Op::Request(Write, Only),
        0x0C => Op::Request(Read, Only),
        0x0D => Op::ReadResponse(First),
        0x0E => Op::ReadResponse(Middle),
        0x0F => Op::ReadResponse(Last),
        0x10 => Op::ReadResponse(Only),
        0x11 => Op::Acknowledge,
        0x12 => Op::AtomicAcknowledge,
        0x13 | 0x14 => Op::Request(Atomic, Only),
        0x1C => Op::Request(Flush, Only),
        0x1D => Op::Request(AtomicWrite, Only),
        _ => Op::Other,
    }
}

/// Packet sequence numbers have 24 bits.
const PSN_SPACE: u64 = 1 << 24;

/// An unwrapped PSN to begin with: far enough from 0 that nothing before it is below 0.
pub(super) const fn first_psn(psn: u32) -> u64 {
    (1 << 32) + psn as u64 % PSN_SPACE
}

/// The unwrapped PSN nearest to `near` whose low 24 bits are `psn`.
pub(super) const fn unwrap_psn(psn: u32, near: u64) -> u64 {
    let low = near % PSN_SPACE;
    let ahead = (psn as u64 % PSN_SPACE + PSN_SPACE - low) % PSN_SPACE;
    if ahead < PSN_SPACE / 2 { near + ahead } else { (near + ahead).saturating_sub(PSN_SPACE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_goes_on_over_the_wrap_and_back() {
        let last = first_psn(0xFF_FFFF);
        assert_eq!(unwrap_psn(0, last), last + 1);
        assert_eq!(unwrap_psn(0xFF_FFFF, last + 1), last);
        assert_eq!(unwrap_psn(0xFF_FFF0, last + 3), last - 15);
        assert_eq!(unwrap_psn(0x7F_FFFE, last), last + 0x7F_FFFF);
        assert_eq!(unwrap_psn(0x7F_FFFF, last), last - 0x80_0000);
    }
}
