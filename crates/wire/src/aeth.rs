//! The codes of acknowledgements: syndrome bytes, credit counts, RNR and ACK timers. The headers
//! that carry them are in `packet`; what to do about them is the engine's business.

use core::fmt;

use crate::packet::{NakCode, Syndrome};
use crate::units::{PS_PER_US, Span};

/// The credit code that says "no end-to-end credits".
pub const NO_CREDITS: u8 = 31;

/// Receive requests that a credit code 0..=30 stands for.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// RNR timer codes 0..=31 in units of 10 microseconds.
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The count of a credit code; `None` for 31 (no end-to-end credits) and above.
pub const fn credit_count(code: u8) -> Option<u32> {
    if (code as usize) < CREDITS.len() { Some(CREDITS[code as usize]) } else { None }
}

/// The largest code whose count is at most `count` (30 for anything above 32768).
pub const fn credit_code(count: u32) -> u8 {
    let mut code = CREDITS.len() - 1;
    while CREDITS[code] > count {
        code -= 1;
    }
    code as u8
}

/// How long a requester waits after an RNR NAK with this timer code (its low five bits count):
/// 0 is 655.36 ms, 1..=31 rise from 0.01 ms to 491.52 ms.
pub const fn rnr_timer(code: u8) -> Span {
    Span::from_us(RNR_TIMERS[(code & 31) as usize] as u64 * 10)
}

/// The smallest RNR timer code that waits at least `span`; 0 (the longest) if none does.
pub const fn rnr_timer_code(span: Span) -> u8 {
    let mut code = 1;
    while code < 32 {
        if rnr_timer(code).as_ps() >= span.as_ps() {
            return code;
        }
        code += 1;
    }
    0
}

/// The ACK timeout of a code (its low five bits count): 4.096 µs × 2^code, `None` (never) for 0.
pub const fn ack_timeout(code: u8) -> Option<Span> {
    match code & 31 {
        0 => None,
        t => Some(Span::from_ps(4_096_000 << t)),
    }
}

impl NakCode {
    /// The reason of the low five bits of a NAK syndrome; `None` for a reserved one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::PsnSequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccessError,
            3 => Self::RemoteOperationalError,
            4 => Self::InvalidRdRequest,
            _ => return None,
        })
    }
}

impl Syndrome {
    /// The meaning of a syndrome byte; total.
    pub const fn from_byte(byte: u8) -> Self {
        let low = byte & 31;
        match byte >> 5 {
            0 => Self::Ack(low),
            1 => Self::RnrNak(low),
            3 => match NakCode::from_code(low) {
                Some(code) => Self::Nak(code),
                None => Self::Reserved(byte),
            },
            _ => Self::Reserved(byte),
        }
    }

    /// The syndrome byte. Codes are cut to their five bits.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 31,
            Self::RnrNak(timer) => 0x20 | (timer & 31),
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PsnSequenceError => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccessError => "remote access error",
            Self::RemoteOperationalError => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
        })
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ack(code) => match credit_count(code) {
                Some(count) => write!(f, "ACK, {count} credits"),
                None => f.write_str("ACK"),
            },
            Self::RnrNak(code) => {
                let us = rnr_timer(code).as_ps() / PS_PER_US;
                write!(f, "RNR NAK, {}.{:02} ms", us / 1000, us % 1000 / 10)
            }
            Self::Nak(code) => write!(f, "NAK, {code}"),
            Self::Reserved(byte) => write!(f, "reserved syndrome {byte:#04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndrome_bytes_round_trip() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
        }
        assert_eq!(Syndrome::from_byte(0x1F), Syndrome::Ack(NO_CREDITS));
        assert_eq!(Syndrome::from_byte(0x2C), Syndrome::RnrNak(12));
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::RemoteAccessError));
        assert_eq!(Syndrome::from_byte(0x65), Syndrome::Reserved(0x65));
        assert_eq!(Syndrome::from_byte(0x40), Syndrome::Reserved(0x40));
        assert_eq!(Syndrome::from_byte(0x80), Syndrome::Reserved(0x80));
    }

    #[test]
    fn credits() {
        assert_eq!(credit_count(0), Some(0));
        assert_eq!(credit_count(30), Some(32768));
        assert_eq!(credit_count(31), None);
        for code in 0..31 {
            let count = credit_count(code).unwrap_or_default();
            assert_eq!(credit_code(count), code);
            if count > 4 {
                assert_eq!(credit_code(count - 1), code - 1);
            }
        }
        assert_eq!(credit_code(5), 4);
        assert_eq!(credit_code(u32::MAX), 30);
    }

    #[test]
    fn timers() {
        assert_eq!(rnr_timer(0), Span::from_us(655_360));
        assert_eq!(rnr_timer(1), Span::from_us(10));
        assert_eq!(rnr_timer(12), Span::from_us(640));
        assert_eq!(rnr_timer(31), Span::from_us(491_520));
        for code in 1..32 {
            assert_eq!(rnr_timer_code(rnr_timer(code)), code);
        }
        assert_eq!(rnr_timer_code(Span::from_us(50)), 5);
        assert_eq!(rnr_timer_code(Span::from_ms(600)), 0);
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Span::from_ns(8192)));
        assert_eq!(ack_timeout(14), Some(Span::from_ns(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Span::from_ns(4096 << 31)));
    }
}
