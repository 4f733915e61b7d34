//! MAC control frames: the pause of 802.3x for a whole link and of PFC for single priorities. What
//! a pause does to a sender is for the engine and the switch.

use crate::error::{DropReason, Layer};
use crate::units::{Rate, Span};

/// Opcode of an 802.3x pause.
const OPCODE_PAUSE: u16 = 0x0001;
/// Opcode of a priority pause.
const OPCODE_PFC: u16 = 0x0101;
/// Bit times in one quantum.
const QUANTUM_BITS: u64 = 512;

/// A MAC control frame from the opcode on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MacControl {
    /// 802.3x: the whole link is to rest for so many quanta; 0 ends the rest.
    Pause {
        /// Quanta of 512 bit times.
        quanta: u16,
    },
    /// PFC.
    Pfc(Pfc),
}

/// A priority pause.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Pfc {
    /// The class-enable vector: bit i speaks of priority i; the upper byte is reserved.
    pub classes: u16,
    /// Quanta for each priority; meaningful only where its class bit is set. 0 ends the pause.
    pub quanta: [u16; 8],
}

impl Pfc {
    /// A pause of one priority 0..=7 for `quanta`; 0 lets it go on. `None` for another priority.
    pub const fn one(priority: u8, quanta: u16) -> Option<Self> {
        if priority > 7 {
            return None;
        }
        let mut frame = Self { classes: 1 << priority, quanta: [0; 8] };
        frame.quanta[priority as usize] = quanta;
        Some(frame)
    }

    /// The quanta for a priority, if the frame speaks of it.
    pub fn get(&self, priority: u8) -> Option<u16> {
        let quanta = self.quanta.get(usize::from(priority))?;
        (self.classes >> priority & 1 == 1).then_some(*quanta)
    }
}

/// The time that a pause lasts on a link of this rate.
pub const fn pause_time(quanta: u16, rate: Rate) -> Span {
    rate.time_for(quanta as u64 * QUANTUM_BITS / 8)
}

impl MacControl {
    /// Bytes from the opcode through the last quantum.
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Pause { .. } => 4,
            Self::Pfc(_) => 20,
        }
    }

    /// Reads what follows the EtherType; returns it with the bytes behind, which are padding.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        const SHORT: DropReason = DropReason::Truncated(Layer::MacControl);
        let (opcode, rest) = bytes.split_first_chunk::<2>().ok_or(SHORT)?;
        match u16::from_be_bytes(*opcode) {
            OPCODE_PAUSE => {
                let (quanta, rest) = rest.split_first_chunk::<2>().ok_or(SHORT)?;
                Ok((Self::Pause { quanta: u16::from_be_bytes(*quanta) }, rest))
            }
            OPCODE_PFC => {
                let (classes, rest) = rest.split_first_chunk::<2>().ok_or(SHORT)?;
                let (words, rest) = rest.split_first_chunk::<16>().ok_or(SHORT)?;
                let mut pfc = Pfc { classes: u16::from_be_bytes(*classes), quanta: [0; 8] };
                for (quanta, word) in pfc.quanta.iter_mut().zip(words.as_chunks::<2>().0) {
                    *quanta = u16::from_be_bytes(*word);
                }
                Ok((Self::Pfc(pfc), rest))
            }
            other => Err(DropReason::UnknownMacControl(other)),
        }
    }

    /// Writes opcode and parameters; `out` is as long as they are.
    pub(crate) fn emit(&self, out: &mut [u8]) {
        let (opcode, parameters) = match self {
            Self::Pause { quanta } => (OPCODE_PAUSE, [*quanta; 9]),
            Self::Pfc(pfc) => {
                let [a, b, c, d, e, f, g, h] = pfc.quanta;
                (OPCODE_PFC, [pfc.classes, a, b, c, d, e, f, g, h])
            }
        };
        let words = core::iter::once(opcode).chain(parameters);
        for (bytes, word) in out.as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *bytes = word.to_be_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_times() {
        assert_eq!(pause_time(1, Rate::from_gbps(1)), Span::from_ns(512));
        assert_eq!(pause_time(0xFFFF, Rate::from_gbps(100)), Span::from_ps(335_539_200));
        assert_eq!(pause_time(0, Rate::from_gbps(100)), Span::ZERO);
    }

    #[test]
    fn one_priority() {
        let pfc = Pfc::one(3, 0xFFFF).expect("a priority");
        assert_eq!(pfc.get(3), Some(0xFFFF));
        assert_eq!(pfc.get(2), None);
        assert_eq!(pfc.get(8), None);
        assert_eq!(Pfc::one(8, 1), None);
    }
}
