//! What every encapsulation carries: transport headers, payload, pad and ICRC, kept so that a
//! captured packet can be written again byte by byte, even one that a receiver would refuse.

use crate::checksum::Check;
use crate::error::{DropReason, EmitError, Layer};
use crate::icrc;
use crate::packet::{Bth, Extensions};
use crate::transport::{self, BTH_LEN, ICRC_LEN, Reserved, pad_len};

/// The transport part of a packet, without its ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content<'a> {
    /// A packet that makes sense.
    Transport {
        /// Base transport header.
        bth: Bth,
        /// Extension headers.
        ext: Extensions,
        /// Bits without a meaning.
        reserved: Reserved,
        /// Payload without pad.
        payload: &'a [u8],
    },
    /// Bytes that a receiver drops, though the layers below are in order.
    Refused {
        /// Why.
        reason: DropReason,
        /// From the BTH to the ICRC, at least a BTH.
        bytes: &'a [u8],
    },
}

/// A content as read, before its ICRC is compared.
pub(crate) struct Parsed<'a> {
    pub(crate) content: Content<'a>,
    /// What the ICRC covers, from the BTH on.
    pub(crate) covered: &'a [u8],
    pub(crate) stored_icrc: u32,
}

impl Parsed<'_> {
    /// The verdict on the ICRC, given the state before the BTH.
    pub(crate) fn icrc(&self, state: u32) -> Check<u32> {
        Check::of(self.stored_icrc, icrc::finish(state, self.covered))
    }
}

impl<'a> Content<'a> {
    /// A content as senders make it, reserved bits zero.
    pub fn new(bth: Bth, ext: Extensions, payload: &'a [u8]) -> Self {
        Self::Transport { bth, ext, reserved: Reserved::default(), payload }
    }

    /// Reads bytes from the BTH through the ICRC.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Parsed<'a>, DropReason> {
        const SHORT: DropReason = DropReason::Truncated(Layer::Transport);
        let (covered, icrc) = bytes.split_last_chunk::<ICRC_LEN>().ok_or(SHORT)?;
        if covered.len() < BTH_LEN {
            return Err(SHORT);
        }
        let content = match transport::parse(bytes) {
            Ok(t) => Self::Transport {
                bth: t.bth,
                ext: t.ext,
                reserved: Reserved::read(t.bth.opcode, covered),
                payload: t.payload,
            },
            Err(reason) => Self::Refused { reason, bytes: covered },
        };
        Ok(Parsed { content, covered, stored_icrc: u32::from_le_bytes(*icrc) })
    }

    /// Bytes from the BTH through the ICRC.
    pub fn wire_len(&self) -> usize {
        match self {
            Self::Transport { bth, payload, .. } => {
                let bare = BTH_LEN + payload.len() + pad_len(payload.len()) + ICRC_LEN;
                transport::wire_len(bth.opcode, payload.len()).unwrap_or(bare)
            }
            Self::Refused { bytes, .. } => bytes.len() + ICRC_LEN,
        }
    }

    /// Writes everything from the BTH to the ICRC, which is left to the caller; `out` ends where
    /// the ICRC begins.
    pub(crate) fn emit(&self, out: &mut [u8]) -> Result<(), EmitError> {
        match self {
            Self::Transport { bth, ext, reserved, payload } => {
                let headers = transport::emit_headers(bth, ext, payload.len(), out)?;
                let (body, pad) = out[headers..].split_at_mut(payload.len());
                body.copy_from_slice(payload);
                pad.fill(0);
                reserved.write(bth.opcode, pad_len(payload.len()), out);
            }
            Self::Refused { bytes, .. } => out.copy_from_slice(bytes),
        }
        Ok(())
    }
}
