//! Work requests as a program posts them.

/// A scatter-gather entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address within the region.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// What a send request does, as far as the checker cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// SEND of any kind.
    Send,
    /// WRITE of any kind.
    Write,
    /// READ.
    Read,
    /// An atomic on this remote address.
    Atomic(u64),
    /// Binding or invalidating: no bytes.
    Local,
    /// Unknown to this library, or not offered.
    Other(u32),
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Atomic(_) => "atomic",
            Self::Local => "local operation",
            Self::Other(_) => "unknown operation",
        }
    }

    /// Whether the device writes the pieces.
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::Atomic(_))
    }
}

/// A send request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendWork {
    /// The program's name for it.
    pub wr_id: u64,
    /// What it does.
    pub operation: Operation,
    /// `IBV_SEND_SIGNALED`.
    pub signaled: bool,
    /// `IBV_SEND_INLINE`.
    pub inline: bool,
    /// Whether it has an address handle (datagrams).
    pub addressed: bool,
    /// Bytes.
    pub pieces: Vec<Piece>,
    /// Bytes in all, where they are inline and not in pieces.
    pub inline_length: u64,
}

/// A receive request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveWork {
    /// The program's name for it.
    pub wr_id: u64,
    /// Where the bytes go.
    pub pieces: Vec<Piece>,
}
