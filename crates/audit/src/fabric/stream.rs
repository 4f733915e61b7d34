//! What a packet is to the network's judges: which stream of its half it belongs to. Requests and
//! READ responses count PSNs of their own, acknowledgements are neither.

use wire::Opcode;

/// The stream of a connected queue pair's packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stream {
    /// SEND, WRITE, READ request, atomic, FLUSH.
    Request,
    /// READ response.
    Response,
    /// Acknowledgement of any kind.
    Answer,
    /// Congestion notification.
    Cnp,
}

/// The stream of an opcode; `None` for datagrams and what is not known.
pub(super) const fn stream(opcode: Opcode) -> Option<Stream> {
    const RC: u8 = 0;
    const UC: u8 = 1;
    const XRC: u8 = 5;
    if opcode.0 == Opcode::CNP.0 {
        return Some(Stream::Cnp);
    }
    match (opcode.0 >> 5, opcode.0 & 0x1F) {
        (RC | UC | XRC, 0x00..=0x0B) => Some(Stream::Request),
        (RC | XRC, 0x0C | 0x13 | 0x14 | 0x16 | 0x17 | 0x1C | 0x1D) => Some(Stream::Request),
        (RC | XRC, 0x0D..=0x10) => Some(Stream::Response),
        (RC | XRC, 0x11 | 0x12) => Some(Stream::Answer),
        _ => None,
    }
}

/// How far a PSN lies ahead of another, on the circle of 24 bits.
pub(super) const fn ahead(psn: u32, of: u32) -> u32 {
    psn.wrapping_sub(of) & 0xFF_FFFF
}

/// Half of that circle: from here on a PSN is behind.
pub(super) const BEHIND: u32 = 1 << 23;
