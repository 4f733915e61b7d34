//! The notation of fault specifications, `loss=1%,delay=20us,seed=42`: read, written, and refused
//! with a sentence that names the field, the value and what was expected. What the fields do lives
//! in the stage.

use std::fmt;
use std::str::FromStr;

use wire::{Rate, Span};

use super::{Chance, EcnSpec, FaultPlan, FaultSpec};
use crate::error::Error;

pub(super) const FIELDS: &str = "loss, dup, reorder, corrupt, delay, jitter, rate, queue, ecn, \
                                 fail and seed; behind `tx.` for what is sent, else for what is \
                                 received";
const CHANCE: &str = "a percentage such as 1% or 0.01%, or a fraction below 1 such as 0.01";
pub(super) const SPAN: &str = "a time of at most an hour, such as 20us (ns, us, ms, s)";
const RATE: &str = "a rate above 0 such as 10gbit (bit, kbit, mbit, gbit)";
const SIZE: &str = "a number of bytes above 0 such as 150000 or 256k (k, m: 1024, 1024²)";
const ECN: &str = "KMIN:KMAX:PMAX with KMIN below KMAX, such as 100k:400k:10%";
const SEED: &str = "a whole number below 2^64";

const SPANS: &[(&str, u64)] =
    &[("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", 1_000_000_000_000)];
const RATES: &[(&str, u64)] =
    &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];
const SIZES: &[(&str, u64)] = &[("k", 1 << 10), ("m", 1 << 20), ("", 1)];
/// An hour in picoseconds: far below what wrap-safe comparison of instants allows.
const LONGEST: u64 = 3_600_000_000_000_000;

impl FromStr for FaultSpec {
    type Err = Error;

    /// Reads fields separated by commas, in any order, each at most once; an empty text is
    /// [`FaultSpec::NONE`].
    ///
    /// | field | value | what happens |
    /// | --- | --- | --- |
    /// | `loss`, `dup`, `reorder`, `corrupt` | `1%` or `0.01` | that part of the packets is … |
    /// | `delay`, `jitter` | `20us` | packets take this long, and up to this much more |
    /// | `rate` | `10gbit` | the link's rate, behind a queue |
    /// | `queue` | `256k` | bytes that the queue takes (1 MiB if absent) |
    /// | `ecn` | `100k:400k:10%` | KMIN:KMAX:PMAX of RED marking by the queue's length |
    /// | `seed` | `42` | what the decisions are drawn from |
    ///
    /// One direction without one-shot faults: [`FaultPlan`] reads the whole notation.
    fn from_str(text: &str) -> Result<Self, Error> {
        let plan: FaultPlan = text.parse()?;
        if plan.tx.is_none() && plan.rx.shots.is_empty() {
            return Ok(plan.rx.spec);
        }
        Err(Error::invalid(format!(
            "faults: expected the faults of one direction, without `tx.` and `fail`, found `{text}`"
        )))
    }
}

impl FaultSpec {
    /// Reads the value of a field; `shown` is the field as it was written.
    pub(super) fn set(&mut self, shown: &str, field: &str, value: &str) -> Result<(), Error> {
        let (done, expected) = match field {
            "loss" => (put(&mut self.loss, chance(value)), CHANCE),
            "dup" => (put(&mut self.dup, chance(value)), CHANCE),
            "reorder" => (put(&mut self.reorder, chance(value)), CHANCE),
            "corrupt" => (put(&mut self.corrupt, chance(value)), CHANCE),
            "delay" => (put(&mut self.delay, span(value)), SPAN),
            "jitter" => (put(&mut self.jitter, span(value)), SPAN),
            "rate" => (put(&mut self.rate, rate(value).map(Some)), RATE),
            "queue" => (put(&mut self.queue, size(value).filter(|&n| n > 0).map(Some)), SIZE),
            "ecn" => (put(&mut self.ecn, ecn(value).map(Some)), ECN),
            "seed" => (put(&mut self.seed, value.parse().ok()), SEED),
            _ => {
                return Err(Error::invalid(format!(
                    "faults: unknown field `{shown}` (value `{value}`); fields are {FIELDS}"
                )));
            }
        };
        if done {
            return Ok(());
        }
        Err(Error::invalid(format!("faults: {shown}: expected {expected}, found `{value}`")))
    }

    /// Refuses what works on the queue before a limited link where there is none.
    pub(super) fn check(&self, prefix: &str) -> Result<(), Error> {
        for (field, given) in [("ecn", self.ecn.is_some()), ("queue", self.queue.is_some())] {
            if given && self.rate.is_none() {
                return Err(Error::invalid(format!(
                    "faults: `{prefix}{field}` works on the queue before a limited link: add \
                     {prefix}rate={RATE}"
                )));
            }
        }
        Ok(())
    }

