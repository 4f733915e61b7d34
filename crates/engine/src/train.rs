//! What `poll_transmit` gives to a driver: consecutive packets of one queue pair to one peer.

use std::ops::Range;

use wire::{Bth, Extensions, Path};

/// What the link can take in one train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrainLimits {
    /// Packets.
    pub segments: usize,
    /// Bytes, each packet counted from its BTH through its ICRC.
    pub bytes: usize,
}

impl TrainLimits {
    /// One packet at a time.
    pub const SINGLE: Self = Self { segments: 1, bytes: usize::MAX };
}

/// A set of priorities 0..=7 that may transmit; bit i stands for priority i.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priorities(pub u8);

impl Priorities {
    /// All eight.
    pub const ALL: Self = Self(0xFF);

    /// Whether `priority` may transmit.
    pub const fn allows(self, priority: u8) -> bool {
        self.0 & (1 << (priority & 7)) != 0
    }
}

/// A piece of a packet's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// Host memory whose registration the engine has checked.
    Memory {
        /// Address in the host's memory.
        addr: u64,
        /// Bytes.
        length: u32,
    },
    /// Bytes held by the train itself: a range of [`Train::inline`].
    Inline {
        /// First byte.
        start: u32,
        /// Bytes.
        length: u32,
    },
}

/// One packet of a train.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxPacket {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers.
    pub ext: Extensions,
    /// Payload bytes.
    pub length: u32,
    /// The payload: a range of [`Train::fragments`].
    pub fragments: Range<u32>,
    /// It has been sent before, or answers a request that had its answer before.
    pub again: bool,
}

impl TxPacket {
    /// Whether it carries a message's data (a CNP's reserved bytes are none).
    pub fn carries_data(&self) -> bool {
        self.length > 0 && self.bth.opcode != wire::Opcode::CNP
    }

    /// Bytes from the BTH through the ICRC.
    pub fn wire_len(&self) -> usize {
        wire::transport::wire_len(self.bth.opcode, self.length as usize).unwrap_or(0)
    }
}

/// Consecutive packets of one queue pair to one peer, equal in size but the last, which may be
/// shorter. The buffers are reused: a driver keeps one train and hands it in again and again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Train {
    /// Network layer of all packets; `None` while the train is empty.
    pub path: Option<Path>,
    /// The packets, in order.
    pub packets: Vec<TxPacket>,
    /// Pieces of payload, of all packets.
    pub fragments: Vec<Fragment>,
    /// Bytes that the train itself holds.
    pub inline: Vec<u8>,
}

impl Train {
    /// Empties the train, keeping its buffers.
    pub fn clear(&mut self) {
        self.path = None;
        self.packets.clear();
        self.fragments.clear();
        self.inline.clear();
    }

    /// The pieces of payload of a packet of this train.
    pub fn payload(&self, packet: &TxPacket) -> &[Fragment] {
        self.fragments
            .get(packet.fragments.start as usize..packet.fragments.end as usize)
            .unwrap_or(&[])
    }
}
