//! Quantities as people write them: `25Gbps`, `1us`, `4MB`, `0.2`, `10%`. Read exactly, by
//! integers; refused with a sentence that says what was expected.

use wire::{Rate, Span};

/// What a suffix stands for, by the smallest unit.
type Suffix = (&'static str, u128);

const RATES: &[Suffix] = &[
    ("bps", 1),
    ("kbps", 1_000),
    ("mbps", 1_000_000),
    ("gbps", 1_000_000_000),
    ("tbps", 1_000_000_000_000),
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("mbit/s", 1_000_000),
    ("gbit/s", 1_000_000_000),
    ("mb/s", 1_000_000),
    ("gb/s", 1_000_000_000),
];
const SPANS: &[Suffix] = &[
    ("ps", 1),
    ("ns", 1_000),
    ("us", 1_000_000),
    ("µs", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
];
const SIZES: &[Suffix] = &[
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
];
/// Parts of a billion in one.
const WHOLE: u128 = 1_000_000_000;

/// A data rate above 0: `100Gbps`, `2.5Gbps`.
pub fn rate(text: &str) -> Result<Rate, String> {
    let expected = "a rate above 0 such as 100Gbps (bps, kbps, Mbps, Gbps, Tbps)";
    let bps = quantity(text, RATES).filter(|n| *n > 0).ok_or_else(|| wrong(text, expected))?;
    Ok(Rate::from_bps(bps))
}

/// A time: `1us`, `0.001ms`.
pub fn span(text: &str) -> Result<Span, String> {
    let ps = quantity(text, SPANS);
    let expected = "a time such as 1us (ps, ns, us, ms, s)";
    ps.map(Span::from_ps).ok_or_else(|| wrong(text, expected))
}

/// Bytes: `4MB`, `64KiB`, `1000B`. Powers of ten, those with an `i` of two.
pub fn bytes(text: &str) -> Result<u64, String> {
    let expected = "a number of bytes such as 4MB or 64KiB (B, KB, MB, GB, KiB, MiB, GiB)";
    quantity(text, SIZES).ok_or_else(|| wrong(text, expected))
}

/// A part of the whole from 0 to 1, in parts of 10^9: `1%`, `0.01`.
pub fn fraction(text: &str) -> Result<u32, String> {
    let trimmed = text.trim();
    let (number, percent) = match trimmed.strip_suffix('%') {
        Some(number) => (number.trim_end(), true),
        None => (trimmed, false),
    };
    let parts = decimal(number, if percent { WHOLE / 100 } else { WHOLE });
    let expected = "a part of the whole such as 1% or 0.01";
    let parts = parts.filter(|parts| *parts <= WHOLE as u64);
    parts.map(|parts| parts as u32).ok_or_else(|| wrong(text, expected))
}

fn wrong(text: &str, expected: &str) -> String {
    format!("expected {expected}, found `{text}`")
}

/// A decimal number with one of the suffixes, in the smallest unit; none if a part of it would be
/// lost or it is too large.
fn quantity(text: &str, suffixes: &[Suffix]) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, suffix) = text.split_at(at);
    let suffix = suffix.trim_start().to_lowercase();
    let (_, scale) = suffixes.iter().find(|(name, _)| *name == suffix)?;
    decimal(number, *scale)
}

/// `number × scale`, exactly.
fn decimal(number: &str, scale: u128) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !digits(whole) || !digits(part) {
        return None;
    }
    let part = part.trim_end_matches('0');
    if part.len() > 18 || whole.len() > 20 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let below = 10_u128.pow(part.len() as u32);
    let numerator: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let scaled = numerator.checked_mul(scale)?;
    if scaled % below != 0 {
        return None;
    }
    u64::try_from(whole.checked_mul(scale)?.checked_add(scaled / below)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!(rate("100Gbps"), Ok(Rate::from_gbps(100)));
        assert_eq!(rate("2.5 Gbps"), Ok(Rate::from_bps(2_500_000_000)));
        assert_eq!(rate("50Mb/s"), Ok(Rate::from_bps(50_000_000)));
        assert_eq!(span("0.001ms"), Ok(Span::from_us(1)));
        assert_eq!(span("1000ns"), Ok(Span::from_us(1)));
        assert_eq!(span("83.84ns"), Ok(Span::from_ps(83_840)));
        assert_eq!(bytes("4MB"), Ok(4_000_000));
        assert_eq!(bytes("4MiB"), Ok(4 << 20));
        assert_eq!(bytes("0B"), Ok(0));
        assert_eq!(fraction("1%"), Ok(10_000_000));
        assert_eq!(fraction("0.2"), Ok(200_000_000));
        assert_eq!(fraction("100 %"), Ok(1_000_000_000));
    }

    #[test]
    fn what_cannot_be_meant() {
        for text in ["", "Gbps", "100", "100Gb", "1e9bps", "-1Gbps", "0Gbps", "1.2.3Gbps"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["1.5ps", "1 minute", "99999999999999999999s", "1"] {
            assert!(span(text).is_err(), "{text}");
        }
        for text in ["1.5B", "10 kilobytes", "12"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        for text in ["101%", "1.1", "%", "a"] {
            assert!(fraction(text).is_err(), "{text}");
        }
        let said = rate("100Gb").expect_err("a wrong unit");
        assert!(said.contains("100Gbps") && said.ends_with("`100Gb`"), "{said}");
    }
}