    /// Writes the fields that differ from a perfect wire, each behind `prefix` and before a comma.
    pub(super) fn write(&self, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chances = [
            ("loss", self.loss),
            ("dup", self.dup),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        for (name, chance) in chances {
            if chance != Chance::NEVER {
                write!(f, "{prefix}{name}={chance},")?;
            }
        }
        for (name, span) in [("delay", self.delay), ("jitter", self.jitter)] {
            if span != Span::ZERO {
                write!(f, "{prefix}{name}=")?;
                write_span(f, span)?;
                f.write_str(",")?;
            }
        }
        if let Some(rate) = self.rate {
            let (unit, scale) = largest(RATES, rate.as_bps());
            write!(f, "{prefix}rate={}{unit},", rate.as_bps() / scale)?;
        }
        if let Some(queue) = self.queue {
            write!(f, "{prefix}queue={queue},")?;
        }
        if let Some(EcnSpec { kmin, kmax, pmax }) = self.ecn {
            write!(f, "{prefix}ecn={kmin}:{kmax}:{pmax},")?;
        }
        Ok(())
    }
}

fn put<T>(slot: &mut T, value: Option<T>) -> bool {
    value.map(|value| *slot = value).is_some()
}

fn chance(text: &str) -> Option<Chance> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, Chance::ONE / 100),
        None => (text, Chance::ONE),
    };
    let ppb = u32::try_from(decimal(number.trim_end(), scale.into())?).ok()?;
    // A plain 1 may be meant as 1 % or as always: it has to be written as one of them.
    let limit = if scale == Chance::ONE { Chance::ONE - 1 } else { Chance::ONE };
    (ppb <= limit).then_some(Chance(ppb))
}

pub(super) fn span(text: &str) -> Option<Span> {
    if text == "0" {
        return Some(Span::ZERO);
    }
    with_unit(text, SPANS).filter(|&ps| ps <= LONGEST).map(Span::from_ps)
}

fn rate(text: &str) -> Option<Rate> {
    with_unit(text, RATES).filter(|&bps| bps > 0).map(Rate::from_bps)
}

fn size(text: &str) -> Option<u64> {
    with_unit(text, SIZES)
}

fn ecn(text: &str) -> Option<EcnSpec> {
    let mut parts = text.split(':');
    let (kmin, kmax) = (size(parts.next()?)?, size(parts.next()?)?);
    let pmax = chance(parts.next()?)?;
    (parts.next().is_none() && kmin < kmax).then_some(EcnSpec { kmin, kmax, pmax })
}

/// A decimal number followed by one of the units, as a whole number of the smallest one.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let (_, scale) = units.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    decimal(number, *scale)
}

/// A decimal number times `scale`, if that is a whole number.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let mut value: u128 = 0;
    for digit in whole.chars() {
        value = value.checked_mul(10)?.checked_add(digit.to_digit(10)?.into())?;
    }
    value = value.checked_mul(scale.into())?;
    let mut place = u128::from(scale);
    for digit in part.chars() {
        let digit = u128::from(digit.to_digit(10)?);
        if digit != 0 && (place == 0 || place % 10 != 0) {
            return None;
        }
        place /= 10;
        value = value.checked_add(digit * place)?;
    }
    u64::try_from(value).ok()
}

impl fmt::Display for FaultSpec {
    /// Writes what [`FromStr`] reads: the fields that differ from a perfect wire, and the seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write("", f)?;
        write!(f, "seed={}", self.seed)
    }
}

impl fmt::Display for Chance {
    /// In percent, exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = Self::ONE / 100;
        write!(f, "{}", self.0 / percent)?;
        if !self.0.is_multiple_of(percent) {
            let digits = format!("{:07}", self.0 % percent);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("%")
    }
}

pub(super) fn write_span(f: &mut fmt::Formatter<'_>, span: Span) -> fmt::Result {
    let ps = span.as_ps();
    let (name, scale) =
        SPANS.iter().rev().find(|(_, scale)| ps.is_multiple_of(*scale)).unwrap_or(&SPANS[0]);
    write!(f, "{}", ps / scale)?;
    if !ps.is_multiple_of(*scale) {
        write!(f, ".{}", format!("{:03}", ps % scale).trim_end_matches('0'))?;
    }
    f.write_str(name)
}

/// The largest unit, of a list that begins with it, that divides `value`.
fn largest(units: &[(&'static str, u64)], value: u64) -> (&'static str, u64) {
    units.iter().copied().find(|(_, scale)| value.is_multiple_of(*scale)).unwrap_or(("", 1))
}
